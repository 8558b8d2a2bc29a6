"""A running index without questions of its own: how many sentences of its documents come back, by
their position.

Nobody wrote the questions: `questions` says how they are made. A document is also asked for by its
first words, verbatim, which find it where its beginning is indexed. Recall at k is the share of
questions whose document is among the first k hits, or whose whole sentence is in chunks among them.
It is that of documents whose first words find them (tail recall where the head is found): what the
index lacks altogether is no lost end. Intervals are for new documents, each of which is a cluster.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from posir_inspect.questions import SEED, PseudoQuestion, QuestionSet, Wording
from posir_score.alignment import AlignmentRules, describe_own_number
from posir_score.collecting import AskedQuery, CollectionSettings, Journal, QueryAnswers, Retriever
from posir_score.excerpts import THIRDS, lacks_words
from posir_score.hits import sort_hits
from posir_score.retrieved_chunks import ChunkKey
from posir_significance.changes import ChangeRow, Metric, decide_change
from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.intervals import LEVEL, estimate_mean
from posir_significance.messages import describe_recall_change
from posir_significance.regression import Regression
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import pluralize, sanitized
from posir_tasks.display.numbers import format_count, format_estimate, format_percent
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.models.references import legible_name
from posir_tasks.text.locating import START, TextLocator
from posir_tasks.text.spans import Span, find_third
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.read_part import ReadKind, ReadPart
from posir_tasks.values.scores import Estimate

#: First characters of a document, about 40 words, by which it is asked for.
HEAD, HEAD_CHARACTERS = "head", 250
#: Smallest difference of recall that matters.
MARGIN = DEFAULT_MARGINS.position_effect
#: Documents that a sentence names.
NAMED = 10
READ, NOT_READ = "part within the window", "truncated part"
INDEXED, TAIL = "Which documents are in the index", "Tail recall where the head is found"
BEYOND, PROBLEMS = "What the embedder truncates", "What did not fit"
EXPLANATION = (
    "Nobody wrote the questions: each is a sentence of one document, by its rarest words or in "
    "other words, and finding it is "
    "finding that document (inverse cloze task, Lee et al. 2019, arXiv 1906.00300), or chunks "
    "with the whole sentence. People "
    "ask in other words, so recall is higher than that of their questions; compare positions.",
    "Thirds are compared within documents. They hold different sentences, so this is a "
    "description and no test of position "
    "bias. Intervals are at 95%, for new documents.",
)


@dataclass(frozen=True)
class IndexQuestion:
    """A question about a document; the subset of its query is the wording, or `head` for the first
    words of the document.
    """

    query: AskedQuery
    document: str
    sentence: Span
    third: int


@dataclass(frozen=True)
class IndexedTexts:
    """The documents that an index should have, and the questions about them."""

    name: str
    language: str
    ids: Collection[str]
    """Ids of all documents, also of those that are not asked about."""
    questions: QuestionSet
    wordings: tuple[Wording, ...]
    read: ReadPart
    """The part of a document that the embedder reads."""
    skipped: str
    """A sentence on the texts that cannot be asked about."""

    def locate_in_read(self) -> dict[str, int]:
        """Return the place of each sentence in what is read, by id of the question; empty if all is
        read, or it is unknown.
        """
        evidence = self.questions.build_data(self.wordings[0]).evidence
        is_part = self.read.kind is ReadKind.PART
        return (
            dict(
                zip(
                    evidence.query_ids, evidence.estimate_twelfths(self.read).tolist(), strict=False
                )
            )
            if is_part
            else {}
        )

    def write_questions(self, folder: Path, planned: Sequence[IndexQuestion]) -> tuple[Path, ...]:
        """Write those of the questions to ask that are about a sentence, with their spans; a domain
        for each wording.
        """
        asked = {(question.query.subset, question.query.id) for question in planned}
        own = {
            wording: tuple(
                item for item in self.questions.questions if (wording.value, item.id) in asked
            )
            for wording in self.wordings
        }
        return tuple(
            replace(self.questions, questions=questions).write(
                wording, folder, self.name, self.language
            )
            for wording, questions in own.items()
        )


def plan_questions(questions: QuestionSet, wordings: Sequence[Wording]) -> list[IndexQuestion]:
    """Return of each document its first words and a sentence of each third, then the other
    sentences.

    Documents are in random order, so that the questions about the first ones are a sample, too.
    """
    about = defaultdict[str, list[PseudoQuestion]](list)
    for question in questions.questions:
        about[question.document].append(question)
    first, further = list[IndexQuestion](), list[IndexQuestion]()
    for name, text in questions.documents.items():
        head = text[:HEAD_CHARACTERS].rpartition(" ")[0] or text[:HEAD_CHARACTERS]
        first.append(IndexQuestion(AskedQuery(HEAD, name, head), name, Span(0, len(head)), 0))
        known = set[tuple[Wording, int]]()
        for question in random.Random(f"{SEED} {name}").sample(about[name], len(about[name])):
            third = find_third(question.sentence, len(text))
            for wording in (wording for wording in wordings if wording in question.wordings):
                query = AskedQuery(wording.value, question.id, question.wordings[wording])
                planned = further if (wording, third) in known else first
                planned.append(IndexQuestion(query, name, question.sentence, third))
                known.add((wording, third))
    return [*first, *further]


@dataclass(frozen=True, eq=False)
class JudgedAnswers:
    """The answers of an index to n questions, in the order in which these were planned."""

    asked: Sequence[IndexQuestion]
    success: Mapping[str, NDArray[np.bool_]]
    """Whether the `document` is among the first k hits, and the whole sentence in their texts
    (`chunk`), shape (n,) each.

    There are no chunks if no hit has a text or a place.
    """
    has_chunks: bool
    """Whether any hit is a part of its document."""
    problems: tuple[str, ...]
    """Sentences on the hits that are none, and chunks that are not in their document: how many, and
    the first.
    """


def judge_answers(
    texts: IndexedTexts,
    planned: Sequence[IndexQuestion],
    journal: Journal,
    rules: AlignmentRules,
    settings: CollectionSettings,
) -> JudgedAnswers:
    """Return which questions that have an answer found their document, and their sentence."""
    asked = [
        question
        for question in planned
        if (question.query.subset, question.query.id) in journal.answers
    ]
    success, in_chunks, has_places, has_chunks = list[bool](), list[bool](), False, False
    unknown, unlocated = list[tuple[str, str]](), list[tuple[str, str]]()
    for question in asked:
        name, text = question.query.id, texts.questions.documents[question.document]
        # Of hits with distances, the lowest are the first.
        ranked = sort_hits(journal.answers[question.query.subset, name].hits, None)[: settings.k]
        hits = rules.resolve_hits(ranked, texts.ids)
        outside = [hit.document for hit in hits if hit.document not in texts.ids]
        unknown += [
            (name, "the question itself" if other == question.query.text else other)
            for other in outside
        ]
        own, locator = [hit for hit in hits if hit.document == question.document], TextLocator(text)
        # The text of the index may be longer, as with a blank at its end.
        keys = [
            ChunkKey(0, hit.text, hit.start, hit.end, "")
            for hit in own
            if hit.text or hit.start is not None
        ]
        places = [
            (key, key._replace(end=key.end and min(key.end, len(text))).locate(locator, START))
            for key in keys
        ]
        unlocated += [(name, key.describe(len(text))) for key, span in places if span is None]
        has_places |= bool(places)
        has_chunks |= has_places or any(hit.document != hit.chunk for hit in hits)
        success.append(bool(own))
        in_chunks.append(
            not lacks_words(question.sentence, text, (span for _, span in places if span))
        )
    gains = {"document": np.array(success)} | ({"chunk": np.array(in_chunks)} if has_places else {})
    fewest, *more = sorted(
        {len(journal.answers[item.query.subset, item.query.id].hits) for item in asked} or {0}
    )
    has_own_number = not more and 1 < fewest < min(settings.k, len(texts.ids))
    problems = (
        *([describe_own_number(fewest, settings.k)] if has_own_number else ()),
        *([said] if rules.names and (said := rules.names.describe()) else ()),
        *_describe_cases(f"hits are no document of {texts.name}", unknown),
        *_describe_cases("retrieved chunks are not in their document", unlocated),
    )
    return JudgedAnswers(asked, gains, has_chunks, problems)


def _describe_cases(what: str, cases: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a sentence with the number of cases and the first, which is a question and what is
    wrong with its answer.
    """
    if rows := [*cases]:
        name, reason = rows[0]
        yield (
            f"{len(rows):,} {what}, first for question {sanitized(name)}: "
            f"{sanitized(reason, 200).removesuffix('.')}."
        )


