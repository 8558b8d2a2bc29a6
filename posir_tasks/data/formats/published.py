"""Readers for published collections in folders: LegalBench-RAG, MS MARCO v2, BRIGHT and MIRACL.

LegalBench-RAG: Pipitone & Alami 2024, arXiv 2408.10343. MS MARCO v2: with the qrels of TREC Deep
Learning 2021 to 2023. BRIGHT: Su et al. 2024, arXiv 2407.12883; short passages are located in the
long documents. MIRACL: Zhang et al. 2022, arXiv 2210.09984; passages are joined into articles.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError
from posir_tasks.base.files import iterate_lines, open_decompressed, read_decompressed
from posir_tasks.base.untrusted import parse_json, read_json
from posir_tasks.data.declared import MIRACL_LANGUAGES
from posir_tasks.data.formats.passages import (
    Answer,
    Cause,
    DeferredQueries,
    DeferredQuery,
    Item,
    Items,
    Passage,
    ReadOptions,
    SkippedItem,
    UnusableError,
    add_deferred,
    attach_queries,
    read_text,
    skip_question,
)
from posir_tasks.data.formats.qrels import read_qrels, split_lines
from posir_tasks.data.formats.records import (
    Row,
    choose_split,
    convert_errors,
    read_parquet_rows,
    read_rows,
)
from posir_tasks.data.grades import CollectedGrades
from posir_tasks.text.languages import find_two_letter_code
from posir_tasks.text.locating import locate_once
from posir_tasks.text.spans import to_characters
from posir_tasks.text.words import estimate_tokens


def is_sampled(name: str, interval: int) -> bool:
    """Return True for one in `interval` documents, selected by a digest of the id."""
    return int.from_bytes(digest("posir sample", name)) % interval == 0


#: Prefix of LegalBench-RAG queries. It names the relevant document.
DOCUMENT_PREFIX = re.compile(r"^Consider .*?; *", re.DOTALL)
LEGALBENCH = "a benchmark of LegalBench-RAG, tests > query and snippets > file_path, span, answer"


def read_legalbench(folder: Path, options: ReadOptions) -> Items:
    """Yield the documents with the queries of all benchmarks, or of one (`--split cuad`).

    The prefix with the document name is removed from queries. Each line end counts as one character
    in spans.
    """
    deferred = DeferredQueries()
    files = {file.stem: file for file in sorted((folder / "benchmarks").glob("*.json"))}
    if options.split is not None:
        split = choose_split(folder, options.split, files, "")
        files = {split: files[split]}
    for file in files.values():
        with convert_errors(file, "", LEGALBENCH):
            for number, test in enumerate(Row.parse(read_json(file)).get_rows("tests")):
                query = DOCUMENT_PREFIX.sub("", test.get_text("query"))
                pairs = [
                    (
                        row.get_text("file_path"),
                        Answer(row.get_text("answer"), *row.get_span("span")),
                    )
                    for row in test.get_rows("snippets")
                ]
                yield from add_deferred(deferred, str(file), f"{file.stem}:{number}", query, pairs)
    yield from attach_queries(_read_legal_texts(folder / "corpus", options), deferred, "corpus/")


def _read_legal_texts(corpus: Path, options: ReadOptions) -> Items:
    for file in sorted(corpus.rglob("*.txt")):
        name = file.relative_to(corpus).as_posix()
        if options.split in (None, name.partition("/")[0]):
            with convert_errors(file, "", "text in UTF-8"):
                text = io.StringIO(read_decompressed(file).decode(), newline=None).read()
            yield read_text(name, "", text, name)


#: Minimum rating for a relevant passage in TREC Deep Learning.
MIN_RELEVANT_RATING = 2
#: One in this many unjudged MS MARCO documents is added to the corpus.
MARCO_SAMPLING_INTERVAL = 64
#: Id fields for documents and passages.
MARCO_IDS = {"doc": b"docid", "passage": b"pid"}
MARCO_PASSAGE = "a passage of MS MARCO v2: pid, passage, spans and docid"
OFFSET_PAIRS = re.compile(r"\(\d+,\d+\)(,\(\d+,\d+\))*")


def _read_marco(folder: Path, kind: str) -> Iterator[tuple[str, str, bytes]]:
    """Stream the location, id and JSON line of each document or passage."""
    id_pattern = re.compile(b'"%s": ?"([^"]+)"' % MARCO_IDS[kind])
    archives = sorted(folder.rglob(f"msmarco_v2_{kind}.tar"))
    for source in archives or sorted(folder.rglob(f"msmarco*_{kind}_*.gz")):
        with convert_errors(source, "", f"{kind}s of MS MARCO v2"):
            for name, lines in _open_members(source):
                for number, line in enumerate(lines, start=1):
                    match = id_pattern.search(line)
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
                if member.name.endswith(".gz") and (member_file := archive.extractfile(member)):
                    with gzip.open(member_file) as content:
                        yield member.name, iterate_lines(content, f"{source}: {member.name}")
    except tarfile.TarError as error:
        raise ValueError(f"is not a complete archive ({error})") from error


def _read_ratings(folder: Path, year: str) -> tuple[dict[str, str], CollectedGrades, str]:
    files = [file for file in sorted(folder.rglob("*")) if year in file.name]
    qrels = [file for file in files if "qrels" in file.name and "doc" not in file.name.lower()]
    topics = [file for file in files if file.match("*queries*.tsv")]
    if not (qrels and topics):
        raise DataError(
            f"{folder}: no passage qrels, or no queries{f' of {year}' if year else ''}. Put "
            "TREC Deep Learning's 2021.qrels.pass.final.txt and 2021_queries.tsv, or those of "
            "another year, into the folder."
        )
    queries = {name: text for file in topics for name, text in split_lines(file, 2, "\t")}
    return queries, read_qrels(*qrels), ", ".join(map(str, qrels))


def read_marco(folder: Path, options: ReadOptions) -> Items:
    """Yield the judged documents with their queries, and a sample of unjudged documents.

    `--split 2021` selects the queries of one year. Documents with the same body are merged, since
    the qrels of 2022 and 2023 contain duplicates.
    """
    queries, grades, file = _read_ratings(folder, options.split or "")
    yield from grades.skip_contradictions(file)
    ratings_by_passage: dict[str, dict[str, float]] = {}
    for query, ratings in grades.by_query.items():
        if max(ratings.values()) < MIN_RELEVANT_RATING:
            yield skip_question(file, query, Cause.NOT_RELEVANT)
        elif query not in queries:
            yield skip_question(file, query, Cause.NO_TEXT)
        for passage, rating in ratings.items():
            ratings_by_passage.setdefault(passage, {})[query] = rating
    deferred = DeferredQueries()
    for location, name, line in _read_marco(folder, "passage"):
        if name in ratings_by_passage:
            with convert_errors(location, "", MARCO_PASSAGE):
                row = Row.parse(parse_json(line, location))
                # A document stays in the corpus even if all of its ratings are lower.
                document_queries = deferred.setdefault(row.get_text("docid"), [])
                find = partial(_locate_passage, row.get_text("spans"))
            for query, rating in ratings_by_passage.pop(name).items():
                if rating >= MIN_RELEVANT_RATING and query in queries:
                    document_queries.append(
                        DeferredQuery(file, query, queries[query], find, rating)
                    )
    missing = [pair for ratings in ratings_by_passage.values() for pair in ratings.items()]
    incomplete = {
        query for query, rating in missing if rating >= MIN_RELEVANT_RATING and query in queries
    }
    for query in sorted(incomplete):
        yield skip_question(file, query, Cause.NO_PASSAGE)
    documents = _read_marco_documents(folder, frozenset(deferred))
    yield from _merge_copies(attach_queries(documents, deferred, "the collection"))


def _merge_copies(items: Iterable[Item]) -> Items:
    """Give all documents with the same body the id of the first one."""
    originals = dict[bytes, str]()
    for item in items:
        if isinstance(item, Passage):
            original = originals.setdefault(digest(item.text, size=16), item.id or "")
            yield replace(item, id=original)
        else:
            yield item


def _read_marco_documents(folder: Path, judged: Container[str]) -> Items:
    skipped_count = 0
    for location, name, line in _read_marco(folder, "doc"):
        if name not in judged and not is_sampled(name, MARCO_SAMPLING_INTERVAL):
            skipped_count += 1
            continue
        with convert_errors(location, "", "a document of MS MARCO v2: docid and body"):
            body = Row.parse(parse_json(line, location)).get_text("body")
        yield read_text(str(folder), name, body, name)
    yield from _skip_unjudged("documents", skipped_count, MARCO_SAMPLING_INTERVAL)


def _skip_unjudged(noun: str, number: int, interval: int) -> Iterator[SkippedItem]:
    if number:
        reason = f"{noun} that are neither judged nor in the seeded sample of 1 in {interval}"
        yield SkippedItem("corpus", reason, number=number)


def _locate_passage(spans: str, body: str) -> list[Answer]:
    """Locate a passage from the byte spans of its sentences, such as `(0,12),(13,20)`."""
    if not OFFSET_PAIRS.fullmatch(spans):
        raise ValueError("'spans' is not valid: must be pairs such as (0,12),(13,20)")
    numbers = [int(number) for number in re.findall(r"\d+", spans)]
    return [Answer.from_span(to_characters(body.encode(), numbers[0], numbers[-1]))]


def read_bright(folder: Path, options: ReadOptions) -> Items:
    """Yield the long documents of a domain (`--split biology`) with their queries."""
    files = folder.rglob("long_documents/*.parquet")
    domains = {file.name.partition("-")[0] for file in files}
    default = min(domains) if len(domains) == 1 else ""
    domain = choose_split(folder, options.split, domains, default)
    short_texts = _read_bright_texts(folder, f"**/documents/{domain}-*.parquet")
    long_texts = _read_bright_texts(folder, f"**/long_documents/{domain}-*.parquet")
    file = f"{folder}: examples of {domain}"
    deferred = DeferredQueries()
    for row in read_parquet_rows(folder, f"**/examples/{domain}-*.parquet"):
        pairs = _locate_gold_passages(row, short_texts, long_texts)
        yield from add_deferred(deferred, file, row.get_id("id"), row.get_text("query"), pairs)
    documents = (read_text(file, name, text, name) for name, text in long_texts.items())
    yield from attach_queries(documents, deferred, "the long documents")


def _read_bright_texts(folder: Path, pattern: str) -> dict[str, str]:
    return {
        row.get_text("id"): row.get_text("content") for row in read_parquet_rows(folder, pattern)
    }


def _locate_gold_passages(
    row: Row, short_texts: Mapping[str, str], long_texts: Mapping[str, str]
) -> Iterator[tuple[str, Answer]]:
    """Yield long document and span for each gold passage.

    A passage id consists of the document id, an underscore and a number.
    """
    if not {*row.get_texts("excluded_ids")} <= {"N/A"}:
        raise UnusableError(Cause.EXCLUDING)
    gold_documents = row.get_texts("gold_ids_long")
    for name in row.get_texts("gold_ids"):
        document = name.rpartition("_")[0]
        if name not in short_texts or document not in long_texts or document not in gold_documents:
            raise UnusableError(Cause.NO_PASSAGE)
        yield document, Answer.from_span(locate_once(short_texts[name], long_texts[document]))


#: Separator between the passages of an article.
SEPARATOR = "\n\n"
#: Minimum size of an article with evidence: it needs at least this many passages or tokens.
MIN_PASSAGES = 4
MIN_TOKENS = 512
#: Languages whose corpus is read completely.
COMPLETE_LANGUAGES = ("sw", "bn", "te", "hi", "th")
#: For other languages, one in this many unjudged articles is added to the corpus.
MIRACL_SAMPLING_INTERVAL = 16
PASSAGE_NAME = re.compile(r"(.+)#(\d+)")
MIRACL = "MIRACL's corpus, one passage per line with docid, title and text"
TOPICS = "topics.miracl-v1.0-"


@dataclass
class Article:
    """A MIRACL article, with passages by number."""

    title: str
    passages: dict[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The passages, joined in numerical order."""
        return SEPARATOR.join(self.passages[number] for number in sorted(self.passages))


