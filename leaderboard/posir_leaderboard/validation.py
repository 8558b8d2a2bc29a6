"""Validation: whether an entry is complete, matches the dataset it names, and has the scores that its profiles give.

Every number that follows from a profile is recomputed. A score that a profile determines only in part (at 20; nDCG and MRR at
100) must be possible; mteb's nAUC, which depends on the model's similarity scores, must agree if two names mean one number.
That a profile itself is correct, only running the model again can show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.results import TaskResult

from posir_leaderboard.dataset import SubsetFacts, subset_facts
from posir_leaderboard.entries import Entry, EntryProblem
from posir_tasks import document_ranks
from posir_tasks.cells import CellCounts
from posir_tasks.display.progress import progress
from posir_tasks.display.wording import sanitized
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.errors import DataError
from posir_tasks.evidence import Integers, Truncation
from posir_tasks.models.references import ORIGINS, model_origin
from posir_tasks.plugin_api.scoring import score_result
from posir_tasks.profile import DEPTH, PositionProfile
from posir_tasks.ranks import RankedQueries, retrieval_scores
from posir_tasks.result_schema import (
    COVERAGE_KEY,
    DIGEST_KEY,
    PROFILE_KEY,
    RANKS_KEY,
    REVISION_KEY,
    RUN_KEY,
    SCHEMA,
    SCORE_NAMES_KEY,
    TOLERATED_KEY,
)
from posir_tasks.results import DECIMALS, SubsetResult
from posir_tasks.scores import ResultValues
from posir_tasks.sources.posir_rules import CORPUS_KEYS
from posir_tasks.tasks.catalog import find_task
from posir_tasks.tokens import CountedWith
from posir_tasks.window_coverage import TruncatedEvidence, WindowCoverage

if TYPE_CHECKING:
    from posir_tasks.tasks.base import PositionTask

COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"[0-9a-f]{16}")
#: Largest difference between a rounded number and its exact value: half a unit of the last decimal, and errors of summation.
ROUNDING = 0.5 * 10**-DECIMALS + 1e-9
#: Two names of one number if every query has one relevant document.
SYNONYMS = {"map_at_": "mrr_at_", "nauc_map_at_": "nauc_mrr_at_", "nauc_precision_at_": "nauc_recall_at_"}
NAUC = re.compile(r"nauc_(ndcg|map|mrr|recall|precision)_at_\d+_(max|std|diff1)")
#: How mteb writes a missing revision.
NO_REVISION = "no_revision"
#: Most problems that are reported for one subset.
MAX_PROBLEMS = 20


def validate_entry(entry: Entry) -> list[EntryProblem]:
    """Return every problem of an entry; an empty list if it may be on the leaderboard.

    Reads the dataset from the Hub or `POSIR_DATA`: only queries and qrels for PosIR, all of it for others.
    """
    task = find_task(entry.task)
    if task is None:
        return [_problem(entry, "is not a task of posir; `posir tasks` lists them", field="task_name")]
    problems = list(_completeness_problems(entry, task))
    subsets = list(zip(entry.subsets, entry.scores, strict=True))
    for result, scores in progress(subsets, f"Checking {entry.model}, {entry.task}"):
        if result.subset in task.metadata.hf_subsets:
            problems += islice(_subset_problems(entry, task, result, scores), MAX_PROBLEMS)
    return problems


def _completeness_problems(entry: Entry, task: type[PositionTask]) -> Iterator[EntryProblem]:
    if origin := model_origin(entry.model):
        message = f"is {ORIGINS[origin]}, which nobody else can run; publish the model on the Hub and evaluate it by its name"
        yield _problem(entry, message, field="name")
    elif entry.revision.startswith(NO_REVISION):
        message = "names no revision; run mteb with a model whose revision is known, such as --model-revision COMMIT"
        yield _problem(entry, message, field="revision")
    yield from _file_problems(entry, task)
    submitted, expected = {result.subset for result in entry.subsets}, set(task.metadata.hf_subsets)
    if expected - submitted:
        missing = ", ".join(sorted(expected - submitted))
        yield _problem(entry, f"is partial: {len(submitted)} of {len(expected)} subsets. Run the missing ones: {missing}")
    for subset in sorted(submitted - expected):
        yield _problem(entry, f"is not a subset of {entry.task}", subset)


def _file_problems(entry: Entry, task: type[PositionTask]) -> Iterator[EntryProblem]:
    """Yield the fields of the file that mteb does not write, and other splits than the task's."""
    expected = tuple(task.metadata.eval_splits)
    if set(entry.splits) != set(expected):
        message = f"has the splits {sanitized(', '.join(entry.splits))}; {entry.task} has {', '.join(expected)}"
        yield _problem(entry, message, field="scores")
    for name in entry.fields:
        if name not in TaskResult.model_fields:
            yield _problem(
                entry, f"is not a field of mteb's results; these are {', '.join(TaskResult.model_fields)}", field=name
            )


