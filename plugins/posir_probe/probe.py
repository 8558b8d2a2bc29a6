"""Base class of probes, and the table rows of their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from mteb.types import PromptType

from posir_probe.data import ProbeData
from posir_probe.results import Compute, ProbeResult, ProbeSums, select
from posir_significance.messages.probes import describe_values
from posir_tasks.base.arrays import Floats
from posir_tasks.base.batches import split_batches
from posir_tasks.base.progress import Advance
from posir_tasks.base.records import Record
from posir_tasks.display.numbers import (
    FORMATS,
    Format,
    format_estimate,
    format_number,
    format_psi_difference,
)
from posir_tasks.models.embeddings.encoding import Embeddings, Encoder, Vectors, encode_distinct
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import Unit

#: Smaller differences between cosines in single precision count as rounding errors.
ROUNDING = 1e-6
#: Number of texts to encode between progress bar updates.
BATCH_SIZE = 256
#: Separator between the names of a series and a position.
SEPARATOR = " · "
#: Label of the control embedder.
CONTROL = "order-blind control"
#: Names of the summaries from `summarize_ends`.
END_SUMMARIES = ("start_minus_end", "first", "last")
#: Unit names for differences.
UNIT_NAMES = {Unit.POINTS: "points", Unit.NUMBER: "standard deviations"}
#: Formats for differences, which include the sign.
SIGNED_FORMATS: Mapping[Unit, Format] = {
    **FORMATS,
    Unit.INDEX: format_psi_difference,
    Unit.NUMBER: partial(format_number, spec="+.2f"),
}
#: Title of nDCG@10 axes.
NDCG_TITLE = "nDCG@10 (x 100)"


@dataclass(frozen=True)
class Summary:
    """A statistic computed from a probe's values at all positions."""

    title: str
    """At most 40 characters; must be clear without the probe's title."""
    compute: Compute
    unit: Unit = Unit.INDEX

    def __call__(self, values: Floats) -> Floats:
        """Reduce values of shape (..., P) to shape (...)."""
        return self.compute(values)


@dataclass(frozen=True)
class ProbePlan:
    """The texts to encode, and a function that evaluates their embeddings."""

    summarize: Callable[[Embeddings], ProbeSums]
    documents: Sequence[str] = ()
    """Texts to encode as documents. Duplicates are encoded once."""
    queries: Sequence[str] = ()
    """Texts to encode as queries."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of skipped texts or questions by reason."""