def _list_topics(folder: Path) -> dict[str, dict[str, Path]]:
    files: dict[str, dict[str, Path]] = defaultdict(dict)
    for file in sorted(folder.rglob(f"{TOPICS}*.tsv")):
        language, _, split = file.stem.removeprefix(TOPICS).partition("-")
        files[language][split] = file
    return files


def _find_topics(folder: Path, options: ReadOptions) -> tuple[str, Path, Path]:
    """Return language, topics and qrels; raise DataError if they are missing or ambiguous."""
    files = _list_topics(folder)
    language = find_two_letter_code(options.language) if options.language else "".join(files)
    if language not in files:
        raise DataError(
            f"{folder}: contains MIRACL in {', '.join(sorted(files))}. Choose a language, such as "
            "--language swh-Latn."
        )
    splits = files[language]
    default = "dev" if "dev" in splits else min(splits)
    topics = splits[choose_split(folder, options.split, splits, default)]
    name = topics.name.replace("topics.", "qrels.", 1)
    qrels = next(folder.rglob(name), None)
    if qrels is None:
        raise DataError(f"{folder}: {topics.name} has no {name}.")
    return language, topics, qrels


def find_miracl_language(folder: Path) -> str:
    """Return the language code of a MIRACL folder, or an empty string if there are several."""
    languages = _list_topics(folder)
    codes = [code for code in MIRACL_LANGUAGES if find_two_letter_code(code) in languages]
    return codes[0] if len(codes) == len(languages) == 1 else ""


