"""Embedding cache: a folder of immutable files with unique names.

Processes on several machines can share the folder without locks, and a killed process leaves no
incomplete files. Corrupt embeddings count as missing.

In contrast, mteb's `CachedEmbeddingWrapper` has a folder per task, so tasks do not share
embeddings. Its keys omit model, revision and prompt. It changes files in place, so only one process
can use it, and it does not detect corruption.
"""

from __future__ import annotations

import json
import logging
import uuid
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from posir_tasks.base.arrays import Booleans, Integers
from posir_tasks.base.errors import PosirError, check_schema
from posir_tasks.base.files import remove_stale_parts, write_atomically

if TYPE_CHECKING:
    from mteb.types import Array

#: Embeddings in the stored format, shape (n, dimensions).
Rows: TypeAlias = NDArray[Any]
#: 128-bit keys of texts, shape (n, 2).
Keys: TypeAlias = NDArray[np.uint64]
#: For types that NumPy or Arrow cannot store: an integer type of the same width.
STORED_TYPES = {"bfloat16": "int16", "bool": "uint8"}


@dataclass(frozen=True)
class EmbeddingFormat:
    """Library, data type and dimensions of embeddings."""

    library: str
    """`numpy` or `torch`."""
    dtype: str
    """Name of the type in NumPy and PyTorch, such as `float32`, or `bfloat16`."""
    dimensions: int

    @classmethod
    def detect(cls, embeddings: object, text_count: int) -> EmbeddingFormat | None:
        """Return the format of embeddings, or None if they are not a dense row per text."""
        if isinstance(embeddings, torch.Tensor) and embeddings.layout == torch.strided:
            library = "torch"
            dtype = str(embeddings.dtype).removeprefix("torch.")
        elif isinstance(embeddings, np.ndarray):
            library = "numpy"
            dtype = embeddings.dtype.name
        else:
            return None
        is_numeric = dtype in STORED_TYPES or (
            dtype.startswith(("float", "int", "uint")) and hasattr(np, dtype)
        )
        if not is_numeric or embeddings.ndim != 2 or embeddings.shape[0] != text_count:
            return None
        return cls(library, dtype, embeddings.shape[1])

    @property
    def checksum(self) -> int:
        """CRC-32 of the format's JSON."""
        return zlib.crc32(json.dumps(asdict(self)).encode())

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """NumPy type of stored rows."""
        return np.dtype(STORED_TYPES.get(self.dtype, self.dtype))

    def to_rows(self, embeddings: Array) -> Rows:
        """Convert embeddings to rows of `stored_dtype`, without a copy if possible."""
        if isinstance(embeddings, torch.Tensor):
            dtype = getattr(torch, self.stored_dtype.name)
            return embeddings.detach().cpu().contiguous().view(dtype).numpy()
        return np.ascontiguousarray(embeddings).view(self.stored_dtype)

    def restore(self, rows: Rows) -> Array:
        """Convert rows of `stored_dtype` back to embeddings, on the CPU."""
        if self.library == "numpy":
            return rows.view(self.dtype)
        return torch.from_numpy(rows).view(getattr(torch, self.dtype))


#: Schema version of the files. Newer versions are rejected.
SCHEMA = 1
#: Key in the Arrow metadata for schema version and embedding format.
METADATA_KEY = b"posir"


class CorruptFileError(Exception):
    """A file is corrupt."""


@dataclass(frozen=True)
class FileContents:
    """The embeddings of n texts in a file, memory-mapped."""

    format: EmbeddingFormat
    keys: Keys
    checksums: NDArray[np.uint32]
    rows: Rows
    """Shape (n, dimensions), of `EmbeddingFormat.stored_dtype`."""


def compute_checksums(
    embedding_format: EmbeddingFormat, keys: Keys, rows: Rows
) -> NDArray[np.uint32]:
    """Return the CRC-32 of each embedding together with its key and format, shape (n,). `keys` has
    shape (n, 2), `rows` shape (n, dimensions).
    """
    start = embedding_format.checksum
    pairs = zip(keys, rows, strict=True)
    return np.fromiter(
        (zlib.crc32(row, zlib.crc32(key, start)) for key, row in pairs), np.uint32, len(keys)
    )


