"""The base class of probes, and the rows of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
from mteb.types import PromptType

from posir_probe.data import ProbeData
from posir_probe.results import Compute, ProbeResult, ProbeSums, at
from posir_significance.messages.probes import describe_values
from posir_tasks.base.arrays import Floats
from posir_tasks.base.batches import split_batches
from posir_tasks.base.progress import Advance
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

#: Below it, a difference of cosines in single precision is rounding error.
ROUNDING = 1e-6
#: Texts that are encoded between two steps of progress.
STEP = 256
#: Between the name of a series of values and that of a position.
SEPARATOR = " · "
#: Label of the control embedder, whose result is known in advance.
CONTROL = "order-blind control"
#: Names of the summaries of `summarize_ends`.
ENDS = ("start_minus_end", "first", "last")
#: Units of differences, in words.
UNITS = {Unit.POINTS: "points", Unit.NUMBER: "standard deviations"}
#: How differences are printed: all have a sign.
SIGNED: Mapping[Unit, Format] = {
    **FORMATS,
    Unit.INDEX: format_psi_difference,
    Unit.NUMBER: partial(format_number, spec="+.2f"),
}
#: Title of an axis of nDCG@10.
SCORE = "nDCG@10 (x 100)"


class Form(StrEnum):
    """Forms of a figure; only places that have an order are joined by a line."""

    #: Places on an axis from the start of a text, 0, to its end, 1.
    PLACES = "places"
    #: Named places in their order.
    STEPS = "steps"
    #: Categories without an order, below each other.
    CATEGORIES = "categories"
    #: Cells of a plane, each with its count.
    CELLS = "cells"


@dataclass(frozen=True)
class Summary:
    """A number that sums up the values of a probe at all positions."""

    title: str
    """At most 40 characters, understood without the title of the probe."""
    compute: Compute
    unit: Unit = Unit.INDEX

    def __call__(self, values: Floats) -> Floats:
        """Summarize values, shape (..., P), as shape (...)."""
        return self.compute(values)


@dataclass(frozen=True)
class ProbePlan:
    """The texts that a probe needs encoded, and its evaluation of the embeddings."""

    summarize: Callable[[Embeddings], ProbeSums]
    documents: Sequence[str] = ()
    """Texts to encode as documents; repeated ones are encoded once."""
    queries: Sequence[str] = ()


class Probe:
    """A measurement of a model on texts, or of the texts themselves.

    A subclass states its attributes and defines `plan`. Attributes that depend on arguments are set
    in its `__init__`.
    """

    name: str
    """Unique name, as in `--probe` and in results."""
    title: str
    """Title of the measure, as headings print it, such as `Whole text and its thirds`."""
    source: str = ""
    """Paper and section of the definition."""
    notes: tuple[str, ...] = ()
    is_variant: bool = False
    """Whether it runs only if it is named: another reading of a paper."""

    positions: tuple[str, ...] = ()
    """Names of the positions or conditions, `SERIES · POSITION` if there are several series."""
    summaries: Mapping[str, Summary] = {}
    """Summaries of the values by name; the first is the one that is correlated with retrieval."""
    headline: tuple[str, ...] = ()
    """Names of the summaries that describe the result, the most important first; empty for the
    first summary.
    """
    preference_sign: int = 0
    """1 if larger values of the first summary are a preference for the start, -1 if smaller ones
    are, 0 if it measures none.
    """
    measures_search: bool = False
    """Whether it measures ranks in a search, and not the embedding only."""

    joined: int = 1
    """Documents that are joined to a set, which counts as one."""
    needs_questions: bool = False
    """Whether it measures questions, of documents that have some."""
    needs_sentences: bool = False
    """Whether it measures sentences, which may be split at periods."""
    cut_share: float = 0
    """Share of the tokens that texts may have (`--cut`) which they are cut to; 0 if it measures
    whole texts.
    """
    needs_all: bool = False
    """Whether it needs all documents at once, sampled or not, and not one block after the other."""

    scale_name: str = "cosine"
    """Name of the values' scale, on which pages draw the differences of several probes."""
    value_title: str = ""
    """Title of the axis of values; empty for the title of the probe."""
    place_title: str = ""
    form: Form = Form.STEPS
    unit: Unit = Unit.INDEX
    series: Mapping[str, tuple[str, str]] = {}
    """Panel and line that each series is drawn in, by its name; the line of the model itself is
    empty.
    """
    place_names: Mapping[str, str] = {}
    """Titles of positions, by their name without the series."""
    place_shares: Mapping[str, float] = {}
    """Place of each position in the text, in [0, 1]."""
    same_scale: bool = True
    """Whether all panels have one axis of values."""
    in_window: bool = False
    """Whether the texts that are measured fit the model's window."""
    shows_window: bool = False
    """Whether a figure marks where the model's window ends in a text."""
    shows_spread: bool = False
    """Whether a figure shows the standard deviation of the values, too."""
    ignores_model: bool = False
    """Whether the data alone determines the values."""
    averages: Mapping[str, Compute] = {}
    """Averages over conditions that a figure has a panel of, by the name of their position, as
    `mean over sizes · 0%`.
    """
    cells: Sequence[tuple[str, float, float]] = ()
    """The panel (for `Form.CELLS`) of each position, and the middle of its cell on both axes, which
    is 0.1 wide and high.
    """

    def plan(self, data: ProbeData) -> ProbePlan:
        """List what must be encoded to measure documents.

        Raises:
            PosirError: The model or the data does not have what the probe needs.
        """
        raise NotImplementedError

    @property
    def first_summary(self) -> Summary:
        """The summary that is correlated with retrieval."""
        return next(iter(self.summaries.values()))

    @property
    def headline_summaries(self) -> list[Summary]:
        """The summaries that describe a result, the most important first."""
        return [self.summaries[name] for name in self.headline] or [self.first_summary]

    @property
    def lead(self) -> Summary:
        """The most important of these."""
        return self.headline_summaries[0]

    def describe(self, sums: ProbeSums, most: int | None = None) -> str:
        """Describe a result by its title and at most so many summaries of its headline, the first
        with its interval, without a full stop.

        `Mirror reversal: nDCG@10 near start minus near end +12.3 [+4.0, +20.1] points; nDCG@10 near
        start 50.2; ...`
        """
        values: list[tuple[str, str, str]] = []
        for summary in self.headline_summaries[:most]:
            if estimate := sums.estimate(summary):
                form = self.find_format(summary)
                text = form(estimate.value) if values else format_estimate(estimate, form)
                values.append((summary.title, text, UNITS.get(summary.unit, "")))
        return describe_values(self.title, values)

    def find_format(self, summary: Summary) -> Format:
        """Find how a summary is printed: signed if it is the difference of a preference."""
        is_difference = self.preference_sign and summary == self.lead
        return (SIGNED if is_difference else FORMATS)[summary.unit]

    @property
    def unit_name(self) -> str:
        """The noun of what counts as one."""
        return "set" if self.joined > 1 else "document"

    def split(self, position: str) -> tuple[str, str, str]:
        """Return panel, line and title of a position."""
        name, _, place = position.rpartition(SEPARATOR)
        panel, line = self.series.get(name, (name, ""))
        return panel, line, self.place_names.get(place, place)


