"""The formats of files, folders and the Hub, in order of precedence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from posir_tasks.errors import DataError, summarize_error
from posir_tasks.files import find_files, open_decompressed, split_suffix
from posir_tasks.sources.data import Judgments
from posir_tasks.sources.formats.files import (
    BINARY_BYTES,
    JSON_LINES,
    PARQUET,
    PLAIN_TEXT,
    error_context,
    has_question_lines,
    has_question_rows,
    is_binary,
    is_question_row,
    is_squad_json,
    read_json_lines,
    read_question_rows,
    read_row,
    read_squad_json,
    read_text_file,
    read_text_lines,
    read_text_row,
    read_text_rows,
)
from posir_tasks.sources.formats.folders import (
    is_beir_folder,
    is_chunking_folder,
    read_beir,
    read_beir_texts,
    read_chunking,
    read_chunking_judgments,
    read_chunking_texts,
    read_judgments,
)
from posir_tasks.sources.formats.passages import Item, ReadOptions, SkippedText
from posir_tasks.sources.repository import REPOSITORY_NAME

#: Split that is read, and the id of a commit.
SPLIT, COMMIT = "train", re.compile("[0-9a-f]{40}")


def is_hub_name(reference: str) -> bool:
    """Return whether a reference is `owner/name`, perhaps with `:configuration`, and not a file."""
    name, _, _ = reference.partition(":")
    return REPOSITORY_NAME.fullmatch(name) is not None and not Path(reference).suffix


def find_commit(name: str, revision: str | None) -> str:
    """Return the commit of a dataset, for the provenance; raise DataError if the Hub has none or cannot be reached."""
    from huggingface_hub import HfApi

    if revision and COMMIT.fullmatch(revision):
        # Nothing to ask: without network access, what is in the cache can be read.
        return revision
    try:
        return str(HfApi().dataset_info(name, revision=revision).sha)
    except Exception as error:  # the Hub's client and its HTTP library have errors of their own
        raise _explain(name, error) from error


def read_hub(reference: str, commit: str, options: ReadOptions) -> Iterator[Item]:
    """Yield the rows of a commit of `owner/name`, perhaps with `:configuration`; raise DataError if that fails."""
    from datasets import load_dataset

    name, _, configuration = reference.partition(":")
    try:
        rows = load_dataset(name, configuration or None, split=SPLIT, revision=commit)
    except Exception as error:  # pyarrow has errors of its own, too
        raise _explain(reference, error) from error
    source = f"{reference}@{commit}"
    for number, row in enumerate(rows):
        if options.column is None and is_question_row(row):
            yield from read_row(row, source, f"row {number}")
        else:
            yield read_text_row(row, source, f"row {number}", f"{source}: row {number}", options)


def _explain(name: str, error: Exception) -> DataError:
    return DataError(
        f"{name}: split '{SPLIT}' cannot be loaded from the Hub ({summarize_error(error)}). Check the name and the "
        "revision, or give a file or folder."
    )


#: Names of files that describe a dataset, in lower case.
ABOUT_DATA = frozenset({"readme.md", "license", "license.md", "license.txt", "dataset_info.json", "dataset_infos.json"})


def _always(*_: object) -> bool:
    return True


@dataclass(frozen=True)
class FileFormat:
    """A format of one file."""

    title: str
    suffixes: tuple[str, ...]
    read: Callable[[Path, str, ReadOptions], Iterator[Item]]
    """Yields the content of a file, given its path, its name for messages, and what the user says."""
    accepts: Callable[[Path], bool] = _always
    """Whether a file with one of the suffixes is in the format."""
    has_questions: bool = False


#: The first that accepts a file reads it; if the user names a column of texts, the rows are texts.
FILE_FORMATS = (
    FileFormat("SQuAD-format JSON", (".json",), lambda file, *_: read_squad_json(file), is_squad_json, True),
    FileFormat("JSON Lines with questions", JSON_LINES, lambda file, *_: read_json_lines(file), has_question_lines, True),
    FileFormat("Parquet with questions", PARQUET, lambda file, *_: read_question_rows(file), has_question_rows, True),
    FileFormat("JSON Lines with texts", JSON_LINES, read_text_lines),
    FileFormat("Parquet with texts", PARQUET, read_text_rows),
    FileFormat("plain text or Markdown", ("", *PLAIN_TEXT), read_text_file),
)


def find_file_format(file: Path, options: ReadOptions) -> FileFormat | None:
    """Return the format of a file, None if it is none of ours; raise DataError if it cannot be read."""
    suffix = split_suffix(file)[1]
    formats = (format_ for format_ in FILE_FORMATS if suffix in format_.suffixes)
    with error_context(file, "", KINDS):
        texts = options.column is not None
        return next((row for row in formats if not (texts and row.has_questions) and row.accepts(file)), None)


def read_file(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:
    """Yield the content of a file, or why it has none; raise DataError if it is not as its format is expected."""
    format_ = find_file_format(file, options)
    if format_ is not None:
        with error_context(file, "", format_.title):
            yield from format_.read(file, name, options)
        return
    with error_context(file, "", "text"), open_decompressed(file) as content:
        yield SkippedText(name, "binary" if is_binary(content.read(BINARY_BYTES)) else "of another kind")


def _read_files(folder: Path, options: ReadOptions) -> Iterator[Item]:
    for file in _list_data_files(folder):
        name = file.relative_to(folder).as_posix()
        try:
            yield from read_file(file, name, options)
        except DataError as error:
            yield SkippedText(name, "unreadable", str(error))


def list_files(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted, hidden ones excepted."""
    return [file for file in find_files(folder, "") if not any(part.startswith(".") for part in file.relative_to(folder).parts)]


