"""Evidence that a loaded model truncates at its input window, counted with the model's own tokenizer."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from mteb.models.sentence_transformer_wrapper import CrossEncoderWrapper
from sentence_transformers import SentenceTransformer

from posir_tasks.display.progress import progress
from posir_tasks.errors import summarize_error
from posir_tasks.evidence import Evidence, Integers, Truncation
from posir_tasks.models.landmarks import LANDMARKS, LandmarkTransformer
from posir_tasks.models.prompts import find_document_prompt, preprocess
from posir_tasks.search.dispatch import NO_LIMIT, SearchRequest, find_window
from posir_tasks.tokens import CountedWith
from posir_tasks.window_coverage import TruncatedEvidence

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.models_protocols import MTEBModels
    from tokenizers import Encoding

logger = logging.getLogger(__name__)

#: Texts tokenized at a time.
BATCH_SIZE = 256

#: What a model reads at a time, prompts included: a document, or a query and a document.
ModelInput: TypeAlias = tuple[str, ...]


def find_truncated(model: MTEBModels, request: SearchRequest, evidence: Evidence) -> TruncatedEvidence | None:
    """Find which evidence lies beyond a model's window, by its tokenizer or else estimated; None if the window is unknown.

    Also None if there is no tokenizer and the data has no token counts.
    """
    window = find_window(model)
    if window is None:
        return None
    try:
        beyond = _count_beyond(model, window, request, evidence)
    except Exception as error:
        # Wrappers and tokenizers are code of third parties; what they do must not cost a result.
        logger.warning("the model's tokens cannot be counted (%s); truncation is estimated", summarize_error(error))
        beyond = None
    if beyond is not None:
        return TruncatedEvidence(window, beyond, CountedWith.TOKENIZER)
    context = request.context
    return TruncatedEvidence.estimate(window, evidence, context.task_metadata.hf_subsets_to_langscripts[context.hf_subset])


def _count_beyond(model: MTEBModels, window: int, request: SearchRequest, evidence: Evidence) -> Integers | None:
    """Return `TruncatedEvidence.beyond` by the model's tokenizer; None if that, or where the evidence is, is unknown."""
    reader = InputReader.of_model(model, window, request.context.task_metadata)
    if reader is None or not (len(evidence.starts) and len(evidence.ends)):
        return None
    documents = _relevant_documents(request)
    texts = [documents[name]["text"] for name in evidence.document_ids]
    if len(evidence.characters) and list(map(len, texts)) != evidence.characters.tolist():
        # The spans are of texts in another language.
        return None
    received = {name: _as_received(row) for name, row in documents.items()}
    inputs = [
        reader.join(query, received[name])
        for query, name in zip(request.queries["text"][:], evidence.document_ids, strict=True)
    ]
    distinct = list(dict.fromkeys(inputs))
    if not reader.reads_like_model(max(distinct, key=lambda parts: len(parts[-1]))):
        return None
    read = reader.find_read(distinct)
    starts, ends = evidence.starts.clip(0).tolist(), evidence.ends.tolist()
    return np.array(
        [
            # A text and what the model receives of it end alike, but for white space.
            _place(text, start + len(parts[-1]) - len(text.rstrip()), start, end, read.get(parts))
            for parts, text, start, end in zip(inputs, texts, starts, ends, strict=True)
        ],
        np.int64,
    )


def _place(text: str, place: int, start: int, end: int, read: tuple[int, float] | None) -> Truncation:
    """Return how a model truncates `text[start:end]` but white space at its end.

    `place` is where this begins in the input, of whose characters the model reads those in the interval `read`, or all.
    """
    if read is None:
        return Truncation.WITHIN
    last = place + len(text[start:end].rstrip())
    if read[0] <= place and last <= read[1]:
        return Truncation.WITHIN
    return Truncation.BEYOND if last <= read[0] or place >= read[1] else Truncation.CUT


def _relevant_documents(request: SearchRequest) -> dict[str, dict[str, Any]]:
    needed = set(request.positives.values())
    rows = [row for row, name in enumerate(request.corpus["id"][:]) if name in needed]
    return {row["id"]: row for row in request.corpus.select(rows)}


def _as_received(document: Mapping[str, Any]) -> str:
    """Return the text that mteb gives to models: title and text joined, without white space around them."""
    return f"{document.get('title') or ''} {document['text']}".strip()


