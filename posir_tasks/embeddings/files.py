"""Files of embeddings: Arrow, memory-mapped, written once and whole, with a checksum for every embedding."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from posir_tasks.errors import PosirError
from posir_tasks.files import atomic_write

if TYPE_CHECKING:
    from mteb.types import Array

#: 128 bits that stand for a text; shape (n, 2).
Keys = NDArray[np.uint64]

#: Version of the file's form. A reader refuses a newer one.
SCHEMA = 1
#: Key of the Arrow metadata under which a file says how its embeddings are held.
METADATA_KEY = b"posir"
#: Types that NumPy or Arrow cannot hold as they are, and the integers that have their bits.
AS_BITS = {"bfloat16": "int16", "bool": "uint8"}


class DamageError(Exception):
    """A file is not what was written."""


@dataclass(frozen=True)
class Form:
    """How a model gives its embeddings."""

    holder: str
    """`numpy` or `torch`."""
    dtype: str
    """A name that NumPy and PyTorch have in common, such as `float32`; or `bfloat16`."""
    dimensions: int

    @property
    def checksum(self) -> int:
        """CRC-32 of the form."""
        return zlib.crc32(json.dumps(asdict(self)).encode())

    @property
    def bits(self) -> np.dtype[Any]:
        """The type of the numbers in memory and in the file."""
        return np.dtype(AS_BITS.get(self.dtype, self.dtype))

    def restored(self, rows: NDArray[Any]) -> Array:
        """Return rows of numbers as the model gave them, on the CPU."""
        if self.holder == "numpy":
            return rows.view(self.dtype)
        return torch.from_numpy(rows).view(getattr(torch, self.dtype))


def form_of(embeddings: object, texts: int) -> Form | None:
    """Return the form of embeddings, or None where they are not one dense row of numbers for each text."""
    if isinstance(embeddings, torch.Tensor) and embeddings.layout == torch.strided:
        holder, dtype = "torch", str(embeddings.dtype).removeprefix("torch.")
    elif isinstance(embeddings, np.ndarray):
        holder, dtype = "numpy", embeddings.dtype.name
    else:
        return None
    numbers = dtype in AS_BITS or (dtype.startswith(("float", "int", "uint")) and hasattr(np, dtype))
    if not numbers or embeddings.ndim != 2 or embeddings.shape[0] != texts:
        return None
    return Form(holder, dtype, embeddings.shape[1])


def rows_of(embeddings: Array) -> NDArray[Any]:
    """Return dense embeddings as rows of `Form.bits`; no copy is made of those that are contiguous and on the CPU."""
    if isinstance(embeddings, torch.Tensor):
        tensor = embeddings.detach().cpu().contiguous()
        name = str(tensor.dtype).removeprefix("torch.")
        rows: NDArray[Any] = tensor.view(getattr(torch, AS_BITS.get(name, name))).numpy()
        return rows
    rows = np.ascontiguousarray(embeddings)
    return rows.view(AS_BITS.get(rows.dtype.name, rows.dtype))


@dataclass(frozen=True)
class Contents:
    """What a file holds of n texts; the arrays are views of the mapped file."""

    form: Form
    keys: Keys
    checksums: NDArray[np.uint32]
    """Shape (n,)."""
    rows: NDArray[Any]
    """Shape (n, dimensions), of `Form.bits`."""


def checksums(form: Form, keys: Keys, rows: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the CRC-32 of each embedding with its key and form; keys of shape (n, 2), rows of shape (n, dimensions)."""
    start, pairs = form.checksum, zip(keys, rows, strict=True)
    return np.fromiter((zlib.crc32(row, zlib.crc32(key, start)) for key, row in pairs), np.uint32, len(keys))


def write_embeddings(file: Path, form: Form, keys: Keys, rows: NDArray[Any]) -> None:
    """Write a file of embeddings.

    Args:
        file: Where.
        form: Of the embeddings.
        keys: Shape (n, 2).
        rows: Shape (n, dimensions), contiguous, of `Form.bits`.

    Raises:
        PosirError: There is no room for it.
    """
    columns = {
        "key": pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(keys), [None, pa.py_buffer(np.ascontiguousarray(keys))]),
        "checksum": pa.array(checksums(form, keys, rows)),
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), form.dimensions),
    }
    metadata = {METADATA_KEY: json.dumps({"schema": SCHEMA, "form": asdict(form), "checksum": form.checksum})}
    batch = pa.record_batch(columns).replace_schema_metadata(metadata)
    with atomic_write(file) as part, pa.ipc.new_file(str(part), batch.schema) as writer:
        writer.write_batch(batch)


def read_embeddings(file: Path) -> Contents:
    """Map a file of embeddings; what its checksums say is not looked at.

    Raises:
        DamageError: It is not what `write_embeddings` wrote.
        FileNotFoundError: There is none.
        PermissionError: It may not be read.
        PosirError: It is newer than this program.
    """
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(file))).get_batch(0)
        batch.validate()
        said = json.loads(batch.schema.metadata[METADATA_KEY])
        if said["schema"] > SCHEMA:
            raise PosirError(
                f"{file}: these embeddings have schema {said['schema']}; this version of posir reads up to {SCHEMA}. Update "
                "it: pip install -U posir"
            )
        form = Form(**said["form"])
        if form.checksum != said["checksum"]:
            raise DamageError("the form of its embeddings is not what it was")
        return Contents(
            form=form,
            keys=np.frombuffer(batch.column("key").buffers()[1], np.uint64, 2 * len(batch)).reshape(len(batch), 2),
            checksums=batch.column("checksum").to_numpy(),
            rows=batch.column("embedding").values.to_numpy().view(form.bits).reshape(len(batch), form.dimensions),
        )
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise DamageError(f"{type(error).__name__}: {error}") from error
