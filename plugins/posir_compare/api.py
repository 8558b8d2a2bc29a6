"""The public function of this package: `posir.compare`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from posir_compare import comparison, pairing
from posir_compare import runs as model_runs
from posir_compare.comparison import FORMATS, list_columns
from posir_compare.comparison import HEADINGS as METRIC_HEADINGS
from posir_compare.gate import Gate, Limit, LimitedValue, check_limits, parse_limits, run_gate
from posir_significance import messages
from posir_significance.advice import CHUNK_COMMAND, build_commands
from posir_significance.analysis import analyze
from posir_significance.changes import ChangeRow, Metric
from posir_significance.decision import Margins, decide
from posir_significance.findings import ChangeState, GroupFindings
from posir_significance.intervals import ALPHA, LEVEL
from posir_significance.strips import build_strip
from posir_tasks.base.errors import PosirError, UsageError
from posir_tasks.base.public import Option, public, to_list
from posir_tasks.base.wording import drop_organizations, pluralize, shorten_names
from posir_tasks.display.numbers import format_count, format_estimate, format_number, format_points
from posir_tasks.display.presentation import Presentable, to_paragraphs
from posir_tasks.display.strip import Strip
from posir_tasks.display.tables import Column, DisplaySection, Table, build_columns, to_latex
from posir_tasks.results import JudgedResult, StoredResult, SubsetResult, read_all_results
from posir_tasks.values.scores import ALL

#: A folder of results, or what was read from it.
ResultSource: TypeAlias = str | Path | Sequence[SubsetResult]
#: One of these, or several.
Sources: TypeAlias = ResultSource | Iterable[ResultSource] | None
#: A text, or several.
Texts: TypeAlias = str | Iterable[str] | None

BRIEF = (
    "nDCG@10: 100 if the right document is always first; less the lower it is ranked, 0 below "
    "rank 10.",
    "Position effect: nDCG@10 with the same evidence in the first third of its document minus in "
    "the last.",
    "Change: model minus baseline, with its interval, adjusted for 3 metrics.",
)
JUDGED_BRIEF = (
    "Difference: model minus baseline, x 100, over all judged queries, paired by cluster. "
    "Intervals are adjusted for 5 metrics."
)
NOTES = (
    "State: from the interval of the change: equivalent if it lies within the margin (by default "
    "2 points of nDCG@10, 5 of the "
    "position effect), better or worse if 0 is outside; otherwise inconclusive.",
    "Paired by query: both models answered the same questions, and are compared question by "
    "question.",
    "Position effects are compared on the same rotated versions; within the window only if both "
    "models have the same excerpts.",
)
#: What a reader of a page needs first.
TERMS = (
    "Change: model minus baseline, in points; in brackets its interval, wider since several "
    "changes are read together. "
    "Position effect: the same evidence in the first third of its document minus in the last."
)


HEADINGS = (
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
#: States of a change that is not decided.
UNDECIDED_STATES = (ChangeState.INCONCLUSIVE, ChangeState.NOT_TESTED)
#: The reason why results of mteb alone are not compared, and what to do.
NO_QUERIES = (
    "They store no queries, so no change would have an interval. Save the predictions with `mteb "
    "run --prediction-folder` and "
    "score them with `posir score`."
)
#: Most comparisons of two models on a task with a sentence each.
MOST_SENTENCES = 6


@dataclass(frozen=True, repr=False)
class Comparison(Presentable, comparison.ModelComparison):
    """Models against a baseline, by task, length and metric."""

    full: bool = False
    """Whether scores of both sides are also shown."""
    hint: str = ""
    """The choice of the baseline, for the error stream alone."""

    @property
    def baseline(self) -> str:
        """Name of the model that all others are compared with."""
        return self.rows[0].subject.baseline

    @property
    def title(self) -> str:
        """The finding of one model on one task, else counts of findings."""
        first, models = self.rows[0], list(dict.fromkeys(row.subject.model for row in self.rows))
        baseline, *names = drop_organizations([self.baseline, *models])
        if first.subject.length == ALL and count_pairs(self.rows) == 1:
            return messages.describe_ndcg_change(
                _rename(first, {self.baseline: baseline, first.subject.model: names[0]})
            )
        states = _count_states(
            [
                row
                for row in self.rows
                if (row.subject.length, row.metric) == (ALL, Metric.NDCG_AT_10)
            ]
        )
        return (
            f"{pluralize(len(models), 'model')} against "
            f"{baseline}{f' in nDCG@10: {states}' if states else ''}"
        )

    def check(
        self,
        limits: str | Sequence[str | Limit],
        *,
        lengths: Collection[str] = (ALL,),
        strict: bool = False,
    ) -> Gate:
        """Test limits on the change from the baseline, as `posir compare --fail-if` does.

        Args:
            limits: A metric, `<` or `>`, and a number in the unit in which its change is printed,
                such as `position_effect > 5`; or several of these.
            lengths: `all` or names of length buckets.
            strict: Whether a limit already fails if the interval of the change is not wholly within
                it.

        Returns:
            The verdict on every limit, and over all.

        Raises:
            PosirError: A limit is malformed.
        """
        given, values = (
            [limits] if isinstance(limits, str) else limits,
            map(LimitedValue.of_change, self.rows),
        )
        return check_limits(values, given, lengths, strict=strict, gaps=self.gaps, notes=self.notes)

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the changes of each task with their sentences, and the table of all comparisons if
        all is asked for.
        """
        shown = self._name_models(partial(shorten_names, width=28))
        every = DisplaySection(
            "Scores of both sides", tables=(comparison_table(self.rows),), folded=True
        )
        strips = tuple(draw_common(self.common)) if len(self.common) <= MOST_SENTENCES else ()
        drawn = [DisplaySection(strips=strips)] if strips else []
        commands = dict.fromkeys(
            line for strip in strips for line in strip.code.split("\n") if CHUNK_COMMAND in line
        )
        steps = [
            DisplaySection(
                "Next", ("Search in chunks that fit the window:",), code="\n".join(commands)
            )
        ]
        changes = list(change_sections(shown))
        place = next((at for at, section in enumerate(changes) if section.tables), 0)
        changes[place + 1 : place + 1] = steps if commands else []
        return (*changes[:place], *drawn, *changes[place:], *([every] if self.full else []))

    def page_sections(self) -> list[DisplaySection]:
        """Return the tables, and what is inconclusive about a few models: title and pictures have
        the findings.
        """
        named = replace(self, full=True)._name_models(drop_organizations)
        shown, row = named, named[0]
        is_one = count_pairs(shown) == 1
        scores = comparison_table(
            replace(
                row,
                subject=replace(row.subject, length=row.subject.length_title or row.subject.length),
            )
            for row in named
        )
        heads = (
            {"Baseline score": row.subject.baseline, "Score": row.subject.model} if is_one else {}
        )
        columns = tuple(
            replace(column, heading=heads.get(column.heading, column.heading))
            for column in scores.columns
        )
        split_by = "{Metric}\n{Task}, {Method}, {Model} against {Baseline}"
        scores = replace(scores, columns=columns, split_by=split_by, notes=())
        folded = [DisplaySection("Scores of both sides", tables=(scores,), folded=True)]
        folded += [self._build_sources()] if self.common else []
        changes = list(change_sections(shown, scored=True))
        if count_pairs(shown) > MOST_SENTENCES:
            return [*changes, *folded]
        tables, overall = (
            [section for section in changes if section.tables],
            [row for row in shown if row.subject.length == ALL],
        )
        said = [messages.describe_change(row) for row in overall if row.state in UNDECIDED_STATES]
        lead = [" ".join(filter(None, (*describe_pair(row), *said)))] if is_one else []
        return [*to_paragraphs(lead), *tables, *to_paragraphs([] if is_one else said), *folded]

    def _build_sources(self) -> DisplaySection:
        """Return the revisions of models and data."""
        rows = dict.fromkeys(
            (run.label, pair.task, result.revision, str(result.run.get("data_revision", "")))
            for pair, _ in self.common
            for run in (pair.a, pair.b)
            for result in islice(run.by_subset(pair.task).values(), 1)
        )
        table = Table(build_columns(("Model", "Task", "Revision", "Data revision")), tuple(rows))
        return DisplaySection("Models, data and revisions", tables=(table,), folded=True)

    def _name_models(self, shorten: Callable[[Sequence[str]], list[str]]) -> list[ChangeRow]:
        """Return the rows that are shown, with shorter names of models."""
        labels = list(
            dict.fromkeys(
                label for row in self.rows for label in (row.subject.baseline, row.subject.model)
            )
        )
        names = dict(zip(labels, shorten(labels), strict=True))
        return [_rename(row, names) for row in self.rows]

    def describe_data(self) -> str:
        """Return the tasks."""
        return ", ".join(dict.fromkeys(row.subject.task for row in self.rows))

    def to_latex(self) -> str:
        """Return the table of all comparisons for the packages booktabs and adjustbox."""
        notes = (describe_levels(self.rows), *self.legend())
        table = replace(comparison_table(self.rows), title=f"{self.title}.", notes=notes)
        return to_latex(table, label="tab:posir-comparison")

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each task, model, length and metric."""
        return [list_columns(row) for row in self.rows]

    def document(self) -> dict[str, Any]:
        """Return baseline, rows and notes."""
        return {"baseline": self.baseline, "comparisons": self.records(), "notes": self.notes}

    def legend(self) -> tuple[str, ...]:
        """Return how to read the numbers."""
        if all(row.subject.is_judged for row in self.rows):
            return (JUDGED_BRIEF,)
        return BRIEF

    def explanation(self) -> tuple[str, ...]:
        """Return what every column means, and the notes, which the command prints on the error
        stream, too.
        """
        return (*NOTES, describe_levels(self.rows), *self.notes)

    def warnings(self) -> tuple[str, ...]:
        """Return the notes."""
        return tuple(f"note: {note}" for note in (self.hint, *self.notes) if note)


def _rename(row: ChangeRow, names: Mapping[str, str]) -> ChangeRow:
    subject = row.subject
    named = replace(subject, baseline=names[subject.baseline], model=names[subject.model])
    return replace(row, subject=named)


def draw_common(
    common_results: Sequence[tuple[pairing.Pair, pairing.CommonResults]],
) -> Iterator[Strip]:
    """Yield the picture of the answer of the baseline and of each model, on the queries that they
    have in common.
    """
    several, drawn = len({pair.task for pair, _ in common_results}) > 1, set()
    labels = [run.label for pair, _ in common_results for run in (pair.a, pair.b)]
    short = dict(zip(labels, drop_organizations(labels), strict=True))
    for pair, common in common_results:
        for run, values in ((pair.a, common.a), (pair.b, common.b)):
            name = f"{short[run.label]}, {pair.task}" if several else short[run.label]
            if name in drawn:
                continue
            drawn.add(name)
            group = analyze(values).overall
            findings = decide(group)
            commands = build_commands(findings, run.find_reference(pair.task))
            # The next step for the baseline is for a report on it.
            facts = partial(_list_advice, findings, pair.task) if run is pair.b else tuple
            strip = build_strip(findings, group, name)
            yield replace(strip, facts=facts, code="\n".join(commands))


def _list_advice(findings: GroupFindings, task: str) -> tuple[tuple[str, str], ...]:
    return (("Next", messages.describe_advice(findings, task)),)


@public(charts=True, card=True, undecided_by=("fail_if", "strict", "junit"))
def compare(
    given: Annotated[Sources, Option(metavar="A B")] = None,
    *,
    results: Sources = None,
    baseline: str | None = None,
    lengths: Texts = None,
    task: Texts = None,
    margin: Annotated[Texts, Option(metavar="POINTS")] = None,
    fail_if: Annotated[Texts, Option(metavar="LIMIT")] = None,
    full: bool = False,
    strict: bool = False,
    junit: str | Path | None = None,
) -> Comparison | Gate:
    """Say whether models are better, worse or equivalent to a baseline in nDCG@10 and position
    effects, by task and length.

        posir compare results                # all models with the first
        posir compare results/old results/new
        posir compare --results results bge-m3 all-MiniLM-L6-v2

    Results are paired by query where both have the ranks of the same queries. Queries without
    positions are compared in nDCG@10, MRR@10, Recall@10, Recall@100 and MAP@100, paired by their
    clusters.

    Args:
        given: Result folders, in Python also what `posir.read_results` returned; with `results`,
            names of models.
        results: Result folder of the named models, or several; without names, of all their models.
        baseline: Model that all others are compared with; by default the first, of one folder by
            name.
        lengths: Lengths to compare; by default every one, or with `fail_if` all.
        task: Task to compare. By default, all.
        margin: Smallest difference that matters: of a position effect, such as 5, or KEY=POINTS for
            ndcg_at_10 or mrr_at_10.
        fail_if: Exit status 1, not 0, if a change is beyond a limit, such as 'ndcg_at_10 < -1'; 2
            if inconclusive.
        full: Also show the scores of both sides.
        strict: With `fail_if`: fail unless the interval is wholly within the limit.
        junit: With `fail_if`: write JUnit XML to this file.

    Returns:
        A row for each task, model, length and metric: both scores with 95% intervals, their
        difference in [-1, 1] with its simultaneous interval, and the state of the change. With
        `fail_if`, the verdict on every limit, and over all.

    Raises:
        PosirError: There are no such results, models or lengths, or fewer than two models; with
            `fail_if`, the gate is then inconclusive. Or a limit is malformed, or the file cannot be
            written.

    Examples:
        >>> import posir
        >>> comparison = posir.compare(["baseline-bm25s", "all-MiniLM-L6-v2"], results="results")
        >>> comparison.rows[0].metric.value
        'nDCG@10'
        >>> comparison.to_polars()["length"].unique(maintain_order=True).to_list()
        ['all', 'Q1', 'Q2', 'Q3', 'Q4']
    """
    limits = parse_limits(to_list(fail_if), strict=strict, junit=junit)
    tasks, margins = to_list(task), Margins.parse(to_list(margin))
    if not limits:
        return replace(
            _compare(given, results, baseline, to_list(lengths), tasks, margins), full=full
        )
    chosen = to_list(lengths) or [ALL]

    def test() -> Gate:
        compared = _compare(given, results, baseline, chosen, tasks, margins, most=2)
        return compared.check(limits, lengths=chosen, strict=strict)

    return run_gate(test, limits, "compare", junit, strict=strict)


def _list_sources(sources: Sources) -> list[Any]:
    listed = to_list(sources)
    return [listed] if any(isinstance(source, SubsetResult) for source in listed) else listed


def is_comparable(result: StoredResult) -> bool:
    """Return whether a result stores its queries: those of mteb alone do not."""
    return isinstance(result, SubsetResult | JudgedResult)


def _read_source(source: ResultSource) -> list[StoredResult]:
    """Return the results of a folder, or of what was read from it, those of mteb alone among them.

    Raises:
        PosirError: There is no result in the folder, or none that stores its queries.
    """
    if not isinstance(source, str | Path):
        return [*source, *getattr(source, "judged", ())]
    results = read_all_results(Path(source), StoredResult)
    if not any(map(is_comparable, results)):
        tasks = sorted({result.task for result in results})
        raise PosirError(
            f"{source}: only results that mteb alone wrote, on {', '.join(tasks)}. {NO_QUERIES} "
            "`posir report` shows their "
            f"scores: posir report {shlex.quote(str(source))}"
        )
    return results


def _describe_plain(results: Iterable[StoredResult]) -> Iterator[str]:
    """Yield which results of mteb alone are not compared, and why."""
    tasks = sorted({result.task for result in results})
    if tasks:
        yield f"not compared: results that mteb alone wrote, on {', '.join(tasks)}. {NO_QUERIES}"


def _compare(
    given: Sources,
    results: Sources,
    baseline: str | None,
    lengths: Sequence[str],
    tasks: Sequence[str],
    margins: Margins,
    most: int | None = None,
) -> Comparison:
    """Compare runs; see `compare`. With names of models, the baseline need not be among them;
    `most` limits their number.

    Raises:
        PosirError: As `compare` without limits; or there are more runs than allowed.
    """
    names, sources = (
        ([], _list_sources(given))
        if results is None
        else (_list_sources(given), _list_sources(results))
    )
    if not sources:
        raise UsageError(
            "Nothing to compare. Use `posir compare FOLDER ...` or `posir compare --results "
            "FOLDER MODEL ...`."
        )
    for source in sources:
        if isinstance(source, str | Path) and not Path(source).is_dir() and results is None:
            raise PosirError(
                f"{source}: no such folder. Give result folders, or names of models and their "
                "folder: "
                "`posir compare --results FOLDER MODEL MODEL`."
            )
    read = [_read_source(source) for source in sources]
    runs = model_runs.collect_runs(
        [[result for result in listed if is_comparable(result)] for listed in read]
    )
    chosen = [run for name in names for run in model_runs.find_by_name(runs, name)] or list(runs)
    if baseline is not None and (first := model_runs.choose_baseline(runs, baseline)) not in chosen:
        chosen.insert(0, first)
    labels = ", ".join(run.label for run in chosen)
    if len(chosen) < 2:
        raise PosirError(
            f"A comparison needs two models; found: {labels}. Name another one or give another "
            "folder."
        )
    known = sorted({result.task for run in chosen for result in run.results})
    if unknown := [task for task in tasks if task not in known]:
        raise PosirError(
            f"--task {unknown[0]}: there are no results of such a task. Choose from "
            f"{', '.join(known)}."
        )
    if tasks:
        chosen = [
            replace(run, results=tuple(result for result in run.results if result.task in tasks))
            for run in chosen
        ]
    pairs = pairing.build_pairs(chosen, model_runs.choose_baseline(chosen, baseline))
    compared = comparison.compare_pairs(pairs, lengths, margins)
    if most and len(chosen) > most:
        raise PosirError(
            f"A gate tests one model against one baseline; found: {labels}. Name two with "
            "--results."
        )
    told = f"the baseline is {chosen[0].label}, the first model; choose another with --baseline."
    hint = told if baseline is None and len(chosen) > 2 else ""
    notes = (
        *compared.notes,
        *_describe_plain(
            result for listed in read for result in listed if not is_comparable(result)
        ),
    )
    return Comparison(compared.rows, notes, compared.gaps, compared.common, hint=hint)


def change_sections(rows: Sequence[ChangeRow], *, scored: bool = False) -> Iterator[DisplaySection]:
    """Yield sentences on the models of each task against the baseline, their table and, of one
    model, its lengths.

    With many pairs there are counts of states in place of sentences and lengths.
    """
    many, tabulate = count_pairs(rows) > MOST_SENTENCES, _page_table if scored else _change_table
    identify = attrgetter("subject.task", "subject.method")
    if many:
        yield from to_paragraphs(count_changes(rows))
    for (task, method), grouped in groupby(sorted(rows, key=identify), key=identify):
        group = list(grouped)
        overall, is_pair = (
            [row for row in group if row.subject.length == ALL],
            len({row.subject.model for row in group}) == 1,
        )
        if overall:
            judged = overall[0].subject.is_judged
            queries = " or ".join(
                map(format_count, dict.fromkeys(row.subject.queries for row in overall))
            )
            yield from [] if many else [describe_task(overall)]
            # A page of one pair begins with its data.
            data = "" if scored and count_pairs(rows) == 1 else f"{task}, {queries} queries, "
            title = f"Change from {group[0].subject.baseline} · {data}{method}"
            yield DisplaySection(
                tables=(comparison_table(overall) if judged else tabulate(overall, "Model", title),)
            )
        if many:
            continue
        lengths = [row for row in group if row.subject.length != ALL]
        for model in dict.fromkeys(row.subject.model for row in lengths if is_pair or not overall):
            of_model = [row for row in lengths if row.subject.model == model]
            compared = round(ALPHA / (1 - of_model[0].level))
            widened = (
                f"intervals widened for {compared} comparisons "
                f"({pluralize(compared // 3, 'length')}, 3 metrics)"
            )
            # A page has that in how to read it.
            of = ", ".join([*([] if is_pair else [model]), *([] if scored else [widened])])
            title = " · ".join(filter(None, ("Change by length", of)))
            yield DisplaySection(tables=(tabulate(of_model, "Length in tokens", title),))


def count_pairs(rows: Iterable[ChangeRow]) -> int:
    """Return how often a model is compared with the baseline: once for each task and method."""
    return len({(row.subject.task, row.subject.method, row.subject.model) for row in rows})


def _group_metrics(
    rows: Sequence[ChangeRow],
) -> Iterator[tuple[Metric, list[ChangeRow], list[str]]]:
    """Yield each metric with its rows, and the scores of the baseline and then of each model."""
    for metric in dict.fromkeys(row.metric for row in rows):
        listed = [row for row in rows if row.metric is metric]
        known = (listed[0].a, *(row.b for row in listed))
        yield (
            metric,
            listed,
            [FORMATS[metric](score.value if score else None) for score in known],
        )


def _change_table(
    rows: Sequence[ChangeRow], heading: Literal["Model", "Length in tokens"], title: str
) -> Table:
    """Return a table of the changes in each metric: of models below the baseline, or of lengths."""
    is_models, lines = heading == "Model", list[tuple[str, ...]]()
    for metric, listed, scores in _group_metrics(rows):
        lines += [
            (METRIC_HEADINGS.get(metric, metric), "", "", ""),
            *([(listed[0].subject.baseline, scores[0], "", "")] if is_models else []),
        ]
        for row, score in zip(listed, scores[1:], strict=True):
            first = (
                (row.subject.model, score)
                if is_models
                else (row.subject.length_title, format_count(row.subject.queries))
            )
            state = messages.label_change(row)
            lines.append((*first, messages.format_difference(row), state))
    numbers = ["Score" if is_models else "Queries", "Change"]
    return Table(
        build_columns([heading, *numbers, "State"], numbers),
        tuple(lines),
        title,
        is_narrow=is_models,
    )


def _page_table(
    rows: Sequence[ChangeRow], heading: Literal["Model", "Length in tokens"], title: str
) -> Table:
    """Return a table of scores and changes with a column for each metric, and a line for each model
    or length.
    """
    is_models, first = heading == "Model", [row for row in rows if row.metric is rows[0].metric]
    names = [[first[0].baseline, *(row.subject.model for row in first)]]
    cells = (
        names
        if is_models
        else [
            [row.subject.length_title for row in first],
            [format_count(row.subject.queries) for row in first],
        ]
    )
    columns = list(build_columns([heading, "Queries"][: len(cells)], ["Queries"]))
    for metric, listed, scores in _group_metrics(rows):
        # The interval stands below its state.
        changes = [
            "\n".join(
                (
                    messages.label_change(row),
                    messages.format_difference(row),
                )
            ).rstrip()
            for row in listed
        ]
        columns += (
            [Column("Score", "right", METRIC_HEADINGS.get(metric, metric))] if is_models else []
        )
        columns.append(Column("Change", "right", METRIC_HEADINGS.get(metric, metric), drawn=True))
        cells += [scores, ["baseline", *changes]] if is_models else [changes]
    return Table(tuple(columns), tuple(zip(*cells, strict=True)), title, (TERMS,) * is_models)


def comparison_table(rows: Iterable[ChangeRow]) -> Table:
    """Return a table with a line for each comparison; a terminal shows a table for each task,
    method and model.
    """
    rows, metrics = list(rows), list(Metric)
    models = list(dict.fromkeys(row.subject.model for row in rows))
    rows.sort(
        key=lambda row: (
            row.subject.task,
            row.subject.method,
            models.index(row.subject.model),
            metrics.index(row.metric),
        )
    )
    return Table(
        build_columns(HEADINGS, ["Queries", "Baseline score", "Score", "Difference"]),
        tuple(
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
        ),
        split_by="{Task} · {Method}\n{Model} against {Baseline}",
        keys=2,
    )


def count_changes(rows: Iterable[ChangeRow]) -> Iterator[str]:
    """Yield how many changes over all lengths have each state, by metric."""
    overall = [row for row in rows if row.subject.length == ALL]
    for metric in dict.fromkeys(row.metric for row in overall):
        of_metric = [row for row in overall if row.metric is metric]
        yield (
            f"Change in {metric.value} over all lengths, {pluralize(len(of_metric), 'pair')}: "
            f"{_count_states(of_metric)}."
        )
    by_chance = format_number(count_pairs(overall) * (1 - LEVEL), ".1f").removesuffix(".0")
    yield (
        f"If none of them differed, about {by_chance} would be expected to be called better or "
        "worse by chance."
    )


def describe_task(overall: Sequence[ChangeRow]) -> DisplaySection:
    """Return the change in nDCG@10 of the only model, or how many changed how, as a title; below it
    what is inconclusive.
    """
    first, models = overall[0], {row.subject.model for row in overall}
    said = [messages.describe_change(row) for row in overall if row.state in UNDECIDED_STATES]
    if len(models) == 1:
        title, said = (
            messages.describe_ndcg_change(first),
            [describe_reads(first), *said],
        )
    else:
        states = _count_states(row for row in overall if row.metric is first.metric)
        title = f"{len(models)} models against {first.subject.baseline} in {first.metric}: {states}"
    return DisplaySection(f"{title}.", tuple(filter(None, said)))


def describe_pair(row: ChangeRow) -> Iterator[str]:
    """Yield what the title of a page of one pair leaves open: the position effect, both windows,
    and the data.
    """
    if row.subject.is_judged:
        yield (
            f"{row.subject.task}: {pluralize(row.subject.queries, 'question')} on "
            f"{pluralize(row.subject.documents, row.subject.counted)}."
        )
        return
    reads = describe_reads(row)
    effect = messages.describe_effect_change(row)
    yield from (
        effect,
        reads,
        messages.describe_questions(row.subject.task, row.subject.queries, row.subject.documents),
    )
    yield "Points are of nDCG@10 (100: always ranked first)."


def describe_reads(row: ChangeRow) -> str:
    """Return what baseline and model read; empty if that is the same."""
    first, second = row.subject.reads
    return (
        f"{row.subject.model} reads {second.phrase}, {row.subject.baseline} {first.phrase}."
        if first != second
        else ""
    )


def _count_states(rows: Iterable[ChangeRow]) -> str:
    """Return how many changes have each state: `2 better, 1 inconclusive`."""
    counts = Counter(messages.label_change(row) for row in rows)
    return ", ".join(f"{count:,} {state}" for state, count in counts.most_common())


def describe_levels(rows: Iterable[ChangeRow]) -> str:
    """Return the levels of the intervals of changes: over all lengths, then of lengths."""
    said = [
        f"{messages.format_level(level)} {'over all lengths' if is_all else 'by length'} (for "
        f"{round(ALPHA / (1 - level))})"
        for is_all, level in dict.fromkeys((row.subject.length == ALL, row.level) for row in rows)
    ]
    return (
        f"Intervals: all changes of a table hold at once at 95%, so each at {', '.join(said)}; "
        "scores as in a report."
    )
