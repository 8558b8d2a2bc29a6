"""Results on disk: found, read, and rescored. The files are mteb's own; what is ours in them is the profile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posir_tasks.errors import PosirError, ProfileError
from posir_tasks.files import atomic_write, folder_lock
from posir_tasks.plugin_api.manager import plugin_scores
from posir_tasks.profile import PositionProfile
from posir_tasks.window_coverage import WindowCoverage

#: Names under which a result holds the profile, what the model's window leaves of it, and what was read and run.
PROFILE_KEY, COVERAGE_KEY, RUN_KEY = "position_profile", "position_reach", "position_run"
#: Name in the run's record of the names that plugins gave.
SCORED_KEY = "plugin_scores"
#: What mteb writes beside the results of a model.
META_FILE = "model_meta.json"
#: mteb rounds scores to this many decimals when it writes them.
DECIMALS = 6


@dataclass(frozen=True)
class SubsetResult:
    """One model's result on one subset of a task."""

    model: str
    """Full name, such as `Qwen/Qwen3-Embedding-0.6B`."""
    revision: str
    task: str
    subset: str
    profile: PositionProfile
    reach: WindowCoverage | None
    run: Mapping[str, Any]
    """What was read and run, as the task recorded it."""
    file: Path


def read_results(folder: Path) -> list[SubsetResult]:
    """Read every result with a position profile below a folder, ordered by model, task and subset.

    Raises:
        PosirError: There is no such folder, or no such result in it, or one cannot be read.
    """
    results = [result for file in result_files(folder) for result in _subset_results(file)]
    if not results:
        raise PosirError(
            f"{folder}: no result with a position profile below it. Results are made by `mteb run -t PosIR-Mini -m MODEL "
            f"--output-folder {folder}`; `posir tasks` lists the tasks."
        )
    return sorted(results, key=lambda result: (result.model, result.revision, result.task, result.subset))


def result_files(folder: Path) -> Iterator[Path]:
    """Yield the files of mteb task results below a folder.

    Raises:
        PosirError: There is no such folder.
    """
    if not folder.is_dir():
        raise PosirError(f"{folder}: no such folder. Give the --output-folder of `mteb run`.")
    for file in sorted(folder.rglob("*.json")):
        if file.name != META_FILE and (file.parent / META_FILE).exists():
            yield file


def load_result(file: Path) -> dict[str, Any]:
    """Read a result file.

    Raises:
        PosirError: It is not a task result of mteb.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        valid = isinstance(data["task_name"], str) and all(
            isinstance(scores, dict) for split in data["scores"].values() for scores in split
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PosirError(f"{file}: not a task result of mteb ({type(error).__name__}: {error}). Remove or rerun it.") from error
    if not valid:
        raise PosirError(f"{file}: not a task result of mteb (fields 'task_name' and 'scores'). Remove or rerun it.")
    return dict(data)


def _subset_results(file: Path) -> Iterator[SubsetResult]:
    data = load_result(file)
    model, revision = _model_of(file)
    for split in data["scores"].values():
        for scores in split:
            if PROFILE_KEY in scores:
                subset = str(scores.get("hf_subset", "default"))
                profile, reach = profile_and_coverage(file, subset, scores)
                yield SubsetResult(model, revision, data["task_name"], subset, profile, reach, scores.get(RUN_KEY, {}), file)


def profile_and_coverage(file: Path, subset: str, scores: Mapping[str, Any]) -> tuple[PositionProfile, WindowCoverage | None]:
    """Read the profile of a subset's scores, and what the model's window leaves of it; None where the window is unknown.

    Raises:
        ProfileError: One of them is missing, damaged or newer than this program. Names file and subset.
    """
    try:
        return PositionProfile.from_json(scores.get(PROFILE_KEY, {})), WindowCoverage.from_json(scores.get(COVERAGE_KEY, {}))
    except ProfileError as error:
        raise ProfileError(f"{file}: subset '{subset}': {error}") from error


def _model_of(file: Path) -> tuple[str, str]:
    """Return the model's name and revision, from mteb's `model_meta.json` or else from the folders' names."""
    try:
        meta = json.loads((file.parent / META_FILE).read_text(encoding="utf-8"))
        return str(meta["name"]), str(meta["revision"])
    except (ValueError, KeyError, TypeError):
        return file.parent.parent.name.replace("__", "/", 1), file.parent.name


def rescore(file: Path) -> int:
    """Run the plugins over the stored profiles of a result file, and write it anew.

    Scores of plugins that are not installed now are kept as they are.

    Returns:
        The number of profiles; a file without any is not written.

    Raises:
        PosirError: The file cannot be read.
    """
    with folder_lock(file.parent):
        data = load_result(file)
        rescored = _rescore_subsets(file, data)
        if rescored:
            with atomic_write(file) as part:
                part.write_text(json.dumps(data, indent=2), encoding="utf-8")
    return rescored


def _rescore_subsets(file: Path, data: dict[str, Any]) -> int:
    rescored = 0
    for split in data["scores"].values():
        for scores in split:
            if PROFILE_KEY in scores:
                profile, reach = profile_and_coverage(file, str(scores.get("hf_subset")), scores)
                before = set(scores.get(RUN_KEY, {}).get(SCORED_KEY, ()))
                given = rounded(plugin_scores(profile, reach, taken=scores.keys() - before))
                scores.update(given)
                scores.setdefault(RUN_KEY, {})[SCORED_KEY] = sorted(before | given.keys())
                rescored += 1
    return rescored


def rounded(value: Any) -> Any:
    """Return JSON with its numbers rounded as mteb rounds scores, at every depth."""
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return value
