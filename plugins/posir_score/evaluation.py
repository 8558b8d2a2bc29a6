"""Evaluation of runs: searched as a model, scored by judgments, saved as `mteb run` saves results.

Data may have several relevant documents for a query, grades, or no position of its evidence. Scores by judgments are those of
trec_eval: the gain of a document is its grade and the ideal ranking is of all judged documents (`ndcg_cut`); a grade above 0 is
relevant. A query without ranking scores 0, as with `trec_eval -c`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from posir_score.alignment import AlignedRun, AlignmentRules, RunCounts, SubsetQueries, align_run
from posir_score.excerpts import ExcerptData
from posir_score.retrieved_chunks import EvidenceScores, ReadChunks, RetrievedChunks, score_chunks
from posir_score.run_files import Run
from posir_tasks.digests import digest
from posir_tasks.display.progress import track
from posir_tasks.embeddings.encoding import DEFAULT_CONTEXT
from posir_tasks.errors import PosirError
from posir_tasks.files import check_writable
from posir_tasks.gate import read_json
from posir_tasks.host.retrieval_task import SplitData
from posir_tasks.judgments import DOCUMENT, JudgedScores, cluster_queries
from posir_tasks.models.prompts import find_document_prompt
from posir_tasks.models.references import RUN, legible_name
from posir_tasks.models.window import find_read_part
from posir_tasks.ranks import score_each_query, score_rankings
from posir_tasks.read_part import UNKNOWN, ReadKind, ReadPart
from posir_tasks.result_schema import DIGEST_KEY, JUDGMENTS_KEY, READ_KEY, REVISION_KEY, RUN_KEY, SCHEMA, SEARCH_KEY
from posir_tasks.sources.data import Judgments, PositionData, digest_texts
from posir_tasks.sources.opening import Dataset, Subset
from posir_tasks.tasks.base import LayoutTask, PositionTask
from posir_tasks.tasks.opened import open_data_task
from posir_tasks.text.tokenizer import ModelTokenizer, find_tokenizer

if TYPE_CHECKING:
    import datasets
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

#: mteb's names of the scores that are shown.
SHOWN_SCORES = ("ndcg_at_10", "mrr_at_10", "recall_at_100")
#: mteb's scores that need the confidence of a model in each query; a run states none for queries of other systems.
CONFIDENCE = "nauc_"
#: Bytes of the digest of a run, written as twice as many hexadecimal digits, and its key in a result.
DIGEST_BYTES, DIGEST = 8, "digest"


class RunSearch:
    """A finished run as one of mteb's search models, so that it is evaluated exactly as a model is; nothing is searched."""

    def __init__(
        self,
        name: str,
        revision: str,
        run: AlignedRun,
        read_by: ReadPart | MTEBModels = UNKNOWN,
        chunks: RetrievedChunks | None = None,
    ) -> None:
        from mteb.models import ModelMeta

        self.run, self.chunks = run, chunks
        self.embedder = None if isinstance(read_by, ReadPart) else read_by
        read = read_by if isinstance(read_by, ReadPart) else find_read_part(read_by)
        self.read_chunks = chunks and ReadChunks.measure(chunks, read, *_find_counter(self.embedder))
        self.lacks_lengths = chunks is None and read.kind is ReadKind.PART and run.has_chunks
        """Whether what is read is unknown because the lengths of chunks are."""
        self.read_part = self.read_chunks.read if self.read_chunks else UNKNOWN if self.lacks_lengths else read
        content = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for subset, rankings in sorted(run.rankings.items()):
            for query in sorted(rankings):
                content.update(json.dumps([subset, query, rankings[query]]).encode())
        self.digest = content.hexdigest()
        """16 hexadecimal digits that identify the rankings, in whatever order the files had them."""
        self.mteb_model_meta: ModelMeta = ModelMeta.create_empty(
            {"name": f"{RUN}/{legible_name(name)}", "revision": revision, "loader": None}
        )
        self.search_record: Mapping[str, int | str] = {}
        """Counts of what fits between the run and the subset that was last searched, and the digest of the run."""

    def index(self, corpus: datasets.Dataset, **_: Any) -> None:
        """Do nothing: the run was searched already."""

    def search(self, queries: datasets.Dataset, *, hf_subset: str, top_k: int, **_: Any) -> dict[str, dict[str, float]]:
        """Return the scores of the documents of each query, none if the run lacks it; at most `top_k`."""
        rankings = self.run.rankings[hf_subset]
        self.search_record = self.describe_search(hf_subset)
        return {query: dict(list(rankings.get(query, {}).items())[:top_k]) for query in queries["id"]}

    def describe_search(self, subset: str) -> dict[str, int | str]:
        """Return the counts of a subset, and the digest of the run."""
        return {**asdict(self.run.counts[subset]), DIGEST: self.digest}


