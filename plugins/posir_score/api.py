"""The public function `posir.score`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from posir_score.alignment import SEPARATOR, AlignmentRules
from posir_score.collecting import CollectionSettings, Retriever, collect_run
from posir_score.document_names import DocumentNames
from posir_score.hits import Order
from posir_score.ranking_builder import SUPPORTED_FORMATS
from posir_score.retriever_objects import (
    SystemRetriever,
    add_embedder,
    load_retriever,
    name_retriever,
    open_retriever,
)
from posir_score.run_files import is_table, read_rankings, read_run
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.base.public import Names, Option, OptionalPositive, Positive, public, to_list
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.data.formats.passages import Scope
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data
from posir_tasks.display.labels import Term
from posir_tasks.display.numbers import format_percent
from posir_tasks.display.presentation import LazySequence, Result
from posir_tasks.display.tables import DisplaySection, Medium, Role, Table, build_columns
from posir_tasks.models.measured_model import load_embedder
from posir_tasks.models.protocols import PaperName
from posir_tasks.models.references import ModelReference
from posir_tasks.models.run_settings import override_settings
from posir_tasks.results import StoredResult, SubsetResult, read_all_results
from posir_tasks.text.chunks import Chunker, TextSplitter, load_splitter, name_splitters
from posir_tasks.values.read_part import ReadPart, parse_window

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

    from posir_report.results import Results
    from posir_score.chunk_scoring import ScoredChunkers
    from posir_score.evaluation import PreparedRun, RunScores
    from posir_score.scored_data import ScoredData

logger = logging.getLogger(__name__)

HEADINGS = ("Run", "Task", "Queries", "With position", "nDCG@10", "MRR@10", "Recall@100")
LEGEND = Term("nDCG@10, MRR@10, Recall@100", "over all judged queries, as in trec_eval.")
#: Number of chunks to retrieve for a question, as in Chroma's evaluation.
DEFAULT_CHUNKS = 5
#: Valid revisions; they become folder names.
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, repr=False, kw_only=True)
class ScoredRuns(Result):
    """Scores of runs in [0, 1], one row per run."""

    runs: Sequence[RunScores]

    @cached_property
    def stored_results(self) -> Sequence[StoredResult]:
        """Results by position, and results on all judged queries."""
        return [
            result
            for run in self.runs
            for result in read_all_results(run.folder)
            if result.task == run.task
        ]

    @cached_property
    def results(self) -> Sequence[SubsetResult]:
        """Results by position, as returned by `posir.read_results`; empty for data without
        positions.
        """
        return [result for result in self.stored_results if isinstance(result, SubsetResult)]


def build_scored_runs(runs: Sequence[RunScores]) -> ScoredRuns:
    """Build the result, with the report by position and the scores on all judged queries."""
    tasks = ", ".join(dict.fromkeys(run.task for run in runs))
    scored_runs = ScoredRuns(
        runs=runs,
        title=f"{pluralize(len(runs), 'run')} on {tasks}",
        rows=[run.to_json() for run in runs],
        values=[run.document() for run in runs],
    )

    @cache
    def report() -> Results:
        from posir_report.results import build_results

        return build_results(scored_runs.stored_results)

    return replace(
        scored_runs,
        extra_sections=LazySequence(lambda: _build_sections(scored_runs, report)),
        notes=LazySequence(lambda: (LEGEND, *report().notes)),
        details=LazySequence(lambda: report().details),
    )


def _build_sections(
    scored_runs: ScoredRuns, report: Callable[[], Results]
) -> Iterator[DisplaySection]:
    """Yield the report's sections, the scores on all judged queries, and the chunk scores."""
    # Without its own sections, LaTeX output shows the text tables.
    sections = report().extra_sections
    yield from (section for section in sections if section.only is not Medium.LATEX)
    chunk_sections = []
    for run in scored_runs.runs:
        if run.evidence:
            title = f"{run.model}, chunks"
            yield DisplaySection(title, run.evidence.describe(run.ndcg_at_10))
            tables = tuple(run.evidence.build_tables())
            chunk_sections.append(DisplaySection(title, tables=tables))
    rows = []
    notes = []
    for run in scored_runs.runs:
        scores = map(format_percent, (run.ndcg_at_10, run.mrr_at_10, run.recall_at_100))
        queries = (f"{run.counts.queries:,}", f"{run.counts.with_position:,}")
        rows.append((run.model, run.task, *queries, *scores))
        if sentences := " ".join(run.describe()):
            notes.append(f"{run.model}: {sentences}")
    audits = [" ".join(run.audit.describe()) for run in scored_runs.runs]
    notes += [f"Judgments: {sentences}" for sentences in audits if sentences]
    columns = build_columns(HEADINGS, HEADINGS[2:], roles={"Task": Role.NAME})
    table = Table(columns, tuple(rows), notes=tuple(dict.fromkeys(notes)), is_narrow=True)
    yield DisplaySection(tables=(table,))
    yield from chunk_sections


