"""Training data: questions with evidence spans, and the corpus to search."""

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
from posir_tasks.base.progress import track_items
from posir_tasks.data.data import PositionData, list_texts
from posir_tasks.data.declared import REPO_ID
from posir_tasks.data.posir import FILES, PLACES_FILE, Target, write_domain
from posir_tasks.data.repository import combine_revisions, get_folder_name
from posir_tasks.datasets.dataset import Dataset, Subset
from posir_tasks.datasets.opening import open_data
from posir_tasks.tasks.catalog import PREFIX
from posir_tasks.text.languages import LANGUAGES, name_languages
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer, TokenSpans
from posir_tasks.values.document_keys import link_documents
from posir_tasks.values.evidence import Evidence
from posir_train.settings import Position, find_position

#: Number of characters before and after the evidence that identify a copy of the passage.
CONTEXT_CHARACTERS = 32


@dataclass(frozen=True)
class TrainingDocument:
    """A document of the corpus."""

    id: str
    text: str
    corpus: str
    """Name of the corpus. All documents in a corpus are ranked together."""
    article: str
    """Title of the article, or a generated name. All questions about an article are either in the
    training data or in the held-out data.
    """
    tokens: int = 0
    """Length in tokens, as given in the data; 0 if unknown."""


@dataclass(frozen=True)
class Example:
    """A question with its evidence span in a document."""

    id: str
    question: str
    document: TrainingDocument
    start: int
    """Start of the evidence in the text, in Unicode code points."""
    end: int
    """End of the evidence in the text, exclusive."""

    @cached_property
    def position(self) -> Position:
        """The third of the document that contains the evidence."""
        return find_position(self.start, self.end, len(self.document.text))

    @property
    def evidence(self) -> str:
        """Text of the evidence."""
        return self.document.text[self.start : self.end]

    def conflicts_with(self, other: Example) -> bool:
        """Return True if the document of either example answers the question of the other."""
        if self.question == other.question:
            return True
        if self.document.article != other.document.article:
            return False
        return self.is_answered_by(other.document.text) or other.is_answered_by(self.document.text)

    def is_answered_by(self, text: str) -> bool:
        """Return True if a text contains the evidence with its context.

        Evidence that is cut off at the start or end of the text also counts.
        """
        document = self.document.text
        evidence = self.evidence
        before = document[max(0, self.start - CONTEXT_CHARACTERS) : self.start]
        after = document[self.end : self.end + CONTEXT_CHARACTERS]
        if not (before + after).strip():
            return evidence in text
        return _has_continuation(text, before, evidence) or _has_continuation(
            text[::-1], after[::-1], evidence[::-1]
        )


def _has_continuation(text: str, context: str, evidence: str) -> bool:
    """Return True if the evidence follows the context. It may be cut off by the end of the text."""
    offset = text.find(context) if context.strip() else -1
    while offset >= 0:
        after = offset + len(context)
        following = text[after : after + len(evidence)]
        if following.strip() and evidence.startswith(following):
            return True
        offset = text.find(context, offset + 1)
    return False


@dataclass(frozen=True)
class Examples:
    """Questions with their evidence, and the corpus."""

    name: str
    revision: str
    examples: tuple[Example, ...]
    distractors: tuple[TrainingDocument, ...] = ()
    """Other documents of the corpus, possibly including documents of `examples`."""

    def select(self, examples: Iterable[Example]) -> Examples:
        """Keep a subset of the examples, and the complete corpus."""
        return replace(self, examples=tuple(examples), distractors=self.corpus)

    @cached_property
    def corpus(self) -> tuple[TrainingDocument, ...]:
        """All documents to search, starting with the documents of the examples."""
        return tuple(dict.fromkeys((*self.documents, *self.distractors)))

    @cached_property
    def documents(self) -> tuple[TrainingDocument, ...]:
        """Distinct documents of the examples."""
        return tuple(dict.fromkeys(example.document for example in self.examples))

    @cached_property
    def articles(self) -> tuple[str, ...]:
        """Sorted distinct articles of the examples."""
        return tuple(sorted({document.article for document in self.documents}))


