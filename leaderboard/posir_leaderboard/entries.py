"""Entries: result files that others wrote, read as data that nobody vouches for.

A file is refused if it could do harm by being read or shown: by its size or nesting, by numbers that overflow, by a name that
leaves its folder or poses as another model's. Whether its scores are right is the business of `validation`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posir_tasks.errors import PosirError
from posir_tasks.evidence import Integers
from posir_tasks.results import META_FILE, PROFILE_KEY, RUN_KEY, SubsetResult, profile_and_coverage
from posir_tasks.tasks.catalogue import builtin_tasks

#: Largest file that is read. A result with 31 subsets, the most that a task has, takes 0.8 MiB.
MAX_BYTES = 4 * 2**20
#: Deepest nesting that is read. A result needs 7.
MAX_DEPTH = 16
#: Largest integer that is read, in a score; JSON readers of other languages hold numbers as doubles.
MAX_INTEGER = 2**53
#: Largest count of a cell that is read; the task with the most queries, SQuAD-PosQ, has 92,749.
MAX_COUNT = 10**7
#: Longest model name and longest revision. mteb's longest have 89 and 81 characters; both are names of folders.
MAX_NAME = 128
#: mteb writes NaN for its nAUC where the metric is the same for every query; no other number may be NaN.
MAY_BE_NAN = "nauc_"

#: `<org>/<model>`: what the Hub allows and, for variants of a model, what mteb's registry has besides: spaces, `(=,+)`.
MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9 ._+=,()-]*")
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: Names of tasks, subsets, schemes, length buckets and position bins, such as `(0.05, 0.10]`.
NAME = re.compile(r"[A-Za-z0-9(\[][A-Za-z0-9 ._,()\[\]-]*")


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a result."""

    file: str
    what: str
    """What is wrong, what is allowed, what to do."""
    subset: str | None = None
    field: str | None = None

    def __str__(self) -> str:
        subset = f": subset '{shown(self.subset)}'" if self.subset is not None else ""
        field = f": field '{shown(self.field)}'" if self.field is not None else ""
        return f"{shown(self.file, 1_000)}{subset}{field}: {self.what}"


class EntryError(PosirError):
    """A file is no entry. Names the file and, where it has one, the field."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True)
class Entry:
    """One model's result on one task, from one file."""

    model: str
    """Full name, such as `Qwen/Qwen3-Embedding-0.6B`: ASCII without markup, quotes or control characters."""
    revision: str
    task: str
    file: Path
    subsets: tuple[SubsetResult, ...]
    """In the order of the file; at least one, each subset once."""
    scores: tuple[Mapping[str, Any], ...]
    """What the file says of each subset, in the order of `subsets`: every score, and what was read and run."""
    dataset_revision: object
    """mteb's own note of the dataset's revision, as the file has it."""
    meta: Mapping[str, Any]
    """mteb's `model_meta.json`: what the submitter says of the model. Of its fields only name and revision are checked."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Model, revision and task: what no two entries share."""
        return self.model, self.revision, self.task


def read_entries(folder: Path) -> tuple[list[Entry], list[Problem]]:
    """Read every entry below a folder, and name every file that is none.

    Results of other tasks, which have no position profile, are passed over. All entries are held at once, some 0.5 MB each
    for PosIR's 31 domains; a caller with thousands goes over `entry_files` and reads one after the other with `read_entry`.

    Args:
        folder: The output folder of `mteb run`, or any folder above or in it. Symbolic links are refused, so what comes from
            the Hub is to be downloaded with `local_dir`.

    Raises:
        PosirError: There is no such folder.
    """
    entries: list[Entry] = []
    problems: list[Problem] = []
    for file in entry_files(folder):
        try:
            entry = read_entry(file)
        except EntryError as error:
            problems.append(error.problem)
            continue
        if entry:
            entries.append(entry)
    doubles = _doubles(entries)
    return [entry for entry in entries if entry.key not in doubles], problems + list(doubles.values())


