"""Texts that differ in known places, and the search for the edge of what a model reads of them,
from its embeddings alone.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posir_tasks.base.errors import NoAnswerError
from posir_tasks.text.words import count_words, estimate_tokens, split_words

#: Relative distance of two embeddings of the same input, up to rounding: at least this, or a
#: multiple of what is measured.
MIN_DISTANCE = 3e-6
NOISE_FACTOR = 4.0
#: Distance of a single token's change, in multiples of the smallest that counts, from which a cut
#: is certain.
CLEAR_FACTOR = 4.0
#: Distance that stands for one that may be lost in the noise.
LOST = 1.01
#: Relative distance of two embeddings of the same input from which a server is noisy.
NOISY = 1e-5
#: Texts that are tried at the same time; with the unchanged one, they are fewer than those that an
#: endpoint may not give the same vector, as it does if it reads nothing of what differs.
CHANGES = 6
#: Cuts that are tried at the same time, with two variants each.
CUTS = CHANGES // 2
#: Distance between two cuts from which the changed tokens are few enough to be changed in two ways:
#: in one way, two tokens may happen to have the same vector.
FEW_PIECES = 16
#: Documents in which the cut is sought: at least and at most, until the length is known to the
#: token.
MIN_DOCUMENTS = 3
MAX_DOCUMENTS = 12
#: No document is begun after so many requests, and no request is sent after so many.
MANY_REQUESTS = 28
MAX_REQUESTS = 35
SEED = 14
#: Fewest words of a tokenizer's vocabulary that synthetic texts are made of.
MIN_VOCABULARY = 24
#: Frequent English words, which most vocabularies have as a token each: short ones and long ones,
#: since a limit in characters is reached after more short words than long ones.
SHORT_WORDS = """
the of and to in is for on as by at it an be or are was his has had not but all one two new can may
any who out use her him our now way day man see own old did get how men end put say she too big air
boy car eye far few got hot job key law led let low met oil pay red run sea set six sun ten top war
win yes yet age art bad box cut
"""
LONG_WORDS = """
because between without another through children country national government university different
important community president education development history following including military service
company political population business research language position industry question material
american english century science society process problem results october december january february
november several against general however program control support central council football himself
minister network private produced project record special station student western
"""

#: Returns the embeddings of n texts as documents, shape (n, dimensions).
DocumentEncoder: TypeAlias = Callable[[Sequence[str]], NDArray[Any]]
#: Returns the number of tokens of a text as the model's tokenizer does, without special ones.
TokenCounter: TypeAlias = Callable[[str], int]


@dataclass(frozen=True)
class ProbedText:
    """A text in pieces, and two times other pieces of the same number that differ from it
    everywhere.

    Positions count from the start of the text or, if it is `mirrored`, from its end.
    """

    pieces: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]
    stop: int
    """Position from which on nothing is changed: it is known that what follows is read, or that it
    is not.
    """
    mirrored: bool = False

    def prefix(self, cut: int) -> str:
        """Return the pieces before a position."""
        size = len(self.pieces)
        return "".join(self.pieces[size - cut :] if self.mirrored else self.pieces[:cut]).strip()

    def join(self, spans: Iterable[tuple[int, int]]) -> str:
        """Return the pieces of some spans, which count from the start."""
        return "".join(piece for start, end in spans for piece in self.pieces[start:end]).strip()

    def change(self, start: int, end: int, variant: int = 0) -> str:
        """Return the text with other pieces from a position to another."""
        if self.mirrored:
            start, end = len(self.pieces) - end, len(self.pieces) - start
        return "".join(self.pieces[:start] + self.others[variant][start:end] + self.pieces[end:])

    def shorten(self, size: int) -> ProbedText:
        """Return the first pieces as a text of their own."""
        return ProbedText(self.pieces[:size], tuple(pieces[:size] for pieces in self.others), size)

    def seen_from(self, *, end: bool, stop: int) -> ProbedText:
        """Return the document with positions from its start or end."""
        return replace(self, mirrored=end, stop=stop)


@dataclass(frozen=True)
class TextSource:
    """Documents of any size, put together from texts, or of frequent words if there are none."""

    texts: Sequence[str]
    count_tokens: TokenCounter | None

    def build(self, size: int, number: int) -> ProbedText:
        """Return a document of `size` pieces in a random order, which depends on the number
        alone.
        """
        rng = random.Random(SEED + number)
        if not self.texts:
            words = (SHORT_WORDS, LONG_WORDS)[number % 2].split()
            count = self.count_tokens
            # Those that the tokenizer has as a token each; all if it has few of them, or is
            # unknown.
            single_tokens = [
                word for word in words if count is None or count(f"{word} {word} {word}") == 3
            ]
            if len(single_tokens) >= MIN_VOCABULARY:
                words = single_tokens
            words = [f"{word} " for word in words]
            # The changed endings have other words, so that the mean of all words' vectors changes
            # with every one of them.
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

    @property
    def counters(self) -> dict[str, TokenCounter]:
        """Functions that count a text in each unit; tokens are estimated, too."""
        tokens = {"tokens": self.count_tokens} if self.count_tokens else {}
        return {
            **tokens,
            "words": count_words,
            "characters": len,
            "estimated_tokens": estimate_tokens if self.texts else count_words,
        }

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, estimated if the tokenizer is unknown."""
        return (self.count_tokens or self.counters["estimated_tokens"])(text)

    @property
    def min_documents(self) -> int:
        """Documents whose agreement is no coincidence: two of synthetic ones, in which words are of
        different lengths.
        """
        return MIN_DOCUMENTS if self.texts else 2


