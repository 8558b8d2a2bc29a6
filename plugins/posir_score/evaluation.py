"""Evaluation of runs by evidence position and by qrels. Results are saved in the format of
`mteb run`.
A query may have several relevant documents, grades, or evidence without a position. Scores by qrels
equal trec_eval's: the gain of a document is its grade, which may be fractional, and the ideal
ranking contains all judged documents (`ndcg_cut`). A grade above 0 is relevant. A query without a
ranking scores 0, as with `trec_eval -c`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from itertools import islice
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from posir_score.alignment import DEPTH, AlignedRun, AlignmentRules, RunCounts, align_run
from posir_score.ranking_builder import Run
from posir_score.retrieved_chunks import EvidenceScores, ReadChunks, RetrievedChunks, score_chunks
from posir_score.scored_data import ScoredData, ScoredSubset
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import check_writable, explain_disk_full, lock_folder, write_text
from posir_tasks.base.private_names import NEWEST_TESTED, get_mteb_version
from posir_tasks.base.progress import track
from posir_tasks.base.untrusted import read_json
from posir_tasks.base.wording import sanitize
from posir_tasks.data.data import PositionData, cluster_queries, digest_texts
from posir_tasks.data.judgment_audit import JudgmentAudit
from posir_tasks.display.numbers import format_percent
from posir_tasks.models.references import RUN, to_file_name
from posir_tasks.mteb.result_saving import back_up_result
from posir_tasks.results import META_FILE, NAN_PREFIX
from posir_tasks.search.scoring import Rows, SearchedSubset, SplitData, build_split, select_texts
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.judgments import JudgedScores
from posir_tasks.values.ranks import RankedQueries, Results, rank_results, score_each_query
from posir_tasks.values.read_part import UNKNOWN, Part, ReadKind, ReadPart
from posir_tasks.values.result_schema import (
    DIGEST_KEY,
    JUDGMENTS_KEY,
    READ_KEY,
    REVISION_KEY,
    RUN_KEY,
    SCHEMA,
    SEARCH_KEY,
    SPLIT,
    DataVersion,
    round_floats,
)
from posir_tasks.values.rotation_ranks import (
    RotationRanks,
    UntestedReason,
    build_untested,
    read_sample_size,
)
from posir_tasks.values.tokens_read import CorpusRead, TokensRead, count_tokens_read, resolve_window

if TYPE_CHECKING:
    import datasets
    import polars as pl
    from mteb.models.models_protocols import MTEBModels


#: Scores in the table, by mteb's names. The main score of posir's tasks is first.
TABLE_SCORES = ("ndcg_at_10", "mrr_at_10", "recall_at_100")
#: Fields of mteb's model metadata that are unknown for a run.
UNKNOWN_METADATA = (
    "release_date languages n_parameters n_active_parameters_override n_embedding_parameters "
    "memory_usage_mb max_tokens embed_dim license open_weights public_training_code "
    "public_training_data reference similarity_fn_name use_instructions training_datasets "
    "adapted_from superseded_by citation contacts experiment_kwargs output_dtypes "
    "extra_requirements_groups loader"
)
MODEL_META: Mapping[str, Any] = {
    "loader_kwargs": {},
    "framework": [],
    "modalities": ["text"],
    "model_type": ["dense"],
    "is_cross_encoder": False,
    **dict.fromkeys(UNKNOWN_METADATA.split()),
}
#: Size of a run's digest in bytes, before it is written in hexadecimal.
DIGEST_BYTES = 8
#: Key of the rankings' digest in a result.
RANKINGS_DIGEST = "digest"
#: The entry of a subset in a result.
Entry: TypeAlias = dict[str, Any]
#: Scores of each judged query, by score name.
QueryScores: TypeAlias = Mapping[str, Sequence[float]]


class PreparedRun:
    """A run aligned with the data, and the part of a document that the system reads."""

    def __init__(
        self,
        run: Run,
        aligned: AlignedRun,
        revision: str,
        read_by: ReadPart | MTEBModels,
        chunks: RetrievedChunks | None,
    ) -> None:
        self.name = f"{RUN}/{to_file_name(run.name)}"
        self.retriever_description = run.retriever_description
        self.revision = revision
        self.aligned = aligned
        self.embedder = None if isinstance(read_by, ReadPart) else read_by
        self.counter: tuple[ModelTokenizer | None, int] = (None, 0)
        """The embedder's tokenizer or None, and the number of prompt and special tokens per
        document.
        """
        if isinstance(read_by, ReadPart):
            read_part = read_by
        else:
            # These modules import mteb.
            from posir_tasks.models.embeddings.encoding import DEFAULT_CONTEXT
            from posir_tasks.models.window import find_read_part
            from posir_tasks.search.input_window import find_token_counter

            read_part = find_read_part(read_by)
            self.counter = find_token_counter(read_by, DEFAULT_CONTEXT.task_metadata)
        self.read_chunks = ReadChunks.measure(chunks, read_part, *self.counter) if chunks else None
        if chunks is None and read_part.kind is ReadKind.PART and aligned.has_chunks:
            # The chunk lengths are unknown.
            read_part = (
                replace(read_part, part=Part.CHUNKS) if read_part.part is Part.FIRST else UNKNOWN
            )
        self.read_part = self.read_chunks.read if self.read_chunks else read_part
        content = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for subset, rankings in sorted(aligned.rankings.items()):
            for query in sorted(rankings):
                ranking = rankings[query]
                content.update(json.dumps([subset, query, *ranking]).encode())
                content.update(np.array([*ranking.values()], "<f8").tobytes())
        self.digest = content.hexdigest()
        """Digest of the rankings, 16 hexadecimal digits. The order of the rows does not matter."""

    def find_read(
        self,
        subset: str,
        languages: Sequence[str],
        queries: datasets.Dataset,
        evidence: Evidence,
        documents: Rows,
    ) -> ReadEvidence:
        """Locate each query's evidence relative to the text that the system reads."""
        complete_evidence = evidence.add_lengths(select_texts(documents))
        if self.read_chunks is not None:
            return self.read_chunks.locate(complete_evidence, subset, languages)
        read_evidence = None
        if self.embedder is not None:
            from posir_tasks.models.embeddings.encoding import DEFAULT_CONTEXT
            from posir_tasks.search.input_window import count_read_evidence

            task = DEFAULT_CONTEXT.task_metadata
            read_evidence = count_read_evidence(
                self.embedder, self.read_part, queries, task, evidence, documents
            )
        return read_evidence or ReadEvidence.estimate(self.read_part, complete_evidence, languages)