def write_embeddings(file: Path, embedding_format: EmbeddingFormat, keys: Keys, rows: Rows) -> None:
    """Write keys, shape (n, 2), and contiguous stored rows, shape (n, dimensions), to a file."""
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
    with write_atomically(file) as part, pa.ipc.new_file(str(part), batch.schema) as writer:
        writer.write_batch(batch)


def read_embeddings(file: Path) -> FileContents:
    """Memory-map a file of embeddings without verifying their checksums.

    Raises:
        CorruptFileError: The file is corrupt.
        PosirError: The file has a newer schema.
        FileNotFoundError: The file does not exist.
        PermissionError: The file cannot be read.
    """
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(file))).get_batch(0)
        batch.validate()
        header = json.loads(batch.schema.metadata[METADATA_KEY])
        check_schema(header["schema"], SCHEMA, f"{file}: this file of embeddings")
        fields = header["format"]
        embedding_format = EmbeddingFormat(**fields)
        if embedding_format.checksum != header["checksum"]:
            raise CorruptFileError("the checksum of the embedding format does not match")
        values = batch.column("embedding").values.to_numpy()
        return FileContents(
            format=embedding_format,
            keys=np.frombuffer(batch.column("key").buffers()[1], np.uint64, 2 * len(batch)).reshape(
                len(batch), 2
            ),
            checksums=batch.column("checksum").to_numpy(),
            rows=values.view(embedding_format.stored_dtype).reshape(
                len(batch), embedding_format.dimensions
            ),
        )
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{type(error).__name__}: {error}") from error


logger = logging.getLogger(__name__)

SUFFIX = ".arrow"
DAMAGED_SUFFIX = ".damaged"
#: Number of embeddings to read and verify at a time.
READ_BATCH_SIZE = 4_096
#: Number of keys that decide which file is searched first.
SAMPLE_SIZE = 32


class Lookup(NamedTuple):
    """Cached embeddings of n texts."""

    rows: Rows
    """Shape (n, dimensions), uninitialized for missing embeddings."""
    missing: Integers
    """Indices of missing embeddings."""


class FileIndex(NamedTuple):
    """Index of a file by the first half of the keys, in ascending order. The checksum verifies the
    whole key.
    """

    halves: NDArray[np.uint64]
    rows: Integers

    @classmethod
    def build(cls, keys: Keys) -> FileIndex:
        """Build the index from the keys of a file, shape (n, 2)."""
        order = np.argsort(keys[:, 0])
        return cls(keys[order, 0], order)

    def find(self, halves: NDArray[np.uint64]) -> tuple[Integers, Integers]:
        """Return the indices of the halves that are in this file, and their rows in the file."""
        positions = np.searchsorted(self.halves, halves).clip(max=len(self.halves) - 1)
        matches = np.flatnonzero(self.halves[positions] == halves)
        return matches, self.rows[positions[matches]]


