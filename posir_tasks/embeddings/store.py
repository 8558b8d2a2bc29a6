"""Kept embeddings: a folder of immutable files, each under a name of its own.

So any number of processes, on any number of machines that share the folder, read and write without waiting for each other, and
one that is killed leaves nothing half-written. A damaged embedding counts as absent.

mteb's `CachedEmbeddingWrapper` does not serve here: its folders are per task, so tasks share nothing; its keys know neither
model nor revision nor prompt; its files are changed in place, by one process at a time; damage is not seen.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from posir_tasks.embeddings.files import (
    Contents,
    DamageError,
    Form,
    Keys,
    checksums,
    form_of,
    read_embeddings,
    rows_of,
    write_embeddings,
)
from posir_tasks.errors import PosirError
from posir_tasks.evidence import Integers
from posir_tasks.files import remove_stale_parts

if TYPE_CHECKING:
    from mteb.types import Array

logger = logging.getLogger(__name__)

SUFFIX, DAMAGED = ".arrow", ".damaged"
#: Embeddings read and checked at a time.
BLOCK = 4_096


class Index:
    """Finds numbers in many arrays of numbers, by binary search.

    The arrays are merged into sorted ones, each at least twice as long as the next, so that there are few of them and each
    number is sorted few times.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Keys, Integers]] = []

    def add(self, numbers: NDArray[np.uint64], places: Integers) -> None:
        """Note where numbers stand; both of shape (n,)."""
        while self._runs and len(self._runs[-1][0]) < 2 * len(numbers):
            others, their_places = self._runs.pop()
            numbers, places = np.concatenate([others, numbers]), np.concatenate([their_places, places])
        order = np.argsort(numbers, kind="stable")
        self._runs.append((numbers[order], places[order]))

    def find(self, numbers: NDArray[np.uint64]) -> Integers:
        """Return the place of each number, -1 for one that was not added; shape (n,)."""
        found = np.full(len(numbers), -1)
        for known, places in self._runs:
            at = np.searchsorted(known, numbers)
            hit = at < len(known)
            hit[hit] = known[at[hit]] == numbers[hit]
            found[hit] = places[at[hit]]
        return found


@dataclass(frozen=True)
class Kept:
    """What a store has of the embeddings of n texts."""

    rows: NDArray[Any]
    """Shape (n, dimensions); the missing ones are not filled."""
    missing: Integers
    """Indices of those that it does not have."""


class EmbeddingCache:
    """Embeddings by text: those of one model with one prompt and one set of settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.form: Form | None = None
        """Of its embeddings; None while it has none."""
        self._files: list[str] = []
        self._index = Index()
        self._outdated = False
        """Whether a file is gone since it was noted."""
        remove_stale_parts(folder)

    def get(self, keys: Keys) -> Kept:
        """Return the embeddings of texts, those included that other processes have added by now.

        Args:
            keys: Shape (n, 2).

        Raises:
            PosirError: The store is newer than this program, or holds embeddings of different forms.
        """
        self._see_new_files()
        if self.form is None:
            return Kept(np.empty((len(keys), 0)), np.arange(len(keys)))
        rows = np.empty((len(keys), self.form.dimensions), self.form.bits)
        places = self._index.find(keys[:, 0])
        for number in np.unique(places[places >= 0] >> 32).tolist():
            wanted = np.flatnonzero(places >> 32 == number)
            places[wanted[~self._read(self._files[number], keys, places, wanted, rows)]] = -1
        return Kept(rows, np.flatnonzero(places < 0))

    def add(self, keys: Keys, embeddings: Array) -> None:
        """Keep the dense embeddings of texts, in one new file; those that are not finite are not kept.

        Args:
            keys: Shape (n, 2).
            embeddings: Shape (n, dimensions).

        Raises:
            PosirError: There is no room, or the store holds embeddings of another form.
        """
        form = form_of(embeddings, len(keys))
        assert form is not None
        self._agree_on(form)
        rows = rows_of(embeddings)
        finite = torch.as_tensor(form.restored(rows)).sum(dim=1, dtype=torch.float32).isfinite().numpy()
        if finite.all():
            self._write(form, keys, rows)
        elif finite.any():
            self._write(form, keys[finite], rows[finite])

    def _write(self, form: Form, keys: Keys, rows: NDArray[Any]) -> None:
        name = uuid.uuid4().hex + SUFFIX
        write_embeddings(self.folder / name, form, keys, rows)
        self._note(name, keys)

    def _note(self, name: str, keys: Keys) -> None:
        # Half a key finds the place; the checksum, which is of the whole key, says whether it is the right one.
        self._index.add(keys[:, 0], (len(self._files) << 32) + np.arange(len(keys)))
        self._files.append(name)

    def _see_new_files(self) -> None:
        if self._outdated:
            self._files, self._index, self._outdated = [], Index(), False
        if not self.folder.is_dir():
            return
        known = set(self._files)
        for file in sorted(self.folder.glob(f"*{SUFFIX}")):
            if file.name not in known:
                contents = self._open(file.name)
                if contents is not None:
                    self._agree_on(contents.form)
                    self._note(file.name, contents.keys)

    def _agree_on(self, form: Form) -> None:
        if self.form is None:
            self.form = form
        if (form.dtype, form.dimensions) != (self.form.dtype, self.form.dimensions):
            raise PosirError(
                f"{self.folder}: holds embeddings of {self.form.dimensions} dimensions in {self.form.dtype}, and of "
                f"{form.dimensions} in {form.dtype}. Under one name and revision that is not one model. Remove the folder."
            )

    def _open(self, name: str) -> Contents | None:
        """Open a file; None, if it is gone or damaged as a whole."""
        try:
            return read_embeddings(self.folder / name)
        except FileNotFoundError:
            self._outdated = True
            return None
        except DamageError as error:
            logger.warning(
                "%s is damaged (%s): set aside as *%s; its texts are encoded anew", self.folder / name, error, DAMAGED
            )
            self._set_aside(name)
            return None

    def _read(self, name: str, keys: Keys, places: Integers, wanted: Integers, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Fill in the `wanted` rows from one file; return which of them are intact."""
        intact = np.zeros(len(wanted), np.bool_)
        contents = self._open(name)
        if contents is None:
            return intact
        for start in range(0, len(wanted), BLOCK):
            part = wanted[start : start + BLOCK]
            at = places[part] & 0xFFFFFFFF
            rows[part] = contents.rows[at]
            intact[start : start + BLOCK] = checksums(contents.form, keys[part], rows[part]) == contents.checksums[at]
        if not intact.all():
            self._mend(name, contents)
        return intact

    def _mend(self, name: str, contents: Contents) -> None:
        """Write the intact embeddings of a file into a new one."""
        intact = checksums(contents.form, contents.keys, contents.rows) == contents.checksums
        logger.warning(
            "%s is damaged: %d of its %d embeddings are kept, the file is set aside as *%s; the others are encoded anew",
            self.folder / name, intact.sum(), len(intact), DAMAGED,
        )  # fmt: skip
        if intact.any():
            self._write(contents.form, contents.keys[intact], contents.rows[intact])
        self._set_aside(name)

    def _set_aside(self, name: str) -> None:
        file = self.folder / name
        try:
            file.rename(file.with_name(name + DAMAGED))
        except OSError as error:
            logger.debug("%s is not set aside (%s): another process has done it, or another user has to", file, error)
        self._outdated = True
