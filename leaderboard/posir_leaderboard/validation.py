"""Validation: whether an entry is complete, matches the dataset it names, and has the scores that
its profiles give.

Every number that follows from a profile is recomputed. A score that a profile determines only in
part (at 20; nDCG and MRR at 100) must be possible; mteb's nAUC, which depends on the model's
similarity scores, must agree if two names mean one number. That a profile itself is correct, only
running the model again can show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from mteb.models.model_implementations.bm25 import bm25_loader
from mteb.results import TaskResult

from posir_leaderboard.entries import DIGEST, Entry, EntryProblem, check_revision, origin_problems
from posir_tasks.base.errors import DataError
from posir_tasks.base.private_names import MODEL_REGISTRY
from posir_tasks.base.progress import progress
from posir_tasks.base.wording import sanitize
from posir_tasks.data.checks import CheckedTable, count_tolerated, read_columns
from posir_tasks.data.data import digest_data, digest_queries
from posir_tasks.data.posir import build_evidence
from posir_tasks.data.posir_rules import (
    CORPUS_KEYS,
    QRELS,
    QUERIES,
    TITLE,
    PosirTables,
    tolerate_tables,
)
from posir_tasks.data.repository import (
    HubRepository,
    LocalRepository,
    Repository,
    check_environment,
    data_folder,
    folder_name,
)
from posir_tasks.plugin_api import score_result
from posir_tasks.results import SubsetResult
from posir_tasks.search.rotations import digest_versions, find_spans, sample_documents
from posir_tasks.search.scoring import select_relevant
from posir_tasks.tasks.catalog import find_task
from posir_tasks.text.rotations import find_units, rotate_text
from posir_tasks.values.document_keys import OPENINGS, TEXTS, TITLES
from posir_tasks.values.document_ranks import DocumentRanks, DocumentSet, order_queries
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.profile import DEPTH, PositionProfile
from posir_tasks.values.ranks import RankedQueries, retrieval_scores
from posir_tasks.values.read_part import CountedWith
from posir_tasks.values.result_schema import (
    DECIMALS,
    DIGEST_KEY,
    KEYS_KEY,
    PROFILE_KEY,
    RANKS_KEY,
    READ_RANKS_KEY,
    REFERENCE_KEY,
    REVISION_KEY,
    ROTATIONS_KEY,
    RUN_KEY,
    SCHEMA,
    SCORE_NAMES_KEY,
    TOLERATED_KEY,
)
from posir_tasks.values.rotation_ranks import RotationSet, Untested
from posir_tasks.values.schemes import PositionScheme

if TYPE_CHECKING:
    from posir_tasks.search.scoring import Rows
    from posir_tasks.tasks.base import PositionTask


#: Largest difference between a rounded number and its exact value: half a unit of the last decimal,
#: and errors of summation.
ROUNDING = 0.5 * 10**-DECIMALS + 1e-9
#: Two names of one number if every query has one relevant document.
SYNONYMS = {
    "map_at_": "mrr_at_",
    "nauc_map_at_": "nauc_mrr_at_",
    "nauc_precision_at_": "nauc_recall_at_",
}
NAUC = re.compile(r"nauc_(ndcg|map|mrr|recall|precision)_at_\d+_(max|std|diff1)")
#: Scores that mteb adds to a result, which say nothing of the model's search.
UNCHECKED = {"mteb_version", "previous_results_model_meta"}
#: Fields whose packed columns are compared as values.
PACKED = (RANKS_KEY, READ_RANKS_KEY, KEYS_KEY, ROTATIONS_KEY)
#: Number of tolerated judgments of documents that the corpus lacks.
MISSING_DOCUMENTS = "judgments_of_missing_documents"
#: Problems that are reported for one subset, at most.
MAX_PROBLEMS = 20
#: A field and what is wrong with it.
Problem = tuple[str, str]
Scores = Mapping[str, Any]


def validate_entry(entry: Entry) -> list[EntryProblem]:
    """Return every problem of an entry; an empty list if it may be on the leaderboard.

    Reads the dataset from the Hub or `POSIR_DATA`: only queries and qrels for PosIR, all of it for
    others.
    """
    task = find_task(entry.task)
    if task is None:
        message = "is not a task of posir; `posir tasks` lists them"
        return [entry.problem(message, "task_name")]
    problems = [*origin_problems(entry), *_file_problems(entry, task)]
    scores = [scores for split in entry.data["scores"].values() for scores in split]
    subsets = list(zip(entry.subsets, scores, strict=True))
    for result, stated in progress(subsets, f"Checking {entry.model}, {entry.task}"):
        if result.subset in task.metadata.hf_subsets:
            faults = islice(_subset_problems(entry, task, result, stated), MAX_PROBLEMS)
            problems += [entry.problem(text, field, result.subset) for field, text in faults]
    return problems


def _file_problems(entry: Entry, task: type[PositionTask]) -> Iterator[EntryProblem]:
    """Yield other splits than the task's, the fields of the file that mteb does not write, and
    missing and unknown subsets.
    """
    splits = list(entry.data["scores"])
    expected_splits = task.metadata.eval_splits
    if set(splits) != set(expected_splits):
        message = (
            f"has the splits {sanitize(', '.join(splits))}; {entry.task} has "
            f"{', '.join(expected_splits)}"
        )
        yield entry.problem(message, "scores")
    fields = TaskResult.model_fields
    for name in sorted(entry.data.keys() - fields.keys()):
        message = f"is not a field of mteb's results; these are {', '.join(fields)}"
        yield entry.problem(message, name)
    submitted = {result.subset for result in entry.subsets}
    expected = set(task.metadata.hf_subsets)
    if missing := sorted(expected - submitted):
        yield entry.problem(
            f"is partial: {len(submitted)} of {len(expected)} subsets. Run the missing ones: "
            f"{', '.join(missing)}"
        )
    for subset in sorted(submitted - expected):
        yield entry.problem(f"is not a subset of {entry.task}", subset=subset)


def _subset_problems(
    entry: Entry, task: type[PositionTask], result: SubsetResult, scores: Scores
) -> Iterator[Problem]:
    """Yield the problems of a subset, a field and a message each."""
    revision = result.run.get(REVISION_KEY)
    pinned = task.metadata.dataset["revision"]
    if check_revision(revision, entry.data.get("dataset_revision"), pinned):
        return  # a problem of its origin
    axes = task.scheme.axes
    if result.profile.axes.to_json() != axes.to_json():
        yield f"{PROFILE_KEY}.axes", f"differ from those of the scheme {axes.scheme}"
        return
    tolerated = result.run.get(TOLERATED_KEY)
    # Then queries are missing whose documents alone say so.
    with_corpus = isinstance(tolerated, dict) and bool(tolerated.get(MISSING_DOCUMENTS))
    try:
        facts = subset_facts(task, result.subset, str(revision), with_corpus=with_corpus)
    except DataError as error:
        message = f"the data cannot be read: {sanitize(str(error), 500)}"
        yield f"{RUN_KEY}.{REVISION_KEY}", message
        return
    problems = [
        *_rank_problems(task, facts, result),
        *_rotation_problems(entry.model, task, facts, result),
    ]
    # Scores of impossible ranks may take forever to compute.
    yield from problems or _score_problems(task, facts, result, scores)


def _rank_problems(
    task: type[PositionTask], facts: SubsetFacts, result: SubsetResult
) -> Iterator[Problem]:
    """Yield the differences of ranks and places of evidence from the dataset's queries.

    The profile follows from the ranks, and reading a result checks that it does.
    """
    evidence = facts.evidence
    languages = task.metadata.hf_subsets_to_langscripts[result.subset]
    estimate = ReadEvidence.estimate(result.values.read, evidence, languages)
    no_ranks = np.zeros(len(evidence), np.int64)
    expected = DocumentRanks.from_ranks(task.scheme, evidence, no_ranks, estimate, result.subset)
    if not result.ranks.same_queries(expected):
        message = (
            "are not those of the dataset's queries and documents: "
            f"{result.profile.queries:,} queries, the dataset has {len(evidence):,}"
        )
        yield RANKS_KEY, message
        return
    for stated, computed in zip(result.ranks.sets, expected.sets, strict=True):
        yield from _place_problems(stated, computed)


def _place_problems(stated: DocumentSet, computed: DocumentSet) -> Iterator[Problem]:
    """Yield the places of evidence that the dataset contradicts; those by a model's tokenizer
    cannot be computed here.
    """
    if len(computed.thirds) and not np.array_equal(stated.thirds, computed.thirds):
        yield READ_RANKS_KEY, "state other thirds of documents than the dataset"
    if not np.array_equal(stated.document_keys[:, TITLES], computed.document_keys[:, TITLES]):
        yield KEYS_KEY, "state other titles of articles than the dataset"
    # Those that are stated cannot be checked without the texts, which may be gigabytes.
    if not stated.document_keys[:, [TEXTS, OPENINGS]].all():
        message = "lack the digest of the text or the opening of a document; run the task again"
        yield KEYS_KEY, message
    if stated.counted_with is CountedWith.TOKENIZER or not len(computed.twelfths):
        return
    if stated.counted_with is not computed.counted_with:
        message = f"is {stated.counted_with}; must be {computed.counted_with} or tokenizer"
        yield f"{READ_RANKS_KEY}.counted_with", message
    elif not np.array_equal(stated.twelfths, computed.twelfths):
        yield READ_RANKS_KEY, "state other places of the evidence than the dataset"


def _rotation_problems(
    model: str, task: type[PositionTask], facts: SubsetFacts, result: SubsetResult
) -> Iterator[Problem]:
    """Yield the differences of rotated versions from the sample of the dataset's documents.

    Sample and versions follow from the texts, if these were read.
    """
    subsets = len(task.metadata.hf_subsets)
    for part in result.values.rotations.sets if result.values.rotations else ():
        if part.subsets != subsets:
            message = f"is {part.subsets}; {task.metadata.name} has {subsets}"
            yield f"{ROTATIONS_KEY}.subsets", message
        elif part.untested is Untested.ORDER_BLIND:
            # Only mteb's registry can say that word order plays no part in the scores.
            loader = getattr(MODEL_REGISTRY.resolve().get(model), "loader", None)
            if loader is not bm25_loader and getattr(loader, "order_blind", False) is not True:
                message = f"is {part.untested}, but the scores of {model} depend on word order"
                yield f"{ROTATIONS_KEY}.untested", message
        elif part.untested is None:
            language = task.metadata.hf_subsets_to_langscripts[result.subset][-1]
            yield from _sample_problems(part, task.scheme, facts, language)


def _sample_problems(
    part: RotationSet, scheme: PositionScheme, facts: SubsetFacts, language: str
) -> Iterator[Problem]:
    evidence = facts.evidence
    documents = facts.documents
    groups = order_queries(scheme, evidence)
    lengths = scheme.length_buckets(evidence)
    quota = part.quota(part.sample_size)
    sample = f"{ROTATIONS_KEY}.sample"
    if documents is None:
        # A length has the places from 1 on of as many documents as it has, up to the quota,
        # whatever their texts are.
        bucket = lengths[[group[0] for group in groups]]
        for length in np.unique(bucket):
            places = part.sample[bucket == length]
            expected = np.arange(1, min(quota, len(places)) + 1)
            if not np.array_equal(np.sort(places[places > 0]), expected):
                yield sample, "is not a sample of the dataset's documents of each length"
                return
        return
    if sample_documents(groups, evidence, lengths, documents, quota) != part.sample.tolist():
        yield sample, "is not the sample that the texts of the dataset give"
        return
    versions: list[str] = []
    for at in np.flatnonzero(part.sample).tolist():
        text = str(documents[evidence.document_ids[groups[at][0]]]["text"])
        units = find_units(text, language, find_spans(evidence, groups[at]))
        versions += [version.text for version in rotate_text(text, units)]
    if digest_versions(versions) != part.digest:
        message = "is not that of the versions of the dataset's texts"
        yield f"{ROTATIONS_KEY}.digest", message


def _score_problems(
    task: type[PositionTask], facts: SubsetFacts, result: SubsetResult, scores: Scores
) -> Iterator[Problem]:
    """Yield every score that is missing, unknown, or not the one that the profile gives."""
    low, high = retrieval_bounds(result.profile, scores.get("recall_at_20"), task.k_values)
    unchecked = {name for name in scores if NAUC.fullmatch(name)} | UNCHECKED
    expected = {
        **{name: (low[name], high[name]) for name in low},
        "hf_subset": result.subset,
        "languages": task.metadata.hf_subsets_to_langscripts[result.subset],
        "main_score": low[task.metadata.main_score],
        **result.values.to_json(),
    }
    # Packed columns are compared as values above: another version of zlib packs the same ones into
    # another text.
    for key in PACKED:
        if key in scores:
            expected[key] = {**scores[key], "schema": SCHEMA}
    added = score_result(result.values).to_json(
        result.profile.positions, taken={*unchecked, *expected, RUN_KEY}
    )
    corpus = result.data.corpus
    expected |= added
    expected[RUN_KEY] = {
        "schema": SCHEMA,
        REVISION_KEY: result.run.get(REVISION_KEY),
        # The digest of a corpus which was not read may be any.
        DIGEST_KEY: {
            "corpus": corpus if DIGEST.fullmatch(corpus) else "16 hexadecimal digits",
            **facts.digest,
        },
        TOLERATED_KEY: expected_tolerated(facts, result.run.get(TOLERATED_KEY)),
        "missing_subsets": [],
        "top_k": max(task.k_values),
        SCORE_NAMES_KEY: sorted(added),
    }
    stated = {name: value for name, value in scores.items() if name not in unchecked}
    stated[RUN_KEY] = {
        name: value for name, value in scores[RUN_KEY].items() if name != REFERENCE_KEY
    }
    yield from _find_differences(expected, stated)
    for name, value in scores.items():
        if NAUC.fullmatch(name) and not (_is_number(value) and not value > 1 + ROUNDING):
            yield name, f"is {sanitize(value)}; nAUC is a number of at most 1, or NaN"
        for first, second in SYNONYMS.items():
            if name.startswith(first):
                twin = name.replace(first, second)
                # NaN is the same as NaN.
                if repr(value) != repr(scores.get(twin)):
                    yield (
                        name,
                        f"is {sanitize(value)} in the file, but {twin}, the same number, is "
                        f"{sanitize(scores.get(twin))}",
                    )


def expected_tolerated(facts: SubsetFacts, stated: object) -> dict[str, int]:
    """Return the numbers of tolerated rows that a result states; those of a corpus which was not
    read may be any.
    """
    if "corpus" in facts.digest or not isinstance(stated, dict):
        return dict(facts.tolerated)
    plausible = {
        key: count
        for key, count in stated.items()
        if key in CORPUS_KEYS and type(count) is int and count > 0
    }
    return {**plausible, **facts.tolerated}


def retrieval_bounds(
    profile: PositionProfile, recall_at_20: Any, k_values: tuple[int, ...]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the lowest and highest possible value of each of mteb's retrieval scores; equal if the
    profile determines it.

    A profile counts ranks 11 to 100 together. How many of them are at most 20 follows from
    recall@20, if that is plausible. Each of those ranks is at best 11 and at worst 20; the others
    are at best 21 and at worst 100.
    """
    counts = profile.totals.sum(axis=0)
    near = int(counts[:DEPTH].sum())
    between = int(counts[DEPTH])
    to_20 = 0
    if isinstance(recall_at_20, float | int) and math.isfinite(recall_at_20):
        found_to_20 = round(recall_at_20 * profile.queries)
        to_20 = min(max(found_to_20 - near, 0), between)
    bounds = []
    for rank_to_20, rank_to_100 in ((20, 100), (11, 21)):
        # Of each rank as many queries as have it; 0 is that of a document which is not found.
        ranks = [*range(1, DEPTH + 1), rank_to_20, rank_to_100, 0]
        queries = [*counts[:DEPTH], to_20, between - to_20, counts[-1]]
        ranked = RankedQueries(np.repeat(ranks, queries), confidence={})
        bounds.append(retrieval_scores(ranked, k_values))
    return bounds[0], bounds[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def _find_differences(expected: Any, actual: Any, field: str = "") -> Iterator[Problem]:
    """Yield the differences between an expected JSON value, not rounded, and one rounded as mteb
    rounds it, by field. A tuple has the lowest and the highest value that a number may have.
    """
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in sorted(expected.keys() | actual.keys()):
            place = f"{field}.{name}" if field else name
            if name not in actual:
                yield place, "is missing; `posir rescore` recomputes all scores from the profile"
            elif name not in expected:
                message = (
                    "is no score that can be computed here, so it cannot be checked; remove it"
                )
                yield place, message
            else:
                yield from _find_differences(expected[name], actual[name], place)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, pair in enumerate(zip(expected, actual, strict=True)):
            yield from _find_differences(*pair, f"{field}[{index}]")
    elif problem := _compare(expected, actual):
        yield field, problem


def _compare(expected: Any, value: Any) -> str:
    """Return how a value differs from the expected one; empty if it does not."""
    if not isinstance(expected, float | tuple):
        if type(expected) is type(value) and expected == value:
            return ""
        return f"is {sanitize(value)} in the file; must be {sanitize(expected)}"
    low, high = expected if isinstance(expected, tuple) else (expected, expected)
    if not _is_number(value):
        return f"is {sanitize(value)}; must be a number"
    if low - ROUNDING <= value <= high + ROUNDING and value == round(value, DECIMALS):
        return ""
    bounds = " to ".join(dict.fromkeys(f"{end:.{DECIMALS}f}" for end in (low, high)))
    return f"is {value} in the file; the profile gives {bounds}"


@dataclass(frozen=True, eq=False)
class SubsetFacts:
    """Facts of a subset's data."""

    evidence: Evidence
    tolerated: Mapping[str, int]
    """Tolerated rows by rule; of the corpus only if it was read."""
    digest: Mapping[str, str]
    """Digests of the content of `queries` and, if it was read, `corpus`."""
    documents: Rows | None = None
    """Rows of the relevant documents by id; None if the corpus was not read."""


@lru_cache(maxsize=64)
def subset_facts(
    task: type[PositionTask], subset: str, revision: str, *, with_corpus: bool = False
) -> SubsetFacts:
    """Read the evidence of a builtin task's subset; cached, since many models have results on the
    same subset.

    The revision is a commit on the Hub, or that of a dataset that is not there. A folder
    `POSIR_DATA` is read regardless of it. PosIR's corpora, gigabytes of text, are read only on
    request.
    """
    from posir_tasks.tasks.nano import NanoTask
    from posir_tasks.tasks.posir import PosirTask
    from posir_tasks.tasks.posq import PosqTask

    if issubclass(task, PosirTask | PosqTask):
        check_environment()
        folder = data_folder()
        repository: Repository = HubRepository(task.repo_id, revision)
        if folder is not None:
            repository = LocalRepository(folder / folder_name(task.repo_id))
        if issubclass(task, PosirTask) and not (issubclass(task, NanoTask) or with_corpus):
            return _posir_facts(repository, f"{task.language.code}/{subset}")
        data = task().read_subset(subset, repository)
    else:
        data = task().read_subset(subset)
        if data.revision != revision:
            raise DataError(
                f"{task.metadata.name}: this version of posir has revision {data.revision}, not "
                f"{revision}."
            )
    return SubsetFacts(
        data.evidence,
        data.tolerated,
        digest_data(data),
        select_relevant(data.corpus, data.evidence.document_ids),
    )


def _posir_facts(repository: Repository, folder: str) -> SubsetFacts:
    queries = repository.fetch(f"{folder}/queries.parquet")
    qrels = repository.fetch(f"{folder}/qrels/test.parquet")
    tables = PosirTables(
        CheckedTable("", pl.DataFrame()),
        CheckedTable(str(queries), read_columns(queries, QUERIES, {TITLE: pl.String})),
        CheckedTable(str(qrels), read_columns(qrels, QRELS)),
        same_language=True,
    )
    kept, tolerated = tolerate_tables(tables)
    frame = kept.queries.frame
    evidence = build_evidence(frame)
    texts = frame.select(pl.col("_id").alias("id"), "text")
    digest = {"queries": digest_queries(texts, evidence)}
    return SubsetFacts(evidence, count_tolerated(tolerated), digest)
