"""Data from texts in memory: documents, and questions with their evidence quoted from a document."""

from collections.abc import Mapping, Sequence

from posir_tasks.errors import DataError
from posir_tasks.sources.data import PositionData
from posir_tasks.text.spans import Span


def build_position_data(
    documents: Mapping[str, str], questions: Sequence[tuple[str, str, str]], *, revision: str
) -> PositionData:
    """Build the data of a task from texts.

    Args:
        documents: Text by id. Lengths in tokens are estimated as one per four bytes.
        questions: Text, id of the only relevant document, and evidence, which occurs in that document exactly once.
        revision: Revision of the texts, which is part of every result.

    Raises:
        DataError: A text is empty, or evidence does not occur in its document exactly once; lists every problem.
    """
    problems = [f"document '{name}': has no text" for name, text in documents.items() if not text.strip()]
    placed = dict[str, tuple[str, str, Span]]()
    for number, (text, document, evidence) in enumerate(questions):
        try:
            start = _find_evidence(documents, text, document, evidence)
            placed[f"q{number}"] = (text, document, Span(start, start + len(evidence)))
        except ValueError as problem:
            problems.append(f"question {number} ({text!r}): {problem}")
    if problems or not placed:
        raise DataError("\n".join(problems) or "there is no question; a task needs at least one.")
    return PositionData.from_questions(documents, placed, revision=revision)


def _find_evidence(documents: Mapping[str, str], text: str, document: str, evidence: str) -> int:
    if not text.strip():
        raise ValueError("has no text")
    if document not in documents:
        raise ValueError(f"its document '{document}' is not among the documents")
    if not evidence.strip():
        raise ValueError("has no evidence")
    first = documents[document].find(evidence)
    if first < 0:
        raise ValueError(f"its evidence {evidence!r} does not occur in document '{document}'")
    if documents[document].find(evidence, first + 1) >= 0:
        raise ValueError(f"its evidence {evidence!r} occurs in document '{document}' more than once; quote more of it")
    return first
