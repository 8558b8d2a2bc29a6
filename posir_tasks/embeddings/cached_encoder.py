"""An encoder that caches its embeddings in a folder, for every later task, run and process."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from datasets import Dataset
from mteb.models import EncoderProtocol, SearchProtocol
from mteb.models.models_protocols import MTEBModels
from torch.utils.data import DataLoader

from posir_tasks.embeddings.arrow_files import Keys
from posir_tasks.embeddings.cache import EmbeddingCache
from posir_tasks.embeddings.format import EmbeddingFormat, to_rows
from posir_tasks.embeddings.key import EmbeddingKey, build_embedding_key, digest_weights
from posir_tasks.evidence import Integers
from posir_tasks.files import atomic_write

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import Array, BatchedInput, PromptType

logger = logging.getLogger(__name__)

#: Environment variable with the folder of the cache; unset, nothing is cached.
EMBEDDINGS_VARIABLE = "POSIR_EMBEDDINGS"
#: File in the folder of a cache that describes its key.
ABOUT_FILE = "about.json"
#: Texts hashed at a time.
HASH_BATCH_SIZE = 1_000


def with_cache(model: MTEBModels) -> MTEBModels:
    """Return an encoder with a cache of its embeddings if `POSIR_EMBEDDINGS` is set, and any other model as it is.

    An encoder with a true attribute `caches_itself` is returned as it is: it caches those of another encoder, from which it
    computes its own.
    """
    folder = os.environ.get(EMBEDDINGS_VARIABLE)
    if not folder or getattr(model, "caches_itself", False):
        return model
    if isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
        return CachedEncoder(model, Path(folder).expanduser())
    return model


def reset_process_state() -> None:
    """Close all caches and forget which warnings were given, as in a new process."""
    _cache_in.cache_clear()
    _warn_once.cache_clear()


class WrappedEncoder:
    """Base of encoders that compute embeddings with another encoder."""

    def __init__(self, base: EncoderProtocol) -> None:
        self.base = base
        self.mteb_model_meta = base.mteb_model_meta

    def similarity(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Compare embeddings with the similarity of the other encoder."""
        return self.base.similarity(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Compare pairs of embeddings with the similarity of the other encoder."""
        return self.base.similarity_pairwise(embeddings1, embeddings2)


class CachedEncoder(WrappedEncoder):
    """An mteb encoder that encodes each text once per embedding key.

    It returns what the model returns, moved to the CPU. If all texts are distinct and none is cached, the model gets the same
    input as without a cache. Sparse embeddings and multi-vector embeddings are passed through.
    """

    def __init__(self, model: EncoderProtocol, folder: Path) -> None:
        super().__init__(model)
        self.folder = folder

    @cached_property
    def _weights(self) -> dict[str, str]:
        # Computed once per wrapper, which lives for one subset: the model may be trained between subsets.
        return digest_weights(self.base)

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> Array:
        """Return the embeddings of the texts, from the cache where possible; others are encoded and then cached.

        Raises:
            PosirError: The disk is full, or the cache is of another model.
        """
        context: dict[str, Any] = {
            "task_metadata": task_metadata,
            "hf_split": hf_split,
            "hf_subset": hf_subset,
            "prompt_type": prompt_type,
        }

        def encode(inputs: DataLoader[BatchedInput]) -> Array:
            return self.base.encode(inputs, **context, **kwargs)

        name = self.mteb_model_meta.name if self.mteb_model_meta else type(self.base).__name__
        key = build_embedding_key(self.base, self._weights, kwargs, **context)
        if key is None:
            _warn_once(
                f"Embeddings of {name} are not cached: the model cannot be identified, as it has neither a revision nor "
                "accessible weights, or wraps another encoder."
            )
            return encode(inputs)
        if not key.shared:
            _warn_once(f"Embeddings of {name} are cached separately for each task: {key.code} may use anything in a task.")
        return _encode_with_cache(open_cache(self.folder, key), key, inputs, encode)


def _encode_with_cache(
    cache: EmbeddingCache,
    key: EmbeddingKey,
    inputs: DataLoader[BatchedInput],
    encode: Callable[[DataLoader[BatchedInput]], Array],
) -> Array:
    dataset = cast("Dataset", inputs.dataset)
    texts = find_distinct_texts(dataset, ["text"] if key.shared else sorted({*dataset.column_names} - {"id"}))
    cached = cache.look_up(texts.keys)
    embedding_format, rows, missing = cache.format, cached.rows, cached.missing
    logger.info("%s: encoding %d of %d texts", key.model, len(missing), len(texts.inverse))
    if missing.size:
        complete = missing.size == texts.inverse.size
        encoded = encode(inputs if complete else select_rows(inputs, texts.first[missing]))
        embedding_format = EmbeddingFormat.detect(encoded, missing.size)
        if embedding_format is None:
            _warn_once(f"Embeddings of {key.model} are not cached: the model does not return one dense vector per text.")
            return encoded if complete else encode(inputs)
        cache.add(texts.keys[missing], encoded)
        if missing.size == len(texts.keys):
            rows = to_rows(encoded)
        else:
            rows[missing] = to_rows(encoded)
    assert embedding_format is not None
    return embedding_format.restore(rows if len(rows) == texts.inverse.size else rows[texts.inverse])


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning(message)


def open_cache(folder: Path, key: EmbeddingKey) -> EmbeddingCache:
    """Return the cache for a key within a folder, and describe the key in a file beside the embeddings."""
    name = re.sub(r"[^\w.-]+", "__", key.model or "model").strip("_")
    key_folder = folder / name / key.digest()
    if not (key_folder / ABOUT_FILE).exists():
        with atomic_write(key_folder / ABOUT_FILE) as part:
            part.write_text(json.dumps(asdict(key), indent=2), encoding="utf-8")
    return _cache_in(key_folder.resolve())


@functools.cache
def _cache_in(folder: Path) -> EmbeddingCache:
    """Return this process's only `EmbeddingCache` of a folder, so that all tasks share its index."""
    return EmbeddingCache(folder)


@dataclass(frozen=True)
class DistinctTexts:
    """The distinct texts among n."""

    keys: Keys
    """Key of each distinct text, shape (distinct, 2)."""
    first: Integers
    """Row of each distinct text's first occurrence, shape (distinct,)."""
    inverse: Integers
    """Index of each row's distinct text, shape (n,)."""


def find_distinct_texts(dataset: Dataset, columns: Sequence[str]) -> DistinctTexts:
    """Find the distinct texts of a dataset by the given columns."""
    indices: dict[bytes, int] = {}
    inverse = np.array([indices.setdefault(digest, len(indices)) for digest in _hash_texts(dataset, columns)], np.int64)
    keys = np.frombuffer(b"".join(indices), np.uint64).reshape(-1, 2)
    return DistinctTexts(keys, np.unique(inverse, return_index=True)[1], inverse)


def _hash_texts(dataset: Dataset, columns: Sequence[str]) -> Iterator[bytes]:
    for batch in dataset.select_columns(list(columns)).iter(HASH_BATCH_SIZE):
        for values in zip(*(batch[column] for column in columns), strict=True):
            text = values[0] if len(values) == 1 else json.dumps(values)
            yield hashlib.sha256(text.encode()).digest()[:16]


def select_rows(loader: DataLoader[BatchedInput], rows: Integers) -> DataLoader[BatchedInput]:
    """Return a loader with the same settings for some rows of the dataset."""
    return DataLoader(
        cast("Dataset", loader.dataset).select(rows),
        batch_size=loader.batch_size,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
    )
