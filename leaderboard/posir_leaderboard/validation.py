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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from datasets import Dataset
from mteb.models.model_implementations.bm25 import bm25_loader
from mteb.results import TaskResult

from posir_leaderboard.entries import DIGEST, Entry, EntryProblem, check_revision, origin_problems
from posir_tasks.base.errors import DataError
from posir_tasks.base.private_names import MODEL_REGISTRY
from posir_tasks.base.progress import progress
from posir_tasks.base.wording import sanitized
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
from posir_tasks.values import document_ranks, rotation_ranks
from posir_tasks.values import result_schema as keys
from posir_tasks.values.document_keys import OPENINGS, TEXTS, TITLES
from posir_tasks.values.document_ranks import DocumentRanks, DocumentSet, order_queries
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.profile import DEPTH, PositionProfile
from posir_tasks.values.ranks import RankedQueries, retrieval_scores
from posir_tasks.values.read_part import CountedWith
from posir_tasks.values.result_schema import DECIMALS
from posir_tasks.values.rotation_ranks import RotationSet, Untested

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
#: Most problems that are reported for one subset.
MAX_PROBLEMS = 20


def validate_entry(entry: Entry) -> list[EntryProblem]:
    """Return every problem of an entry; an empty list if it may be on the leaderboard.

    Reads the dataset from the Hub or `POSIR_DATA`: only queries and qrels for PosIR, all of it for
    others.
    """
    task = find_task(entry.task)
    if task is None:
        return [
            EntryProblem(
                str(entry.file),
                "is not a task of posir; `posir tasks` lists them",
                field="task_name",
            )
        ]
    problems = [*origin_problems(entry), *_file_problems(entry, task)]
    subsets = zip(
        entry.subsets,
        (scores for split in entry.data["scores"].values() for scores in split),
        strict=True,
    )
    for result, scores in progress(list(subsets), f"Checking {entry.model}, {entry.task}"):
        if result.subset in task.metadata.hf_subsets:
            problems += islice(_subset_problems(entry, task, result, scores), MAX_PROBLEMS)
    return problems


def _file_problems(entry: Entry, task: type[PositionTask]) -> Iterator[EntryProblem]:
    """Yield other splits than the task's, the fields of the file that mteb does not write, and
    missing and unknown subsets.
    """
    splits, expected_splits = [*entry.data["scores"]], task.metadata.eval_splits
    if {*splits} != {*expected_splits}:
        message = (
            f"has the splits {sanitized(', '.join(splits))}; {entry.task} has "
            f"{', '.join(expected_splits)}"
        )
        yield EntryProblem(str(entry.file), message, field="scores")
    for name in entry.data:
        if name not in TaskResult.model_fields:
            message = (
                f"is not a field of mteb's results; these are {', '.join(TaskResult.model_fields)}"
            )
            yield EntryProblem(str(entry.file), message, field=name)
    submitted, expected = {result.subset for result in entry.subsets}, set(task.metadata.hf_subsets)
    if expected - submitted:
        missing = ", ".join(sorted(expected - submitted))
        yield EntryProblem(
            str(entry.file),
            f"is partial: {len(submitted)} of {len(expected)} subsets. Run the missing ones: "
            f"{missing}",
        )
    for subset in sorted(submitted - expected):
        yield EntryProblem(str(entry.file), f"is not a subset of {entry.task}", subset)


