"""Read submitted results, which are untrusted files from third parties.

A file is rejected if it is too large or deeply nested, if its numbers overflow, or if a name points
outside its folder or impersonates another model. `validation` checks the scores.
"""

import re
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from posir_tasks.base.errors import PosirError, ProfileError
from posir_tasks.base.records import Record
from posir_tasks.base.untrusted import InputError, read_json
from posir_tasks.base.wording import sanitize
from posir_tasks.models.protocols import find_protocol
from posir_tasks.models.references import ORIGINS, find_origin
from posir_tasks.results import (
    META_FILE,
    NAN_PREFIX,
    SubsetResult,
    explain_invalid,
    find_experiment,
    find_paper,
    parse_values,
    skip_clone,
)
from posir_tasks.tasks.catalog import find_task
from posir_tasks.values.result_schema import (
    DIGEST_KEY,
    PROFILE_KEY,
    PROTOCOL_KEY,
    REVISION_KEY,
    RUN_KEY,
)

#: File with the pins of the data, in the root folder of a results repository.
PINS = "pins.json"
#: Maximum size of a file. A result with 31 subsets, the maximum of any task, takes 0.8 MiB.
MAX_BYTES = 4 * 2**20
#: Maximum length of a model's name and revision; mteb's longest have 89 and 81 characters.
MAX_NAME = 128
#: Earliest date of a result in seconds since 1970: the start of 2020.
MIN_DATE = 1_577_836_800
#: Number of seconds that a submitter's clock may be ahead.
CLOCK_SKEW = 86_400
DIGEST = re.compile(r"[0-9a-f]{16}")
COMMIT = re.compile(r"[0-9a-f]{40}")
#: Names of tasks, subsets, schemes, length buckets and position bins, such as `(0.05, 0.10]`.
Name = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9(\[][A-Za-z0-9 ._,()\[\]-]*$", max_length=MAX_NAME)
]
#: Titles of a profile's axes, such as `Q2: 513 to 1,024 tokens`.
Title = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9(\[][A-Za-z0-9 ._,:()\[\]-]*$", max_length=MAX_NAME)
]


class JsonShape(BaseModel):
    """Required fields of a JSON object; other fields are ignored."""

    model_config = ConfigDict(strict=True)


class TaskResult(JsonShape):
    """mteb's result of a task."""

    task_name: Name
    scores: dict[str, list[Record]]


class ModelMeta(JsonShape):
    """mteb's `model_meta.json`, with a name from the Hub or a variant of such a model."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9 ._+=,()-]*$",
        max_length=MAX_NAME,
    )
    revision: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=MAX_NAME)


class _AxesNames(JsonShape):
    scheme: Name
    lengths: list[Name]
    positions: list[Name]
    position_title: Title
    length_titles: list[Title]


class _ProfileNames(JsonShape):
    axes: _AxesNames


class _SubsetScores(JsonShape):
    hf_subset: Name
    position_run: Record
    position_profile: _ProfileNames


@dataclass(frozen=True)
class EntryProblem:
    """A problem with a result."""

    file: str
    message: str
    subset: str | None = None
    field: str | None = None

    def __str__(self) -> str:
        parts = [sanitize(self.file, 1_000)]
        if self.subset is not None:
            parts.append(f"subset '{sanitize(self.subset)}'")
        if self.field is not None:
            parts.append(f"field '{sanitize(self.field)}'")
        return ": ".join([*parts, self.message])


class EntryError(PosirError):
    """A file cannot be read as an entry."""

    def __init__(
        self, file: Path, message: str, subset: str | None = None, field: str | None = None
    ) -> None:
        self.problem = EntryProblem(str(file), message, subset, field)
        super().__init__(str(self.problem))


@dataclass(frozen=True)
class Entry:
    """One model's result on one task, from one file."""

    model: str
    """Full name, such as `Qwen/Qwen3-Embedding-0.6B`; ASCII without markup, quotes or controls."""
    revision: str
    task: str
    file: Path
    subsets: Sequence[SubsetResult]
    """At least one result, in the order of the file, without duplicate subsets."""
    data: Mapping[str, Any]
    """The content of the file, unchecked except for the fields above."""
    meta: Mapping[str, Any]
    """The submitter's `model_meta.json`, unchecked except for name and revision."""

    @property
    def paper(self) -> str | None:
        """The paper whose protocol the run used, or None for mteb's settings."""
        return find_paper(self.file)

    def make_problem(
        self, message: str, field: str | None = None, subset: str | None = None
    ) -> EntryProblem:
        """Describe a problem with this entry."""
        return EntryProblem(str(self.file), message, subset, field)


