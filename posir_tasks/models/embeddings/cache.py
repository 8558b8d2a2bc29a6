"""Cached embeddings: a folder of immutable files with unique names.

Any number of processes, on any number of machines that share the folder, therefore read and write
without waiting for each other, and a killed process leaves no half-written file. A damaged
embedding counts as missing.

mteb's `CachedEmbeddingWrapper` does not fit: it has one folder per task, so tasks share nothing;
its keys contain neither model nor revision nor prompt; it changes files in place, for a single
process; and it does not detect damage.
"""

from __future__ import annotations

import json
import logging
import uuid
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from posir_tasks.base.arrays import Booleans, Integers
from posir_tasks.base.errors import PosirError, check_schema
from posir_tasks.base.files import atomic_write, remove_stale_parts

if TYPE_CHECKING:
    from mteb.types import Array

#: Types that NumPy or Arrow cannot store, and integer types of the same width.
STORED_AS = {"bfloat16": "int16", "bool": "uint8"}


@dataclass(frozen=True)
class EmbeddingFormat:
    """Library, number type and dimensions of a model's embeddings."""

    library: str
    """`numpy` or `torch`."""
    dtype: str
    """A name that NumPy and PyTorch share, such as `float32`; or `bfloat16`."""
    dimensions: int

    @classmethod
    def detect(cls, embeddings: object, texts: int) -> EmbeddingFormat | None:
        """Return the format of embeddings, or None unless they are one dense row of numbers per
        text.
        """
        if isinstance(embeddings, torch.Tensor) and embeddings.layout == torch.strided:
            library = "torch"
            dtype = str(embeddings.dtype).removeprefix("torch.")
        elif isinstance(embeddings, np.ndarray):
            library = "numpy"
            dtype = embeddings.dtype.name
        else:
            return None
        numeric = dtype in STORED_AS or (
            dtype.startswith(("float", "int", "uint")) and hasattr(np, dtype)
        )
        if not numeric or embeddings.ndim != 2 or embeddings.shape[0] != texts:
            return None
        return cls(library, dtype, embeddings.shape[1])

    @property
    def checksum(self) -> int:
        """CRC-32 of the format as files store it, names of the fields included."""
        return zlib.crc32(json.dumps(asdict(self)).encode())

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The NumPy type of the rows in memory and on disk."""
        return np.dtype(STORED_AS.get(self.dtype, self.dtype))

    def to_rows(self, embeddings: Array) -> NDArray[Any]:
        """Return embeddings of this format as rows of `stored_dtype`, without a copy if contiguous
        and on the CPU.
        """
        if isinstance(embeddings, torch.Tensor):
            stored = getattr(torch, self.stored_dtype.name)
            return embeddings.detach().cpu().contiguous().view(stored).numpy()
        return np.ascontiguousarray(embeddings).view(self.stored_dtype)

    def restore(self, rows: NDArray[Any]) -> Array:
        """Return rows of `stored_dtype` as the model returned them, on the CPU."""
        if self.library == "numpy":
            return rows.view(self.dtype)
        return torch.from_numpy(rows).view(getattr(torch, self.dtype))


#: 128-bit keys that identify texts; shape (n, 2).
Keys = NDArray[np.uint64]

#: Schema version of the files. A reader refuses newer ones.
SCHEMA = 1
#: Key of the Arrow metadata that holds schema version and embedding format.
METADATA_KEY = b"posir"


class DamageError(Exception):
    """A file is not what was written."""


@dataclass(frozen=True)
class FileContents:
    """The embeddings of n texts in a file; the arrays are views of the memory map."""

    format: EmbeddingFormat
    keys: Keys
    checksums: NDArray[np.uint32]
    rows: NDArray[Any]
    """Shape (n, dimensions), of `EmbeddingFormat.stored_dtype`."""


def compute_checksums(
    embedding_format: EmbeddingFormat, keys: Keys, rows: NDArray[Any]
) -> NDArray[np.uint32]:
    """Return the CRC-32 of each embedding with its key and format; keys of shape (n, 2), rows of
    shape (n, dimensions).
    """
    start = embedding_format.checksum
    pairs = zip(keys, rows, strict=True)
    return np.fromiter(
        (zlib.crc32(row, zlib.crc32(key, start)) for key, row in pairs), np.uint32, len(keys)
    )


def write_embeddings(
    file: Path, embedding_format: EmbeddingFormat, keys: Keys, rows: NDArray[Any]
) -> None:
    """Write keys of shape (n, 2) and contiguous rows of shape (n, dimensions), of `stored_dtype`,
    to a file.
    """
    columns = {
        "key": pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), len(keys), [None, pa.py_buffer(np.ascontiguousarray(keys))]
        ),
        "checksum": pa.array(compute_checksums(embedding_format, keys, rows)),
        "embedding": pa.FixedSizeListArray.from_arrays(
            pa.array(rows.reshape(-1)), embedding_format.dimensions
        ),
    }
    header = {
        "schema": SCHEMA,
        "format": asdict(embedding_format),
        "checksum": embedding_format.checksum,
    }
    batch = pa.record_batch(columns).replace_schema_metadata({METADATA_KEY: json.dumps(header)})
    with atomic_write(file) as part, pa.ipc.new_file(str(part), batch.schema) as writer:
        writer.write_batch(batch)


def read_embeddings(file: Path) -> FileContents:
    """Memory-map a file of embeddings, without verifying their checksums.

    Raise DamageError if it is not what was written, PosirError for a newer schema,
    FileNotFoundError or PermissionError.
    """
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(file))).get_batch(0)
        batch.validate()
        header = json.loads(batch.schema.metadata[METADATA_KEY])
        check_schema(header["schema"], SCHEMA, f"{file}: this file of embeddings")
        stored = header["format"]
        embedding_format = EmbeddingFormat(**stored)
        if embedding_format.checksum != header["checksum"]:
            raise DamageError("the checksum of the embedding format does not match")
        numbers = batch.column("embedding").values.to_numpy()
        return FileContents(
            format=embedding_format,
            keys=np.frombuffer(batch.column("key").buffers()[1], np.uint64, 2 * len(batch)).reshape(
                len(batch), 2
            ),
            checksums=batch.column("checksum").to_numpy(),
            rows=numbers.view(embedding_format.stored_dtype).reshape(
                len(batch), embedding_format.dimensions
            ),
        )
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise DamageError(f"{type(error).__name__}: {error}") from error


logger = logging.getLogger(__name__)

SUFFIX = ".arrow"
DAMAGED_SUFFIX = ".damaged"
#: Embeddings read and verified at a time.
READ_BATCH_SIZE = 4_096


#: The first half of an embedding's key, the number of its file, and its row there.
INDEX_ENTRY = np.dtype([("half", np.uint64), ("file", np.int64), ("row", np.int64)])


class Lookup(NamedTuple):
    """Cached embeddings of n texts: rows of shape (n, dimensions), uninitialized for missing ones;
    indices of those.
    """

    rows: NDArray[Any]
    missing: Integers


class EmbeddingCache:
    """A folder of embeddings by text, for one model with one prompt and one set of settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.format: EmbeddingFormat | None = None
        """Format of its embeddings; None while it is empty."""
        self._files: dict[str, int] = {}
        """Number of each file in the index."""
        self._numbers = count()
        self._index = np.empty(0, INDEX_ENTRY)
        """All embeddings, sorted by the first half of their keys. The checksum confirms the full
        key.
        """
        self._halves = self._index["half"]
        self._new_entries: list[NDArray[Any]] = []
        """Entries that are not sorted into the index yet."""
        remove_stale_parts(folder)

    def look_up(self, keys: Keys) -> Lookup:
        """Return the cached embeddings of texts by keys of shape (n, 2), including those added by
        other processes.
        """
        for file in sorted(self.folder.glob(f"*{SUFFIX}")):
            contents = None if file.name in self._files else self._open(file.name)
            if contents:
                self._require_format(contents.format)
                self._register(file.name, contents.keys)
        missing = np.arange(len(keys))
        if self.format is None:
            return Lookup(np.empty((len(keys), 0)), missing)
        rows = np.empty((len(keys), self.format.dimensions), self.format.stored_dtype)
        has_damage = True
        # Another file may have the embeddings that one has lost.
        while has_damage:
            selected, entries = self._find_entries(keys, missing)
            intact = np.zeros(len(selected), np.bool_)
            for name, number in [*self._files.items()]:
                part = np.flatnonzero(entries["file"] == number)
                if part.size:
                    file_rows = entries["row"][part]
                    intact[part] = self._read_rows(name, keys, selected[part], file_rows, rows)
            missing = np.setdiff1d(missing, selected[intact], assume_unique=True)
            has_damage = not intact.all()
        return Lookup(rows, missing)

    def _find_entries(self, keys: Keys, missing: Integers) -> tuple[Integers, NDArray[Any]]:
        """Return the `missing` rows that are in the index, and their entries."""
        self._sort_index()
        if not self._halves.size:
            return missing[:0], self._index
        halves = keys[missing, 0]
        indices = np.searchsorted(self._halves, halves).clip(max=len(self._halves) - 1)
        is_known = self._halves[indices] == halves
        return missing[is_known], self._index[indices[is_known]]

    def _sort_index(self) -> None:
        if self._new_entries:
            entries = np.concatenate([self._index, *self._new_entries])
            self._new_entries.clear()
            self._index = entries[np.argsort(entries["half"], kind="stable")]
            self._halves = np.ascontiguousarray(self._index["half"])

    def add(self, keys: Keys, embeddings: Array) -> None:
        """Write the finite ones of n dense embeddings, shape (n, dimensions), to a new file, by
        keys of shape (n, 2).
        """
        embedding_format = EmbeddingFormat.detect(embeddings, len(keys))
        assert embedding_format is not None
        self._require_format(embedding_format)
        rows = embedding_format.to_rows(embeddings)
        sums = torch.as_tensor(embedding_format.restore(rows)).sum(dim=1, dtype=torch.float32)
        finite = sums.isfinite().numpy()
        if finite.all():
            self._write(embedding_format, keys, rows)
        elif finite.any():
            self._write(embedding_format, keys[finite], rows[finite])

    def _write(self, embedding_format: EmbeddingFormat, keys: Keys, rows: NDArray[Any]) -> None:
        """Write embeddings to a new file."""
        name = uuid.uuid4().hex + SUFFIX
        write_embeddings(self.folder / name, embedding_format, keys, rows)
        self._register(name, keys)

    def _register(self, name: str, keys: Keys) -> None:
        number = self._files[name] = next(self._numbers)
        entries = np.empty(len(keys), INDEX_ENTRY)
        entries["half"] = keys[:, 0]
        entries["file"] = number
        entries["row"] = np.arange(len(keys))
        self._new_entries.append(entries)

    def _forget(self, name: str) -> None:
        number = self._files.pop(name, None)
        if number is not None:
            self._sort_index()
            is_other = self._index["file"] != number
            self._index = self._index[is_other]
            self._halves = self._halves[is_other]

    def _require_format(self, other: EmbeddingFormat) -> None:
        self.format = self.format or other
        sizes = [f"{one.dimensions} dimensions in {one.dtype}" for one in (self.format, other)]
        if sizes[0] != sizes[1]:
            raise PosirError(
                f"{self.folder}: contains embeddings with {' and with '.join(sizes)}: two "
                "different models under one name and revision. Delete the folder."
            )

    def _open(self, name: str) -> FileContents | None:
        """Open a file; return None if it has disappeared or cannot be read at all."""
        try:
            return read_embeddings(self.folder / name)
        except FileNotFoundError:
            self._forget(name)
        except DamageError as error:
            self._quarantine(name, str(error))
        return None

    def _read_rows(
        self, name: str, keys: Keys, selected: Integers, places: Integers, rows: NDArray[Any]
    ) -> Booleans:
        """Fill the `selected` rows from the places in one file; return which of them are intact."""
        intact = np.zeros(len(selected), np.bool_)
        contents = self._open(name)
        if contents is None:
            return intact
        for start in range(0, len(selected), READ_BATCH_SIZE):
            part = slice(start, start + READ_BATCH_SIZE)
            rows[selected[part]] = contents.rows[places[part]]
            computed = compute_checksums(
                contents.format, keys[selected[part]], rows[selected[part]]
            )
            intact[part] = computed == contents.checksums[places[part]]
        if not intact.all():
            # The intact embeddings are copied into a new file.
            computed = compute_checksums(contents.format, contents.keys, contents.rows)
            whole = computed == contents.checksums
            if whole.any():
                self._write(contents.format, contents.keys[whole], contents.rows[whole])
            self._quarantine(name, f"{whole.sum()} of its {len(whole)} embeddings are intact")
        return intact

    def _quarantine(self, name: str, problem: str) -> None:
        """Rename a damaged file, and warn."""
        logger.warning(
            "%s is damaged: %s; it is renamed to *%s, and what is lost is encoded again",
            self.folder / name,
            problem,
            DAMAGED_SUFFIX,
        )
        self._forget(name)
        # Another process may have done so, or another user may own it.
        with suppress(OSError):
            (self.folder / name).rename(self.folder / (name + DAMAGED_SUFFIX))
