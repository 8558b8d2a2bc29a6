"""The section of a model card that `posir submit --model-card` writes, and nothing else of it."""

import re
from collections.abc import Iterable
from pathlib import Path

from posir_report.api import build_results
from posir_report.columns import choose_columns
from posir_report.content import BRIEF
from posir_report.tables import build_score_table, name_task
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import atomic_write
from posir_tasks.display.tables import DisplaySection
from posir_tasks.results import SubsetResult

#: The lines around the section, which a renderer of Markdown does not show.
BEGIN = b"<!-- posir: begin -->"
END = b"<!-- posir: end -->"
SECTION = re.compile(BEGIN + b".*?" + END, re.DOTALL)
TITLE = "## Retrieval by position of the evidence"
#: Keys of the scores that a card has.
COLUMNS = ("ndcg_at_10", "position_effect", "unread_share", "position_effect_in_window", "state")


def render_section(results: Iterable[SubsetResult]) -> str:
    """Render the scores of a model on every task, with their intervals, as Markdown."""
    shown = build_results(results)
    rows = shown.content.overall
    names = {"Task": [name_task(row) for row in rows]}
    table = build_score_table(rows, choose_columns(COLUMNS), names)
    section = DisplaySection(tables=(table,)).to_markdown()
    return f"{TITLE}\n\n{section}\n\n{BRIEF}\n\nData: {shown.data}."


def write_section(card: Path, section: str) -> None:
    """Replace the section of a model card, or append it; every other byte stays.

    Raises:
        PosirError: The card cannot be read or written, or has one of the two markers only.
    """
    try:
        content = card.read_bytes()
    except OSError as error:
        raise PosirError(
            f"--model-card {card}: cannot be read ({error.strerror}). Give a model's README.md."
        ) from error
    block = b"\n".join([BEGIN, section.encode(), END])
    replaced, found = SECTION.subn(lambda _: block, content)
    if found > 1 or {content.count(BEGIN), content.count(END)} != {found}:
        raise PosirError(
            f"{card}: must have {BEGIN.decode()} and {END.decode()} once each, in this order, or "
            "neither. Remove what is left of them."
        )
    with atomic_write(card) as beside:
        beside.write_bytes(replaced if found else b"%b\n\n%b\n" % (content, block))
