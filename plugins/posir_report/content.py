"""The content of a report: rows, and the sections and notes built from them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from posir_published.rows import NOTABLE_BIAS
from posir_report import tables
from posir_report.columns import choose_columns, select_columns
from posir_report.judged import JudgedSummary, describe_subsets, judged_table, summarize_judged
from posir_report.page import build_figure_sections, build_latex_tables
from posir_report.summary import (
    MAX_SENTENCES,
    ReportRow,
    TaskSummary,
    average_languages,
    build_length_row,
    build_rows,
    build_span_row,
    full_labels,
    identify_run,
    list_overall,
    mark_notable_bias,
    short_labels,
    summarize,
)
from posir_significance.advice import build_commands
from posir_significance.decision import DEFAULT_MARGINS, Margins
from posir_significance.findings import Quantity, Reason
from posir_significance.messages.reports import (
    BY_LENGTH,
    describe_answer,
    describe_folded_lengths,
    describe_training_overlap,
)
from posir_significance.messages.verdicts import (
    count_states,
    count_truncating,
    count_truncation,
    describe_false_alarms,
    describe_models,
    describe_sample,
    format_queries,
    iterate_answer,
    label_state,
)
from posir_significance.strips import build_overlay
from posir_tasks.base.progress import progress
from posir_tasks.base.wording import pluralize
from posir_tasks.data.repository import combine_revisions
from posir_tasks.data.sources import list_sources, measure_overlap
from posir_tasks.display.labels import Label
from posir_tasks.display.presentation import Deferred, to_paragraphs
from posir_tasks.display.strip import PositionChart, explain_sketches
from posir_tasks.display.tables import DisplaySection, Medium, Table
from posir_tasks.results import StoredResult, SubsetResult, read_training_data
from posir_tasks.values.scores import BINS_KEY, GROUPS_KEY, ScoreInfo, scores_to_json

#: Model, revision and task.
Run: TypeAlias = tuple[str, str, str]
BRIEF = (
    "nDCG@10: how well evidence is found, 0 to 100; in brackets 95% intervals.\n"
    "Position effect: the same evidence in the first third of its document minus in the last."
)
NOTE = "nDCG@10 and differences of it x 100. 95% intervals are for new documents."
JUDGED_NOTE = (
    "Judged queries: means x 100 over all queries, with or without known positions of evidence. "
    "95% intervals are for new clusters: documents, topics, or the column of `posir score "
    "--clusters`. How positions are added: docs/data.md."
)


@dataclass(frozen=True)
class ReportContent:
    """Results with their rows and sections, each built when first read."""

    subset_results: tuple[SubsetResult, ...]
    keys: tuple[str, ...] = ()
    """Keys of the scores to show; empty for the default ones."""
    full: bool = False
    margins: Margins = DEFAULT_MARGINS
    judged: tuple[StoredResult, ...] = ()

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
        rows: list[ReportRow] = []
        for summary in progress(self.summaries, "Analyzing results"):
            rows += build_rows(summary)
        return mark_notable_bias(rows)

    @cached_property
    def total_rows(self) -> list[ReportRow]:
        """A row for each model and task over all lengths."""
        summaries = progress(self.summaries, "Analyzing results")
        return mark_notable_bias(build_length_row(summary, 0) for summary in summaries)

    @cached_property
    def place_rows(self) -> list[ReportRow]:
        """A row for each model and task with queries that have several evidence spans."""
        rows = [build_span_row(summary) for summary in self.summaries]
        return [row for row in rows if row]

    @cached_property
    def overall(self) -> list[ReportRow]:
        """The rows of all lengths, sorted by task and descending nDCG@10."""
        return list_overall([*self.total_rows, *self.place_rows])

    def _find_overlap(self, summary: TaskSummary) -> dict[str, Any]:
        """Return the sources of a task's documents, and the share in the model's training data,
        None if unknown.
        """
        sources = list_sources(summary.task, summary.subsets)
        names = read_training_data(self._files[summary.model, summary.revision])
        share = None
        if sources and names is not None:
            share = measure_overlap(sources, names)
        return {"sources": [*sources], "share": share}

    @cached_property
    def _files(self) -> dict[tuple[str, str], Path]:
        """A result file of each model and revision."""
        return {identify_run(result)[:2]: result.file for result in self.subset_results}

    @property
    def columns(self) -> list[ScoreInfo]:
        """The scores to show."""
        return choose_columns(self.keys, full=self.full)

    def records(self) -> list[dict[str, Any]]:
        """List every row with all scores, or with the chosen ones."""
        rows = progress([*self.length_rows, *self.place_rows], "Scoring results")
        records = [
            select_columns(row, self.columns) if self.keys else row.columns() for row in rows
        ]
        return records + [summary.columns() for summary in self.judged_summaries]

    def document(self) -> list[dict[str, Any]]:
        """List the pooled scores and the position profile of each model on each task."""
        rows = iter(self.length_rows)
        pooled = [
            pooled_scores(summary, [next(rows) for _ in summary.scores.groups])
            | {"training_overlap": self._find_overlap(summary)}
            for summary in progress(self.summaries, "Scoring results")
        ]
        return pooled + [summary.columns() for summary in self.judged_summaries]

    def sections(self) -> Iterator[DisplaySection]:
        """Yield the answers, every length with `full`, then judged queries."""
        if self.summaries:
            yield DisplaySection(title_findings(self.overall))
            rows = [*self.total_rows, *self.place_rows]
            yield from build_answer_sections(
                rows, self.summaries, self.columns if self.keys else ()
            )
            yield from to_paragraphs(tables.place_notes(self.summaries))
            yield DisplaySection(
                strips=Deferred(lambda: build_strips(self.overall)), only=Medium.PAGE
            )
            yield DisplaySection(tables=Deferred(self._latex_tables), only=Medium.LATEX)
        if self.full and self.summaries:
            rows = [replace(row, length=row.length_title or row.length) for row in self.length_rows]
            rows += average_languages(self.length_rows)
            table = tables.length_table(rows, self.columns, curves=True)
            yield DisplaySection(tables=(table,))
        if self.judged:
            yield DisplaySection(tables=(judged_table(self.judged_summaries),))

    def _latex_tables(self) -> Iterator[Table]:
        if not self.keys:
            yield from build_latex_tables(self.summaries, self.length_rows)
            return
        table = tables.length_table(self.length_rows, self.columns)
        notes = (NOTE, tables.build_legend(self.columns))
        yield replace(table, title=self.title, notes=notes)

    @property
    def title(self) -> str:
        """The number of models and tasks in words."""
        results = (*self.subset_results, *self.judged)
        models = {(result.model, result.experiment) for result in results}
        tasks = {result.task for result in results}
        return f"{pluralize(len(models), 'model')} on {pluralize(len(tasks), 'task')}"

    def describe_data(self) -> str:
        """List the tasks with the revisions of their data."""
        revisions: dict[tuple[str, str, str], list[str]] = {}
        for result in self.subset_results:
            revisions.setdefault(identify_run(result), []).append(result.data.revision)
        tasks = [
            f"{task}, data revision {combine_revisions(run_revisions)}"
            for (_, _, task), run_revisions in revisions.items()
        ]
        return ", ".join(dict.fromkeys(tasks))

    def notes(self) -> Iterator[str]:
        """Yield explanations of the numbers."""
        if self.subset_results:
            strips = [row.strip for row in self.overall if row.strip]
            brief = f"{explain_sketches(strips)}\n{BRIEF}" if strips else BRIEF
            yield NOTE if self.keys or self.full else brief
        if any(summary.scores for summary in self.judged_summaries):
            yield JUDGED_NOTE
        yield from describe_subsets(self.judged_summaries)
        yield from self._describe_training()

    def _describe_training(self) -> Iterator[str]:
        """Yield a note on training data for each task with known sources."""
        tasks: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        for summary, label in zip(self.summaries, short_labels(self.summaries), strict=True):
            tasks[summary.task].append((label, self._find_overlap(summary)))
        for task, overlaps in tasks.items():
            yield from describe_training_overlap(task, overlaps)

    def details(self) -> Iterator[str]:
        """Yield notes on truncation and documents, and a legend of columns."""
        if self.subset_results:
            labels = full_labels(self.summaries)
            yield from tables.truncation_notes(labels, self.summaries)
            yield from tables.document_notes(labels, self.summaries)
            yield NOTE
            yield tables.build_legend([*self.columns, tables.SKETCH])


def build_answer_sections(
    rows: Sequence[ReportRow],
    summaries: Sequence[TaskSummary] = (),
    chosen: Sequence[ScoreInfo] = (),
) -> Iterator[DisplaySection]:
    """Yield a table of the models of each task, or of the tasks of the only model, with answers.

    A page also gets the lengths and figures of each result; text gets the lengths of a task with
    one model. With many results, counts of states replace answers and lengths.

    Args:
        rows: Rows; only rows of all lengths are shown.
        summaries: The summaries behind the rows, for lengths and figures.
        chosen: Further columns of the tables.
    """
    overall = [row for row in list_overall(rows) if row.queries != 0] or list_overall(rows)
    by_run = {_identify(summary): summary for summary in summaries}
    is_many = len(overall) > MAX_SENTENCES
    if is_many:
        yield from to_paragraphs(describe_findings(rows))
    tasks = len({row.task for row in overall})
    full = full_labels(overall)
    labels = dict(zip(map(_identify, overall), full, strict=True))
    by_task = len(set(full)) > 1 or tasks == 1
    groups = groupby(overall, key=lambda row: tables.name_task(row) if by_task else "")
    for number, (task, grouped) in enumerate(groups, 1):
        group = {_identify(row): row for row in grouped}
        names = {run: labels[run] if by_task else tables.name_task(group[run]) for run in group}
        links = {run: f"result-{number}-{index}" for index, run in enumerate(group)}
        title = _describe_size(task, list(group.values())) if by_task else full[0]
        table = tables.build_answer_table(
            "Model" if by_task else "Task",
            [Label(names[run], None, links[run]) for run in group],
            list(group.values()),
            title,
            chosen,
            has_sketch=is_many,
        )
        table = replace(table, is_narrow=True)
        yield DisplaySection(tables=(table,), anchor=f"task-{number}", entry=task)
        if by_task:
            short = zip(short_labels(group.values()), group, strict=True)
            values = {name: by_run[run].values for name, run in short if run in by_run}
            yield from build_overlay(task, values)
        width = max(map(len, names.values()))
        for run, row in group.items():
            if not is_many:
                yield _show_answer(f"{names[run]:{width}}  {row.sketch}", row)
            summary = by_run.get(run)
            if summary is None:
                continue
            if not is_many and (len(group) == 1 or not by_task):
                name = names[run] if len(group) > 1 else ""
                by_length = _tabulate_lengths(summary, chosen, has_sketch=True)
                yield DisplaySection(name, tables=by_length, only=Medium.TEXT)
            deferred = Deferred(partial(_tabulate_lengths, summary, chosen, has_sketch=False))
            yield DisplaySection(names[run], tables=deferred, anchor=links[run], only=Medium.PAGE)
            yield from build_figure_sections(summary, names[run])


def _identify(row: ReportRow | TaskSummary) -> Run:
    return row.model, row.revision, row.task


def _show_answer(title: str, row: ReportRow) -> DisplaySection:
    """Show the answer of a model on a task and the next commands, in text only."""
    commands = build_commands(row.findings, row.reference) if row.findings else ()
    answer = describe_answer(row.findings, row.task)
    return DisplaySection(title, (answer,), code="\n".join(commands), only=Medium.TEXT)


def _describe_size(task: str, rows: Sequence[ReportRow]) -> str:
    """Describe the size of a task's data and of the largest test on it."""
    findings = [row.findings for row in rows if row.findings]
    if not findings:
        return task
    return describe_sample(max(findings, key=lambda result: result.tested_documents), task)