def _read_articles(
    folder: Path, language: str, judged: Container[str], articles: dict[str, Article]
) -> Iterator[SkippedItem]:
    """Add the judged and sampled articles of a language to `articles`, and yield skipped items."""
    files = sorted(folder.rglob(f"*-{language}/*.jsonl*"))
    if not files:
        expected = f"miracl-corpus-v1.0-{language}/docs-*.jsonl.gz"
        raise DataError(f"{folder}: no MIRACL corpus; expected {expected}.")
    interval = 1 if language in COMPLETE_LANGUAGES else MIRACL_SAMPLING_INTERVAL
    skipped_count = 0
    for file in files:
        for location, row in read_rows(file, MIRACL):
            if isinstance(row, SkippedItem):
                yield row
                continue
            with convert_errors(file, location, MIRACL):
                name = PASSAGE_NAME.fullmatch(row.get_text("docid"))
                if name is None:
                    raise ValueError("'docid' is not valid: it must look like 39#2")
                text = row.get_text("text")
                title = row.get_text("title", "")
            if name[1] in judged or is_sampled(name[1], interval):
                articles.setdefault(name[1], Article(title)).passages[int(name[2])] = text
            else:
                skipped_count += 1
    yield from _skip_unjudged("passages of articles", skipped_count, interval)


