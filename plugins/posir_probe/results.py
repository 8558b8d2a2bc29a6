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
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

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
#: Quantiles that bound a central 95% interval.
TAILS = (0.025, 0.975)

#: Maps the values at all positions, shape (..., P), to one number, shape (...).
Compute: TypeAlias = Callable[[Floats], Floats]


def at(index: int) -> Compute:
    """Build the summary that is the value at one position."""
    return lambda values: values[..., index]


def mean_over(start: int | None, stop: int | None) -> Compute:
    """Build the summary that is the mean over consecutive positions."""
    return lambda values: values[..., start:stop].mean(axis=-1)


def subtract(first: Compute, second: Compute) -> Compute:
    """Build the summary that is the first summary minus the second."""
    return lambda values: first(values) - second(values)


#: Names of the sums per position, by the statistic that follows from them.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "mean": ("n", "sum", "sum_of_squares"),
    "effect_size": ("n", "sum", "sum_of_squares"),
    "pearson": ("n", "x", "y", "xx", "yy", "xy"),
    "share": ("n",),
}


@np.errstate(invalid="ignore", divide="ignore")
def compute_statistic(statistic: str, totals: Floats) -> tuple[Floats, dict[str, Floats]]:
    """Compute a statistic of sums, shape (..., P, K), and its details by name; shape (..., P), NaN
    where undefined.

    `mean` has the standard deviation `sd`, with n in its denominator. `effect_size` is the mean in
    standard deviations, with n - 1 in their denominator: t of n values over the root of n; 0 where
    the mean is 0. `pearson` is r, with the `slope` and the two-sided `p_value` of both, as SciPy's
    `linregress`; it takes the points as independent, as the papers do, which sentences of one text
    are not. `share` is the share of the count of all positions.
    """
    n = totals[..., 0]
    if statistic == "share":
        return n / n.sum(axis=-1, keepdims=True), {}
    if statistic == "pearson":
        return _compute_pearson(*np.moveaxis(totals, -1, 0))
    mean = totals[..., 1] / n
    deviation = np.sqrt(np.maximum(totals[..., 2] / n - mean**2, 0))
    if statistic == "mean":
        return mean, {"sd": deviation}
    sizes = np.where(mean == 0, 0.0, mean / (deviation * np.sqrt(n / (n - 1))))
    return np.where(n > 1, sizes, np.nan), {}


def _compute_pearson(
    n: Floats, x: Floats, y: Floats, xx: Floats, yy: Floats, xy: Floats
) -> tuple[Floats, dict[str, Floats]]:
    # n squared times the variances and the covariance.
    x_spread = np.maximum(n * xx - x * x, 0)
    y_spread = np.maximum(n * yy - y * y, 0)
    product = n * xy - x * y
    spread = np.sqrt(x_spread * y_spread)
    r = np.where(spread > 0, product / spread, np.nan)
    freedom = n - 2
    t = r * np.sqrt(freedom / np.maximum(1 - r * r, np.finfo(np.float64).tiny))
    p_value = 2 * student_t.sf(np.abs(t), np.maximum(freedom, 1))
    slope = np.where(x_spread > 0, product / x_spread, np.nan)
    return r, {"slope": slope, "p_value": np.where(freedom > 0, p_value, np.nan)}


