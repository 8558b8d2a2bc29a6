"""Sections of a comparison: sentences, charts and tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Literal

from posir_compare.comparison import SCORE_FORMATS, ModelComparison
from posir_significance.advice import build_commands
from posir_significance.analysis import analyze
from posir_significance.decision import decide
from posir_significance.findings import ChangeRow, ChangeState, Metric
from posir_significance.messages.comparisons import (
    count_changes,
    describe_chance_changes,
    describe_change,
    describe_windows,
    label_change,
    title_changes,
    title_models,
)
from posir_significance.messages.verdicts import format_difference, list_steps
from posir_significance.position_charts import build_overlay_section, build_position_chart
from posir_tasks.base.wording import pluralize, shorten_names
from posir_tasks.display.labels import Label, Title, Tone, join_steps
from posir_tasks.display.latex import stack_estimates
from posir_tasks.display.numbers import format_count, format_estimate, format_points
from posir_tasks.display.position_charts import PositionChart
from posir_tasks.display.presentation import to_paragraphs
from posir_tasks.display.tables import Column, DisplaySection, Medium, Role, Table, build_columns
from posir_tasks.values.means import ALPHA
from posir_tasks.values.scores import ALL, ResultValues

ChangeRows = Sequence[ChangeRow]
#: Short names by label of the run.
Names = Mapping[str, str]
#: Maximum number of pairs that get a sentence each.
MAX_SENTENCES = 6
SCORES_TITLE = "Scores of both models"
#: States of undecided changes.
UNDECIDED_STATES = (ChangeState.INCONCLUSIVE, ChangeState.NOT_TESTED)
#: Headings of metrics whose best value is not the highest.
HEADINGS = {
    Metric.POSITION_EFFECT: "Position effect (best: 0)",
    Metric.POSITION_EFFECT_IN_WINDOW: "Effect within the window (best: 0)",
}
#: Roles of the columns of scores.
SCORE_ROLES = {
    "Task": Role.NAME,
    "Baseline": Role.NAME,
    "Model": Role.NAME,
    "Difference": Role.DIFFERENCE,
    "Change": Role.STATE,
}
#: Caption of LaTeX tables.
LATEX_NOTE = (
    "First row: scores of the baseline (x 100). Other rows: changes from it; bold: better. In "
    "brackets: intervals, adjusted for several metrics and lengths in rows of changes."
)


def count_pairs(rows: Iterable[ChangeRow]) -> int:
    """Count the pairs of a model and the baseline, by task and method."""
    return len({(row.subject.task, row.subject.method, row.subject.model) for row in rows})


def list_models(rows: ChangeRows) -> list[str]:
    """List the baseline and the models."""
    return list(dict.fromkeys([rows[0].subject.baseline, *(row.subject.model for row in rows)]))


def shorten_models(rows: ChangeRows) -> list[ChangeRow]:
    """Shorten the names of models for narrow tables."""
    models = list_models(rows)
    names = dict(zip(models, shorten_names(models, width=28), strict=True))
    short_rows = []
    for row in rows:
        subject = row.subject
        subject = replace(subject, baseline=names[subject.baseline], model=names[subject.model])
        short_rows.append(replace(row, subject=subject))
    return short_rows


def build_title(rows: ChangeRows) -> str:
    """Build a title from the changes of a single pair, or from counts of states."""
    overall = [row for row in rows if row.subject.length == ALL]
    if overall and count_pairs(rows) == 1:
        return title_changes(overall)
    return title_models(overall, rows[0].subject.baseline, len(list_models(rows)) - 1)


def build_sections(
    comparison: ModelComparison, rows: ChangeRows, *, full: bool
) -> Iterator[DisplaySection]:
    """Yield the sections for all media: findings, charts, tables and next steps.

    `rows` are the rows of the comparison with short names.
    """
    identify = attrgetter("subject.task", "subject.method")
    tasks = [list(group) for _, group in groupby(sorted(rows, key=identify), identify)]
    overall = [[row for row in task if row.subject.length == ALL] for task in tasks]
    overall = [task for task in overall if task]
    is_brief = count_pairs(rows) <= MAX_SENTENCES
    if is_brief:
        for task in overall:
            yield from _describe_task(task, is_only=len(tasks) == 1)
    else:
        yield from to_paragraphs(describe_counts(rows))
    names = dict(zip(list_models(comparison.rows), list_models(rows), strict=True))
    steps = []
    if 0 < len(comparison.common) <= MAX_SENTENCES:
        charts = list(_draw_position_charts(comparison, names))
        yield DisplaySection(position_charts=tuple(charts))
        for chart in charts:
            if chart.commands:
                step = DisplaySection(
                    f"{chart.steps_title} with {chart.name}",
                    (join_steps(chart.steps),),
                    commands=chart.commands,
                    only=Medium.TEXT,
                )
                steps.append(step)
    for task in overall:
        yield DisplaySection(tables=(_tabulate_task(task),))
    yield from steps
    yield from _overlay_models(comparison, names)
    if is_brief:
        for task in tasks:
            yield from _tabulate_lengths(task)
    scores = DisplaySection(SCORES_TITLE, tables=(tabulate_scores(comparison.rows),), folded=True)
    yield scores if full else replace(scores, only=Medium.PAGE)


def _describe_task(rows: ChangeRows, *, is_only: bool) -> Iterator[DisplaySection]:
    """Yield a title with the decided changes on a task, and the undecided changes below.

    A page with a single task omits the title, since the page itself has the same title.
    """
    first = rows[0]
    models = {row.subject.model for row in rows}
    sentences = describe_undecided(rows)
    if len(models) == 1:
        title = title_changes(rows)
        sentences.insert(0, describe_windows(first))
    else:
        title = title_models(rows, first.subject.baseline, len(models))
    section = DisplaySection(f"{title}.", tuple(filter(None, sentences)))
    if not is_only:
        yield replace(section, title=f"{first.subject.task}: {title}.")
        return
    yield replace(section, only=Medium.TEXT)
    for paragraph in to_paragraphs(section.sentences):
        yield replace(paragraph, only=Medium.PAGE)


def describe_undecided(rows: Iterable[ChangeRow]) -> list[str]:
    """Describe changes that are inconclusive or not tested."""
    return [describe_change(row) for row in rows if row.state in UNDECIDED_STATES]


def _tabulate_task(rows: ChangeRows) -> Table:
    subject = rows[0].subject
    if subject.is_judged:
        return tabulate_scores(rows)
    counts = dict.fromkeys(format_count(row.subject.queries) for row in rows)
    title = Title(
        f"Change from {subject.baseline}",
        f"{subject.task}, {' or '.join(counts)} queries, {subject.method}",
    )
    return tabulate_changes(rows, title)


def _tabulate_lengths(task: ChangeRows) -> Iterator[DisplaySection]:
    """Yield a table of changes by length and model; for several models, only if there are no rows
    over all lengths.
    """
    lengths = [row for row in task if row.subject.length != ALL]
    models = dict.fromkeys(row.subject.model for row in lengths)
    if len(lengths) < len(task) and len(models) > 1:
        return
    for model in models:
        rows = [row for row in lengths if row.subject.model == model]
        comparisons = round(ALPHA / (1 - rows[0].level))
        name = f"{model}, " if len(models) > 1 else ""
        title = Title(
            "Change by length",
            f"{name}intervals widened for {comparisons} comparisons "
            f"({pluralize(comparisons // 3, 'length')}, 3 metrics)",
        )
        yield DisplaySection(tables=(tabulate_changes(rows, title, by_length=True),))


def _draw_position_charts(comparison: ModelComparison, names: Names) -> Iterator[PositionChart]:
    """Yield a chart for each run on each task, with next steps for the models."""
    has_several_tasks = len({pair.task for pair, _ in comparison.common}) > 1
    drawn_runs = set()
    for pair, common in comparison.common:
        for run, values in ((pair.a, common.a), (pair.b, common.b)):
            if (run.label, pair.task) in drawn_runs:
                continue
            drawn_runs.add((run.label, pair.task))
            name = names.get(run.label, run.label)
            if has_several_tasks:
                name = f"{name}, {pair.task}"
            group = analyze(values).overall
            findings = decide(group)
            chart = build_position_chart(findings, group, name)
            steps = list_steps(findings, pair.task)
            commands = build_commands(findings, run.find_reference(pair.task))
            if run is not pair.b:
                steps = commands = ()
            yield replace(chart, facts=tuple, steps=steps, commands=commands)


def _overlay_models(comparison: ModelComparison, names: Names) -> Iterator[DisplaySection]:
    by_task = defaultdict[str, dict[str, ResultValues]](dict)
    for pair, common in comparison.common:
        for run, values in ((pair.a, common.a), (pair.b, common.b)):
            by_task[pair.task].setdefault(names.get(run.label, run.label), values)
    for task, results in by_task.items():
        yield from build_overlay_section(task, results)


def tabulate_changes(rows: ChangeRows, title: str, *, by_length: bool = False) -> Table:
    """Tabulate the changes in each metric, by model with a row for the baseline, or by length."""
    lines = list[tuple[str, ...]]()
    for metric in dict.fromkeys(row.metric for row in rows):
        metric_rows = [row for row in rows if row.metric is metric]
        format_score = SCORE_FORMATS[metric]
        lines.append((HEADINGS.get(metric, metric.value), "", "", ""))
        if not by_length:
            score = metric_rows[0].a
            value = format_score(score.value if score else None)
            lines.append((metric_rows[0].subject.baseline, value, "", ""))
        for row in metric_rows:
            cells = (row.subject.model, format_score(row.b.value if row.b else None))
            if by_length:
                cells = (row.subject.length_title, format_count(row.subject.queries))
            lines.append((*cells, format_difference(row), label_change(row)))
    headings = ("Length in tokens", "Queries") if by_length else ("Model", "Score")
    columns = build_columns(
        (*headings, "Change", "State"),
        (headings[1], "Change"),
        drawn=["Change"],
        roles={"Model": Role.NAME},
    )
    kind: Literal["changes", "changes models"] = "changes" if by_length else "changes models"
    return Table(columns, tuple(lines), title, kind=kind, is_narrow=not by_length)


def tabulate_scores(rows: Iterable[ChangeRow]) -> Table:
    """Tabulate the scores of both models. A terminal shows a table per task, method and model."""
    metrics = list(Metric)
    rows = list(rows)
    models = list_models(rows)

    def rank(row: ChangeRow) -> tuple[str, str, int, int]:
        subject = row.subject
        model = models.index(subject.model)
        return subject.task, subject.method, model, metrics.index(row.metric)

    rows.sort(key=rank)
    cells = [
        {
            "Task": row.subject.task,
            "Method": row.subject.method,
            "Baseline": row.subject.baseline,
            "Model": row.subject.model,
            "Metric": row.metric.value,
            "Length": row.subject.length,
            "Queries": format_count(row.subject.queries),
            "Baseline score": format_estimate(row.a, SCORE_FORMATS[row.metric]),
            "Score": format_estimate(row.b, SCORE_FORMATS[row.metric]),
            "Difference": format_estimate(row.estimate, format_points),
            "Change": label_change(row),
        }
        for row in rows
    ]
    return Table(
        build_columns(
            cells[0], ("Queries", "Baseline score", "Score", "Difference"), roles=SCORE_ROLES
        ),
        tuple(tuple(line.values()) for line in cells),
        split_by=Title("{Task}", "{Method}\n{Model} against {Baseline}"),
        keys=2,
    )


def build_latex_tables(rows: Iterable[ChangeRow]) -> Iterator[Table]:
    """Yield a table for each task, method and metric in the style of papers: baseline scores by
    length, then the changes of each model, with intervals below values.
    """
    groups = defaultdict[tuple[str, str, Metric], list[ChangeRow]](list)
    for row in rows:
        groups[row.subject.task, row.subject.method, row.metric].append(row)
    for (task, method, metric), changes in groups.items():
        title = f"Change in {metric.value} on {task}, {method}."
        yield replace(_tabulate_latex(changes), title=title, notes=(LATEX_NOTE,))


def _tabulate_latex(rows: ChangeRows) -> Table:
    lengths = list(dict.fromkeys(row.subject.length for row in rows))
    by_length = {(row.subject.model, row.subject.length): row for row in rows}
    models = list(dict.fromkeys(row.subject.model for row in rows))
    baseline = {row.subject.length: row.a for row in rows}
    scores = stack_estimates(
        [baseline[length] for length in lengths], SCORE_FORMATS[rows[0].metric]
    )
    lines = [(rows[0].subject.baseline, *scores)]
    for model in models:
        changes = [by_length.get((model, length)) for length in lengths]
        estimates = [change.estimate if change else None for change in changes]
        cells = stack_estimates(estimates, format_points)
        labels = [
            Label(cell, Tone.BEST) if change and change.state is ChangeState.BETTER else cell
            for change, cell in zip(changes, cells, strict=True)
        ]
        lines.append((model, *labels))
    return Table((Column("Model"), *map(Column, lengths)), tuple(lines))


def describe_counts(rows: Iterable[ChangeRow]) -> Iterator[str]:
    """Yield counts of the states over all lengths, by metric."""
    overall = [row for row in rows if row.subject.length == ALL]
    for metric in dict.fromkeys(row.metric for row in overall):
        yield count_changes([row for row in overall if row.metric is metric])
    yield describe_chance_changes(count_pairs(overall))
