"""The plan of a run: for each model and task, the texts to encode, the size of their embeddings, and the time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from datasets import disable_progress_bars
from mteb.models import EncoderProtocol
from mteb.types import PromptType
from rich.filesize import decimal

from posir_run.jobs import Workload
from posir_run.sizes import BUCKETS, SEED, Samples, SubsetSize, TextCounts, collect_samples, measure_subsets
from posir_tasks.display.numbers import MISSING, format_count
from posir_tasks.display.presentation import TableResult
from posir_tasks.display.progress import progress
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.embeddings.cache import EmbeddingFormat
from posir_tasks.embeddings.context import EncodingContext, build_texts
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.models.endpoint_models import EndpointEncoder
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.read_part import estimate_tokens
from posir_tasks.tasks.metadata import SPLIT

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

#: Rounds of a benchmark, and the seconds that one of them should take at least.
ROUNDS, ROUND_SECONDS = 3, 1.0
#: Seconds after which no further round is started.
MAX_SECONDS = 20.0


@dataclass(frozen=True)
class Duration:
    """Seconds: the estimate, and its range from the fastest to the slowest rounds of the benchmark."""

    low: float
    mean: float
    high: float

    def __add__(self, other: Duration) -> Duration:
        return Duration(self.low + other.low, self.mean + other.mean, self.high + other.high)

    def __str__(self) -> str:
        unit, seconds = next(((unit, size) for unit, size in (("h", 3_600), ("min", 60)) if self.mean >= size), ("s", 1))
        return f"{self.mean / seconds:,.1f} {unit} ({self.low / seconds:,.1f} to {self.high / seconds:,.1f})"


@dataclass(frozen=True)
class Speed:
    """The speed at which texts of one kind are encoded."""

    texts: int
    """Texts per round."""
    seconds: tuple[float, ...]
    """Seconds per token of a document, or per query, in each round."""

    def duration(self, amount: int = 1) -> Duration:
        """Estimate the time for a number of tokens, or queries."""
        return Duration(min(self.seconds) * amount, fmean(self.seconds) * amount, max(self.seconds) * amount)

    def __str__(self) -> str:
        time = self.duration()
        return f"{1 / time.mean:,.0f} ({1 / time.high:,.0f} to {1 / time.low:,.0f}; {self.texts} texts per round)"


@dataclass(frozen=True)
class SpeedCalibration:
    """A model's speed, measured from this machine."""

    place: str
    """The device that the model ran on, such as "on one device like this one (CPU, 2 threads)"."""
    documents: tuple[Speed | None, ...]
    """Per token, by length bucket; None for buckets without documents."""
    queries: Speed
    format: EmbeddingFormat

    def duration(self, documents: TextCounts, queries: int) -> Duration:
        """Estimate how long documents and queries take to encode."""
        buckets = zip(self.documents, documents.tokens, strict=True)
        return sum((speed.duration(tokens) for speed, tokens in buckets if speed), self.queries.duration(queries))


@dataclass(frozen=True)
class ModelSpeed:
    """Speed and embedding size of a model."""

    name: str
    calibration: SpeedCalibration | None
    problem: str
    """The reason why there is no calibration; empty if there is one."""
    bytes_per_text: int | None
    """Size of an embedding; None if it is unknown."""


@dataclass(frozen=True)
class CostEstimate:
    """The texts to encode, and what encoding them takes."""

    name: str
    jobs: int
    documents: TextCounts
    queries: int
    bytes: int | None
    """Size of the embeddings; None if it is unknown."""
    duration: Duration | None
    """Encoding time; None if the model could not be measured."""

    @classmethod
    def of(cls, name: str, model: ModelSpeed, sizes: Sequence[SubsetSize], documents: TextCounts) -> CostEstimate:
        """Estimate the cost of subsets, of whose documents the given number is encoded."""
        queries = sum(size.queries for size in sizes)
        texts = sum(documents.texts) + queries
        return cls(
            name,
            len(sizes),
            documents,
            queries,
            texts * model.bytes_per_text if model.bytes_per_text else None,
            model.calibration.duration(documents, queries) if model.calibration else None,
        )


