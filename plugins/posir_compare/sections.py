"""Comparisons as sentences, pictures and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from posir_compare.comparison import FORMATS, HEADINGS, ModelComparison
from posir_compare.runs import ModelRun
from posir_significance import messages
from posir_significance.advice import NextStep, advise, build_commands, write_command
from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.decision import decide
from posir_significance.findings import ChangeRow, ChangeState, GroupFindings, Metric
from posir_significance.strips import build_strip
from posir_tasks.base.wording import drop_organizations, pluralize, shorten_names
from posir_tasks.display.numbers import format_count, format_estimate, format_points
from posir_tasks.display.presentation import to_paragraphs
from posir_tasks.display.strip import Strip
from posir_tasks.display.tables import Column, DisplaySection, Medium, Table, build_columns
from posir_tasks.values.means import ALPHA
from posir_tasks.values.scores import ALL

#: Maximum number of comparisons of two models on a task with a sentence each.
MAX_SENTENCES = 6
#: States of a change that is not decided.
UNDECIDED_STATES = (ChangeState.INCONCLUSIVE, ChangeState.NOT_TESTED)


def count_pairs(rows: Iterable[ChangeRow]) -> int:
    """Count how often a model is compared with the baseline: once for each task and method."""
    return len({(row.subject.task, row.subject.method, row.subject.model) for row in rows})


def rename_models(rows: Sequence[ChangeRow], names: Mapping[str, str]) -> list[ChangeRow]:
    """Return the rows with other names of models."""
    renamed = []
    for row in rows:
        subject = row.subject
        subject = replace(subject, baseline=names[subject.baseline], model=names[subject.model])
        renamed.append(replace(row, subject=subject))
    return renamed


def list_models(rows: Iterable[ChangeRow]) -> list[str]:
    """Return the baseline and the models."""
    return list(
        dict.fromkeys(name for row in rows for name in (row.subject.baseline, row.subject.model))
    )


def title_comparison(rows: Sequence[ChangeRow]) -> str:
    """Title a comparison by the finding of one model on one task, else by counts of findings."""
    models = list_models(rows)
    named = rename_models(rows, dict(zip(models, drop_organizations(models), strict=True)))
    first = named[0]
    if first.subject.length == ALL and count_pairs(named) == 1:
        return messages.describe_ndcg_change(first)
    return messages.title_models(
        [row for row in named if (row.subject.length, row.metric) == (ALL, Metric.NDCG_AT_10)],
        first.subject.baseline,
        len(models) - 1,
    )


@dataclass(frozen=True)
class TaskChanges:
    """The changes of the models on a task by one method, and their sentences."""

    rows: Sequence[ChangeRow]

    @property
    def overall(self) -> list[ChangeRow]:
        """The rows over all lengths."""
        return [row for row in self.rows if row.subject.length == ALL]

    def describe(self) -> DisplaySection:
        """Describe the change of the only model, or count the states, as a title; below it what is
        inconclusive.
        """
        first = self.overall[0]
        models = {row.subject.model for row in self.overall}
        sentences = list_undecided(self.overall)
        if len(models) == 1:
            title = messages.describe_ndcg_change(first)
            sentences.insert(0, messages.describe_windows(first))
        else:
            rows = [row for row in self.overall if row.metric is first.metric]
            title = messages.title_models(rows, first.subject.baseline, len(models))
        return DisplaySection(f"{title}.", tuple(filter(None, sentences)))

    def tabulate_models(self) -> Table:
        """Tabulate the changes over all lengths."""
        subject = self.rows[0].subject
        if subject.is_judged:
            return tabulate_scores(self.overall)
        counts = dict.fromkeys(format_count(row.subject.queries) for row in self.overall)
        title = (
            f"Change from {subject.baseline} · {subject.task}, {' or '.join(counts)} queries, "
            f"{subject.method}"
        )
        return tabulate_changes(self.overall, title)

    def tabulate_lengths(self) -> Iterator[Table]:
        """Tabulate the changes by length, of the only model or where these alone were chosen."""
        lengths = [row for row in self.rows if row.subject.length != ALL]
        models = dict.fromkeys(row.subject.model for row in lengths)
        if self.overall and len(models) > 1:
            return
        for model in models:
            rows = [row for row in lengths if row.subject.model == model]
            compared = round(ALPHA / (1 - rows[0].level))
            name = f"{model}, " if len(models) > 1 else ""
            title = (
                f"Change by length · {name}intervals widened for {compared} comparisons "
                f"({pluralize(compared // 3, 'length')}, 3 metrics)"
            )
            yield tabulate_changes(rows, title, by_length=True)


def group_tasks(rows: Sequence[ChangeRow]) -> list[TaskChanges]:
    """Group rows by task and method."""
    identify = attrgetter("subject.task", "subject.method")
    return [TaskChanges(list(group)) for _, group in groupby(sorted(rows, key=identify), identify)]


def build_sections(comparison: ModelComparison, *, full: bool) -> Iterator[DisplaySection]:
    """Yield the sections of all media: findings, pictures, tables, and what to do."""
    models = list_models(comparison.rows)
    short = dict(zip(models, shorten_names(models, width=28), strict=True))
    tasks = group_tasks(rename_models(comparison.rows, short))
    is_brief = count_pairs(comparison.rows) <= MAX_SENTENCES
    if is_brief:
        yield from _describe_tasks(tasks)
        yield from _describe_page(comparison.rows)
    else:
        yield from to_paragraphs(count_changes(comparison.rows))
    systems = list_systems(comparison)
    if 0 < len(comparison.common) <= MAX_SENTENCES:
        yield DisplaySection(strips=tuple(map(draw_system, systems)))
    for task in tasks:
        if task.overall:
            yield DisplaySection(tables=(task.tabulate_models(),))
    if 0 < len(comparison.common) <= MAX_SENTENCES:
        yield from _build_next_steps(systems)
    if is_brief:
        yield from (
            DisplaySection(tables=(table,)) for task in tasks for table in task.tabulate_lengths()
        )
    scores = tabulate_scores(comparison.rows)
    every = DisplaySection("Scores of both sides", tables=(scores,), folded=True)
    yield every if full else replace(every, only=Medium.PAGE)
    if systems:
        yield replace(_build_sources(systems), only=Medium.PAGE)


def _describe_tasks(tasks: Sequence[TaskChanges]) -> Iterator[DisplaySection]:
    """Yield the finding on each task, for media without a title."""
    for task in tasks:
        if task.overall:
            section = replace(task.describe(), only=Medium.TEXT)
            name = f"{task.rows[0].subject.task}: " if len(tasks) > 1 else ""
            yield replace(section, title=f"{name}{section.title}")


def _build_next_steps(systems: Iterable[System]) -> Iterator[DisplaySection]:
    """Yield commands that compare chunks with whole documents, for models that need chunks."""
    commands = [
        write_command(advice, system.run.find_reference(system.task))
        for system in systems
        for advice in advise(system.findings)
        if advice.step is NextStep.CHUNK
    ]
    code = "\n".join(dict.fromkeys(filter(None, commands)))
    if code:
        sentence = "Search in chunks that fit the window:"
        yield DisplaySection("Next", (sentence,), code=code, only=Medium.TEXT)


def _describe_page(rows: Sequence[ChangeRow]) -> Iterator[DisplaySection]:
    """Yield what the title of a page leaves open."""
    models = list_models(rows)
    named = rename_models(rows, dict(zip(models, drop_organizations(models), strict=True)))
    sentences = list_undecided(row for row in named if row.subject.length == ALL)
    if count_pairs(named) == 1:
        sentences = [" ".join([*messages.describe_pair(named), *sentences])]
    for paragraph in to_paragraphs(sentences):
        yield replace(paragraph, only=Medium.PAGE)


def list_undecided(rows: Iterable[ChangeRow]) -> list[str]:
    """Describe the changes that are inconclusive or not tested."""
    return [messages.describe_change(row) for row in rows if row.state in UNDECIDED_STATES]


@dataclass(frozen=True)
class System:
    """The baseline or a model on a task, with its results on the common queries."""

    name: str
    run: ModelRun
    task: str
    group: GroupAnalysis
    findings: GroupFindings
    is_baseline: bool


def list_systems(comparison: ModelComparison) -> list[System]:
    """Return the baseline and each model, once for each task."""
    labels = [run.label for pair, _ in comparison.common for run in (pair.a, pair.b)]
    short = dict(zip(labels, drop_organizations(labels), strict=True))
    several = len({pair.task for pair, _ in comparison.common}) > 1
    systems = dict[str, System]()
    for pair, common in comparison.common:
        for run, values in ((pair.a, common.a), (pair.b, common.b)):
            name = f"{short[run.label]}, {pair.task}" if several else short[run.label]
            if name not in systems:
                group = analyze(values).overall
                is_baseline = run is pair.a
                systems[name] = System(name, run, pair.task, group, decide(group), is_baseline)
    return list(systems.values())


def _build_sources(systems: Sequence[System]) -> DisplaySection:
    """Tabulate the revisions of models and data."""
    rows = []
    for system in systems:
        result = next(iter(system.run.by_subset(system.task).values()))
        revision = str(result.run.get("data_revision", ""))
        rows.append((system.run.label, system.task, result.revision, revision))
    table = Table(build_columns(("Model", "Task", "Revision", "Data revision")), tuple(rows))
    return DisplaySection("Models, data and revisions", tables=(table,), folded=True)


def draw_system(system: System) -> Strip:
    """Draw the picture of a system."""
    commands = build_commands(system.findings, system.run.find_reference(system.task))
    # The next step for the baseline is for a report on it.
    advice = (("Next", messages.describe_advice(system.findings, system.task)),)
    facts = () if system.is_baseline else advice
    strip = build_strip(system.findings, system.group, system.name)
    return replace(strip, facts=lambda: facts, code="\n".join(commands))


def tabulate_changes(rows: Sequence[ChangeRow], title: str, *, by_length: bool = False) -> Table:
    """Tabulate the changes in each metric: of models below their baseline, or by length."""
    lines = list[tuple[str, ...]]()
    for metric in dict.fromkeys(row.metric for row in rows):
        listed = [row for row in rows if row.metric is metric]
        format_score = FORMATS[metric]
        lines.append((HEADINGS.get(metric, metric.value), "", "", ""))
        if not by_length:
            score = listed[0].a
            value = format_score(score.value if score else None)
            lines.append((listed[0].subject.baseline, value, "", ""))
        for row in listed:
            cells = (row.subject.model, format_score(row.b.value if row.b else None))
            if by_length:
                cells = (row.subject.length_title, format_count(row.subject.queries))
            lines.append((*cells, messages.format_difference(row), messages.label_change(row)))
    headings = ("Length in tokens", "Queries") if by_length else ("Model", "Score")
    columns = (
        Column(headings[0]),
        Column(headings[1], "right"),
        Column("Change", "right", drawn=True),
        Column("State"),
    )
    return Table(columns, tuple(lines), title, is_narrow=not by_length)


def tabulate_scores(rows: Iterable[ChangeRow]) -> Table:
    """Tabulate every comparison; a terminal shows a table for each task, method and model."""
    metrics = list(Metric)
    rows = list(rows)
    models = list_models(rows)
    rows.sort(
        key=lambda row: (
            row.subject.task,
            row.subject.method,
            models.index(row.subject.model),
            metrics.index(row.metric),
        )
    )
    headings = (
        "Task",
        "Method",
        "Baseline",
        "Model",
        "Metric",
        "Length",
        "Queries",
        "Baseline score",
        "Score",
        "Difference",
        "Change",
    )
    lines = [
        (
            row.subject.task,
            row.subject.method,
            row.subject.baseline,
            row.subject.model,
            row.metric.value,
            row.subject.length,
            format_count(row.subject.queries),
            format_estimate(row.a, FORMATS[row.metric]),
            format_estimate(row.b, FORMATS[row.metric]),
            format_estimate(row.estimate, format_points),
            messages.label_change(row),
        )
        for row in rows
    ]
    return Table(
        build_columns(headings, headings[6:10]),
        tuple(lines),
        split_by="{Task} · {Method}\n{Model} against {Baseline}",
        keys=2,
    )


def count_changes(rows: Iterable[ChangeRow]) -> Iterator[str]:
    """Yield how many changes over all lengths have each state, by metric."""
    overall = [row for row in rows if row.subject.length == ALL]
    for metric in dict.fromkeys(row.metric for row in overall):
        yield messages.count_changes([row for row in overall if row.metric is metric])
    yield messages.describe_chance_changes(count_pairs(overall))


def describe_levels(rows: Iterable[ChangeRow]) -> str:
    """Describe the levels of the intervals of changes: over all lengths, then of lengths."""
    levels = []
    for is_all, level in dict.fromkeys((row.subject.length == ALL, row.level) for row in rows):
        scope = "over all lengths" if is_all else "by length"
        compared = round(ALPHA / (1 - level))
        levels.append(f"{messages.format_level(level)} {scope} (for {compared})")
    return (
        f"Intervals: all changes of a table hold at once at 95%, so each at {', '.join(levels)}; "
        "scores as in a report."
    )
