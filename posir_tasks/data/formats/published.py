"""Published questions with spans about contracts, news, web pages and books: their layouts, read as
they are.

LegalBench-RAG: Pipitone & Alami 2024, arXiv 2408.10343. RepLiQA: Monteiro et al. 2024, arXiv
2406.11811. MS MARCO v2 with the qrels of TREC Deep Learning 2021 to 2023. BRIGHT: Su et al. 2024,
arXiv 2407.12883, its short passages in its long documents.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError
from posir_tasks.base.files import iterate_lines, open_decompressed, read_decompressed
from posir_tasks.base.untrusted import parse_json, read_json
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
    AnyRecord,
    Id,
    StrictRecord,
    Text,
    error_context,
    has_fields,
    read_qrels,
    read_records,
    split_lines,
    validate,
)
from posir_tasks.data.formats.wikipedia import is_sampled
from posir_tasks.data.grades import CollectedGrades
from posir_tasks.text.locating import Spelling
from posir_tasks.text.spans import Span, to_characters

#: Quotes, each of which is written in several ways.
QUOTES = str.maketrans({**dict.fromkeys("‘’‚`´", "'"), **dict.fromkeys("“”„«»", '"')})


def _fold(character: str) -> str:
    """Return nothing of white space, and of hyphens, which words are broken at; quotes alike."""
    return "" if character.isspace() or character == "-" else character.translate(QUOTES)


def locate_once(text: str, document: str) -> Span:
    """Return the only place of a text, exactly, or else with white space, hyphens and quotes
    folded.

    Raises:
        ValueError: It is not there, or several times.
    """
    count, start = document.count(text), document.find(text)
    if count == 1:
        return Span(start, start + len(text))
    if not count and (asked := "".join(map(_fold, text))):
        folded = Spelling.build(document, _fold)
        count, start = folded.text.count(asked), folded.text.find(asked)
        if count == 1:
            return folded.restore(Span(start, start + len(asked)))
    raise ValueError(
        "its evidence is several times in its document"
        if count
        else "its evidence is not in its document"
    )


class _Snippet(StrictRecord):
    file_path: Text
    span: Annotated[list[int], Field(min_length=2, max_length=2)]
    answer: Text


class _Test(StrictRecord):
    query: Text
    snippets: list[_Snippet]


class _Benchmark(StrictRecord):
    expected: ClassVar = (
        "a benchmark of LegalBench-RAG, tests > query and snippets > file_path, span, answer"
    )

    tests: list[_Test]


#: What a query of LegalBench-RAG begins with to name its document, which it is ranked within.
NAMING = re.compile(r"^Consider .*?; *", re.DOTALL)


def is_legalbench(folder: Path) -> bool:
    """Return whether a folder has benchmarks and corpus of LegalBench-RAG."""
    return (folder / "corpus").is_dir() and any((folder / "benchmarks").glob("*.json"))


def read_legalbench(folder: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the documents with the queries of all benchmarks, or of one (`--split cuad`), without
    the name of the document.

    Spans count the text as Python reads it in text mode: a line ends with one character.
    """
    asked: dict[str, list[PassageQuestion]] = defaultdict(list)
    files = sorted((folder / "benchmarks").glob("*.json"))
    chosen = [file for file in files if options.split in (None, file.stem)]
    if not chosen:
        raise DataError(
            f"{folder}: no benchmark {options.split}. It has "
            f"{', '.join(file.stem for file in files)}."
        )
    for file in chosen:
        with error_context(file, "", _Benchmark.expected):
            tests = validate(_Benchmark, read_json(file)).tests
        for number, test in enumerate(tests):
            name, text = f"{file.stem}:{number}", NAMING.sub("", test.query)
            placed = ((row.file_path, StatedAnswer(row.answer, *row.span)) for row in test.snippets)
            yield from add_places(asked, str(file), name, text, placed)
    for file in sorted((folder / "corpus").rglob("*.txt")):
        name = file.relative_to(folder / "corpus").as_posix()
        if options.split in (None, name.partition("/")[0]):
            with error_context(file, "", "text in UTF-8"):
                text = io.StringIO(read_decompressed(file).decode(), newline=None).read()
            yield (
                Passage(name, "", text, asked.pop(name, ()), name)
                if text.strip()
                else SkippedText(name, "empty", file=name)
            )
    for document, places in asked.items():
        for lost in places:
            yield skip_question(lost.file, lost.name, f"its document {document} is not in corpus/")


class _RepliqaRow(StrictRecord):
    expected: ClassVar = (
        "RepLiQA, a question with document_extracted, answer and long_answer per row"
    )

    document_id: Text
    document_extracted: Text
    question_id: Id
    question: Text
    answer: Text
    long_answer: Text


def is_repliqa(file: Path) -> bool:
    """Return whether a file has the columns of RepLiQA."""
    return has_fields(file, frozenset({"document_extracted", "question", "long_answer"}))


