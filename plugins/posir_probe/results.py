"""The stored result of a probe: sums per position, which add, in a small JSON file per data and
probe beside mteb's results.

Sums come with replicates of the Poisson bootstrap over documents (Hanley & MacGibbon 2006, Computer
Methods and Programs in Biomedicine 83, 57-62): in each one a document counts Poisson(1) times. A
document's counts follow from its id, so that sums over blocks, domains and machines have the
replicates of the sum, and all questions about a document are drawn together.
"""

from __future__ import annotations

import base64
import logging
import statistics
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.stats import beta

from posir_significance.findings import MIN_DOCUMENTS
from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError, ProfileError, summarize_error
from posir_tasks.base.files import find_files
from posir_tasks.base.untrusted import read_json
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.profile import reading_json

if TYPE_CHECKING:
    from mteb.models import ModelMeta

logger = logging.getLogger(__name__)

#: Version of the files. A reader refuses a newer one.
SCHEMA = 1
FOLDER = "probes"
#: Bootstrap replicates.
REPLICATES = 200
#: Share of samples in which a value must be defined for an interval: about five documents have it.
MIN_DEFINED = 0.99

#: Maps the values at all positions, shape (..., P), to one number, shape (...).
Compute: TypeAlias = Callable[[Floats], Floats]


def at(index: int) -> Compute:
    """Build the summary that is the value at one position."""
    return lambda values: values[..., index]


def average(positions: slice | list[int]) -> Compute:
    """Build the summary that is the mean over some positions."""
    return lambda values: values[..., positions].mean(axis=-1)


def subtract(first: Compute, second: Compute) -> Compute:
    """Build the summary that is the first summary minus the second."""
    return lambda values: first(values) - second(values)


#: No text or question is left out.
NOTHING: Mapping[str, int] = {}
#: Number of sums per position, by the statistic that follows from them: n, x and x squared; n, x,
#: y, x squared, y squared and xy; n.
SIZES = {"mean": 3, "effect_size": 3, "pearson": 6, "share": 1}