def _tabulate_lengths(
    summary: TaskSummary, chosen: Sequence[ScoreInfo], *, has_sketch: bool
) -> tuple[Table, ...]:
    """Tabulate the lengths with a position effect, if any; a note lists the other lengths."""
    tested = []
    folded: dict[str, int] = {}
    for row in build_rows(summary)[1:]:
        if row.findings and row.findings[Quantity.POSITION_EFFECT].estimate:
            tested.append(row)
        else:
            folded[row.length] = row.queries or 0
    if not tested:
        return ()
    sizes = {format_queries(row.queries) for row in tested}
    title = f"{BY_LENGTH} · {sizes.pop()} each" if len(sizes) == 1 else BY_LENGTH
    names = [row.length_title or row.length for row in tested]
    table = tables.build_answer_table(
        tables.LENGTH, names, tested, title, chosen, has_sketch=has_sketch
    )
    notes = (*tables.level_notes(tested), describe_folded_lengths(folded))
    return (replace(table, notes=tuple(filter(None, notes))),)


def describe_findings(rows: Iterable[ReportRow]) -> Iterator[str]:
    """Yield the answer for each model and task, or counts of states if there are many."""
    overall = list_overall(rows)
    if len(overall) > MAX_SENTENCES:
        findings = [row.findings for row in overall if row.findings]
        yield count_truncation(_list_shares(overall), len(overall))
        yield count_states(Counter(map(label_state, findings)))
        # Only an interval can give a false alarm.
        tests = sum(group.reason in (None, Reason.WIDE_INTERVAL) for group in findings)
        if tests:
            yield describe_false_alarms(tests)
        return
    is_one_task = len({row.task for row in overall}) == 1
    for label, row in zip(full_labels(overall), overall, strict=True):
        name = label if is_one_task else f"{label}, {row.task}"
        yield f"{name}: {describe_answer(row.findings, row.task)}"


