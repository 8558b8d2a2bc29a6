"""Find, read and rescore results on disk, which are mteb's result files with position profiles."""

import json
import logging
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from posir_tasks.base.errors import PosirError, ProfileError, check_schema, summarize_error
from posir_tasks.base.files import find_files, lock_folder, write_text
from posir_tasks.base.progress import track_items
from posir_tasks.base.records import Fields, Record
from posir_tasks.base.untrusted import InputError, read_json
from posir_tasks.base.wording import sanitize
from posir_tasks.models.command_reference import CommandReference
from posir_tasks.models.protocols import PAPERS
from posir_tasks.plugin_api import score_result
from posir_tasks.values.document_ranks import DocumentRanks, DocumentSet
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.judgments import METRICS, JudgedScores
from posir_tasks.values.profile import PositionProfile
from posir_tasks.values.read_part import ReadKind, ReadPart
from posir_tasks.values.result_schema import (
    JUDGMENTS_KEY,
    KEYS_KEY,
    PROFILE_KEY,
    PROTOCOL_KEY,
    RANKS_KEY,
    READ_KEY,
    READ_RANKS_KEY,
    REVISION_KEY,
    RUN_KEY,
    SCHEMA,
    SCORE_NAMES_KEY,
    TOKENS_READ_SUFFIX,
    DataVersion,
    map_json,
    round_floats,
)
from posir_tasks.values.schemes import PositionScheme, RelativePositions, find_scheme
from posir_tasks.values.scores import GROUPS_KEY, ResultValues
from posir_tasks.values.tokens_read import CorpusRead

logger = logging.getLogger(__name__)

#: mteb's file with model metadata, next to the results.
META_FILE = "model_meta.json"
#: mteb's folder for runs with non-default settings, below the revision.
EXPERIMENTS = "experiments"
#: Prefix of scores that may be NaN: nAUC if a metric is constant over queries.
NAN_PREFIX = "nauc_"
#: Keys of the additive values in a result by position.
VALUE_KEYS = frozenset({PROFILE_KEY, RANKS_KEY, READ_RANKS_KEY, KEYS_KEY})
#: Maximum plausible window. No model reads a tenth of it.
MAX_TOKENS = 10**9


@dataclass(frozen=True)
class StoredResult:
    """Stored values of one model on one subset of a task."""

    model: str
    """Full name, such as `Qwen/Qwen3-Embedding-0.6B`."""
    revision: str
    task: str
    subset: str
    values: Any = field(repr=False)
    run: Fields = field(repr=False)
    """Run record of data and model."""
    file: Path
    corpus: CorpusRead | None = None
    """Truncation of the corpus, for results without positions; None if not stored."""

    @property
    def data(self) -> DataVersion:
        """Version of the data."""
        return DataVersion.from_run(self.run)

    @property
    def reference(self) -> CommandReference:
        """Model, data and settings as command arguments."""
        return CommandReference.from_run(self.model, self.task, self.run)

    @property
    def experiment(self) -> str | None:
        """mteb's name for non-default settings, or None."""
        return find_experiment(self.file)


@dataclass(frozen=True)
class SubsetResult(StoredResult):
    """One model's result by position on one subset of a task."""

    values: ResultValues = field(repr=False)

    @property
    def ranks(self) -> DocumentRanks:
        """Ranks by document."""
        return self.values.ranks

    @property
    def profile(self) -> PositionProfile:
        """Position profile of the ranks."""
        return self.ranks.profile


@dataclass(frozen=True)
class JudgedResult(StoredResult):
    """One model's result on all judged queries of one subset, with or without positions."""

    values: JudgedScores = field(repr=False)


AnyResult = TypeVar("AnyResult", bound=StoredResult)


def find_experiment(file: Path) -> str | None:
    """Return mteb's name for the settings of a result file; None for default settings."""
    folder = file.parent
    return folder.name if folder.parent.name == EXPERIMENTS else None


def find_paper(file: Path) -> str | None:
    """Return the paper whose protocol a result file follows, or None."""
    paper = (find_experiment(file) or "").removeprefix(f"{PROTOCOL_KEY}_")
    return paper if paper in PAPERS else None


class ForeignFileError(PosirError):
    """A file in a results folder is not a result."""


class ResultFile(BaseModel):
    """Validated fields of a result file."""

    task_name: str
    scores: dict[str, list[Record]]


