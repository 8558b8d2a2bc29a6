"""Stored probe results: additive sums per position, in a small JSON file per dataset and probe.

Replicates of the sums come from the Poisson bootstrap over documents (Hanley & MacGibbon 2006,
Computer Methods and Programs in Biomedicine 83, 57-62): each document gets a Poisson(1) weight in
each replicate. A document's id seeds its weights, so that replicates can be added over blocks,
domains and machines, and all questions about a document are resampled together.
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

#: Schema version of the files; newer versions are rejected.
SCHEMA = 1
FOLDER = "probes"
#: Number of bootstrap replicates.
REPLICATES = 200
#: Minimum share of defined replicates for an interval, reached with about five documents.
MIN_DEFINED = 0.99

#: Reduces the values at all positions, shape (..., P), to one number, shape (...).
Compute: TypeAlias = Callable[[Floats], Floats]


def select(index: int) -> Compute:
    """Build a function that returns the value at one position."""
    return lambda values: values[..., index]


def average(positions: slice | list[int]) -> Compute:
    """Build a function that averages over positions."""
    return lambda values: values[..., positions].mean(axis=-1)


def subtract(first: Compute, second: Compute) -> Compute:
    """Build a function that subtracts the second value from the first."""
    return lambda values: first(values) - second(values)


#: Number of sums per position, by statistic: n, x and x squared for `mean` and `effect_size`; n, x,
#: y, x squared, y squared and xy for `pearson`; n for `share`.
SIZES = {"mean": 3, "effect_size": 3, "pearson": 6, "share": 1}


@np.errstate(invalid="ignore", divide="ignore")
def compute_statistic(statistic: str, totals: Floats) -> dict[str, Floats]:
    """Compute a statistic from its sums.

    - `mean`, with the standard deviation `sd` (denominator n).
    - `effect_size`: the mean in standard deviations (denominator n - 1); 0 if the mean is 0.
    - `pearson`: r, with the `slope` and the two-sided `p_value` of SciPy's `linregress`. Points
      count as independent, as in the papers, although sentences of one text are not.
    - `share`: the position's share of the total count.

    Args:
        statistic: A key of `SIZES`.
        totals: Sums, shape (..., P, K).

    Returns:
        `value` and other statistics by name, shape (..., P), NaN if undefined.
    """
    sums = np.moveaxis(totals, -1, 0)
    n = sums[0]
    if statistic == "share":
        return {"value": n / n.sum(axis=-1, keepdims=True)}
    if statistic == "pearson":
        _, x, y, xx, yy, xy = sums
        # Variances and covariance times n squared.
        x_spread = np.maximum(n * xx - x * x, 0)
        spread = np.sqrt(x_spread * np.maximum(n * yy - y * y, 0))
        product = n * xy - x * y
        r = np.where(spread > 0, product / spread, np.nan)
        # Null distribution of r.
        shape = n / 2 - 1
        p_value = 2 * beta.sf(np.abs(r), shape, shape, -1, 2)
        return {"value": r, "slope": product / x_spread, "p_value": p_value}
    mean = sums[1] / n
    deviation = np.sqrt(np.maximum(sums[2] / n - mean**2, 0))
    if statistic == "mean":
        return {"value": mean, "sd": deviation}
    sizes = np.where(mean == 0, 0.0, mean / (deviation * np.sqrt(n / (n - 1))))
    return {"value": np.where(n > 1, sizes, np.nan)}


@dataclass(frozen=True, eq=False)
class ProbeSums:
    """Sums of a probe over documents, by position."""

    statistic: str
    """A key of `SIZES`."""
    positions: tuple[str, ...]
    """Names of the P positions or conditions."""
    documents: int
    """Number of measured documents."""
    totals: Floats
    """Shape (P, K)."""
    replicates: Floats
    """Sums of each bootstrap replicate, shape (REPLICATES, P, K)."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Numbers of skipped texts or questions, by reason."""

    @classmethod
    def from_columns(
        cls,
        statistic: str,
        positions: Sequence[str],
        documents: Sequence[str],
        rows: Integers,
        columns: Floats,
    ) -> ProbeSums:
        """Sum n values.

        Args:
            statistic: A key of `SIZES`.
            positions: Names of the P positions.
            documents: Id of the document of each value.
            rows: Index of the position of each value, shape (n,).
            columns: Terms of each value in the sums of the statistic, shape (n, K).
        """
        names, numbers = np.unique(documents, return_inverse=True)
        by_document = np.zeros((len(names), len(positions), SIZES[statistic]))
        np.add.at(by_document, (numbers, rows), columns)
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
        """Sum values for their mean at each position.

        Args:
            positions: Names of the P positions.
            documents: Ids of the n documents.
            values: Values, shape (n, P); NaN is ignored.
            statistic: `mean` or `effect_size`.
        """
        row, position = np.nonzero(~np.isnan(values))
        # Powers 0, 1 and 2 of the values.
        columns = np.vander(values[row, position], 3, increasing=True)
        return cls.from_columns(
            statistic, positions, np.take(documents, row).tolist(), position, columns
        )

    @classmethod
    def from_counts(
        cls,
        positions: Sequence[str],
        documents: Sequence[str],
        rows: Sequence[int],
    ) -> ProbeSums:
        """Count n items for the share of each position.

        Args:
            positions: Names of the P positions.
            documents: Id of the document of each item.
            rows: Index of the position of each item.
        """
        counts = np.ones((len(rows), 1))
        indexes = np.array(rows, int)
        return cls.from_columns("share", positions, documents, indexes, counts)

    def __add__(self, other: ProbeSums) -> ProbeSums:
        """Pool with the sums over other documents.

        Raises:
            ProfileError: Statistics or positions differ.
        """
        if (self.statistic, self.positions) != (other.statistic, other.positions):
            raise ProfileError(
                "Results of a probe with different positions cannot be pooled. Run the probe again."
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
        """All statistics at each position, by name, shape (P,); NaN if undefined."""
        return compute_statistic(self.statistic, self.totals)

    @property
    def values(self) -> Floats:
        """The value at each position, shape (P,); NaN if undefined."""
        return self.details["value"]

    @cached_property
    def replicate_values(self) -> Floats:
        """The value at each position in each bootstrap replicate, shape (REPLICATES, P)."""
        return compute_statistic(self.statistic, self.replicates)["value"]

    def estimate(self, summary: Compute) -> Estimate | None:
        """Compute a summary with its percentile-bootstrap interval, or None if undefined.

        `summary` reduces (..., P) to (...).
        """
        return estimate_parts([(self, summary)])

    @cached_property
    def estimates(self) -> list[Estimate | None]:
        """The value at each position with its interval, or None if undefined."""
        return [self.estimate(select(index)) for index in range(len(self.positions))]

    def describe_skipped(self) -> str:
        """List the skipped texts or questions: `3 (empty text), 1 (no evidence span)`."""
        return ", ".join(f"{count:,} ({reason})" for reason, count in sorted(self.skipped.items()))

    def to_json(self) -> Record:
        """Convert to plain JSON; replicates are stored in single precision."""
        content = zlib.compress(self.replicates.astype(np.float32).tobytes())
        return {
            **vars(replace(self)),
            "schema": SCHEMA,
            "totals": self.totals.tolist(),
            "replicates": base64.b64encode(content).decode(),
        }

    @classmethod
    def from_json(cls, data: Fields) -> ProbeSums:
        """Convert from JSON.

        Raises:
            ProfileError: The JSON is damaged.
            NewerSchemaError: A newer version of posir wrote it.
        """
        with validate_json(data, SCHEMA, "result of a probe"):
            positions = tuple(data["positions"])
            shape = (len(positions), SIZES[data["statistic"]])
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
    """Average a summary over results, unweighted, with its percentile-bootstrap interval.

    A document has the same weights in all results, so that models on the same documents are
    resampled together. There is no interval with fewer than `MIN_DOCUMENTS` documents. None if the
    value is undefined.
    """
    value = float(np.mean([compute(result.values) for result, compute in parts]))
    if not np.isfinite(value):
        return None
    replicates = np.mean([compute(result.replicate_values) for result, compute in parts], axis=0)
    # A replicate that contains no document of a small group is undefined.
    replicates = replicates[np.isfinite(replicates)]
    documents = min(result.documents for result, _ in parts)
    if documents < MIN_DOCUMENTS or len(replicates) < MIN_DEFINED * REPLICATES:
        return Estimate(value)
    low, high = np.quantile(replicates, (0.025, 0.975)).tolist()
    return Estimate(value, (low, high))


def sample_weights(document: str) -> Integers:
    """Sample a document's weight in each bootstrap replicate, shape (REPLICATES,), seeded with its
    id.
    """
    seed = int.from_bytes(digest(document))
    return np.random.default_rng(seed).poisson(1.0, REPLICATES)


@dataclass(frozen=True)
class SubsetSums:
    """The sums of one subset so far."""

    data_revision: str
    selection: str
    """How the sample was selected and prepared."""
    sampled: int
    """Number of documents in the sample."""
    done: int
    """Number of documents processed so far, in the sample's order."""
    sums: ProbeSums
    lengths: Sequence[int] = ()
    """Lengths of the sample's first documents, in the model's tokens."""
    available: int = 0
    """Number of documents that the sample was taken from; 0 if unknown."""


@dataclass(frozen=True)
class ProbeResult:
    """A model's result of one probe on one dataset."""

    model: str
    revision: str
    experiment: str | None
    """mteb's name for an experiment with non-default settings, or None."""
    data: str
    """Name of the task or the folder."""
    probe: str
    subsets: Mapping[str, SubsetSums]
    window: int | None = None
    """Context window of the model in tokens; None if unknown."""

    @cached_property
    def sums(self) -> ProbeSums:
        """Pooled sums of all subsets."""
        return reduce(add, (subset.sums for subset in self.subsets.values()))

    @property
    def sample_size(self) -> int:
        """Number of processed documents, measured or not."""
        return sum(subset.done for subset in self.subsets.values())

    @property
    def lengths(self) -> list[int]:
        """Document lengths in the model's tokens; a subsample if the sample is large."""
        return [length for subset in self.subsets.values() for length in subset.lengths]

    @property
    def share_read(self) -> float | None:
        """The share of a median-length document that fits the window; None if it fits completely,
        or if the window is unknown.
        """
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
        """Convert from JSON; errors as in `ProbeSums.from_json`."""
        with validate_json(data, SCHEMA, "result of a probe"):
            subsets = {}
            for name, values in data["subsets"].items():
                sums = ProbeSums.from_json(values["sums"])
                subsets[name] = SubsetSums(**values | {"sums": sums})
            values = {**data, "subsets": subsets}
            del values["schema"]
            return cls(**values)


def result_folder(output: Path, meta: ModelMeta) -> Path:
    """Return the folder of a model's probe results below an `--output`."""
    from mteb import ResultCache

    return ResultCache(output).get_task_result_path("task", meta).parent / FOLDER


def load_probe_result(file: Path) -> ProbeResult:
    """Read a result; raise PosirError if it is damaged or has a newer schema."""
    try:
        return ProbeResult.from_json(read_json(file))
    except (OSError, ValueError, PosirError) as error:
        raise PosirError(
            f"{file}: not a result of a probe ({summarize_error(error)}). Remove it, and run again."
        ) from error


def read_probe_results(output: Path) -> Iterator[ProbeResult]:
    """Yield the probe results below a folder; warn about damaged files.

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
