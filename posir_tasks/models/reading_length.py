"""Measure the part of a text that a model reads: changing unread text does not change the
embedding.

The method works for local models, APIs and servers, regardless of their metadata. Texts with the
same head and different tails show where the model stops reading, texts with the same tail and
different heads where it starts, and texts with different middles whether it skips text in between.
Edges are found by bisection. A model that rejects long texts instead of truncating them reads the
longest text that it accepts.

A changed embedding proves that the model reads some of the changed text. An unchanged embedding is
weaker evidence: mean pooling over n tokens divides the effect of one token by n, and a server's
noise may hide it. Every request measures the noise. If the noise may hide a token, the length is a
range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from posir_tasks.base.errors import NoResponseError, PosirError, summarize_error
from posir_tasks.models.reading_probe import (
    CHANGES,
    CLEAR_FACTOR,
    CUTS,
    FEW_PIECES,
    MANY_REQUESTS,
    MAX_DOCUMENTS,
    MAX_REQUESTS,
    Block,
    Cut,
    ModelProbe,
    ProbedText,
    TextSource,
    search_cut,
    split_range,
)
from posir_tasks.values.read_part import Part, ReadKind, ReadPart, WindowSource

#: Number of pieces (usually words) in the first text if the model claims no window, and growth
#: factor for later texts.
FIRST_PIECES = 256
GROWTH = 4
#: Number of pieces in a text that every model accepts.
ACCEPTED_PIECES = 8
#: Number of blocks in a text, and the blocks that are changed one at a time to see whether the
#: model reads the ends and the middle.
BLOCKS = 16
CHANGED_BLOCKS = (0, 3, 6, 9, 12, 15)
#: Number of blocks that are changed one at a time to find gaps: in the part that appears to be
#: read, in the longest text, and in a text of which the model reads samples.
READ_BLOCKS = 6
LONGEST_BLOCKS = 12
SAMPLED_BLOCKS = 24
#: Maximum text length in tokens, and relative to the claimed window.
MAX_TOKENS = 32_768
CLAIM_FACTOR = 1.25


@dataclass(frozen=True)
class Bounds:
    """Inclusive bounds of a number."""

    low: int
    high: int

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(self.low + other.low, self.high + other.high)

    @property
    def is_exact(self) -> bool:
        """True if the bounds are equal."""
        return self.low == self.high


@dataclass(frozen=True, kw_only=True)
class ReadingLength:
    """The length of text that a model reads."""

    part: Part | None
    """The part of long texts that is read; None if the longest text was read completely."""
    tokens: Bounds | None = None
    """Tokens of the text without special tokens; None if the tokenizer is unknown."""
    words: Bounds
    """Words, or characters in a script without spaces."""
    characters: Bounds
    estimated_tokens: Bounds
    """Estimate for unknown tokenizers: a token per four bytes, or per synthetic word."""
    unit: str
    """Unit of the limit: the first of `tokens`, `words` and `characters` in which all documents
    have the same limit.
    """
    documents: int
    refusal: str = ""
    """The error for longer texts if the model rejects them."""
    synthetic: bool = False
    """True if the texts consist of frequent English words."""
    at_start: ReadingLength | None = None
    """For `ends` and `samples`, the length read from the start; None if it is not read."""

    @property
    def max_tokens(self) -> int:
        """Upper bound in tokens, estimated if the tokenizer is unknown."""
        return (self.tokens or self.estimated_tokens).high

    @property
    def is_complete(self) -> bool:
        """True if the longest text was read completely."""
        return self.part is None

    def to_read_part(self, added_tokens: int = 0) -> ReadPart:
        """Return the part that is read. Its length is the upper bound plus `added_tokens`, the
        number of prompt and special tokens.
        """
        if self.part is None:
            return ReadPart.all(WindowSource.MEASURED)
        tokens = self.max_tokens + added_tokens
        at_start = None
        if self.part is Part.ENDS:
            head = self.at_start.max_tokens + added_tokens if self.at_start else 0
            at_start = max(1, min(head, tokens - 1))
        return ReadPart(ReadKind.PART, self.part, tokens, at_start, WindowSource.MEASURED)

    def to_stored_part(self, added_tokens: int) -> ReadPart:
        """Return the part to store: a lower bound if the longest text was read completely."""
        if self.part is not None:
            return self.to_read_part(added_tokens)
        # A token is rarely longer than a word.
        tokens = self.tokens.low if self.tokens else min(self.estimated_tokens.low, self.words.low)
        return ReadPart.at_least(max(1, tokens))

    @property
    def from_start(self) -> ReadingLength | None:
        """The length read from the start without a gap; None if the start is not read."""
        return self if self.part in (None, Part.FIRST) else self.at_start

    @property
    def bounds(self) -> Bounds:
        """The reading length in its unit."""
        return self.get_bounds(self.unit)

    def get_bounds(self, unit: str) -> Bounds:
        """Return the reading length in a unit: `tokens`, `words` or `characters`."""
        bounds: Bounds | None = getattr(self, unit)
        return bounds or self.words


def measure_reading_length(
    probe: ModelProbe, source: TextSource, limit: int, claim: int | None = None
) -> ReadingLength:
    """Measure how much of a text a model reads. If it cannot encode any text, raise its error.

    Args:
        probe: The model. The length does not include its document prompt.
        source: Source of the documents. Short texts are joined and repeated.
        limit: Length of the longest document in tokens.
        claim: The claimed window without special tokens; None if unknown, or if the pieces of
            documents are not tokens.
    """
    try:
        return _measure_part(probe, source, limit, claim)
    except _RejectedError as rejection:
        return _measure_rejection(probe, source, rejection, claim)


@dataclass
class _RejectedError(Exception):
    """The model rejected a document of `pieces` pieces after it accepted `accepted` pieces."""

    pieces: int
    accepted: int
    error: Exception


def _measure_part(
    probe: ModelProbe, source: TextSource, limit: int, claim: int | None
) -> ReadingLength:
    """Measure the part that a model reads in texts of up to `limit` tokens. Raise _RejectedError if
    it rejects a text.
    """
    document, block_ratios = _find_unread(probe, source, limit, claim)
    size = document.size
    unread = sorted(block for block, ratio in block_ratios.items() if ratio <= 1)
    if not unread:
        return _summarize(source, [Cut(document, size)])
    start, end = next((block for block in unread if block[1] == size), unread[0])
    if start and end < size:
        head_cuts = _find_edge(probe, source, document, end)
        tail_cuts = _find_edge(probe, source, document, size - start, from_end=True)
        cuts = {False: head_cuts, True: tail_cuts}
    else:
        from_end = end != size
        ratios = {cut: ratio for (cut, stop), ratio in block_ratios.items() if stop == end == size}
        edge = _find_edge(probe, source, document, size, claim or 0, ratios, from_end=from_end)
        cuts = {from_end: edge}
    if _has_gaps(probe, document, {from_end: edge[0] for from_end, edge in cuts.items()}):
        return _measure_samples(probe, source, document)
    parts = {False: Part.FIRST, True: Part.LAST}
    lengths = [_summarize(source, edge, parts[from_end]) for from_end, edge in cuts.items()]
    if len(lengths) == 1:
        return lengths[0]
    head, tail = lengths
    counts: dict[str, Any] = {
        unit: getattr(head, unit) + getattr(tail, unit) for unit in source.counters
    }
    return replace(
        head,
        part=Part.ENDS,
        unit=head.unit if head.unit == tail.unit else "words",
        documents=min(head.documents, tail.documents),
        at_start=head,
        **counts,
    )


def _find_unread(
    probe: ModelProbe, source: TextSource, limit: int, claim: int | None
) -> tuple[ProbedText, dict[Block, float]]:
    """Test the ends and the middle of increasingly long documents, until a block is unread or the
    document has `limit` tokens. Raise _RejectedError if the model rejects a document.

    Return the last document, with the effect of changing each block as in `ModelProbe.compare`.
    """
    size = round(claim * CLAIM_FACTOR) if claim else FIRST_PIECES
    accepted_size = ACCEPTED_PIECES
    guess = claim
    while True:
        document = source.build(size, 0)
        tokens = source.count(document.prefix(size))
        is_last = tokens >= limit
        if is_last:
            size = max(ACCEPTED_PIECES, math.ceil(size * limit / tokens))
            document = document.shorten(size)
        block_ratios: dict[Block, float] = {}
        blocks = [
            (size * block // BLOCKS, size * (block + 1) // BLOCKS) for block in CHANGED_BLOCKS
        ]
        try:
            if guess and guess < size:
                ends = [(cut, size) for cut in (guess - 1, guess) if cut]
                block_ratios = dict(zip(ends, probe.compare(document, ends), strict=True))
                if block_ratios[guess, size] <= 1:
                    return document, block_ratios
            block_ratios |= probe.test_blocks(document, blocks)
            if is_last and min(block_ratios.values()) > 1:
                block_ratios |= probe.test_blocks(document, [(0, 1), (size - 1, size)])
            if is_last and min(block_ratios.values()) > 1:
                block_ratios |= probe.test_blocks(document, split_range(0, size, LONGEST_BLOCKS))
        except NoResponseError:
            raise
        except Exception as error:
            raise _RejectedError(size, accepted_size, error) from error
        if is_last or min(block_ratios.values()) <= 1:
            return document, block_ratios
        guess = None
        accepted_size = size
        size *= GROWTH


def _find_edge(
    probe: ModelProbe,
    source: TextSource,
    document: ProbedText,
    stop: int,
    claim: int = 0,
    ratios: dict[int, float] | None = None,
    *,
    from_end: bool = False,
) -> list[Cut]:
    """Find the edge of the part read from the start or the end, in several documents.

    Args:
        probe: The model.
        source: Source of additional documents.
        document: The first document.
        stop: Position beyond the edge.
        claim: The claimed window in tokens; 0 if unknown.
        ratios: Results of `ModelProbe.compare` for the first document, by cut.
        from_end: If true, the part includes the end of the text.
    """
    cuts: list[Cut] = []
    guess = claim if from_end and claim < stop else 0
    for seed in range(MAX_DOCUMENTS):
        if seed:
            document = source.build(document.size, seed)
            ratios = None
        view = document.view(from_end=from_end)
        cuts.append(search_cut(probe, view, stop, ratios, guess, exactly=not source.texts))
        guess = cuts[-1].pieces
        length = _summarize(source, cuts, Part.FIRST)
        # An exact match with the claimed window is not a coincidence.
        matches_claim = not source.texts and length.tokens == Bounds(claim, claim)
        has_enough = len(cuts) >= (1 if matches_claim else source.min_documents)
        is_done = length.bounds.is_exact or cuts[-1].slack > 0
        if (has_enough and is_done) or probe.requests >= MANY_REQUESTS:
            break
    return cuts


def _has_gaps(probe: ModelProbe, document: ProbedText, cuts: dict[bool, Cut]) -> bool:
    """Return True if text within the edges is unread, or if the edges move in a shorter document.

    The key in `cuts` is False for the cut from the start and True for the cut from the end.
    """
    for from_end, cut in cuts.items():
        size = cut.pieces - 1
        blocks = split_range(0, size, READ_BLOCKS if size >= FEW_PIECES * READ_BLOCKS else CUTS)
        if (
            min(probe.test_blocks(document.view(from_end=from_end), blocks).values(), default=2)
            <= 1
        ):
            return True
    if True not in cuts:
        return False
    # If the model reads evenly spaced samples, they shift with the length of the text.
    widths = {from_end: cut.pieces + cut.slack for from_end, cut in cuts.items()}
    shorter = document.shorten((document.size + sum(widths.values()) + 1) // 2)
    tail = shorter.size - widths[True]
    # A change of this many pieces has a larger effect than the noise.
    visible = FEW_PIECES + round(CLEAR_FACTOR * max(cut.slack for cut in cuts.values()))
    within = (tail, min(tail + visible, shorter.size))
    between = (widths.get(False, 0), tail)
    ratio_within, ratio_between = probe.compare(shorter, [within, between])
    return ratio_within <= 1 or ratio_between > 1


def _measure_samples(probe: ModelProbe, source: TextSource, document: ProbedText) -> ReadingLength:
    """Measure bounds of the samples' total length, and the length read from the start."""
    block_ratios = probe.test_blocks(document, split_range(0, document.size, SAMPLED_BLOCKS))
    unread = [block for block, ratio in block_ratios.items() if ratio <= 1]
    at_start = None
    if unread and unread[0][0]:
        at_start = _summarize(source, [search_cut(probe, document, unread[0][1])], Part.FIRST)
    while probe.requests < MANY_REQUESTS:
        # A read block next to an unread block usually contains an edge.
        ends = {
            position for block, ratio in block_ratios.items() if ratio <= 1 for position in block
        }
        edges = [
            block
            for block, ratio in block_ratios.items()
            if ratio > 1 and block[1] - block[0] >= FEW_PIECES and not ends.isdisjoint(block)
        ]
        if not edges:
            break
        for block in sorted(edges, key=lambda block: block[0] - block[1])[:CUTS]:
            del block_ratios[block]
            block_ratios |= probe.test_blocks(document, split_range(*block, 2))
    blocks = sorted(block for block, ratio in block_ratios.items() if ratio > 1)
    shortest = document.join((start, start + 1) for start, _ in blocks)
    longest = document.join(blocks)
    bounds: dict[str, Any] = {
        unit: Bounds(count(shortest), count(longest)) for unit, count in source.counters.items()
    }
    return ReadingLength(
        part=Part.SAMPLES,
        **bounds,
        unit=next(iter(bounds)),
        documents=1,
        synthetic=not source.texts,
        at_start=at_start,
    )


