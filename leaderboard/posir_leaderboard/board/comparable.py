"""Comparable results of a task: complete, and on the same data by content, whatever their revision.

The data of a task are pinned, never elected: were they elected, by number or date of results, one
forged file could remove all others from the ranking. The content of packaged data is known; a
maintainer of submitted results pins that of other tasks. On a board of one's own results, several
data of a task have a table each.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from posir_leaderboard.board.records import BoardRecord
from posir_leaderboard.entries import PINS
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.files import write_text
from posir_tasks.base.untrusted import GateError, read_json
from posir_tasks.data.data import digest_data
from posir_tasks.data.declared import MINI
from posir_tasks.data.repository import LOCAL
from posir_tasks.tasks.catalog import find_task
from posir_tasks.values.result_schema import DataVersion, identify_data

#: The mark of a submitted result on data without a pin.
NOT_PINNED = "data not pinned"
#: The mark of a result on data that have the revision of a pin, but not its content.
OTHER_CONTENT = "not the content of revision %s"


class Pin(BaseModel):
    """The data on which results of a task are ranked."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    revision: str
    """The revision that was read: a commit of the Hub, or the version of data in a package."""
    digest: Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]
    """Digest of the content of all subsets, as `identify_data` gives it."""


#: Data whose content is known to this version: those that ship inside the package.
KNOWN_PINS: Mapping[str, Pin] = {MINI.name: Pin(revision=MINI.revision, digest="d9433e2e4e2f4ea3")}
_PINS: TypeAdapter[dict[str, Pin]] = TypeAdapter(dict[str, Pin])


def read_pins(folder: Path, repository: str | None = None) -> dict[str, Pin] | None:
    """Return the pins of a folder of results, the copy of a repository if one is named; None if it
    has no file of them.
    """
    file = folder / PINS
    if not file.exists() and not file.is_symlink():
        return None
    try:
        return _PINS.validate_python(read_json(file))
    except (GateError, ValidationError) as error:
        problem = error.problem if isinstance(error, GateError) else summarize_error(error)
        place = str(file)
        removal = f"rm {shlex.quote(place)}"
        if repository:
            place = f"{PINS} of dataset {repository}"
            removal = f"hf repos delete-files {repository} {PINS} --type dataset"
        source = shlex.quote(repository or str(folder))
        raise PosirError(
            f"Cannot read {place}: {problem}. Remove the file and pin its tasks again:\n{removal}\n"
            f"posir leaderboard pin TASK --results {source}"
        ) from error


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
    task = kind()
    versions = {}
    for subset in kind.metadata.hf_subsets:
        data = task.read_subset(subset)
        digests = digest_data(data.corpus, data.queries, data.evidence)
        versions[subset] = DataVersion(data.revision, **digests)
    revisions = sorted({version.revision for version in versions.values()})
    return Pin(revision=", ".join(revisions), digest=identify_data(versions))


def separate_data(
    records: Sequence[BoardRecord], pins: Mapping[str, Pin], *, submitted: bool
) -> list[BoardRecord]:
    """Return records in which results on different data of a task are of tasks of their own, so
    that each has its own table.

    The data of a pin keep the task's name, and so do the only data of a task without a pin. No
    number or date of results decides between several data: then each is named by its revision, and
    by its content where revisions are equal. Published results keep the task's name.

    Args:
        records: Results and published results, at most one for each model and task.
        pins: The data of each task whose content is known.
        submitted: Whether results of others are ranked on pinned data alone.
    """
    by_task: dict[str, list[BoardRecord]] = {}
    for record in records:
        if not record.model.published:
            by_task.setdefault(record.task, []).append(record)
    data = {task: TaskData.of_records(some, pins.get(task)) for task, some in by_task.items()}
    return [
        _separate(record, data[record.task], pins.get(record.task), submitted=submitted)
        if record.task in data
        else record
        for record in records
    ]


@dataclass(frozen=True)
class TaskData:
    """The data of the results on a task."""

    revisions: Mapping[str, Sequence[str]]
    """The revisions by the digest of the content, those of the Hub or a package first."""
    main: str | None
    """Digest of the data that keep the task's name; None if it is unknown which of several are the
    task's.
    """

    @classmethod
    def of_records(cls, records: Sequence[BoardRecord], pin: Pin | None) -> TaskData:
        """Return the data of results on a task."""
        contents: dict[str, set[str]] = {}
        if pin:
            contents[pin.digest] = {pin.revision}
        # Partial results last: those of the revision of complete data are of these.
        for record in sorted(records, key=lambda record: bool(record.partial)):
            revision = record.data_revision
            if not record.partial or not any(revision in some for some in contents.values()):
                contents.setdefault(record.data, set()).add(revision)
        revisions = {
            data: sorted(some, key=_order_revisions) for data, some in sorted(contents.items())
        }
        public = [data for data, some in revisions.items() if not some[0].startswith(LOCAL)]
        candidates = public if len(public) == 1 else list(revisions)
        main = candidates[0] if len(candidates) == 1 else None
        return cls(revisions, pin.digest if pin else main)

    @property
    def is_local(self) -> bool:
        """Whether the data that keep the task's name are of a local folder."""
        if self.main is None:
            return False
        return self.revisions[self.main][0].startswith(LOCAL)

    def find(self, record: BoardRecord) -> str | None:
        """Return the digest of a result's data; of a partial result that of the complete data of
        its revision.
        """
        if not record.partial or record.data in self.revisions:
            return record.data
        same = [data for data, some in self.revisions.items() if record.data_revision in some]
        return same[0] if len(same) == 1 else self.main

    def name(self, data: str) -> str:
        """Return a name of data that no other data of the task has: the revision, with the content
        if revisions are equal.
        """
        short = [shorten_revision(some[0]) for some in self.revisions.values()]
        name = shorten_revision(self.revisions[data][0])
        return name if short.count(name) == 1 else f"{name}, content {data[:8]}"


def _order_revisions(revision: str) -> tuple[bool, str]:
    return revision.startswith(LOCAL), revision


def shorten_revision(revision: str) -> str:
    """Return the revision of data as it is shown: a commit as 12 digits, a digest of local files as
    8.
    """
    if revision.startswith(f"{LOCAL}-"):
        return revision[: len(LOCAL) + 9]
    return revision[:12]


def _separate(
    record: BoardRecord, data: TaskData, pin: Pin | None, *, submitted: bool
) -> BoardRecord:
    """Return a record with the task and the mark that follow from the data of all results on its
    task.
    """
    if record.model.published:
        return replace(record, mark="the papers' data") if data.is_local else record
    digest = data.find(record)
    mark = ""
    if record.model.paper:
        mark = f"protocol {record.model.paper}"
    elif submitted and (pin is None or digest != pin.digest):
        mark = NOT_PINNED
    elif pin and digest != pin.digest and record.data_revision == pin.revision:
        mark = OTHER_CONTENT % shorten_revision(pin.revision)
    if digest is None or digest == data.main:
        return replace(record, mark=mark)
    name = data.name(digest)
    task = f"{record.task} (data {name})"
    return replace(record, task=task, base_task=record.task, data_name=name, mark=mark)