class RunRecord(BaseModel):
    """Validated fields of a run record. Other fields may have any value."""

    model_config = ConfigDict(strict=True)

    schema_version: NonNegativeInt = Field(SCHEMA, alias="schema")
    """Schema version of the result."""
    data_revision: str = ""
    data_digest: dict[str, str] = {}
    tolerated: dict[str, NonNegativeInt] = {}
    missing_subsets: list[str] = []
    plugin_score_names: list[str] = []
    top_k: PositiveInt | None = None


class SubsetRecord(BaseModel):
    """Validated fields of the scores of a subset, besides the additive values."""

    position_run: RunRecord = RunRecord(schema=SCHEMA)
    position_scores: dict[str, Record] = {}


def read_results(folder: Path) -> list[SubsetResult]:
    """Read all results with a position profile below a folder, sorted by model, task and subset.

    Damaged files and other files are skipped with a warning.

    Raises:
        PosirError: The folder does not exist, or contains no readable result with a profile.
    """
    results = [result for result in read_all_results(folder) if isinstance(result, SubsetResult)]
    if not results:
        raise PosirError(
            f"{folder}: all results are of queries without positions. Use `posir report` or "
            "`posir compare`, which accept such results."
        )
    return results


def read_all_results(folder: Path, types: Any = SubsetResult | JudgedResult) -> list[StoredResult]:
    """Read all results of the given types below a folder, by default those that can be compared.
    Order and errors are as in `read_results`.
    """
    results: list[StoredResult] = []
    problems: list[PosirError] = []
    for file in track_items(find_result_files(folder), "Reading results"):
        try:
            results += [result for result in _read_stored(file) if isinstance(result, types)]
        except (ForeignFileError, ProfileError) as error:
            problems.append(error)
    if not results and problems:
        raise problems[0]
    if not results:
        raise PosirError(
            f"{folder}: no result with a position profile below it. Create results with `mteb "
            f"run -t PosIR-Mini -m MODEL --output-folder {shlex.quote(str(folder))}`; `posir "
            "tasks` lists the tasks. `posir score RUN --data DATA` makes results of data without "
            "positions."
        )
    for problem in problems:
        logger.warning("skipped: %s", problem)
    return sorted(
        unify_names(results),
        key=lambda result: (result.model, result.revision, result.task, result.subset),
    )


def unify_names(results: Sequence[AnyResult]) -> list[AnyResult]:
    """Replace model names that differ only in case with the most frequent one; log a warning."""
    counts = Counter(result.model for result in results)
    spellings: dict[str, str] = {}
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        spelling = spellings.setdefault(name.casefold(), name)
        if spelling != name:
            logger.warning("%s: counts as %s, which differs only in case", name, spelling)
    return [replace(result, model=spellings[result.model.casefold()]) for result in results]


def find_result_files(folder: Path) -> list[Path]:
    """List mteb's result files below a folder; raise PosirError if the folder does not exist."""
    if not folder.is_dir():
        raise PosirError(f"{folder}: no such folder. Give the --output-folder of `mteb run`.")
    files = skip_clone(folder, find_files(folder, ".json"))
    return [file for file in files if file.name != META_FILE and (file.parent / META_FILE).exists()]


def skip_clone(folder: Path, files: Iterable[Path]) -> Iterator[Path]:
    """Skip the clone of mteb's results repository that `mteb submit-results` leaves in a folder."""
    clone = folder / "remote"
    has_clone = (clone / ".git").exists()
    return (file for file in files if not (has_clone and file.is_relative_to(clone)))


def sanitize_strings(data: Record) -> Record:
    """Sanitize every key and string of a JSON object."""
    # Checking all strings at once is faster. Few files need any change. JSON escapes control
    # characters with backslashes.
    text = json.dumps(data, ensure_ascii=False)
    if "\\" not in text and sanitize(text, None) == text:
        return data
    safe_data: Record = map_json(
        data, lambda value: sanitize(value, None) if isinstance(value, str) else value
    )
    return safe_data


