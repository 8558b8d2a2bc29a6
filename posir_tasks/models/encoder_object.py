"""mteb model that wraps an object with an `encode` method, such as a user's class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.models.abs_encoder import AbsEncoder, get_prompt
from mteb.types import PromptType
from numpy.typing import NDArray

from posir_tasks.base.errors import PosirError, summarize_error

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import Array, BatchedInput
    from torch.utils.data import DataLoader


class ObjectEncoder(AbsEncoder):
    """Encodes texts with an object's `encode_query` and `encode_document`, or else `encode`."""

    def __init__(self, target: Any, model_prompts: dict[str, str] | None) -> None:
        self.target = target
        self.model_prompts = model_prompts or {}

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata,
        prompt_type: PromptType | None = None,
        **_: Any,
    ) -> Array:
        """Encode texts, shape (n, dimensions).

        Raises:
            PosirError: The object raises an error or returns the wrong shape.
        """
        prompt = get_prompt(self.model_prompts, task_metadata, prompt_type) or ""
        texts = [f"{prompt}{text}" for batch in inputs for text in batch["text"]]
        side = "encode_query" if prompt_type is PromptType.query else "encode_document"
        name = f"{type(self.target).__name__}.encode"
        try:
            vectors = getattr(self.target, side, self.target.encode)(texts)
        except Exception as error:  # the user's code
            raise PosirError(f"{name}: failed ({summarize_error(error)}).") from error
        try:
            if isinstance(vectors, Sequence):
                vectors = [_to_numpy(vector) for vector in vectors]
            rows: NDArray[np.float32] = np.asarray(_to_numpy(vectors), np.float32)
        except (TypeError, ValueError):
            rows = np.empty(0, np.float32)
        if rows.ndim != 2 or len(rows) != len(texts):
            raise PosirError(
                f"{name}: must return a vector for each of {len(texts):,} texts, but returned an "
                f"array of shape {rows.shape}."
            )
        return rows


def _to_numpy(vectors: Any) -> Any:
    return vectors.detach().cpu().float().numpy() if hasattr(vectors, "detach") else vectors