class Probe:
    """A measurement of a model on texts, or of the texts themselves.

    Subclasses set the attributes, in `__init__` if they depend on arguments, and implement `plan`.
    """

    name: str
    """Unique name, for `--probe` and result files."""
    title: str
    """Title for headings, such as `Whole text and its thirds`."""
    source: str = ""
    """Paper and section that define the probe."""
    notes: tuple[str, ...] = ()
    """Explanations for reports."""
    is_variant: bool = False
    """Whether the probe runs only on request, as an alternative interpretation of a paper."""

    positions: tuple[str, ...] = ()
    """Names of the positions or conditions, `SERIES · POSITION` if there are several series."""
    summaries: Mapping[str, Summary] = {}
    """Summaries by name. The first is correlated with retrieval."""
    headline: tuple[str, ...] = ()
    """Names of the summaries in the headline, the most important first. By default, the first
    summary.
    """
    preference_sign: int = 0
    """1 if high values of the first summary mean a preference for the start, -1 if low values do, 0
    if the probe measures no preference.
    """
    measures_search: bool = False
    """Whether the probe measures ranks in a search, not only embeddings."""

    set_size: int = 1
    """Number of documents that are joined into one unit of the probe."""
    needs_questions: bool = False
    """Whether the probe needs questions with evidence."""
    needs_sentences: bool = False
    """Whether the probe splits texts into sentences."""
    cut_share: float = 0
    """Maximum length of a text as a share of `--cut`; 0 to measure whole texts."""
    needs_all: bool = False
    """Whether the probe needs all documents at once, including documents outside the sample."""

    scale_name: str = "cosine"
    """Name of the scale. Pages plot the differences of probes with the same scale together."""
    value_title: str = ""
    """Title of the value axis; by default the probe's title."""
    position_title: str = ""
    """Title of the position axis."""
    is_ordered: bool = True
    """Whether figures show lines over positions instead of a row per position."""
    unit: Unit = Unit.INDEX
    series: Mapping[str, tuple[str, str]] = {}
    """Panel and line of each series in a figure. The model's own line has an empty name."""
    position_names: Mapping[str, str] = {}
    """Titles of positions, by position name without the series."""
    relative_positions: Mapping[str, float] = {}
    """Relative positions in the text, in [0, 1], by name; empty for a categorical axis."""
    same_scale: bool = True
    """Whether all panels share a value axis."""
    in_window: bool = False
    """Whether all measured texts fit the model's window."""
    shows_window: bool = False
    """Whether figures mark the end of the model's window."""
    shows_spread: bool = False
    """Whether figures also show the standard deviation of the values."""
    ignores_model: bool = False
    """Whether the values depend only on the data."""
    averages: Mapping[str, Compute] = {}
    """Averages over conditions, by panel and position, such as `mean over sizes · 0%`."""
    cells: Sequence[tuple[str, float, float]] = ()
    """For two-dimensional histograms, the panel and the cell center (x, y) of each position. Cells
    are 0.1 wide and high.
    """

    def plan(self, data: ProbeData) -> ProbePlan:
        """Plan the measurement of the documents.

        Raises:
            PosirError: The probe cannot be applied to the model or the data.
        """
        raise NotImplementedError

    @property
    def first_summary(self) -> Summary:
        """The summary to correlate with retrieval."""
        return next(iter(self.summaries.values()))

    @property
    def headline_summaries(self) -> list[Summary]:
        """The summaries in the headline, the most important first."""
        return [self.summaries[name] for name in self.headline] or [self.first_summary]

    @property
    def main_summary(self) -> Summary:
        """The most important summary."""
        return self.headline_summaries[0]

    def describe(self, sums: ProbeSums, max_summaries: int | None = None) -> str:
        """Describe the headline of a result, without a final period.

        Only the first summary is shown with its interval: `Mirror reversal: nDCG@10 near start
        minus near end +12.3 [+4.0, +20.1] points; nDCG@10 near start 50.2; ...`
        """
        values: list[tuple[str, str, str]] = []
        for summary in self.headline_summaries[:max_summaries]:
            if estimate := sums.estimate(summary):
                format_value = self.find_format(summary)
                text = format_estimate(estimate, format_value)
                if values:
                    text = format_value(estimate.value)
                values.append((summary.title, text, UNIT_NAMES.get(summary.unit, "")))
        return describe_values(self.title, values)

    def find_format(self, summary: Summary) -> Format:
        """Return the number format of a summary. Preferences are printed with a sign."""
        is_difference = self.preference_sign and summary == self.main_summary
        return (SIGNED_FORMATS if is_difference else FORMATS)[summary.unit]

    @property
    def unit_name(self) -> str:
        """Name of the probe's unit, `document` or `set`."""
        return "set" if self.set_size > 1 else "document"

    def split(self, position: str) -> tuple[str, str, str]:
        """Split a position name into panel, line and position title."""
        series, _, name = position.rpartition(SEPARATOR)
        panel, line = self.series.get(series, (series, ""))
        return panel, line, self.position_names.get(name, name)


@dataclass(frozen=True, kw_only=True)
class ProbeRow:
    """A row of a result: a summary, or the value at one position."""

    model: str
    revision: str
    data: str
    probe: str
    kind: str
    """`summary` or `position`."""
    name: str
    value: Estimate | None
    """Value with a 95% interval by bootstrap over documents; None if undefined."""
    sd: float | None = None
    """Standard deviation of the values at a position."""
    slope: float | None = None
    """Slope of the regression line, for Pearson's r."""
    p_value: float | None = None
    """P-value of Pearson's r, assuming independent points."""
    documents: int
    left_out: int
    """Number of documents that could not be measured."""
    complete: bool
    """Whether all documents in the sample have been processed."""
    source: str


