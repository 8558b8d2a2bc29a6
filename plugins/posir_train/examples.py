"""Training data: questions with the span of their evidence, and the corpus that they are searched
in.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import numpy as np
import polars as pl

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import is_unfinished
from posir_tasks.base.progress import progress
from posir_tasks.data.data import PositionData, list_texts
from posir_tasks.data.declared import REPO_ID
from posir_tasks.data.posir import FILES, PLACES_FILE, Target, write_domain
from posir_tasks.data.repository import combine_revisions, folder_name
from posir_tasks.datasets.dataset import Dataset, Subset
from posir_tasks.datasets.opening import open_data
from posir_tasks.tasks.catalog import PREFIX
from posir_tasks.text.languages import LANGUAGES, name_languages
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer, TokenSpans
from posir_tasks.values.document_keys import link_documents
from posir_tasks.values.evidence import Evidence
from posir_train.settings import Position, find_position

#: Characters before and after the evidence by which another text with the same passage is
#: recognized.
CONTEXT = 32


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

    def conflicts_with(self, other: Example) -> bool:
        """Tell whether the document of one example answers the question of the other."""
        if self.question == other.question:
            return True
        if self.document.article != other.document.article:
            return False
        return self.is_answered_by(other.document.text) or other.is_answered_by(self.document.text)

    def is_answered_by(self, text: str) -> bool:
        """Tell whether another text has the passage with the evidence, or a part of it that an end
        of the text cuts off.
        """
        document = self.document.text
        evidence = self.evidence
        before = document[max(0, self.start - CONTEXT) : self.start]
        after = document[self.end : self.end + CONTEXT]
        if not (before + after).strip():
            return evidence in text
        return _continues(text, before, evidence) or _continues(
            text[::-1], after[::-1], evidence[::-1]
        )


def _continues(text: str, context: str, evidence: str) -> bool:
    """Tell whether the text after a context is the evidence or its beginning."""
    at = text.find(context) if context.strip() else -1
    while at >= 0:
        after = at + len(context)
        following = text[after : after + len(evidence)]
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
        chosen = replace(self, examples=tuple(examples))
        used = set(chosen.documents)
        others = tuple(document for document in self.corpus if document not in used)
        return replace(chosen, others=others)

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
            "of each answer: give a task or folder in the PosIR layout, or SQuAD-format JSON."
        )
    others = tuple(document for part in parts for document in part.others)
    revision = combine_revisions([part.revision for part in parts])
    return Examples(dataset.name, revision, tuple(examples), others)


def _read_subset(subset: Subset) -> Examples:
    data = subset.read()
    evidence = data.evidence
    corpus = f"{subset.language}/{subset.domain}"
    if not data.has_spans:
        return Examples(corpus, data.revision, ())
    if subset.query_language != subset.corpus_language:
        raise PosirError(
            f"{corpus}: spans are in texts of another language than the corpus. Give data in one "
            "language."
        )
    texts = list_texts(data.corpus)
    columns = zip(
        evidence.query_ids,
        data.queries["text"],
        evidence.document_ids,
        name_articles(subset, evidence),
        evidence.tokens.tolist() or [0] * len(evidence),
        data.place_spans(),
        strict=True,
    )
    examples = []
    for query, question, name, article, length, span in columns:
        document = TrainingDocument(name, texts[name], corpus, article, length)
        examples.append(Example(query, question, document, *span))
    asked = set(evidence.document_ids)
    others = tuple(
        TrainingDocument(name, texts[name], corpus, f"{corpus}/{name}")
        for name in texts
        if name not in asked
    )
    return Examples(corpus, data.revision, tuple(examples), others)


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
    texts = [(row.article, row.text) for row in documents]
    rows = pl.DataFrame(texts, ["article", "text"], orient="row")
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
    if len({document.corpus for document in data.documents}) == 1:
        return data
    pooled = {
        document: replace(document, id=f"{document.corpus}/{document.id}", corpus=data.name)
        for document in data.corpus
    }
    examples = [
        replace(
            example, id=f"{example.document.corpus}/{example.id}", document=pooled[example.document]
        )
        for example in data.examples
    ]
    others = tuple(pooled[document] for document in data.others)
    return replace(data, examples=tuple(examples), others=others)


def split_by_article(data: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Return examples to train on, and those about a share of the articles, by a hash; both have
    the whole corpus.
    """
    articles = len(data.articles)
    count = round(share * articles)
    if min(count, articles - count) < 2:
        raise PosirError(
            f"{data.name}: {articles} separate documents or articles, of which held_out {share:g} "
            f"takes {count}. Training and measuring both need at least 2; give more data, or "
            "another held_out."
        )

    def hash_article(article: str) -> bytes:
        return blake2b(f"{seed}\0{article}".encode("utf-8", "surrogatepass")).digest()

    held_out = set(sorted(data.articles, key=hash_article)[:count])
    parts: tuple[list[Example], list[Example]] = ([], [])
    for example in data.examples:
        parts[example.document.article in held_out].append(example)
    return data.select(parts[0]), data.select(parts[1])


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
    counts = tokenizer.count_all([document.text for document in uncounted])
    tokens = {document.id: document.tokens for document in documents}
    tokens |= {document.id: count for document, count in zip(uncounted, counts, strict=True)}
    data = PositionData.from_questions(
        {document.id: document.text for document in (*documents, *others)},
        {
            item.id: (item.question, item.document.id, Span(item.start, item.end))
            for item in examples
        },
        titles={document.id: document.article for document in documents},
        tokens=tokens,
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
    for path in (folder, *folder.rglob("*")):
        is_written = path.is_dir() or any(map(path.match, (*FILES, PLACES_FILE)))
        is_part = any(map(is_unfinished, (path, *path.parents)))
        if path.is_symlink() or not (is_written or is_part):
            raise PosirError(
                f"{path}: was not written by posir, and is not removed. Move it elsewhere."
            )
    shutil.rmtree(folder)


def list_tasks(dataset: Dataset) -> list[str]:
    """Return the tasks of mteb that read a folder in the PosIR layout: one for each language."""
    codes = dict.fromkeys(subset.query_language for subset in dataset.subsets)
    names = {language.code: language.name for language in (*LANGUAGES, *name_languages(codes))}
    return [f"{PREFIX}{names[code]}" for code in codes]


def list_targets(
    language: str, domain: str, output: Path, numbers: Sequence[int] = ()
) -> list[Target]:
    """Return a target for each of several corpora: the domain itself, or numbered domains;
    PosirError if one is not allowed.
    """
    names = [f"{domain}_{number}" for number in numbers] or [domain]
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
        spans = tokens[example.document.text]
        first = int(np.searchsorted(spans[:, 1], example.start, "right"))
        last = max(first + 1, int(np.searchsorted(spans[:, 0], example.end)))
        located.append(TokenizedExample(example, spans, first, last))
    return located
