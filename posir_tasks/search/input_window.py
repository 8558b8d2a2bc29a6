"""The place of evidence in what a loaded model reads of its document, counted with the model's own
tokenizer.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from mteb.models.sentence_transformer_wrapper import CrossEncoderWrapper
from numpy.typing import NDArray

from posir_tasks.base.arrays import Integers
from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import summarize_error
from posir_tasks.base.progress import progress
from posir_tasks.models.prompts import find_document_prompt, preprocess
from posir_tasks.models.request import SearchRequest
from posir_tasks.models.window import find_read_part
from posir_tasks.search.scoring import Rows, select_texts
from posir_tasks.text.tokenizer import ModelTokenizer, find_tokenizer
from posir_tasks.values.evidence import Evidence, ReadEvidence, Unread, place_in_parts
from posir_tasks.values.read_part import CountedWith, Part, ReadKind, ReadPart
from posir_tasks.values.tokens_read import TokensRead, count_tokens_read, settle_read_part

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.models_protocols import MTEBModels
    from tokenizers import Encoding

    from posir_tasks.values.schemes import PositionScheme

logger = logging.getLogger(__name__)

#: Texts tokenized at a time.
BATCH_SIZE = 256

#: First character and end of each token, shape (tokens, 2).
Offsets: TypeAlias = NDArray[np.int32]
#: What a model reads at a time, prompts included: a document, or a query and a document.
ModelInput: TypeAlias = tuple[str, ...]


def find_read_evidence(
    model: MTEBModels,
    request: SearchRequest,
    queries: Dataset,
    evidence: Evidence,
    documents: Rows,
) -> ReadEvidence:
    """Find the evidence of queries in what a model reads of the rows of relevant documents by id,
    by its tokenizer or else estimated.
    """
    context = request.context
    read = find_read_part_of(model, context.task_metadata, context.hf_subset, request.corpus)
    counted = count_read_evidence(model, read, queries, context.task_metadata, evidence, documents)
    languages = context.task_metadata.hf_subsets_to_langscripts[context.hf_subset]
    return counted or ReadEvidence.estimate(
        read, evidence.complete(select_texts(documents)), languages
    )


def find_read_part_of(
    model: MTEBModels, task: TaskMetadata, subset: str, corpus: Dataset
) -> ReadPart:
    """Return which part of the texts of a corpus a model reads: all, if it reads at least so much
    as the longest has.
    """
    read = find_read_part(model)
    if read.least_tokens is None:
        return read
    tokenizer, _ = find_counter(model, task)
    return settle_read_part(read, corpus, task.hf_subsets_to_langscripts[subset], tokenizer)


def count_read_evidence(
    model: MTEBModels,
    read: ReadPart,
    queries: Dataset,
    task: TaskMetadata,
    evidence: Evidence,
    documents: Rows,
) -> ReadEvidence | None:
    """Find evidence in what a model reads by its tokenizer; None if the places cannot be counted,
    or need not be.
    """
    if read.kind is not ReadKind.PART:
        return None
    try:
        twelfths = _count_twelfths(model, read, queries, task, evidence, documents)
    except Exception as error:
        # Wrappers and tokenizers are code of third parties; what they do must not cost a result.
        logger.warning(
            "the model's tokens cannot be counted (%s); they are estimated", summarize_error(error)
        )
        return None
    return None if twelfths is None else ReadEvidence(read, twelfths, CountedWith.TOKENIZER)


def count_corpus(
    model: MTEBModels,
    task: TaskMetadata,
    subset: str,
    scheme: PositionScheme,
    corpus: Dataset,
    read: ReadPart,
) -> TokensRead | None:
    """Count the tokens of a corpus that a model reads, by its tokenizer or else estimated; None if
    what it reads is unknown.
    """
    count = partial(count_tokens_read, scheme, task.hf_subsets_to_langscripts[subset])
    try:
        return count(*find_counter(model, task), corpus, read)
    except Exception as error:
        # As above.
        logger.warning(
            "the model's tokens cannot be counted (%s); they are estimated", summarize_error(error)
        )
        return count(None, 0, corpus, read)


def find_counter(model: MTEBModels, task: TaskMetadata) -> tuple[ModelTokenizer | None, int]:
    """Return the tokenizer of a model, if it says where tokens are, and the tokens that are read
    with every document.
    """
    model = _find_reader(model)
    tokenizer = find_tokenizer(model)
    if tokenizer is None or not tokenizer.locates_tokens:
        return None, 0
    prompt = find_document_prompt(model, task)
    return tokenizer, tokenizer.special_tokens + (tokenizer.count(prompt) if prompt else 0)


def _find_reader(model: Any) -> Any:
    """Return the model that a model passes its texts to unchanged: by default itself."""
    return getattr(model, "reads_as", model)


def _count_twelfths(
    model: MTEBModels,
    read: ReadPart,
    queries: Dataset,
    task: TaskMetadata,
    evidence: Evidence,
    documents: Rows,
) -> Integers | None:
    """Return `ReadEvidence.twelfths` by the model's tokenizer; None if that, or where the evidence
    is, is unknown.
    """
    if read.part not in (Part.FIRST, Part.LAST) or not len(evidence.starts):
        return None
    # SQuAD-PosQ has starts only; versions of its documents are read likewise.
    ends = evidence.ends if len(evidence.ends) else evidence.starts + 1
    reader = _InputReader.of_model(_find_reader(model), read.tokens or 0, task)
    if reader is None:
        return None
    texts = [documents[name]["text"] for name in evidence.document_ids]
    if len(evidence.characters) and list(map(len, texts)) != evidence.characters.tolist():
        # The spans are of texts in another language.
        return None
    # mteb gives models title and text joined, without white space around them.
    received = {
        name: f"{row.get('title') or ''} {row['text']}".strip() for name, row in documents.items()
    }
    inputs = [
        reader.join(query, received[name])
        for query, name in zip(queries["text"][:], evidence.document_ids, strict=True)
    ]
    distinct = list(dict.fromkeys(inputs))
    # What the model itself makes of an input must be the same tokens.
    longest = max(distinct, key=lambda parts: len(parts[-1]))
    sample = longest if len(longest) > 1 else longest[0]
    features = preprocess(reader.model, [sample], task="document")
    if features["input_ids"][0].tolist() != reader.tokenize([longest])[0].ids:
        return None
    offsets = reader.find_read(distinct)
    twelfths = evidence.complete(select_texts(documents)).twelfths()
    for query, (parts, text) in enumerate(zip(inputs, texts, strict=True)):
        if parts in offsets:
            # A text and what the model receives of it end alike, but for white space.
            first = len(parts[-1]) - len(text.rstrip())
            start = max(int(evidence.starts[query]), 0)
            size = len(text[start : int(ends[query])].rstrip())
            start += first
            twelfths[query] = _place(offsets[parts], first, start, start + size)
    return twelfths


def _place(offsets: Offsets, first: int, start: int, end: int) -> int:
    """Return the twelfth of what a model reads of a text that contains the middle of a span, or
    `Unread`.

    Offsets are the first character and end of each token that is read, shape (tokens, 2); the input
    may begin with a prompt, so the text has a first character in it, as the span has its start and
    end.
    """
    begins, ends = offsets[offsets[:, 0] >= first].T
    if not len(begins) or end <= begins[0] or start >= ends[-1]:
        # What is read begins at the text's first character, or later if the model reads the last
        # tokens.
        return Unread.BEYOND
    if (start < begins[0] and begins[0] > first) or end > ends[-1]:
        return Unread.CUT
    first_token = np.searchsorted(ends, [start], side="right").astype(np.float64)
    end_token = np.searchsorted(begins, [end]).astype(np.float64)
    size = len(begins)
    return int(place_in_parts(first_token, end_token, size, size, size)[0])


@dataclass(frozen=True)
class _InputReader:
    """Finds the part of its input that a loaded model of sentence-transformers reads."""

    model: Any
    """The model of sentence-transformers, without mteb's wrapper."""
    window: int
    document_prefix: str
    query_prefix: str | None
    """Before the query that a cross-encoder reads with each document; None for other models."""

    @classmethod
    def of_model(cls, model: Any, window: int, task_metadata: TaskMetadata) -> _InputReader | None:
        """Return the reader of an mteb model; None if it has no fast tokenizer, or what reaches it
        is unknown.
        """
        loaded: Any = getattr(model, "model", None)
        if not getattr(getattr(loaded, "tokenizer", None), "is_fast", False):
            return None
        if getattr(type(model), "predict", None) is CrossEncoderWrapper.predict:
            prompt = loaded.prompts.get(loaded.default_prompt_name) or ""
            return cls(loaded, window, model.passage_prefix, prompt + model.query_prefix)
        prompt = find_document_prompt(model, task_metadata)
        return None if prompt is None else cls(loaded, window, prompt, None)

    def join(self, query: str, document: str) -> ModelInput:
        """Return the input of the model for a document, or for a query and a document."""
        text = self.document_prefix + document
        return (text,) if self.query_prefix is None else (self.query_prefix + query, text)

    def find_read(self, inputs: Sequence[ModelInput]) -> dict[ModelInput, Offsets]:
        """Return the characters of the document's tokens that the model reads, shape (tokens, 2),
        if it truncates an input.
        """
        # A token takes at least one byte of normalized text.
        special = self.model.tokenizer.num_special_tokens_to_add(pair=len(inputs[0]) > 1)
        room = self.window - special - len(inputs[0])
        long = [text for text in inputs if sum(map(_count_bytes, text)) > room]
        offsets = dict[ModelInput, Offsets]()
        for batch in progress(split_batches(long, BATCH_SIZE), "Counting tokens"):
            for text, encoding in zip(batch, self.tokenize(batch), strict=True):
                if len(encoding) >= self.window:
                    offsets[text] = _find_offsets(encoding, len(text) - 1)
        return offsets

    def tokenize(self, inputs: Sequence[ModelInput]) -> list[Encoding]:
        texts = map(list, zip(*inputs, strict=True))
        encodings: list[Encoding] = self.model.tokenizer(
            *texts, truncation=True, max_length=self.window
        ).encodings
        return encodings


def _count_bytes(text: str) -> int:
    """Return the bytes of a text after normalization."""
    return len(unicodedata.normalize("NFKD", text).encode())


def _find_offsets(encoding: Encoding, part: int) -> Offsets:
    """Return the characters of the tokens of a part of an input, shape (tokens, 2); special tokens
    have none.
    """
    tokens = [token for token, sequence in enumerate(encoding.sequence_ids) if sequence == part]
    spans = [span for span in map(encoding.token_to_chars, tokens) if span and span[0] < span[1]]
    return np.array(spans, np.int32).reshape(-1, 2)
