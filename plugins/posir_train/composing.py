"""Compose documents with the evidence at a chosen position, with correct spans.

Natural windows are cut from longer documents, with the evidence in one third of the window. Moved
evidence stays in its document, so only the position differs. Mosaics put the passage with the
evidence between passages of other articles; this exaggerates effects, since a model learns to
separate unrelated passages. Needles put the evidence sentences between sentences of other articles,
for documents of any length.
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
#: Separator of the passages of a mosaic.
SEPARATOR = "\n\n"
#: Reasons to skip a question.
TOO_LONG = "answer longer than a third of a window"
NO_ROOM = "no window with the answer in the third"
NOT_MOVED = "sentences with the answer cannot be moved into the third"
DIVIDED = "answer not in one passage"
FEW_PASSAGES = "too few passages of other articles"
FEW_TEXTS = "too little text of other articles"
LONG_NEEDLE = "sentences with the answer longer than the document"
OTHER_QUESTION = "another question about its document"
#: Number of equally spaced positions of needles, from the start to the end of the document.
NEEDLE_POSITIONS = 10

#: Composes an example with the evidence at a position; raises CompositionError if it cannot.
Composer: TypeAlias = Callable[[TokenizedExample, Position, random.Random], Example]
#: Corpora, and the number of skipped questions by reason.
Composition: TypeAlias = tuple[list[list[Example]], Counter[str]]


class CompositionError(Exception):
    """A question cannot be composed; the message is the reason to skip it."""


def compose_window(
    source: TokenizedExample, position: Position, rng: random.Random, *, tokens: int
) -> Example:
    """Cut a natural window of at most `tokens` tokens at word boundaries, with the whole evidence
    in the third at the position; raise CompositionError if that is impossible.
    """
    third = tokens / len(Position)
    if source.last - source.first > third:
        raise CompositionError(TOO_LONG)
    lowest = max(0, math.ceil(source.last - (position + 1) * third))
    latest = source.first - math.ceil(position * third)
    starts = range(lowest, min(len(source.tokens) - tokens, latest) + 1)
    for start in rng.sample(starts, min(MAX_TRIES, len(starts))):
        window = _cut_window(source, start, start + tokens)
        if window is None:
            continue
        # Both the first and the last character of the evidence must be in the third.
        ends = (replace(window, end=window.start + 1), replace(window, start=window.end - 1))
        if all(end.position == position for end in ends):
            return window
    raise CompositionError(NO_ROOM)


def _cut_window(source: TokenizedExample, first: int, end: int) -> Example | None:
    """Cut the tokens [first, end) out of a document; return None if that cuts the evidence."""
    example = source.example
    text = example.document.text
    low = int(source.tokens[first, 0])
    high = int(source.tokens[end - 1, 1])
    # Leave out incomplete words at the ends.
    while low < example.start and _is_inside_word(text, low):
        low += 1
    while high > example.end and _is_inside_word(text, high):
        high -= 1
    window = Span(low, high).strip(text)
    if not window.start <= example.start < example.end <= window.end:
        return None
    name = f"{example.document.id}:{window.start}-{window.end}"
    document = replace(example.document, id=name, text=window.of(text), tokens=0)
    return _shift(example, document, -window.start)


def _is_inside_word(text: str, offset: int) -> bool:
    """Return True if a cut at the offset divides a word."""
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
    """Compose a mosaic of three passages of equal length, the passage with the evidence at the
    position.

    Args:
        source: The question.
        position: Position of the evidence.
        rng: Random number generator.
        tokens: Number of tokens of the mosaic.
        fillers: Article and text of the filler passages of each group.
        groups: Group of each article; fillers come from other articles in the same group.

    Raises:
        CompositionError: The evidence or the filler passages do not fit.
    """
    size = tokens // len(Position)
    document = source.example.document
    if source.last - source.first > size:
        raise CompositionError(TOO_LONG)
    token_count = len(source.tokens)
    start = rng.randint(max(0, source.last - size), max(0, min(source.first, token_count - size)))
    passage = _cut_window(source, start, min(start + size, token_count))
    if passage is None:
        raise CompositionError(DIVIDED)
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
    """Put an example into another document, where the span moves by an offset."""
    start = example.start + offset
    end = example.end + offset
    return replace(example, document=document, start=start, end=end)


def compose_moved(
    source: TokenizedExample, position: Position, _: random.Random, *, language: str
) -> Example:
    """Move the evidence sentences before, between or after the other sentences; raise
    CompositionError if that is impossible.
    """
    text = source.example.document.text
    passage, fillers = _split_sentences(source.example, find_sentences(text, language))
    if passage is None or len(fillers) < 2:
        raise CompositionError(NOT_MOVED)
    name = f"{source.example.document.id}:{position.title}"
    example = _insert(source.example, passage, [span.of(text) for span in fillers], position / 2)
    if example.position != position:
        raise CompositionError(NOT_MOVED)
    return replace(example, document=replace(example.document, id=name))


def _split_sentences(example: Example, sentences: Sequence[Span]) -> tuple[Span | None, list[Span]]:
    """Return the span of the evidence sentences, None if there are none, and the other
    sentences.
    """
    fillers = [span for span in sentences if span.end <= example.start or example.end <= span.start]
    passage = [span for span in sentences if span not in fillers]
    return (Span(passage[0].start, passage[-1].end) if passage else None), fillers


def _insert(example: Example, passage: Span, fillers: Sequence[str], share: float) -> Example:
    """Put a passage of the document between fillers, after a share of their length."""
    text = example.document.text
    space = "" if is_unspaced(text) else " "
    lengths = np.array([len(space.join(fillers[:index])) for index in range(len(fillers) + 1)])
    index = int(np.abs(lengths - lengths[-1] * share).argmin())
    start = int(lengths[index]) + len(space) if index else 0
    new_text = space.join([*fillers[:index], passage.of(text), *fillers[index:]])
    document = replace(example.document, text=new_text, tokens=0)
    return _shift(example, document, start - passage.start)


def compose_needles(
    sources: Sequence[TokenizedExample],
    settings: ComposeSettings,
    language: str,
    tokenizer: Tokenizer,
) -> Composition:
    """Compose a corpus for each of `settings.lengths`, with the evidence sentences between
    sentences of other articles that contain no evidence.

    A question is at the same one of the `NEEDLE_POSITIONS` positions in every corpus; it is skipped
    unless it fits every length. Longer documents start with the fillers of shorter documents.
    """
    documents = dict.fromkeys(source.example.document for source in sources)
    sentences = {document: find_sentences(document.text, language) for document in documents}
    filler_spans = dict(sentences)
    for source in sources:
        document = source.example.document
        _, filler_spans[document] = _split_sentences(source.example, filler_spans[document])
    pairs = [(document, span) for document, spans in filler_spans.items() for span in spans]
    texts = [span.of(document.text) for document, span in pairs]
    sizes = np.array(tokenizer.count_all(texts))
    articles = np.array([document.article for document, _ in pairs])
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
        passage = span.of(document.text)
        room = np.array(lengths) - tokenizer.count(passage)
        rng = random.Random(f"{settings.seed}\0{document.id}\0{example.id}")
        order = np.roll(np.arange(len(texts)), rng.randrange(len(texts)))
        order = order[articles[order] != document.article]
        filler_counts = np.searchsorted(sizes[order].cumsum(), room, "right")
        if room.min() < 0 or filler_counts.max() == len(order):
            skip_counts[LONG_NEEDLE if room.min() < 0 else FEW_TEXTS] += 1
            continue
        share = len(corpora[0]) % NEEDLE_POSITIONS / (NEEDLE_POSITIONS - 1)
        for corpus, length, filler_count in zip(corpora, lengths, filler_counts, strict=True):
            needle = _insert(example, span, [texts[row] for row in order[:filler_count]], share)
            needle_document = replace(needle.document, id=f"{example.id}:{length}", tokens=length)
            question = passage if settings.literal else example.question
            corpus.append(replace(needle, question=question, document=needle_document))
    return corpora, skip_counts


def select_first_questions(sources: Sequence[TokenizedExample]) -> list[TokenizedExample]:
    """Select the first question about each document, since copies of a document would answer each
    other's questions.
    """
    first = {source.example.document: source for source in reversed(sources)}
    return list(reversed(first.values()))


def build_mosaic_composer(
    sources: Sequence[TokenizedExample], settings: ComposeSettings
) -> Composer:
    """Divide the articles into groups and their documents into filler passages; return a composer
    of mosaics within groups.

    Training and held-out data are split by group, so that they share no passage.
    """
    documents = {source.example.document: source.tokens for source in sources}
    articles = sorted({document.article for document in documents})
    random.Random(settings.seed).shuffle(articles)
    group_of = {
        article: f"group {number % settings.groups + 1}" for number, article in enumerate(articles)
    }
    fillers = defaultdict[str, list[tuple[str, str]]](list)
    for document, spans in documents.items():
        for text in _split_passages(document.text, spans, settings.tokens // len(Position)):
            fillers[group_of[document.article]].append((document.article, text))
    return partial(compose_mosaic, tokens=settings.tokens, fillers=fillers, groups=group_of)


def _split_passages(text: str, tokens: TokenSpans, size: int) -> Iterator[str]:
    """Yield consecutive passages of about `size` tokens, cut at word boundaries; a short remainder
    is dropped.
    """
    words = np.array([start for start, _ in find_words(text)])
    for first in range(0, len(tokens) - size + 1, size):
        ends = tokens[[first, first + size - 1], 0]
        low, high = words[np.searchsorted(words[1:], ends, side="right")]
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
    """Compose every question once, at a position sampled by `shares`; without shares, once per
    position. A question is skipped if it cannot be composed at one of its positions.

    Without shares, the corpora form a Latin square: each corpus contains every question once and
    all positions equally often, and every question occurs at every position in one of the corpora.
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
        # Start with a different position for each question.
        examples.rotate(-len(corpora[0]))
        for corpus, example in zip(corpora, examples, strict=True):
            corpus.append(example)
    return corpora, skip_counts
