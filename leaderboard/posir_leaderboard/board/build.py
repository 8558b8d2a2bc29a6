"""Build a site from results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import chain, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from posir_leaderboard.board.comparable import KNOWN_PINS, read_pins, separate_data
from posir_leaderboard.board.folder import check_output_folder, write_site
from posir_leaderboard.board.groups import add_data_tables, list_builtin_groups
from posir_leaderboard.board.published import (
    add_query_counts,
    collect_query_counts,
    list_published_records,
    read_statistics,
)
from posir_leaderboard.board.records import (
    AS_SUBMITTED,
    REPRODUCED,
    BoardRecord,
    Unranked,
    read_board_model,
    score_files,
)
from posir_leaderboard.board.site import bundle_table_library, render_site
from posir_leaderboard.entries import (
    MAX_BYTES,
    EntryProblem,
    find_duplicates,
    find_entry_files,
)
from posir_tasks.base.digests import digest, digest_file
from posir_tasks.base.files import write_atomically
from posir_tasks.base.private_names import MODEL_REGISTRY
from posir_tasks.base.progress import track_items
from posir_tasks.display.chart_library import load_chart_library
from posir_tasks.plugin_api import get_plugins
from posir_tasks.results import META_FILE

if TYPE_CHECKING:
    from posir_leaderboard.identity import Identities

#: Minimum size in bytes of the results for scoring in parallel. Workers take seconds to start, and
#: this size takes one process about six seconds.
MIN_PARALLEL = 20 * 2**20
#: Maximum number of files that are scored together, and size in bytes above which no more follow.
MAX_CHUNK_FILES = 16
MAX_CHUNK_BYTES = 2**20
#: Maximum difference in nDCG@10 between runs of a model with different hardware or libraries.
TOLERANCE = 0.002
#: Part of the cache key; increase it when the computation of records changes.
FORMAT_VERSION = 17
RECORD_ADAPTER = TypeAdapter(BoardRecord)


@dataclass(frozen=True)
class BuildSummary:
    """The outcome of a build."""

    models: int
    results: int
    scored: int
    """Number of results that were not cached."""
    changed_files: int
    problems: Sequence[EntryProblem]
    """A problem for each excluded file."""
    unranked: Sequence[str]
    """Model, task and reason for each result without a rank on the page."""
    lookup_problems: Sequence[str]
    """The models that could not be looked up, with reasons."""
    separate_tables: Sequence[str]
    """Names of the separate tables for results on other data."""
    unpinned: Sequence[str]
    """Tasks with submitted results whose data are not pinned."""
    kept_files: Sequence[str]
    """Edited files of the earlier site, which are not deleted."""


def build_site(
    results: Path,
    output: Path,
    cache: Path,
    repository: str | None = None,
    url: str = "",
    statistics: Iterable[Path] = (),
) -> BuildSummary:
    """Build the site from the results below a folder and the published results.

    Args:
        results: Folder of results, which may be empty.
        output: Folder for the site.
        cache: Folder for records.
        repository: The dataset repository for submissions.
        url: Future address of the site.
        statistics: Outputs of `posir stats`, with query counts for the published results.
    """
    check_output_folder(output)
    counts = read_statistics(statistics)
    folder_pins = read_pins(results, repository)
    pins = {**KNOWN_PINS, **(folder_pins or {})}
    submitted = repository is not None or folder_pins is not None
    # The maintainers' own runs of submitted models.
    reproduced_folder = results.resolve() / REPRODUCED
    submissions: list[Path] = []
    reproductions: list[Path] = []
    for file in find_entry_files(results):
        is_reproduction = file.is_relative_to(reproduced_folder)
        (reproductions if is_reproduction else submissions).append(file)
    records_by_file, problems, newly_scored = score_results(submissions, cache, submitted=submitted)
    identities: Identities = {}
    lookup_problems: Sequence[str] = ()
    if submitted:
        # The Hub's client is slow to import.
        from posir_leaderboard.identity import identify_models, list_lookup_problems

        keys = [record.model.key for record in records_by_file.values()]
        identities = identify_models(keys, cache / "models")
        lookup_problems = list_lookup_problems(identities)
    problems += exclude_results(records_by_file, identities)
    records = list(records_by_file.values())
    if submitted:
        reproduced, _, _ = score_results(reproductions, cache, submitted=False)
        records = _describe_submitted(records, reproduced.values(), identities)
    all_records = separate_data([*records, *list_published_records()], pins, submitted=submitted)
    records = [record for record in all_records if not record.model.published]
    published_records = [record for record in all_records if record.model.published]
    published_records = add_query_counts(published_records, collect_query_counts(records) | counts)
    libraries = {
        "datatables": bundle_table_library(),
        "vega": load_chart_library(),
    }
    tasks = {record.base_task or record.task for record in records}
    groups = add_data_tables(list_builtin_groups(tasks), records)
    site = render_site([*records, *published_records], groups, libraries, repository, url)
    change = write_site(site, output)
    unranked = []
    unpinned = set()
    for record in records:
        exclusion = record.exclusion
        if exclusion and exclusion.reason is Unranked.NOT_PINNED:
            unpinned.add(record.base_task or record.task)
        if not record.comparable:
            reason = exclusion.label if exclusion else record.partial
            unranked.append(f"{record.model.label}, {record.task}: {reason}")
    return BuildSummary(
        models=len({record.model.id for record in all_records}),
        results=len(records),
        scored=newly_scored,
        changed_files=change.changed_files,
        problems=problems,
        unranked=sorted(unranked),
        lookup_problems=lookup_problems,
        separate_tables=sorted({record.task for record in records if record.base_task}),
        unpinned=sorted(unpinned - pins.keys()),
        kept_files=change.kept_files,
    )


def _describe_submitted(
    records: Iterable[BoardRecord], reproduced: Iterable[BoardRecord], identities: Identities
) -> list[BoardRecord]:
    """Replace model descriptions by those of the registry or the Hub, and mark reproduced results.

    A result is reproduced if nDCG@10 of the maintainers' own run differs by at most `TOLERANCE`.
    """
    runs = {(record.model.id, record.task, record.data): record for record in reproduced}
    described_records = []
    for record in records:
        name, revision = record.model.key
        model = read_board_model(name, revision, identities[name, revision].meta)
        standing = AS_SUBMITTED
        if run := runs.get((record.model.id, record.task, record.data)):
            score = record.rows[0].score
            confirmation = run.rows[0].score
            if score and confirmation and abs(score.value - confirmation.value) <= TOLERANCE:
                standing = REPRODUCED
        model = replace(model, paper=record.model.paper)
        described_records.append(replace(record, model=model, standing=standing))
    return described_records


def score_results(
    files: Sequence[Path], cache: Path, *, submitted: bool
) -> tuple[dict[Path, BoardRecord], list[EntryProblem], int]:
    """Score result files, with a cache of records.

    Args:
        files: Files of results.
        cache: Folder for the cache.
        submitted: If true, a result must name its data and its date.

    Returns:
        The record of each usable file, the problems of the others, and the number of files that
        were not cached.
    """
    paths = {file: _find_cached(cache / "records", file, submitted=submitted) for file in files}
    cached_records = {}
    for file, path in paths.items():
        if path and path.is_file():
            # Compute a damaged record again.
            with suppress(ValidationError):
                cached_records[file] = RECORD_ADAPTER.validate_json(path.read_bytes())
    # Results of one task follow each other, since they share cached columns of its queries.
    uncached = sorted(
        (file for file in files if file not in cached_records), key=lambda file: file.name
    )
    newly_scored = {}
    problems = {}
    outcomes = _score_files(uncached, submitted)
    for file, outcome in zip(track_items(uncached, "Scoring"), outcomes, strict=True):
        if isinstance(outcome, EntryProblem):
            problems[file] = outcome
        elif outcome:
            newly_scored[file] = outcome
            if path := paths[file]:
                with write_atomically(path) as temporary:
                    temporary.write_bytes(RECORD_ADAPTER.dump_json(outcome))
    records = cached_records | newly_scored
    return (
        {file: records[file] for file in files if file in records},
        [problems[file] for file in files if file in problems],
        len(newly_scored),
    )


def exclude_results(
    records: dict[Path, BoardRecord], identities: Identities
) -> Iterator[EntryProblem]:
    """Remove results of unknown models and duplicate results; yield a problem for each.

    Among several files for a model and task, the one with the spelling of mteb's registry or the
    Hub is kept. If none or several have this spelling, all are removed.
    """
    for file, record in list(records.items()):
        identity = identities.get(record.model.key)
        if identity and identity.problem:
            del records[file]
            yield EntryProblem(str(file), f"{record.model.name} {identity.problem}", field="name")
    keys = {file: (record.model.id, record.task) for file, record in records.items()}
    for duplicates in find_duplicates(keys):
        registry = MODEL_REGISTRY.resolve()
        correct = []
        for file in duplicates:
            model = records[file].model
            identity = identities.get(model.key)
            if model.name in registry or (identity and identity.meta):
                correct.append(file)
        for file in duplicates:
            if correct == [file]:
                continue
            field: str | None = "name"
            others = correct
            reason = ", which has the correct spelling"
            if len(correct) != 1:
                field = None
                others = [other for other in duplicates if other != file]
                reason = "; both are excluded until one is removed"
            del records[file]
            yield EntryProblem(
                str(file),
                f"has the same model and task as {others[0]} (ignoring case){reason}",
                field=field,
            )


def _score_files(
    files: Sequence[Path], submitted: bool
) -> Iterator[BoardRecord | EntryProblem | None]:
    chunks = list(_split_files(files))
    if sum(file.lstat().st_size for file in files) < MIN_PARALLEL:
        yield from chain.from_iterable(map(score_files, chunks, repeat(submitted)))
        return
    # "forkserver" would share imports, but would also import modules from the current folder.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield from chain.from_iterable(pool.map(score_files, chunks, repeat(submitted)))


def _split_files(files: Iterable[Path]) -> Iterator[list[Path]]:
    """Split files into those that are scored together."""
    chunk: list[Path] = []
    size = 0
    for file in files:
        chunk.append(file)
        size += file.lstat().st_size
        if len(chunk) == MAX_CHUNK_FILES or size > MAX_CHUNK_BYTES:
            yield chunk
            chunk = []
            size = 0
    if chunk:
        yield chunk


def _find_cached(folder: Path, file: Path, *, submitted: bool) -> Path | None:
    """Find the path of the cached record; None if the file must not be read.

    The key is a digest of the result's files, their names and the package versions.
    """
    inputs = (file, file.with_name(META_FILE))
    for path in inputs:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
    digests = [digest_file(path).hex() for path in inputs]
    key = digest(_describe_versions(), str(submitted), *digests, *file.parts[-3:])
    return folder / f"{key.hex()}.json"


@cache
def _describe_versions() -> str:
    plugins = [(plugin.name, plugin.origin, plugin.problem) for plugin in get_plugins().plugins]
    versions = [version(name) for name in ("posir", "numpy", "scipy")]
    return repr((FORMAT_VERSION, versions, plugins))
