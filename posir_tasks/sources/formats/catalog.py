"""The formats of files and folders, in order of precedence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from posir_tasks.compressed_files import open_decompressed, split_suffix
from posir_tasks.errors import DataError
from posir_tasks.files import find_files
from posir_tasks.sources.decoding import BINARY_BYTES, is_binary
from posir_tasks.sources.formats.beir import is_beir_folder, read_beir, read_beir_texts, read_judgments
from posir_tasks.sources.formats.chunking import (
    is_chunking_folder,
    read_chunking,
    read_chunking_judgments,
    read_chunking_texts,
)
from posir_tasks.sources.formats.json_lines import has_question_lines, read_json_lines
from posir_tasks.sources.formats.options import ReadOptions
from posir_tasks.sources.formats.passages import Passage, SkippedQuestion, SkippedText
from posir_tasks.sources.formats.records import error_context
from posir_tasks.sources.formats.squad_json import is_squad_json, read_squad_json
from posir_tasks.sources.formats.tables import has_question_rows, read_question_rows
from posir_tasks.sources.formats.texts import JSON_LINES, PARQUET, PLAIN_TEXT, read_text_file, read_text_lines, read_text_rows
from posir_tasks.sources.judgments import Judgments

#: What a reader yields.
Item: TypeAlias = Passage | SkippedQuestion | SkippedText


@dataclass(frozen=True)
class FileFormat:
    """A format of one file."""

    title: str
    suffixes: tuple[str, ...]
    accepts: Callable[[Path, ReadOptions], bool]
    """Whether a file with one of the suffixes is in the format."""
    has_questions: bool
    read: Callable[[Path, str, ReadOptions], Iterator[Item]]
    """Yields the content of a file, given its path, its name for messages, and what the user says."""


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


#: If the user names a column of texts, the rows are texts.
FILE_FORMATS = (
    FileFormat(
        "SQuAD-format JSON",
        (".json",),
        lambda file, options: options.column is None and is_squad_json(file),
        True,
        lambda file, _name, _options: read_squad_json([file]),
    ),
    FileFormat(
        "JSON Lines with questions",
        JSON_LINES,
        lambda file, options: options.column is None and has_question_lines(file),
        True,
        lambda file, _name, _options: read_json_lines(file),
    ),
    FileFormat(
        "Parquet with questions",
        PARQUET,
        lambda file, options: options.column is None and has_question_rows(file),
        True,
        lambda file, _name, _options: read_question_rows(file),
    ),
    FileFormat("JSON Lines with texts", JSON_LINES, lambda _file, _options: True, False, read_text_lines),
    FileFormat("Parquet with texts", PARQUET, lambda _file, _options: True, False, read_text_rows),
    FileFormat("plain text or Markdown", ("", *PLAIN_TEXT), lambda _file, _options: True, False, read_text_file),
)


def find_file_format(file: Path, options: ReadOptions) -> FileFormat | None:
    """Return the format of a file, None if it is none of ours; raise DataError if it cannot be read."""
    _, suffix = split_suffix(file)
    with error_context(file, "", KINDS):
        return next(
            (
                file_format
                for file_format in FILE_FORMATS
                if suffix in file_format.suffixes and file_format.accepts(file, options)
            ),
            None,
        )


def read_file(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:
    """Yield the content of a file, or why it has none.

    Raises:
        DataError: The file cannot be read, or has questions and is not as its format is expected to be.
    """
    file_format = find_file_format(file, options)
    if file_format is not None:
        with error_context(file, "", file_format.title):
            yield from file_format.read(file, name, options)
        return
    with error_context(file, "", "text"), open_decompressed(file) as content:
        yield SkippedText(name, "binary" if is_binary(content.read(BINARY_BYTES)) else "of another kind")


def read_files(folder: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the content of all files below a folder; what cannot be read is named."""
    for file in list_files(folder):
        name = file.relative_to(folder).as_posix()
        try:
            yield from read_file(file, name, options)
        except DataError as error:
            yield SkippedText(name, "unreadable", str(error))


def list_files(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted, hidden ones excepted."""
    return [file for file in find_files(folder, "") if not any(part.startswith(".") for part in file.relative_to(folder).parts)]


def has_question_files(folder: Path, options: ReadOptions) -> bool:
    """Return whether a file below a folder has questions."""

    def has_questions(file: Path) -> bool:
        with suppress(DataError):
            file_format = find_file_format(file, options)
            return file_format is not None and file_format.has_questions
        return False

    return any(map(has_questions, list_files(folder)))


FOLDER_FORMATS = (
    FolderFormat("a BEIR folder", is_beir_folder, lambda _folder, _options: True, read_beir, read_beir_texts, read_judgments),
    FolderFormat(
        "a folder of Chroma's chunking evaluation",
        is_chunking_folder,
        lambda _folder, _options: True,
        read_chunking,
        read_chunking_texts,
        read_chunking_judgments,
    ),
    FolderFormat("a folder of files", Path.is_dir, has_question_files, read_files, read_files),
)


def find_folder_format(folder: Path) -> FolderFormat:
    """Return the format of a folder that is not in the PosIR layout."""
    return next(folder_format for folder_format in FOLDER_FORMATS if folder_format.accepts(folder))


#: What data may be, for messages.
KINDS = (
    "a task; a folder in the PosIR layout, of BEIR or of Chroma's chunking evaluation; a file or folder of "
    f"{', '.join(file_format.title for file_format in FILE_FORMATS)}; or a dataset on the Hub (owner/name)"
)