def load_result(file: Path) -> Record:
    """Read a result file; raise ForeignFileError if it is not an mteb task result."""
    try:
        data: Record = read_json(file, nan_prefix=NAN_PREFIX)
        ResultFile.model_validate(data)
    except (InputError, ValidationError) as error:
        problem = error.problem if isinstance(error, InputError) else summarize_error(error)
        raise ForeignFileError(
            f"{file}: not a task result of mteb ({problem}). Remove or rerun it."
        ) from error
    return data


def _iterate_scores(data: Fields, keys: Set[str] = VALUE_KEYS) -> Iterator[tuple[str, Record]]:
    """Yield name and scores of each subset with any of the keys."""
    for split in data["scores"].values():
        for scores in split:
            # In a damaged result, the profile may be missing, but not all other keys.
            if not keys.isdisjoint(scores):
                yield str(scores.get("hf_subset", "default")), scores


def read_result_file(file: Path) -> Iterator[SubsetResult]:
    """Yield the results with a position profile; raise PosirError if the file is unreadable."""
    return (result for result in _read_stored(file) if isinstance(result, SubsetResult))


def _read_stored(file: Path) -> Iterator[StoredResult]:
    """Yield the subsets with positions or judged queries, then mteb's plain results."""
    # Names are displayed in terminals, tables and pages.
    data = sanitize_strings(load_result(file))
    identity = (*read_model(file), data["task_name"])
    for subset, scores in _iterate_scores(data, VALUE_KEYS | {JUDGMENTS_KEY}):
        run = scores.get(RUN_KEY, {})
        if not VALUE_KEYS.isdisjoint(scores):
            values = read_values(file, subset, scores)
            yield SubsetResult(*identity, subset, values, run, file)
        if JUDGMENTS_KEY in scores:
            with _locate_errors(file, subset):
                judged = JudgedScores.from_json(scores[JUDGMENTS_KEY])
                corpus = CorpusRead.from_json(scores) if READ_KEY in scores else None
            yield JudgedResult(*identity, subset, judged, run, file, corpus)
    # The truncation of mteb's plain results is stored in a separate file.
    run = {REVISION_KEY: data.get("dataset_revision", "unknown")}
    corpus_file = file.with_suffix(TOKENS_READ_SUFFIX)
    corpora = read_json(corpus_file) if corpus_file.is_file() else {}
    for split, entries in data["scores"].items():
        for scores in entries:
            posir_keys = {*VALUE_KEYS, JUDGMENTS_KEY, RUN_KEY}
            if posir_keys.isdisjoint(scores) and scores.keys() >= METRICS.keys():
                name = f"{split}, {scores.get('hf_subset', 'default')}"
                with _locate_errors(corpus_file, name):
                    corpus = CorpusRead.from_json(corpora[name]) if name in corpora else None
                metrics = [scores[key] for key in METRICS]
                yield StoredResult(*identity, name, metrics, run, file, corpus)


@contextmanager
def _locate_errors(file: Path, subset: str) -> Iterator[None]:
    """Prefix ProfileErrors with file, subset and field."""
    try:
        yield
    except ProfileError as error:
        field = f"field '{error.field}': " if error.field else ""
        raise ProfileError(f"{file}: subset '{subset}': {field}{error}", error.field) from error


def read_values(file: Path, subset: str, scores: Fields) -> ResultValues:
    """Parse the additive values of a subset. Errors name file, subset and field."""
    with _locate_errors(file, subset):
        return parse_values(subset, scores)


