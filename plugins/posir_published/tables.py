"""The tables of published results, notes on what they do not give, and findings in sentences, computed from what is shown."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from posir_published.rows import (
    NOTABLE_BIAS,
    PSI,
    PSI_REDUCTION,
    MMTEBCorrelation,
    PositionCurve,
    PublishedBin,
    PublishedRow,
    QueryCount,
    TrainingScore,
    describe_notable,
)
from posir_tasks.display.numbers import (
    MISSING,
    draw_sparkline,
    format_number,
    format_p_value,
    format_percent,
    format_points,
    format_psi,
)
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import pluralize

#: How the cell below a heading is written.
Columns: TypeAlias = Mapping[str, Callable[[Any], str]]
NDCG = "ndcg_at_10"
#: Most tasks with a sentence each.
MOST_TASKS = 3
SIGNIFICANT = 0.05
#: Titles of measures of trained models; those of cosines follow from their keys.
MEASURES = {NDCG: "nDCG@10", PSI: "PSI"}
#: Headings of columns of text; the others are numbers.
TEXTS = ("Task", "Model", "Length", "Position", "Over position", "Notable bias", "Measure", "Data", "Source")

ROWS_BRIEF = (
    "nDCG@10 x 100 and PSI (1 - worst / best position bin) as published, without intervals: chance adds to PSI, most with few "
    "queries. Whether a model is biased: not published, as no intervals follow from these. –: not given."
)
CURVES_BRIEF = (
    "nDCG@10 x 100 without intervals; curves are read from the authors' figures. Thirds: means of their bins, not weighted by "
    "queries. Start to end: first minus last third. Whether a model is biased: not published."
)
ROWS_NOTE = (
    "nDCG@10 x 100 and PSI = 1 - worst / best position bin, as published. The papers give no intervals and no counts per "
    "model; the queries are those of the datasets. PSI by chance cannot be computed from that, but bounded from above "
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


def _format_queries(row: PublishedRow | PublishedBin) -> str:
    return MISSING if row.queries is None else str(QueryCount(row.queries, row.queries_exact))


def _format_chance(row: PublishedRow) -> str:
    low, high = row.psi_chance_mean_at_most, row.psi_chance_p95_at_most
    return MISSING if low is None else f"{format_psi(low)} to {format_psi(high)}"


#: A line per model, task and length.
ROWS: Columns = {
    "Model": lambda row: row.model,
    "Length": lambda row: row.length,
    "Queries": _format_queries,
    "nDCG@10": lambda row: format_percent(row.ndcg_at_10),
    "PSI": lambda row: format_psi(row.psi_as_published),
    "PSI by chance at most": _format_chance,
    NOTABLE_BIAS.title: lambda row: describe_notable(row.notable_bias) or MISSING,
}
#: A line per model, task and position bucket.
BINS: Columns = {
    "Model": lambda row: row.model,
    "Position": lambda row: row.position,
    "Queries": _format_queries,
    "nDCG@10": lambda row: format_percent(row.ndcg_at_10),
}
#: A line per length.
CORRELATIONS: Columns = {
    "Length": lambda row: row.length,
    "Models": lambda row: str(row.models),
    "Spearman": lambda row: format_number(row.rho, ".2f"),
    "p": lambda row: format_p_value(row.p_value),
    "Spearman as printed": lambda row: format_number(row.printed_rho, ".2f"),
    "p as printed": lambda row: str(row.printed_p_value),
}


def curves_table(curves: Sequence[PositionCurve]) -> Table:
    """Return a table with a line per model, task and length bucket; of averages with their numbers of tasks."""
    tasks: Columns = {"Tasks": lambda curve: str(curve.tasks)}
    columns: Columns = {
        "Model": lambda curve: curve.model,
        "Length": lambda curve: curve.length,
        **(tasks if any(curve.tasks > 1 for curve in curves) else {}),
        "Over position": lambda curve: draw_sparkline(curve.ndcg_at_10),
        "First third": lambda curve: format_percent(curve.thirds[0]),
        "Middle third": lambda curve: format_percent(curve.thirds[1]),
        "Last third": lambda curve: format_percent(curve.thirds[2]),
        "Start to end": lambda curve: format_points(curve.start_to_end_unweighted),
    }
    return build_table(columns, curves)


def training_tables(scores: Sequence[TrainingScore]) -> list[Table]:
    """Return a table for each set of training conditions, with a line per data, model and measure."""

    def format_measure(measure: str, value: float) -> str:
        return format_percent(value) if measure == NDCG else format_number(value, ".3f")

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
                *(format_measure(measure, value) for value in values.values()),
                *([f"{format_percent(reductions[data, model])} %" if measure == PSI else MISSING] * reduced),
                source,
            )
            for (source, data, model, measure), values in rows
        )
        numbers = set(columns) - set(TEXTS)
        tables.append(Table(build_columns(columns, numbers), cells, split_by="{Data} · {Source}", keys=2))
    return tables


def build_table(columns: Columns, rows: Sequence[Any], task: str = "") -> Table:
    """Return a table that a terminal shows by task and source, without columns that no row fills."""
    headings = ("Task", *columns, "Source")
    cells = tuple((task or row.task, *(show(row) for show in columns.values()), row.source) for row in rows)
    table = Table(build_columns(headings, set(headings) - set(TEXTS)), cells, split_by="{Task} · {Source}", keys=2)
    return table.without_empty_columns()


def describe_published(rows: Sequence[PublishedRow]) -> Iterator[str]:
    """Yield for each task the best model and the lowest and highest PSI, at the longest length shown; if many, for all."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    for task in tasks[:MOST_TASKS] if len(tasks) <= MOST_TASKS else tasks[:1]:
        length = next(row.length for row in reversed(rows) if row.task == task)
        shown = [row for row in rows if row.task == task and row.length == length]
        best = max(shown, key=lambda row: row.ndcg_at_10)
        low, high = (choose(shown, key=lambda row: row.psi_as_published) for choose in (min, max))
        where = task if length == "all" else f"{task}, {length}"
        yield (
            f"{where}: {best.model} has the highest nDCG@10, {format_percent(best.ndcg_at_10)}. PSI is between "
            f"{format_psi(low.psi_as_published)} ({low.model}) and {format_psi(high.psi_as_published)} ({high.model})."
        )
    if len(tasks) > MOST_TASKS:
        low, high = (choose(rows, key=lambda row: row.psi_as_published) for choose in (min, max))
        yield (
            f"In all {pluralize(len(tasks), 'task and average', 'tasks and averages')} PSI is between "
            f"{format_psi(low.psi_as_published)} ({low.model}, {low.task}) and {format_psi(high.psi_as_published)} "
            f"({high.model}, {high.task})."
        )


