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
from posir_leaderboard.board.published import (
    add_query_counts,
    count_queries,
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
from posir_leaderboard.board.views import add_data_tables, builtin_groups
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
    pins = read_pins(results, repository)
    submitted = repository is not None or pins is not None
    # The maintainers' own runs of submitted models.
    runs = results.resolve() / REPRODUCED
    files: list[Path] = []
    repeated: list[Path] = []
    for file in entry_files(results):
        (repeated if file.is_relative_to(runs) else files).append(file)
    record_cache, identities = (
        RecordCache(cache / "records"),
        cache / "models" if submitted else None,
    )
    records, problems, scored = score_results(files, record_cache, identities)
    unchecked: dict[str, None] = {}
    if identities:
        records, unchecked = _describe_submitted(
            records, score_results(repeated, record_cache)[0], identities
        )
    separated = separate_data(
        [*records, *published_records()], {**KNOWN_PINS, **(pins or {})}, submitted=submitted
    )
    records, published = separated[: len(records)], separated[len(records) :]
    everything = [*records, *add_query_counts(published, count_queries(records) | counts)]
    libraries = {
        "datatables": bundle_table_library(),
        "vega": cached_chart_library(cache / "libraries"),
    }
    groups = add_data_tables(
        builtin_groups({record.base_task or record.task for record in records}), records
    )
    site = render_site(everything, groups, libraries, repository, url) | {
        PREVIEW: draw_preview(groups, everything)
    }
    change = write_site(site, output)
    models = {record.model.id for record in everything}
    reasons = ((record, record.mark or record.partial) for record in records)
    unranked = sorted(
        f"{record.model.name}, {record.task}: {reason}" for record, reason in reasons if reason
    )
    return BuildSummary(
        len(models),
        len(records),
        scored,
        change.number,
        tuple(problems),
        tuple(unranked),
        tuple(unchecked),
        separate=tuple(sorted({record.task for record in records if record.base_task})),
        unpinned=_list_unpinned(records, {**KNOWN_PINS, **(pins or {})}),
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
) -> tuple[list[BoardRecord], dict[str, None]]:
    """Return submitted results with what the registry or the Hub says of their models, and the
    models that were not looked up.

    A result is `reproduced` where the maintainers' own run of the model on the same data has the
    same nDCG@10, up to `TOLERANCE`; else `as submitted`.
    """
    identities = identify_models(
        ((record.model.name, record.model.revision) for record in records), cache
    )
    own = {(record.model.id, record.task, record.data): record for record in repeated}
    described, unchecked = [], dict[str, None]()
    for record in records:
        name, revision = record.model.name, record.model.revision
        identity = identities[name, revision]
        if identity.unchecked:
            unchecked[f"{name}, {revision}: {identity.unchecked}"] = None
        same = own.get((record.model.id, record.task, record.data))
        scores = [run.rows[0].ndcg_at_10 for run in (same, record) if run]
        known = [score.value for score in scores if score]
        agrees = len(known) == 2 and abs(known[0] - known[1]) <= TOLERANCE
        model = read_board_model(name, revision, identity.meta)
        described.append(
            replace(record, model=model, standing=REPRODUCED if agrees else AS_SUBMITTED)
        )
    return described, unchecked


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
    outcomes = {file: cache.load(path) for file, path in paths.items() if path}
    uncached = [file for file in files if not outcomes.get(file)]
    problems: list[EntryProblem] = []
    for file, outcome in zip(
        progress(uncached, "Scoring"), _score_files(uncached, submitted), strict=True
    ):
        if isinstance(outcome, EntryProblem):
            problems.append(outcome)
            continue
        outcomes[file] = outcome
        if (path := paths[file]) and outcome:
            cache.save(path, outcome)
    records = {file: record for file in files if (record := outcomes.get(file))}
    scored = sum(file in records for file in uncached)
    models = {file: (record.model.name, record.model.revision) for file, record in records.items()}
    known, registered = (
        identify_models(models.values(), identities) if identities else {},
        MODEL_REGISTRY.resolve(),
    )
    for file, model in models.items():
        if model in known and known[model].problem:
            problems.append(
                EntryProblem(str(file), f"{model[0]} {known[model].problem}", field="name")
            )
            del records[file]
    for same in find_duplicates(
        {file: (record.model.id, record.task) for file, record in records.items()}
    ):
        known_files = [bool(models[file] in known and known[models[file]].meta) for file in same]
        right = [
            file
            for file, on_hub in zip(same, known_files, strict=True)
            if on_hub or models[file][0] in registered
        ]
        for problem in _exclude_duplicates(same, right):
            problems.append(problem)
            del records[Path(problem.file)]
    return list(records.values()), problems, scored


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
        problem = (
            next(origin_problems(entry) if submitted else future_problems(entry), None)
            if entry
            else None
        )
        return problem or (score_entry(entry) if entry else None)
    except EntryError as error:
        return error.problem
    except PosirError as error:
        return EntryProblem(str(file), str(error))


#: Raise it whenever records are computed differently.
FORMAT_VERSION = 15
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
        if any(
            part.is_symlink() or not part.is_file() or part.stat().st_size > MAX_BYTES
            for part in parts
        ):
            return None
        # The names of the file and its folders are checked when it is read, so they belong to the
        # key.
        key = digest(
            self._programs,
            str(submitted),
            *(digest_file(part).hex() for part in parts),
            *file.parts[-3:],
        )
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