def read_entries(folder: Path) -> tuple[list[Entry], list[EntryProblem]]:
    """Read every entry below a folder; return a problem for each unreadable file.

    Results without position profiles are skipped. An entry with PosIR's 31 domains takes about
    0.5 MB; to save memory with thousands of entries, call `read_entry` for each of
    `find_entry_files`. Symbolic links are rejected, so download results from the Hub with
    `local_dir`.
    """
    entries: dict[Path, Entry] = {}
    problems: list[EntryProblem] = []
    for file in find_entry_files(folder):
        try:
            if entry := read_entry(file):
                entries[file] = entry
        except EntryError as error:
            problems.append(error.problem)
    keys = {
        file: (entry.model, entry.revision, entry.task, entry.paper)
        for file, entry in entries.items()
    }
    for duplicates in find_duplicates(keys):
        message = f"has the same model, revision and task as {duplicates[0]}; remove one of the two"
        problems.append(entries[duplicates[-1]].make_problem(message))
        for file in duplicates:
            del entries[file]
    return list(entries.values()), problems


def find_entry_files(folder: Path, *, experiments: bool = False) -> Iterator[Path]:
    """Yield the files below a folder in mteb's layout, `<org>__<model>/<revision>/`, sorted.

    A misplaced file is included if it is next to a `model_meta.json`, so that it is reported.

    Args:
        folder: The folder.
        experiments: If true, yield only runs whose settings are neither the model's own nor a
            paper's protocol; by default, these are skipped.

    Raises:
        PosirError: The folder does not exist.
    """
    if not folder.is_dir():
        raise PosirError(f"{folder}: no such folder. Give the --output-folder of `mteb run`.")
    root = folder.resolve()
    for file in sorted(skip_clone(root, root.rglob("*.json"))):
        is_placed = "__" in file.parent.parent.name or file.with_name(META_FILE).exists()
        is_experiment = find_experiment(file) is not None and find_paper(file) is None
        if file.name != META_FILE and is_placed and is_experiment == experiments:
            yield file


def find_duplicates(keys: Mapping[Path, Hashable]) -> list[list[Path]]:
    """Group files that share a key with another file."""
    files = defaultdict[Hashable, list[Path]](list)
    for file, key in keys.items():
        files[key].append(file)
    return [group for group in files.values() if len(group) > 1]


def read_entry(file: Path) -> Entry | None:
    """Read `<org>__<model>/<revision>/<Task>.json`; None if the task has no position profiles."""
    data = _read_json(TaskResult, file)
    scores = [score for split in data["scores"].values() for score in split]
    if not any(PROFILE_KEY in score for score in scores):
        if find_task(file.stem):
            raise EntryError(
                file,
                "is missing in every subset, so nothing can be checked; run the task again",
                field=PROFILE_KEY,
            )
        return None
    task = data["task_name"]
    if task != file.stem:
        raise EntryError(
            file, f"is {task}; must be the file's name, {sanitize(file.stem)}", field="task_name"
        )
    meta = _read_json(ModelMeta, file.with_name(META_FILE))
    model = meta["name"]
    revision = meta["revision"]
    folder = file.resolve().parents[0 if find_paper(file) is None else 2]
    location = "/".join(folder.parts[-2:])
    # As in mteb's ModelMeta.model_name_as_path.
    expected_location = f"{model.replace('/', '__').replace(' ', '_')}/{revision}"
    if location != expected_location:
        raise EntryError(
            file,
            f"is in {sanitize(location, 300)}, but {META_FILE} names {expected_location}; "
            "move it to its model's folder",
        )
    subsets: dict[str, SubsetResult] = {}
    for score in scores:
        try:
            subset = _SubsetScores.model_validate(score).hf_subset
        except ValidationError as error:
            field, problem = explain_invalid(error)
            raise EntryError(file, problem, score.get("hf_subset"), field) from error
        if subset in subsets:
            raise EntryError(file, "occurs twice; a subset has one result", subset)
        try:
            values = parse_values(subset, score)
        except ProfileError as error:
            field = error.field or PROFILE_KEY
            raise EntryError(file, sanitize(str(error), 500), subset, field) from error
        subsets[subset] = SubsetResult(
            model, revision, task, subset, values, score["position_run"], file
        )
    return Entry(model, revision, task, file, list(subsets.values()), data, meta)