def _locate_passages(
    relevant: Iterable[str], articles: Mapping[str, Article]
) -> Iterator[tuple[str, Answer]]:
    """Yield article and span of each passage; raise UnusableError if it cannot be used."""
    for name in relevant:
        article, _, number = name.rpartition("#")
        passages = articles[article].passages if article in articles else {}
        if not number.isdecimal() or int(number) not in passages:
            raise UnusableError(Cause.NO_PASSAGE)
        if len(passages) < MIN_PASSAGES and estimate_tokens(articles[article].text) < MIN_TOKENS:
            raise UnusableError(Cause.SHORT)
        start = sum(
            len(text) + len(SEPARATOR) for key, text in passages.items() if key < int(number)
        )
        yield article, Answer(passages[int(number)], start)


def read_miracl(folder: Path, options: ReadOptions) -> Items:
    """Yield the articles of a language with the topics of a split as questions."""
    language, topics, qrels = _find_topics(folder, options)
    grades = read_qrels(qrels)
    yield from grades.skip_contradictions(str(qrels))
    passages = [name for ratings in grades.by_query.values() for name in ratings]
    judged = {name.rpartition("#")[0] for name in passages}
    articles = dict[str, Article]()
    yield from _read_articles(folder, language, judged, articles)
    deferred = DeferredQueries()
    for topic, text in split_lines(topics, 2, "\t"):
        ratings = grades.by_query.get(topic, {})
        relevant = [name for name, grade in ratings.items() if grade > 0]
        if relevant:
            pairs = _locate_passages(relevant, articles)
            yield from add_deferred(deferred, str(topics), topic, text, pairs)
        else:
            yield skip_question(str(topics), topic, Cause.NOT_RELEVANT)
    documents = (
        read_text(str(folder), name, article.text, name, article.title)
        for name, article in articles.items()
    )
    yield from attach_queries(documents, deferred, "the corpus")
