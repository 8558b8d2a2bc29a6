"""Readers of documents, one a file: plain text, and HTML and PDF by libraries that are imported when there is such a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from importlib import import_module
from io import BytesIO
from pathlib import Path

from posir_tasks.errors import DataError, summarize_error
from posir_tasks.files import read_decompressed
from posir_tasks.gate import decode, find_encoding
from posir_tasks.sources.formats.passages import Item, Passage, ReadOptions, SkippedText

#: Bytes of a file in which a zero byte marks it as binary.
BINARY_BYTES = 8192
NOT_UTF8 = "not UTF-8"


def extract_pdf(content: bytes) -> str:
    """Return the text of all pages; raise DataError if there is no library for it, or it cannot be read."""
    try:
        library = import_module("pypdf")
    except ImportError as error:
        raise DataError("`pip install pypdf`, or convert it: `pdftotext FILE.pdf`") from error
    # It logs each irregularity of a file.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        return "\n".join(page.extract_text() for page in library.PdfReader(BytesIO(content)).pages)
    except Exception as error:  # a damaged or encrypted file may raise anything
        raise DataError(f"cannot be read ({summarize_error(error)}); convert it: `pdftotext FILE.pdf`") from error


def is_binary(content: bytes) -> bool:
    """Return whether the beginning of a file has a zero byte and is not UTF-16."""
    return find_encoding(content) != "utf-16" and b"\0" in content[:BINARY_BYTES]


def describe_bad_byte(error: UnicodeDecodeError, offset: int = 0) -> str:
    """Return what is not UTF-8: `byte 0xf6 at 17`, counted from 0 in the file, of which `offset` bytes come before."""
    return f"byte 0x{error.object[error.start]:02x} at {offset + error.start:,}"


def read_text_file(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:  # noqa: ARG001
    """Yield the text of a file, or why it has none; its id is its name without the suffix."""
    yield _read_text(file, name, decode)


def _read_text(file: Path, name: str, decode_file: Callable[[bytes], str]) -> Item:
    content = read_decompressed(file)
    if is_binary(content):
        return SkippedText(name, "binary", file=name)
    try:
        return _name_text(decode_file(content), name)
    except UnicodeDecodeError as error:
        return SkippedText(name, NOT_UTF8, describe_bad_byte(error), name)


def _name_text(text: str, name: str) -> Item:
    """Return the text of a file, under its name without the suffix."""
    own = Path(name).with_suffix("").as_posix()
    return Passage(name, "", text, id=own) if text.strip() else SkippedText(name, "empty", file=name)


def read_html_file(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:  # noqa: ARG001
    """Yield the text of a page, or why it has none."""
    from posir_tasks.sources.formats.pages import decode_page, extract_text

    item = _read_text(file, name, decode_page)
    try:
        yield _name_text(extract_text(item.text), name) if isinstance(item, Passage) else item
    except DataError as error:
        yield SkippedText(name, "of HTML", str(error), name)


def read_pdf_file(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:  # noqa: ARG001
    """Yield the text of a PDF file, or why it has none."""
    try:
        yield _name_text(extract_pdf(read_decompressed(file)), name)
    except DataError as error:
        yield SkippedText(name, "of PDF", str(error), name)
