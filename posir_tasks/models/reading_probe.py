"""Compare embeddings of texts that differ in known positions to find where reading stops."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posir_tasks.base.arrays import Floats
from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import NoResponseError
from posir_tasks.text.words import count_words, estimate_tokens, split_words

#: Relative distances between embeddings count as rounding up to this distance, or up to this
#: multiple of the measured noise.
MIN_DISTANCE = 3e-6
NOISE_FACTOR = 4.0
#: Minimum ratio of a distance to the noise limit for a clear effect.
CLEAR_FACTOR = 4.0
#: Minimum ratio assigned to a block whose effect noise may hide, so that the block counts as read.
HIDDEN_RATIO = 1.01
#: A server is noisy if two embeddings of the same input have a larger relative distance.
NOISY_DISTANCE = 1e-5
#: Changed texts per request. There are fewer than `MIN_DISTINCT`, since the endpoint client rejects
#: equal vectors for many texts.
CHANGES = 6
#: Cuts per request, with two variants each.
CUTS = CHANGES // 2
#: Smaller blocks are changed in two variants, since two tokens may have the same vector.
FEW_PIECES = 16
#: Minimum and maximum number of documents to search for the cut.
MIN_DOCUMENTS = 3
MAX_DOCUMENTS = 12
#: Number of requests after which no further document is tested, and maximum number of requests.
MANY_REQUESTS = 28
MAX_REQUESTS = 35
SEED = 14
#: Minimum number of single-token words for a synthetic text of only such words.
MIN_VOCABULARY = 24
#: Frequent English words, mostly single tokens. Short and long words show whether a limit is in
#: tokens or characters.
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

#: Encodes n texts as documents, shape (n, dimensions).
DocumentEncoder: TypeAlias = Callable[[Sequence[str]], NDArray[Any]]
#: Counts a text's tokens with the model's tokenizer, without special tokens.
TokenCounter: TypeAlias = Callable[[str], int]
#: A half-open range of pieces.
Block: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class ProbedText:
    """A text in pieces, with two variants in which every piece differs.

    Positions are counted from the start of the text, or from its end if `from_end` is true.
    """

    pieces: list[str]
    variants: list[list[str]]
    from_end: bool = False

    @property
    def size(self) -> int:
        """Number of pieces."""
        return len(self.pieces)

    def prefix(self, cut: int) -> str:
        """Return the pieces before a position."""
        return self.join([(self.size - cut, self.size) if self.from_end else (0, cut)])

    def join(self, blocks: Iterable[Block]) -> str:
        """Join the pieces of blocks. Positions are counted from the start."""
        return "".join(piece for start, end in blocks for piece in self.pieces[start:end]).strip()

    def change(self, start: int, end: int, variant: int = 0) -> str:
        """Replace a block with the pieces of a variant."""
        if self.from_end:
            start, end = self.size - end, self.size - start
        return "".join(self.pieces[:start] + self.variants[variant][start:end] + self.pieces[end:])

    def shorten(self, size: int) -> ProbedText:
        """Return a text with only the first pieces."""
        return ProbedText(self.pieces[:size], [pieces[:size] for pieces in self.variants])

    def view(self, *, from_end: bool) -> ProbedText:
        """Return the text with positions counted from its start or end."""
        return replace(self, from_end=from_end)


@dataclass(frozen=True)
class TextSource:
    """Builds documents of any size from texts or, without texts, from frequent words."""

    texts: Sequence[str]
    count_tokens: TokenCounter | None

    def build(self, size: int, seed: int) -> ProbedText:
        """Build a document of `size` pieces in random order. Without texts, words are short for
        even seeds and long for odd seeds.
        """
        rng = random.Random(SEED + seed)
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
            words = (SHORT_WORDS, LONG_WORDS)[seed % 2].split()
            count = self.count_tokens
            if count:
                single_tokens = [word for word in words if count(f"{word} {word} {word}") == 3]
                if len(single_tokens) >= MIN_VOCABULARY:
                    words = single_tokens
            words = [f"{word} " for word in words]
            # Variants use different words, so that each change affects the mean of the vectors.
            pieces = rng.choices(words[::3], k=size)
            pools = [words[1::3], words[2::3]]

        def choose_different_piece(piece: str, pool: Sequence[str]) -> str:
            """Choose a piece with a different first character, and thus a different first token."""
            for _ in range(20):
                candidate = rng.choice(pool)
                if candidate[:1].casefold() != piece[:1].casefold():
                    return candidate
            return "x "

        return ProbedText(
            pieces, [[choose_different_piece(piece, pool) for piece in pieces] for pool in pools]
        )

    @property
    def counters(self) -> dict[str, TokenCounter]:
        """Length counters by unit."""
        tokens = {"tokens": self.count_tokens} if self.count_tokens else {}
        return {
            **tokens,
            "words": count_words,
            "characters": len,
            "estimated_tokens": estimate_tokens if self.texts else count_words,
        }

    def count(self, text: str) -> int:
        """Count the tokens of a text, or estimate them if the tokenizer is unknown."""
        return (self.count_tokens or self.counters["estimated_tokens"])(text)

    @property
    def min_documents(self) -> int:
        """Number of documents with the same limit that cannot be a coincidence. Two synthetic
        documents are enough, since one has short words and the other long words.
        """
        return MIN_DOCUMENTS if self.texts else 2


def _measure_distances(vectors: Floats, originals: Floats) -> Floats:
    """Return the distances between vectors and originals, relative to the originals' lengths."""
    lengths = np.maximum(np.linalg.norm(originals, axis=1), 1e-30)
    distances: Floats = np.linalg.norm(vectors - originals, axis=1) / lengths
    return distances


