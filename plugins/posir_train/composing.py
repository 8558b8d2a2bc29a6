"""Documents composed so that the evidence is at a chosen position; spans stay true.

Natural windows are cut from longer documents, so that the answer lies in one third of the window.
Where evidence is moved within its document, the position alone differs. Mosaics put the passage
with the answer between passages of other articles, which exaggerates effects: a model learns to
tell unrelated passages apart. Needles are the sentences with the evidence between sentences of
other articles, for documents of any length.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from posir_tasks.base.progress import progress
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import Tokenizer, TokenSpans
from posir_tasks.text.words import find_words, is_unspaced
from posir_train.examples import Example, TokenizedExample, TrainingDocument
from posir_train.settings import Position, find_position

#: Windows that are tried before a question is skipped.
MAX_TRIES = 20
#: Between the passages of a mosaic.
SEPARATOR = "\n\n"
#: Reasons to skip a question.
TOO_LONG = "answer longer than a third of a window"
NO_ROOM = "no window with the answer in the third"
NOT_MOVED = "sentences with the answer cannot be moved into the third"
DIVIDED = "answer not in one passage"
FEW_PASSAGES = "too few passages of other articles"
FEW_TEXTS = "too little text of other articles"
LONG_NEEDLE = "sentences with the answer longer than the document"
#: Places of needles in a document, from its start to its end.
PLACES = 10

#: Returns a question with its evidence at a position, or why there is none.
Composer: TypeAlias = Callable[[TokenizedExample, Position, random.Random], Example | str]


def compose_window(
    source: TokenizedExample, position: Position, rng: random.Random, *, tokens: int
) -> Example | str:
    """Compose a natural window of at most so many tokens, cut at word borders, whose third at the
    position has the whole evidence; return the reason if there is none.
    """
    third = tokens / len(Position)
    if source.last - source.first > third:
        return TOO_LONG
    lowest = max(0, math.ceil(source.last - (position + 1) * third))
    latest = source.first - math.ceil(position * third)
    starts = range(lowest, min(len(source.tokens) - tokens, latest) + 1)
    for start in rng.sample(starts, min(MAX_TRIES, len(starts))):
        window = _cut_window(source, start, start + tokens)
        if window is None:
            continue
        # The evidence is in one third, its first and last character included.
        characters = len(window.document.text)
        first = find_position(window.start, window.start + 1, characters)
        last = find_position(window.end - 1, window.end, characters)
        if first == last == position:
            return window
    return NO_ROOM


def _cut_window(source: TokenizedExample, first: int, end: int) -> Example | None:
    """Return an example with some tokens of its document; None if that cuts its evidence off."""
    example = source.example
    text = example.document.text
    low = int(source.tokens[first, 0])
    high = int(source.tokens[end - 1, 1])
    # Words that an end divides are left out.
    while low < example.start and _divides_word(text, low):
        low += 1
    while high > example.end and _divides_word(text, high):
        high -= 1
    low += len(text[low:high]) - len(text[low:high].lstrip())
    high = low + len(text[low:high].rstrip())
    if not low <= example.start < example.end <= high:
        return None
    name = f"{example.document.id}:{low}-{high}"
    document = replace(example.document, id=name, text=text[low:high], tokens=0)
    return _move(example, document, -low)


def _divides_word(text: str, place: int) -> bool:
    """Tell whether a place in a text is within a word."""
    around = text[max(0, place - 1) : place + 1]
    return len(around) == 2 and not any(map(str.isspace, around))


def compose_mosaic(
    source: TokenizedExample,
    position: Position,
    rng: random.Random,
    *,
    tokens: int,
    fillers: Mapping[str, Sequence[tuple[str, str]]],
    groups: Mapping[str, str],
) -> Example | str:
    """Compose a mosaic of three passages of equal length, one with the evidence; return the reason
    if there is none.

    The others are of other articles of the same group; `fillers` has article and text of the
    passages of each group.
    """
    size = tokens // len(Position)
    document = source.example.document
    if source.last - source.first > size:
        return TOO_LONG
    number = len(source.tokens)
    start = rng.randint(max(0, source.last - size), max(0, min(source.first, number - size)))
    passage = _cut_window(source, start, min(start + size, number))
    if passage is None:
        return DIVIDED
    group = groups[document.article]
    others = [text for article, text in fillers[group] if article != document.article]
    if len(others) < 2:
        return FEW_PASSAGES
    parts = rng.sample(others, 2)
    parts.insert(position, passage.document.text)
    name = f"{passage.document.id}:{position.title}:{rng.getrandbits(32):08x}"
    mosaic = TrainingDocument(name, SEPARATOR.join(parts), document.corpus, group)
    shift = sum(len(part) + len(SEPARATOR) for part in parts[:position])
    composed = _move(passage, mosaic, shift)
    return composed if composed.position == position else NO_ROOM


def _move(example: Example, document: TrainingDocument, shift: int) -> Example:
    """Return an example with its evidence so many characters later, in another document."""
    return replace(example, document=document, start=example.start + shift, end=example.end + shift)


def compose_moved(
    source: TokenizedExample, position: Position, _: random.Random, *, language: str
) -> Example | str:
    """Move the sentences of the evidence before, among or behind the others; return the reason if
    that is impossible.
    """
    text = source.example.document.text
    moved, others = _part_sentences(source.example, find_sentences(text, language))
    if moved is None or len(others) < 2:
        return NOT_MOVED
    name = f"{source.example.document.id}:{position.title}"
    composed = _insert(source.example, moved, [span.of(text) for span in others], position / 2)
    composed = replace(composed, document=replace(composed.document, id=name))
    return composed if composed.position == position else NOT_MOVED


def _part_sentences(example: Example, sentences: Sequence[Span]) -> tuple[Span | None, list[Span]]:
    """Return the part of a document whose sentences have the evidence, None if there is none, and
    the other sentences.
    """
    others = [span for span in sentences if span.end <= example.start or example.end <= span.start]
    around = [span for span in sentences if span not in others]
    return (Span(around[0].start, around[-1].end) if around else None), others


def _insert(example: Example, part: Span, others: Sequence[str], share: float) -> Example:
    """Return an example with a part of its document between texts, after a share of them."""
    text = example.document.text
    space = "" if is_unspaced(text) else " "
    lengths = np.array([len(space.join(others[:number])) for number in range(len(others) + 1)])
    number = int(np.abs(lengths - lengths[-1] * share).argmin())
    before = int(lengths[number]) + len(space) if number else 0
    joined = space.join([*others[:number], part.of(text), *others[number:]])
    document = replace(example.document, text=joined, tokens=0)
    return _move(example, document, before - part.start)


def compose_needles(
    sources: Sequence[TokenizedExample],
    lengths: Sequence[int],
    *,
    language: str,
    tokenizer: Tokenizer,
    literal: bool,
    seed: int,
) -> tuple[list[list[Example]], Counter[str]]:
    """Compose a corpus for each number of tokens, in which the sentences with each evidence are
    between sentences of other articles without any, at one of `PLACES` places: the same in each
    corpus.

    Longer documents begin with the same texts as shorter ones. `literal` makes the sentences
    themselves the question. Questions that do not fit into all lengths are skipped, by reason.
    """
    documents = dict.fromkeys(source.example.document for source in sources)
    sentences = {document: find_sentences(document.text, language) for document in documents}
    free = dict(sentences)
    for source in sources:
        _, free[source.example.document] = _part_sentences(
            source.example, free[source.example.document]
        )
    pairs = [(document, span) for document, spans in free.items() for span in spans]
    texts = [span.of(document.text) for document, span in pairs]
    sizes = np.array(tokenizer.count_all(texts))
    articles = np.array([document.article for document, _ in pairs])
    corpora: list[list[Example]] = [[] for _ in lengths]
    skipped = Counter[str]()
    for source in progress(sources, "Composing"):
        example = source.example
        part, _ = _part_sentences(example, sentences[example.document])
        if part is None:
            skipped[NOT_MOVED] += 1
            continue
        passage = part.of(example.document.text)
        room = np.array(lengths) - tokenizer.count(passage)
        rng = random.Random(f"{seed}\0{example.document.id}\0{example.id}")
        order = np.roll(np.arange(len(texts)), rng.randrange(len(texts)))
        order = order[articles[order] != example.document.article]
        numbers = np.searchsorted(sizes[order].cumsum(), room, "right")
        if room.min() < 0 or numbers.max() == len(order):
            skipped[LONG_NEEDLE if room.min() < 0 else FEW_TEXTS] += 1
            continue
        share = len(corpora[0]) % PLACES / (PLACES - 1)
        for corpus, length, number in zip(corpora, lengths, numbers, strict=True):
            needle = _insert(example, part, [texts[row] for row in order[:number]], share)
            document = replace(needle.document, id=f"{example.id}:{length}", tokens=length)
            question = passage if literal else example.question
            corpus.append(replace(needle, question=question, document=document))
    return corpora, skipped


def choose_one_each(sources: Sequence[TokenizedExample]) -> list[TokenizedExample]:
    """Return the first question about each document: several copies of a document would answer each
    other's questions.
    """
    chosen = {source.example.document: source for source in reversed(sources)}
    return list(reversed(chosen.values()))


def build_mosaic_composer(
    sources: Sequence[TokenizedExample], tokens: int, groups: int, seed: int
) -> Composer:
    """Divide the articles into groups, and their documents into passages that fill mosaics of the
    same group.

    Training and held-out data are divided by group, so that no passage is in both.
    """
    documents = {source.example.document: source.tokens for source in sources}
    articles = sorted({document.article for document in documents})
    random.Random(seed).shuffle(articles)
    group_of = {article: f"group {number % groups + 1}" for number, article in enumerate(articles)}
    fillers = defaultdict[str, list[tuple[str, str]]](list)
    for document, spans in documents.items():
        for text in _divide(document.text, spans, tokens // len(Position)):
            fillers[group_of[document.article]].append((document.article, text))
    return partial(compose_mosaic, tokens=tokens, fillers=fillers, groups=group_of)


def _divide(text: str, tokens: TokenSpans, size: int) -> Iterator[str]:
    """Yield consecutive passages of about so many tokens, at word borders; the short rest is left
    out.
    """
    words = np.array([start for start, _ in find_words(text)])
    for first in range(0, len(tokens) - size + 1, size):
        ends = tokens[[first, first + size - 1], 0]
        low, high = words[np.searchsorted(words[1:], ends, side="right")]
        yield text[low:high].rstrip()


def compose_examples(
    sources: Sequence[TokenizedExample],
    compose: Composer,
    seed: int,
    shares: Sequence[float] | None = None,
) -> tuple[list[list[Example]], Counter[str]]:
    """Compose every question once with its evidence at a random position, drawn by shares, or
    without them at each position.

    These are corpora of a Latin square: each has every question once, and each position equally
    often; over the corpora a question has all positions. Questions that cannot be composed with
    some position are skipped, and counted by reason.
    """
    corpora: list[list[Example]] = [[] for _ in range(1 if shares else len(Position))]
    skipped = Counter[str]()
    for source in progress(sources, "Composing"):
        rng = random.Random(f"{seed}\0{source.example.document.id}\0{source.example.id}")
        positions = rng.choices(list(Position), shares) if shares else list(Position)
        outcomes = [compose(source, position, rng) for position in positions]
        reasons = [outcome for outcome in outcomes if isinstance(outcome, str)]
        composed = [outcome for outcome in outcomes if isinstance(outcome, Example)]
        if reasons:
            skipped[reasons[0]] += 1
            continue
        number = len(corpora[0])
        for corpus, examples in enumerate(corpora):
            examples.append(composed[(number + corpus) % len(composed)])
    return corpora, skipped
