"""Probe results: additive sums per position, stored in a small JSON file per dataset and probe.

Replicates of the sums are from the Poisson bootstrap over documents (Hanley & MacGibbon 2006,
Computer Methods and Programs in Biomedicine 83, 57-62): each document has a Poisson(1) weight in
each replicate. The document id is the seed of the weights, so that replicates can be added over
blocks, domains and machines, and all questions about a document are resampled together.
"""

from __future__ import annotations

import base64
import logging
import statistics
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy.stats import beta

from posir_significance.findings import MIN_DOCUMENTS
from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError, ProfileError, summarize_error
from posir_tasks.base.files import find_files
from posir_tasks.base.records import Fields, Record
from posir_tasks.base.untrusted import read_json
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.profile import validate_json

if TYPE_CHECKING:
    from mteb.models import ModelMeta

logger = logging.getLogger(__name__)

#: Schema version of result files. Newer versions are rejected.
SCHEMA = 1
FOLDER = "probes"
#: Number of bootstrap replicates.
REPLICATES = 200
#: Minimum share of defined replicates for an interval. About five documents are enough.
MIN_DEFINED = 0.99

#: Reduces the values at P positions, shape (..., P), to one number, shape (...).
Compute: TypeAlias = Callable[[Floats], Floats]


def select(index: int) -> Compute:
    """Build a function that selects the value at one position."""
    return lambda values: values[..., index]


def average(positions: slice | list[int]) -> Compute:
    """Build a function that averages over positions."""
    return lambda values: values[..., positions].mean(axis=-1)


def subtract(first: Compute, second: Compute) -> Compute:
    """Build a function that subtracts the second result from the first."""
    return lambda values: first(values) - second(values)


#: Number K of sums per position, by statistic: n, x and x squared for `mean` and `effect_size`; n,
#: x, y, x squared, y squared and xy for `pearson`; n for `share`.
TERM_COUNTS = {"mean": 3, "effect_size": 3, "pearson": 6, "share": 1}


@np.errstate(invalid="ignore", divide="ignore")
def compute_statistic(statistic: str, totals: Floats) -> dict[str, Floats]:
    """Compute a statistic from its sums.

    - `mean`: the mean, and the standard deviation `sd` (denominator n).
    - `effect_size`: the mean in standard deviations (denominator n - 1); 0 if the mean is 0.
    - `pearson`: r, and the `slope` and two-sided `p_value` as in SciPy's `linregress`. Points are
      assumed to be independent, as in the papers, although sentences of one text are not.
    - `share`: the position's share of the total count.

    Args:
        statistic: A key of `TERM_COUNTS`.
        totals: Sums, shape (..., P, K).

    Returns:
        `value` and other statistics by name, shape (..., P); NaN if undefined.
    """
    sums = np.moveaxis(totals, -1, 0)
    n = sums[0]
    if statistic == "share":
        return {"value": n / n.sum(axis=-1, keepdims=True)}
    if statistic == "pearson":
        _, x, y, xx, yy, xy = sums
        # Variances and covariance times n squared.
        x_variance = np.maximum(n * xx - x * x, 0)
        y_variance = np.maximum(n * yy - y * y, 0)
        covariance = n * xy - x * y
        scale = np.sqrt(x_variance * y_variance)
        r = np.where(scale > 0, covariance / scale, np.nan)
        # Under the null hypothesis, r has a beta distribution on [-1, 1].
        shape = n / 2 - 1
        p_value = 2 * beta.sf(np.abs(r), shape, shape, -1, 2)
        return {"value": r, "slope": covariance / x_variance, "p_value": p_value}
    mean = sums[1] / n
    deviation = np.sqrt(np.maximum(sums[2] / n - mean**2, 0))
    if statistic == "mean":
        return {"value": mean, "sd": deviation}
    effect_sizes = np.where(mean == 0, 0.0, mean / (deviation * np.sqrt(n / (n - 1))))
    return {"value": np.where(n > 1, effect_sizes, np.nan)}


