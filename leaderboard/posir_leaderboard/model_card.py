"""Write scores into a section of a model card, for `posir submit --model-card`."""

import re
from collections.abc import Iterable
from pathlib import Path

from posir_report.columns import choose_columns
from posir_report.content import BRIEF
from posir_report.results import build_results
from posir_report.tables import build_score_table, name_task
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import write_atomically
from posir_tasks.display.tables import DisplaySection
from posir_tasks.results import SubsetResult

#: Markdown comments around the section.
BEGIN = b"<!-- posir: begin -->"
END = b"<!-- posir: end -->"
SECTION = re.compile(BEGIN + b".*?" + END, re.DOTALL)
TITLE = "## Retrieval by position of the evidence"
#: Keys of the scores in the section.
COLUMNS = ("ndcg_at_10", "position_effect", "unread_share", "position_effect_in_window", "state")


def render_section(results: Iterable[SubsetResult]) -> str:
    """Render a model's scores on every task, with intervals, as Markdown."""
    model_results = build_results(results)
    rows = model_results.overall
    names = {"Task": [name_task(row) for row in rows]}
    table = build_score_table(rows, choose_columns(COLUMNS), names)
    section = DisplaySection(tables=(table,)).to_markdown()
    brief = "\n".join(BRIEF)
    return f"{TITLE}\n\n{section}\n\n{brief}\n\nData: {model_results.data}."


def write_section(card: Path, section: str) -> None:
    """Replace or append the section of a model card; keep all other bytes.

    Raises:
        PosirError: The card cannot be read or written, or contains only one of the two markers.
    """
    try:
        content = card.read_bytes()
    except OSError as error:
        raise PosirError(
            f"--model-card: cannot read {card}: {error.strerror}. Give a model's README.md."
        ) from error
    block = b"\n".join([BEGIN, section.encode(), END])
    replaced, sections = SECTION.subn(lambda _: block, content)
    if sections > 1 or {content.count(BEGIN), content.count(END)} != {sections}:
        raise PosirError(
            f"{card} must have {BEGIN.decode()} and {END.decode()} once each, in this order, or "
            "not at all. Remove both lines."
        )
    with write_atomically(card) as temporary:
        temporary.write_bytes(replaced if sections else b"%b\n\n%b\n" % (content, block))
