"""The public function of this package: `posir.score`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from posir_score.alignment import SEPARATOR, AlignmentRules
from posir_score.collecting import CollectionSettings, Retriever, collect_run
from posir_score.document_names import DocumentNames
from posir_score.hits import Order
from posir_score.run_files import ANY_SUBSET, KINDS, Run, is_table, read_rankings, read_run
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.base.public import Option, load_function, public, to_list
from posir_tasks.base.wording import pluralize, sanitized
from posir_tasks.data.formats.passages import Scope
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data
from posir_tasks.display.numbers import format_percent
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.models.measured_model import load_embedder
from posir_tasks.models.protocols import PaperName
from posir_tasks.models.run_settings import with_settings
from posir_tasks.results import JudgedResult, SubsetResult, read_all_results, read_results
from posir_tasks.text.chunks import Chunker, TextSplitter, load_splitter, name_splitters
from posir_tasks.values.read_part import ReadPart, parse_window

if TYPE_CHECKING:
    from posir_report.api import Results
    from posir_score.chunk_scoring import ScoredChunkers
    from posir_score.evaluation import RunScores, RunSearch

logger = logging.getLogger(__name__)

HEADINGS = ("Run", "Task", "Queries", "With position", "nDCG@10", "MRR@10", "Recall@100")
LEGEND = "nDCG@10, MRR@10, Recall@100: over all judged queries, as in trec_eval."
#: Chunks that are retrieved for a question, as in Chroma's evaluation.
RETRIEVED = 5
#: What can be a folder.
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, repr=False)
class ScoredRuns(Presentable):
    """The scores of one or several runs."""

    runs: tuple[RunScores, ...]

    @property
    def title(self) -> str:
        """Subject in a few words."""
        return (
            f"{pluralize(len(self.runs), 'run')} on "
            f"{', '.join(dict.fromkeys(run.task for run in self.runs))}"
        )

    @cached_property
    def results(self) -> tuple[SubsetResult, ...]:
        """The results by position, as `posir.read_results` returns them; none of data without
        positions.
        """
        scored = [run for run in self.runs if run.counts.with_position]
        return tuple(
            result
            for run in scored
            for result in read_results(run.folder)
            if result.task == run.task
        )

    @cached_property
    def judged(self) -> tuple[JudgedResult, ...]:
        """The results on all judged queries; none of data in which each query has one position."""
        read = (
            result
            for run in self.runs
            for result in read_all_results(run.folder)
            if result.task == run.task
        )
        return tuple(result for result in read if isinstance(result, JudgedResult))

    def sections(self) -> Sequence[DisplaySection]:
        """Return the sections of a report, the scores of all judged queries and what did not fit,
        and those of chunks.
        """
        report = self._report.sections() if self.results or self.judged else []
        rows = tuple(
            (
                run.model,
                run.task,
                f"{run.counts.queries:,}",
                f"{run.counts.with_position:,}",
                *(
                    format_percent(score)
                    for score in (run.ndcg_at_10, run.mrr_at_10, run.recall_at_100)
                ),
            )
            for run in self.runs
        )
        notes = tuple(
            f"{run.model}: {' '.join(sentences)}"
            for run in self.runs
            if (sentences := [*run.describe()])
        )
        notes += tuple(
            dict.fromkeys(
                f"Judgments: {text}"
                for run in self.runs
                if (text := " ".join(run.audit.describe()))
            )
        )
        usual = DisplaySection(
            tables=(
                Table(build_columns(HEADINGS, HEADINGS[2:]), rows, notes=notes, is_narrow=True),
            )
        )
        scored = [(run.model, run.evidence, run.ndcg_at_10) for run in self.runs if run.evidence]
        answers = [
            DisplaySection(f"{name}, chunks", tuple(scores.describe(ndcg)))
            for name, scores, ndcg in scored
        ]
        chunks = [
            DisplaySection(f"{name}, chunks", tables=tuple(scores.build_tables()))
            for name, scores, _ in scored
        ]
        return (*report, *answers, usual, *chunks)

    @cached_property
    def _report(self) -> Results:
        from posir_report.api import build_results

        return build_results([*self.results, *self.judged])

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each run; scores in [0, 1]."""
        return [run.to_json() for run in self.runs]

    def document(self) -> object:
        """Return the rows, with what does not fit in the judgments, and all numbers of chunks under
        `evidence`.
        """
        return [
            run.to_json()
            | {"judgments": asdict(run.audit)}
            | ({"evidence": run.evidence} if run.evidence else {})
            for run in self.runs
        ]

    def legend(self) -> Sequence[str]:
        """Return paragraphs on how to read the tables."""
        return (LEGEND, *self._report.legend())

    def explanation(self) -> Iterable[str]:
        """Return what the columns of scores by position mean."""
        return self._report.explanation()