@dataclass(frozen=True)
class RecallRow:
    """Recall at k of questions in one wording about the sentences of a part of the documents."""

    wording: str
    of: str
    """`document` or `chunk`."""
    part: str
    """A third of the documents, or what the embedder reads of them, or not."""
    questions: int
    documents: int
    recall: Estimate | None
    """None without questions."""


@dataclass(frozen=True)
class RecallChange:
    """Difference in recall between two parts of the documents, within documents, and the resulting
    state.
    """

    wording: str
    of: str
    parts: tuple[str, str]
    change: ChangeRow
    """`better` if recall is higher in the first of the parts."""
    documents: int

    def describe(self) -> str:
        """Return the state as a sentence, with the interval that it follows from."""
        return describe_recall_change(self.of, self.parts, self.change)


def summarize_recall(
    judged: JudgedAnswers, twelfths: Mapping[str, int]
) -> tuple[tuple[RecallRow, ...], tuple[RecallChange, ...]]:
    """Return the recall by position of the documents whose first words find them, and its
    differences.

    `twelfths` has the place of a sentence in what the embedder reads, by id of the question; empty
    if all is read, or it is unknown what.
    """
    rows, changes = list[RecallRow](), list[RecallChange]()
    pairs = [*zip(judged.asked, judged.success["document"].tolist(), strict=True)]
    heads = {
        question.document
        for question, success in pairs
        if success and question.query.subset == HEAD
    }
    kept = [
        row
        for row, (question, _) in enumerate(pairs)
        if question.query.subset != HEAD and question.document in heads
    ]
    for wording in dict.fromkeys(judged.asked[row].query.subset for row in kept):
        own = [row for row in kept if judged.asked[row].query.subset == wording]
        asked = [judged.asked[row] for row in own]
        _, documents = np.unique([question.document for question in asked], return_inverse=True)
        thirds = np.array([question.third for question in asked])
        parts, compared = (
            {part: thirds == third for third, part in enumerate(THIRDS)},
            [(THIRDS[0], THIRDS[-1])],
        )
        if twelfths:
            read = np.array([twelfths[question.query.id] < TWELFTHS for question in asked])
            parts, compared = parts | {READ: read, NOT_READ: ~read}, [*compared, (READ, NOT_READ)]
        for of, success in judged.success.items():
            gains = success[own].astype(np.float64)
            for part, mask in parts.items():
                counts = int(mask.sum()), len(np.unique(documents[mask]))
                rows.append(
                    RecallRow(
                        wording, of, part, *counts, estimate_mean(gains[mask], documents[mask])
                    )
                )
            for pair in compared:
                columns = np.stack([parts[part] for part in pair], axis=1).astype(np.float64)
                regression = Regression.fit(gains, columns, documents, documents)
                difference = regression.contrast(np.array([1.0, -1.0])) if regression else None
                number = len(np.unique(documents))
                change = decide_change(Metric.RECALL, difference, MARGIN, number, 1, LEVEL)
                changes.append(RecallChange(wording, of, pair, change, number))
    return tuple(rows), tuple(changes)


