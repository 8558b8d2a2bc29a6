"""Stage 2, Ask: questions with answers, each meant for one part of a document.

Three methods, of PosIR (arXiv 2601.08363, section 2.2, appendix C.1), PosQ (arXiv 2505.13950,
section 3.2, appendix A.2) and Built-in or Learned (arXiv 2605.26578, section 3.1.1, appendix A).
The papers' prompts are not copied. The real place of the evidence is found by Locate.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import polars as pl
from rapidfuzz import fuzz

from posir_build.cluster import Recall
from posir_build.locate import split_thirds
from posir_build.quotes import list_numbers, load_patterns
from posir_build.records import (
    Discarded,
    DiscardReason,
    Document,
    PromptValues,
    Question,
    StageResult,
    by_id,
    question_id,
    seeded_order,
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
from posir_tasks.text.languages import detect_other_language, english_name
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span, find_third
from posir_tasks.text.words import find_terms
from posir_tasks.values.evidence import POSITIONS

#: Minimum number of characters of a question that can be a copy of its document's text.
MIN_COPY = 20
#: What questions are searched for, in all languages: parts and positions of a text, and references
#: to the document.
NAMES = {
    DiscardReason.NAMES_POSITION: load_patterns("positions.txt"),
    DiscardReason.NAMES_DOCUMENT: load_patterns("references.txt"),
}


def find_fault(question: Question, document: Document, language: str) -> Discarded | None:
    """Find what is wrong with a question."""
    text = question.text.strip()
    original = document.text.lower()
    if not text:
        return question.discard(DiscardReason.BLANK_QUESTION)
    if not question.answer.strip():
        return question.discard(DiscardReason.BLANK_ANSWER)
    if len(text) > MAX_QUESTION_CHARACTERS:
        return question.discard(DiscardReason.LONG_QUESTION, f"{len(text):,} characters")
    for reason, pattern in NAMES.items():
        name = pattern.search(text)
        if name and name[0].lower() not in original:
            return question.discard(reason, name[0])
    if len(text) >= MIN_COPY and text.lower() in original:
        return question.discard(DiscardReason.COPIED)
    other = detect_other_language(text, language)
    return question.discard(DiscardReason.OTHER_LANGUAGE, other) if other else None


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
    earlier: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for question in questions:
        text = " ".join(question.text.lower().split())
        others = earlier[question.document]
        original = first_ids.get(text)
        for name, other in others.items():
            # The same numbers: one year or another makes two questions.
            is_similar = fuzz.ratio(text, other) >= 100 * similar
            if is_similar and list_numbers(text) == list_numbers(other):
                original = name
                break
        if original is not None:
            discarded.append(question.discard(DiscardReason.REPEATED, original))
            continue
        first_ids[text] = question.id
        others[question.id] = text
        kept.append(question)
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
LENGTHS = {"short": "under 10 words", "medium": "10 to 20 words", "long": "over 20 words"}
#: Separators at which a chunk may end, the best first.
SEPARATORS = (r"\n\s*\n", r"\n", r"(?<=[.!?。！？।])\s*", r"\s+")


@dataclass(frozen=True)
class QuestionRequest:
    """A part of a document to ask about, with the values of the prompt."""

    document: Document
    values: PromptValues
    position: str
    details: dict[str, str] = field(default_factory=dict)


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
    selection = choose_documents(documents, settings.ask.documents, settings.seed)
    discarded: list[Discarded] = []
    match settings.ask.method:
        case "positional":
            requests = _request_thirds(selection, settings)
        case "chunk":
            requests = _request_chunks(selection, settings, model, discarded)
        case _:
            offers = offer_personas(selection, settings, recall)
            requests = _request_segments(selection, offers, settings, model, discarded)
    common = {
        "questions": str(settings.ask.questions),
        "language": english_name(settings.language),
    }
    prompt = PROMPTS[settings.ask.method][-1]
    replies = model.ask(prompt, requests, lambda request: request.values | common, "Ask")
    accepted = []
    number = 0
    for request, reply in zip(requests, replies, strict=True):
        if reply.answer is None:
            discarded.append(Discarded(reply.fault, request.document.id, reply.detail))
            continue
        found: set[str] = set()
        questions = _list_questions(request, reply)
        number += len(questions)
        for question in questions:
            fault = find_fault(question, request.document, settings.language)
            has_limit = settings.prompts == "posir"
            if not fault and has_limit and len(found | {question.id}) > settings.ask.questions:
                fault = question.discard(DiscardReason.EXTRA_QUESTION)
            if fault:
                discarded.append(fault)
            else:
                found.add(question.id)
                accepted.append(question)
    kept, repeated = drop_repeated(accepted, settings.ask.similar)
    counts = {"questions": number}
    notes = [_describe_labels(kept)] if settings.ask.method == "chunk" else []
    return StageResult(tuple(documents), tuple(kept), (*discarded, *repeated), tuple(notes), counts)


def _describe_labels(questions: Iterable[Question]) -> str:
    """Count questions by the third of their chunk, with one label (PosQ) and with up to two (the
    first version of the paper, Myopic Trap).
    """
    one = Counter(question.position for question in questions)
    two = Counter(
        label for question in questions for label in question.details["labels"].split(", ")
    )
    shown = [
        ", ".join(f"{position} {counts[position]:,}" for position in POSITIONS)
        for counts in (one, two)
    ]
    return f"questions by the third of their chunk: {shown[0]}; with two labels: {shown[1]}"


def _list_questions(request: QuestionRequest, reply: Reply[Any]) -> list[Question]:
    """List the questions of an answer, with faults or without."""
    answer: Any = reply.answer
    if isinstance(answer, PersonaQuery):
        rows = [AskedQuestion(question=answer.query, answer=answer.answer, type="query")]
    else:
        rows = answer.questions
    questions = []
    for row in rows:
        text = " ".join(row.question.split())
        questions.append(
            Question(
                id=question_id(request.document.id, text),
                document=request.document.id,
                text=text,
                answer=row.answer.strip(),
                position=request.position,
                model=reply.model,
                prompt=reply.prompt,
                details={"type": row.type, **request.details},
            )
        )
    return questions


def take_questions(documents: Sequence[Document], settings: BuildSettings) -> StageResult:
    """Take the questions that the data of the documents has, with their spans; raise DataError if
    it has none.
    """
    by_name = by_id(documents)
    questions = []
    for subset in open_source(settings).with_questions("`ask.method: given`").subsets:
        data = subset.read()
        texts = list_texts(data.corpus)
        for query, text, name, span in data.list_questions():
            document = by_name.get(name)
            # Languages may share ids.
            if span is None or document is None or document.text != texts[name]:
                continue
            third = POSITIONS[find_third(span, len(document.text))]
            answer = span.of(document.text)
            questions.append(Question(query, name, text, answer, third, GIVEN, GIVEN, span=span))
    about = [by_name[name] for name in {question.document for question in questions}]
    selected = by_id(choose_documents(about, settings.ask.documents, settings.seed))
    taken = tuple(question for question in questions if question.document in selected)
    repeated = count_repeated_evidence(taken, by_name, settings.language)
    counts = {"questions": len(taken), "repeated": repeated}
    note = (
        f"evidence in several documents, in whole sentences: {repeated:,} of {len(taken):,} "
        "questions; only the document of the data counts as relevant (RARE, arXiv 2604.19047)"
    )
    return StageResult(tuple(documents), taken, (), (note,) * bool(repeated), counts)


def count_repeated_evidence(
    questions: Sequence[Question], documents: Mapping[str, Document], language: str
) -> int:
    """Count questions whose evidence is in another document, too: the sentences that it is in, but
    for case and white space.
    """
    names = {question.document for question in questions}
    sentences = {name: find_sentences(documents[name].text, language) for name in names}
    passages = []
    for question in questions:
        start, end = question.span or Span(0, 0)
        parts = sentences[question.document]
        around = [part for part in parts if part.start < end and start < part.end]
        whole = Span(around[0].start, around[-1].end) if around else Span(start, end)
        passages.append(whole.of(documents[question.document].text))
    wanted = _unify(passages)
    found = _unify(document.text for document in documents.values()).str.extract_many(
        [*wanted.unique(), "\0"], overlapping=True
    )
    counts = Counter(found.list.unique().explode())
    return sum(counts[passage] > 1 for passage in wanted)


def _unify(texts: Iterable[str]) -> pl.Series:
    """Return texts in lower case, with single spaces."""
    series = pl.Series(list(texts), dtype=pl.String)
    return series.str.to_lowercase().str.replace_all(r"\s+", " ").str.strip_chars()


def choose_documents(
    documents: Iterable[Document], number: int | None, seed: int
) -> list[Document]:
    """Draw the documents that questions are asked about, in order of their ids; None for all."""
    order = sorted(documents, key=lambda document: seeded_order(seed, "ask", document.id))
    return sorted(order[:number], key=attrgetter("id"))


def _request_thirds(
    documents: Sequence[Document], settings: BuildSettings
) -> list[QuestionRequest]:
    """Request questions about thirds of documents, drawn at random, with the whole document in view
    (PosIR).
    """
    requests = []
    for document in documents:
        thirds = _seed(settings, "third", document).sample(range(3), settings.ask.draws)
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
    """Request questions about chunks of documents, with a summary of the document in view (PosQ);
    documents without one are discarded.
    """

    def build(document: Document) -> PromptValues:
        return {"document": document.text, "language": english_name(settings.language)}

    requests = []
    summaries = model.ask(SUMMARIZE, documents, build, "Summarize")
    for document, reply in zip(documents, summaries, strict=True):
        if reply.answer is None:
            discarded.append(Discarded(reply.fault, document.id, reply.detail))
            continue
        for chunk in split_chunks(document.text, settings.ask.chunk_words):
            values = {"summary": reply.answer.summary, "chunk": chunk.of(document.text)}
            labels = label_chunk(chunk, len(document.text))
            # PosQ (algorithm 1): a chunk that overlaps two thirds is in the middle.
            position = labels[0] if len(labels) == 1 else "middle"
            details = {"chunk": f"{chunk.start}-{chunk.end}", "labels": ", ".join(labels)}
            requests.append(QuestionRequest(document, values, position, details))
    return requests


def _request_segments(
    documents: Sequence[Document],
    offers: Sequence[list[str]],
    settings: BuildSettings,
    model: LanguageModel,
    discarded: list[Discarded],
) -> list[QuestionRequest]:
    """Choose one of the offered personas for each document, then request one query per segment
    (Built-in or Learned); documents without a persona are discarded.
    """
    offered = list(zip(documents, offers, strict=True))

    def build(row: tuple[Document, list[str]]) -> PromptValues:
        document, personas = row
        lines = [f"{number}. {persona}" for number, persona in enumerate(personas, 1)]
        return {"document": document.text, "personas": "\n".join(lines)}

    def check(row: tuple[Document, list[str]], choice: PersonaChoice) -> None:
        if not 1 <= choice.persona <= len(row[1]):
            raise UnusableAnswerError(DiscardReason.NO_SUCH_PERSONA)

    requests = []
    choices = model.ask(CHOOSE_PERSONA, offered, build, "Choose personas", check)
    for (document, personas), reply in zip(offered, choices, strict=True):
        choice = reply.answer
        if choice is None:
            discarded.append(Discarded(reply.fault, document.id, reply.detail))
            continue
        persona = personas[choice.persona - 1]
        details = choice.model_dump(include={"difficulty", "query_length"}) | {"persona": persona}
        sentences = find_sentences(document.text, settings.language)
        segments = split_thirds(document.text, sentences)
        for position, segment in zip(POSITIONS, segments, strict=True):
            values = {
                "document": document.text,
                "segment": segment.of(document.text),
                "part": position,
                "persona": persona,
                "difficulty": choice.difficulty.replace("_", " "),
                "query_length": LENGTHS[choice.query_length],
            }
            requests.append(QuestionRequest(document, values, position, details))
    return requests


def label_chunk(chunk: Span, length: int) -> tuple[str, ...]:
    """List the one or two thirds of a chunk that starts at m and ends at n in a text of length z,
    in characters (algorithm 1 of the first version of PosQ, Myopic Trap).

    With t = floor(z / 3): n < t is beginning; t <= m and n < 2t is middle; m >= 2t is end; else
    n < 2t is beginning and middle, and the rest middle and end.
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
    """Split a text into consecutive chunks of at most that many words, cut at paragraphs, lines,
    sentences or words.

    PosQ uses LangChain's recursive splitter with 256 words; its overlap is not stated, and none
    here. In scripts without spaces two characters count as a word.
    """
    chunks = _split(text, Span(0, len(text)), words, SEPARATORS)
    return [span for span in chunks if span.of(text).strip()]


def _split(text: str, span: Span, words: int, separators: Sequence[str]) -> list[Span]:
    if len(find_terms(span.of(text))) <= words:
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
            size = len(find_terms(piece.of(text)))
            if count + size <= words:
                chunks[-1] = Span(chunks[-1].start, piece.end)
                count += size
            else:
                chunks.append(piece)
                count = size
    return chunks


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
            f"ask.personas: {file}: has no persona. A text file has one a line; other files have "
            "the field 'persona', as those of PersonaHub."
        )
    return personas