AnyRun: TypeAlias = Retriever | str | Path | Mapping[str, Any]
load_retriever = partial(load_function, "--retriever")


#: Titles in the help of `posir score`, each with its options; what is under none comes first.
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
    retriever: Annotated[
        Retriever | None, Option(parse=load_retriever, metavar="MODULE:FUNCTION")
    ] = None,
    model: str | None = None,
    chunker: Annotated[
        Chunker | Iterable[Chunker] | None, Option(parse=load_splitter, metavar="MODULE:FUNCTION")
    ] = None,
    k: Annotated[int | None, Option(min=1)] = None,
    language: str | None = None,
    name: str | Iterable[str] | None = None,
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
    concurrency: Annotated[int, Option(min=1)] = 8,
    retries: Annotated[int, Option(min=0)] = 3,
    timeout: Annotated[float, Option(min=0.001)] = 60.0,
    batch_size: Annotated[int, Option(min=1)] = 32,
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

    A run is ranked documents: of TREC, ranx or mteb, or query id, document id and score in JSON,
    JSON Lines, CSV or Parquet. A retriever is asked for them. Both are scored as `mteb run` scores
    models, and the results are saved. Text splitters are scored by what `model` retrieves: the
    characters of the evidence in its chunks. Nothing is saved.

    Args:
        runs: Files, each a run, or folders, each the parts of one; in Python also a score by
            document id by query id, rows of query id, document id and score, a frame with such
            columns, or a retriever.
        data: A task, or any other data with judged queries.
        retriever: A function of a query and `k` that returns ids, ids with scores, or hits of a
            framework, best first.
        model: With `chunker`, the model that retrieves chunks.
        chunker: A function that divides a text; several are compared.
        name: Name of each run, filed as `run/NAME`; by default of the file or function.
        revision: Version of the system, or of `model`; by default unversioned.
        output: Folder for results, as in `mteb run`.
        overwrite: Replace the result of another ranking of this name.
        missing: Refuse judged queries that a run lacks, or score them 0.
        order: What ranks documents: highest score, lowest distance, or stated rank; by default
            score.
        chunk_separator: Between document id and number of a chunk; empty without chunks.
        document_field: Field of a hit with its document's id; by default a usual one, such as
            `doc_id`.
        find_document: Returns the id of a chunk's document, in place of the separator.
        window: First tokens that the system reads of a text, or `none` if all; by default unknown.
        protocol: Paper whose authors' settings `model` is run with.
        embedder: The system's model, whose window is known or measured, in place of `window`.
        clusters: What makes queries without positions alike, such as their best-judged document; by
            default document.
        k: Documents or chunks to ask for; by default 100, or 5 chunks of `model`.
        concurrency: Queries searched at the same time.
        retries: Further attempts if a search fails.
        timeout: Seconds that a search may take.
        batch_size: Number of texts encoded at a time.
        split: Split of a BEIR folder; by default test.
        ignore_identical_ids: Leave out hits whose document has the id of the query, as mteb does
            for tasks whose queries are documents; by default only for those.
        language: Code of the data's language; by default detected.
        repair: Move an answer that is not where its file says to its only match nearby.
        merge_copies: Count documents with the same text, white space aside, as one; a run's best
            hit of them counts.
        scope: Texts of which each question is asked; by default recognized by the format, and by
            texts that repeat.

    Returns:
        The scores; `results` are those by position, as `posir.read_results` returns them. Of
        chunkers, a row for each over all documents and for each of a few documents, with 95%
        intervals.

    Raises:
        PosirError: Run and data do not fit, a row of the run is invalid, the scores contradict the
            order, another ranking is saved under the same name, or the retriever fails. All answers
            of a retriever are kept, and the same call goes on from there. Or a chunker does not
            divide a text.

    Examples:
        >>> import posir
        >>> posir.score("bm25.trec", data="PosIR-Mini")  # doctest: +SKIP
        >>> chunker = splitter.split_text  # doctest: +SKIP
        >>> minilm = "all-MiniLM-L6-v2"
        >>> posir.score(model=minilm, chunker=chunker, data="PosIR-Mini")  # doctest: +SKIP
    """
    given: list[Any] = [runs] if isinstance(runs, Mapping) or is_table(runs) else to_list(runs)
    given += [] if retriever is None else [retriever]
    if sum((bool(given), chunker is not None)) != 1 or (chunker is None) != (model is None):
        raise PosirError(
            "Give runs or a retriever (--retriever module:function), or --model and --chunker "
            "module:function."
        )
    opened = partial(open_data, data, split=split, language=language, repair=repair, scope=scope)
    if clusters is not None and chunker is not None:
        raise PosirError("--clusters is of runs. Omit it with --chunker.")
    if chunker is not None:
        splitters = name_splitters(chunker)
        if not splitters:
            raise PosirError("--model needs at least one --chunker.")
        with with_settings(protocol=protocol):
            sizes = batch_size, k or RETRIEVED
            return _score_chunkers(
                splitters,
                opened,
                str(model),
                revision,
                *sizes,
                repair=repair,
                is_merged=merge_copies,
            )
    if protocol is not None:
        raise PosirError(
            "--protocol is of a model that posir runs. Give --model and --chunker, or omit it."
        )
    # How many documents the scores need follows from the data.
    settings = CollectionSettings(
        k or 0, concurrency, retries, timeout, order, document_field, Path(output)
    )
    rules = AlignmentRules(missing == "error", chunk_separator, find_document, ignore_identical_ids)
    names = to_list(name)
    # Mistakes in the runs are reported before the data is read.
    _check_runs(given, names)
    if window is not None and embedder is not None:
        raise PosirError("--window and --embedder both say what is read. Give one of them.")
    reads = embedder if embedder is not None else parse_window(window)
    choices = {"overwrite": overwrite, "is_merged": merge_copies}
    return _score_runs(
        given, names, opened, revision or "unversioned", reads, clusters, rules, settings, **choices
    )


def _score_chunkers(
    splitters: Sequence[TextSplitter],
    open_scored: Callable[[], Dataset],
    model: str,
    revision: str | None,
    batch_size: int,
    retrieve: int,
    *,
    repair: bool,
    is_merged: bool,
) -> ScoredChunkers:
    with track("Loading the model"):
        from posir_tasks.models.registry import refuse_unloadable

        refuse_unloadable(model)
        # The models' libraries take seconds to import.
        from posir_score.chunk_scoring import score_splitters
        from posir_score.excerpts import read_excerpts
        from posir_tasks.models.embeddings.encoding import load_encoder
        from posir_tasks.text.tokenizer import EstimatedTokenizer, find_tokenizer

        excerpts = read_excerpts(open_scored(), repair=repair, is_merged=is_merged)
        # A mistake in a chunker should not cost the time to load the model.
        for splitter in splitters:
            splitter.divide(next(iter(excerpts.documents.values())))
        encoder = load_encoder(model, revision, batch_size=batch_size)
        tokenizer = find_tokenizer(encoder.model) or EstimatedTokenizer()
    return score_splitters(encoder, tokenizer, excerpts, splitters, retrieve)


def _score_runs(
    runs: Sequence[AnyRun],
    names: Sequence[str],
    open_scored: Callable[[], Dataset],
    revision: str,
    reads: ReadPart | str,
    clusters: str | None,
    rules: AlignmentRules,
    settings: CollectionSettings,
    *,
    overwrite: bool,
    is_merged: bool,
) -> ScoredRuns:
    from posir_score.evaluation import evaluate_run, is_recorded, open_scored_data, prepare_run

    if not REVISION.fullmatch(revision):
        raise PosirError(
            f"--revision {sanitized(revision)}: must be at most 100 letters, digits, '.', '_', "
            "'+' or '-', and begin with a "
            "letter or digit, such as v2 or 2026-11-23."
        )
    opened = open_scored_data(open_scored(), clusters, is_merged=is_merged)
    rules = opened.complete_rules(rules)
    settings = replace(settings, k=settings.k or rules.asked)
    read_by = load_embedder(reads) if isinstance(reads, str) else reads
    models: list[RunSearch] = []
    journals = []
    for place, given in enumerate(runs):
        stated, journal = names[place] if names else "", None
        rules_of_run = rules
        if isinstance(given, str | Path):
            read = read_run(Path(given).expanduser(), opened.name, settings.order)
        elif is_table(given) or isinstance(given, Mapping):
            rankings, duplicates = read_rankings(stated or "run", given, settings.order)
            read = Run(stated or "run", {ANY_SUBSET: rankings}, duplicates)
        else:
            rules_of_run = replace(rules, names=DocumentNames())
            read, journal = collect_run(
                given, stated or describe_retriever(given), opened.subsets, rules_of_run, settings
            )
        named = replace(read, name=stated or read.name)
        models.append(prepare_run(named, opened, rules_of_run, models, revision, read_by))
        if rules_of_run.names and (guess := rules_of_run.names.describe()):
            logger.warning("%s: %s", named.name, guess)
        journals.append(journal)
    recorded = [
        is_recorded(model, opened, settings.folder, overwrite=overwrite) for model in models
    ]
    scored = []
    for model, journal, is_known in zip(models, journals, recorded, strict=True):
        scored.append(evaluate_run(model, opened, settings.folder, is_known=is_known))
        if journal and not scored[-1].counts.missing:
            journal.remove()
    return ScoredRuns(tuple(scored))


def _check_runs(runs: Sequence[object], names: Sequence[str]) -> None:
    if names and len(names) != len(runs):
        counts = f"{pluralize(len(runs), 'run')} and {pluralize(len(names), 'name')}"
        files = (given for given in runs if isinstance(given, str | Path))
        others = [
            f"{given} is no file, so it counts as a run without one. "
            for given in files
            if not _exists(given)
        ]
        first = next(iter(others), "")
        raise PosirError(
            f"{counts}. {first}Give a --name for each run, as in `--name A --name B`, or none."
        )
    for given in runs:
        if isinstance(given, str | Path):
            if not _exists(given):
                raise PosirError(f"{given}: no such file or folder. Give {KINDS}.")
        elif not isinstance(given, Mapping) and not is_table(given) and not callable(given):
            raise PosirError(
                f"{type(given).__name__} is no run. Give a file or folder, a score by document id "
                "by query id, rows, a frame, "
                "or a retriever, called as search(query, k)."
            )


def _exists(given: str | Path) -> bool:
    return Path(given).expanduser().exists()


def describe_retriever(search: Retriever) -> str:
    """Return a retriever's name: that of its module and function, or of its class, without the
    functions around it.
    """
    named = search if hasattr(search, "__qualname__") else type(search)
    name = named.__qualname__.rpartition("<locals>.")[2].replace("<lambda>", "lambda")
    return f"{named.__module__}-{name}".removeprefix("__main__-")
