"""Scored results, kept by what they were scored from: a result that has not changed is not scored again."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

from posir_leaderboard.board.records import Record
from posir_leaderboard.entries import MAX_BYTES
from posir_tasks.files import atomic_write
from posir_tasks.plugin_api.manager import loaded_plugins
from posir_tasks.results import META_FILE

#: Of the form of a record. To be raised whenever a record is made in another way.
FORM = 1


class RecordCache:
    """A folder of records, each named by the digest of its files and of the programs that scored them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        plugins = [(plugin.name, plugin.origin, plugin.problem) for plugin in loaded_plugins().found]
        self._programs = repr((FORM, version("posir"), version("numpy"), version("scipy"), plugins)).encode()

    def place(self, file: Path) -> Path | None:
        """Return where the record of a result file is kept; None where the file is none that may be read."""
        parts = (file, file.with_name(META_FILE))
        if any(part.is_symlink() or not part.is_file() or part.stat().st_size > MAX_BYTES for part in parts):
            return None
        digest = hashlib.sha256(self._programs)
        for part in parts:
            digest.update(hashlib.sha256(part.read_bytes()).digest())
        # The file's own name and its folders' belong to what is checked when it is read.
        digest.update("/".join(file.parts[-3:]).encode("utf-8", "surrogateescape"))
        return self.folder / f"{digest.hexdigest()}.json"

    def get(self, place: Path) -> Record | None:
        """Return a kept record; None where there is none, or none that can be read."""
        try:
            return Record.from_json(json.loads(place.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, place: Path, record: Record) -> None:
        """Keep a record."""
        with atomic_write(place) as part:
            part.write_text(json.dumps(record.to_json()), encoding="utf-8")