def describe_curves(curves: Sequence[PositionCurve]) -> Iterator[str]:
    """Yield the range of start to end in the longest length bucket of the first task, and of all curves if there are more."""
    if not curves:
        return
    task, length = curves[0].task, max(curve.length for curve in curves if curve.task == curves[0].task)
    shown = [curve for curve in curves if (curve.task, curve.length) == (task, length)]
    low, high = (choose(shown, key=lambda curve: curve.start_to_end_unweighted) for choose in (min, max))
    yield (
        f"{task}, {length}: nDCG@10 in the first third of documents minus the last is between "
        f"{format_points(low.start_to_end_unweighted)} ({low.model}) and {format_points(high.start_to_end_unweighted)} "
        f"({high.model}), of {pluralize(len(shown), 'curve')}."
    )


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
    shown = f"only in {' and '.join(clear)}" if clear else "in no length"
    return (
        f"MMTEB's order of models is that of PosIR less the longer documents are: Spearman {first.rho:.2f} in {first.length}, "
        f"{last.rho:.2f} in {last.length}; over {rows[0].models} models that they agree is shown {shown} (p < {SIGNIFICANT})."
    )


def describe_training(scores: Iterable[TrainingScore]) -> str:
    """Return by how much training on evidence at all positions lowers PSI."""
    reductions = sorted(score.value for score in scores if score.measure == PSI_REDUCTION)
    low, high = format_percent(reductions[0]), format_percent(reductions[-1])
    return (
        f"After training on evidence at all positions alike, PSI is {low} % to {high} % lower than after the worst training on "
        f"evidence at one position ({len(reductions)} comparisons)."
    )
