"""Output of plans, as tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from posir_run.planning.calibration import Calibration, Duration, Speed
from posir_run.planning.plan import CostEstimate, Plan
from posir_run.planning.sizes import BUCKETS

NUMBERS = ("Jobs", "Documents", "Tokens", "Queries", "Embeddings", "Time")
#: Printed for unknown values.
UNKNOWN = "–"
#: Seconds per unit of time.
TIME_UNITS = {"h": 3_600, "min": 60, "s": 1}


def print_plans(console: Console, plans: Sequence[Plan]) -> None:
    """Print a table for each model, and the assumptions behind its numbers."""
    for plan in plans:
        table = Table(title=Text(plan.model.name, "bold"), title_justify="left", box=None, header_style="bold")
        table.add_column("Task")
        for heading in NUMBERS:
            table.add_column(heading, justify="right")
        for estimate in (*plan.tasks, *informative_totals(plan)):
            table.add_row(*format_row(estimate))
        console.print(table)
        for sentence in explain_estimates(plan):
            console.print(sentence, markup=False)
        console.print()


def informative_totals(plan: Plan) -> Iterator[CostEstimate]:
    """Yield the totals that differ from the rows above them."""
    if len(plan.tasks) > 1:
        yield plan.total
    if plan.with_cache.documents != plan.total.documents:
        yield plan.with_cache


def format_row(estimate: CostEstimate) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        estimate.name,
        f"{estimate.jobs:,}",
        f"{sum(estimate.documents.texts):,}",
        f"{sum(estimate.documents.tokens) / 1e6:,.1f} M",
        f"{estimate.queries:,}",
        UNKNOWN if estimate.bytes is None else decimal(estimate.bytes),
        UNKNOWN if estimate.duration is None else format_duration(estimate.duration),
    )


def format_duration(duration: Duration) -> str:
    """Return a duration in hours, minutes or seconds, with its range."""
    unit, seconds = next((unit for unit in TIME_UNITS.items() if duration.mean >= unit[1]), ("s", 1))
    return f"{duration.mean / seconds:,.1f} {unit} ({duration.low / seconds:,.1f} to {duration.high / seconds:,.1f})"


def explain_estimates(plan: Plan) -> Iterator[str]:
    """Yield what the estimates are based on, and what an embedding cache saves."""
    if plan.counted:
        yield "Sizes: counted in the data, with one token per four bytes."
    else:
        yield "Sizes: published averages (arXiv 2601.08363) for data that is not on this machine, all documents of mean length."
    if plan.model.calibration:
        yield from explain_benchmark(plan.model.calibration, sampled=plan.sampled)
    else:
        yield f"Time: not estimated, since the model could not be measured ({plan.model.problem})."
    saved = sum(plan.total.documents.texts) - sum(plan.with_cache.documents.texts)
    if saved:
        yield f"Cache: with POSIR_EMBEDDINGS, {saved:,} documents that several tasks share are not encoded again."


def explain_benchmark(calibration: Calibration, *, sampled: bool) -> Iterator[str]:
    """Yield how the time was estimated."""
    yield (
        f"Time: of encoding on one device like this one ({calibration.device}), from a short benchmark on this machine; in "
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
    slowest, fastest = 1 / max(speed.seconds), 1 / min(speed.seconds)
    return f"{1 / speed.mean:,.0f} ({slowest:,.0f} to {fastest:,.0f}; {speed.texts} texts per round)"


def format_json(plans: Sequence[Plan]) -> str:
    """Return plans as JSON: durations in seconds, sizes in bytes, lengths by bucket."""
    return json.dumps([{"length_buckets": BUCKETS, **asdict(plan)} for plan in plans], indent=2)
