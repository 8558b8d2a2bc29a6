"""Progress of long loops: a bar on the terminal's error stream, and nothing where there is no terminal."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TextIO, TypeVar

import rich.progress
from rich.console import Console
from rich.progress import track

Item = TypeVar("Item")


def progress(items: Sequence[Item], description: str) -> Iterable[Item]:
    """Yield the items with a progress bar that disappears at the end."""
    console = Console(stderr=True)
    return track(items, description=description, console=console, transient=True, disable=not console.is_terminal)


def open_text(file: Path, description: str) -> AbstractContextManager[TextIO]:
    """Open a UTF-8 file, with or without a byte-order mark, with a progress bar of what has been read."""
    console = Console(stderr=True)
    return rich.progress.open(
        file,
        "r",
        encoding="utf-8-sig",
        description=description,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