@dataclass(frozen=True)
class InputReader:
    """Finds the part of its input that a loaded model of sentence-transformers reads."""

    model: Any
    """The model of sentence-transformers, without mteb's wrapper."""
    window: int
    document_prefix: str
    query_prefix: str | None
    """Before the query that a cross-encoder reads with each document; None for other models."""

    @classmethod
    def of_model(cls, model: Any, window: int, task_metadata: TaskMetadata) -> InputReader | None:
        """Return the reader of an mteb model; None if it has no fast tokenizer, or what reaches it is unknown."""
        loaded: Any = getattr(model, "model", None)
        if not getattr(getattr(loaded, "tokenizer", None), "is_fast", False):
            return None
        if getattr(type(model), "predict", None) is CrossEncoderWrapper.predict:
            prompt = loaded.prompts.get(loaded.default_prompt_name) or ""
            return cls(loaded, window, model.passage_prefix, prompt + model.query_prefix)
        prompt = find_document_prompt(model, task_metadata)
        return None if prompt is None else cls(loaded, window, prompt, None)

    @property
    def _landmarks(self) -> LandmarkTransformer | None:
        """The module that inserts landmarks; None if there is none."""
        first = self.model[0] if isinstance(self.model, SentenceTransformer) else None
        return first if isinstance(first, LandmarkTransformer) else None

    def join(self, query: str, document: str) -> ModelInput:
        """Return what the model reads of a document, or of a query and a document."""
        text = self.document_prefix + document
        return (text,) if self.query_prefix is None else (self.query_prefix + query, text)

    def reads_like_model(self, text: ModelInput) -> bool:
        """Return whether the tokens of an input are those that the model itself makes of it."""
        (encoding,) = self._tokenize([text])
        argument = text if len(text) > 1 else text[0]
        features = preprocess(self.model, [argument], task="document")
        ids = features["input_ids"][0]
        if LANDMARKS in features:
            # Without landmarks, the one at the end included, the tokens are the first ones of the text.
            plain = ids[features[LANDMARKS][0] == 0].tolist()
            return bool(plain == encoding.ids[: len(plain)])
        return bool(ids.tolist() == encoding.ids)

    def find_read(self, inputs: Sequence[ModelInput]) -> dict[ModelInput, tuple[int, float]]:
        """Return the interval of its document's characters that the model reads, for each input that it truncates."""
        long = [text for text in inputs if self._may_be_truncated(text)]
        batches = [long[start : start + BATCH_SIZE] for start in range(0, len(long), BATCH_SIZE)]
        return dict(item for batch in progress(batches, "Counting tokens") for item in self._find_read_in(batch))

    def _find_read_in(self, batch: Sequence[ModelInput]) -> Iterator[tuple[ModelInput, tuple[int, float]]]:
        from_end = self.model.tokenizer.truncation_side == "left"
        landmarks = self._landmarks
        for text, encoding in zip(batch, self._tokenize(batch), strict=True):
            if landmarks is not None:
                yield from _find_read_beside_landmarks(text, encoding, landmarks)
                continue
            if len(encoding) >= self.window:
                tokens = range(len(encoding)) if from_end else reversed(range(len(encoding)))
                places = (
                    encoding.token_to_chars(token) for token in tokens if encoding.token_to_sequence(token) == len(text) - 1
                )
                # Special tokens have no characters.
                begin, end = next((place for place in places if place and place[0] < place[1]), (0, 0))
                yield text, (begin, np.inf) if from_end else (0, end)

    def _may_be_truncated(self, text: ModelInput) -> bool:
        """Return whether the input may have more tokens than the window: a token takes at least one byte of normalized text."""
        # Landmarks take room, too.
        limit = (self._landmarks.text_window if self._landmarks else None) or self.window
        special: int = self.model.tokenizer.num_special_tokens_to_add(pair=len(text) > 1) + len(text)
        return sum(len(unicodedata.normalize("NFKD", part).encode()) for part in text) + special > limit

    def _tokenize(self, inputs: Sequence[ModelInput]) -> list[Encoding]:
        texts = map(list, zip(*inputs, strict=True))
        encodings: list[Encoding] = self.model.tokenizer(*texts, truncation=True, max_length=self.window).encodings
        return encodings


def _find_read_beside_landmarks(
    text: ModelInput, encoding: Encoding, transformer: LandmarkTransformer
) -> Iterator[tuple[ModelInput, tuple[int, float]]]:
    """Yield the interval of characters that a model with landmarks reads, if it truncates the text."""
    places = [place for number in range(len(encoding)) if (place := encoding.token_to_chars(number)) and place[0] < place[1]]
    read = transformer.count_read(len(places))
    if read < len(places) or len(encoding) >= (transformer.max_seq_length or NO_LIMIT):
        yield text, (0, places[read - 1][1] if read else 0)
