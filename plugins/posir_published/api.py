"""The public function of this package: `posir.published`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from posir_published import rows as data
from posir_published.checking import CheckState, check_published
from posir_significance.messages.probes import describe_check, describe_mmteb, label_correlation
from posir_tasks.base.errors import PosirError
from posir_tasks.base.public import Option, public, to_list
from posir_tasks.base.wording import pluralize
from posir_tasks.display.labels import Term, Title
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
from posir_tasks.display.tables import Role, Table, build_columns
from posir_tasks.models.protocols import list_differences
from posir_tasks.values.scores import ALL

NDCG = "ndcg_at_10"
SIGNIFICANT = 0.05
#: Titles of measures of trained models. Titles of cosines are derived from their keys.
MEASURE_TITLES = {NDCG: "nDCG@10", data.PSI: "PSI"}
#: Headings of text columns. All other columns are numeric.
TEXT_COLUMNS = (
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
    "For some of these models, mteb's settings differ from the authors' settings: --explain lists "
    "the differences."
)
ROWS_BRIEF = (
    "nDCG@10 x 100 and PSI (1 - worst / best position bin) as published, without intervals. Chance "
    "increases PSI, most with few queries. Without intervals there is no verdict on bias. –: not "
    "published."
)
CURVES_BRIEF = (
    "nDCG@10 x 100 without intervals; curves are read from the authors' figures. Start minus end: "
    "first minus last third of the bins, not weighted by queries. Without intervals there is no "
    "verdict on bias."
)
ROWS_NOTE = (
    "nDCG@10 x 100 and PSI = 1 - worst / best position bin, as published. The papers report no "
    "intervals and no query counts per model; queries are counted in the datasets. If the queries "
    "per position bucket are known (PosQ), PSI by chance has upper bounds, which are shown for its "
    "mean and 95th percentile. A published PSI below the bound may be due to chance. In PosIR's 20 "
    "bins, chance alone gives a PSI of about 0.07 with 42,000 queries and 0.14 with 10,000 at an "
    "nDCG@10 near 50, and 0.01 and 0.03 near 94. A length bucket has fewer queries than all "
    "lengths together, so chance is a larger share of its PSI."
)
POSQ_NOTE = (
    "For PosQ the paper prints position buckets; nDCG@10 is their mean, weighted by queries. "
    "Late-interaction models and rerankers were evaluated on the Tiny samples. "
    f"{data.NOTABLE_BIAS.title}: {data.NOTABLE_BIAS.description} For FineWeb-PosQ-Raw the paper "
    "prints no PSI, so it is computed from the buckets."
)
TRAINING_BRIEF = "As published, without intervals; each model was trained once. nDCG@10 x 100."
TRAINING_NOTE = Term(
    "PSI reduction (computed)",
    "1 - PSI after training on uniform evidence / worst PSI after "
    "training on evidence at one position. Cosines: between a document and the same document with "
    "text inserted or removed at a position, averaged over insertion and removal.",
)
BINS_NOTE = (
    "nDCG@10 x 100 as published, without intervals. Queries are counted in the dataset; the paper "
    "reports no query counts per model."
)
CURVES_NOTE = (
    "nDCG@10 x 100 in 20 position bins, read from the authors' figures. Curves are included if "
    "their mean is within 0.05 points of the published mean and their PSI, which was not used to "
    "read the figures, is within 0.01. Over position: from the start to the end of documents, on "
    "an axis from 0 to 100. Start minus end: first minus last third of the bins, unweighted and "
    "without intervals, since the queries per bin are not published. Tasks: number of tasks with "
    "curves in an average."
)
MMTEB_BRIEF = (
    "Spearman's rho over models between the MMTEB retrieval score and PosIR's mean nDCG@10 over "
    "ten languages. p is two-sided; p corrected is corrected for the five lengths with Holm's "
    "method."
)
MMTEB_NOTE = (
    "The five tests are not independent. The paper truncates p-values to one digit; here they are "
    "rounded to three decimals."
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
    """Get the results that the papers report, which ship with posir and need no download.

        posir published -t PosIR-English

    Args:
        task: Task or benchmark to show; by default all.
        lengths: Also show the length buckets Q1 to Q4 of PosIR.
        bins: Show nDCG@10 over position, if the authors print it or plot it precisely enough.
        mmteb: Show the rank correlation between PosIR and MMTEB retrieval over the paper's ten
            models (arXiv 2601.08363, Table 2).
        training: Show models trained on evidence at chosen positions: nDCG@10, PSI and cosines.
        check: CSV file to compare with the published results, with the columns task, model, length,
            ndcg_at_10 and psi_as_published, as printed by `--lengths --format csv`. The exit
            status is 1 if values differ.

    Returns:
        Scores in [0, 1], without intervals. Every row names its source. Rows of digitized curves
        contain the digitization errors.

    Raises:
        PosirError: A task has no published results or, with `bins`, no position bins; or options
            cannot be combined.

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
    exclusive: dict[str, object] = {"check": check, "training": training, "mmteb": mmteb}
    options = exclusive | {"bins": bins, "lengths": lengths, "task": task}
    views = [name for name, value in options.items() if value]
    if views[:2] == ["bins", "lengths"] or (len(views) > 1 and views[0] in exclusive):
        raise PosirError(f"{views[0]} cannot be combined with {views[1]}. Give one of them.")
    if check:
        return _tabulate_check(check)
    if training:
        return _tabulate_training()
    if mmteb:
        return tabulate_mmteb()
    all_tasks = data.list_published_tasks()
    tasks = tuple(dict.fromkeys(all_tasks if task is None else to_list(task)))
    for name in tasks:
        if name not in all_tasks:
            raise PosirError(
                f"There are no published results for a task '{name}'. Tasks with published "
                f"results: {', '.join(all_tasks)}."
            )
    return _tabulate_bins(tasks) if bins else _tabulate_scores(tasks, lengths=lengths)


