"""The part of a text that a model reads, from its embeddings alone: a change of what it does not
read changes nothing.

The same for a local model, an API and a server, whatever its metadata claims. Three searches find
the part: texts with the same head and another tail show where the model stops, texts with the same
tail and another head where it begins, and texts with the same ends and another middle whether it
leaves something out between them. Each edge is found by bisection. A model that refuses long texts
instead of cutting them reads the longest text that it accepts.

A changed embedding proves that something of the change is read; an unchanged one may be too small a
change to be told from the noise of a server, since mean pooling over n tokens divides a change
of one token by n. So noise is measured with every request, and if a single token may be lost in it,
the length has bounds instead of a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from posir_tasks.base.errors import NoAnswerError, PosirError, summarize_error
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
    DocumentEncoder,
    ModelProbe,
    ProbedText,
    TextSource,
    TokenCounter,
    divide,
    search_cut,
)
from posir_tasks.values.read_part import KnownBy, Part, ReadKind, ReadPart

#: Pieces (words, mostly) of the first text that is tried if the model claims nothing; each further
#: one is longer by a factor.
FIRST_PIECES = 256
GROWTH = 4
#: Pieces of a text that every model accepts.
ACCEPTED_PIECES = 8
#: A text in so many blocks, and those that are changed, each by itself, to see whether its ends and
#: its middle are read.
BLOCKS = 16
CHANGED_BLOCKS = (0, 3, 6, 9, 12, 15)
#: Blocks that are changed, each by itself, to see whether there is a gap: in what is taken to be
#: read, in the longest text that is tried, and in one that is read in samples.
READ_BLOCKS = 6
LONGEST_BLOCKS = 12
SAMPLED_BLOCKS = 24
#: A reading length is sought up to this many tokens, or up to this multiple of what the model
#: claims.
MAX_TOKENS = 32_768
CLAIM_FACTOR = 1.25


@dataclass(frozen=True)
class Bounds:
    """Bounds of a number: it is at least `low` and at most `high`."""

    low: int
    high: int

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(self.low + other.low, self.high + other.high)

    @property
    def exact(self) -> bool:
        """Whether the number is known exactly."""
        return self.low == self.high


@dataclass(frozen=True)
class ReadingLength:
    """The length of text that a model reads."""

    part: Part | None
    """The part of long texts that is read; None if the longest text was read as a whole: the
    numbers are then lower bounds.
    """
    tokens: Bounds | None
    """Tokens of the text, without special ones; None if the tokenizer is unknown."""
    words: Bounds
    """Words: runs without white space, or characters of a text in a script without spaces."""
    characters: Bounds
    estimated_tokens: Bounds
    """For models whose tokenizer is unknown: a token per four bytes, or per word of a synthetic
    text.
    """
    unit: str
    """Unit of the limit, `tokens`, `words` or `characters`: the first in which all documents
    agree.
    """
    documents: int
    refusal: str = ""
    """The error for longer texts, if the model refuses them instead of cutting them."""
    synthetic: bool = False
    """Whether the texts were made of frequent English words."""
    at_start: ReadingLength | None = None
    """The length at the start, for `ends` and `samples`, that is read without a gap; None if the
    start is not read.
    """

    @property
    def max_tokens(self) -> int:
        """The upper bound in tokens, estimated if the tokenizer is unknown."""
        return (self.tokens or self.estimated_tokens).high

    @property
    def complete(self) -> bool:
        """Whether the longest text was read as a whole."""
        return self.part is None

    def read_part(self, added: int = 0) -> ReadPart:
        """Return the part that is read as results store it, by the upper bounds, with `added`
        tokens of prompt and special ones.
        """
        if self.part is None:
            return ReadPart.all(KnownBy.MEASURED)
        tokens = self.max_tokens + added
        at_start = None
        if self.part is Part.ENDS:
            head = self.at_start.max_tokens + added if self.at_start else 0
            at_start = max(1, min(head, tokens - 1))
        return ReadPart(ReadKind.PART, self.part, tokens, at_start, KnownBy.MEASURED)

    def stored_part(self, added: int) -> ReadPart:
        """Return the part that is read of other texts: where the longest text was read as a
        whole, at least so much.
        """
        if self.part is not None:
            return self.read_part(added)
        # A token is a word at most, mostly.
        tokens = self.tokens.low if self.tokens else min(self.estimated_tokens.low, self.words.low)
        return ReadPart.at_least(max(1, tokens))

    @property
    def from_start(self) -> ReadingLength | None:
        """The length that is read from the start on without a gap; None if the start is not
        read.
        """
        return self if self.part in (None, Part.FIRST) else self.at_start

    @property
    def bounds(self) -> Bounds:
        """The reading length in its unit."""
        return self.in_unit(self.unit)

    def in_unit(self, unit: str) -> Bounds:
        """Return the reading length in a unit: `tokens`, `words` or `characters`."""
        bounds: Bounds | None = getattr(self, unit)
        return bounds or self.words


def measure_reading_length(
    encode: DocumentEncoder,
    texts: Sequence[str] = (),
    count_tokens: TokenCounter | None = None,
    *,
    claimed_tokens: int | None = None,
    special_tokens: int = 0,
    required_tokens: int = 0,
    max_tokens: int | None = None,
    advance: Callable[[], object] = lambda: None,
) -> ReadingLength:
    """Measure how far a model reads, in synthetic documents or in documents made of texts.
    Errors of a model that encodes no text are its own.

    Args:
        encode: The model; its prompt for documents is part of what it reads, and not counted.
        texts: Short ones are joined, and repeated if all together are too short. By default,
            frequent English words.
        count_tokens: None if the tokenizer is unknown.
        claimed_tokens: What the model claims to read, special tokens included; None if unknown.
        special_tokens: Special tokens of a text.
        required_tokens: What it should read; texts of at least so many tokens are tried.
        max_tokens: Longest text that is tried otherwise; by default a quarter more than the model
            claims, at most 32,768.
        advance: Called after every request.
    """
    usual = round(claimed_tokens * CLAIM_FACTOR) if claimed_tokens else MAX_TOKENS
    limit = max(max_tokens or min(MAX_TOKENS, usual), required_tokens)
    probe = ModelProbe(encode, advance)
    source = TextSource(texts, count_tokens)
    claimed = None
    # In synthetic texts of a known tokenizer, pieces are tokens.
    if claimed_tokens and count_tokens and not texts and special_tokens < claimed_tokens < limit:
        claimed = claimed_tokens - special_tokens
    try:
        return _measure_part(probe, source, limit, claimed)
    except _RefusedError as refusal:
        return _measure_refusal(probe, source, refusal, claimed)


@dataclass
class _RefusedError(Exception):
    """A model raises an error for a document of so many pieces."""

    pieces: int
    accepted: int
    error: Exception


def _measure_part(
    probe: ModelProbe, source: TextSource, limit: int, claimed: int | None
) -> ReadingLength:
    """Measure the part that a model reads if it accepts texts of any length; raise _RefusedError
    if it refuses one.

    The longest text that is tried has `limit` tokens; what the model claims to read is None without
    a tokenizer.
    """
    document, ratios, read = _find_unread(probe, source, limit, claimed)
    size = document.size
    unread = sorted(block for block, ratio in read.items() if ratio <= 1)
    if not unread:
        return _summarize(source, [Cut(document, size)])
    start, end = next((block for block in unread if block[1] == size), unread[0])
    reads_tail = read[max(read)] > 1
    if start and reads_tail and end < size:
        head_cuts = _find_edge(probe, source, document, end)
        tail_cuts = _find_edge(probe, source, document, size - start, from_end=True)
        cuts = {False: head_cuts, True: tail_cuts}
    elif end == size or reads_tail:
        from_end = end != size
        found = {} if from_end else ratios
        edge = _find_edge(probe, source, document, size, claimed or 0, found, from_end=from_end)
        cuts = {from_end: edge}
    else:
        return _measure_samples(probe, source, document)
    if _has_gaps(probe, document, {from_end: found[0] for from_end, found in cuts.items()}):
        return _measure_samples(probe, source, document)
    parts = {False: Part.FIRST, True: Part.LAST}
    lengths = [_summarize(source, found, parts[end]) for end, found in cuts.items()]
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
    probe: ModelProbe, source: TextSource, limit: int, claimed: int | None
) -> tuple[ProbedText, dict[int, float], dict[Block, float]]:
    """Look at the ends and the middle of longer and longer documents, up to one in which something
    is not read, or of `limit` tokens; raise _RefusedError if one is refused.

    Returns the document, and the distances of the embeddings for cuts and for blocks.
    """
    size = round(claimed * CLAIM_FACTOR) if claimed else FIRST_PIECES
    accepted = ACCEPTED_PIECES
    guess = claimed
    while True:
        document = source.build(size, 0)
        tokens = source.count(document.prefix(size))
        is_last = tokens >= limit
        if is_last:
            size = max(ACCEPTED_PIECES, math.ceil(size * limit / tokens))
            document = document.shorten(size)
        ratios: dict[int, float] = {}
        blocks = [
            (size * block // BLOCKS, size * (block + 1) // BLOCKS) for block in CHANGED_BLOCKS
        ]
        try:
            if guess and guess < size:
                cuts = [cut for cut in (guess - 1, guess) if cut]
                distances = probe.compare(document, [(cut, size) for cut in cuts])
                ratios = dict(zip(cuts, distances, strict=True))
                if ratios[guess] <= 1:
                    return document, ratios, {(guess, size): 0.0}
            read = probe.find_read(document, blocks)
            if is_last and min(read.values()) > 1:
                read |= probe.find_read(document, [(0, 1), (size - 1, size)])
            if is_last and min(read.values()) > 1:
                read |= probe.find_read(document, divide(0, size, LONGEST_BLOCKS))
        except NoAnswerError:
            raise
        except Exception as error:
            raise _RefusedError(size, accepted, error) from error
        if is_last or min(read.values()) <= 1:
            ends = {start: ratio for (start, end), ratio in read.items() if end == size}
            return document, ratios | ends, read
        guess = None
        accepted = size
        size *= GROWTH


def _find_edge(
    probe: ModelProbe,
    source: TextSource,
    document: ProbedText,
    stop: int,
    claimed: int = 0,
    ratios: dict[int, float] | None = None,
    *,
    from_end: bool = False,
) -> list[Cut]:
    """Find the edge of what is read, from the start or the end of the text on, in several
    documents.

    Args:
        probe: Asks the model.
        source: Builds further documents.
        document: The first document.
        stop: Position beyond the edge.
        claimed: Tokens that the model claims to read; 0 if it claims nothing.
        ratios: Distances by cut that are known of the first document.
        from_end: Whether it is read from the end on.
    """
    cuts: list[Cut] = []
    guess = claimed if from_end and claimed < stop else 0
    exactly = guess > 0
    for number in range(MAX_DOCUMENTS):
        if number:
            document = source.build(document.size, number)
            ratios = None
        seen = document.seen_from(end=from_end)
        cuts.append(search_cut(probe, seen, stop, ratios, guess, exactly=exactly))
        guess = cuts[-1].pieces
        exactly = not source.texts
        length = _summarize(source, cuts, Part.FIRST)
        # Words that reach the claim to the token are no coincidence.
        is_claim = not source.texts and length.tokens == Bounds(claimed, claimed)
        enough = len(cuts) >= (1 if is_claim else source.min_documents)
        is_done = length.bounds.exact or cuts[-1].slack > 0
        if (enough and is_done) or probe.requests >= MANY_REQUESTS:
            break
    return cuts


def _has_gaps(probe: ModelProbe, document: ProbedText, cuts: dict[bool, Cut]) -> bool:
    """Return whether something within the edges is not read, or the edges are elsewhere in a
    shorter document; cuts from the start (False) and from the end (True).
    """
    for from_end, cut in cuts.items():
        read = cut.pieces - 1
        blocks = divide(0, read, READ_BLOCKS if read >= FEW_PIECES * READ_BLOCKS else CUTS)
        if min(probe.find_read(document.seen_from(end=from_end), blocks).values(), default=2) <= 1:
            return True
    if True not in cuts:
        return False
    # Samples at equal distances are elsewhere in a text of another length; the last words are not.
    widths = {from_end: cut.pieces + cut.slack for from_end, cut in cuts.items()}
    shorter = document.shorten((document.size + sum(widths.values()) + 1) // 2)
    tail = shorter.size - widths[True]
    # So many pieces are told from the noise.
    visible = FEW_PIECES + round(CLEAR_FACTOR * max(cut.slack for cut in cuts.values()))
    within = (tail, min(tail + visible, shorter.size))
    between = (widths.get(False, 0), tail)
    ratio_within, ratio_between = probe.compare(shorter, [within, between])
    return ratio_within <= 1 or ratio_between > 1


def _measure_samples(probe: ModelProbe, source: TextSource, document: ProbedText) -> ReadingLength:
    """Measure bounds of what a model reads in pieces from all over a document, and how far it reads
    from the start on.
    """
    read = probe.find_read(document, divide(0, document.size, SAMPLED_BLOCKS))
    unread = [block for block, ratio in read.items() if ratio <= 1]
    at_start = None
    if unread and unread[0][0]:
        at_start = _summarize(source, [search_cut(probe, document, unread[0][1])], Part.FIRST)
    while probe.requests < MANY_REQUESTS:
        # A block next to one that is not read holds an edge, mostly.
        ends = {position for block, ratio in read.items() if ratio <= 1 for position in block}
        edges = [
            block
            for block, ratio in read.items()
            if ratio > 1 and block[1] - block[0] >= FEW_PIECES and not ends.isdisjoint(block)
        ]
        if not edges:
            break
        for block in sorted(edges, key=lambda block: block[0] - block[1])[:CUTS]:
            del read[block]
            read |= probe.find_read(document, divide(*block, 2))
    blocks = sorted(block for block, ratio in read.items() if ratio > 1)
    shortest = document.join((start, start + 1) for start, _ in blocks)
    longest = document.join(blocks)
    bounds: dict[str, Any] = {
        unit: Bounds(count(shortest), count(longest)) for unit, count in source.counters.items()
    }
    return ReadingLength(
        Part.SAMPLES,
        **{"tokens": None, **bounds},
        unit=next(iter(bounds)),
        documents=1,
        synthetic=not source.texts,
        at_start=at_start,
    )


def _measure_refusal(
    probe: ModelProbe, source: TextSource, refusal: _RefusedError, claimed: int | None
) -> ReadingLength:
    """Measure how long accepted texts are, or what is read of them; raise the model's error if it
    refuses short ones, too.
    """
    cuts: list[Cut] = []
    message = getattr(refusal.error, "reason", "") or summarize_error(refusal.error)
    guess = claimed
    for number in range(MAX_DOCUMENTS):
        document = source.build(refusal.pieces, number)
        accepted = _find_accepted(probe, document, refusal, guess)
        if not cuts:
            whole = document.shorten(accepted)
            if min(probe.find_read(whole, divide(0, accepted, CHANGES)).values()) <= 1:
                part = _measure_part(probe, source, source.count(document.prefix(accepted)), None)
                return replace(part, refusal=message)
        cuts.append(Cut(document, accepted + 1))
        length = _summarize(source, cuts, Part.FIRST, refusal=message)
        # Words that are refused beyond the claim to the token are no coincidence.
        enough = len(cuts) >= (1 if accepted == claimed else source.min_documents)
        if (enough and length.bounds.exact) or probe.requests >= MANY_REQUESTS:
            break
        guess = accepted
    return length


def _find_accepted(
    probe: ModelProbe, document: ProbedText, refusal: _RefusedError, guess: int | None
) -> int:
    """Find how many pieces of a document a model accepts; raise its error if it refuses short
    documents, or several texts.
    """
    low = ACCEPTED_PIECES
    high = refusal.pieces
    if guess is None:
        low = refusal.accepted
        if not probe.accepts(document.prefix(ACCEPTED_PIECES)):
            raise refusal.error
        if probe.accepts(document.prefix(high)):
            raise PosirError(
                f"The model encodes a text of {high:,} words, but not several of them at a time "
                f"({summarize_error(refusal.error)}). Let the server accept larger requests."
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
    """Combine the cuts in several documents: where they agree in a unit, what all
    of them allow.
    """
    # The text without its last piece is accepted and read; of the piece, at least one token, word
    # or character is read if the model cuts the text there, and at least one is too many if the
    # model refuses it.
    is_cut = part is not None
    more = int(is_cut and not refusal)
    less = int(bool(refusal))
    # That a text is read so far is certain; that it is read no further is so where nothing is
    # lost in the noise.
    is_hidden = all(cut.slack for cut in cuts) or any(cut.slack and cut.noisy for cut in cuts)
    agreed: list[str] = []
    bounds: dict[str, Any] = {}
    for unit, count in source.counters.items():
        lows = [count(cut.document.prefix(cut.pieces - is_cut)) + more for cut in cuts]
        highs = [count(cut.document.prefix(cut.pieces + cut.slack)) - less for cut in cuts]
        certain = [high for high, cut in zip(highs, cuts, strict=True) if not cut.slack]
        highest = max(highs) if is_hidden else min(certain)
        if max(lows) <= highest:
            agreed.append(unit)
            bounds[unit] = Bounds(max(lows), highest)
        else:
            # A piece may have no token of its own.
            bounds[unit] = Bounds(min(lows + highs), max(lows + highs))
    unit = next((unit for unit in agreed if unit != "estimated_tokens"), next(iter(bounds)))
    return ReadingLength(
        part,
        **{"tokens": None, **bounds},
        unit=unit,
        documents=len(cuts),
        refusal=refusal,
        synthetic=not source.texts,
    )
