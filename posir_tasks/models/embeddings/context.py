"""Task context: the arguments that mteb passes to a model with its texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from mteb.models import EncoderProtocol
from mteb.types import Array, PromptType

from posir_tasks.base.private_names import CREATE_DATALOADER
from posir_tasks.data.task_metadata import build_metadata
from posir_tasks.text.spans import WHITESPACE
from posir_tasks.values.result_schema import SPLIT

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import BatchedInput
    from torch.utils.data import DataLoader


#: Arguments of `encode` that describe the task.
TASK_ARGUMENTS = ("task_metadata", "hf_split", "hf_subset")


@dataclass(frozen=True)
class EncodingContext:
    """A task, which may determine a model's prompts, and options for encoding."""

    task_metadata: TaskMetadata
    hf_split: str
    hf_subset: str
    encode_kwargs: Mapping[str, Any] = field(
        default_factory=lambda: {"batch_size": 32, "show_progress_bar": False}
    )
    num_proc: int | None = None

    @classmethod
    def from_arguments(cls, **arguments: Any) -> EncodingContext:
        """Create the context from mteb's arguments. Other arguments are ignored."""
        names = [field.name for field in fields(cls) if field.name in arguments]
        return cls(**{name: arguments[name] for name in names})

    @property
    def task_arguments(self) -> dict[str, Any]:
        """The task as arguments of `encode`."""
        return {name: getattr(self, name) for name in TASK_ARGUMENTS}

    @property
    def search_arguments(self) -> dict[str, Any]:
        """The task and the options as arguments of a search model."""
        options = {"encode_kwargs": self.encode_kwargs, "num_proc": self.num_proc}
        return self.task_arguments | options

    @property
    def corpus_language(self) -> str:
        """Language code of the documents, such as `eng-Latn`."""
        return self.task_metadata.hf_subsets_to_langscripts[self.hf_subset][-1]

    def load(self, texts: Dataset, prompt_type: PromptType) -> DataLoader[BatchedInput]:
        """Return mteb's batches of texts. Documents include titles."""
        is_corpus = prompt_type is PromptType.document
        loader: DataLoader[BatchedInput] = CREATE_DATALOADER.resolve()(
            join_titles(texts) if is_corpus else texts,
            task_metadata=self.task_metadata,
            prompt_type=None if is_corpus else prompt_type,
            num_proc=self.num_proc,
            batch_size=self.encode_kwargs.get("batch_size", 32),
        )
        return loader

    def read_texts(self, texts: Dataset, prompt_type: PromptType) -> list[str]:
        """Return the texts that mteb passes to models."""
        return [text for batch in self.load(texts, prompt_type) for text in batch["text"]]

    def encode(self, model: EncoderProtocol, texts: Dataset, prompt_type: PromptType) -> Array:
        """Encode texts like mteb's search, shape (n, dimensions)."""
        return model.encode(
            self.load(texts, prompt_type),
            prompt_type=prompt_type,
            **self.task_arguments,
            **self.encode_kwargs,
        )


def build_context(language: str) -> EncodingContext:
    """Build a context for texts from no task: a retrieval task without a specific prompt."""
    metadata = build_metadata(
        "posir-texts", dataset="posir/texts", revision="1", languages=[language]
    )
    return EncodingContext(metadata, SPLIT, "default")


def join_titles(corpus: Dataset) -> Dataset:
    """Join titles and texts like mteb, but by column. Joining row by row would take longer than
    searching cached embeddings.
    """
    table: pa.Table = corpus.with_format("arrow")[:]
    bodies = table["text"]
    texts = bodies
    if "title" in table.column_names:
        titles = pc.fill_null(table["title"].cast(bodies.type), "")
        titled_texts = pc.binary_join_element_wise(titles, bodies, " ")
        texts = pc.if_else(pc.equal(titles, ""), bodies, titled_texts)
    trimmed_texts = pc.utf8_trim(texts, characters=WHITESPACE)
    columns = table.set_column(table.column_names.index("text"), "text", trimmed_texts)
    return Dataset(columns.append_column("body", bodies))


def build_texts(texts: Sequence[str]) -> Dataset:
    """Convert texts to mteb's format for queries and documents. The `id` is the row number."""
    return Dataset.from_dict({"id": list(map(str, range(len(texts)))), "text": list(texts)})
