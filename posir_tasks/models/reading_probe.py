"""Texts that differ in known places, and the search for the edge of what a model reads of them,
only from its embeddings.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posir_tasks.base.batches import split_batches
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
#: Size of a block from which it is changed in one way only: in one way, two tokens may happen to
#: have the same vector.
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
#: A range of the pieces of a text: its first position and its end.
Block: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class ProbedText:
    """A text in pieces, and two times other pieces of the same number that differ from it
    everywhere.

    Positions count from the start of the text or, if it is `mirrored`, from its end.
    """

    pieces: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]
    mirrored: bool = False

    @property
    def size(self) -> int:
        """Number of pieces."""
        return len(self.pieces)

    def prefix(self, cut: int) -> str:
        """Return the pieces before a position."""
        return self.join([(self.size - cut, self.size) if self.mirrored else (0, cut)])

    def join(self, blocks: Iterable[Block]) -> str:
        """Return the pieces of some blocks, which count from the start."""
        return "".join(piece for start, end in blocks for piece in self.pieces[start:end]).strip()

    def change(self, start: int, end: int, variant: int = 0) -> str:
        """Return the text with other pieces from a position to another."""
        if self.mirrored:
            start, end = self.size - end, self.size - start
        return "".join(self.pieces[:start] + self.others[variant][start:end] + self.pieces[end:])

    def shorten(self, size: int) -> ProbedText:
        """Return the first pieces as a text of their own."""
        return ProbedText(self.pieces[:size], tuple(pieces[:size] for pieces in self.others))

    def seen_from(self, *, end: bool) -> ProbedText:
        """Return the text with positions from its start or end."""
        return replace(self, mirrored=end)


@dataclass(frozen=True)
class TextSource:
    """Documents of any size, put together from texts, or of frequent words if there are none."""

    texts: Sequence[str]
    count_tokens: TokenCounter | None

    def build(self, size: int, number: int) -> ProbedText:
        """Build a document of `size` pieces in a random order, which depends only on the number."""
        rng = random.Random(SEED + number)
        pieces: list[str] = []
        if self.texts:
            order = list(self.texts)
            while len(pieces) < size:
                rng.shuffle(order)
                for text in order:
                    pieces += split_words(text.strip() + "\n")
                    if len(pieces) >= size:
                        break
            del pieces[size:]
            pools = [sorted(set(pieces))] * 2
        else:
            words = (SHORT_WORDS, LONG_WORDS)[number % 2].split()
            count = self.count_tokens
            # Those that the tokenizer has as a token each; all if it has few of them.
            if count:
                single_tokens = [word for word in words if count(f"{word} {word} {word}") == 3]
                if len(single_tokens) >= MIN_VOCABULARY:
                    words = single_tokens
            words = [f"{word} " for word in words]
            # The changed endings have other words, so that the mean of all words' vectors changes
            # with every one of them.
            pieces = rng.choices(words[::3], k=size)
            pools = [words[1::3], words[2::3]]

        def differ(piece: str, pool: Sequence[str]) -> str:
            """Choose a piece that begins with another character, so that its first token is
            another one, too.
            """
            for _ in range(20):
                other = rng.choice(pool)
                if other[:1].casefold() != piece[:1].casefold():
                    return other
            return "x " if piece[:1].casefold() != "x" else "y "

        others = tuple(tuple(differ(piece, pool) for piece in pieces) for pool in pools)
        return ProbedText(tuple(pieces), others)

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
        """Count the tokens of a text, estimated if the tokenizer is unknown."""
        return (self.count_tokens or self.counters["estimated_tokens"])(text)

    @property
    def min_documents(self) -> int:
        """Documents whose agreement is no coincidence: two of synthetic ones, in which words are of
        different lengths.
        """
        return MIN_DOCUMENTS if self.texts else 2


def _measure_distances(
    vectors: NDArray[np.float64], originals: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Measure the distances of vectors from others, relative to the length of the latter."""
    lengths = np.maximum(np.linalg.norm(originals, axis=1), 1e-30)
    distances: NDArray[np.float64] = np.linalg.norm(vectors - originals, axis=1) / lengths
    return distances


