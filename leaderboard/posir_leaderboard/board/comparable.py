"""Comparable results of a task: complete, and on the same data by content, whatever their revision.

On a board of submitted results, a maintainer pins the data of each task: were it elected, by number or date of results, one
forged file could remove all others from the ranking. A board of one's own results needs no pins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from posir_leaderboard.board.records import BoardRecord
from posir_leaderboard.entries import PINS
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.files import write_text
from posir_tasks.gate import read_json
from posir_tasks.result_schema import DataVersion, identify_data
from posir_tasks.sources.data import digest_data
from posir_tasks.tasks.catalog import find_task

#: The mark of a result on a task without a pin.
NOT_PINNED = "data not pinned"


class Pin(BaseModel):
    """The data on which results of a task are ranked."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    revision: str
    """The revision that was read: a commit of the Hub, or the version of data in a package."""
    digest: Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]
    """Digest of the content of all subsets, as `identify_data` gives it."""


_PINS: TypeAdapter[dict[str, Pin]] = TypeAdapter(dict[str, Pin])


def read_pins(folder: Path) -> dict[str, Pin] | None:
    """Return the pins of a folder of results; None if it has no file of them."""
    file = folder / PINS
    if not file.exists():
        return None
    try:
        return _PINS.validate_python(read_json(file))
    except ValidationError as error:
        raise PosirError(f"{file}: {summarize_error(error)}. Write it with `posir leaderboard pin TASK`.") from error


def format_pins(pins: Mapping[str, Pin]) -> str:
    """Return the content of a file of pins, ordered by task."""
    return json.dumps({task: pins[task].model_dump() for task in sorted(pins)}, indent=2) + "\n"


def write_pins(folder: Path, pins: Mapping[str, Pin]) -> Path:
    """Write the pins of a folder of results; return the file."""
    write_text(folder / PINS, format_pins(pins))
    return folder / PINS


def compute_pin(task_name: str) -> Pin:
    """Read all data of a task, and return the pin of their content."""
    kind = find_task(task_name)
    if kind is None:
        raise PosirError(f"{task_name}: not a task of posir; `posir tasks` lists them.")
    task, versions = kind(), {}
    for subset in kind.metadata.hf_subsets:
        data = task.read_subset(subset)
        versions[subset] = DataVersion(data.revision, **digest_data(data.corpus, data.queries, data.evidence))
    revisions = sorted({version.revision for version in versions.values()})
    return Pin(revision=", ".join(revisions), digest=identify_data(versions))


def mark_records(records: Sequence[BoardRecord], pins: Mapping[str, Pin] | None) -> list[BoardRecord]:
    """Return results with a mark where they are not on the data that their task is ranked on, published ones among them.

    Without pins, as on a board of one's own results, that is the data of most complete results, those on the Hub's data first.
    """
    if pins is None:
        tasks = {record.task for record in records}
        references = {task: _find_own_reference(record for record in records if record.task == task) for task in tasks}
    else:
        references = {task: (pin.digest, False) for task, pin in pins.items()}

    def mark(record: BoardRecord) -> str:
        reference = references.get(record.task)
        if record.model.published:
            return "the papers' data" if reference and reference[1] else ""
        if record.model.paper:
            return f"protocol {record.model.paper}"
        if reference is None:
            return "" if pins is None else NOT_PINNED
        if record.partial or record.data == reference[0]:
            return ""
        return "local data" if record.local else "other data"

    return [replace(record, mark=mark(record)) for record in records]


def _find_own_reference(records: Iterable[BoardRecord]) -> tuple[str, bool] | None:
    own = [record for record in records if not record.model.published and not record.partial]
    candidates = [record for record in own if not record.local] or own
    dates: dict[str, list[str]] = {}
    for candidate in candidates:
        dates.setdefault(candidate.data, []).append(candidate.detail["date"] or "")
    best = max(dates, key=lambda data: (len(dates[data]), max(dates[data]), data), default=None)
    return None if best is None else (best, all(candidate.local for candidate in candidates))
