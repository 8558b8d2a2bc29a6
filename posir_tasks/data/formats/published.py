"""Published collections with spans, in folders of their own layouts: LegalBench-RAG, MS MARCO v2,
BRIGHT and MIRACL.

LegalBench-RAG: Pipitone & Alami 2024, arXiv 2408.10343. MS MARCO v2 with the qrels of TREC Deep
Learning 2021 to 2023. BRIGHT: Su et al. 2024, arXiv 2407.12883, its short passages in its long
documents. MIRACL: Zhang et al. 2022, arXiv 2210.09984; its passages are joined to the articles that
they are of.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError
from posir_tasks.base.files import iterate_lines, open_decompressed, read_decompressed
from posir_tasks.base.untrusted import parse_json, read_json
from posir_tasks.data.formats.passages import (
    Cause,
    Claim,
    Claims,
    Item,
    Items,
    Passage,
    ReadOptions,
    SkippedText,
    StatedAnswer,
    UnusableError,
    add_claims,
    read_text,
    settle_claims,
    skip_question,
)
from posir_tasks.data.formats.qrels import read_qrels, split_lines
from posir_tasks.data.formats.records import Row, choose_split, error_context, read_rows
from posir_tasks.data.grades import CollectedGrades
from posir_tasks.text.languages import two_letter_code
from posir_tasks.text.locating import locate_once
from posir_tasks.text.spans import to_characters
from posir_tasks.text.words import estimate_tokens


def is_sampled(name: str, share: int) -> bool:
    """Return whether a document is in the sample of one in `share`, which is the same on every
    machine.
    """
    return int.from_bytes(digest("posir sample", name)) % share == 0


#: What a query of LegalBench-RAG begins with to name its document, which it is ranked within.
NAMING = re.compile(r"^Consider .*?; *", re.DOTALL)
LEGALBENCH = "a benchmark of LegalBench-RAG, tests > query and snippets > file_path, span, answer"


def read_legalbench(folder: Path, options: ReadOptions) -> Items:
    """Yield the documents with the queries of all benchmarks, or of one (`--split cuad`), without
    the name of the document.

    Spans count the text as Python reads it in text mode: a line ends with one character.
    """
    claims = Claims()
    files = {file.stem: file for file in sorted((folder / "benchmarks").glob("*.json"))}
    if options.split is not None:
        split = choose_split(folder, options.split, files, "")
        files = {split: files[split]}
    for file in files.values():
        tests = []
        with error_context(file, "", LEGALBENCH):
            for test in Row.of(read_json(file)).rows("tests"):
                placed = []
                for row in test.rows("snippets"):
                    answer = StatedAnswer(row.text("answer"), *row.span("span"))
                    placed.append((row.text("file_path"), answer))
                tests.append((test.text("query"), placed))
        for number, (query, placed) in enumerate(tests):
            name = f"{file.stem}:{number}"
            yield from add_claims(claims, str(file), name, NAMING.sub("", query), placed)
    yield from settle_claims(_read_legal_texts(folder / "corpus", options), claims, "corpus/")


def _read_legal_texts(corpus: Path, options: ReadOptions) -> Items:
    for file in sorted(corpus.rglob("*.txt")):
        name = file.relative_to(corpus).as_posix()
        if options.split in (None, name.partition("/")[0]):
            with error_context(file, "", "text in UTF-8"):
                text = io.StringIO(read_decompressed(file).decode(), newline=None).read()
            yield read_text(name, "", text, name)


#: From this rating, a passage of TREC Deep Learning is relevant.
RELEVANT = 2
#: Next to the judged documents of MS MARCO, one of so many is in the corpus, by the digest of its
#: id.
MARCO_SAMPLED = 64
#: Field of the id of a document and of a passage.
MARCO_IDS = {"doc": b"docid", "passage": b"pid"}
PAIRS = re.compile(r"\(\d+,\d+\)(,\(\d+,\d+\))*")


def _find_marco(folder: Path, kind: str) -> list[Path]:
    """Return the archive of documents or passages, or the files that are extracted from it."""
    archives = sorted(folder.rglob(f"msmarco_v2_{kind}.tar"))
    return archives or sorted(folder.rglob(f"msmarco*_{kind}_*.gz"))


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


def _read_ratings(folder: Path, year: str) -> tuple[dict[str, str], CollectedGrades, str]:
    """Return queries, the ratings, and the names of the qrels."""
    named = [file for file in sorted(folder.rglob("*")) if year in file.name]
    qrels = [file for file in named if "qrels" in file.name and "doc" not in file.name.lower()]
    topics = [file for file in named if file.match("*queries*.tsv")]
    if not (qrels and topics):
        raise DataError(
            f"{folder}: no qrels of passages, or no queries{f' of {year}' if year else ''}. Put "
            "TREC Deep Learning's 2021.qrels.pass.final.txt and 2021_queries.tsv, or those of "
            "another year, into the folder."
        )
    queries = {name: text for file in topics for name, text in split_lines(file, 2, "\t")}
    return queries, read_qrels(*qrels), ", ".join(map(str, qrels))


def read_marco(folder: Path, options: ReadOptions) -> Items:
    """Yield judged documents and a sample of the others, with the queries whose rated passages are
    in them; of all years or one (`--split 2021`).

    Documents with the same body are one: the qrels of 2022 and 2023 are with duplicates.
    """
    queries, grades, file = _read_ratings(folder, options.split or "")
    yield from grades.skip_contradictions(file)
    rated: dict[str, dict[str, float]] = {}
    for query, ratings in grades.by_query.items():
        if max(ratings.values()) < RELEVANT:
            yield skip_question(file, query, Cause.NOT_RELEVANT)
        elif query not in queries:
            yield skip_question(file, query, Cause.NO_TEXT)
        for passage, rating in ratings.items():
            rated.setdefault(passage, {})[query] = rating
    claims = Claims()
    for place, name, line in _read_marco(folder, "passage"):
        if name in rated:
            document, find = _read_marco_passage(line, place)
            # The document of a passage that is rated too low is in the corpus, too.
            listed = claims.setdefault(document, [])
            for query, rating in rated.pop(name).items():
                if rating >= RELEVANT and query in queries:
                    listed.append(Claim(file, query, queries[query], find, rating))
    missing = [pair for ratings in rated.values() for pair in ratings.items()]
    lost = {query for query, rating in missing if rating >= RELEVANT and query in queries}
    for query in sorted(lost):
        yield skip_question(file, query, Cause.NO_PASSAGE)
    documents = _read_marco_documents(folder, frozenset(claims))
    yield from _merge_copies(settle_claims(documents, claims, "the collection"))


def _merge_copies(items: Iterable[Item]) -> Items:
    """Give documents with the same body the id of the first."""
    originals = dict[bytes, str]()
    for item in items:
        if isinstance(item, Passage):
            original = originals.setdefault(digest(item.text, size=16), item.id or "")
            yield replace(item, id=original)
        else:
            yield item


def _read_marco_passage(line: bytes, place: str) -> tuple[str, Callable[[str], list[StatedAnswer]]]:
    """Return the document of a passage, and what finds its bytes in the document."""
    with error_context(place, "", "a passage of MS MARCO v2: pid, passage, spans and docid"):
        row = Row.of(parse_json(line, place))
        spans = row.text("spans")
        if not PAIRS.fullmatch(spans):
            raise ValueError("'spans' is not valid: must be pairs such as (0,12),(13,20)")
        numbers = re.findall(r"\d+", spans)
        return row.text("docid"), partial(_find_bytes, int(numbers[0]), int(numbers[-1]))


def _read_marco_documents(folder: Path, judged: Container[str]) -> Items:
    left_out = 0
    for place, name, line in _read_marco(folder, "doc"):
        if name not in judged and not is_sampled(name, MARCO_SAMPLED):
            left_out += 1
            continue
        with error_context(place, "", "a document of MS MARCO v2: docid and body"):
            body = Row.of(parse_json(line, place)).text("body")
        yield read_text(str(folder), name, body, name)
    yield from _skip_others("documents", left_out, MARCO_SAMPLED)


def _skip_others(noun: str, number: int, share: int) -> Iterator[SkippedText]:
    if number:
        reason = f"{noun} that are neither judged nor in the seeded sample of 1 in {share}"
        yield SkippedText("corpus", reason, number=number)


def _find_bytes(start: int, end: int, body: str) -> list[StatedAnswer]:
    return [StatedAnswer.from_span(to_characters(body.encode(), start, end))]


#: Fields of an example of BRIGHT.
BRIGHT_EXAMPLES: Mapping[str, Callable[[Row, str], object]] = {
    "query": Row.text,
    "id": Row.identifier,
    **dict.fromkeys(("excluded_ids", "gold_ids_long", "gold_ids"), Row.texts),
}


def read_bright(folder: Path, options: ReadOptions) -> Items:
    """Yield the long documents of a domain (`--split biology`), with the queries whose short
    passages are in them.
    """
    files = folder.rglob("long_documents/*.parquet")
    domains = {file.name.partition("-")[0] for file in files}
    default = min(domains) if len(domains) == 1 else ""
    domain = choose_split(folder, options.split, domains, default)
    short = _read_bright_texts(folder, f"documents/{domain}-*.parquet")
    long = _read_bright_texts(folder, f"long_documents/{domain}-*.parquet")
    file = f"{folder}: examples of {domain}"
    claims = Claims()
    for row in _read_bright_rows(folder, f"examples/{domain}-*.parquet", BRIGHT_EXAMPLES):
        placed = _place_gold(row, short, long)
        yield from add_claims(claims, file, row.identifier("id"), row.text("query"), placed)
    documents = (read_text(file, name, text, name) for name, text in long.items())
    yield from settle_claims(documents, claims, "the long documents")


def _read_bright_rows(
    folder: Path, pattern: str, fields: Mapping[str, Callable[[Row, str], object]]
) -> Iterator[Row]:
    expected = f"rows of BRIGHT with {', '.join(fields)}"
    for file in sorted(folder.rglob(pattern)):
        for place, row in read_rows(file, expected):
            assert isinstance(row, Row), "a row of Parquet is decoded"
            with error_context(file, place, expected):
                for name, read in fields.items():
                    read(row, name)
            yield row


def _read_bright_texts(folder: Path, pattern: str) -> dict[str, str]:
    rows = _read_bright_rows(folder, pattern, {"id": Row.text, "content": Row.text})
    return {row.text("id"): row.text("content") for row in rows}


def _place_gold(
    row: Row, short: Mapping[str, str], long: Mapping[str, str]
) -> Iterator[tuple[str, StatedAnswer]]:
    """Yield long document and place of each gold passage, whose id is that of its document with a
    number behind.
    """
    if not {*row.texts("excluded_ids")} <= {"N/A"}:
        raise UnusableError(Cause.EXCLUDING)
    gold_documents = row.texts("gold_ids_long")
    for name in row.texts("gold_ids"):
        document = name.rpartition("_")[0]
        if name not in short or document not in long or document not in gold_documents:
            raise UnusableError(Cause.NO_PASSAGE)
        yield document, StatedAnswer.from_span(locate_once(short[name], long[document]))


#: Between the passages of an article.
SEPARATOR = "\n\n"
#: Passages or tokens from which a position in an article is measured.
MIN_PASSAGES = 4
MIN_TOKENS = 512
#: Languages whose corpus is read whole; of others, next to the judged articles, one of so many by
#: the digest of its name.
WHOLE = ("sw", "bn", "te", "hi", "th")
SAMPLED = 16
PASSAGE_NAME = re.compile(r"(.+)#(\d+)")
MIRACL = "MIRACL's corpus, one passage per line with docid, title and text"
TOPICS = "topics.miracl-v1.0-"


@dataclass
class Article:
    """The passages of an article of MIRACL, by number."""

    title: str
    passages: dict[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The passages in the order of their numbers."""
        return SEPARATOR.join(self.passages[number] for number in sorted(self.passages))


