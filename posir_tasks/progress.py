"""Progress of long loops: a bar on the terminal's error stream, and nothing where there is no terminal."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Item = TypeVar("Item")


def progress(items: Sequence[Item], description: str) -> Iterable[Item]:
    """Yield the items with a progress bar that disappears at the end."""
    console = Console(stderr=True)
    return track(items, description=description, console=console, transient=True, disable=not console.is_terminal)
