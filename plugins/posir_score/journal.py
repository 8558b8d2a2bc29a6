"""The answered queries of an unfinished run, one per line: each is on disk before the next is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pydantic import BaseModel, ValidationError

from posir_tasks.errors import check_schema
from posir_tasks.files import atomic_write, explain_disk_full

if TYPE_CHECKING:
    from types import TracebackType

#: Schema version of the file. A newer one is refused.
SCHEMA = 1


class Header(BaseModel):
    """The first line."""

    schema_version: int


class Answer(BaseModel):
    """The answer of a retriever to a query."""

    subset: str
    query: str
    hits: dict[str, float]
    """A score by id, best first."""
    duplicates: int = 0
    """Hits that repeat an id."""


class Journal:
    """A file of answers, open for more; a line that a killed process left incomplete is dropped."""

    def __init__(self, file: Path) -> None:
        """Open or create the file; raise PosirError if that fails, or a newer version of posir wrote it."""
        self.file = file
        self.answers = {(answer.subset, answer.query): answer for answer in _read(file)} if file.exists() else {}
        # The rows are written anew, since a new line must not follow an incomplete one.
        with atomic_write(file) as part:
            lines = [Header(schema_version=SCHEMA), *self.answers.values()]
            part.write_text("".join(f"{line.model_dump_json()}\n" for line in lines), encoding="utf-8")
        self._opened: TextIO = file.open("a", encoding="utf-8")

    def add(self, answer: Answer) -> None:
        """Add an answer, which a kill of the process right after it cannot lose."""
        with explain_disk_full(self.file):
            self._opened.write(f"{answer.model_dump_json()}\n")
            self._opened.flush()
        self.answers[answer.subset, answer.query] = answer

    def remove(self) -> None:
        """Delete the file: all queries are answered, and a later run asks anew."""
        self._opened.close()
        self.file.unlink(missing_ok=True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._opened.close()


def _read(file: Path) -> Iterator[Answer]:
    """Yield the answers of a file as far as its lines are complete."""
    header, *lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    try:
        check_schema(Header.model_validate_json(header).schema_version, SCHEMA, f"{file}: this journal")
        for line in lines:
            yield Answer.model_validate(json.loads(line))
    except (ValidationError, ValueError):
        return
