"""Find, read and rescore results on disk: mteb's own files, with position profiles in them."""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from posir_tasks.data_versions import DataVersion
from posir_tasks.display.wording import sanitized
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.errors import PosirError, ProfileError, check_schema, summarize_error
from posir_tasks.files import atomic_write, find_files, folder_lock
from posir_tasks.plugin_api.scoring import score_result
from posir_tasks.profile import PositionProfile
from posir_tasks.result_schema import COVERAGE_KEY, PROFILE_KEY, RANKS_KEY, RUN_KEY, SCHEMA, SCORE_NAMES_KEY
from posir_tasks.scores import GROUPS_KEY, ResultValues
from posir_tasks.window_coverage import WindowCoverage

logger = logging.getLogger(__name__)

#: Name of mteb's file about the model, beside its results.
META_FILE = "model_meta.json"
#: Folder below a revision in which mteb saves runs of a model with other settings, each in a folder of its own.
EXPERIMENTS = "experiments"
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
    ranks: DocumentRanks
    coverage: WindowCoverage | None
    """None if the model's window or the documents' lengths are unknown."""
    run: Mapping[str, Any]
    """Record of the data that was read and of the model that was run, as the task made it."""
    file: Path

    @property
    def profile(self) -> PositionProfile:
        """The position profile of the ranks."""
        return self.ranks.profile

    @property
    def data(self) -> DataVersion:
        """The data that was read."""
        return DataVersion.from_run(self.run)

    @property
    def experiment(self) -> str | None:
        """mteb's name of the model's settings; None if they are its own."""
        return find_experiment(self.file)


def find_experiment(file: Path) -> str | None:
    """Return mteb's name of the settings that a result file was made with; None if they are the model's own."""
    folder = file.parent
    return folder.name if folder.parent.name == EXPERIMENTS else None


class ForeignFileError(PosirError):
    """A file among results is not one."""


class NoProfileError(PosirError):
    """There is no result with a position profile."""


class ResultFile(BaseModel):
    """The fields of a result file that are read here."""

    task_name: str
    scores: dict[str, list[dict[str, Any]]]


def read_results(folder: Path) -> list[SubsetResult]:
    """Read every result with a position profile below a folder, ordered by model, task and subset.

    Files that are not results are skipped with a warning.

    Raises:
        NoProfileError: There is no such result.
        PosirError: There is no such folder, or a result cannot be read.
    """
    results: list[SubsetResult] = []
    foreign: list[ForeignFileError] = []
    for file in result_files(folder):
        try:
            results += read_result_file(file)
        except ForeignFileError as error:
            foreign.append(error)
    if not results and foreign:
        raise foreign[0]
    if not results:
        raise NoProfileError(
            f"{folder}: no result with a position profile below it. Create results with `mteb run -t PosIR-Mini -m MODEL "
            f"--output-folder {folder}`; `posir tasks` lists the tasks."
        )
    for skipped in foreign:
        logger.warning("skipped: %s", skipped)
    return sorted(results, key=lambda result: (result.model, result.revision, result.task, result.subset))


def result_files(folder: Path) -> Iterator[Path]:
    """Yield the files of mteb task results below a folder; raise PosirError if there is no such folder."""
    if not folder.is_dir():
        raise PosirError(f"{folder}: no such folder. Give the --output-folder of `mteb run`.")
    for file in find_files(folder, ".json"):
        if file.name != META_FILE and (file.parent / META_FILE).exists():
            yield file


def load_result(file: Path) -> dict[str, Any]:
    """Read a result file.

    Raises:
        ForeignFileError: It is not a task result of mteb.
    """
    try:
        data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        ResultFile.model_validate(data)
    except (ValueError, RecursionError) as error:
        raise ForeignFileError(f"{file}: not a task result of mteb ({summarize_error(error)}). Remove or rerun it.") from error
    return data


