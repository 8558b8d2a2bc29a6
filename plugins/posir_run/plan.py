"""Plan a run: estimate the number of texts, embedding size and encoding time by model and task."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, Any

from datasets import disable_progress_bars
from mteb.models import EncoderProtocol
from mteb.types import PromptType
from rich.filesize import decimal

from posir_run.jobs import Workload
from posir_run.memory import estimate_peaks
from posir_run.sizes import (
    BUCKET,
    BUCKETS,
    SubsetSize,
    TextCounts,
    find_local_readers,
    measure_subsets,
    sum_counts,
)
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.progress import track_items
from posir_tasks.base.records import Record
from posir_tasks.data.mini import read_documents
from posir_tasks.display.numbers import MISSING, format_count
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Role, Table, build_columns
from posir_tasks.models.embeddings.cache import EmbeddingFormat
from posir_tasks.models.embeddings.context import EncodingContext, build_texts
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.text.words import BYTES_PER_TOKEN, estimate_tokens
from posir_tasks.values.result_schema import SPLIT

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

    from posir_tasks.tasks.base import PositionTask

#: Maximum number of benchmark rounds, and their minimum duration in seconds.
ROUNDS = 3
ROUND_SECONDS = 1.0
#: No round starts after this many seconds.
MAX_BENCHMARK_SECONDS = 20.0

SEED = 42
#: Seconds per unit of time, the longest unit first.
UNIT_SECONDS = {"h": 3_600, "min": 60, "s": 1}
#: Maximum number of sampled queries, and of sampled documents per length bucket.
SAMPLE_SIZE = 256


def collect_samples(
    tasks: Sequence[PositionTask], counts: TextCounts
) -> tuple[list[list[str]], list[str], bool]:
    """Sample documents and queries from the first subset of each task.

    Length buckets that local data does not cover get synthetic texts.

    Returns:
        Documents by length bucket (none for empty buckets, else about the same number per task),
        queries, and whether all documents are from the data.
    """
    rng = random.Random(SEED)
    corpora = []
    questions: list[str] = []
    for task in tasks:
        readers = find_local_readers(task, task.hf_subsets[0])
        if readers is not None:
            read_corpus, read_queries = readers
            corpora.append(read_corpus())
            questions += read_queries()["text"].head(SAMPLE_SIZE).to_list()
    if not questions:
        questions = [text for document in read_documents() for text in document.questions]
    documents: list[list[str]] = []
    is_sampled = True
    for index, (count, tokens) in enumerate(zip(counts.texts, counts.tokens, strict=True)):
        pool: list[str] = []
        for corpus in corpora if count else ():
            texts = corpus.filter(index == BUCKET)["text"]
            pool += texts.shuffle(SEED).head(SAMPLE_SIZE).to_list()
        if count and not pool:
            is_sampled = False
            pool = make_synthetic_texts(tokens // count)
        rng.shuffle(pool)
        documents.append(pool[:SAMPLE_SIZE])
    rng.shuffle(questions)
    return documents, questions[:SAMPLE_SIZE], is_sampled


def make_synthetic_texts(tokens: int) -> list[str]:
    """Cut texts of a given length out of the concatenated PosIR-Mini documents."""
    source = "\n\n".join(document.text for document in read_documents())
    length = tokens * BYTES_PER_TOKEN
    starts = range(0, len(source), -(-len(source) // SAMPLE_SIZE))
    long_text = source * (length // len(source) + 2)
    return [long_text[start : start + length] for start in starts]


@dataclass(frozen=True)
class Duration:
    """Duration of the fastest, average and slowest benchmark round, in seconds."""

    low: float
    mean: float
    high: float

    @classmethod
    def from_rounds(cls, seconds: Sequence[float]) -> Duration:
        """Summarize the durations of benchmark rounds."""
        return cls(min(seconds), fmean(seconds), max(seconds))

    def __add__(self, other: Duration) -> Duration:
        return Duration(self.low + other.low, self.mean + other.mean, self.high + other.high)

    def __mul__(self, factor: int) -> Duration:
        return Duration(self.low * factor, self.mean * factor, self.high * factor)

    def __str__(self) -> str:
        unit = next((name for name, size in UNIT_SECONDS.items() if self.mean >= size), "s")
        low, mean, high = (value / UNIT_SECONDS[unit] for value in (self.low, self.mean, self.high))
        return f"{mean:,.1f} {unit} ({low:,.1f} to {high:,.1f})"


@dataclass(frozen=True)
class SpeedCalibration:
    """Encoding speed of a model on this machine."""

    documents: tuple[Duration | None, ...]
    """Time per token for each length bucket; None for empty buckets."""
    queries: Duration
    """Time per query."""
    format: EmbeddingFormat

    def estimate(self, documents: TextCounts, queries: int) -> Duration:
        """Estimate the encoding time of documents and queries."""
        duration = self.queries * queries
        for per_token, tokens in zip(self.documents, documents.tokens, strict=True):
            if per_token:
                duration += per_token * tokens
        return duration


@dataclass(frozen=True)
class ModelSpeed:
    """Encoding speed and embedding size of a model."""

    name: str
    calibration: SpeedCalibration | None
    problem: str
    """Why the calibration failed; empty on success."""
    bytes_per_text: int | None


@dataclass(frozen=True)
class CostEstimate:
    """Number of texts to encode, size of their embeddings and encoding time."""

    name: str
    jobs: int
    documents: TextCounts
    queries: int
    bytes: int | None
    duration: Duration | None


@dataclass(frozen=True)
class RunPlan:
    """The estimated cost of a run with one model."""

    model: ModelSpeed
    tasks: tuple[CostEstimate, ...]
    total: CostEstimate
    with_cache: CostEstimate
    """The total with an embedding cache, which encodes each corpus once."""
    counted: bool
    """Whether all sizes are counted in the data; if false, some are published averages."""
    sampled: bool
    """Whether all benchmark texts are from the data; if false, some are synthetic."""

    @property
    def saved_documents(self) -> int:
        """Number of documents that an embedding cache saves. 0 for models without embeddings."""
        saved_count = sum(self.total.documents.texts) - sum(self.with_cache.documents.texts)
        return saved_count if self.model.bytes_per_text else 0

    @property
    def rows(self) -> list[CostEstimate]:
        """Table rows: each task, then each total that adds information."""
        rows = list(self.tasks)
        if len(self.tasks) > 1:
            rows.append(self.total)
        if self.saved_documents:
            rows.append(self.with_cache)
        return rows


def plan_run(workload: Workload, batch_size: int) -> Result:
    """Estimate the cost of a run for each model."""
    subsets = [(task, subset) for task in workload.tasks for subset in task.hf_subsets]
    sizes = measure_subsets(track_items(subsets, "Counting texts"))
    total = sum_counts(size.documents for size in sizes)
    documents, queries, is_sampled = collect_samples(workload.tasks, total)
    task = workload.tasks[0]
    encode_kwargs = {"batch_size": batch_size, "show_progress_bar": False}
    context = EncodingContext(task.metadata, SPLIT, task.hf_subsets[0], encode_kwargs)
    models = track_items(list(workload.models.items()), "Measuring models")
    plans = [
        build_plan(
            _measure_model(model, meta, documents, queries, context), sizes, is_sampled=is_sampled
        )
        for model, meta in models
    ]
    records = [record for plan in plans for record in build_records(plan)]
    peaks = estimate_peaks(workload.models.values(), workload.tasks, batch_size)
    benchmark = (
        "Time: encoding time, from a short benchmark on this machine. Parentheses show the fastest "
        "and the slowest benchmark round."
    )
    return Result(
        title="Estimated cost",
        rows=records,
        tables=[build_table(plan) for plan in plans],
        values=[{"length_buckets": BUCKETS, **asdict(plan)} for plan in plans],
        sentences=[describe_plan(plan) for plan in plans] + [peak.describe() for peak in peaks],
        notes=[benchmark],
        details=[explain_estimates(plan) for plan in plans],
    )


def _measure_model(
    model: ModelReference,
    meta: ModelMeta,
    documents: Sequence[list[str]],
    queries: list[str],
    context: EncodingContext,
) -> ModelSpeed:
    """Measure the speed of a model. If this fails, return the reason and the embedding size from
    the metadata.
    """
    try:
        calibration = calibrate(load_model(model), documents, queries, context)
    except Exception as error:
        # Third-party code may raise any exception, for example if memory is too small.
        problem = str(error) if isinstance(error, PosirError) else summarize_error(error)
        # Assume single precision.
        size = 4 * meta.embed_dim if isinstance(meta.embed_dim, int) else None
        return ModelSpeed(str(meta.name), None, problem, size)
    embedding_format = calibration.format
    size = embedding_format.dimensions * embedding_format.stored_dtype.itemsize
    return ModelSpeed(str(meta.name), calibration, "", size)


def calibrate(
    model: MTEBModels, documents: Sequence[list[str]], queries: list[str], context: EncodingContext
) -> SpeedCalibration:
    """Measure the speed of a model with a task's prompts.

    Raises:
        PosirError: The model is not a dense encoder.
    """
    if not isinstance(model, EncoderProtocol):
        raise PosirError("not a dense encoder")
    disable_progress_bars()

    def encode(prompt_type: PromptType, texts: Sequence[str]) -> Any:
        return context.encode(model, build_texts(texts), prompt_type)

    embedding_format = EmbeddingFormat.detect(encode(PromptType.query, queries[:1]), 1)
    if embedding_format is None:
        raise PosirError("not a dense encoder")
    encode_documents = partial(encode, PromptType.document)
    return SpeedCalibration(
        documents=tuple(
            measure_speed(encode_documents, texts, estimate_tokens) if texts else None
            for texts in documents
        ),
        queries=measure_speed(partial(encode, PromptType.query), queries, lambda _: 1),
        format=embedding_format,
    )


def measure_speed(
    encode: Callable[[Sequence[str]], object], texts: Sequence[str], get_size: Callable[[str], int]
) -> Duration:
    """Measure the encoding time per unit of text size, in rounds with random samples.

    The sample size doubles until a round takes at least `ROUND_SECONDS`. `get_size` returns the
    size of a text: its number of tokens, or 1.
    """
    rng = random.Random(SEED)
    start = time.monotonic()
    count = 1
    while time_encoding(encode, rng.sample(texts, count)) < ROUND_SECONDS and count < len(texts):
        count = min(2 * count, len(texts))
    rounds: list[float] = []
    while len(rounds) < ROUNDS and (not rounds or time.monotonic() < start + MAX_BENCHMARK_SECONDS):
        sample = rng.sample(texts, count)
        rounds.append(time_encoding(encode, sample) / sum(map(get_size, sample)))
    return Duration.from_rounds(rounds)


def time_encoding(encode: Callable[[Sequence[str]], object], texts: Sequence[str]) -> float:
    """Return the time to encode texts in seconds."""
    start = time.perf_counter()
    encode(texts)
    return time.perf_counter() - start


def build_plan(model: ModelSpeed, sizes: Sequence[SubsetSize], *, is_sampled: bool) -> RunPlan:
    """Estimate the cost of evaluating a model. `sizes` must be sorted by task."""

    def estimate_cost(
        name: str, subsets: Sequence[SubsetSize], corpora: Iterable[TextCounts]
    ) -> CostEstimate:
        documents = sum_counts(corpora)
        query_count = sum(size.queries for size in subsets)
        size = duration = None
        if model.bytes_per_text:
            size = (sum(documents.texts) + query_count) * model.bytes_per_text
        if model.calibration:
            duration = model.calibration.estimate(documents, query_count)
        return CostEstimate(name, len(subsets), documents, query_count, size, duration)

    tasks = []
    for name, group in groupby(sizes, key=lambda size: size.task):
        subsets = list(group)
        tasks.append(estimate_cost(name, subsets, (size.documents for size in subsets)))
    return RunPlan(
        model=model,
        tasks=tuple(tasks),
        total=estimate_cost("total", sizes, (size.documents for size in sizes)),
        with_cache=estimate_cost(
            "with cache", sizes, {size.corpus: size.documents for size in sizes}.values()
        ),
        counted=all(size.is_counted for size in sizes),
        sampled=is_sampled,
    )


def build_records(plan: RunPlan) -> Iterator[Record]:
    """Yield the table rows as records, with sizes in bytes and times in seconds."""
    for estimate in plan.rows:
        documents = estimate.documents
        row: Record = {"model": plan.model.name, "task": estimate.name, "jobs": estimate.jobs}
        row |= {"documents": sum(documents.texts), "tokens": sum(documents.tokens)}
        row |= {"queries": estimate.queries, "bytes": estimate.bytes}
        for name in ("low", "mean", "high"):
            row[f"seconds_{name}"] = getattr(estimate.duration, name, None)
        yield row


def build_table(plan: RunPlan) -> Table:
    """Build the table of cost estimates for one model."""
    rows = []
    for estimate in plan.rows:
        documents = estimate.documents
        counts = (format_count(estimate.jobs), format_count(sum(documents.texts)))
        tokens = f"{sum(documents.tokens) / 1e6:,.1f} M"
        size = MISSING if estimate.bytes is None else decimal(estimate.bytes)
        queries = format_count(estimate.queries)
        duration = str(estimate.duration or MISSING)
        rows.append((estimate.name, *counts, tokens, queries, size, duration))
    numbers = ("Jobs", "Documents", "Tokens", "Queries", "Embeddings", "Time")
    columns = build_columns(("Task", *numbers), right=numbers, roles={"Task": Role.NAME})
    return Table(columns, rows=tuple(rows), title=plan.model.name)


def describe_plan(plan: RunPlan) -> str:
    """Describe the encoding time of a run, or the reason why it is unknown."""
    if plan.total.duration is None:
        return (
            f"{plan.model.name}: time not estimated, since the model could not be measured "
            f"({plan.model.problem})."
        )
    cache_note = ""
    if plan.saved_documents:
        cache_note = f"; {plan.saved_documents:,} fewer documents with POSIR_EMBEDDINGS"
    return f"{plan.model.name}: {plan.total.duration} on this machine{cache_note}."


def explain_estimates(plan: RunPlan) -> str:
    """Describe the sources of the estimates."""
    size_source = "counted in the data, at four bytes per token"
    if not plan.counted:
        size_source = (
            "published averages (arXiv 2601.08363) for data that is not on this machine, where all "
            "documents are assumed to have the mean length"
        )
    text_source = "texts from the data" if plan.sampled else "some synthetic texts of mean length"
    return f"{plan.model.name}: sizes are {size_source}; the benchmark encodes {text_source}."
