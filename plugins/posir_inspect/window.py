"""The part of a text that a model reads, against the number of tokens that it claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posir_significance import messages
from posir_tasks.base.progress import track
from posir_tasks.base.wording import sanitized
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import DisplaySection
from posir_tasks.models.command_reference import NO_REFERENCE, CommandReference
from posir_tasks.models.measured_model import MeasuredModel
from posir_tasks.models.reading_length import Bounds, ReadingLength
from posir_tasks.models.reading_probe import CUTS, ModelProbe
from posir_tasks.text.chunks import TextSplitter
from posir_tasks.text.words import BYTES_PER_TOKEN
from posir_tasks.values.read_part import Part, ReadKind, ReadPart

#: The packaged task, for which a command needs no data.
MINI = "PosIR-Mini"
#: Estimated numbers of tokens are off by at most this factor.
ESTIMATE_FACTOR = 1.5
#: The same for frequent words, most of which are a token each.
SYNTHETIC_FACTOR = 1.1
#: Most requests about chunks.
MAX_FIT_REQUESTS = 20


@dataclass(frozen=True)
class ChunkFit:
    """Whether a splitter's chunks of some texts are read as a whole."""

    chunker: str
    chunks: int
    too_long: int
    """Chunks that are longer than what is read."""
    complete: bool
    """Whether all were counted, or the longest asked about until they are read; else there may be
    more.
    """
    longest: str
    """Beginning of the longest chunk."""
    required: bool = False

    @property
    def sentence(self) -> str:
        """A sentence on the chunks that are too long."""
        if not self.too_long:
            return f"{self.chunker}: all of {self.chunks:,} chunks are read to the end."
        least = "" if self.complete else "at least "
        return (
            f"{self.chunker}: {least}{self.too_long:,} of {self.chunks:,} chunks are longer than "
            f"what is read. The longest begins '{sanitized(self.longest, 60)}'."
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class WindowReading(Result):
    """The part of a text that a model reads, measured only from its embeddings."""

    model: str
    revision: str | None
    reading: ReadingLength
    """Length of the text, without special tokens and prompt."""
    special_tokens: int | None
    """Special tokens of a text; None if the tokenizer is unknown."""
    prompt_tokens: int
    """Tokens of the model's prompt for documents, or of a reranker's question, which are read with
    every text.
    """
    claimed_tokens: int | None
    """Tokens that it claims to read, special ones included; None if it claims nothing."""
    claimed_by: str
    """Name of the model that claims it: for an endpoint, the registered model of the same name."""
    is_reranker: bool = False
    required: int | None = None
    fit: ChunkFit | None = None
    """Whether chunks are read as a whole; None if none are given."""
    reference: CommandReference = NO_REFERENCE
    """The model as a command names it."""

    @property
    def tokens(self) -> Bounds:
        """Tokens that the model reads, special tokens and prompt included; an estimate if the
        tokenizer is unknown.
        """
        return self.count(self.reading)

    @property
    def tokens_from_start(self) -> Bounds:
        """Tokens that it reads from the start of a text on without a gap, counted as `tokens`; 0 if
        it skips the start.
        """
        return self.count(self.reading.from_start) if self.reading.from_start else Bounds(0, 0)

    def count(self, reading: ReadingLength) -> Bounds:
        """Count the tokens of a length, special tokens and prompt included."""
        if reading.tokens is None or self.special_tokens is None:
            return reading.estimated_tokens
        added = self.special_tokens + self.prompt_tokens
        return Bounds(reading.tokens.low + added, reading.tokens.high + added)

    @property
    def read_part(self) -> ReadPart:
        """The part of a text that is read, as results store it; the upper bound where the number is
        not known exactly.
        """
        return self.reading.read_part((self.special_tokens or 0) + self.prompt_tokens)

    @property
    def text_tokens(self) -> int:
        """Tokens of a text that are read, without special tokens and prompt, at least."""
        return (self.reading.tokens or self.reading.estimated_tokens).low

    @property
    def characters_of_english(self) -> int:
        """Characters of English text that are read, at least: four a token, unless the limit is in
        characters.
        """
        if self.reading.unit == "characters":
            return self.reading.characters.low
        return self.text_tokens * BYTES_PER_TOKEN

    @property
    def enough(self) -> bool | None:
        """Whether the model certainly reads what is required, from the start on without a gap; None
        if nothing is.
        """
        return None if self.required is None else self.tokens_from_start.low >= self.required

    @property
    def sentence(self) -> str:
        """A sentence on the part that the model reads, and how that compares with its claim."""
        return _describe_reading(self)

    def records(self) -> tuple[dict[str, Any], ...]:
        """Return one row."""
        tokens = self.tokens
        row = {
            "model": self.model,
            "revision": self.revision,
            "part": self.reading.part or ReadKind.ALL,
            "tokens": tokens.low,
            "tokens_high": None if self.reading.complete else tokens.high,
            "tokens_from_start": self.tokens_from_start.low,
            "tokens_estimated": self.special_tokens is None,
            "special_tokens": self.special_tokens,
            "prompt_tokens": self.prompt_tokens,
            "content_tokens": self.text_tokens,
            "characters_of_english": self.characters_of_english,
            "unit": self.reading.unit,
            "claimed_tokens": self.claimed_tokens,
            "claimed_by": self.claimed_by,
            "reads_all_tried": self.reading.complete,
            "refusal": self.reading.refusal,
            "required": self.required,
            "enough": self.enough,
        }
        if self.fit:
            row |= {"chunks": self.fit.chunks, "chunks_too_long": self.fit.too_long}
        return (row,)


def complete_reading(window: WindowReading) -> WindowReading:
    """Add what is shown and exported."""
    reading = window.reading
    (row,) = window.records()
    measured_on = {
        "documents": reading.documents,
        "synthetic": reading.synthetic,
        "words_read": reading.words,
        "characters_read": reading.characters,
    }
    sentences = [window.sentence, *_describe_unread(window), *_describe_requirement(window)]
    if window.fit:
        sentences.append(window.fit.sentence)
    footer: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    if window.reference.model and not window.is_reranker:
        footer = (f"For a task, or a folder of your own texts instead of {MINI}:",)
        commands = (window.reference.write("posir", "inspect", window.reference.model, MINI),)
    misfits = window.fit is not None and window.fit.required and window.fit.too_long > 0
    return replace(
        window,
        title=window.model,
        values={**row, "sentence": window.sentence, "measured_on": measured_on},
        parts=(DisplaySection(window.model, tuple(sentences)),),
        footer=footer,
        commands=commands,
        exit_status=int(window.enough is False or misfits),
    )


def _describe_reading(window: WindowReading) -> str:
    reading = window.reading
    is_counted = window.special_tokens is not None
    unit = "tokens" if is_counted else reading.unit
    length = _describe_length(window)
    values = {
        "length": f"{length} {unit}",
        "about": "" if is_counted else _estimate_tokens(window),
        "claimant": window.claimed_by,
        "rest": messages.REFUSES if reading.refusal else messages.IGNORES,
        "claimed": f"{window.claimed_tokens or 0:,}",
    }
    template = messages.WINDOWS[_compare_claim(window)]
    if template is messages.WINDOWS["less"] and is_counted:
        template = messages.FEWER_TOKENS
        values["length"] = length
    return template.format(**values) + (_describe_added(window) if is_counted else "")


def _compare_claim(window: WindowReading) -> str:
    """Compare what the model reads with its claim: a key of `messages.WINDOWS`."""
    claimed = window.claimed_tokens
    if window.reading.complete:
        return "all_claimed" if claimed else "all"
    if claimed is None:
        return "no_claim"
    factor = 1.0
    if window.special_tokens is None:
        factor = SYNTHETIC_FACTOR if window.reading.synthetic else ESTIMATE_FACTOR
    if window.tokens.high * factor < claimed:
        return "less"
    return "more" if window.tokens.low > claimed * factor else "as_claimed"


def _describe_length(window: WindowReading) -> str:
    """Describe how much is read, and from which part of a text, without the unit."""
    reading = window.reading
    start = reading.at_start
    if window.special_tokens is None:
        total = reading.bounds
        head = start.in_unit(reading.unit) if start else None
    else:
        total = window.tokens
        head = window.count(start) if start and start.tokens else None
    if reading.part is Part.ENDS and head is not None:
        tail = Bounds(total.low - head.low, total.high - head.high)
        return f"the first {_describe_bounds(head)} and the last {_describe_bounds(tail)}"
    leads = {None: "at least", Part.SAMPLES: "samples of"}
    lead = leads.get(reading.part, f"the {reading.part}")
    return f"{lead} {_describe_bounds(total)}"


def _estimate_tokens(window: WindowReading) -> str:
    """Estimate the tokens of a length in words or characters, in parentheses."""
    if not window.reading.synthetic:
        return f" (about {window.tokens.high:,} tokens, estimated)"
    if window.reading.unit == "words":
        return " of frequent English words, about a token each"
    return f" (about {_describe_bounds(window.tokens)} tokens)"


def _describe_added(window: WindowReading) -> str:
    """Describe how many of the tokens are not of the text; empty if all are."""
    prompt = "the question" if window.is_reranker else "its prompt"
    special = window.special_tokens or 0
    parts = [f"{special:,} added by the model"] if special else []
    if window.prompt_tokens:
        parts.append(f"{window.prompt_tokens:,} of {prompt}")
    if not parts:
        return ""
    added = special + window.prompt_tokens
    text = Bounds(window.tokens.low - added, window.tokens.high - added)
    parts.insert(0, f"{_describe_bounds(text)} are of the text")
    return f" Of these tokens, {', '.join(parts[:-1])} and {parts[-1]}."


def _describe_unread(window: WindowReading) -> Iterator[str]:
    reading = window.reading
    if reading.refusal:
        yield f"The error for longer ones: {reading.refusal.rstrip('.')}."
    elif reading.part in (Part.FIRST, Part.LAST):
        words = round(window.text_tokens * 0.75, -1)
        yield messages.ABOUT_ENGLISH.format(
            part=reading.part, characters=window.characters_of_english, words=words
        )
    elif reading.part is not None:
        yield messages.NOT_READ.format(
            rest="What is between these" if reading.part is Part.ENDS else "The rest",
            output="score" if window.is_reranker else "embedding",
        )


def _describe_requirement(window: WindowReading) -> Iterator[str]:
    if window.required is None:
        return
    read = window.tokens_from_start
    verb = "This may not be"
    if window.enough:
        verb = "This is"
    elif read.high < window.required:
        verb = "This is not"
    if window.reading.part in (None, Part.FIRST):
        yield messages.REQUIREMENT.format(verb=verb, required=window.required)
        return
    number = "and the start of a long text is not read"
    if read.high:
        number = f"of which only {_describe_bounds(read)} are read"
    yield messages.START_REQUIREMENT.format(verb=verb, required=window.required, number=number)


def measure_window(
    model: MeasuredModel,
    texts: Sequence[str] = (),
    *,
    required: int | None = None,
    max_tokens: int | None = None,
) -> WindowReading:
    """Measure which part of a text a model reads; arguments and errors as in
    `MeasuredModel.measure`.
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
    """Divide texts, and find the chunks that are longer than what is read: by the tokenizer, or
    else by their embeddings.

    Without tokenizer, the longest chunks are asked about until all of a request are read; of each,
    a word is changed where long texts are not read.
    """
    chunks = sorted(
        {chunk for text in splitter.divide_all(texts) for chunk in text.chunks},
        key=lambda chunk: -len(chunk.encode()),
    )
    if model.tokenizer:
        counts = model.tokenizer.count_all(chunks)
        long = [count > (reading.tokens or reading.estimated_tokens).low for count in counts]
        return ChunkFit(splitter.name, len(chunks), sum(long), True, chunks[int(np.argmax(counts))])
    place = {Part.LAST: 0.0, Part.ENDS: 0.5, Part.SAMPLES: 0.5}.get(reading.part or Part.FIRST, 1.0)
    too_long, done = 0, False
    with model.measuring(), track("Finding chunks that are too long", MAX_FIT_REQUESTS) as advance:
        probe = ModelProbe(model.encode, advance)
        for start in range(0, len(chunks), CUTS):
            cut = sum(probe.find_cut_texts(chunks[start : start + CUTS], place))
            too_long += cut
            done = not cut or start + CUTS >= len(chunks)
            if done or probe.requests >= MAX_FIT_REQUESTS:
                break
    return ChunkFit(splitter.name, len(chunks), too_long, done, chunks[0])


def _describe_bounds(bounds: Bounds) -> str:
    return f"{bounds.low:,}" if bounds.exact else f"{bounds.low:,} to {bounds.high:,}"
