"""Readers for published datasets whose rows contain a question and its complete page: TyDi QA's
primary task, Natural Questions and RepLiQA.

TyDi QA: Clark et al. 2020, TACL; spans are bytes. Natural Questions: Kwiatkowski et al. 2019, TACL;
its three releases have the same tokens. RepLiQA: Monteiro et al. 2024, arXiv 2406.11811. As in the
official evaluations, a question needs an answer from at least two annotators. The distinct answers
are the evidence spans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from posir_tasks.base.digests import digest
from posir_tasks.base.files import split_suffix
from posir_tasks.data.declared import NQ_OTHERS, NQ_PARAGRAPHS, TYDI_LANGUAGES
from posir_tasks.data.formats.passages import (
    Answer,
    Cause,
    Items,
    Passage,
    ReadOptions,
    SkippedItem,
    UnusableError,
    build_span_questions,
    skip_question,
)
from posir_tasks.data.formats.records import (
    FOLDER,
    FieldError,
    Row,
    choose_split,
    has_fields,
    list_files,
    read_items,
    read_rows,
)
from posir_tasks.text.languages import find_two_letter_code
from posir_tasks.text.locating import locate_once
from posir_tasks.text.spans import Span, UnlocatedError, to_characters
from posir_tasks.values.document_keys import digest_documents

#: Suffixes of supported files.
ROW_SUFFIXES = (".jsonl", ".parquet")
#: Minimum number of annotators with an answer, for questions with several annotators.
MIN_ANSWERS = 2
ENGLISH = "eng-Latn"
NEAR_DUPLICATES = "near-duplicates of another page, with its text, title or first words"


@dataclass(frozen=True)
class Page:
    """The page of a question."""

    address: str
    """Identifies the page across revisions."""
    text: str
    title: str = ""
    id: str = ""
    """Document id; defaults to a digest of address and text."""
    tokens: Sequence[tuple[str, Span | None]] = ()
    """Tokens with their spans in the text; None for tags."""
    merge_duplicates: bool = False
    """If true, merge pages with the same text, title or first words."""


@dataclass(frozen=True)
class PageFormat:
    """A dataset format with a question and its page per row."""

    title: str
    signatures: tuple[str, ...]
    """Groups of field names. Any group identifies the format."""
    id: str
    question: str
    read_page: Callable[[Row, Path, ReadOptions], Page | None]
    """Returns the page of a row, or None if the options exclude it."""
    find_evidence: Callable[[Row, Page, ReadOptions], Iterable[Span]]
    """Yields the answer spans in the page; raises ValueError if there are none."""
    suffixes: tuple[str, ...] = (FOLDER, *ROW_SUFFIXES)
    """File suffixes; `/` for folders whose files share pages."""
    fields: str = ""
    """Additional required field names, separated by spaces."""
    find_language: Callable[[Path], str] = lambda _: ENGLISH
    """Returns the language code of a file or folder, or an empty string if there are several."""
    splits: tuple[str, ...] = ()
    """Valid values of `--split`; if empty, any value is valid."""

    @property
    def expected(self) -> str:
        """The expected row, for messages."""
        return f"{self.title}, a row per question with {self.signatures[0].replace(' ', ', ')}"

    def list_files(self, path: Path) -> list[Path]:
        """List the visible files of this format at or below a path."""
        files = [path] if path.is_file() else list_files(path)
        return [
            file
            for file in files
            if split_suffix(file)[1] in self.suffixes and has_fields(file, *self.signatures)
        ]

    def accepts(self, path: Path) -> bool:
        """Return True if the path is, or contains, a file of this format."""
        return bool(self.list_files(path))

    def read(self, path: Path, options: ReadOptions) -> Items:
        """Yield the pages in a file or folder with their usable questions.

        Raises:
            DataError: A field is malformed, or the split does not exist.
        """
        if self.splits:
            choose_split(self.title, options.split, self.splits, self.splits[0])
        pages = _Pages()
        for file in self.list_files(path):
            read = partial(self._read_row, file=file, options=options, pages=pages)
            yield from read_items(file, self.expected, read)

    def _read_row(
        self, row: Row, location: str, file: Path, options: ReadOptions, pages: _Pages
    ) -> Items:
        page = self.read_page(row, file, options)
        name = row.get_id(self.id, f"{file.name} {location}")
        question = row.get_text(self.question)
        if page is None:
            return
        if not page.text.strip():
            yield SkippedItem(f"{file.name}:{location}", "empty", file=str(file))
            return
        original, is_new_copy = pages.add(page)
        if is_new_copy:
            yield SkippedItem(page.address, NEAR_DUPLICATES, file=str(file))
        answers = []
        try:
            answers = locate_spans(self.find_evidence(row, page, options), page.text, original.text)
        except FieldError:
            raise
        except ValueError as error:
            yield skip_question(str(file), name, error)
        questions = build_span_questions(str(file), name, question, dict.fromkeys(answers))
        document = page.id or digest(original.address, original.text).hex()
        yield Passage(str(file), location, original.text, questions, document, page.title)


@dataclass
class _Pages:
    """The first revision of each page. Spans of later revisions are moved to it."""

    originals: dict[str, Page] = field(default_factory=dict)
    """Address to the first revision of the page or its near-duplicate."""
    pages_by_key: dict[tuple[int, int], Page] = field(default_factory=dict)

    def add(self, page: Page) -> tuple[Page, bool]:
        """Return the original of a page, and True if the page is a new near-duplicate."""
        if page.address in self.originals:
            return self.originals[page.address], False
        original = page
        if page.merge_duplicates:
            texts = digest_documents(
                [page.address], {page.address: page.title}, {page.address: page.text}
            )
            keys = [key for key in enumerate(texts[0].tolist()) if key[1]]
            original = next(
                (self.pages_by_key[key] for key in keys if key in self.pages_by_key), page
            )
            for key in keys:
                self.pages_by_key.setdefault(key, original)
        self.originals[page.address] = original
        return original, original is not page


def locate_spans(spans: Iterable[Span], text: str, original: str) -> list[Answer]:
    """Move spans to the original; raise UnusableError unless their texts are unique there."""
    if original == text:
        return [Answer.from_span(span) for span in spans]
    answers = [span.slice(text) for span in spans]
    if any(original.count(answer) != 1 for answer in answers):
        raise UnusableError(Cause.REVISED)
    return [Answer(answer, original.index(answer)) for answer in answers]


def require_answers(answers: Sequence[Row], annotators: int) -> None:
    """Raise UnusableError if too few of the annotators gave an answer."""
    if not answers:
        raise UnusableError(Cause.UNANSWERABLE)
    if len(answers) < min(MIN_ANSWERS, annotators):
        raise UnusableError(Cause.DISAGREEMENT)


def _select_answers(row: Row, start: str) -> list[Row]:
    """Return the annotations with an answer; raise UnusableError if there are too few."""
    annotations = row.get_rows("annotations")
    answers = [annotation for annotation in annotations if annotation.get_integer(start) >= 0]
    require_answers(answers, len(annotations))
    return answers


def _read_tydi_page(row: Row, file: Path, options: ReadOptions) -> Page | None:  # noqa: ARG001
    language = row.get_text("language")
    code = find_two_letter_code(TYDI_LANGUAGES.get(language, language))
    if options.language and find_two_letter_code(options.language) != code:
        return None
    address = f"{language} {row.get_text('document_url')}"
    return Page(address, row.get_text("document_plaintext"), row.get_text("document_title", ""))


def _find_tydi_language(path: Path) -> str:
    """Return the language code of all rows, or an empty string if there are several."""
    languages = set()
    for file in TYDI.list_files(path):
        for _, row in read_rows(file, TYDI.expected):
            if isinstance(row, Row):
                languages.add(row.get_text("language", ""))
            if len(languages) > 1:
                return ""
    return TYDI_LANGUAGES.get("".join(languages), "")


TYDI_CANDIDATE = "passage_answer/candidate_index|passage_answer_candidate_index"
TYDI_START = "minimal_answer/plaintext_start_byte|minimal_answers_start_byte"
TYDI_END = "minimal_answer/plaintext_end_byte|minimal_answers_end_byte"


def _find_tydi_evidence(row: Row, page: Page, options: ReadOptions) -> Iterator[Span]:  # noqa: ARG001
    """Yield each annotator's minimal answer or, for yes/no answers, the passage."""
    content = page.text.encode()
    for annotation in _select_answers(row, TYDI_CANDIDATE):
        start = annotation.get_integer(TYDI_START)
        end = annotation.get_integer(TYDI_END)
        if start < 0:
            candidates = row.get_rows("passage_answer_candidates")
            number = annotation.get_integer(TYDI_CANDIDATE)
            if number >= len(candidates):
                raise UnlocatedError("its passage is not among the candidates")
            start = candidates[number].get_integer("plaintext_start_byte")
            end = candidates[number].get_integer("plaintext_end_byte")
        yield to_characters(content, start, end)


