"""Recall of documents by an embedder: posir's exact dense search, with its embedding cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from datasets import Dataset
from mteb.models import EncoderProtocol
from mteb.timing import TimingStack

from posir_build.construction.records import Document, Question
from posir_build.construction.rerankers import task_arguments
from posir_tasks.embeddings.cached_encoder import with_cache
from posir_tasks.errors import PosirError
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.search.dense import ModelEmbedder, search_dense


@dataclass
class EmbedderRecall:
    """An embedder that mteb loads, when it is first needed."""

    model: ModelReference
    language: str
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = str(find_model(self.model).name)

    def find(self, documents: Sequence[Document], questions: Sequence[Question], top_k: int) -> list[list[str]]:
        """Return the ids of the nearest documents of each question.

        Raises:
            PosirError: The model is not an encoder.
        """
        model = with_cache(load_model(self.model))
        if not isinstance(model, EncoderProtocol):
            raise PosirError(f"false_negatives.embedder: {self.name}: not an embedder. Choose a model that encodes texts.")
        corpus, queries = (
            Dataset.from_dict({"id": [one.id for one in rows], "text": [one.text for one in rows]})
            for rows in (documents, questions)
        )
        task = task_arguments(self.language)
        embedder = ModelEmbedder(model, {"batch_size": 32, "show_progress_bar": False}, None, task)
        labels = {"split": task["hf_split"], "subset": task["hf_subset"]}
        hits = search_dense(model, embedder, corpus, queries, top_k=min(top_k, len(documents)), timer=TimingStack(), **labels)
        return [[hits.document_ids[row] for row in rows] for rows in hits.documents]
