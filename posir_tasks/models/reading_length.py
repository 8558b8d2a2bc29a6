"""The reading length of a model, from its embeddings alone: the longest prefix of a text whose changed ending changes nothing.

The same for a local model, an API and a server, whatever its metadata claims. Two texts that are equal up to a cut and differ
in everything after it have the same embedding if the model reads no further than the cut, and another one if it does. The cut
is found by bisection. A model that refuses long texts instead of cutting them reads the longest text that it accepts.

A changed embedding proves that something after the cut is read; an unchanged one may be too small a change to be seen beside
the noise of a server, since mean pooling over n tokens divides a change of one token by n. So noise is measured with every
request, and if a single token may be lost in it, the length has bounds instead of a number.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from mteb.types import PromptType

from posir_tasks.embeddings.encoding import Encoder
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.text.words import count_words, split_words
from posir_tasks.tokens import estimate_tokens

#: Relative distance of two embeddings of the same input, up to rounding: at least this, or a multiple of what is measured.
MIN_DISTANCE, NOISE_FACTOR = 3e-6, 4.0
#: Distance of a single token's change, in multiples of the smallest that counts, from which a cut is certain.
CLEAR_FACTOR = 4.0
#: Pieces (words, mostly) of the first text that is tried if the model claims nothing; each further one is longer by a factor.
FIRST_PIECES, GROWTH = 256, 4
#: Pieces of a text that every model accepts.
ACCEPTED_PIECES = 8
#: Relative distance of two embeddings of the same input from which a server is noisy.
NOISY = 1e-5
#: The share of a text's end that is changed to see whether the end is read.
CHANGED_SHARE = 0.125
#: Cuts that are tried at the same time. With two variants each, the texts are fewer than those that an endpoint may not give
#: the same vector, as it does if it reads less of them than they share.
CUTS = 3
#: Distance between two cuts from which the changed tokens are few enough to be changed in two ways: in one way, two tokens may
#: happen to have the same vector.
FEW_PIECES = 16
#: Documents in which the cut is sought: at least and at most, until the length is known to the token.
MIN_DOCUMENTS, MAX_DOCUMENTS = 3, 12
#: No document is begun after so many requests, and no request is sent after so many.
MANY_REQUESTS, MAX_REQUESTS = 30, 38
#: A reading length is sought up to this many tokens, or up to this multiple of what the model claims.
MAX_TOKENS, CLAIM_FACTOR = 32_768, 1.25
SEED = 14
#: Fewest words of a tokenizer's vocabulary that synthetic texts are made of.
MIN_VOCABULARY = 24
#: Frequent English words, which most vocabularies have as a token each: short ones and long ones, since a limit in characters
#: is reached after more short words than long ones.
SHORT_WORDS = """
the of and to in is for on as by at it an be or are was his has had not but all one two new can may any who out use her him
our now way day man see own old did get how men end put say she too big air boy car eye far few got hot job key law led let
low met oil pay red run sea set six sun ten top war win yes yet age art bad box cut
"""
LONG_WORDS = """
because between without another through children country national government university different important community
president education development history following including military service company political population business research
language position industry question material american english century science society process problem results october december
january february november several against general however program control support central council football himself minister
network private produced project record special station student western
"""

#: Returns the number of tokens of a text as the model's tokenizer does, without special ones.
TokenCounter: TypeAlias = Callable[[str], int]


@dataclass(frozen=True)
class Bounds:
    """Bounds of a number: it is at least `low` and at most `high`."""

    low: int
    high: int

    @property
    def exact(self) -> bool:
        """Whether the number is known exactly."""
        return self.low == self.high


@dataclass(frozen=True)
class ReadingLength:
    """The length of text that a model reads."""

    complete: bool
    """Whether even the end of the longest text was read; the numbers are then lower bounds."""
    tokens: Bounds | None
    """Tokens of the text, without special ones; None if the tokenizer is unknown."""
    words: Bounds
    """Words: runs without white space, or characters of a text in a script without spaces."""
    characters: Bounds
    estimated_tokens: Bounds
    """For models whose tokenizer is unknown: a token per four bytes, or per word of a synthetic text."""
    unit: str
    """Unit of the limit, `tokens`, `words` or `characters`: the first in which all documents agree."""
    documents: int
    """Documents in which the cut was found."""
    refusal: str = ""
    """The error for longer texts, if the model refuses them instead of cutting them."""
    synthetic: bool = False
    """Whether the texts were made of frequent English words."""

    @property
    def bounds(self) -> Bounds:
        """The reading length in its unit."""
        return {"tokens": self.tokens, "words": self.words, "characters": self.characters}[self.unit] or self.words


@dataclass(frozen=True)
class _Document:
    """A text in pieces, and two times other pieces of the same number that differ from it everywhere."""

    pieces: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]

    def prefix(self, cut: int) -> str:
        return "".join(self.pieces[:cut]).rstrip()

    def changed_after(self, cut: int, variant: int = 0) -> str:
        return "".join(self.pieces[:cut] + self.others[variant][cut:])

    def shorten(self, size: int) -> _Document:
        return _Document(self.pieces[:size], tuple(pieces[:size] for pieces in self.others))


@dataclass(frozen=True)
class _Source:
    """Documents of any size, put together from texts, or of frequent words if there are none."""

    texts: Sequence[str]
    count_tokens: TokenCounter | None

    def build(self, size: int, number: int) -> _Document:
        """Return a document of `size` pieces in a random order, which depends on the number alone."""
        rng = random.Random(SEED + number)
        if not self.texts:
            words = [f"{word} " for word in self._choose_words((SHORT_WORDS, LONG_WORDS)[number % 2].split())]
            # The changed endings have other words, so that the mean of all words' vectors changes with every one of them.
            first, *pools = (words[part::3] for part in range(3))
            return _change(tuple(rng.choices(first, k=size)), pools, rng)
        pieces: list[str] = []
        order = list(self.texts)
        while len(pieces) < size:
            rng.shuffle(order)
            for text in order:
                pieces += split_words(text.strip() + "\n")
                if len(pieces) >= size:
                    break
        pool = sorted(set(pieces[:size]))
        return _change(tuple(pieces[:size]), [pool, pool], rng)

    def _choose_words(self, words: Sequence[str]) -> Sequence[str]:
        """Return the words that the tokenizer has as a token each; all words if it has few of them, or is unknown."""
        count = self.count_tokens
        known = words if count is None else [word for word in words if count(f"{word} {word} {word}") == 3]
        return known if len(known) >= MIN_VOCABULARY else words

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, estimated if the tokenizer is unknown."""
        return self.count_tokens(text) if self.count_tokens else self.estimate(text)

    def estimate(self, text: str) -> int:
        """Return the number of tokens of a text without the tokenizer."""
        return estimate_tokens(text) if self.texts else count_words(text)

    @property
    def min_documents(self) -> int:
        """Documents whose agreement is no coincidence: two of synthetic ones, in which words are of different lengths."""
        return MIN_DOCUMENTS if self.texts else 2


