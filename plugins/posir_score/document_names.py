"""Documents by their file names: an index may name a document by its path, file name, stem or URL,
and the data by its id.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import pluralize, sanitize

#: Endings of files of documents, which a stem lacks, and which differ where a document was
#: converted.
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
#: Most documents whose names are indexed.
MAX_DOCUMENTS = 1_000_000
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
#: Documents that a message names.
EXAMPLES = 2


class FileName(NamedTuple):
    """The parts of a path or URL."""

    folders: tuple[str, ...]
    stem: str
    suffix: str
    """Lower case, one of `SUFFIXES`; empty without."""

    @classmethod
    def parse(cls, name: str) -> FileName:
        """Parse the parts of a path of any system, a file name, a stem or a URL; a URL's query and
        fragment are left out.
        """
        text = name.strip()
        if URL.match(text):
            with suppress(ValueError):
                url = urlsplit(text)
                text = f"{url.netloc}/{unquote(url.path)}"
        text = unicodedata.normalize("NFC", text)
        parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".")]
        *folders, last = parts or [""]
        stem, dot, suffix = last.rpartition(".")
        if not (dot and stem and suffix.lower() in SUFFIXES):
            return cls(tuple(folders), last, "")
        return cls(tuple(folders), stem, suffix.lower())

    def count_shared_folders(self, other: FileName) -> int:
        """Count the last folders of both that are equal."""
        pairs = zip(reversed(self.folders), reversed(other.folders), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


#: Ids and names of documents by their stems.
Index: TypeAlias = dict[str, list[tuple[str, FileName]]]


@dataclass
class DocumentNames:
    """Finds the documents that the hits of an index name by their files, and keeps what it found.

    A document is found if only one has the file name or stem of the hit; of several, the one that
    shares most folders and the ending with it.
    """

    matched: dict[str, str] = field(default_factory=dict)
    """The document by the name that a hit has for it, without what follows a separator."""
    _names: dict[str, FileName] = field(default_factory=dict)
    """The first name that hits have for a document."""
    _indexes: dict[int, tuple[Collection[str], Index]] = field(default_factory=dict)
    """Each corpus by its identity, with its documents."""

    def translate(self, name: str, corpus: Collection[str], separator: str) -> str:
        """Replace the name of a file in the id of a hit by the id of its document, if one has this
        name.

        Raises:
            PosirError: The name fits several documents, or other files of the index fit the same
                document.
        """
        for base in strip_chunks(name, separator):
            if base in corpus:
                return name
        for base in strip_chunks(name, separator):
            if document := self._find(base, corpus):
                return document + name[len(base) :]
        return name

    def describe(self) -> str:
        """Describe how many names were matched to documents, with the first; empty if none was."""
        if not self.matched:
            return ""
        name, document = next(iter(self.matched.items()))
        number = pluralize(len(self.matched), "document")
        return (
            f"{number} of the index matched by file name, first {sanitize(name)} to "
            f"{sanitize(document)}."
        )

    def _find(self, name: str, corpus: Collection[str]) -> str | None:
        known = self.matched.get(name)
        if known is not None and known in corpus:
            return known
        given = FileName.parse(name)
        candidates = self._index(corpus).get(given.stem, [])
        if not (given.stem and candidates):
            return None
        document = _choose(name, given, candidates)
        first = self._names.setdefault(document, given)
        # No folder that both paths have may differ.
        shared = first.count_shared_folders(given)
        if shared < min(len(first.folders), len(given.folders)):
            other = next(known for known, of in self.matched.items() if of == document)
            raise PosirError(
                f"The ids {sanitize(other)} and {sanitize(name)} of the index both fit "
                f"document {sanitize(document)} of the data by their file names. Name the field "
                "with the data's id by --document-field, or give the texts of the whole index."
            )
        self.matched[name] = document
        return document

    def _index(self, corpus: Collection[str]) -> Index:
        if id(corpus) not in self._indexes:
            by_stem: Index = {}
            for document in corpus if len(corpus) <= MAX_DOCUMENTS else ():
                parsed = FileName.parse(document)
                by_stem.setdefault(parsed.stem, []).append((document, parsed))
            # The corpus is kept with it, so that no other gets its identity.
            self._indexes[id(corpus)] = corpus, by_stem
        return self._indexes[id(corpus)][1]


def _choose(name: str, given: FileName, candidates: list[tuple[str, FileName]]) -> str:
    """Choose the document that fits a name best in folders and ending; raise PosirError if none
    fits best in both.
    """
    fits = {
        document: (parsed.count_shared_folders(given), parsed.suffix == given.suffix)
        for document, parsed in candidates
    }
    most, is_same = (max(column) for column in zip(*fits.values(), strict=True))
    best = [document for document, fit in fits.items() if fit == (most, is_same)]
    if len(best) == 1:
        return best[0]
    listed = " and ".join(map(sanitize, (best or sorted(fits))[:EXAMPLES]))
    raise PosirError(
        f"The id {sanitize(name)} of the index fits several documents of the data by its file "
        f"name, {listed}. Return paths or "
        "ids that tell them apart, or name the field with the data's id by --document-field."
    )


def strip_chunks(name: str, separator: str) -> Iterator[str]:
    """Yield an id, then what is left of it when its ends from a separator on are removed one by
    one.
    """
    yield name
    while separator and separator in name:
        name = name.rpartition(separator)[0]
        yield name