@dataclass
class ModelProbe:
    """Tests whether a model reads the differences between texts."""

    encode: DocumentEncoder
    advance: Callable[[], object]
    requests: int = 0
    noise: float = 0.0
    """Maximum relative distance between two embeddings of the same input so far."""

    def _request(self, texts: Sequence[str]) -> Floats:
        self.requests += 1
        try:
            return self.encode(texts).astype(np.float64)
        finally:
            self.advance()

    def compare(
        self, document: ProbedText, changes: Sequence[Block], variants: int = 2
    ) -> list[float]:
        """Return the effect of changing each block: the distance between embeddings relative to the
        noise limit. Above 1, the embedding has changed.
        """
        original = document.change(0, 0)
        changed_texts = [
            document.change(*change, variant) for change in changes for variant in range(variants)
        ]
        # Encode the original at both ends of the batch to measure the noise.
        vectors = self._request([original, *changed_texts, original])
        distances = _measure_distances(vectors[1:], vectors[:1])
        self.noise = max(self.noise, float(distances[-1]))
        ratios = distances[:-1] / max(MIN_DISTANCE, NOISE_FACTOR * self.noise)
        largest: list[float] = ratios.reshape(len(changes), variants).max(axis=1).tolist()
        return largest

    def test_blocks(self, document: ProbedText, blocks: Sequence[Block]) -> dict[Block, float]:
        """Return the effect of changing each block as in `compare`. Above 1, the model reads some
        of the block. Blocks that are too small for a measurable effect count as read.
        """
        sizes = np.array([end - start for start, end in blocks])
        is_small = sizes.min(initial=FEW_PIECES) < FEW_PIECES
        results: list[float] = []
        for batch in split_batches(blocks, CUTS if is_small else CHANGES):
            results += self.compare(document, batch, 2 if is_small else 1)
        ratios = np.array(results)
        is_read = ratios > 1
        if is_read.any():
            measurable_size = CLEAR_FACTOR / np.median(ratios[is_read] / sizes[is_read])
            ratios = np.where(sizes < measurable_size, np.maximum(ratios, HIDDEN_RATIO), ratios)
        return dict(zip(blocks, ratios.tolist(), strict=True))

    def find_truncated(self, texts: Sequence[str], position: float = 1.0) -> list[bool]:
        """Return True for each text that the model rejects or in which it does not read the word at
        a relative position in [0, 1].
        """
        changed_texts: list[str] = []
        for text in texts:
            words = split_words(text)
            index = round(position * (len(words) - 1))
            # A different first letter changes the first token.
            words[index] = "box " if words[index][:1].casefold() != "b" else "yes "
            changed_texts.append("".join(words))
        try:
            vectors = self._request([*texts, *changed_texts, texts[0]])
        except NoResponseError:
            raise
        except Exception:
            if len(texts) == 1:
                return [True]
            return [cut for text in texts for cut in self.find_truncated([text], position)]
        originals = vectors[[*range(len(texts)), 0]]
        *distances, noise = _measure_distances(vectors[len(texts) :], originals).tolist()
        return [distance <= max(MIN_DISTANCE, NOISE_FACTOR * noise) for distance in distances]

    def accepts(self, text: str) -> bool:
        """Return True if the model encodes a text. Raise NoResponseError if it takes too long."""
        try:
            self._request([text])
        except NoResponseError:
            raise
        except Exception:
            return False
        return True


@dataclass(frozen=True)
class Cut:
    """Number of pieces of a document after which nothing is read."""

    document: ProbedText
    pieces: int
    slack: int = 0
    """Number of additional pieces that may be read, with an effect that noise may hide."""
    noisy: bool = False
    """If true, noise may hide pieces in every document."""


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
        stop: End of the changed text. Later text is already tested.
        ratios: Results of `ModelProbe.compare` so far, by cut.
        guess: Cut to test first, such as the cut in another document; 0 if unknown.
        exactly: If true, the cut is probably exactly `guess`.
    """
    effects = dict(ratios or {})

    def test(cuts: Sequence[int]) -> tuple[int, int]:
        """Test cuts. Return the last cut after which text is read, and the next tested cut. Only a
        changed embedding is proof.
        """
        if cuts:
            distances = probe.compare(document, [(cut, stop) for cut in cuts])
            effects.update(zip(cuts, distances, strict=True))
        low = max((cut for cut, ratio in effects.items() if ratio > 1), default=0)
        return low, min((cut for cut in effects if cut > low), default=stop)

    first_cuts = [guess - 1, guess] if exactly else []
    low, high = test([cut for cut in first_cuts if 0 < cut < stop])
    if guess and high - low > 1:
        margin = max(8, guess // 16)
        cuts = [cut for cut in (guess - margin, guess + margin) if low < cut < high]
        low, high = test(cuts or [guess])
    while high - low > 1 and probe.requests < MAX_REQUESTS:
        edges = np.linspace(low, high, CUTS + 2)[1:-1].astype(int).tolist()
        low, high = test(sorted({max(low + 1, cut) for cut in edges}))
    # Assume that the effect is proportional to the number of changed pieces that are read, as with
    # mean pooling, and extrapolate from the last cut with a clear effect.
    clear_cuts = [cut for cut, ratio in effects.items() if ratio >= CLEAR_FACTOR]
    clear = max(clear_cuts, default=low)
    slack = high - low - 1
    if 0 < clear < low:
        slack = max(slack, math.ceil((high - clear) / (effects[clear] - 1)))
    return Cut(document, low + 1, min(slack, stop - low - 1), probe.noise > NOISY_DISTANCE)


def split_range(start: int, end: int, parts: int) -> list[Block]:
    """Split a range into blocks of nearly equal size."""
    if end <= start:
        return []
    edges = np.linspace(start, end, min(parts, end - start) + 1).round().astype(int)
    return list(itertools.pairwise(edges.tolist()))
