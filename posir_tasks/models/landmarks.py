"""Landmarks: special tokens after every so many tokens of a text, whose states are the only ones that are pooled.

Landmark pooling (LMK, arXiv 2601.21525) is trained: `[CLS] g tokens [SEP] g tokens [SEP] .. rest [SEP]`, for queries, too, cut
after the insertion. Where the cut leaves no landmark, the last token becomes one, as in the paper's training; its evaluation
averages all tokens there. The code of the paper was described to us, and none of it was used. The vector is the mean of the
landmarks' states.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from posir_tasks.errors import PosirError
from posir_tasks.text.chunks import Chunking

#: Sizes that training draws from for each text, and the size at inference (`var` in the code of arXiv 2601.21525).
VARIED_SIZES, INFERENCE_SIZE = (32, 64, 128, 256), 32
#: Features of a batch that say which tokens are landmarks, 1 or 0, shape (texts, tokens).
LANDMARKS = "landmark_mask"
#: A text without special tokens of its own.
SAMPLE = "a"


@dataclass(frozen=True)
class LandmarkedText:
    """The tokens of a text with its landmarks."""

    ids: list[int]
    is_landmark: list[bool]


def insert_landmarks(
    chunks: Iterable[Sequence[int]],
    landmark: int,
    prefix: Sequence[int] = (),
    window: int | None = None,
) -> LandmarkedText:
    """Return the tokens of chunks, each with a landmark after it; at least one is a landmark.

    Args:
        chunks: The tokens of each chunk.
        landmark: The id of the landmark.
        prefix: Special tokens before the text.
        window: Most tokens, special ones included; None if there is no limit.
    """
    ids, places = list(prefix), list[int]()
    for chunk in chunks:
        if window is not None and len(ids) >= window:
            break
        ids += [*chunk, landmark]
        places.append(len(ids) - 1)
    if window is not None and len(ids) > window:
        del ids[window:]
        places = [place for place in places if place < window]
    if not places:
        ids[-1:], places = [landmark], [max(0, len(ids) - 1)]
    is_landmark = [False] * len(ids)
    for place in places:
        is_landmark[place] = True
    return LandmarkedText(ids, is_landmark)


@dataclass(frozen=True)
class LandmarkSettings:
    """The places of landmarks in a text."""

    size: int = INFERENCE_SIZE
    """Tokens of a chunk before its landmark."""
    varied_sizes: tuple[int, ...] = ()
    """Sizes that training draws from, one for each text; none if it is always `size`."""

    def divide(self, ids: Sequence[int], *, vary: bool = False) -> list[Sequence[int]]:
        """Return the chunks of a text, at least one.

        Args:
            ids: The tokens of the text.
            vary: Whether the size is drawn. It depends on the text alone, so that a run that is continued has the same.
        """
        size = self.size
        if vary and self.varied_sizes:
            size = self.varied_sizes[crc32(np.asarray(ids, np.int64).tobytes()) % len(self.varied_sizes)]
        return [ids[first:after] for first, after in Chunking(size, size).group(len(ids))]


class LandmarkTransformer(Transformer):
    """The first module of a model with landmarks: inserts them, and says where they are."""

    config_keys: list[str] = [*Transformer.config_keys, "landmark_size", "landmark_varied_sizes"]  # noqa: RUF012

    def __init__(
        self,
        model_name_or_path: str,
        *,
        landmark_size: int = INFERENCE_SIZE,
        landmark_varied_sizes: Sequence[int] = (),
        **options: Any,
    ) -> None:
        super().__init__(model_name_or_path, **options)
        self._set(LandmarkSettings(landmark_size, tuple(landmark_varied_sizes)))

    def _set(self, settings: LandmarkSettings) -> None:
        self.landmark_size = settings.size
        self.landmark_varied_sizes = list(settings.varied_sizes)
        self._prefix, self._suffix = find_special_tokens(self.tokenizer)
        self._landmark = find_landmark(self.tokenizer)

    @classmethod
    def of(cls, transformer: Transformer, settings: LandmarkSettings) -> LandmarkTransformer:
        """Return a module with the same weights that inserts landmarks; the given one stays as it is.

        Raises:
            PosirError: Its tokenizer has no token that can be a landmark.
        """
        made: Any = copy.copy(transformer)
        made.__class__ = cls
        made._set(settings)
        result: LandmarkTransformer = made
        return result

    @property
    def landmarks(self) -> LandmarkSettings:
        """The places of landmarks in a text."""
        return LandmarkSettings(self.landmark_size, tuple(self.landmark_varied_sizes))

    def preprocess(
        self,
        inputs: Sequence[Any],
        prompt: str | None = None,
        processing_kwargs: Any = None,
        *,
        vary_landmarks: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Return the features of texts, with their landmarks.

        Args:
            inputs: Texts.
            prompt: Put before each; landmarks are counted from its start.
            processing_kwargs: As for other models of sentence-transformers.
            vary_landmarks: Whether the sizes are those of training.
            options: The same.
        """
        features: dict[str, Any] = super().preprocess(inputs, prompt, processing_kwargs, **options)
        if not features:
            return features
        # Cut at the window, a text still has more tokens than fit with landmarks.
        rows = zip(features["input_ids"], features["attention_mask"].bool(), strict=True)
        texts = [self._insert(row[mask].tolist(), vary=vary_landmarks) for row, mask in rows]
        tokenizer: Any = self.tokenizer
        padded = tokenizer.pad({"input_ids": [text.ids for text in texts]}, return_tensors="pt")
        marks = torch.zeros_like(padded["input_ids"])
        marks[padded["attention_mask"].bool()] = torch.tensor([mark for text in texts for mark in text.is_landmark]).to(marks)
        kinds = {"token_type_ids": torch.zeros_like(marks)} if "token_type_ids" in features else {}
        return features | kinds | {**padded, LANDMARKS: marks}

    def _should_flatten_inputs(self, *_: Any, **__: Any) -> bool:
        return False

    def _insert(self, ids: list[int], *, vary: bool) -> LandmarkedText:
        end = len(ids) - len(self._suffix) if ids[len(ids) - len(self._suffix) :] == self._suffix else len(ids)
        chunks = self.landmarks.divide(ids[len(self._prefix) : end], vary=vary)
        return insert_landmarks(chunks, self._landmark, self._prefix, self.max_seq_length)

    def count_read(self, tokens: int) -> int:
        """Return how many tokens of a text of so many the model reads, special ones not counted."""
        limit = tokens if self.max_seq_length is None else min(tokens, self.max_seq_length)
        # The tokens are their places in the text, and the landmark is none.
        chunks = self.landmarks.divide(range(limit))
        text = insert_landmarks(chunks, -1, self._prefix, self.max_seq_length)
        return max(text.ids[len(self._prefix) :], default=-1) + 1

    @property
    def text_window(self) -> int | None:
        """The window of a model without landmarks that reads as much of a long text; None without a limit."""
        if self.max_seq_length is None:
            return None
        return self.count_read(self.max_seq_length) + len(self._prefix) + len(self._suffix)