def explain_invalid(error: ValidationError) -> tuple[str, str]:
    """Return the first missing or invalid field and its problem."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return field, "is missing"
    return field, f"is {sanitize(first['input'])}; {first['msg']}"


def parse_values(subset: str, scores: Fields) -> ResultValues:
    """Parse the additive values in the scores of a subset, and check their consistency.

    Reports, comparisons, leaderboard, submission and rescoring share this check.

    Raises:
        ProfileError: A value is missing, damaged or impossible, or its schema is newer.
    """
    try:
        record = SubsetRecord.model_validate(scores)
        check_schema(record.position_run.schema_version, SCHEMA, "The result")
        values = ResultValues.from_json(scores)
    except ValidationError as error:
        field, problem = explain_invalid(error)
        raise ProfileError(problem, field) from error
    except ProfileError:
        raise
    except (PosirError, AttributeError, TypeError) as error:
        raise ProfileError(str(error)) from error
    for field, problem in _find_problems(subset, values):
        raise ProfileError(problem, field)
    return values


def _find_problems(subset: str, values: ResultValues) -> Iterator[tuple[str, str]]:
    """Yield field and problem of each value that contradicts other values of the subset."""
    axes, read = values.ranks.axes, values.read
    scheme = find_scheme(axes.scheme)
    if scheme and axes.to_json() != scheme.axes.to_json():
        yield f"{PROFILE_KEY}.axes", f"differs from the axes of the scheme {axes.scheme}"
    if (read.tokens or 0) > MAX_TOKENS:
        yield READ_KEY, f"{read.tokens:,} tokens are more than any model reads"
    for ranks in filter(None, (values.ranks, values.places)):
        for part in ranks.sets:
            if part.subset != subset:
                yield RANKS_KEY, f"has ranks of the subset '{part.subset}'"
            if len(part.twelfths) and read.kind is ReadKind.UNKNOWN:
                yield READ_RANKS_KEY, "has positions within the window, which is unknown"
            if _contradicts_bins(part, ranks, scheme):
                yield READ_RANKS_KEY, "has thirds that contradict the position bins"
            if len(part.twelfths) and len(part.thirds):
                yield from _find_position_problems(part, read)


def _contradicts_bins(
    part: DocumentSet, ranks: DocumentRanks, scheme: PositionScheme | None
) -> bool:
    """Return True if the third of any evidence contradicts its position bin."""
    if not isinstance(scheme, RelativePositions) or not len(part.thirds):
        return False
    first_bins = np.array([min(bins, default=0) for _, bins in ranks.cell_keys], np.int64)
    bins = first_bins[part.cells]
    is_before = 3 * (bins + 1) < scheme.bins * part.thirds
    is_after = 3 * bins > scheme.bins * (part.thirds + 1)
    return bool(np.any(is_before | is_after))


def _find_position_problems(part: DocumentSet, read: ReadPart) -> Iterator[tuple[str, str]]:
    """Yield a problem if positions within the window contradict those in whole documents."""
    twelfths = part.twelfths
    thirds = part.thirds
    # Positions in tokens may be in the twelfth next to their position in characters.
    is_elsewhere = (twelfths >= TWELFTHS) | (abs(twelfths - 4 * thirds - 1.5) > 2.5)
    if read.kind is ReadKind.ALL and is_elsewhere.any():
        yield (
            READ_RANKS_KEY,
            "has positions within the window that contradict positions in whole documents",
        )


def read_model(file: Path) -> tuple[str, str]:
    """Read a model's name and revision from `model_meta.json`, or else from the folder names."""
    try:
        meta = read_json(file.parent / META_FILE)
        names = meta["name"], meta["revision"]
    except (InputError, KeyError, TypeError):
        names = file.parent.parent.name.replace("__", "/", 1), file.parent.name
    model, revision = (sanitize(str(name), None) for name in names)
    return model, revision


def read_training_data(file: Path) -> list[str] | None:
    """Read the names of a model's training datasets from `model_meta.json`; None if unknown."""
    with suppress(InputError, KeyError, TypeError):
        names = read_json(file.parent / META_FILE)["training_datasets"]
        return names if names is None else [*map(str, names)]
    return None


def rescore_file(file: Path) -> int:
    """Recompute the plugins' scores in a result file, and rewrite it in the current schema.

    The scores of missing plugins are preserved. A file without profiles is not written.

    Returns:
        The number of profiles.

    Raises:
        PosirError: The file cannot be read.
    """
    with lock_folder(file.parent):
        data = load_result(file)
        subsets = list(_iterate_scores(data))
        for subset, scores in subsets:
            values = read_values(file, subset, scores)
            run = scores.setdefault(RUN_KEY, {})
            old_names = set(run.get(SCORE_NAMES_KEY, ()))
            new_scores = round_floats(
                score_result(values).to_json(
                    values.profile.positions, reserved_keys=scores.keys() - old_names
                )
            )
            for group, old_scores in scores.get(GROUPS_KEY, {}).items():
                new_scores[GROUPS_KEY][group] = old_scores | new_scores[GROUPS_KEY].get(group, {})
            scores.update(new_scores)
            run.update({"schema": SCHEMA, SCORE_NAMES_KEY: sorted(old_names | new_scores.keys())})
        if subsets:
            write_text(file, json.dumps(data, indent=2))
    return len(subsets)