@dataclass(frozen=True, kw_only=True)
class IndexRow:
    """A summary of a probe's values, or the value at one position."""

    model: str
    revision: str
    data: str
    probe: str
    kind: str
    """`summary` or `position`."""
    name: str
    value: Estimate | None
    """Its 95% interval is by bootstrap over documents; None where undefined."""
    sd: float | None = None
    """Standard deviation of the values at a position."""
    slope: float | None = None
    p_value: float | None = None
    """Pearson's r at a position: the slope of its line, and the p-value of both, with the points as
    independent.
    """
    documents: int
    left_out: int
    """Documents that could not be measured."""
    complete: bool
    source: str


def build_index_rows(results: Iterable[ProbeResult], probes: Mapping[str, Probe]) -> list[IndexRow]:
    """Build a row for each summary of every result, followed by one for each position."""
    rows = []
    for result in results:
        probe = probes[result.probe]
        sums = result.sums
        build_row = partial(
            IndexRow,
            model=result.model,
            revision=result.revision,
            data=result.data,
            probe=result.probe,
            documents=sums.documents,
            left_out=max(0, result.drawn - sums.documents),
            complete=all(subset.done >= subset.sampled for subset in result.subsets.values()),
            source=probe.source,
        )
        for name, summary in probe.summaries.items():
            rows.append(build_row(kind="summary", name=name, value=sums.estimate(summary)))
        for index, name in enumerate(sums.positions):
            details: dict[str, Any] = {}
            for key, column in sums.details.items():
                if np.isfinite(column[index]):
                    details[key] = column.item(index)
            details["value"] = sums.estimates[index]
            rows.append(build_row(kind="position", name=name, **details))
    return rows