def read_examples(dataset: Dataset) -> Examples:
    """Read training data.

    Raises:
        PosirError: The data has no evidence spans, or its questions and its corpus are in different
            languages.
    """
    subsets = [_read_subset(subset) for subset in track_items(dataset.subsets, "Reading")]
    examples = merge_articles([example for subset in subsets for example in subset.examples])
    if not examples:
        raise PosirError(
            f"{dataset.name}: the questions have no evidence spans. Give a task or folder in the "
            "PosIR layout, or SQuAD-format JSON."
        )
    distractors = tuple(document for subset in subsets for document in subset.distractors)
    revision = combine_revisions([subset.revision for subset in subsets])
    return Examples(dataset.name, revision, tuple(examples), distractors)


def _read_subset(subset: Subset) -> Examples:
    data = subset.read()
    evidence = data.evidence
    corpus = f"{subset.language}/{subset.domain}"
    if not data.has_spans:
        return Examples(corpus, data.revision, ())
    if subset.query_language != subset.corpus_language:
        raise PosirError(
            f"{corpus}: the questions and the corpus are in different languages. Give data in one "
            "language."
        )
    texts = list_texts(data.corpus)
    columns = zip(
        evidence.query_ids,
        data.queries["text"],
        evidence.document_ids,
        name_articles(subset, evidence),
        evidence.tokens.tolist() or [0] * len(evidence),
        data.locate_spans(),
        strict=True,
    )
    examples = []
    for query, question, name, article, length, span in columns:
        document = TrainingDocument(name, texts[name], corpus, article, length)
        examples.append(Example(query, question, document, *span))
    relevant = set(evidence.document_ids)
    distractors = tuple(
        TrainingDocument(name, texts[name], corpus, f"{corpus}/{name}")
        for name in texts
        if name not in relevant
    )
    return Examples(corpus, data.revision, tuple(examples), distractors)


def name_articles(subset: Subset, evidence: Evidence) -> list[str]:
    """Return the article of each question: the title of the document, or a generated name."""
    titles = evidence.clusters or [""] * len(evidence)
    return [
        title or f"{subset.language}/{subset.domain}/{name}"
        for name, title in zip(evidence.document_ids, titles, strict=True)
    ]


def merge_articles(examples: Sequence[Example]) -> list[Example]:
    """Merge articles that have a text in common."""
    documents = list(dict.fromkeys(example.document for example in examples))
    texts = [(row.article, row.text) for row in documents]
    rows = pl.DataFrame(texts, ["article", "text"], orient="row")
    components = link_documents(rows.select(pl.all().rank("dense")).to_numpy().T)
    rows = rows.with_columns(component=components)
    articles = rows.select(pl.col("article").min().over("component"))["article"]
    new_documents = {
        document: replace(document, article=article)
        for document, article in zip(documents, articles, strict=True)
    }
    return [replace(example, document=new_documents[example.document]) for example in examples]


def merge_corpora(data: Examples) -> Examples:
    """Merge all corpora into one. If there are several, prefix the ids of questions and documents
    with the corpus name.
    """
    if len({document.corpus for document in data.documents}) == 1:
        return data
    documents = {
        document: replace(document, id=f"{document.corpus}/{document.id}", corpus=data.name)
        for document in data.corpus
    }
    examples = [
        replace(
            example,
            id=f"{example.document.corpus}/{example.id}",
            document=documents[example.document],
        )
        for example in data.examples
    ]
    return replace(data, examples=tuple(examples), distractors=tuple(documents.values()))


