"""Sections: what a terminal, Markdown, a page and a notebook show of a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from posir_tasks.display.tables import Table, print_paragraph, print_tables, to_markdown
from posir_tasks.display.wording import escape_controls

if TYPE_CHECKING:
    from posir_tasks.display.charts.figures import Figure


@dataclass(frozen=True)
class DisplaySection:
    """A part of what is shown: findings in sentences, tables and charts."""

    title: str = ""
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    draw: Callable[[], Sequence[Figure]] | None = None
    """Draws its charts, on demand because Altair takes a second to import; None if it has none."""

    def figures(self) -> Sequence[Figure]:
        """Return its charts."""
        return self.draw() if self.draw else ()

    def print_on(self, console: Console) -> None:
        """Print title, sentences and tables."""
        if self.title:
            name, separator, details = escape_controls(self.title).partition(" · ")
            console.print(Text.assemble((name, "bold"), separator, details), soft_wrap=not console.is_terminal)
        if self.sentences:
            print_paragraph(console, " ".join(self.sentences))
        print_tables(console, self.tables)
        if not self.tables:
            console.print()

    def to_markdown(self) -> str:
        """Return title, sentences and tables in GitHub's Markdown."""
        title, sentences = escape_controls(self.title), escape_controls(" ".join(self.sentences))
        parts = [f"## {title}" if title else "", sentences, *map(to_markdown, self.tables)]
        return "\n\n".join(filter(None, parts))
