"""Progress of what takes long: bars on a terminal, lines in a log.

Outside a terminal only commands report (`posir_tasks.command.progress_option`); a library call prints nothing.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from posir_tasks.files import is_compressed, open_decompressed

Item = TypeVar("Item")

#: A loop that ends before is not worth a line.
BRIEF_SECONDS = 2.0
#: Time between two lines on the same stage.
LINE_SECONDS = 60.0
#: How often it is checked whether a line is due.
TICK_SECONDS = 0.5
MEGABYTE = 1_000_000


class Advance(Protocol):
    """Counts steps that are done; any thread may call it."""

    def __call__(self, steps: float = 1, /) -> object:
        """Count more steps."""


class Reporter(Protocol):
    """Shows which stages are running, and how far each is."""

    def track(self, description: str, total: float | None, delay: float) -> AbstractContextManager[Advance]:
        """Show a stage while the context is open.

        Args:
            description: What is being done.
            total: Number of steps, None if unknown.
            delay: Seconds before the stage is worth mentioning in a log.
        """

    def note(self, text: str) -> None:
        """Show what a log should have, and a terminal shows by its bars."""


class SilentReporter:
    """Shows nothing."""

    @contextmanager
    def track(self, description: str, total: float | None, delay: float) -> Iterator[Advance]:  # noqa: ARG002
        """Show nothing."""
        yield _ignore_steps

    def note(self, text: str) -> None:
        """Show nothing."""


def _ignore_steps(steps: float = 1, /) -> None:
    pass


class BarReporter:
    """Bars on the terminal's error stream, one below the other, each of which disappears at its end."""

    def __init__(self) -> None:
        self._display: Progress | None = None
        self._lock = threading.Lock()

    @contextmanager
    def track(self, description: str, total: float | None, delay: float) -> Iterator[Advance]:  # noqa: ARG002
        """Show a bar with the time left."""
        with self._lock:
            display = self._display = self._display or _start_display()
            task = display.add_task(description, total=total)

        def advance(steps: float = 1, /) -> None:
            display.advance(task, steps)

        try:
            yield advance
        finally:
            with self._lock:
                display.remove_task(task)
                if not display.tasks:
                    display.stop()
                    self._display = None

    def note(self, text: str) -> None:
        """Show nothing: the bars say it."""


def _start_display() -> Progress:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    display = Progress(*columns, console=Console(stderr=True), transient=True)
    display.start()
    return display


@dataclass(eq=False)
class _Stage:
    """A stage that is running."""

    description: str
    total: float | None
    started: float
    due: float
    """Time at which the next line is due."""
    done: float = 0
    advanced: float = 0.0
    """Time of the last step."""

    def describe(self, now: float) -> str:
        elapsed = now - self.started
        if self.total is None:
            return f"{self.description}: {format_seconds(elapsed)} elapsed"
        # The steps that are done took as long as until the last of them; a long step that is under way is not done.
        expected = (self.advanced - self.started) / self.done * self.total if self.done else 0.0
        left = f", {format_seconds(max(0.0, expected - elapsed))} left" if self.done else ""
        counted = f"{self.done:,.0f} of {self.total:,.0f}"
        return f"{self.description}: {counted}, {format_seconds(elapsed)} elapsed{left}"


def format_seconds(seconds: float) -> str:
    """Return a duration such as `0:02:05`."""
    return str(timedelta(seconds=round(seconds)))


class LineReporter:
    """A line at the beginning of a stage, and one every minute."""

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._stages: list[_Stage] = []
        self._lock = threading.Lock()

    @contextmanager
    def track(self, description: str, total: float | None, delay: float) -> Iterator[Advance]:
        """Write the lines of a stage."""
        started = self._clock()
        stage = _Stage(description, total, started, started + (delay or LINE_SECONDS))
        if not delay:
            self._write(description)
        with self._lock:
            self._stages.append(stage)

        def advance(steps: float = 1, /) -> None:
            with self._lock:
                stage.done += steps
                stage.advanced = self._clock()

        try:
            yield advance
        finally:
            with self._lock:
                self._stages.remove(stage)

    def note(self, text: str) -> None:
        """Write a line."""
        self._write(text)

    def write_due(self) -> None:
        """Write the lines that are due."""
        now = self._clock()
        with self._lock:
            due = [stage for stage in self._stages if now >= stage.due]
            for stage in due:
                stage.due = now + LINE_SECONDS
                self._write(stage.describe(now))


_default = BarReporter()
_reporter: ContextVar[Reporter | None] = ContextVar("reporter", default=None)


def _choose_reporter() -> Reporter:
    """Return what a command has chosen; else bars, on a terminal only."""
    return _reporter.get() or (_default if Console(stderr=True).is_terminal else SilentReporter())


@contextmanager
def report_progress(*, quiet: bool) -> Iterator[None]:
    """Report progress while the context is open, by lines where there is no terminal; nothing if `quiet`."""
    if quiet:
        with _use(SilentReporter()):
            yield
    elif Console(stderr=True).is_terminal:
        yield
    else:
        with _write_lines() as lines, _use(lines):
            yield


@contextmanager
def _use(reporter: Reporter) -> Iterator[None]:
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


@contextmanager
def _write_lines() -> Iterator[LineReporter]:
    # The stream of now: a stage may redirect it while it runs.
    stream = sys.stderr
    lines, ended = LineReporter(lambda line: print(line, file=stream, flush=True)), threading.Event()

    def write_until_ended() -> None:
        while not ended.wait(TICK_SECONDS):
            lines.write_due()

    thread = threading.Thread(target=write_until_ended, daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        ended.set()
        thread.join()


def track(description: str, total: float | None = None, *, delay: float = 0.0) -> AbstractContextManager[Advance]:
    """Show a stage while the context is open, which yields a function that counts its steps.

    Args:
        description: What is being done.
        total: Number of steps, None if unknown.
        delay: Seconds before the stage is worth a line in a log.
    """
    return _choose_reporter().track(description, total, delay)


def progress(items: Sequence[Item], description: str) -> Iterable[Item]:
    """Yield the items and show how many are done; a log mentions the loop only if it takes over two seconds."""
    with track(description, len(items), delay=BRIEF_SECONDS) as advance:
        for item in items:
            yield item
            advance()


def note_progress(text: str) -> None:
    """Show what a log should have, and a terminal shows by its bars."""
    _choose_reporter().note(text)


def track_reading(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file, and show how much has been read."""
    description = f"Reading {file.name} (MB)"
    total = None if is_compressed(file) else file.stat().st_size / MEGABYTE
    with open_decompressed(file) as raw, track(description, total, delay=BRIEF_SECONDS) as advance:
        for line in raw:
            yield line
            advance(len(line) / MEGABYTE)
