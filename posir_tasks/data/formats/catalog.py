"""The table of formats: how each is recognized, what it has, and its reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.files import find_files, open_decompressed, split_suffix
from posir_tasks.data.data import Judgments
from posir_tasks.data.formats import collections, documents, published, question_rows, text_rows
from posir_tasks.data.formats.page_rows import PAGE_FORMS
from posir_tasks.data.formats.passages import (
    Item,
    ReadOptions,
    SkippedText,
    Use,
    expect_skips,
)
from posir_tasks.data.formats.records import FOLDER, Row, error_context

JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet",)
TABLES = (".csv", ".tsv")
#: Split of a dataset on the Hub that is read.
HUB_SPLIT = "train"
#: Names of files that describe a dataset, in lower case.
ABOUT_DATA = frozenset(
    {"readme.md", "license", "license.md", "license.txt", "dataset_info.json", "dataset_infos.json"}
)


@dataclass(frozen=True)
class Format:
    """A format of a file or a folder."""

    title: str
    kinds: tuple[str, ...]
    """Suffixes of its files, and `/` if a folder is in it."""
    read: Callable[[Path, ReadOptions], Iterator[Item]]
    accepts: Callable[[Path], bool] = lambda _: True
    """Whether a file or folder of one of the kinds is in the format."""
    use: Use | None = Use.CORPUS
    """Texts of which its questions can be asked; None if it has texts alone."""
    is_selective: bool = False
    """Whether the rules of its data leave questions out, which is no loss."""
    read_texts: Callable[[Path, ReadOptions], Iterator[Item]] | None = None
    """Yields the documents alone, if `read` takes longer or needs more."""
    read_judgments: Callable[[Path, ReadOptions], Judgments] | None = None
    """Returns all judgments, if a query may have grades or several relevant documents."""

    def read_items(self, path: Path, options: ReadOptions) -> Iterator[Item]:
        """Yield the content of a file or folder; raise DataError if it is malformed."""
        items = self.read(path, options)
        return expect_skips(items) if self.is_selective else items


def read_folder(folder: Path, options: ReadOptions) -> Iterator[Item]:
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
    files = find_files(folder, "")
    return [file for file in files if not _is_hidden(file.relative_to(folder))]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def list_data_files(folder: Path) -> list[Path]:
    """List the files below a folder without those that describe a dataset, if there are files of
    rows, as on the Hub.
    """
    files = list_files(folder)
    if (folder / "snapshots").is_dir() and (folder / "blobs").is_dir():
        # The cache of the Hub: its other files are the same content by digest.
        files = [file for file in files if file.relative_to(folder).parts[0] == "snapshots"]
    has_rows = any(split_suffix(file)[1] in (*JSON_LINES, *PARQUET, *TABLES) for file in files)
    about = ABOUT_DATA if has_rows else frozenset()
    return [file for file in files if file.name.lower() not in about and not _is_card(file)]


def _is_card(file: Path) -> bool:
    """Return whether a file is the card of a dataset on the Hub: a README with metadata."""
    if file.name.lower() != "readme.md":
        return False
    with file.open("rb") as content:
        return content.readline().strip() == b"---"


FILES = Format("a folder of files", (FOLDER,), read_folder)
#: In order of precedence: the first that accepts a file or folder reads it.
FORMATS = (
    Format(
        "a BEIR folder",
        (FOLDER,),
        collections.read_beir,
        collections.is_beir_folder,
        read_texts=collections.read_beir_texts,
        read_judgments=collections.read_beir_judgments,
    ),
    Format(
        "a folder of Chroma's chunking evaluation",
        (FOLDER,),
        collections.read_chunking,
        collections.is_chunking_folder,
        read_texts=collections.read_chunking_texts,
        read_judgments=collections.read_chunking_judgments,
    ),
    Format(
        "a folder of MIRACL",
        (FOLDER,),
        published.read_miracl,
        published.is_miracl,
        is_selective=True,
    ),
    Format(
        "a folder of LegalBench-RAG",
        (FOLDER,),
        published.read_legalbench,
        published.is_legalbench,
        Use.NAMED,
        is_selective=True,
    ),
    Format(
        "a folder of MS MARCO v2",
        (FOLDER,),
        published.read_marco,
        published.is_marco,
        is_selective=True,
    ),
    Format(
        "a folder of BRIGHT",
        (FOLDER,),
        published.read_bright,
        published.is_bright,
        is_selective=True,
    ),
    *(
        Format(form.title, form.kinds, form.read, form.accepts, is_selective=True)
        for form in PAGE_FORMS
    ),
    FILES,
    Format(
        "CUAD",
        (".json", ".jsonl", *PARQUET),
        question_rows.read_questions,
        question_rows.is_cuad,
        Use.WITHIN,
    ),
    Format(
        "SQuAD-format JSON", (".json",), question_rows.read_squad_json, question_rows.is_squad_json
    ),
    Format(
        "JSON Lines with questions",
        JSON_LINES,
        question_rows.read_json_lines,
        question_rows.is_question_file,
    ),
    Format(
        "Parquet with questions",
        PARQUET,
        question_rows.read_json_lines,
        question_rows.is_question_file,
    ),
    Format("JSON Lines with texts", JSON_LINES, text_rows.read_line_texts, use=None),
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
)
TITLES = ", ".join(format_.title for format_ in FORMATS)


def find_format(path: Path, options: ReadOptions) -> Format | None:
    """Return the format of a file or folder, None if it is none of ours; raise DataError if it
    cannot be read. If the user names a column of texts, the rows of a file are texts.
    """
    kind = FOLDER if path.is_dir() else split_suffix(path)[1]
    with error_context(path, "", TITLES):
        for format_ in FORMATS:
            is_left_out = options.column is not None and kind != FOLDER and format_.use is not None
            if kind in format_.kinds and not is_left_out and format_.accepts(path):
                return format_
    return None


def find_use(path: Path, options: ReadOptions, format_: Format) -> Use | None:
    """Return the texts of which the questions of data can be asked, the fewest of any file of a
    folder; None without questions.
    """
    if format_ is not FILES:
        return format_.use
    uses = set[Use | None]()
    for file in list_data_files(path):
        with suppress(DataError):
            uses.add(getattr(find_format(file, options), "use", None))
    return next((use for use in (Use.WITHIN, Use.CORPUS) if use in uses), None)


def read_file(file: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the content of a file, or why it has none; raise DataError if it is malformed."""
    format_ = find_format(file, options)
    if format_ is not None:
        with error_context(file, "", format_.title):
            yield from format_.read_items(file, options)
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


def read_hub(reference: str, commit: str, options: ReadOptions) -> Iterator[Item]:
    """Yield the rows of a commit of `owner/name`, perhaps with `:configuration`; raise DataError if
    that fails.
    """
    source = f"{reference}@{commit}"
    for number, row in enumerate(_load_hub(reference, commit)):
        place = f"row {number}"
        has_context = isinstance(row, dict) and ("context" in row or "passage" in row)
        if options.column is None and has_context:
            yield from question_rows.read_question_row(Row.of(row), source, place)
        else:
            yield text_rows.read_text_row(row, source, place, f"{source}: {place}", options)
