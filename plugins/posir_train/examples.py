"""Training data: questions with the span of their evidence, and the corpus that they are searched
in.

Documents are composed so that the evidence is at a chosen place; spans stay true. Natural windows
are cut from longer documents, so that the answer lies in one third of the window. Where evidence is
moved within its document, the position alone differs. Mosaics put the passage with the answer
between passages of other articles, which exaggerates effects: a model learns to tell unrelated
passages apart.
"""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import is_unfinished
from posir_tasks.base.progress import progress
from posir_tasks.data.data import PositionData
from posir_tasks.data.declared import REPO_ID
from posir_tasks.data.posir import FILES, PLACES_FILE, Target, write_domain
from posir_tasks.data.repository import combine_revisions, folder_name
from posir_tasks.datasets.dataset import Dataset, Subset
from posir_tasks.datasets.opening import open_data
from posir_tasks.tasks.catalog import PREFIX
from posir_tasks.text.languages import LANGUAGES, name_languages
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer, TokenSpans
from posir_tasks.text.words import find_words, is_unspaced
from posir_tasks.values.document_keys import link_documents
from posir_tasks.values.evidence import Evidence
from posir_train.settings import Position, find_position

#: Characters before and after the evidence by which another text with the same passage is
#: recognized.
CONTEXT = 32
#: Places of a window that are tried before a question is skipped.
TRIES = 20
#: Between the passages of a mosaic.
SEPARATOR = "\n\n"
#: Reasons to skip a question.
TOO_LONG = "answer longer than a third of a window"
NO_ROOM = "no window with the answer in the third"
NOT_MOVED = "sentences with the answer cannot be moved into the third"


@dataclass(frozen=True)
class TrainingDocument:
    """A text that is ranked."""

    id: str
    text: str
    corpus: str
    """Documents of one corpus are ranked against each other."""
    article: str
    """The article that it is part of: its title, if it has one. Questions about one article are
    never divided between training and held-out data.
    """
    tokens: int = 0
    """Its length as the data states it; 0 if unknown."""


@dataclass(frozen=True)
class Example:
    """A question, and the span of its evidence in a document."""

    id: str
    question: str
    document: TrainingDocument
    start: int
    """First character of the evidence: Unicode code points from 0."""
    end: int
    """One past its last character."""

    @cached_property
    def position(self) -> Position:
        """The third of the document that contains the evidence."""
        return find_position(self.start, self.end, len(self.document.text))

    @property
    def evidence(self) -> str:
        """The text of the evidence."""
        return self.document.text[self.start : self.end]

    def is_answered_by(self, text: str) -> bool:
        """Return whether another text has the passage with the evidence, or a part of it that an
        end of the text cuts off.
        """
        own = self.document.text
        before, after = (
            own[max(0, self.start - CONTEXT) : self.start],
            own[self.end : self.end + CONTEXT],
        )
        if not (before.strip() or after.strip()):
            return self.evidence in text
        return _continues(text, before, self.evidence) or _continues(
            text[::-1], after[::-1], self.evidence[::-1]
        )


def _continues(text: str, context: str, evidence: str) -> bool:
    at = text.find(context) if context.strip() else -1
    while at >= 0:
        following = text[at + len(context) : at + len(context) + len(evidence)]
        if following.strip() and evidence.startswith(following):
            return True
        at = text.find(context, at + 1)
    return False