#: A tag. The simplified release replaces spaces in tags with `_`.
TAG = re.compile(r"</?[A-Za-z][^<>]*>")
#: Block tags. Each block starts a new line.
BLOCK = re.compile(
    r"</?(?:p|table|t[rhd]|caption|[uod]l|li|d[td]|h[1-6]|br|div|blockquote|pre)(?![a-z0-9])",
    re.IGNORECASE,
)
PARAGRAPH = re.compile(r"<p(?![a-z0-9])", re.IGNORECASE)
NQ_TOKENS = "document_tokens|document_text|document/tokens"
NOT_A_TAG = (
    "its long answer does not begin with a tag: the page must have the tokens of the release, "
    "separated by single spaces"
)


def _list_tokens(row: Row) -> list[tuple[str, bool]]:
    """List the tokens of a page, each with True for a tag and False for text."""
    if isinstance(row.fields.get("document_text"), str) and not row.has("document_tokens"):
        words = row.get_text("document_text").split(" ")
        return [(word, TAG.fullmatch(word) is not None) for word in words]
    tokens = row.get_rows(NQ_TOKENS)
    return [(token.get_text("token"), token.get("html_token|is_html", bool)) for token in tokens]


def _read_nq_page(row: Row, file: Path, options: ReadOptions) -> Page:  # noqa: ARG001
    """Read a page without tags, with a line break between blocks."""
    text = ""
    separator = ""
    tokens = list[tuple[str, Span | None]]()
    for token, is_tag in _list_tokens(row):
        if is_tag or not token:
            if text and BLOCK.match(token):
                separator = "\n"
            tokens.append((token, None))
            continue
        text += separator + token
        tokens.append((token, Span(len(text) - len(token), len(text))))
        separator = " "
    # The URL includes the revision of the page.
    url = re.sub(r"[?&]oldid=\d+", "", row.get_text("document_url|document/url", ""))
    title = row.get_text("document_title|document/title", "")
    return Page(url or digest(text).hex(), text, title, tokens=tokens, merge_duplicates=True)