def _find_counter(embedder: MTEBModels | None) -> tuple[ModelTokenizer | None, int]:
    """Return the tokenizer of a model, if it says where tokens are, and the tokens that are read with every document."""
    tokenizer = find_tokenizer(embedder)
    if tokenizer is None or not tokenizer.locates_tokens:
        return None, 0
    prompt = find_document_prompt(embedder, DEFAULT_CONTEXT.task_metadata)
    return tokenizer, tokenizer.special_tokens + (tokenizer.count(prompt) if prompt else 0)


class JudgedTask(LayoutTask):
    """A task that scores a run on all judged queries, and its positions on those whose evidence has known ones."""

    subsets: ClassVar[Mapping[str, Subset]]
    clusters: ClassVar[str] = DOCUMENT
    """The key of the clusters of queries; see `cluster_queries`."""

    def read_subset(self, subset: str) -> PositionData:
        """Read the queries whose evidence has known positions, and all documents; raise DataError if they are invalid."""
        return super().read_subset(subset).drop_unsuited()

    def evaluate_subset(self, model: MTEBModels, data: SplitData, *, hf_subset: str, **settings: Any) -> dict[str, Any]:
        """Score all judged queries, and the positions of those that have one; raise PosirError if the model is no run."""
        if not isinstance(model, RunSearch):
            raise PosirError(f"{self.metadata.name}: some queries have no known position. Score a run with `posir score`.")
        judgments = self.subsets[hf_subset].judgments
        stated = {"corpus": digest_texts(data["corpus"]), "queries": judgments.digest()}
        scores: dict[str, Any] = {RUN_KEY: {"schema": SCHEMA, REVISION_KEY: data["revision"], DIGEST_KEY: stated}}
        if len(data["evidence"]) or len(data["places"].evidence):
            scores = dict(super().evaluate_subset(model, data, hf_subset=hf_subset, **settings))
        scores[RUN_KEY][SEARCH_KEY] = model.describe_search(hf_subset)
        by_query = score_each_query(model.run.rankings[hf_subset], judgments.grades, self.k_values)
        scores |= {name: sum(values) / len(values) for name, values in by_query.items()}
        scores[JUDGMENTS_KEY] = JudgedScores.from_queries(by_query, judgments, self.clusters).to_json()
        return {name: value for name, value in scores.items() if not name.startswith(CONFIDENCE)}


@dataclass(frozen=True)
class ScoredData:
    """A task, and the queries and documents of its subsets as runs are compared with them."""

    task: PositionTask
    subsets: tuple[SubsetQueries, ...]
    parts: Mapping[str, PositionData]
    """Documents, queries and evidence of each subset, also those of queries with several places of evidence."""

    @cached_property
    def excerpts(self) -> ExcerptData:
        """The evidence of the queries as excerpts."""
        return ExcerptData.from_positions(self.task.metadata.name, self.parts)


def open_scored_data(opened: Dataset, clusters: str | None = None) -> ScoredData:
    """Return data as runs are compared with it; positions of evidence are optional.

    `clusters` is what queries are clustered by; raise PosirError if that is not the document and the evidence has positions.
    """
    data = _open_scored_data(opened, clusters or DOCUMENT)
    if clusters not in (None, DOCUMENT) and not isinstance(data.task, JudgedTask):
        raise PosirError(
            f"--clusters {clusters}: the evidence of each query of {opened.location} has one position, and queries about one "
            "document are one cluster. Omit it."
        )
    return data


def _open_scored_data(opened: Dataset, clusters: str) -> ScoredData:
    if opened.kind == "a task":
        import mteb

        task = mteb.get_task(opened.name)
        assert isinstance(task, PositionTask)
        task.load_data()
        parts = {name: task.read_subset(name) for name in task.hf_subsets}
        judged_parts = tuple(_as_judged(name, data, Judgments.from_positions(data)) for name, data in parts.items())
        return ScoredData(task, judged_parts, parts)
    if all(subset.read_stated_judgments is None for subset in opened.subsets):
        opened = opened.with_questions("posir score", several_places=True)
    judged = open_data_task(opened, JudgedTask)
    assert isinstance(judged, JudgedTask)
    type(judged).subsets, type(judged).clusters = dict(zip(judged.readers, opened.subsets, strict=True)), clusters
    for subset in opened.subsets:
        # A mistake in the name of a column is reported before anything is scored.
        cluster_queries(subset.judgments, clusters)
    subsets = tuple(_as_judged(name, judged.read_subset(name), subset.judgments) for name, subset in judged.subsets.items())
    grades = [(subset.with_position, subset.judgments.grades.values()) for subset in subsets]
    is_plain = all(number == len(rows) and all([*row.values()] == [1] for row in rows) for number, rows in grades)
    task = open_data_task(opened.with_questions("posir score", several_places=True)) if is_plain else judged
    task.load_data()
    return ScoredData(task, subsets, {name: subset.read() for name, subset in judged.subsets.items()})


def _as_judged(name: str, data: PositionData, judgments: Judgments) -> SubsetQueries:
    key = digest(digest_texts(data.corpus), judgments.digest()).hex()
    placed = {data.places[query].query if query in data.places else query for query in data.evidence.query_ids}
    return SubsetQueries(name, judgments, frozenset(data.corpus["id"]), len(placed), key)