@dataclass(frozen=True)
class RunScores:
    """Mean scores of a run over all judged queries of a task, in [0, 1]."""

    model: str
    """Model name of the result, such as `run/bm25`."""
    revision: str
    """Version of the system, or `unversioned`."""
    digest: str
    task: str
    counts: RunCounts
    ndcg_at_10: float
    mrr_at_10: float
    recall_at_100: float
    folder: Path
    evidence: EvidenceScores | None
    """Scores of the chunks; None if the run has neither texts nor offsets of chunks."""
    audit: JudgmentAudit
    """Inconsistencies in the qrels: documents, texts and grades."""
    main_score: tuple[str, float]
    """Name and value of the task's main score."""
    retriever_description: str
    """Description of the retriever calls and the hit format; empty for a file."""

    def to_json(self) -> dict[str, Any]:
        """Convert the scores and counts to a row."""
        nested = ["counts", "folder", "evidence", "audit", "main_score", "retriever_description"]
        row = {name: value for name, value in vars(self).items() if name not in nested}
        row |= vars(self.counts)
        return row | self.evidence.to_json() if self.evidence else row

    def document(self) -> dict[str, Any]:
        """Build the JSON document: the row, inconsistencies in the qrels, and chunk scores."""
        values = self.to_json() | {"judgments": self.audit.to_json()}
        if self.retriever_description:
            values["retriever"] = self.retriever_description
        if self.evidence:
            values["evidence"] = self.evidence
        return values

    def describe(self) -> Iterator[str]:
        """Yield sentences about the retriever, mismatches with the data, and the chunks."""
        if self.retriever_description:
            yield self.retriever_description
        yield from self.counts.describe()
        name, value = self.main_score
        if name not in TABLE_SCORES:
            yield f"The main score of {self.task}, {name}, is {format_percent(value)}."
        if self.evidence:
            yield from self.evidence.describe_chunks()


def prepare_run(
    run: Run,
    data: ScoredData,
    rules: AlignmentRules,
    earlier_runs: Collection[PreparedRun],
    revision: str,
    read_by: ReadPart | MTEBModels,
) -> PreparedRun:
    """Align a run with the data.

    Raises:
        PosirError: The run does not match the data, or repeats the name or rankings of an earlier
            run.
    """
    if data.rules.split and (other_splits := run.splits - {data.rules.split}):
        # Queries of different splits may have the same ids.
        split = sanitize(min(other_splits))
        raise PosirError(
            f"{run.name}: contains rankings for split {split}, but split {data.rules.split} of "
            f"{data.name} is scored. Use --split {split}."
        )
    aligned_run = align_run(run, data.subsets, rules)
    chunks = (
        RetrievedChunks.locate(data.evidence, aligned_run)
        if aligned_run.has_locatable_chunks
        else None
    )
    if isinstance(read_by, ReadPart):
        read_parts = [
            resolve_window(read_by, subset.data.documents, subset.languages)
            for subset in data.subsets
        ]
        read_by = reduce(add, read_parts)
    prepared = PreparedRun(run, aligned_run, revision, read_by, chunks)
    for other in earlier_runs:
        # Some file systems ignore case.
        if prepared.name.casefold() == other.name.casefold():
            raise PosirError(
                f"several runs have the name {other.name}. Give each run its own --name, in the "
                "order of the runs."
            )
        if prepared.digest == other.digest:
            raise PosirError(
                f"{prepared.name} and {other.name} have the same rankings. Omit one of them."
            )
    return prepared


