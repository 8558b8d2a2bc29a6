"""Training data: questions with the span of their evidence, and the corpus that they are searched in."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path

from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError
from posir_tasks.evidence import Evidence
from posir_tasks.languages import LANGUAGES, name_languages
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.opening import Dataset, Subset, open_data
from posir_tasks.sources.posir import REPO_ID, Target, write_domain
from posir_tasks.sources.repository import combine_revisions, folder_name
from posir_tasks.tasks.catalog import PREFIX
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer
from posir_train.settings import Position, find_position

#: Characters before and after the evidence by which another text with the same passage is recognized.
CONTEXT = 32


@dataclass(frozen=True)
class TrainingDocument:
    """A text that is ranked."""

    id: str
    """Unique in its corpus."""
    text: str
    corpus: str
    """Documents of one corpus are ranked against each other."""
    article: str
    """The article that it is part of: its title, if it has one. Questions about one article are never divided between
    training and held-out data."""
    tokens: int = 0
    """Its length as the data states it; 0 if unknown."""


@dataclass(frozen=True)
class Example:
    """A question, and the span of its evidence in a document."""

    id: str
    """Unique in the corpus."""
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
        """Return whether another text has the passage with the evidence, or a part of it that an end of the text cuts off."""
        own = self.document.text
        before, after = own[max(0, self.start - CONTEXT) : self.start], own[self.end : self.end + CONTEXT]
        if not (before.strip() or after.strip()):
            return self.evidence in text
        return _continues(text, before, self.evidence) or _continues(text[::-1], after[::-1], self.evidence[::-1])


def _continues(text: str, context: str, evidence: str) -> bool:
    """Return whether the evidence, or as much of it as the text has room for, follows the context in the text."""
    if not context.strip():
        return False
    at = text.find(context)
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
        return replace(self, examples=chosen, others=tuple(document for document in self.corpus if document not in asked))

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
    """Read training data.

    Raises:
        PosirError: It has no evidence spans, or its texts are in another language than its questions.
        DataError: It is invalid.
    """
    parts = [_read_subset(subset) for subset in progress(dataset.subsets, "Reading")]
    examples = merge_articles([example for part in parts for example in part.examples])
    if not examples:
        raise PosirError(
            f"{dataset.name}: the evidence of its questions is missing. Training needs the span of each answer: give a task or "
            "folder in the PosIR layout, or SQuAD-format JSON."
        )
    others = tuple(document for part in parts for document in part.others)
    return Examples(dataset.name, combine_revisions([part.revision for part in parts]), tuple(examples), others)


def _read_subset(subset: Subset) -> Examples:
    data = subset.read()
    evidence, corpus = data.evidence, f"{subset.language}/{subset.domain}"
    if not data.has_spans:
        return Examples(corpus, data.revision, ())
    if subset.query_language != subset.corpus_language:
        raise PosirError(f"{corpus}: spans are in texts of another language than the corpus. Give data in one language.")
    texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    tokens = evidence.tokens.tolist() or [0] * len(evidence)
    documents = {
        name: TrainingDocument(name, texts[name], corpus, article, length)
        for name, article, length in zip(evidence.document_ids, name_articles(subset, evidence), tokens, strict=True)
    }
    rows = zip(evidence.query_ids, data.queries["text"], evidence.document_ids, data.place_spans(), strict=True)
    examples = tuple(Example(name, text, documents[of], *span) for name, text, of, span in rows)
    others = tuple(
        TrainingDocument(name, text, corpus, f"{corpus}/{name}") for name, text in texts.items() if name not in documents
    )
    return Examples(corpus, data.revision, examples, others)


def name_articles(subset: Subset, evidence: Evidence) -> list[str]:
    """Return the article of each question's document: its title, or a name of its own if it has none."""
    titles = evidence.clusters or [""] * len(evidence)
    return [
        title or f"{subset.language}/{subset.domain}/{name}" for name, title in zip(evidence.document_ids, titles, strict=True)
    ]