@np.errstate(invalid="ignore", divide="ignore")
def compute_statistic(statistic: str, totals: Floats) -> dict[str, Floats]:
    """Compute the `value` and details of sums, shape (..., P, K); shape (..., P), NaN where
    undefined.

    `mean` has the standard deviation `sd`, with n in its denominator. `effect_size` is the mean in
    standard deviations, with n - 1 in their denominator: t of n values over the root of n; 0 where
    the mean is 0. `pearson` is r, with the `slope` and the two-sided `p_value` of both, as SciPy's
    `linregress`; it takes the points as independent, as the papers do, which sentences of one text
    are not. `share` is the share of the count of all positions.
    """
    sums = np.moveaxis(totals, -1, 0)
    n = sums[0]
    if statistic == "share":
        return {"value": n / n.sum(axis=-1, keepdims=True)}
    if statistic == "pearson":
        _, x, y, xx, yy, xy = sums
        # n squared times the variances and the covariance.
        x_spread = np.maximum(n * xx - x * x, 0)
        spread = np.sqrt(x_spread * np.maximum(n * yy - y * y, 0))
        product = n * xy - x * y
        r = np.where(spread > 0, product / spread, np.nan)
        # The distribution of r where there is no correlation.
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
    """Documents that count."""
    totals: Floats
    """Shape (P, K)."""
    replicates: Floats
    """The same sums of each bootstrap sample, shape (REPLICATES, P, K)."""
    skipped: Mapping[str, int]
    """Texts or questions that do not count, by reason."""

    @classmethod
    def from_columns(
        cls,
        statistic: str,
        positions: Sequence[str],
        documents: Sequence[str],
        rows: Integers,
        columns: Floats,
        skipped: Mapping[str, int] = NOTHING,
    ) -> ProbeSums:
        """Sum n values, given the document's id and the index of the position of each.

        `columns`, shape (n, K), are what each adds to the sums of the statistic; `skipped` counts
        what is left out, by reason.
        """
        names, numbers = np.unique(documents, return_inverse=True)
        by_document = np.zeros((len(names), len(positions), SIZES[statistic]))
        np.add.at(by_document, (numbers, rows), columns)
        weights = np.zeros((REPLICATES, len(names)))
        for number, name in enumerate(names):
            weights[:, number] = bootstrap_counts(name)
        return cls(
            statistic,
            tuple(positions),
            len(names),
            by_document.sum(axis=0),
            np.tensordot(weights, by_document, 1),
            skipped,
        )

    @classmethod
    def from_means(
        cls,
        positions: Sequence[str],
        documents: Sequence[str],
        values: Floats,
        skipped: Mapping[str, int] = NOTHING,
        statistic: str = "mean",
    ) -> ProbeSums:
        """Sum values, shape (n, P), whose mean at each position is of interest; NaN does not count.

        `documents` are the ids of the documents of the n rows; `skipped` counts what is left out,
        by reason. `statistic` is `mean`, or another that follows from the same sums.
        """
        row, position = np.nonzero(~np.isnan(values))
        # The powers 0, 1 and 2.
        columns = np.vander(values[row, position], 3, increasing=True)
        names = [documents[index] for index in row.tolist()]
        return cls.from_columns(statistic, positions, names, position, columns, skipped)

    @classmethod
    def from_counts(
        cls,
        positions: Sequence[str],
        documents: Sequence[str],
        rows: Sequence[int],
        skipped: Mapping[str, int] = NOTHING,
    ) -> ProbeSums:
        """Count n things, given the document and the index of the position of each; the values are
        shares of the counts.
        """
        counts = np.ones((len(rows), 1))
        indexes = np.array(rows, int)
        return cls.from_columns("share", positions, documents, indexes, counts, skipped)

    def __add__(self, other: ProbeSums) -> ProbeSums:
        """Pool sums over other documents; raise ProfileError if statistics or positions differ."""
        if (self.statistic, self.positions) != (other.statistic, other.positions):
            raise ProfileError(
                "Results of a probe with different positions do not add; run the probe again."
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
        """The statistic and further values at each position, by name, shape (P,); NaN where
        undefined.
        """
        return compute_statistic(self.statistic, self.totals)

    @property
    def values(self) -> Floats:
        """The statistic at each position, shape (P,); NaN where undefined."""
        return self.details["value"]

    @cached_property
    def replicate_values(self) -> Floats:
        """The statistic at each position in each bootstrap sample, shape (REPLICATES, P)."""
        return compute_statistic(self.statistic, self.replicates)["value"]

    def estimate(self, summary: Compute) -> Estimate | None:
        """Compute a summary and its percentile-bootstrap interval; None where undefined. `summary`
        maps (..., P) to (...).
        """
        return estimate_index([self], summary)

    @cached_property
    def estimates(self) -> list[Estimate | None]:
        """The value at each position with its interval; None where undefined."""
        numbers = range(len(self.positions))
        return [self.estimate(at(number)) for number in numbers]

    def describe_skipped(self) -> str:
        """List the texts or questions that do not count by reason: `3 (empty text), 1 (no evidence
        span)`.
        """
        return ", ".join(f"{count:,} ({reason})" for reason, count in sorted(self.skipped.items()))

    def to_json(self) -> dict[str, Any]:
        """Return the sums as plain JSON; replicates in single precision."""
        packed = zlib.compress(self.replicates.astype(np.float32).tobytes())
        return {
            **vars(replace(self)),
            "schema": SCHEMA,
            "totals": self.totals.tolist(),
            "replicates": base64.b64encode(packed).decode(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProbeSums:
        """Read sums; raise ProfileError if the JSON is damaged, NewerSchemaError if a newer version
        of posir wrote it.
        """
        with reading_json(data, SCHEMA, "result of a probe"):
            positions = tuple(data["positions"])
            shape = (len(positions), SIZES[data["statistic"]])
            size = np.empty((REPLICATES, *shape), np.float32).nbytes
            packed = base64.b64decode(data["replicates"])
            try:
                unpacked = zlib.decompressobj().decompress(packed, size + 1)
            except zlib.error as error:
                raise ValueError(f"replicates: {error}") from error
            replicates = np.frombuffer(unpacked, np.float32)
            return cls(
                data["statistic"],
                positions,
                int(data["documents"]),
                np.array(data["totals"], float).reshape(shape),
                replicates.reshape(REPLICATES, *shape).astype(float),
                dict(data["skipped"]),
            )


def estimate_index(sums: Sequence[ProbeSums], index: Compute) -> Estimate | None:
    """Average an index over results, unweighted, with its percentile-bootstrap interval; None where
    undefined.

    A document has the same counts in all results, so that models on the same documents are drawn
    together. There is no interval with fewer documents than any statement on position needs.
    """
    value = float(np.mean([index(result.values) for result in sums]))
    if not np.isfinite(value):
        return None
    drawn = np.mean([index(result.replicate_values) for result in sums], axis=0)
    # Samples without a document of a small group have no value.
    defined = drawn[np.isfinite(drawn)]
    documents = min(result.documents for result in sums)
    if documents < MIN_DOCUMENTS or len(defined) < MIN_DEFINED * REPLICATES:
        return Estimate(value)
    low, high = np.quantile(defined, (0.025, 0.975)).tolist()
    return Estimate(value, (low, high))


def bootstrap_counts(document: str) -> Integers:
    """Draw how often a document occurs in each bootstrap sample, shape (REPLICATES,); determined by
    its id.
    """
    seed = int.from_bytes(digest(document))
    return np.random.default_rng(seed).poisson(1.0, REPLICATES)


@dataclass(frozen=True)
class SubsetSums:
    """The measurements of one subset so far."""

    data_revision: str
    selection: str
    """Selection by which the documents of the sample were drawn."""
    sampled: int
    """Documents of the sample that are to be measured."""
    done: int
    """Documents of the sample that have been measured, in order."""
    sums: ProbeSums
    lengths: Sequence[int] = ()
    """Lengths of documents of the sample, in tokens of the model: of all, or of the first of a
    random order.
    """
    available: int = 0
    """Documents that could be drawn; 0 if that is unknown."""


@dataclass(frozen=True)
class ProbeResult:
    """A model's result of one probe on one dataset."""

    model: str
    revision: str
    experiment: str | None
    """mteb's name of the model's settings; None if they are its own."""
    data: str
    """A task, or the name of a folder."""
    probe: str
    subsets: Mapping[str, SubsetSums]
    window: int | None = None
    """Most tokens of a text that the model reads, its special ones included; None where that is
    unknown.
    """

    @cached_property
    def sums(self) -> ProbeSums:
        """The pooled sums of all subsets."""
        return reduce(add, (subset.sums for subset in self.subsets.values()))

    @property
    def drawn(self) -> int:
        """Documents that were drawn, measured or not."""
        return sum(subset.done for subset in self.subsets.values())

    @property
    def lengths(self) -> list[int]:
        """Document lengths in the model's tokens; a subsample if the sample is large."""
        return [length for subset in self.subsets.values() for length in subset.lengths]

    @property
    def share_read(self) -> float | None:
        """The share of a median document within the model's window, below 1; None if all of it is,
        or the window is unknown.
        """
        if not self.window or not self.lengths:
            return None
        share = self.window / statistics.median(self.lengths)
        return share if share < 1 else None

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        subsets = {
            name: vars(subset) | {"sums": subset.sums.to_json()}
            for name, subset in self.subsets.items()
        }
        return vars(replace(self)) | {"schema": SCHEMA, "subsets": subsets}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProbeResult:
        """Read a result; raise ProfileError if the JSON is damaged, NewerSchemaError if a newer
        version of posir wrote it.
        """
        with reading_json(data, SCHEMA, "result of a probe"):
            subsets = {}
            for name, stored in data["subsets"].items():
                sums = ProbeSums.from_json(stored["sums"])
                subsets[name] = SubsetSums(**{**stored, "sums": sums})
            values = {**data, "subsets": subsets}
            del values["schema"]
            return cls(**values)


def result_folder(output: Path, meta: ModelMeta) -> Path:
    """Return the folder of a model's results of probes below an `--output`."""
    from mteb import ResultCache

    return ResultCache(output).get_task_result_path("task", meta).parent / FOLDER


def load_probe_result(file: Path) -> ProbeResult:
    """Read a result; raise PosirError if it is damaged or of a newer schema."""
    try:
        return ProbeResult.from_json(read_json(file))
    except (OSError, ValueError, PosirError) as error:
        raise PosirError(
            f"{file}: not a result of a probe ({summarize_error(error)}). Remove it, and run again."
        ) from error


def read_probe_results(output: Path) -> Iterator[ProbeResult]:
    """Yield the probe results below a folder; warn about damaged files."""
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
