"""Public functions: `posir.run` evaluates models on this machine or a cluster, `posir.evaluate`
evaluates one model, and `posir.nano` selects a sample.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from posir_report.results import Results, build_results
from posir_run.jobs import (
    Dispatcher,
    Engine,
    EvaluationJob,
    JobOutcome,
    Workload,
    explain_unknown_task,
    find_missing_jobs,
    find_workload,
)
from posir_run.worker import LocalEngine, RayEngine, Settings, show_warnings
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import check_writable, explain_unwritable
from posir_tasks.base.garbage import collect_rarely
from posir_tasks.base.progress import log_progress, track, track_items
from posir_tasks.base.public import Names, Option, OptionalPositive, Positive, public, to_list
from posir_tasks.base.records import Record
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.display.presentation import Result
from posir_tasks.models.protocols import PaperName
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import find_model, raise_if_unknown
from posir_tasks.models.run_settings import override_settings
from posir_tasks.mteb.result_saving import get_result_saver
from posir_tasks.results import SubsetResult, read_result_file
from posir_tasks.tasks.catalog import raise_if_missing
from posir_tasks.text.words import BYTES_PER_TOKEN, estimate_tokens
from posir_tasks.values.result_schema import SPLIT

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.cache import ResultCache

    from posir_tasks.tasks.posir import PosirTask

logger = logging.getLogger(__name__)


@collect_rarely()
def evaluate(
    model: str | Path | Any,
    tasks: str | AbsTask | Iterable[str | AbsTask],
    *,
    revision: str | None = None,
    window: int | None = None,
    tokenizer: str | Path | None = None,
    skip_failed: bool = False,
    backend: str | None = None,
    protocol: PaperName | None = None,
    domains: Names | None = None,
    output_folder: str | Path | None = None,
    batch_size: int = 32,
) -> Results:
    """Evaluate a model on tasks with `mteb.evaluate`. Existing results are not recomputed.

    Args:
        model: A model name as in `mteb run -m`, a folder, an endpoint (`MODEL@ADDRESS`), or an
            object that `mteb.evaluate` accepts, such as a SentenceTransformer.
        tasks: One or more task names, or objects from `mteb.get_task`.
        revision: Revision of the model.
        window: Override the model's context window, in tokens. Results are stored separately, as
            an experiment.
        tokenizer: Tokenizer to apply `window` with if the model is behind an endpoint: a name on
            the Hub or a folder. By default, the server counts tokens, or they are estimated.
        skip_failed: Skip texts that an endpoint fails to embed, at most a fifth of all texts.
            Skipped texts are counted and listed, and are never retrieved. Results are stored
            separately, as an experiment.
        backend: Backend of a sentence-transformers model, `onnx` or `openvino`, optionally with a
            file, such as `onnx:model_qint8_avx512.onnx`. Results are stored separately, as an
            experiment.
        protocol: Use the settings of this paper's authors. Results are stored separately, as an
            experiment.
        domains: Domains of PosIR tasks to evaluate, by default all. Results are stored separately,
            as an experiment.
        output_folder: Folder for mteb's result files, by default mteb's cache.
        batch_size: Number of texts per encoding batch.

    Returns:
        The results by position, as from `posir.read_results`. Scores are in [0, 1].

    Raises:
        PosirError: A model or task does not exist, or no task has evidence positions.

    Examples:
        >>> import posir
        >>> bm25 = "mteb/baseline-bm25s"
        >>> results = posir.evaluate(bm25, "PosIR-Mini", output_folder="results-of-bm25")
        >>> results[0].task, results[0].profile.queries
        ('PosIR-Mini', 720)
    """
    is_name = isinstance(model, str | Path)
    if is_name:
        raise_if_unknown(str(model))
    import mteb

    # Register the tasks if the start-up hook is disabled.
    import posir_tasks  # noqa: F401

    with explain_unknown_task():
        task_list = [
            mteb.get_task(task) if isinstance(task, str) else task for task in to_list(tasks)
        ]
    options: Record = {
        "protocol": protocol,
        "window": window,
        "tokenizer": _check_tokenizer(tokenizer, window),
        "skip_failed": skip_failed or None,
        "backend": backend,
    }
    for name, value in options.items():
        if value is not None and not is_name:
            raise PosirError(
                f"{name}: cannot be set for a model that is already loaded. Give the model by name."
            )
    cache = mteb.ResultCache(Path(output_folder)) if output_folder else mteb.ResultCache()
    with override_settings(**options, domains=domains):
        if isinstance(model, str | Path):
            model = find_model(ModelReference(str(model), revision))
        result = mteb.evaluate(
            model,
            task_list,
            cache=cache,
            encode_kwargs={"batch_size": batch_size},
            show_progress_bar=False,
        )
    # Some mteb versions do not return the experiment name.
    meta = getattr(model, "mteb_model_meta", model)
    experiment = getattr(result, "experiment_name", None) or getattr(meta, "experiment_name", None)
    names = [task.metadata.name for task in task_list]
    results: list[SubsetResult] = []
    for name in names:
        file = cache.get_task_result_path(
            name, result.model_name, result.model_revision, experiment_name=experiment
        )
        if file.exists():
            results += read_result_file(file)
    if not results:
        raise PosirError(
            f"no evidence positions in {', '.join(names)}. `posir tasks` lists tasks with evidence "
            "positions."
        )
    return build_results(sorted(results, key=lambda subset: (subset.task, subset.subset)))


def _check_tokenizer(tokenizer: str | Path | None, window: int | None) -> str | None:
    """Convert the tokenizer to text. Raise PosirError if it is given without a window."""
    if tokenizer and window is None:
        raise PosirError("--tokenizer counts the tokens of --window. Give both, or neither.")
    return str(tokenizer) if tokenizer else None


EngineName: TypeAlias = Literal["local", "ray"]


def choose_engine(
    engine: EngineName, address: str | None, settings: Settings
) -> Callable[[], Engine]:
    """Return a function that starts an engine.

    Raises:
        PosirError: An address is given, but the engine is not Ray.
    """
    if engine == "ray":
        return partial(RayEngine, address, settings)
    if address:
        raise PosirError(
            f"--address {address}: applies to a Ray cluster only. Add --engine ray, or omit "
            "--address."
        )
    return partial(LocalEngine, settings)


@public()
def run(
    *,
    model: Annotated[Names, Option(short="-m")],
    task: Annotated[Names | None, Option(short="-t")] = None,
    benchmark: Annotated[Names | None, Option(short="-b")] = None,
    revision: str | None = None,
    window: OptionalPositive = None,
    tokenizer: str | Path | None = None,
    skip_failed: bool = False,
    backend: str | None = None,
    protocol: PaperName | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    query_field: Names | None = None,
    passage_field: Names | None = None,
    domains: Names | None = None,
    output: str | Path = "results",
    batch_size: Positive = 32,
    engine: EngineName = "local",
    address: str | None = None,
    verbose: Annotated[bool, Option(short="-v")] = False,
    plan: bool = False,
) -> Result:
    """Evaluate models on tasks and save the same results as `mteb run`; run again to resume.

        posir run -m all-MiniLM-L6-v2 bge-m3 -t PosIR-Mini
        posir run -m all-MiniLM-L6-v2 -b PosIR --plan

    Subsets that already have a result are skipped. If a subset fails, the others are still
    evaluated, and failures are listed at the end.

    Args:
        model: One or more models: names in mteb or on the Hub, folders, or endpoints
            (MODEL@ADDRESS).
        task: One or more tasks.
        benchmark: One or more benchmarks.
        revision: Revision of the model.
        window: Override the model's context window, in tokens. Results are stored separately, as
            an experiment.
        tokenizer: Tokenizer to apply `window` with if the model is behind an endpoint: a name on
            the Hub or a folder. By default, the server counts tokens, or they are estimated.
        skip_failed: Skip texts that an endpoint fails to embed, at most a fifth of all texts.
            Skipped texts are counted and listed, and are never retrieved. Results are stored
            separately, as an experiment.
        backend: Backend of a sentence-transformers model, `onnx` or `openvino`, optionally with a
            file, such as `onnx:model_qint8_avx512.onnx`. Results are stored separately, as an
            experiment.
        protocol: Use the settings of this paper's authors. Results are stored separately, as an
            experiment.
        query_prompt: Override the model's query prompt. Results are stored separately, as an
            experiment.
        document_prompt: Override the model's document prompt. Results are stored separately, as
            an experiment.
        query_field: A field to add to an endpoint's query requests, such as `input_type=query`.
        passage_field: A field to add to an endpoint's document requests, such as `truncate=true`.
        domains: Domains of PosIR tasks to evaluate, by default all. Results are stored separately,
            as an experiment.
        output: Folder for results, as in `mteb run`.
        batch_size: Number of texts per encoding batch.
        engine: Where to run: on this machine or on a Ray cluster.
        address: Address of the Ray cluster, or `auto`. By default, Ray is started on this machine.
        verbose: Show the workers' logs.
        plan: Only estimate the number of texts, the size of embeddings and the run time, with a
            short benchmark.

    Returns:
        A row with the number of evaluated `jobs` and the folder, or the plan.

    Raises:
        PosirError: A model or task does not exist, or a job failed. The results of all other jobs
            are saved.

    Examples:
        >>> import posir
        >>> bm25 = "mteb/baseline-bm25s"
        >>> report = posir.run(model=bm25, task="PosIR-Mini", output="results-of-run")
        >>> report.rows  # doctest: +SKIP
        [{'jobs': 1, 'output': 'results-of-run'}]
    """
    run_settings = partial(
        override_settings,
        protocol=protocol,
        window=window,
        tokenizer=_check_tokenizer(tokenizer, window),
        skip_failed=skip_failed,
        backend=backend,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        query_field=query_field,
        passage_field=passage_field,
        domains=domains,
    )
    settings = Settings({"batch_size": batch_size}, verbose=verbose)
    start_engine = choose_engine(engine, address, settings)
    for name in to_list(task):
        raise_if_missing(name)
    for name in to_list(model):
        raise_if_unknown(name)
    get_workload = partial(
        find_workload, to_list(task), to_list(benchmark), to_list(model), revision
    )
    if plan:
        from posir_run.plan import plan_run

        with run_settings():
            return plan_run(get_workload(), batch_size)
    try:
        with run_settings(), show_warnings(partial(print, file=sys.stderr)):
            jobs = _evaluate_missing(get_workload, Path(output), settings, start_engine)
    except KeyboardInterrupt:
        folder = sanitize(str(output), None)
        print(
            f"interrupted. Finished results are in {folder}; run the same command again to resume.",
            file=sys.stderr,
        )
        raise
    title = f"{pluralize(jobs, 'job')} evaluated; results are in {output}"
    return Result(
        title=title, rows=[{"jobs": jobs, "output": str(output)}], tables=[], warnings=[title]
    )


@public()
def nano(task: str, *, plan: bool = False) -> Result:
    """Select a sample of a PosIR task that runs in minutes, and save the list of its ids.

    `mteb run -t PosIR-English-Nano` also selects the sample if no list exists. The sample contains
    the same number of questions per document third, and the top BM25 documents in the full corpus
    for each question. A list becomes invalid if the data changes.

    Args:
        task: A single-language task, such as PosIR-English.
        plan: Only estimate the number of texts and the run time, with a short benchmark.

    Returns:
        A row per domain: questions and documents in the sample, and documents in the full corpus.

    Raises:
        PosirError: The task does not exist, its data cannot be read, or the list cannot be written.

    Examples:
        >>> import posir
        >>> posir.nano("PosIR-English", plan=True)  # doctest: +SKIP
    """
    with track("Loading mteb"):
        from posir_tasks.data.declared import NANO_SUFFIX
        from posir_tasks.data.nano import locate_sample
        from posir_tasks.tasks.catalog import find_task
        from posir_tasks.tasks.nano import NanoTask
        from posir_tasks.tasks.posir import build_posir_task

        task_class = find_task(task.removesuffix(NANO_SUFFIX) + NANO_SUFFIX)
    if task_class is None or not issubclass(task_class, NanoTask):
        raise PosirError(
            f"{task}: has no sample. Give a single-language PosIR task, such as PosIR-English."
        )
    nano_task = task_class()
    full_task = build_posir_task(task_class.language, task_class.language)()
    full_task.load_data()
    estimate = _plan_selection(full_task)
    if plan:
        return estimate
    log_progress(estimate.sentences[0])
    name = nano_task.metadata.name
    rows: list[Record] = []
    for domain in track_items(full_task.hf_subsets, "Selecting"):
        data = full_task.read_subset(domain)
        sample = nano_task.select_sample(domain, data)
        rows.append(
            {
                "domain": domain,
                "questions": len(sample.questions),
                "documents": len(sample.documents),
                "of_documents": len(data.documents),
            }
        )
    keys = ("questions", "documents", "of_documents")
    questions, documents, total = (sum(row[key] for row in rows) for key in keys)
    sentence = (
        f"{name}: {questions:,} questions on {documents:,} of {total:,} documents; lists: "
        f"{locate_sample(name, '*')}"
    )
    return Result(
        title=name,
        rows=rows,
        tables=[],
        sentences=[sentence],
        commands=[f"mteb run -t {name} -m MODEL"],
    )


def _plan_selection(task: PosirTask) -> Result:
    """Estimate the number of texts that sample selection reads, and the BM25 time."""
    from mteb.models.model_implementations.bm25 import BM25Search
    from rich.filesize import decimal

    from posir_run.plan import ROUNDS, Duration, collect_samples, time_encoding
    from posir_run.sizes import measure_subsets, sum_counts
    from posir_tasks.models.bm25 import search_bm25
    from posir_tasks.models.embeddings.context import build_texts

    subsets = [(task, subset) for subset in task.hf_subsets]
    sizes = measure_subsets(track_items(subsets, "Counting texts"))
    counts = sum_counts(size.documents for size in sizes)
    # Search all texts at once, since every word has an IDF of 0 in a corpus of one text.
    texts = [text for bucket in collect_samples([task], counts)[0] for text in bucket]

    def search(texts: Sequence[str]) -> object:
        return search_bm25(
            BM25Search(),
            build_texts(texts),
            build_texts(texts[:1]),
            top_k=1,
            encode_kwargs={},
            task_metadata=task.metadata,
            hf_split=SPLIT,
            hf_subset=task.hf_subsets[0],
        )

    sample_tokens = sum(map(estimate_tokens, texts))
    seconds = [time_encoding(search, texts) / sample_tokens for _ in range(ROUNDS)]
    document_count = sum(counts.texts)
    token_count = sum(counts.tokens)
    duration = Duration.from_rounds(seconds) * token_count
    name = task.metadata.name
    source = f"{document_count:,} documents, {decimal(token_count * BYTES_PER_TOKEN)} of text"
    if not all(size.is_counted for size in sizes):
        source += ", to be downloaded first"
    sentence = (
        f"{name}: the sample is selected from {source}. BM25 takes {duration} on this machine, "
        "once."
    )
    row = {
        "task": name,
        "documents": document_count,
        "tokens": token_count,
        "seconds": duration.mean,
    }
    return Result(title="Estimated cost of the sample", rows=[row], sentences=[sentence])


def _evaluate_missing(
    get_workload: Callable[[], Workload],
    output_folder: Path,
    settings: Settings,
    start_engine: Callable[[], Engine],
) -> int:
    """Evaluate all subsets that have no result, and return the number of jobs.

    Raises:
        PosirError: A name is unknown, or a job failed.
    """
    from mteb.cache import ResultCache

    from posir_run.memory import estimate_peaks

    with track("Loading mteb"):
        workload = get_workload()
        with explain_unwritable(output_folder):
            cache = ResultCache(output_folder)
        jobs = find_missing_jobs(workload, cache)
    total = len(workload.list_jobs())
    if len(jobs) < total:
        finished_jobs = f"{total - len(jobs):,} of {pluralize(total, 'job')}"
        folder = sanitize(str(output_folder), None)
        print(f"{finished_jobs} already have a result in {folder}", file=sys.stderr)
    if jobs:
        check_writable(output_folder)
        metas = [workload.models[model] for model in dict.fromkeys(job.model for job in jobs)]
        for peak in estimate_peaks(metas, workload.tasks, settings.encode_kwargs["batch_size"]):
            print(peak.describe(), file=sys.stderr)
        # On Ctrl-C, stop the workers immediately; otherwise they would finish their jobs first.
        with closing(run_and_save(jobs, start_engine(), workload, cache, settings)) as outcomes:
            failures = report_outcomes(outcomes, len(jobs))
        if failures:
            raise PosirError(
                f"{len(failures):,} of {pluralize(len(jobs), 'job')} failed; the other results "
                f"are in {output_folder}. Run the same command again to retry:\n"
                + "\n".join(failures)
            )
    return len(jobs)


def run_and_save(
    jobs: Sequence[EvaluationJob],
    engine: Engine,
    workload: Workload,
    cache: ResultCache,
    settings: Settings,
) -> Generator[tuple[EvaluationJob, JobOutcome], None, None]:
    """Run jobs and save their results. Yield each job with its outcome.

    Closing the generator stops the workers.
    """
    subset_order = {task.metadata.name: task.hf_subsets for task in workload.tasks}
    with closing(Dispatcher(jobs, engine).run()) as outcomes:
        for job, outcome in outcomes:
            assert isinstance(job, EvaluationJob)
            if not outcome.failure:
                result, fields = outcome.value
                meta = workload.models[job.model].model_copy(update=fields)
                get_result_saver().add(
                    cache,
                    result,
                    meta,
                    order=subset_order[job.task],
                    encode_kwargs=settings.encode_kwargs,
                )
            yield job, outcome


def report_outcomes(outcomes: Iterable[tuple[EvaluationJob, JobOutcome]], total: int) -> list[str]:
    """Log each outcome and its warnings. Return the failed jobs, each with its reason."""
    failures = []
    with track("Evaluating", total) as advance:
        for count, (job, outcome) in enumerate(outcomes, start=1):
            for warning in outcome.warnings:
                logger.warning("%s", warning)
            if outcome.failure:
                failures.append(f"{job}: {outcome.failure}")
                logger.warning(f"{count}/{total} failed: {job}")
            else:
                log_progress(f"{count}/{total} done: {job}")
            advance()
    return failures