def _subset_problems(
    entry: Entry, task: type[PositionTask], result: SubsetResult, scores: Mapping[str, Any]
) -> Iterator[EntryProblem]:
    revision = result.run.get(REVISION_KEY)
    problem = check_revision(revision, entry.dataset_revision, task.metadata.dataset["revision"])
    if problem:
        yield _problem(entry, problem, result.subset, f"{RUN_KEY}.{REVISION_KEY}")
        return
    axes = task.scheme.axes
    if result.profile.axes.to_json() != axes.to_json():
        yield _problem(entry, f"differ from those of the scheme {axes.scheme}", result.subset, f"{PROFILE_KEY}.axes")
        return
    try:
        # Then queries are missing whose documents alone say so.
        with_corpus = bool(stated_tolerated(result).get("judgments_of_missing_documents"))
        facts = subset_facts(task, result.subset, str(revision), with_corpus=with_corpus)
    except DataError as error:
        yield _problem(
            entry, f"the data cannot be read: {sanitized(str(error), 500)}", result.subset, f"{RUN_KEY}.{REVISION_KEY}"
        )
        return
    # Scores of impossible counts may take forever to compute.
    languages = task.metadata.hf_subsets_to_langscripts[result.subset]
    problems = [*count_problems(task, facts, result, languages), *rank_problems(task, facts, result)]
    problems = problems or list(score_problems(task, facts, result, scores))
    for field, message in problems:
        yield _problem(entry, message, result.subset, field)


def check_revision(revision: object, recorded: object, pinned: str) -> str | None:
    """Return the problem with the revision of the data that was read; None if there is none.

    `recorded` is the revision that the task requested, as mteb recorded it. `pinned` is the task's own: a commit, the version
    of a packaged dataset, or a branch, of which any commit is valid.
    """
    branch = not (COMMIT.fullmatch(pinned) or pinned.isdigit())
    allowed = "a commit of the dataset on the Hub" if branch else pinned
    if not isinstance(revision, str) or not (COMMIT.fullmatch(revision) if branch else revision == pinned):
        return f"is {sanitized(revision)}; must be {allowed}. Run the task on the Hub's data, without POSIR_DATA"
    if recorded not in (pinned, revision):
        return f"is {sanitized(revision)}, but the file's dataset_revision is {sanitized(recorded)}"
    return None


