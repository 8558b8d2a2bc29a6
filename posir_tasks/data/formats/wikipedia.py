"""Published questions about whole Wikipedia articles: the primary task of TyDi QA, MIRACL, and
Natural Questions.

TyDi QA: Clark et al. 2020, TACL; spans are bytes. MIRACL: Zhang et al. 2022, arXiv 2210.09984; its
passages are joined to the articles that they are of. Natural Questions: Kwiatkowski et al. 2019,
TACL; its three forms have the same tokens. Of several annotators, at least two give an answer, as
in the official evaluations; their distinct answers are places of evidence.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError
from posir_tasks.data.declared import OTHERS, PARAGRAPHS, TYDI_LANGUAGES
from posir_tasks.data.formats.passages import (
    UNANSWERABLE,
    Item,
    Passage,
    PassageQuestion,
    ReadOptions,
    SkippedText,
    StatedAnswer,
    add_places,
    list_places,
    skip_question,
)
from posir_tasks.data.formats.records import (
    Id,
    StrictRecord,
    Text,
    has_fields,
    list_rows,
    read_qrels,
    read_records,
    split_lines,
)
from posir_tasks.text.languages import two_letter_code
from posir_tasks.text.spans import Span, to_characters
from posir_tasks.text.words import estimate_tokens
from posir_tasks.values.document_keys import digest_documents

#: Annotators who have to give an answer, where there are several.
AGREEING = 2
DISAGREEING = f"fewer than {AGREEING} of its annotators give an answer"
REVISED = (
    "is about another revision or copy of its page, and its evidence is not once in the one that "
    "is kept"
)
NEAR_DUPLICATES = "near-duplicates of another page, with its text, title or first words"


class _Pages:
    """Pages by address, of which the first revision is kept, for all questions about the page."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._originals: dict[str, str] = {}
        self._by_key: dict[tuple[int, int], str] = {}

    def find_original(self, page: str, title: str, text: str) -> str:
        """Return the first page that shares the text, the title or the first words of a page:
        perhaps the page itself.
        """
        if page not in self._originals:
            keys = [
                key
                for key in enumerate(
                    digest_documents([page], {page: title}, {page: text})[0].tolist()
                )
                if key[1]
            ]
            original = next((self._by_key[key] for key in keys if key in self._by_key), page)
            for key in keys:
                self._by_key.setdefault(key, original)
            self._originals[page] = original
        return self._originals[page]

    def place(self, page: str, text: str, spans: Iterable[Span]) -> tuple[str, list[StatedAnswer]]:
        """Return the kept text of a page, and where spans of a text of it are there; raise
        ValueError if that is unclear.
        """
        kept = self._texts.setdefault(page, text)
        if kept == text:
            return kept, [StatedAnswer.from_span(span) for span in spans]
        answers = [text[span.start : span.end] for span in spans]
        if any(kept.count(answer) != 1 for answer in answers):
            raise ValueError(REVISED)
        return kept, [StatedAnswer(answer, kept.index(answer)) for answer in answers]


def _select_annotators(answered: Sequence[Any], annotators: int) -> None:
    """Raise ValueError with the reason if too few annotators give an answer."""
    if not answered:
        raise ValueError(UNANSWERABLE)
    if len(answered) < min(AGREEING, annotators):
        raise ValueError(DISAGREEING)


class _ByteSpan(StrictRecord):
    plaintext_start_byte: int
    plaintext_end_byte: int


class _TydiAnnotation(StrictRecord):
    candidate: int = Field(
        validation_alias=AliasChoices(
            AliasPath("passage_answer", "candidate_index"), "passage_answer_candidate_index"
        )
    )
    start: int = Field(
        validation_alias=AliasChoices(
            AliasPath("minimal_answer", "plaintext_start_byte"), "minimal_answers_start_byte"
        )
    )
    end: int = Field(
        validation_alias=AliasChoices(
            AliasPath("minimal_answer", "plaintext_end_byte"), "minimal_answers_end_byte"
        )
    )