def entry_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that lie where mteb puts results, `<org>__<model>/<revision>/`, in order.

    A file elsewhere counts if a `model_meta.json` lies beside it, so that a result in the wrong place is not passed over.

    Raises:
        PosirError: There is no such folder.
    """
    if not folder.is_dir():
        raise PosirError(f"{folder}: no such folder. Give the --output-folder of `mteb run`.")
    for file in sorted(folder.resolve().rglob("*.json")):
        if file.name != META_FILE and ("__" in file.parent.parent.name or file.with_name(META_FILE).exists()):
            yield file


def _doubles(entries: Iterable[Entry]) -> dict[tuple[str, str, str], Problem]:
    """Return a problem for each model, revision and task that several files claim."""
    first: dict[tuple[str, str, str], Entry] = {}
    doubles = {}
    for entry in entries:
        before = first.setdefault(entry.key, entry)
        if before is not entry:
            what = f"is of the same model, revision and task as {before.file}; remove one of the two"
            doubles[entry.key] = Problem(str(entry.file), what)
    return doubles


def read_entry(file: Path) -> Entry | None:
    """Read one result file; None if it is of a task without position profiles.

    Args:
        file: `<org>__<model>/<revision>/<Task>.json`, with mteb's `model_meta.json` beside it.

    Raises:
        EntryError: The file or the `model_meta.json` beside it is not what may be read; names the first reason.
    """
    data = read_json(file)
    if not isinstance(data, dict) or not isinstance(data.get("scores"), dict):
        raise _error(file, "is not a task result of mteb: it has no object 'scores'")
    named = list(_named_scores(file, data["scores"]))
    if not any(PROFILE_KEY in scores for _, scores in named):
        if file.stem in builtin_tasks():
            raise _error(file, "is missing in every subset, so nothing can be checked; run the task again", field=PROFILE_KEY)
        return None
    task = _allowed(NAME, data.get("task_name"))
    if task is None or task != file.stem:
        what = f"is {shown(data.get('task_name'))}; must be the file's name, {shown(file.stem)}"
        raise _error(file, what, field="task_name")
    meta = read_json(file.with_name(META_FILE))
    model, revision = _model_and_revision(file, meta)
    subsets = tuple(_subset_result(file, model, revision, task, name, scores) for name, scores in named)
    scores = tuple(scores for _, scores in named)
    return Entry(model, revision, task, file, subsets, scores, data.get("dataset_revision"), meta)


def _named_scores(file: Path, splits: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the scores of each subset with its name.

    Raises:
        EntryError: They are not what mteb writes, or a subset is there twice.
    """
    seen = set()
    for split, listed in splits.items():
        for scores in listed if isinstance(listed, list) else [listed]:
            name = _allowed(NAME, scores.get("hf_subset")) if isinstance(scores, dict) else None
            if name is None:
                raise _error(file, "must be a list of objects, each with the name of its 'hf_subset'", field=f"scores.{split}")
            if name in seen:
                raise _error(file, "is there twice; a subset has one result", subset=name)
            seen.add(name)
            yield name, scores


def _model_and_revision(file: Path, meta: Any) -> tuple[str, str]:
    """Return what `model_meta.json` names, which must be what the folders are called.

    Raises:
        EntryError: A name is missing, is not allowed, or is not the folder's.
    """
    beside, folder = file.with_name(META_FILE), file.resolve().parent
    said = meta if isinstance(meta, dict) else {}
    name, revision = _allowed(MODEL, said.get("name")), _allowed(REVISION, said.get("revision"))
    if name is None:
        allowed = (
            f"<org>/<model> of letters, digits and ._- (after the slash also space, +=, and parentheses), {MAX_NAME} at most"
        )
        raise _error(beside, f"is {shown(said.get('name'))}; allowed is {allowed}", field="name")
    if revision is None:
        allowed = f"letters, digits and ._-, {MAX_NAME} at most"
        raise _error(beside, f"is {shown(said.get('revision'))}; allowed are {allowed}", field="revision")
    wanted = f"{name.replace('/', '__').replace(' ', '_')}/{revision}"  # as mteb's ModelMeta.model_name_as_path
    if f"{folder.parent.name}/{folder.name}" != wanted:
        found = shown(f"{folder.parent.name}/{folder.name}", 300)
        raise _error(file, f"lies in {found}, but {META_FILE} says that it is of {wanted}; a result lies in its model's folder")
    return name, revision


