"""Sample usable texts from files, folders and tasks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from posir_tasks.base.errors import PosirError
from posir_tasks.base.public import DataReference
from posir_tasks.data.copies import digest_words
from posir_tasks.data.formats.passages import Passage, SkippedItem, describe_skipped
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.datasets.opening import open_data
from posir_tasks.text.languages import CONFUSED_LANGUAGES, detect_language
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.words import find_terms

Item = TypeVar("Item")

#: Returns the number of candidates, and candidates to examine in this order.
Sampler = Callable[[Iterable[Passage | SkippedItem]], tuple[int, list[Passage | SkippedItem]]]

#: Minimum number of words in a text.
MIN_WORDS = 10
#: Minimum confidence in the detected language of each half of a text.
MIN_CONFIDENCE = 0.8
SEED = 14


@dataclass(frozen=True)
class CollectedText:
    """A usable text."""

    name: str
    """Origin of the text: a file with line or row, or a document id."""
    text: str
    language: str
    """ISO 639-1 code of the language, or its ISO 639-3 code if it has none."""
    id: str = ""
    """Document id; an empty string stands for `name`."""


@dataclass(frozen=True)
class TextCollection:
    """A sample of usable texts."""

    name: str
    texts: Sequence[CollectedText]
    skipped: tuple[SkippedItem, ...]
    """Unusable texts that were examined."""
    language: str
    """ISO 639-1 code of the most frequent language, or its ISO 639-3 code if it has none."""
    languages: Mapping[str, int]
    """Number of texts by language, most frequent first."""
    total: int
    """Number of candidates in the data, sampled or not."""


def read_texts(
    source: DataReference, *, column: str | None = None, limit: int = 1000
) -> TextCollection:
    """Sample at most `limit` usable texts from any data; raise PosirError if there are none."""
    return sample_texts(open_data(source, column=column), limit)


def sample_texts(opened: Dataset, limit: int, sampler: Sampler | None = None) -> TextCollection:
    """Sample usable texts from a dataset.

    Args:
        opened: The dataset.
        limit: Maximum number of texts.
        sampler: Chooses the candidates to examine until there are enough texts; by default a random
            sample with a fixed seed.

    Raises:
        PosirError: There is no usable text.
    """
    if sampler is None:
        sampler = partial(sample_candidates, size=2 * limit)
    total, candidates = sampler(opened.read_texts())
    texts: list[CollectedText] = []
    skipped = []
    digests = set[bytes]()
    for candidate in candidates:
        if len(texts) == limit:
            break
        item = candidate if isinstance(candidate, SkippedItem) else _check_text(candidate, digests)
        if isinstance(item, SkippedItem):
            skipped.append(item)
        else:
            texts.append(item)
    if not texts:
        reasons = describe_skipped(skipped) or "It is empty, or has only a card (README.md)."
        raise PosirError(f"{opened.location}: no usable text. {reasons}")
    languages = dict(Counter(text.language for text in texts).most_common())
    main_language = next(iter(languages))
    return TextCollection(opened.name, texts, tuple(skipped), main_language, languages, total)


def sample_candidates(candidates: Iterable[Item], size: int) -> tuple[int, list[Item]]:
    """Return the number of candidates, and a random sample of at most `size` in random order.

    Uses reservoir sampling: one pass with a fixed seed.
    """
    rng = random.Random(SEED)
    sample: list[Item] = []
    count = 0
    for count, candidate in enumerate(candidates, start=1):
        if len(sample) < size:
            sample.append(candidate)
            continue
        index = rng.randrange(count)
        if index < size:
            sample[index] = candidate
    rng.shuffle(sample)
    return count, sample


def _check_text(passage: Passage, digests: set[bytes]) -> CollectedText | SkippedItem:
    """Return a usable text or the reason to skip it. Digests of usable texts are added to
    `digests`, to find duplicates.
    """
    text = passage.text
    skip = partial(SkippedItem, passage.name, file=passage.file)
    if not text.strip():
        return skip("empty")
    if len(find_terms(text)) < MIN_WORDS:
        return skip("with fewer than ten words")
    middle = len(text) // 2
    first, first_score = detect_language(text[:middle])
    second, second_score = detect_language(text[middle:])
    if are_distinct_languages(first, second) and min(first_score, second_score) >= MIN_CONFIDENCE:
        return skip("in mixed languages", f"{first}, then {second}")
    language = detect_language(text)[0]
    if len(find_sentences(text, language)) < 2:
        return skip("with only one sentence")
    content = digest_words(text)
    if content in digests:
        return skip("duplicate")
    digests.add(content)
    return CollectedText(passage.name, text, language, passage.id or passage.name)


def are_distinct_languages(left: str, right: str) -> bool:
    """Return True for two different languages that the detector does not confuse."""
    return left != right and not any({left, right} <= group for group in CONFUSED_LANGUAGES)