def find_result(run: PreparedRun, data: ScoredData, output: Path) -> Path:
    """Return the path where mteb would save the result."""
    return output / "results" / run.name.replace("/", "__") / run.revision / f"{data.name}.json"


def _read_entries(file: Path) -> tuple[str, list[Entry]]:
    """Read the data revision and the subset entries of a saved result."""
    content = read_json(file, nan_prefix=NAN_PREFIX)
    scores = content.get("scores") if isinstance(content, dict) else None
    if not isinstance(scores, dict):
        return "", []
    entries = [entry for split in scores.values() for entry in split]
    return content.get("dataset_revision", ""), entries


def has_saved_result(run: PreparedRun, data: ScoredData, output: Path, *, overwrite: bool) -> bool:
    """Return True if a result for the same rankings, data and window is saved.

    Raises:
        PosirError: A result for other rankings is saved, and `overwrite` is false.
    """
    file = find_result(run, data, output)
    if overwrite or not file.is_file():
        return False
    revision, entries = _read_entries(file)
    digests = {entry.get(RUN_KEY, {}).get(SEARCH_KEY, {}).get(RANKINGS_DIGEST) for entry in entries}
    if digests != {run.digest}:
        raise PosirError(
            f"{file}: {run.name}, revision {run.revision}, already has a result for another "
            f"ranking on {data.name}. Use --overwrite to replace it, or another --revision or "
            "--name to keep both."
        )
    read_json = run.read_part.to_json()
    return revision == data.revision and all(
        entry.get(READ_KEY, read_json) == read_json
        and entry.get(JUDGMENTS_KEY, {}).get("clusters", data.clusters) == data.clusters
        for entry in entries
    )


def _score_subset(
    run: PreparedRun, data: ScoredData, subset: ScoredSubset, by_query: QueryScores
) -> Entry:
    """Build the entry of a subset: means over judged queries and, if evidence positions are known,
    scores by position.
    """
    judgments = subset.judgments
    positioned_data = subset.data.drop_unpositioned()
    count_tokens = partial(count_tokens_read, data.scorer.scheme, subset.languages, *run.counter)
    if len(positioned_data.evidence):
        scores = _score_positions(run, data, subset, positioned_data, count_tokens)
    else:
        documents = positioned_data.documents
        digests = {"corpus": digest_texts(documents), "queries": judgments.digest()}
        tokens = count_tokens(documents, run.read_part) if subset.has_corpus else None
        scores = CorpusRead(run.read_part, tokens).to_json()
        scores[RUN_KEY] = {
            "schema": SCHEMA,
            REVISION_KEY: positioned_data.revision,
            DIGEST_KEY: digests,
        }
    counts = run.aligned.counts[subset.name]
    scores[RUN_KEY][SEARCH_KEY] = asdict(counts) | {RANKINGS_DIGEST: run.digest}
    if data.judgments_match_evidence:
        return scores
    scores |= {name: sum(values) / len(values) for name, values in by_query.items()}
    clusters = cluster_queries(judgments, data.clusters)
    judged_scores = JudgedScores.from_queries(by_query, clusters, data.clusters, judgments.digest())
    scores[JUDGMENTS_KEY] = judged_scores.to_json()
    return {name: value for name, value in scores.items() if not name.startswith(NAN_PREFIX)}


def _score_positions(
    run: PreparedRun,
    data: ScoredData,
    subset: ScoredSubset,
    positioned_data: PositionData,
    count_tokens: Callable[[pl.DataFrame, ReadPart], TokensRead | None],
) -> Entry:
    """Build the entry for queries with evidence positions."""
    split = build_split(positioned_data)
    rankings = run.aligned.rankings[subset.name]
    results = {}
    for name in split["queries"]["id"]:
        results[name] = dict(islice(rankings.get(name, {}).items(), data.scorer.top_k))
    languages = subset.languages
    find_read = partial(run.find_read, subset.name, languages)
    ranked_queries = rank_results(results, split["evidence"].map_positives())
    rotate = partial(
        _rank_rotated, run, languages[-1], split, results, ranked_queries, len(data.subsets)
    )
    subset_search = SearchedSubset(
        subset.name, split, results, ranked_queries, find_read, count_tokens, rotate=rotate
    )
    return data.scorer.score(subset_search)