def split_by_article(data: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Split examples by article into training and held-out examples. Both keep the whole corpus.

    Args:
        data: The examples.
        share: Share of the articles to hold out, in [0, 1].
        seed: Seed of the hash that selects the held-out articles.

    Raises:
        PosirError: There are fewer than two training articles or fewer than two held-out articles.
    """
    article_count = len(data.articles)
    held_out_count = round(share * article_count)
    if min(held_out_count, article_count - held_out_count) < 2:
        raise PosirError(
            f"{data.name}: with held_out {share:g}, {held_out_count} of {article_count} articles "
            "(or distinct documents) are held out. Training and evaluation need at least 2 "
            "articles each. Give more data, or another held_out."
        )

    def hash_article(article: str) -> bytes:
        return blake2b(f"{seed}\0{article}".encode("utf-8", "surrogatepass")).digest()

    held_out_articles = set(sorted(data.articles, key=hash_article)[:held_out_count])
    held_out = [item for item in data.examples if item.document.article in held_out_articles]
    training = [item for item in data.examples if item.document.article not in held_out_articles]
    return data.select(training), data.select(held_out)


def write_examples(
    examples: Sequence[Example],
    distractors: Sequence[TrainingDocument],
    target: Target,
    tokenizer: Tokenizer,
) -> None:
    """Write the examples and distractors of one corpus as a domain, atomically.

    The tokenizer measures documents of unknown length.

    Raises:
        PosirError: The data is invalid, or the domain cannot be written.
    """
    documents = dict.fromkeys(example.document for example in examples)
    data = PositionData.from_questions(
        {document.id: document.text for document in (*documents, *distractors)},
        {
            example.id: (example.question, example.document.id, Span(example.start, example.end))
            for example in examples
        },
        titles={document.id: document.article for document in documents},
        tokens={
            document.id: document.tokens or tokenizer.count(document.text) for document in documents
        },
    )
    write_domain(data, target.folder)


def write_dataset(data: Examples, folder: Path) -> Dataset:
    """Write examples as a folder for `POSIR_DATA`, and replace any previous dataset. Corpora are
    named `<language>/<domain>`.

    Raises:
        PosirError: The folder contains other files.
    """
    _remove_dataset(folder)
    root = folder / get_folder_name(REPO_ID)
    for corpus in dict.fromkeys(example.document.corpus for example in data.examples):
        language, _, domain = corpus.partition("/")
        examples = [example for example in data.examples if example.document.corpus == corpus]
        distractors = [document for document in data.distractors if document.corpus == corpus]
        write_examples(examples, distractors, Target(language, domain, root), EstimatedTokenizer())
    return replace(open_data(root), name=data.name)


def _remove_dataset(folder: Path) -> None:
    """Remove a dataset folder. Raise PosirError if it contains other files."""
    if not folder.exists():
        return
    for path in (folder, *folder.rglob("*")):
        is_expected = path.is_dir() or any(map(path.match, (*FILES, PLACES_FILE)))
        is_temporary = any(map(is_unfinished, (path, *path.parents)))
        if path.is_symlink() or not (is_expected or is_temporary):
            raise PosirError(
                f"{path}: was not written by posir, so it is not removed. Move it elsewhere."
            )
    shutil.rmtree(folder)


def list_tasks(dataset: Dataset) -> list[str]:
    """List the mteb tasks that read a folder in the PosIR layout, one per language."""
    codes = dict.fromkeys(subset.query_language for subset in dataset.subsets)
    names = {language.code: language.name for language in (*LANGUAGES, *name_languages(codes))}
    return [f"{PREFIX}{names[code]}" for code in codes]


def build_targets(
    language: str, domain: str, output: Path, numbers: Sequence[int] = ()
) -> list[Target]:
    """Build a target for the domain, or one per numbered domain. Raise PosirError if a target is
    invalid.
    """
    names = [f"{domain}_{number}" for number in numbers] or [domain]
    targets = [Target(language, name, output) for name in names]
    for target in targets:
        target.check()
    return targets


@dataclass(frozen=True)
class TokenizedExample:
    """An example with the tokens of its document."""

    example: Example
    tokens: TokenSpans
    first: int
    """Index of the first evidence token."""
    last: int
    """Index after the last evidence token."""


def tokenize_examples(data: Examples, tokenizer: Tokenizer) -> list[TokenizedExample]:
    """Tokenize the documents of the examples. Each distinct text is tokenized once."""
    texts = list(dict.fromkeys(document.text for document in data.documents))
    tokens = dict(zip(texts, tokenizer.find_tokens(texts), strict=True))
    tokenized_examples = []
    for example in data.examples:
        spans = tokens[example.document.text]
        first = int(np.searchsorted(spans[:, 1], example.start, "right"))
        last = max(first + 1, int(np.searchsorted(spans[:, 0], example.end)))
        tokenized_examples.append(TokenizedExample(example, spans, first, last))
    return tokenized_examples