@dataclass(frozen=True)
class _Cut:
    """The first cut in a document after which nothing is read."""

    document: _Document
    pieces: int
    slack: int = 0
    """Pieces after it that may be read, but whose change would be lost in the noise."""
    noisy: bool = False
    """Whether noise may hide the same pieces of several documents."""


def measure_reading_length(
    encoder: Encoder,
    texts: Sequence[str] = (),
    count_tokens: TokenCounter | None = None,
    *,
    claimed_tokens: int | None = None,
    special_tokens: int = 0,
    required_tokens: int = 0,
    max_tokens: int | None = None,
    advance: Callable[[], object] = lambda: None,
) -> ReadingLength:
    """Measure how far a model reads, with documents that are put together from texts, or with synthetic ones.

    Args:
        encoder: The model; its prompt for documents is part of what it reads, and not counted.
        texts: Short ones are joined, and repeated if all together are too short. By default, frequent English words.
        count_tokens: None if the tokenizer is unknown.
        claimed_tokens: What the model claims to read, special tokens included; None if unknown.
        special_tokens: Special tokens of a text.
        required_tokens: What it should read; texts of at least so many tokens are tried.
        max_tokens: Longest text that is tried otherwise; by default a quarter more than the model claims, at most 32,768.
        advance: Called after every request.

    Raises:
        Exception: The model's own, if it cannot encode short texts either.
    """
    usual = min(MAX_TOKENS, round(claimed_tokens * CLAIM_FACTOR) if claimed_tokens else MAX_TOKENS)
    limit = max(max_tokens or usual, required_tokens)
    probe, source = _Probe(encoder, advance), _Source(texts, count_tokens)
    # In synthetic texts of a known tokenizer, pieces are tokens.
    is_guess = claimed_tokens is not None and special_tokens < claimed_tokens < limit and count_tokens and not texts
    try:
        return _measure_cut(probe, source, limit, claimed_tokens - special_tokens if claimed_tokens and is_guess else None)
    except _RefusedError as refusal:
        return _measure_refusal(probe, source, refusal)