AnyRun: TypeAlias = Retriever | str | Path | Mapping[str, Any]

#: Option groups in the help of `posir score`, by title. All other options come first.
GROUPS = {
    "Runs": "revision overwrite missing order chunk_separator window embedder",
    "Retrievers": "document_field concurrency retries timeout",
    "Text splitters": "protocol batch_size",
    "Data": "clusters split ignore_identical_ids repair merge_copies scope",
}


@public(charts=True, groups=GROUPS)
def score(
    runs: AnyRun | Iterable[AnyRun] | None = None,
    *,
    data: str | Path,
    retriever: Annotated[Any | None, Option(parse=load_retriever, metavar="MODULE:OBJECT")] = None,
    model: str | None = None,
    chunker: Annotated[
        Chunker | Iterable[Chunker] | None, Option(parse=load_splitter, metavar="MODULE:FUNCTION")
    ] = None,
    k: OptionalPositive = None,
    language: str | None = None,
    name: Names | None = None,
    output: str | Path = Path("results"),
    revision: str | None = None,
    overwrite: bool = False,
    missing: Literal["error", "zero"] = "error",
    order: Order | None = None,
    chunk_separator: str = SEPARATOR,
    document_field: str | None = None,
    find_document: Annotated[Callable[[str], str] | None, Option(python_only=True)] = None,
    window: str | int | None = None,
    protocol: PaperName | None = None,
    embedder: str | None = None,
    clusters: Annotated[str | None, Option(metavar="document|topic|COLUMN")] = None,
    concurrency: Positive = 8,
    retries: Annotated[int, Option(min=0)] = 3,
    timeout: Annotated[float, Option(min=0.001)] = 60.0,
    batch_size: Positive = 32,
    split: str | None = None,
    ignore_identical_ids: bool = False,
    repair: bool = True,
    merge_copies: bool = False,
    scope: Scope | None = None,
) -> ScoredRuns | ScoredChunkers:
    """Score a run of any system, a retriever, or text splitters.

        posir score bm25.trec --data PosIR-Mini
        posir score --retriever pipeline:search --data questions.json
        posir score --model all-MiniLM-L6-v2 --chunker pipeline:split \\
            --data PosIR-Mini

    A run is a ranking of documents per query: a run of TREC, ranx or mteb, or query id, document id
    and score in JSON, JSON Lines, CSV or Parquet. A retriever is queried for its rankings. Both are
    scored like models in `mteb run`, and the results are saved. Text splitters are scored by the
    share of the evidence in the chunks that `model` retrieves, and these scores are not saved.

    Args:
        runs: Files, or folders with the files of one run; in Python also a mapping of query ids to
            scores by document id, rows of query id, document id and score, a frame with these
            columns, or a retriever.
        data: A task or any other data with judged queries.
        retriever: A function of a query and `k` that returns ids, ids with scores, or hits of a
            framework, best first; or a retriever, vector store, index, pipeline or collection of a
            framework.
        model: With `chunker`, the model that retrieves chunks.
        chunker: A function that splits a text; several are compared.
        name: Name of each run, saved as `run/NAME`; by default the name of the file or function.
        revision: Version of the system, or of `model`; by default unversioned.
        output: Folder for results, as in `mteb run`.
        overwrite: Replace the result of another ranking with this name.
        missing: Reject a run without some judged queries, or score these queries as 0.
        order: Sort by highest score, lowest distance or lowest rank; by default by highest score.
        chunk_separator: Separates document id and chunk number; empty if ids have no chunk number.
        document_field: Field of a hit that contains the document id; by default a common field,
            such as `doc_id`.
        find_document: Function that returns the document id of a chunk id, instead of
            `chunk_separator`.
        window: Number of tokens that the system reads from the start of a text, or `none` if it
            reads all; by default unknown.
        protocol: Run `model` with the settings of this paper's authors.
        embedder: The system's embedding model, instead of `window`. Its window is looked up or
            measured, and it embeds queries for a collection.
        clusters: How to cluster queries that are not independent; by default queries without
            positions are clustered by their best-judged document.
        k: Documents or chunks to retrieve; by default 100, or 5 chunks with `model`.
        concurrency: Number of parallel searches.
        retries: Number of retries if a search fails.
        timeout: Time limit of a search in seconds.
        batch_size: Number of texts per encoding batch.
        split: Split of a BEIR folder; by default test.
        ignore_identical_ids: Exclude hits with the id of the query, as mteb does for tasks whose
            queries are documents; by default only for these tasks.
        language: Language code of the data; by default detected.
        repair: Move an answer that is not at its offset to its only match nearby.
        merge_copies: Merge documents whose texts differ only in white space; their best hit counts.
        scope: Texts to search for an answer; by default inferred from the format and from repeated
            questions.

    Returns:
        The scores. `results` contains the results by position, as returned by
        `posir.read_results`. For chunkers, one row per chunker for all documents and, if there are
        few, one row per document, with 95% intervals.

    Raises:
        PosirError: The run does not match the data, a row of the run is invalid, the scores
            contradict the order, another ranking is saved under the same name, a chunker cannot
            split a text, or the retriever fails. A retriever's answers are saved, and the same call
            continues from them.

    Examples:
        >>> import posir
        >>> posir.score("bm25.trec", data="PosIR-Mini")  # doctest: +SKIP
        >>> chunker = splitter.split_text  # doctest: +SKIP
        >>> minilm = "all-MiniLM-L6-v2"
        >>> posir.score(model=minilm, chunker=chunker, data="PosIR-Mini")  # doctest: +SKIP
    """
    sources: list[Any] = [runs] if isinstance(runs, Mapping) or is_table(runs) else to_list(runs)
    if retriever is not None:
        sources.append(open_retriever(retriever, has_embedder=embedder is not None))
    if bool(sources) == (chunker is not None) or (chunker is None) != (model is None):
        raise PosirError(
            "Give runs or a retriever (--retriever module:function), or --model and --chunker "
            "module:function."
        )
    if clusters and chunker is not None:
        raise PosirError("--clusters needs a run. Omit it with --chunker.")
    if window is not None and embedder is not None:
        raise PosirError("--window and --embedder both set the window. Use only one of them.")
    if protocol and sources:
        raise PosirError("--protocol needs a model. Use it with --model and --chunker, or omit it.")
    open_scored = partial(
        open_data, data, split=split, language=language, repair=repair, scope=scope
    )
    if chunker is not None:
        reference = ModelReference(str(model), revision)
        with override_settings(protocol=protocol):
            return _score_chunkers(
                name_splitters(chunker),
                open_scored,
                reference,
                batch_size,
                k or DEFAULT_CHUNKS,
                repair=repair,
                merge_copies=merge_copies,
            )
    names = to_list(name)
    # Fail before the data is read.
    _check_runs(sources, names)
    version = revision or "unversioned"
    if not REVISION.fullmatch(version):
        raise PosirError(
            f"--revision {sanitize(version)}: must be at most 100 letters, digits, '.', '_', '+' "
            "or '-', and begin with a letter or digit, such as v2 or 2026-11-23."
        )
    from posir_score.scored_data import open_scored_data

    scored_data = open_scored_data(open_scored(), clusters, merge_copies=merge_copies)
    rules = AlignmentRules(
        requires_all=missing == "error",
        separator=chunk_separator,
        find_document=find_document,
        ignore_identical_ids=ignore_identical_ids or scored_data.rules.ignore_identical_ids,
        skip_first_result=scored_data.rules.skip_first_result,
        depth=scored_data.depth,
    )
    settings = CollectionSettings(
        k=k or rules.retrieval_depth,
        concurrency=concurrency,
        retries=retries,
        timeout=timeout,
        order=order,
        document_field=document_field,
        folder=Path(output),
    )
    read_by = parse_window(window) if embedder is None else load_embedder(embedder)
    return _score_runs(
        [*zip_longest(sources, names, fillvalue="")],
        scored_data,
        rules,
        settings,
        version,
        read_by,
        embedder,
        overwrite=overwrite,
    )