def build_probe_rows(results: Iterable[ProbeResult], probes: Mapping[str, Probe]) -> list[ProbeRow]:
    """Build the rows of each result: summaries, then positions."""
    rows = []
    for result in results:
        probe = probes[result.probe]
        sums = result.sums
        build_row = partial(
            ProbeRow,
            model=result.model,
            revision=result.revision,
            data=result.data,
            probe=result.probe,
            documents=sums.documents,
            left_out=max(0, result.sample_size - sums.documents),
            complete=all(subset.done >= subset.sampled for subset in result.subsets.values()),
            source=probe.source,
        )
        for name, summary in probe.summaries.items():
            rows.append(build_row(kind="summary", name=name, value=sums.estimate(summary)))
        for index, name in enumerate(sums.positions):
            details: Record = {}
            for key, column in sums.details.items():
                if np.isfinite(column[index]):
                    details[key] = column.item(index)
            details["value"] = sums.estimates[index]
            rows.append(build_row(kind="position", name=name, **details))
    return rows


def run_plans(
    encoder: Encoder, plans: Sequence[ProbePlan], advance: Advance = float
) -> list[ProbeSums]:
    """Encode the texts of several plans together and summarize each plan.

    After each batch, `advance` is called with the batch's share of all texts.
    """
    documents = dict.fromkeys(text for plan in plans for text in plan.documents)
    queries = dict.fromkeys(text for plan in plans for text in plan.queries)

    def encode(texts: Sequence[str], prompt_type: PromptType) -> Vectors:
        vectors = []
        for batch in split_batches(texts, BATCH_SIZE):
            vectors.append(encoder(batch, prompt_type))
            advance(len(vectors[-1]) / (len(documents) + len(queries)))
        return np.concatenate(vectors)

    embeddings = encode_distinct(encode, documents, queries).normalize()
    return [replace(plan.summarize(embeddings), skipped=+Counter(plan.skipped)) for plan in plans]


def run_probe(probe: Probe, encoder: Encoder, data: ProbeData) -> ProbeSums:
    """Measure all documents with one probe."""
    (sums,) = run_plans(encoder, [probe.plan(replace(data, encoder=encoder))])
    return sums


def plan_cosines(
    positions: Sequence[str],
    names: Sequence[str],
    texts: Sequence[str],
    versions: Sequence[Sequence[str]],
    skipped: Mapping[str, int],
    prompt_type: PromptType = PromptType.document,
) -> ProbePlan:
    """Plan the cosines of n texts with P versions each.

    Args:
        positions: Names of the P positions.
        names: Ids of the n documents.
        texts: The n texts.
        versions: P documents for each text.
        skipped: Number of skipped documents by reason.
        prompt_type: How to encode the texts. Versions are always encoded as documents.
    """
    all_versions = [version for row in versions for version in row]

    def summarize(embeddings: Embeddings) -> ProbeSums:
        vectors = embeddings.select(all_versions)
        by_text = vectors.reshape(len(texts), len(positions), vectors.shape[-1])
        cosines = np.einsum("nd,nkd->nk", embeddings.select(texts, prompt_type), by_text)
        return ProbeSums.from_means(positions, names, cosines.astype(float))

    if prompt_type is PromptType.query:
        return ProbePlan(summarize, all_versions, texts, skipped)
    return ProbePlan(summarize, [*texts, *all_versions], skipped=skipped)


def ignore_rounding(differences: Floats) -> Floats:
    """Set differences below `ROUNDING` to 0, so that no interval excludes 0 by rounding alone."""
    return np.where(np.abs(differences) < ROUNDING, 0.0, differences)


def compute_start_minus_end(values: Floats) -> Floats:
    """Subtract the last cosine from the first. Positive values favor the start."""
    return ignore_rounding(values[..., 0] - values[..., -1])


def summarize_ends(difference: str, first: str, last: str) -> dict[str, Summary]:
    """Build summaries of the difference, the first and the last cosine, with these titles."""
    return {
        "start_minus_end": Summary(difference, compute_start_minus_end),
        "first": Summary(first, select(0)),
        "last": Summary(last, select(-1)),
    }


def compute_range(values: Floats) -> Floats:
    """Subtract the smallest value from the largest. Sampling error biases the result upward."""
    extent: Floats = np.ptp(values, axis=-1)
    return extent
