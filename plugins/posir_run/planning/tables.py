"""The forms in which plans are printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from posir_run.planning.calibration import Calibration, Duration, Speed
from posir_run.planning.plan import Load, Plan
from posir_run.planning.sizes import BUCKETS

NUMBERS = ("Units", "Documents", "Tokens", "Queries", "Embeddings", "Time")
#: What is printed for what is unknown.
NONE = "–"
#: Seconds of the units of time.
UNITS = {"h": 3_600, "min": 60, "s": 1}


def print_plans(console: Console, plans: Sequence[Plan]) -> None:
    """Print a table for each model, and in words what its numbers rest on."""
    for plan in plans:
        table = Table(title=Text(plan.model.name, "bold"), title_justify="left", box=None, header_style="bold")
        table.add_column("Task")
        for heading in NUMBERS:
            table.add_column(heading, justify="right")
        for load in (*plan.tasks, *sums(plan)):
            table.add_row(*cells(load))
        console.print(table)
        for sentence in sentences(plan):
            console.print(sentence, markup=False)
        console.print()


def sums(plan: Plan) -> Iterator[Load]:
    """Yield those sums that say something new."""
    if len(plan.tasks) > 1:
        yield plan.total
    if plan.stored.documents != plan.total.documents:
        yield plan.stored


def cells(load: Load) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        load.name,
        f"{load.units:,}",
        f"{sum(load.documents.texts):,}",
        f"{sum(load.documents.tokens) / 1e6:,.1f} M",
        f"{load.queries:,}",
        NONE if load.bytes is None else decimal(load.bytes),
        NONE if load.duration is None else time_of(load.duration),
    )


def time_of(duration: Duration) -> str:
    """Return a duration in hours, minutes or seconds, with its range."""
    unit, seconds = next((one for one in UNITS.items() if duration.mean >= one[1]), ("s", 1))
    return f"{duration.mean / seconds:,.1f} {unit} ({duration.low / seconds:,.1f} to {duration.high / seconds:,.1f})"


def sentences(plan: Plan) -> Iterator[str]:
    """Say what the numbers rest on, and what a store of embeddings spares."""
    if plan.counted:
        yield "Sizes: counted in the data; a token is four bytes."
    else:
        yield "Sizes: published averages (arXiv 2601.08363) where the data is not at hand, all documents as long as the mean."
    if plan.model.calibration:
        yield from measured(plan.model.calibration, drawn=plan.drawn)
    else:
        yield f"Time: not estimated, since the model could not be measured ({plan.model.problem})."
    spared = sum(plan.total.documents.texts) - sum(plan.stored.documents.texts)
    if spared:
        yield f"Store: with POSIR_EMBEDDINGS {spared:,} documents, which several tasks share, are not encoded again."


def measured(calibration: Calibration, *, drawn: bool) -> Iterator[str]:
    """Say how a model was measured."""
    yield (
        f"Time: of encoding, on one device as here ({calibration.device}); in brackets what the fastest and the slowest of "
        f"{len(calibration.queries.seconds)} rounds would make of it."
    )
    texts = "texts of the data" if drawn else "made texts of the mean length, where the data is not at hand"
    rates = [f"{name} {rate(speed)}" for name, speed in zip(BUCKETS, calibration.documents, strict=True) if speed]
    yield f"Measured with {texts}: tokens a second by length {', '.join(rates)}; queries a second {rate(calibration.queries)}."


def rate(speed: Speed) -> str:
    """Return a speed with its range and its sample."""
    slowest, fastest = 1 / max(speed.seconds), 1 / min(speed.seconds)
    return f"{1 / speed.mean:,.0f} ({slowest:,.0f} to {fastest:,.0f}; {speed.texts} texts a round)"


def as_json(plans: Sequence[Plan]) -> str:
    """Return plans as JSON: durations in seconds, sizes in bytes, lengths by bucket."""
    return json.dumps([record(plan) for plan in plans], indent=2)


def record(plan: Plan) -> dict[str, Any]:
    """Return a plan under its names."""
    return {"length_buckets": BUCKETS, **asdict(plan)}