@dataclass(frozen=True, eq=False)
class ProbeSums:
    """Sums of a probe over documents, by position."""

    statistic: str
    """A key of `COLUMNS`."""
    positions: tuple[str, ...]
    """Names of the P positions or conditions."""
    documents: int
    """Documents that count."""
    totals: Floats
    """Shape (P, K)."""
    replicates: Floats
    """The same sums of each bootstrap sample, shape (REPLICATES, P, K)."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Texts or questions that do not count, by reason."""

    def __post_init__(self) -> None:
        shape = (len(self.positions), len(COLUMNS[self.statistic]))
        if self.totals.shape != shape or self.replicates.shape[1:] != shape:
            raise ValueError(
                f"sums have the shapes {self.totals.shape} and {self.replicates.shape}; expected "
                f"{shape}"
            )

    @classmethod
    def from_columns(
        cls,
        statistic: str,
        positions: Sequence[str],
        documents: Sequence[str],
        rows: Integers,
        columns: Floats,
        skipped: Mapping[str, int] | None = None,
    ) -> ProbeSums:
        """Sum n values, given the document's id and the index of the position of each.

        `columns`, shape (n, K), are what each adds to the sums of the statistic; `skipped` counts
        what is left out, by reason.
        """
        numbers = {name: number for number, name in enumerate(dict.fromkeys(documents))}
        by_document = np.zeros((len(numbers), len(positions), len(COLUMNS[statistic])))
        of_row = np.array([numbers[name] for name in documents], np.int64)
        np.add.at(by_document, (of_row, rows), columns)
        counts = [bootstrap_counts(name) for name in numbers]
        weights = np.array(counts, np.float64).reshape(len(numbers), REPLICATES)
        return cls(
            statistic,
            tuple(positions),
            len(numbers),
            by_document.sum(axis=0),
            np.tensordot(weights, by_document, axes=(0, 0)),
            dict(skipped or {}),
        )

    @classmethod
    def from_means(
        cls,
        positions: Sequence[str],
        documents: Sequence[str],
        values: Floats,
        skipped: Mapping[str, int] | None = None,
        *,
        statistic: str = "mean",
    ) -> ProbeSums:
        """Sum values, shape (n, P), whose mean at each position is of interest; NaN does not count.

        `documents` are the ids of the documents of the n rows; `skipped` counts what is left out,
        by reason. `statistic` is `mean`, or another that follows from the same sums.
        """
        row, position = np.nonzero(~np.isnan(values))
        measured = values[row, position]
        columns = np.stack([np.ones_like(measured), measured, measured**2], axis=-1)
        names = [documents[index] for index in row.tolist()]
        return cls.from_columns(statistic, positions, names, position, columns, skipped)

    @classmethod
    def from_counts(
        cls,
        positions: Sequence[str],
        documents: Sequence[str],
        rows: Sequence[int],
        skipped: Mapping[str, int] | None = None,
    ) -> ProbeSums:
        """Count n things, given the document and the index of the position of each; the values are
        shares of the counts.
        """
        counts = np.ones((len(rows), 1))
        indexes = np.array(rows, np.int64)
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
            skipped=dict(Counter(self.skipped) + Counter(other.skipped)),
        )

    @cached_property
    def values(self) -> Floats:
        """The statistic at each position, shape (P,); NaN where undefined."""
        return compute_statistic(self.statistic, self.totals)[0]

    @cached_property
    def replicate_values(self) -> Floats:
        """The statistic at each position in each bootstrap sample, shape (REPLICATES, P)."""
        return compute_statistic(self.statistic, self.replicates)[0]

    def estimate(self, summary: Compute) -> Estimate | None:
        """Compute a summary and its percentile-bootstrap interval; None where undefined. `summary`
        maps (..., P) to (...).
        """
        return estimate_index([self], summary)

    @cached_property
    def estimates(self) -> list[Estimate | None]:
        """The value at each position with its interval; None where undefined."""
        return [self.estimate(at(index)) for index in range(len(self.positions))]

    @property
    def details(self) -> dict[str, Floats]:
        """Further values at each position, by name, shape (P,); NaN where undefined."""
        return compute_statistic(self.statistic, self.totals)[1]

    def describe_skipped(self) -> str:
        """List the texts or questions that do not count by reason: `3 (empty text), 1 (no evidence
        span)`.
        """
        return ", ".join(f"{count:,} ({reason})" for reason, count in sorted(self.skipped.items()))

    def to_json(self) -> dict[str, Any]:
        """Return the sums as plain JSON; replicates in single precision."""
        packed = zlib.compress(np.ascontiguousarray(self.replicates, np.float32).tobytes())
        return {
            "schema": SCHEMA,
            "statistic": self.statistic,
            "columns": list(COLUMNS[self.statistic]),
            "positions": list(self.positions),
            "documents": self.documents,
            "sums": self.totals.tolist(),
            "replicates": base64.b64encode(packed).decode(),
            "skipped": dict(self.skipped),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProbeSums:
        """Read sums; raise ProfileError if the JSON is damaged, NewerSchemaError if a newer version
        of posir wrote it.
        """
        with reading_json(data, SCHEMA, "result of a probe"):
            totals = np.array(data["sums"], np.float64)
            packed = base64.b64decode(data["replicates"])
            size = REPLICATES * totals.size * np.dtype(np.float32).itemsize
            try:
                unpacked = zlib.decompressobj().decompress(packed, size + 1)
            except zlib.error as error:
                raise ValueError(f"replicates: {error}") from error
            replicates = np.frombuffer(unpacked, np.float32).astype(np.float64)
            return cls(
                data["statistic"],
                tuple(data["positions"]),
                int(data["documents"]),
                totals,
                replicates.reshape(REPLICATES, *totals.shape),
                {str(reason): int(count) for reason, count in data["skipped"].items()},
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
    if documents < MIN_DOCUMENTS or len(defined) < MIN_DEFINED * len(drawn):
        return Estimate(value)
    low, high = np.quantile(defined, TAILS).tolist()
    return Estimate(value, (low, high))


def bootstrap_counts(document: str) -> NDArray[np.int64]:
    """Draw how often a document occurs in each bootstrap sample, shape (REPLICATES,); determined by
    its id.
    """
    return np.random.default_rng(int.from_bytes(digest(document))).poisson(1.0, REPLICATES)


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
    lengths: tuple[int, ...] = ()
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
    def available(self) -> int:
        """Documents that could be drawn; 0 if that is unknown."""
        return sum(subset.available for subset in self.subsets.values())

    @property
    def median_tokens(self) -> int | None:
        """The median length of the sample's documents in tokens of the model; None where it is
        unknown.
        """
        return int(statistics.median(self.lengths)) if self.lengths else None

    @property
    def lengths(self) -> list[int]:
        """Document lengths in the model's tokens; a subsample if the sample is large."""
        return [length for subset in self.subsets.values() for length in subset.lengths]

    @property
    def tokens_read(self) -> float:
        """The share of the sample's tokens within the model's window; 1 if it is unknown."""
        read = sum(min(length, self.window or length) for length in self.lengths)
        return read / sum(self.lengths) if read else 1.0

    @property
    def share_read(self) -> float | None:
        """The share of a median document within the model's window, below 1; None if all of it is,
        or the window is unknown.
        """
        if not self.window or not self.median_tokens or self.window >= self.median_tokens:
            return None
        return self.window / self.median_tokens

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        subsets = {
            name: vars(subset) | {"sums": subset.sums.to_json()}
            for name, subset in self.subsets.items()
        }
        return values | {"schema": SCHEMA, "subsets": subsets}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProbeResult:
        """Read a result; raise ProfileError if the JSON is damaged, NewerSchemaError if a newer
        version of posir wrote it.
        """
        with reading_json(data, SCHEMA, "result of a probe"):
            subsets = {}
            for name, stored in data["subsets"].items():
                sums = ProbeSums.from_json(stored["sums"])
                lengths = tuple(stored["lengths"])
                subsets[name] = SubsetSums(**{**stored, "sums": sums, "lengths": lengths})
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
