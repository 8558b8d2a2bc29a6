"""The public function of this package: `posir.published`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from posir_published import rows as data
from posir_published.checking import CheckState, check_published
from posir_significance.messages.probes import describe_check, describe_mmteb, label_correlation
from posir_tasks.base.errors import PosirError
from posir_tasks.base.public import Option, public, to_list
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import (
    MISSING,
    draw_sparkline,
    format_number,
    format_p_value,
    format_percent,
    format_points,
    format_psi,
)
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.models.protocols import list_differences
from posir_tasks.values.scores import ALL

NDCG = "ndcg_at_10"
SIGNIFICANT = 0.05
#: Titles of measures of trained models; those of cosines follow from their keys.
MEASURES = {NDCG: "nDCG@10", data.PSI: "PSI"}
#: Headings of columns of text; the others are numbers.
TEXTS = (
    "Task",
    "Data",
    "Model",
    "Measure",
    "Length",
    "Position",
    "Over position",
    "Notable bias",
    "Score",
    "State",
    "Paper's reading",
    "Corrected reading",
    "Source",
)

DIFFERENCES_BRIEF = (
    "mteb runs some of these models with other settings than the authors: --explain says which."
)
ROWS_BRIEF = (
    "nDCG@10 x 100 and PSI (1 - worst / best position bin) as published, without intervals: "
    "chance adds to PSI, most with few queries. Whether a model is biased: not published, as no "
    "intervals follow from these. –: not given."
)
CURVES_BRIEF = (
    "nDCG@10 x 100 without intervals; curves are read from the authors' figures. Start to end: "
    "first minus last third of their bins, not weighted by queries. Whether a model is biased: not "
    "published."
)
ROWS_NOTE = (
    "nDCG@10 x 100 and PSI = 1 - worst / best position bin, as published. The papers give no "
    "intervals and no counts per model; the queries are those of the datasets. PSI by chance "
    "cannot be computed from that, but bounded from above where the number of queries of each "
    "position bucket is known (PosQ): at most the mean and the 95th percentile shown here. A "
    "published PSI below that bound may be chance. In PosIR's 20 bins chance alone gives about "
    "0.07 with 42,000 queries and 0.14 with 10,000 at an nDCG@10 near 50, and 0.01 and 0.03 near "
    "94; a length bucket has fewer queries than all lengths together, so more of its PSI is "
    "chance."
)
POSQ_NOTE = (
    "For PosQ the paper prints position buckets; nDCG@10 is their mean, weighted by queries. Its "
    "late-interaction models and rerankers were run on the Tiny samples. "
    f"{data.NOTABLE_BIAS.title}: {data.NOTABLE_BIAS.description} The PSI of FineWeb-PosQ-Raw are "
    "computed from its buckets, as its paper prints none."
)
TRAINING_BRIEF = "As published, without intervals; each model was trained once. nDCG@10 x 100."
TRAINING_NOTE = (
    "PSI reduction: 1 - PSI after training on uniform evidence / worst PSI after training on "
    "evidence at one position, computed here. Cosines: between a document and the document with "
    "text inserted or removed at a place, mean over both kinds."
)
BINS_NOTE = (
    "nDCG@10 x 100 as published, without intervals. The queries are those of the dataset; the "
    "paper gives none per model."
)
CURVES_NOTE = (
    "nDCG@10 x 100 in 20 position bins, read from the authors' figures: only curves whose mean "
    "is within 0.05 points of the published one and whose PSI, which the reading did not use, "
    "within 0.01. Over position: from the start to the end of documents, on an axis from 0 to "
    "100. Start to end: first minus last third of the bins, not weighted by queries, whose numbers "
    "are not published, and so without intervals. An average is over the tasks whose curves are "
    "known, and tasks are their number."
)
MMTEB_BRIEF = (
    "Spearman's rho over models between the MMTEB retrieval score and PosIR's average nDCG@10 "
    "over its ten languages; p is two-sided, p corrected by Holm's method for the five lengths."
)
MMTEB_NOTE = (
    "There are five tests, which are not independent. The paper truncates its p-values to one "
    "digit; here they are rounded to three decimals."
)


@public()
def published(
    *,
    task: Annotated[str | Iterable[str] | None, Option(short="-t")] = None,
    lengths: bool = False,
    bins: bool = False,
    mmteb: bool = False,
    training: bool = False,
    check: Path | None = None,
) -> Result:
    """Get the results that the papers report; they ship with posir, so nothing is downloaded.

        posir published -t PosIR-English

    Args:
        task: A task or benchmark to show; by default all.
        lengths: Show the length buckets Q1 to Q4 of PosIR, too.
        bins: Show nDCG@10 over position, where the authors print it or draw it precisely.
        mmteb: Show instead how PosIR and MMTEB retrieval order the ten models of the paper (arXiv
            2601.08363, Table 2).
        training: Show instead models after training on evidence at chosen positions: nDCG@10, PSI
            and cosines.
        check: Compare instead a CSV file with these results: columns task, model, length,
            ndcg_at_10 and psi_as_published, as `--lengths --format csv` prints them; exit status 1
            if values differ.

    Returns:
        Scores in [0, 1], without intervals, which the papers do not give. Every row names its
        source; a curve that was read from a figure also the errors of the reading.

    Raises:
        PosirError: Nothing is published on one of the tasks; or with `bins`, no positions are; or
            views are combined.

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
    if check is not None:
        if task or lengths or bins or mmteb or training:
            raise PosirError("--check compares a file of its own; use it without other options.")
        return _tabulate_check(check)
    if training and (task or lengths or bins or mmteb):
        raise PosirError(
            "training shows trained models, whose data are no tasks; use it without other options "
            "of content."
        )
    if mmteb and (task or lengths or bins):
        raise PosirError(
            "mmteb shows PosIR's average over tasks, at every length; use it without task, "
            "lengths and bins."
        )
    if lengths and bins:
        raise PosirError("bins shows PosIR by length already; omit lengths.")
    if training:
        return _tabulate_training()
    if mmteb:
        return tabulate_mmteb()
    known = data.published_tasks()
    tasks = tuple(dict.fromkeys(known if task is None else to_list(task)))
    for name in tasks:
        if name not in known:
            raise PosirError(
                f"There are no published results for a task '{name}'. Tasks with published "
                f"results: {', '.join(known)}."
            )
    return _tabulate_bins(tasks) if bins else _tabulate_scores(tasks, lengths=lengths)