def _measure_cut(probe: _Probe, source: _Source, limit: int, claimed: int | None) -> ReadingLength:
    """Measure how far a model reads that accepts texts of any length; raise _RefusedError if it refuses one.

    Args:
        probe: The model.
        source: The texts.
        limit: Tokens of the longest text that is tried.
        claimed: Tokens of a text that the model claims to read; None if it claims nothing, or without tokenizer.
    """
    search = _find_size(probe, source, limit, claimed)
    size = search.size
    if search.complete:
        return _summarize(source, [_Cut(search.document, size)], complete=True)
    cuts: list[_Cut] = []
    for number in range(MAX_DOCUMENTS):
        if number:
            search = _CutSearch(probe, source.build(size, number))
            search.ask_near(cuts[-1].pieces, exactly=not source.texts)
        cuts.append(search.finish())
        length = _summarize(source, cuts, complete=False)
        # Words that reach the claim to the token are no coincidence.
        enough = source.min_documents if source.texts or length.tokens != Bounds(claimed or 0, claimed or 0) else 1
        done = length.bounds.exact or cuts[-1].slack
        if (len(cuts) >= enough and done) or probe.requests >= MANY_REQUESTS:
            break
    return length


def _measure_refusal(probe: _Probe, source: _Source, refusal: _RefusedError) -> ReadingLength:
    """Measure how long the texts are that a model accepts; raise the model's error if it refuses short ones, too.

    If it does not read to the end of what it accepts, the length is what it reads.
    """
    cuts: list[_Cut] = []
    message = summarize_error(refusal.error)
    for number in range(MAX_DOCUMENTS):
        document = source.build(refusal.pieces, number)
        accepted = _find_accepted(probe, document, refusal, cuts[-1].pieces - 1 if cuts else None)
        if not cuts:
            search = _CutSearch(probe, document.shorten(accepted))
            search.ask([accepted - max(1, round(CHANGED_SHARE * accepted))])
            if not search.low:
                cut = _measure_cut(probe, source, source.count(document.prefix(accepted)), None)
                return replace(cut, refusal=message)
        cuts.append(_Cut(document, accepted + 1))
        length = _summarize(source, cuts, complete=False, refusal=message)
        if (len(cuts) >= source.min_documents and length.bounds.exact) or probe.requests >= MANY_REQUESTS:
            break
    return length


def _change(pieces: tuple[str, ...], pools: Sequence[Sequence[str]], rng: random.Random) -> _Document:
    """Return a document with a changed piece from each pool for every piece."""
    return _Document(pieces, tuple(tuple(_different_piece(piece, pool, rng) for piece in pieces) for pool in pools))


def _different_piece(piece: str, pool: Sequence[str], rng: random.Random) -> str:
    """Return a piece of the pool that begins with another character, so that its first token is another one, too."""
    for _ in range(20):
        if (other := rng.choice(pool))[:1].casefold() != piece[:1].casefold():
            return other
    return "x " if piece[:1].casefold() != "x" else "y "


class _RefusedError(Exception):
    """A model raises an error for a document of so many pieces."""

    def __init__(self, pieces: int, accepted: int, error: Exception) -> None:
        super().__init__(pieces, accepted, error)
        self.pieces, self.accepted, self.error = pieces, accepted, error


