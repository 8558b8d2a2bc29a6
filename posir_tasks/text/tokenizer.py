"""Count and locate tokens with a transformers tokenizer, or estimate them from bytes.

Special tokens and truncation are excluded, since they belong to the model input. Code that needs
the model input gets it from the model (`search/input_window.py`, late chunks, gradient saliency).
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posir_tasks.base.batches import split_batches
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.progress import track_items
from posir_tasks.text.words import BYTES_PER_TOKEN, estimate_tokens, find_words, split_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: Texts per batch.
BATCH_SIZE = 64
#: Tokenizer call options.
CALL_OPTIONS: Mapping[str, Any] = {
    "add_special_tokens": False,
    "truncation": False,
    "verbose": False,
}

#: Suffix of tiktoken's vocabulary files.
TIKTOKEN_SUFFIX = ".tiktoken"
#: Half-open character span of each token, shape (tokens, 2).
TokenSpans = NDArray[np.int64]


class Tokenizer(ABC):
    """Splits texts into tokens without special tokens or truncation."""

    @abstractmethod
    def count(self, text: str) -> int:
        """Count the tokens of a text. At least 1."""

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text."""
        return list(map(self.count, texts))

    @abstractmethod
    def find_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        """Locate the tokens of each text, in order."""


@dataclass(frozen=True)
class EstimatedTokenizer(Tokenizer):
    """Estimates one token per four bytes, like `estimate_tokens`. The span of a token covers the
    words that start in it.
    """

    def count(self, text: str) -> int:
        """Estimate the number of tokens in a text."""
        return max(1, estimate_tokens(text))

    def find_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        """Locate the tokens of each text, without splitting words."""
        spans = []
        for text in texts:
            words = np.array(find_words(text), np.int64).reshape(-1, 2)
            ends = np.cumsum([len(piece.encode()) for piece in split_words(text)], dtype=np.int64)
            tokens = np.arange(0, ends[-1] if len(words) else 0, BYTES_PER_TOKEN)
            first = np.searchsorted(ends, tokens, side="right")
            last = np.maximum(first, np.append(first[1:], len(words)) - 1)
            spans.append(np.stack([words[first, 0], words[last, 1]], axis=1))
        return spans


@dataclass(frozen=True)
class ModelTokenizer(Tokenizer):
    """A transformers tokenizer."""

    tokenizer: PreTrainedTokenizerBase

    @classmethod
    def load(cls, name: str) -> ModelTokenizer:
        """Load a tokenizer by Hub name, folder or tiktoken file; raise PosirError on failure."""
        from transformers import AutoTokenizer

        try:
            if str(name).endswith(TIKTOKEN_SUFFIX):
                return cls(_load_vocabulary(name))
            # By default, transformers asks the user for permission to run code.
            return cls(AutoTokenizer.from_pretrained(name, trust_remote_code=False))
        except Exception as error:
            raise PosirError(
                f"tokenizer '{name}' cannot be loaded ({summarize_error(error)}). Give a name on "
                f"the Hub, a folder with its files, or a tiktoken file (*{TIKTOKEN_SUFFIX}). "
                "Without --tokenizer, posir uses the model's tokenizer, or counts one token per "
                "four bytes."
            ) from error

    @property
    def special_tokens(self) -> int:
        """Number of special tokens per text."""
        return int(self.tokenizer.num_special_tokens_to_add())

    @property
    def returns_offsets(self) -> bool:
        """True if the tokenizer returns token offsets."""
        return bool(self.tokenizer.is_fast)

    def count(self, text: str) -> int:
        """Count the tokens of a text."""
        return max(1, len(self.tokenizer(text, **CALL_OPTIONS)["input_ids"]))

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text in batches."""
        return [max(1, len(ids)) for batch in self._encode(texts) for ids in batch["input_ids"]]

    def find_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        """Locate the tokens of each text; raise PosirError for slow tokenizers."""
        if not self.returns_offsets:
            name = self.tokenizer.name_or_path
            raise PosirError(
                f"tokenizer '{name}' does not return token offsets. Choose a fast tokenizer."
            )
        tokens = []
        for batch in self._encode(texts, return_offsets_mapping=True):
            for offsets in batch["offset_mapping"]:
                spans = [span for span in offsets if span[1] > span[0]]
                tokens.append(np.array(spans, np.int64).reshape(-1, 2))
        return tokens

    def _encode(self, texts: Sequence[str], **options: bool) -> Iterator[Any]:
        for batch in track_items(split_batches(texts, BATCH_SIZE), "Counting tokens"):
            yield self.tokenizer([*batch], **CALL_OPTIONS, **options)


def _load_vocabulary(file: str) -> PreTrainedTokenizerBase:
    """Load a tiktoken file such as cl100k_base.tiktoken, with a Base64 token and its rank per line.

    Texts are pre-tokenized with the pattern of cl100k_base.
    """
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    rows = map(bytes.split, Path(file).read_bytes().splitlines())
    ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in rows}
    converter: Any = TikTokenConverter(file)  # type: ignore[no-untyped-call]
    # The default function requires the tiktoken package.
    converter.load_tiktoken_bpe = lambda _: ranks
    return PreTrainedTokenizerFast(tokenizer_object=converter.converted(), name_or_path=file)  # type: ignore[no-untyped-call]


def find_tokenizer(model: Any) -> ModelTokenizer | None:
    """Return the tokenizer of a loaded mteb or sentence-transformers model, or None."""
    from transformers import PreTrainedTokenizerBase

    for owner in (getattr(model, "model", None), model):
        tokenizer = getattr(owner, "tokenizer", None)
        if isinstance(tokenizer, PreTrainedTokenizerBase):
            return ModelTokenizer(tokenizer)
    return None


def load_tokenizer(name: str | None) -> Tokenizer:
    """Load a tokenizer by name, folder or file. None estimates tokens from bytes."""
    return EstimatedTokenizer() if name is None else ModelTokenizer.load(name)