def _find_topics(folder: Path, options: ReadOptions) -> tuple[str, Path, Path]:
    """Return the language and the files of topics and qrels; raise DataError if that leaves
    several, or none.
    """
    files = dict[str, dict[str, Path]]()
    for file in sorted(folder.rglob(f"{TOPICS}*.tsv")):
        language, _, split = file.stem.removeprefix(TOPICS).partition("-")
        files.setdefault(language, {})[split] = file
    language = two_letter_code(options.language) if options.language else "".join(files)
    if language not in files:
        raise DataError(
            f"{folder}: MIRACL in {', '.join(sorted(files))}. Choose one by the language, such as "
            "--language swh-Latn."
        )
    splits = files[language]
    default = "dev" if "dev" in splits else min(splits)
    topics = splits[choose_split(folder, options.split, splits, default)]
    name = topics.name.replace("topics.", "qrels.", 1)
    qrels = [*folder.rglob(name)]
    if not qrels:
        raise DataError(f"{folder}: {topics.name} has no {name}.")
    return language, topics, qrels[0]


def _read_articles(
    folder: Path, language: str, judged: Container[str], articles: dict[str, Article]
) -> Iterator[SkippedText]:
    """Read the articles of a language, those of a sample and those that are judged; yield what is
    left out.
    """
    files = sorted([*folder.rglob("*.jsonl"), *folder.rglob("*.jsonl.gz")])
    if not files:
        expected = f"miracl-corpus-v1.0-{language}/docs-*.jsonl.gz"
        raise DataError(f"{folder}: no corpus of MIRACL; expected {expected}.")
    in_folder = [file for file in files if file.parent.name.endswith(f"-{language}")]
    share = 1 if language in WHOLE else SAMPLED
    left_out = 0
    for file in in_folder or files:
        for place, row in read_rows(file, MIRACL):
            if isinstance(row, SkippedText):
                yield row
                continue
            with error_context(file, place, MIRACL):
                name = PASSAGE_NAME.fullmatch(row.text("docid"))
                if name is None:
                    raise ValueError("'docid' is not valid: must be such as 39#2")
                text = row.text("text")
                title = row.text("title", "")
            if name[1] in judged or is_sampled(name[1], share):
                articles.setdefault(name[1], Article(title)).passages[int(name[2])] = text
            else:
                left_out += 1
    yield from _skip_others("passages of articles", left_out, share)