def _tabulate_training() -> Result:
    scores = data.read_training_scores()
    reductions = list(data.psi_reductions(scores))
    reduced = {(score.source, score.data, score.model): score.value for score in reductions}
    by_conditions: dict[tuple[str, ...], list[list[str]]] = {}
    lines: dict[tuple[str, ...], dict[str, float]] = {}
    for score in scores:
        key = (score.data, score.model, score.measure, score.source)
        lines.setdefault(key, {})[score.training] = score.value
    for (dataset, model, measure, source), values in lines.items():
        form = format_percent if measure == NDCG else format_psi
        reduction = MISSING
        if measure == data.PSI:
            reduction = f"{format_percent(reduced[f'computed from {source}', dataset, model])}%"
        title = MEASURES.get(measure, measure.replace("_", ", "))
        cells = [dataset, model, title, *map(form, values.values()), reduction, source]
        by_conditions.setdefault(tuple(values), []).append(cells)
    tables = [
        _build_table(["Data", "Model", "Measure", *conditions, "PSI reduction", "Source"], rows)
        for conditions, rows in by_conditions.items()
    ]
    title = "Published results of trained models"
    rows = [*scores, *reductions]
    return Result(
        title=title, rows=rows, tables=tables, notes=[TRAINING_BRIEF], details=[TRAINING_NOTE]
    )


def _tabulate_check(file: Path) -> Result:
    checked = check_published(file)
    counts = Counter(value.state.value for value in checked)
    cells = []
    for value in checked:
        if value.state is not CheckState.EQUAL:
            pair = (format_psi(value.given), format_psi(value.published))
            place = (value.task, value.model, value.length, value.score)
            cells.append([*place, value.state, *pair, value.source])
    headings = ["Task", "Model", "Length", "Score", "State", "In the file", "Published", "Source"]
    return Result(
        title=f"{file.name} and the published results",
        rows=checked,
        tables=[_build_table(headings, cells)] if cells else [],
        sentences=[describe_check(counts)],
        exit_status=int(len(cells) > 0),
    )


