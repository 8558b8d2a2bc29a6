"""A running index without questions of its own: how many sentences of its documents come back, by
their position.

Nobody wrote the questions: `questions` says how they are made. A document is also asked for by its
first words, verbatim, which find it where its beginning is indexed. Recall at k is the share of
questions whose document is among the first k hits, or whose whole sentence is in chunks among them.
Recall counts only documents that their first words find, so that a missing document is not mistaken
for a lost ending. Intervals are for new documents, each of which is a cluster.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posir_data.texts import draw_texts, sample_candidates
from posir_inspect.questions import SEED, PseudoQuestion, QuestionSet, Wording, ask_questions
from posir_inspect.sections import ADVICE
from posir_score.alignment import AlignmentRules, describe_own_number
from posir_score.api import describe_retriever
from posir_score.collecting import AskedQuery, CollectionSettings, Journal, QueryAnswers
from posir_score.document_names import DocumentNames
from posir_score.excerpts import THIRDS, find_evidence
from posir_score.orders import sort_hits
from posir_score.retrieved_chunks import ChunkKey
from posir_score.retriever_objects import add_embedder, open_retriever
from posir_significance.changes import decide_change
from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import ChangeRow, ChangeSubject, Metric
from posir_significance.messages.texts import (
    RECALL_TITLE,
    advise_index,
    describe_recall_change,
    describe_tail_recall,
    format_percentage,
)
from posir_significance.regression import Regression
from posir_tasks.base.arrays import Booleans
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.data.formats.passages import Passage, SkippedText, describe_skipped
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.display.numbers import format_count, format_estimate, format_percent
from posir_tasks.display.presentation import Result
from posir_tasks.display.strip import NDCG, Strip
from posir_tasks.display.tables import DisplaySection, Medium, Table, build_columns
from posir_tasks.language_models.other_words import QuestionWriter
from posir_tasks.models.references import legible_name
from posir_tasks.models.window import find_read_part
from posir_tasks.text.locating import START, TextLocator
from posir_tasks.text.spans import Span, find_third
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer, find_tokenizer
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.means import LEVEL, estimate_mean
from posir_tasks.values.read_part import ReadKind, ReadPart

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: First characters of a document, about 40 words, by which it is asked for.
HEAD, HEAD_CHARACTERS = "head", 250
#: Smallest difference of recall that matters.
MARGIN = DEFAULT_MARGINS.position_effect
#: Maximum number of documents that a sentence names.
MAX_NAMES = 10
RECALL_SCALE = replace(
    NDCG,
    name="Recall",
    whole="the sentences",
    caption="documents to their end: the share of sentences there that are found",
)
READ, NOT_READ = "part within the window", "truncated part"
DOCUMENT, CHUNK = "document", "chunk"
EXPLANATION = (
    "Nobody wrote the questions: each is a sentence of one document, by its rarest words or in "
    "other words, and finding it is finding that document (inverse cloze task, Lee et al. 2019, "
    "arXiv 1906.00300), or chunks with the whole sentence. People ask in other words, so recall is "
    "higher than that of their questions; compare positions.",
    "Thirds are compared within documents. They hold different sentences, so this is a "
    "description and no test of position bias. Intervals are at 95%, for new documents.",
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

    @property
    def key(self) -> tuple[str, str]:
        """Subset and id of the query, which identify its answer."""
        return self.query.subset, self.query.id


@dataclass(frozen=True)
class IndexedTexts:
    """The documents that an index should have, and the questions about them."""

    name: str
    language: str
    ids: Collection[str]
    """Ids of all documents, asked about or not."""
    questions: QuestionSet
    wordings: tuple[Wording, ...]
    read: ReadPart
    """The part of a document that the embedder reads."""
    skipped: str
    """A sentence on the texts that cannot be asked about."""

    def locate_in_read(self) -> dict[str, int]:
        """Find the twelfth of each sentence in the window, by id of the question; empty if all is
        read, or the window is unknown.
        """
        if self.read.kind is not ReadKind.PART:
            return {}
        evidence = self.questions.build_data(self.wordings[0]).evidence
        twelfths = evidence.estimate_twelfths(self.read).tolist()
        return dict(zip(evidence.query_ids, twelfths, strict=False))

    def write_questions(self, folder: Path, planned: Sequence[IndexQuestion]) -> tuple[str, ...]:
        """Write the planned questions about sentences with their spans, a domain for each
        wording.
        """
        folders = []
        for wording in self.wordings:
            ids = {item.query.id for item in planned if item.query.subset == wording}
            questions = self.questions.select(ids)
            folders.append(str(questions.write(wording, folder, self.name, self.language)))
        return tuple(folders)


@dataclass(frozen=True)
class IndexOptions:
    """What is asked of an index."""

    limit: int
    """Maximum number of texts to read; of more, a random sample."""
    max_requests: int
    reads: ReadPart | MTEBModels
    """The part of a document that the embedder reads, or the embedder."""
    embedder: str | None
    """Reference of the embedder, which embeds the queries of a collection."""
    separator: str
    """Text between document id and number of a chunk; empty without chunks."""
    folder: Path | None
    """Folder for the questions."""


def read_index(
    opened: Dataset,
    options: IndexOptions,
    open_writer: Callable[[Sequence[str]], QuestionWriter | None],
) -> IndexedTexts:
    """Read the texts of an index and ask about them, in other words about no more sentences than
    are asked for.
    """
    ids: set[str] = set()

    def read_documents(items: Iterable[Passage | SkippedText]) -> Iterator[Passage | SkippedText]:
        for item in items:
            if isinstance(item, Passage):
                ids.add(item.id or item.name)
            yield item

    with track("Reading texts"):
        collection = draw_texts(
            opened,
            options.limit,
            lambda items: sample_candidates(read_documents(items), 2 * options.limit),
        )
    texts = [text.text for text in collection.texts]
    tokenizer: Tokenizer = EstimatedTokenizer()
    reads = options.reads
    if not isinstance(reads, ReadPart):
        tokenizer = find_tokenizer(reads) or tokenizer
        reads = find_read_part(reads)
    questions = ask_questions(collection, tokenizer.count_all(texts))
    if not ids.issuperset(questions.documents):
        raise PosirError(
            f"{opened.location}: several documents have one id, as in several subsets. Give the "
            "texts of one index."
        )
    wordings: tuple[Wording, ...] = (Wording.RAREST_WORDS,)
    writer = open_writer(texts)
    if writer:
        planned = plan_questions(questions, wordings)[: options.max_requests]
        chosen = questions.select({question.query.id for question in planned})
        questions = chosen.write_in_other_words(writer)
        wordings = (Wording.RAREST_WORDS, Wording.OTHER_WORDS)
    skipped = describe_skipped(collection.skipped)
    if writer:
        skipped = " ".join(filter(None, [skipped, writer.describe_answers()]))
    return IndexedTexts(
        collection.name, collection.language, ids, questions, wordings, reads, skipped
    )


def plan_questions(questions: QuestionSet, wordings: Sequence[Wording]) -> list[IndexQuestion]:
    """Plan the first words and a sentence of each third of each document, then the other
    sentences.

    Documents are in random order, so that the questions about the first ones are a sample, too.
    """
    by_document = defaultdict[str, list[PseudoQuestion]](list)
    for question in questions.questions:
        by_document[question.document].append(question)
    first: list[IndexQuestion] = []
    further: list[IndexQuestion] = []
    for name, text in questions.documents.items():
        head = text[:HEAD_CHARACTERS].rpartition(" ")[0] or text[:HEAD_CHARACTERS]
        first.append(IndexQuestion(AskedQuery(HEAD, name, head), name, Span(0, len(head)), 0))
        planned: set[tuple[Wording, int]] = set()
        about = by_document[name]
        for question in random.Random(f"{SEED} {name}").sample(about, len(about)):
            third = find_third(question.sentence, len(text))
            for wording in wordings:
                if wording not in question.wordings:
                    continue
                query = AskedQuery(wording.value, question.id, question.wordings[wording])
                is_further = (wording, third) in planned
                (further if is_further else first).append(
                    IndexQuestion(query, name, question.sentence, third)
                )
                planned.add((wording, third))
    return [*first, *further]


@dataclass(frozen=True, eq=False)
class JudgedAnswers:
    """The answers of an index to n questions, in the order in which these were planned."""

    asked: Sequence[IndexQuestion]
    success: Mapping[str, Booleans]
    """Whether the `document` is among the first k hits, and the whole sentence in their texts
    (`chunk`), shape (n,) each.

    There are no chunks if no hit has a text or a place.
    """
    has_chunks: bool
    """Whether any hit is a part of its document."""
    problems: tuple[str, ...]
    """Sentences on hits that are no document, and chunks that are not in their document: how many,
    and the first.
    """

    def is_head(self) -> Booleans:
        """Tell which questions are the first words of a document, shape (n,)."""
        return np.array([question.query.subset == HEAD for question in self.asked], np.bool_)

    def list_found(self, mask: Booleans) -> set[str]:
        """List the documents that any of certain questions found."""
        rows = np.flatnonzero(mask & self.success[DOCUMENT]).tolist()
        return {self.asked[row].document for row in rows}


def judge_answers(
    texts: IndexedTexts,
    planned: Sequence[IndexQuestion],
    journal: Journal,
    rules: AlignmentRules,
    settings: CollectionSettings,
) -> JudgedAnswers:
    """Judge which questions that have an answer found their document, and their sentence."""
    asked = [question for question in planned if question.key in journal.answers]
    documents: list[bool] = []
    sentences: list[bool] = []
    has_places = has_chunks = False
    unknown: list[tuple[str, str]] = []
    misplaced: list[tuple[str, str]] = []
    numbers: set[int] = set()
    for question in asked:
        answer = journal.answers[question.key].hits
        numbers.add(len(answer))
        # Of hits with distances, the lowest are the first.
        hits = rules.resolve_hits(sort_hits(answer, None)[: settings.k], texts.ids)
        text = texts.questions.documents[question.document]
        locator = TextLocator(text)
        spans: list[Span] = []
        for hit in hits:
            has_chunks |= bool(hit.chunk)
            if hit.document not in texts.ids:
                unknown.append((question.query.id, hit.document))
            chunk = ChunkKey(0, hit.text, hit.start, hit.end, "")
            if hit.document != question.document or not chunk.is_stated:
                continue
            has_places = True
            # The text of the index may be longer, as with a blank at its end.
            end = chunk.end and min(chunk.end, len(text))
            span = chunk._replace(end=end).locate(locator, START)
            if span is None:
                misplaced.append((question.query.id, chunk.describe(len(text))))
            else:
                spans.append(span)
        documents.append(any(hit.document == question.document for hit in hits))
        sentences.append(not find_evidence(question.sentence, spans).lacks_words(text))
    success = {DOCUMENT: np.array(documents, np.bool_)}
    if has_places:
        success[CHUNK] = np.array(sentences, np.bool_)
    problems = []
    if len(numbers) == 1 and 1 < max(numbers) < min(settings.k, len(texts.ids)):
        problems.append(describe_own_number(max(numbers), settings.k))
    if rules.names and rules.names.matched:
        problems.append(rules.names.describe())
    problems += _describe_cases(f"hits are no document of {texts.name}", unknown)
    problems += _describe_cases("retrieved chunks are not in their document", misplaced)
    return JudgedAnswers(asked, success, has_chunks or has_places, tuple(problems))


def _describe_cases(problem: str, cases: Sequence[tuple[str, str]]) -> list[str]:
    """Describe the number of cases and the first, which is a question and the reason."""
    if not cases:
        return []
    name, reason = cases[0]
    first = f"{sanitize(name)}: {sanitize(reason, 200)}"
    return [f"{len(cases):,} {problem}, first for question {first}."]


@dataclass(frozen=True)
class RecallRow:
    """Recall at k of questions in one wording about the sentences of a part of the documents."""

    wording: str
    unit: str
    """`document` or `chunk`."""
    part: str
    """A third of the documents, or what the embedder reads of them, or not."""
    questions: int
    documents: int
    recall: Estimate | None
    """None without questions."""


def summarize_recall(
    judged: JudgedAnswers, twelfths: Mapping[str, int]
) -> tuple[tuple[RecallRow, ...], tuple[ChangeRow, ...]]:
    """Compute the recall by position of the documents whose first words find them, and its
    differences.

    `twelfths` has the place of a sentence in the window, by id of the question; empty if all is
    read, or the window is unknown. In a difference, the later part is the baseline.
    """
    rows: list[RecallRow] = []
    changes: list[ChangeRow] = []
    is_head = judged.is_head()
    findable = judged.list_found(is_head)
    by_wording = defaultdict[str, list[int]](list)
    for row, question in enumerate(judged.asked):
        if not is_head[row] and question.document in findable:
            by_wording[question.query.subset].append(row)
    for wording, chosen in by_wording.items():
        asked = [judged.asked[row] for row in chosen]
        _, documents = np.unique([question.document for question in asked], return_inverse=True)
        thirds = np.array([question.third for question in asked])
        parts = {part: thirds == third for third, part in enumerate(THIRDS)}
        pairs = [(THIRDS[0], THIRDS[-1])]
        if twelfths:
            parts[READ] = np.array([twelfths[question.query.id] < TWELFTHS for question in asked])
            parts[NOT_READ] = ~parts[READ]
            pairs.append((READ, NOT_READ))
        for unit, success in judged.success.items():
            gains = success[chosen].astype(np.float64)
            for part, mask in parts.items():
                recall = estimate_mean(gains[mask], documents[mask])
                number = len(np.unique(documents[mask]))
                rows.append(RecallRow(wording, unit, part, int(mask.sum()), number, recall))
            for first, last in pairs:
                # Recall is compared within documents.
                columns = np.stack([parts[first], parts[last]], axis=1).astype(np.float64)
                regression = Regression.fit(gains, columns, documents, documents)
                difference = regression.contrast(np.array([1.0, -1.0])) if regression else None
                number = len(np.unique(documents))
                task = f"{unit}, {Wording(wording).words}"
                subject = ChangeSubject(
                    baseline=last, model=first, task=task, queries=len(asked), documents=number
                )
                change = decide_change(Metric.RECALL, difference, MARGIN, number, level=LEVEL)
                changes.append(replace(change, subject=subject))
    return tuple(rows), tuple(changes)


@dataclass(frozen=True, repr=False, kw_only=True)
class IndexInspection(Result):
    """The documents and sentences that a running index returns, by position; the rows are
    `RecallRow`.
    """

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
    read: ReadPart
    changes: tuple[ChangeRow, ...]
    problems: tuple[str, ...]
    """Sentences on what went wrong with questions or hits: how often, and the first case."""
    skipped: str
    """A sentence on the texts that cannot be asked about."""
    reading: str = ""
    """How the retriever was asked and its hits were read."""
    unfinished: str = ""
    """The file with the answers, if questions are left."""
    written: tuple[str, ...] = ()
    """Folders with the questions."""


def _build_sections(inspection: IndexInspection) -> Iterator[DisplaySection]:
    """Yield what was asked, which documents are in the index, the recall by position, and what did
    not fit.
    """
    documents = pluralize(inspection.documents, "document")
    work = (
        f"{inspection.retriever}: {inspection.answered:,} of "
        f"{pluralize(inspection.planned, 'question')} about {documents} of {inspection.source} are "
        f"answered, by their first {pluralize(inspection.k, 'hit')}"
    )
    if inspection.possible > inspection.planned:
        work += f"; there are {inspection.possible:,} (--max-requests)"
    asked = [f"{work}.", *filter(None, [inspection.reading])]
    if inspection.unfinished:
        asked.append(f"The same command goes on from there: {inspection.unfinished}.")
    yield DisplaySection(sentences=tuple(asked))
    number = inspection.documents - len(inspection.not_in_index)
    share = format_percentage(inspection.returned)
    found = [f"{number:,} of {documents} came back, {share}."]
    if inspection.not_in_index:
        names = ", ".join(map(sanitize, inspection.not_in_index[:MAX_NAMES]))
        further = len(inspection.not_in_index) - MAX_NAMES
        more = f" and {further:,} more" if further > 0 else ""
        found.append(f"Not in the index, as no question finds them: {names}{more}.")
    yield DisplaySection("Which documents are in the index", (*found, inspection.skipped))
    changes: dict[str, list[str]] = {THIRDS[0]: [], READ: []}
    for change in inspection.changes:
        changes[change.subject.model].append(describe_recall_change(change))
    recall = [
        describe_tail_recall(f"{row.unit}, {Wording(row.wording).words}", row.recall, row.questions)
        for row in inspection.rows
        if row.part == THIRDS[-1]
    ]
    strips = _build_strips(inspection)
    if strips:
        finding = (strips[0].finding,)
        yield DisplaySection(sentences=finding, strips=strips, only=Medium.TEXT)
        yield DisplaySection(strips=strips, only=Medium.PAGE)
    tables = (_tabulate(inspection),) if recall else ()
    none = "Not measured: of no document that is found, a sentence (5 to 80 words) was asked for."
    # The first is the finding.
    sentences = (*(recall or [none]), *changes[THIRDS[0]][1:])
    yield DisplaySection("Tail recall where the head is found", sentences, tables)
    if changes[READ]:
        read = f"The embedder reads {inspection.read.phrase} of whatever is indexed."
        yield DisplaySection("What the embedder truncates", (read, *changes[READ]))
    if inspection.problems:
        yield DisplaySection("What did not fit", inspection.problems)
    # A page has it next to the picture.
    advice = advise_index(next(iter(inspection.changes), None))
    yield DisplaySection(ADVICE, (advice,), only=Medium.TEXT if strips else None)


def _build_strips(inspection: IndexInspection) -> tuple[Strip, ...]:
    """Build the picture of recall by third, of documents or chunks in the rarest words, with the
    finding and what to do; none without questions.
    """
    if not inspection.changes:
        return ()
    change = inspection.changes[0]
    finding = describe_recall_change(change)
    first = inspection.rows[0]
    shown = [
        row
        for row in inspection.rows
        if (row.wording, row.unit) == (first.wording, first.unit) and row.part in THIRDS
    ]
    words = (f"first {pluralize(inspection.k, 'hit')}", finding)
    found = inspection.documents - len(inspection.not_in_index)
    facts = (
        ("Documents in the index", f"{found:,} of {inspection.documents:,}"),
        ("Sentences asked about", f"{sum(row.questions for row in shown):,}"),
        (ADVICE, advise_index(change)),
    )
    strip = Strip(
        inspection.retriever,
        words,
        tuple(row.recall for row in shown),
        finding=finding,
        facts=lambda: facts,
        scale=RECALL_SCALE,
        places=THIRDS,
    )
    return (strip,)


def _title_page(name: str, rows: Sequence[RecallRow]) -> str:
    """Title a page by the recall of the first and of the last third; by the name without both."""
    recall = {row.part: row.recall for row in reversed(rows) if row.recall}
    if not {THIRDS[0], THIRDS[-1]} <= recall.keys():
        return name
    first, last = (f"{recall[part].value:.0%}" for part in (THIRDS[0], THIRDS[-1]))
    return RECALL_TITLE.format(name=name, first=first, last=last)


def _tabulate(inspection: IndexInspection) -> Table:
    cells = defaultdict[tuple[str, str, str], list[str]](list)
    for row in inspection.rows:
        key = (Wording(row.wording).words, row.part, format_count(row.questions))
        cells[key].append(format_estimate(row.recall, format_percent))
    units = dict.fromkeys(f"{row.unit.capitalize()} in {inspection.k}" for row in inspection.rows)
    headings = ("Wording", "Sentences in the", "Asked", *units)
    rows = tuple((*key, *recalls) for key, recalls in cells.items())
    return Table(build_columns(headings, headings[2:]), rows, keys=2)


def inspect_index(
    search: Any,
    opened: Dataset,
    open_writer: Callable[[Sequence[str]], QuestionWriter | None],
    settings: CollectionSettings,
    options: IndexOptions,
) -> IndexInspection:
    """Ask an index the questions about its texts that have no answer yet; answers are kept until
    all questions have one.

    The questions are written to a folder, if there is one. PosirError is raised if no question has
    an answer, or no hit of the first answers is a document of the texts.
    """
    search = open_retriever(search, has_embedder=options.embedder is not None)
    name = describe_retriever(search)
    search = add_embedder(search, options.embedder, options.reads)
    rules = AlignmentRules(needs_all=False, separator=options.separator, names=DocumentNames())
    texts = read_index(opened, options, open_writer)
    every = plan_questions(texts.questions, texts.wordings)
    planned = every[: options.max_requests]
    written = texts.write_questions(options.folder, planned) if options.folder else ()
    asked = (part for question in every for part in vars(question.query).values())
    key = digest(*asked, settings.k, settings.document_field).hex()
    file = settings.folder / f"{legible_name(name)}-{key}.unfinished.jsonl"
    corpora = dict.fromkeys((HEAD, *texts.wordings), texts.ids)
    with closing(Journal(file)) as journal:
        answers = QueryAnswers(journal, settings, rules, corpora)
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
    is_head = judged.is_head()
    documents = [judged.asked[row].document for row in np.flatnonzero(is_head).tolist()]
    found = judged.list_found(np.ones_like(is_head))
    returned = np.array([document in found for document in documents], np.float64)
    rows, changes = summarize_recall(judged, {} if judged.has_chunks else texts.locate_in_read())
    reasons = [(query.id, reason) for query, reason in answers.reasons.items()]
    inspection = IndexInspection(
        title=name,
        page_title=_title_page(name, rows),
        retriever=name,
        source=texts.name,
        k=settings.k,
        answered=len(judged.asked),
        planned=len(planned),
        possible=len(every),
        documents=len(documents),
        returned=estimate_mean(returned, np.arange(len(returned))),
        not_in_index=tuple(document for document in documents if document not in found),
        read=texts.read,
        rows=rows,
        changes=changes,
        problems=(*_describe_cases("questions have no answer", reasons), *judged.problems),
        skipped=texts.skipped,
        reading=answers.reading,
        unfinished="" if is_finished else str(journal.file),
        written=written,
        details=EXPLANATION,
        footer=tuple(f"Questions with spans: {folder}" for folder in written),
    )
    base = {item.name for item in fields(Result)} - {"rows"}
    values = {key: value for key, value in vars(inspection).items() if key not in base}
    return replace(
        inspection,
        values=values | {"read": texts.read.to_json()},
        parts=tuple(_build_sections(inspection)),
    )