def _place_passages(
    relevant: Iterable[str], articles: Mapping[str, Article]
) -> Iterator[tuple[str, StatedAnswer]]:
    """Yield article and place of relevant passages; raise UnusableError if their position is not
    measured.
    """
    for name in relevant:
        article, _, number = name.rpartition("#")
        parts = articles[article].passages if article in articles else {}
        if not number.isdecimal() or int(number) not in parts:
            raise UnusableError(Cause.NO_PASSAGE)
        if len(parts) < MIN_PASSAGES and estimate_tokens(articles[article].text) < MIN_TOKENS:
            raise UnusableError(Cause.SHORT)
        before = [len(parts[other]) + len(SEPARATOR) for other in parts if other < int(number)]
        yield article, StatedAnswer(parts[int(number)], sum(before))


def read_miracl(folder: Path, options: ReadOptions) -> Items:
    """Yield the articles of a language, joined from their passages, with the topics of a split."""
    language, topics, qrels = _find_topics(folder, options)
    grades = read_qrels(qrels)
    yield from grades.skip_contradictions(str(qrels))
    rated = [name for ratings in grades.by_query.values() for name in ratings]
    judged = {name.rpartition("#")[0] for name in rated}
    articles = dict[str, Article]()
    yield from _read_articles(folder, language, judged, articles)
    claims = Claims()
    for topic, text in split_lines(topics, 2, "\t"):
        ratings = grades.by_query.get(topic, {})
        relevant = [name for name, grade in ratings.items() if grade > 0]
        if relevant:
            placed = _place_passages(relevant, articles)
            yield from add_claims(claims, str(topics), topic, text, placed)
        else:
            yield skip_question(str(topics), topic, Cause.NOT_RELEVANT)
    documents = (
        read_text(str(folder), name, article.text, name, article.title)
        for name, article in articles.items()
    )
    yield from settle_claims(documents, claims, "the corpus")
