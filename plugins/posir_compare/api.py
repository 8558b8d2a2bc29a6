"""`posir.compare`."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from posir_compare import runs, sections
from posir_compare.comparison import ModelComparison, compare_pairs, to_record
from posir_compare.gate import Gate, Limit, check_limits, parse_limits, run_gate
from posir_compare.pairing import build_pairs
from posir_significance.decision import Margins
from posir_significance.findings import ChangeRow
from posir_tasks.base.errors import PosirError, UsageError
from posir_tasks.base.public import Names, Option, public, to_list
from posir_tasks.display.labels import Term
from posir_tasks.display.presentation import LazySequence, Result
from posir_tasks.display.tables import DisplaySection, Medium
from posir_tasks.results import JudgedResult, StoredResult, SubsetResult, read_all_results
from posir_tasks.values.scores import ALL

#: A folder of results, or the output of `posir.read_results`.
ResultSource: TypeAlias = str | Path | Sequence[SubsetResult]
#: One or more sources.
Sources: TypeAlias = ResultSource | Iterable[ResultSource] | None

BRIEF = (
    Term(
        "nDCG@10",
        "100 if the right document is always first; less the lower it is ranked, 0 below rank 10.",
    ),
    Term(
        "Position effect",
        "nDCG@10 with the same evidence in the first third of its document minus in the last.",
    ),
    Term("Change", "model minus baseline, with its interval, adjusted for 3 metrics."),
)
JUDGED_BRIEF = Term(
    "Difference",
    "model minus baseline, x 100, over all judged queries, paired by cluster. "
    "Intervals are adjusted for 5 metrics.",
)
NOTES = (
    Term(
        "State",
        "from the interval of the change: equivalent if it lies within the margin (by default "
        "2 points of nDCG@10, 5 of the position effect), better or worse if it excludes 0; "
        "otherwise inconclusive.",
    ),
    Term(
        "Paired by query",
        "both models answered the same questions, and are compared question by question.",
    ),
    "Position effects are compared on the same rotated versions; within the window only if both "
    "models have the same excerpts.",
    Term(
        "Intervals",
        "simultaneous 95% intervals for the changes of a table; for scores, the same "
        "intervals as in a report.",
    ),
)
#: Why plain results of mteb are not compared, and what to do.
NO_QUERIES = (
    "They store no queries, so no change would have an interval. Save the predictions with `mteb "
    "run --prediction-folder` and score them with `posir score`."
)


@dataclass(frozen=True, repr=False, kw_only=True)
class Comparison(Result):
    """Changes from a baseline, by model, task, length and metric."""

    rows: Sequence[ChangeRow]
    comparison: ModelComparison

    def check(
        self,
        limits: str | Sequence[str | Limit],
        *,
        lengths: Collection[str] = (ALL,),
        strict: bool = False,
    ) -> Gate:
        """Test limits on changes from the baseline, like `posir compare --fail-if`.

        Args:
            limits: One or more limits. A limit is a metric, `<` or `>`, and a number in points,
                such as `position_effect > 5`.
            lengths: `all` or names of length buckets.
            strict: If true, a limit fails unless the whole interval is within it.

        Returns:
            The verdict on each limit and on all of them.

        Raises:
            PosirError: A limit is malformed.
        """
        return check_limits(
            self.rows,
            limits,
            lengths,
            strict=strict,
            gaps=self.comparison.gaps,
            notes=self.comparison.notes,
        )

    def records(self) -> list[dict[str, Any]]:
        """Return a record for each task, model, length and metric."""
        return [to_record(row) for row in self.rows]


def _build_comparison(comparison: ModelComparison, *, full: bool, hint: str = "") -> Comparison:
    """Build the result. The hint is printed to stderr."""
    rows = sections.shorten_models(comparison.rows)
    title = sections.build_title(rows)
    is_judged = all(row.subject.is_judged for row in rows)
    latex = DisplaySection(tables=tuple(sections.build_latex_tables(rows)), only=Medium.LATEX)
    return Comparison(
        title=title,
        rows=comparison.rows,
        comparison=comparison,
        values=lambda: {
            "baseline": comparison.rows[0].subject.baseline,
            "comparisons": [to_record(row) for row in comparison.rows],
            "notes": comparison.notes,
        },
        extra_sections=LazySequence(
            lambda: [*sections.build_sections(comparison, rows, full=full), latex]
        ),
        notes=(JUDGED_BRIEF,) if is_judged else BRIEF,
        details=(*NOTES, *comparison.notes),
        warnings=tuple(f"note: {note}" for note in (hint, *comparison.notes) if note),
        data=", ".join(dict.fromkeys(row.subject.task for row in rows)),
        full=full,
    )


@public(
    charts=True,
    card=True,
    flags=("markdown", "csv", "latex"),
    check_options=("fail_if", "strict", "junit"),
)
def compare(
    sources: Annotated[Sources, Option(metavar="A B")] = None,
    *,
    results: Sources = None,
    baseline: str | None = None,
    lengths: Names | None = None,
    task: Names | None = None,
    margin: Annotated[Names | None, Option(metavar="POINTS")] = None,
    fail_if: Annotated[Names | None, Option(metavar="LIMIT")] = None,
    full: bool = False,
    strict: bool = False,
    junit: str | Path | None = None,
) -> Comparison | Gate:
    """Test whether models are better than, worse than or equivalent to a baseline in nDCG@10 and
    position effects, by task and length.

        posir compare results                # all models with the first
        posir compare results/old results/new
        posir compare --results results bge-m3 all-MiniLM-L6-v2

    Results on the same queries are paired by query. Queries without positions are compared in
    nDCG@10, MRR@10, Recall@10, Recall@100 and MAP@100, paired by cluster.

    Args:
        sources: Result folders, in Python also the output of `posir.read_results`; with `results`,
            names of models.
        results: Result folders that contain the named models; without names, all models are
            compared.
        baseline: Baseline model; by default the first, and within one folder the first by name.
        lengths: Lengths to compare; by default each, or with `fail_if` only all lengths together.
        task: Task to compare; by default all tasks.
        margin: Minimum relevant difference: POINTS for position effects, such as 5, or KEY=POINTS
            for ndcg_at_10 or mrr_at_10.
        fail_if: Exit with status 1 if a change is beyond a limit, such as 'ndcg_at_10 < -1', and
            with 2 if inconclusive.
        full: Also show the scores of both sides.
        strict: With `fail_if`: fail unless the whole interval is within the limit.
        junit: With `fail_if`: write JUnit XML to this file.

    Returns:
        A row for each task, model, length and metric: both scores with 95% intervals, their
        difference in [-1, 1] with its simultaneous interval, and the state of the change. With
        `fail_if`, the verdict on each limit and on all of them.

    Raises:
        PosirError: Results, models or lengths are missing, or there are fewer than two models; with
            `fail_if`, this makes the gate inconclusive. A limit is malformed. A file is not
            writable.

    Examples:
        >>> import posir
        >>> comparison = posir.compare(["baseline-bm25s", "all-MiniLM-L6-v2"], results="results")
        >>> comparison.rows[0].metric.value
        'nDCG@10'
        >>> comparison.to_polars()["length"].unique(maintain_order=True).to_list()
        ['all', 'Q1', 'Q2', 'Q3', 'Q4']
    """
    limits = parse_limits(to_list(fail_if), strict=strict, junit=junit)
    margins = Margins.parse(to_list(margin))
    tasks = to_list(task)
    length_names = to_list(lengths) or ([ALL] if limits else [])

    def compare_models() -> Comparison:
        model_runs, plain_tasks = _choose_runs(sources, results, baseline, tasks)
        comparison = compare_pairs(build_pairs(model_runs, model_runs[0]), length_names, margins)
        if plain_tasks:
            note = f"not compared: plain results of mteb, on {', '.join(plain_tasks)}."
            comparison = replace(comparison, notes=(*comparison.notes, f"{note} {NO_QUERIES}"))
        if limits and len(model_runs) > 2:
            labels = ", ".join(run.label for run in model_runs)
            raise PosirError(
                f"A gate tests one model against one baseline; found: {labels}. Name two with "
                "--results."
            )
        hint = ""
        if baseline is None and len(model_runs) > 2:
            hint = (
                f"the baseline is {model_runs[0].label}, the first model; choose another with "
                "--baseline."
            )
        return _build_comparison(comparison, full=full, hint=hint)

    if not limits:
        return compare_models()
    return run_gate(
        lambda: compare_models().check(limits, lengths=length_names, strict=strict),
        limits,
        "compare",
        junit,
        strict=strict,
    )


def is_comparable(result: StoredResult) -> bool:
    """Return True if a result stores its queries, unlike plain results of mteb."""
    return isinstance(result, SubsetResult | JudgedResult)


def _list_sources(sources: Sources) -> list[Any]:
    items = to_list(sources)
    return [items] if any(isinstance(item, SubsetResult) for item in items) else items


def _read_source(source: ResultSource, *, has_names: bool) -> list[StoredResult]:
    """Return the results of a source, including plain results of mteb.

    Raises:
        PosirError: The folder has no result that stores its queries.
    """
    if not isinstance(source, str | Path):
        return [*source, *getattr(source, "judged", ())]
    if not has_names and not Path(source).is_dir():
        raise PosirError(
            f"{source}: no such folder. Give result folders, or names of models and their "
            "folder: `posir compare --results FOLDER MODEL MODEL`."
        )
    results = read_all_results(Path(source), StoredResult)
    if not any(map(is_comparable, results)):
        tasks = sorted({result.task for result in results})
        raise PosirError(
            f"{source}: only plain results of mteb, on {', '.join(tasks)}. {NO_QUERIES} "
            f"`posir report` shows their scores: posir report {shlex.quote(str(source))}"
        )
    return results


def _choose_runs(
    sources: Sources, results: Sources, baseline: str | None, tasks: Sequence[str]
) -> tuple[list[runs.ModelRun], list[str]]:
    """Return the runs to compare, baseline first, and the tasks with plain results of mteb.

    The baseline may be a model that is not named.

    Raises:
        PosirError: Results, models or tasks are missing, or there are fewer than two models.
    """
    names = [] if results is None else _list_sources(sources)
    folders = _list_sources(sources if results is None else results)
    if not folders:
        raise UsageError(
            "Nothing to compare. Use `posir compare FOLDER ...` or `posir compare --results "
            "FOLDER MODEL ...`."
        )
    by_source = [_read_source(source, has_names=results is not None) for source in folders]
    all_runs = runs.collect_runs([list(filter(is_comparable, source)) for source in by_source])
    selected_runs = [run for name in names for run in runs.find_by_name(all_runs, name)]
    selected_runs = selected_runs or list(all_runs)
    if baseline is not None:
        first = runs.choose_baseline(all_runs, baseline)
        selected_runs = [first, *(run for run in selected_runs if run is not first)]
    if len(selected_runs) < 2:
        labels = ", ".join(run.label for run in selected_runs)
        raise PosirError(
            f"A comparison needs two models; found: {labels}. Name another one or give another "
            "folder."
        )
    task_names = sorted({task for run in selected_runs for task in run.tasks})
    for task in tasks:
        if task not in task_names:
            raise PosirError(
                f"--task {task}: no results of this task. Choose from {', '.join(task_names)}."
            )
    if tasks:
        selected_runs = [
            replace(run, results=tuple(result for result in run.results if result.task in tasks))
            for run in selected_runs
        ]
    all_results = chain.from_iterable(by_source)
    plain_tasks = {result.task for result in all_results if not is_comparable(result)}
    return selected_runs, sorted(plain_tasks)
