"""Document keys: short digests that identify an article across subsets, languages and chunks.

Questions about the same article are not independent. Clusters are the connected components of
documents that share a text, a title or an opening.
"""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from posir_tasks.base.arrays import Integers
from posir_tasks.base.digests import digest

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Columns of document keys: digests of the text, the title and the opening.
KEY_NAMES = ("texts", "titles", "openings")
TEXTS, TITLES, OPENINGS = range(len(KEY_NAMES))
#: Bytes per digest. The probability of a collision among 42,000 documents is 0.001.
KEY_BYTES = 5
#: Number of words in an opening.
OPENING_WORDS = 200


def digest_documents(
    names: Sequence[str], titles: Mapping[str, str], texts: Mapping[str, str]
) -> Integers:
    """Compute document keys, shape (D, 3), from titles and texts by id. Missing keys are 0."""
    title_keys = {title: _digest_words(_normalize(title)) for title in set(titles.values())}
    rows = np.zeros((len(names), len(KEY_NAMES)), np.int64)
    for row, name in zip(rows, names, strict=True):
        row[TITLES] = title_keys.get(titles.get(name, ""), 0)
        if name in texts:
            words = _normalize(texts[name])
            row[TEXTS] = _digest_words(words)
            row[OPENINGS] = _digest_words(words[:OPENING_WORDS])
    return rows


def _normalize(text: str) -> list[str]:
    """Split a text into words after NFKC and lowercasing."""
    return unicodedata.normalize("NFKC", text).lower().split()


def _digest_words(words: Sequence[str]) -> int:
    """Hash words to a positive number, or return 0 without words."""
    if not words:
        return 0
    key = digest(" ".join(words), size=KEY_BYTES)
    return int.from_bytes(key, "big") or 1


def link_documents(columns: Iterable[Integers]) -> Integers:
    """Return the component number of each document, shape (D,).

    Documents are connected if they have the same positive number in any column, shape (D,) each.
    """
    rows = []
    nodes = []
    offset = 0
    for column in columns:
        offset = offset or len(column)
        rows_with_key = np.flatnonzero(column)
        values, numbers = np.unique(column[rows_with_key], return_inverse=True)
        rows.append(rows_with_key)
        nodes.append(numbers + offset)
        offset += len(values)
    row = np.concatenate(rows)
    node = np.concatenate(nodes)
    size = len(column)
    if size + len(row) == offset:
        # No documents are connected.
        return np.arange(size)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = np.ones(len(row), np.int8)
    graph = coo_array((edges, (row, node)), shape=(offset, offset))
    components = connected_components(graph, directed=False)[1][:size]
    return np.unique(components, return_inverse=True)[1].astype(np.int64)


def pack_keys(keys: Integers) -> str:
    """Encode a column of keys in base 85, 5 bytes per key."""
    wide = keys.astype(">u8").view(np.uint8).reshape(len(keys), 8)
    raw = wide[:, 8 - KEY_BYTES :]
    return base64.b85encode(raw.tobytes()).decode()


def unpack_keys(text: str, documents: int) -> Integers:
    """Decode the output of `pack_keys`; raise ValueError if its length is wrong."""
    raw = base64.b85decode(text)
    if len(raw) != documents * KEY_BYTES:
        raise ValueError(
            f"a column of keys has {len(text)} characters, the wrong number for {documents} "
            "documents"
        )
    wide = np.zeros((documents, 8), np.uint8)
    wide[:, 8 - KEY_BYTES :] = np.frombuffer(raw, np.uint8).reshape(documents, KEY_BYTES)
    return wide.view(">u8").ravel().astype(np.int64)
