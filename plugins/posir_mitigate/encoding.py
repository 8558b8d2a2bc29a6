"""Encoding with the plain model, as a mitigated model does it: through the embedding cache, in the task at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from datasets import Dataset, disable_progress_bars
from mteb.models import EncoderProtocol
from mteb.types import PromptType
from numpy.typing import NDArray

from posir_tasks.embeddings.cached_encoder import with_cache
from posir_tasks.embeddings.format import EmbeddingFormat
from posir_tasks.errors import PosirError
from posir_tasks.host.private_names import CREATE_DATALOADER
from posir_tasks.search.dense import ModelEmbedder

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

#: Embeddings, shape (n, dimensions).
Vectors: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True)
class EncodingContext:
    """The task at hand, as mteb passes it to models."""

    task_metadata: TaskMetadata
    hf_split: str
    hf_subset: str
    encode_kwargs: Mapping[str, Any]
    num_proc: int | None = None

    @property
    def task_arguments(self) -> dict[str, Any]:
        """What every call of `encode` is given."""
        return {"task_metadata": self.task_metadata, "hf_split": self.hf_split, "hf_subset": self.hf_subset}

    def read_texts(self, dataset: Dataset, prompt_type: PromptType) -> list[str]:
        """Return the texts that mteb gives to models: of a document, its title and text."""
        loader = CREATE_DATALOADER.resolve()(
            dataset, task_metadata=self.task_metadata, prompt_type=prompt_type, num_proc=self.num_proc
        )
        return [text for batch in loader for text in batch["text"]]

    def encode(self, model: EncoderProtocol, dataset: Dataset, prompt_type: PromptType) -> Vectors:
        """Return the plain embeddings of a dataset with the columns `id` and `text`, shape (n, dimensions).

        Raises:
            PosirError: The model does not return one dense vector per text.
        """
        disable_progress_bars()
        cached = with_cache(model)
        assert isinstance(cached, EncoderProtocol)
        embed = ModelEmbedder(cached, dict(self.encode_kwargs), self.num_proc, self.task_arguments)
        embeddings = embed(dataset, prompt_type)
        if EmbeddingFormat.detect(embeddings, len(dataset)) is None:
            raise PosirError(f"{model.mteb_model_meta.name}: mitigations need a model that returns one dense vector per text.")
        return np.asarray(embeddings.cpu().float() if hasattr(embeddings, "cpu") else embeddings, np.float32)

    def encode_documents(self, model: EncoderProtocol, texts: Sequence[str]) -> Vectors:
        """Return the plain embeddings of texts as documents, shape (n, dimensions); each distinct text is encoded once."""
        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        dataset = Dataset.from_dict({"id": list(map(str, range(len(rows)))), "text": list(rows)})
        return self.encode(model, dataset, PromptType.document)[[rows[text] for text in texts]]
