"""An encoder whose embeddings are kept in a folder and used by every later task, run and process."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from datasets import Dataset
from mteb.models import EncoderProtocol, SearchProtocol
from mteb.models.models_protocols import MTEBModels
from torch.utils.data import DataLoader

from posir_tasks.embeddings.files import Keys, form_of, rows_of
from posir_tasks.embeddings.key import Encoding, encoding_of, weights_of
from posir_tasks.embeddings.store import EmbeddingCache
from posir_tasks.evidence import Integers
from posir_tasks.files import atomic_write

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.types import Array, BatchedInput, PromptType

logger = logging.getLogger(__name__)

#: Folder in which embeddings are kept; without it none are.
EMBEDDINGS_VARIABLE = "POSIR_EMBEDDINGS"
#: What says, in a folder of embeddings, whose they are.
ABOUT_FILE = "about.json"
#: Texts read at a time.
BATCH = 1_000


def with_cache(model: MTEBModels) -> MTEBModels:
    """Return the model with its embeddings kept, where `POSIR_EMBEDDINGS` names a folder and it is an encoder."""
    folder = os.environ.get(EMBEDDINGS_VARIABLE)
    if folder and isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
        return CachedEncoder(model, Path(folder).expanduser())
    return model


class CachedEncoder:
    """An mteb encoder that encodes each text once for each way of encoding it.

    It gives what the model gives, moved to the CPU. Where none of the texts is kept and none stands twice among them, the
    model gets the very input that it would get without a store. Sparse embeddings and those of several vectors a text are
    passed through.
    """

    def __init__(self, model: EncoderProtocol, folder: Path) -> None:
        self.model = model
        self.folder = folder

    @cached_property
    def _weights(self) -> dict[str, str]:
        # Once for each subset, between which a model may be trained.
        return weights_of(self.model)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """The model's."""
        return self.model.mteb_model_meta

    def similarity(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Compare embeddings as the model does."""
        return self.model.similarity(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Compare pairs of embeddings as the model does."""
        return self.model.similarity_pairwise(embeddings1, embeddings2)

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
        """Return the embeddings of the texts: those that are kept, and the others from the model, which then are kept.

        Raises:
            PosirError: There is no room, or the store is not one of this model.
        """
        told: dict[str, Any] = {
            "task_metadata": task_metadata,
            "hf_split": hf_split,
            "hf_subset": hf_subset,
            "prompt_type": prompt_type,
        }

        def from_model(inputs: DataLoader[BatchedInput]) -> Array:
            return self.model.encode(inputs, **told, **kwargs)

        encoding = encoding_of(self.model, self._weights, kwargs, **told)
        if encoding is None:
            _say_once(f"Embeddings of {_name(self.model)} are not kept: nothing tells this model from others.")
            return from_model(inputs)
        if not encoding.shared:
            _say_once(
                f"Embeddings of {_name(self.model)} are kept for each task apart: what {encoding.code} makes of a task is not "
                "known to posir."
            )
        return _stored(store_of(self.folder, encoding), encoding, inputs, from_model)


def _stored(
    store: EmbeddingCache,
    encoding: Encoding,
    inputs: DataLoader[BatchedInput],
    from_model: Callable[[DataLoader[BatchedInput]], Array],
) -> Array:
    rows = cast("Dataset", inputs.dataset)
    texts = texts_of(rows, ["text"] if encoding.shared else sorted({*rows.column_names} - {"id"}))
    kept = store.get(texts.keys)
    form, embeddings, missing = store.form, kept.rows, kept.missing
    logger.info("%s: %d of %d texts are to be encoded", encoding.model, len(missing), len(texts.places))
    if missing.size:
        whole = missing.size == texts.places.size
        fresh = from_model(inputs if whole else rows_of_loader(inputs, texts.first[missing]))
        form = form_of(fresh, missing.size)
        if form is None:
            _say_once(f"Embeddings of {encoding.model} are not kept: they are not one dense vector a text.")
            return fresh if whole else from_model(inputs)
        store.add(texts.keys[missing], fresh)
        if missing.size == len(texts.keys):
            embeddings = rows_of(fresh)
        else:
            embeddings[missing] = rows_of(fresh)
    assert form is not None
    return form.restored(embeddings if len(embeddings) == texts.places.size else embeddings[texts.places])


@cache
def _say_once(message: str) -> None:
    logger.warning(message)


def _name(model: EncoderProtocol) -> str:
    return str(model.mteb_model_meta.name if model.mteb_model_meta else type(model).__name__)


def store_of(folder: Path, encoding: Encoding) -> EmbeddingCache:
    """Return the embeddings in a folder that were made in one way; what way that is stands beside them."""
    name = re.sub(r"[^\w.-]+", "__", encoding.model or "model").strip("_")
    own = folder / name / encoding.digest()
    if not (own / ABOUT_FILE).exists():
        with atomic_write(own / ABOUT_FILE) as part:
            part.write_text(json.dumps(asdict(encoding), indent=2), encoding="utf-8")
    return _store_in(own.resolve())


@cache
def _store_in(folder: Path) -> EmbeddingCache:
    """Return this process's one store of a folder: what it knows of the files is used by every task."""
    return EmbeddingCache(folder)


@dataclass(frozen=True)
class Texts:
    """The distinct texts among n."""

    keys: Keys
    """Of each distinct text, shape (distinct, 2)."""
    first: Integers
    """Where each stands first, shape (distinct,)."""
    places: Integers
    """Which of them each text is, shape (n,)."""


def texts_of(rows: Dataset, columns: Sequence[str]) -> Texts:
    """Tell the texts of a dataset apart by the given columns."""
    seen: dict[bytes, int] = {}
    places = np.array([seen.setdefault(digest, len(seen)) for digest in _digests(rows, columns)], np.int64)
    keys = np.frombuffer(b"".join(seen), np.uint64).reshape(-1, 2)
    return Texts(keys, np.unique(places, return_index=True)[1], places)


def _digests(rows: Dataset, columns: Sequence[str]) -> Iterator[bytes]:
    for batch in rows.select_columns(list(columns)).iter(BATCH):
        for values in zip(*(batch[column] for column in columns), strict=True):
            text = values[0] if len(values) == 1 else json.dumps(values)
            yield hashlib.sha256(text.encode()).digest()[:16]


def rows_of_loader(loader: DataLoader[BatchedInput], rows: Integers) -> DataLoader[BatchedInput]:
    """Return a loader like another of some of its dataset's rows."""
    return DataLoader(
        cast("Dataset", loader.dataset).select(rows),
        batch_size=loader.batch_size,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
    )
