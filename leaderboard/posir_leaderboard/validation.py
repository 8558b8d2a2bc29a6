"""Check that entries are complete, use the named dataset, and match the scores of their profiles.

All scores are recomputed from the profile. Scores for which the profile gives only bounds (at 20;
nDCG and MRR at 100) must lie within the bounds. mteb's nAUC depends on similarity scores, so only
its synonyms are compared. Only another run of the model can show that the profile itself is
correct.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from mteb.models.model_implementations.bm25 import bm25_loader
from mteb.results import TaskResult

from posir_leaderboard.entries import (
    DIGEST,
    Entry,
    EntryProblem,
    check_revision,
    find_origin_problems,
)
from posir_tasks.base.errors import DataError
from posir_tasks.base.private_names import MODEL_REGISTRY
from posir_tasks.base.progress import track_items
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
    get_data_folder,
    get_folder_name,
)
from posir_tasks.plugin_api import score_result
from posir_tasks.results import SubsetResult
from posir_tasks.search.rotations import digest_versions, find_spans, sample_documents
from posir_tasks.search.scoring import select_documents
from posir_tasks.tasks.catalog import find_task
from posir_tasks.text.rotations import find_units, rotate_text
from posir_tasks.values.document_keys import OPENINGS, TEXTS, TITLES
from posir_tasks.values.document_ranks import DocumentRanks, DocumentSet
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.profile import DEPTH, PositionProfile
from posir_tasks.values.query_order import order_queries
from posir_tasks.values.ranks import RankedQueries, compute_retrieval_scores
from posir_tasks.values.read_part import TokenCountMethod
from posir_tasks.values.result_schema import (
    DECIMALS,
    DIGEST_KEY,
    KEYS_KEY,
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
from posir_tasks.values.rotation_ranks import RotationSet, UntestedReason
from posir_tasks.values.schemes import PositionScheme

if TYPE_CHECKING:
    from posir_tasks.search.scoring import Rows
    from posir_tasks.tasks.base import PositionTask


#: Maximum rounding error: half a unit of the last decimal, plus summation error.
ROUNDING = 0.5 * 10**-DECIMALS + 1e-9
#: Prefixes of metrics that are equal if every query has one relevant document.
SYNONYM_PREFIXES = {
    "map_at_": "mrr_at_",
    "nauc_map_at_": "nauc_mrr_at_",
    "nauc_precision_at_": "nauc_recall_at_",
}
NAUC_NAME = re.compile(r"nauc_(ndcg|map|mrr|recall|precision)_at_\d+_(max|std|diff1)")
#: Fields that mteb adds to a result; they do not depend on the model.
UNCHECKED_FIELDS = {"mteb_version", "previous_results_model_meta"}
#: Fields with packed columns, which are unpacked before they are compared.
PACKED_FIELDS = (RANKS_KEY, READ_RANKS_KEY, KEYS_KEY, ROTATIONS_KEY)
#: Key for the number of judgments whose document is missing from the corpus.
MISSING_DOCUMENTS = "judgments_of_missing_documents"
#: Maximum number of reported problems per subset.
MAX_PROBLEMS = 20
#: Pairs of a field and a message.
Problems = Iterator[tuple[str, str]]
Scores = Mapping[str, Any]
Counts = Mapping[str, int]


def validate_entry(entry: Entry) -> list[EntryProblem]:
    """Return every problem with an entry; an entry without problems may enter the leaderboard.

    Reads the dataset from the Hub or `POSIR_DATA`; of PosIR, only queries and qrels.
    """
    task = find_task(entry.task)
    if task is None:
        return [entry.make_problem("is not a task of posir; `posir tasks` lists them", "task_name")]
    problems = [*find_origin_problems(entry), *_find_file_problems(entry, task)]
    subsets = list(zip(entry.subsets, chain(*entry.data["scores"].values()), strict=True))
    for result, scores in track_items(subsets, f"Checking {entry.model}, {entry.task}"):
        if result.subset in task.metadata.hf_subsets:
            subset_problems = islice(
                _find_subset_problems(entry, task, result, scores), MAX_PROBLEMS
            )
            problems += [
                entry.make_problem(text, field, result.subset) for field, text in subset_problems
            ]
    return problems


def _find_file_problems(entry: Entry, task: type[PositionTask]) -> Iterator[EntryProblem]:
    splits = entry.data["scores"].keys()
    if splits != {*task.metadata.eval_splits}:
        yield entry.make_problem(
            f"has the splits {sanitize(', '.join(splits))}; {entry.task} has "
            f"{', '.join(task.metadata.eval_splits)}",
            "scores",
        )
    fields = TaskResult.model_fields
    for name in sorted(entry.data.keys() - fields):
        yield entry.make_problem(
            f"is not a field of mteb's results; these are {', '.join(fields)}", name
        )
    submitted = {result.subset for result in entry.subsets}
    expected_subsets = {*task.metadata.hf_subsets}
    if missing := sorted(expected_subsets - submitted):
        yield entry.make_problem(
            f"is partial: {len(submitted)} of {len(expected_subsets)} subsets. Run the missing "
            f"ones: {', '.join(missing)}"
        )
    for subset in sorted(submitted - expected_subsets):
        yield entry.make_problem(f"is not a subset of {entry.task}", subset=subset)


def _find_subset_problems(
    entry: Entry, task: type[PositionTask], result: SubsetResult, scores: Scores
) -> Problems:
    revision = result.run.get(REVISION_KEY)
    pinned = task.metadata.dataset["revision"]
    if check_revision(revision, entry.data.get("dataset_revision"), pinned):
        return  # already reported by `find_origin_problems`
    # Only the corpus shows which queries were dropped because their document is missing.
    with_corpus = MISSING_DOCUMENTS in result.run.get(TOLERATED_KEY, ())
    try:
        facts = read_subset_facts(task, result.subset, str(revision), with_corpus=with_corpus)
    except DataError as error:
        yield (
            f"{RUN_KEY}.{REVISION_KEY}",
            f"the data cannot be read: {sanitize(str(error), 500)}",
        )
        return
    problems = [
        *_find_rank_problems(task, facts, result),
        *_find_rotation_problems(entry.model, task, facts, result),
    ]
    # Computing scores from impossible ranks may never end.
    yield from problems or _find_score_problems(task, facts, result, scores)


def _find_rank_problems(
    task: type[PositionTask], facts: SubsetFacts, result: SubsetResult
) -> Problems:
    """Yield the differences between the ranks and the dataset's queries and evidence.

    That the profile follows from the ranks is already checked when a result is read.
    """
    evidence = facts.evidence
    languages = task.metadata.hf_subsets_to_langscripts[result.subset]
    estimate = ReadEvidence.estimate(result.values.read, evidence, languages)
    no_ranks = np.zeros(len(evidence), np.int64)
    expected_ranks = DocumentRanks.from_ranks(
        task.scheme, evidence, no_ranks, estimate, result.subset
    )
    if not result.ranks.has_same_queries(expected_ranks):
        yield (
            RANKS_KEY,
            f"do not match the dataset's queries and documents: {result.profile.queries:,} "
            f"queries, the dataset has {len(evidence):,}",
        )
        return
    for submitted_set, computed_set in zip(result.ranks.sets, expected_ranks.sets, strict=True):
        yield from _find_position_problems(submitted_set, computed_set)


def _find_position_problems(submitted_set: DocumentSet, computed_set: DocumentSet) -> Problems:
    """Yield the fields whose evidence positions contradict the dataset.

    Positions counted with a model's tokenizer are not checked.
    """
    if len(computed_set.thirds) and not np.array_equal(submitted_set.thirds, computed_set.thirds):
        yield READ_RANKS_KEY, "do not match the dataset's thirds of documents"
    if not np.array_equal(
        submitted_set.document_keys[:, TITLES], computed_set.document_keys[:, TITLES]
    ):
        yield KEYS_KEY, "do not match the dataset's article titles"
    # The digests are not compared, since the texts may be gigabytes.
    if not submitted_set.document_keys[:, [TEXTS, OPENINGS]].all():
        yield (
            KEYS_KEY,
            "lack the digest of the text or the opening of a document; run the task again",
        )
    if submitted_set.counted_with is TokenCountMethod.TOKENIZER or not len(computed_set.twelfths):
        return
    if submitted_set.counted_with is not computed_set.counted_with:
        yield (
            f"{READ_RANKS_KEY}.counted_with",
            f"is {submitted_set.counted_with}; must be {computed_set.counted_with} or tokenizer",
        )
    elif not np.array_equal(submitted_set.twelfths, computed_set.twelfths):
        yield READ_RANKS_KEY, "do not match the dataset's evidence positions"


def _find_rotation_problems(
    model: str, task: type[PositionTask], facts: SubsetFacts, result: SubsetResult
) -> Problems:
    subsets = len(task.metadata.hf_subsets)
    for rotations in result.values.rotations.sets if result.values.rotations else ():
        if rotations.subsets != subsets:
            yield (
                f"{ROTATIONS_KEY}.subsets",
                f"is {rotations.subsets}; {task.metadata.name} has {subsets}",
            )
        elif rotations.untested is UntestedReason.ORDER_BLIND:
            # Only mteb's registry decides whether scores depend on word order.
            loader = getattr(MODEL_REGISTRY.resolve().get(model), "loader", None)
            if loader is not bm25_loader and getattr(loader, "order_blind", False) is not True:
                yield (
                    f"{ROTATIONS_KEY}.untested",
                    f"is {rotations.untested}, but the scores of {model} depend on word order",
                )
        elif rotations.untested is None:
            language = task.metadata.hf_subsets_to_langscripts[result.subset][-1]
            yield from _find_sample_problems(rotations, task.scheme, facts, language)


def _find_sample_problems(
    rotations: RotationSet, scheme: PositionScheme, facts: SubsetFacts, language: str
) -> Problems:
    evidence = facts.evidence
    documents = facts.documents
    groups = order_queries(scheme, evidence)
    lengths = scheme.length_buckets(evidence)
    quota = rotations.compute_quota(rotations.sample_size)
    field = f"{ROTATIONS_KEY}.sample"
    if documents is None:
        # Without texts, only the sample size of each length and the numbering can be checked.
        buckets = lengths[[group[0] for group in groups]]
        for length in np.unique(buckets):
            numbers = rotations.sample[buckets == length]
            expected_numbers = np.arange(1, min(quota, len(numbers)) + 1)
            if not np.array_equal(np.sort(numbers[numbers > 0]), expected_numbers):
                yield field, "is not a sample of the dataset's documents of each length"
                return
        return
    if sample_documents(groups, evidence, lengths, documents, quota) != rotations.sample.tolist():
        yield field, "is not the sample of the dataset's texts"
        return
    versions: list[str] = []
    for index in np.flatnonzero(rotations.sample).tolist():
        text = str(documents[evidence.document_ids[groups[index][0]]]["text"])
        units = find_units(text, language, find_spans(evidence, groups[index]))
        versions += [version.text for version in rotate_text(text, units)]
    if digest_versions(versions) != rotations.digest:
        yield (
            f"{ROTATIONS_KEY}.digest",
            "does not match the rotated versions of the dataset's texts",
        )


def _find_score_problems(
    task: type[PositionTask], facts: SubsetFacts, result: SubsetResult, scores: Scores
) -> Problems:
    bounds = compute_retrieval_bounds(result.profile, scores.get("recall_at_20"), task.k_values)
    unchecked = {name for name in scores if NAUC_NAME.fullmatch(name)} | UNCHECKED_FIELDS
    expected_values = {
        **bounds,
        "hf_subset": result.subset,
        "languages": task.metadata.hf_subsets_to_langscripts[result.subset],
        "main_score": bounds[task.metadata.main_score][0],
        **result.values.to_json(),
    }
    # The unpacked columns are compared above; the packed bytes depend on the zlib version.
    for key in scores.keys() & PACKED_FIELDS:
        expected_values[key] = {**scores[key], "schema": SCHEMA}
    position_scores = score_result(result.values).to_json(
        result.profile.positions, reserved_keys={*unchecked, *expected_values, RUN_KEY}
    )
    corpus = result.data.corpus
    expected_values |= position_scores
    expected_values[RUN_KEY] = {
        "schema": SCHEMA,
        REVISION_KEY: result.run.get(REVISION_KEY),
        # An unread corpus may have any digest.
        DIGEST_KEY: {
            "corpus": corpus if DIGEST.fullmatch(corpus) else "16 hexadecimal digits",
            **facts.digest,
        },
        TOLERATED_KEY: compute_tolerated(facts, result.run.get(TOLERATED_KEY, {})),
        "missing_subsets": [],
        "top_k": max(task.k_values),
        SCORE_NAMES_KEY: sorted(position_scores),
    }
    actual = {name: value for name, value in scores.items() if name not in unchecked}
    actual[RUN_KEY] = {
        name: value for name, value in scores[RUN_KEY].items() if name != REFERENCE_KEY
    }
    yield from _find_differences(expected_values, actual)
    yield from _find_nauc_problems(scores)


def _find_nauc_problems(scores: Scores) -> Problems:
    for name, value in scores.items():
        if NAUC_NAME.fullmatch(name) and not (_is_number(value) and not value > 1 + ROUNDING):
            yield name, f"is {sanitize(value)}; nAUC is a number of at most 1, or NaN"
        for first, second in SYNONYM_PREFIXES.items():
            if name.startswith(first):
                synonym = name.replace(first, second)
                # NaN is not equal to NaN, but its repr is.
                if repr(value) != repr(scores.get(synonym)):
                    yield (
                        name,
                        f"is {sanitize(value)} in the file, but {synonym}, the same number, is "
                        f"{sanitize(scores.get(synonym))}",
                    )


def compute_tolerated(facts: SubsetFacts, submitted_counts: Counts) -> Counts:
    """Compute the expected numbers of tolerated rows; any number is valid for an unread corpus."""
    unread_keys = () if "corpus" in facts.digest else CORPUS_KEYS
    plausible = {
        key: count for key, count in submitted_counts.items() if key in unread_keys and count > 0
    }
    return {**plausible, **facts.tolerated}


def compute_retrieval_bounds(
    profile: PositionProfile, recall_at_20: Any, k_values: tuple[int, ...]
) -> dict[str, tuple[float, float]]:
    """Compute the minimum and maximum of each of mteb's retrieval scores.

    A profile has one count for ranks 11 to 100. A plausible Recall@20 determines how many of these
    are 11 to 20. The bounds assume rank 11 or 20 for them, and rank 21 or 100 for the others.
    """
    counts = profile.totals.sum(axis=0)
    up_to_10 = int(counts[:DEPTH].sum())
    from_11_to_100 = int(counts[DEPTH])
    from_11_to_20 = 0
    if _is_number(recall_at_20) and math.isfinite(recall_at_20):
        up_to_20 = round(recall_at_20 * profile.queries)
        from_11_to_20 = min(max(up_to_20 - up_to_10, 0), from_11_to_100)
    from_21_to_100 = from_11_to_100 - from_11_to_20
    queries = [*counts[:DEPTH], from_11_to_20, from_21_to_100, counts[-1]]
    bounds = []
    for rank_to_20, rank_to_100 in ((20, 100), (11, 21)):
        # Rank 0 means that the document was not retrieved.
        ranks = [*range(1, DEPTH + 1), rank_to_20, rank_to_100, 0]
        ranked_queries = RankedQueries(np.repeat(ranks, queries), confidence={})
        bounds.append(compute_retrieval_scores(ranked_queries, k_values))
    low, high = bounds
    return {name: (low[name], high[name]) for name in low}


def _is_number(value: Any) -> bool:
    return type(value) in (float, int)


def _find_differences(expected_value: Any, actual: Any, field: str = "") -> Problems:
    """Yield the differences between expected and actual JSON by field.

    Expected numbers are not rounded. A tuple is the minimum and maximum of a number.
    """
    if isinstance(expected_value, dict) and isinstance(actual, dict):
        for name in sorted(expected_value.keys() | actual.keys()):
            path = f"{field}.{name}" if field else name
            if name not in actual:
                yield path, "is missing; `posir rescore` recomputes all scores from the profile"
            elif name not in expected_value:
                yield path, "is a score that this installation cannot compute; remove it"
            else:
                yield from _find_differences(expected_value[name], actual[name], path)
    elif (
        isinstance(expected_value, list)
        and isinstance(actual, list)
        and len(expected_value) == len(actual)
    ):
        for index, pair in enumerate(zip(expected_value, actual, strict=True)):
            yield from _find_differences(*pair, f"{field}[{index}]")
    elif problem := _compare(expected_value, actual):
        yield field, problem


def _compare(expected_value: Any, value: Any) -> str:
    """Describe the difference between a value and the expected value; empty if there is none."""
    if not isinstance(expected_value, float | tuple):
        if type(expected_value) is type(value) and expected_value == value:
            return ""
        return f"is {sanitize(value)} in the file; must be {sanitize(expected_value)}"
    low, high = (
        expected_value if isinstance(expected_value, tuple) else (expected_value, expected_value)
    )
    if not _is_number(value):
        return f"is {sanitize(value)}; must be a number"
    if low - ROUNDING <= value <= high + ROUNDING and value == round(value, DECIMALS):
        return ""
    bounds = " to ".join(dict.fromkeys(f"{end:.{DECIMALS}f}" for end in (low, high)))
    return f"is {value} in the file; the profile gives {bounds}"


@dataclass(frozen=True, eq=False)
class SubsetFacts:
    """A subset's evidence and digests, to compare results with."""

    evidence: Evidence
    tolerated: Counts
    """Number of tolerated rows by rule; includes the corpus only if it was read."""
    digest: Mapping[str, str]
    """Digests of `queries` and, if it was read, of `corpus`."""
    documents: Rows | None = None
    """Rows of the relevant documents by id; None if the corpus was not read."""


