"""Published questions about whole pages, a row for each question with its page: TyDi QA's primary
task, Natural Questions and RepLiQA.

TyDi QA: Clark et al. 2020, TACL; spans are bytes. Natural Questions: Kwiatkowski et al. 2019, TACL;
its three forms have the same tokens. RepLiQA: Monteiro et al. 2024, arXiv 2406.11811. Of several
annotators, at least two give an answer, as in the official evaluations; their distinct answers are
places of evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from posir_tasks.base.digests import digest
from posir_tasks.base.files import find_files, split_suffix
from posir_tasks.data.declared import OTHERS, PARAGRAPHS, TYDI_LANGUAGES
from posir_tasks.data.formats.passages import (
    Cause,
    Items,
    Passage,
    ReadOptions,
    SkippedText,
    StatedAnswer,
    UnusableError,
    list_places,
    skip_question,
)
from posir_tasks.data.formats.records import (
    FOLDER,
    FieldError,
    Row,
    choose_split,
    has_fields,
    read_items,
)
from posir_tasks.text.languages import two_letter_code
from posir_tasks.text.locating import locate_once
from posir_tasks.text.spans import Span, UnlocatedError, to_characters
from posir_tasks.values.document_keys import digest_documents

#: Suffixes of files of rows.
ROWS = (".jsonl", ".parquet")
#: Annotators who have to give an answer, where there are several.
AGREEING = 2
NEAR_DUPLICATES = "near-duplicates of another page, with its text, title or first words"


@dataclass(frozen=True)
class Page:
    """The page of a row."""

    address: str
    """The same for all revisions of the page."""
    text: str
    title: str = ""
    id: str = ""
    """Id of its document; by default a digest of address and text."""
    tokens: Sequence[tuple[str, Span | None]] = ()
    """Its tokens, and where each is in the text; None for a tag."""
    merges: bool = False
    """Whether pages with the same text, title or first words are one."""


@dataclass(frozen=True)
class PageForm:
    """A row for each question: where its parts are, and what marks the form."""

    title: str
    marks: tuple[str, ...]
    """Names of fields; a file that has all of one is in this form."""
    id: str
    question: str
    read_page: Callable[[Row, Path, ReadOptions], Page | None]
    """Returns the page of a row; None if the options leave the row out."""
    find_evidence: Callable[[Row, Page, ReadOptions], Iterable[Span]]
    """Returns the distinct answers; raises ValueError with the reason if there are none."""
    kinds: tuple[str, ...] = (FOLDER, *ROWS)
    """Suffixes of its files, and `/` if the files of a folder have questions about the same pages.
    """
    splits: tuple[str, ...] = ()
    """Names that `--split` may have; any if empty."""

    @property
    def expected(self) -> str:
        """The form of a row, for messages."""
        return f"{self.title}, a row per question with {self.marks[0].replace(' ', ', ')}"

    def list_files(self, path: Path) -> list[Path]:
        """List the files in this form: the path itself, or those below it that are not hidden."""
        files = [path] if path.is_file() else find_files(path, "")
        return [
            file
            for file in files
            if split_suffix(file)[1] in self.kinds
            and not any(part.startswith(".") for part in file.relative_to(path).parts)
            and has_fields(file, *self.marks)
        ]

    def accepts(self, path: Path) -> bool:
        """Return whether a file, or a file of a folder, is in this form."""
        return bool(self.list_files(path))

    def read(self, path: Path, options: ReadOptions) -> Items:
        """Yield the pages of a file or folder, each with its question if that can be used.

        Raises:
            DataError: A field is malformed, or the data has no such split.
        """
        if self.splits:
            choose_split(self.title, options.split, self.splits, self.splits[0])
        pages = _Pages()
        for file in self.list_files(path):
            read = partial(self._read_row, file=file, options=options, pages=pages)
            yield from read_items(file, self.expected, read)

    def _read_row(
        self, row: Row, place: str, file: Path, options: ReadOptions, pages: _Pages
    ) -> Items:
        page = self.read_page(row, file, options)
        name = row.identifier(self.id, f"{file.name} {place}")
        question = row.text(self.question)
        if page is None:
            return
        if not page.text.strip():
            yield SkippedText(f"{file.name}:{place}", "empty", file=str(file))
            return
        kept, is_new_copy = pages.keep(page)
        if is_new_copy:
            yield SkippedText(page.address, NEAR_DUPLICATES, file=str(file))
        answers = list[StatedAnswer]()
        try:
            answers = place_spans(self.find_evidence(row, page, options), page.text, kept.text)
        except FieldError:
            raise
        except ValueError as error:
            yield skip_question(str(file), name, error)
        questions = list_places(str(file), name, question, dict.fromkeys(answers))
        document = page.id or digest(kept.address, kept.text).hex()
        yield Passage(str(file), place, kept.text, questions, document, page.title)


@dataclass
class _Pages:
    """Pages by address, of which the first revision is kept, for all questions about the page."""

    kept: dict[str, Page] = field(default_factory=dict)
    """Address to the first revision of a page, or of one that shares text, title or first words."""
    by_key: dict[tuple[int, int], Page] = field(default_factory=dict)

    def keep(self, page: Page) -> tuple[Page, bool]:
        """Return the page that is kept for a page, and whether that is another one, of which the
        page was not yet known to be a copy.
        """
        if page.address in self.kept:
            return self.kept[page.address], False
        original = page
        if page.merges:
            texts = digest_documents(
                [page.address], {page.address: page.title}, {page.address: page.text}
            )
            keys = [key for key in enumerate(texts[0].tolist()) if key[1]]
            original = next((self.by_key[key] for key in keys if key in self.by_key), page)
            for key in keys:
                self.by_key.setdefault(key, original)
        self.kept[page.address] = original
        return original, original is not page


def place_spans(spans: Iterable[Span], text: str, kept: str) -> list[StatedAnswer]:
    """Return where spans of a text are in another text; raise ValueError if that is not clear."""
    if kept == text:
        return [StatedAnswer.from_span(span) for span in spans]
    answers = [span.of(text) for span in spans]
    if any(kept.count(answer) != 1 for answer in answers):
        raise UnusableError(Cause.REVISED)
    return [StatedAnswer(answer, kept.index(answer)) for answer in answers]


def _select_answered(row: Row, start: str) -> list[Row]:
    """Return the annotations whose field is not negative; raise ValueError with the reason if too
    few annotators give an answer.
    """
    annotations = row.rows("annotations")
    answered = [annotation for annotation in annotations if annotation.integer(start) >= 0]
    if not answered:
        raise UnusableError(Cause.UNANSWERABLE)
    if len(answered) < min(AGREEING, len(annotations)):
        raise UnusableError(Cause.DISAGREEMENT)
    return answered


def _read_tydi_page(row: Row, file: Path, options: ReadOptions) -> Page | None:  # noqa: ARG001
    language = row.text("language")
    code = two_letter_code(TYDI_LANGUAGES.get(language, language))
    if options.language and two_letter_code(options.language) != code:
        return None
    address = f"{language} {row.text('document_url')}"
    return Page(address, row.text("document_plaintext"), row.text("document_title", ""))


TYDI_CANDIDATE = "passage_answer/candidate_index|passage_answer_candidate_index"
TYDI_START = "minimal_answer/plaintext_start_byte|minimal_answers_start_byte"
TYDI_END = "minimal_answer/plaintext_end_byte|minimal_answers_end_byte"


def _find_tydi_evidence(row: Row, page: Page, options: ReadOptions) -> Iterator[Span]:  # noqa: ARG001
    """Yield the minimal answers, or without one, as of yes and no, the passages."""
    content = page.text.encode()
    for annotation in _select_answered(row, TYDI_CANDIDATE):
        start = annotation.integer(TYDI_START)
        end = annotation.integer(TYDI_END)
        if start < 0:
            candidates = row.rows("passage_answer_candidates")
            number = annotation.integer(TYDI_CANDIDATE)
            if number >= len(candidates):
                raise UnlocatedError("its passage is not among the candidates")
            start = candidates[number].integer("plaintext_start_byte")
            end = candidates[number].integer("plaintext_end_byte")
        yield to_characters(content, start, end)


#: A tag; the simplified form has `_` for the blanks in it.
TAG = re.compile(r"</?[A-Za-z][^<>]*>")
#: Tags between which a line ends, and that of a paragraph.
BLOCK = re.compile(
    r"</?(?:p|table|t[rhd]|caption|[uod]l|li|d[td]|h[1-6]|br|div|blockquote|pre)(?![a-z0-9])",
    re.IGNORECASE,
)
PARAGRAPH = re.compile(r"<p(?![a-z0-9])", re.IGNORECASE)
NQ_TOKENS = "document_tokens|document_text|document/tokens"
NOT_A_TAG = (
    "its long answer does not begin with a tag: the tokens of its page are not those of the "
    "release, which single blanks divide"
)


def _list_tokens(row: Row) -> list[tuple[str, bool]]:
    """List the tokens of a page, and whether each is a tag."""
    if isinstance(row.fields.get("document_text"), str) and not row.has("document_tokens"):
        tokens = row.text("document_text").split(" ")
        return [(token, TAG.fullmatch(token) is not None) for token in tokens]
    listed = row.rows(NQ_TOKENS)
    return [(token.text("token"), token.get("html_token|is_html", bool)) for token in listed]


def _read_nq_page(row: Row, file: Path, options: ReadOptions) -> Page:  # noqa: ARG001
    """Read the text without tags, lines ended at blocks."""
    parts = list[str]()
    tokens = list[tuple[str, Span | None]]()
    ends_line = False
    length = 0
    for token, is_tag in _list_tokens(row):
        if is_tag or not token:
            ends_line = ends_line or BLOCK.match(token) is not None
            tokens.append((token, None))
            continue
        if parts:
            parts.append("\n" if ends_line else " ")
            length += 1
        parts.append(token)
        tokens.append((token, Span(length, length + len(token))))
        length += len(token)
        ends_line = False
    text = "".join(parts)
    # The address of a page states its revision.
    url = re.sub(r"[?&]oldid=\d+", "", row.text("document_url|document/url", ""))
    title = row.text("document_title|document/title", "")
    return Page(url or digest(text).hex(), text, title, tokens=tokens, merges=True)


def _find_nq_evidence(row: Row, page: Page, options: ReadOptions) -> Iterator[Span]:
    """Yield the long answers, trimmed to text, if all are paragraphs or, in `other`, not all."""
    boxes = [
        (answer.integer("long_answer/start_token"), answer.integer("long_answer/end_token"))
        for answer in _select_answered(row, "long_answer/start_token")
    ]
    if any(not start < end <= len(page.tokens) for start, end in boxes):
        raise UnlocatedError("its long answer is not within its page")
    first = [page.tokens[start] for start, _ in boxes]
    if not all(token and span is None for token, span in first):
        raise UnlocatedError(NOT_A_TAG)
    is_paragraph = all(PARAGRAPH.match(token) for token, _ in first)
    if is_paragraph != (options.split != OTHERS):
        raise UnusableError(Cause.OTHER_SPLIT)
    for start, end in boxes:
        texts = [span for _, span in page.tokens[start:end] if span]
        if not texts:
            raise UnlocatedError("its long answer has no text")
        yield Span(texts[0].start, texts[-1].end)


def _read_repliqa_page(row: Row, file: Path, options: ReadOptions) -> Page | None:
    split = file.name.partition("-")[0]
    if options.split not in (None, split):
        return None
    name = f"{split}/{row.text('document_id')}"
    return Page(name, row.text("document_extracted"), id=name)


def _find_repliqa_evidence(row: Row, page: Page, options: ReadOptions) -> Iterator[Span]:  # noqa: ARG001
    paragraph = row.text("long_answer")
    if row.text("answer") == "UNANSWERABLE":
        raise UnusableError(Cause.UNANSWERABLE)
    yield locate_once(paragraph, page.text)


NQ_MARKS = "long_answer_candidates annotations"
PAGE_FORMS = (
    PageForm(
        "TyDi QA",
        ("document_plaintext passage_answer_candidates annotations",),
        "example_id",
        "question_text",
        _read_tydi_page,
        _find_tydi_evidence,
    ),
    PageForm(
        "Natural Questions",
        (
            f"document_tokens question_text {NQ_MARKS}",
            f"document_text question_text {NQ_MARKS}",
            f"document question {NQ_MARKS}",
        ),
        "example_id|id",
        "question_text|question/text",
        _read_nq_page,
        _find_nq_evidence,
        splits=(PARAGRAPHS, OTHERS),
    ),
    PageForm(
        "RepLiQA",
        ("document_extracted question long_answer",),
        "question_id",
        "question",
        _read_repliqa_page,
        _find_repliqa_evidence,
        kinds=(".parquet",),
    ),
)
