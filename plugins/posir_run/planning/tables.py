"""Output of plans: a table per model, and records for CSV and JSON."""

from collections.abc import Iterator
from typing import Any

from rich.filesize import decimal

from posir_run.planning.calibration import Duration, Speed, SpeedCalibration
from posir_run.planning.plan import CostEstimate, RunPlan
from posir_run.planning.sizes import BUCKETS
from posir_tasks.display.numbers import MISSING, format_count
from posir_tasks.display.tables import Table, build_columns

BRIEF = "Time: of encoding, from a short benchmark on this machine; in parentheses, the range of its rounds."
NUMBERS = ("Jobs", "Documents", "Tokens", "Queries", "Embeddings", "Time")
#: Seconds per unit of time.
TIME_UNITS = {"h": 3_600, "min": 60, "s": 1}


def build_table(plan: RunPlan) -> Table:
    """Return the estimates for one model."""
    return Table(
        build_columns(("Task", *NUMBERS), right=NUMBERS),
        rows=tuple(format_row(estimate) for estimate in table_rows(plan)),
        title=plan.model.name,
    )


def describe_plan(plan: RunPlan) -> str:
    """Return in a sentence how long a run takes, or why that is unknown."""
    if plan.total.duration is None:
        return f"{plan.model.name}: time not estimated, since the model could not be measured ({plan.model.problem})."
    saved = f"; {saved_documents(plan):,} documents fewer with POSIR_EMBEDDINGS" if saved_documents(plan) else ""
    return f"{plan.model.name}: {format_duration(plan.total.duration)} on this machine{saved}."


def build_records(plan: RunPlan) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table as numbers: sizes in bytes, times in seconds."""
    for estimate in table_rows(plan):
        yield {
            "model": plan.model.name,
            "task": estimate.name,
            "jobs": estimate.jobs,
            "documents": sum(estimate.documents.texts),
            "tokens": sum(estimate.documents.tokens),
            "queries": estimate.queries,
            "bytes": estimate.bytes,
            **{f"seconds_{name}": getattr(estimate.duration, name, None) for name in ("low", "mean", "high")},
        }


def table_rows(plan: RunPlan) -> Iterator[CostEstimate]:
    """Yield the estimates of all tasks, and those totals that differ from the rows above them."""
    yield from plan.tasks
    if len(plan.tasks) > 1:
        yield plan.total
    if saved_documents(plan):
        yield plan.with_cache


def saved_documents(plan: RunPlan) -> int:
    """Return how many documents an embedding cache saves; 0 for a model without embeddings."""
    saved = sum(plan.total.documents.texts) - sum(plan.with_cache.documents.texts)
    return saved if plan.model.bytes_per_text else 0


def format_row(estimate: CostEstimate) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        estimate.name,
        format_count(estimate.jobs),
        format_count(sum(estimate.documents.texts)),
        f"{sum(estimate.documents.tokens) / 1e6:,.1f} M",
        format_count(estimate.queries),
        MISSING if estimate.bytes is None else decimal(estimate.bytes),
        MISSING if estimate.duration is None else format_duration(estimate.duration),
    )


def format_duration(duration: Duration) -> str:
    """Return a duration in hours, minutes or seconds, with its range."""
    unit, seconds = next((unit for unit in TIME_UNITS.items() if duration.mean >= unit[1]), ("s", 1))
    return f"{duration.mean / seconds:,.1f} {unit} ({duration.low / seconds:,.1f} to {duration.high / seconds:,.1f})"


def explain_estimates(plan: RunPlan) -> Iterator[str]:
    """Yield what the estimates are based on, and what an embedding cache saves."""
    if plan.counted:
        yield "Sizes: counted in the data, with one token per four bytes."
    else:
        yield "Sizes: published averages (arXiv 2601.08363) for data that is not on this machine, all documents of mean length."
    if plan.model.calibration:
        yield from explain_benchmark(plan.model.calibration, sampled=plan.sampled)
    else:
        yield f"Time: not estimated, since the model could not be measured ({plan.model.problem})."
    if saved := saved_documents(plan):
        yield f"Cache: with POSIR_EMBEDDINGS, {saved:,} documents that several tasks share are not encoded again."


def explain_benchmark(calibration: SpeedCalibration, *, sampled: bool) -> Iterator[str]:
    """Yield how the time was estimated."""
    yield (
        f"Time: of encoding {calibration.place}, from a short benchmark on this machine; in "
        f"parentheses, the range from the fastest to the slowest of {len(calibration.queries.seconds)} rounds."
    )
    texts = "texts of the data" if sampled else "synthetic texts of mean length, since not all data is on this machine"
    rates = [f"{name} {format_rate(speed)}" for name, speed in zip(BUCKETS, calibration.documents, strict=True) if speed]
    yield (
        f"Benchmark: {texts}; tokens per second by length: {', '.join(rates)}; queries per second: "
        f"{format_rate(calibration.queries)}."
    )


def format_rate(speed: Speed) -> str:
    """Return a speed as a rate, with its range and the size of its sample."""
    time = speed.duration()
    return f"{1 / time.mean:,.0f} ({1 / time.high:,.0f} to {1 / time.low:,.0f}; {speed.texts} texts per round)"