class EmbeddingCache:
    """A folder of embeddings for one embedding key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.format: EmbeddingFormat | None = None
        """Format of the embeddings; None if the cache is empty."""
        self._indices: dict[str, FileIndex] = {}
        """Index of each file, by file name."""
        remove_stale_parts(folder)

    def look_up(self, keys: Keys) -> Lookup:
        """Look up embeddings by key, shape (n, 2). Other processes may have added them."""
        for file in sorted(self.folder.glob(f"*{SUFFIX}")):
            contents = None if file.name in self._indices else self._open(file.name)
            if contents:
                self._require_format(contents.format)
                self._indices[file.name] = FileIndex.build(contents.keys)
        if self.format is None:
            return Lookup(np.empty((len(keys), 0)), np.arange(len(keys)))
        rows = np.empty((len(keys), self.format.dimensions), self.format.stored_dtype)
        # Searching in the order of the indices is faster.
        missing = np.argsort(keys[:, 0])
        # Another file may contain the embeddings that are lost in a corrupt file.
        for name, index in self._sort_indices(keys[missing, 0]):
            matches, sources = index.find(keys[missing, 0])
            if matches.size:
                is_intact = self._read_rows(name, keys, missing[matches], sources, rows)
                missing = np.delete(missing, matches[is_intact])
        return Lookup(rows, np.sort(missing))

    def _sort_indices(self, halves: NDArray[np.uint64]) -> list[tuple[str, FileIndex]]:
        """Return file names and indices. First is the file with most of these texts in a sample:
        texts that were encoded together are in the same file.
        """
        sample = halves[:: len(halves) // SAMPLE_SIZE + 1]

        def count_matches(item: tuple[str, FileIndex]) -> int:
            return len(item[1].find(sample)[0])

        return sorted(self._indices.items(), key=count_matches, reverse=True)

    def add(self, keys: Keys, embeddings: Array) -> None:
        """Write embeddings, shape (n, dimensions), with keys, shape (n, 2), to a new file. Skip
        embeddings that are not finite.
        """
        embedding_format = EmbeddingFormat.detect(embeddings, len(keys))
        assert embedding_format is not None
        self._require_format(embedding_format)
        rows = embedding_format.to_rows(embeddings)
        sums = torch.as_tensor(embedding_format.restore(rows)).sum(dim=1, dtype=torch.float32)
        is_finite = sums.isfinite().numpy()
        if is_finite.all():
            self._write(embedding_format, keys, rows)
        elif is_finite.any():
            self._write(embedding_format, keys[is_finite], rows[is_finite])

    def _write(self, embedding_format: EmbeddingFormat, keys: Keys, rows: Rows) -> None:
        name = uuid.uuid4().hex + SUFFIX
        write_embeddings(self.folder / name, embedding_format, keys, rows)
        self._indices[name] = FileIndex.build(keys)

    def _require_format(self, other: EmbeddingFormat) -> None:
        self.format = self.format or other
        sizes = [
            f"{entry.dimensions} dimensions in {entry.dtype}" for entry in (self.format, other)
        ]
        if sizes[0] != sizes[1]:
            raise PosirError(
                f"{self.folder}: contains embeddings with {' and with '.join(sizes)}, from two "
                "models with the same name and revision. Delete the folder."
            )

    def _open(self, name: str) -> FileContents | None:
        """Open a file, or return None if it has disappeared or is corrupt."""
        try:
            return read_embeddings(self.folder / name)
        except FileNotFoundError:
            self._indices.pop(name, None)
        except CorruptFileError as error:
            self._quarantine(name, str(error))
        return None

    def _read_rows(
        self, name: str, keys: Keys, targets: Integers, sources: Integers, rows: Rows
    ) -> Booleans:
        """Copy rows `sources` of a file to `rows[targets]`. Return True for each intact row."""
        intact = np.zeros(len(targets), np.bool_)
        contents = self._open(name)
        if contents is None:
            return intact
        for start in range(0, len(targets), READ_BATCH_SIZE):
            batch = slice(start, start + READ_BATCH_SIZE)
            block = contents.rows[sources[batch]]
            rows[targets[batch]] = block
            checksums = compute_checksums(contents.format, keys[targets[batch]], block)
            intact[batch] = checksums == contents.checksums[sources[batch]]
        if not intact.all():
            # Save the intact embeddings in a new file.
            checksums = compute_checksums(contents.format, contents.keys, contents.rows)
            valid = checksums == contents.checksums
            if valid.any():
                self._write(contents.format, contents.keys[valid], contents.rows[valid])
            self._quarantine(name, f"{valid.sum()} of its {len(valid)} embeddings are intact")
        return intact

    def _quarantine(self, name: str, problem: str) -> None:
        logger.warning(
            "%s is corrupt: %s; it is renamed to *%s, and lost embeddings are encoded again",
            self.folder / name,
            problem,
            DAMAGED_SUFFIX,
        )
        self._indices.pop(name, None)
        # Another process may already have renamed it, or another user may own it.
        with suppress(OSError):
            (self.folder / name).rename(self.folder / (name + DAMAGED_SUFFIX))