def _score_runs(
    runs: Iterable[tuple[AnyRun, str]],
    data: ScoredData,
    rules: AlignmentRules,
    settings: CollectionSettings,
    version: str,
    read_by: ReadPart | MTEBModels,
    embedder: str | None,
    *,
    overwrite: bool,
) -> ScoredRuns:
    from posir_score.evaluation import evaluate_run, has_saved_result, prepare_run

    prepared_runs: list[PreparedRun] = []
    journals = []
    for source, name in runs:
        journal = None
        run_rules = rules
        if isinstance(source, str | Path):
            run = read_run(Path(source).expanduser(), data.name, settings.order)
            run = replace(run, name=name or run.name)
        elif isinstance(source, Mapping) or is_table(source):
            run = read_rankings(name or "run", source, settings.order)
        else:
            # An index may use file names as ids.
            run_rules = replace(rules, document_names=DocumentNames())
            name = name or name_retriever(source)
            search = add_embedder(source, embedder, read_by)
            run_settings = settings
            if isinstance(search, SystemRetriever) and settings.order is None:
                # The scores may be distances.
                run_settings = replace(settings, order="rank")
            run, journal = collect_run(search, name, data.subsets, run_rules, run_settings)
        prepared_runs.append(prepare_run(run, data, run_rules, prepared_runs, version, read_by))
        journals.append(journal)
        if run_rules.document_names and run_rules.document_names.matches:
            logger.warning("%s: %s", run.name, run_rules.document_names.describe())
    # All names are checked before anything is saved.
    flags = [
        has_saved_result(run, data, settings.folder, overwrite=overwrite) for run in prepared_runs
    ]
    scores = []
    for prepared, journal, is_saved in zip(prepared_runs, journals, flags, strict=True):
        scores.append(evaluate_run(prepared, data, settings.folder, is_saved=is_saved))
        if journal and not scores[-1].counts.missing:
            journal.remove()
    return build_scored_runs(scores)


