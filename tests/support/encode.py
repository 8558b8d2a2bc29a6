"""Encoding of a few texts with a model of mteb."""

from typing import Any

import numpy as np
from mteb.types import PromptType
from torch.utils.data import DataLoader

from posir_tasks.models.embeddings.context import build_texts
from posir_tasks.tasks.posir import PosIRMini

TASK: dict[str, Any] = {
    "task_metadata": PosIRMini.metadata,
    "hf_split": "test",
    "hf_subset": "default",
}


def encode(
    model: Any,
    texts: list[str],
    prompt_type: PromptType = PromptType.document,
    batch_size: int = 32,
) -> np.ndarray:
    """Return the embeddings of texts, shape (n, dimensions)."""
    loader = DataLoader(build_texts(texts), batch_size=batch_size)
    return np.asarray(
        model.encode(
            loader, prompt_type=prompt_type, batch_size=batch_size, show_progress_bar=False, **TASK
        )
    )