@dataclass(frozen=True)
class RunPlan:
    """The estimated cost of a run with one model."""

    model: ModelSpeed
    tasks: tuple[CostEstimate, ...]
    total: CostEstimate
    with_cache: CostEstimate
    """The total if embeddings are cached: each corpus is encoded once."""
    counted: bool
    """Whether all sizes were counted in the data; otherwise some are published averages."""
    sampled: bool
    """Whether the benchmark used texts of the data only; otherwise some were synthetic."""

    @property
    def saved_documents(self) -> int:
        """Number of documents that an embedding cache saves; 0 for a model without embeddings."""
        saved = sum(self.total.documents.texts) - sum(self.with_cache.documents.texts)
        return saved if self.model.bytes_per_text else 0

    @property
    def rows(self) -> tuple[CostEstimate, ...]:
        """The estimates of all tasks, and those totals that differ from the rows above them."""
        totals = ((len(self.tasks) > 1, self.total), (self.saved_documents > 0, self.with_cache))
        return *self.tasks, *(total for differs, total in totals if differs)


def plan_run(workload: Workload, batch_size: int) -> TableResult:
    """Estimate the cost of a run for each model."""
    task = workload.tasks[0]
    subsets = [(task, subset) for task in workload.tasks for subset in task.hf_subsets]
    sizes = measure_subsets(progress(subsets, "Counting texts"))
    samples = collect_samples(workload.tasks, sum_counts(size.documents for size in sizes))
    options = {"batch_size": batch_size, "show_progress_bar": False}
    context = EncodingContext(task.metadata, SPLIT, task.hf_subsets[0], options)
    models = progress(list(workload.models.items()), "Measuring models")
    plans = [build_plan(_measure_model(model, meta, samples, context), sizes, samples) for model, meta in models]
    return TableResult(
        title="Estimated cost",
        rows=[record for plan in plans for record in build_records(plan)],
        tables=list(map(build_table, plans)),
        values=[{"length_buckets": BUCKETS, **asdict(plan)} for plan in plans],
        sentences=list(map(describe_plan, plans)),
        notes=["Time: of encoding, from a short benchmark on this machine; in parentheses, the range of its rounds."],
        further=[f"{plan.model.name}: {note}" for plan in plans for note in explain_estimates(plan)],
    )


def _measure_model(model: ModelReference, meta: ModelMeta, samples: Samples, context: EncodingContext) -> ModelSpeed:
    """Measure the speed of a model; if that fails, say why and take the embedding size from its metadata."""
    try:
        calibration = calibrate(load_model(model), samples, context)
    except Exception as error:  # loading a model runs third-party code, and the machine may be too small for it
        problem = str(error) if isinstance(error, PosirError) else summarize_error(error)
        # In single precision.
        known = 4 * meta.embed_dim if isinstance(meta.embed_dim, int) else None
        return ModelSpeed(str(meta.name), None, problem, known)
    format_ = calibration.format
    return ModelSpeed(str(meta.name), calibration, "", format_.dimensions * format_.stored_dtype.itemsize)


def calibrate(model: MTEBModels, samples: Samples, context: EncodingContext) -> SpeedCalibration:
    """Measure the speed of a model on a task's prompts; raise PosirError if the model is not a dense encoder."""
    if not isinstance(model, EncoderProtocol):
        raise PosirError("not a dense encoder")
    disable_progress_bars()

    def encode(texts: Sequence[str], prompt_type: PromptType) -> Any:
        return context.encode(model, build_texts(texts), prompt_type)

    format_ = EmbeddingFormat.detect(encode(samples.queries[:1], PromptType.query), 1)
    if format_ is None:
        raise PosirError("not a dense encoder")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    local = f"on one device like this one ({device})"
    return SpeedCalibration(
        place=f"by the endpoint {model.reference}" if isinstance(model, EndpointEncoder) else local,
        documents=tuple(
            measure_speed(lambda batch: encode(batch, PromptType.document), texts, estimate_tokens) if texts else None
            for texts in samples.documents
        ),
        queries=measure_speed(lambda batch: encode(batch, PromptType.query), samples.queries, lambda _: 1),
        format=format_,
    )


def measure_speed(encode: Callable[[Sequence[str]], object], texts: Sequence[str], amount: Callable[[str], int]) -> Speed:
    """Measure how long texts of one kind take to encode, in rounds of newly sampled texts.

    The number of texts per round doubles until a round takes long enough to be timed. `amount` is what a text counts as: its
    tokens, or 1.
    """
    rng, started, count = random.Random(SEED), time.monotonic(), 1
    while time_encoding(encode, rng.sample(texts, count)) < ROUND_SECONDS and count < len(texts):
        count = min(2 * count, len(texts))
    rounds: list[float] = []
    while len(rounds) < ROUNDS and (not rounds or time.monotonic() < started + MAX_SECONDS):
        sample = rng.sample(texts, count)
        rounds.append(time_encoding(encode, sample) / sum(map(amount, sample)))
    return Speed(count, tuple(rounds))