@dataclass
class _Probe:
    """Asks the model whether it reads what differs between texts."""

    encoder: Encoder
    advance: Callable[[], object]
    requests: int = 0
    noise: float = 0.0
    """Largest relative distance of two embeddings of the same input so far."""

    def compare(self, document: _Document, cuts: Sequence[int], variants: int) -> list[float]:
        """Return for every cut the distance of the embeddings if all after it is changed; from 1 on, it is no noise."""
        same = document.changed_after(len(document.pieces))
        changed = [document.changed_after(cut, variant) for cut in cuts for variant in range(variants)]
        self.requests += 1
        # Twice, at both ends of the batch: the distance of the two is rounding, as the input is the same.
        vectors = self.encoder([same, *changed, same], PromptType.document).astype(np.float64)
        self.advance()
        distances = np.linalg.norm(vectors[1:] - vectors[0], axis=1) / max(np.linalg.norm(vectors[0]), 1e-30)
        self.noise = max(self.noise, float(distances[-1]))
        ratios = distances[:-1] / max(MIN_DISTANCE, NOISE_FACTOR * self.noise)
        return [float(ratio) for ratio in ratios.reshape(len(cuts), variants).max(axis=1)]

    def accepts(self, text: str) -> bool:
        """Return whether the model encodes a text without an error."""
        self.requests += 1
        try:
            self.encoder([text], PromptType.document)
        except Exception:
            return False
        finally:
            self.advance()
        return True


