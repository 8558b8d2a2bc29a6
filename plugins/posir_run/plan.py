"""The plan of a run: for each model and task, the texts to encode, the size of their embeddings,
and the time.

Texts are counted in local data, or else their published averages are taken.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import polars as pl
import torch
from datasets import disable_progress_bars
from mteb.models import EncoderProtocol
from mteb.types import PromptType
from rich.filesize import decimal

from posir_run.jobs import Workload, corpus_name
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.progress import progress
from posir_tasks.base.wording import pluralize
from posir_tasks.data.checks import read_columns
from posir_tasks.data.declared import DISTRACTORS, REPO_ID, REVISION, SUFFIX
from posir_tasks.data.mini import read_documents
from posir_tasks.data.nano import share_questions
from posir_tasks.data.repository import HubRepository, Repository, open_repository
from posir_tasks.display.numbers import MISSING, format_count
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.models.embeddings.cache import EmbeddingFormat
from posir_tasks.models.embeddings.context import EncodingContext, build_texts
from posir_tasks.models.endpoint_models import EndpointEncoder
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.tasks.nano import NanoTask
from posir_tasks.tasks.posir import PosirTask
from posir_tasks.text.languages import DOMAINS, PIVOT, Language
from posir_tasks.text.rotations import VERSIONS
from posir_tasks.text.words import BYTES_PER_TOKEN, estimate_tokens
from posir_tasks.values.result_schema import SPLIT
from posir_tasks.values.rotation_ranks import ROTATED_VARIABLE, read_sample_size
from posir_tasks.values.schemes import RelativePositions

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

    from posir_tasks.tasks.base import PositionTask

#: Rounds of a benchmark, and the seconds that one of them should take at least.
ROUNDS, ROUND_SECONDS = 3, 1.0
#: Seconds after which no further round is started.
MAX_SECONDS = 20.0

SEED = 42
#: PosIR's length buckets, and the upper bounds of all but the last, in tokens.
BOUNDS = RelativePositions().token_bounds
BUCKETS = RelativePositions().axes.lengths

#: Documents, their tokens, and queries of PosIR as published (Zeng et al. 2026, arXiv 2601.08363):
#: of all ten languages, of English (922 tokens per document), and the mean of the nine others.
ALL_LANGUAGES = (17_329_673, 22_800_000_000, 421_708)
ENGLISH = (1_719_701, 1_719_701 * 922, 42_015)
OTHER_LANGUAGE = tuple(
    (total - english) // 9 for total, english in zip(ALL_LANGUAGES, ENGLISH, strict=True)
)


#: Reads the documents or the queries of a subset: a frame with the column `text`.
ReadTexts = Callable[[], pl.DataFrame]
#: Largest number of texts of one kind to sample from.
SAMPLE_SIZE = 256
#: Length of a text in tokens, as `estimate_tokens` estimates it, and the index of its length
#: bucket.
TOKENS = -(-pl.col("text").str.len_bytes().cast(pl.Int64) // BYTES_PER_TOKEN)
BUCKET = pl.sum_horizontal(bound < TOKENS for bound in BOUNDS)


@dataclass(frozen=True)
class TextCounts:
    """Additive text counts per length bucket."""

    texts: tuple[int, ...]
    tokens: tuple[int, ...]
    """Total tokens in each bucket; in local data, one per four bytes of UTF-8."""

    def __add__(self, other: TextCounts) -> TextCounts:
        return TextCounts(
            tuple(map(sum, zip(self.texts, other.texts, strict=True))),
            tuple(map(sum, zip(self.tokens, other.tokens, strict=True))),
        )

    @classmethod
    def from_buckets(cls, buckets: Mapping[int, tuple[int, int]]) -> TextCounts:
        """Return counts from the numbers of texts and tokens by bucket index; the other buckets are
        empty.
        """
        texts, tokens = zip(
            *(buckets.get(index, (0, 0)) for index in range(len(BUCKETS))), strict=True
        )
        return cls(texts, tokens)


@dataclass(frozen=True)
class SubsetSize:
    """The texts to encode for one subset of a task."""

    task: str
    corpus: str
    documents: TextCounts
    queries: int
    counted: bool
    """Whether the texts were counted in the data; otherwise the sizes are published averages."""


def measure_subsets(subsets: Iterable[tuple[PositionTask, str]]) -> list[SubsetSize]:
    """Return the sizes of subsets; a shared corpus is read once. Raises DataError if data is
    unreadable and unpublished.
    """
    corpora: dict[str, TextCounts] = {}
    sizes = []
    for task, subset in subsets:
        corpus, texts = corpus_name(task, subset), _find_local_texts(task, subset)
        corpus += SUFFIX if isinstance(task, NanoTask) else ""
        if texts is None:
            assert isinstance(task, PosirTask)
            documents, _ = published_size(task.corpus_language, subset)
            _, queries = published_size(task.language, subset)
        else:
            documents = corpora.get(corpus) or measure_texts(texts[0]())
            queries = texts[1]().height
        corpora[corpus] = documents
        counted = texts is not None
        if isinstance(task, NanoTask) and not (counted and task.has_list(subset)):
            queries, counted = share_questions(subset, task.hf_subsets), False
            share = min(1, queries * (1 + DISTRACTORS) / sum(documents.texts))
            scaled = (
                tuple(round(count * share) for count in counts)
                for counts in (documents.texts, documents.tokens)
            )
            documents = TextCounts(*scaled)
        sizes.append(SubsetSize(task.metadata.name, corpus, documents, queries, counted=counted))
    return sizes


def _find_local_texts(task: PositionTask, subset: str) -> tuple[ReadTexts, ReadTexts] | None:
    """Return readers of documents and queries, which raise DataError if they fail; None if a
    download would be needed.
    """
    if isinstance(task, PosirTask):
        repository = open_repository(REPO_ID, REVISION)
        corpus = _find_local_file(
            repository, f"{task.corpus_language.code}/{subset}/corpus.parquet"
        )
        queries = _find_local_file(repository, f"{task.language.code}/{subset}/queries.parquet")
        read = partial(read_columns, columns={"text": pl.String})
        if not (corpus and queries):
            return None
        # A sample without a list is not selected here.
        if not (isinstance(task, NanoTask) and task.has_list(subset)):
            return partial(read, corpus), partial(read, queries)
    data = task.read_subset(subset)
    return data.corpus.to_polars, data.queries.to_polars


def _find_local_file(repository: Repository, path: str) -> Path | None:
    """Return a local repository's file, or that in the Hub's cache if any; raise DataError if the
    former lacks it.
    """
    if not isinstance(repository, HubRepository):
        return repository.fetch(path)
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(
        repository.repo_id, path, repo_type="dataset", revision=repository.requested
    )
    return Path(cached) if isinstance(cached, str) else None


def measure_texts(texts: pl.DataFrame) -> TextCounts:
    """Count texts by length."""
    lengths = texts.select(BUCKET.alias("bucket"), TOKENS.alias("tokens")).group_by("bucket")
    counted = lengths.agg(pl.len(), pl.col("tokens").sum())
    return TextCounts.from_buckets(counted.rows_by_key("bucket", unique=True))


def published_size(language: Language, domain: str) -> tuple[TextCounts, int]:
    """Return the published mean size of a domain, in English or over the nine other languages:
    documents and queries.

    Its share is as equal to the others' as integers that add up to the total can be; all documents
    have the mean length.
    """
    index, totals = DOMAINS.index(domain), ENGLISH if language == PIVOT else OTHER_LANGUAGE
    documents, tokens, queries = (
        total * (index + 1) // len(DOMAINS) - total * index // len(DOMAINS) for total in totals
    )
    return TextCounts.from_buckets(
        {sum(tokens > bound * documents for bound in BOUNDS): (documents, tokens)}
    ), queries


def collect_samples(
    tasks: Sequence[PositionTask], counts: TextCounts
) -> tuple[list[list[str]], list[str], bool]:
    """Sample texts from each task's first subset; synthesize lengths that have documents but are
    missing from local data.

    Returns documents by length bucket, the same number from each task where possible, none for
    empty buckets; queries; and whether all documents are from the data.
    """
    local = [texts for task in tasks if (texts := _find_local_texts(task, task.hf_subsets[0]))]
    rng, filled, sampled = random.Random(SEED), list[list[str]](), True
    frames = [read().select("text", BUCKET.alias("bucket")) for read, _ in local]
    for index, (count, tokens) in enumerate(zip(counts.texts, counts.tokens, strict=True)):
        known = (
            [frame.filter(pl.col("bucket") == index)["text"] for frame in frames] if count else []
        )
        pool = [
            text
            for texts in known
            for text in texts.sample(min(SAMPLE_SIZE, len(texts)), seed=SEED)
        ]
        sampled = sampled and bool(pool or not count)
        filled.append(
            rng.sample(pool, min(SAMPLE_SIZE, len(pool)))
            or (synthetic_texts(tokens // count) if count else [])
        )
    asked = [text for _, queries in local for text in queries()["text"].head(SAMPLE_SIZE)]
    asked = asked or [question for document in read_documents() for question in document.questions]
    return filled, random.Random(SEED).sample(asked, min(SAMPLE_SIZE, len(asked))), sampled


def synthetic_texts(tokens: int) -> list[str]:
    """Return texts of one length, cut from the concatenated documents of PosIR-Mini at different
    starts.
    """
    source = "\n\n".join(document.text for document in read_documents())
    length = tokens * BYTES_PER_TOKEN
    starts = range(0, len(source), -(-len(source) // SAMPLE_SIZE))
    repeated = source * (length // len(source) + 2)
    return [repeated[start : start + length] for start in starts]


@dataclass(frozen=True)
class Duration:
    """Seconds: the estimate, and its range from the fastest to the slowest rounds of the
    benchmark.
    """

    low: float
    mean: float
    high: float

    def __add__(self, other: Duration) -> Duration:
        return Duration(self.low + other.low, self.mean + other.mean, self.high + other.high)

    def __str__(self) -> str:
        unit, seconds = next(
            ((unit, size) for unit, size in (("h", 3_600), ("min", 60)) if self.mean >= size),
            ("s", 1),
        )
        return (
            f"{self.mean / seconds:,.1f} {unit} ({self.low / seconds:,.1f} to "
            f"{self.high / seconds:,.1f})"
        )


@dataclass(frozen=True)
class Speed:
    """The speed at which texts of one kind are encoded."""

    texts: int
    seconds: tuple[float, ...]
    """Seconds per token of a document, or per query, in each round."""

    def duration(self, amount: int = 1) -> Duration:
        """Estimate the time for a number of tokens, or queries."""
        return Duration(
            min(self.seconds) * amount, fmean(self.seconds) * amount, max(self.seconds) * amount
        )

    def __str__(self) -> str:
        time = self.duration()
        return (
            f"{1 / time.mean:,.0f} ({1 / time.high:,.0f} to {1 / time.low:,.0f}; {self.texts} "
            "texts per round)"
        )


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
        return sum(
            (speed.duration(tokens) for speed, tokens in buckets if speed),
            self.queries.duration(queries),
        )


@dataclass(frozen=True)
class ModelSpeed:
    """Speed and embedding size of a model."""

    name: str
    calibration: SpeedCalibration | None
    problem: str
    """The reason why there is no calibration; empty if there is one."""
    bytes_per_text: int | None


@dataclass(frozen=True)
class CostEstimate:
    """The texts to encode, and what encoding them takes."""

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


def plan_run(workload: Workload, batch_size: int) -> Result:
    """Estimate the cost of a run for each model."""
    task = workload.tasks[0]
    subsets = [(task, subset) for task in workload.tasks for subset in task.hf_subsets]
    sizes = measure_subsets(progress(subsets, "Counting texts"))
    documents, queries, sampled = collect_samples(
        workload.tasks, sum_counts(size.documents for size in sizes)
    )
    options = {"batch_size": batch_size, "show_progress_bar": False}
    context = EncodingContext(task.metadata, SPLIT, task.hf_subsets[0], options)
    models = progress(list(workload.models.items()), "Measuring models")
    plans = [
        build_plan(_measure_model(model, meta, documents, queries, context), sizes, sampled=sampled)
        for model, meta in models
    ]
    return Result(
        title="Estimated cost",
        rows=[record for plan in plans for record in build_records(plan)],
        tables=list(map(build_table, plans)),
        values=[{"length_buckets": BUCKETS, **asdict(plan)} for plan in plans],
        sentences=list(map(describe_plan, plans)),
        notes=[
            "Time: of encoding, from a short benchmark on this machine; in parentheses, the range "
            "of its rounds.",
            *describe_rotations(sizes),
        ],
        details=[
            f"{plan.model.name}: {note}" for plan in plans for note in explain_estimates(plan)
        ],
    )


def describe_rotations(sizes: Sequence[SubsetSize]) -> Iterator[str]:
    """Yield how many rotated versions are encoded beside the texts, at most; nothing if none
    are.
    """
    if not (versions := count_rotations(sizes, read_sample_size())):
        return
    documents = sum(sum(size.documents.texts) for size in sizes)
    yield (
        f"Rotated versions of a sample of the documents: at most {versions:,} more texts for each "
        "model, beside "
        f"{pluralize(documents, 'document')}, not in the time. `{ROTATED_VARIABLE}=0` leaves them "
        "out."
    )


def count_rotations(sizes: Sequence[SubsetSize], sample_size: int) -> int:
    """Return the largest number of rotated versions of a sample of the documents, of so many of
    each length.
    """
    versions = 0
    for task in {size.task for size in sizes}:
        subsets = [size.documents.texts for size in sizes if size.task == task]
        quota = ceil(sample_size / len(subsets))
        sampled = sum(min(texts, quota) for subset in subsets for texts in subset)
        # The whole text is encoded anyway; of a truncated one there is an excerpt in each third,
        # too.
        versions += sampled * (2 * VERSIONS - 1)
    return versions


def _measure_model(
    model: ModelReference,
    meta: ModelMeta,
    documents: Sequence[list[str]],
    queries: list[str],
    context: EncodingContext,
) -> ModelSpeed:
    """Measure the speed of a model; if that fails, say why and take the embedding size from its
    metadata.
    """
    try:
        calibration = calibrate(load_model(model), documents, queries, context)
    except (
        Exception
    ) as error:  # loading a model runs third-party code, and the machine may be too small for it
        problem = str(error) if isinstance(error, PosirError) else summarize_error(error)
        # In single precision.
        known = 4 * meta.embed_dim if isinstance(meta.embed_dim, int) else None
        return ModelSpeed(str(meta.name), None, problem, known)
    format_ = calibration.format
    return ModelSpeed(
        str(meta.name), calibration, "", format_.dimensions * format_.stored_dtype.itemsize
    )


def calibrate(
    model: MTEBModels, documents: Sequence[list[str]], queries: list[str], context: EncodingContext
) -> SpeedCalibration:
    """Measure the speed of a model on a task's prompts; raise PosirError if the model is not a
    dense encoder.
    """
    if not isinstance(model, EncoderProtocol):
        raise PosirError("not a dense encoder")
    disable_progress_bars()

    def encode(texts: Sequence[str], prompt_type: PromptType) -> Any:
        return context.encode(model, build_texts(texts), prompt_type)

    format_ = EmbeddingFormat.detect(encode(queries[:1], PromptType.query), 1)
    if format_ is None:
        raise PosirError("not a dense encoder")
    device = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"CPU, {torch.get_num_threads()} threads"
    )
    local = f"on one device like this one ({device})"
    return SpeedCalibration(
        place=f"by the endpoint {model.reference}" if isinstance(model, EndpointEncoder) else local,
        documents=tuple(
            measure_speed(lambda batch: encode(batch, PromptType.document), texts, estimate_tokens)
            if texts
            else None
            for texts in documents
        ),
        queries=measure_speed(lambda batch: encode(batch, PromptType.query), queries, lambda _: 1),
        format=format_,
    )


def measure_speed(
    encode: Callable[[Sequence[str]], object], texts: Sequence[str], amount: Callable[[str], int]
) -> Speed:
    """Measure how long texts of one kind take to encode, in rounds of newly sampled texts.

    The number of texts per round doubles until a round takes long enough to be timed. `amount` is
    what a text counts as: its tokens, or 1.
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


