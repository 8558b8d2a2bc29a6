"""Readers for files with one document: plain text, HTML and PDF.

The HTML and PDF libraries are imported on first use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.files import read_decompressed
from posir_tasks.base.limits import (
    MAX_BYTES,
    MAX_ROWS,
    LimitError,
    compute_unpacked_limit,
    describe_bytes,
    limit_seconds,
    read_page_limit,
)
from posir_tasks.base.untrusted import decode, find_encoding
from posir_tasks.base.wording import sanitize
from posir_tasks.data.formats.passages import (
    Item,
    Items,
    Passage,
    ReadOptions,
    SkippedItem,
    read_text,
)

#: Number of bytes to search for a zero byte, which indicates a binary file.
BINARY_BYTES = 8192
#: Loggers of pypdf that warn about lost content.
LOSS_LOGGERS = ("pypdf.filters", "pypdf._page")
NOT_UTF8 = "not UTF-8"
PDF = "PDF"


def extract_pdf(content: bytes) -> tuple[str, list[int]]:
    """Extract the text of all pages.

    Returns:
        The text, and the 1-based numbers of pages with images but without text.

    Raises:
        DataError: pypdf is not installed, or the file cannot be read completely.
    """
    try:
        library = import_module("pypdf")
    except ImportError as error:
        raise DataError(
            "`pip install 'posir[pdf]'`, or convert it: `pdftotext FILE.pdf`"
        ) from error
    scanned_pages = []
    try:
        with _collect_losses() as losses, limit_seconds(PDF, len(content)):
            reader = library.PdfReader(BytesIO(content))
            texts = _extract_texts(reader.pages, len(content))
            for number, page in enumerate(reader.pages):
                resources = page.get("/Resources")
                has_pictures = resources is not None and "/XObject" in resources.get_object()
                if has_pictures and not texts[number].strip():
                    scanned_pages.append(number + 1)
            count = reader.root_object["/Pages"].get("/Count")
        if isinstance(count, int) and count > len(texts):
            losses.append(f"only {len(texts)} of its {count} pages were found")
        problem = f"part of it cannot be read ({sanitize(losses[0])})" if losses else ""
    except LimitError as error:
        raise DataError(error.problem) from error
    except Exception as error:  # pypdf raises many types for damaged or encrypted files
        problem = f"cannot be read ({summarize_error(error)})"
    if problem:
        raise DataError(f"{problem}; convert it: `pdftotext FILE.pdf`")
    return "\n".join(texts), scanned_pages


@contextmanager
def _collect_losses() -> Iterator[list[str]]:
    """Collect pypdf's warnings about lost content, and silence its other messages."""
    losses = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: losses.append(record.getMessage())  # type: ignore[method-assign]
    # Other pypdf loggers inherit this level.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    loggers = [logging.getLogger(name) for name in LOSS_LOGGERS]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        logger.addHandler(handler)
    try:
        yield losses
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _extract_texts(pages: Sequence[Any], size: int) -> list[str]:
    """Extract the text of each page; raise LimitError for too many pages or too much text."""
    if len(pages) > read_page_limit():
        raise MAX_ROWS.make_error(
            PDF, f"has {len(pages):,} pages, but at most {read_page_limit():,} are read"
        )
    texts = []
    limit = compute_unpacked_limit(size)
    for page in pages:
        texts.append(page.extract_text())
        limit -= len(texts[-1])
        if limit < 0:
            raise MAX_BYTES.make_error(
                PDF, f"unpacks to more than {describe_bytes(compute_unpacked_limit(size))} of text"
            )
    return texts


def is_binary(content: bytes) -> bool:
    """Return True if a file has a zero byte near its start and is not UTF-16."""
    return find_encoding(content) != "utf-16" and b"\0" in content[:BINARY_BYTES]


def describe_bad_byte(error: UnicodeDecodeError, offset: int = 0) -> str:
    """Name an invalid byte, such as `byte 0xf6 at 17`. `offset` is added to its position."""
    return f"byte 0x{error.object[error.start]:02x} at {offset + error.start:,}"


def read_text_file(file: Path, options: ReadOptions) -> Items:
    """Yield the text of a file, with the file name without suffix as its id."""
    yield _read_text(file, options.name(file), decode)


def _read_text(file: Path, name: str, decode_content: Callable[[bytes], str]) -> Item:
    content = read_decompressed(file)
    if is_binary(content):
        return SkippedItem(name, "binary", file=name)
    try:
        text = decode_content(content)
    except UnicodeDecodeError as error:
        return SkippedItem(name, NOT_UTF8, describe_bad_byte(error), name)
    return _name_text(text, name)


def _name_text(text: str, name: str) -> Item:
    item = read_text(name, "", text, name)
    if isinstance(item, Passage):
        return replace(item, id=Path(name).with_suffix("").as_posix())
    return item


def read_html_file(file: Path, options: ReadOptions) -> Items:
    """Yield the text of an HTML page."""
    from posir_tasks.data.formats.pages import decode_page, extract_text

    name = options.name(file)
    item = _read_text(file, name, decode_page)
    try:
        if isinstance(item, Passage):
            with limit_seconds(name, len(item.text)):
                item = _name_text(extract_text(item.text), name)
    except LimitError:
        raise
    except DataError as error:
        item = SkippedItem(name, "unreadable as HTML", str(error), name)
    yield item


def read_pdf_file(file: Path, options: ReadOptions) -> Items:
    """Yield the text of a PDF file, and a skipped item if it has scanned pages."""
    name = options.name(file)
    try:
        text, scanned_pages = extract_pdf(read_decompressed(file))
    except DataError as error:
        yield SkippedItem(name, "unreadable as PDF", str(error), name)
        return
    yield _name_text(text, name)
    if scanned_pages and text.strip():
        pages = ", ".join(map(str, scanned_pages))
        detail = f"pages {pages}; recognize their text, for example with `ocrmypdf`"
        yield SkippedItem(name, "scanned PDF pages", detail, name, len(scanned_pages))