def _list_data_files(folder: Path) -> list[Path]:
    """Return the files below a folder without those that describe a dataset, if there are files of rows, as on the Hub."""
    files = list_files(folder)
    if not any(split_suffix(file)[1] in (*JSON_LINES, *PARQUET) for file in files):
        return files
    return [file for file in files if file.name.lower() not in ABOUT_DATA]


def _has_question_files(folder: Path, options: ReadOptions) -> bool:
    for file in _list_data_files(folder):
        with suppress(DataError):
            if (format_ := find_file_format(file, options)) and format_.has_questions:
                return True
    return False


@dataclass(frozen=True)
class FolderFormat:
    """A format of a folder."""

    title: str
    accepts: Callable[[Path], bool]
    has_questions: Callable[[Path, ReadOptions], bool]
    read: Callable[[Path, ReadOptions], Iterator[Item]]
    read_texts: Callable[[Path, ReadOptions], Iterator[Item]]
    """Yields the documents; questions are ignored."""
    read_judgments: Callable[[Path, ReadOptions], Judgments] | None = None
    """Returns all judgments, if a query may have grades or several relevant documents."""


CHUNKING = "a folder of Chroma's chunking evaluation"
FOLDER_FORMATS = (
    FolderFormat("a BEIR folder", is_beir_folder, _always, read_beir, read_beir_texts, read_judgments),
    FolderFormat(CHUNKING, is_chunking_folder, _always, read_chunking, read_chunking_texts, read_chunking_judgments),
    FolderFormat("a folder of files", Path.is_dir, _has_question_files, _read_files, _read_files),
)


def find_folder_format(folder: Path) -> FolderFormat:
    """Return the format of a folder that is not in the PosIR layout."""
    return next(format_ for format_ in FOLDER_FORMATS if format_.accepts(folder))


#: What data may be, for messages.
KINDS = (
    "a task; a folder in the PosIR layout, of BEIR or of Chroma's chunking evaluation; a file or folder of "
    f"{', '.join(format_.title for format_ in FILE_FORMATS)}; or a dataset on the Hub (owner/name)"
)