@lru_cache(maxsize=64)
def read_subset_facts(
    task: type[PositionTask], subset: str, revision: str, *, with_corpus: bool = False
) -> SubsetFacts:
    """Read the data of a builtin task's subset. Cached, since many results are on the same data.

    Args:
        task: The task.
        subset: The subset.
        revision: A commit on the Hub; ignored for packaged data and with `POSIR_DATA`.
        with_corpus: Also read PosIR's corpora, which are gigabytes of text.

    Raises:
        DataError: The data cannot be read.
    """
    from posir_tasks.tasks.nano import NanoTask
    from posir_tasks.tasks.posir import PosirTask
    from posir_tasks.tasks.posq import PosqTask

    if issubclass(task, PosirTask | PosqTask):
        check_environment()
        folder = get_data_folder()
        dataset = task.metadata.dataset["path"]
        repository: Repository = HubRepository(dataset, revision)
        if folder is not None:
            repository = LocalRepository(folder / get_folder_name(dataset))
        if issubclass(task, PosirTask) and not (issubclass(task, NanoTask) or with_corpus):
            return _read_posir_facts(repository, f"{task.language.code}/{subset}")
        data = task().read_subset(subset, repository)
    else:
        data = task().read_subset(subset)
    return SubsetFacts(
        data.evidence,
        data.tolerated,
        digest_data(data),
        select_documents(data.corpus, data.evidence.document_ids),
    )


def _read_posir_facts(repository: Repository, folder: str) -> SubsetFacts:
    queries = repository.fetch(f"{folder}/queries.parquet")
    qrels = repository.fetch(f"{folder}/qrels/test.parquet")
    tables = PosirTables(
        CheckedTable("", pl.DataFrame()),
        CheckedTable(str(queries), read_columns(queries, QUERIES, {TITLE: pl.String})),
        CheckedTable(str(qrels), read_columns(qrels, QRELS)),
        same_language=True,
    )
    valid_tables, tolerated = tolerate_tables(tables)
    frame = valid_tables.queries.frame
    evidence = build_evidence(frame)
    texts = frame.select(pl.col("_id").alias("id"), "text")
    digest = {"queries": digest_queries(texts, evidence)}
    return SubsetFacts(evidence, count_tolerated(tolerated), digest)
