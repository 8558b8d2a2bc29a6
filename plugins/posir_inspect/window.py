"""The result of `posir window`: the part of a text that a model reads, compared with its claim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from posir_significance.messages.texts import (
    ABOUT_ENGLISH,
    IGNORES,
    INSPECT_TEXTS,
    REFUSES,
    REPLACE_TASK,
    REQUIREMENT,
    UNREAD_TEXT,
    WINDOW_SENTENCES,
    WINDOW_TITLE,
)
from posir_tasks.base.batches import split_batches
from posir_tasks.base.progress import track
from posir_tasks.base.wording import drop_organization, pluralize, sanitize
from posir_tasks.display.labels import Term
from posir_tasks.display.position_charts import NDCG, Fact, PositionChart
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import DisplaySection, Medium
from posir_tasks.models.command_reference import NO_REFERENCE, CommandReference
from posir_tasks.models.measured_model import MeasuredModel
from posir_tasks.models.reading_length import Bounds, ReadingLength
from posir_tasks.models.reading_probe import CUTS, ModelProbe
from posir_tasks.text.chunks import TextSplitter
from posir_tasks.text.words import BYTES_PER_TOKEN
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.read_part import Part, ReadKind, ReadPart

#: Scale of the chart. All bars have the same height.
READ_SCALE = replace(NDCG, name="", format=lambda _: "read", whole="end", caption="a text")
#: Number of bars in the chart by read part, and how many of them precede the truncated part.
BAR_COUNTS = {None: (1, None), Part.FIRST: (1, None), Part.LAST: (1, 0), Part.ENDS: (2, 1)}
#: Name of the packaged task, which works without user data.
EXAMPLE_TASK = "PosIR-Mini"
#: Maximum error factor of estimated token counts.
ESTIMATE_FACTOR = 1.5
#: Maximum error factor for texts of frequent words, most of which are single tokens.
SYNTHETIC_FACTOR = 1.1
#: Maximum number of requests for checking chunks.
MAX_FIT_REQUESTS = 20


@dataclass(frozen=True)
class ChunkFit:
    """A check of a splitter's chunks against the window."""

    chunker: str
    chunks: int
    """Number of distinct chunks."""
    too_long: int
    """Number of chunks that exceed the window."""
    complete: bool
    """If false, `too_long` is a lower bound."""
    longest: str
    """Text of the longest chunk."""

    @property
    def sentence(self) -> str:
        """A sentence about chunks that exceed the window."""
        if not self.too_long:
            return f"{self.chunker}: all {self.chunks:,} chunks are read to the end."
        at_least = "" if self.complete else "at least "
        return (
            f"{self.chunker}: {at_least}{self.too_long:,} of {self.chunks:,} chunks are longer "
            f"than the window. The longest begins '{sanitize(self.longest, 60)}'."
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class WindowReading(Result):
    """The part of a text that a model reads, measured from its embeddings or scores."""

    model: str
    revision: str | None
    reading: ReadingLength
    """Measured window, without special tokens and prompt."""
    special_tokens: int | None
    """Number of special tokens per text; None if the tokenizer is unknown."""
    prompt_tokens: int
    """Number of tokens in the document prompt, or in the question for a reranker."""
    claimed_tokens: int | None
    """Claimed window, including special tokens; None if there is no claim."""
    claimed_by: str
    """Source of the claim: the model or, for an endpoint, the registered model or the server."""
    is_reranker: bool = False
    required: int | None = None
    """Required window in tokens; None if the user requires none."""
    fit: ChunkFit | None = None
    """Whether the user's chunks fit into the window; None without chunks."""
    reference: CommandReference = NO_REFERENCE
    """Command arguments for the model."""

    @property
    def tokens(self) -> Bounds:
        """Number of tokens that the model reads, including special tokens and prompt. The number is
        an estimate if the tokenizer is unknown.
        """
        return self.count_tokens(self.reading)

    @property
    def tokens_from_start(self) -> Bounds:
        """Number of tokens that the model reads from the start without a gap, counted like
        `tokens`; 0 if the model skips the start.
        """
        from_start = self.reading.from_start
        return self.count_tokens(from_start) if from_start else Bounds(0, 0)

    @property
    def is_counted(self) -> bool:
        """True if a known tokenizer counts the tokens, false if they are estimated."""
        return self.special_tokens is not None

    @property
    def added_tokens(self) -> int:
        """Number of special and prompt tokens per text."""
        return (self.special_tokens or 0) + self.prompt_tokens

    def count_tokens(self, reading: ReadingLength) -> Bounds:
        """Convert a length to tokens, including special tokens and prompt."""
        if reading.tokens is None or not self.is_counted:
            return reading.estimated_tokens
        return reading.tokens + Bounds(self.added_tokens, self.added_tokens)

    @property
    def read_part(self) -> ReadPart:
        """The window as stored in results. Only the upper bound of a range is stored."""
        return self.reading.to_read_part(self.added_tokens)

    @property
    def text_tokens(self) -> int:
        """Number of tokens read, without special tokens and prompt; a lower bound."""
        return (self.reading.tokens or self.reading.estimated_tokens).low

    @property
    def characters_of_english(self) -> int:
        """Number of English characters read: four per token, unless the limit is in characters; a
        lower bound.
        """
        if self.reading.unit == "characters":
            return self.reading.characters.low
        return self.text_tokens * BYTES_PER_TOKEN

    @property
    def enough(self) -> bool | None:
        """True if the lower bound of `tokens_from_start` meets the requirement; None if there is no
        requirement.
        """
        return None if self.required is None else self.tokens_from_start.low >= self.required

    @property
    def sentence(self) -> str:
        """A sentence that compares the part that the model reads with the claim."""
        about = "" if self.is_counted else f" (about {_describe_bounds(self.tokens)} tokens)"
        sentence = WINDOW_SENTENCES[_compare_claim(self)].format(
            length=_describe_length(self),
            about=about,
            claimant=self.claimed_by,
            rest=REFUSES if self.reading.refusal else IGNORES,
            claimed=f"{self.claimed_tokens or 0:,}",
        )
        if not self.is_counted or not self.added_tokens:
            return sentence
        text_tokens = self.reading.tokens or self.reading.estimated_tokens
        clauses = [f"{_describe_bounds(text_tokens)} are text"]
        if self.special_tokens:
            clauses.append(
                pluralize(self.special_tokens, "is a special token", "are special tokens")
            )
        if self.prompt_tokens:
            prompt = "the question" if self.is_reranker else "the prompt"
            clauses.append(f"{pluralize(self.prompt_tokens, 'is', 'are')} from {prompt}")
        return f"{sentence} Of these tokens, {', '.join(clauses[:-1])} and {clauses[-1]}."


def complete_reading(window: WindowReading) -> WindowReading:
    """Add title, values and sections to a measurement."""
    reading = window.reading
    tokens = window.tokens
    row = {
        "model": window.model,
        "revision": window.revision,
        "part": reading.part or ReadKind.ALL,
        "tokens": tokens.low,
        "tokens_high": None if reading.is_complete else tokens.high,
        "tokens_from_start": window.tokens_from_start.low,
        "tokens_estimated": not window.is_counted,
        "special_tokens": window.special_tokens,
        "prompt_tokens": window.prompt_tokens,
        "content_tokens": window.text_tokens,
        "characters_of_english": window.characters_of_english,
        "unit": reading.unit,
        "claimed_tokens": window.claimed_tokens,
        "claimed_by": window.claimed_by,
        "reads_all_tried": reading.is_complete,
        "refusal": reading.refusal,
        "required": window.required,
        "enough": window.enough,
    }
    measured_on = {
        "documents": reading.documents,
        "synthetic": reading.synthetic,
        "words_read": reading.words,
        "characters_read": reading.characters,
    }
    sentences = [window.sentence, *_describe_details(window)]
    if window.fit:
        row |= {"chunks": window.fit.chunks, "chunks_too_long": window.fit.too_long}
        sentences.append(window.fit.sentence)
    footer = []
    commands = []
    if window.reference.model and not window.is_reranker:
        footer.append(
            f"To inspect a task (replace {EXAMPLE_TASK} with a folder to inspect your own texts):"
        )
        commands.append(
            window.reference.format("posir", "inspect", window.reference.model, EXAMPLE_TASK)
        )
    name = drop_organization(window.model)
    charts = _build_charts(window, name, " ".join(sentences), commands)
    return replace(
        window,
        title=window.model,
        page_title=WINDOW_TITLE.format(model=name, length=_describe_length(window)),
        data=f"{window.model}, revision {(window.revision or 'unknown')[:12]}",
        rows=(row,),
        values={**row, "sentence": window.sentence, "measured_on": measured_on},
        extra_sections=(
            DisplaySection(window.model, tuple(sentences), only=Medium.TEXT),
            DisplaySection(
                sentences=() if charts else tuple(sentences),
                position_charts=charts,
                only=Medium.PAGE,
            ),
        ),
        footer=footer,
        commands=commands,
        exit_status=int(window.enough is False),
    )


def _build_charts(
    window: WindowReading, name: str, finding: str, commands: Sequence[str]
) -> tuple[PositionChart, ...]:
    """Build a chart of a text and its read part, unless the model reads samples of a text."""
    read_part = window.read_part
    if read_part.part not in BAR_COUNTS:
        return ()
    bars, bars_before = BAR_COUNTS[read_part.part]
    has_window_end = read_part.part is Part.FIRST and window.is_counted
    facts = (Fact("Measured", finding),) if commands else ()
    next_step = Term(INSPECT_TEXTS, REPLACE_TASK.format(task=EXAMPLE_TASK))
    chart = PositionChart(
        name,
        (finding,),
        (Estimate(1.0),) * bars,
        0.5 if read_part.part else 0.0,
        before=bars_before,
        finding="" if commands else finding,
        facts=lambda: facts,
        scale=READ_SCALE,
        steps=(next_step,) if commands else (),
        commands=tuple(commands),
        window_end=f"{read_part.tokens:,} tokens" if has_window_end else "",
        truncated_label="the rest",
        is_in_title=True,
    )
    return (chart,)


def _compare_claim(window: WindowReading) -> str:
    """Compare the window with the claim. Return a key of `WINDOW_SENTENCES`."""
    claimed = window.claimed_tokens
    if window.reading.is_complete:
        return "all_claimed" if claimed else "all"
    if claimed is None:
        return "no_claim"
    factor = 1.0
    if not window.is_counted:
        factor = SYNTHETIC_FACTOR if window.reading.synthetic else ESTIMATE_FACTOR
    if window.tokens.high * factor < claimed:
        return "less"
    return "more" if window.tokens.low > claimed * factor else "as_claimed"


def _describe_length(window: WindowReading) -> str:
    """Describe the part that is read, such as `the first 256 tokens`."""
    reading = window.reading
    start = reading.at_start
    unit = "tokens"
    total = window.tokens
    head = window.count_tokens(start) if start and start.tokens else None
    if not window.is_counted:
        unit = reading.unit
        total = reading.bounds
        head = start.get_bounds(unit) if start else None
    if reading.part is Part.ENDS and head is not None:
        tail = Bounds(total.low - head.low, total.high - head.high)
        return f"the first {_describe_bounds(head)} and the last {_describe_bounds(tail)} {unit}"
    prefixes = {None: "at least", Part.SAMPLES: "samples of"}
    prefix = prefixes.get(reading.part, f"the {reading.part}")
    return f"{prefix} {_describe_bounds(total)} {unit}"


def _describe_details(window: WindowReading) -> Iterator[str]:
    """Yield sentences about the unread part and the requirement."""
    reading = window.reading
    if reading.refusal:
        yield f"Error for longer texts: {reading.refusal.rstrip('.')}."
    elif reading.part in (Part.FIRST, Part.LAST):
        yield ABOUT_ENGLISH.format(
            part=reading.part,
            characters=window.characters_of_english,
            words=round(window.text_tokens * 0.75, -1),
        )
    elif reading.part is not None:
        yield UNREAD_TEXT.format(output="score" if window.is_reranker else "embedding")
    if window.required is not None:
        verb = "This may not be"
        if window.enough:
            verb = "This is"
        elif window.tokens_from_start.high < window.required:
            verb = "This is not"
        yield REQUIREMENT.format(verb=verb, required=window.required)


def measure_window(
    model: MeasuredModel,
    texts: Sequence[str] = (),
    *,
    required: int | None = None,
    max_tokens: int | None = None,
) -> WindowReading:
    """Measure the part of a text that a model reads.

    See `MeasuredModel.measure` for arguments and errors.
    """
    return complete_reading(
        WindowReading(
            model=model.name,
            revision=model.revision,
            reading=model.measure(texts, required=required or 0, max_tokens=max_tokens),
            special_tokens=model.special_tokens,
            prompt_tokens=model.prompt_tokens,
            claimed_tokens=model.claimed_tokens,
            claimed_by=model.claimed_by,
            is_reranker=model.is_reranker,
            required=required,
        )
    )


def measure_fit(
    model: MeasuredModel, reading: ReadingLength, splitter: TextSplitter, texts: Sequence[str]
) -> ChunkFit:
    """Split texts into chunks and count the chunks that exceed the window.

    The model's tokenizer counts the tokens of each chunk. Without a tokenizer, chunks are encoded
    in batches, the longest first, until a batch contains no truncated chunk. A chunk is truncated
    if its embedding does not change when a word in the unread part changes.
    """
    chunks = sorted(
        {chunk for text in splitter.split_texts(texts) for chunk in text.chunks},
        key=lambda chunk: -len(chunk.encode()),
    )
    if model.tokenizer:
        counts = model.tokenizer.count_all(chunks)
        window = (reading.tokens or reading.estimated_tokens).low
        too_long = sum(count > window for count in counts)
        longest = chunks[int(np.argmax(counts))]
        return ChunkFit(splitter.name, len(chunks), too_long, complete=True, longest=longest)
    unread_positions = {Part.LAST: 0.0, Part.ENDS: 0.5, Part.SAMPLES: 0.5}
    position = unread_positions.get(reading.part or Part.FIRST, 1.0)
    too_long = 0
    is_complete = True
    with (
        model.open_measurement(),
        track("Finding chunks that are too long", MAX_FIT_REQUESTS) as advance,
    ):
        probe = ModelProbe(model.encode, advance)
        for batch in split_batches(chunks, CUTS):
            if probe.requests >= MAX_FIT_REQUESTS:
                is_complete = False
                break
            too_long_chunks = sum(probe.find_truncated(batch, position))
            too_long += too_long_chunks
            if not too_long_chunks:
                break
    return ChunkFit(splitter.name, len(chunks), too_long, is_complete, chunks[0])


def _describe_bounds(bounds: Bounds) -> str:
    return f"{bounds.low:,}" if bounds.is_exact else f"{bounds.low:,} to {bounds.high:,}"
