"""The public functions of this package: `posir.report` and `posir.read_results`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, overload

from posir_compare.gate import Gate, Limit, LimitedValue, check_limits, parse_limits, run_gate
from posir_report import recall, tables
from posir_report.judged import JudgedSummary, describe_parts, judged_table, summarize_judged
from posir_report.published import merge_published, merge_published_bins
from posir_report.summary import (
    MOST_SENTENCES,
    ReportRow,
    TaskSummary,
    average_languages,
    build_bin_rows,
    build_place_row,
    build_rows,
    list_overall,
    mark_notable_bias,
    model_labels,
    summarize,
)
from posir_significance.analysis import analyze, analyze_places
from posir_significance.decision import DEFAULT_MARGINS, Margins
from posir_tasks import results as result_files
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import progress
from posir_tasks.base.public import Option, public, to_list
from posir_tasks.base.wording import pluralize
from posir_tasks.display.presentation import Presentable, Result, to_paragraphs
from posir_tasks.display.strip import Picture, Strip, draw_strips, explain_sketches
from posir_tasks.display.tables import DisplaySection, Table, to_latex
from posir_tasks.models.protocols import list_differences
from posir_tasks.results import StoredResult, SubsetResult
from posir_tasks.values.place_ranks import PLACES
from posir_tasks.values.scores import ALL, ScoreInfo

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure

BRIEF = (
    "nDCG@10: how well evidence is found, 0 to 100; in brackets 95% intervals.\n"
    "Position effect: the same evidence in the first third of its document minus in the last."
)
NOTE = "nDCG@10 and differences of it x 100. 95% intervals are for new documents."
JUDGED_NOTE = (
    "Judged queries: means over all of them x 100, whether or not the position of their evidence "
    "is known, with 95% intervals "
    "for new clusters: documents, topics, or what `posir score --clusters` named. How positions "
    "are added: docs/data.md."
)
CURVE_NOTE = (
    "Over position: nDCG@10 at each position in the window, on an axis from 0 to 100; ░ after ┊: "
    "truncated evidence, as wide "
    "as its share. The boundary does not mark a fixed position, since documents differ in length."
)


@dataclass(frozen=True, repr=False)
class Results(Presentable, Sequence[SubsetResult]):
    """Results of models, one for each subset of a task: `results[0].profile`; tables pool the
    subsets of a task.
    """

    subset_results: tuple[SubsetResult, ...]
    """Ordered by model, task and subset."""
    keys: tuple[str, ...] = ()
    """Keys of the scores that are shown; empty for the default ones."""
    full: bool = False
    """Whether the published PSI, what chance gives, and observed differences are also shown."""
    margins: Margins = DEFAULT_MARGINS
    """The smallest differences that matter."""
    judged: tuple[StoredResult, ...] = ()
    """Results on all judged queries of data in which not every query has one position, and those of
    mteb's own tasks; they are not among the items.
    """

    @overload
    def __getitem__(self, index: int) -> SubsetResult: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> SubsetResult | Results:
        """Return a result, or results that are shown alike."""
        if isinstance(index, slice):
            return replace(self, subset_results=self.subset_results[index])
        return self.subset_results[index]

    def __len__(self) -> int:
        """Return the number of subsets with a result."""
        return len(self.subset_results)

    @cached_property
    def summaries(self) -> list[TaskSummary]:
        """Each model on each task, all its subsets pooled."""
        return summarize(self.subset_results, self.margins)

    @cached_property
    def judged_summaries(self) -> list[JudgedSummary]:
        """Each model on all judged queries of each task."""
        return summarize_judged(self.judged)

    @cached_property
    def rows(self) -> list[ReportRow]:
        """A row for each model, task and length, `all` lengths first."""
        summaries = progress(self.summaries, "Analyzing results")
        return mark_notable_bias(row for summary in summaries for row in build_rows(summary))

    @cached_property
    def place_rows(self) -> list[ReportRow]:
        """A row for each model and task that has queries with several places of evidence."""
        return [row for summary in self.summaries if (row := build_place_row(summary))]

    @property
    def title(self) -> str:
        """Subject in a few words."""
        models, tasks = (
            {getattr(summary, field) for summary in self.summaries} for field in ("model", "task")
        )
        models |= {summary.model for summary in self.judged_summaries}
        tasks |= {summary.task for summary in self.judged_summaries}
        return f"{pluralize(len(models), 'model')} on {pluralize(len(tasks), 'task')}"

    @property
    def page_title(self) -> str:
        """The finding on at most two models."""
        overall = list_overall([*self.rows, *self.place_rows])
        return tables.title_models(overall) if overall else self.title

    def page_sections(self) -> list[DisplaySection]:
        """Return what a notebook shows below its title."""
        return [section for section in self.sections() if section.title != self.page_title]

    @property
    def columns(self) -> list[ScoreInfo]:
        """The scores that are shown."""
        return tables.choose_columns(self.keys, full=self.full)

    def sections(self) -> list[DisplaySection]:
        """Return the answers, every length with all scores that are asked for, then judged queries
        and several places.
        """
        further = [judged_table(self.judged_summaries)] if self.judged else []
        if self and (self.keys or self.full):
            titled = (replace(row, length=row.length_title or row.length) for row in self.rows)
            rows = [*titled, *average_languages(self.rows)]
            further.insert(0, tables.length_table(rows, self.columns, curves=True))
        shown = [
            *tables.answer_sections(self.rows + self.place_rows),
            *to_paragraphs(tables.place_notes(self.summaries)),
        ]
        lead = [DisplaySection(self.page_title)] if self.summaries else []
        return [*lead, *shown, *([DisplaySection(tables=tuple(further))] if further else [])]

    def records(self) -> list[dict[str, Any]]:
        """Return every row with all its scores, or those that were chosen."""
        rows = progress(self.rows + self.place_rows, "Scoring results")
        judged = [summary.columns() for summary in self.judged_summaries]
        return [
            *(
                tables.select_columns(row, self.columns) if self.keys else row.columns()
                for row in rows
            ),
            *judged,
        ]

    def document(self) -> list[dict[str, Any]]:
        """Return all pooled scores and the position profile of each model on each task."""
        rows, summaries = iter(self.rows), progress(self.summaries, "Scoring results")
        pooled = [
            tables.pooled_scores(summary, [next(rows) for _ in summary.findings])
            for summary in summaries
        ]
        return [*pooled, *(summary.columns() for summary in self.judged_summaries)]

    def legend(self) -> list[str]:
        """Return how to read the numbers."""
        positions = (
            [NOTE if self.keys or self.full else f"{explain_sketches(self.strips())}\n{BRIEF}"]
            if self.subset_results
            else []
        )
        has_queries = any(summary.scores for summary in self.judged_summaries)
        return [
            *positions,
            *([JUDGED_NOTE] if has_queries else []),
            *describe_parts(self.judged_summaries),
        ]

    def explanation(self) -> Iterator[str]:
        """Yield notes on truncation and on these documents, and what every column means."""
        if self.subset_results:
            # The answers of few results say it.
            several = len(self.summaries) > MOST_SENTENCES
            for task in dict.fromkeys(summary.task for summary in self.summaries if several):
                of_task = [summary for summary in self.summaries if summary.task == task]
                yield from (
                    f"{task}: {note}"
                    for note in tables.truncation_notes(model_labels(of_task), of_task)
                )
            yield from tables.document_notes(model_labels(self.summaries), self.summaries)
            yield from (NOTE, tables.build_legend(self.columns), CURVE_NOTE)

    def strips(self) -> list[Strip]:
        """Return the picture of each model and task; a terminal has it in the tables."""
        from posir_report.page import build_strips

        return build_strips([*self.rows, *self.place_rows])

    def describe_data(self) -> str:
        """Return the tasks with the revisions of their data."""
        return ", ".join(
            dict.fromkeys(
                f"{summary.task}, data revision {summary.data_revision}"
                for summary in self.summaries
            )
        )

    def figures(self) -> list[Figure]:
        """Return every chart of each model on each task."""
        if not self:
            return []
        from posir_report.charts import build_figures

        return build_figures(self.summaries)

    def to_latex(self) -> str:
        """Return the tables of the papers, or one of the scores that were chosen."""
        from posir_report.page import render_latex

        if not self:
            return super().to_latex()
        if not self.keys:
            return render_latex(self.summaries)
        table = tables.length_table(self.rows, self.columns)
        return to_latex(
            replace(table, notes=(NOTE, tables.build_legend(self.columns))), label="tab:posir"
        )

    def to_html(self) -> str:
        """Return the report as a page of a single file that needs no network."""
        from posir_report.page import render_report

        if not self:
            return super().to_html()
        return render_report(self.summaries, self.figures())

    def tabulate(
        self, rows: Sequence[ReportRow], table: Table, columns: Iterable[ScoreInfo], **other: Any
    ) -> Result:
        """Return rows in a table, with the findings above it and what the columns mean; `other` are
        fields of the result.
        """
        fields: dict[str, Any] = {
            "sentences": tuple(tables.describe_findings(self.rows)),
            "notes": [NOTE],
        }
        fields |= {"details": [tables.build_legend(columns)], **other}
        return Result(
            title=self.title, rows=[row.columns() for row in rows], tables=[table], **fields
        )

    def check(self, limits: str | Sequence[str | Limit], *, strict: bool = False) -> Gate:
        """Test limits on the scores of every model and task over all lengths, as `posir report
        --fail-if` does.

        Args:
            limits: A metric, `<` or `>`, and a number in the unit in which it is printed, such as
                `position_effect > 10`; or several of these.
            strict: Whether a limit already fails if the interval is not wholly within it.

        Returns:
            The verdict on every limit, and over all.

        Raises:
            PosirError: A limit is none.
        """
        named = list(zip(model_labels(self.summaries), self.summaries, strict=True))
        values = [
            value
            for model, summary in named
            for group, part in (
                (analyze(summary.values).overall, ""),
                (analyze_places(summary.values), PLACES),
            )
            if group and (group.queries or not summary.place_findings)
            for value in LimitedValue.of_scores(group, model, f"{summary.task}{part}", ALL)
        ]
        for summary in self.judged_summaries:
            if summary.scores:
                values += LimitedValue.of_means(
                    summary.scores, summary.estimates, summary.model, summary.full_task
                )
        gaps = {
            (model, summary.task): f"it has no results of {', '.join(summary.missing)}"
            for model, summary in named
            if summary.missing
        }
        return replace(
            check_limits(
                values, [limits] if isinstance(limits, str) else limits, strict=strict, gaps=gaps
            ),
            command="report",
        )

    def bins(self) -> Result:
        """Return nDCG@10 of every position bin: a row for each model, task and bin."""
        rows, columns = (
            [row for summary in self.summaries for row in build_bin_rows(summary)],
            tables.bin_columns(),
        )
        return self.tabulate(rows, tables.bin_table(rows, columns), columns, values=self.document())

    def recall(self) -> Result:
        """Return Recall@5, @10 and @100: a row for each model and task, and for each position bin
        of them.
        """
        rows = [row for summary in self.summaries for row in recall.build_recall_rows(summary)]
        return self.tabulate(
            rows,
            tables.bin_table(rows, recall.RECALL_COLUMNS),
            recall.RECALL_COLUMNS,
            sentences=tuple(recall.describe_recall(self.summaries)),
            notes=[
                "Recall x 100, without intervals.",
                *recall.describe_cut_rankings(self.summaries),
            ],
        )

    def plot(self, task: str | None = None) -> Picture:
        """Draw where in documents evidence is found, and what is not read: a strip for each model,
        best nDCG@10 first.

        Args:
            task: The task to draw; None for all.

        Returns:
            A picture that a notebook shows without a network, and `save("picture.png")` or `.svg`
            writes.

        Raises:
            PosirError: There are no results on this task.
        """
        tasks = {summary.task for summary in self.summaries}
        if task is not None and task not in tasks:
            raise PosirError(
                f"There are no results on a task '{task}'. There are results on "
                f"{', '.join(sorted(tasks))}."
            )
        shown = replace(
            self,
            subset_results=tuple(
                result for result in self.subset_results if task in (None, result.task)
            ),
        )
        return Picture(draw_strips(shown.strips(), source=shown.describe_data()))


def read_results(
    path: str | Path,
    *,
    columns: Collection[str] = (),
    full: bool = False,
    margins: Collection[str] = (),
) -> Results:
    """Read the results of `mteb run`, `mteb.evaluate`, `posir.evaluate` or `posir.score` that have
    positions or judgments.

    Args:
        path: The folder of results; folders below it are searched.
        columns: Keys of the scores to show, as in `posir report --columns`; empty for the default
            ones.
        full: Whether the published PSI, what chance gives, and observed differences are also shown.
        margins: The smallest differences that matter, in points: `5` for the position effect, or
            `ndcg_at_10=2` and the like.

    Returns:
        A sequence with the result of each subset, ordered by model, task and subset. As a data
        frame it has a row for each model, task and length: scores in [0, 1] with intervals, and the
        verdict on bias within the window.

    Raises:
        PosirError: There is no such folder, no such result in it, or none that can be read.

    Examples:
        >>> import posir
        >>> results = posir.read_results("results")
        >>> results[0].task, results[0].profile.queries
        ('PosIR-Mini', 120)
        >>> results.to_polars().select("model", "length", "queries").row(0)
        ('mteb/baseline-bm25s', 'all', 120)
    """
    tables.choose_columns(tuple(columns))
    given = Margins.parse(margins)
    results = result_files.read_all_results(Path(path), StoredResult)
    return Results(
        tuple(result for result in results if isinstance(result, SubsetResult)),
        tuple(columns),
        full,
        given,
        tuple(result for result in results if not isinstance(result, SubsetResult)),
    )


@public(
    charts=True,
    card=True,
    flags=("markdown", "csv", "latex"),
    undecided_by=("fail_if", "strict", "junit"),
)
def report(
    results: str | Path,
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
        results: The --output-folder of `mteb run`.
        bins: Show nDCG@10 of every position bin.
        recall: Show Recall@5, @10 and @100 of every position bin.
        published: Include the published results of the same tasks.
        columns: Keys of the scores to show, separated by commas; `--columns help` lists them.
        full: Also show the published PSI, what chance alone gives, and observed differences.
        margin: Smallest difference that matters: of the position effect, such as 5, or KEY=POINTS
            such as ndcg_at_10=2.
        fail_if: Exit status 1, not 0, if a score is beyond a limit, such as 'position_effect > 10';
            2 if inconclusive.
        strict: With `fail_if`: fail unless the interval is wholly within the limit.
        junit: With `fail_if`: write JUnit XML to this file.

    Returns:
        The results, as `posir.read_results` returns them, or the table that was asked for. With
        `fail_if`, the verdict on every limit of each model and task, and over all.

    Raises:
        PosirError: There is no such folder, no result in it that can be read, no such score; or two
            tables are asked for. With `fail_if`, a limit is malformed, or the file cannot be
            written.

    Examples:
        >>> import posir
        >>> posir.report("results", bins=True).to_polars().height
        10
    """
    if limits := parse_limits(to_list(fail_if), strict=strict, junit=junit):
        if bins or recall or published or columns or full:
            raise PosirError(
                "--fail-if is a test of its own. Omit --bins, --recall, --published, --columns "
                "and --full."
            )
        return run_gate(
            lambda: read_results(results).check(limits, strict=strict),
            limits,
            "report",
            junit,
            strict=strict,
        )
    if recall and (bins or published):
        raise PosirError("--recall is a table of its own. Omit --bins and --published.")
    keys = [
        key.strip()
        for key in (columns.split(",") if isinstance(columns, str) else columns or ())
        if key.strip()
    ]
    if keys == ["help"]:
        return _tabulate_scores()
    shown = read_results(results, columns=keys, full=full, margins=to_list(margin))
    if recall:
        return shown.recall()
    if published:
        return _tabulate_bins_with_published(shown) if bins else _tabulate_with_published(shown)
    return shown.bins() if bins else shown