class _TydiRow(StrictRecord):
    expected: ClassVar = (
        "the primary task of TyDi QA, a question with its article and annotations per line or row"
    )

    example_id: Id | None = None
    language: Text
    document_title: Text = ""
    document_url: Text
    question_text: Text
    document_plaintext: Text
    candidates: Annotated[
        list[_ByteSpan],
        BeforeValidator(list_rows),
        Field(validation_alias="passage_answer_candidates"),
    ]
    annotations: Annotated[list[_TydiAnnotation], BeforeValidator(list_rows)]

    def find_evidence(self) -> Iterator[Span]:
        """Yield the distinct answers in code points; raise ValueError with the reason if there are
        none.
        """
        answered = [row for row in self.annotations if row.candidate >= 0]
        _select_annotators(answered, len(self.annotations))
        spans = dict.fromkeys(self._find_bytes(row) for row in answered)
        content = self.document_plaintext.encode()
        for start, end in spans:
            yield to_characters(content, start, end)

    def _find_bytes(self, row: _TydiAnnotation) -> tuple[int, int]:
        """Return the minimal answer, or without one, as of yes and no, the passage."""
        if row.start >= 0:
            return row.start, row.end
        if row.candidate >= len(self.candidates):
            raise ValueError("its passage is not among the candidates")
        return self.candidates[row.candidate].plaintext_start_byte, self.candidates[
            row.candidate
        ].plaintext_end_byte


def is_tydi(file: Path) -> bool:
    """Return whether a file has rows of TyDi QA's primary task."""
    return has_fields(
        file, frozenset({"document_plaintext", "passage_answer_candidates", "annotations"})
    )


def read_tydi(files: Iterable[Path], options: ReadOptions) -> Iterator[Item]:
    """Yield the articles of a language, or of all, with their questions; articles of unanswered
    ones too.
    """
    pages, asked = _Pages(), two_letter_code(options.language) if options.language else None
    for file in files:
        for place, row in read_records(file, _TydiRow):
            if isinstance(row, SkippedText):
                yield row
            elif asked in (None, two_letter_code(TYDI_LANGUAGES.get(row.language, row.language))):
                name, page = (
                    row.example_id or f"{file.name} {place}",
                    f"{row.language} {row.document_url}",
                )
                try:
                    text, answers = pages.place(
                        page, row.document_plaintext, [*row.find_evidence()]
                    )
                except ValueError as error:
                    yield skip_question(str(file), name, str(error))
                    text, answers = pages.place(page, row.document_plaintext, ())[0], []
                places = [*list_places(str(file), name, row.question_text, answers)]
                yield Passage(
                    str(file), place, text, places, digest(page, text).hex(), row.document_title
                )


class _NqToken(StrictRecord):
    token: str
    is_html: bool = Field(validation_alias=AliasChoices("html_token", "is_html"))


#: A tag; the simplified form has `_` for the blanks in it.
TAG = re.compile(r"</?[A-Za-z][^<>]*>")
#: Tags between which a line ends, and that of a paragraph.
BLOCK = re.compile(
    r"</?(?:p|table|t[rhd]|caption|[uod]l|li|d[td]|h[1-6]|br|div|blockquote|pre)(?![a-z0-9])",
    re.IGNORECASE,
)
PARAGRAPH = re.compile(r"<p(?![a-z0-9])", re.IGNORECASE)


def _read_tokens(value: object) -> object:
    """Return the tokens of the simplified form, which one blank joins, or of the Hub's, an object
    of lists.
    """
    if isinstance(value, str):
        return [
            {"token": token, "is_html": TAG.fullmatch(token) is not None}
            for token in value.split(" ")
        ]
    return list_rows(value)


class _NqAnnotation(StrictRecord):
    start: int = Field(validation_alias=AliasPath("long_answer", "start_token"))
    end: int = Field(validation_alias=AliasPath("long_answer", "end_token"))


