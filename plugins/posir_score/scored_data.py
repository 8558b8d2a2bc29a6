"""Data for scoring runs: qrels and, if known, evidence positions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from posir_score.alignment import DEPTH, SubsetQueries
from posir_score.evidence_spans import EvidenceData
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.data import mini
from posir_tasks.data.copies import describe_merges, find_copies, list_relevant, merge_copies
from posir_tasks.data.data import (
    Judgments,
    PositionData,
    ScoringRules,
    cluster_queries,
    digest_texts,
)
from posir_tasks.data.judgment_audit import JudgmentAudit
from posir_tasks.data.repository import name_version
from posir_tasks.datasets.dataset import JUDGED_TASK, TASK, Dataset
from posir_tasks.search.scoring import K_VALUES, SubsetScorer
from posir_tasks.values.judgments import DOCUMENT
from posir_tasks.values.ranks import list_score_names

logger = logging.getLogger(__name__)

#: Suffix of the data revision if copies are merged.
MERGED_SUFFIX = "+merged-copies"


@dataclass(frozen=True, kw_only=True)
class ScoredSubset(SubsetQueries):
    """A subset with its documents, queries and evidence."""

    data: PositionData
    """Also contains queries with several evidence spans, and queries without a position."""
    languages: Sequence[str]
    """Language codes."""


@dataclass(frozen=True)
class ScoredData:
    """Data for scoring runs."""

    name: str
    """Task name in the results."""
    revision: str
    scorer: SubsetScorer
    main_score: str
    subsets: Sequence[ScoredSubset]
    clusters: str = DOCUMENT
    """How queries are clustered; see `cluster_queries`."""
    judgments_match_evidence: bool = True
    """True if standard scores equal evidence scores: the data is a task, or each judged query has
    exactly one relevant document and an evidence position.
    """
    rules: ScoringRules = field(default_factory=ScoringRules)
    depth: int = DEPTH
    """Maximum number of documents per query."""

    @cached_property
    def audit(self) -> JudgmentAudit:
        """Inconsistencies in the qrels: documents, texts and grades."""
        audits = (
            JudgmentAudit.from_judgments(
                subset.judgments, subset.documents if subset.has_corpus else None
            )
            for subset in self.subsets
        )
        return sum(audits, JudgmentAudit())

    @cached_property
    def evidence(self) -> EvidenceData:
        """The evidence spans of the queries."""
        by_name = {subset.name: subset.data for subset in self.subsets}
        return EvidenceData.from_positions(self.name, by_name)


def open_scored_data(
    opened: Dataset, clusters: str | None = None, *, merge_copies: bool = False
) -> ScoredData:
    """Read the data for scoring runs. Evidence positions are optional.

    Args:
        opened: The data.
        clusters: How queries are clustered; by default by document.
        merge_copies: Merge documents with the same text.

    Raises:
        PosirError: `clusters` is given, but every query has one evidence position.
    """
    is_task = opened.kind == TASK and opened.name != mini.NAME
    data = _open_task(opened.name) if is_task else _open_data(opened, clusters or DOCUMENT)
    if merge_copies:
        data = _merge_copies(data)
    for subset in data.subsets:
        copies = find_copies(subset.data.documents, list_relevant(subset.judgments))
        if copies:
            logger.warning("%s, %s: %s", data.name, subset.name, copies.describe())
    if clusters not in (None, DOCUMENT) and data.judgments_match_evidence:
        raise PosirError(
            f"--clusters {clusters}: each query of {opened.location} has one evidence position, "
            "so queries are clustered by document. Omit --clusters."
        )
    return data


def _open_data(opened: Dataset, clusters: str) -> ScoredData:
    question_data = opened.select_questions("posir score", several_places=True)
    revision = opened.find_revision()
    has_qrels = any(subset.read_judgments for subset in opened.subsets)
    opened = opened if has_qrels else question_data
    languages = opened.find_languages()
    for subset in opened.subsets:
        # Fail early if the column is missing.
        cluster_queries(subset.judgments, clusters)
    subsets = []
    for (name, codes), subset in zip(languages.items(), opened.subsets, strict=True):
        # The data of a task has only one version.
        if opened.kind in (TASK, JUDGED_TASK):
            codes = [*dict.fromkeys(codes)]
        else:
            name = name_version(name, revision)
        data = replace(subset.read(), revision=revision)
        subset_queries = _build_subset(name, data, subset.judgments, codes)
        if not opened.has_texts:
            grades = subset.judgments.grades.values()
            documents = frozenset(document for row in grades for document in row)
            subset_queries = replace(subset_queries, documents=documents, has_corpus=False)
        subsets.append(subset_queries)
    judgments_match_evidence = _have_single_evidence(subsets)
    if has_qrels and judgments_match_evidence:
        # Reading the questions logs warnings about skipped questions.
        for subset in question_data.subsets:
            subset.read()
    for scored_subset in subsets:
        for warning in scored_subset.data.warnings:
            logger.warning("%s, %s", opened.name, warning)
    depth, k_values = _choose_cutoffs(opened)
    return ScoredData(
        name=opened.name,
        revision=revision,
        scorer=SubsetScorer(opened.scheme, k_values),
        main_score=opened.rules.main_score,
        subsets=subsets,
        clusters=clusters,
        judgments_match_evidence=judgments_match_evidence,
        rules=opened.rules,
        depth=depth,
    )


def _choose_cutoffs(opened: Dataset) -> tuple[int, Sequence[int]]:
    """Return the number of documents per query, and the cut-offs of the scores.

    Raises:
        PosirError: Only mteb computes the main score.
    """
    rules = opened.rules
    main_cutoffs = (k for k in rules.k_values if rules.main_score.endswith(f"_at_{k}"))
    depth = max((DEPTH, *main_cutoffs))
    k_values = sorted({*K_VALUES, *(k for k in rules.k_values if k <= depth)})
    if rules.main_score not in list_score_names(k_values):
        raise PosirError(
            f"{opened.name}: only mteb computes its main score, {rules.main_score}. Run `mteb run "
            f"-m MODEL -t {opened.name}` for a model."
        )
    return depth, k_values


def _open_task(name: str) -> ScoredData:
    import mteb

    from posir_tasks.tasks.base import PositionTask

    task = mteb.get_task(name)
    assert isinstance(task, PositionTask)
    task.load_data()
    meta = task.metadata
    subsets = []
    for name in task.hf_subsets:
        data = task.read_subset(name)
        languages = meta.hf_subsets_to_langscripts[name]
        subsets.append(_build_subset(name, data, Judgments.from_positions(data), languages))
    return ScoredData(
        name=meta.name,
        revision=meta.revision,
        scorer=task.build_scorer(),
        main_score=meta.main_score,
        subsets=subsets,
    )


def _merge_copies(data: ScoredData) -> ScoredData:
    """Merge documents with the same text, and add a suffix to the data revision."""
    revision = f"{data.revision}{MERGED_SUFFIX}"
    subsets = []
    for subset in data.subsets:
        merged_data, judgments, copies = merge_copies(subset.data, subset.judgments)
        if copies:
            logger.warning("%s, %s: %s", data.name, subset.name, describe_merges(copies))
            subset = _build_subset(subset.name, merged_data, judgments, subset.languages)
            subset = replace(subset, copies=copies)
        subsets.append(replace(subset, data=replace(subset.data, revision=revision)))
    if not any(subset.copies for subset in subsets):
        return data
    return replace(
        data,
        revision=revision,
        subsets=subsets,
        judgments_match_evidence=_have_single_evidence(subsets),
    )


def _have_single_evidence(subsets: Sequence[SubsetQueries]) -> bool:
    """Return True if each judged query has one relevant document of grade 1 and a position."""
    return all(
        subset.with_position == len(subset.judgments.grades)
        and all([*row.values()] == [1] for row in subset.judgments.grades.values())
        for subset in subsets
    )


def _build_subset(
    name: str, data: PositionData, judgments: Judgments, languages: Sequence[str]
) -> ScoredSubset:
    key = digest(digest_texts(data.documents), judgments.digest()).hex()
    queries = {
        data.places[row_id].query if row_id in data.places else row_id
        for row_id in data.drop_unpositioned().evidence.query_ids
    }
    documents = frozenset(data.documents["id"])
    return ScoredSubset(
        name, judgments, documents, len(queries), key, data=data, languages=languages
    )