def _tabulate_with_published(shown: Results) -> Result:
    """Return a row per length, the published results among them."""
    merged = merge_published([*shown.rows, *average_languages(shown.rows)])
    scores = tables.with_published_scores(shown.columns, merged)
    table = tables.length_table(merged, scores, curves=True)
    notes = [NOTE, *list_differences((row.task, row.model) for row in shown.rows)]
    return shown.tabulate(
        merged, table, scores, notes=notes, details=[tables.build_legend(scores), CURVE_NOTE]
    )


def _tabulate_bins_with_published(shown: Results) -> Result:
    """Return a row per position bin, by length as the papers give them, with the published ones
    after one's own.
    """
    rows = merge_published_bins(shown.summaries)
    columns = [
        column
        for column in tables.bin_columns()
        if any(row.scores.get(column.key) is not None for row in rows)
    ]
    notes = [NOTE, *list_differences((row.task, row.model) for row in shown.rows)]
    return shown.tabulate(rows, tables.bin_table(rows, columns), columns, notes=notes)


def _tabulate_scores() -> Result:
    """Return everything that `--columns` takes."""
    keys = ("key", "title", "shown_by_default", "description", "source")
    shown = tables.default_columns()
    scores = (
        (score.key, score.title, score in shown, score.description, score.citation)
        for score in tables.known_columns()
    )
    rows = [dict(zip(keys, values, strict=True)) for values in scores]
    lines = [
        f"{row['key']}: {row['description']}" + (f" [{row['source']}]" if row["source"] else "")
        for row in rows
    ]
    usual = f"Without --columns: {', '.join(score.key for score in shown)}."
    return Result(title="Scores", tables=[], sentences=[usual], notes=["\n".join(lines)], rows=rows)
