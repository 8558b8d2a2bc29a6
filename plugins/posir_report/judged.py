"""Rows of results on judged queries without positions: means of mteb's metrics, and how much of the corpus is not read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from posir_report.summary import full_labels, identify_run, list_subsets
from posir_significance.intervals import MeanEstimate, estimate_judged
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.judgments import METRICS, JudgedScores
from posir_tasks.profile import pool
from posir_tasks.read_part import CountedWith, ReadKind
from posir_tasks.results import JudgedResult, StoredResult
from posir_tasks.scores import ALL, Estimate
from posir_tasks.tokens_read import CorpusRead


@dataclass(frozen=True)
class JudgedSummary:
    """A model on all judged queries of a task, whether or not their evidence has positions, or in results of mteb alone."""

    model: str
    revision: str
    task: str
    subsets: tuple[str, ...]
    results: tuple[StoredResult, ...]
    """Those of the subsets."""

    @cached_property
    def scores(self) -> JudgedScores | None:
        """Their sums; None of results of mteb alone, which store no queries."""
        return pool(result.values for result in self.results) if isinstance(self.results[0], JudgedResult) else None

    @cached_property
    def estimates(self) -> dict[str, MeanEstimate | None]:
        """The mean of each metric over queries, in [0, 1], with its interval for new clusters; of mteb alone, over subsets."""
        if self.scores is None:
            return dict(
                zip(METRICS, map(MeanEstimate, np.mean([row.values for row in self.results], axis=0).tolist()), strict=True)
            )
        return {metric: estimate_judged(self.scores, metric) for metric in METRICS}

    @cached_property
    def corpus(self) -> CorpusRead | None:
        """Read part of the corpora; None if a result does not store it."""
        known = [result.corpus for result in self.results if result.corpus]
        return pool(known) if len(known) == len(self.results) else None

    @property
    def not_read(self) -> Estimate | None:
        """Share of the tokens of the corpora that is not read, with its interval over samples of documents."""
        if self.corpus is None or self.corpus.tokens is None:
            return None
        share, margin = self.corpus.tokens.share
        return Estimate(share, (max(share - margin, 0.0), min(share + margin, 1.0)) if margin else None)

    def describe_not_read(self) -> str:
        """Return the share for a cell of a table, with how it is known, or why it is not known."""
        if self.not_read is None or not (self.corpus and self.corpus.tokens):
            is_unknown = self.corpus and self.corpus.read.kind is ReadKind.UNKNOWN
            return "window unknown" if is_unknown else "lengths unknown: rescore with --data"
        way = self.corpus.tokens.counted_with
        known = "" if way is CountedWith.TOKENIZER or not self.not_read.value else f" ({way.value.replace('_', ' ')})"
        return f"{format_estimate(self.not_read, format_percent)}{known}"

    def columns(self) -> dict[str, Any]:
        """Return the row as the columns of CSV and JSON, those of a report as far as there is one."""
        identity = {"model": self.model, "revision": self.revision, "task": self.task, "length": ALL}
        known = (self.scores.queries, len(self.scores.sizes), self.scores.clusters) if self.scores else (None,) * 3
        counts = dict(zip(("queries", "clusters", "clusters_by"), known, strict=True))
        return {**identity, **counts, **self.estimates, "corpus_not_read": self.not_read, "subsets": len(self.subsets)}


def summarize_judged(results: Iterable[StoredResult]) -> list[JudgedSummary]:
    """Pool the subsets of each model and task, ordered as by `summarize`; raise PosirError if a subset would count twice."""
    groups = groupby(sorted(results, key=identify_run), key=identify_run)
    return [
        JudgedSummary(*run, list_subsets(run[0], run[2], listed), tuple(listed))
        for run, listed in ((run, list(group)) for run, group in groups)
    ]


def judged_table(summaries: Sequence[JudgedSummary]) -> Table:
    """Return a table with a line for each model and task."""
    headings = ("Model", "Task", "Judged queries", "Clusters", "Corpus not read", *METRICS.values())
    rows = (
        (
            label,
            summary.task,
            format_count(summary.scores.queries) if summary.scores else MISSING,
            f"{len(summary.scores.sizes):,} by {summary.scores.clusters}" if summary.scores else MISSING,
            summary.describe_not_read(),
            *(format_estimate(estimate, format_percent) for estimate in summary.estimates.values()),
        )
        for label, summary in zip(full_labels(summaries), summaries, strict=True)
    )
    return Table(build_columns(headings, headings[2:]), tuple(rows), keys=2)