def _tabulate_training() -> Result:
    scores = data.read_training_scores()
    reductions = list(data.compute_psi_reductions(scores))
    reduction_values = {
        (score.source, score.data, score.model): score.value for score in reductions
    }
    rows_by_conditions = defaultdict(list)
    values_by_row: dict[tuple[str, ...], dict[str, float]] = {}
    for score in scores:
        key = (score.data, score.model, score.measure, score.source)
        values_by_row.setdefault(key, {})[score.training] = score.value
    for (dataset, model, measure, source), values in values_by_row.items():
        format_value = format_percent if measure == NDCG else format_psi
        reduction = MISSING
        if measure == data.PSI:
            value = reduction_values[f"computed from {source}", dataset, model]
            reduction = f"{format_percent(value)}%"
        title = MEASURE_TITLES.get(measure, measure.replace("_", ", "))
        cells = [dataset, model, title, *map(format_value, values.values()), reduction, source]
        rows_by_conditions[tuple(values)].append(cells)
    tables = [
        _build_table(["Data", "Model", "Measure", *conditions, "PSI reduction", "Source"], rows)
        for conditions, rows in rows_by_conditions.items()
    ]
    return Result(
        title="Published results of trained models",
        rows=[*scores, *reductions],
        tables=tables,
        notes=[TRAINING_BRIEF],
        details=[TRAINING_NOTE],
    )


def _tabulate_check(file: Path) -> Result:
    values = check_published(file)
    counts = Counter(value.state.value for value in values)
    cells = []
    for value in values:
        if value.state is not CheckState.EQUAL:
            pair = (format_psi(value.given), format_psi(value.published))
            key = (value.task, value.model, value.length, value.score)
            cells.append([*key, value.state, *pair, value.source])
    headings = ["Task", "Model", "Length", "Score", "State", "In the file", "Published", "Source"]
    return Result(
        title=f"{file.name} and the published results",
        rows=values,
        tables=[_build_table(headings, cells)] if cells else [],
        sentences=[describe_check(counts)],
        exit_status=int(bool(cells)),
    )


def tabulate_mmteb() -> Result:
    """Tabulate the rank correlation of PosIR and MMTEB as printed in Table 2 and as computed."""
    rows = data.correlate_with_mmteb()
    _, *by_length = rows
    significant = [row.length for row in by_length if row.p_corrected < SIGNIFICANT]
    sentence = describe_mmteb(
        {row.length: row.rho for row in by_length}, rows[0].models, significant, SIGNIFICANT
    )
    title = "PosIR and MMTEB retrieval"
    cells = []
    for row in rows:
        computed_cells = (format_number(row.rho, ".2f"), format_p_value(row.p_value))
        printed_cells = (format_number(row.printed_rho, ".2f"), str(row.printed_p_value))
        reading = label_correlation(is_clear=row.p_corrected < SIGNIFICANT)
        corrected_cells = (format_p_value(row.p_corrected), reading)
        key = (title, row.length, str(row.models))
        values = (*printed_cells, row.printed_reading, *computed_cells, *corrected_cells)
        cells.append([*key, *values, row.source])
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
    rows = [row for name in tasks for row in data.list_published_rows(name)]
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
        notable = data.format_notable(row.notable_bias) or MISSING
        counts = (row.length, _format_queries(row))
        cells.append([row.task, row.model, *counts, *scores, chance, notable, row.source])
    psi = ("PSI", "PSI by chance at most", data.NOTABLE_BIAS.title)
    headings = ["Task", "Model", "Length", "Queries", "nDCG@10", *psi, "Source"]
    return _build_result(rows, [_build_table(headings, cells)], [ROWS_BRIEF], details)


def _tabulate_bins(tasks: Sequence[str]) -> Result:
    rows = [row for name in tasks for row in data.list_published_bins(name)]
    if not rows:
        raise PosirError(
            f"There are no published position bins for {', '.join(tasks)}. Choose PosIR, "
            "SQuAD-PosQ, FineWeb-PosQ or, for rerankers, their Tiny samples."
        )
    curves = []
    for name in tasks:
        for curve in data.list_published_curves(name):
            task_count = str(curve.tasks) if curve.tasks > 1 else MISSING
            sparkline = draw_sparkline(curve.ndcg_at_10)
            difference = format_points(curve.start_to_end_unweighted)
            key = (curve.task, curve.model, curve.length)
            curves.append([*key, task_count, sparkline, difference, curve.source])
    buckets = []
    for row in rows:
        if row.length == ALL:
            score = format_percent(row.ndcg_at_10)
            key = (row.task, row.model, row.position)
            buckets.append([*key, _format_queries(row), score, row.source])
    tables = []
    notes = [BINS_NOTE]
    details = []
    if curves:
        notes = [CURVES_BRIEF]
        details = [CURVES_NOTE, BINS_NOTE]
        headings = [
            "Task",
            "Model",
            "Length",
            "Tasks",
            "Over position",
            "Start minus end",
            "Source",
        ]
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
    """Build the result for published models, with a note if mteb's settings differ from the
    authors' settings.
    """
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
    """Build a table without empty columns, which terminals split by first column and source."""
    roles = {"Model": Role.NAME, "Task": Role.NAME, "State": Role.STATE}
    columns = build_columns(headings, set(headings) - set(TEXT_COLUMNS), roles=roles)
    title = Title(f"{{{headings[0]}}}", "{Source}")
    return Table(columns, tuple(map(tuple, rows)), split_by=title, keys=2).drop_empty_columns()
