"""Reader of PosIR-Mini, the English set that ships inside the package. Its texts are in `posir_tasks/mini/texts`.

Each text file is a domain. A line `=== name` begins a document; in its text `{evidence}[question]` marks the evidence of a
question in place, so that span and text always agree.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from datasets import Dataset

from posir_tasks.evidence import Evidence
from posir_tasks.sources.data import PositionData
from posir_tasks.tokens import estimate_tokens

HEADING = re.compile(r"^=== ([a-z0-9-]+)\n", re.MULTILINE)
MARK = re.compile(r"\{([^{}]+)\}\[([^\[\]]+)\]")
REVISION = "1"


@dataclass(frozen=True)
class MarkedDocument:
    """A document of PosIR-Mini with its questions."""

    id: str
    text: str
    questions: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    """Start and end of each question's evidence in `text`."""


def parse_document(document_id: str, marked: str) -> MarkedDocument:
    """Remove the marks from a text, and return it with the spans of the evidence."""
    text, questions, spans, rest = "", [], [], 0
    for mark in MARK.finditer(marked):
        text += marked[rest : mark.start()]
        spans.append((len(text), len(text) + len(mark[1])))
        text += mark[1]
        questions.append(mark[2])
        rest = mark.end()
    return MarkedDocument(document_id, text + marked[rest:], tuple(questions), tuple(spans))


def read_documents() -> Iterator[MarkedDocument]:
    """Yield the documents of PosIR-Mini, by domain and in the order of the files."""
    folder = files("posir_tasks") / "mini" / "texts"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        parts = HEADING.split(file.read_text(encoding="utf-8"))
        for name, marked in zip(parts[1::2], parts[2::2], strict=True):
            yield parse_document(f"{file.name.removesuffix('.txt')}/{name}", marked.strip())


def read_mini() -> PositionData:
    """Read PosIR-Mini: all domains are one corpus."""
    documents = list(read_documents())
    queries = [
        (f"{document.id}/{number}", document, question, span)
        for document in documents
        for number, (question, span) in enumerate(zip(document.questions, document.spans, strict=True), start=1)
    ]
    ids = [query_id for query_id, *_ in queries]
    return PositionData(
        corpus=Dataset.from_dict({"id": [d.id for d in documents], "text": [d.text for d in documents]}),
        queries=Dataset.from_dict({"id": ids, "text": [question for _, _, question, _ in queries]}),
        evidence=Evidence(
            query_ids=ids,
            document_ids=[document.id for _, document, _, _ in queries],
            starts=np.array([start for *_, (start, _) in queries], np.int64),
            ends=np.array([end for *_, (_, end) in queries], np.int64),
            characters=np.array([len(document.text) for _, document, _, _ in queries], np.int64),
            tokens=np.array([estimate_tokens(document.text) for _, document, _, _ in queries], np.int64),
        ),
        revision=REVISION,
    )