def _list_shares(rows: Iterable[ReportRow]) -> list[float]:
    """List the positive shares of truncated evidence, sorted."""
    shares = [row.findings.value(Quantity.UNREAD_SHARE) for row in rows if row.findings]
    return sorted(share for share in shares if share)


def title_findings(overall: Sequence[ReportRow]) -> str:
    """Write the title: the findings on up to three models of a task, else counts."""
    tasks = list(dict.fromkeys(row.task for row in overall))
    models = len({row.model for row in overall})
    findings = []
    for label, row in zip(short_labels(overall), overall, strict=True):
        if row.findings:
            findings.append((label, row.findings))
    if len(tasks) > 1 or len(findings) < len(overall) or not findings:
        subject = pluralize(len(tasks), "task") if len(tasks) > 1 else tasks[0]
        return f"{pluralize(models, 'model')} on {subject}"
    if models > 3:
        return count_truncating(len(_list_shares(overall)), models)
    return "".join(describe_models(findings))


def build_strips(overall: Iterable[ReportRow]) -> list[PositionChart]:
    """Draw the picture of each row with findings."""
    tested = [row for row in overall if row.findings]
    is_one_task = len({row.task for row in tested}) == 1
    strips = list[PositionChart]()
    for label, row in zip(short_labels(tested), tested, strict=True):
        if row.strip and row.findings:
            name = label if is_one_task else f"{label}, {row.task}"
            commands = build_commands(row.findings, row.reference)
            strips.append(replace(row.strip, name=name, code="\n".join(commands)))
    return strips


def pooled_scores(summary: TaskSummary, rows: Iterable[ReportRow]) -> dict[str, Any]:
    """Collect the scores of a model on a task for JSON, not rounded."""
    declared = summary.scores.declared
    groups = {}
    for row in rows:
        findings = row.findings
        groups[row.length.lower()] = {
            **(findings.to_json() if findings else {}),
            "answer": dict(iterate_answer(findings, row.task)) if findings else None,
            "scores": scores_to_json(row.scores, (*declared, NOTABLE_BIAS)),
        }
    bins = []
    for name, scores in zip(summary.profile.positions, summary.scores.bins, strict=True):
        bins.append({"position": name, "scores": scores_to_json(scores, declared)})
    places = tables.describe_spans(summary)
    return {
        "model": summary.model,
        "revision": summary.revision,
        "task": summary.task,
        "data_revision": summary.data_revision,
        "subsets": summary.subsets,
        "missing_subsets": summary.missing,
        GROUPS_KEY: groups,
        BINS_KEY: bins,
        "position_profile": summary.profile.to_json(),
        **({"places": places} if places else {}),
    }
