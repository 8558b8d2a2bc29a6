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
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError
from posir_tasks.base.files import iterate_lines, open_decompressed, read_decompressed
from posir_tasks.base.untrusted import parse_json, read_json
from posir_tasks.data.formats.passages import (
    Claim,
    Claims,
    Item,
    Passage,
    ReadOptions,
    SkippedText,
    StatedAnswer,
    add_claims,
    read_text,
    settle_claims,
    skip_question,
)
from posir_tasks.data.formats.qrels import read_qrels, split_lines
from posir_tasks.data.formats.records import Row, error_context, read_rows
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


def is_legalbench(folder: Path) -> bool:
    """Return whether a folder has benchmarks and corpus of LegalBench-RAG."""
    return (folder / "corpus").is_dir() and any((folder / "benchmarks").glob("*.json"))


def read_legalbench(folder: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the documents with the queries of all benchmarks, or of one (`--split cuad`), without
    the name of the document.

    Spans count the text as Python reads it in text mode: a line ends with one character.
    """
    claims = Claims()
    files = sorted((folder / "benchmarks").glob("*.json"))
    chosen = [file for file in files if options.split in (None, file.stem)]
    if not chosen:
        listed = ", ".join(file.stem for file in files)
        raise DataError(f"{folder}: no benchmark {options.split}. It has {listed}.")
    for file in chosen:
        with error_context(file, "", LEGALBENCH):
            tests = [
                (test.text("query"), [*map(_read_snippet, test.rows("snippets"))])
                for test in Row.of(read_json(file)).rows("tests")
            ]
        for number, (query, placed) in enumerate(tests):
            name = f"{file.stem}:{number}"
            yield from add_claims(claims, str(file), name, NAMING.sub("", query), placed)
    yield from settle_claims(_read_legal_texts(folder / "corpus", options), claims, "corpus/")


def _read_snippet(row: Row) -> tuple[str, StatedAnswer]:
    span = row.items("span")
    if len(span) != 2 or not all(type(place) is int for place in span):
        raise ValueError(f"'{row.place}.span' must be two integers, start and end")
    return row.text("file_path"), StatedAnswer(row.text("answer"), *span)


def _read_legal_texts(corpus: Path, options: ReadOptions) -> Iterator[Item]:
    for file in sorted(corpus.rglob("*.txt")):
        name = file.relative_to(corpus).as_posix()
        if options.split not in (None, name.partition("/")[0]):
            continue
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
PAIR = re.compile(r"\((\d+),(\d+)\)")


def _find_marco(folder: Path, kind: str) -> list[Path]:
    """Return the archive of documents or passages, or the files that are extracted from it."""
    archives = sorted(folder.rglob(f"msmarco_v2_{kind}.tar"))
    return archives or sorted(folder.rglob(f"msmarco*_{kind}_*.gz"))


def is_marco(folder: Path) -> bool:
    """Return whether a folder has documents and passages of MS MARCO v2."""
    return all(_find_marco(folder, kind) for kind in MARCO_IDS)


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
        of_year = f" of {year}" if year else ""
        raise DataError(
            f"{folder}: no qrels of passages, or no queries{of_year}. Put TREC Deep Learning's "
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
    for query, rated in grades.by_query.items():
        if max(rated.values()) < RELEVANT:
            yield skip_question(file, query, f"has no passage rated {RELEVANT} or more")
        elif query not in queries:
            yield skip_question(file, query, "its text is not among the queries")
    claims = Claims()
    yield from _claim_passages(folder, queries, grades, file, claims)
    originals = dict[bytes, str]()
    documents = _read_marco_documents(folder, frozenset(claims))
    for item in settle_claims(documents, claims, "the collection"):
        if isinstance(item, Passage):
            original = originals.setdefault(digest(item.text, size=16), item.id or "")
            yield Passage(item.file, item.place, item.text, item.questions, original)
        else:
            yield item


def _claim_passages(
    folder: Path, queries: Mapping[str, str], grades: CollectedGrades, file: str, claims: Claims
) -> Iterator[SkippedText]:
    """Claim rated passages of their documents; yield the queries of passages that are missing."""
    judged = grades.list_by_document()
    for place, name, line in _read_marco(folder, "passage"):
        if name not in judged:
            continue
        document, start, end = _read_marco_passage(line, place)
        # The document of a passage that is rated too low is in the corpus, too.
        listed = claims.setdefault(document, [])
        for query, rating in judged.pop(name).items():
            if rating >= RELEVANT and query in queries:
                find = partial(_find_bytes, start, end)
                listed.append(Claim(file, query, queries[query], find, rating))
    for query, rated in grades.by_query.items():
        missing = [rating for name, rating in rated.items() if name in judged]
        if query in queries and max(missing, default=0) >= RELEVANT:
            yield skip_question(file, query, "has a relevant passage that is not in the collection")


def _read_marco_passage(line: bytes, place: str) -> tuple[str, int, int]:
    """Return the document of a passage, and its first and last byte in it."""
    with error_context(place, "", "a passage of MS MARCO v2: pid, passage, spans and docid"):
        row = Row.of(parse_json(line, place))
        spans = row.text("spans")
        pairs = PAIR.findall(spans)
        if not pairs or ",".join("({},{})".format(*pair) for pair in pairs) != spans:
            raise ValueError("'spans' is not valid: must be pairs such as (0,12),(13,20)")
        return row.text("docid"), int(pairs[0][0]), int(pairs[-1][1])


def _read_marco_documents(folder: Path, judged: Container[str]) -> Iterator[Item]:
    left_out = 0
    for place, name, line in _read_marco(folder, "doc"):
        if name not in judged and not is_sampled(name, MARCO_SAMPLED):
            left_out += 1
            continue
        with error_context(place, "", "a document of MS MARCO v2: docid and body"):
            body = Row.of(parse_json(line, place)).text("body")
        yield read_text(str(folder), name, body, name)
    if left_out:
        sample = f"the seeded sample of 1 in {MARCO_SAMPLED}"
        reason = f"documents that are neither judged nor in {sample}"
        yield SkippedText("corpus", reason, file=str(folder), number=left_out)


def _find_bytes(start: int, end: int, body: str) -> list[StatedAnswer]:
    return [StatedAnswer.from_span(to_characters(body.encode(), start, end))]


BRIGHT_EXAMPLES = "examples of BRIGHT: query, id, excluded_ids, gold_ids_long and gold_ids per row"
BRIGHT_TEXTS = "documents of BRIGHT: id and content per row"


def is_bright(folder: Path) -> bool:
    """Return whether a folder has the long documents of BRIGHT."""
    return any(folder.rglob("long_documents/*.parquet"))


def read_bright(folder: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the long documents of a domain (`--split biology`), with the queries whose short
    passages are in them.
    """
    files = folder.rglob("long_documents/*.parquet")
    domains = sorted({file.name.partition("-")[0] for file in files})
    domain = options.split or (domains[0] if len(domains) == 1 else "")
    if domain not in domains:
        listed = ", ".join(domains)
        raise DataError(
            f"{folder}: BRIGHT has long documents of {listed}. Choose a domain with --split."
        )
    short = _read_bright_texts(folder, "documents", domain)
    long = _read_bright_texts(folder, "long_documents", domain)
    file = f"{folder}: examples of {domain}"
    claims = Claims()
    for example in sorted(folder.rglob(f"examples/{domain}-*.parquet")):
        for place, row in read_rows(example, BRIGHT_EXAMPLES):
            if isinstance(row, SkippedText):
                continue
            with error_context(example, place, BRIGHT_EXAMPLES):
                name = row.identifier("id")
                query = row.text("query")
                for key in ("excluded_ids", "gold_ids_long", "gold_ids"):
                    row.texts(key)
            placed = _place_gold(row, short, long)
            yield from add_claims(claims, file, name, query, placed)
    documents = (read_text(file, name, text, name) for name, text in long.items())
    yield from settle_claims(documents, claims, "the long documents")


def _read_bright_texts(folder: Path, part: str, domain: str) -> dict[str, str]:
    texts = {}
    for file in sorted(folder.rglob(f"{part}/{domain}-*.parquet")):
        for place, row in read_rows(file, BRIGHT_TEXTS):
            if not isinstance(row, SkippedText):
                with error_context(file, place, BRIGHT_TEXTS):
                    texts[row.text("id")] = row.text("content")
    return texts


def _place_gold(
    row: Row, short: Mapping[str, str], long: Mapping[str, str]
) -> Iterator[tuple[str, StatedAnswer]]:
    """Yield long document and place of each gold passage, whose id is that of its document with a
    number behind.
    """
    if not {*row.texts("excluded_ids")} <= {"N/A"}:
        raise ValueError(
            "leaves documents out of its own search, which a corpus for all queries cannot"
        )
    gold_documents = row.texts("gold_ids_long")
    for name in row.texts("gold_ids"):
        document = name.rpartition("_")[0]
        if name not in short or document not in long or document not in gold_documents:
            raise ValueError("has a gold passage whose text or long document is missing")
        yield document, StatedAnswer.from_span(locate_once(short[name], long[document]))


#: Between the passages of an article.
SEPARATOR = "\n\n"
#: Passages or tokens from which a position in an article is measured.
MIN_PASSAGES = 4
MIN_TOKENS = 512
SHORT = (
    f"has its evidence in an article of fewer than {MIN_PASSAGES} passages and {MIN_TOKENS} tokens"
)
#: Languages whose corpus is read whole; of others, next to the judged articles, one of so many by
#: the digest of its name.
WHOLE = ("sw", "bn", "te", "hi", "th")
SAMPLED = 16
PASSAGE_NAME = re.compile(r"(.+)#(\d+)")
MIRACL = "MIRACL's corpus, one passage per line with docid, title and text"
TOPICS = "topics.miracl-v1.0-"


def is_miracl(folder: Path) -> bool:
    """Return whether a folder has topics of MIRACL below it."""
    return any(folder.rglob(f"{TOPICS}*.tsv"))


def _find_topics(folder: Path, options: ReadOptions) -> tuple[str, Path, Path]:
    """Return the language and the files of topics and qrels; raise DataError if that leaves
    several, or none.
    """
    files = dict[tuple[str, str], Path]()
    for file in folder.rglob(f"{TOPICS}*.tsv"):
        language, _, split = file.stem.removeprefix(TOPICS).partition("-")
        files[language, split] = file
    chosen = two_letter_code(options.language) if options.language else None
    languages = {language for language, _ in files} if chosen is None else {chosen}
    language = min(languages)
    splits = sorted(split for code, split in files if code == language)
    split = options.split or ("dev" if "dev" in splits else next(iter(splits), ""))
    topics = files.get((language, split))
    if len(languages) > 1 or topics is None:
        listed = ", ".join(" ".join(key) for key in sorted(files))
        raise DataError(
            f"{folder}: MIRACL in {listed}. Choose one by the language, such as --language "
            "swh-Latn, and --split."
        )
    name = topics.name.replace("topics.", "qrels.", 1)
    qrels = [*folder.rglob(name)]
    if not qrels:
        raise DataError(f"{folder}: {topics.name} has no {name}.")
    return language, topics, qrels[0]


def _find_corpus(folder: Path, language: str) -> list[Path]:
    """Return the files of a language's passages, by their folder; all, if there are no folders of
    languages.
    """
    files = sorted([*folder.rglob("*.jsonl"), *folder.rglob("*.jsonl.gz")])
    if not files:
        expected = f"miracl-corpus-v1.0-{language}/docs-*.jsonl.gz"
        raise DataError(f"{folder}: no corpus of MIRACL; expected {expected}.")
    return [file for file in files if file.parent.name.endswith(f"-{language}")] or files


def _read_articles(
    files: Iterable[Path],
    share: int,
    judged: Container[str],
    passages: dict[str, dict[int, str]],
    titles: dict[str, str],
) -> Iterator[SkippedText]:
    """Read the passages of articles by number, and their titles; yield what is left out."""
    left_out = 0
    for file in files:
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
                passages.setdefault(name[1], {})[int(name[2])] = text
                titles.setdefault(name[1], title)
            else:
                left_out += 1
    if left_out:
        sample = f"the seeded sample of 1 in {share}"
        reason = f"passages of articles that are neither judged nor in {sample}"
        yield SkippedText("corpus", reason, number=left_out)


def _place_passages(
    relevant: Iterable[str], passages: Mapping[str, Mapping[int, str]]
) -> Iterator[tuple[str, StatedAnswer]]:
    """Yield article and place of relevant passages; raise ValueError with the reason if their
    position is not measured.
    """
    for name in relevant:
        article, _, number = name.rpartition("#")
        parts = passages.get(article, {})
        if not number.isdecimal() or int(number) not in parts:
            raise ValueError("has a relevant passage that is not in the corpus")
        if len(parts) < MIN_PASSAGES and _count_tokens(parts) < MIN_TOKENS:
            raise ValueError(SHORT)
        before = [len(parts[other]) + len(SEPARATOR) for other in parts if other < int(number)]
        yield article, StatedAnswer(parts[int(number)], sum(before))


def _count_tokens(parts: Mapping[int, str]) -> int:
    return estimate_tokens(SEPARATOR.join(parts.values()))


def read_miracl(folder: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the articles of a language, joined from their passages, with the topics of a split."""
    language, topics, qrels = _find_topics(folder, options)
    grades = read_qrels(qrels)
    yield from grades.skip_contradictions(str(qrels))
    judged = {name.rpartition("#")[0] for name in grades.list_by_document()}
    passages: dict[str, dict[int, str]] = {}
    titles: dict[str, str] = {}
    share = 1 if language in WHOLE else SAMPLED
    yield from _read_articles(_find_corpus(folder, language), share, judged, passages, titles)
    claims = Claims()
    for topic, text in split_lines(topics, 2, "\t"):
        rated = grades.by_query.get(topic, {})
        relevant = [name for name, grade in rated.items() if grade > 0]
        if relevant:
            placed = _place_passages(relevant, passages)
            yield from add_claims(claims, str(topics), topic, text, placed)
        else:
            yield skip_question(str(topics), topic, "has no relevant passage")
    documents = (
        read_text(
            str(folder),
            article,
            SEPARATOR.join(parts[number] for number in sorted(parts)),
            article,
            titles[article],
        )
        for article, parts in passages.items()
    )
    yield from settle_claims(documents, claims, "the corpus")