def _score_chunkers(
    splitters: Sequence[TextSplitter],
    open_scored: Callable[[], Dataset],
    model: ModelReference,
    batch_size: int,
    retrieve: int,
    *,
    repair: bool,
    merge_copies: bool,
) -> ScoredChunkers:
    if not splitters:
        raise PosirError("--model needs at least one --chunker.")
    with track("Loading the model"):
        from posir_tasks.models.registry import raise_if_unloadable

        raise_if_unloadable(model.name)
        # These imports take seconds.
        from posir_score.chunk_scoring import score_splitters
        from posir_score.evidence_spans import read_evidence_data
        from posir_tasks.models.embeddings.encoding import load_encoder
        from posir_tasks.text.tokenizer import EstimatedTokenizer, find_tokenizer

        evidence = read_evidence_data(open_scored(), repair=repair, merge_copies=merge_copies)
        # Let a faulty chunker fail before the model is loaded.
        for splitter in splitters:
            splitter.split_text(next(iter(evidence.documents.values())))
        encoder = load_encoder(model.name, model.revision, batch_size=batch_size)
        tokenizer = find_tokenizer(encoder.model) or EstimatedTokenizer()
    return score_splitters(encoder, tokenizer, evidence, splitters, retrieve)


def _check_runs(runs: Sequence[object], names: Sequence[str]) -> None:
    if names and len(names) != len(runs):
        raise PosirError(
            f"{pluralize(len(runs), 'run')}, but {pluralize(len(names), 'name')}. Use --name once "
            "for each run, as in `--name A --name B`, or omit --name."
        )
    for run in runs:
        if isinstance(run, str | Path):
            if not Path(run).expanduser().exists():
                raise PosirError(f"{run}: no such file or folder. Give {SUPPORTED_FORMATS}.")
        elif not isinstance(run, Mapping) and not is_table(run) and not callable(run):
            raise PosirError(
                f"{type(run).__name__} is not a run. Give a file or folder, a mapping of query ids "
                "to scores by document id, rows, a frame, or a retriever, called as "
                "search(query, k)."
            )
