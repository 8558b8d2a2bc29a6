"""Match documents by file name: an index may use paths, file names, stems or URLs as ids."""

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

#: Suffixes to ignore when matching ids: an id may be a bare stem, and converting a file changes its
#: suffix.
TEXT_SUFFIXES = (
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
OFFICE_SUFFIXES = ("pdf", "doc", "docx", "odt", "rtf", "ppt", "pptx", "xls", "xlsx", "epub")
SUFFIXES = frozenset((*TEXT_SUFFIXES, *OFFICE_SUFFIXES))
#: Maximum number of documents for matching by file name.
MAX_DOCUMENTS = 1_000_000
URL_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
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
        if URL_SCHEME.match(text):
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

    If several documents have the same stem as the hit, the match is the document with the same
    suffix and the most shared folders.
    """

    matches: dict[str, str] = field(default_factory=dict)
    """Document id by file name in a hit, without chunk number."""
    _names: dict[str, FileName] = field(default_factory=dict)
    """First matching file name by document id."""
    _indexes: dict[int, tuple[Collection[str], Index]] = field(default_factory=dict)
    """Corpora and their indexes, by the `id()` of the corpus."""

    def translate(self, name: str, corpus: Collection[str], separator: str) -> str:
        """Replace the file name in a hit's id with the id of the matching document, if any.

        Raises:
            PosirError: The name matches several documents, or two files match the same document.
        """
        for base in strip_chunk_suffixes(name, separator):
            if base in corpus:
                return name
        for base in strip_chunk_suffixes(name, separator):
            if document := self._find(base, corpus):
                return document + name[len(base) :]
        return name

    def describe(self) -> str:
        """Describe the number of matches and the first match; empty if there are none."""
        if not self.matches:
            return ""
        name, document = next(iter(self.matches.items()))
        documents = pluralize(len(self.matches), "document")
        return (
            f"Matched {documents} of the index by file name, for example {sanitize(name)} to "
            f"{sanitize(document)}."
        )

    def _find(self, name: str, corpus: Collection[str]) -> str | None:
        match = self.matches.get(name)
        if match is not None and match in corpus:
            return match
        file_name = FileName.parse(name)
        candidates = self._index(corpus).get(file_name.stem, [])
        if not (file_name.stem and candidates):
            return None
        document = _choose(name, file_name, candidates)
        first = self._names.setdefault(document, file_name)
        # One path must end with the other.
        shared_folders = first.count_shared_folders(file_name)
        if shared_folders < min(len(first.folders), len(file_name.folders)):
            other = next(key for key, value in self.matches.items() if value == document)
            raise PosirError(
                f"The ids {sanitize(other)} and {sanitize(name)} of the index both match "
                f"document {sanitize(document)} of the data by file name. Use --document-field to "
                "name the field that contains the dataset's document id, or use the texts of the "
                "whole index as the dataset."
            )
        self.matches[name] = document
        return document

    def _index(self, corpus: Collection[str]) -> Index:
        if id(corpus) not in self._indexes:
            by_stem: Index = {}
            for document in corpus if len(corpus) <= MAX_DOCUMENTS else ():
                file_name = FileName.parse(document)
                by_stem.setdefault(file_name.stem, []).append((document, file_name))
            # The reference to the corpus keeps its `id()` unique.
            self._indexes[id(corpus)] = corpus, by_stem
        return self._indexes[id(corpus)][1]


def _choose(name: str, file_name: FileName, candidates: list[tuple[str, FileName]]) -> str:
    """Choose the document that matches best in both shared folders and suffix.

    Raises:
        PosirError: There is not exactly one best document.
    """
    scores = {
        document: (
            candidate_name.count_shared_folders(file_name),
            candidate_name.suffix == file_name.suffix,
        )
        for document, candidate_name in candidates
    }
    best_score = tuple(max(column) for column in zip(*scores.values(), strict=True))
    best = [document for document, score in scores.items() if score == best_score]
    if len(best) == 1:
        return best[0]
    examples = " and ".join(map(sanitize, (best or sorted(scores))[:MAX_EXAMPLES]))
    raise PosirError(
        f"The id {sanitize(name)} of the index matches several documents of the data by file "
        f"name: {examples}. Return unique paths or ids, or use --document-field to name the field "
        "that contains the dataset's document id."
    )


def strip_chunk_suffixes(name: str, separator: str) -> Iterator[str]:
    """Yield an id, then the id without its last chunk suffix, and so on."""
    yield name
    while separator and separator in name:
        name = name.rpartition(separator)[0]
        yield name