def _read_json(shape: type[JsonShape], file: Path) -> Any:
    """Read untrusted JSON that has the fields of a shape.

    Raises:
        EntryError: The file is a link or too large, or has deep nesting, repeated keys, huge
            numbers, NaN outside nAUC, or invalid fields.
    """
    if file.is_symlink() or not file.is_file():
        raise EntryError(file, "is missing, or is not a regular file; links are not followed")
    try:
        data = read_json(file, max_bytes=MAX_BYTES, nan_prefix=NAN_PREFIX)
        shape.model_validate(data if isinstance(data, dict) else {})
    except InputError as error:
        raise EntryError(file, error.problem) from error
    except ValidationError as error:
        field, problem = explain_invalid(error)
        raise EntryError(file, problem, field=field) from error
    return data


def find_origin_problems(entry: Entry) -> Iterator[EntryProblem]:
    """Yield problems with the origin of a result, such as a private model or local data."""
    if origin := find_origin(entry.model):
        yield entry.make_problem(
            f"is {ORIGINS[origin]}, which nobody else can run; publish the model on the Hub and "
            "evaluate it by its name",
            "name",
        )
    elif entry.revision.startswith("no_revision"):  # mteb's value for a missing revision
        yield entry.make_problem(
            "names no revision; run mteb with a model whose revision is known, such as "
            "--model-revision COMMIT",
            "revision",
        )
    yield from _find_protocol_problems(entry)
    date = entry.data.get("date")
    if not isinstance(date, int | float) or not date >= MIN_DATE:
        yield entry.make_problem(
            f"is {sanitize(date)}; must be the time of the evaluation in seconds since 1970", "date"
        )
    yield from find_future_problems(entry)
    task = find_task(entry.task)
    recorded_revision = entry.data.get("dataset_revision")
    for result in entry.subsets:
        if not (DIGEST.fullmatch(result.data.corpus) and DIGEST.fullmatch(result.data.queries)):
            yield entry.make_problem(
                "must have the digests 'corpus' and 'queries' of 16 hexadecimal digits each; run "
                "the task again",
                f"{RUN_KEY}.{DIGEST_KEY}",
                result.subset,
            )
        if task:
            revision = result.run.get(REVISION_KEY)
            pinned = task.metadata.dataset["revision"]
            if problem := check_revision(revision, recorded_revision, pinned):
                yield entry.make_problem(problem, f"{RUN_KEY}.{REVISION_KEY}", result.subset)


def find_future_problems(entry: Entry) -> Iterator[EntryProblem]:
    """Yield a problem if the date of a result is in the future."""
    date = entry.data.get("date")
    if isinstance(date, int | float) and date > time.time() + CLOCK_SKEW:
        yield entry.make_problem(
            f"is {sanitize(date)}, which is in the future. Run the task again on a computer "
            "whose clock is correct",
            "date",
        )


def _find_protocol_problems(entry: Entry) -> Iterator[EntryProblem]:
    """Yield the subsets that were run with other protocol settings than this version's."""
    if entry.paper is None:
        return
    try:
        settings: Any = find_protocol(entry.paper, entry.model).list_values()
    except PosirError as error:
        yield entry.make_problem(str(error))
        return
    for result in entry.subsets:
        record = result.run.get(PROTOCOL_KEY)
        if not isinstance(record, dict) or record.get("asked") != settings:
            yield entry.make_problem(
                f"does not have the settings of {entry.paper} for {entry.model}; run the model "
                "with POSIR_PROTOCOL and this version of posir",
                f"{RUN_KEY}.{PROTOCOL_KEY}",
                result.subset,
            )


def check_revision(revision: object, recorded_revision: object, pinned: str) -> str | None:
    """Check the revision of the data.

    Args:
        revision: The revision of the evaluated data.
        recorded_revision: The revision that mteb recorded for the task.
        pinned: The task's revision: a commit, the version of a packaged dataset, or a branch. Any
            commit of a branch is valid.

    Returns:
        The problem, or None.
    """
    is_fixed = COMMIT.fullmatch(pinned) or pinned.isdigit()
    is_valid = revision == pinned if is_fixed else COMMIT.fullmatch(str(revision))
    if not is_valid:
        allowed_revision = pinned if is_fixed else "a commit of the dataset on the Hub"
        return (
            f"is {sanitize(revision)}; must be {allowed_revision}. Run the task on the Hub's data, "
            "without POSIR_DATA"
        )
    if recorded_revision not in (pinned, revision):
        recorded = sanitize(recorded_revision)
        return f"is {sanitize(revision)}, but the file's dataset_revision is {recorded}"
    return None
