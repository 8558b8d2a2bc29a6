"""Progress of a run: a bar on a terminal, one line per job in a log."""

import time
from collections.abc import Callable, Iterable
from datetime import timedelta

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from posir_run.jobs import Failed, Outcome


def report_progress(outcomes: Iterable[Outcome], total: int, warn: Callable[[str], object]) -> list[Failed]:
    """Consume the outcomes of a run and report each and its warnings; return the failures."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = ("Evaluating", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    started, failures = time.monotonic(), []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total, left="")
        for count, outcome in enumerate(outcomes, start=1):
            for warning in outcome.warnings:
                warn(warning)
            left = f"{remaining_time(time.monotonic() - started, count, total)} left"
            bar.update(task, completed=count, left=left)
            failed = isinstance(outcome, Failed)
            if isinstance(outcome, Failed):
                failures.append(outcome)
            if not console.is_terminal:
                console.print(f"{count}/{total} {'failed' if failed else 'done'}: {outcome.job}, {left}", markup=False)
            elif failed:
                console.print(f"[red]failed[/]: {escape(str(outcome.job))}")
    return failures


def remaining_time(elapsed: float, done: int, total: int) -> timedelta:
    """Return the expected time for the remaining jobs, from the mean time of those done."""
    return timedelta(seconds=round(elapsed / done * (total - done)))
