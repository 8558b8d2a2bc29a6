"""Building a site from results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from posir_leaderboard.board.comparable import KNOWN_PINS, NOT_PINNED, Pin, read_pins, separate_data
from posir_leaderboard.board.folder import check_output_folder, write_site
from posir_leaderboard.board.groups import add_data_tables, builtin_groups
from posir_leaderboard.board.published import (
    add_query_counts,
    collect_query_counts,
    published_records,
    read_statistics,
)
from posir_leaderboard.board.records import (
    AS_SUBMITTED,
    REPRODUCED,
    BoardRecord,
    read_board_model,
    score_entry,
)
from posir_leaderboard.board.site import (
    PREVIEW,
    bundle_table_library,
    cached_chart_library,
    draw_preview,
    render_site,
)
from posir_leaderboard.entries import (
    MAX_BYTES,
    EntryError,
    EntryProblem,
    entry_files,
    find_duplicates,
    future_problems,
    origin_problems,
    read_entry,
)
from posir_leaderboard.identity import identify_models
from posir_tasks.base.digests import digest, digest_file
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import atomic_write
from posir_tasks.base.private_names import MODEL_REGISTRY
from posir_tasks.base.progress import progress
from posir_tasks.plugin_api import loaded_plugins
from posir_tasks.results import META_FILE

#: Number of results from which worker processes score them: each takes three seconds to start, and
#: a result one or two.
PARALLEL_FROM = 8
#: Largest difference in nDCG@10 between two runs of one model, on other hardware or with other
#: libraries.
TOLERANCE = 0.002


@dataclass(frozen=True)
class BuildSummary:
    """The outcome of a build."""

    models: int
    results: int
    scored: int
    """Results that were not cached by an earlier build."""
    changed_files: int
    problems: tuple[EntryProblem, ...]
    """One for each file that is excluded."""
    unranked: tuple[str, ...]
    """Model, task and reason of each result that is shown, but not ranked."""
    unchecked: tuple[str, ...]
    """Models that could not be looked up, with the reason."""
    separate: tuple[str, ...] = ()
    """Names of the tables of results on other data than those that keep a task's name."""
    unpinned: tuple[str, ...] = ()
    """Tasks of submitted results whose data have no pin."""
    kept: tuple[str, ...] = ()
    """Files of the earlier site that someone has changed, which are kept."""


def build_site(
    results: Path,
    output: Path,
    cache: Path,
    repository: str | None = None,
    url: str = "",
    statistics: Sequence[Path] = (),
) -> BuildSummary:
    """Build the site of every readable result below a folder, if there is any, and of the published
    results.

    `cache` holds records and libraries; the dataset repository, if known, takes submissions; `url`
    is where the site will be; `statistics` are files with the query counts of tasks, for the
    published results.
    """
    check_output_folder(output)
    counts = read_statistics(statistics)
    own_pins = read_pins(results, repository)
    pins = {**KNOWN_PINS, **(own_pins or {})}
    submitted = repository is not None or own_pins is not None
    # The maintainers' own runs of submitted models.
    runs = results.resolve() / REPRODUCED
    files = list(entry_files(results))
    repeated = [file for file in files if file.is_relative_to(runs)]
    records_cache = RecordCache(cache / "records")
    identities = cache / "models" if submitted else None
    submissions = [file for file in files if not file.is_relative_to(runs)]
    records, problems, scored = score_results(submissions, records_cache, identities)
    unchecked: list[str] = []
    if identities:
        reproduced = score_results(repeated, records_cache)[0]
        records, unchecked = _describe_submitted(records, reproduced, identities)
    separated = separate_data([*records, *published_records()], pins, submitted=submitted)
    records = [record for record in separated if not record.model.published]
    published = [record for record in separated if record.model.published]
    everything = [*records, *add_query_counts(published, collect_query_counts(records) | counts)]
    libraries = {
        "datatables": bundle_table_library(),
        "vega": cached_chart_library(cache / "libraries"),
    }
    tasks = {record.base_task or record.task for record in records}
    groups = add_data_tables(builtin_groups(tasks), records)
    site = render_site(everything, groups, libraries, repository, url)
    site[PREVIEW] = draw_preview(groups, everything)
    change = write_site(site, output)
    unranked = [
        f"{record.model.name}, {record.task}: {record.mark or record.partial}"
        for record in records
        if not record.comparable
    ]
    return BuildSummary(
        models=len({record.model.id for record in everything}),
        results=len(records),
        scored=scored,
        changed_files=change.number,
        problems=tuple(problems),
        unranked=tuple(sorted(unranked)),
        unchecked=tuple(unchecked),
        separate=tuple(sorted({record.task for record in records if record.base_task})),
        unpinned=_list_unpinned(records, pins),
        kept=change.kept,
    )


def _list_unpinned(records: Iterable[BoardRecord], pins: Mapping[str, Pin]) -> tuple[str, ...]:
    """Return the tasks of results that are not ranked since the data of the task have no pin, in
    order.
    """
    tasks = {record.base_task or record.task for record in records if record.mark == NOT_PINNED}
    return tuple(sorted(tasks - pins.keys()))


def _describe_submitted(
    records: Sequence[BoardRecord], repeated: Sequence[BoardRecord], cache: Path
) -> tuple[list[BoardRecord], list[str]]:
    """Return submitted results with what the registry or the Hub says of their models, and the
    models that were not looked up.

    A result is `reproduced` where the maintainers' own run of the model on the same data has the
    same nDCG@10, up to `TOLERANCE`; else `as submitted`.
    """
    identities = identify_models((record.model.key for record in records), cache)
    runs = {(record.model.id, record.task, record.data): record for record in repeated}
    described = []
    for record in records:
        name, revision = record.model.key
        model = read_board_model(name, revision, identities[name, revision].meta)
        run = runs.get((record.model.id, record.task, record.data))
        standing = REPRODUCED if run and _agree(run, record) else AS_SUBMITTED
        described.append(replace(record, model=model, standing=standing))
    unchecked = [
        f"{name}, {revision}: {identity.unchecked}"
        for (name, revision), identity in identities.items()
        if identity.unchecked
    ]
    return described, unchecked


