"""Rows for judged queries without positions: the means of mteb's metrics, and the corpus's unread
share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from posir_report.summary import (
    Run,
    RunSummary,
    build_labels,
    identify_run,
    list_subsets,
    name_tasks_by_data,
)
from posir_significance.intervals import estimate_judged
from posir_tasks.base.records import Record
from posir_tasks.data.repository import combine_revisions
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_percent
from posir_tasks.display.tables import Role, Table, build_columns
from posir_tasks.results import JudgedResult, StoredResult
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.judgments import METRICS, JudgedScores
from posir_tasks.values.means import MeanEstimate
from posir_tasks.values.profile import pool
from posir_tasks.values.read_part import ReadKind, TokenCountMethod
from posir_tasks.values.scores import ALL

#: Note on results that mteb wrote without posir.
PLAIN_NOTE = (
    "Results of mteb without posir have a row for each split and subset. They cannot be pooled and "
    "have no intervals, since mteb does not store scores of queries."
)


@dataclass(frozen=True)
class JudgedSummary(RunSummary):
    """A model's results on all judged queries of a task, or mteb's own scores without posir."""

    results: tuple[StoredResult, ...]
    """The results of the subsets."""
    subset: str = ""
    """The subset, with its split if needed; empty if all subsets are pooled."""

    @property
    def full_task(self) -> str:
        """The task, with the subset unless all subsets are pooled."""
        return f"{self.task} ({self.subset})" if self.subset else self.task

    @cached_property
    def scores(self) -> JudgedScores | None:
        """The pooled scores; None for results without posir."""
        if not isinstance(self.results[0], JudgedResult):
            return None
        scores: JudgedScores = pool(result.values for result in self.results)
        return scores

    @cached_property
    def estimates(self) -> dict[str, MeanEstimate | None]:
        """The mean of each metric over queries, in [0, 1], with its interval for new clusters.

        For results without posir, this is mteb's score without an interval.
        """
        if self.scores is None:
            (result,) = self.results
            return dict(zip(METRICS, map(MeanEstimate, result.values), strict=True))
        return {metric: estimate_judged(self.scores, metric) for metric in METRICS}

    def estimate_unread_share(self) -> tuple[Estimate | None, str]:
        """Estimate the unread share of the corpora's tokens.

        Returns:
            The share with its interval over document samples, or None; and a table cell with the
            share and the method, or with the reason.
        """
        corpora = [result.corpus for result in self.results if result.corpus]
        corpus = pool(corpora) if len(corpora) == len(self.results) else None
        if corpus is None or corpus.tokens is None:
            is_unknown = corpus is not None and corpus.read.kind is ReadKind.UNKNOWN
            return None, "window unknown" if is_unknown else "lengths unknown: rescore with --data"
        share, margin = corpus.tokens.share
        interval = (max(share - margin, 0.0), min(share + margin, 1.0)) if margin else None
        estimate = Estimate(share, interval)
        method = corpus.tokens.counted_with
        is_noted = share and method is not TokenCountMethod.TOKENIZER
        note = f" ({method.value.replace('_', ' ')})" if is_noted else ""
        return estimate, format_estimate(estimate, format_percent, note)

    def to_record(self) -> Record:
        """Return the columns for CSV and JSON, named as in reports."""
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
            "corpus_not_read": self.estimate_unread_share()[0],
            "subsets": len(self.subsets),
            "subset": self.subset or None,
            "data_revision": self.data_revision,
        }


def summarize_judged(results: Iterable[StoredResult]) -> list[JudgedSummary]:
    """Summarize results by model, revision and task, sorted as by `summarize`, then by subset.

    Subsets with per-query scores are pooled if all models of the task have the same subsets.
    Otherwise each subset gets its own summary, since means over different subsets are not
    comparable.

    Raises:
        PosirError: A subset has several results.
    """
    judged_runs = defaultdict[Run, list[StoredResult]](list)
    plain_runs = defaultdict[Run, list[StoredResult]](list)
    for result in sorted(results, key=identify_run):
        runs = judged_runs if isinstance(result, JudgedResult) else plain_runs
        runs[identify_run(result)].append(result)
    subsets = defaultdict[str, set[tuple[str, ...]]](set)
    for run, run_results in judged_runs.items():
        subsets[run[2]].add(list_subsets(run[0], run[2], run_results))
    summaries = []
    for run in sorted(judged_runs.keys() | plain_runs):
        separate_results = plain_runs[run]
        list_subsets(run[0], run[2], separate_results)
        if len(subsets[run[2]]) == 1 and run in judged_runs:
            summaries.append(_summarize(run, judged_runs[run]))
        else:
            separate_results = judged_runs[run] + separate_results
        summaries += [_summarize(run, [result], result.subset) for result in separate_results]
    return name_tasks_by_data(summaries)


def _summarize(run: Run, results: Sequence[StoredResult], subset: str = "") -> JudgedSummary:
    return JudgedSummary(
        *run,
        tuple(result.subset for result in results),
        (),
        combine_revisions(result.data.revision for result in results),
        tuple(results),
        subset,
        data={result.subset: result.data for result in results},
    )


def describe_subsets(summaries: Iterable[JudgedSummary]) -> Iterator[str]:
    """Explain the rows of single subsets, and list the subsets that all models of a task share."""
    by_task = defaultdict[str, list[JudgedSummary]](list)
    for summary in summaries:
        if summary.subset:
            by_task[summary.task].append(summary)
    if not all(any(summary.scores for summary in rows) for rows in by_task.values()):
        yield PLAIN_NOTE
    for task, rows in by_task.items():
        runs = {(row.model, row.revision) for row in rows}
        counts = Counter(row.subset for row in rows)
        shared_subsets = sorted(subset for subset, count in counts.items() if count == len(runs))
        if len(shared_subsets) == len(counts):
            continue
        advice = "No row is shared by all models."
        if shared_subsets:
            advice = (
                f"All models have {len(shared_subsets)} of {len(counts)}: "
                f"{'; '.join(shared_subsets)}. Compare models on these rows only."
            )
        yield f"{task}: models have results on different splits and subsets. {advice}"


def build_judged_table(summaries: Sequence[JudgedSummary]) -> Table:
    """Build a table with a row for each model, task and single subset."""
    headings = ("Model", "Task", "Judged queries", "Clusters", "Corpus unread", *METRICS.values())
    rows = []
    for label, summary in zip(build_labels(summaries), summaries, strict=True):
        scores = summary.scores
        clusters = f"{len(scores.sizes):,} by {scores.clusters}" if scores else MISSING
        queries = format_count(scores.queries if scores else None)
        means = [format_estimate(mean, format_percent) for mean in summary.estimates.values()]
        _, unread = summary.estimate_unread_share()
        rows.append((label, summary.full_task, queries, clusters, unread, *means))
    roles = dict.fromkeys(headings[:2], Role.NAME)
    return Table(build_columns(headings, headings[2:], roles=roles), tuple(rows), keys=2)