def _subset_problems(
    entry: Entry, task: type[PositionTask], result: SubsetResult, scores: Mapping[str, Any]
) -> Iterator[EntryProblem]:
    revision, axes = result.run.get(keys.REVISION_KEY), task.scheme.axes
    problem = check_revision(
        revision, entry.data.get("dataset_revision"), task.metadata.dataset["revision"]
    )
    if problem:  # one of its origin
        return
    if result.profile.axes.to_json() != axes.to_json():
        yield EntryProblem(
            str(entry.file),
            f"differ from those of the scheme {axes.scheme}",
            result.subset,
            f"{keys.PROFILE_KEY}.axes",
        )
        return
    try:
        # Then queries are missing whose documents alone say so.
        stated = result.run.get(keys.TOLERATED_KEY)
        with_corpus = isinstance(stated, dict) and bool(
            stated.get("judgments_of_missing_documents")
        )
        facts = subset_facts(task, result.subset, str(revision), with_corpus=with_corpus)
    except DataError as error:
        message = f"the data cannot be read: {sanitized(str(error), 500)}"
        yield EntryProblem(
            str(entry.file), message, result.subset, f"{keys.RUN_KEY}.{keys.REVISION_KEY}"
        )
        return
    # Scores of impossible counts may take forever to compute.
    languages = task.metadata.hf_subsets_to_langscripts[result.subset]
    problems = [
        *_count_problems(task, facts, result.profile),
        *_rank_problems(task, facts, result, languages),
        *_rotation_problems(entry.model, task, facts, result),
    ]
    problems = problems or list(_score_problems(task, facts, result, scores))
    for field, message in problems:
        yield EntryProblem(str(entry.file), message, result.subset, field)


def _count_problems(
    task: type[PositionTask], facts: SubsetFacts, profile: PositionProfile
) -> Iterator[tuple[str, str]]:
    """Yield the counts that differ from the dataset or are impossible, as field and message.

    The numbers of queries by cell and by length depend on the dataset alone. A query may be in
    several cells.
    """
    expected = PositionProfile.from_ranks(task.scheme, facts.evidence)
    for name in ("counts", "totals"):
        stated, counted = (getattr(item, name).sum(axis=-1) for item in (profile, expected))
        if len(places := np.argwhere(stated != counted)):
            first = tuple(places[0].tolist())
            where = "".join(f"[{index}]" for index in first)
            more = f"; {len(places)} cells differ" if len(places) > 1 else ""
            message = f"counts {stated[first]:,} queries, the dataset has {counted[first]:,}{more}"
            yield f"{keys.PROFILE_KEY}.{name}{where}", message
    cells = np.bincount(task.scheme.cells(facts.evidence).query, minlength=len(facts.evidence))
    by_rank = profile.counts.sum(axis=1)
    if np.any(by_rank < cells.min(initial=1) * profile.totals) or np.any(
        by_rank > cells.max(initial=1) * profile.totals
    ):
        yield (
            f"{keys.PROFILE_KEY}.totals",
            "does not agree with the counts: both count the same queries at each length and rank",
        )


