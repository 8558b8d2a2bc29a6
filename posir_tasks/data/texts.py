"""Build task data from texts in memory and quoted evidence."""

from collections.abc import Mapping, Sequence

from posir_tasks.base.errors import DataError
from posir_tasks.data.data import PositionData
from posir_tasks.data.questions import find_occurrences
from posir_tasks.text.spans import Span


def build_position_data(
    documents: Mapping[str, str], questions: Sequence[tuple[str, str, str]], *, revision: str
) -> PositionData:
    """Build task data from texts.

    Args:
        documents: Document id to text. Tokens are estimated at one per four bytes.
        questions: Question text, id of the relevant document, and evidence, which must occur in the
            document exactly once.
        revision: Revision of the texts, which results store.

    Raises:
        DataError: A text is empty, or evidence does not occur exactly once. The message lists all
            problems.
    """
    problems = [
        f"document '{name}': has no text" for name, text in documents.items() if not text.strip()
    ]
    located = {}
    for number, (text, document, evidence) in enumerate(questions):
        starts = []
        if evidence.strip():
            starts = find_occurrences(evidence, documents.get(document, ""))
        if not text.strip():
            problem = "has no text"
        elif document not in documents:
            problem = f"its document '{document}' is not among the documents"
        elif len(starts) != 1:
            problem = (
                f"its evidence {evidence!r} occurs {len(starts)} times in document '{document}'; "
                "quote evidence that occurs once"
            )
        else:
            span = Span(starts[0], starts[0] + len(evidence))
            located[f"q{number}"] = (text, document, span)
            continue
        problems.append(f"question {number} ({text!r}): {problem}")
    if problems or not located:
        raise DataError("\n".join(problems) or "there is no question; a task needs at least one.")
    return PositionData.from_questions(documents, located, revision=revision)