@dataclass
class ModelProbe:
    """Finds out whether a model reads what differs between texts."""

    encode: DocumentEncoder
    advance: Callable[[], object]
    requests: int = 0
    noise: float = 0.0
    """Largest relative distance of two embeddings of the same input so far."""

    def _request(self, texts: Sequence[str]) -> NDArray[np.float64]:
        self.requests += 1
        try:
            return self.encode(texts).astype(np.float64)
        finally:
            self.advance()

    def compare(
        self, document: ProbedText, changes: Sequence[Block], variants: int = 2
    ) -> list[float]:
        """Return the distance of the embeddings for every change, from a position to another; at
        least 1 if it is not noise.
        """
        same = document.change(0, 0)
        changed = [
            document.change(*change, variant) for change in changes for variant in range(variants)
        ]
        # Twice, at both ends of the batch: the distance of the two is rounding.
        vectors = self._request([same, *changed, same])
        distances = _measure_distances(vectors[1:], vectors[:1])
        self.noise = max(self.noise, float(distances[-1]))
        ratios = distances[:-1] / max(MIN_DISTANCE, NOISE_FACTOR * self.noise)
        largest: list[float] = ratios.reshape(len(changes), variants).max(axis=1).tolist()
        return largest

    def find_read(self, document: ProbedText, blocks: Sequence[Block]) -> dict[Block, float]:
        """Return the distance of the embeddings for a change of every block; above 1 if
        something of the block is read.

        So is a block that is too small for its change to be told from the noise, as far as is
        known.
        """
        few = min((end - start for start, end in blocks), default=0) < FEW_PIECES
        number = CUTS if few else CHANGES
        ratios: list[float] = []
        for batch in split_batches(blocks, number):
            ratios += self.compare(document, batch, 2 if few else 1)
        sizes = np.array([end - start for start, end in blocks])
        distances = np.array(ratios)
        seen = distances > 1
        if seen.any():
            smallest = CLEAR_FACTOR / np.median(distances[seen] / sizes[seen])
            distances = np.where(sizes < smallest, np.maximum(distances, LOST), distances)
        return dict(zip(blocks, distances.tolist(), strict=True))

    def find_cut_texts(self, texts: Sequence[str], place: float = 1.0) -> list[bool]:
        """Return for each text whether the model refuses it, or does not read the word at a place
        in [0, 1], its last one.
        """
        changed: list[str] = []
        for text in texts:
            words = split_words(text)
            index = round(place * (len(words) - 1))
            # Another word that begins with another letter: its first token is another one, too.
            words[index] = "box " if words[index][:1].casefold() != "b" else "yes "
            changed.append("".join(words))
        try:
            vectors = self._request([*texts, *changed, texts[0]])
        except NoAnswerError:
            raise
        except Exception:
            if len(texts) == 1:
                return [True]
            return [cut for text in texts for cut in self.find_cut_texts([text], place)]
        originals = vectors[[*range(len(texts)), 0]]
        *distances, noise = _measure_distances(vectors[len(texts) :], originals).tolist()
        return [distance <= max(MIN_DISTANCE, NOISE_FACTOR * noise) for distance in distances]

    def accepts(self, text: str) -> bool:
        """Return whether the model encodes a text without an error; raise NoAnswerError if a server
        is only too slow.
        """
        try:
            self._request([text])
        except NoAnswerError:
            raise
        except Exception:
            return False
        return True


@dataclass(frozen=True)
class Cut:
    """The first cut in a document after which nothing is read."""

    document: ProbedText
    pieces: int
    slack: int = 0
    """Pieces after it that may be read, but whose change would be lost in the noise."""
    noisy: bool = False
    """Whether noise may hide the same pieces of several documents."""


def search_cut(
    probe: ModelProbe,
    document: ProbedText,
    stop: int,
    ratios: Mapping[int, float] | None = None,
    guess: int = 0,
    *,
    exactly: bool = False,
) -> Cut:
    """Find the first cut in a document after which nothing is read, by bisection.

    Args:
        probe: The model.
        document: The document.
        stop: Position from which on nothing is changed: it is known that what follows is read, or
            that it is not.
        ratios: Distances by cut that are known, from `ModelProbe.compare`.
        guess: The cut in another document, near which this one is sought first; 0 for none.
        exactly: Whether it is likely to be this very cut.
    """
    known_ratios = dict(ratios or {})

    def test(cuts: Sequence[int]) -> None:
        distances = probe.compare(document, [(cut, stop) for cut in cuts])
        known_ratios.update(zip(cuts, distances, strict=True))

    def find_bounds() -> tuple[int, int]:
        """Find the last cut after which something is read, and the next that was tested. A changed
        embedding is a proof, an unchanged one is not.
        """
        low = max((cut for cut, ratio in known_ratios.items() if ratio > 1), default=0)
        return low, min((cut for cut in known_ratios if cut > low), default=stop)

    if exactly:
        test([cut for cut in (guess - 1, guess) if 0 < cut < stop])
    low, high = find_bounds()
    if guess and high - low > 1:
        margin = max(8, guess // 16)
        test([cut for cut in (guess - margin, guess + margin) if low < cut < high] or [guess])
        low, high = find_bounds()
    while high - low > 1 and probe.requests < MAX_REQUESTS:
        edges = np.linspace(low, high, CUTS + 2)[1:-1].astype(int).tolist()
        test(sorted({max(low + 1, cut) for cut in edges}))
        low, high = find_bounds()
    # The distance of the embeddings is taken to be proportional to the number of changed pieces
    # that are read (as with mean pooling), from the nearest cut on that is clearly read. Nothing is
    # lost if the last piece is clearly read.
    clear_cuts = [cut for cut, ratio in known_ratios.items() if ratio >= CLEAR_FACTOR]
    clear = max(clear_cuts, default=low)
    slack = high - low - 1
    if 0 < clear < low:
        slack = max(slack, math.ceil((high - clear) / (known_ratios[clear] - 1)))
    return Cut(document, low + 1, min(slack, stop - low - 1), probe.noise > NOISY)


def divide(start: int, end: int, parts: int) -> list[Block]:
    """Divide a range into parts of nearly the same size."""
    if end <= start:
        return []
    edges = np.linspace(start, end, min(parts, end - start) + 1).round().astype(int)
    return list(itertools.pairwise(edges.tolist()))
