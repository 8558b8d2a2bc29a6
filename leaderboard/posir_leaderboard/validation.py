"""Validation: whether an entry is whole, of the dataset it names, and says nothing that its profiles do not say.

Every number that follows from a profile is computed again. What a profile determines only in part (scores at 20, nDCG and MRR
at 100) must be possible; mteb's nAUC, which rests on the model's own scores, must agree where two names stand for one number.
That a profile itself is true, only running the model again can show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from posir_leaderboard.dataset import SubsetFacts, subset_facts
from posir_leaderboard.entries import Entry, Problem, sanitized
from posir_tasks.display.progress import progress
from posir_tasks.errors import DataError
from posir_tasks.evidence import Integers
from posir_tasks.plugin_api.manager import plugin_scores
from posir_tasks.profile import DEPTH, PositionProfile
from posir_tasks.ranks import RankedQueries, retrieval_scores
from posir_tasks.results import COVERAGE_KEY, DECIMALS, PROFILE_KEY, RUN_KEY, SCORED_KEY, SubsetResult
from posir_tasks.tasks.catalogue import builtin_tasks
from posir_tasks.window_coverage import WindowCoverage

if TYPE_CHECKING:
    from posir_tasks.tasks.base import PositionTask

COMMIT = re.compile(r"[0-9a-f]{40}")
#: How far a rounded number may be from what it is computed from; half a unit of the last decimal, and what summing in another
#: order changes.
ROUNDING = 0.5 * 10**-DECIMALS + 1e-9
#: Two names of one number where every query has one relevant document.
SAME = {"map_at_": "mrr_at_", "nauc_map_at_": "nauc_mrr_at_", "nauc_precision_at_": "nauc_recall_at_"}
NAUC = re.compile(r"nauc_(ndcg|map|mrr|recall|precision)_at_\d+_(max|std|diff1)")
#: What mteb calls a revision where there is none.
NO_REVISION = "no_revision"
#: How many problems of one subset are named.
EXAMPLES = 20


def problems_of(entry: Entry) -> list[Problem]:
    """Return everything that is wrong with an entry; nothing for one that may be on the board.

    Reads the dataset: of PosIR the queries and qrels, of the others the whole, from the Hub or `POSIR_DATA`.
    """
    tasks = builtin_tasks()
    if entry.task not in tasks:
        return [_problem(entry, "is not a task of posir; `posir tasks` lists them", field="task_name")]
    task = tasks[entry.task]
    problems = [*_name_problems(entry), *_completeness_problems(entry, task)]
    subsets = list(zip(entry.subsets, entry.scores, strict=True))
    for result, scores in progress(subsets, f"Checking {entry.model}, {entry.task}"):
        if result.subset in task.metadata.hf_subsets:
            problems += islice(_subset_problems(entry, task, result, scores), EXAMPLES)
    return problems


def _name_problems(entry: Entry) -> Iterator[Problem]:
    if entry.revision.startswith(NO_REVISION):
        what = "names no revision; run mteb with a model whose revision is known, such as --model-revision COMMIT"
        yield _problem(entry, what, field="revision")


def _completeness_problems(entry: Entry, task: type[PositionTask]) -> Iterator[Problem]:
    there, wanted = {result.subset for result in entry.subsets}, set(task.metadata.hf_subsets)
    if wanted - there:
        missing = ", ".join(sorted(wanted - there))
        yield _problem(entry, f"is a part: {len(there)} of {len(wanted)} subsets. Run the others, too: {missing}")
    for subset in sorted(there - wanted):
        yield _problem(entry, f"is not a subset of {entry.task}", subset)


def _subset_problems(
    entry: Entry, task: type[PositionTask], result: SubsetResult, scores: Mapping[str, Any]
) -> Iterator[Problem]:
    revision = result.run.get("data_revision")
    problem = revision_problem(revision, entry.dataset_revision, task.metadata.dataset["revision"])
    if problem:
        yield _problem(entry, problem, result.subset, f"{RUN_KEY}.data_revision")
        return
    scheme = task.scheme
    if (result.profile.scheme, result.profile.lengths, result.profile.positions) != (
        scheme.name,
        scheme.lengths,
        scheme.positions,
    ):
        yield _problem(entry, f"is not of the scheme {scheme.name} with its buckets", result.subset, f"{PROFILE_KEY}.scheme")
        return
    try:
        facts = subset_facts(task, result.subset, str(revision))
    except DataError as error:
        yield _problem(
            entry, f"the data cannot be read: {sanitized(str(error), 500)}", result.subset, f"{RUN_KEY}.data_revision"
        )
        return
    # Scores of counts that no dataset has may take for ever to compute.
    problems = list(count_problems(task, facts, result.profile, result.reach)) or score_problems(task, facts, result, scores)
    for field, what in problems:
        yield _problem(entry, what, result.subset, field)


def revision_problem(revision: object, of_mteb: object, pinned: str) -> str | None:
    """Return what is wrong with the revision of the data; None if nothing is.

    Args:
        revision: What was read, as the result has it.
        of_mteb: What mteb notes: the revision that the task asked for.
        pinned: The task's own: a commit, the number of a dataset inside the package, or a branch, of which any commit may be.
    """
    branch = not (COMMIT.fullmatch(pinned) or pinned.isdigit())
    allowed = "a commit of the dataset on the Hub" if branch else pinned
    if not isinstance(revision, str) or not (COMMIT.fullmatch(revision) if branch else revision == pinned):
        return f"is {sanitized(revision)}; must be {allowed}. Run the task on the Hub's data, without POSIR_DATA"
    if of_mteb not in (pinned, revision):
        return f"is {sanitized(revision)}, but the file's dataset_revision is {sanitized(of_mteb)}"
    return None


def count_problems(
    task: type[PositionTask], facts: SubsetFacts, profile: PositionProfile, reach: WindowCoverage | None
) -> Iterator[tuple[str, str]]:
    """Yield what in the counts is not the dataset's or cannot be, as field and problem.

    The numbers of queries, by cell and by length, are the dataset's own, for any model, and so is what lies beyond a window.
    """
    nowhere = np.zeros(len(facts.evidence), np.int64)
    wanted = PositionProfile.from_ranks(task.scheme, facts.evidence, nowhere)
    memberships = np.bincount(task.scheme.cells(facts.evidence).query, minlength=len(facts.evidence))
    fewest, most = int(memberships.min(initial=1)), int(memberships.max(initial=1))
    yield from _profile_problems(PROFILE_KEY, profile, wanted, fewest, most)
    if reach is None:
        return
    seen = WindowCoverage.from_ranks(reach.window, task.scheme, facts.evidence, nowhere) if reach.window > 0 else None
    if seen is None:
        yield COVERAGE_KEY, "is given, but needs a window of at least 1 token and a dataset that tells its documents' lengths"
        return
    yield from _array_problems(f"{COVERAGE_KEY}.starts_beyond", reach.starts_beyond, seen.starts_beyond)
    yield from _array_problems(f"{COVERAGE_KEY}.ends_beyond", reach.ends_beyond, seen.ends_beyond)
    if (reach.seen.scheme, reach.seen.lengths, reach.seen.positions) != (profile.scheme, profile.lengths, profile.positions):
        yield f"{COVERAGE_KEY}.seen", "is of another scheme than the profile"
        return
    yield from _profile_problems(f"{COVERAGE_KEY}.seen", reach.seen, seen.seen, fewest, most)
    if np.any(reach.seen.counts > profile.counts) or np.any(reach.seen.totals > profile.totals):
        yield f"{COVERAGE_KEY}.seen", "counts more queries at a rank than the profile, of which it is a part"


def _profile_problems(
    field: str, profile: PositionProfile, wanted: PositionProfile, fewest: int, most: int
) -> Iterator[tuple[str, str]]:
    """Yield problems of a profile's counts; `fewest` and `most` are the cells that one query may lie in."""
    yield from _array_problems(f"{field}.counts", profile.counts.sum(axis=-1), wanted.counts.sum(axis=-1))
    yield from _array_problems(f"{field}.totals", profile.totals.sum(axis=-1), wanted.totals.sum(axis=-1))
    counted = profile.counts.sum(axis=1)
    if np.any(counted < fewest * profile.totals) or np.any(counted > most * profile.totals):
        yield f"{field}.totals", "does not agree with the counts: the queries of each length and rank are the same in both"


