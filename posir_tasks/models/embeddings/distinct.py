"""Dense, sparse or multi-vector embeddings of distinct texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class DistinctEmbeddings:
    """Dense, sparse or multi-vector embeddings of distinct texts."""

    rows: Mapping[str, int]
    embeddings: Any
    """One row per distinct text, in the model's format."""

    @classmethod
    def encode(cls, texts: Iterable[str], encode: Callable[[list[str]], Any]) -> DistinctEmbeddings:
        """Encode each distinct text once."""
        distinct = list(dict.fromkeys(texts))
        if distinct:
            return cls({text: row for row, text in enumerate(distinct)}, encode(distinct))
        return NO_EMBEDDINGS

    def select(self, texts: Iterable[str]) -> Any:
        """Return the embeddings of texts, one row per text."""
        rows = [self.rows[text] for text in texts]
        if isinstance(self.embeddings, torch.Tensor):  # sparse tensors have no other indexing
            return self.embeddings.index_select(
                0, torch.tensor(rows, device=self.embeddings.device)
            )
        if isinstance(self.embeddings, list):
            return [self.embeddings[row] for row in rows]
        return self.embeddings[rows]


NO_EMBEDDINGS = DistinctEmbeddings({}, np.empty((0, 0), np.float32))