class _NqRow(StrictRecord):
    expected: ClassVar = (
        "Natural Questions, original, simplified or as on the Hub: a question with tokens and "
        "annotations per row"
    )

    id: Annotated[Id, Field(validation_alias=AliasChoices("example_id", "id"))]
    question: Annotated[
        Text, Field(validation_alias=AliasChoices("question_text", AliasPath("question", "text")))
    ]
    title: Annotated[
        Text, Field(validation_alias=AliasChoices("document_title", AliasPath("document", "title")))
    ] = ""
    url: Annotated[
        Text, Field(validation_alias=AliasChoices("document_url", AliasPath("document", "url")))
    ] = ""
    tokens: Annotated[
        list[_NqToken],
        BeforeValidator(_read_tokens),
        Field(
            validation_alias=AliasChoices(
                "document_tokens", "document_text", AliasPath("document", "tokens")
            )
        ),
    ]
    annotations: Annotated[list[_NqAnnotation], BeforeValidator(list_rows)]

    def join_tokens(self) -> tuple[str, list[Span | None]]:
        """Return the text without tags, lines ended at blocks, and where in it each token is; None
        of a tag.
        """
        parts, spans, length, ends_line = list[str](), list[Span | None](), 0, False
        for token in self.tokens:
            if token.is_html or not token.token:
                ends_line = ends_line or BLOCK.match(token.token) is not None
                spans.append(None)
                continue
            part = ("\n" if ends_line else " ") * bool(parts) + token.token
            parts.append(part)
            length, ends_line = length + len(part), False
            spans.append(Span(length - len(token.token), length))
        return "".join(parts), spans

    def find_evidence(self, placed: Sequence[Span | None], split: str) -> Iterator[Span]:
        """Yield the distinct long answers, trimmed to text; raise ValueError with the reason if
        there are none in a split.
        """
        answered = [row for row in self.annotations if row.start >= 0]
        _select_annotators(answered, len(self.annotations))
        if any(not row.start < row.end <= len(placed) for row in answered):
            raise ValueError("its long answer is not within its page")
        if not all(self.tokens[row.start].is_html for row in answered):
            raise ValueError(
                "its long answer does not begin with a tag: the tokens of its page are not those "
                "of the release, which single "
                "blanks divide"
            )
        if all(PARAGRAPH.match(self.tokens[row.start].token) for row in answered) != (
            split == PARAGRAPHS
        ):
            raise ValueError(
                f"its long answer is {'no' if split == PARAGRAPHS else 'a'} paragraph: it is in "
                "the other --split"
            )
        for row in answered:
            texts = [span for span in placed[row.start : row.end] if span]
            if not texts:
                raise ValueError("its long answer has no text")
            yield Span(texts[0].start, texts[-1].end)


def is_natural_questions(file: Path) -> bool:
    """Return whether a file has rows of one of the three forms of Natural Questions."""
    forms = (
        {"document_tokens", "question_text"},
        {"document_text", "question_text"},
        {"document", "question"},
    )
    return has_fields(
        file, *(frozenset({*form, "long_answer_candidates", "annotations"}) for form in forms)
    )


def read_natural_questions(files: Iterable[Path], options: ReadOptions) -> Iterator[Item]:
    """Yield pages with the questions whose long answers are paragraphs, or `other`: tables lose
    sense without tags.
    """
    pages, copies, split = _Pages(), set[str](), options.split or PARAGRAPHS
    if split not in (PARAGRAPHS, OTHERS):
        raise DataError(
            f"--split {split}: Natural Questions has {PARAGRAPHS} and {OTHERS}, by the type of "
            "the long answer."
        )
    for file in files:
        for place, row in read_records(file, _NqRow):
            if isinstance(row, SkippedText):
                yield row
                continue
            text, placed = row.join_tokens()
            if not text.strip():
                yield SkippedText(f"{file.name}:{place}", "empty", file=str(file))
                continue
            # The address of a page states its revision.
            address = re.sub(r"[?&]oldid=\d+", "", row.url) or digest(text).hex()
            page = pages.find_original(address, row.title, text)
            if page != address and address not in copies:
                copies.add(address)
                yield SkippedText(address, NEAR_DUPLICATES, file=str(file))
            try:
                kept, answers = pages.place(page, text, [*row.find_evidence(placed, split)])
            except ValueError as error:
                yield skip_question(str(file), row.id, str(error))
                kept, answers = pages.place(page, text, ())[0], []
            places = [*list_places(str(file), row.id, row.question, dict.fromkeys(answers))]
            yield Passage(str(file), place, kept, places, digest(page, kept).hex(), row.title)


#: Between the passages of an article.
SEPARATOR = "\n\n"
#: Passages or tokens from which a position in an article is measured.
MIN_PASSAGES, MIN_TOKENS = 4, 512
SHORT = (
    f"has its evidence in an article of fewer than {MIN_PASSAGES} passages and {MIN_TOKENS} tokens"
)
#: Languages whose corpus is read whole; of others, beside the judged articles, one of so many by
#: the digest of its name.
WHOLE, SAMPLED = ("sw", "bn", "te", "hi", "th"), 16


class _PassageRow(StrictRecord):
    expected: ClassVar = "MIRACL's corpus, one passage per line with docid, title and text"

    docid: Annotated[Text, Field(pattern=r"^.+#\d+$")]
    title: Text = ""
    text: Text


def is_miracl(folder: Path) -> bool:
    """Return whether a folder has topics of MIRACL below it."""
    return any(folder.rglob("topics.miracl-v1.0-*.tsv"))


def is_sampled(name: str, share: int) -> bool:
    """Return whether a document is in the sample of one in `share`, which is the same on every
    machine.
    """
    return int.from_bytes(digest("posir sample", name)) % share == 0


