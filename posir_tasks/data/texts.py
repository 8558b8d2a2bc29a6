"""Data from texts in memory: documents, and questions with their evidence quoted from a
document.
"""

from collections.abc import Mapping, Sequence

from posir_tasks.base.errors import DataError
from posir_tasks.data.data import PositionData
from posir_tasks.data.questions import find_occurrences
from posir_tasks.text.spans import Span


def build_position_data(
    documents: Mapping[str, str], questions: Sequence[tuple[str, str, str]], *, revision: str
) -> PositionData:
    """Build the data of a task from texts.

    Args:
        documents: Text by id. Lengths in tokens are estimated as one per four bytes.
        questions: Text, id of the only relevant document, and evidence, which occurs in that
            document exactly once.
        revision: Revision of the texts, which is part of every result.

    Raises:
        DataError: A text is empty, or evidence does not occur in its document exactly once; lists
            every problem.
    """
    problems = [
        f"document '{name}': has no text" for name, text in documents.items() if not text.strip()
    ]
    placed = dict[str, tuple[str, str, Span]]()
    for number, (text, document, evidence) in enumerate(questions):
        starts = find_occurrences(evidence, documents.get(document, "")) if evidence.strip() else []
        rules = (
            (not text.strip(), "has no text"),
            (document not in documents, f"its document '{document}' is not among the documents"),
            (not evidence.strip(), "has no evidence"),
            (not starts, f"its evidence {evidence!r} does not occur in document '{document}'"),
            (
                len(starts) > 1,
                f"its evidence {evidence!r} occurs in document '{document}' more than once; quote "
                "more of it",
            ),
        )
        if broken := [problem for is_broken, problem in rules if is_broken]:
            problems.append(f"question {number} ({text!r}): {broken[0]}")
        else:
            placed[f"q{number}"] = (text, document, Span(starts[0], starts[0] + len(evidence)))
    if problems or not placed:
        raise DataError("\n".join(problems) or "there is no question; a task needs at least one.")
    return PositionData.from_questions(documents, placed, revision=revision)