def tabulate_mmteb() -> Result:
    """Show how PosIR and MMTEB order models: the paper's reading of Table 2, and the corrected
    one.
    """
    rows = data.correlate_with_mmteb()
    _, *by_length = rows
    clear = [row.length for row in by_length if row.p_corrected < SIGNIFICANT]
    sentence = describe_mmteb(
        {row.length: row.rho for row in by_length}, rows[0].models, clear, SIGNIFICANT
    )
    title = "PosIR and MMTEB retrieval"
    cells = []
    for row in rows:
        computed = (format_number(row.rho, ".2f"), format_p_value(row.p_value))
        printed = (format_number(row.printed_rho, ".2f"), str(row.printed_p_value))
        reading = label_correlation(is_clear=row.p_corrected < SIGNIFICANT)
        corrected = (format_p_value(row.p_corrected), reading)
        place = (title, row.length, str(row.models))
        cells.append([*place, *printed, row.printed_reading, *computed, *corrected, row.source])
    headings = ["Task", "Length", "Models", "Spearman as printed", "p as printed"]
    headings += ["Paper's reading", "Spearman", "p", "p corrected", "Corrected reading", "Source"]
    return Result(
        title=title,
        rows=rows,
        tables=[_build_table(headings, cells)],
        sentences=[sentence],
        notes=[MMTEB_BRIEF],
        details=[MMTEB_NOTE],
    )


def _tabulate_scores(tasks: Sequence[str], *, lengths: bool) -> Result:
    rows = [row for name in tasks for row in data.published_rows(name)]
    if not lengths:
        rows = [row for row in rows if row.length == ALL]
    details = [ROWS_NOTE]
    cells = []
    for row in rows:
        chance = MISSING
        if row.psi_chance_mean_at_most is not None:
            details = [ROWS_NOTE, POSQ_NOTE]
            p95 = format_psi(row.psi_chance_p95_at_most)
            chance = f"{format_psi(row.psi_chance_mean_at_most)} to {p95}"
        scores = (format_percent(row.ndcg_at_10), format_psi(row.psi_as_published))
        notable = data.describe_notable(row.notable_bias) or MISSING
        counts = (row.length, _format_queries(row))
        cells.append([row.task, row.model, *counts, *scores, chance, notable, row.source])
    psi = ("PSI", "PSI by chance at most", data.NOTABLE_BIAS.title)
    headings = ["Task", "Model", "Length", "Queries", "nDCG@10", *psi, "Source"]
    return _build_result(rows, [_build_table(headings, cells)], [ROWS_BRIEF], details)


def _tabulate_bins(tasks: Sequence[str]) -> Result:
    rows = [row for name in tasks for row in data.published_bins(name)]
    if not rows:
        raise PosirError(
            f"No position bins are published on {', '.join(tasks)}, but on PosIR, SQuAD-PosQ, "
            "FineWeb-PosQ and, for rerankers, their Tiny samples."
        )
    curves = []
    for curve in (curve for name in tasks for curve in data.published_curves(name)):
        number = str(curve.tasks) if curve.tasks > 1 else MISSING
        drawn = draw_sparkline(curve.ndcg_at_10)
        difference = format_points(curve.start_to_end_unweighted)
        place = (curve.task, curve.model, curve.length)
        curves.append([*place, number, drawn, difference, curve.source])
    buckets = []
    for row in (row for row in rows if row.length == ALL):
        score = format_percent(row.ndcg_at_10)
        place = (row.task, row.model, row.position)
        buckets.append([*place, _format_queries(row), score, row.source])
    tables = []
    notes = [BINS_NOTE]
    details = []
    if curves:
        notes = [CURVES_BRIEF]
        details = [CURVES_NOTE, BINS_NOTE]
        headings = ["Task", "Model", "Length", "Tasks", "Over position", "Start to end", "Source"]
        tables.append(_build_table(headings, curves))
    if buckets:
        headings = ["Task", "Model", "Position", "Queries", "nDCG@10", "Source"]
        tables.append(_build_table(headings, buckets))
    return _build_result(rows, tables, notes, details)


def _build_result(
    rows: Sequence[data.PublishedRow | data.PublishedBin],
    tables: Sequence[Table],
    notes: Sequence[str],
    details: Sequence[str],
) -> Result:
    """Build the result of published models, with what mteb runs with other settings."""
    differences = list_differences((row.task, row.model) for row in rows)
    models = {row.model for row in rows}
    return Result(
        title=f"Published results of {pluralize(len(models), 'model')}",
        rows=rows,
        tables=tables,
        notes=[*notes, DIFFERENCES_BRIEF] if differences else notes,
        details=[*details, *differences],
    )


def _format_queries(row: data.PublishedRow | data.PublishedBin) -> str:
    if row.queries is None:
        return MISSING
    return f"{row.queries:,}" if row.queries_exact else f"about {row.queries:,}"


def _build_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Build a table that a terminal shows by its first column and source, without columns that no
    row fills.
    """
    columns = build_columns(headings, set(headings) - set(TEXTS))
    parts = f"{{{headings[0]}}} · {{Source}}"
    return Table(columns, tuple(map(tuple, rows)), split_by=parts, keys=2).without_empty_columns()
