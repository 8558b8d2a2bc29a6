"""Texts of a user: files, folders, data in the PosIR layout, tasks. What cannot be used is named
and skipped.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from posir_tasks.base.errors import PosirError
from posir_tasks.base.public import DataReference
from posir_tasks.data.copies import digest_words
from posir_tasks.data.formats.passages import Passage, SkippedText, describe_skipped
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data
from posir_tasks.text.languages import CONFUSED, detect_language
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.words import find_terms

Item = TypeVar("Item")

Draw = Callable[[Iterable[Passage | SkippedText]], tuple[int, list[Passage | SkippedText]]]

#: Fewest words of a text.
MIN_WORDS = 10
#: Confidence from which the language of half a text is taken as known.
SURE = 0.8
SEED = 14


@dataclass(frozen=True)
class CollectedText:
    """A text."""

    name: str
    """Origin of the text: a file, with the line or row in it, or the id of a document."""
    text: str
    language: str
    """Language by its ISO 639-1 code, or 639-3 if it has none."""
    id: str = ""
    """Id of the document; its name if its file states none."""


@dataclass(frozen=True)
class TextCollection:
    """Texts that can be inspected."""

    name: str
    texts: tuple[CollectedText, ...]
    skipped: tuple[SkippedText, ...]
    """Unusable texts among those that were examined."""
    language: str
    """The most frequent language, by its ISO 639-1 code, or 639-3 if it has none."""
    languages: Mapping[str, int]
    total: int
    """Texts and other files that were found; more than those used and skipped if a sample was
    drawn.
    """


def read_texts(
    source: DataReference, *, column: str | None = None, limit: int = 1000
) -> TextCollection:
    """Read at most `limit` documents of any data in which positions can be compared; raise
    PosirError if there is none.
    """
    return draw_texts(open_data(source, column=column), limit)


def draw_texts(opened: Dataset, limit: int, draw: Draw | None = None) -> TextCollection:
    """Return a sample of the documents of data in which positions can be compared.

    Args:
        opened: The data.
        limit: Most texts; of more, a random sample with a fixed seed.
        draw: Returns the number of candidates, and those that are examined, in this order, until
            there are enough.

    Raises:
        PosirError: There is none.
    """
    if draw is None:
        number, candidates = sample_candidates(opened.read_texts(), 2 * limit)
    else:
        number, candidates = draw(opened.read_texts())
    texts = list[CollectedText]()
    skipped = list[SkippedText]()
    seen = set[bytes]()
    for candidate in candidates:
        if len(texts) == limit:
            break
        checked = candidate if isinstance(candidate, SkippedText) else _check_text(candidate, seen)
        if isinstance(checked, SkippedText):
            skipped.append(checked)
        else:
            texts.append(checked)
    if not texts:
        skips = describe_skipped(skipped) or "It is empty, or has a card (README.md) alone."
        raise PosirError(f"{opened.location}: no text that can be used. {skips}")
    languages = dict(Counter(text.language for text in texts).most_common())
    main = next(iter(languages))
    return TextCollection(opened.name, tuple(texts), tuple(skipped), main, languages, number)


def sample_candidates(candidates: Iterable[Item], size: int) -> tuple[int, list[Item]]:
    """Return how many there are, and a random sample of at most `size` in random order, in one pass
    (reservoir sampling).
    """
    rng = random.Random(SEED)
    sample = list[Item]()
    count = 0
    for count, candidate in enumerate(candidates, start=1):
        if len(sample) < size:
            sample.append(candidate)
            continue
        place = rng.randrange(count)
        if place < size:
            sample[place] = candidate
    rng.shuffle(sample)
    return count, sample


def _check_text(passage: Passage, seen: set[bytes]) -> CollectedText | SkippedText:
    """Return a text with its language, or why it cannot be used; `seen` has the content of the
    texts before it.
    """
    text = passage.text
    skip = partial(SkippedText, passage.name, file=passage.file)
    if not text.strip():
        return skip("empty")
    if len(find_terms(text)) < MIN_WORDS:
        return skip("of fewer than ten words")
    middle = len(text) // 2
    first, first_score = detect_language(text[:middle])
    second, second_score = detect_language(text[middle:])
    if are_distinct(first, second) and min(first_score, second_score) >= SURE:
        return skip("in mixed languages", f"{first}, then {second}")
    language = detect_language(text)[0]
    if len(find_sentences(text, language)) < 2:
        return skip("of one sentence")
    content = digest_words(text)
    if content in seen:
        return skip("duplicate")
    seen.add(content)
    return CollectedText(passage.name, text, language, passage.id or passage.name)


def are_distinct(left: str, right: str) -> bool:
    """Return whether two languages differ and the detector does not take them for one another."""
    return left != right and not any({left, right} <= group for group in CONFUSED)
