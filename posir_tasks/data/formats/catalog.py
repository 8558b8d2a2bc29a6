"""All formats, their recognition, and error messages for unknown formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.files import open_decompressed, split_suffix
from posir_tasks.base.untrusted import InputError, decode, parse_yaml, read_bytes
from posir_tasks.base.wording import sanitize
from posir_tasks.data.formats import (
    collections,
    document_rows,
    documents,
    judgment_sets,
    published,
    question_rows,
    text_rows,
)
from posir_tasks.data.formats.format import (
    JSON_ROWS,
    JUDGMENTS,
    SPANS,
    TEXTS,
    UNSUPPORTED_FORMATS,
    Format,
)
from posir_tasks.data.formats.page_rows import PAGE_FORMATS
from posir_tasks.data.formats.passages import Items, ReadOptions, SearchScope, SkippedItem
from posir_tasks.data.formats.records import (
    FOLDER,
    PARQUET,
    Row,
    UnrecognizedError,
    convert_errors,
    list_files,
)
from posir_tasks.data.formats.shape import (
    JSON_LINES,
    TABLES,
    list_fields,
    matches_signature,
    read_first_record,
)
from posir_tasks.text.languages import suggest_codes

if TYPE_CHECKING:
    import datasets

#: The split to read from a Hub dataset.
HUB_SPLIT = "train"
#: Lower-case names of files that describe a dataset and contain no data.
DESCRIPTION_FILES = frozenset(
    {"readme.md", "license", "license.md", "license.txt", "dataset_info.json", "dataset_infos.json"}
)
#: Maximum number of files and fields to list in a message.
MAX_FILES = 8
MAX_FIELDS = 8
#: Maximum number of field names, and of characters per name, to compare with a format.
MAX_COMPARED_FIELDS = 64
MAX_FIELD_CHARACTERS = 40
#: Minimum `difflib` ratio of a misspelled field name and the correct one.
MIN_SIMILARITY = 0.8
ENGLISH = "eng-Latn"
#: The YAML header of a dataset card.
CARD_HEADER = re.compile(r"---\s*\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)


def _get_english(path: Path) -> str:  # noqa: ARG001
    return ENGLISH


def _declare_judgments(
    title: str,
    suffixes: tuple[str, ...],
    read: Callable[[Path], judgment_sets.JudgmentSet],
    **fields: Any,
) -> Format:
    return Format(
        title,
        suffixes,
        lambda path, _: read(path).list_items(),
        read_judgments=lambda path, _: read(path).to_judgments(),
        contents=JUDGMENTS,
        **fields,
    )


_declare_texts = partial(Format, search_scope=None, contents=TEXTS)


def read_folder(folder: Path, options: ReadOptions) -> Items:
    """Yield the items in each file of a folder. An unreadable file becomes a skipped item."""
    yield from _read_files(list_data_files(folder), replace(options, root=folder))


def _read_files(files: Iterable[Path], options: ReadOptions) -> Items:
    for file in files:
        try:
            yield from read_file(file, options)
        except DataError as error:
            name = options.name(file)
            yield SkippedItem(name, "unreadable", str(error), name)


def _has_golden_set(folder: Path) -> bool:
    files = list_data_files(folder)
    golden = [*filter(judgment_sets.is_golden, files)]
    return 0 < len(golden) < len(files)


def read_golden_folder(folder: Path, options: ReadOptions) -> Items:
    """Yield the documents in a folder with the questions of its golden sets."""
    files = list_data_files(folder)
    golden = [*filter(judgment_sets.is_golden, files)]
    sources = [file for file in files if file not in golden]
    documents = _read_files(sources, replace(options, root=folder))
    yield from judgment_sets.attach_golden_questions(golden, documents)


def list_data_files(folder: Path) -> list[Path]:
    """List the data files below a folder.

    The card of a Hub dataset is excluded. If the folder has files with rows, other descriptive
    files are excluded as well.
    """
    files = list_files(folder)
    if (folder / "snapshots").is_dir() and (folder / "blobs").is_dir():
        # In the Hub cache, `blobs` duplicates the content of `snapshots`.
        files = [file for file in files if file.relative_to(folder).parts[0] == "snapshots"]
    has_rows = any(split_suffix(file)[1] in (*JSON_ROWS, *TABLES) for file in files)
    descriptions = DESCRIPTION_FILES if has_rows else ()
    return [file for file in files if file.name.lower() not in descriptions and not _is_card(file)]


def _is_card(file: Path) -> bool:
    if file.name.lower() != "readme.md":
        return False
    with file.open("rb") as content:
        return content.readline().strip() == b"---"


def _find_common_language(folder: Path) -> str:
    """Return the language code that all files of a folder declare, or an empty string."""
    languages = set()
    for file in list_data_files(folder):
        with suppress(DataError):
            format_ = find_format(file, ReadOptions())
            if format_ is not UNKNOWN_FORMAT:
                languages.add(format_.find_language(file))
    return languages.pop() if len(languages) == 1 else ""


def _skip_unknown(file: Path, options: ReadOptions) -> Items:
    with open_decompressed(file) as content:
        is_binary = documents.is_binary(content.read(documents.BINARY_BYTES))
    name = options.name(file)
    yield SkippedItem(name, "binary" if is_binary else "of an unsupported type", file=name)


UNKNOWN_FORMAT = Format("in an unknown format", read=_skip_unknown, search_scope=None, contents="")
FOLDER_FORMAT = Format(
    "a folder of files", (FOLDER,), read_folder, find_language=_find_common_language
)
#: Formats in order of precedence: the first one that accepts a path reads it.
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
        find_language=published.find_miracl_language,
    ),
    Format(
        "a folder of LegalBench-RAG",
        (FOLDER,),
        published.read_legalbench,
        files=("corpus", "benchmarks/*.json"),
        search_scope=SearchScope.NAMED_DOCUMENT,
        find_language=_get_english,
    ),
    Format(
        "a folder of MS MARCO v2",
        (FOLDER,),
        published.read_marco,
        files=(
            "**/msmarco_v2_doc.tar|**/msmarco*_doc_*.gz",
            "**/msmarco_v2_passage.tar|**/msmarco*_passage_*.gz",
        ),
        find_language=_get_english,
    ),
    Format(
        "a folder of BRIGHT",
        (FOLDER,),
        published.read_bright,
        files=("**/long_documents/*.parquet",),
        find_language=_get_english,
    ),
    _declare_judgments(
        "a folder of AutoRAG",
        (FOLDER,),
        judgment_sets.read_autorag,
        files=("corpus*.parquet", "qa*.parquet"),
    ),
    *(
        Format(
            format_.title,
            format_.suffixes,
            format_.read,
            format_.accepts,
            fields="|".join(f"{names} {format_.fields}" for names in format_.signatures),
            find_language=format_.find_language,
        )
        for format_ in PAGE_FORMATS
    ),
    Format(
        "a folder with a golden set of LlamaIndex or ragas, and its documents",
        (FOLDER,),
        read_golden_folder,
        _has_golden_set,
        contents=f"{SPANS}: the chunks in their documents",
    ),
    FOLDER_FORMAT,
    *UNSUPPORTED_FORMATS,
    Format(
        "MRQA",
        JSON_ROWS,
        document_rows.read_mrqa,
        signature="header/ context|header/ qas/|context detected_answers/",
        fields=document_rows.MRQA_FIELDS,
        advice="Each line after the header needs context and qas.",
        find_language=_get_english,
    ),
    Format(
        "QASPER",
        JSON_ROWS,
        document_rows.read_qasper,
        signature="full_text/ qas/",
        search_scope=SearchScope.DOCUMENT,
        fields=document_rows.QASPER_FIELDS,
        find_language=_get_english,
    ),
    _declare_judgments(
        "an EmbeddingQAFinetuneDataset of LlamaIndex",
        (".json",),
        judgment_sets.read_pairs,
        signature="queries/ corpus/|queries/ relevant_docs/|relevant_docs/",
        fields="queries corpus relevant_docs",
    ),
    _declare_judgments(
        "a golden set of LlamaIndex or ragas",
        (*JSON_ROWS, *TABLES),
        judgment_sets.read_golden,
        signature=judgment_sets.GOLDEN_SIGNATURE,
        fields=judgment_sets.GOLDEN_SIGNATURE,
        advice="Contexts that a system retrieved are a run; `posir score` reads their ids.",
    ),
    Format(
        "CUAD",
        (".json", ".jsonl", *PARQUET),
        question_rows.read_questions,
        question_rows.is_cuad,
        search_scope=SearchScope.DOCUMENT,
        find_language=_get_english,
    ),
    Format(
        "SQuAD-format JSON",
        (".json",),
        question_rows.read_squad_json,
        question_rows.is_squad_json,
        fields="data paragraphs context qas question answers answer_start text",
        advice="It needs data > paragraphs > context and qas > id, question, answers > text, "
        "answer_start.",
    ),
    Format(
        "JSON Lines or Parquet with questions",
        (*JSON_LINES, *PARQUET),
        question_rows.read_json_lines,
        question_rows.is_question_file,
        fields="context question answer|context question start end|"
        "context question answers answer_start text",
        advice="Each row needs context, question and answer, and start if the answer occurs "
        "several times.",
    ),
    _declare_texts(
        "JSON Lines with texts",
        JSON_LINES,
        text_rows.read_line_texts,
        fields="text|content|contents|body|document|passage",
    ),
    _declare_texts("Parquet with texts", PARQUET, text_rows.read_parquet_texts),
    _declare_texts("CSV with texts", TABLES, text_rows.read_csv_texts),
    _declare_texts("HTML", (".html", ".htm", ".xhtml"), documents.read_html_file),
    _declare_texts("PDF", (".pdf",), documents.read_pdf_file),
    _declare_texts(
        "plain text or Markdown",
        ("", ".txt", ".md", ".markdown", ".text"),
        documents.read_text_file,
    ),
    # Parts of the formats above.
    Format("the corpus of a BEIR folder", fields="_id text", advice="Give its folder."),
    Format(
        "the qrels of a BEIR folder",
        fields="query-id corpus-id score",
        advice="Give the folder that contains qrels/, not the file.",
    ),
    Format(
        "AutoRAG's questions",
        fields="qid query retrieval_gt generation_gt",
        advice="Give the folder that contains qa.parquet and corpus.parquet.",
    ),
    Format(
        "AutoRAG's corpus",
        fields="doc_id contents metadata",
        advice="Give the folder that contains qa.parquet and corpus.parquet.",
    ),
)
READABLE_FORMATS = tuple(
    format_ for format_ in FORMATS if format_.suffixes and not format_.is_unsupported
)
FORMAT_TITLES = ", ".join(format_.title for format_ in READABLE_FORMATS)
SUPPORTED_FORMATS = (
    f"Supported formats: TREC qrels, {FORMAT_TITLES}. `posir import --formats` lists their fields."
)


def find_format(path: Path, options: ReadOptions, name: str = "") -> Format:
    """Return the format of a file or folder, or `UNKNOWN_FORMAT`.

    If the user selects a text column, only text formats and rows of questions are considered.

    Args:
        path: A file or folder.
        options: The user's options.
        name: Name of the data for messages; by default the path.

    Raises:
        DataError: The path is unreadable, or its format is not supported.
    """
    suffix = FOLDER if path.is_dir() else split_suffix(path)[1]
    with convert_errors(path, "", FORMAT_TITLES):
        for format_ in FORMATS:
            if suffix not in format_.suffixes or not _has_files(path, format_.files):
                continue
            if format_.signature and not matches_signature(list_fields(path), format_.signature):
                continue
            accepts = format_.accepts
            if options.column is not None and suffix != FOLDER and format_.search_scope is not None:
                if format_.read is not question_rows.read_json_lines:
                    continue
                accepts = partial(question_rows.has_questions_on, column=options.column)
            if not accepts(path):
                continue
            if format_.is_unsupported:
                raise DataError(
                    f"{name or path}: is {format_.title}, which posir cannot read. {format_.advice}"
                )
            return format_
    return UNKNOWN_FORMAT


def _has_files(folder: Path, groups: Iterable[str]) -> bool:
    return all(
        any(file for pattern in group.split("|") for file in folder.glob(pattern))
        for group in groups
    )


def find_search_scope(path: Path, options: ReadOptions, format_: Format) -> SearchScope | None:
    """Return the texts to search for an answer, or None for data without questions.

    A folder of files gets the narrowest scope among its files.
    """
    if format_ is not FOLDER_FORMAT:
        return format_.search_scope
    scopes = set()
    for file in list_data_files(path):
        with suppress(DataError):
            scopes.add(find_format(file, options).search_scope)
    scopes_by_preference = (SearchScope.DOCUMENT, SearchScope.CORPUS)
    return next((scope for scope in scopes_by_preference if scope in scopes), None)


def read_file(file: Path, options: ReadOptions) -> Items:
    """Yield the items in a file; raise DataError if it is malformed."""
    yield from read_as(file, options, find_format(file, options))


def read_as(path: Path, options: ReadOptions, format_: Format) -> Items:
    """Yield the items in a file or folder of a given format; raise DataError if it is malformed."""
    try:
        with convert_errors(path, "", format_.title):
            yield from format_.read(path, options)
    except UnrecognizedError as error:
        raise DataError(f"{error} {describe_format(path)}") from error


def _load_hub(reference: str, commit: str) -> datasets.Dataset:
    from datasets import load_dataset

    name, _, configuration = reference.partition(":")
    try:
        return load_dataset(name, configuration or None, split=HUB_SPLIT, revision=commit)
    except Exception as error:  # datasets, huggingface_hub and pyarrow raise their own types
        raise DataError(
            f"{reference}: split '{HUB_SPLIT}' cannot be loaded from the Hub "
            f"({summarize_error(error)}). Check the name and the revision, or give a file or "
            "folder."
        ) from error


@cache
def _get_temporary_folder() -> TemporaryDirectory[str]:
    """Create a temporary folder that is deleted when the process ends."""
    return TemporaryDirectory(prefix="posir-")


def export_hub(reference: str, commit: str, options: ReadOptions) -> tuple[Path, Format]:
    """Write a Hub dataset to a Parquet file, and recognize its format.

    If `read_hub` can stream the format, only the first row is written.

    Args:
        reference: `owner/name`, optionally with `:configuration`.
        commit: The commit to read.
        options: The user's options.

    Raises:
        DataError: The rows cannot be loaded, or their format is not supported.
    """
    from pyarrow.parquet import write_table

    rows = _load_hub(reference, commit).with_format("arrow")
    file = Path(_get_temporary_folder().name) / f"{re.sub('[/:]', '_', reference)}.parquet"
    write_table(rows[:1], file)
    format_ = find_format(file, options, name=reference)
    if not _is_streamed(format_):
        write_table(rows[:], file)
    return file, format_


def _is_streamed(format_: Format) -> bool:
    row_readers = (question_rows.read_json_lines, question_rows.read_questions)
    return format_.search_scope is None or format_.read in row_readers


def read_hub(
    reference: str, commit: str, file: Path, format_: Format, options: ReadOptions
) -> Items:
    """Yield the items of a dataset that `export_hub` has written; raise DataError on failure."""
    if not _is_streamed(format_):
        yield from read_as(file, options, format_)
        return
    source = f"{reference}@{commit}"
    column = options.column or question_rows.CONTEXT
    for number, row in enumerate(_load_hub(reference, commit)):
        location = f"row {number}"
        if format_.search_scope is not None:
            with convert_errors(source, location, question_rows.LINES):
                yield from question_rows.read_question_row(Row.parse(row), location, source, column)
        else:
            yield text_rows.read_text_row(row, source, location, f"{source}: {location}", options)


def read_card_language(card: Path) -> str:
    """Return the only language code in the YAML header of a dataset card, or ""."""
    if not card.is_file():
        return ""
    codes = []
    with suppress(InputError, UnicodeDecodeError):
        header = CARD_HEADER.match(decode(read_bytes(card)))
        values = parse_yaml(header[1], card) if header else None
        match values.get("language") if isinstance(values, dict) else None:
            case str(name) | [name]:
                codes = suggest_codes(str(name))
    return codes[0] if len(codes) == 1 else ""


def find_declared_language(format_: Format, path: Path) -> str:
    """Return the language code that the data or its card declares, or an empty string."""
    code = format_.find_language(path)
    return code or read_card_language((path if path.is_dir() else path.parent) / "README.md")


def describe_format(path: Path) -> str:
    """Describe data in an unknown format: files or fields, first record, nearest format with the
    missing fields, and supported formats.
    """
    if path.is_dir():
        return f"{_describe_folder(path)} {SUPPORTED_FORMATS}"
    record = read_first_record(path)
    names = [*list_fields(path)]
    if not names:
        return f"Its first line is {record!r}. {_describe_fields(path)} {SUPPORTED_FORMATS}"
    more = " and others" if len(names) > MAX_FIELDS else ""
    head = ", ".join(map(sanitize, names[:MAX_FIELDS]))
    noun = "fields" if split_suffix(path)[1] in JSON_LINES else "columns"
    sentences = [f"It contains the {noun} {head}{more}.", f"Its first record is {record}."]
    nearest = find_nearest_format(names)
    if nearest:
        layout = max(nearest.layouts, key=lambda layout: _find_share(layout, names))
        missing = ", ".join(sorted(layout - {*names}))
        suffix = f"; missing: {missing}" if missing else ""
        sentences += [f"The nearest format is {nearest.title}{suffix}.", nearest.advice]
    return " ".join(filter(None, [*sentences, SUPPORTED_FORMATS]))


def _describe_fields(path: Path) -> str:
    """List the fields of all formats with the suffix of a file."""
    suffix = split_suffix(path)[1]
    fields = ", of ".join(
        f"{format_.title} ({', '.join(sorted(format_.layouts[0]))})"
        for format_ in READABLE_FORMATS
        if format_.fields and suffix in format_.suffixes
    )
    return f"Formats with this suffix have the fields of {fields}." if fields else ""


def _describe_folder(folder: Path) -> str:
    files = list_files(folder)
    advice = dict[str, None]()
    names = []
    for file in files[:MAX_FILES]:
        name = sanitize(file.name)
        nearest = find_nearest_format([*list_fields(file)])
        if nearest:
            name += f" (nearest format: {nearest.title})"
            advice[nearest.advice] = None
        names.append(name)
    more = " and others" if len(files) > MAX_FILES else ""
    listing = f"It contains {', '.join(names) or 'no files'}{more}."
    missing = [_describe_missing(format_, folder) for format_ in READABLE_FORMATS if format_.files]
    return " ".join(filter(None, [listing, *missing, *advice]))


def _describe_missing(format_: Format, folder: Path) -> str:
    """List the missing files of a format if the folder has its other files."""
    missing = [group for group in format_.files if not _has_files(folder, [group])]
    if not missing or len(missing) == len(format_.files):
        return ""
    files = " and ".join(group.replace("|", " or ") for group in missing)
    return f"To be {format_.title}, it needs {files}."


def find_nearest_format(fields: Collection[str]) -> Format | None:
    """Return the format with the most similar field names, or None if no name is similar."""

    def find_share(format_: Format) -> float:
        return max((_find_share(layout, fields) for layout in format_.layouts), default=0)

    nearest = max(FORMATS, key=find_share)
    return nearest if find_share(nearest) else None


def _find_share(layout: Collection[str], fields: Collection[str]) -> float:
    names = [field[:MAX_FIELD_CHARACTERS] for field in islice(fields, MAX_COMPARED_FIELDS)]
    similar = [name for name in names if get_close_matches(name, layout, 1, MIN_SIMILARITY)]
    return len(similar) / (len({*layout, *fields}) or 1)