def read_repliqa(file: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the documents of a split, which the file's name begins with, with the questions whose
    paragraph is in them once.
    """
    split = file.name.partition("-")[0]
    if options.split not in (None, split):
        return
    for place, row in read_records(file, _RepliqaRow):
        if isinstance(row, SkippedText):
            yield row
            continue
        try:
            if row.answer == "UNANSWERABLE":
                raise ValueError(UNANSWERABLE)
            answers = [StatedAnswer.from_span(locate_once(row.long_answer, row.document_extracted))]
        except ValueError as error:
            yield skip_question(str(file), row.question_id, str(error))
            answers = []
        places = [*list_places(str(file), row.question_id, row.question, answers)]
        yield Passage(
            str(file), place, row.document_extracted, places, f"{split}/{row.document_id}"
        )


#: From this rating, a passage of TREC Deep Learning is relevant.
RELEVANT = 2
#: Beside the judged documents of MS MARCO, one of so many is in the corpus, by the digest of its
#: id.
MARCO_SAMPLED = 64
#: Field of the id of a document and of a passage.
MARCO_IDS = {"doc": b"docid", "passage": b"pid"}
PAIR = re.compile(r"\((\d+),(\d+)\)")


class _MarcoPassage(StrictRecord):
    expected: ClassVar = "a passage of MS MARCO v2: pid, passage, spans and docid"

    pid: Text
    spans: Annotated[Text, Field(pattern=r"^\(\d+,\d+\)(,\(\d+,\d+\))*$")]
    docid: Text


class _MarcoDocument(StrictRecord):
    expected: ClassVar = "a document of MS MARCO v2: docid and body"

    docid: Text
    body: Text


def _find_marco(folder: Path, kind: str) -> list[Path]:
    """Return the archive of documents or passages, or the files that are extracted from it."""
    return sorted(folder.rglob(f"msmarco_v2_{kind}.tar")) or sorted(
        folder.rglob(f"msmarco*_{kind}_*.gz")
    )


def is_marco(folder: Path) -> bool:
    """Return whether a folder has documents and passages of MS MARCO v2."""
    return all(_find_marco(folder, kind) for kind in ("doc", "passage"))


def _read_marco(folder: Path, kind: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield place, id and line of each document or passage; an archive is read without being
    extracted.
    """
    identify = re.compile(b'"%s": ?"([^"]+)"' % MARCO_IDS[kind])
    for source in _find_marco(folder, kind):
        with error_context(source, "", f"{kind}s of MS MARCO v2"):
            for name, lines in _open_members(source):
                for number, line in enumerate(lines, start=1):
                    match = identify.search(line)
                    if not match:
                        raise ValueError(f"{name}: line {number} has no id")
                    yield f"{name}: line {number}", match[1].decode(), line


def _open_members(source: Path) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield name and lines of a file, or of each compressed file in an archive."""
    if source.suffix != ".tar":
        with open_decompressed(source) as content:
            yield source.name, iterate_lines(content, source)
        return
    try:
        with tarfile.open(source, "r|") as archive:
            for member in archive:
                if member.name.endswith(".gz") and (packed := archive.extractfile(member)):
                    with gzip.open(packed) as unpacked:
                        yield member.name, iterate_lines(unpacked, f"{source}: {member.name}")
    except tarfile.TarError as error:
        raise ValueError(f"is not a complete archive ({error})") from error


@dataclass(frozen=True)
class _Rated:
    """A relevant passage: its bytes in its document, and its rating for each query."""

    start: int
    end: int
    ratings: Mapping[str, float]


def _read_ratings(
    folder: Path, options: ReadOptions
) -> tuple[dict[str, str], CollectedGrades, str]:
    """Return queries, the ratings, and the qrels' names, of all years or one (`--split 2021`)."""
    year = options.split or ""
    qrels = [
        file
        for file in sorted(folder.rglob("*qrels*"))
        if year in file.name and "doc" not in file.name.lower()
    ]
    topics = [file for file in sorted(folder.rglob("*queries*.tsv")) if year in file.name]
    if not (qrels and topics):
        raise DataError(
            f"{folder}: no qrels of passages, or no queries{f' of {year}' if year else ''}. Put "
            "TREC Deep Learning's "
            "2021.qrels.pass.final.txt and 2021_queries.tsv, or those of another year, into the "
            "folder."
        )
    queries = {name: text for file in topics for name, text in split_lines(file, 2, "\t")}
    return queries, read_qrels(*qrels), ", ".join(map(str, qrels))


def read_marco(folder: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield judged documents and a sample of the others, with the queries whose rated passages are
    in them.

    Documents with the same body are one: the qrels of 2022 and 2023 are with duplicates.
    """
    queries, grades, file = _read_ratings(folder, options)
    yield from grades.skip_contradictions(file)
    rated = grades.list_by_document()
    passages: dict[str, list[_Rated]] = defaultdict(list)
    missing = {
        query
        for ratings in rated.values()
        for query, rating in ratings.items()
        if rating >= RELEVANT
    }
    for name in {query for ratings in rated.values() for query in ratings} - missing:
        yield skip_question(file, name, f"has no passage rated {RELEVANT} or more")
    wanted, left_out = set(rated), 0
    for place, name, line in _read_marco(folder, "passage"):
        if name in wanted:
            with error_context(place, "", _MarcoPassage.expected):
                row = validate(_MarcoPassage, parse_json(line, place))
            pairs = [(int(start), int(end)) for start, end in PAIR.findall(row.spans)]
            relevant = {
                query: rating for query, rating in rated.pop(name).items() if rating >= RELEVANT
            }
            passages[row.docid].append(_Rated(pairs[0][0], pairs[-1][1], relevant))
    lost = {
        query
        for ratings in rated.values()
        for query, rating in ratings.items()
        if rating >= RELEVANT
    }
    originals, used = dict[bytes, str](), Counter[str]()
    for place, name, line in _read_marco(folder, "doc"):
        if name not in passages and not is_sampled(name, MARCO_SAMPLED):
            left_out += 1
            continue
        with error_context(place, "", _MarcoDocument.expected):
            body = validate(_MarcoDocument, parse_json(line, place)).body
        if not body.strip():
            yield SkippedText(name, "empty", file=str(folder))
            continue
        places = [*_place_ratings(passages.pop(name, ()), body, queries, used, file)]
        yield from (item for item in places if isinstance(item, SkippedText))
        asked = [item for item in places if isinstance(item, PassageQuestion)]
        yield Passage(
            str(folder), name, body, asked, originals.setdefault(digest(body, size=16), name)
        )
    if left_out:
        reason = (
            f"documents that are neither judged nor in the seeded sample of 1 in {MARCO_SAMPLED}"
        )
        yield SkippedText("corpus", reason, file=str(folder), number=left_out)
    for query in lost | {
        query for rows in passages.values() for row in rows for query in row.ratings
    }:
        yield skip_question(file, query, "has a relevant passage that is not in the collection")


def _place_ratings(
    passages: Iterable[_Rated], body: str, queries: Mapping[str, str], used: Counter[str], file: str
) -> Iterator[PassageQuestion | SkippedText]:
    """Yield a question for each rating of a passage in a document; `used` has how many places
    queries have before it.
    """
    content = body.encode()
    for passage in passages:
        for query, rating in passage.ratings.items():
            try:
                if query not in queries:
                    raise ValueError("its text is not among the queries")
                answer = StatedAnswer.from_span(to_characters(content, passage.start, passage.end))
            except ValueError as error:
                yield skip_question(file, query, str(error))
                continue
            used[query] += 1
            yield from list_places(file, query, queries[query], [answer], used[query], rating)


class _BrightExample(StrictRecord):
    expected: ClassVar = (
        "examples of BRIGHT: query, id, excluded_ids, gold_ids_long and gold_ids per row"
    )

    id: Id
    query: Text
    excluded_ids: list[Text]
    gold_ids_long: list[Text]
    gold_ids: list[Text]


class _BrightText(StrictRecord):
    expected: ClassVar = "documents of BRIGHT: id and content per row"

    id: Text
    content: Text


def is_bright(folder: Path) -> bool:
    """Return whether a folder has the long documents of BRIGHT."""
    return any(folder.rglob("long_documents/*.parquet"))


def read_bright(folder: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the long documents of a domain (`--split biology`), with the queries whose short
    passages are in them.
    """
    domains = sorted(
        {file.name.partition("-")[0] for file in folder.rglob("long_documents/*.parquet")}
    )
    domain = options.split or (domains[0] if len(domains) == 1 else "")
    if domain not in domains:
        raise DataError(
            f"{folder}: BRIGHT has long documents of {', '.join(domains)}. Choose a domain with "
            "--split."
        )
    parts = {
        part: sorted(folder.rglob(f"{part}/{domain}-*.parquet"))
        for part in ("examples", "documents", "long_documents")
    }
    short = {row.id: row.content for row in _read_bright(parts["documents"], _BrightText)}
    long = {row.id: row.content for row in _read_bright(parts["long_documents"], _BrightText)}
    asked: dict[str, list[PassageQuestion]] = defaultdict(list)
    file = f"{folder}: examples of {domain}"
    for row in _read_bright(parts["examples"], _BrightExample):
        yield from add_places(asked, file, row.id, row.query, _place_gold(row, short, long))
    for name, text in long.items():
        yield (
            Passage(file, name, text, asked.get(name, ()), name)
            if text.strip()
            else SkippedText(name, "empty", file=file)
        )


def _read_bright(files: Iterable[Path], model: type[AnyRecord]) -> Iterator[AnyRecord]:
    return (
        row
        for file in files
        for _, row in read_records(file, model)
        if not isinstance(row, SkippedText)
    )


def _place_gold(
    row: _BrightExample, short: Mapping[str, str], long: Mapping[str, str]
) -> Iterator[tuple[str, StatedAnswer]]:
    """Yield long document and place of each gold passage, whose id is that of its document with a
    number behind.
    """
    if not {*row.excluded_ids} <= {"N/A"}:
        raise ValueError(
            "leaves documents out of its own search, which a corpus for all queries cannot"
        )
    for name in row.gold_ids:
        document = name.rpartition("_")[0]
        if name not in short or document not in long or document not in row.gold_ids_long:
            raise ValueError("has a gold passage whose text or long document is missing")
        yield document, StatedAnswer.from_span(locate_once(short[name], long[document]))
