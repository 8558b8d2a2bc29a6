"""Small encoders that record the texts they encode, and damage to cached embeddings."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from mteb.models import ModelMeta
from sentence_transformers import SentenceTransformer

from posir_tasks.base.logs import warn_once
from posir_tasks.models.embeddings import cached_encoder
from posir_tasks.models.embeddings.cache import read_embeddings


def reset_process_state() -> None:
    """Close all caches and forget which warnings were given, as in a new process."""
    cached_encoder._cache_in.cache_clear()
    warn_once.cache_clear()


class RecordingTransformer(SentenceTransformer):
    """A sentence-transformers model that records the texts it encodes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self._encoded: list[str] = []

    @property
    def encoded(self) -> list[str]:
        """All encoded texts, in order."""
        return self._encoded

    def encode(self, inputs: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        self._encoded.extend(inputs)
        return super().encode(inputs, **kwargs)


class RecordingEncoder:
    """An encoder unknown to mteb and posir: a text's vector counts the characters of the text and
    of the task's names.
    """

    def __init__(
        self, model_name: str = "test/encoder", revision: str | None = "1", **_: Any
    ) -> None:
        self.mteb_model_meta = ModelMeta.create_empty({"name": model_name, "revision": revision})
        self.prefix = ""
        self._encoded: list[str] = []

    @property
    def encoded(self) -> list[str]:
        """All encoded texts, in order."""
        return self._encoded

    def encode(
        self, inputs: Any, *, task_metadata: Any, hf_subset: str, prompt_type: Any = None, **_: Any
    ) -> Any:
        texts = [text for batch in inputs for text in batch["text"]]
        self._encoded += texts
        context = f"{self.prefix}{task_metadata.name}{hf_subset}{prompt_type}"
        return self.vectors(
            [
                np.bincount(np.frombuffer((context + text).encode(), np.uint8), minlength=256)
                for text in texts
            ]
        )

    def vectors(self, counts: list[Any]) -> Any:
        """Convert character counts to embeddings."""
        return np.array(counts, np.float32)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        return (
            torch.nn.functional.normalize(torch.as_tensor(embeddings1))
            @ torch.nn.functional.normalize(torch.as_tensor(embeddings2)).T
        )

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        return torch.cosine_similarity(torch.as_tensor(embeddings1), torch.as_tensor(embeddings2))


def damage(file: Path, row: int) -> None:
    """Corrupt one embedding of a file, as a failing disk does."""
    offset = file.read_bytes().index(
        np.ascontiguousarray(read_embeddings(file).rows[row]).tobytes()
    )
    with file.open("rb+") as opened:
        opened.seek(offset)
        opened.write(b"\xff")