@dataclass(frozen=True, eq=False)
class ProbeSums:
    """A probe's sums over documents, by position."""

    statistic: str
    """A key of `TERM_COUNTS`."""
    positions: tuple[str, ...]
    """Names of the P positions or conditions."""
    documents: int
    """Number of measured documents."""
    totals: Floats
    """Sums over all documents, shape (P, K)."""
    replicates: Floats
    """Sums for each bootstrap replicate, shape (REPLICATES, P, K)."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of skipped texts or questions by reason."""

    @classmethod
    def from_columns(
        cls,
        statistic: str,
        positions: Sequence[str],
        documents: Sequence[str],
        rows: Integers,
        columns: Floats,
    ) -> ProbeSums:
        """Sum the terms of n values.

        Args:
            statistic: A key of `TERM_COUNTS`.
            positions: Names of the P positions.
            documents: Document id of each value.
            rows: Position index of each value, shape (n,).
            columns: The value's terms in the K sums of the statistic, shape (n, K).
        """
        names, document_indices = np.unique(documents, return_inverse=True)
        by_document = np.zeros((len(names), len(positions), TERM_COUNTS[statistic]))
        np.add.at(by_document, (document_indices, rows), columns)
        weights = np.array([sample_weights(name) for name in names]).reshape(-1, REPLICATES)
        return cls(
            statistic,
            tuple(positions),
            len(names),
            by_document.sum(axis=0),
            np.tensordot(weights.T, by_document, 1),
        )

    @classmethod
    def from_means(
        cls,
        positions: Sequence[str],
        documents: Sequence[str],
        values: Floats,
        statistic: str = "mean",
    ) -> ProbeSums:
        """Sum values to compute their mean or effect size at each position.

        Args:
            positions: Names of the P positions.
            documents: Ids of the n documents.
            values: Values, shape (n, P); NaN is ignored.
            statistic: `mean` or `effect_size`.
        """
        rows, columns = np.nonzero(~np.isnan(values))
        # Powers 0, 1 and 2 of the values.
        terms = np.vander(values[rows, columns], 3, increasing=True)
        return cls.from_columns(
            statistic, positions, np.take(documents, rows).tolist(), columns, terms
        )

    @classmethod
    def from_counts(
        cls,
        positions: Sequence[str],
        documents: Sequence[str],
        rows: Sequence[int],
    ) -> ProbeSums:
        """Count n items to compute the share of each position.

        Args:
            positions: Names of the P positions.
            documents: Document id of each item.
            rows: Position index of each item.
        """
        terms = np.ones((len(rows), 1))
        return cls.from_columns("share", positions, documents, np.array(rows, int), terms)

    def __add__(self, other: ProbeSums) -> ProbeSums:
        """Add the sums over other documents.

        Raises:
            ProfileError: The statistics or positions differ.
        """
        if (self.statistic, self.positions) != (other.statistic, other.positions):
            raise ProfileError(
                "Probe results with different positions cannot be added. Run the probe again."
            )
        return replace(
            self,
            documents=self.documents + other.documents,
            totals=self.totals + other.totals,
            replicates=self.replicates + other.replicates,
            skipped=Counter(self.skipped) + Counter(other.skipped),
        )

    @cached_property
    def details(self) -> dict[str, Floats]:
        """All statistics by name, shape (P,); NaN if undefined."""
        return compute_statistic(self.statistic, self.totals)

    @property
    def values(self) -> Floats:
        """Values at the positions, shape (P,); NaN if undefined."""
        return self.details["value"]

    @cached_property
    def replicate_values(self) -> Floats:
        """Values at the positions in each bootstrap replicate, shape (REPLICATES, P)."""
        return compute_statistic(self.statistic, self.replicates)["value"]

    def estimate(self, summary: Compute) -> Estimate | None:
        """Compute a summary with its percentile bootstrap interval. Return None if undefined."""
        return estimate_parts([(self, summary)])

    @cached_property
    def estimates(self) -> list[Estimate | None]:
        """Value at each position with its interval, or None if undefined."""
        return [self.estimate(select(index)) for index in range(len(self.positions))]

    def describe_skipped(self) -> str:
        """Describe the skipped texts or questions: `3 (empty text), 1 (no evidence span)`."""
        return ", ".join(f"{count:,} ({reason})" for reason, count in sorted(self.skipped.items()))

    def to_json(self) -> Record:
        """Convert to plain JSON. Replicates are stored in single precision."""
        content = zlib.compress(self.replicates.astype(np.float32).tobytes())
        return {
            **vars(replace(self)),
            "schema": SCHEMA,
            "totals": self.totals.tolist(),
            "replicates": base64.b64encode(content).decode(),
        }

    @classmethod
    def from_json(cls, data: Fields) -> ProbeSums:
        """Build from JSON.

        Raises:
            ProfileError: The JSON is damaged.
            NewerSchemaError: The JSON was written by a newer version of posir.
        """
        with validate_json(data, SCHEMA, "probe result"):
            positions = tuple(data["positions"])
            shape = (len(positions), TERM_COUNTS[data["statistic"]])
            size = np.empty((REPLICATES, *shape), np.float32).nbytes
            content = base64.b64decode(data["replicates"])
            try:
                buffer = zlib.decompressobj().decompress(content, size + 1)
            except zlib.error as error:
                raise ValueError(f"replicates: {error}") from error
            replicates = np.frombuffer(buffer, np.float32)
            return cls(
                data["statistic"],
                positions,
                int(data["documents"]),
                np.array(data["totals"], float).reshape(shape),
                replicates.reshape(REPLICATES, *shape).astype(float),
                dict(data["skipped"]),
            )