def _array_problems(field: str, found: Integers, wanted: Integers) -> Iterator[tuple[str, str]]:
    places = np.argwhere(found != wanted)
    if places.size:
        first = tuple(places[0].tolist())
        where = "".join(f"[{index}]" for index in first)
        yield (
            f"{field}{where}",
            f"counts {found[first]:,} queries, the dataset has {wanted[first]:,}"
            + (f"; {len(places)} such places" if len(places) > 1 else ""),
        )


def score_problems(
    task: type[PositionTask], facts: SubsetFacts, result: SubsetResult, scores: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield every score that is missing, unknown, or not what the profile gives, as field and problem."""
    low, high = retrieval_bounds(result.profile, scores.get("recall_at_20"), task.k_values)
    others = {name for name in scores if NAUC.fullmatch(name)} | {"mteb_version", "previous_results_model_meta"}
    languages = task.metadata.hf_subsets_to_langscripts[result.subset]
    fixed = {"hf_subset": result.subset, "languages": languages, "main_score": low[task.metadata.main_score]}
    of_us = {PROFILE_KEY: result.profile.to_json(), COVERAGE_KEY: result.reach.to_json() if result.reach else {"window": None}}
    given = plugin_scores(result.profile, result.reach, taken={*low, *others, *fixed, *of_us, RUN_KEY})
    run = {
        "data_revision": result.run.get("data_revision"),
        "queries_dropped": facts.dropped,
        "missing_subsets": [],
        "top_k": max(task.k_values),
        SCORED_KEY: sorted(given),
    }
    rest = {name: value for name, value in scores.items() if name not in low and name not in others}
    yield from differences({**fixed, **of_us, RUN_KEY: run, **given}, rest)
    for name in low:
        yield from _bound_problems(name, scores.get(name), low[name], high[name])
    yield from _nauc_problems(scores)


def retrieval_bounds(
    profile: PositionProfile, recall_at_20: Any, k_values: tuple[int, ...]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the least and the most that each of mteb's retrieval scores can be; where a profile fixes it, the two are one.

    A profile counts ranks 11 to 100 together. How many of them are at most 20 is what recall@20 says, if it may be believed;
    each then is at best the next after those before, and at worst the last.
    """
    counts = profile.totals.sum(axis=0)
    near, between, queries = int(counts[:DEPTH].sum()), int(counts[DEPTH]), profile.queries
    believed = isinstance(recall_at_20, float | int) and math.isfinite(recall_at_20)
    to_20 = min(max(round(recall_at_20 * queries) - near, 0), between) if believed else 0
    ranks = [np.repeat(np.arange(1, DEPTH + 1), counts[:DEPTH]), np.zeros(int(counts[-1]), np.int64)]

    def scores(rank_to_20: int, rank_to_100: int) -> dict[str, float]:
        far = np.repeat([rank_to_20, rank_to_100], [to_20, between - to_20])
        return retrieval_scores(RankedQueries(np.concatenate([*ranks, far]), confidence={}), k_values)

    return scores(20, 100), scores(11, 21)


def _bound_problems(name: str, found: Any, low: float, high: float) -> Iterator[tuple[str, str]]:
    if not _is_number(found):
        yield name, f"is {sanitized(found)}; must be a number"
    elif not low - ROUNDING <= found <= high + ROUNDING or found != round(found, DECIMALS):
        gives = f"{low:.{DECIMALS}f}" if low == high else f"{low:.{DECIMALS}f} to {high:.{DECIMALS}f}"
        yield name, f"is {found} in the file; the profile gives {gives}"


def _nauc_problems(scores: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in scores.items():
        if NAUC.fullmatch(name) and not (_is_number(value) and not value > 1 + ROUNDING):
            yield name, f"is {sanitized(value)}; nAUC is a number of at most 1, or NaN"
        twin = next((second + name.removeprefix(first) for first, second in SAME.items() if name.startswith(first)), None)
        if twin and not _same(value, scores.get(twin)):
            yield name, f"is {sanitized(value)} in the file, but {twin}, which is the same, is {sanitized(scores.get(twin))}"


def _same(one: Any, other: Any) -> bool:
    return one == other or (_is_number(one) and _is_number(other) and math.isnan(one) and math.isnan(other))


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def differences(wanted: Any, found: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield where JSON is not what it should be, as field and problem.

    Args:
        wanted: What it should be; its numbers are not rounded.
        found: What it is; its numbers are rounded as mteb rounds them.
        field: Where it stands.
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        inside = f"{field}." if field else ""
        for name in sorted(wanted.keys() | found.keys()):
            if name not in found:
                yield f"{inside}{name}", "is missing; `posir rescore` writes all scores anew from the profile"
            elif name not in wanted:
                yield f"{inside}{name}", "is not a score that can be computed here, so it cannot be checked; remove it"
            else:
                yield from differences(wanted[name], found[name], f"{inside}{name}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for place, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(one, other, f"{field}[{place}]")
    elif isinstance(wanted, float) and _is_number(found):
        if abs(wanted - found) > ROUNDING or found != round(found, DECIMALS):
            yield field, f"is {found} in the file; the profile gives {round(wanted, DECIMALS)}"
    elif type(wanted) is not type(found) or wanted != found:
        yield field, f"is {sanitized(found)} in the file; must be {sanitized(wanted)}"


def _problem(entry: Entry, what: str, subset: str | None = None, field: str | None = None) -> Problem:
    return Problem(str(entry.file), what, subset, field)
