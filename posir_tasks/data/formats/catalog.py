"""The table of formats: how each is recognized, its reader, and what data that is nearly in it
lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.files import GZIP_ERRORS, find_files, open_decompressed, split_suffix
from posir_tasks.base.table_files import read_delimited
from posir_tasks.base.untrusted import GateError, parse_json, read_json
from posir_tasks.base.wording import sanitized
from posir_tasks.data.checks import read_column_types
from posir_tasks.data.data import Judgments
from posir_tasks.data.formats import collections, documents, published, question_rows, text_rows
from posir_tasks.data.formats.page_rows import PAGE_FORMS
from posir_tasks.data.formats.passages import Items, ReadOptions, SkippedText, Use
from posir_tasks.data.formats.records import (
    FOLDER,
    PARQUET,
    Row,
    UnrecognizedError,
    error_context,
)

JSON_LINES = (".jsonl", ".ndjson", ".json")
TABLES = (".csv", ".tsv")
#: Split of a dataset on the Hub that is read.
HUB_SPLIT = "train"
#: Names of files that describe a dataset, in lower case.
ABOUT_DATA = frozenset(
    {"readme.md", "license", "license.md", "license.txt", "dataset_info.json", "dataset_infos.json"}
)
#: Bytes of a line that are looked at, files of a folder, and fields that are listed.
MAX_LINE = 2**16
MAX_FILES = 8
MAX_FIELDS = 8
#: Fields that are compared with those of formats, and characters of each.
MAX_COMPARED = 64
MAX_NAME = 40
#: How alike two names are from which one may be meant by the other, as `difflib` counts it.
MIN_ALIKE = 0.8
AS_BEIR = (
    "It is not read. Write corpus.jsonl (_id, text), queries.jsonl (_id, text) and qrels/test.tsv "
    "(query-id, corpus-id, score) from it."
)

Reader: TypeAlias = Callable[[Path, ReadOptions], Items]


def _refuse(path: Path, options: ReadOptions) -> Items:  # noqa: ARG001
    raise DataError(f"{path}: is not read.")


@dataclass(frozen=True)
class Format:
    """A format of a file or a folder."""

    title: str
    kinds: tuple[str, ...] = ()
    """Suffixes of its files, and `/` if a folder is in it; none if it is not read."""
    read: Reader = _refuse
    accepts: Callable[[Path], bool] = lambda _: True
    """Whether a file or folder of one of the kinds is in the format."""
    files: tuple[str, ...] = ()
    """Patterns of files that a folder has, all of them; alternatives between `|`."""
    use: Use | None = Use.CORPUS
    """Texts of which its questions can be asked; None if it has texts alone."""
    read_texts: Reader | None = None
    """Yields the documents alone, if `read` takes longer or needs more."""
    read_judgments: Callable[[Path, ReadOptions], Judgments] | None = None
    """Returns all judgments, if a query may have grades or several relevant documents."""
    fields: str = ""
    """Names of fields by which data that is nearly in the format is recognized, between blanks."""
    advice: str = ""
    """What to do with data that is nearly in the format."""


def read_folder(folder: Path, options: ReadOptions) -> Items:
    """Yield the content of each file of a folder in its own format, or why it cannot be read."""
    options = replace(options, root=folder)
    for file in list_data_files(folder):
        try:
            yield from read_file(file, options)
        except DataError as error:
            name = options.name(file)
            yield SkippedText(name, "unreadable", str(error), name)


def list_files(folder: Path) -> list[Path]:
    """List the files below a folder, sorted, hidden ones excepted."""
    return [
        file
        for file in find_files(folder, "")
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]


def list_data_files(folder: Path) -> list[Path]:
    """List the files below a folder without the card of a dataset on the Hub, and without other
    files that describe a dataset if there are files of rows.
    """
    files = list_files(folder)
    if (folder / "snapshots").is_dir() and (folder / "blobs").is_dir():
        # The cache of the Hub: its other files are the same content by digest.
        files = [file for file in files if file.relative_to(folder).parts[0] == "snapshots"]
    row_suffixes = (*JSON_LINES, *PARQUET, *TABLES)
    has_rows = any(split_suffix(file)[1] in row_suffixes for file in files)
    kept = []
    for file in files:
        name = file.name.lower()
        if name == "readme.md":
            with file.open("rb") as content:
                is_about = has_rows or content.readline().strip() == b"---"
        else:
            is_about = has_rows and name in ABOUT_DATA
        if not is_about:
            kept.append(file)
    return kept


FILES = Format("a folder of files", (FOLDER,), read_folder)
#: In order of precedence: the first that accepts a file or folder reads it.
FORMATS = (
    Format(
        "a BEIR folder",
        (FOLDER,),
        collections.read_beir,
        files=("corpus.jsonl|corpus.jsonl.gz", "queries.jsonl|queries.jsonl.gz"),
        read_texts=collections.read_beir_texts,
        read_judgments=collections.read_beir_judgments,
    ),
    Format(
        "a folder of Chroma's chunking evaluation",
        (FOLDER,),
        collections.read_chunking,
        files=("corpora", "questions.csv|questions_df.csv"),
        read_texts=collections.read_chunking_texts,
        read_judgments=collections.read_chunking_judgments,
    ),
    Format(
        "a folder of MIRACL",
        (FOLDER,),
        published.read_miracl,
        files=(f"**/{published.TOPICS}*.tsv",),
    ),
    Format(
        "a folder of LegalBench-RAG",
        (FOLDER,),
        published.read_legalbench,
        files=("corpus", "benchmarks/*.json"),
        use=Use.NAMED,
    ),
    Format(
        "a folder of MS MARCO v2",
        (FOLDER,),
        published.read_marco,
        files=(
            "**/msmarco_v2_doc.tar|**/msmarco*_doc_*.gz",
            "**/msmarco_v2_passage.tar|**/msmarco*_passage_*.gz",
        ),
    ),
    Format(
        "a folder of BRIGHT",
        (FOLDER,),
        published.read_bright,
        files=("**/long_documents/*.parquet",),
    ),
    *(Format(form.title, form.kinds, form.read, form.accepts) for form in PAGE_FORMS),
    FILES,
    Format(
        "CUAD",
        (".json", ".jsonl", *PARQUET),
        question_rows.read_questions,
        question_rows.is_cuad,
        use=Use.WITHIN,
    ),
    Format(
        "SQuAD-format JSON",
        (".json",),
        question_rows.read_squad_json,
        question_rows.is_squad_json,
        fields="data version title paragraphs context qas id question answers answer_start text "
        "is_impossible",
        advice="It has data > paragraphs > context and qas > id, question, answers > text, "
        "answer_start.",
    ),
    Format(
        "JSON Lines or Parquet with questions",
        (*JSON_LINES, *PARQUET),
        question_rows.read_json_lines,
        question_rows.is_question_file,
        fields="context question answer answers start end id document title",
        advice="Each row has context, question and answer, and start if the answer occurs several "
        "times.",
    ),
    Format(
        "JSON Lines with texts",
        JSON_LINES,
        text_rows.read_line_texts,
        use=None,
        fields="_id id title text content contents body document passage",
    ),
    Format("Parquet with texts", PARQUET, text_rows.read_parquet_texts, use=None),
    Format("CSV with texts", TABLES, text_rows.read_csv_texts, use=None),
    Format("HTML", (".html", ".htm", ".xhtml"), documents.read_html_file, use=None),
    Format("PDF", (".pdf",), documents.read_pdf_file, use=None),
    Format(
        "plain text or Markdown",
        ("", ".txt", ".md", ".markdown", ".text"),
        documents.read_text_file,
        use=None,
    ),
    # Parts of formats, and formats of others that are not read.
    Format(
        "the corpus of a BEIR folder", fields="_id title text metadata", advice="Give its folder."
    ),
    Format(
        "the qrels of a BEIR folder",
        fields="query-id corpus-id score",
        advice="Give the folder that has qrels/, not the file.",
    ),
    Format("AutoRAG's questions", fields="qid query retrieval_gt generation_gt", advice=AS_BEIR),
    Format(
        "AutoRAG's corpus", fields="doc_id contents path start_end_idx metadata", advice=AS_BEIR
    ),
    Format(
        "a data set of ragas",
        fields="user_input retrieved_contexts reference_contexts reference response question "
        "contexts ground_truth",
        advice=AS_BEIR,
    ),
    Format(
        "training data of DPR",
        fields="dataset question answers positive_ctxs negative_ctxs hard_negative_ctxs ctxs",
        advice=AS_BEIR,
    ),
    Format(
        "HotpotQA or 2WikiMultihopQA",
        fields="_id question answer context supporting_facts type level evidences",
        advice=AS_BEIR,
    ),
)
TITLES = ", ".join(format_.title for format_ in FORMATS if format_.kinds)
READ_FORMS = f"Forms that are read: TREC qrels, {TITLES}; see docs/data.md."


def find_format(path: Path, options: ReadOptions) -> Format | None:
    """Return the format of a file or folder, None if it is none of ours; raise DataError if it
    cannot be read. If the user names a column of texts, the rows of a file are texts.
    """
    kind = FOLDER if path.is_dir() else split_suffix(path)[1]
    with error_context(path, "", TITLES):
        for format_ in FORMATS:
            is_left_out = options.column is not None and kind != FOLDER and format_.use is not None
            if is_left_out or kind not in format_.kinds or not _has_files(path, format_.files):
                continue
            if format_.accepts(path):
                return format_
    return None


def _has_files(folder: Path, groups: Iterable[str]) -> bool:
    for group in groups:
        if not any(file for pattern in group.split("|") for file in folder.glob(pattern)):
            return False
    return True


def find_use(path: Path, options: ReadOptions, format_: Format) -> Use | None:
    """Return the texts of which the questions of data can be asked, the fewest of any file of a
    folder; None without questions.
    """
    if format_ is not FILES:
        return format_.use
    uses = set[Use | None]()
    for file in list_data_files(path):
        with suppress(DataError):
            if (found := find_format(file, options)) is not None:
                uses.add(found.use)
    return next((use for use in (Use.WITHIN, Use.CORPUS) if use in uses), None)


def read_file(file: Path, options: ReadOptions) -> Items:
    """Yield the content of a file, or why it has none; raise DataError if it is malformed."""
    format_ = find_format(file, options)
    if format_ is not None:
        try:
            with error_context(file, "", format_.title):
                yield from format_.read(file, options)
        except UnrecognizedError as error:
            raise DataError(f"{error} {describe_form(file)}") from error
        return
    with error_context(file, "", "text"), open_decompressed(file) as content:
        is_binary = documents.is_binary(content.read(documents.BINARY_BYTES))
    name = options.name(file)
    yield SkippedText(name, "binary" if is_binary else "of another kind", file=name)


def _load_hub(reference: str, commit: str) -> Iterable[object]:
    from datasets import load_dataset

    name, _, configuration = reference.partition(":")
    try:
        rows: Iterable[object] = load_dataset(
            name, configuration or None, split=HUB_SPLIT, revision=commit
        )
    except Exception as error:  # pyarrow has errors of its own, too
        raise DataError(
            f"{reference}: split '{HUB_SPLIT}' cannot be loaded from the Hub "
            f"({summarize_error(error)}). Check the name and the revision, or give a file or "
            "folder."
        ) from error
    return rows


def find_hub_use(reference: str, commit: str) -> Use:
    """Return the texts of which the questions of a dataset on the Hub can be asked; raise DataError
    as `read_hub`.
    """
    first = next(iter(_load_hub(reference, commit)), None)
    return Use.WITHIN if question_rows.asks_about_contract(first) else Use.CORPUS


def read_hub(reference: str, commit: str, options: ReadOptions) -> Items:
    """Yield the rows of a commit of `owner/name`, perhaps with `:configuration`; raise DataError if
    that fails.
    """
    source = f"{reference}@{commit}"
    for number, row in enumerate(_load_hub(reference, commit)):
        place = f"row {number}"
        has_context = isinstance(row, dict) and ("context" in row or "passage" in row)
        if options.column is None and has_context:
            with error_context(source, place, question_rows.LINES):
                yield from question_rows.read_question_row(Row.of(row), place, source)
        else:
            yield text_rows.read_text_row(row, source, place, f"{source}: {place}", options)


def describe_form(path: Path) -> str:
    """Describe data in no format that is read: its fields, first line or files, the nearest format,
    what to do, and the formats that are read.
    """
    if path.is_dir():
        return f"{_describe_folder(path)} {READ_FORMS}"
    fields, noun = _list_fields(path)
    if not fields:
        return f"Its first line is {_read_first_line(path)!r}. {READ_FORMS}"
    distinct = [*dict.fromkeys(fields)]
    more = ", ..." if len(distinct) > MAX_FIELDS else ""
    listed = ", ".join(map(sanitized, distinct[:MAX_FIELDS]))
    sentences = [f"It has the {noun} {listed}{more}."]
    nearest = find_nearest_form(distinct)
    if nearest:
        sentences += [f"The nearest form is {nearest.title}.", nearest.advice]
    return " ".join(filter(None, [*sentences, READ_FORMS]))


def _describe_folder(folder: Path) -> str:
    files = list_files(folder)
    advice = dict[str, None]()
    listed = list[str]()
    for file in files[:MAX_FILES]:
        name = sanitized(file.name)
        nearest = find_nearest_form(_list_fields(file)[0])
        if nearest:
            name += f" (nearest form: {nearest.title})"
            advice[nearest.advice] = None
        listed.append(name)
    more = ", ..." if len(files) > MAX_FILES else ""
    has = f"It has {', '.join(listed) or 'no files'}{more}."
    return " ".join(filter(None, [has, *advice]))


def find_nearest_form(fields: Collection[str]) -> Format | None:
    """Return the format that shares most of its fields, by names that are alike; None if no format
    shares any.
    """
    names = [field[:MAX_NAME].lower() for field in islice(fields, MAX_COMPARED)]

    def find_share(form: Format) -> float:
        expected = form.fields.split()
        alike = [name for name in names if get_close_matches(name, expected, 1, MIN_ALIKE)]
        return len(alike) / (len({*expected, *fields}) or 1)

    nearest = max(FORMATS, key=find_share)
    return nearest if find_share(nearest) else None


def _list_fields(file: Path) -> tuple[list[str], str]:
    """List the columns of a table or the fields of the first object of JSON, and say which these
    are; none if unreadable.
    """
    suffix = split_suffix(file)[1]
    # An error is raised where the rows are read.
    with suppress(DataError, OSError, *GZIP_ERRORS):
        if suffix in PARQUET:
            return [*read_column_types(file)], "columns"
        if suffix in TABLES:
            return read_delimited(file).columns, "columns"
        if suffix in JSON_LINES:
            with open_decompressed(file) as content:
                line = content.readline(MAX_LINE)
            try:
                return _list_keys(parse_json(line, file)), "fields"
            except GateError:
                return _list_keys(read_json(file)), "fields"
    return [], ""


def _list_keys(value: object) -> list[str]:
    """List the keys of an object, with those of the first of its list `data`; or of the first
    object of a list.
    """
    if isinstance(value, list):
        return _list_keys(value[0]) if value else []
    if not isinstance(value, dict):
        return []
    nested = value.get("data")
    return [*value, *_list_keys(nested)] if isinstance(nested, list) else [*value]


def _read_first_line(file: Path) -> str:
    with suppress(OSError, *GZIP_ERRORS), open_decompressed(file) as content:
        lines = content.read(MAX_LINE).split(b"\n")
        first = next((line for line in lines if line.strip()), b"")
        return sanitized(first.strip().decode("utf-8", "replace"))
    return ""