def run_plans(
    encoder: Encoder, plans: Sequence[ProbePlan], advance: Advance = float
) -> list[ProbeSums]:
    """Encode the texts of several plans in one pass, and summarize each; `advance` counts the
    shares that are done.
    """
    documents = dict.fromkeys(text for plan in plans for text in plan.documents)
    queries = dict.fromkeys(text for plan in plans for text in plan.queries)

    def encode(texts: Sequence[str], prompt_type: PromptType) -> Vectors:
        vectors = []
        for batch in split_batches(texts, STEP):
            vectors.append(encoder(batch, prompt_type))
            advance(len(vectors[-1]) / (len(documents) + len(queries)))
        return np.concatenate(vectors)

    embeddings = encode_distinct(encode, documents, queries).normalize()
    return [plan.summarize(embeddings) for plan in plans]


def run_probe(probe: Probe, encoder: Encoder, data: ProbeData) -> ProbeSums:
    """Measure all data with one probe, as a Python function does."""
    (sums,) = run_plans(encoder, [probe.plan(replace(data, encoder=encoder))])
    return sums


def plan_cosines(
    positions: Sequence[str],
    names: Sequence[str],
    texts: Sequence[str],
    others: Sequence[Sequence[str]],
    skipped: Mapping[str, int],
    prompt_type: PromptType = PromptType.document,
) -> ProbePlan:
    """Plan the cosine of each of n texts, of the documents `names`, with P other documents, one per
    position.
    """
    flat = [other for row in others for other in row]

    def summarize(embeddings: Embeddings) -> ProbeSums:
        vectors = embeddings.select(flat)
        by_text = vectors.reshape(len(texts), len(positions), vectors.shape[-1])
        cosines = np.einsum("nd,nkd->nk", embeddings.select(texts, prompt_type), by_text)
        return ProbeSums.from_means(positions, names, cosines.astype(float), skipped)

    if prompt_type is PromptType.query:
        return ProbePlan(summarize, flat, texts)
    return ProbePlan(summarize, [*texts, *flat])


def ignore_rounding(differences: Floats) -> Floats:
    """Set differences of cosines that are rounding errors to 0, so that no interval excludes 0 by
    them.
    """
    return np.where(np.abs(differences) < ROUNDING, 0.0, differences)


def start_minus_end(values: Floats) -> Floats:
    """Subtract the last cosine from the first: positive if the start counts more."""
    return ignore_rounding(values[..., 0] - values[..., -1])


def summarize_ends(difference: str, first: str, last: str) -> dict[str, Summary]:
    """Build the summaries of a cosine at the first and the last position, and their difference."""
    return {
        "start_minus_end": Summary(difference, start_minus_end),
        "first": Summary(first, at(0)),
        "last": Summary(last, at(-1)),
    }


def value_range(values: Floats) -> Floats:
    """Subtract the smallest value from the largest. Like every range it is biased upwards by
    sampling error.
    """
    extent: Floats = np.ptp(values, axis=-1)
    return extent