def build_plan(model: ModelSpeed, sizes: Sequence[SubsetSize], *, sampled: bool) -> RunPlan:
    """Estimate the cost of evaluating a model on subsets, which are grouped by task."""

    def estimate(
        name: str, group: Sequence[SubsetSize], corpora: Iterable[TextCounts]
    ) -> CostEstimate:
        documents, queries = sum_counts(corpora), sum(size.queries for size in group)
        size = (
            (sum(documents.texts) + queries) * model.bytes_per_text
            if model.bytes_per_text
            else None
        )
        duration = model.calibration.duration(documents, queries) if model.calibration else None
        return CostEstimate(name, len(group), documents, queries, size, duration)

    tasks = [(name, list(group)) for name, group in groupby(sizes, key=lambda size: size.task)]
    return RunPlan(
        model=model,
        tasks=tuple(
            estimate(name, group, (size.documents for size in group)) for name, group in tasks
        ),
        total=estimate("total", sizes, (size.documents for size in sizes)),
        with_cache=estimate(
            "with cache", sizes, {size.corpus: size.documents for size in sizes}.values()
        ),
        counted=all(size.counted for size in sizes),
        sampled=sampled,
    )


def sum_counts(counts: Iterable[TextCounts]) -> TextCounts:
    """Add counts, of which there may be none."""
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
            **{
                f"seconds_{name}": getattr(estimate.duration, name, None)
                for name in ("low", "mean", "high")
            },
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
    return Table(
        build_columns(("Task", *numbers), right=numbers), rows=tuple(rows), title=plan.model.name
    )