def count_problems(
    task: type[PositionTask], facts: SubsetFacts, result: SubsetResult, languages: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the counts that differ from the dataset or are impossible, as field and message.

    The numbers of queries by cell and by length depend on the dataset alone, and so do estimates of those beyond a window.
    """
    expected = CellCounts.from_evidence(task.scheme, facts.evidence)
    memberships = np.bincount(task.scheme.cells(facts.evidence).query, minlength=len(facts.evidence))
    fewest, most = int(memberships.min(initial=1)), int(memberships.max(initial=1))
    yield from _cell_problems(PROFILE_KEY, result.profile, expected)
    yield from _total_problems(PROFILE_KEY, result.profile, fewest, most)
    coverage, field = result.coverage, f"{COVERAGE_KEY}.within_window"
    if coverage is None:
        return
    within = coverage.within_window
    if coverage.window < 1:
        yield COVERAGE_KEY, "is given, but needs a window of at least 1 token"
        return
    if within.axes.to_json() != result.profile.axes.to_json():
        yield f"{field}.axes", "differ from those of the profile"
        return
    if coverage.counted_with is CountedWith.TOKENIZER:
        yield from _coverage_problems(coverage, expected)
    else:
        yield from _estimate_problems(task, facts, coverage, languages)
    yield from _total_problems(field, within, fewest, most)
    if np.any(within.counts > result.profile.counts) or np.any(within.totals > result.profile.totals):
        yield field, "counts more queries at a rank than the profile that contains it"


def _estimate_problems(
    task: type[PositionTask], facts: SubsetFacts, coverage: WindowCoverage, languages: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield how window coverage differs from the estimate that the dataset gives."""
    truncated = TruncatedEvidence.estimate(coverage.window, facts.evidence, languages)
    if truncated is None:
        yield COVERAGE_KEY, "is an estimate, which needs a dataset with document lengths"
        return
    if coverage.counted_with is not truncated.counted_with:
        yield f"{COVERAGE_KEY}.counted_with", f"is {coverage.counted_with}; must be {truncated.counted_with} or tokenizer"
    recomputed = WindowCoverage.from_ranks(truncated, task.scheme, facts.evidence, np.zeros(len(facts.evidence), np.int64))
    yield from _array_problems(f"{COVERAGE_KEY}.starts_beyond", coverage.starts_beyond, recomputed.starts_beyond)
    yield from _array_problems(f"{COVERAGE_KEY}.ends_beyond", coverage.ends_beyond, recomputed.ends_beyond)
    yield from _cell_problems(f"{COVERAGE_KEY}.within_window", coverage.within_window, recomputed.within_window.cell_counts())


def _coverage_problems(coverage: WindowCoverage, expected: CellCounts) -> Iterator[tuple[str, str]]:
    """Yield what is impossible in window coverage that was counted with the model's tokenizer, which is not at hand here."""
    starts, ends = coverage.starts_beyond, coverage.ends_beyond
    if np.any((starts < 0) | (starts > ends)):
        yield f"{COVERAGE_KEY}.starts_beyond", "must be between 0 and ends_beyond: evidence that starts beyond also ends there"
    within = coverage.within_window.totals.sum(axis=1)
    yield from _array_problems(f"{COVERAGE_KEY}.ends_beyond", ends + within, expected.totals)


def rank_problems(task: type[PositionTask], facts: SubsetFacts, result: SubsetResult) -> Iterator[tuple[str, str]]:
    """Yield what in the ranks by document is not of the dataset's queries, as field and message."""
    coverage, unranked = result.coverage, np.zeros(len(facts.evidence), np.int64)
    estimated = coverage is not None and coverage.counted_with is not CountedWith.TOKENIZER
    beyond = facts.evidence.estimate_beyond(coverage.window) if coverage and estimated else None
    expected = DocumentRanks.from_ranks(task.scheme, facts.evidence, unranked, beyond, result.subset)
    pairs = list(zip(result.ranks.sets, expected.sets, strict=False))
    if not result.ranks.same_queries(expected):
        yield RANKS_KEY, "are not those of the dataset's queries and documents"
    elif any(a.subset != b.subset for a, b in pairs):
        yield RANKS_KEY, f"are not those of the subset '{result.subset}'"
    elif (coverage is None or estimated) and any(not np.array_equal(a.beyond, b.beyond) for a, b in pairs):
        yield RANKS_KEY, "state other queries beyond the window than the dataset"
    elif coverage and not _agrees(result.ranks, coverage):
        yield COVERAGE_KEY, "does not follow from the ranks by document"


def _agrees(ranks: DocumentRanks, coverage: WindowCoverage) -> bool:
    """Return whether window coverage has the counts that follow from the ranks by document."""
    if any(len(part.beyond) != len(part.ranks) for part in ranks.sets):
        return False
    lengths = [ranks.cell_lengths[part.cells] for part in ranks.sets]
    for least, stated in ((Truncation.BEYOND, coverage.starts_beyond), (Truncation.CUT, coverage.ends_beyond)):
        beyond = [length[part.beyond >= least] for length, part in zip(lengths, ranks.sets, strict=True)]
        if not np.array_equal(np.bincount(np.concatenate(beyond), minlength=len(stated)), stated):
            return False
    return ranks.within_window().profile == coverage.within_window


def _cell_problems(field: str, profile: PositionProfile, expected: CellCounts) -> Iterator[tuple[str, str]]:
    """Yield the cells and length buckets in which a profile has other numbers of queries than expected."""
    submitted = profile.cell_counts()
    yield from _array_problems(f"{field}.counts", submitted.counts, expected.counts)
    yield from _array_problems(f"{field}.totals", submitted.totals, expected.totals)


def _total_problems(field: str, profile: PositionProfile, fewest: int, most: int) -> Iterator[tuple[str, str]]:
    """Yield whether a profile's totals disagree with its counts; one query is in at least `fewest` and at most `most` cells."""
    counted = profile.counts.sum(axis=1)
    if np.any(counted < fewest * profile.totals) or np.any(counted > most * profile.totals):
        yield f"{field}.totals", "does not agree with the counts: both count the same queries at each length and rank"


def _array_problems(field: str, submitted: Integers, expected: Integers) -> Iterator[tuple[str, str]]:
    places = np.argwhere(submitted != expected)
    if places.size:
        first = tuple(places[0].tolist())
        where = "".join(f"[{index}]" for index in first)
        yield (
            f"{field}{where}",
            f"counts {submitted[first]:,} queries, the dataset has {expected[first]:,}"
            + (f"; {len(places)} cells differ" if len(places) > 1 else ""),
        )


def score_problems(
    task: type[PositionTask], facts: SubsetFacts, result: SubsetResult, scores: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield every score that is missing, unknown, or different from what the profile gives, as field and message."""
    low, high = retrieval_bounds(result.profile, scores.get("recall_at_20"), task.k_values)
    others = {name for name in scores if NAUC.fullmatch(name)} | {"mteb_version", "previous_results_model_meta"}
    languages = task.metadata.hf_subsets_to_langscripts[result.subset]
    fixed = {"hf_subset": result.subset, "languages": languages, "main_score": low[task.metadata.main_score]}
    coverage = result.coverage.to_json() if result.coverage else {"window": None}
    # The ranks are compared as a value above: another version of zlib packs the same ones into another text.
    ranks = {**scores[RANKS_KEY], "schema": document_ranks.SCHEMA}
    values = {PROFILE_KEY: result.profile.to_json(), COVERAGE_KEY: coverage, RANKS_KEY: ranks}
    computed = score_result(ResultValues(result.ranks, result.coverage))
    added = computed.to_json(result.profile.positions, taken={*low, *others, *fixed, *values, RUN_KEY})
    run = {
        "schema": SCHEMA,
        REVISION_KEY: result.run.get(REVISION_KEY),
        # A result need not record it: of the Hub's data, the revision says enough.
        **({DIGEST_KEY: expected_digest(facts, result.run[DIGEST_KEY])} if DIGEST_KEY in result.run else {}),
        TOLERATED_KEY: expected_tolerated(facts, stated_tolerated(result)),
        "missing_subsets": [],
        "top_k": max(task.k_values),
        SCORE_NAMES_KEY: sorted(added),
    }
    rest = {name: value for name, value in scores.items() if name not in low and name not in others}
    yield from differences({**fixed, **values, RUN_KEY: run, **added}, rest)
    for name in low:
        yield from _bound_problems(name, scores.get(name), low[name], high[name])
    yield from _nauc_problems(scores)


def stated_tolerated(result: SubsetResult) -> Mapping[str, Any]:
    """Return the numbers of tolerated rows in a result; none if they are not an object."""
    stated = result.run.get(TOLERATED_KEY)
    return stated if isinstance(stated, Mapping) else {}


def expected_tolerated(facts: SubsetFacts, stated: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of tolerated rows that a result states; those of a corpus which was not read may be any."""
    plausible = {} if "corpus" in facts.digest else {key: count for key, count in stated.items() if key in CORPUS_KEYS}
    return {key: count for key, count in plausible.items() if type(count) is int and count > 0} | {**facts.tolerated}


def expected_digest(facts: SubsetFacts, stated: object) -> dict[str, str]:
    """Return the digests that a result on a dataset states; that of a corpus which was not read may be any."""
    corpus = stated.get("corpus") if isinstance(stated, dict) else None
    plausible = corpus if isinstance(corpus, str) and DIGEST.fullmatch(corpus) else "16 hexadecimal digits"
    return {"corpus": plausible, **facts.digest}


def retrieval_bounds(
    profile: PositionProfile, recall_at_20: Any, k_values: tuple[int, ...]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the lowest and highest possible value of each of mteb's retrieval scores; equal if the profile determines it.

    A profile counts ranks 11 to 100 together. How many of them are at most 20 follows from recall@20, if that is plausible.
    Each of those ranks is at best 11 and at worst 20; the others are at best 21 and at worst 100.
    """
    counts = profile.totals.sum(axis=0)
    near, between, queries = int(counts[:DEPTH].sum()), int(counts[DEPTH]), profile.queries
    plausible = isinstance(recall_at_20, float | int) and math.isfinite(recall_at_20)
    to_20 = min(max(round(recall_at_20 * queries) - near, 0), between) if plausible else 0
    ranks = [np.repeat(np.arange(1, DEPTH + 1), counts[:DEPTH]), np.zeros(int(counts[-1]), np.int64)]

    def scores(rank_to_20: int, rank_to_100: int) -> dict[str, float]:
        far = np.repeat([rank_to_20, rank_to_100], [to_20, between - to_20])
        return retrieval_scores(RankedQueries(np.concatenate([*ranks, far]), confidence={}), k_values)

    return scores(20, 100), scores(11, 21)


def _bound_problems(name: str, value: Any, low: float, high: float) -> Iterator[tuple[str, str]]:
    if not _is_number(value):
        yield name, f"is {sanitized(value)}; must be a number"
    elif not low - ROUNDING <= value <= high + ROUNDING or value != round(value, DECIMALS):
        gives = f"{low:.{DECIMALS}f}" if low == high else f"{low:.{DECIMALS}f} to {high:.{DECIMALS}f}"
        yield name, f"is {value} in the file; the profile gives {gives}"


def _nauc_problems(scores: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in scores.items():
        if NAUC.fullmatch(name) and not (_is_number(value) and not value > 1 + ROUNDING):
            yield name, f"is {sanitized(value)}; nAUC is a number of at most 1, or NaN"
        twin = next((second + name.removeprefix(first) for first, second in SYNONYMS.items() if name.startswith(first)), None)
        if twin and not _same(value, scores.get(twin)):
            yield name, f"is {sanitized(value)} in the file, but {twin}, the same number, is {sanitized(scores.get(twin))}"


def _same(left: Any, right: Any) -> bool:
    return left == right or (_is_number(left) and _is_number(right) and math.isnan(left) and math.isnan(right))


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def differences(expected: Any, actual: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield the differences between an expected JSON value, not rounded, and one rounded as mteb rounds it, by field."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        inside = f"{field}." if field else ""
        for name in sorted(expected.keys() | actual.keys()):
            if name not in actual:
                yield f"{inside}{name}", "is missing; `posir rescore` recomputes all scores from the profile"
            elif name not in expected:
                yield f"{inside}{name}", "is not a score that can be computed here, so it cannot be checked; remove it"
            else:
                yield from differences(expected[name], actual[name], f"{inside}{name}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for place, (value, other) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(value, other, f"{field}[{place}]")
    elif isinstance(expected, float) and _is_number(actual):
        if abs(expected - actual) > ROUNDING or actual != round(actual, DECIMALS):
            yield field, f"is {actual} in the file; the profile gives {round(expected, DECIMALS)}"
    elif type(expected) is not type(actual) or expected != actual:
        yield field, f"is {sanitized(actual)} in the file; must be {sanitized(expected)}"


def _problem(entry: Entry, message: str, subset: str | None = None, field: str | None = None) -> EntryProblem:
    return EntryProblem(str(entry.file), message, subset, field)
