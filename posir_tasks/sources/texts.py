"""Data from texts in memory: documents, and questions with their evidence quoted from a document."""

from collections.abc import Mapping, Sequence

import numpy as np
from datasets import Dataset

from posir_tasks.errors import DataError
from posir_tasks.evidence import Evidence
from posir_tasks.sources.data import PositionData
from posir_tasks.tokens import estimate_tokens


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
    empty = [f"document '{name}': has no text" for name, text in documents.items() if not text.strip()]
    checked = [(number, question[0], _check_question(documents, *question)) for number, question in enumerate(questions)]
    problems = empty + [f"question {number} ({text!r}): {problem}" for number, text, problem in checked if problem]
    if problems or not questions:
        raise DataError("\n".join(problems) or "there is no question; a task needs at least one.")
    ids = [f"q{number}" for number in range(len(questions))]
    starts = [documents[document].index(evidence) for _, document, evidence in questions]
    texts = [documents[document] for _, document, _ in questions]
    return PositionData(
        corpus=Dataset.from_dict({"id": list(documents), "text": list(documents.values())}),
        queries=Dataset.from_dict({"id": ids, "text": [text for text, _, _ in questions]}),
        evidence=Evidence(
            query_ids=ids,
            document_ids=[document for _, document, _ in questions],
            starts=np.array(starts, np.int64),
            ends=np.array([s + len(evidence) for s, (_, _, evidence) in zip(starts, questions, strict=True)], np.int64),
            characters=np.array([len(text) for text in texts], np.int64),
            tokens=np.array([estimate_tokens(text) for text in texts], np.int64),
        ),
        revision=revision,
    )


def _check_question(documents: Mapping[str, str], text: str, document: str, evidence: str) -> str | None:
    if not text.strip():
        return "has no text"
    if document not in documents:
        return f"its document '{document}' is not among the documents"
    if not evidence.strip():
        return "has no evidence"
    first = documents[document].find(evidence)
    if first < 0:
        return f"its evidence {evidence!r} does not occur in document '{document}'"
    if documents[document].find(evidence, first + 1) >= 0:
        return f"its evidence {evidence!r} occurs in document '{document}' more than once; quote more of it"
    return None
