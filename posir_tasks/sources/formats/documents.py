"""Readers of documents, one a file: plain text, and HTML and PDF by libraries that are imported when there is such a file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from posir_tasks.errors import DataError, summarize_error
from posir_tasks.files import read_decompressed
from posir_tasks.gate import decode, find_encoding
from posir_tasks.limits import MAX_BYTES, MAX_ROWS, LimitError, describe_bytes, limit_seconds, max_pages, max_unpacked
from posir_tasks.sources.formats.passages import Item, Passage, ReadOptions, SkippedText

#: Bytes of a file in which a zero byte marks it as binary.
BINARY_BYTES = 8192
NOT_UTF8 = "not UTF-8"
PDF = "PDF"


def extract_pdf(content: bytes) -> str:
    """Return the text of all pages; raise DataError if there is no library for it, or it cannot be read."""
    try:
        library = import_module("pypdf")
    except ImportError as error:
        raise DataError("`pip install pypdf`, or convert it: `pdftotext FILE.pdf`") from error
    # It logs each irregularity of a file.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        with limit_seconds(PDF, len(content)):
            return _extract_pages(library.PdfReader(BytesIO(content)).pages, len(content))
    except LimitError as error:
        raise DataError(error.problem) from error
    except Exception as error:  # a damaged or encrypted file may raise anything
        raise DataError(f"cannot be read ({summarize_error(error)}); convert it: `pdftotext FILE.pdf`") from error


def _extract_pages(pages: Sequence[Any], size: int) -> str:
    """Return the text of the pages of a file of `size` bytes; raise LimitError if there are too many, or too much text."""
    if len(pages) > max_pages():
        raise MAX_ROWS.refuse(PDF, f"has {len(pages):,} pages, and at most {max_pages():,} are read")
    texts, limit = list[str](), max_unpacked(size)
    for page in pages:
        texts.append(page.extract_text())
        limit -= len(texts[-1])
        if limit < 0:
            raise MAX_BYTES.refuse(PDF, f"unpacks to more than {describe_bytes(max_unpacked(size))} of text")
    return "\n".join(texts)


def is_binary(content: bytes) -> bool:
    """Return whether the beginning of a file has a zero byte and is not UTF-16."""
    return find_encoding(content) != "utf-16" and b"\0" in content[:BINARY_BYTES]


def describe_bad_byte(error: UnicodeDecodeError, offset: int = 0) -> str:
    """Return what is not UTF-8: `byte 0xf6 at 17`, counted from 0 in the file, of which `offset` bytes come before."""
    return f"byte 0x{error.object[error.start]:02x} at {offset + error.start:,}"


def read_text_file(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:  # noqa: ARG001
    """Yield the text of a file, or why it has none; its id is its name without the suffix."""
    content = read_decompressed(file)
    if is_binary(content):
        yield SkippedText(name, "binary", file=name)
        return
    try:
        text = decode(content)
    except UnicodeDecodeError as error:
        yield SkippedText(name, NOT_UTF8, describe_bad_byte(error), name)
        return
    yield _name_text(text, name)


def _name_text(text: str, name: str) -> Item:
    """Return the text of a file, under its name without the suffix."""
    own = Path(name).with_suffix("").as_posix()
    return Passage(name, "", text, id=own) if text.strip() else SkippedText(name, "empty", file=name)


def read_html_file(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:
    """Yield the text of a page as it is read, or why it has none: blocks are on lines of their own, scripts left out."""
    for item in read_text_file(file, name, options):
        if isinstance(item, Passage):
            with limit_seconds(name, len(item.text)):
                lines = import_module("inscriptis").get_text(item.text).splitlines()
            yield _name_text("\n".join(line.strip() for line in lines), name)
        else:
            yield item


def read_pdf_file(file: Path, name: str, options: ReadOptions) -> Iterator[Item]:  # noqa: ARG001
    """Yield the text of a PDF file, or why it has none."""
    try:
        yield _name_text(extract_pdf(read_decompressed(file)), name)
    except DataError as error:
        yield SkippedText(name, "of PDF", str(error), name)