@dataclass(frozen=True, repr=False)
class IndexInspection(Presentable):
    """The documents and sentences that a running index returns, by position."""

    retriever: str
    source: str
    k: int
    answered: int
    planned: int
    """Questions to ask, within `max_requests`."""
    possible: int
    """Questions that there are."""
    documents: int
    """Documents that were asked for by their first words."""
    returned: Estimate | None
    """Share of them that came back for any of their questions."""
    not_in_index: tuple[str, ...]
    """Those that came back for none."""
    head_not_found: tuple[str, ...]
    """Those that came back, but not for their first words."""
    read: ReadPart
    rows: tuple[RecallRow, ...]
    changes: tuple[RecallChange, ...]
    problems: tuple[str, ...]
    """Sentences on what went wrong with questions or hits: how often, and the first case."""
    skipped: str
    """A sentence on the texts that cannot be asked about."""
    unfinished: str = ""
    """The file with the answers, if questions are left."""
    written: tuple[str, ...] = ()
    """Folders with the questions."""

    @property
    def title(self) -> str:
        """The retriever."""
        return self.retriever

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return what was asked, which documents are in the index, the recall by position, and what
        did not fit.
        """
        parts = {
            "": self._describe_work(),
            INDEXED: self._describe_documents(),
            TAIL: self._describe_recall(),
            BEYOND: self._describe_read() if self.read.kind is ReadKind.PART else (),
            PROBLEMS: self.problems,
        }
        by_part = defaultdict[tuple[str, str, int], dict[str, str]](dict)
        for row in self.rows:
            by_part[row.wording, row.part, row.questions][row.of] = format_estimate(
                row.recall, format_percent
            )
        measured = dict.fromkeys(f"{row.of.capitalize()} in {self.k}" for row in self.rows)
        headings = ("Wording", "Sentences in the", "Asked", *measured)
        cells = [
            (Wording(wording).words, part, format_count(asked), *success.values())
            for (wording, part, asked), success in by_part.items()
        ]
        tables = (
            {TAIL: (Table(build_columns(headings, headings[2:]), tuple(cells), keys=2),)}
            if self.rows
            else {}
        )
        return tuple(
            DisplaySection(name, said, tables.get(name, ()))
            for name, lines in parts.items()
            if (said := tuple(lines))
        )

    def _describe_work(self) -> Iterator[str]:
        asked = (
            f"{self.answered:,} of {pluralize(self.planned, 'question')} about "
            f"{pluralize(self.documents, 'document')}"
        )
        more = (
            f"; there are {self.possible:,} (--max-requests)"
            if self.possible > self.planned
            else ""
        )
        yield (
            f"{self.retriever}: {asked} of {self.source} are answered, by their first "
            f"{pluralize(self.k, 'hit')}{more}."
        )
        if self.unfinished:
            yield f"The same command goes on from there: {self.unfinished}."

    def _describe_documents(self) -> Iterator[str]:
        number = self.documents - len(self.not_in_index)
        yield (
            f"{number:,} of {pluralize(self.documents, 'document')} came back, "
            f"{_format_share(self.returned)}."
        )
        if self.not_in_index:
            yield (
                "Not in the index, as their own first words do not find them either: "
                f"{_list(self.not_in_index)}."
            )
        if self.head_not_found:
            yield (
                "Found by other sentences, but not by their first words: "
                f"{_list(self.head_not_found)}."
            )
        if self.skipped:
            yield f"{self.skipped} Whether these are in the index was not asked."

    def _describe_recall(self) -> Iterator[str]:
        for row in self.rows:
            if row.part == THIRDS[-1]:
                of, share = f"{row.of}, {Wording(row.wording).words}", _format_share(row.recall)
                yield (
                    f"Tail recall ({of}): {share} of {pluralize(row.questions, 'sentence')} in "
                    "the last third."
                )
        yield from (change.describe() for change in self.changes if change.parts[0] in THIRDS)
        if not self.rows:
            yield (
                "Not measured: no document is found that has sentences of 5 to 80 words that "
                "occur only once."
            )

    def _describe_read(self) -> Iterator[str]:
        yield f"The embedder reads {self.read.phrase} of whatever is indexed."
        if not any(change.parts[0] == READ for change in self.changes):
            yield (
                "Nothing to compare: hits are chunks, or all sentences that were asked for are "
                "read."
            )
        yield from (change.describe() for change in self.changes if change.parts[0] == READ)

    def records(self) -> tuple[RecallRow, ...]:
        """Return a row for each wording and part of the documents, for documents and for chunks."""
        return self.rows

    def document(self) -> dict[str, object]:
        """Return all values."""
        return vars(self) | {"read": self.read.to_json()}

    def closing(self) -> list[str]:
        """Return where the questions are."""
        return [f"Questions with spans: {folder}" for folder in self.written]

    def explanation(self) -> tuple[str, ...]:
        """Return what the questions and the intervals are."""
        return EXPLANATION


def inspect_index(
    search: Retriever,
    name: str,
    texts: IndexedTexts,
    rules: AlignmentRules,
    settings: CollectionSettings,
    max_requests: int,
    folder: Path | None,
) -> IndexInspection:
    """Ask an index, given its name, the questions that have no answer yet; answers are kept until
    all questions have one.

    The questions are written to a folder, if there is one. PosirError is raised if no question has
    an answer, or no hit of the first answers is a document of the texts.
    """
    every = plan_questions(texts.questions, texts.wordings)
    planned = every[:max_requests]
    written = texts.write_questions(folder, planned) if folder else ()
    asked = (part for question in every for part in vars(question.query).values())
    key = digest(*asked, settings.k, settings.document_field).hex()
    with closing(
        Journal(settings.folder / f"{legible_name(name)}-{key}.unfinished.jsonl")
    ) as journal:
        answers = QueryAnswers(
            journal, settings, rules, dict.fromkeys((HEAD, *texts.wordings), texts.ids)
        )
        answers.ask(search, name, [question.query for question in planned])
        if answers.problem or not answers.has_documents:
            answers.check(name, len(planned))
        if not journal.answers:
            raise PosirError(
                f"{name}: no answer within {settings.max_time or 0:g} seconds (--max-time)."
            )
        judged = judge_answers(texts, planned, journal, rules, settings)
        is_finished = len(judged.asked) == len(planned)
        if is_finished:
            journal.remove()
    pairs = [*zip(judged.asked, judged.success["document"].tolist(), strict=True)]
    returned = {question.document for question, success in pairs if success}
    heads = {
        question.document: success for question, success in pairs if question.query.subset == HEAD
    }
    rows, changes = summarize_recall(judged, {} if judged.has_chunks else texts.locate_in_read())
    reasons = ((query.id, reason) for query, reason in answers.reasons.items())
    return IndexInspection(
        retriever=name,
        source=texts.name,
        k=settings.k,
        answered=len(judged.asked),
        planned=len(planned),
        possible=len(every),
        documents=len(heads),
        returned=estimate_mean(
            np.array([name in returned for name in heads], np.float64), np.arange(len(heads))
        ),
        not_in_index=tuple(name for name in heads if name not in returned),
        head_not_found=tuple(
            name for name, success in heads.items() if not success and name in returned
        ),
        read=texts.read,
        rows=rows,
        changes=changes,
        problems=(*_describe_cases("questions have no answer", reasons), *judged.problems),
        skipped=texts.skipped,
        unfinished="" if is_finished else str(journal.file),
        written=tuple(map(str, written)),
    )


def _format_share(share: Estimate | None) -> str:
    value, *interval = format_estimate(share, format_percent).split(" ", 1)
    return " ".join([f"{value}%" if share else value, *interval])


def _list(names: Sequence[str]) -> str:
    further = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(map(sanitized, names[:NAMED]))}{further}"