@dataclass
class _CutSearch:
    """The search for the first cut in a document after which nothing is read."""

    probe: _Probe
    document: _Document
    known: dict[int, float] = field(default_factory=dict)
    """Distance by cut, from `_Probe.compare`."""
    coarse: set[int] = field(default_factory=set)
    """Cuts after which the text was changed in one way only."""

    @property
    def size(self) -> int:
        """Pieces of the document."""
        return len(self.document.pieces)

    @property
    def low(self) -> int:
        """The last cut after which something is read: a changed embedding is a proof, an unchanged one is not."""
        return max((cut for cut, ratio in self.known.items() if ratio > 1), default=0)

    @property
    def high(self) -> int:
        """The first cut beyond `low` after which nothing is read, as far as is known."""
        return min((cut for cut in self.known if cut > self.low), default=self.size)

    @property
    def complete(self) -> bool:
        """Whether the document is read to its end."""
        return self.low == self.size - 1

    def ask(self, cuts: Sequence[int], variants: int = 1) -> None:
        """Ask the model about cuts in one request."""
        self.known |= zip(cuts, self.probe.compare(self.document, cuts, variants), strict=True)
        self.coarse = self.coarse | set(cuts) if variants == 1 else self.coarse - set(cuts)

    def ask_near(self, guess: int, *, exactly: bool) -> None:
        """Ask about cuts near one that holds in another document; about this one first if it is likely to hold `exactly`."""
        if exactly:
            self.ask([cut for cut in (guess - 1, guess) if 0 < cut < self.size], variants=2)
        if self.high - self.low > 1:
            margin = max(8, guess // 16)
            self.ask([cut for cut in (guess - margin, guess + margin) if self.low < cut < self.high] or [guess])

    def finish(self) -> _Cut:
        """Find the cut by bisection."""
        while ((gap := self.high - self.low) > 1 or self.high in self.coarse) and self.probe.requests < MAX_REQUESTS:
            few = gap <= FEW_PIECES
            again = [self.high] if few and self.high in self.coarse else []
            parts = CUTS - len(again)
            cuts = {self.low + max(1, gap * part // (parts + 1)) for part in range(1, parts + 1)} - {self.high}
            self.ask([*sorted(cuts), *again], variants=2 if few else 1)
        slack = max(self.high - self.low - 1, self._find_slack())
        return _Cut(self.document, self.low + 1, min(slack, self.size - self.low - 1), self.probe.noise > NOISY)

    def _find_slack(self) -> int:
        """Return how many pieces after the cut may be read although their change is lost in the noise.

        The distance of the embeddings is taken to be proportional to the number of changed pieces that are read (as with mean
        pooling), from the nearest cut on that is clearly read. Nothing is lost if the last piece alone is clearly read.
        """
        clear = max((cut for cut, ratio in self.known.items() if ratio >= CLEAR_FACTOR), default=self.low)
        return math.ceil((self.high - clear) / (self.known[clear] - 1)) if 0 < clear < self.low else 0


def _find_size(probe: _Probe, source: _Source, limit: int, claimed: int | None) -> _CutSearch:
    """Return the search in a document that is long enough that its end is not read, or is of `limit` tokens.

    Raises _RefusedError if the model refuses a document.
    """
    size = round(claimed * CLAIM_FACTOR) if claimed else FIRST_PIECES
    known: dict[int, float] = {}
    while True:
        document = source.build(size, 0)
        if last := (tokens := source.count(document.prefix(size))) >= limit:
            size = max(ACCEPTED_PIECES, math.ceil(size * limit / tokens))
            document = document.shorten(size)
        # Documents of all sizes begin in the same way.
        search = _CutSearch(probe, document, {cut: ratio for cut, ratio in known.items() if ratio > 1})
        tail = size - max(1, round(CHANGED_SHARE * size))
        cuts = {tail, size - 1} if last else {tail}
        try:
            guess = claimed if claimed and claimed < size and not known else None
            if guess:
                search.ask([cut for cut in (guess - 1, guess) if cut], variants=2)
            if search.low == (guess or search.low):
                search.ask(sorted(cuts - set(search.known)))
        except Exception as error:
            raise _RefusedError(size, max(known, default=ACCEPTED_PIECES), error) from error
        known |= search.known
        if search.low < tail or last:
            return search
        size *= GROWTH


def _find_accepted(probe: _Probe, document: _Document, refusal: _RefusedError, guess: int | None) -> int:
    """Return how many pieces of a document a model accepts; raise its error if it refuses short documents, too.

    Raises:
        PosirError: It accepts the text, but not in a request with others.
    """
    low, high = ACCEPTED_PIECES if guess else refusal.accepted, refusal.pieces
    if guess is None:
        if not probe.accepts(document.prefix(ACCEPTED_PIECES)):
            raise refusal.error
        if probe.accepts(document.prefix(high)):
            raise PosirError(
                f"The model encodes a text of {high:,} words, but not several of them at a time "
                f"({summarize_error(refusal.error)}). Let the server accept larger requests."
            )
    elif probe.accepts(document.prefix(guess)):
        low, high = guess, high if probe.accepts(document.prefix(guess + 1)) else guess + 1
    while high - low > 1 and probe.requests < MAX_REQUESTS:
        middle = (low + high) // 2
        low, high = (middle, high) if probe.accepts(document.prefix(middle)) else (low, middle)
    return low


def _summarize(source: _Source, cuts: Sequence[_Cut], *, complete: bool, refusal: str = "") -> ReadingLength:
    """Return what the cuts in several documents say together: where they agree in a unit, what all of them allow."""
    texts = [(cut.document.prefix(cut.pieces - (not complete)), cut.document.prefix(cut.pieces + cut.slack)) for cut in cuts]
    counters = {"tokens": source.count_tokens, "words": count_words, "characters": len, "estimated": source.estimate}
    # The text without its last piece is accepted and read; of the piece, at least one token, word or character is read if the
    # model cuts the text there, and at least one is too many if the model refuses it.
    more, less = (0, 1) if refusal else (int(not complete), 0)
    agreed: list[str] = []
    bounds: dict[str, Bounds] = {}
    for unit, count in counters.items():
        if count is not None:
            lows, highs = zip(*((count(shorter) + more, count(longer) - less) for shorter, longer in texts), strict=True)
            # That a text is read so far is certain; that it is read no further is so where nothing is lost in the noise.
            certain = [high for high, cut in zip(highs, cuts, strict=True) if not cut.slack]
            hidden = not certain or any(cut.slack and cut.noisy for cut in cuts)
            highest = max(highs) if hidden else min(certain)
            agreed += [unit] if max(lows) <= highest else []
            bounds[unit] = Bounds(max(lows), highest) if max(lows) <= highest else Bounds(min(lows), max(highs))
    unit = next((unit for unit in agreed if unit != "estimated"), next(iter(bounds)))
    tokens, words, characters = bounds.get("tokens"), bounds["words"], bounds["characters"]
    synthetic = not source.texts
    return ReadingLength(complete, tokens, words, characters, bounds["estimated"], unit, len(cuts), refusal, synthetic)
