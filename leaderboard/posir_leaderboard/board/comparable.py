"""Decide which results of a task are comparable: complete, and on data with the same content.

Submitted results are ranked only on data that a maintainer pinned or that are part of a package. A
majority vote would let one forged file exclude all others. Without submissions, each version of the
data gets a table.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from posir_leaderboard.board.records import BoardRecord, Exclusion, Unranked
from posir_leaderboard.entries import PINS
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.untrusted import InputError, read_json
from posir_tasks.data.declared import MINI
from posir_tasks.data.repository import LOCAL, combine_revisions
from posir_tasks.tasks.catalog import require_task
from posir_tasks.values.result_schema import DataVersion, identify_data


class Pin(BaseModel):
    """The data on which the results of a task are ranked."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    revision: str
    """A commit on the Hub, or the version of packaged data."""
    digest: Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]
    """Digest of the content of all subsets, from `identify_data`."""


Pins = Mapping[str, Pin]
#: Pins of the data in this package.
KNOWN_PINS: Pins = {MINI.name: Pin(revision=MINI.revision, digest="d9433e2e4e2f4ea3")}


def read_pins(folder: Path, repository: str | None = None) -> dict[str, Pin] | None:
    """Read the pins of a folder of results.

    Args:
        folder: The folder.
        repository: Name of the dataset repository, if the folder is a copy of one.

    Returns:
        The pins by task, or None if there is no file with pins.

    Raises:
        PosirError: The file is damaged.
    """
    file = folder / PINS
    if not file.exists() and not file.is_symlink():
        return None
    try:
        return TypeAdapter(dict[str, Pin]).validate_python(read_json(file))
    except (InputError, ValidationError) as error:
        problem = error.problem if isinstance(error, InputError) else summarize_error(error)
        source = str(file)
        removal = f"rm {shlex.quote(source)}"
        if repository:
            source = f"{PINS} of dataset {repository}"
            removal = f"hf repos delete-files {repository} {PINS} --type dataset"
        raise PosirError(
            f"Cannot read {source}: {problem}. Remove the file and pin its tasks again:\n"
            f"{removal}\n"
            f"posir leaderboard pin TASK --results {shlex.quote(repository or str(folder))}"
        ) from error


def format_pins(pins: Pins) -> str:
    """Format pins as the content of a file, sorted by task."""
    return json.dumps({task: pins[task].model_dump() for task in sorted(pins)}, indent=2) + "\n"


def compute_pin(task_name: str) -> Pin:
    """Pin the content of a task's data, all of which are read."""
    # Importing polars is slow, and a build does not need it.
    from posir_tasks.data.data import digest_data

    task = require_task(task_name)()
    versions = {}
    for subset in task.metadata.hf_subsets:
        data = task.read_subset(subset)
        versions[subset] = DataVersion(data.revision, **digest_data(data))
    revision = combine_revisions(version.revision for version in versions.values())
    return Pin(revision=revision, digest=identify_data(versions))


def separate_data(
    records: Sequence[BoardRecord], pins: Pins, *, submitted: bool
) -> list[BoardRecord]:
    """Rename the task of results on other data, so that each version of the data gets a table.

    The name stays the same on pinned data, and if there is no pin but only one version. Other
    versions are named by their revision and, if revisions are equal, by their content. Published
    results keep the task's name.

    Args:
        records: Results and published results, at most one for each model and task.
        pins: Pins by task.
        submitted: If true, only results on pinned data are ranked.
    """
    results = defaultdict[str, list[BoardRecord]](list)
    for record in records:
        if not record.model.published:
            results[record.task].append(record)
    data = {
        task: TaskData.from_records(task_records, pins.get(task))
        for task, task_records in results.items()
    }
    separate_records = []
    for record in records:
        task_data = data.get(record.task)
        if task_data and not record.model.published:
            record = task_data.separate(record, submitted=submitted)
        elif task_data and task_data.is_local:
            record = replace(record, exclusion=Exclusion(Unranked.PAPERS_DATA))
        separate_records.append(record)
    return separate_records


@dataclass(frozen=True)
class TaskData:
    """The versions of the data behind a task's results."""

    pin: Pin | None
    revisions: Mapping[str, Sequence[str]]
    """Revisions by digest of the content, local ones last."""
    main: str | None
    """Digest of the data that keep the task's name; None if ambiguous."""

    @property
    def is_local(self) -> bool:
        """True if the data that keep the task's name come from a local folder."""
        return self.main is not None and self.revisions[self.main][0].startswith(LOCAL)

    @classmethod
    def from_records(cls, records: Sequence[BoardRecord], pin: Pin | None) -> TaskData:
        """Collect the data of results on a task."""
        contents = {pin.digest: {pin.revision}} if pin else {}
        # A partial result counts as a result on the complete data of its revision.
        for record in sorted(records, key=lambda record: bool(record.partial)):
            revision = record.data_revision
            has_complete = any(revision in names for names in contents.values())
            if not record.partial or not has_complete:
                contents.setdefault(record.data, set()).add(revision)
        revisions = {
            data: sorted(names, key=lambda name: (name.startswith(LOCAL), name))
            for data, names in sorted(contents.items())
        }
        if pin:
            return cls(pin, revisions, pin.digest)
        public = [data for data, names in revisions.items() if not names[0].startswith(LOCAL)]
        candidates = public if len(public) == 1 else list(revisions)
        return cls(None, revisions, candidates[0] if len(candidates) == 1 else None)

    def separate(self, record: BoardRecord, *, submitted: bool) -> BoardRecord:
        """Set a result's task and exclusion according to its data."""
        digest: str | None = record.data
        if digest not in self.revisions:
            revision = record.data_revision
            same = [data for data, names in self.revisions.items() if revision in names]
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
        names = [shorten_revision(first) for first, *_ in self.revisions.values()]
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
    """Shorten a commit to 12 digits, and a digest of local files to 8."""
    if revision.startswith(f"{LOCAL}-"):
        return revision[: len(LOCAL) + 9]
    return revision[:12]
