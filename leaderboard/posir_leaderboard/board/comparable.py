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

from posir_leaderboard.board.records import BoardRecord, Exclusion, Unranked
from posir_leaderboard.entries import PINS
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.untrusted import GateError, read_json
from posir_tasks.data.data import digest_data
from posir_tasks.data.declared import MINI
from posir_tasks.data.repository import LOCAL
from posir_tasks.tasks.catalog import require_task
from posir_tasks.values.result_schema import DataVersion, identify_data


class Pin(BaseModel):
    """The data on which results of a task are ranked."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    revision: str
    """The revision that was read: a commit of the Hub, or the version of data in a package."""
    digest: Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]
    """Digest of the content of all subsets, as `identify_data` gives it."""


Pins = Mapping[str, Pin]
#: Data whose content is known to this version: those that ship inside the package.
KNOWN_PINS: Pins = {MINI.name: Pin(revision=MINI.revision, digest="d9433e2e4e2f4ea3")}


def read_pins(folder: Path, repository: str | None = None) -> dict[str, Pin] | None:
    """Return the pins of a folder of results, the copy of a repository if one is named; None if it
    has no file of them.
    """
    file = folder / PINS
    if not file.exists() and not file.is_symlink():
        return None
    try:
        return TypeAdapter(dict[str, Pin]).validate_python(read_json(file))
    except (GateError, ValidationError) as error:
        problem = error.problem if isinstance(error, GateError) else summarize_error(error)
        place = str(file)
        removal = f"rm {shlex.quote(place)}"
        if repository:
            place = f"{PINS} of dataset {repository}"
            removal = f"hf repos delete-files {repository} {PINS} --type dataset"
        raise PosirError(
            f"Cannot read {place}: {problem}. Remove the file and pin its tasks again:\n{removal}\n"
            f"posir leaderboard pin TASK --results {shlex.quote(repository or str(folder))}"
        ) from error


def format_pins(pins: Pins) -> str:
    """Return the content of a file of pins, ordered by task."""
    return json.dumps({task: pins[task].model_dump() for task in sorted(pins)}, indent=2) + "\n"


def compute_pin(task_name: str) -> Pin:
    """Read all data of a task, and return the pin of their content."""
    task = require_task(task_name)()
    versions = {}
    for subset in task.metadata.hf_subsets:
        data = task.read_subset(subset)
        versions[subset] = DataVersion(data.revision, **digest_data(data))
    revisions = sorted({version.revision for version in versions.values()})
    return Pin(revision=", ".join(revisions), digest=identify_data(versions))


def separate_data(
    records: Sequence[BoardRecord], pins: Pins, *, submitted: bool
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
    results: dict[str, list[BoardRecord]] = {}
    for record in records:
        if not record.model.published:
            results.setdefault(record.task, []).append(record)
    data = {task: TaskData.of_records(some, pins.get(task)) for task, some in results.items()}
    separated = []
    for record in records:
        of_task = data.get(record.task)
        if of_task and not record.model.published:
            separated.append(of_task.separate(record, submitted=submitted))
        elif of_task and of_task.main and of_task.revisions[of_task.main][0].startswith(LOCAL):
            separated.append(replace(record, exclusion=Exclusion(Unranked.PAPERS_DATA)))
        else:
            separated.append(record)
    return separated


@dataclass(frozen=True)
class TaskData:
    """The data of the results on a task."""

    pin: Pin | None
    revisions: Mapping[str, Sequence[str]]
    """The revisions by the digest of the content, those of the Hub or a package first."""
    main: str | None
    """Digest of the data that keep the task's name; None if it is unknown which of several are the
    task's.
    """

    @classmethod
    def of_records(cls, records: Sequence[BoardRecord], pin: Pin | None) -> TaskData:
        """Return the data of results on a task."""
        contents = {pin.digest: {pin.revision}} if pin else {}
        # Partial results last: those of the revision of complete data are of these.
        for record in sorted(records, key=lambda record: bool(record.partial)):
            revision = record.data_revision
            if not record.partial or not any(revision in some for some in contents.values()):
                contents.setdefault(record.data, set()).add(revision)
        revisions = {
            data: sorted(some, key=lambda revision: (revision.startswith(LOCAL), revision))
            for data, some in sorted(contents.items())
        }
        if pin:
            return cls(pin, revisions, pin.digest)
        public = [data for data, some in revisions.items() if not some[0].startswith(LOCAL)]
        candidates = public if len(public) == 1 else list(revisions)
        return cls(None, revisions, candidates[0] if len(candidates) == 1 else None)

    def separate(self, record: BoardRecord, *, submitted: bool) -> BoardRecord:
        """Return a result with the task and the exclusion that follow from its data."""
        digest: str | None = record.data
        if digest not in self.revisions:
            # A partial result is of the complete data of its revision.
            same = [data for data, some in self.revisions.items() if record.data_revision in some]
            digest = same[0] if len(same) == 1 else self.main
        pin = self.pin
        exclusion = None
        if record.model.paper:
            exclusion = Exclusion(Unranked.PROTOCOL, record.model.paper)
        elif submitted and (pin is None or digest != pin.digest):
            exclusion = Exclusion(Unranked.NOT_PINNED)
        elif pin and digest != pin.digest and record.data_revision == pin.revision:
            exclusion = Exclusion(Unranked.OTHER_CONTENT, shorten_revision(pin.revision))
        if digest is None or digest == self.main:
            return replace(record, exclusion=exclusion)
        names = [shorten_revision(some[0]) for some in self.revisions.values()]
        name = shorten_revision(self.revisions[digest][0])
        if names.count(name) > 1:
            name = f"{name}, content {digest[:8]}"
        return replace(
            record,
            task=f"{record.task} (data {name})",
            base_task=record.task,
            data_name=name,
            exclusion=exclusion,
        )


def shorten_revision(revision: str) -> str:
    """Return the revision of data as it is shown: a commit as 12 digits, a digest of local files as
    8.
    """
    if revision.startswith(f"{LOCAL}-"):
        return revision[: len(LOCAL) + 9]
    return revision[:12]
