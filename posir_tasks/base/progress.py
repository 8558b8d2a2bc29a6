"""Report the progress of long stages: with bars on a terminal, with lines in a log.

Logs contain progress only if a command runs (`posir_tasks.command.options`).
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from posir_tasks.base.files import is_compressed, iterate_lines, open_decompressed

Item = TypeVar("Item")

#: Seconds after which a log reports a loop for the first time.
BRIEF_SECONDS = 2.0
#: Seconds between two log lines of a stage.
LINE_SECONDS = 60.0
#: Seconds between two checks for due lines.
TICK_SECONDS = 0.5
MEGABYTE = 1_000_000
#: Width of a bar in characters.
BAR_WIDTH = 12
#: Seconds after which a stage gets a bar, so that short stages do not flash.
FLASH_SECONDS = 1.0


#: Function that counts finished steps, by default one. Thread-safe.
Advance = Callable[..., object]


def format_seconds(seconds: float) -> str:
    """Format a duration such as `0:02:05`."""
    return str(timedelta(seconds=round(seconds)))


class LineReporter(Progress):
    """Log a line at the start of each stage and every minute.

    Rich's own reporting prints only at the end unless on a terminal.
    """

    def __init__(
        self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(get_time=clock)
        self.write = write

    @contextmanager
    def show(self, description: str, total: float | None, delay: float) -> Iterator[Advance]:
        """Report a stage, with the first line after `delay` seconds."""
        if not delay:
            self.write(f"{description}: 0 of {total:,.0f}" if total else description)
        task = self.add_task(
            description, total=total, due=self.get_time() + (delay or LINE_SECONDS), advanced=0.0
        )
        try:
            yield lambda steps=1: self.update(task, advance=steps, advanced=self.get_time())
        finally:
            self.remove_task(task)

    def write_due(self) -> None:
        """Write the lines that are due."""
        now = self.get_time()
        for task in self.tasks:
            if now >= task.fields["due"]:
                self.update(task.id, due=now + LINE_SECONDS)
                self.write(f"{task.description}: {_describe_task(task)}")


class ProgressBars(Progress):
    """Progress bars of all stages that take over a second."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the table of bars, unless it is empty."""
        tasks = [task for task in self.tasks if (task.elapsed or 0.0) >= FLASH_SECONDS]
        if tasks:
            yield self.make_tasks_table(tasks)


class StateColumn(ProgressColumn):
    """Finished steps and times next to a bar."""

    def render(self, task: Task) -> Text:
        """Render the text."""
        return Text(_describe_task(task))


def _describe_task(task: Task) -> str:
    """Format finished steps, elapsed time and, after the first step, remaining time."""
    elapsed = task.elapsed or 0.0
    completed_count = task.completed
    duration = f"{format_seconds(elapsed)} elapsed"
    if task.total is None:
        return duration
    state = f"{completed_count:,.0f} of {task.total:,.0f}, {duration}"
    if not completed_count:
        return state
    # Extrapolate from the last finished step. Rich's estimate uses the last half minute, in which
    # no step may have finished.
    expected_seconds = (
        (task.fields["advanced"] - (task.start_time or 0.0)) / completed_count * task.total
    )
    return f"{state}, {format_seconds(max(0.0, expected_seconds - elapsed))} left"


#: Line reporter of the running command. If it is None, terminals show bars.
_line_reporter: ContextVar[LineReporter | None] = ContextVar("_line_reporter", default=None)
#: Bars of all stages on standard error; None if no stage is running.
_bars: Progress | None = None
_lock = threading.Lock()


@contextmanager
def report_progress(*, quiet: bool) -> Iterator[None]:
    """Report progress within the context, with bars on a terminal and else with lines, unless
    `quiet`.
    """
    if not quiet and Console(stderr=True).is_terminal:
        yield
        return
    # Stages may redirect standard error.
    stream = sys.stderr
    end = threading.Event()

    def write(line: str) -> None:
        if not quiet:
            print(line, file=stream, flush=True)

    lines = LineReporter(write)

    def write_until_end() -> None:
        while not end.wait(TICK_SECONDS):
            lines.write_due()

    thread = threading.Thread(target=write_until_end, daemon=True)
    thread.start()
    token = _line_reporter.set(lines)
    try:
        yield
    finally:
        _line_reporter.reset(token)
        end.set()
        thread.join()


@contextmanager
def track(description: str, total: float | None = None, *, delay: float = 0.0) -> Iterator[Advance]:
    """Report a stage of `total` steps, and yield a function that counts steps. Logs report the
    stage after `delay` seconds.
    """
    lines = _line_reporter.get()
    if lines:
        with lines.show(description, total, delay) as advance:
            yield advance
    elif Console(stderr=True).is_terminal:
        with _show_bar(description, total) as advance:
            yield advance
    else:
        yield lambda _steps=1: None


@contextmanager
def _show_bar(description: str, total: float | None) -> Iterator[Advance]:
    """Show a bar that disappears at the end."""
    global _bars
    with _lock:
        if _bars is None:
            # On narrow terminals, wrap the description instead of truncating the state.
            text = TextColumn("{task.description}", markup=False, table_column=Column())
            state = StateColumn(Column(no_wrap=True))
            console = Console(stderr=True)
            _bars = ProgressBars(text, BarColumn(BAR_WIDTH), state, console=console, transient=True)
            clear_bars()
            _bars.start()
        bars = _bars
        task = bars.add_task(description, total=total, advanced=0.0)
    try:
        yield lambda steps=1: bars.update(task, advance=steps, advanced=bars.get_time())
    finally:
        with _lock:
            bars.remove_task(task)
            if not bars.tasks:
                bars.stop()
                _bars = None


def clear_bars() -> None:
    """Clear tqdm's bars before other output. They reappear with their next step."""
    for bar in list(getattr(getattr(sys.modules.get("tqdm"), "tqdm", None), "_instances", ())):
        bar.clear()


def track_items(items: Sequence[Item], description: str) -> Iterable[Item]:
    """Yield items and report progress. Logs report it after `BRIEF_SECONDS`."""
    with track(description, len(items), delay=BRIEF_SECONDS) as advance:
        for item in items:
            yield item
            advance()


def log_progress(text: str) -> None:
    """Write a line to the log, but not to a terminal, which shows bars."""
    lines = _line_reporter.get()
    if lines:
        lines.write(text)


def track_lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file and report progress."""
    description = f"Reading {file.name} (MB)"
    total = None if is_compressed(file) else file.stat().st_size / MEGABYTE
    with open_decompressed(file) as raw, track(description, total, delay=BRIEF_SECONDS) as advance:
        for line in iterate_lines(raw, file):
            yield line
            advance(len(line) / MEGABYTE)