@dataclass(frozen=True)
class Examples:
    """Questions with their evidence, the corpus, and where they are from."""

    name: str
    revision: str
    examples: tuple[Example, ...]
    others: tuple[TrainingDocument, ...] = ()
    """The documents of the corpus that none of these questions is about."""

    def select(self, examples: Iterable[Example]) -> Examples:
        """Return some of the examples; the corpus stays complete."""
        chosen = tuple(examples)
        asked = {example.document for example in chosen}
        return replace(
            self,
            examples=chosen,
            others=tuple(document for document in self.corpus if document not in asked),
        )

    @cached_property
    def corpus(self) -> tuple[TrainingDocument, ...]:
        """All documents: those that the questions are searched in."""
        return (*self.documents, *self.others)

    @cached_property
    def documents(self) -> tuple[TrainingDocument, ...]:
        """The distinct documents of the examples."""
        return tuple(dict.fromkeys(example.document for example in self.examples))

    @cached_property
    def articles(self) -> tuple[str, ...]:
        """The distinct articles of the examples, sorted."""
        return tuple(sorted({document.article for document in self.documents}))


def read_examples(dataset: Dataset) -> Examples:
    """Read training data; raise PosirError without spans of evidence, or with texts in another
    language than questions.
    """
    parts = [_read_subset(subset) for subset in progress(dataset.subsets, "Reading")]
    examples = merge_articles([example for part in parts for example in part.examples])
    if not examples:
        raise PosirError(
            f"{dataset.name}: the evidence of its questions is missing. Training needs the span "
            "of each answer: give a task or "
            "folder in the PosIR layout, or SQuAD-format JSON."
        )
    others = tuple(document for part in parts for document in part.others)
    return Examples(
        dataset.name, combine_revisions([part.revision for part in parts]), tuple(examples), others
    )


def _read_subset(subset: Subset) -> Examples:
    data = subset.read()
    evidence, corpus = data.evidence, f"{subset.language}/{subset.domain}"
    if not data.has_spans:
        return Examples(corpus, data.revision, ())
    if subset.query_language != subset.corpus_language:
        raise PosirError(
            f"{corpus}: spans are in texts of another language than the corpus. Give data in one "
            "language."
        )
    texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    tokens = evidence.tokens.tolist() or [0] * len(evidence)
    documents = {
        name: TrainingDocument(name, texts[name], corpus, article, length)
        for name, article, length in zip(
            evidence.document_ids, name_articles(subset, evidence), tokens, strict=True
        )
    }
    rows = zip(
        evidence.query_ids,
        data.queries["text"],
        evidence.document_ids,
        data.place_spans(),
        strict=True,
    )
    examples = tuple(Example(name, text, documents[of], *span) for name, text, of, span in rows)
    others = tuple(
        TrainingDocument(name, text, corpus, f"{corpus}/{name}")
        for name, text in texts.items()
        if name not in documents
    )
    return Examples(corpus, data.revision, examples, others)


def name_articles(subset: Subset, evidence: Evidence) -> list[str]:
    """Return the article of each question's document: its title, or a name of its own if it has
    none.
    """
    titles = evidence.clusters or [""] * len(evidence)
    return [
        title or f"{subset.language}/{subset.domain}/{name}"
        for name, title in zip(evidence.document_ids, titles, strict=True)
    ]


def merge_articles(examples: Sequence[Example]) -> list[Example]:
    """Return the examples with one article for all documents of the same text, so that no text is
    in two articles.
    """
    documents = list(dict.fromkeys(example.document for example in examples))
    rows = pl.DataFrame(
        [(row.article, row.text) for row in documents],
        dict.fromkeys(("article", "text"), pl.String),
        orient="row",
    )
    linked = rows.with_columns(
        component=link_documents(rows.select(pl.all().rank("dense")).to_numpy().T)
    )
    articles = linked.select(pl.col("article").min().over("component"))["article"]
    merged = {
        document: replace(document, article=article)
        for document, article in zip(documents, articles, strict=True)
    }
    return [replace(example, document=merged[example.document]) for example in examples]


def pool_corpora(data: Examples) -> Examples:
    """Return the examples as one corpus; where there were several, ids of questions and documents
    begin with theirs.
    """
    corpora = {document.corpus for document in data.documents}
    if len(corpora) == 1:
        return data
    pooled = {
        document: replace(document, id=f"{document.corpus}/{document.id}", corpus=data.name)
        for document in data.corpus
    }
    examples = (
        replace(
            example, id=f"{example.document.corpus}/{example.id}", document=pooled[example.document]
        )
        for example in data.examples
    )
    return replace(
        data, examples=tuple(examples), others=tuple(pooled[document] for document in data.others)
    )