def estimate_parts(parts: Sequence[tuple[ProbeSums, Compute]]) -> Estimate | None:
    """Average a summary over results, unweighted, and compute its percentile bootstrap interval.

    A document has the same weights in all results, so that models with the same documents are
    resampled together. The interval is None if there are fewer than `MIN_DOCUMENTS` documents.
    Returns None if the value is undefined.
    """
    value = float(np.mean([compute(result.values) for result, compute in parts]))
    if not np.isfinite(value):
        return None
    replicates = np.mean([compute(result.replicate_values) for result, compute in parts], axis=0)
    # Replicates that contain no document of a small group are undefined.
    replicates = replicates[np.isfinite(replicates)]
    documents = min(result.documents for result, _ in parts)
    if documents < MIN_DOCUMENTS or len(replicates) < MIN_DEFINED * REPLICATES:
        return Estimate(value)
    low, high = np.quantile(replicates, (0.025, 0.975)).tolist()
    return Estimate(value, (low, high))


def sample_weights(document: str) -> Integers:
    """Sample a document's bootstrap weights, shape (REPLICATES,), with its id as seed."""
    seed = int.from_bytes(digest(document))
    return np.random.default_rng(seed).poisson(1.0, REPLICATES)


@dataclass(frozen=True)
class SubsetSums:
    """The sums of a subset, and the sample that they cover."""

    data_revision: str
    selection: str
    """Description of how the sample was selected and prepared."""
    sampled: int
    """Number of documents in the sample."""
    done: int
    """Number of documents processed so far, in the sample's order."""
    sums: ProbeSums
    lengths: Sequence[int] = ()
    """Lengths of the sample's first documents in the model's tokens."""
    available: int = 0
    """Number of documents to sample from; 0 if unknown."""


@dataclass(frozen=True)
class ProbeResult:
    """A model's result of one probe on one dataset."""

    model: str
    revision: str
    experiment: str | None
    """mteb's experiment name if settings differ from the defaults, else None."""
    data: str
    """Name of the task or folder."""
    probe: str
    subsets: Mapping[str, SubsetSums]
    window: int | None = None
    """The model's context window in tokens; None if unknown."""

    @cached_property
    def sums(self) -> ProbeSums:
        """Sums over all subsets."""
        return reduce(add, (subset.sums for subset in self.subsets.values()))

    @property
    def sample_size(self) -> int:
        """Number of processed documents, measured or not."""
        return sum(subset.done for subset in self.subsets.values())

    @property
    def lengths(self) -> list[int]:
        """Document lengths in the model's tokens. Large samples only contain some documents."""
        return [length for subset in self.subsets.values() for length in subset.lengths]

    @property
    def share_read(self) -> float | None:
        """Share of a median-length document within the window; None if unknown or not truncated."""
        if not self.window or not self.lengths:
            return None
        share = self.window / statistics.median(self.lengths)
        return share if share < 1 else None

    def to_json(self) -> Record:
        """Convert to plain JSON."""
        subsets = {
            name: vars(subset) | {"sums": subset.sums.to_json()}
            for name, subset in self.subsets.items()
        }
        return vars(replace(self)) | {"schema": SCHEMA, "subsets": subsets}

    @classmethod
    def from_json(cls, data: Fields) -> ProbeResult:
        """Build from JSON. Raises the same errors as `ProbeSums.from_json`."""
        with validate_json(data, SCHEMA, "probe result"):
            subsets = {}
            for name, values in data["subsets"].items():
                sums = ProbeSums.from_json(values["sums"])
                subsets[name] = SubsetSums(**values | {"sums": sums})
            values = {**data, "subsets": subsets}
            del values["schema"]
            return cls(**values)


def find_result_folder(output: Path, meta: ModelMeta) -> Path:
    """Return the folder of a model's probe results in an `--output` folder."""
    from mteb import ResultCache

    return ResultCache(output).get_task_result_path("task", meta).parent / FOLDER


def load_probe_result(file: Path) -> ProbeResult:
    """Read a result. Raise PosirError if it is damaged or has a newer schema."""
    try:
        return ProbeResult.from_json(read_json(file))
    except (OSError, ValueError, PosirError) as error:
        raise PosirError(
            f"{file}: not a probe result ({summarize_error(error)}). Remove it, and run again."
        ) from error


def read_probe_results(output: Path) -> Iterator[ProbeResult]:
    """Yield the probe results in a folder and its subfolders. Warn about damaged files.

    Raises:
        PosirError: The folder does not exist.
    """
    if not output.is_dir():
        raise PosirError(f"{output}: no such folder. Give the --output of `posir probe`.")
    for file in find_files(output, ".json"):
        if file.parent.name != FOLDER:
            continue
        try:
            result = load_probe_result(file)
        except PosirError as error:
            logger.warning("%s", error)
            continue
        if result.subsets:
            yield result