def _rank_rotated(
    run: PreparedRun,
    language: str,
    split: SplitData,
    results: Results,
    ranked_queries: RankedQueries,
    subsets: int,
    *ranking: Any,
) -> RotationRanks | None:
    """Rank rotated documents with the run's embedder. Pass `ranking` to `RotationTest.rank`."""
    sample_size = read_sample_size()
    _, _, _, ranks, *_ = ranking
    if not sample_size:
        return None
    if run.embedder is None:
        return build_untested(ranks, UntestedReason.NO_TEXTS, sample_size, subsets)
    # These modules import mteb and PyTorch.
    from mteb.timing import TimingStack

    from posir_tasks.models.embeddings.encoding import DEFAULT_CONTEXT
    from posir_tasks.models.request import SearchRequest
    from posir_tasks.search.rotations import RotationTest

    positives = split["evidence"].map_positives()
    context = DEFAULT_CONTEXT
    request = SearchRequest(
        split["corpus"], split["single"], positives, None, DEPTH, context, TimingStack()
    )
    ordinary_ranks = dict(zip(positives, ranked_queries.ranks.tolist(), strict=True))
    test = RotationTest(
        run.embedder, request, results, ordinary_ranks, sample_size, subsets, language, is_run=True
    )
    return test.rank(*ranking)


def _save_result(
    run: PreparedRun, data: ScoredData, file: Path, scores_by_subset: Mapping[str, QueryScores]
) -> None:
    """Save the result and the model metadata in mteb's format."""
    start_time = time.time()
    version = get_mteb_version(NEWEST_TESTED)
    entries = {}
    with track(f"Scoring {run.name} (queries)", run.aligned.total.queries) as advance:
        for subset in data.subsets:
            if subset.name not in run.aligned.rankings:
                continue
            scores = _score_subset(run, data, subset, scores_by_subset.get(subset.name, {}))
            entries[subset.name] = scores | {
                "main_score": scores[data.main_score],
                "hf_subset": subset.name,
                "mteb_version": version,
                "languages": [*subset.languages],
            }
            advance(len(subset.judgments.grades))
    result = {
        "dataset_revision": data.revision,
        "task_name": data.name,
        "mteb_version": version,
        "scores": {SPLIT: [*entries.values()]},
        "evaluation_time": time.time() - start_time,
        "kg_co2_emissions": None,
        "date": time.time(),
        "evaluation_phases": None,
    }
    meta = {**MODEL_META, "name": run.name, "revision": run.revision}
    with lock_folder(file.parent), explain_disk_full(file):
        if file.exists():
            _back_up_other_data(file, data.name, entries)
        write_text(file.parent / META_FILE, json.dumps(meta, indent=4))
        write_text(file, json.dumps(round_floats(result), indent=2))


def _back_up_other_data(file: Path, task: str, entries: Mapping[str, Entry]) -> None:
    _, saved_entries = _read_entries(file)
    changed_subsets = []
    for entry in saved_entries:
        name = str(entry.get("hf_subset"))
        old = DataVersion.from_run(entry.get(RUN_KEY, {}))
        new = DataVersion.from_run(entries[name][RUN_KEY]) if name in entries else None
        if new is None or new.find_differences(old):
            changed_subsets.append(name)
    if changed_subsets:
        back_up_result(file, task, changed_subsets)


def evaluate_run(run: PreparedRun, data: ScoredData, output: Path, *, is_saved: bool) -> RunScores:
    """Score a run, and save its result unless `is_saved` is true."""
    check_writable(output)
    file = find_result(run, data, output)
    scores_by_subset = {}
    sums = dict.fromkeys((*TABLE_SCORES, data.main_score), 0.0)
    for subset in data.subsets:
        grades = subset.judgments.grades
        if grades and subset.name in run.aligned.rankings:
            rankings = run.aligned.rankings[subset.name]
            by_query = score_each_query(rankings, grades, data.scorer.k_values)
            scores_by_subset[subset.name] = by_query
            for name in sums:
                sums[name] += sum(by_query[name])
    if not is_saved:
        _save_result(run, data, file, scores_by_subset)
    means = {name: total / run.aligned.total.queries for name, total in sums.items()}
    evidence = score_chunks(run.name, run.read_chunks) if run.read_chunks else None
    return RunScores(
        model=run.name,
        revision=run.revision,
        digest=run.digest,
        task=data.name,
        counts=run.aligned.total,
        folder=file.parent,
        evidence=evidence,
        audit=data.audit,
        main_score=(data.main_score, means[data.main_score]),
        retriever_description=run.retriever_description,
        **{name: means[name] for name in TABLE_SCORES},
    )
