"""Comparisons of pairs as rows: each length and metric of a pair is one row."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from posir_compare.differences import find_differences
from posir_compare.model_runs import Pair
from posir_compare.pairing import CommonResults, find_common_results
from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.correction import Hypothesis, correct_p_values, name_test
from posir_significance.verdict import describe_difference
from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError
from posir_tasks.estimates import Difference, Estimate


class Metric(StrEnum):
    """The score that is compared."""

    NDCG = "nDCG@10"
    START_TO_END = "start to end"
    PSI = "PSI"

    @property
    def key(self) -> str:
        """Key of the score in result files, `ndcg_at_10` for example."""
        return METRIC_KEYS[self]

    @property
    def scale(self) -> int:
        """The factor by which its differences are multiplied when they are printed."""
        return 1 if self is Metric.PSI else 100


METRIC_KEYS = {Metric.NDCG: "ndcg_at_10", Metric.START_TO_END: "start_to_end", Metric.PSI: "psi"}


def _read_estimate(metric: Metric, group: GroupAnalysis) -> Estimate | None:
    return {Metric.NDCG: group.ndcg, Metric.START_TO_END: group.start_to_end, Metric.PSI: group.psi}[metric]


class ComparisonMethod(StrEnum):
    """Whether the two ranks of each query are known."""

    PAIRED = "paired by query"
    UNPAIRED = "unpaired"


@dataclass(frozen=True)
class ComparisonRow:
    """One comparison of a model, b, with the baseline, a. None where undefined."""

    baseline: str
    model: str
    task: str
    subsets: int
    length: str
    """`all`, or the length bucket."""
    queries: int
    documents: int
    """Documents (articles, where known)."""
    informative_documents: int
    """Those that can move the test."""
    metric: Metric
    method: ComparisonMethod
    a: Estimate | None
    b: Estimate | None
    difference: Difference | None
    """b - a. Of start to end and PSI with the document held fixed, or the length where documents have one query each. The
    interval is not corrected."""
    p_value: float | None
    """Before correction. Of PSI: of the position effect, that is of any difference between the bins but a constant."""
    p_corrected: float | None = None
    """Corrected for the comparisons of the metric on the task; None if too few documents could be significant."""
    verdict: str = ""
    """The verdict that p and interval allow; where they contradict each other, with that before correction."""


@dataclass(frozen=True)
class Gap:
    """Results of the baseline that a model was not compared with, or not with all of them."""

    model: str
    task: str
    reason: str


@dataclass(frozen=True)
class ModelComparison:
    """All rows, and notes on what was skipped or not paired."""

    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...]
    gaps: tuple[Gap, ...] = ()


def compare(pairs: Sequence[Pair], lengths: Collection[str] = ()) -> ModelComparison:
    """Compare pairs in nDCG@10 and in the effect of position, over all lengths and in each length bucket with queries.

    A pair without common queries is skipped with a note.

    Args:
        pairs: Pairs with the same baseline.
        lengths: Which lengths to compare, `all` or names of length buckets; empty for every one.

    Raises:
        PosirError: No pair has common queries, or there is no such length.
    """
    common_results: list[tuple[Pair, CommonResults]] = []
    notes: list[str] = []
    gaps: list[Gap] = list(_find_missing_tasks(pairs))
    for pair in pairs:
        try:
            common = find_common_results(pair)
        except PosirError as error:
            notes.append(str(error))
            gaps.append(Gap(pair.b.label, pair.task, str(error)))
            continue
        common_results.append((pair, common))
        notes.extend(common.notes)
        if missing := sorted(pair.a.by_subset(pair.task).keys() - set(common.subsets)):
            gaps.append(Gap(pair.b.label, pair.task, f"not compared: {', '.join(missing)}. {' '.join(common.notes)}"))
    if not common_results:
        raise PosirError("There is nothing to compare. " + " ".join(notes))
    rows = [row for pair, common in progress(common_results, "Comparing") for row in compare_pair(pair, common) if row.queries]
    return ModelComparison(tuple(correct_rows(select_lengths(rows, lengths))), tuple(notes), tuple(gaps))


def _find_missing_tasks(pairs: Sequence[Pair]) -> Iterator[Gap]:
    """Yield the tasks of the baseline that models have no results of."""
    compared = {(pair.b.label, pair.task) for pair in pairs}
    tasks = sorted({result.task for pair in pairs for result in pair.a.results})
    for model in dict.fromkeys(pair.b.label for pair in pairs):
        yield from (Gap(model, task, f"{model} has no results of it.") for task in tasks if (model, task) not in compared)


def select_lengths(rows: Sequence[ComparisonRow], lengths: Collection[str]) -> list[ComparisonRow]:
    """Return the rows of the named lengths, whatever their case; every row if none is named.

    Raises:
        PosirError: No row has a length of that name.
    """
    known = {row.length.casefold(): row.length for row in rows}
    unknown = [name for name in lengths if name.casefold() not in known]
    if unknown:
        raise PosirError(f"--lengths {unknown[0]}: no queries of such a length. Choose from {', '.join(known.values())}.")
    chosen = {name.casefold() for name in lengths}
    return [row for row in rows if not chosen or row.length.casefold() in chosen]


def compare_pair(pair: Pair, common: CommonResults) -> list[ComparisonRow]:
    """Return the rows of one pair, with uncorrected p-values: every metric, for all lengths and for each.

    Args:
        pair: Two runs on a task.
        common: Their results on the same queries.
    """
    groups_a, groups_b = analyze(common.a).groups, analyze(common.b).groups
    differences = find_differences(common)
    method = ComparisonMethod.UNPAIRED if common.paired is None else ComparisonMethod.PAIRED
    rows = []
    for name, of_length, a, b in zip(_length_names(common), differences, groups_a, groups_b, strict=True):
        by_metric = {Metric.NDCG: of_length.ndcg, Metric.START_TO_END: of_length.start_to_end, Metric.PSI: of_length.psi}
        for metric, difference in by_metric.items():
            informative = of_length.different_documents if metric is Metric.NDCG else of_length.informative_documents
            rows.append(
                ComparisonRow(
                    baseline=pair.a.label,
                    model=pair.b.label,
                    task=pair.task,
                    subsets=len(common.subsets),
                    length=name,
                    queries=a.queries,
                    documents=of_length.documents,
                    informative_documents=informative,
                    metric=metric,
                    method=method,
                    a=_read_estimate(metric, a),
                    b=_read_estimate(metric, b),
                    difference=difference,
                    p_value=difference.p_value if difference else None,
                )
            )
    return rows


def _length_names(common: CommonResults) -> tuple[str, ...]:
    """Return `all` and the names of the length buckets if there are several."""
    names = common.a.profile.lengths
    return ("all", *names) if len(names) > 1 else ("all",)


def correct_rows(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return rows with p-values corrected for the comparisons of the same metric on the same task."""
    totals = {(row.model, row.task): row.queries for row in rows if row.length == "all"}
    corrected = correct_p_values(
        [
            Hypothesis(
                row.p_value,
                row.informative_documents,
                family=(row.task, row.metric),
                name=(row.model, name_test(row.length, row.queries, totals.get((row.model, row.task)))),
            )
            for row in rows
        ]
    )
    return [
        replace(row, p_corrected=p_value, verdict=describe_difference(row.difference, p_value))
        for row, p_value in zip(rows, corrected, strict=True)
    ]