def time_encoding(encode: Callable[[Sequence[str]], object], texts: Sequence[str]) -> float:
    """Return how many seconds texts take to encode."""
    started = time.perf_counter()
    encode(texts)
    return time.perf_counter() - started


def build_plan(model: ModelSpeed, sizes: Sequence[SubsetSize], samples: Samples) -> RunPlan:
    """Estimate the cost of evaluating a model on subsets, which are grouped by task."""
    tasks = [(name, list(group)) for name, group in groupby(sizes, key=lambda size: size.task)]
    corpora = {size.corpus: size.documents for size in sizes}
    return RunPlan(
        model=model,
        tasks=tuple(CostEstimate.of(name, model, group, sum_counts(size.documents for size in group)) for name, group in tasks),
        total=CostEstimate.of("total", model, sizes, sum_counts(size.documents for size in sizes)),
        with_cache=CostEstimate.of("with cache", model, sizes, sum_counts(corpora.values())),
        counted=all(size.counted for size in sizes),
        sampled=samples.sampled,
    )


def sum_counts(counts: Iterable[TextCounts]) -> TextCounts:
    """Return the sum."""
    return sum(counts, TextCounts.from_buckets({}))


def build_records(plan: RunPlan) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table as numbers: sizes in bytes, times in seconds."""
    for estimate in plan.rows:
        yield {
            "model": plan.model.name,
            "task": estimate.name,
            "jobs": estimate.jobs,
            "documents": sum(estimate.documents.texts),
            "tokens": sum(estimate.documents.tokens),
            "queries": estimate.queries,
            "bytes": estimate.bytes,
            **{f"seconds_{name}": getattr(estimate.duration, name, None) for name in ("low", "mean", "high")},
        }


def build_table(plan: RunPlan) -> Table:
    """Return the estimates for one model."""
    numbers = ("Jobs", "Documents", "Tokens", "Queries", "Embeddings", "Time")
    rows = (
        (
            estimate.name,
            format_count(estimate.jobs),
            format_count(sum(estimate.documents.texts)),
            f"{sum(estimate.documents.tokens) / 1e6:,.1f} M",
            format_count(estimate.queries),
            MISSING if estimate.bytes is None else decimal(estimate.bytes),
            str(estimate.duration or MISSING),
        )
        for estimate in plan.rows
    )
    return Table(build_columns(("Task", *numbers), right=numbers), rows=tuple(rows), title=plan.model.name)


def describe_plan(plan: RunPlan) -> str:
    """Return in a sentence how long a run takes, or why that is unknown."""
    if plan.total.duration is None:
        return f"{plan.model.name}: time not estimated, since the model could not be measured ({plan.model.problem})."
    saved = f"; {plan.saved_documents:,} documents fewer with POSIR_EMBEDDINGS" if plan.saved_documents else ""
    return f"{plan.model.name}: {plan.total.duration} on this machine{saved}."


def explain_estimates(plan: RunPlan) -> Iterator[str]:
    """Yield what the estimates are based on, and what an embedding cache saves."""
    if plan.counted:
        yield "Sizes: counted in the data, with one token per four bytes."
    else:
        yield "Sizes: published averages (arXiv 2601.08363) for data that is not on this machine, all documents of mean length."
    if calibration := plan.model.calibration:
        yield (
            f"Time: of encoding {calibration.place}, from a short benchmark on this machine; in "
            f"parentheses, the range from the fastest to the slowest of {len(calibration.queries.seconds)} rounds."
        )
        texts = "texts of the data" if plan.sampled else "synthetic texts of mean length, since not all data is on this machine"
        rates = [f"{name} {speed}" for name, speed in zip(BUCKETS, calibration.documents, strict=True) if speed]
        yield (
            f"Benchmark: {texts}; tokens per second by length: {', '.join(rates)}; queries per second: {calibration.queries}."
        )
    else:
        yield f"Time: not estimated, since the model could not be measured ({plan.model.problem})."
    if plan.saved_documents:
        yield (
            f"Cache: with POSIR_EMBEDDINGS, {plan.saved_documents:,} documents that several tasks share are not encoded again."
        )
