"""The part of a text that a model reads, against the number of tokens that it claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posir_tasks.base.progress import track
from posir_tasks.base.wording import sanitized
from posir_tasks.display.presentation import Presentable
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
            "what is read. The longest "
            f"begins '{sanitized(self.longest, 60)}'."
        )


@dataclass(frozen=True, repr=False)
class WindowReading(Presentable):
    """The part of a text that a model reads, measured from its embeddings alone."""

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
    def title(self) -> str:
        """Subject in a few words."""
        return self.model

    @property
    def tokens(self) -> Bounds:
        """Tokens that the model reads, special tokens and prompt included; an estimate if the
        tokenizer is unknown.
        """
        return self._count(self.reading)

    @property
    def tokens_from_start(self) -> Bounds:
        """Tokens that it reads from the start of a text on without a gap, counted as `tokens`; 0 if
        it skips the start.
        """
        return self._count(self.reading.from_start) if self.reading.from_start else Bounds(0, 0)

    def _count(self, reading: ReadingLength) -> Bounds:
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
        return (
            self.reading.characters.low
            if self.reading.unit == "characters"
            else self.text_tokens * BYTES_PER_TOKEN
        )

    @property
    def exit_status(self) -> int:
        """1 if the model reads less than is required, or not all of a chunk."""
        return int(
            self.enough is False or bool(self.fit and self.fit.required and self.fit.too_long)
        )

    @property
    def enough(self) -> bool | None:
        """Whether the model certainly reads what is required, from the start on without a gap; None
        if nothing is.
        """
        return None if self.required is None else self.tokens_from_start.low >= self.required

    @property
    def sentence(self) -> str:
        """A sentence on the part that the model reads, and how that compares with what it
        claims.
        """
        reading, claimant, known = self.reading, self.claimed_by, self.special_tokens is not None
        at_start, total, unit, factor, about, parts = (
            reading.at_start,
            self.tokens,
            "tokens",
            1.0,
            "",
            "",
        )
        if known:
            start = self._count(at_start) if at_start and at_start.tokens else None
            before = "the question" if self.is_reranker else "its prompt"
            added = (
                (self.special_tokens or 0, "added by the model"),
                (self.prompt_tokens, f"of {before}"),
            )
            own = Bounds(
                total.low - sum(number for number, _ in added),
                total.high - sum(number for number, _ in added),
            )
            counts = [
                f"{_describe_bounds(own)} are of the text",
                *(f"{number:,} {of}" for number, of in added if number),
            ]
            parts = (
                f" Of these tokens, {', '.join(counts[:-1])} and {counts[-1]}."
                if counts[1:]
                else ""
            )
        else:
            total, unit = reading.bounds, reading.unit
            start = at_start.in_unit(unit) if at_start else None
            factor = SYNTHETIC_FACTOR if reading.synthetic else ESTIMATE_FACTOR
            about = f" (about {_describe_bounds(self.tokens)} tokens)"
            if not reading.synthetic:
                about = f" (about {self.tokens.high:,} tokens, estimated)"
            elif unit == "words":
                about = " of frequent English words, about a token each"
        lead = {None: "at least", Part.SAMPLES: "samples of"}.get(
            reading.part, f"the {reading.part}"
        )
        length = f"{lead} {_describe_bounds(total)} {unit}"
        if reading.part is Part.ENDS and start is not None:
            tail = Bounds(total.low - start.low, total.high - start.high)
            length = (
                f"the first {_describe_bounds(start)} and the last {_describe_bounds(tail)} {unit}"
            )
        if reading.complete:
            claimed = (
                f"; {claimant} claims {self.claimed_tokens:,} tokens" if self.claimed_tokens else ""
            )
            return f"It reads {length} of a text{about}, as many as were tried{claimed}.{parts}"
        rest = "refuses longer texts" if reading.refusal else "ignores the rest without an error"
        if self.claimed_tokens is None:
            return f"It reads {length} of a text{about}, and {rest}; it claims no length.{parts}"
        claimed = f"{self.claimed_tokens:,} tokens that {claimant} claims"
        if self.tokens.high * factor < self.claimed_tokens:
            if known:
                return (
                    f"It reads only {length.removesuffix(' tokens')} of the {claimed}, and "
                    f"{rest}.{parts}"
                )
            claimed = f"{claimant} claims {self.claimed_tokens:,} tokens"
            return f"It reads only {length} of a text{about}, and {rest}, although {claimed}."
        comparison = (
            f"more than the {claimed}"
            if self.tokens.low > self.claimed_tokens * factor
            else "as it claims"
        )
        return f"It reads {length} of a text{about}, {comparison}, and {rest}.{parts}"

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the findings."""
        return (
            DisplaySection(
                self.title,
                (
                    self.sentence,
                    *self._describe_unread(),
                    *([self.fit.sentence] if self.fit else []),
                ),
            ),
        )

    def closing(self) -> tuple[str, ...]:
        """Return the next command."""
        reference = self.reference
        if self.is_reranker or not reference.model:
            return ()
        command = reference.write("posir", "inspect", reference.model, MINI)
        return (f"For a task, or a folder of your own texts in place of {MINI}:", command)

    def records(self) -> tuple[dict[str, Any], ...]:
        """Return one row."""
        reading, tokens = self.reading, self.tokens
        row = {
            "model": self.model,
            "revision": self.revision,
            "part": reading.part or ReadKind.ALL,
            "tokens": tokens.low,
            "tokens_high": None if reading.complete else tokens.high,
            "tokens_from_start": self.tokens_from_start.low,
            "tokens_estimated": self.special_tokens is None,
            "special_tokens": self.special_tokens,
            "prompt_tokens": self.prompt_tokens,
            "content_tokens": self.text_tokens,
            "characters_of_english": self.characters_of_english,
            "unit": reading.unit,
            "claimed_tokens": self.claimed_tokens,
            "claimed_by": self.claimed_by,
            "reads_all_tried": reading.complete,
            "refusal": reading.refusal,
            "required": self.required,
            "enough": self.enough,
        }
        fit = {"chunks": self.fit.chunks, "chunks_too_long": self.fit.too_long} if self.fit else {}
        return (row | fit,)

    def document(self) -> dict[str, Any]:
        """Return the row, the sentence and the part that is read of the texts of the measurement,
        in words and characters.
        """
        (row,) = self.records()
        tried = {"documents": self.reading.documents, "synthetic": self.reading.synthetic}
        lengths = {"words_read": self.reading.words, "characters_read": self.reading.characters}
        return {**row, "sentence": self.sentence, "measured_on": tried | lengths}

    def _describe_unread(self) -> Iterator[str]:
        reading, words = self.reading, round(self.text_tokens * 0.75, -1)
        english = f"{self.characters_of_english:,} characters, or {words:,.0f} words, of English"
        unread = f"does not change its {'score' if self.is_reranker else 'embedding'}."
        places = {
            Part.FIRST: f"That is about the first {english}.",
            Part.LAST: f"That is about the last {english}.",
            Part.ENDS: f"What is between these {unread}",
        }
        if reading.refusal:
            yield f"The error for longer ones: {reading.refusal.rstrip('.')}."
        elif reading.part is not None:
            yield places.get(reading.part, f"The rest {unread}")
        if self.required is None:
            return
        read, needed = self.tokens_from_start, f"{self.required:,} tokens are required"
        verb = (
            "This is"
            if self.enough
            else "This is not"
            if read.high < self.required
            else "This may not be"
        )
        if reading.part in (None, Part.FIRST):
            yield f"{verb} enough: {needed}."
        else:
            number = (
                f"of which only {_describe_bounds(read)} are read"
                if read.high
                else "and the start of a long text is not read"
            )
            yield f"{verb} enough: {needed} from the start without a gap, {number}."


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
    reading = model.measure(texts, required=required or 0, max_tokens=max_tokens)
    known = (
        model.special_tokens,
        model.prompt_tokens,
        model.claimed_tokens,
        model.claimed_by,
        model.is_reranker,
    )
    return WindowReading(model.name, model.revision, reading, *known, required)


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