def _measure_rejection(
    probe: ModelProbe, source: TextSource, rejection: _RejectedError, claim: int | None
) -> ReadingLength:
    """Measure the maximum length of accepted texts, or the part of them that is read.

    Raise the model's error if it also rejects short texts.
    """
    cuts: list[Cut] = []
    message = getattr(rejection.error, "reason", "") or summarize_error(rejection.error)
    guess = claim
    for seed in range(MAX_DOCUMENTS):
        document = source.build(rejection.pieces, seed)
        size = _find_accepted(probe, document, rejection, guess)
        if not cuts:
            accepted_document = document.shorten(size)
            if (
                min(probe.test_blocks(accepted_document, split_range(0, size, CHANGES)).values())
                <= 1
            ):
                length = _measure_part(probe, source, source.count(document.prefix(size)), None)
                return replace(length, refusal=message)
        cuts.append(Cut(document, size + 1))
        length = _summarize(source, cuts, Part.FIRST, refusal=message)
        # An exact match with the claimed window is not a coincidence.
        has_enough = len(cuts) >= (1 if size == claim else source.min_documents)
        if (has_enough and length.bounds.is_exact) or probe.requests >= MANY_REQUESTS:
            break
        guess = size
    return length


def _find_accepted(
    probe: ModelProbe, document: ProbedText, rejection: _RejectedError, guess: int | None
) -> int:
    """Find the maximum number of pieces that a model accepts.

    Raise the model's error if it rejects short documents, or PosirError if it only rejects several
    texts at a time.
    """
    low = ACCEPTED_PIECES
    high = rejection.pieces
    if guess is None:
        low = rejection.accepted
        if not probe.accepts(document.prefix(ACCEPTED_PIECES)):
            raise rejection.error
        if probe.accepts(document.prefix(high)):
            raise PosirError(
                f"The model encodes a text of {high:,} words, but not several of them at a time "
                f"({summarize_error(rejection.error)}). Let the server accept larger requests."
            )
    elif probe.accepts(document.prefix(guess)):
        low = guess
        if not probe.accepts(document.prefix(guess + 1)):
            return guess
    while high - low > 1 and probe.requests < MAX_REQUESTS:
        middle = (low + high) // 2
        if probe.accepts(document.prefix(middle)):
            low = middle
        else:
            high = middle
    return low


