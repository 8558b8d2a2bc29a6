"""Rows of results on judged queries without positions: means of mteb's metrics, and how much of the
corpus is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from posir_report.summary import full_labels, identify_run, list_subsets
from posir_significance.intervals import estimate_judged
from posir_tasks.data.repository import combine_revisions
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.results import JudgedResult, StoredResult
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.judgments import METRICS, JudgedScores
from posir_tasks.values.means import MeanEstimate
from posir_tasks.values.profile import pool
from posir_tasks.values.read_part import CountedWith, ReadKind
from posir_tasks.values.result_schema import SubsetData, identify_data
from posir_tasks.values.scores import ALL
from posir_tasks.values.tokens_read import CorpusRead

#: The reason why results of mteb alone have a row for each split and subset.
PLAIN_NOTE = (
    "Results that mteb alone wrote have a row for each split and subset: mteb stores no queries, "
    "so these cannot be pooled, and there are no intervals."
)


@dataclass(frozen=True)
class JudgedSummary:
    """A model on all judged queries of a task, whether or not their evidence has positions, or in
    results of mteb alone.
    """

    model: str
    revision: str
    task: str
    subsets: tuple[str, ...]
    results: tuple[StoredResult, ...]
    """Those of the subsets."""
    part: str = ""
    """The only subset, or split and subset, that the row is of; empty if all subsets are pooled."""
    data_name: str = ""
    """The revision of the data if other results of the task are on other data; empty if not."""

    @property
    def full_task(self) -> str:
        """The task with the part and the data that the row is of."""
        named = ", ".join(filter(None, (self.part, self.data_name and f"data {self.data_name}")))
        return f"{self.task} ({named})" if named else self.task

    @property
    def data(self) -> SubsetData:
        """The data of each subset."""
        return {result.subset: result.data for result in self.results}

    @cached_property
    def scores(self) -> JudgedScores | None:
        """Their sums; None of results of mteb alone, which store no queries."""
        return (
            pool(result.values for result in self.results)
            if isinstance(self.results[0], JudgedResult)
            else None
        )

    @cached_property
    def estimates(self) -> dict[str, MeanEstimate | None]:
        """The mean of each metric over queries, in [0, 1], with its interval for new clusters; of
        mteb alone, its score.
        """
        if self.scores is None:
            (result,) = self.results
            return dict(zip(METRICS, map(MeanEstimate, result.values), strict=True))
        return {metric: estimate_judged(self.scores, metric) for metric in METRICS}

    @cached_property
    def corpus(self) -> CorpusRead | None:
        """Read part of the corpora; None if a result does not store it."""
        known = [result.corpus for result in self.results if result.corpus]
        return pool(known) if len(known) == len(self.results) else None

    @property
    def not_read(self) -> Estimate | None:
        """Share of the tokens of the corpora that is not read, with its interval over samples of
        documents.
        """
        if self.corpus is None or self.corpus.tokens is None:
            return None
        share, margin = self.corpus.tokens.share
        return Estimate(
            share, (max(share - margin, 0.0), min(share + margin, 1.0)) if margin else None
        )

    def describe_not_read(self) -> str:
        """Return the share for a cell of a table, with how it is known, or why it is not known."""
        if self.not_read is None or not (self.corpus and self.corpus.tokens):
            is_unknown = self.corpus and self.corpus.read.kind is ReadKind.UNKNOWN
            return "window unknown" if is_unknown else "lengths unknown: rescore with --data"
        way = self.corpus.tokens.counted_with
        known = (
            ""
            if way is CountedWith.TOKENIZER or not self.not_read.value
            else f" ({way.value.replace('_', ' ')})"
        )
        return f"{format_estimate(self.not_read, format_percent)}{known}"

    def columns(self) -> dict[str, Any]:
        """Return the row as the columns of CSV and JSON, those of a report as far as there is
        one.
        """
        identity = {
            "model": self.model,
            "revision": self.revision,
            "task": self.task,
            "length": ALL,
        }
        known = (
            (self.scores.queries, len(self.scores.sizes), self.scores.clusters)
            if self.scores
            else (None,) * 3
        )
        counts = dict(zip(("queries", "clusters", "clusters_by"), known, strict=True))
        measured = {**self.estimates, "corpus_not_read": self.not_read}
        source = {
            "subsets": len(self.subsets),
            "subset": self.part or None,
            "data_revision": self.data_revision,
        }
        return {**identity, **counts, **measured, **source}

    @property
    def data_revision(self) -> str:
        """Revision of the data; several, separated by commas, if the subsets have different
        ones.
        """
        return combine_revisions(result.data.revision for result in self.results)


def summarize_judged(results: Iterable[StoredResult]) -> list[JudgedSummary]:
    """Summarize results by model, revision and task, ordered as by `summarize`, then by part.

    Subsets with stored queries are pooled if all models of the task have the same ones. Otherwise,
    and for results of mteb alone, each subset has a summary: means over other splits and subsets
    are no numbers of the same thing.

    Raises:
        PosirError: A subset has several results.
    """
    stored: dict[tuple[str, str, str], list[StoredResult]] = {}
    plain: dict[tuple[str, str, str], list[StoredResult]] = {}
    for result in sorted(results, key=identify_run):
        groups = stored if isinstance(result, JudgedResult) else plain
        groups.setdefault(identify_run(result), []).append(result)
    subsets: dict[str, set[tuple[str, ...]]] = {}
    for (model, _, task), listed in stored.items():
        subsets.setdefault(task, set()).add(list_subsets(model, task, listed))
    summaries: list[JudgedSummary] = []
    for (model, revision, task), listed in stored.items():
        if len(subsets[task]) == 1:
            summaries.append(
                JudgedSummary(
                    model, revision, task, list_subsets(model, task, listed), tuple(listed)
                )
            )
        else:
            summaries += _split_summary((model, revision, task), listed)
    for run, listed in plain.items():
        list_subsets(run[0], run[2], listed)
        summaries += _split_summary(run, listed)
    ordered = sorted(summaries, key=lambda summary: (summary.model, summary.revision, summary.task))
    return _name_data(ordered)


def _split_summary(
    run: tuple[str, str, str], results: Iterable[StoredResult]
) -> list[JudgedSummary]:
    """Return a summary of each result of a model on a task."""
    return [
        JudgedSummary(*run, (result.subset,), (result,), part=result.subset) for result in results
    ]


def _name_data(summaries: Sequence[JudgedSummary]) -> list[JudgedSummary]:
    """Return summaries that name their data where those of one task and part are on several
    data.
    """
    known: dict[tuple[str, str], dict[str, str]] = {}
    for summary in summaries:
        data = known.setdefault((summary.task, summary.part), {})
        data.setdefault(identify_data(summary.data), summary.data_revision)
    named = []
    for summary in summaries:
        data = known[summary.task, summary.part]
        number = list(data).index(identify_data(summary.data)) + 1
        is_ambiguous = [*data.values()].count(summary.data_revision) > 1
        content = f", content {number}" if is_ambiguous else ""
        name = f"{summary.data_revision}{content}" if len(data) > 1 else ""
        named.append(replace(summary, data_name=name))
    return named


def describe_parts(summaries: Iterable[JudgedSummary]) -> Iterator[str]:
    """Yield why rows are of single splits and subsets, and which of these not all models of a task
    have.
    """
    parts: dict[str, dict[tuple[str, str], set[str]]] = {}
    is_plain: dict[str, bool] = {}
    for summary in summaries:
        if summary.part:
            run = summary.model, summary.revision
            parts.setdefault(summary.task, {}).setdefault(run, set()).add(summary.part)
            is_plain[summary.task] = is_plain.get(summary.task, True) and summary.scores is None
    if any(is_plain.values()):
        yield PLAIN_NOTE
    for task, by_run in parts.items():
        shared = set.intersection(*by_run.values())
        every = set.union(*by_run.values())
        if shared != every:
            named = "; ".join(sorted(shared)) or "none"
            yield (
                f"{task}: not all models have results of the same splits and subsets. "
                f"All of them have {len(shared)} of {len(every)}: {named}. Compare models on "
                "these rows only."
            )


def judged_table(summaries: Sequence[JudgedSummary]) -> Table:
    """Return a table with a line for each model, task and part."""
    headings = ("Model", "Task", "Judged queries", "Clusters", "Corpus not read", *METRICS.values())
    rows = (
        (
            label,
            summary.full_task,
            format_count(summary.scores.queries) if summary.scores else MISSING,
            f"{len(summary.scores.sizes):,} by {summary.scores.clusters}"
            if summary.scores
            else MISSING,
            summary.describe_not_read(),
            *(format_estimate(estimate, format_percent) for estimate in summary.estimates.values()),
        )
        for label, summary in zip(full_labels(summaries), summaries, strict=True)
    )
    return Table(build_columns(headings, headings[2:]), tuple(rows), keys=2)
