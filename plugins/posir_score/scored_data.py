"""Data as runs are scored on it: judgments, and the positions of evidence where they are known."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from posir_score.alignment import (
    DEPTH,
    SubsetQueries,
)
from posir_score.excerpts import ExcerptData
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.data import mini
from posir_tasks.data.copies import describe_merged, find_copies, list_relevant, merge_copies
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
from posir_tasks.search.scoring import (
    K_VALUES,
    SubsetScorer,
)
from posir_tasks.values.judgments import DOCUMENT
from posir_tasks.values.ranks import (
    list_score_names,
)

if TYPE_CHECKING:
    pass

logger = logging.getLogger(__name__)

#: End of the revision of data whose copies are one document.
MERGED = "+merged-copies"


@dataclass(frozen=True)
class ScoredData:
    """Data as runs are scored on it."""

    name: str
    """The task that results are filed under."""
    revision: str
    scorer: SubsetScorer
    main_score: str
    languages: Mapping[str, Sequence[str]]
    """Codes of the languages of each subset."""
    subsets: tuple[SubsetQueries, ...]
    parts: Mapping[str, PositionData]
    """Documents, queries and evidence of each subset, also those of queries with several places of
    evidence.
    """
    clusters: str = DOCUMENT
    """The key of the clusters of queries; see `cluster_queries`."""
    is_plain: bool = True
    """Whether the usual scores of results are those of the evidence: each judged query has one, or
    they are of a task.
    """
    rules: ScoringRules = field(default_factory=ScoringRules)
    depth: int = DEPTH
    """Documents that are kept for each query."""

    @cached_property
    def audit(self) -> JudgmentAudit:
        """Misfits in the judgments: documents, texts and grades."""
        audit = JudgmentAudit()
        for subset in self.subsets:
            documents = subset.documents if subset.has_corpus else None
            audit += JudgmentAudit.from_judgments(subset.judgments, documents)
        return audit

    @cached_property
    def excerpts(self) -> ExcerptData:
        """The evidence of the queries as excerpts."""
        return ExcerptData.from_positions(self.name, self.parts)


def open_scored_data(
    opened: Dataset, clusters: str | None = None, *, is_merged: bool = False
) -> ScoredData:
    """Open data as runs are compared with it; positions of evidence are optional.

    `is_merged` makes copies one document. `clusters` is what queries are clustered by; raise
    PosirError if that is not the document and the evidence has positions.
    """
    is_task = opened.kind == TASK and opened.name != mini.NAME
    data = _open_task(opened.name) if is_task else _open_data(opened, clusters or DOCUMENT)
    data = _merge_copies(data) if is_merged else data
    for subset in data.subsets:
        copies = find_copies(data.parts[subset.name].documents, list_relevant(subset.judgments))
        if copies:
            logger.warning("%s, %s: %s", data.name, subset.name, copies.describe())
    if clusters not in (None, DOCUMENT) and data.is_plain:
        raise PosirError(
            f"--clusters {clusters}: the evidence of each query of {opened.location} has one "
            "position, and queries about one document are one cluster. Omit it."
        )
    return data


def _open_data(opened: Dataset, clusters: str) -> ScoredData:
    with_places = opened.with_questions("posir score", several_places=True)
    revision = opened.find_revision()
    is_stated = any(subset.read_stated_judgments for subset in opened.subsets)
    opened = opened if is_stated else with_places
    languages: dict[str, Sequence[str]] = {}
    for name, codes in opened.find_languages().items():
        # The data of a task has one version, and its languages once each.
        if opened.kind in (TASK, JUDGED_TASK):
            languages[name] = [*dict.fromkeys(codes)]
        else:
            languages[name_version(name, revision)] = codes
    for subset in opened.subsets:
        # A mistake in the name of a column is reported before anything is scored.
        cluster_queries(subset.judgments, clusters)
    parts: dict[str, PositionData] = {}
    subsets: list[SubsetQueries] = []
    for name, subset in zip(languages, opened.subsets, strict=True):
        data = parts[name] = replace(subset.read(), revision=revision)
        judged = _as_judged(name, data.drop_unsuited(), subset.judgments)
        if not opened.has_texts:
            names = frozenset(name for row in judged.judgments.grades.values() for name in row)
            judged = replace(judged, documents=names, has_corpus=False)
        subsets.append(judged)
    is_plain = _is_plain(subsets)
    if is_stated and is_plain:
        # Warns of what is left out.
        for subset in with_places.subsets:
            subset.read()
    for data in parts.values():
        for warning in data.warnings:
            logger.warning("%s, %s", opened.name, warning)
    depth, k_values = _choose_cutoffs(opened)
    return ScoredData(
        name=opened.name,
        revision=revision,
        scorer=SubsetScorer(opened.scheme, k_values),
        main_score=opened.rules.main_score,
        languages=languages,
        subsets=tuple(subsets),
        parts=parts,
        clusters=clusters,
        is_plain=is_plain,
        rules=opened.rules,
        depth=depth,
    )


def _choose_cutoffs(opened: Dataset) -> tuple[int, tuple[int, ...]]:
    """Choose how many documents of a query are kept, and the cut-offs of scores, so that the main
    score is among these.

    Raises:
        PosirError: The main score is one that only mteb computes.
    """
    rules = opened.rules
    needed = (k for k in rules.k_values if rules.main_score.endswith(f"_at_{k}"))
    depth = max((DEPTH, *needed))
    k_values = tuple(sorted({*K_VALUES, *(k for k in rules.k_values if k <= depth)}))
    if rules.main_score not in list_score_names(k_values):
        raise PosirError(
            f"{opened.name}: its main score, {rules.main_score}, is computed by mteb only. `mteb "
            f"run -m MODEL -t {opened.name}` computes it for a model."
        )
    return depth, k_values


def _open_task(name: str) -> ScoredData:
    import mteb

    from posir_tasks.tasks.base import PositionTask

    task = mteb.get_task(name)
    assert isinstance(task, PositionTask)
    task.load_data()
    parts = {name: task.read_subset(name) for name in task.hf_subsets}
    subsets = tuple(
        _as_judged(name, data, Judgments.from_positions(data)) for name, data in parts.items()
    )
    meta = task.metadata
    languages = meta.hf_subsets_to_langscripts
    return ScoredData(
        meta.name, meta.revision, task.build_scorer(), meta.main_score, languages, subsets, parts
    )


def _merge_copies(data: ScoredData) -> ScoredData:
    """Make copies one document; the revision of the data then says so."""
    parts = dict(data.parts)
    subsets: list[SubsetQueries] = []
    for subset in data.subsets:
        part, judgments, copies = merge_copies(parts[subset.name], subset.judgments)
        if copies:
            logger.warning("%s, %s: %s", data.name, subset.name, describe_merged(copies))
            parts[subset.name] = part
            judged = _as_judged(subset.name, part.drop_unsuited(), judgments)
            subset = replace(judged, copies=copies)
        subsets.append(subset)
    if not any(subset.copies for subset in subsets):
        return data
    revision = f"{data.revision}{MERGED}"
    parts = {name: replace(part, revision=revision) for name, part in parts.items()}
    is_plain = _is_plain(subsets)
    return replace(data, revision=revision, subsets=tuple(subsets), parts=parts, is_plain=is_plain)


def _is_plain(subsets: Sequence[SubsetQueries]) -> bool:
    """Tell whether each judged query has one relevant document, of grade 1, with evidence of known
    position.
    """
    return all(
        subset.with_position == len(subset.judgments.grades)
        and all([*row.values()] == [1] for row in subset.judgments.grades.values())
        for subset in subsets
    )


def _as_judged(name: str, data: PositionData, judgments: Judgments) -> SubsetQueries:
    key = digest(digest_texts(data.documents), judgments.digest()).hex()
    placed = {
        data.places[query].query if query in data.places else query
        for query in data.evidence.query_ids
    }
    return SubsetQueries(name, judgments, frozenset(data.documents["id"]), len(placed), key)