def _rank_problems(
    task: type[PositionTask], facts: SubsetFacts, result: SubsetResult, languages: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield what in the ranks by document, and in the places of the evidence, is not of the
    dataset's queries.
    """
    evidence = facts.evidence
    estimate = ReadEvidence.estimate(result.values.read, evidence, languages)
    expected = DocumentRanks.from_ranks(
        task.scheme, evidence, np.zeros(len(evidence), np.int64), estimate, result.subset
    )
    pairs = list(zip(result.ranks.sets, expected.sets, strict=False))
    if not result.ranks.same_queries(expected):
        yield keys.RANKS_KEY, "are not those of the dataset's queries and documents"
    elif any(a.subset != b.subset for a, b in pairs):
        yield keys.RANKS_KEY, f"are not those of the subset '{result.subset}'"
    else:
        for stated, computed in pairs:
            yield from _place_problems(stated, computed, evidence)


def _place_problems(
    stated: DocumentSet, computed: DocumentSet, evidence: Evidence
) -> Iterator[tuple[str, str]]:
    """Yield the places of evidence that the dataset contradicts; those by a model's tokenizer
    cannot be computed here.
    """
    if len(evidence.tokens) and not np.array_equal(stated.half_octaves, computed.half_octaves):
        yield keys.READ_RANKS_KEY, "state other lengths of documents than the dataset"
    if len(computed.thirds) and not np.array_equal(stated.thirds, computed.thirds):
        yield keys.READ_RANKS_KEY, "state other thirds of documents than the dataset"
    if not np.array_equal(stated.document_keys[:, TITLES], computed.document_keys[:, TITLES]):
        yield keys.KEYS_KEY, "state other titles of articles than the dataset"
    # Those that are stated cannot be checked without the texts, which may be gigabytes.
    if not stated.document_keys[:, [TEXTS, OPENINGS]].all():
        yield (
            keys.KEYS_KEY,
            "lack the digest of the text or the opening of a document; run the task again",
        )
    if stated.counted_with is CountedWith.TOKENIZER or not len(computed.twelfths):
        return
    if stated.counted_with is not computed.counted_with:
        ways = (
            f"{computed.counted_with} or tokenizer"
            if computed.counted_with
            else "null, as no tokens are counted"
        )
        yield f"{keys.READ_RANKS_KEY}.counted_with", f"is {stated.counted_with}; must be {ways}"
    elif not np.array_equal(stated.twelfths, computed.twelfths):
        yield keys.READ_RANKS_KEY, "state other places of the evidence than the dataset"


def _rotation_problems(
    model: str, task: type[PositionTask], facts: SubsetFacts, result: SubsetResult
) -> Iterator[tuple[str, str]]:
    """Yield what in the ranks of rotated versions is not of the sample of the dataset's documents.

    Which documents are sampled, and their versions, follow from their texts, if these were read.
    """
    for part in result.values.rotations.sets if result.values.rotations else ():
        subsets = len(task.metadata.hf_subsets)
        if part.subsets != subsets:
            yield (
                f"{keys.ROTATIONS_KEY}.subsets",
                f"is {part.subsets}; {task.metadata.name} has {subsets}",
            )
        elif part.untested is Untested.ORDER_BLIND and not _ignores_order(model):
            yield (
                f"{keys.ROTATIONS_KEY}.untested",
                f"is {part.untested}, but the scores of {model} depend on word order",
            )
        elif part.untested is None:
            yield from _sample_problems(part, task, facts, result.subset)


def _ignores_order(model: str) -> bool:
    """Tell whether word order plays no part in the scores of a model, which only mteb's registry
    can say.
    """
    known = MODEL_REGISTRY.resolve().get(model)
    return known is not None and (
        known.loader is bm25_loader or getattr(known.loader, "order_blind", False) is True
    )


def _sample_problems(
    part: RotationSet, task: type[PositionTask], facts: SubsetFacts, subset: str
) -> Iterator[tuple[str, str]]:
    evidence = facts.evidence
    groups = order_queries(task.scheme, evidence)
    lengths = task.scheme.length_buckets(evidence)
    quota = part.quota(part.sample_size)
    # A length has the places from 1 on of as many documents as it has, up to the quota, whatever
    # their texts are.
    bucket = lengths[[group[0] for group in groups]]
    for length in np.unique(bucket):
        places = part.sample[bucket == length]
        if sorted(places[places > 0].tolist()) != list(range(1, min(quota, len(places)) + 1)):
            yield (
                f"{keys.ROTATIONS_KEY}.sample",
                "is not a sample of the dataset's documents of each length",
            )
            return
    if facts.documents is None:
        return
    if sample_documents(groups, evidence, lengths, facts.documents, quota) != part.sample.tolist():
        yield f"{keys.ROTATIONS_KEY}.sample", "is not the sample that the texts of the dataset give"
    elif _digest_sample(part, task, facts, groups, subset) != part.digest:
        yield f"{keys.ROTATIONS_KEY}.digest", "is not that of the versions of the dataset's texts"


def _digest_sample(
    part: RotationSet,
    task: type[PositionTask],
    facts: SubsetFacts,
    groups: Sequence[Sequence[int]],
    subset: str,
) -> str:
    """Return the digest of the versions of the sampled documents, as the texts of the dataset give
    them.
    """
    language = task.metadata.hf_subsets_to_langscripts[subset][-1]
    texts = list[str]()
    for group in (group for group, place in zip(groups, part.sample, strict=True) if place):
        text = str((facts.documents or {})[facts.evidence.document_ids[group[0]]]["text"])
        units = find_units(text, language, find_spans(facts.evidence, group))
        texts += [version.text for version in rotate_text(text, units)]
    return digest_versions(texts)


def _score_problems(
    task: type[PositionTask], facts: SubsetFacts, result: SubsetResult, scores: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield every score that is missing, unknown, or different from what the profile gives, as
    field and message.
    """
    low, high = retrieval_bounds(result.profile, scores.get("recall_at_20"), task.k_values)
    others = {name for name in scores if NAUC.fullmatch(name)} | {
        "mteb_version",
        "previous_results_model_meta",
    }
    languages = task.metadata.hf_subsets_to_langscripts[result.subset]
    fixed = {
        "hf_subset": result.subset,
        "languages": languages,
        "main_score": low[task.metadata.main_score],
    }
    # Packed columns are compared as values above: another version of zlib packs the same ones into
    # another text.
    packed = {
        key: {**scores[key], "schema": document_ranks.SCHEMA}
        for key in (keys.RANKS_KEY, keys.READ_RANKS_KEY, keys.KEYS_KEY)
    }
    if keys.ROTATIONS_KEY in scores:
        packed[keys.ROTATIONS_KEY] = {**scores[keys.ROTATIONS_KEY], "schema": rotation_ranks.SCHEMA}
    values = result.values.to_json() | packed
    computed = score_result(result.values)
    stated = result.data.corpus
    added = computed.to_json(
        result.profile.positions, taken={*low, *others, *fixed, *values, keys.RUN_KEY}
    )
    run = {
        "schema": keys.SCHEMA,
        keys.REVISION_KEY: result.run.get(keys.REVISION_KEY),
        # The digest of a corpus which was not read may be any.
        keys.DIGEST_KEY: {
            "corpus": stated if DIGEST.fullmatch(stated) else "16 hexadecimal digits",
            **facts.digest,
        },
        keys.TOLERATED_KEY: expected_tolerated(facts, result.run.get(keys.TOLERATED_KEY)),
        "missing_subsets": [],
        "top_k": max(task.k_values),
        keys.SCORE_NAMES_KEY: sorted(added),
    }
    rest = {name: value for name, value in scores.items() if name not in low and name not in others}
    # What commands name the model by is no score, and `build_submission` removes it.
    rest[keys.RUN_KEY] = {
        name: value for name, value in scores[keys.RUN_KEY].items() if name != keys.REFERENCE_KEY
    }
    yield from differences({**fixed, **values, keys.RUN_KEY: run, **added}, rest)
    for name, least in low.items():
        value: Any = scores.get(name)
        most = high[name]
        if not _is_number(value):
            yield name, f"is {sanitized(value)}; must be a number"
        elif not least - ROUNDING <= value <= most + ROUNDING or value != round(value, DECIMALS):
            gives = (
                f"{least:.{DECIMALS}f}"
                if least == most
                else f"{least:.{DECIMALS}f} to {most:.{DECIMALS}f}"
            )
            yield name, f"is {value} in the file; the profile gives {gives}"
    yield from _nauc_problems(scores)


def expected_tolerated(facts: SubsetFacts, stated: object) -> dict[str, int]:
    """Return the numbers of tolerated rows that a result states; those of a corpus which was not
    read may be any.
    """
    open_ = stated if isinstance(stated, dict) and "corpus" not in facts.digest else {}
    plausible = {
        key: count
        for key, count in open_.items()
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
    near, between, queries = int(counts[:DEPTH].sum()), int(counts[DEPTH]), profile.queries
    plausible = isinstance(recall_at_20, float | int) and math.isfinite(recall_at_20)
    to_20 = min(max(round(recall_at_20 * queries) - near, 0), between) if plausible else 0
    ranks = [
        np.repeat(np.arange(1, DEPTH + 1), counts[:DEPTH]),
        np.zeros(int(counts[-1]), np.int64),
    ]

    def scores(rank_to_20: int, rank_to_100: int) -> dict[str, float]:
        far = np.repeat([rank_to_20, rank_to_100], [to_20, between - to_20])
        return retrieval_scores(
            RankedQueries(np.concatenate([*ranks, far]), confidence={}), k_values
        )

    return scores(20, 100), scores(11, 21)


def _nauc_problems(scores: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in scores.items():
        if NAUC.fullmatch(name) and not (_is_number(value) and not value > 1 + ROUNDING):
            yield name, f"is {sanitized(value)}; nAUC is a number of at most 1, or NaN"
        twin = next(
            (
                second + name.removeprefix(first)
                for first, second in SYNONYMS.items()
                if name.startswith(first)
            ),
            None,
        )
        other: Any = scores.get(twin or "")
        both_nan = (
            _is_number(value) and _is_number(other) and math.isnan(value) and math.isnan(other)
        )
        if twin and not (value == other or both_nan):
            yield (
                name,
                f"is {sanitized(value)} in the file, but {twin}, the same number, is "
                f"{sanitized(other)}",
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def differences(expected: Any, actual: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield the differences between an expected JSON value, not rounded, and one rounded as mteb
    rounds it, by field.
    """
    if isinstance(expected, dict) and isinstance(actual, dict):
        inside = f"{field}." if field else ""
        for name in sorted(expected.keys() | actual.keys()):
            if name not in actual:
                yield (
                    f"{inside}{name}",
                    "is missing; `posir rescore` recomputes all scores from the profile",
                )
            elif name not in expected:
                yield (
                    f"{inside}{name}",
                    "is not a score that can be computed here, so it cannot be checked; remove it",
                )
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

    if issubclass(task, PosirTask) and not (issubclass(task, NanoTask) or with_corpus):
        return _posir_facts(_open_repository(task.repo_id, revision), task.language.code, subset)
    if issubclass(task, PosirTask | PosqTask):
        data = task().read_subset(subset, _open_repository(task.repo_id, revision))
    else:
        data = task().read_subset(subset)
        if data.revision != revision:
            raise DataError(
                f"{task.metadata.name}: this version of posir has revision {data.revision}, not "
                f"{revision}."
            )
    documents = select_relevant(data.corpus, data.evidence.document_ids)
    return SubsetFacts(
        data.evidence,
        data.tolerated,
        digest_data(data.corpus, data.queries, data.evidence),
        documents,
    )


def _open_repository(repo_id: str, revision: str) -> Repository:
    check_environment()
    folder = data_folder()
    return (
        LocalRepository(folder / folder_name(repo_id))
        if folder
        else HubRepository(repo_id, revision)
    )


def _posir_facts(repository: Repository, language: str, domain: str) -> SubsetFacts:
    queries, qrels = (
        repository.fetch(f"{language}/{domain}/{name}")
        for name in ("queries.parquet", "qrels/test.parquet")
    )
    tables = PosirTables(
        CheckedTable("", pl.DataFrame()),
        CheckedTable(str(queries), read_columns(queries, QUERIES, {TITLE: pl.String})),
        CheckedTable(str(qrels), read_columns(qrels, QRELS)),
        same_language=True,
    )
    kept, tolerated = tolerate_tables(tables)
    evidence = build_evidence(kept.queries.frame)
    texts = Dataset.from_polars(kept.queries.frame.select(pl.col("_id").alias("id"), "text"))
    return SubsetFacts(
        evidence, count_tolerated(tolerated), {"queries": digest_queries(texts, evidence)}
    )