def _summarize(
    source: TextSource, cuts: Sequence[Cut], part: Part | None = None, refusal: str = ""
) -> ReadingLength:
    """Combine the cuts of several documents. If their bounds in a unit overlap, intersect them."""
    # The text before the last piece is read. If the model truncates texts, it reads at least one
    # token, word or character of that piece. If it rejects texts, at least one is too many.
    is_cut = part is not None
    extra = int(is_cut and not refusal)
    excess = int(bool(refusal))
    # Lower bounds are certain. Upper bounds are certain unless noise may hide changes.
    is_hidden = all(cut.slack for cut in cuts) or any(cut.slack and cut.noisy for cut in cuts)
    units: list[str] = []
    bounds: dict[str, Any] = {}
    for unit, count in source.counters.items():
        lows = [count(cut.document.prefix(cut.pieces - is_cut)) + extra for cut in cuts]
        highs = [count(cut.document.prefix(cut.pieces + cut.slack)) - excess for cut in cuts]
        certain = [high for high, cut in zip(highs, cuts, strict=True) if not cut.slack]
        highest = max(highs) if is_hidden else min(certain)
        if max(lows) <= highest:
            units.append(unit)
            bounds[unit] = Bounds(max(lows), highest)
        else:
            # A piece may share a token with its neighbor.
            bounds[unit] = Bounds(min(lows + highs), max(lows + highs))
    unit = next((unit for unit in units if unit != "estimated_tokens"), next(iter(bounds)))
    return ReadingLength(
        part=part,
        **bounds,
        unit=unit,
        documents=len(cuts),
        refusal=refusal,
        synthetic=not source.texts,
    )