@dataclass(frozen=True)
class RunScores:
    """The scores of a run on all judged queries of a task, in [0, 1], each query counting the same."""

    model: str
    """Name under which the result is filed, such as `run/bm25`."""
    revision: str
    """The user's name for it, or `unversioned`."""
    digest: str
    task: str
    counts: RunCounts
    ndcg_at_10: float
    mrr_at_10: float
    recall_at_100: float
    folder: Path
    evidence: EvidenceScores | None = None
    """The share of the evidence that chunks have; None if the run states neither texts nor places of chunks."""
    lacks_lengths: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the scores and the counts by name."""
        others = ("counts", "folder", "evidence", "lacks_lengths")
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in others}
        return values | asdict(self.counts) | (self.evidence.to_json() if self.evidence else {})

    def describe(self) -> Iterator[str]:
        """Yield a sentence for each kind of thing that did not fit, and on the chunks."""
        yield from self.counts.describe()
        if self.lacks_lengths:
            yield (
                "What is read of chunks is unknown without their texts or places: return these, too, or give --window none if "
                "every chunk is read as a whole."
            )
        yield from self.evidence.describe_chunks() if self.evidence else ()


def prepare_run(
    run: Run,
    data: ScoredData,
    rules: AlignmentRules,
    earlier: Collection[RunSearch],
    revision: str,
    read_by: ReadPart | MTEBModels = UNKNOWN,
) -> RunSearch:
    """Align a run with the data; raise PosirError if it does not fit, or an earlier run has its name or its rankings."""
    aligned = align_run(run, data.subsets, rules)
    chunks = RetrievedChunks.locate(data.excerpts, aligned) if aligned.states_chunks else None
    model = RunSearch(run.name, revision, aligned, read_by, chunks)
    for other in earlier:
        name = other.mteb_model_meta.name
        # On some file systems, names that differ in their case alone are one folder.
        if str(model.mteb_model_meta.name).casefold() == str(name).casefold():
            raise PosirError(
                f"several runs have the name {name}. Give each a name of its own with --name, in the order of the runs."
            )
        if model.digest == other.digest:
            raise PosirError(f"{model.mteb_model_meta.name} and {name} have the same rankings. Leave one of them out.")
    return model


def is_recorded(model: RunSearch, data: ScoredData, output: Path, *, overwrite: bool) -> bool:
    """Return whether a result of this ranking is saved, with what is said of the part that the system reads."""
    from mteb.cache import ResultCache

    file = ResultCache(output).get_task_result_path(data.task.metadata.name, model.mteb_model_meta)
    if not file.is_file():
        return False
    content = read_json(file, nan_prefix=CONFIDENCE)
    parts = content.get("scores", {}) if isinstance(content, dict) else {}
    entries = [entry for split in parts.values() for entry in split] if isinstance(parts, dict) else []
    stored = {entry.get(RUN_KEY, {}).get(SEARCH_KEY, {}).get(DIGEST) for entry in entries}
    if stored == {model.digest} and not overwrite:
        read, by = model.read_part.to_json(), getattr(data.task, "clusters", DOCUMENT)
        return all(
            entry.get(READ_KEY, read) == read and entry.get(JUDGMENTS_KEY, {}).get("clusters", by) == by for entry in entries
        )
    if not overwrite:
        name, revision = model.mteb_model_meta.name, model.mteb_model_meta.revision
        raise PosirError(
            f"{file}: {name}, revision {revision}, has a result of another ranking on {data.task.metadata.name}. Give "
            "--overwrite to replace it, or another --revision or --name to keep both."
        )
    return False


def evaluate_run(model: RunSearch, data: ScoredData, output: Path, *, is_known: bool) -> RunScores:
    """Score a run and save its result; a known one is not scored again."""
    import mteb
    from mteb.cache import ResultCache

    check_writable(output)
    strategy = "only-missing" if is_known else "always"
    with track(f"Scoring {model.mteb_model_meta.name}"):
        cache = ResultCache(output)
        mteb.evaluate(model, data.task, cache=cache, overwrite_strategy=strategy, show_progress_bar=False, co2_tracker=False)
    run, queries = model.run, model.run.total.queries
    scored = [
        (score_rankings(run.rankings[subset.name], subset.judgments.grades, data.task.k_values), len(subset.judgments.grades))
        for subset in data.subsets
        if subset.judgments.grades
    ]
    name = str(model.mteb_model_meta.name)
    return RunScores(
        model=name,
        revision=str(model.mteb_model_meta.revision),
        digest=model.digest,
        task=data.task.metadata.name,
        counts=run.total,
        folder=cache.get_task_result_path(data.task.metadata.name, model.mteb_model_meta).parent,
        evidence=score_chunks(name, model.chunks, model.read_chunks) if model.chunks and model.read_chunks else None,
        lacks_lengths=model.lacks_lengths,
        **{name: sum(scores[name] * count for scores, count in scored) / queries for name in SHOWN_SCORES},
    )