def split_by_article(data: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Return examples to train on, and those about a share of the articles, by a hash; both have
    the whole corpus.
    """
    count = round(share * len(data.articles))
    if min(count, len(data.articles) - count) < 2:
        raise PosirError(
            f"{data.name}: its questions are about {len(data.articles)} separate document(s) or "
            "article(s); of these, "
            f"held_out {share:g} leaves {len(data.articles) - count} to train on and {count} to "
            "measure with, and both need "
            "at least 2. Give more data, or another held_out."
        )
    ordered = sorted(
        data.articles,
        key=lambda name: blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest(),
    )
    held_out = set(ordered[:count])
    rest = [example for example in data.examples if example.document.article not in held_out]
    return data.select(rest), data.select(
        example for example in data.examples if example.document.article in held_out
    )


def write_examples(
    examples: Sequence[Example],
    others: Sequence[TrainingDocument],
    target: Target,
    tokenizer: Tokenizer,
) -> None:
    """Write examples of one corpus, and its documents that none of them is about, as one domain,
    completely or not at all.

    The tokenizer counts the tokens of documents whose length is unknown. What the loader would
    reject is a PosirError.
    """
    documents = list(dict.fromkeys(example.document for example in examples))
    uncounted = [document for document in documents if not document.tokens]
    counted = dict(
        zip(
            uncounted,
            map(len, tokenizer.find_tokens([document.text for document in uncounted])),
            strict=True,
        )
    )
    data = PositionData.from_questions(
        {document.id: document.text for document in chain(documents, others)},
        {
            item.id: (item.question, item.document.id, Span(item.start, item.end))
            for item in examples
        },
        titles={document.id: document.article for document in documents},
        tokens={
            document.id: document.tokens or max(1, counted[document]) for document in documents
        },
    )
    write_domain(data, target.folder)


def write_dataset(data: Examples, folder: Path) -> Dataset:
    """Write examples of any number of corpora, named `<language>/<domain>`, as a folder for
    `POSIR_DATA`.

    It replaces an earlier dataset; raise PosirError if there are other files in the folder.
    """
    _remove_dataset(folder)
    root = folder / folder_name(REPO_ID)
    for corpus in dict.fromkeys(example.document.corpus for example in data.examples):
        language, _, domain = corpus.partition("/")
        examples = [example for example in data.examples if example.document.corpus == corpus]
        others = [document for document in data.others if document.corpus == corpus]
        write_examples(examples, others, Target(language, domain, root), EstimatedTokenizer())
    return replace(open_data(root), name=data.name)


def _remove_dataset(folder: Path) -> None:
    """Remove a folder of written examples; raise PosirError if a file in it is not of the
    layout.
    """
    if not folder.exists():
        return
    layout = re.compile(rf"[^/]+/[^/]+/[^/]+/({'|'.join(map(re.escape, (*FILES, PLACES_FILE)))})")
    for path in (folder, *folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_written = path.is_dir() or layout.fullmatch(name) or is_unfinished(path)
        if path.is_symlink() or not (is_written or any(map(is_unfinished, path.parents))):
            raise PosirError(
                f"{path}: was not written by posir, and is not removed. Move it elsewhere."
            )
    shutil.rmtree(folder)


def list_tasks(dataset: Dataset) -> list[str]:
    """Return the tasks of mteb that read a folder in the PosIR layout: one for each language."""
    codes = dict.fromkeys(subset.query_language for subset in dataset.subsets)
    names = {language.code: language.name for language in (*LANGUAGES, *name_languages(codes))}
    return [f"{PREFIX}{names[code]}" for code in codes]


def list_targets(language: str, domain: str, output: Path, count: int) -> list[Target]:
    """Return a target for each of several corpora: the domain itself, or numbered domains;
    PosirError if one is not allowed.
    """
    names = [domain] if count == 1 else [f"{domain}_{number}" for number in range(1, count + 1)]
    targets = [Target(language, name, output) for name in names]
    for target in targets:
        target.check()
    return targets


@dataclass(frozen=True)
class TokenizedExample:
    """An example, the tokens of its document, and which of them the evidence is."""

    example: Example
    tokens: TokenSpans
    first: int
    last: int


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


#: Returns a question with its evidence at a position, or why there is none.
Composer: TypeAlias = Callable[[TokenizedExample, Position, random.Random], Example | str]


def compose_window(
    source: TokenizedExample, position: Position, rng: random.Random, *, tokens: int
) -> Example | str:
    """Return the question with a natural window of at most so many tokens, cut at word borders,
    whose third at the position has the whole evidence, or why there is none.
    """
    third, total = tokens / len(Position), len(source.tokens)
    if source.last - source.first > third:
        return TOO_LONG
    lowest = max(0, int(np.ceil(source.last - (position + 1) * third)))
    highest = min(total - tokens, source.first - int(np.ceil(position * third)))
    starts = range(lowest, highest + 1)
    for start in rng.sample(starts, min(TRIES, len(starts))):
        low, high = source.tokens[start][0], source.tokens[start + tokens - 1][1]
        window = _cut_window(source.example, int(low), int(high))
        if window is None:
            continue
        spans = (
            (window.start, window.end),
            (window.start, window.start + 1),
            (window.end - 1, window.end),
        )
        if {find_position(*span, len(window.document.text)) for span in spans} == {position}:
            return window
    return NO_ROOM


def _cut_window(example: Example, low: int, high: int) -> Example | None:
    """Return an example with the words of its document between two characters; None if that cuts
    its evidence off.
    """
    text = example.document.text
    # Words that an end divides are left out.
    while (
        0 < low < len(text)
        and not text[low - 1].isspace()
        and not text[low].isspace()
        and low < example.start
    ):
        low += 1
    while (
        high < len(text)
        and not text[high].isspace()
        and not text[high - 1].isspace()
        and high > example.end
    ):
        high -= 1
    window = text[low:high]
    low += len(window) - len(window.lstrip())
    high -= len(window) - len(window.rstrip())
    if not low <= example.start < example.end <= high:
        return None
    document = TrainingDocument(
        f"{example.document.id}:{low}-{high}",
        text[low:high],
        example.document.corpus,
        example.document.article,
    )
    return Example(example.id, example.question, document, example.start - low, example.end - low)


def compose_mosaic(
    source: TokenizedExample,
    position: Position,
    rng: random.Random,
    *,
    tokens: int,
    fillers: Mapping[str, Sequence[tuple[str, str]]],
    groups: Mapping[str, str],
) -> Example | str:
    """Return the question with a mosaic of three passages of equal length, one with the evidence,
    or why there is none.

    The others are of other articles of the same group; `fillers` has article and text of the
    passages of each group.
    """
    size, document = tokens // len(Position), source.example.document
    if source.last - source.first > size:
        return TOO_LONG
    start = rng.randint(
        max(0, source.last - size), max(0, min(source.first, len(source.tokens) - size))
    )
    end = min(start + size, len(source.tokens)) - 1
    passage = _cut_window(source.example, int(source.tokens[start][0]), int(source.tokens[end][1]))
    if passage is None:
        return "answer not in one passage"
    group = groups[document.article]
    others = [text for article, text in fillers[group] if article != document.article]
    if len(others) < len(Position) - 1:
        return "too few passages of other articles"
    parts = rng.sample(others, len(Position) - 1)
    parts.insert(position, passage.document.text)
    shift = sum(len(part) + len(SEPARATOR) for part in parts[:position])
    name = f"{passage.document.id}:{position.title}:{rng.getrandbits(32):08x}"
    mosaic = TrainingDocument(name, SEPARATOR.join(parts), document.corpus, group)
    composed = Example(
        source.example.id,
        source.example.question,
        mosaic,
        passage.start + shift,
        passage.end + shift,
    )
    return composed if composed.position == position else NO_ROOM


def compose_moved(
    source: TokenizedExample, position: Position, _: random.Random, *, language: str
) -> Example | str:
    """Return the question with the sentences of its evidence before, among or behind the others, or
    why there is none.
    """
    example, text = source.example, source.example.document.text
    sentences = find_sentences(text, language)
    own = [span for span in sentences if span.start < example.end and example.start < span.end]
    others = [span.of(text) for span in sentences if span not in own]
    if not own or len(others) < len(Position) - 1:
        return NOT_MOVED
    space = "" if is_unspaced(text) else " "
    ends = [len(space.join(others[:number])) for number in range(len(others) + 1)]
    place = int(np.abs(np.array(ends) - ends[-1] * position / (len(Position) - 1)).argmin())
    parts = [*others[:place], text[own[0].start : own[-1].end], *others[place:]]
    shift = (ends[place] + len(space) if place else 0) - own[0].start
    name = f"{example.document.id}:{position.title}"
    document = replace(example.document, id=name, text=space.join(parts), tokens=0)
    moved = Example(
        example.id, example.question, document, example.start + shift, example.end + shift
    )
    return moved if moved.position == position else NOT_MOVED


def choose_one_each(sources: Sequence[TokenizedExample]) -> list[TokenizedExample]:
    """Return the first question about each document: several copies of a document would answer each
    other's questions.
    """
    return list({source.example.document: source for source in reversed(sources)}.values())[::-1]


def build_mosaic_composer(
    sources: Sequence[TokenizedExample], tokens: int, groups: int, seed: int
) -> Composer:
    """Divide the articles into groups, and their documents into passages that fill mosaics of the
    same group.

    Training and held-out data are divided by group, so that no passage is in both.
    """
    articles = sorted({source.example.document.article for source in sources})
    random.Random(seed).shuffle(articles)
    group_of = {article: f"group {number % groups + 1}" for number, article in enumerate(articles)}
    fillers: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for document, spans in {source.example.document: source.tokens for source in sources}.items():
        for text in _divide(document.text, spans, tokens // len(Position)):
            fillers[group_of[document.article]].append((document.article, text))
    return partial(compose_mosaic, tokens=tokens, fillers=fillers, groups=group_of)


def _divide(text: str, tokens: TokenSpans, size: int) -> Iterator[str]:
    """Yield consecutive passages of about so many tokens, at word borders; the short rest is left
    out.
    """
    words = [start for start, _ in find_words(text)]
    for first in range(0, len(tokens) - size + 1, size):
        ends = tokens[[first, first + size - 1], 0]
        low, high = (words[max(0, word - 1)] for word in np.searchsorted(words, ends, side="right"))
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
    corpora: list[list[Example]] = [[] for _ in (Position if shares is None else (None,))]
    skipped: Counter[str] = Counter()
    for source in progress(sources, "Composing"):
        rng = random.Random(f"{seed}\0{source.example.document.id}\0{source.example.id}")
        positions = list(Position) if shares is None else rng.choices(list(Position), shares)
        outcomes = [compose(source, position, rng) for position in positions]
        composed = [outcome for outcome in outcomes if isinstance(outcome, Example)]
        if len(composed) < len(outcomes):
            skipped[next(outcome for outcome in outcomes if isinstance(outcome, str))] += 1
            continue
        number = len(corpora[0])
        for corpus, examples in enumerate(corpora):
            examples.append(composed[(number + corpus) % len(composed)])
    return corpora, skipped
