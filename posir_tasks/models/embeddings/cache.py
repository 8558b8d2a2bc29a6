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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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

    def restore(self, rows: NDArray[Any]) -> Array:
        """Return rows of `stored_dtype` as the model returned them, on the CPU."""
        if self.library == "numpy":
            return rows.view(self.dtype)
        return torch.from_numpy(rows).view(getattr(torch, self.dtype))


def to_rows(embeddings: Array) -> NDArray[Any]:
    """Return dense embeddings as rows of `EmbeddingFormat.stored_dtype`, without a copy if
    contiguous and on the CPU.
    """
    if isinstance(embeddings, torch.Tensor):
        tensor = embeddings.detach().cpu().contiguous()
        name = str(tensor.dtype).removeprefix("torch.")
        rows: NDArray[Any] = tensor.view(getattr(torch, STORED_AS.get(name, name))).numpy()
        return rows
    rows = np.ascontiguousarray(embeddings)
    return rows.view(STORED_AS.get(rows.dtype.name, rows.dtype))


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
        self._files: list[str] = []
        # Half a key of each embedding, sorted, and its location: file and row.
        self._keys = np.empty(0, np.uint64)
        self._locations = np.empty(0, np.int64)
        # Whether a registered file has disappeared.
        self._outdated = False
        remove_stale_parts(folder)

    def look_up(self, keys: Keys) -> Lookup:
        """Return the cached embeddings of texts by keys of shape (n, 2), including those added by
        other processes.
        """
        if self._outdated:
            self._files = []
            self._outdated = False
            self._keys = self._keys[:0]
            self._locations = self._locations[:0]
        registered = set(self._files)
        added = dict[str, Keys]()
        for file in sorted(self.folder.glob(f"*{SUFFIX}")):
            if file.name not in registered and (contents := self._open(file.name)):
                self._require_format(contents.format)
                added[file.name] = contents.keys
        self._register(added)
        if self.format is None or not len(self._keys):
            return Lookup(np.empty((len(keys), 0)), np.arange(len(keys)))
        rows = np.empty((len(keys), self.format.dimensions), self.format.stored_dtype)
        places = np.searchsorted(self._keys, keys[:, 0]).clip(max=len(self._keys) - 1)
        locations = np.where(self._keys[places] == keys[:, 0], self._locations[places], -1)
        for number in np.unique(locations[locations >= 0] >> 32).tolist():
            selected = np.flatnonzero(locations >> 32 == number)
            intact = self._read_rows(self._files[number], keys, locations, selected, rows)
            locations[selected[~intact]] = -1
        return Lookup(rows, np.flatnonzero(locations < 0))

    def add(self, keys: Keys, embeddings: Array) -> None:
        """Write the finite ones of n dense embeddings, shape (n, dimensions), to a new file, by
        keys of shape (n, 2).
        """
        embedding_format = EmbeddingFormat.detect(embeddings, len(keys))
        assert embedding_format is not None
        self._require_format(embedding_format)
        rows = to_rows(embeddings)
        finite = (
            torch.as_tensor(embedding_format.restore(rows))
            .sum(dim=1, dtype=torch.float32)
            .isfinite()
            .numpy()
        )
        # A selection is a copy.
        selected: Any = slice(None) if finite.all() else finite
        if finite.any():
            self._write(embedding_format, keys[selected], rows[selected])

    def _write(self, embedding_format: EmbeddingFormat, keys: Keys, rows: NDArray[Any]) -> None:
        name = uuid.uuid4().hex + SUFFIX
        write_embeddings(self.folder / name, embedding_format, keys, rows)
        self._register({name: keys})

    def _register(self, added: Mapping[str, Keys]) -> None:
        """Add files with their keys to the index."""
        if not added:
            return
        # Half a key finds the location; the checksum covers the full key and confirms it.
        rows = [
            (len(self._files) + number << 32) + np.arange(len(keys))
            for number, keys in enumerate(added.values())
        ]
        joined = np.concatenate([self._keys, *(keys[:, 0] for keys in added.values())])
        order = np.argsort(joined, kind="stable")
        self._keys = joined[order]
        self._locations = np.concatenate([self._locations, *rows])[order]
        self._files += added

    def _require_format(self, other: EmbeddingFormat) -> None:
        known_format = self.format = self.format or other
        if (other.dtype, other.dimensions) != (known_format.dtype, known_format.dimensions):
            raise PosirError(
                f"{self.folder}: contains embeddings with {known_format.dimensions} dimensions "
                f"in {known_format.dtype} and with {other.dimensions} in {other.dtype}: two "
                "different models under one name and revision. Delete the folder."
            )

    def _open(self, name: str) -> FileContents | None:
        """Open a file; return None if it has disappeared or cannot be read at all."""
        try:
            return read_embeddings(self.folder / name)
        except FileNotFoundError:
            self._outdated = True
            return None
        except DamageError as error:
            logger.warning(
                "%s is damaged (%s): renamed to *%s; its texts are encoded again",
                self.folder / name,
                error,
                DAMAGED_SUFFIX,
            )
            self._quarantine(name)
            return None

    def _read_rows(
        self, name: str, keys: Keys, locations: Integers, selected: Integers, rows: NDArray[Any]
    ) -> Booleans:
        """Fill the `selected` rows from one file; return which of them are intact."""
        intact = np.zeros(len(selected), np.bool_)
        contents = self._open(name)
        if contents is None:
            return intact
        for start in range(0, len(selected), READ_BATCH_SIZE):
            batch = selected[start : start + READ_BATCH_SIZE]
            at = locations[batch] & 0xFFFFFFFF
            rows[batch] = contents.rows[at]
            computed = compute_checksums(contents.format, keys[batch], rows[batch])
            intact[start : start + READ_BATCH_SIZE] = computed == contents.checksums[at]
        if not intact.all():
            # The intact embeddings are copied into a new file.
            whole = (
                compute_checksums(contents.format, contents.keys, contents.rows)
                == contents.checksums
            )
            logger.warning(
                "%s is damaged: %d of its %d embeddings are intact, the others are encoded "
                "again; the file is renamed to *%s",
                self.folder / name,
                whole.sum(),
                len(whole),
                DAMAGED_SUFFIX,
            )
            if whole.any():
                self._write(contents.format, contents.keys[whole], contents.rows[whole])
            self._quarantine(name)
        return intact

    def _quarantine(self, name: str) -> None:
        file = self.folder / name
        try:
            file.rename(file.with_name(name + DAMAGED_SUFFIX))
        except OSError as error:
            logger.debug(
                "%s was not renamed (%s): another process has done so, or another user owns it",
                file,
                error,
            )
        self._outdated = True
