"""Progress of what takes long: bars on a terminal, lines in a log.

Outside a terminal only commands report (`posir_tasks.command.options`); a library call prints
nothing.
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

#: A loop that ends before is not worth a line.
BRIEF_SECONDS = 2.0
#: Time between two lines on the same stage.
LINE_SECONDS = 60.0
#: How often it is checked whether a line is due.
TICK_SECONDS = 0.5
MEGABYTE = 1_000_000
#: Characters of a bar.
BAR = 12
#: A stage on a terminal that ends before would flash.
FLASH_SECONDS = 1.0


#: Counts steps that are done, one if it gets no number; any thread may call it.
Advance = Callable[..., object]


def format_seconds(seconds: float) -> str:
    """Format a duration such as `0:02:05`."""
    return str(timedelta(seconds=round(seconds)))


class LineReporter(Progress):
    """A line at the beginning of a stage, and one every minute: outside a terminal, Rich prints
    nothing before the end.
    """

    def __init__(
        self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(get_time=clock)
        self.write = write

    @contextmanager
    def show(self, description: str, total: float | None, delay: float) -> Iterator[Advance]:
        """Write the lines of a stage, the first at once or after a delay."""
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
                self.write(f"{task.description}: {_describe(task)}")


class Bars(Progress):
    """Bars of the stages that take over a second, one below the other."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the table of them, if there is one."""
        tasks = [task for task in self.tasks if (task.elapsed or 0.0) >= FLASH_SECONDS]
        if tasks:
            yield self.make_tasks_table(tasks)


class StateColumn(ProgressColumn):
    """The words of a line next to a bar."""

    def render(self, task: Task) -> Text:
        """Return them."""
        return Text(_describe(task))


def _describe(task: Task) -> str:
    """Describe what is done, how long it took, and, once a step is done, how long the others
    take.
    """
    elapsed = task.elapsed or 0.0
    done = task.completed
    took = f"{format_seconds(elapsed)} elapsed"
    if task.total is None:
        return took
    state = f"{done:,.0f} of {task.total:,.0f}, {took}"
    if not done or not task.start_time:
        return f"{state}, {format_seconds(0)} left" if done else state
    # The steps that are done took as long as until the last of them; a long step that is under way
    # is not done. Rich's own estimate is of the last half minute, in which there may be no step.
    expected = (task.fields["advanced"] - task.start_time) / done * task.total
    return f"{state}, {format_seconds(max(0.0, expected - elapsed))} left"


#: The lines of a command, which may go nowhere; without a command, bars on a terminal.
_lines: ContextVar[LineReporter | None] = ContextVar("_lines", default=None)
#: The bars of all stages on the terminal's error stream, one below the other; None while there is
#: no stage.
_bars: Progress | None = None
_lock = threading.Lock()


@contextmanager
def report_progress(*, quiet: bool) -> Iterator[None]:
    """Report progress while the context is open, by lines where there is no terminal; nothing if
    `quiet`.
    """
    if not quiet and Console(stderr=True).is_terminal:
        yield
        return
    # The stream of now: a stage may redirect it while it runs.
    stream = sys.stderr
    ended = threading.Event()

    def write(line: str) -> None:
        if not quiet:
            print(line, file=stream, flush=True)

    lines = LineReporter(write)

    def write_until_ended() -> None:
        while not ended.wait(TICK_SECONDS):
            lines.write_due()

    thread = threading.Thread(target=write_until_ended, daemon=True)
    thread.start()
    token = _lines.set(lines)
    try:
        yield
    finally:
        _lines.reset(token)
        ended.set()
        thread.join()


@contextmanager
def track(description: str, total: float | None = None, *, delay: float = 0.0) -> Iterator[Advance]:
    """Show a stage of `total` steps, in a log after `delay` seconds, and yield a function that
    counts its steps.
    """
    lines = _lines.get()
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
    """Show a bar with the time left, which disappears at its end."""
    global _bars
    with _lock:
        if _bars is None:
            # In a narrow terminal the description is broken, and not the rest cut.
            text = TextColumn("{task.description}", markup=False, table_column=Column())
            parts = text, BarColumn(BAR), StateColumn(Column(no_wrap=True))
            _bars = Bars(*parts, console=Console(stderr=True), transient=True)
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
    """Clear the bars of tqdm, as a line or another bar would begin at their end; they are drawn
    again when they advance.
    """
    for bar in list(getattr(getattr(sys.modules.get("tqdm"), "tqdm", None), "_instances", ())):
        bar.clear()


def progress(items: Sequence[Item], description: str) -> Iterable[Item]:
    """Yield the items and show how many are done; a log mentions the loop only if it takes over two
    seconds.
    """
    with track(description, len(items), delay=BRIEF_SECONDS) as advance:
        for item in items:
            yield item
            advance()


def note_progress(text: str) -> None:
    """Show what a log should have, and a terminal shows by its bars."""
    lines = _lines.get()
    if lines:
        lines.write(text)


def track_reading(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file, and show how much has been read."""
    description = f"Reading {file.name} (MB)"
    total = None if is_compressed(file) else file.stat().st_size / MEGABYTE
    with open_decompressed(file) as raw, track(description, total, delay=BRIEF_SECONDS) as advance:
        for line in iterate_lines(raw, file):
            yield line
            advance(len(line) / MEGABYTE)
