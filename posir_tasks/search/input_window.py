"""Locate evidence in a loaded model's context window, in tokens of its tokenizer."""

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
from posir_tasks.base.progress import track_items
from posir_tasks.data.data import to_frame
from posir_tasks.models.prompts import find_document_prompt, preprocess
from posir_tasks.models.request import SearchRequest
from posir_tasks.models.window import find_read_part
from posir_tasks.search.scoring import Rows, select_texts
from posir_tasks.text.tokenizer import ModelTokenizer, find_tokenizer
from posir_tasks.values.evidence import Evidence, ReadEvidence, Unread, locate_in_window
from posir_tasks.values.read_part import Part, ReadKind, ReadPart, TokenCountMethod
from posir_tasks.values.tokens_read import TokensRead, count_tokens_read, resolve_window

if TYPE_CHECKING:
    import polars as pl
    from datasets import Dataset
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.models_protocols import MTEBModels
    from tokenizers import Encoding

    from posir_tasks.values.schemes import PositionScheme

logger = logging.getLogger(__name__)

#: Number of texts to tokenize at a time.
BATCH_SIZE = 256

#: Start and end of each token in characters, shape (tokens, 2).
Offsets: TypeAlias = NDArray[np.int32]
#: Texts of one input, including prompts: a document, or a query and a document.
ModelInput: TypeAlias = tuple[str, ...]


def find_read_evidence(
    model: MTEBModels,
    request: SearchRequest,
    queries: Dataset,
    evidence: Evidence,
    documents: Rows,
) -> ReadEvidence:
    """Locate the evidence of queries within a model's window, with its tokenizer or by estimate.

    Args:
        model: The model.
        request: The search request.
        queries: The queries.
        evidence: Evidence of the queries.
        documents: Rows of the relevant documents by id.
    """
    context = request.context
    read_part = find_corpus_read_part(
        model, context.task_metadata, context.hf_subset, request.corpus
    )
    read_evidence = count_read_evidence(
        model, read_part, queries, context.task_metadata, evidence, documents
    )
    languages = context.task_metadata.hf_subsets_to_langscripts[context.hf_subset]
    return read_evidence or ReadEvidence.estimate(
        read_part, evidence.add_lengths(select_texts(documents)), languages
    )


def find_corpus_read_part(
    model: MTEBModels, task: TaskMetadata, subset: str, corpus: Dataset
) -> ReadPart:
    """Return the part of the corpus texts that a model reads. If only a lower bound of the window
    is known, check whether the longest text fits.
    """
    read_part = find_read_part(model)
    if read_part.least_tokens is None:
        return read_part
    tokenizer, _ = find_token_counter(model, task)
    languages = task.hf_subsets_to_langscripts[subset]
    return resolve_window(read_part, to_frame(corpus), languages, tokenizer)


def count_read_evidence(
    model: MTEBModels,
    read_part: ReadPart,
    queries: Dataset,
    task: TaskMetadata,
    evidence: Evidence,
    documents: Rows,
) -> ReadEvidence | None:
    """Locate evidence within a model's window with its tokenizer. Return None if the model reads
    whole texts or its tokens cannot be counted.
    """
    if read_part.kind is not ReadKind.PART:
        return None
    try:
        twelfths = _count_twelfths(model, read_part, queries, task, evidence, documents)
    except Exception as error:
        # Third-party wrappers and tokenizers may raise anything.
        logger.warning(
            "the model's tokens cannot be counted (%s) and are estimated", summarize_error(error)
        )
        return None
    return (
        None if twelfths is None else ReadEvidence(read_part, twelfths, TokenCountMethod.TOKENIZER)
    )


def count_corpus(
    model: MTEBModels,
    task: TaskMetadata,
    subset: str,
    scheme: PositionScheme,
    corpus: pl.DataFrame,
    read_part: ReadPart,
) -> TokensRead | None:
    """Count or estimate the corpus tokens that a model reads; None if its window is unknown."""
    count = partial(count_tokens_read, scheme, task.hf_subsets_to_langscripts[subset])
    try:
        return count(*find_token_counter(model, task), corpus, read_part)
    except Exception as error:
        # Third-party wrappers and tokenizers may raise anything.
        logger.warning(
            "the model's tokens cannot be counted (%s) and are estimated", summarize_error(error)
        )
        return count(None, 0, corpus, read_part)


def find_token_counter(model: MTEBModels, task: TaskMetadata) -> tuple[ModelTokenizer | None, int]:
    """Return a model's tokenizer and the number of prompt and special tokens, or None and 0 if the
    tokenizer does not return offsets.
    """
    model = _find_base_model(model)
    tokenizer = find_tokenizer(model)
    if tokenizer is None or not tokenizer.returns_offsets:
        return None, 0
    prompt = find_document_prompt(model, task)
    return tokenizer, tokenizer.special_tokens + (tokenizer.count(prompt) if prompt else 0)


def _find_base_model(model: Any) -> Any:
    """Return the base model if a wrapper passes texts to it unchanged, else the model itself."""
    return getattr(model, "reads_as", model)