def _find_topics(folder: Path, options: ReadOptions) -> tuple[str, Path, Path]:
    """Return the language and the files of topics and qrels; raise DataError if that leaves
    several, or none.
    """
    known = {
        tuple(file.stem.removeprefix("topics.miracl-v1.0-").split("-")): file
        for file in folder.rglob("topics.miracl-*.tsv")
    }
    asked = two_letter_code(options.language) if options.language else None
    languages = sorted({language for language, *_ in known} if asked is None else {asked})
    splits = sorted(split for language, split in known if language in languages)
    split = options.split or ("dev" if "dev" in splits else next(iter(splits), ""))
    topics = known.get((languages[0], split))
    if len(languages) > 1 or topics is None:
        listed = ", ".join(" ".join(key) for key in sorted(known))
        raise DataError(
            f"{folder}: MIRACL in {listed}. Choose one by the language, such as --language "
            "swh-Latn, and --split."
        )
    names = [*folder.rglob(topics.name.replace("topics.", "qrels.", 1))]
    if not names:
        raise DataError(
            f"{folder}: {topics.name} has no {topics.name.replace('topics.', 'qrels.', 1)} beside "
            "it."
        )
    return languages[0], topics, names[0]


def _find_corpus(folder: Path, language: str) -> list[Path]:
    """Return the files of a language's passages, by their folder; all, if there are no folders of
    languages.
    """
    files = sorted(file for suffix in ("jsonl", "jsonl.gz") for file in folder.rglob(f"*.{suffix}"))
    own = [file for file in files if file.parent.name.endswith(f"-{language}")]
    if not (own or files):
        raise DataError(
            f"{folder}: no corpus of MIRACL; expected "
            f"miracl-corpus-v1.0-{language}/docs-*.jsonl.gz."
        )
    return own or files


def _place_passages(
    relevant: Iterable[str], passages: Mapping[str, Mapping[int, str]]
) -> Iterator[tuple[str, StatedAnswer]]:
    """Yield article and place of relevant passages; raise ValueError with the reason if their
    position is not measured.
    """
    if not relevant:
        raise ValueError("has no relevant passage")
    for name in relevant:
        article, _, number = name.rpartition("#")
        parts = passages.get(article, {})
        if not number.isdecimal() or int(number) not in parts:
            raise ValueError("has a relevant passage that is not in the corpus")
        before = [len(parts[other]) + len(SEPARATOR) for other in parts if other < int(number)]
        if (
            len(parts) < MIN_PASSAGES
            and estimate_tokens(SEPARATOR.join(parts.values())) < MIN_TOKENS
        ):
            raise ValueError(SHORT)
        yield article, StatedAnswer(parts[int(number)], sum(before))


def _read_articles(
    files: Iterable[Path],
    language: str,
    judged: Container[str],
    passages: dict[str, dict[int, str]],
    titles: dict[str, str],
) -> Iterator[SkippedText]:
    """Read the passages of articles by number, and their titles; yield what is left out."""
    left_out, share = 0, 1 if language in WHOLE else SAMPLED
    for file in files:
        for _, row in read_records(file, _PassageRow):
            if isinstance(row, SkippedText):
                yield row
                continue
            article, _, number = row.docid.rpartition("#")
            if article in judged or is_sampled(article, share):
                passages.setdefault(article, {})[int(number)] = row.text
                titles.setdefault(article, row.title)
            else:
                left_out += 1
    if left_out:
        reason = (
            f"passages of articles that are neither judged nor in the seeded sample of 1 in {share}"
        )
        yield SkippedText(f"{language} corpus", reason, number=left_out)


def read_miracl(folder: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the articles of a language, joined from their passages, with the topics of a split."""
    language, topics, qrels = _find_topics(folder, options)
    grades = read_qrels(qrels)
    yield from grades.skip_contradictions(str(qrels))
    judged = {
        topic: [name for name, grade in rows.items() if grade > 0]
        for topic, rows in grades.by_query.items()
    }
    kept = {passage.rpartition("#")[0] for rows in grades.by_query.values() for passage in rows}
    passages, titles = dict[str, dict[int, str]](), dict[str, str]()
    yield from _read_articles(_find_corpus(folder, language), language, kept, passages, titles)
    asked: dict[str, list[PassageQuestion]] = defaultdict(list)
    for topic, text in split_lines(topics, 2, "\t"):
        yield from add_places(
            asked, str(topics), topic, text, _place_passages(judged.get(topic, ()), passages)
        )
    for article, parts in passages.items():
        joined = SEPARATOR.join(parts[number] for number in sorted(parts))
        if joined.strip():
            yield Passage(
                str(folder), article, joined, asked.get(article, ()), article, titles[article]
            )