def _subset_result(file: Path, model: str, revision: str, task: str, subset: str, scores: Mapping[str, Any]) -> SubsetResult:
    run = scores.get(RUN_KEY)
    if not isinstance(run, dict):
        raise _error(file, "is missing; it says what was read and run", subset, RUN_KEY)
    try:
        profile, reach = profile_and_coverage(file, subset, scores)
    except PosirError as error:
        what = shown(str(error).removeprefix(f"{file}: subset '{subset}': "), 500)
        raise _error(file, what, subset, PROFILE_KEY) from error
    counted: list[Integers] = [profile.counts, profile.totals]
    if reach:
        counted += [reach.starts_beyond, reach.ends_beyond, reach.seen.counts, reach.seen.totals]
    if any(np.any((counts < 0) | (counts > MAX_COUNT)) for counts in counted):
        raise _error(file, f"has a count that is not between 0 and {MAX_COUNT:,}", subset, PROFILE_KEY)
    if None in (_allowed(NAME, name) for name in (profile.scheme, *profile.lengths, *profile.positions)):
        raise _error(file, "has a scheme, length or position with a name that is not allowed", subset, PROFILE_KEY)
    return SubsetResult(model, revision, task, subset, profile, reach, run, file)


def read_json(file: Path) -> Any:
    """Read JSON that somebody else wrote.

    Raises:
        EntryError: It is no file of its own but a link, it is too large or too deep, it is not UTF-8 or not JSON, a key is
            twice in an object, or a number is NaN (but for nAUC), infinite or too large.
    """
    if file.is_symlink() or not file.is_file():
        raise _error(file, "is missing, or is no file of its own; links are not followed")
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise _error(file, f"is larger than {MAX_BYTES // 2**20} MiB, the most that is read")
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except (OSError, ValueError, RecursionError) as error:
        raise _error(file, f"is not readable JSON in UTF-8 ({type(error).__name__}: {shown(str(error), 200)})") from error
    _check_values(file, data, ())
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs.

    Raises:
        ValueError: A key is there twice; readers differ in which of the two they take.
    """
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key '{shown(key)}' is twice in one object")
        found[key] = value
    return found


def _check_values(file: Path, value: Any, path: tuple[str, ...]) -> None:
    """Check nesting and numbers.

    Raises:
        EntryError: A value is nested too deeply, or a number is NaN (but for nAUC), infinite or too large.
    """
    if isinstance(value, dict | list):
        if len(path) >= MAX_DEPTH:
            raise _error(file, f"is nested more than {MAX_DEPTH} deep", field=".".join(path))
        for key, item in value.items() if isinstance(value, dict) else (("[]", item) for item in value):
            _check_values(file, item, (*path, key))
    elif isinstance(value, float) and not math.isfinite(value):
        if not (math.isnan(value) and "".join(path[-1:]).startswith(MAY_BE_NAN)):
            raise _error(file, f"is {value}; numbers are finite, and null is what is not defined", field=".".join(path))
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise _error(file, "is an integer beyond 2 ** 53", field=".".join(path))


def shown(value: object, limit: int = 80) -> str:
    """Return somebody else's value as it may stand in a message: in one line, printable and not too long.

    Terminals obey control characters, and continuous integration obeys lines.
    """
    text = value if isinstance(value, str) else repr(value)
    safe = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text[: limit + 1])
    return safe if len(safe) <= limit else safe[: limit - 3] + "..."


def _allowed(pattern: re.Pattern[str], value: Any) -> str | None:
    """Return a name if it is one that is allowed."""
    return value if isinstance(value, str) and len(value) <= MAX_NAME and pattern.fullmatch(value) else None


def _error(file: Path, what: str, subset: str | None = None, field: str | None = None) -> EntryError:
    return EntryError(Problem(str(file), what, subset, field))
