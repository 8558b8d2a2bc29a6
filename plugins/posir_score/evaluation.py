"""Evaluation of runs: scored as a model is, and by judgments, and saved as `mteb run` saves
results, all without mteb.

Data may have several relevant documents for a query, grades, or no position of its evidence. Scores
by judgments are those of trec_eval: the gain of a document is its grade, perhaps a fraction, and
the ideal ranking is of all judged documents (`ndcg_cut`); a grade above 0 is relevant. A query
without ranking scores 0, as with `trec_eval -c`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from itertools import islice
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posir_score.alignment import (
    DEPTH,
    AlignedRun,
    AlignmentRules,
    RunCounts,
    SubsetQueries,
    align_run,
)
from posir_score.retrieved_chunks import EvidenceScores, ReadChunks, RetrievedChunks, score_chunks
from posir_score.run_files import Run
from posir_score.scored_data import ScoredData
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import check_writable, explain_disk_full, folder_lock, write_text
from posir_tasks.base.private_names import NEWEST_TESTED, installed_mteb
from posir_tasks.base.progress import track
from posir_tasks.base.untrusted import read_json
from posir_tasks.base.wording import sanitize
from posir_tasks.data.data import (
    cluster_queries,
    digest_texts,
)
from posir_tasks.data.judgment_audit import JudgmentAudit
from posir_tasks.display.numbers import format_percent
from posir_tasks.models.references import RUN, legible_name
from posir_tasks.mteb.result_saving import set_aside
from posir_tasks.results import META_FILE, NAN_PREFIX
from posir_tasks.search.scoring import (
    Rows,
    SearchedSubset,
    SplitData,
    divide_split,
    select_texts,
)
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.judgments import JudgedScores
from posir_tasks.values.ranks import (
    RankedQueries,
    Results,
    rank_results,
    score_each_query,
)
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
    Untested,
    build_untested,
    read_sample_size,
)
from posir_tasks.values.tokens_read import CorpusRead, count_tokens_read, settle_read_part

if TYPE_CHECKING:
    import datasets
    from mteb.models.models_protocols import MTEBModels

logger = logging.getLogger(__name__)

#: mteb's names of the scores that are shown, the main one of posir's tasks first.
SHOWN_SCORES = ("ndcg_at_10", "mrr_at_10", "recall_at_100")
#: mteb's metadata of a model of which only the name and the revision are known.
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
#: Bytes of the digest of a run, written as twice as many hexadecimal digits.
DIGEST_BYTES = 8
#: Its key in a result.
DIGEST = "digest"


class RunSearch:
    """A finished run of a system, as a model's search of the data: its rankings, and what is known
    to be read.
    """

    def __init__(
        self,
        name: str,
        revision: str,
        run: AlignedRun,
        read_by: ReadPart | MTEBModels,
        chunks: RetrievedChunks | None,
        reading: str = "",
    ) -> None:
        self.name = f"{RUN}/{legible_name(name)}"
        self.revision = revision
        self.run = run
        self.reading = reading
        self.chunks = chunks
        self._scores: dict[str, dict[str, list[float]]] = {}
        self.embedder = None if isinstance(read_by, ReadPart) else read_by
        self.counter: tuple[ModelTokenizer | None, int] = (None, 0)
        """The embedder's tokenizer, None where that is unknown, and the tokens that it reads with
        every document.
        """
        if isinstance(read_by, ReadPart):
            read = read_by
        else:
            # They import mteb.
            from posir_tasks.models.embeddings.encoding import DEFAULT_CONTEXT
            from posir_tasks.models.window import find_read_part
            from posir_tasks.search.input_window import find_counter

            read = find_read_part(read_by)
            self.counter = find_counter(read_by, DEFAULT_CONTEXT.task_metadata)
        self.read_chunks = ReadChunks.measure(chunks, read, *self.counter) if chunks else None
        if chunks is None and read.kind is ReadKind.PART and run.has_chunks:
            # The lengths of chunks are unknown.
            read = replace(read, part=Part.CHUNKS) if read.part is Part.FIRST else UNKNOWN
        self.read_part = self.read_chunks.read if self.read_chunks else read
        content = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for subset, rankings in sorted(run.rankings.items()):
            for query in sorted(rankings):
                ranked = rankings[query]
                content.update(json.dumps([subset, query, *ranked]).encode())
                content.update(np.array([*ranked.values()], "<f8").tobytes())
        self.digest = content.hexdigest()
        """16 hexadecimal digits that identify the rankings, in whatever order the files had
        them.
        """

    def score_queries(
        self, subset: SubsetQueries, k_values: Sequence[int]
    ) -> dict[str, list[float]]:
        """Score the judged queries of a subset as `score_each_query` does, once."""
        if subset.name not in self._scores:
            rankings = self.run.rankings[subset.name]
            scores = score_each_query(rankings, subset.judgments.grades, k_values)
            self._scores[subset.name] = scores
        return self._scores[subset.name]

    def find_read(
        self,
        subset: str,
        languages: Sequence[str],
        queries: datasets.Dataset,
        evidence: Evidence,
        documents: Rows,
    ) -> ReadEvidence:
        """Find evidence in what the system reads of documents, or of chunks of them."""
        complete = evidence.complete(select_texts(documents))
        if self.read_chunks is not None:
            return self.read_chunks.place(complete, subset, languages)
        counted = None
        if self.embedder is not None:
            from posir_tasks.models.embeddings.encoding import DEFAULT_CONTEXT
            from posir_tasks.search.input_window import count_read_evidence

            task = DEFAULT_CONTEXT.task_metadata
            counted = count_read_evidence(
                self.embedder, self.read_part, queries, task, evidence, documents
            )
        return counted or ReadEvidence.estimate(self.read_part, complete, languages)


@dataclass(frozen=True)
class RunScores:
    """The scores of a run on all judged queries of a task, in [0, 1], each query counting the
    same.
    """

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
    """The share of the evidence that chunks have; None if the run states neither texts nor places
    of chunks.
    """
    audit: JudgmentAudit = field(default_factory=JudgmentAudit)
    """Misfits in the judgments: documents, texts and grades."""
    main_score: tuple[str, float] = ("", 0.0)
    """Name and value of the score that the owner of the data ranks results by."""
    reading: str = ""
    """How a retriever was asked and its hits were read; empty for a file."""

    def to_json(self) -> dict[str, Any]:
        """Convert the scores and the counts to a row."""
        others = ("counts", "folder", "evidence", "audit", "main_score", "reading")
        row = {name: value for name, value in vars(self).items() if name not in others}
        row |= vars(self.counts)
        return row | self.evidence.to_json() if self.evidence else row

    def document(self) -> dict[str, Any]:
        """Convert to JSON: the row, misfits in the judgments, and all numbers of chunks."""
        values = self.to_json() | {"judgments": asdict(self.audit)}
        values |= {"retriever": self.reading} if self.reading else {}
        return values | {"evidence": self.evidence} if self.evidence else values

    def describe(self) -> Iterator[str]:
        """Yield how a retriever was read, a sentence for each kind of thing that did not fit, and
        on the chunks.
        """
        if self.reading:
            yield self.reading
        yield from self.counts.describe()
        name, value = self.main_score
        if name not in SHOWN_SCORES:
            yield f"The main score of {self.task}, {name}, is {format_percent(value)}."
        if self.evidence:
            yield from self.evidence.describe_chunks()


def prepare_run(
    run: Run,
    data: ScoredData,
    rules: AlignmentRules,
    earlier: Collection[RunSearch],
    revision: str,
    read_by: ReadPart | MTEBModels,
) -> RunSearch:
    """Align a run with the data; raise PosirError if it does not fit, or an earlier run has its
    name or its rankings.
    """
    if data.rules.split and (others := run.splits - {data.rules.split}):
        # Queries of different splits may have the same ids.
        raise PosirError(
            f"{run.name}: has the rankings of split {sanitize(min(others))}, and split "
            f"{data.rules.split} of {data.name} is scored. Give --split {sanitize(min(others))}."
        )
    aligned = align_run(run, data.subsets, rules)
    chunks = RetrievedChunks.locate(data.excerpts, aligned) if aligned.states_chunks else None
    if isinstance(read_by, ReadPart):
        parts = data.parts.items()
        settled = [settle_read_part(read_by, x.corpus, data.languages[name]) for name, x in parts]
        read_by = reduce(add, settled)
    model = RunSearch(run.name, revision, aligned, read_by, chunks, run.reading)
    for other in earlier:
        # On some file systems, names that differ only in their case are one folder.
        if model.name.casefold() == other.name.casefold():
            raise PosirError(
                f"several runs have the name {other.name}. Give each a name of its own with "
                "--name, in the order of the runs."
            )
        if model.digest == other.digest:
            raise PosirError(
                f"{model.name} and {other.name} have the same rankings. Leave one of them out."
            )
    return model


def find_result(model: RunSearch, data: ScoredData, output: Path) -> Path:
    """Find the file of a result, as mteb names it."""
    return output / "results" / model.name.replace("/", "__") / model.revision / f"{data.name}.json"


def _read_entries(file: Path) -> tuple[str, list[dict[str, Any]]]:
    """Read the revision of the data of a saved result, and its entries for subsets."""
    content = read_json(file, nan_prefix=NAN_PREFIX)
    scores = content.get("scores") if isinstance(content, dict) else None
    if not isinstance(scores, dict):
        return "", []
    entries = [entry for split in scores.values() for entry in split]
    return content.get("dataset_revision", ""), entries


def is_recorded(model: RunSearch, data: ScoredData, output: Path, *, overwrite: bool) -> bool:
    """Tell whether a result of this ranking is saved, with the same window of the system.

    Raises:
        PosirError: A result of another ranking is saved, and may not be overwritten.
    """
    file = find_result(model, data, output)
    if overwrite or not file.is_file():
        return False
    revision, entries = _read_entries(file)
    digests = {entry.get(RUN_KEY, {}).get(SEARCH_KEY, {}).get(DIGEST) for entry in entries}
    if digests != {model.digest}:
        raise PosirError(
            f"{file}: {model.name}, revision {model.revision}, has a result of another ranking on "
            f"{data.name}. Give --overwrite to replace it, or another --revision or --name to keep "
            "both."
        )
    read = model.read_part.to_json()
    return revision == data.revision and all(
        entry.get(READ_KEY, read) == read
        and entry.get(JUDGMENTS_KEY, {}).get("clusters", data.clusters) == data.clusters
        for entry in entries
    )


def _score_subset(model: RunSearch, data: ScoredData, subset: SubsetQueries) -> dict[str, Any]:
    """Score all judged queries, and the positions of those that have one."""
    split = divide_split(data.parts[subset.name].drop_unsuited())
    rankings = model.run.rankings[subset.name]
    evidence = split["evidence"]
    judgments = subset.judgments
    stated = {"corpus": digest_texts(split["corpus"]), "queries": judgments.digest()}
    scores: dict[str, Any] = {
        RUN_KEY: {"schema": SCHEMA, REVISION_KEY: split["revision"], DIGEST_KEY: stated}
    }
    languages = data.languages[subset.name]
    count_tokens = partial(count_tokens_read, data.scorer.scheme, languages, *model.counter)
    if len(evidence) or len(split["places"].evidence):
        first = {}
        for name in split["queries"]["id"]:
            first[name] = dict(islice(rankings.get(name, {}).items(), data.scorer.top_k))
        find_read = partial(model.find_read, subset.name, languages)
        ranked = rank_results(first, evidence.positives())
        rotate = partial(_rotate, model, languages[-1], split, first, ranked, len(data.subsets))
        searched = SearchedSubset(
            subset.name, split, first, ranked, find_read, count_tokens, rotate=rotate
        )
        scores = data.scorer.score(searched)
    else:
        tokens = count_tokens(split["corpus"], model.read_part) if subset.has_corpus else None
        scores |= CorpusRead(model.read_part, tokens).to_json()
    scores[RUN_KEY][SEARCH_KEY] = asdict(model.run.counts[subset.name]) | {DIGEST: model.digest}
    if data.is_plain:
        return scores
    by_query = model.score_queries(subset, data.scorer.k_values)
    scores |= {name: sum(values) / len(values) for name, values in by_query.items()}
    clusters = cluster_queries(judgments, data.clusters)
    judged = JudgedScores.from_queries(by_query, clusters, data.clusters, judgments.digest())
    scores[JUDGMENTS_KEY] = judged.to_json()
    return {name: value for name, value in scores.items() if not name.startswith(NAN_PREFIX)}


def _rotate(
    model: RunSearch,
    language: str,
    split: SplitData,
    results: Results,
    ranked: RankedQueries,
    subsets: int,
    *ranking: Any,
) -> RotationRanks | None:
    """Test rotated versions of texts in a language by the embedder of a run; `ranking` is what
    `RotationTest.rank` takes.
    """
    sample_size = read_sample_size()
    _, _, _, ranks, *_ = ranking
    if not sample_size:
        return None
    if model.embedder is None:
        return build_untested(ranks, Untested.NO_TEXTS, sample_size, subsets)
    # They import mteb and PyTorch.
    from mteb.timing import TimingStack

    from posir_tasks.models.embeddings.encoding import DEFAULT_CONTEXT
    from posir_tasks.models.request import SearchRequest
    from posir_tasks.search.rotations import RotationTest

    positives = split["evidence"].positives()
    context = DEFAULT_CONTEXT
    request = SearchRequest(
        split["corpus"], split["single"], positives, None, DEPTH, context, TimingStack()
    )
    ordinary = dict(zip(positives, ranked.ranks.tolist(), strict=True))
    test = RotationTest(
        model.embedder, request, results, ordinary, sample_size, subsets, language, is_run=True
    )
    return test.rank(*ranking)


def _save_result(model: RunSearch, data: ScoredData, file: Path) -> None:
    """Score a run, and save the result and the metadata of a model that mteb has next to it, in
    mteb's form.
    """
    started = time.time()
    version = installed_mteb(NEWEST_TESTED)
    entries: dict[str, dict[str, Any]] = {}
    with track(f"Scoring {model.name} (queries)", model.run.total.queries) as advance:
        for subset in data.subsets:
            if subset.name not in model.run.rankings:
                continue
            scores = _score_subset(model, data, subset)
            entries[subset.name] = scores | {
                "main_score": scores[data.main_score],
                "hf_subset": subset.name,
                "mteb_version": version,
                "languages": [*data.languages[subset.name]],
            }
            advance(len(subset.judgments.grades))
    result = {
        "dataset_revision": data.revision,
        "task_name": data.name,
        "mteb_version": version,
        "scores": {SPLIT: [*entries.values()]},
        "evaluation_time": time.time() - started,
        "kg_co2_emissions": None,
        "date": time.time(),
        "evaluation_phases": None,
    }
    meta = {**MODEL_META, "name": model.name, "revision": model.revision}
    with folder_lock(file.parent), explain_disk_full(file):
        if file.exists():
            _set_other_data_aside(file, data.name, entries)
        write_text(file.parent / META_FILE, json.dumps(meta, indent=4))
        write_text(file, json.dumps(round_floats(result), indent=2))


def _set_other_data_aside(file: Path, task: str, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Set a saved result aside if it is of other data."""
    _, saved = _read_entries(file)
    others = []
    for entry in saved:
        name = str(entry.get("hf_subset"))
        old = DataVersion.from_run(entry.get(RUN_KEY, {}))
        new = DataVersion.from_run(entries[name][RUN_KEY]) if name in entries else None
        if new is None or new.differing_parts(old):
            others.append(name)
    if others:
        set_aside(file, task, others)


def evaluate_run(model: RunSearch, data: ScoredData, output: Path, *, is_known: bool) -> RunScores:
    """Score a run and save its result; a saved one is not scored again."""
    check_writable(output)
    file = find_result(model, data, output)
    if not is_known:
        _save_result(model, data, file)
    run = model.run
    names = (*SHOWN_SCORES, data.main_score)
    sums = dict.fromkeys(names, 0.0)
    for subset in data.subsets:
        grades = subset.judgments.grades
        if grades and subset.name in run.rankings:
            by_query = model.score_queries(subset, data.scorer.k_values)
            for name in sums:
                sums[name] += sum(by_query[name])
    means = {name: total / run.total.queries for name, total in sums.items()}
    evidence = None
    if model.chunks and model.read_chunks:
        evidence = score_chunks(model.name, model.chunks, model.read_chunks)
    return RunScores(
        model=model.name,
        revision=model.revision,
        digest=model.digest,
        task=data.name,
        counts=run.total,
        folder=file.parent,
        evidence=evidence,
        audit=data.audit,
        main_score=(data.main_score, means[data.main_score]),
        reading=model.reading,
        **{name: means[name] for name in SHOWN_SCORES},
    )