def _profile_scores(data: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and scores of each subset that has a profile."""
    for split in data["scores"].values():
        for scores in split:
            if PROFILE_KEY in scores:
                yield str(scores.get("hf_subset", "default")), scores


def read_result_file(file: Path) -> Iterator[SubsetResult]:
    """Yield the results in a file that have a position profile; raise PosirError if it cannot be read."""
    data = sanitize_names(load_result(file))
    model, revision = read_model(file)
    for subset, scores in _profile_scores(data):
        ranks, coverage = read_ranks(file, subset, scores)
        yield SubsetResult(model, revision, data["task_name"], subset, ranks, coverage, scores.get(RUN_KEY, {}), file)


def read_ranks(file: Path, subset: str, scores: Mapping[str, Any]) -> tuple[DocumentRanks, WindowCoverage | None]:
    """Read the ranks by document of a subset's scores, and its window coverage; None if that is unknown.

    Raises:
        ProfileError: One of them is missing, damaged or of a newer schema. Names file and subset.
    """
    try:
        check_schema(scores.get(RUN_KEY, {}).get("schema", SCHEMA), SCHEMA, "The result")
        profile = PositionProfile.from_json(scores.get(PROFILE_KEY, {}))
        if RANKS_KEY not in scores:
            raise ProfileError(f"no field '{RANKS_KEY}', the ranks by document. Run the model again.")
        ranks = DocumentRanks.from_json(scores[RANKS_KEY], profile.axes)
        if ranks.profile != profile:
            raise ProfileError("The position profile and the ranks by document disagree.")
        return ranks, WindowCoverage.from_json(scores.get(COVERAGE_KEY, {}))
    except (PosirError, AttributeError, TypeError) as error:
        raise ProfileError(f"{file}: subset '{subset}': {error}") from error


def sanitize_names(value: Any) -> Any:
    """Return JSON without control characters in keys and texts, which are shown in terminals, tables and pages."""
    if isinstance(value, str):
        return sanitized(value, None)
    if isinstance(value, list):
        return [sanitize_names(item) for item in value]
    if isinstance(value, dict):
        return {sanitized(key, None): sanitize_names(item) for key, item in value.items()}
    return value


def read_model(file: Path) -> tuple[str, str]:
    """Return the model's name and revision, from mteb's `model_meta.json` or, failing that, from the folders' names."""
    try:
        meta = json.loads((file.parent / META_FILE).read_text(encoding="utf-8"))
        names = meta["name"], meta["revision"]
    except (ValueError, KeyError, TypeError):
        names = file.parent.parent.name.replace("__", "/", 1), file.parent.name
    model, revision = (sanitized(str(name), None) for name in names)
    return model, revision


def rescore(file: Path) -> int:
    """Run the plugins over the stored profiles of a result file, and write it in the present form.

    Scores of plugins that are not installed now are left unchanged.

    Returns:
        The number of profiles; a file without any is not written.

    Raises:
        PosirError: The file cannot be read.
    """
    with folder_lock(file.parent):
        data = load_result(file)
        subsets = list(_profile_scores(data))
        for subset, scores in subsets:
            _rescore_subset(file, subset, scores)
        if subsets:
            with atomic_write(file) as part:
                part.write_text(json.dumps(data, indent=2), encoding="utf-8")
    return len(subsets)


def _rescore_subset(file: Path, subset: str, scores: dict[str, Any]) -> None:
    values = ResultValues(*read_ranks(file, subset, scores))
    run = scores.setdefault(RUN_KEY, {})
    old_names = set(run.get(SCORE_NAMES_KEY, ()))
    new = rounded(score_result(values).to_json(values.profile.positions, taken=scores.keys() - old_names))
    for group, kept in scores.get(GROUPS_KEY, {}).items():
        new[GROUPS_KEY][group] = {**kept, **new[GROUPS_KEY].get(group, {})}
    scores.update(new)
    run.update({"schema": SCHEMA, SCORE_NAMES_KEY: sorted(old_names | new.keys())})


def rounded(value: Any) -> Any:
    """Return JSON with all numbers rounded as mteb rounds scores."""
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return value
