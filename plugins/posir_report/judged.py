"""Rows of results on judged queries without positions: means of mteb's metrics, and how much of the
corpus is not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from posir_report.summary import (
    RunSummary,
    full_labels,
    identify_run,
    list_subsets,
    name_tasks_by_data,
)
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
from posir_tasks.values.scores import ALL

#: The reason why results of mteb alone have a row for each split and subset.
PLAIN_NOTE = (
    "Results that mteb alone wrote have a row for each split and subset: mteb stores no queries, "
    "so these cannot be pooled, and there are no intervals."
)


@dataclass(frozen=True)
class JudgedSummary(RunSummary):
    """A model on all judged queries of a task, whether or not their evidence has positions, or in
    results of mteb alone.
    """

    results: tuple[StoredResult, ...]
    """Those of the subsets."""
    part: str = ""
    """The only subset, or split and subset, that the row is of; empty if all subsets are pooled."""

    @property
    def full_task(self) -> str:
        """The task with the part that the row is of."""
        return f"{self.task} ({self.part})" if self.part else self.task

    @cached_property
    def scores(self) -> JudgedScores | None:
        """Their sums; None of results of mteb alone, which store no queries."""
        if not isinstance(self.results[0], JudgedResult):
            return None
        scores: JudgedScores = pool(result.values for result in self.results)
        return scores

    @cached_property
    def estimates(self) -> dict[str, MeanEstimate | None]:
        """The mean of each metric over queries, in [0, 1], with its interval for new clusters; of
        mteb alone, its score.
        """
        if self.scores is None:
            (result,) = self.results
            return dict(zip(METRICS, map(MeanEstimate, result.values), strict=True))
        return {metric: estimate_judged(self.scores, metric) for metric in METRICS}

    def estimate_not_read(self) -> tuple[Estimate | None, str]:
        """Return the share of the tokens of the corpora that is not read, with its interval over
        samples of documents; and the share for a cell of a table, with how it is known, or why it
        is not.
        """
        known = [result.corpus for result in self.results if result.corpus]
        corpus = pool(known) if len(known) == len(self.results) else None
        if corpus is None or corpus.tokens is None:
            is_unknown = corpus is not None and corpus.read.kind is ReadKind.UNKNOWN
            return None, "window unknown" if is_unknown else "lengths unknown: rescore with --data"
        share, margin = corpus.tokens.share
        interval = (max(share - margin, 0.0), min(share + margin, 1.0)) if margin else None
        estimate = Estimate(share, interval)
        text = format_estimate(estimate, format_percent)
        way = corpus.tokens.counted_with
        if share and way is not CountedWith.TOKENIZER:
            text += f" ({way.value.replace('_', ' ')})"
        return estimate, text

    def columns(self) -> dict[str, Any]:
        """Return the row as the columns of CSV and JSON, those of a report as far as there is
        one.
        """
        scores = self.scores
        return {
            "model": self.model,
            "revision": self.revision,
            "task": self.task,
            "length": ALL,
            "queries": scores and scores.queries,
            "clusters": scores and len(scores.sizes),
            "clusters_by": scores and scores.clusters,
            **self.estimates,
            "corpus_not_read": self.estimate_not_read()[0],
            "subsets": len(self.subsets),
            "subset": self.part or None,
            "data_revision": self.data_revision,
        }


def summarize_judged(results: Iterable[StoredResult]) -> list[JudgedSummary]:
    """Summarize results by model, revision and task, ordered as by `summarize`, then by part.

    Subsets with stored queries are pooled if all models of the task have the same ones. Otherwise,
    and for results of mteb alone, each subset has a summary: means over other splits and subsets
    are no numbers of the same thing.

    Raises:
        PosirError: A subset has several results.
    """
    runs: dict[tuple[str, str, str], dict[bool, list[StoredResult]]] = {}
    subsets: dict[str, set[tuple[str, ...]]] = {}
    for result in sorted(results, key=identify_run):
        of_run = runs.setdefault(identify_run(result), {True: [], False: []})
        of_run[isinstance(result, JudgedResult)].append(result)
    for (model, _, task), of_run in runs.items():
        list_subsets(model, task, of_run[False])
        if of_run[True]:
            subsets.setdefault(task, set()).add(list_subsets(model, task, of_run[True]))
    summaries = []
    for run, of_run in runs.items():
        stored = of_run[True]
        if stored and len(subsets[run[2]]) == 1:
            summaries.append(_summarize(run, stored))
            stored = []
        single = (*stored, *of_run[False])
        summaries += [_summarize(run, [result], result.subset) for result in single]
    return name_tasks_by_data(summaries)


def _summarize(
    run: tuple[str, str, str], results: Sequence[StoredResult], part: str = ""
) -> JudgedSummary:
    return JudgedSummary(
        *run,
        tuple(result.subset for result in results),
        (),
        combine_revisions(result.data.revision for result in results),
        tuple(results),
        part,
        data={result.subset: result.data for result in results},
    )


def describe_parts(summaries: Iterable[JudgedSummary]) -> Iterator[str]:
    """Yield why rows are of single splits and subsets, and which of these not all models of a task
    have.
    """
    parts: dict[str, dict[tuple[str, str], set[str]]] = defaultdict(lambda: defaultdict(set))
    stored = set()
    for summary in summaries:
        if summary.part:
            parts[summary.task][summary.model, summary.revision].add(summary.part)
            if summary.scores:
                stored.add(summary.task)
    if parts.keys() - stored:
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
    rows = []
    for label, summary in zip(full_labels(summaries), summaries, strict=True):
        scores = summary.scores
        clusters = f"{len(scores.sizes):,} by {scores.clusters}" if scores else MISSING
        queries = format_count(scores.queries if scores else None)
        means = [format_estimate(mean, format_percent) for mean in summary.estimates.values()]
        _, not_read = summary.estimate_not_read()
        rows.append((label, summary.full_task, queries, clusters, not_read, *means))
    return Table(build_columns(headings, headings[2:]), tuple(rows), keys=2)
