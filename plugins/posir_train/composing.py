"""Compose documents with the evidence at a chosen position, with correct spans.

- Windows are cut from longer documents, with the evidence in one third of the window.
- Moved evidence stays in its document, so that only the position differs.
- Mosaics combine the passage with the evidence and passages from other articles. They exaggerate
  effects, since a model learns to separate unrelated passages.
- Needles are evidence sentences between sentences from other articles, for documents of any length.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from posir_tasks.base.progress import track_items
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import Tokenizer, TokenSpans
from posir_tasks.text.words import find_words, is_unspaced
from posir_train.examples import Example, TokenizedExample, TrainingDocument
from posir_train.settings import ComposeSettings, Position

#: Maximum number of windows to try per question.
MAX_TRIES = 20
#: Separator between the passages of a mosaic.
SEPARATOR = "\n\n"
#: Reasons to skip a question.
TOO_LONG = "answer longer than a third of a window"
NO_ROOM = "no window with the answer in the third"
NOT_MOVED = "sentences with the answer cannot be moved into the third"
SPLIT_EVIDENCE = "answer not in one passage"
FEW_PASSAGES = "too few passages from other articles"
FEW_TEXTS = "too little text from other articles"
LONG_NEEDLE = "sentences with the answer longer than the document"
OTHER_QUESTION = "another question about its document"
#: Number of equally spaced needle positions, from the start to the end of the document.
NEEDLE_POSITIONS = 10

#: Function that composes an example with the evidence at a position, or raises CompositionError.
Composer: TypeAlias = Callable[[TokenizedExample, Position, random.Random], Example]
#: Corpora, and the number of skipped questions by reason.
Composition: TypeAlias = tuple[list[list[Example]], Counter[str]]


class CompositionError(Exception):
    """A question cannot be composed. The message is the reason."""


def compose_window(
    source: TokenizedExample, position: Position, rng: random.Random, *, tokens: int
) -> Example:
    """Cut a window of at most `tokens` tokens at word boundaries, with the whole evidence in one
    third. Raise CompositionError if this is impossible.
    """
    third = tokens / len(Position)
    if source.last - source.first > third:
        raise CompositionError(TOO_LONG)
    first_start = max(0, math.ceil(source.last - (position + 1) * third))
    last_start = source.first - math.ceil(position * third)
    starts = range(first_start, min(len(source.tokens) - tokens, last_start) + 1)
    for start in rng.sample(starts, min(MAX_TRIES, len(starts))):
        window = _cut_window(source, start, start + tokens)
        if window is None:
            continue
        # The first and the last character of the evidence must both be in the third.
        first_character = replace(window, end=window.start + 1)
        last_character = replace(window, start=window.end - 1)
        if first_character.position == last_character.position == position:
            return window
    raise CompositionError(NO_ROOM)


def _cut_window(source: TokenizedExample, first: int, end: int) -> Example | None:
    """Cut the tokens [first, end) out of a document. Return None if this would cut the evidence."""
    example = source.example
    text = example.document.text
    low = int(source.tokens[first, 0])
    high = int(source.tokens[end - 1, 1])
    # Drop incomplete words at both ends.
    while low < example.start and _is_inside_word(text, low):
        low += 1
    while high > example.end and _is_inside_word(text, high):
        high -= 1
    window = Span(low, high).strip(text)
    if not window.start <= example.start < example.end <= window.end:
        return None
    name = f"{example.document.id}:{window.start}-{window.end}"
    document = replace(example.document, id=name, text=window.slice(text), tokens=0)
    return _shift(example, document, -window.start)


def _is_inside_word(text: str, offset: int) -> bool:
    """Return True if a cut at the offset would split a word."""
    neighbors = text[max(0, offset - 1) : offset + 1]
    return len(neighbors) == 2 and not any(map(str.isspace, neighbors))


def compose_mosaic(
    source: TokenizedExample,
    position: Position,
    rng: random.Random,
    *,
    tokens: int,
    fillers: Mapping[str, Sequence[tuple[str, str]]],
    groups: Mapping[str, str],
) -> Example:
    """Compose a mosaic of three passages of equal length, one of which contains the evidence.

    Args:
        source: The question.
        position: Position of the passage with the evidence.
        rng: Random number generator.
        tokens: Length of the mosaic in tokens.
        fillers: Filler passages by group, each with its article.
        groups: Groups by article. Fillers come from other articles in the same group.

    Raises:
        CompositionError: The evidence does not fit, or there are too few filler passages.
    """
    size = tokens // len(Position)
    document = source.example.document
    if source.last - source.first > size:
        raise CompositionError(TOO_LONG)
    token_count = len(source.tokens)
    start = rng.randint(max(0, source.last - size), max(0, min(source.first, token_count - size)))
    passage = _cut_window(source, start, min(start + size, token_count))
    if passage is None:
        raise CompositionError(SPLIT_EVIDENCE)
    group = groups[document.article]
    texts = [text for article, text in fillers[group] if article != document.article]
    if len(texts) < 2:
        raise CompositionError(FEW_PASSAGES)
    passages = rng.sample(texts, 2)
    passages.insert(position, passage.document.text)
    name = f"{passage.document.id}:{position.title}:{rng.getrandbits(32):08x}"
    mosaic = TrainingDocument(name, SEPARATOR.join(passages), document.corpus, group)
    offset = sum(len(text) + len(SEPARATOR) for text in passages[:position])
    example = _shift(passage, mosaic, offset)
    if example.position != position:
        raise CompositionError(NO_ROOM)
    return example


def _shift(example: Example, document: TrainingDocument, offset: int) -> Example:
    """Move an example to another document, and shift its span by an offset."""
    start = example.start + offset
    end = example.end + offset
    return replace(example, document=document, start=start, end=end)


def compose_moved(
    source: TokenizedExample, position: Position, _: random.Random, *, language: str
) -> Example:
    """Move the evidence sentences before, between or after the other sentences of their document.
    Raise CompositionError if this is impossible.
    """
    text = source.example.document.text
    passage, fillers = _split_sentences(source.example, find_sentences(text, language))
    if passage is None or len(fillers) < 2:
        raise CompositionError(NOT_MOVED)
    name = f"{source.example.document.id}:{position.title}"
    filler_texts = [span.slice(text) for span in fillers]
    example = _insert(source.example, passage, filler_texts, position / 2)
    if example.position != position:
        raise CompositionError(NOT_MOVED)
    return replace(example, document=replace(example.document, id=name))


def _split_sentences(example: Example, sentences: Sequence[Span]) -> tuple[Span | None, list[Span]]:
    """Return the span of the evidence sentences, if any, and the spans of the other sentences."""
    fillers = [span for span in sentences if span.end <= example.start or example.end <= span.start]
    passage = [span for span in sentences if span not in fillers]
    return (Span(passage[0].start, passage[-1].end) if passage else None), fillers


def _insert(example: Example, passage: Span, fillers: Sequence[str], share: float) -> Example:
    """Insert a passage of the document between fillers, at a share of their total length."""
    text = example.document.text
    space = "" if is_unspaced(text) else " "
    offsets = np.array([len(space.join(fillers[:index])) for index in range(len(fillers) + 1)])
    index = int(np.abs(offsets - offsets[-1] * share).argmin())
    start = int(offsets[index]) + len(space) if index else 0
    new_text = space.join([*fillers[:index], passage.slice(text), *fillers[index:]])
    document = replace(example.document, text=new_text, tokens=0)
    return _shift(example, document, start - passage.start)


def compose_needles(
    sources: Sequence[TokenizedExample],
    settings: ComposeSettings,
    language: str,
    tokenizer: Tokenizer,
) -> Composition:
    """Compose one corpus per document length, with the evidence sentences between sentences of
    other articles without evidence.

    A question has the same position in every corpus. It is skipped if the evidence does not fit
    every length. Longer documents contain all fillers of shorter documents.
    """
    documents = dict.fromkeys(source.example.document for source in sources)
    sentences = {document: find_sentences(document.text, language) for document in documents}
    filler_spans = dict(sentences)
    for source in sources:
        document = source.example.document
        _, filler_spans[document] = _split_sentences(source.example, filler_spans[document])
    fillers = []
    filler_articles = []
    for document, spans in filler_spans.items():
        fillers += [span.slice(document.text) for span in spans]
        filler_articles += [document.article] * len(spans)
    sizes = np.array(tokenizer.count_all(fillers))
    articles = np.array(filler_articles)
    lengths = settings.domain_numbers
    corpora: list[list[Example]] = [[] for _ in lengths]
    skip_counts = Counter[str]()
    for source in track_items(sources, "Composing"):
        example = source.example
        document = example.document
        span, _ = _split_sentences(example, sentences[document])
        if span is None:
            skip_counts[NOT_MOVED] += 1
            continue
        passage = span.slice(document.text)
        room = np.array(lengths) - tokenizer.count(passage)
        rng = random.Random(f"{settings.seed}\0{document.id}\0{example.id}")
        order = np.roll(np.arange(len(fillers)), rng.randrange(len(fillers)))
        order = order[articles[order] != document.article]
        filler_counts = np.searchsorted(sizes[order].cumsum(), room, "right")
        if room.min() < 0 or filler_counts.max() == len(order):
            skip_counts[LONG_NEEDLE if room.min() < 0 else FEW_TEXTS] += 1
            continue
        share = len(corpora[0]) % NEEDLE_POSITIONS / (NEEDLE_POSITIONS - 1)
        for corpus, length, filler_count in zip(corpora, lengths, filler_counts, strict=True):
            needle = _insert(example, span, [fillers[row] for row in order[:filler_count]], share)
            needle_document = replace(needle.document, id=f"{example.id}:{length}", tokens=length)
            question = passage if settings.literal else example.question
            corpus.append(replace(needle, question=question, document=needle_document))
    return corpora, skip_counts


def select_first_questions(sources: Sequence[TokenizedExample]) -> list[TokenizedExample]:
    """Select the first question about each document. With several questions, the composed copies
    of a document would answer each other's questions.
    """
    by_document = {source.example.document: source for source in reversed(sources)}
    return list(reversed(by_document.values()))


def build_mosaic_composer(
    sources: Sequence[TokenizedExample], settings: ComposeSettings
) -> Composer:
    """Build a composer that combines passages of articles in the same group.

    Groups are random. Training and held-out data are split by group, so that they have no passages
    in common.
    """
    documents = {source.example.document: source.tokens for source in sources}
    articles = sorted({document.article for document in documents})
    random.Random(settings.seed).shuffle(articles)
    groups_by_article = {
        article: f"group {number % settings.groups + 1}" for number, article in enumerate(articles)
    }
    fillers = defaultdict[str, list[tuple[str, str]]](list)
    for document, spans in documents.items():
        for text in _split_passages(document.text, spans, settings.tokens // len(Position)):
            fillers[groups_by_article[document.article]].append((document.article, text))
    return partial(
        compose_mosaic, tokens=settings.tokens, fillers=fillers, groups=groups_by_article
    )


def _split_passages(text: str, tokens: TokenSpans, size: int) -> Iterator[str]:
    """Split a text into passages of about `size` tokens at word boundaries. Drop a shorter rest."""
    word_starts = np.array([start for start, _ in find_words(text)])
    for first in range(0, len(tokens) - size + 1, size):
        bounds = tokens[[first, first + size - 1], 0]
        low, high = word_starts[np.searchsorted(word_starts[1:], bounds, side="right")]
        yield text[low:high].rstrip()


def compose_corpora(
    sources: Sequence[TokenizedExample],
    settings: ComposeSettings,
    language: str,
    tokenizer: Tokenizer,
) -> Composition:
    """Compose the corpora for the settings."""
    if settings.kind == "needles":
        return compose_needles(sources, settings, language, tokenizer)
    selection = sources
    composer: Composer = partial(compose_window, tokens=settings.tokens)
    if settings.kind == "mosaics":
        composer = build_mosaic_composer(sources, settings)
    elif settings.kind == "moved":
        composer = partial(compose_moved, language=language)
        selection = select_first_questions(sources)
    shares = settings.weights.shares if settings.weights else None
    corpora, skip_counts = compose_examples(selection, composer, settings.seed, shares)
    if len(selection) < len(sources):
        skip_counts[OTHER_QUESTION] = len(sources) - len(selection)
    return corpora, skip_counts


def compose_examples(
    sources: Sequence[TokenizedExample],
    compose: Composer,
    seed: int,
    shares: Sequence[float] | None = None,
) -> Composition:
    """Compose every question once, at a random position, or once per position.

    A question is skipped if any of its positions is impossible.

    Args:
        sources: The questions.
        compose: Function that composes an example.
        seed: Random seed.
        shares: Probability of each position. If None, the corpora form a Latin square: each corpus
            contains every question once, with all positions equally often, and every question has
            another position in each corpus.
    """
    corpora: list[list[Example]] = [[] for _ in range(1 if shares else len(Position))]
    skip_counts = Counter[str]()
    for source in track_items(sources, "Composing"):
        rng = random.Random(f"{seed}\0{source.example.document.id}\0{source.example.id}")
        positions = rng.choices(list(Position), shares) if shares else list(Position)
        try:
            examples = deque(compose(source, position, rng) for position in positions)
        except CompositionError as error:
            skip_counts[str(error)] += 1
            continue
        # Rotate the positions from question to question.
        examples.rotate(-len(corpora[0]))
        for corpus, example in zip(corpora, examples, strict=True):
            corpus.append(example)
    return corpora, skip_counts
