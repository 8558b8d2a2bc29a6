"""Tokens of a text, counted and located: those of a tokenizer of transformers, or estimated from
bytes.

Special tokens and truncation belong to a model's input, not to a text. Code that needs the input
itself asks the model: `search/input_window.py`, late chunks and gradient saliency.
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
from posir_tasks.base.progress import progress
from posir_tasks.text.words import BYTES_PER_TOKEN, estimate_tokens, find_words, split_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: Texts tokenized at a time.
BATCH_SIZE = 64
#: Options of a call of a tokenizer.
WHOLE: Mapping[str, Any] = {"add_special_tokens": False, "truncation": False, "verbose": False}

#: Ending of a file with a vocabulary of tiktoken.
TIKTOKEN = ".tiktoken"
#: First character and one past the last of each token, shape (tokens, 2).
TokenSpans = NDArray[np.int64]


class Tokenizer(ABC):
    """Divides texts into tokens, without special ones and without truncation."""

    @abstractmethod
    def count(self, text: str) -> int:
        """Return the number of tokens of a text, at least one."""

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return [self.count(text) for text in texts]

    @abstractmethod
    def find_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        """Return the tokens of each text, in order."""


@dataclass(frozen=True)
class EstimatedTokenizer(Tokenizer):
    """A tokenizer with a token for every four bytes, as `estimate_tokens` counts; each has the
    words that begin in it.
    """

    def count(self, text: str) -> int:
        """Return the estimated number of tokens of a text."""
        return max(1, estimate_tokens(text))

    def find_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        """Return the tokens of each text; together they have all of its words, and no word is
        divided.
        """
        grouped = list[TokenSpans]()
        for text in texts:
            words = np.array(find_words(text), np.int64).reshape(-1, 2)
            sizes = [len(piece.encode()) for piece in split_words(text)]
            ends = np.cumsum(sizes, dtype=np.int64)
            tokens = np.arange(0, ends[-1] if len(words) else 0, BYTES_PER_TOKEN)
            first = np.searchsorted(ends, tokens, side="right")
            last = np.maximum(first, np.append(first[1:], len(words)) - 1)
            grouped.append(np.stack([words[first, 0], words[last, 1]], axis=1))
        return grouped


@dataclass(frozen=True)
class ModelTokenizer(Tokenizer):
    """A tokenizer of transformers."""

    tokenizer: PreTrainedTokenizerBase

    @classmethod
    def load(cls, name: str) -> ModelTokenizer:
        """Load a tokenizer by its name on the Hub, its folder, or the file of a vocabulary of
        tiktoken; raise PosirError if that fails.
        """
        from transformers import AutoTokenizer

        try:
            if str(name).endswith(TIKTOKEN):
                return cls(_load_vocabulary(name))
            # Without this, transformers asks on the terminal whether code of the tokenizer may run.
            return cls(AutoTokenizer.from_pretrained(name, trust_remote_code=False))
        except Exception as error:
            raise PosirError(
                f"tokenizer '{name}' cannot be loaded ({summarize_error(error)}). Give a name on "
                f"the Hub, a folder with its files, or a file of tiktoken (*{TIKTOKEN}); without "
                "--tokenizer, tokens are those of the model, or one for every four bytes."
            ) from error

    @property
    def special_tokens(self) -> int:
        """Number of special tokens of a text."""
        return int(self.tokenizer.num_special_tokens_to_add())

    @property
    def locates_tokens(self) -> bool:
        """Whether it can say where tokens are in a text."""
        return bool(self.tokenizer.is_fast)

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return max(1, len(self.tokenizer(text, **WHOLE)["input_ids"]))

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, encoded in batches."""
        encoded = [ids for batch in self._encode(texts) for ids in batch["input_ids"]]
        return [max(1, len(ids)) for ids in encoded]

    def find_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        """Return the tokens of each text; raise PosirError if the tokenizer is a slow one."""
        if not self.locates_tokens:
            name = self.tokenizer.name_or_path
            raise PosirError(
                f"tokenizer '{name}' does not say where its tokens are in a text. Choose one with "
                "a fast version."
            )
        found = list[TokenSpans]()
        for batch in self._encode(texts, return_offsets_mapping=True):
            for offsets in batch["offset_mapping"]:
                spans = [span for span in offsets if span[1] > span[0]]
                found.append(np.array(spans, np.int64).reshape(-1, 2))
        return found

    def _encode(self, texts: Sequence[str], **options: bool) -> Iterator[Any]:
        for batch in progress(split_batches(texts, BATCH_SIZE), "Counting tokens"):
            yield self.tokenizer([*batch], **WHOLE, **options)


def _load_vocabulary(file: str) -> PreTrainedTokenizerBase:
    """Load a file of tiktoken, such as cl100k_base.tiktoken: a token in Base64 and its rank a line.

    Words are divided before by the pattern of cl100k_base.
    """
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    # Neither class is annotated.
    tokenizer_class: Any = PreTrainedTokenizerFast
    converter_class: Any = TikTokenConverter
    ranks = {}
    for line in Path(file).read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token, validate=True)] = int(rank)
    converter = converter_class(file)
    # The converter's own reader needs the package tiktoken.
    converter.load_tiktoken_bpe = lambda _: ranks
    loaded: PreTrainedTokenizerBase = tokenizer_class(
        tokenizer_object=converter.converted(), name_or_path=file
    )
    return loaded


def find_tokenizer(model: Any) -> ModelTokenizer | None:
    """Return the tokenizer of a model of mteb or sentence-transformers; None if it has none
    here.
    """
    from transformers import PreTrainedTokenizerBase

    for owner in (getattr(model, "model", None), model):
        tokenizer = getattr(owner, "tokenizer", None)
        if isinstance(tokenizer, PreTrainedTokenizerBase):
            return ModelTokenizer(tokenizer)
    return None


def load_tokenizer(name: str | None) -> Tokenizer:
    """Load a tokenizer as `ModelTokenizer.load` does; None estimates tokens from bytes."""
    return EstimatedTokenizer() if name is None else ModelTokenizer.load(name)