def describe_plan(plan: RunPlan) -> str:
    """Return in a sentence how long a run takes, or why that is unknown."""
    if plan.total.duration is None:
        return (
            f"{plan.model.name}: time not estimated, since the model could not be measured "
            f"({plan.model.problem})."
        )
    saved = (
        f"; {plan.saved_documents:,} documents fewer with POSIR_EMBEDDINGS"
        if plan.saved_documents
        else ""
    )
    return f"{plan.model.name}: {plan.total.duration} on this machine{saved}."


def explain_estimates(plan: RunPlan) -> Iterator[str]:
    """Yield what the estimates are based on, and what an embedding cache saves."""
    if plan.counted:
        yield "Sizes: counted in the data, with one token per four bytes."
    else:
        yield (
            "Sizes: published averages (arXiv 2601.08363) for data that is not on this machine, "
            "all documents of mean length."
        )
    if calibration := plan.model.calibration:
        yield (
            f"Time: of encoding {calibration.place}, from a short benchmark on this machine; in "
            "parentheses, the range from the fastest to the slowest of "
            f"{len(calibration.queries.seconds)} rounds."
        )
        texts = (
            "texts of the data"
            if plan.sampled
            else "synthetic texts of mean length, since not all data is on this machine"
        )
        rates = [
            f"{name} {speed}"
            for name, speed in zip(BUCKETS, calibration.documents, strict=True)
            if speed
        ]
        yield (
            f"Benchmark: {texts}; tokens per second by length: {', '.join(rates)}; queries per "
            f"second: {calibration.queries}."
        )
    else:
        yield f"Time: not estimated, since the model could not be measured ({plan.model.problem})."
    if plan.saved_documents:
        yield (
            f"Cache: with POSIR_EMBEDDINGS, {plan.saved_documents:,} documents that several tasks "
            "share are not encoded again."
        )
