"""Stage 2, Ask: generate questions with answers, each about a requested segment of a document.

The three methods are from PosIR (arXiv 2601.08363, section 2.2, appendix C.1), PosQ (arXiv
2505.13950, section 3.2, appendix A.2) and Built-in or Learned (arXiv 2605.26578, section 3.1.1,
appendix A), with prompts of our own. The Locate stage then finds the actual evidence span.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import polars as pl
from rapidfuzz import fuzz

from posir_build.cluster import CandidateRetriever
from posir_build.locate import split_thirds
from posir_build.quotes import list_numbers, load_patterns
from posir_build.records import (
    Discarded,
    DiscardReason,
    Document,
    Outcomes,
    PromptValues,
    Question,
    StageResult,
    compute_question_id,
    compute_sort_key,
    shuffle,
)
from posir_build.sample import open_source
from posir_build.settings import AskMethod, BuildSettings
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.data.data import list_texts
from posir_tasks.data.formats.passages import Passage
from posir_tasks.data.repository import DATA_SUFFIXES
from posir_tasks.datasets.opening import open_data
from posir_tasks.language_models.asking import LanguageModel, Reply
from posir_tasks.language_models.chat_client import (
    MAX_QUESTION_CHARACTERS,
    ModelAnswer,
    PromptTemplate,
    UnusableAnswerError,
    load_prompt,
)
from posir_tasks.text.languages import detect_other_language, find_english_name
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span, find_third
from posir_tasks.text.words import find_terms
from posir_tasks.values.evidence import POSITIONS

#: Minimum length, in characters, of a question that counts as copied from its document.
MIN_COPIED_CHARACTERS = 20
#: Multilingual patterns that questions must not match.
FORBIDDEN_PATTERNS = {
    DiscardReason.NAMES_POSITION: load_patterns("positions.txt"),
    DiscardReason.NAMES_DOCUMENT: load_patterns("references.txt"),
}


def find_fault(question: Question, document: Document, language: str) -> Discarded | None:
    """Return the discarded question with its first fault, or None if there is none."""
    text = question.text
    document_text = document.text.lower()
    if not text:
        return question.discard(DiscardReason.BLANK_QUESTION)
    if not question.answer:
        return question.discard(DiscardReason.BLANK_ANSWER)
    if len(text) > MAX_QUESTION_CHARACTERS:
        return question.discard(DiscardReason.LONG_QUESTION, f"{len(text):,} characters")
    for reason, pattern in FORBIDDEN_PATTERNS.items():
        match = pattern.search(text)
        if match and match[0].lower() not in document_text:
            return question.discard(reason, match[0])
    if len(text) >= MIN_COPIED_CHARACTERS and text.lower() in document_text:
        return question.discard(DiscardReason.COPIED)
    other_language = detect_other_language(text, language)
    if other_language:
        return question.discard(DiscardReason.OTHER_LANGUAGE, other_language)
    return None


def discard_repeated(questions: Iterable[Question], similarity: float) -> Outcomes:
    """Discard questions that repeat an earlier question.

    Two questions about the same document are repetitions if their text similarity is at least
    `similarity`, in [0, 1]. Questions about different documents must be identical: then each
    document is a false negative for the other document's question.
    """
    first_ids: dict[str, str] = {}
    texts_by_document: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for question in questions:
        text = " ".join(question.text.lower().split())
        earlier_texts = texts_by_document[question.document]
        original_id = first_ids.get(text)
        for earlier_id, earlier_text in earlier_texts.items():
            # Questions that differ in a number, such as a year, are distinct.
            is_similar = fuzz.ratio(text, earlier_text) >= 100 * similarity
            if is_similar and list_numbers(text) == list_numbers(earlier_text):
                original_id = earlier_id
                break
        if original_id is not None:
            yield question.discard(DiscardReason.REPEATED, original_id)
            continue
        first_ids[text] = question.id
        earlier_texts[question.id] = text
        yield question


class AskedQuestion(ModelAnswer):
    """A question with its answer."""

    question: str
    answer: str
    type: str
    """Question type: `what`, `how`, `claim` ... (PosIR, arXiv 2601.08363); `simple`, `complicated`
    (PosQ, 2505.13950).
    """


class AskedQuestions(ModelAnswer):
    """Questions about a document."""

    questions: list[AskedQuestion]


class DocumentSummary(ModelAnswer):
    """A summary of a document (PosQ)."""

    summary: str


class PersonaChoice(ModelAnswer):
    """A persona who would search for a document, and the style of the query (Built-in or Learned,
    arXiv 2605.26578).
    """

    persona: int
    """Number of the persona in the offered list, starting at 1."""
    difficulty: Literal["high_school", "university", "phd"]
    query_length: Literal["short", "medium", "long"]


class PersonaQuery(ModelAnswer):
    """A search query of a persona (Built-in or Learned)."""

    query: str
    answer: str
    reasoning: str

    @property
    def questions(self) -> list[AskedQuestion]:
        """The query as the only question."""
        return [AskedQuestion(question=self.query, answer=self.answer, type="query")]


ASK_POSITIONAL = load_prompt("ask_positional", AskedQuestions)
SUMMARIZE = load_prompt("summarize", DocumentSummary)
ASK_CHUNK = load_prompt("ask_chunk", AskedQuestions)
CHOOSE_PERSONA = load_prompt("choose_persona", PersonaChoice)
ASK_PERSONA = load_prompt("ask_persona", PersonaQuery)
#: Prompts by method, in call order.
PROMPTS: Mapping[AskMethod, Sequence[PromptTemplate[Any]]] = {
    "positional": (ASK_POSITIONAL,),
    "chunk": (SUMMARIZE, ASK_CHUNK),
    "persona": (CHOOSE_PERSONA, ASK_PERSONA),
}
#: Names of the thirds in prompts.
THIRDS = ("first", "middle", "last")
#: Model and prompt of questions that come with the data.
GIVEN = "given"
#: Descriptions of `PersonaChoice.query_length` in prompts.
QUERY_LENGTHS = {"short": "under 10 words", "medium": "10 to 20 words", "long": "over 20 words"}
#: Patterns after which a chunk may end, in order of preference.
SEPARATORS = (r"\n\s*\n", r"\n", r"(?<=[.!?。！？।])\s*", r"\s+")


@dataclass(frozen=True)
class QuestionRequest:
    """A request for questions about one segment of a document."""

    document: Document
    values: PromptValues
    position: str
    details: dict[str, str] = field(default_factory=dict)


def ask_questions(
    documents: Sequence[Document],
    settings: BuildSettings,
    model: LanguageModel,
    retriever: CandidateRetriever | None = None,
) -> StageResult:
    """Generate questions and discard faulty ones.

    `retriever` finds the nearest personas for each document; without it, personas are sampled at
    random.

    Raises:
        PosirError: The model or the persona file cannot be used.
    """
    selection = sample_source_documents(documents, settings.ask.documents, settings.seed)
    discarded: list[Discarded] = []
    match settings.ask.method:
        case "positional":
            requests = _request_thirds(selection, settings)
        case "chunk":
            requests = _request_chunks(selection, settings, model, discarded)
        case _:
            personas = select_personas(selection, settings, retriever)
            requests = _request_segments(selection, personas, settings, model, discarded)
    shared_values = {
        "questions": str(settings.ask.questions),
        "language": find_english_name(settings.language),
    }
    prompt = PROMPTS[settings.ask.method][-1]
    replies = model.ask(prompt, requests, lambda request: request.values | shared_values, "Ask")
    result = StageResult(tuple(documents), (), tuple(discarded))
    result = result.advance(_check_questions(replies, settings))
    result = result.advance(discard_repeated(result.questions, settings.ask.similar))
    if settings.ask.method == "chunk":
        result = replace(result, notes=(_describe_labels(result.questions),))
    return result


def _check_questions(
    replies: Iterable[tuple[QuestionRequest, Reply[Any]]], settings: BuildSettings
) -> Outcomes:
    """Yield the questions in the replies; discard faulty questions and unusable replies."""
    for request, reply in replies:
        document = request.document
        if reply.answer is None:
            yield Discarded(reply.fault, document.id, reply.detail)
            continue
        accepted_ids: set[str] = set()
        for row in reply.answer.questions:
            text = " ".join(row.question.split())
            question = Question(
                id=compute_question_id(document.id, text),
                document=document.id,
                text=text,
                answer=row.answer.strip(),
                position=request.position,
                model=reply.model,
                prompt=reply.prompt,
                details={"type": row.type, **request.details},
            )
            fault = find_fault(question, document, settings.language)
            ids = accepted_ids | {question.id}
            if not fault and settings.prompts == "posir" and len(ids) > settings.ask.questions:
                fault = question.discard(DiscardReason.EXTRA_QUESTION)
            if not fault:
                accepted_ids = ids
            yield fault or question


def _describe_labels(questions: Iterable[Question]) -> str:
    """Count questions by the third of their chunk, with one label per chunk as in PosQ and with up
    to two labels as in the paper's first version (Myopic Trap).
    """
    one_label = Counter(question.position for question in questions)
    two_labels = Counter(
        label for question in questions for label in question.details["labels"].split(", ")
    )
    lists = [
        ", ".join(f"{position} {counts[position]:,}" for position in POSITIONS)
        for counts in (one_label, two_labels)
    ]
    return f"questions by the third of their chunk: {lists[0]}; with two labels: {lists[1]}"


def load_questions(documents: Sequence[Document], settings: BuildSettings) -> StageResult:
    """Load the questions and spans that come with the documents. Raise DataError if there are
    none.
    """
    result = StageResult(tuple(documents))
    questions = []
    for subset in open_source(settings).select_questions("`ask.method: given`").subsets:
        data = subset.read()
        texts = list_texts(data.corpus)
        for query, text, name, span in data.list_questions():
            document = result.by_id.get(name)
            # Documents in several languages may share ids.
            if span and document and document.text == texts[name]:
                third = POSITIONS[find_third(span, len(document.text))]
                answer = span.slice(document.text)
                question = Question(query, name, text, answer, third, GIVEN, GIVEN, span=span)
                questions.append(question)
    candidates = [result.by_id[name] for name in {question.document for question in questions}]
    sample = sample_source_documents(candidates, settings.ask.documents, settings.seed)
    sample_ids = {document.id for document in sample}
    result = result.advance(question for question in questions if question.document in sample_ids)
    repeated_count = count_repeated_evidence(result, settings.language)
    if not repeated_count:
        return result
    note = (
        f"evidence sentences that occur in several documents: {repeated_count:,} of "
        f"{len(result.questions):,} questions; only the labeled document counts as relevant (RARE, "
        "arXiv 2604.19047)"
    )
    return replace(result, notes=(note,))


def count_repeated_evidence(result: StageResult, language: str) -> int:
    """Count questions whose evidence sentences also occur in another document. Case and white space
    are ignored.
    """
    split = cache(partial(find_sentences, language=language))
    passages = []
    for question in result.questions:
        text = result.by_id[question.document].text
        evidence = question.evidence
        sentences = [row for row in split(text) if row.overlaps(evidence)] or [evidence]
        passages.append(text[sentences[0].start : sentences[-1].end])
    normalized_passages = _normalize(passages)
    occurrences = _normalize(document.text for document in result.documents).str.extract_many(
        [*normalized_passages.unique(), "\0"], overlapping=True
    )
    document_counts = Counter(occurrences.list.unique().explode())
    return sum(document_counts[passage] > 1 for passage in normalized_passages)


def _normalize(texts: Iterable[str]) -> pl.Series:
    """Convert texts to lower case and collapse white space."""
    series = pl.Series(list(texts), dtype=pl.String)
    return series.str.to_lowercase().str.replace_all(r"\s+", " ").str.strip_chars()


def sample_source_documents(
    documents: Iterable[Document], number: int | None, seed: int
) -> list[Document]:
    """Sample the documents to ask about; None selects all. The sample is sorted by id."""
    return sorted(shuffle(documents, seed, "ask")[:number], key=attrgetter("id"))


def _request_thirds(
    documents: Sequence[Document], settings: BuildSettings
) -> list[QuestionRequest]:
    """Request questions about random thirds; the prompt contains the whole document (PosIR)."""
    requests = []
    for document in documents:
        thirds = _create_rng(settings, "third", document).sample(range(3), settings.ask.draws)
        for third in sorted(thirds):
            values = {"document": document.text, "part": THIRDS[third]}
            requests.append(QuestionRequest(document, values, POSITIONS[third]))
    return requests


def _request_chunks(
    documents: Sequence[Document],
    settings: BuildSettings,
    model: LanguageModel,
    discarded: list[Discarded],
) -> list[QuestionRequest]:
    """Request questions about chunks; the prompt contains a summary of the document (PosQ). Discard
    documents without a summary.
    """

    def build(document: Document) -> PromptValues:
        return {"document": document.text, "language": find_english_name(settings.language)}

    requests = []
    for document, reply in model.ask(SUMMARIZE, documents, build, "Summarize"):
        if reply.answer is None:
            discarded.append(Discarded(reply.fault, document.id, reply.detail))
            continue
        for chunk in split_chunks(document.text, settings.ask.chunk_words):
            values = {"summary": reply.answer.summary, "chunk": chunk.slice(document.text)}
            labels = label_chunk(chunk, len(document.text))
            # PosQ, algorithm 1: a chunk in two thirds counts as middle.
            position = labels[0] if len(labels) == 1 else "middle"
            details = {"chunk": f"{chunk.start}-{chunk.end}", "labels": ", ".join(labels)}
            requests.append(QuestionRequest(document, values, position, details))
    return requests


def _request_segments(
    documents: Sequence[Document],
    personas_by_document: Mapping[str, list[str]],
    settings: BuildSettings,
    model: LanguageModel,
    discarded: list[Discarded],
) -> list[QuestionRequest]:
    """Let the model choose one of each document's personas, then request one query per segment
    (Built-in or Learned). Discard documents without a choice.
    """

    def build(document: Document) -> PromptValues:
        personas = enumerate(personas_by_document[document.id], 1)
        lines = [f"{number}. {persona}" for number, persona in personas]
        return {"document": document.text, "personas": "\n".join(lines)}

    def check(document: Document, choice: PersonaChoice) -> None:
        if not 1 <= choice.persona <= len(personas_by_document[document.id]):
            raise UnusableAnswerError(DiscardReason.UNKNOWN_PERSONA)

    requests = []
    replies = model.ask(CHOOSE_PERSONA, documents, build, "Choose personas", check)
    for document, reply in replies:
        choice = reply.answer
        if choice is None:
            discarded.append(Discarded(reply.fault, document.id, reply.detail))
            continue
        persona = personas_by_document[document.id][choice.persona - 1]
        details = choice.model_dump(include={"difficulty", "query_length"}) | {"persona": persona}
        segments = split_thirds(document.text, find_sentences(document.text, settings.language))
        for position, segment in zip(POSITIONS, segments, strict=True):
            values = {
                "document": document.text,
                "segment": segment.slice(document.text),
                "part": position,
                "persona": persona,
                "difficulty": choice.difficulty.replace("_", " "),
                "query_length": QUERY_LENGTHS[choice.query_length],
            }
            requests.append(QuestionRequest(document, values, position, details))
    return requests


def label_chunk(chunk: Span, length: int) -> tuple[str, ...]:
    """Label a chunk [m, n) of a text with z characters with one or two thirds (algorithm 1 of the
    first version of PosQ, Myopic Trap).

    With t = floor(z / 3), the labels are beginning if n < t; end if m >= 2t; middle if t <= m and
    n < 2t; beginning and middle for any other n < 2t; middle and end otherwise.
    """
    third = length // 3
    if chunk.end < third:
        return ("beginning",)
    if chunk.start >= 2 * third:
        return ("end",)
    if chunk.end < 2 * third:
        return ("middle",) if chunk.start >= third else ("beginning", "middle")
    return ("middle", "end")


def split_chunks(text: str, words: int) -> list[Span]:
    """Split a text into consecutive chunks of at most `words` words, at the boundaries of
    paragraphs, lines, sentences or words.

    PosQ uses LangChain's recursive splitter with 256 words and does not state the overlap. Here,
    chunks do not overlap. In scripts without spaces, two characters count as a word.
    """
    chunks = _split(text, Span(0, len(text)), words, SEPARATORS)
    return [span for span in chunks if span.slice(text).strip()]


def _split(text: str, span: Span, words: int, separators: Sequence[str]) -> list[Span]:
    if len(find_terms(span.slice(text))) <= words:
        return [span]
    if not separators:
        size = max(1, 2 * words)
        starts = range(span.start, span.end, size)
        return [Span(start, min(start + size, span.end)) for start in starts]
    matches = re.finditer(separators[0], span.slice(text))
    cuts = {span.start, span.end, *(span.start + match.end() for match in matches)}
    # Merge neighbors up to the limit.
    chunks: list[Span] = []
    count = words
    for start, end in pairwise(sorted(cuts)):
        for piece in _split(text, Span(start, end), words, separators[1:]):
            size = len(find_terms(piece.slice(text)))
            if count + size <= words:
                chunks[-1] = Span(chunks[-1].start, piece.end)
                count += size
            else:
                chunks.append(piece)
                count = size
    return chunks


def select_personas(
    documents: Sequence[Document], settings: BuildSettings, retriever: CandidateRetriever | None
) -> dict[str, list[str]]:
    """Select personas for each document id: the nearest by embedding (Built-in or Learned, section
    3.1.2), or a random sample without `retriever`.
    """
    personas = load_personas(settings.ask.personas)
    number = min(settings.ask.personas_offered, len(personas))
    if retriever is None:
        return {
            row.id: _create_rng(settings, "personas", row).sample(personas, number)
            for row in documents
        }
    rows = [Document(persona, persona, 0, "") for persona in personas]
    nearest = retriever.find(rows, documents, number)
    return {row.id: names for row, names in zip(documents, nearest, strict=True)}


def _create_rng(settings: BuildSettings, purpose: str, document: Document) -> random.Random:
    return random.Random(compute_sort_key(settings.seed, purpose, document.id))


def load_personas(file: Path | None) -> list[str]:
    """Load the distinct personas from a file, by default from posir's own list. Raise PosirError if
    the file is unreadable or empty.
    """
    try:
        if file and file.name.endswith(DATA_SUFFIXES):
            rows = open_data(file, column="persona").read_texts()
            lines = [row.text for row in rows if isinstance(row, Passage)]
        else:
            source = file or files(__package__) / "personas.txt"
            lines = source.read_text(encoding="utf-8").splitlines()
    except (PosirError, OSError, UnicodeDecodeError) as error:
        raise PosirError(f"ask.personas: {file}: {summarize_error(error)}") from error
    personas = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not personas:
        raise PosirError(
            f"ask.personas: {file}: contains no personas. Give a text file with one persona per "
            "line, or a file with a field 'persona', as in PersonaHub."
        )
    return personas