def _count_twelfths(
    model: MTEBModels,
    read_part: ReadPart,
    queries: Dataset,
    task: TaskMetadata,
    evidence: Evidence,
    documents: Rows,
) -> Integers | None:
    """Compute `ReadEvidence.twelfths`. Return None if the tokenizer or the spans are unknown."""
    if read_part.part not in (Part.FIRST, Part.LAST) or not len(evidence.starts):
        return None
    # SQuAD-PosQ has only the starts of spans.
    ends = evidence.ends if len(evidence.ends) else evidence.starts + 1
    reader = _InputReader.from_model(_find_base_model(model), read_part.tokens or 0, task)
    if reader is None:
        return None
    texts = [documents[name]["text"] for name in evidence.document_ids]
    if len(evidence.characters) and list(map(len, texts)) != evidence.characters.tolist():
        # The spans refer to documents in another language.
        return None
    # mteb joins title and text, and strips white space.
    received_texts = {
        name: f"{row.get('title') or ''} {row['text']}".strip() for name, row in documents.items()
    }
    inputs = [
        reader.join(query, received_texts[name])
        for query, name in zip(queries["text"][:], evidence.document_ids, strict=True)
    ]
    distinct = list(dict.fromkeys(inputs))
    # The model's preprocessing must return the same tokens.
    longest = max(distinct, key=lambda model_input: len(model_input[-1]))
    sample = longest if len(longest) > 1 else longest[0]
    features = preprocess(reader.model, [sample], task="document")
    if features["input_ids"][0].tolist() != reader.tokenize([longest])[0].ids:
        return None
    offsets = reader.truncate(distinct)
    twelfths = evidence.add_lengths(select_texts(documents)).compute_twelfths()
    for query, (model_input, text) in enumerate(zip(inputs, texts, strict=True)):
        if model_input in offsets:
            # Except for white space, the input ends with the text.
            text_start = len(model_input[-1]) - len(text.rstrip())
            start = max(int(evidence.starts[query]), 0)
            size = len(text[start : int(ends[query])].rstrip())
            start += text_start
            twelfths[query] = _find_twelfth(offsets[model_input], text_start, start, start + size)
    return twelfths


def _find_twelfth(offsets: Offsets, text_start: int, start: int, end: int) -> int:
    """Return the twelfth of the read tokens that contains the middle of a span, or an `Unread`
    code.

    Args:
        offsets: Offsets of the read tokens, shape (tokens, 2).
        text_start: First character of the text in the input, after the prompt.
        start: First character of the span in the input.
        end: One past the last character of the span in the input.
    """
    token_starts, token_ends = offsets[offsets[:, 0] >= text_start].T
    if not len(token_starts) or end <= token_starts[0] or start >= token_ends[-1]:
        return Unread.BEYOND
    # The model may truncate the start of a text.
    if (start < token_starts[0] and token_starts[0] > text_start) or end > token_ends[-1]:
        return Unread.CUT
    first_token = np.searchsorted(token_ends, [start], side="right").astype(np.float64)
    end_token = np.searchsorted(token_starts, [end]).astype(np.float64)
    size = len(token_starts)
    return int(locate_in_window(first_token, end_token, size, size, size)[0])


@dataclass(frozen=True)
class _InputReader:
    """Tokenizes and truncates inputs like a loaded sentence-transformers model."""

    model: Any
    """The sentence-transformers model, without mteb's wrapper."""
    window: int
    document_prefix: str
    query_prefix: str | None
    """Prefix of the query, which a cross-encoder reads with the document; None for other models."""

    @classmethod
    def from_model(
        cls, model: Any, window: int, task_metadata: TaskMetadata
    ) -> _InputReader | None:
        """Build the reader, or return None if the tokenizer is slow or the prompt unknown."""
        transformer: Any = getattr(model, "model", None)
        if not getattr(getattr(transformer, "tokenizer", None), "is_fast", False):
            return None
        if getattr(type(model), "predict", None) is CrossEncoderWrapper.predict:
            prompt = transformer.prompts.get(transformer.default_prompt_name) or ""
            return cls(transformer, window, model.passage_prefix, prompt + model.query_prefix)
        prompt = find_document_prompt(model, task_metadata)
        return None if prompt is None else cls(transformer, window, prompt, None)

    def join(self, query: str, document: str) -> ModelInput:
        """Build the model's input. Only cross-encoders use the query."""
        text = self.document_prefix + document
        return (text,) if self.query_prefix is None else (self.query_prefix + query, text)

    def truncate(self, inputs: Sequence[ModelInput]) -> dict[ModelInput, Offsets]:
        """Return the offsets of the document's tokens for each truncated input."""
        # A token has at least one byte of normalized text, so shorter inputs are not truncated.
        special_tokens = self.model.tokenizer.num_special_tokens_to_add(pair=len(inputs[0]) > 1)
        room = self.window - special_tokens - len(inputs[0])
        long_inputs = [texts for texts in inputs if sum(map(_count_bytes, texts)) > room]
        offsets = dict[ModelInput, Offsets]()
        for batch in track_items(split_batches(long_inputs, BATCH_SIZE), "Counting tokens"):
            for model_input, encoding in zip(batch, self.tokenize(batch), strict=True):
                if len(encoding) >= self.window:
                    offsets[model_input] = _find_offsets(encoding, len(model_input) - 1)
        return offsets

    def tokenize(self, inputs: Sequence[ModelInput]) -> list[Encoding]:
        texts = map(list, zip(*inputs, strict=True))
        encodings: list[Encoding] = self.model.tokenizer(
            *texts, truncation=True, max_length=self.window
        ).encodings
        return encodings


def _count_bytes(text: str) -> int:
    """Count the bytes of a text after normalization."""
    return len(unicodedata.normalize("NFKD", text).encode())


def _find_offsets(encoding: Encoding, sequence_id: int) -> Offsets:
    """Return the offsets of a sequence's tokens, without special tokens."""
    tokens = [token for token, number in enumerate(encoding.sequence_ids) if number == sequence_id]
    spans = [span for span in map(encoding.token_to_chars, tokens) if span and span[0] < span[1]]
    return np.array(spans, np.int32).reshape(-1, 2)
