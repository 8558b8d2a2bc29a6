"""The findings of the published results in sentences, computed from what is shown."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from posir_published.curves import PositionCurve
from posir_published.mmteb import MMTEBCorrelation
from posir_published.rows import PublishedBin, PublishedRow
from posir_published.training import PSI_REDUCTION, TrainingScore
from posir_tasks.display.numbers import format_percent, format_points, format_psi
from posir_tasks.display.wording import pluralize

#: Most tasks with a sentence each.
MOST_TASKS = 3
SIGNIFICANT = 0.05


def describe_scores(rows: Sequence[PublishedRow]) -> Iterator[str]:
    """Yield for each task the best model and the lowest and highest PSI, at the longest length shown; if many, for all."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    for task in tasks[:MOST_TASKS] if len(tasks) <= MOST_TASKS else tasks[:1]:
        length = next(row.length for row in reversed(rows) if row.task == task)
        shown = [row for row in rows if row.task == task and row.length == length]
        best = max(shown, key=lambda row: row.ndcg_at_10)
        low, high = _order_by_psi(shown)
        where = task if length == "all" else f"{task}, {length}"
        yield (
            f"{where}: {best.model} has the highest nDCG@10, {format_percent(best.ndcg_at_10)}. PSI is between "
            f"{format_psi(low.psi_as_published)} ({low.model}) and {format_psi(high.psi_as_published)} ({high.model})."
        )
    if len(tasks) > MOST_TASKS:
        low, high = _order_by_psi(rows)
        yield (
            f"In all {pluralize(len(tasks), 'task and average', 'tasks and averages')} PSI is between "
            f"{format_psi(low.psi_as_published)} ({low.model}, {low.task}) and {format_psi(high.psi_as_published)} "
            f"({high.model}, {high.task})."
        )


def _order_by_psi(rows: Sequence[PublishedRow]) -> tuple[PublishedRow, PublishedRow]:
    """Return the rows with the lowest and the highest PSI."""
    return min(rows, key=lambda row: row.psi_as_published), max(rows, key=lambda row: row.psi_as_published)


def describe_curves(curves: Sequence[PositionCurve]) -> Iterator[str]:
    """Yield the range of start to end in the longest length bucket of the first task, and of all curves if there are more."""
    if not curves:
        return
    task, length = curves[0].task, max(curve.length for curve in curves if curve.task == curves[0].task)
    shown = [curve for curve in curves if (curve.task, curve.length) == (task, length)]
    low, high = _order_by_contrast(shown)
    yield (
        f"{task}, {length}: nDCG@10 in the first third of documents minus the last is between "
        f"{format_points(low.start_to_end_unweighted)} ({low.model}) and {format_points(high.start_to_end_unweighted)} "
        f"({high.model}), of {pluralize(len(shown), 'curve')}."
    )


def _order_by_contrast(curves: Sequence[PositionCurve]) -> tuple[PositionCurve, PositionCurve]:
    """Return the curves with the lowest and the highest start to end."""
    ordered = sorted(curves, key=lambda curve: curve.start_to_end_unweighted)
    return ordered[0], ordered[-1]


def describe_bins(rows: Sequence[PublishedBin]) -> Iterator[str]:
    """Yield for each task how many models find evidence at the beginning better than at the end, and which loses most."""
    groups = [(task, list(group)) for task, group in groupby(rows, key=lambda row: row.task)]
    for task, group in groups[:MOST_TASKS]:
        by_model = [(model, [row.ndcg_at_10 for row in of]) for model, of in groupby(group, key=lambda row: row.model)]
        falling = [(model, scores) for model, scores in by_model if scores[-1] < scores[0]]
        if falling:
            model, scores = max(falling, key=lambda item: item[1][0] - item[1][-1])
            yield (
                f"{task}: {len(falling)} of {pluralize(len(by_model), 'model')} find evidence at the beginning better than at "
                f"the end, {model} most: {format_percent(scores[0])} to {format_percent(scores[-1])}."
            )
        else:
            yield f"{task}: none of {pluralize(len(by_model), 'model')} finds evidence at the beginning better than at the end."


def describe_mmteb(rows: Sequence[MMTEBCorrelation]) -> str:
    """Return how well PosIR and MMTEB agree on the order of models, in short and in long documents."""
    by_length = {row.length: row for row in rows if row.length != "all"}
    first, last = by_length[min(by_length)], by_length[max(by_length)]
    clear = [row.length for row in by_length.values() if row.p_value < SIGNIFICANT]
    significant = f"only in {' and '.join(clear)}" if clear else "in no length"
    return (
        f"MMTEB's order of models is that of PosIR less the longer documents are: Spearman {first.rho:.2f} in {first.length}, "
        f"{last.rho:.2f} in {last.length}; significant {significant}."
    )


def describe_training(scores: Iterable[TrainingScore]) -> str:
    """Return by how much training on evidence at all positions lowers PSI."""
    reductions = sorted(score.value for score in scores if score.measure == PSI_REDUCTION)
    low, high = format_percent(reductions[0]), format_percent(reductions[-1])
    return (
        f"After training on evidence at all positions alike, PSI is {low} % to {high} % lower than after the worst training on "
        f"evidence at one position ({len(reductions)} comparisons)."
    )
