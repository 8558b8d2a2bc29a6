"""Matching by file name: an index may use paths, file names, stems or URLs as document ids."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePosixPath
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import pluralize, sanitize

#: Suffixes that ids of the same document may differ in: a stem has none, and conversion changes it.
PLAIN = (
    "txt",
    "text",
    "md",
    "markdown",
    "rst",
    "adoc",
    "html",
    "htm",
    "xhtml",
    "xml",
    "json",
    "jsonl",
    "csv",
    "tsv",
    "tex",
)
OFFICE = ("pdf", "doc", "docx", "odt", "rtf", "ppt", "pptx", "xls", "xlsx", "epub")
SUFFIXES = frozenset((*PLAIN, *OFFICE))
#: Maximum number of documents for matching by file name.
MAX_DOCUMENTS = 1_000_000
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
#: Maximum number of documents listed in a message.
MAX_EXAMPLES = 2


class FileName(NamedTuple):
    """The parts of a path or URL."""

    folders: tuple[str, ...]
    stem: str
    suffix: str
    """One of `SUFFIXES`, or empty."""

    @classmethod
    def parse(cls, name: str) -> FileName:
        """Parse a path of any operating system, a file name, a stem, or a URL. The query and
        fragment of a URL are dropped.
        """
        text = name.strip()
        if URL.match(text):
            with suppress(ValueError):
                url = urlsplit(text)
                text = f"{url.netloc}/{unquote(url.path)}"
        text = unicodedata.normalize("NFC", text)
        path = PurePosixPath(text.replace("\\", "/").strip("/"))
        suffix = path.suffix[1:].lower()
        if suffix not in SUFFIXES:
            return cls(path.parts[:-1], path.name, "")
        return cls(path.parts[:-1], path.stem, suffix)

    def count_shared_folders(self, other: FileName) -> int:
        """Count the equal folders at the end of both paths."""
        pairs = zip(reversed(self.folders), reversed(other.folders), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


#: Ids and file names of documents, by stem.
Index: TypeAlias = dict[str, list[tuple[str, FileName]]]


@dataclass
class DocumentNames:
    """Matches the file names of hits to documents, and caches the matches.

    If several documents have the stem of the hit, the document with the same suffix and the most
    shared folders matches.
    """

    matched: dict[str, str] = field(default_factory=dict)
    """Document ids by file name of the hit, without its chunk number."""
    _names: dict[str, FileName] = field(default_factory=dict)
    """The first matching file name for each document id."""
    _indexes: dict[int, tuple[Collection[str], Index]] = field(default_factory=dict)
    """Each corpus and its index, by the `id()` of the corpus."""

    def translate(self, name: str, corpus: Collection[str], separator: str) -> str:
        """Replace the file name in the id of a hit by the id of the matching document, if any.

        Raises:
            PosirError: The name matches several documents, or two files match the same document.
        """
        for base in strip_chunks(name, separator):
            if base in corpus:
                return name
        for base in strip_chunks(name, separator):
            if document := self._find(base, corpus):
                return document + name[len(base) :]
        return name

    def describe(self) -> str:
        """Describe the number of matches and the first one; empty without a match."""
        if not self.matched:
            return ""
        name, document = next(iter(self.matched.items()))
        documents = pluralize(len(self.matched), "document")
        return (
            f"{documents} of the index matched by file name, first: {sanitize(name)} to "
            f"{sanitize(document)}."
        )

    def _find(self, name: str, corpus: Collection[str]) -> str | None:
        match = self.matched.get(name)
        if match is not None and match in corpus:
            return match
        file_name = FileName.parse(name)
        candidates = self._index(corpus).get(file_name.stem, [])
        if not (file_name.stem and candidates):
            return None
        document = _choose(name, file_name, candidates)
        first = self._names.setdefault(document, file_name)
        # The shorter path must be the end of the longer path.
        shared_folders = first.count_shared_folders(file_name)
        if shared_folders < min(len(first.folders), len(file_name.folders)):
            other = next(key for key, value in self.matched.items() if value == document)
            raise PosirError(
                f"The ids {sanitize(other)} and {sanitize(name)} of the index both match "
                f"document {sanitize(document)} of the data by file name. Give the field that "
                "contains the data's id as --document-field, or the texts of the whole index as "
                "data."
            )
        self.matched[name] = document
        return document

    def _index(self, corpus: Collection[str]) -> Index:
        if id(corpus) not in self._indexes:
            by_stem: Index = {}
            for document in corpus if len(corpus) <= MAX_DOCUMENTS else ():
                parsed = FileName.parse(document)
                by_stem.setdefault(parsed.stem, []).append((document, parsed))
            # The reference to the corpus keeps its `id()` unique.
            self._indexes[id(corpus)] = corpus, by_stem
        return self._indexes[id(corpus)][1]


def _choose(name: str, file_name: FileName, candidates: list[tuple[str, FileName]]) -> str:
    """Choose the document that matches best in both shared folders and suffix; raise PosirError
    unless there is exactly one.
    """
    fits = {
        document: (parsed.count_shared_folders(file_name), parsed.suffix == file_name.suffix)
        for document, parsed in candidates
    }
    best_fit = tuple(max(column) for column in zip(*fits.values(), strict=True))
    best = [document for document, fit in fits.items() if fit == best_fit]
    if len(best) == 1:
        return best[0]
    examples = " and ".join(map(sanitize, (best or sorted(fits))[:MAX_EXAMPLES]))
    raise PosirError(
        f"The id {sanitize(name)} of the index matches several documents of the data by file "
        f"name: {examples}. Return paths or ids that tell them apart, or give the field that "
        "contains the data's id as --document-field."
    )


def strip_chunks(name: str, separator: str) -> Iterator[str]:
    """Yield an id, then the id without its last chunk suffix, and so on."""
    yield name
    while separator and separator in name:
        name = name.rpartition(separator)[0]
        yield name
