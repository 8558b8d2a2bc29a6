"""The tables of published results, and notes on what they do not give."""

from collections.abc import Iterable, Sequence

from posir_published.curves import PositionCurve
from posir_published.mmteb import MMTEBCorrelation
from posir_published.notable import NOTABLE_BIAS, describe_notable
from posir_published.queries import QueryCount
from posir_published.rows import PublishedBin, PublishedRow
from posir_published.training import PSI, PSI_REDUCTION, TrainingScore
from posir_tasks.display.numbers import MISSING, format_number, format_p_value, format_percent, format_points, format_psi
from posir_tasks.display.sparklines import draw_sparkline
from posir_tasks.display.tables import Table, build_columns

NDCG = "ndcg_at_10"
#: Titles of measures of trained models; those of cosines follow from their keys.
MEASURES = {NDCG: "nDCG@10", PSI: "PSI"}
#: Headings of columns of text; the others are numbers.
TEXTS = ("Task", "Model", "Length", "Position", "Over position", "Notable bias", "Measure", "Data", "Source")

ROWS_BRIEF = (
    "nDCG@10 x 100 and PSI (1 - worst / best position bin) as published, without intervals: chance adds to PSI, most with few "
    "queries. –: not given."
)
CURVES_BRIEF = (
    "nDCG@10 x 100 without intervals; curves are read from the authors' figures. Thirds: means of their bins, not weighted by "
    "queries. Start to end: first minus last third."
)
ROWS_NOTE = (
    "nDCG@10 x 100 and PSI = 1 - worst / best position bin, as published. The papers give no intervals and no counts per "
    "model; the queries are those of the datasets. PSI under the null cannot be computed from that, but bounded from above "
    "where the number of queries of each position bucket is known (PosQ): at most the mean and the 95th percentile shown "
    "here. A published PSI below that bound may be chance. In PosIR's 20 bins chance alone gives about 0.07 with 42,000 "
    "queries and 0.14 with 10,000 at an nDCG@10 near 50, and 0.01 and 0.03 near 94; a length bucket has fewer queries than all "
    "lengths together, so more of its PSI is chance."
)
POSQ_NOTE = (
    "For PosQ the paper prints position buckets; nDCG@10 is their mean, weighted by queries. Its late-interaction models and "
    f"rerankers were run on the Tiny samples. {NOTABLE_BIAS.title}: {NOTABLE_BIAS.description} The PSI of FineWeb-PosQ-Raw "
    "are computed from its buckets, as its paper prints none."
)
TRAINING_BRIEF = "As published, without intervals; each model was trained once. nDCG@10 x 100."
TRAINING_NOTE = (
    "PSI reduction: 1 - PSI after training on uniform evidence / worst PSI after training on evidence at one position, "
    "computed here. Cosines: between a document and the document with text inserted or removed at a place, mean over "
    "both kinds."
)
BINS_NOTE = (
    "nDCG@10 x 100 as published, without intervals. The queries are those of the dataset; the paper gives none per model."
)
CURVES_NOTE = (
    "nDCG@10 x 100 in 20 position bins, read from the authors' figures: only curves whose mean is within 0.05 points of the "
    "published one and whose PSI, which the reading did not use, within 0.01. Over position: from the start to the end of "
    "documents, on an axis from 0 to 100. First, middle and last third: means of their bins, not weighted by queries, whose "
    "numbers are not published, and so without intervals. Start to end: first minus last third. An average is over the tasks "
    "whose curves are known, and tasks are their number."
)
MMTEB_BRIEF = (
    "Spearman's rho over models between the MMTEB retrieval score and PosIR's average nDCG@10 over its ten languages; p is "
    "two-sided and not corrected."
)
MMTEB_NOTE = (
    "There are five tests, which are not independent. The paper truncates its p-values to one digit; here they are rounded to "
    "three decimals."
)


def rows_table(rows: Sequence[PublishedRow]) -> Table:
    """Return a table with a line per model, task and length."""
    return _build_table(
        ("Model", "Length", "Queries", "nDCG@10", "PSI", "PSI under the null at most", NOTABLE_BIAS.title),
        (
            (
                row.task,
                row.model,
                row.length,
                _format_queries(row),
                format_percent(row.ndcg_at_10),
                format_psi(row.psi_as_published),
                _format_bound(row),
                describe_notable(row.notable_bias) or MISSING,
                row.source,
            )
            for row in rows
        ),
    )


