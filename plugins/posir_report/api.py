"""The public functions `posir.report` and `posir.read_results`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, overload

from posir_compare.gate import (
    Gate,
    Limit,
    check_limits,
    list_judged_scores,
    list_scores,
    parse_limits,
    run_gate,
)
from posir_report import tables
from posir_report.columns import (
    RECALL,
    add_published_columns,
    bin_columns,
    choose_columns,
    default_columns,
    known_columns,
    select_columns,
)
from posir_report.content import NOTE, ReportContent, describe_findings
from posir_report.published import merge_published
from posir_report.summary import (
    ReportRow,
    average_languages,
    build_bin_rows,
    build_length_row,
    full_labels,
)
from posir_significance.analysis import analyze, analyze_places
from posir_significance.decision import DEFAULT_MARGINS, Margins
from posir_significance.findings import ChangeRow
from posir_tasks import results as find_result_files
from posir_tasks.base.errors import PosirError
from posir_tasks.base.public import Option, public, to_list
from posir_tasks.display.presentation import Deferred, Result
from posir_tasks.display.strip import Picture, draw_position_charts
from posir_tasks.display.tables import Table
from posir_tasks.models.protocols import list_differences
from posir_tasks.results import StoredResult, SubsetResult
from posir_tasks.values.place_ranks import PLACES
from posir_tasks.values.scores import ALL, ScoreInfo


@dataclass(frozen=True, repr=False, kw_only=True)
class Results(Result, Sequence[SubsetResult]):
    """A sequence of results, one for each subset of a task; tables pool the subsets of a task."""

    content: ReportContent
    """Rows and sections, built when first read."""

    @overload
    def __getitem__(self, index: int) -> SubsetResult: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> SubsetResult | Results:
        """Return a result, or a slice with the same display options."""
        if isinstance(index, slice):
            return self._select(self.content.subset_results[index])
        return self.content.subset_results[index]

    def __len__(self) -> int:
        """Return the number of subsets with a result."""
        return len(self.content.subset_results)

    def _select(self, subset_results: Iterable[SubsetResult]) -> Results:
        return _build(replace(self.content, subset_results=tuple(subset_results)))

    @property
    def judged(self) -> tuple[StoredResult, ...]:
        """Results on judged queries without positions, which are not items of the sequence."""
        return self.content.judged

    def records(self) -> list[dict[str, object]]:
        """Return every row with all scores, or with the chosen ones."""
        return self.content.records()

    def check(self, limits: str | Sequence[str | Limit], *, strict: bool = False) -> Gate:
        """Test limits on the scores of every model and task over all lengths, as `posir report
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
        summaries = self.content.summaries
        for model, summary in zip(full_labels(summaries), summaries, strict=True):
            overall = analyze(summary.values).overall
            if overall.queries or not summary.span_findings:
                rows += list_scores(overall, model, summary.task)
            if places := analyze_places(summary.values):
                rows += list_scores(places, model, f"{summary.task}{PLACES}")
            if summary.missing:
                missing = ", ".join(summary.missing)
                gaps[model, summary.task] = f"it has no results of {missing}"
        for judged in self.content.judged_summaries:
            if judged.scores:
                rows += list_judged_scores(
                    judged.scores, judged.estimates, judged.model, judged.full_task
                )
        return check_limits(rows, limits, strict=strict, gaps=gaps, command="report")

    def bins(self) -> Result:
        """Show nDCG@10 of every position bin: a row for each model, task and bin."""
        rows = [row for summary in self.content.summaries for row in build_bin_rows(summary)]
        return replace(self._tabulate(rows, bin_columns()), values=self.content.document)

    def recall(self) -> Result:
        """Show Recall@5, @10 and @100: a row for each model and task, then for its bins."""
        columns = choose_columns(RECALL)
        rows = []
        summaries = self.content.summaries
        for summary in summaries:
            rows += [replace(build_length_row(summary, 0), position=ALL), *build_bin_rows(summary)]
        result = self._tabulate(rows, columns)
        notes = [*result.notes, *tables.cut_ranking_notes(full_labels(summaries), summaries)]
        records = [select_columns(row, columns) for row in rows]
        return replace(result, rows=records, notes=notes)

    def with_published(self) -> Result:
        """Show a row for each model, task and length, including the published results."""
        rows = self.content.length_rows
        merged = merge_published([*rows, *average_languages(rows)])
        columns = add_published_columns(self.content.columns, merged)
        result = self._tabulate(merged, columns, tables.length_table(merged, columns, curves=True))
        differences = list_differences((row.task, row.model) for row in rows)
        return replace(result, notes=[*result.notes, *differences])

    def _tabulate(
        self, rows: Sequence[ReportRow], columns: Sequence[ScoreInfo], table: Table | None = None
    ) -> Result:
        """Show rows in a table, by default of position bins, with findings and a legend."""
        return Result(
            title=self.title,
            rows=[row.columns() for row in rows],
            tables=[table or tables.bin_table(rows, columns)],
            sentences=tuple(describe_findings(self.content.length_rows)),
            notes=[NOTE],
            details=[tables.build_legend(columns)],
        )

    def plot(self, task: str | None = None) -> Picture:
        """Draw nDCG@10 over position and the truncated share: a strip per model, best nDCG@10
        first.

        Args:
            task: The task to draw; None for all.

        Returns:
            A picture that a notebook shows without a network. `save("picture.png")` or `.svg`
            writes it.

        Raises:
            PosirError: There are no results on this task.
        """
        tasks = {summary.task for summary in self.content.summaries}
        if task is not None and task not in tasks:
            raise PosirError(
                f"There are no results on a task '{task}'. There are results on "
                f"{', '.join(sorted(tasks))}."
            )
        selection = self._select(item for item in self if task in (None, item.task))
        return Picture(draw_position_charts(selection.strips(), source=selection.data))


def build_results(
    results: Iterable[StoredResult],
    columns: Collection[str] = (),
    *,
    full: bool = False,
    margins: Margins = DEFAULT_MARGINS,
) -> Results:
    """Build the results that `posir.read_results` returns; rows are analyzed when first read."""
    with_positions = []
    judged = []
    for result in results:
        if isinstance(result, SubsetResult):
            with_positions.append(result)
        else:
            judged.append(result)
    return _build(
        ReportContent(tuple(with_positions), tuple(columns), full, margins, tuple(judged))
    )


def _build(content: ReportContent) -> Results:
    return Results(
        content=content,
        title=content.title,
        data=content.describe_data(),
        full=content.full,
        rows=Deferred(lambda: content.length_rows),
        values=content.document,
        parts=Deferred(content.sections),
        notes=Deferred(content.notes),
        details=Deferred(content.details),
    )


def read_results(
    path: str | Path,
    *,
    columns: Collection[str] = (),
    full: bool = False,
    margins: Collection[str] = (),
) -> Results:
    """Read results of `mteb run`, `mteb.evaluate`, `posir.evaluate` or `posir.score`: those with
    positions or judgments.

    Args:
        path: The folder of results, searched with its subfolders.
        columns: Keys of the scores to show, as in `posir report --columns`; empty for the default
            ones.
        full: If true, also show the published PSI, PSI by chance, and observed differences.
        margins: The smallest differences that matter, in points: `5` for the position effect, or
            KEY=POINTS such as `ndcg_at_10=2`.

    Returns:
        A sequence with the result of each subset, ordered by model, task and subset. As a data
        frame it has a row for each model, task and length: scores in [0, 1] with intervals, and the
        verdict on bias within the window.

    Raises:
        PosirError: The folder does not exist, or has no readable result.

    Examples:
        >>> import posir
        >>> results = posir.read_results("results")
        >>> results[0].task, results[0].profile.queries
        ('PosIR-Mini', 120)
        >>> results.to_polars().select("model", "length", "queries").row(0)
        ('mteb/baseline-bm25s', 'all', 120)
    """
    # Fail early.
    choose_columns(tuple(columns))
    smallest = Margins.parse(margins)
    results = find_result_files.read_all_results(Path(path), StoredResult)
    return build_results(results, columns, full=full, margins=smallest)


@public(
    charts=True,
    card=True,
    flags=("markdown", "csv", "latex"),
    undecided_by=("fail_if", "strict", "junit"),
)
def report(
    results: str | Path = "results",
    *,
    bins: bool = False,
    recall: bool = False,
    published: bool = False,
    columns: Annotated[
        str | Iterable[str] | None, Option(one_value=True, metavar="KEY,KEY")
    ] = None,
    full: bool = False,
    margin: Annotated[str | Iterable[str] | None, Option(metavar="POINTS")] = None,
    fail_if: Annotated[str | Iterable[str] | None, Option(metavar="LIMIT")] = None,
    strict: bool = False,
    junit: str | Path | None = None,
) -> Results | Result | Gate:
    """Show how well models retrieve, what they truncate, and whether they favor an end of
    documents.

        posir report results
        posir report results --html report.html
        posir report results --fail-if "position_effect > 10"

    Args:
        results: The --output-folder of `mteb run`; by default results.
        bins: Show nDCG@10 of every position bin.
        recall: Show Recall@5, @10 and @100 of every position bin.
        published: Include the published results of the same tasks.
        columns: Keys of the scores to show, separated by commas; `--columns help` lists them.
        full: Also show the published PSI, PSI by chance, and observed differences.
        margin: Smallest difference that matters, in points: 5 for the position effect, or
            KEY=POINTS such as ndcg_at_10=2.
        fail_if: Exit status 1 if a score is beyond a limit, such as 'position_effect > 10'; 2 if
            inconclusive.
        strict: With `fail_if`: fail unless the interval is wholly within the limit.
        junit: With `fail_if`: write JUnit XML to this file.

    Returns:
        The results, as from `posir.read_results`, or the chosen table. With `fail_if`, the verdict
        on every limit for each model and task, and overall.

    Raises:
        PosirError: The folder has no readable result, a score does not exist, or options conflict.
            With `fail_if`, a limit is malformed, or the file cannot be written.

    Examples:
        >>> import posir
        >>> posir.report("results", bins=True).to_polars().height
        10
    """
    if limits := parse_limits(to_list(fail_if), strict=strict, junit=junit):
        if bins or recall or published or columns or full:
            raise PosirError(
                "--fail-if cannot be combined with tables. Omit --bins, --recall, --published, "
                "--columns and --full."
            )
        return run_gate(
            lambda: read_results(results).check(limits, strict=strict),
            limits,
            "report",
            junit,
            strict=strict,
        )
    if bins + recall + published > 1:
        raise PosirError("--bins, --recall and --published are different tables. Give one of them.")
    names = columns.split(",") if isinstance(columns, str) else columns or ()
    keys = [key.strip() for key in names if key.strip()]
    if keys == ["help"]:
        return _tabulate_scores()
    all_results = read_results(results, columns=keys, full=full, margins=to_list(margin))
    if recall:
        return all_results.recall()
    if published:
        return all_results.with_published()
    return all_results.bins() if bins else all_results


def _tabulate_scores() -> Result:
    """List the keys of `--columns`."""
    defaults = default_columns()
    rows = []
    lines = []
    for score in known_columns():
        source = f" [{score.citation}]" if score.citation else ""
        lines.append(f"{score.key}: {score.description}{source}")
        row = {
            "key": score.key,
            "title": score.title,
            "shown_by_default": score in defaults,
            "description": score.description,
            "source": score.citation,
        }
        rows.append(row)
    default = f"Default: {', '.join(score.key for score in defaults)}."
    return Result(title="Scores", sentences=[default], notes=["\n".join(lines)], rows=rows)
