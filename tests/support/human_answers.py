"""Documents with human questions and answers, as the ground truth for `posir build`."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from posir_tasks.data.mini import read_documents
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span


@dataclass(frozen=True)
class HumanQuestion:
    """A human question and the span of its answer in the document."""

    id: str
    text: str
    start: int
    end: int
    """End of the answer in the document, exclusive."""
    in_other_language: str = ""
    """Human translation of the question; empty if there is none."""


@dataclass(frozen=True)
class HumanDocument:
    """A document and its human questions."""

    id: str
    text: str
    questions: tuple[HumanQuestion, ...]

    def third(self, question: HumanQuestion) -> int:
        return min(2, (question.start + question.end) * 3 // (2 * len(self.text)))


@dataclass
class Truth:
    """Documents, indexed by text and by question."""

    documents: list[HumanDocument]
    by_text: dict[str, HumanDocument] = field(init=False)
    by_question: dict[str, list[tuple[HumanDocument, HumanQuestion]]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_text = {document.text: document for document in self.documents}
        self.by_question = {}
        for document in self.documents:
            for question in document.questions:
                for text in filter(None, {question.text, question.in_other_language}):
                    self.by_question.setdefault(" ".join(text.split()), []).append(
                        (document, question)
                    )

    def find(
        self, text: str, document: str | None = None
    ) -> tuple[HumanDocument, HumanQuestion] | None:
        """Find the human question in a text, which may start with a prefix such as `In short: `.
        `document` selects one of several documents with the same question.
        """
        bare = " ".join(text.split())
        starts = (0, *(place + 2 for place in range(len(bare)) if bare.startswith(": ", place)))
        items = (item for start in starts for item in self.by_question.get(bare[start:], []))
        return next((item for item in items if document is None or item[0].id == document), None)

    def has_answer(self, question: str, document: str, evidence: str) -> bool:
        """Return True if a person asked the question about the document and the evidence contains
        the answer, ignoring white space.
        """
        answers = [
            about.text[entry.start : entry.end]
            for about, entry in self.by_question.get(question, [])
            if about.id == document
        ]
        return any("".join(answer.split()) in "".join(evidence.split()) for answer in answers)

    def is_right(self, question: str, document: str, start: int, end: int) -> bool:
        """Return True if a person asked the question about the document and the span contains the
        answer in the same third.
        """
        return any(
            start <= asked.start
            and asked.end <= end
            and made.third(HumanQuestion("", "", start, end)) == made.third(asked)
            for made, asked in self.by_question.get(question, [])
            if made.id == document and asked.text.strip() == question
        )


def mini_documents(least: int = 600) -> list[HumanDocument]:
    """Build the documents of PosIR-Mini with at least `least` characters."""
    return [
        HumanDocument(
            document.id.replace("/", "-"),
            document.text,
            tuple(
                HumanQuestion(f"{document.id}-{row}", text, *span)
                for row, (text, span) in enumerate(
                    zip(document.questions, document.spans, strict=True)
                )
            ),
        )
        for document in read_documents()
        if len(document.text) >= least
    ]


def squad_documents(
    file: Path, paragraphs: int = 5, translated: Path | None = None
) -> list[HumanDocument]:
    """Build documents of several paragraphs from one article each, from a file in SQuAD format."""
    others = {
        question["id"]: question["question"]
        for _, paragraph in _paragraphs(translated)
        for question in paragraph["qas"]
    }
    documents = []
    for article, members in _articles(file).items():
        count = max(1, len(members) // paragraphs)
        for number in range(count):
            stop = (number + 1) * paragraphs if number + 1 < count else len(members)
            documents.append(
                _join(f"{article}-{number}", members[number * paragraphs : stop], others)
            )
    return documents


def overlapping_documents(file: Path, articles: int) -> list[HumanDocument]:
    """Build two documents per article, with two paragraphs each. They share one paragraph, whose
    questions have two answers.
    """
    return [
        _join(f"{article}-{start}", members[start : start + 2], {})
        for article, members in _articles(file).items()
        for start in range(2)
        if article < articles
    ]


def parallel_documents(
    file: Path, translated: Path, codes: tuple[str, str], paragraphs: int = 4
) -> tuple[list[HumanDocument], list[HumanDocument], dict[str, str]]:
    """Build documents, their human translations, and a mapping from sentences and questions to
    translations.

    Paragraphs are skipped unless both languages have the same number of sentences, with every
    answer in the same sentence.
    """
    both: tuple[list[dict], list[dict]] = [], []
    texts: dict[str, str] = {}
    for (_, here), (_, there) in zip(_paragraphs(file), _paragraphs(translated), strict=True):
        spans = [
            find_sentences(value["context"], code)
            for value, code in zip((here, there), codes, strict=True)
        ]
        if _sentences_with_answers(here, spans[0]) == _sentences_with_answers(there, spans[1]):
            sentences = [
                [" ".join(value["context"][span.start : span.end].split()) for span in result]
                for value, result in zip((here, there), spans, strict=True)
            ]
            texts |= dict(zip(*sentences, strict=True))
            texts |= {
                _question(question): _question(other)
                for question, other in zip(here["qas"], there["qas"], strict=True)
            }
            both[0].append(here)
            both[1].append(there)
    documents, translations = (
        [
            _join(f"p{start}", members[start : start + paragraphs], {})
            for start in range(0, len(members), paragraphs)
        ]
        for members in both
    )
    return documents, translations, texts


def _sentences_with_answers(paragraph: dict, sentences: Sequence[Span]) -> tuple[int, list[int]]:
    """Count the sentences, and find the number of the sentence where each answer begins."""
    starts = [question["answers"][0]["answer_start"] for question in paragraph["qas"]]
    return len(sentences), [sum(span.start <= start for span in sentences) for start in starts]


def _question(row: dict) -> str:
    return " ".join(row["question"].split())


def jaquad_documents(folder: Path, files: int = 3, paragraphs: int = 4) -> list[HumanDocument]:
    """Build documents from the first files of a folder in SQuAD format, without questions that
    refer to "this document".
    """
    return [
        replace(
            document,
            id=f"{file.stem}-{document.id}",
            questions=tuple(
                question for question in document.questions if "この文書" not in question.text
            ),
        )
        for file in sorted(folder.glob("*.json"))[:files]
        for document in squad_documents(file, paragraphs)
    ]


def _articles(file: Path) -> dict[int, list[dict]]:
    groups: dict[int, list[dict]] = {}
    for article, paragraph in _paragraphs(file):
        groups.setdefault(article, []).append(paragraph)
    return groups


def _paragraphs(file: Path | None) -> Iterable[tuple[int, dict]]:
    if file is None:
        return
    for number, article in enumerate(json.loads(file.read_text(encoding="utf-8"))["data"]):
        for paragraph in article["paragraphs"]:
            yield number, paragraph


def _join(name: str, paragraphs: Sequence[dict], others: dict[str, str]) -> HumanDocument:
    text, questions = "", []
    for paragraph in paragraphs:
        text += "\n\n" if text else ""
        for question in paragraph["qas"]:
            answer = question["answers"][0]
            start = len(text) + answer["answer_start"]
            key, end = question["id"], start + len(answer["text"])
            questions.append(
                HumanQuestion(str(key), _question(question), start, end, others.get(key, ""))
            )
        text += paragraph["context"]
    return HumanDocument(name, text, tuple(questions))


def write_documents(folder: Path, documents: Iterable[HumanDocument]) -> Path:
    """Write each document as a text file. Files get a byte-order mark, since some texts begin with
    one, which would be lost otherwise.
    """
    folder.mkdir(parents=True)
    for document in documents:
        (folder / f"{document.id}.txt").write_text(document.text, encoding="utf-8-sig")
    return folder