def bins_table(rows: Iterable[PublishedBin]) -> Table:
    """Return a table with a line per model, task and position bucket."""
    return _build_table(
        ("Model", "Position", "Queries", "nDCG@10"),
        ((row.task, row.model, row.position, _format_queries(row), format_percent(row.ndcg_at_10), row.source) for row in rows),
    )


def curves_table(curves: Sequence[PositionCurve]) -> Table:
    """Return a table with a line per model, task and length bucket; of averages with their numbers of tasks."""
    averages = any(curve.tasks > 1 for curve in curves)
    return _build_table(
        (
            "Model",
            "Length",
            *(["Tasks"] * averages),
            "Over position",
            "First third",
            "Middle third",
            "Last third",
            "Start to end",
        ),
        (
            (
                curve.task,
                curve.model,
                curve.length,
                *([str(curve.tasks)] * averages),
                draw_sparkline(curve.ndcg_at_10),
                *(format_percent(score) for score in curve.thirds),
                format_points(curve.start_to_end_unweighted),
                curve.source,
            )
            for curve in curves
        ),
    )


def correlations_table(rows: Iterable[MMTEBCorrelation]) -> Table:
    """Return a table with a line per length."""
    return _build_table(
        ("Length", "Models", "Spearman", "p", "Spearman as printed", "p as printed"),
        (
            (
                "PosIR and MMTEB retrieval",
                row.length,
                str(row.models),
                format_number(row.rho, ".2f"),
                format_p_value(row.p_value),
                format_number(row.printed_rho, ".2f"),
                str(row.printed_p_value),
                row.source,
            )
            for row in rows
        ),
    )


def training_tables(scores: Sequence[TrainingScore]) -> list[Table]:
    """Return a table for each set of training conditions, with a line per data, model and measure."""
    groups: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for score in scores:
        groups.setdefault((score.source, score.data, score.model, score.measure), {})[score.training] = score.value
    trainings = dict.fromkeys(tuple(values) for values in groups.values() if len(values) > 1)
    reductions = {key[1:3]: value for key, values in groups.items() if key[3] == PSI_REDUCTION for value in values.values()}
    tables = []
    for conditions in trainings:
        rows = [(key, values) for key, values in groups.items() if tuple(values) == conditions]
        reduced = any(measure == PSI for (_, _, _, measure), _ in rows)
        columns = ("Data", "Model", "Measure", *conditions, *(["PSI reduction"] * reduced), "Source")
        cells = tuple(
            (
                data,
                model,
                MEASURES.get(measure, measure.replace("_", ", ")),
                *(_format_measure(measure, value) for value in values.values()),
                *([_format_reduction(reductions.get((data, model)) if measure == PSI else None)] * reduced),
                source,
            )
            for (source, data, model, measure), values in rows
        )
        numbers = set(columns) - set(TEXTS)
        tables.append(Table(build_columns(columns, numbers), cells, split_by="{Data} · {Source}", keys=2))
    return tables


def _format_reduction(value: float | None) -> str:
    return MISSING if value is None else f"{format_percent(value)} %"


def _format_measure(measure: str, value: float) -> str:
    return format_percent(value) if measure == NDCG else format_number(value, ".3f")


def _build_table(headings: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Table:
    """Return a table that a terminal shows by task and source, without columns that no row fills."""
    columns = ("Task", *headings, "Source")
    table = Table(build_columns(columns, set(columns) - set(TEXTS)), tuple(rows), split_by="{Task} · {Source}", keys=2)
    return table.without_empty_columns()


def _format_queries(row: PublishedRow | PublishedBin) -> str:
    return MISSING if row.queries is None else str(QueryCount(row.queries, row.queries_exact))


def _format_bound(row: PublishedRow) -> str:
    if row.psi_null_mean_at_most is None:
        return MISSING
    return f"{format_psi(row.psi_null_mean_at_most)} to {format_psi(row.psi_null_p95_at_most)}"
