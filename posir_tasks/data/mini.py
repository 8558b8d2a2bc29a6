"""Read PosIR-Mini, the English dataset in `posir_tasks/mini/texts`.

There is a text file per domain. A line `=== name` starts a document. `{evidence}[question]` marks
the evidence of a question in the text, so that spans always match the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from posir_tasks.data.data import PositionData
from posir_tasks.data.declared import MINI
from posir_tasks.text.spans import Span

HEADING = re.compile(r"^=== ([a-z0-9-]+)\n", re.MULTILINE)
MARK = re.compile(r"\{([^{}]+)\}\[([^\[\]]+)\]")
NAME = MINI.name
REVISION = MINI.revision
#: Name of the dataset in results.
REPO_ID = MINI.repository


@dataclass(frozen=True)
class MarkedDocument:
    """A document of PosIR-Mini with its questions."""

    id: str
    text: str
    questions: tuple[str, ...]
    spans: tuple[Span, ...]


def parse_document(document_id: str, markup: str) -> MarkedDocument:
    """Parse markup into plain text, questions and evidence spans."""
    text, *pieces = MARK.split(markup)
    spans = []
    for evidence, following in zip(pieces[::3], pieces[2::3], strict=True):
        spans.append(Span(len(text), len(text) + len(evidence)))
        text += evidence + following
    return MarkedDocument(document_id, text, tuple(pieces[1::3]), tuple(spans))


def read_documents() -> Iterator[MarkedDocument]:
    """Yield the documents of PosIR-Mini, sorted by domain."""
    folder = files("posir_tasks") / "mini" / "texts"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        pieces = HEADING.split(file.read_text(encoding="utf-8"))
        for name, markup in zip(pieces[1::2], pieces[2::2], strict=True):
            yield parse_document(f"{file.name.removesuffix('.txt')}/{name}", markup.strip())


def read_mini() -> PositionData:
    """Read PosIR-Mini with all domains in one corpus."""
    texts = {}
    questions = {}
    for document in read_documents():
        texts[document.id] = document.text
        pairs = zip(document.questions, document.spans, strict=True)
        for number, (question, span) in enumerate(pairs, start=1):
            questions[f"{document.id}/{number}"] = (question, document.id, span)
    return PositionData.from_questions(texts, questions, revision=REVISION)