class LandmarkPooling(Pooling):
    """Averages the states of landmarks."""

    POOLING_MODES: Any = ("landmark",)

    def __init__(self, embedding_dimension: int, pooling_mode: Any = "landmark", include_prompt: bool = True) -> None:
        super().__init__(embedding_dimension, pooling_mode, include_prompt)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add the embeddings of the texts, shape (texts, dimensions)."""
        marks = features[LANDMARKS].unsqueeze(-1)
        states = features["token_embeddings"]
        total = (states * marks.to(states.dtype)).sum(dim=1, dtype=torch.promote_types(states.dtype, torch.float32))
        features["sentence_embedding"] = (total / marks.sum(dim=1)).to(states.dtype)
        return features


def find_landmark(tokenizer: Any) -> int:
    """Return the id of the token that serves as landmark: the separator, else that of the end or the beginning of a text.

    Raises:
        PosirError: The tokenizer has none of them.
    """
    for name in ("sep_token_id", "eos_token_id", "bos_token_id"):
        if (token := getattr(tokenizer, name, None)) is not None:
            return int(token)
    raise PosirError("landmarks need a tokenizer with a token for separation, or for the end or the beginning of a text.")


def find_special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the special tokens that a tokenizer puts before and after a text."""
    plain = tokenizer(SAMPLE, add_special_tokens=False)["input_ids"]
    full = tokenizer(SAMPLE)["input_ids"]
    start = next(place for place in range(len(full)) if full[place : place + len(plain)] == plain)
    return full[:start], full[start + len(plain) :]


def add_landmarks(model: SentenceTransformer, settings: LandmarkSettings) -> SentenceTransformer:
    """Return a model with the same weights that pools landmarks; the given one stays as it is.

    Raises:
        PosirError: It has not a transformer, then pooling, or its tokenizer has no token that can be a landmark.
    """
    modules = list(model)
    if len(modules) < 2 or not isinstance(modules[0], Transformer) or not isinstance(modules[1], Pooling):
        raise PosirError("landmarks need a model with a transformer, then pooling.")
    made = copy.copy(model)
    pooling = LandmarkPooling(modules[0].get_embedding_dimension())
    made._modules = dict(
        zip(model._modules, [LandmarkTransformer.of(modules[0], settings), pooling, *modules[2:]], strict=True)
    )
    return made


def find_text_window(model: Any) -> int | None:
    """Return the tokens that a model of sentence-transformers reads of a long text, special ones at its ends included.

    That is its window, less the landmarks if it has any; None if it is unknown or there is no limit.
    """
    first = next(iter(model), None) if isinstance(model, SentenceTransformer) else None
    window: Any = first.text_window if isinstance(first, LandmarkTransformer) else getattr(model, "max_seq_length", None)
    return int(window) if window else None


def count_landmark_room(model: Any) -> int:
    """Return how many tokens less of a long text a model reads for its landmarks; 0 for a model without any."""
    first = next(iter(model), None) if isinstance(model, SentenceTransformer) else None
    if not isinstance(first, LandmarkTransformer) or first.max_seq_length is None or first.text_window is None:
        return 0
    return int(first.max_seq_length) - first.text_window


def window_for(model: Any, tokens: int) -> int:
    """Return the window in which a model reads a text of so many tokens, special ones at its ends included."""
    first = next(iter(model), None) if isinstance(model, SentenceTransformer) else None
    if not isinstance(first, LandmarkTransformer):
        return tokens
    text = tokens - len(first._prefix) - len(first._suffix)
    return len(first._prefix) + text + max(0, math.ceil(text / first.landmark_size) - 1) + 1