@dataclass(frozen=True)
class Cut:
    """The first cut in a document after which nothing is read."""

    document: ProbedText
    pieces: int
    slack: int = 0
    """Pieces after it that may be read, but whose change would be lost in the noise."""
    noisy: bool = False
    """Whether noise may hide the same pieces of several documents."""


def _change(
    pieces: tuple[str, ...], pools: Sequence[Sequence[str]], rng: random.Random
) -> ProbedText:
    """Return a document with a changed piece from each pool for every piece."""

    def differ(piece: str, pool: Sequence[str]) -> str:
        """Return a piece of the pool that begins with another character, so that its first token is
        another one, too.
        """
        for _ in range(20):
            if (other := rng.choice(pool))[:1].casefold() != piece[:1].casefold():
                return other
        return "x " if piece[:1].casefold() != "x" else "y "

    return ProbedText(
        pieces, tuple(tuple(differ(piece, pool) for piece in pieces) for pool in pools), len(pieces)
    )


@dataclass(frozen=True)
class RememberingEncoder:
    """Encodes documents, and keeps what is known of single texts: none is sent again, nor what
    begins with a refused one.
    """

    encode: DocumentEncoder
    answers: dict[str, NDArray[Any]] = field(default_factory=dict)
    refusals: dict[str, Exception] = field(default_factory=dict)

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return the embeddings of texts, shape (n, dimensions); raise the error of a text that was
        refused.
        """
        for refused, error in self.refusals.items():
            if any(text.startswith(refused) for text in texts):
                raise error
        if len(texts) == 1 and texts[0] in self.answers:
            return self.answers[texts[0]]
        try:
            vectors = self.encode(texts)
        except Exception as error:
            if len(texts) == 1:
                self.refusals[texts[0]] = error
            raise
        self.answers[texts[0]] = vectors[:1]
        return vectors


@dataclass
class ModelProbe:
    """Asks the model whether it reads what differs between texts."""

    encode: DocumentEncoder
    advance: Callable[[], object]
    requests: int = 0
    noise: float = 0.0
    """Largest relative distance of two embeddings of the same input so far."""

    def compare(
        self, document: ProbedText, changes: Sequence[tuple[int, int]], variants: int
    ) -> list[float]:
        """Return for every change, from a position to another, the distance of the embeddings; from
        1 on, it is no noise.
        """
        same = document.change(0, 0)
        changed = [
            document.change(*change, variant) for change in changes for variant in range(variants)
        ]
        self.requests += 1
        # Twice, at both ends of the batch: the distance of the two is rounding, as the input is the
        # same.
        vectors = self.encode([same, *changed, same]).astype(np.float64)
        self.advance()
        length = max(np.linalg.norm(vectors[0]), 1e-30)
        distances = np.linalg.norm(vectors[1:] - vectors[0], axis=1) / length
        self.noise = max(self.noise, float(distances[-1]))
        ratios = distances[:-1] / max(MIN_DISTANCE, NOISE_FACTOR * self.noise)
        return [float(ratio) for ratio in ratios.reshape(len(changes), variants).max(axis=1)]

    def find_read(
        self, document: ProbedText, blocks: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], float]:
        """Return for every block the distance of the embeddings if it is changed; above 1,
        something of it is read.

        So is a block that is too small for its change to be told from the noise, as far as is
        known.
        """
        if not blocks:
            return {}
        few = min(end - start for start, end in blocks) < FEW_PIECES
        number = CUTS if few else CHANGES
        ratios = list[float]()
        for first in range(0, len(blocks), number):
            ratios += self.compare(document, blocks[first : first + number], 2 if few else 1)
        sizes = np.array([end - start for start, end in blocks])
        distances = np.array(ratios)
        seen = distances > 1
        smallest = CLEAR_FACTOR / np.median(distances[seen] / sizes[seen]) if seen.any() else 0.0
        distances = np.where(sizes < smallest, np.maximum(distances, LOST), distances)
        return dict(zip(blocks, distances.tolist(), strict=True))

    def find_cut_texts(self, texts: Sequence[str], place: float = 1.0) -> list[bool]:
        """Return for each text whether the model refuses it, or does not read the word at a place
        in [0, 1], its last one.
        """
        pieces = [split_words(text) for text in texts]
        places = [round(place * (len(words) - 1)) for words in pieces]
        # Other words that begin with another letter: their first token is another one, too.
        others = [
            "box " if words[at][:1].casefold() != "b" else "yes "
            for words, at in zip(pieces, places, strict=True)
        ]
        changed = [
            "".join([*words[:at], other, *words[at + 1 :]])
            for words, at, other in zip(pieces, places, others, strict=True)
        ]
        self.requests += 1
        try:
            vectors = self.encode([*texts, *changed, texts[0]]).astype(np.float64)
        except NoAnswerError:
            raise
        except Exception:
            if len(texts) == 1:
                return [True]
            return [cut for text in texts for cut in self.find_cut_texts([text], place)]
        finally:
            self.advance()
        originals = vectors[: len(texts)]
        lengths = np.maximum(np.linalg.norm(originals, axis=1), 1e-30)
        distances = np.linalg.norm(vectors[len(texts) : -1] - originals, axis=1) / lengths
        noise = np.linalg.norm(vectors[-1] - vectors[0]) / lengths[0]
        cut: list[bool] = (distances <= max(MIN_DISTANCE, NOISE_FACTOR * noise)).tolist()
        return cut

    def accepts(self, text: str) -> bool:
        """Return whether the model encodes a text without an error; raise NoAnswerError if a server
        is only too slow.
        """
        self.requests += 1
        try:
            self.encode([text])
        except NoAnswerError:
            raise
        except Exception:
            return False
        finally:
            self.advance()
        return True


@dataclass
class CutSearch:
    """The search for the first cut in a document after which nothing is read."""

    probe: ModelProbe
    document: ProbedText
    known: dict[int, float] = field(default_factory=dict)
    """Distance by cut, from `ModelProbe.compare`."""
    coarse: set[int] = field(default_factory=set)
    """Cuts after which the text was changed in one way only."""

    @property
    def low(self) -> int:
        """The last cut after which something is read: a changed embedding is a proof, an unchanged
        one is not.
        """
        return max((cut for cut, ratio in self.known.items() if ratio > 1), default=0)

    @property
    def high(self) -> int:
        """The first cut beyond `low` after which nothing is read, as far as is known."""
        return min((cut for cut in self.known if cut > self.low), default=self.document.stop)

    def test_at(self, cuts: Sequence[int], variants: int = 1) -> None:
        """Ask the model about cuts in one request."""
        changes = [(cut, self.document.stop) for cut in cuts]
        ratios = self.probe.compare(self.document, changes, variants)
        self.known |= zip(cuts, ratios, strict=True)
        self.coarse -= set(cuts)
        if variants == 1:
            self.coarse |= set(cuts)

    def test_near(self, guess: int, *, exactly: bool) -> None:
        """Ask about cuts near one that holds in another document; about this one first if it is
        likely to hold `exactly`.
        """
        if exactly:
            likely = [cut for cut in (guess - 1, guess) if 0 < cut < self.document.stop]
            self.test_at(likely, variants=2)
        if self.high - self.low > 1:
            margin = max(8, guess // 16)
            around = (guess - margin, guess + margin)
            self.test_at([cut for cut in around if self.low < cut < self.high] or [guess])

    def finish(self) -> Cut:
        """Find the cut by bisection."""
        while self.probe.requests < MAX_REQUESTS:
            low = self.low
            high = self.high
            gap = high - low
            if gap <= 1 and high not in self.coarse:
                break
            few = gap <= FEW_PIECES
            again = [high] if few and high in self.coarse else []
            parts = CUTS - len(again)
            cuts = {low + max(1, gap * part // (parts + 1)) for part in range(1, parts + 1)}
            self.test_at([*sorted(cuts - {high}), *again], variants=2 if few else 1)
        # The distance of the embeddings is taken to be proportional to the number of changed pieces
        # that are read (as with mean pooling), from the nearest cut on that is clearly read.
        # Nothing is lost if the last piece alone is clearly read.
        low = self.low
        clear_cuts = [cut for cut, ratio in self.known.items() if ratio >= CLEAR_FACTOR]
        clear = max(clear_cuts, default=low)
        slack = self.high - low - 1
        if 0 < clear < low:
            slack = max(slack, math.ceil((self.high - clear) / (self.known[clear] - 1)))
        slack = min(slack, self.document.stop - low - 1)
        return Cut(self.document, low + 1, slack, self.probe.noise > NOISY)


def divide(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Return a range in parts of nearly the same size."""
    if end <= start:
        return []
    edges = np.linspace(start, end, min(parts, end - start) + 1).round().astype(int)
    return list(itertools.pairwise(edges.tolist()))
