"""The sections, sentences and position charts of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from posir_published.rows import NOTABLE_BIAS
from posir_report import tables
from posir_report.page import build_figure_sections
from posir_report.summary import (
    MAX_SENTENCES,
    ReportRow,
    Run,
    TaskSummary,
    build_labels,
    build_rows,
    build_short_labels,
    list_overall,
)
from posir_significance.advice import build_commands
from posir_significance.findings import Quantity, Reason
from posir_significance.messages.reports import (
    BY_LENGTH,
    describe_findings_and_advice,
    describe_unestimated_lengths,
)
from posir_significance.messages.verdicts import (
    count_states,
    count_truncating,
    count_truncation,
    describe_false_alarms,
    describe_models,
    format_queries,
    iterate_answer,
    label_state,
    title_sample,
)
from posir_significance.position_charts import build_overlay_section
from posir_tasks.base.records import Record
from posir_tasks.base.wording import pluralize
from posir_tasks.display.labels import Label, Term, Title
from posir_tasks.display.position_charts import PositionChart
from posir_tasks.display.presentation import LazySequence, to_paragraphs
from posir_tasks.display.tables import DisplaySection, Medium, Table
from posir_tasks.values.scores import BINS_KEY, GROUPS_KEY, ScoreInfo, serialize_scores

BRIEF = (
    Term("nDCG@10", "how well evidence is found, 0 to 100; in brackets 95% intervals."),
    Term(
        "Position effect",
        "the same evidence in the first third of its document minus in the last.",
    ),
)
NOTE = "nDCG@10 and differences of it x 100. 95% intervals are for new documents."
JUDGED_NOTE = Term(
    "Judged queries",
    "means x 100 over all queries, with or without known positions of evidence. "
    "95% intervals are for new clusters: documents, topics, or the column of `posir score "
    "--clusters`. How positions are added: docs/data.md.",
)


def build_answer_sections(
    rows: Sequence[ReportRow],
    summaries: Sequence[TaskSummary] = (),
    extra_columns: Sequence[ScoreInfo] = (),
) -> Iterator[DisplaySection]:
    """Yield a table of models for each task, or of tasks if there is only one model, with answers.

    Pages also show figures and a table by length for each result. Text shows a table by length for
    a task with a single model. With many results, counts of states replace answers and tables by
    length.

    Args:
        rows: Rows of the report; rows of single lengths are ignored.
        summaries: The summaries behind the rows, for tables by length and figures.
        extra_columns: Additional columns of the tables.
    """
    overall = [row for row in list_overall(rows) if row.queries != 0] or list_overall(rows)
    summary_by_run = {_get_run(summary): summary for summary in summaries}
    has_many_results = len(overall) > MAX_SENTENCES
    if has_many_results:
        yield from to_paragraphs(describe_findings(rows))
    task_count = len({row.task for row in overall})
    labels = build_labels(overall)
    label_by_run = dict(zip(map(_get_run, overall), labels, strict=True))
    lists_models = len(set(labels)) > 1 or task_count == 1
    groups = groupby(overall, key=lambda row: tables.name_task(row) if lists_models else "")
    for number, (task, group_rows) in enumerate(groups, 1):
        row_by_run = {_get_run(row): row for row in group_rows}
        names = {
            run: label_by_run[run] if lists_models else tables.name_task(row)
            for run, row in row_by_run.items()
        }
        links = {run: f"result-{number}-{index}" for index, run in enumerate(row_by_run)}
        title = _describe_size(task, list(row_by_run.values())) if lists_models else labels[0]
        table = tables.build_answer_table(
            "Model" if lists_models else "Task",
            [Label(names[run], None, links[run]) for run in row_by_run],
            list(row_by_run.values()),
            title,
            extra_columns,
            has_sketch=has_many_results,
        )
        table = replace(table, is_narrow=True)
        yield DisplaySection(tables=(table,), anchor=f"task-{number}", entry=task)
        if lists_models:
            short_names = zip(build_short_labels(row_by_run.values()), row_by_run, strict=True)
            results = {
                name: summary_by_run[run].values
                for name, run in short_names
                if run in summary_by_run
            }
            yield from build_overlay_section(task, results)
        width = max(map(len, names.values()))
        for run, row in row_by_run.items():
            if not has_many_results:
                yield _show_answer(f"{names[run]:{width}}  {row.sketch}", row)
            summary = summary_by_run.get(run)
            if summary is None:
                continue
            if not has_many_results and (len(row_by_run) == 1 or not lists_models):
                name = names[run] if len(row_by_run) > 1 else ""
                by_length = _tabulate_lengths(summary, extra_columns, has_sketch=True)
                yield DisplaySection(name, tables=by_length, only=Medium.TEXT)
            deferred = LazySequence(
                partial(_tabulate_lengths, summary, extra_columns, has_sketch=False)
            )
            yield DisplaySection(names[run], tables=deferred, anchor=links[run], only=Medium.PAGE)
            yield from build_figure_sections(summary, names[run])


def _get_run(row: ReportRow | TaskSummary) -> Run:
    return row.model, row.revision, row.task


def _show_answer(title: str, row: ReportRow) -> DisplaySection:
    commands = build_commands(row.findings, row.reference) if row.findings else ()
    answer = describe_findings_and_advice(row.findings, row.task)
    return DisplaySection(title, (answer,), commands=commands, only=Medium.TEXT)


def _describe_size(task: str, rows: Sequence[ReportRow]) -> str:
    findings = [row.findings for row in rows if row.findings]
    if not findings:
        return task
    return title_sample(max(findings, key=lambda result: result.tested_documents), task)


def _tabulate_lengths(
    summary: TaskSummary, extra_columns: Sequence[ScoreInfo], *, has_sketch: bool
) -> tuple[Table, ...]:
    """Tabulate the lengths with a position effect. A note lists the other lengths."""
    tested_rows = []
    unestimated: dict[str, int] = {}
    for row in build_rows(summary)[1:]:
        if row.findings and row.findings[Quantity.POSITION_EFFECT].estimate:
            tested_rows.append(row)
        else:
            unestimated[row.length] = row.queries or 0
    if not tested_rows:
        return ()
    sizes = {format_queries(row.queries) for row in tested_rows}
    title = Title(BY_LENGTH, f"{sizes.pop()} each" if len(sizes) == 1 else "")
    names = [row.length_title or row.length for row in tested_rows]
    table = tables.build_answer_table(
        tables.LENGTH, names, tested_rows, title, extra_columns, has_sketch=has_sketch
    )
    notes = (*tables.write_level_notes(tested_rows), describe_unestimated_lengths(unestimated))
    return (replace(table, notes=tuple(filter(None, notes))),)


def describe_findings(rows: Iterable[ReportRow]) -> Iterator[str]:
    """Yield the answer for each model and task or, if there are many, counts of states."""
    overall = list_overall(rows)
    if len(overall) > MAX_SENTENCES:
        findings = [row.findings for row in overall if row.findings]
        yield count_truncation(_list_shares(overall), len(overall))
        yield count_states(Counter(map(label_state, findings)))
        # Only a test with an interval can raise a false alarm.
        tests = sum(group.reason in (None, Reason.WIDE_INTERVAL) for group in findings)
        if tests:
            yield describe_false_alarms(tests)
        return
    is_one_task = len({row.task for row in overall}) == 1
    for label, row in zip(build_labels(overall), overall, strict=True):
        name = label if is_one_task else f"{label}, {row.task}"
        yield f"{name}: {describe_findings_and_advice(row.findings, row.task)}"


def _list_shares(rows: Iterable[ReportRow]) -> list[float]:
    shares = [row.findings.get_value(Quantity.UNREAD_SHARE) for row in rows if row.findings]
    return sorted(share for share in shares if share)


def title_findings(overall: Sequence[ReportRow]) -> str:
    """Write the title: the findings on up to three models of a single task, else counts."""
    tasks = list(dict.fromkeys(row.task for row in overall))
    model_count = len({row.model for row in overall})
    rows = zip(build_short_labels(overall), overall, strict=True)
    findings = [(label, row.findings) for label, row in rows if row.findings]
    if len(tasks) > 1 or len(findings) < len(overall) or not findings:
        subject = pluralize(len(tasks), "task") if len(tasks) > 1 else tasks[0]
        return f"{pluralize(model_count, 'model')} on {subject}"
    if model_count > 3:
        return count_truncating(len(_list_shares(overall)), model_count)
    return "".join(describe_models(findings))


def build_position_charts(overall: Iterable[ReportRow]) -> list[PositionChart]:
    """Build the position chart of each row with findings."""
    rows = list(overall)
    tested_rows = [row for row in rows if row.findings]
    is_one_task = len({row.task for row in tested_rows}) == 1
    position_charts = list[PositionChart]()
    for label, row in zip(build_short_labels(tested_rows), tested_rows, strict=True):
        if row.position_chart and row.findings:
            name = label if is_one_task else f"{label}, {row.task}"
            commands = build_commands(row.findings, row.reference)
            chart = replace(
                row.position_chart, name=name, commands=commands, is_in_title=len(rows) == 1
            )
            position_charts.append(chart)
    return position_charts


def collect_pooled_scores(summary: TaskSummary, rows: Iterable[ReportRow]) -> Record:
    """Collect a model's unrounded scores on a task for JSON."""
    declarations = summary.scores.declarations
    groups = {}
    for row in rows:
        findings = row.findings
        groups[row.length.lower()] = {
            **(findings.to_json() if findings else {}),
            "answer": dict(iterate_answer(findings, row.task)) if findings else None,
            "scores": serialize_scores(row.scores, (*declarations, NOTABLE_BIAS)),
        }
    bins = [
        {"position": name, "scores": serialize_scores(scores, declarations)}
        for name, scores in zip(summary.profile.positions, summary.scores.bins, strict=True)
    ]
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
