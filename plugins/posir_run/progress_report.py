"""How far a run is: a bar on a terminal, and elsewhere a line for each unit, as a log wants it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from posir_run.jobs import Failed, Outcome


def tell(outcomes: Iterable[Outcome], total: int) -> list[Failed]:
    """Go through the outcomes and tell of each; return those that failed."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = ("Evaluating", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    started, failed = time.monotonic(), []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task("", total=total, left="")
        for count, outcome in enumerate(outcomes, start=1):
            left = f"{time_left(time.monotonic() - started, count, total)} left"
            bar.update(shown, completed=count, left=left)
            if isinstance(outcome, Failed):
                failed.append(outcome)
            if not console.is_terminal:
                console.print(
                    f"{count}/{total} {'failed' if isinstance(outcome, Failed) else 'done'}: {outcome.unit}, {left}",
                    markup=False,
                )
            elif isinstance(outcome, Failed):
                console.print(f"[red]failed[/]: {escape(str(outcome.unit))}")
    return failed


def time_left(elapsed: float, done: int, total: int) -> timedelta:
    """Return the time that the rest takes if its units take as long as those done."""
    return timedelta(seconds=round(elapsed / done * (total - done)))
