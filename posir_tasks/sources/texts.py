"""Texts in hand: the documents and questions of a program, each question with its evidence quoted from its document."""

from __future__ import annotations

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
    """Make the data of a task from texts.

    Args:
        documents: Text by id. Their lengths in tokens are estimated, one for every four bytes.
        questions: Each its text, the id of its one relevant document, and its evidence: what stands there, once.
        revision: Of the texts; it stands in every result.

    Raises:
        DataError: A text is empty, or a question's evidence does not stand in its document exactly once; all are named.
    """
    empty = [f"document '{name}': has no text" for name, text in documents.items() if not text.strip()]
    problems = [(number, _problem(documents, *question)) for number, question in enumerate(questions)]
    wrong = empty + [f"question {number} ({questions[number][0]!r}): {problem}" for number, problem in problems if problem]
    if wrong or not questions:
        raise DataError("\n".join(wrong) or "there is no question; a task needs at least one.")
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


def _problem(documents: Mapping[str, str], text: str, document: str, evidence: str) -> str | None:
    if not text.strip():
        return "has no text"
    if document not in documents:
        return f"its document '{document}' is not among the documents"
    if not evidence.strip():
        return "has no evidence"
    first = documents[document].find(evidence)
    if first < 0:
        return f"its evidence {evidence!r} does not stand in document '{document}'"
    if documents[document].find(evidence, first + 1) >= 0:
        return f"its evidence {evidence!r} stands in document '{document}' more than once; quote more of it"
    return None
