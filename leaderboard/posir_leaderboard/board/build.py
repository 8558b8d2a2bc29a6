"""From results to a site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from posir_leaderboard.board.bundles import kept_chart_library, table_library
from posir_leaderboard.board.cache import RecordCache
from posir_leaderboard.board.folder import check_folder, write_site
from posir_leaderboard.board.groups import known_groups
from posir_leaderboard.board.published import published_records
from posir_leaderboard.board.records import Record, record_of
from posir_leaderboard.board.site import site_of
from posir_leaderboard.entries import EntryError, Problem, entry_files, read_entry
from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError

#: Results from which on processes are started to score them: each takes three seconds to start, and a result one or two.
MANY = 8


@dataclass(frozen=True)
class Built:
    """What became of the results."""

    models: int
    results: int
    scored: int
    """Results that no earlier build had scored."""
    changed: int
    """Files of the site that were written or removed."""
    problems: tuple[Problem, ...]
    """One for each file that is left out."""


def build_site(results: Path, output: Path, cache: Path, repository: str | None = None) -> Built:
    """Build the site of every readable result below a folder, and of the papers' results.

    Args:
        results: May hold no result at all.
        output: Folder of the site.
        cache: Folder of scored results.
        repository: Dataset repository that takes submissions; None where it is not known.

    Raises:
        PosirError: There is no such folder, or the output folder holds something else.
    """
    check_folder(output)
    records, problems, scored = scored_results(list(entry_files(results)), RecordCache(cache / "records"))
    everything = [*records, *published_records()]
    libraries = {"datatables": table_library(), "vega": kept_chart_library(cache / "libraries")}
    changed = write_site(site_of(everything, known_groups(), libraries, repository), output)
    models = {record.model.id for record in everything}
    return Built(len(models), len(records), scored, changed, tuple(problems))


def scored_results(files: Sequence[Path], cache: RecordCache) -> tuple[list[Record], list[Problem], int]:
    """Return the records of result files, those that cannot be used, and the number that had to be scored.

    A model and task that several files claim is left out, since nothing tells which of them is right.
    """
    places = {file: cache.place(file) for file in files}
    found = {file: cache.get(place) for file, place in places.items() if place}
    fresh = [file for file in files if not found.get(file)]
    problems: list[Problem] = []
    for file, outcome in zip(progress(fresh, "Scoring"), outcomes(fresh), strict=True):
        if isinstance(outcome, Problem):
            problems.append(outcome)
            continue
        found[file] = outcome
        place = places[file]
        if place and outcome:
            cache.put(place, outcome)
    records = {file: record for file in files if (record := found.get(file))}
    twice = doubles(records)
    problems += twice.values()
    return [record for file, record in records.items() if file not in twice], problems, sum(file in records for file in fresh)


def outcomes(files: Sequence[Path]) -> Iterator[Record | Problem | None]:
    """Yield the outcome of each file, from several processes where there are many files."""
    if len(files) < MANY:
        yield from map(read_and_score, files)
        return
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield from pool.map(read_and_score, files)


def read_and_score(file: Path) -> Record | Problem | None:
    """Return the record of a result file, or what is wrong with it; None if it is of a task without positions."""
    try:
        entry = read_entry(file)
        return record_of(entry) if entry else None
    except EntryError as error:
        return error.problem
    except PosirError as error:
        return Problem(str(file), str(error))


def doubles(records: Mapping[Path, Record]) -> dict[Path, Problem]:
    """Return a problem for each file whose model and task another file claims too."""
    claims: dict[tuple[str, str], list[Path]] = {}
    for file, record in records.items():
        claims.setdefault((record.model.id, record.task), []).append(file)
    return {
        file: Problem(str(file), f"is of the same model and task as {others[0]}; both are left out until one is removed")
        for files in claims.values()
        for file in files
        if (others := [other for other in files if other != file])
    }