def _agree(run: BoardRecord, record: BoardRecord) -> bool:
    """Return whether two runs of a model have the same nDCG@10."""
    first = run.rows[0].ndcg_at_10
    second = record.rows[0].ndcg_at_10
    if first is None or second is None:
        return False
    return abs(first.value - second.value) <= TOLERANCE


def score_results(
    files: Sequence[Path], cache: RecordCache, identities: Path | None = None
) -> tuple[list[BoardRecord], list[EntryProblem], int]:
    """Return the records of result files, a problem for each unusable file, and the number of newly
    scored files.

    If several files claim a model and task, the one that stays is spelled as mteb's registry or the
    Hub spells its model; if that is none or several, all are excluded, since it is unknown which
    one is correct. `identities` is the cache of what is known of submitted models, whose results
    must say on which data and when they were made; None for one's own.
    """
    submitted = identities is not None
    paths = {file: cache.path_for(file, submitted) for file in files}
    outcomes: dict[Path, BoardRecord | EntryProblem | None] = {
        file: cache.load(path) for file, path in paths.items() if path
    }
    uncached = [file for file in files if not outcomes.get(file)]
    scored = zip(progress(uncached, "Scoring"), _score_files(uncached, submitted), strict=True)
    for file, outcome in scored:
        outcomes[file] = outcome
        path = paths[file]
        if path and isinstance(outcome, BoardRecord):
            cache.save(path, outcome)
    records = {
        file: outcome for file in files if isinstance(outcome := outcomes.get(file), BoardRecord)
    }
    newly_scored = sum(file in records for file in uncached)
    problems = [outcome for outcome in outcomes.values() if isinstance(outcome, EntryProblem)]
    models = [record.model.key for record in records.values()]
    identified = identify_models(models, identities) if identities else {}
    for file, record in records.items():
        identity = identified.get(record.model.key)
        if identity and identity.problem:
            message = f"{record.model.name} {identity.problem}"
            problems.append(EntryProblem(str(file), message, field="name"))
    for problem in problems:
        records.pop(Path(problem.file), None)
    registered = MODEL_REGISTRY.resolve()
    keys = {file: (record.model.id, record.task) for file, record in records.items()}
    for same in find_duplicates(keys):
        right = []
        for file in same:
            model = records[file].model
            identity = identified.get(model.key)
            if model.name in registered or (identity and identity.meta):
                right.append(file)
        for problem in _exclude_duplicates(same, right):
            problems.append(problem)
            del records[Path(problem.file)]
    return list(records.values()), problems, newly_scored


def _exclude_duplicates(same: Sequence[Path], right: Sequence[Path]) -> Iterator[EntryProblem]:
    """Yield a problem for each file of one model and task, unless it alone is spelled as the
    registry or the Hub has it.
    """
    for file in same:
        if len(right) == 1 and file not in right:
            message = (
                f"is of the same model and task as {right[0]}, whose name is spelled as it is known"
            )
            yield EntryProblem(str(file), message, field="name")
        elif len(right) != 1:
            other = same[1] if file == same[0] else same[0]
            message = (
                f"is of the same model and task as {other} (case does not count); both are "
                "excluded until one is removed"
            )
            yield EntryProblem(str(file), message)


def _score_files(
    files: Sequence[Path], submitted: bool
) -> Iterator[BoardRecord | EntryProblem | None]:
    if len(files) < PARALLEL_FROM:
        yield from map(score_file, files, repeat(submitted))
        return
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield from pool.map(score_file, files, repeat(submitted))


def score_file(file: Path, submitted: bool) -> BoardRecord | EntryProblem | None:
    """Return the record of a result file, or its problem; None if it is of a task without
    positions.
    """
    try:
        entry = read_entry(file)
        if entry is None:
            return None
        problems = origin_problems(entry) if submitted else future_problems(entry)
        return next(problems, None) or score_entry(entry)
    except EntryError as error:
        return error.problem
    except PosirError as error:
        return EntryProblem(str(file), str(error))


#: Raise it whenever records are computed differently.
FORMAT_VERSION = 16
JSON = TypeAdapter(BoardRecord)


class RecordCache:
    """A folder of records, each named by a digest of its files and of the programs that scored
    them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        plugins = [
            (plugin.name, plugin.origin, plugin.problem) for plugin in loaded_plugins().plugins
        ]
        self._programs = repr(
            (FORMAT_VERSION, version("posir"), version("numpy"), version("scipy"), plugins)
        )

    def path_for(self, file: Path, submitted: bool = False) -> Path | None:
        """Return the path of the record of a result file, perhaps submitted by others; None if the
        file must not be read.
        """
        parts = (file, file.with_name(META_FILE))
        for part in parts:
            if part.is_symlink() or not part.is_file() or part.stat().st_size > MAX_BYTES:
                return None
        # The names of the file and its folders are checked when it is read, so they belong to the
        # key.
        digests = [digest_file(part).hex() for part in parts]
        key = digest(self._programs, str(submitted), *digests, *file.parts[-3:])
        return self.folder / f"{key.hex()}.json"

    def load(self, path: Path) -> BoardRecord | None:
        """Return a cached record; None if there is none or it is damaged."""
        try:
            return JSON.validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return None

    def save(self, path: Path, record: BoardRecord) -> None:
        """Cache a record."""
        with atomic_write(path) as part:
            part.write_bytes(JSON.dump_json(record))
