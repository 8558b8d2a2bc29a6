"""Stage 2, Ask: questions with answers, each meant for one part of a document.

Three methods, of PosIR (arXiv 2601.08363, section 2.2, appendix C.1), PosQ (arXiv 2505.13950,
section 3.2, appendix A.2) and Built-in or Learned (arXiv 2605.26578, section 3.1.1, appendix A).
The papers' prompts are not copied. Where the evidence really is, Locate finds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from rapidfuzz import fuzz

from posir_build.cluster import Recall
from posir_build.locate import list_numbers, load_patterns, split_thirds
from posir_build.records import (
    Discarded,
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
from posir_tasks.language_models.chat_client import ModelAnswer, PromptTemplate, load_prompt
from posir_tasks.text.languages import detect_other_language, english_name
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span, find_third
from posir_tasks.text.words import find_terms
from posir_tasks.values.evidence import POSITIONS

#: Longest question in characters.
MAX_CHARACTERS = 1000
#: Shortest question that can be a copy of its document's text.
MIN_COPY = 20
#: Patterns, one a line, by language, of which all are searched for in every question: parts and
#: positions of a text, and references to the document.
NAMES_POSITION, NAMES_SOURCE = load_patterns("positions.txt"), load_patterns("references.txt")


def find_fault(question: Question, document: Document, language: str) -> Discarded | None:
    """Return what is wrong with a question, or None."""
    text, original = question.text.strip(), document.text.lower()
    reason, detail = "", ""
    if not text or not question.answer.strip():
        reason = "blank answer" if text else "blank question"
    elif len(text) > MAX_CHARACTERS:
        reason, detail = "question too long", f"{len(text):,} characters"
    elif (named := NAMES_POSITION.search(text)) and named[0].lower() not in original:
        reason, detail = "names a position", named[0]
    elif (named := NAMES_SOURCE.search(text)) and named[0].lower() not in original:
        reason, detail = "refers to its document", named[0]
    elif len(text) >= MIN_COPY and text.lower() in original:
        reason = "copied from its document"
    elif other := detect_other_language(text, language):
        reason, detail = "another language", other
    return Discarded(reason, question.id, detail, question) if reason else None


def drop_repeated(
    questions: Iterable[Question], similar: float
) -> tuple[list[Question], list[Discarded]]:
    """Return the questions, and those that repeat an earlier one about their document, or word for
    word about another one.

    A question that two documents answer has a false negative in either case. Of such questions the
    first one is kept. About one document, a question repeats another from a similarity, in [0, 1],
    of their texts.
    """
    kept, discarded = list[Question](), list[Discarded]()
    texts: dict[str, str] = {}
    earlier: dict[str, list[tuple[str, str]]] = {}
    for question in questions:
        folded = " ".join(question.text.lower().split())
        others = earlier.setdefault(question.document, [])
        repeated = (
            name
            for name, other in others
            # The same numbers, too: one year or another makes two questions.
            if fuzz.ratio(folded, other) >= 100 * similar
            and list_numbers(folded) == list_numbers(other)
        )
        original = next(repeated, texts.get(folded))
        if original is not None:
            discarded.append(Discarded("repeats another question", question.id, original, question))
        else:
            texts[folded] = question.id
            others.append((question.id, folded))
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
#: Column of the personas in files with rows, such as those of PersonaHub.
PERSONA_FIELD = "persona"
LENGTHS = {"short": "under 10 words", "medium": "10 to 20 words", "long": "over 20 words"}
#: Where a chunk may end, the best first.
SEPARATORS = (r"\n\s*\n", r"\n", r"(?<=[.!?。！？।])\s*", r"\s+")


#: One prompt that asked for questions: the document, the position, the reply with its questions,
#: and details of the way.
Asked = tuple[Document, str, Reply[Any], Sequence[AskedQuestion], Mapping[str, str]]


def ask_questions(
    documents: Sequence[Document],
    settings: BuildSettings,
    model: LanguageModel,
    recall: Recall | None = None,
) -> StageResult:
    """Ask for questions, and discard those with faults; PosirError if model or file of personas
    cannot be used.

    `recall` finds the personas nearest to a document; None to draw them at random.
    """
    wanted, accepted, discarded = settings.ask, list[Question](), list[Discarded]()
    chosen = choose_documents(documents, wanted.documents, settings.seed)
    if wanted.method == "persona":
        results = ask_persona(chosen, offer_personas(chosen, settings, recall), settings, model)
    else:
        results = (ask_positional if wanted.method == "positional" else ask_chunk)(
            chosen, settings, model
        )
    for asked in results:
        if isinstance(asked, Discarded):
            discarded.append(asked)
            continue
        document, position, reply, questions, details = asked
        if reply.answer is None:
            discarded.append(
                Discarded(f"unusable answer: {reply.problem}", document.id, reply.prompt)
            )
        own = set[str]()
        for stated in questions:
            text = " ".join(stated.question.split())
            question = Question(
                id=question_id(document.id, text),
                document=document.id,
                text=text,
                answer=stated.answer.strip(),
                position=position,
                model=reply.model,
                prompt=reply.prompt,
                details={"type": stated.type, **details},
            )
            fault = find_fault(question, document, settings.language)
            if (
                not fault
                and len(own | {question.id}) > wanted.questions
                and wanted.method != "persona"
            ):
                fault = Discarded("more questions than asked for", question.id, question=question)
            if fault:
                discarded.append(fault)
            else:
                own.add(question.id)
                accepted.append(question)
    counts = {
        "questions": len(accepted) + sum(discard.question is not None for discard in discarded)
    }
    kept, repeated = drop_repeated(accepted, wanted.similar)
    return StageResult(tuple(documents), tuple(kept), (*discarded, *repeated), (), counts)


def take_questions(documents: Sequence[Document], settings: BuildSettings) -> StageResult:
    """Take the questions that the data of the documents has, with their spans, as they are;
    DataError if it has none.
    """
    known, stated = by_id(documents), list[tuple[Document, str, str, Span]]()
    for subset in open_source(settings).with_questions("`ask.method: given`").subsets:
        data = subset.read()
        texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
        # Languages may share ids.
        own = {
            name: document for name, document in known.items() if document.text == texts.get(name)
        }
        stated += [
            (own[name], query, text, span)
            for query, text, name, span in data.list_questions()
            if span and name in own
        ]
    chosen = set(
        choose_documents(
            dict.fromkeys(about for about, *_ in stated), settings.ask.documents, settings.seed
        )
    )
    thirds = (POSITIONS[find_third(span, len(about.text))] for about, *_, span in stated)
    questions = tuple(
        Question(query, about.id, text, span.of(about.text), third, "given", "given", span=span)
        for (about, query, text, span), third in zip(stated, thirds, strict=True)
        if about in chosen
    )
    return StageResult(tuple(documents), questions, (), (), {"questions": len(questions)})


def choose_documents(
    documents: Iterable[Document], number: int | None, seed: int
) -> list[Document]:
    """Return the documents that questions are asked about, in order of their ids; None for all."""
    order = sorted(documents, key=lambda document: seeded_order(seed, "ask", document.id))
    return sorted(order[:number], key=lambda document: document.id)


def ask_positional(
    documents: Sequence[Document], settings: BuildSettings, model: LanguageModel
) -> list[Asked | Discarded]:
    """Ask about thirds of documents, drawn at random, with the whole document in view (PosIR)."""
    drawn = [
        (document, third)
        for document in documents
        for third in sorted(_seed(settings, "third", document).sample(range(3), settings.ask.draws))
    ]
    shared = {"questions": str(settings.ask.questions), "language": english_name(settings.language)}
    replies = model.ask(
        ASK_POSITIONAL,
        drawn,
        lambda row: {"document": row[0].text, "part": THIRDS[row[1]], **shared},
        "Ask",
    )
    return [
        (document, POSITIONS[third], reply, reply.answer.questions if reply.answer else [], {})
        for (document, third), reply in zip(drawn, replies, strict=True)
    ]


def ask_chunk(
    documents: Sequence[Document], settings: BuildSettings, model: LanguageModel
) -> list[Asked | Discarded]:
    """Ask about chunks of documents, with a summary of the document in view (PosQ)."""
    language = {"language": english_name(settings.language)}
    replies = model.ask(
        SUMMARIZE, documents, lambda document: {"document": document.text, **language}, "Summarize"
    )
    asked: list[Asked | Discarded] = []
    chunks: list[tuple[Document, Span, str]] = []
    for document, reply in zip(documents, replies, strict=True):
        if reply.answer is None:
            asked.append(Discarded(f"unusable summary: {reply.problem}", document.id, reply.prompt))
        else:
            spans = split_chunks(document.text, settings.ask.chunk_words)
            chunks += [(document, span, reply.answer.summary) for span in spans]

    def build(row: tuple[Document, Span, str]) -> dict[str, str]:
        document, chunk, summary = row
        return {
            "summary": summary,
            "chunk": chunk.of(document.text),
            "questions": str(settings.ask.questions),
            **language,
        }

    for (document, chunk, _), answered in zip(
        chunks, model.ask(ASK_CHUNK, chunks, build, "Ask"), strict=True
    ):
        questions = answered.answer.questions if answered.answer else []
        details = {"chunk": f"{chunk.start}-{chunk.end}"}
        asked.append((document, tag_chunk(chunk, len(document.text)), answered, questions, details))
    return asked


def tag_chunk(chunk: Span, length: int) -> str:
    """Return the position of a chunk that starts at m and ends at n in a text of length z (PosQ,
    algorithm 1), in characters.

    With t = floor(z / 3): n < t is beginning; else m >= 2t is end; else middle, as every chunk that
    overlaps two thirds.
    """
    third = length // 3
    if chunk.end < third:
        return "beginning"
    return "end" if chunk.start >= 2 * third else "middle"


def split_chunks(text: str, words: int) -> list[Span]:
    """Return consecutive chunks of a text of at most that many words, cut at paragraphs, lines,
    sentences or words.

    PosQ uses LangChain's recursive splitter with 256 words; its overlap is not stated, and none
    here. In scripts without spaces two characters count as a word.
    """
    return [span for span in _split(text, Span(0, len(text)), words, 0) if span.of(text).strip()]


def _split(text: str, span: Span, words: int, level: int) -> list[Span]:
    if len(find_terms(span.of(text))) <= words:
        return [span]
    if level == len(SEPARATORS):
        size = max(1, 2 * words)
        return [
            Span(start, min(start + size, span.end)) for start in range(span.start, span.end, size)
        ]
    ends = [match.end() for match in re.finditer(SEPARATORS[level], span.of(text)) if match.end()]
    cuts = sorted({span.start, *(span.start + end for end in ends), span.end})
    pieces = [
        piece
        for start, end in pairwise(cuts)
        for piece in _split(text, Span(start, end), words, level + 1)
    ]
    # Neighbors are joined as long as they are within the limit.
    merged, count = list[Span](), 0
    for piece in pieces:
        own = len(find_terms(piece.of(text)))
        if merged and count + own <= words:
            merged[-1], count = Span(merged[-1].start, piece.end), count + own
        else:
            merged.append(piece)
            count = own
    return merged


def ask_persona(
    documents: Sequence[Document],
    offers: Sequence[list[str]],
    settings: BuildSettings,
    model: LanguageModel,
) -> list[Asked | Discarded]:
    """Choose a persona for each document, then ask for one query per segment (Built-in or
    Learned).
    """
    offered = list(zip(documents, offers, strict=True))

    def describe(row: tuple[Document, list[str]]) -> dict[str, str]:
        return {
            "document": row[0].text,
            "personas": "\n".join(f"{number}. {name}" for number, name in enumerate(row[1], 1)),
        }

    choices = model.ask(CHOOSE_PERSONA, offered, describe, "Choose personas")
    asked: list[Asked | Discarded] = []
    pending: list[tuple[Document, int, dict[str, str]]] = []
    for (document, offer), reply in zip(offered, choices, strict=True):
        choice = reply.answer
        problem = (
            reply.problem
            if choice is None
            else ""
            if 1 <= choice.persona <= len(offer)
            else "there is no such person"
        )
        if problem or choice is None:
            asked.append(
                Discarded(f"unusable choice of a persona: {problem}", document.id, reply.prompt)
            )
            continue
        details = {
            "persona": offer[choice.persona - 1],
            "difficulty": choice.difficulty,
            "query_length": choice.query_length,
        }
        pending += [(document, third, details) for third in range(3)]

    def build(row: tuple[Document, int, dict[str, str]]) -> dict[str, str]:
        (document, third, details), language = row, settings.language
        segment = split_thirds(document.text, find_sentences(document.text, language))[third].of(
            document.text
        )
        words = {
            "difficulty": details["difficulty"].replace("_", " "),
            "query_length": LENGTHS[details["query_length"]],
        }
        told = {"persona": details["persona"], **words, "language": english_name(language)}
        return {"document": document.text, "segment": segment, "part": POSITIONS[third], **told}

    replies = model.ask(ASK_PERSONA, pending, build, "Ask")
    for (document, third, details), answered in zip(pending, replies, strict=True):
        query = answered.answer
        questions = (
            [AskedQuestion(question=query.query, answer=query.answer, type="query")]
            if query
            else []
        )
        asked.append((document, POSITIONS[third], answered, questions, details))
    return asked


def offer_personas(
    documents: Sequence[Document], settings: BuildSettings, recall: Recall | None
) -> list[list[str]]:
    """Return personas for each document: the nearest by an embedder (Built-in or Learned, section
    3.1.2), or random ones.
    """
    personas, number = load_personas(settings.ask.personas), settings.ask.personas_offered
    if recall is None:
        return [
            _seed(settings, "personas", about).sample(personas, min(number, len(personas)))
            for about in documents
        ]
    rows = [Document(str(row), persona, 0, "") for row, persona in enumerate(personas)]
    return [
        [personas[int(row)] for row in nearest] for nearest in recall.find(rows, documents, number)
    ]


def _seed(settings: BuildSettings, purpose: str, document: Document) -> random.Random:
    return random.Random(seeded_order(settings.seed, purpose, document.id))


def load_personas(file: Path | None) -> list[str]:
    """Return the distinct personas in a file, or those that come with posir; PosirError if it
    cannot be read, or has none.
    """
    try:
        if file and file.name.endswith(DATA_SUFFIXES):
            rows = open_data(file, column=PERSONA_FIELD).read_texts()
            lines = [row.text for row in rows if isinstance(row, Passage)]
        else:
            lines = (
                (file or files(__package__) / "personas.txt")
                .read_text(encoding="utf-8")
                .splitlines()
            )
    except PosirError as error:
        raise PosirError(f"ask.personas: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise PosirError(
            f"ask.personas: {file}: cannot be read ({summarize_error(error)})."
        ) from error
    personas = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not personas:
        raise PosirError(
            f"ask.personas: {file}: has no persona. A text file has one a line; other files have "
            f"the field {PERSONA_FIELD!r}."
        )
    return personas
