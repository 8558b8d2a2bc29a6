"""The results that `posir.read_results` returns: their rows, sections, notes and tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from posir_compare.gate import Gate, Limit, check_limits, list_judged_scores, list_scores
from posir_report import tables
from posir_report.columns import (
    RECALL_KEYS,
    add_published_columns,
    choose_columns,
    list_bin_columns,
    select_columns,
)
from posir_report.content import (
    BRIEF,
    JUDGED_NOTE,
    NOTE,
    build_answer_sections,
    build_position_charts,
    collect_pooled_scores,
    describe_findings,
    title_findings,
)
from posir_report.judged import (
    JudgedSummary,
    build_judged_table,
    describe_subsets,
    summarize_judged,
)
from posir_report.page import build_latex_tables
from posir_report.published import merge_published
from posir_report.summary import (
    ReportRow,
    Run,
    TaskSummary,
    average_languages,
    build_bin_rows,
    build_labels,
    build_length_row,
    build_rows,
    build_short_labels,
    build_span_row,
    identify_run,
    list_overall,
    mark_notable_bias,
    summarize,
)
from posir_significance.analysis import analyze, analyze_spans
from posir_significance.decision import DEFAULT_MARGINS, Margins
from posir_significance.findings import ChangeRow
from posir_significance.messages.reports import describe_training_overlap
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track_items
from posir_tasks.base.wording import pluralize
from posir_tasks.data.repository import combine_revisions
from posir_tasks.data.sources import list_sources, measure_overlap
from posir_tasks.display.position_charts import Picture, draw_position_charts, explain_sketches
from posir_tasks.display.presentation import LazySequence, Result, to_paragraphs
from posir_tasks.display.tables import DisplaySection, Medium, Table
from posir_tasks.models.protocols import list_differences
from posir_tasks.results import StoredResult, SubsetResult, read_training_data
from posir_tasks.values.place_ranks import SEVERAL_SPANS
from posir_tasks.values.scores import ALL, ScoreInfo


@dataclass(frozen=True, repr=False, kw_only=True)
class Results(Result, Sequence[SubsetResult]):
    """A sequence of results, one for each subset of a task; tables pool the subsets of a task.

    Rows and sections are built when first read.
    """

    subset_results: tuple[SubsetResult, ...]
    """The items of the sequence."""
    judged: tuple[StoredResult, ...] = ()
    """Results on judged queries without positions, which are not items of the sequence."""
    keys: tuple[str, ...] = ()
    """Keys of the scores to show; empty for the default ones."""
    margins: Margins = DEFAULT_MARGINS

    def __post_init__(self) -> None:
        """Fill the fields of `Result` from the results."""
        fields = {
            "title": self._describe_size(),
            "data": self._describe_data(),
            "rows": LazySequence(lambda: self.length_rows),
            "extra_sections": LazySequence(self._build_sections),
            "notes": LazySequence(self._write_notes),
            "details": LazySequence(self._write_details),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @overload
    def __getitem__(self, index: int) -> SubsetResult: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> SubsetResult | Results:
        """Return a result, or a slice with the same display options."""
        if isinstance(index, slice):
            return replace(self, subset_results=self.subset_results[index])
        return self.subset_results[index]

    def __len__(self) -> int:
        """Return the number of subsets with a result."""
        return len(self.subset_results)

    @cached_property
    def summaries(self) -> list[TaskSummary]:
        """Each model on each task, with pooled subsets."""
        return summarize(self.subset_results, self.margins)

    @cached_property
    def judged_summaries(self) -> list[JudgedSummary]:
        """Each model on the judged queries of each task."""
        return summarize_judged(self.judged)

    @cached_property
    def length_rows(self) -> list[ReportRow]:
        """A row for each model, task and length, `all` first."""
        summaries = track_items(self.summaries, "Analyzing results")
        return mark_notable_bias(row for summary in summaries for row in build_rows(summary))

    @cached_property
    def total_rows(self) -> list[ReportRow]:
        """A row for each model and task over all lengths."""
        summaries = track_items(self.summaries, "Analyzing results")
        return mark_notable_bias(build_length_row(summary, 0) for summary in summaries)

    @cached_property
    def span_rows(self) -> list[ReportRow]:
        """A row for each model and task with queries that have several evidence spans."""
        rows = [build_span_row(summary) for summary in self.summaries]
        return [row for row in rows if row]

    @cached_property
    def overall(self) -> list[ReportRow]:
        """The rows over all lengths, sorted by task and descending nDCG@10."""
        return list_overall([*self.total_rows, *self.span_rows])

    @property
    def columns(self) -> list[ScoreInfo]:
        """The scores to show."""
        return choose_columns(self.keys, full=self.full)

    def records(self) -> list[dict[str, object]]:
        """List every row with all scores, or with the chosen ones."""
        rows = track_items([*self.length_rows, *self.span_rows], "Scoring results")
        records = [
            select_columns(row, self.columns) if self.keys else row.to_record() for row in rows
        ]
        return records + [summary.to_record() for summary in self.judged_summaries]

    def document(self) -> list[dict[str, Any]]:
        """List each model's pooled scores and position profile on each task."""
        rows = iter(self.length_rows)
        pooled_rows = [
            collect_pooled_scores(summary, [next(rows) for _ in summary.scores.groups])
            | {"training_overlap": self._find_overlap(summary)}
            for summary in track_items(self.summaries, "Scoring results")
        ]
        return pooled_rows + [summary.to_record() for summary in self.judged_summaries]

    def _find_overlap(self, summary: TaskSummary) -> dict[str, Any]:
        sources = list_sources(summary.task, summary.subsets)
        training_data = read_training_data(self._files[summary.model, summary.revision])
        share = None
        if sources and training_data is not None:
            share = measure_overlap(sources, training_data)
        return {"sources": [*sources], "share": share}

    @cached_property
    def _files(self) -> dict[tuple[str, str], Path]:
        return {identify_run(result)[:2]: result.file for result in self.subset_results}

    def _build_sections(self) -> Iterator[DisplaySection]:
        if self.summaries:
            yield DisplaySection(title_findings(self.overall))
            rows = [*self.total_rows, *self.span_rows]
            yield from build_answer_sections(
                rows, self.summaries, self.columns if self.keys else ()
            )
            yield from to_paragraphs(tables.write_span_notes(self.summaries))
            yield DisplaySection(
                position_charts=LazySequence(lambda: build_position_charts(self.overall)),
                only=Medium.PAGE,
            )
            yield DisplaySection(tables=LazySequence(self._build_latex_tables), only=Medium.LATEX)
        if self.full and self.summaries:
            rows = [replace(row, length=row.length_title or row.length) for row in self.length_rows]
            rows += average_languages(self.length_rows)
            yield DisplaySection(
                tables=(tables.build_length_table(rows, self.columns, curves=True),)
            )
        if self.judged:
            yield DisplaySection(tables=(build_judged_table(self.judged_summaries),))

    def _build_latex_tables(self) -> Iterator[Table]:
        if not self.keys:
            yield from build_latex_tables(self.summaries, self.length_rows)
            return
        table = tables.build_length_table(self.length_rows, self.columns)
        yield replace(table, title=self.title, notes=(NOTE, *tables.build_legend(self.columns)))

    def _describe_size(self) -> str:
        results = (*self.subset_results, *self.judged)
        models = {(result.model, result.experiment) for result in results}
        tasks = {result.task for result in results}
        return f"{pluralize(len(models), 'model')} on {pluralize(len(tasks), 'task')}"

    def _describe_data(self) -> str:
        revisions = defaultdict[Run, list[str]](list)
        for result in self.subset_results:
            revisions[identify_run(result)].append(result.data.revision)
        tasks = [
            f"{task}, data revision {combine_revisions(run_revisions)}"
            for (_, _, task), run_revisions in revisions.items()
        ]
        return ", ".join(dict.fromkeys(tasks))

    def _write_notes(self) -> Iterator[str]:
        if self.subset_results:
            charts = [row.position_chart for row in self.overall if row.position_chart]
            if self.keys or self.full:
                yield NOTE
            else:
                yield from [explain_sketches(charts), *BRIEF] if charts else BRIEF
        if any(summary.scores for summary in self.judged_summaries):
            yield JUDGED_NOTE
        yield from describe_subsets(self.judged_summaries)
        yield from self._describe_training()

    def _describe_training(self) -> Iterator[str]:
        tasks = defaultdict[str, list[tuple[str, dict[str, Any]]]](list)
        for summary, label in zip(self.summaries, build_short_labels(self.summaries), strict=True):
            tasks[summary.task].append((label, self._find_overlap(summary)))
        for task, overlaps in tasks.items():
            yield from describe_training_overlap(task, overlaps)

    def _write_details(self) -> Iterator[str]:
        if self.subset_results:
            labels = build_labels(self.summaries)
            yield from tables.write_truncation_notes(labels, self.summaries)
            yield from tables.write_document_notes(labels, self.summaries)
            yield NOTE
            yield from tables.build_legend([*self.columns, tables.SKETCH])

    def check(self, limits: str | Sequence[str | Limit], *, strict: bool = False) -> Gate:
        """Check limits on the scores of every model and task over all lengths, as `posir report
        --fail-if` does.

        Args:
            limits: One or several limits: a metric, `<` or `>`, and a number in the unit in which
                it is printed, such as `position_effect > 10`.
            strict: If true, a limit fails unless the interval is wholly within it.

        Returns:
            The verdict on every limit, and overall.

        Raises:
            PosirError: A limit is malformed.
        """
        rows: list[ChangeRow] = []
        gaps = {}
        summaries = self.summaries
        for model, summary in zip(build_labels(summaries), summaries, strict=True):
            overall = analyze(summary.values).overall
            if overall.queries or not summary.span_findings:
                rows += list_scores(overall, model, summary.task)
            if places := analyze_spans(summary.values):
                rows += list_scores(places, model, f"{summary.task}{SEVERAL_SPANS}")
            if summary.missing:
                missing = ", ".join(summary.missing)
                gaps[model, summary.task] = f"it has no results of {missing}"
        for judged_summary in self.judged_summaries:
            if judged_summary.scores:
                rows += list_judged_scores(
                    judged_summary.scores,
                    judged_summary.estimates,
                    judged_summary.model,
                    judged_summary.full_task,
                )
        return check_limits(rows, limits, strict=strict, gaps=gaps, command="report")

    def bins(self) -> Result:
        """Show nDCG@10 of every position bin: a row for each model, task and bin."""
        rows = [row for summary in self.summaries for row in build_bin_rows(summary)]
        return replace(self._tabulate(rows, list_bin_columns()), values=self.document)

    def recall(self) -> Result:
        """Show Recall@5, @10 and @100: a row for each model and task, then for its bins."""
        columns = choose_columns(RECALL_KEYS)
        rows = []
        summaries = self.summaries
        for summary in summaries:
            rows += [replace(build_length_row(summary, 0), position=ALL), *build_bin_rows(summary)]
        result = self._tabulate(rows, columns)
        notes = [*result.notes, *tables.write_cut_ranking_notes(build_labels(summaries), summaries)]
        return replace(result, rows=[select_columns(row, columns) for row in rows], notes=notes)

    def with_published(self) -> Result:
        """Show a row for each model, task and length, including the published results."""
        rows = self.length_rows
        merged_rows = merge_published([*rows, *average_languages(rows)])
        columns = add_published_columns(self.columns, merged_rows)
        result = self._tabulate(
            merged_rows, columns, tables.build_length_table(merged_rows, columns, curves=True)
        )
        differences = list_differences((row.task, row.model) for row in rows)
        return replace(result, notes=[*result.notes, *differences])

    def _tabulate(
        self, rows: Sequence[ReportRow], columns: Sequence[ScoreInfo], table: Table | None = None
    ) -> Result:
        return Result(
            title=self.title,
            rows=[row.to_record() for row in rows],
            tables=[table or tables.build_bin_table(rows, columns)],
            sentences=tuple(describe_findings(self.length_rows)),
            notes=[NOTE],
            details=tables.build_legend(columns),
        )

    def plot(self, task: str | None = None) -> Picture:
        """Draw nDCG@10 over position and the truncated share, a chart per model, best first.

        Args:
            task: The task to draw; None for all.

        Returns:
            A picture that notebooks display offline. `save("picture.png")` or `.svg` writes it.

        Raises:
            PosirError: There are no results on this task.
        """
        tasks = {summary.task for summary in self.summaries}
        if task is not None and task not in tasks:
            raise PosirError(
                f"There are no results on a task '{task}'. There are results on "
                f"{', '.join(sorted(tasks))}."
            )
        selection = tuple(result for result in self if task in (None, result.task))
        results = replace(self, subset_results=selection)
        return Picture(draw_position_charts(results.position_charts(), source=results.data))


def build_results(
    results: Iterable[StoredResult],
    columns: Collection[str] = (),
    *,
    full: bool = False,
    margins: Margins = DEFAULT_MARGINS,
) -> Results:
    """Build the results that `posir.read_results` returns; rows are analyzed when first read."""
    with_positions = []
    judged_results = []
    for result in results:
        if isinstance(result, SubsetResult):
            with_positions.append(result)
        else:
            judged_results.append(result)
    return Results(
        subset_results=tuple(with_positions),
        judged=tuple(judged_results),
        keys=tuple(columns),
        margins=margins,
        full=full,
    )
