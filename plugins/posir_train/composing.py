"""Documents composed so that the evidence is at a chosen place; spans stay true.

Natural windows are cut from longer documents, so that the answer lies in one third of the window. Mosaics put the passage with
the answer between passages of other articles, which exaggerates effects: a model learns to tell unrelated passages apart.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posir_tasks.display.progress import progress
from posir_tasks.text.tokenizer import Tokenizer, TokenSpans
from posir_tasks.text.words import find_words
from posir_train.examples import Example, Examples, TrainingDocument
from posir_train.settings import Position, find_position

#: Places of a window that are tried before a question is skipped.
TRIES = 20
#: Between the passages of a mosaic.
SEPARATOR = "\n\n"

TOO_LONG = "answer longer than a third of a window"
NO_ROOM = "no window with the answer in the third"
NO_MATCH = "answer not in one passage"


@dataclass(frozen=True)
class TokenizedExample:
    """An example, the tokens of its document, and which of them the evidence is."""

    example: Example
    tokens: TokenSpans
    first: int
    """First token of the evidence."""
    last: int
    """One past its last token."""


def tokenize_examples(data: Examples, tokenizer: Tokenizer) -> list[TokenizedExample]:
    """Return the examples with the tokens of their documents; each text is tokenized once."""
    texts = list(dict.fromkeys(document.text for document in data.documents))
    tokens = dict(zip(texts, tokenizer.find_tokens(texts), strict=True))
    located = []
    for example in data.examples:
        own = tokens[example.document.text]
        first = int(np.searchsorted(own[:, 1], example.start, side="right"))
        last = int(np.searchsorted(own[:, 0], example.end, side="left"))
        located.append(TokenizedExample(example, own, first, max(last, first + 1)))
    return located


@dataclass(frozen=True)
class WindowComposer:
    """Cuts natural windows of at most so many tokens out of documents, at word borders."""

    tokens: int

    def compose(self, source: TokenizedExample, position: Position, rng: random.Random) -> Example | str:
        """Return the question with a window whose third at the position has the whole evidence, or why there is none."""
        third, total = self.tokens / len(Position), len(source.tokens)
        if source.last - source.first > third:
            return TOO_LONG
        lowest = max(0, int(np.ceil(source.last - (position + 1) * third)))
        highest = min(total - self.tokens, source.first - int(np.ceil(position * third)))
        starts = range(lowest, highest + 1)
        for start in rng.sample(starts, min(TRIES, len(starts))):
            low, high = source.tokens[start][0], source.tokens[start + self.tokens - 1][1]
            window = cut_window(source.example, int(low), int(high))
            if window and {window.position, _edge(window, window.start), _edge(window, window.end - 1)} == {position}:
                return window
        return NO_ROOM


def _edge(example: Example, character: int) -> Position:
    return find_position(character, character + 1, len(example.document.text))


def cut_window(example: Example, low: int, high: int) -> Example | None:
    """Return an example with the words of its document between two characters; None if that cuts its evidence off."""
    text = example.document.text
    # Words that an end divides are left out.
    while 0 < low < len(text) and not text[low - 1].isspace() and not text[low].isspace() and low < example.start:
        low += 1
    while high < len(text) and not text[high].isspace() and not text[high - 1].isspace() and high > example.end:
        high -= 1
    window = text[low:high]
    low += len(window) - len(window.lstrip())
    high -= len(window) - len(window.rstrip())
    if not low <= example.start < example.end <= high:
        return None
    document = TrainingDocument(
        f"{example.document.id}:{low}-{high}", text[low:high], example.document.corpus, example.document.article
    )
    return Example(example.id, example.question, document, example.start - low, example.end - low)


@dataclass(frozen=True)
class MosaicComposer:
    """Puts a passage with the evidence between passages of other articles of the same group."""

    tokens: int
    fillers: Mapping[str, Sequence[tuple[str, str]]]
    """Passages of the articles of each group: article and text."""
    groups: Mapping[str, str]
    """Group of each article."""

    def compose(self, source: TokenizedExample, position: Position, rng: random.Random) -> Example | str:
        """Return the question with a mosaic of three passages of equal length, one with the evidence, or why there is none."""
        size, document = self.tokens // len(Position), source.example.document
        if source.last - source.first > size:
            return TOO_LONG
        start = rng.randint(max(0, source.last - size), max(0, min(source.first, len(source.tokens) - size)))
        end = min(start + size, len(source.tokens)) - 1
        passage = cut_window(source.example, int(source.tokens[start][0]), int(source.tokens[end][1]))
        if passage is None:
            return NO_MATCH
        group = self.groups[document.article]
        others = [text for article, text in self.fillers[group] if article != document.article]
        if len(others) < len(Position) - 1:
            return "too few passages of other articles"
        parts = rng.sample(others, len(Position) - 1)
        parts.insert(position, passage.document.text)
        shift = sum(len(part) + len(SEPARATOR) for part in parts[:position])
        name = f"{passage.document.id}:{position.title}:{rng.getrandbits(32):08x}"
        mosaic = TrainingDocument(name, SEPARATOR.join(parts), document.corpus, group)
        composed = Example(source.example.id, source.example.question, mosaic, passage.start + shift, passage.end + shift)
        return composed if composed.position == position else NO_ROOM


def build_mosaic_composer(sources: Sequence[TokenizedExample], tokens: int, groups: int, seed: int) -> MosaicComposer:
    """Divide the articles into groups, and their documents into passages that fill mosaics of the same group.

    Training and held-out data are divided by group, so that no passage is in both.
    """
    articles = sorted({source.example.document.article for source in sources})
    random.Random(seed).shuffle(articles)
    group_of = {article: f"group {number % groups + 1}" for number, article in enumerate(articles)}
    fillers: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for document, spans in {source.example.document: source.tokens for source in sources}.items():
        for text in _divide(document.text, spans, tokens // len(Position)):
            fillers[group_of[document.article]].append((document.article, text))
    return MosaicComposer(tokens, fillers, group_of)


def _divide(text: str, tokens: TokenSpans, size: int) -> Iterator[str]:
    """Yield consecutive passages of about so many tokens, at word borders; the short rest is left out."""
    words = [start for start, _ in find_words(text)]
    for first in range(0, len(tokens) - size + 1, size):
        low, high = (
            words[max(0, np.searchsorted(words, tokens[place][0], side="right") - 1)] for place in (first, first + size - 1)
        )
        yield text[low:high].rstrip()


def compose_examples(
    sources: Sequence[TokenizedExample],
    composer: WindowComposer | MosaicComposer,
    seed: int,
    shares: Sequence[float] | None = None,
) -> tuple[list[list[Example]], Counter[str]]:
    """Compose every question once with its evidence at a random position, drawn by shares, or without them at each position.

    These are corpora of a Latin square: each has every question once, and each position equally often; over the corpora a
    question has all positions. Questions that cannot be composed with some position are skipped.

    Returns:
        The examples of each corpus, and how many questions were skipped, by reason.
    """
    corpora: list[list[Example]] = [[] for _ in (Position if shares is None else (None,))]
    skipped: Counter[str] = Counter()
    for source in progress(sources, "Composing"):
        rng = random.Random(f"{seed}\0{source.example.document.id}\0{source.example.id}")
        positions = list(Position) if shares is None else rng.choices(list(Position), shares)
        outcomes = [composer.compose(source, position, rng) for position in positions]
        composed = [outcome for outcome in outcomes if isinstance(outcome, Example)]
        if len(composed) < len(outcomes):
            skipped[next(outcome for outcome in outcomes if isinstance(outcome, str))] += 1
            continue
        number = len(corpora[0])
        for corpus, examples in enumerate(corpora):
            examples.append(composed[(number + corpus) % len(composed)])
    return corpora, skipped
