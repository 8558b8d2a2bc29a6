"""The public function of this package: `posir.published`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from posir_published import rows as data
from posir_published import tables
from posir_tasks.display.presentation import TableResult
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.public import Option, public


@public()
def published(
    *,
    task: Annotated[str | Iterable[str] | None, Option(short="-t")] = None,
    lengths: bool = False,
    bins: bool = False,
    mmteb: bool = False,
    training: bool = False,
) -> TableResult:
    """Get the results that the papers report; they ship with posir, so nothing is downloaded.

    Args:
        task: A task or benchmark to show; by default all.
        lengths: Show the length buckets Q1 to Q4 of PosIR, too.
        bins: Show nDCG@10 over position instead: of PosIR the curves by length that could be read precisely from the authors'
            figures (arXiv 2601.08363), of PosQ the position buckets (arXiv 2505.13950).
        mmteb: Show instead how PosIR and MMTEB retrieval order the ten models of the paper (arXiv 2601.08363, Table 2):
            Spearman's rho and its p-value, computed and as printed.
        training: Show instead models after training on evidence at chosen positions: nDCG@10, PSI and cosines, and by how much
            evidence at all positions lowers PSI.

    Returns:
        Scores in [0, 1], without intervals, which the papers do not give. Every row names its source; a curve that was read
        from a figure also the errors of the reading.

    Raises:
        PosirError: Nothing is published on one of the tasks; or with `bins`, no positions are; or views are combined.

    Examples:
        >>> import posir
        >>> results = posir.published(task="PosIR-English")
        >>> results.rows[0].model, round(results.rows[0].ndcg_at_10, 3)
        ('llama-embed-nemotron-8b', 0.735)
        >>> curves = posir.published(task="PosIR-English", bins=True)
        >>> curves.to_polars().filter(model="NV-Embed-v2", length="Q4")["ndcg_at_10"].len()
        20
        >>> [round(row.rho, 2) for row in posir.published(mmteb=True).rows]
        [0.62, 0.73, 0.71, 0.44, 0.39]
    """
    if training and (task or lengths or bins or mmteb):
        raise PosirError("training shows trained models, whose data are no tasks; use it without other options of content.")
    if mmteb and (task or lengths or bins):
        raise PosirError("mmteb shows PosIR's average over tasks, at every length; use it without task, lengths and bins.")
    if lengths and bins:
        raise PosirError("bins shows PosIR by length already; omit lengths.")
    if training:
        return _tabulate_training()
    if mmteb:
        return _tabulate_mmteb()
    known = data.published_tasks()
    tasks = tuple(dict.fromkeys(known if task is None else [task] if isinstance(task, str) else task))
    for name in tasks:
        if name not in known:
            raise PosirError(
                f"There are no published results for a task '{name}'. Tasks with published results: {', '.join(known)}."
            )
    return _tabulate_bins(tasks) if bins else _tabulate_scores(tasks, lengths=lengths)


def _tabulate_training() -> TableResult:
    scores = [*data.read_training_scores(), *data.psi_reductions(data.read_training_scores())]
    return TableResult(
        title="Published results of trained models",
        rows=scores,
        tables=tables.training_tables(scores),
        sentences=[tables.describe_training(scores)],
        notes=[tables.TRAINING_BRIEF],
        further=[tables.TRAINING_NOTE],
    )


def _tabulate_mmteb() -> TableResult:
    rows = data.correlate_with_mmteb()
    return TableResult(
        title="PosIR and MMTEB retrieval",
        rows=rows,
        tables=[tables.build_table(tables.CORRELATIONS, rows, "PosIR and MMTEB retrieval")],
        sentences=[tables.describe_mmteb(rows)],
        notes=[tables.MMTEB_BRIEF],
        further=[tables.MMTEB_NOTE],
    )


def _tabulate_scores(tasks: tuple[str, ...], *, lengths: bool) -> TableResult:
    rows = tuple(row for name in tasks for row in data.published_rows(name) if lengths or row.length == "all")
    bounded = any(row.psi_chance_mean_at_most is not None for row in rows)
    return TableResult(
        title=f"Published results of {pluralize(len({row.model for row in rows}), 'model')}",
        rows=rows,
        tables=[tables.build_table(tables.ROWS, rows)],
        sentences=[*tables.describe_published(rows)],
        notes=[tables.ROWS_BRIEF],
        further=[tables.ROWS_NOTE, *([tables.POSQ_NOTE] * bounded)],
    )


def _tabulate_bins(tasks: tuple[str, ...]) -> TableResult:
    """Return a line for each curve of PosIR, and one for each position bucket of PosQ."""
    rows = tuple(row for name in tasks for row in data.published_bins(name))
    if not rows:
        raise PosirError(
            f"No position bins are published on {', '.join(tasks)}, but on PosIR, SQuAD-PosQ, FineWeb-PosQ and, for rerankers, "
            "their Tiny samples."
        )
    curves = [curve for name in tasks for curve in data.published_curves(name)]
    buckets = [row for row in rows if row.length == "all"]
    return TableResult(
        title=f"Published results of {pluralize(len({row.model for row in rows}), 'model')}",
        rows=rows,
        tables=[
            *([tables.curves_table(curves)] if curves else []),
            *([tables.build_table(tables.BINS, buckets)] if buckets else []),
        ],
        sentences=[*tables.describe_curves(curves), *tables.describe_bins(buckets)],
        notes=[tables.CURVES_BRIEF if curves else tables.BINS_NOTE],
        further=[tables.CURVES_NOTE, tables.BINS_NOTE] if curves else [],
    )