def merge_articles(examples: Sequence[Example]) -> list[Example]:
    """Return the examples with one article for all documents of the same text, so that no text is in two articles."""
    documents = {example.document for example in examples}
    parents = {document.article: document.article for document in documents}

    def find(article: str) -> str:
        while parents[article] != article:
            article = parents[article]
        return article

    first: dict[str, str] = {}
    for document in sorted(documents, key=lambda document: (document.corpus, document.id)):
        root, other = find(document.article), find(first.setdefault(document.text, document.article))
        parents[max(root, other)] = min(root, other)
    merged = {document: replace(document, article=find(document.article)) for document in documents}
    return [replace(example, document=merged[example.document]) for example in examples]


def pool_corpora(data: Examples) -> Examples:
    """Return the examples as one corpus; where there were several, ids of questions and documents begin with theirs."""
    corpora = {document.corpus for document in data.documents}
    if len(corpora) == 1:
        return data
    pooled = {document: replace(document, id=f"{document.corpus}/{document.id}", corpus=data.name) for document in data.corpus}
    examples = (
        replace(example, id=f"{example.document.corpus}/{example.id}", document=pooled[example.document])
        for example in data.examples
    )
    return replace(data, examples=tuple(examples), others=tuple(pooled[document] for document in data.others))


def split_by_article(data: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Return examples to train on, and those about a share of the articles, held out by a hash of their names and the seed.

    Both have the whole corpus.

    Raises:
        PosirError: There are fewer than two articles on either side.
    """
    count = round(share * len(data.articles))
    if min(count, len(data.articles) - count) < 2:
        raise PosirError(
            f"{data.name}: its questions are about {len(data.articles)} separate document(s) or article(s); of these, "
            f"held_out {share:g} leaves {len(data.articles) - count} to train on and {count} to measure with, and both need "
            "at least 2. Give more data, or another held_out."
        )
    ordered = sorted(data.articles, key=lambda name: blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest())
    held_out = set(ordered[:count])
    parts: tuple[list[Example], list[Example]] = ([], [])
    for example in data.examples:
        parts[example.document.article in held_out].append(example)
    return data.select(parts[0]), data.select(parts[1])


def write_examples(
    examples: Sequence[Example], others: Sequence[TrainingDocument], target: Target, tokenizer: Tokenizer
) -> None:
    """Write examples of one corpus, and its documents that none of them is about, as one domain, completely or not at all.

    The tokenizer counts the tokens of documents whose length is unknown.

    Raises:
        PosirError: The target exists or cannot be written, or the loader would reject the data.
    """
    documents = list(dict.fromkeys(example.document for example in examples))
    uncounted = [document for document in documents if not document.tokens]
    counted = dict(zip(uncounted, map(len, tokenizer.find_tokens([document.text for document in uncounted])), strict=True))
    data = PositionData.from_questions(
        {document.id: document.text for document in chain(documents, others)},
        {item.id: (item.question, item.document.id, Span(item.start, item.end)) for item in examples},
        titles={document.id: document.article for document in documents},
        tokens={document.id: document.tokens or max(1, counted[document]) for document in documents},
    )
    write_domain(data, target.folder)


def write_dataset(data: Examples, folder: Path) -> Dataset:
    """Write examples of any number of corpora, named `<language>/<domain>`, as a folder for `POSIR_DATA`; it is replaced."""
    if folder.exists():
        shutil.rmtree(folder)
    root = folder / folder_name(REPO_ID)
    for corpus in dict.fromkeys(example.document.corpus for example in data.examples):
        language, _, domain = corpus.partition("/")
        examples = [example for example in data.examples if example.document.corpus == corpus]
        others = [document for document in data.others if document.corpus == corpus]
        write_examples(examples, others, Target(language, domain, root), EstimatedTokenizer())
    return replace(open_data(root), name=data.name)


def list_tasks(dataset: Dataset) -> list[str]:
    """Return the tasks of mteb that read a folder in the PosIR layout: one for each language."""
    codes = dict.fromkeys(subset.query_language for subset in dataset.subsets)
    names = {language.code: language.name for language in (*LANGUAGES, *name_languages(codes))}
    return [f"{PREFIX}{names[code]}" for code in codes]


def list_targets(language: str, domain: str, output: Path, count: int) -> list[Target]:
    """Return a target for each of several corpora: the domain itself, or numbered domains; PosirError if one is not allowed."""
    names = [domain] if count == 1 else [f"{domain}_{number}" for number in range(1, count + 1)]
    targets = [Target(language, name, output) for name in names]
    for target in targets:
        target.check()
    return targets