def _find_nq_evidence(row: Row, page: Page, options: ReadOptions) -> Iterator[Span]:
    """Yield the spans of the long answers without tags.

    The split `paragraph` contains the questions whose long answers are all paragraphs, `other` the
    remaining questions.
    """
    token_ranges = [
        (answer.get_integer("long_answer/start_token"), answer.get_integer("long_answer/end_token"))
        for answer in _select_answers(row, "long_answer/start_token")
    ]
    if any(not start < end <= len(page.tokens) for start, end in token_ranges):
        raise UnlocatedError("its long answer is not within its page")
    tags = [page.tokens[start] for start, _ in token_ranges]
    if not all(token and span is None for token, span in tags):
        raise UnlocatedError(NOT_A_TAG)
    is_paragraph = all(PARAGRAPH.match(token) for token, _ in tags)
    if is_paragraph != (options.split != NQ_OTHERS):
        raise UnusableError(Cause.OTHER_SPLIT)
    for start, end in token_ranges:
        texts = [span for _, span in page.tokens[start:end] if span]
        if not texts:
            raise UnlocatedError("its long answer has no text")
        yield Span(texts[0].start, texts[-1].end)


def _read_repliqa_page(row: Row, file: Path, options: ReadOptions) -> Page | None:
    split = file.name.partition("-")[0]
    if options.split not in (None, split):
        return None
    name = f"{split}/{row.get_text('document_id')}"
    return Page(name, row.get_text("document_extracted"), id=name)


def _find_repliqa_evidence(row: Row, page: Page, options: ReadOptions) -> Iterator[Span]:  # noqa: ARG001
    paragraph = row.get_text("long_answer")
    if row.get_text("answer") == "UNANSWERABLE":
        raise UnusableError(Cause.UNANSWERABLE)
    yield locate_once(paragraph, page.text)


NQ_FIELDS = "long_answer_candidates annotations"
TYDI = PageFormat(
    "TyDi QA",
    ("document_plaintext passage_answer_candidates annotations",),
    "example_id",
    "question_text",
    _read_tydi_page,
    _find_tydi_evidence,
    fields="language document_url question_text",
    find_language=_find_tydi_language,
)
PAGE_FORMATS = (
    TYDI,
    PageFormat(
        "Natural Questions",
        (
            f"document_tokens question_text {NQ_FIELDS}",
            f"document_text question_text {NQ_FIELDS}",
            f"document question {NQ_FIELDS}",
        ),
        "example_id|id",
        "question_text|question/text",
        _read_nq_page,
        _find_nq_evidence,
        splits=(NQ_PARAGRAPHS, NQ_OTHERS),
    ),
    PageFormat(
        "RepLiQA",
        ("document_extracted question long_answer",),
        "question_id",
        "question",
        _read_repliqa_page,
        _find_repliqa_evidence,
        suffixes=(".parquet",),
        fields="document_id answer",
    ),
)
