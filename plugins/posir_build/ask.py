"""Stage 2, Ask: questions with answers, each meant for one part of a document.

Three methods, of PosIR (arXiv 2601.08363, section 2.2, appendix C.1), PosQ (arXiv 2505.13950,
section 3.2, appendix A.2) and Built-in or Learned (arXiv 2605.26578, section 3.1.1, appendix A).
The papers' prompts are not copied. The real place of the evidence is found by Locate.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from rapidfuzz import fuzz

from posir_build.cluster import Recall
from posir_build.locate import split_thirds
from posir_build.quotes import list_numbers, load_patterns
from posir_build.records import (
    Discarded,
    DiscardReason,
    Document,
    Question,
    StageResult,
    by_id,
    question_id,
    seeded_order,
)
from posir_build.sample import open_source
from posir_build.settings import AskMethod, BuildSettings
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.data.formats.passages import Passage
from posir_tasks.data.repository import DATA_SUFFIXES
from posir_tasks.datasets.opening import open_data
from posir_tasks.language_models.asking import LanguageModel, Reply
from posir_tasks.language_models.chat_client import (
    ModelAnswer,
    PromptTemplate,
    UnusableAnswerError,
    load_prompt,
)
from posir_tasks.text.languages import detect_other_language, english_name
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span, find_third
from posir_tasks.text.words import find_terms
from posir_tasks.values.evidence import POSITIONS

#: Maximum number of characters of a question.
MAX_CHARACTERS = 1000
#: Minimum number of characters of a question that can be a copy of its document's text.
MIN_COPY = 20
#: What questions are searched for, in all languages: parts and positions of a text, and references
#: to the document.
NAMES_POSITION = load_patterns("positions.txt")
NAMES_DOCUMENT = load_patterns("references.txt")


def find_fault(question: Question, document: Document, language: str) -> Discarded | None:
    """Find what is wrong with a question."""

    def discard(reason: DiscardReason, detail: str = "") -> Discarded:
        return Discarded(reason, question.id, detail, question)

    text = question.text.strip()
    original = document.text.lower()
    if not text:
        return discard(DiscardReason.BLANK_QUESTION)
    if not question.answer.strip():
        return discard(DiscardReason.BLANK_ANSWER)
    if len(text) > MAX_CHARACTERS:
        return discard(DiscardReason.LONG_QUESTION, f"{len(text):,} characters")
    patterns = {
        DiscardReason.NAMES_POSITION: NAMES_POSITION,
        DiscardReason.NAMES_DOCUMENT: NAMES_DOCUMENT,
    }
    for reason, pattern in patterns.items():
        name = pattern.search(text)
        if name and name[0].lower() not in original:
            return discard(reason, name[0])
    if len(text) >= MIN_COPY and text.lower() in original:
        return discard(DiscardReason.COPIED)
    other = detect_other_language(text, language)
    return discard(DiscardReason.OTHER_LANGUAGE, other) if other else None


def drop_repeated(
    questions: Iterable[Question], similar: float
) -> tuple[list[Question], list[Discarded]]:
    """Split questions into those to keep and those that repeat an earlier one.

    About one document, a question repeats another from a similarity, in [0, 1], of their texts. A
    question about another document repeats it word for word: a question that two documents answer
    has a false negative in either case. The first one is kept.
    """
    kept = []
    discarded = []
    first_ids: dict[str, str] = {}
    earlier: dict[str, dict[str, str]] = {}
    for question in questions:
        text = " ".join(question.text.lower().split())
        others = earlier.setdefault(question.document, {})
        # The same numbers: one year or another makes two questions.
        repeated = [
            name
            for name, other in others.items()
            if fuzz.ratio(text, other) >= 100 * similar
            and list_numbers(text) == list_numbers(other)
        ]
        original = repeated[0] if repeated else first_ids.get(text)
        if original is None:
            first_ids[text] = question.id
            others[question.id] = text
            kept.append(question)
        else:
            discarded.append(Discarded(DiscardReason.REPEATED, question.id, original, question))
    return kept, discarded


class AskedQuestion(ModelAnswer):
    """A question with its answer."""

    question: str
    answer: str
    type: str
    """Type of question: `what`, `how`, `claim` ... (PosIR, arXiv 2601.08363); `simple`,
    `complicated` (PosQ, 2505.13950).
    """


class AskedQuestions(ModelAnswer):
    """Questions about a document."""

    questions: list[AskedQuestion]


class DocumentSummary(ModelAnswer):
    """A summary of a document (PosQ)."""

    summary: str


class PersonaChoice(ModelAnswer):
    """A persona who would search for a document, and the way of asking (Built-in or Learned, arXiv
    2605.26578).
    """

    persona: int
    """Number in the list."""
    difficulty: Literal["high_school", "university", "phd"]
    query_length: Literal["short", "medium", "long"]


class PersonaQuery(ModelAnswer):
    """A search query of a persona (Built-in or Learned)."""

    query: str
    answer: str
    reasoning: str

    @property
    def questions(self) -> list[AskedQuestion]:
        """The query as a question."""
        return [AskedQuestion(question=self.query, answer=self.answer, type="query")]


ASK_POSITIONAL = load_prompt("ask_positional", AskedQuestions)
SUMMARIZE = load_prompt("summarize", DocumentSummary)
ASK_CHUNK = load_prompt("ask_chunk", AskedQuestions)
CHOOSE_PERSONA = load_prompt("choose_persona", PersonaChoice)
ASK_PERSONA = load_prompt("ask_persona", PersonaQuery)
#: The prompts of each method, in order.
PROMPTS: Mapping[AskMethod, Sequence[PromptTemplate[Any]]] = {
    "positional": (ASK_POSITIONAL,),
    "chunk": (SUMMARIZE, ASK_CHUNK),
    "persona": (CHOOSE_PERSONA, ASK_PERSONA),
}
#: The thirds, in the words of the prompts.
THIRDS = ("first", "middle", "last")
#: Model and prompt of a question that is not generated.
GIVEN = "given"
#: Column of the personas in files with rows, such as those of PersonaHub.
PERSONA_FIELD = "persona"
LENGTHS = {"short": "under 10 words", "medium": "10 to 20 words", "long": "over 20 words"}
#: Separators at which a chunk may end, the best first.
SEPARATORS = (r"\n\s*\n", r"\n", r"(?<=[.!?。！？।])\s*", r"\s+")


@dataclass(frozen=True)
class AskedPart:
    """A part of a document, and the reply to the prompt that asked for questions about it."""

    document: Document
    reply: Reply[Any]
    position: str = ""
    details: dict[str, str] = field(default_factory=dict)

    def list_questions(self) -> list[Question]:
        """List the questions of the reply, with faults or without."""
        asked = self.reply.answer.questions if self.reply.answer else []
        questions = []
        for row in asked:
            text = " ".join(row.question.split())
            questions.append(
                Question(
                    id=question_id(self.document.id, text),
                    document=self.document.id,
                    text=text,
                    answer=row.answer.strip(),
                    position=self.position,
                    model=self.reply.model,
                    prompt=self.reply.prompt,
                    details={"type": row.type, **self.details},
                )
            )
        return questions


def ask_questions(
    documents: Sequence[Document],
    settings: BuildSettings,
    model: LanguageModel,
    recall: Recall | None = None,
) -> StageResult:
    """Ask for questions, and discard those with faults.

    `recall` finds the personas nearest to a document; without it they are drawn at random.

    Raises:
        PosirError: The model or the file of personas cannot be used.
    """
    chosen = choose_documents(documents, settings.ask.documents, settings.seed)
    asker = Asker(settings, model)
    match settings.ask.method:
        case "positional":
            parts = asker.ask_positional(chosen)
        case "chunk":
            parts = asker.ask_chunk(chosen)
        case _:
            parts = asker.ask_persona(chosen, offer_personas(chosen, settings, recall))
    accepted = []
    discarded = []
    number = 0
    for part in parts:
        if part.reply.answer is None:
            discarded.append(Discarded(part.reply.fault, part.document.id, part.reply.detail))
        found: set[str] = set()
        for question in part.list_questions():
            number += 1
            fault = find_fault(question, part.document, settings.language)
            if not fault and len(found | {question.id}) > settings.ask.questions:
                fault = Discarded(DiscardReason.EXTRA_QUESTION, question.id, question=question)
            if fault:
                discarded.append(fault)
            else:
                found.add(question.id)
                accepted.append(question)
    kept, repeated = drop_repeated(accepted, settings.ask.similar)
    counts = {"questions": number}
    return StageResult(tuple(documents), tuple(kept), (*discarded, *repeated), (), counts)


def take_questions(documents: Sequence[Document], settings: BuildSettings) -> StageResult:
    """Take the questions that the data of the documents has, with their spans; raise DataError if
    it has none.
    """
    known = by_id(documents)
    questions = []
    for subset in open_source(settings).with_questions("`ask.method: given`").subsets:
        data = subset.read()
        texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
        for query, text, name, span in data.list_questions():
            # Languages may share ids.
            if span is None or name not in known or known[name].text != texts[name]:
                continue
            third = POSITIONS[find_third(span, len(texts[name]))]
            answer = span.of(texts[name])
            questions.append(Question(query, name, text, answer, third, GIVEN, GIVEN, span=span))
    about = [known[name] for name in dict.fromkeys(question.document for question in questions)]
    chosen = by_id(choose_documents(about, settings.ask.documents, settings.seed))
    taken = tuple(question for question in questions if question.document in chosen)
    return StageResult(tuple(documents), taken, (), (), {"questions": len(taken)})


def choose_documents(
    documents: Iterable[Document], number: int | None, seed: int
) -> list[Document]:
    """Draw the documents that questions are asked about, in order of their ids; None for all."""
    order = sorted(documents, key=lambda document: seeded_order(seed, "ask", document.id))
    return sorted(order[:number], key=attrgetter("id"))


@dataclass(frozen=True)
class Asker:
    """The three ways of asking."""

    settings: BuildSettings
    model: LanguageModel

    @property
    def _common(self) -> dict[str, str]:
        return {
            "questions": str(self.settings.ask.questions),
            "language": english_name(self.settings.language),
        }

    def ask_positional(self, documents: Sequence[Document]) -> list[AskedPart]:
        """Ask about thirds of documents, drawn at random, with the whole document in view
        (PosIR).
        """
        draws = self.settings.ask.draws
        drawn = [
            (document, third)
            for document in documents
            for third in sorted(_seed(self.settings, "third", document).sample(range(3), draws))
        ]

        def build(row: tuple[Document, int]) -> dict[str, str]:
            document, third = row
            return {"document": document.text, "part": THIRDS[third], **self._common}

        replies = self.model.ask(ASK_POSITIONAL, drawn, build, "Ask")
        return [
            AskedPart(document, reply, POSITIONS[third])
            for (document, third), reply in zip(drawn, replies, strict=True)
        ]

    def ask_chunk(self, documents: Sequence[Document]) -> list[AskedPart]:
        """Ask about chunks of documents, with a summary of the document in view (PosQ)."""

        def build_summary(document: Document) -> dict[str, str]:
            return {"document": document.text, **self._common}

        def build(row: tuple[Document, Span, str]) -> dict[str, str]:
            document, chunk, summary = row
            return {"summary": summary, "chunk": chunk.of(document.text), **self._common}

        summaries = self.model.ask(SUMMARIZE, documents, build_summary, "Summarize")
        parts = []
        chunks: list[tuple[Document, Span, str]] = []
        for document, reply in zip(documents, summaries, strict=True):
            if reply.answer is None:
                parts.append(AskedPart(document, reply))
                continue
            spans = split_chunks(document.text, self.settings.ask.chunk_words)
            chunks += [(document, span, reply.answer.summary) for span in spans]
        replies = self.model.ask(ASK_CHUNK, chunks, build, "Ask")
        for (document, chunk, _), answered in zip(chunks, replies, strict=True):
            position = tag_chunk(chunk, len(document.text))
            details = {"chunk": f"{chunk.start}-{chunk.end}"}
            parts.append(AskedPart(document, answered, position, details))
        return parts

    def ask_persona(
        self, documents: Sequence[Document], offers: Sequence[list[str]]
    ) -> list[AskedPart]:
        """Choose a persona for each document, then ask for one query per segment (Built-in or
        Learned).
        """
        offered = list(zip(documents, offers, strict=True))

        def build_choice(row: tuple[Document, list[str]]) -> dict[str, str]:
            document, personas = row
            lines = [f"{number}. {persona}" for number, persona in enumerate(personas, 1)]
            return {"document": document.text, "personas": "\n".join(lines)}

        def check_choice(row: tuple[Document, list[str]], choice: PersonaChoice) -> None:
            if not 1 <= choice.persona <= len(row[1]):
                raise UnusableAnswerError(DiscardReason.NO_SUCH_PERSONA)

        choices = self.model.ask(
            CHOOSE_PERSONA, offered, build_choice, "Choose personas", check_choice
        )
        parts = []
        wanted: list[tuple[Document, int, dict[str, str]]] = []
        for (document, personas), reply in zip(offered, choices, strict=True):
            choice = reply.answer
            if choice is None:
                parts.append(AskedPart(document, reply))
                continue
            persona = personas[choice.persona - 1]
            details = choice.model_dump(include={"difficulty", "query_length"})
            wanted += [(document, third, details | {"persona": persona}) for third in range(3)]
        replies = self.model.ask(ASK_PERSONA, wanted, self._build_query, "Ask")
        for (document, third, details), answered in zip(wanted, replies, strict=True):
            parts.append(AskedPart(document, answered, POSITIONS[third], details))
        return parts

    def _build_query(self, row: tuple[Document, int, dict[str, str]]) -> dict[str, str]:
        document, third, details = row
        sentences = find_sentences(document.text, self.settings.language)
        segment = split_thirds(document.text, sentences)[third]
        return {
            "document": document.text,
            "segment": segment.of(document.text),
            "part": POSITIONS[third],
            "persona": details["persona"],
            "difficulty": details["difficulty"].replace("_", " "),
            "query_length": LENGTHS[details["query_length"]],
            **self._common,
        }


def tag_chunk(chunk: Span, length: int) -> str:
    """Find the position of a chunk that starts at m and ends at n in a text of length z (PosQ,
    algorithm 1), in characters.

    With t = floor(z / 3): n < t is beginning; else m >= 2t is end; else middle, as every chunk that
    overlaps two thirds.
    """
    third = length // 3
    if chunk.end < third:
        return "beginning"
    return "end" if chunk.start >= 2 * third else "middle"


def split_chunks(text: str, words: int) -> list[Span]:
    """Split a text into consecutive chunks of at most that many words, cut at paragraphs, lines,
    sentences or words.

    PosQ uses LangChain's recursive splitter with 256 words; its overlap is not stated, and none
    here. In scripts without spaces two characters count as a word.
    """
    chunks = _split(text, Span(0, len(text)), words, SEPARATORS)
    return [span for span in chunks if span.of(text).strip()]


def _split(text: str, span: Span, words: int, separators: Sequence[str]) -> list[Span]:
    if _count_words(text, span) <= words:
        return [span]
    if not separators:
        size = max(1, 2 * words)
        starts = range(span.start, span.end, size)
        return [Span(start, min(start + size, span.end)) for start in starts]
    matches = re.finditer(separators[0], span.of(text))
    cuts = {span.start, span.end, *(span.start + match.end() for match in matches)}
    # Neighbors are joined as long as they are within the limit.
    chunks: list[Span] = []
    count = words
    for start, end in pairwise(sorted(cuts)):
        for piece in _split(text, Span(start, end), words, separators[1:]):
            size = _count_words(text, piece)
            if count + size <= words:
                chunks[-1] = Span(chunks[-1].start, piece.end)
                count += size
            else:
                chunks.append(piece)
                count = size
    return chunks


def _count_words(text: str, span: Span) -> int:
    return len(find_terms(span.of(text)))


def offer_personas(
    documents: Sequence[Document], settings: BuildSettings, recall: Recall | None
) -> list[list[str]]:
    """Offer personas for each document: the nearest by an embedder (Built-in or Learned, section
    3.1.2), or random ones.
    """
    personas = load_personas(settings.ask.personas)
    number = min(settings.ask.personas_offered, len(personas))
    if recall is None:
        return [_seed(settings, "personas", row).sample(personas, number) for row in documents]
    rows = [Document(str(row), persona, 0, "") for row, persona in enumerate(personas)]
    nearest = recall.find(rows, documents, number)
    return [[personas[int(row)] for row in ids] for ids in nearest]


def _seed(settings: BuildSettings, purpose: str, document: Document) -> random.Random:
    return random.Random(seeded_order(settings.seed, purpose, document.id))


def load_personas(file: Path | None) -> list[str]:
    """Load the distinct personas in a file, or those that come with posir; raise PosirError if it
    cannot be read or has none.
    """
    try:
        if file and file.name.endswith(DATA_SUFFIXES):
            rows = open_data(file, column=PERSONA_FIELD).read_texts()
            lines = [row.text for row in rows if isinstance(row, Passage)]
        else:
            source = file or files(__package__) / "personas.txt"
            lines = source.read_text(encoding="utf-8").splitlines()
    except PosirError as error:
        raise PosirError(f"ask.personas: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = summarize_error(error)
        raise PosirError(f"ask.personas: {file}: cannot be read ({reason}).") from error
    personas = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not personas:
        raise PosirError(
            f"ask.personas: {file}: has no persona. A text file has one a line; other files have "
            f"the field {PERSONA_FIELD!r}."
        )
    return personas
