"""An encoder that caches embeddings in a folder, shared by tasks, runs and processes."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from datasets import Dataset
from mteb.models import EncoderProtocol, SearchProtocol
from mteb.models.models_protocols import MTEBModels
from mteb.types import PromptType
from torch import Tensor, nn, uint8
from torch.utils.data import DataLoader

from posir_tasks.base.arrays import Integers
from posir_tasks.base.digests import digest_json
from posir_tasks.base.files import write_text
from posir_tasks.base.logs import warn_once
from posir_tasks.models.embeddings.cache import EmbeddingCache, EmbeddingFormat, Keys
from posir_tasks.models.embeddings.context import TASK_ARGUMENTS
from posir_tasks.models.prompts import find_prompt
from posir_tasks.models.references import MISSING_REVISIONS

if TYPE_CHECKING:
    from mteb.types import Array, BatchedInput

#: Attributes that `encode` changes and that do not affect embeddings.
IGNORED_ATTRIBUTES = frozenset({"device", "training"})
#: Arguments of `encode` that affect only rounding or the prompt.
IGNORED_ARGUMENTS = frozenset({"batch_size", "show_progress_bar", *TASK_ARGUMENTS})
#: Tokenizer settings that affect its output.
TOKENIZER_SETTINGS = (
    "model_max_length",
    "padding_side",
    "truncation_side",
    "_add_bos_token",
    "_add_eos_token",
    "add_eos_token",
)
MEMORY_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class EmbeddingKey:
    """Everything that an embedding depends on, except the text. Equal keys mean equal embeddings,
    up to rounding.
    """

    model: str | None
    revision: str | None
    code: str
    """Qualified name of the encoder class."""
    weights: Mapping[str, str]
    """Digests of the PyTorch modules by name; empty if the weights are not accessible."""
    settings: str
    """Digest of the settings of the model and its modules."""
    prompt_type: str | None
    task_context: str | None
    """The prompt if `shared` is true, else a digest of the task's metadata, split and subset."""
    shared: bool
    """True if embeddings depend only on the task's prompt, so that tasks share them."""
    arguments: Mapping[str, Any]

    def digest(self) -> str:
        """Return 32 hexadecimal digits that identify the key."""
        return digest_json(asdict(self))


def build_embedding_key(
    model: EncoderProtocol,
    weights: Mapping[str, str],
    arguments: Mapping[str, Any],
    prompt_type: PromptType | None,
) -> EmbeddingKey | None:
    """Build the key for a call of `encode`, or return None if the model cannot be identified.

    A model cannot be identified if it has neither a revision nor accessible weights, or if it wraps
    another encoder. Embeddings of a wrapper, such as mteb's `CompressionWrapper`, may depend on the
    other texts.
    """
    meta = model.mteb_model_meta
    attributes = getattr(model, "__dict__", {})
    revision = meta.revision if meta else None
    wraps_encoder = any(isinstance(value, EncoderProtocol) for value in attributes.values())
    if wraps_encoder or (not weights and revision in MISSING_REVISIONS):
        return None
    metadata, *subset = (arguments[name] for name in TASK_ARGUMENTS)
    prompt = find_prompt(model, metadata, prompt_type)
    if prompt:
        task_context = prompt.text
    else:
        task_context = digest_json([metadata.model_dump(mode="json"), *subset])
    loader_settings: dict[str, Any] = {}
    if meta:
        experiment = meta.experiment_kwargs or {}
        loader_settings = {**meta.loader_kwargs, **experiment, "embed_dim": meta.embed_dim}
    modules = [list_module_settings(module) for module in find_modules(model).values()]
    return EmbeddingKey(
        model=meta.name if meta else None,
        revision=revision,
        code=_get_qualified_name(type(model)),
        weights=weights,
        settings=digest_json(
            [_select_public_settings(loader_settings), _select_public_settings(attributes), modules]
        ),
        prompt_type=prompt_type,
        task_context=task_context,
        shared=prompt is not None,
        arguments={
            name: serialize_value(value)
            for name, value in sorted(arguments.items())
            if name not in IGNORED_ARGUMENTS
        },
    )


def list_module_settings(module: nn.Module) -> dict[str, Any]:
    """Return the settings of a PyTorch module that affect its output, excluding weights."""
    tokenizer = getattr(module, "tokenizer", None)
    configs = [getattr(submodule, "config", None) for submodule in module.modules()]
    return {
        "layers": MEMORY_ADDRESS.sub("", str(module)),
        "settings": _select_public_settings(vars(module)),
        "max_seq_length": serialize_value(getattr(module, "max_seq_length", None)),
        "tokenizer": {
            name: serialize_value(getattr(tokenizer, name, None)) for name in TOKENIZER_SETTINGS
        },
        "attention": sorted(
            {str(getattr(config, "_attn_implementation", None)) for config in configs}
        ),
    }


def _select_public_settings(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: serialize_value(value)
        for name, value in attributes.items()
        if name[:1] != "_" and name not in IGNORED_ATTRIBUTES
    }


def serialize_value(value: Any) -> Any:
    """Convert a value to JSON. Functions and other objects become the qualified name."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): serialize_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [serialize_value(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(str(serialize_value(item)) for item in value)
    return _get_qualified_name(value if hasattr(value, "__qualname__") else type(value))


def _get_qualified_name(function_or_class: Any) -> str:
    return f"{function_or_class.__module__}.{function_or_class.__qualname__}"


def find_modules(model: EncoderProtocol) -> dict[str, nn.Module]:
    """Return a model's PyTorch modules by attribute name; `self` is the model itself."""
    attributes = {"self": model, **getattr(model, "__dict__", {})}
    return {name: value for name, value in attributes.items() if isinstance(value, nn.Module)}


def digest_weights(model: EncoderProtocol) -> dict[str, str]:
    """Return the digests of a model's PyTorch modules with accessible weights, by name."""
    digests: dict[str, str] = {}
    for name, module in find_modules(model).items():
        digest = digest_module(module)
        if digest:
            digests[name] = digest
    return digests


def digest_module(module: nn.Module) -> str | None:
    """Return 32 hexadecimal digits that identify the weights, or None if not in memory."""
    state = module.state_dict()
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if not tensors or any(tensor.is_meta for tensor in tensors.values()):
        return None

    def digest(tensor: Tensor) -> str:
        checksum = hashlib.sha256(f"{tensor.dtype} {list(tensor.shape)}".encode())
        checksum.update(tensor.detach().cpu().contiguous().reshape(-1).view(uint8).numpy().data)
        return checksum.hexdigest()

    with ThreadPoolExecutor() as pool:
        return digest_json([list(tensors), list(pool.map(digest, tensors.values()))])


logger = logging.getLogger(__name__)

#: Environment variable with the cache folder. If unset, nothing is cached.
EMBEDDINGS_VARIABLE = "POSIR_EMBEDDINGS"
#: Number of texts to hash at a time.
HASH_BATCH_SIZE = 1_000


def add_cache(model: MTEBModels) -> MTEBModels:
    """Wrap an encoder with a cache if `POSIR_EMBEDDINGS` is set.

    Other models, and encoders whose attribute `skips_cache` is true, are returned unchanged.
    """
    folder = os.environ.get(EMBEDDINGS_VARIABLE)
    if not folder or getattr(model, "skips_cache", False):
        return model
    if isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
        return CachedEncoder(model, Path(folder).expanduser())
    return model


class WrappedEncoder:
    """Base of encoders that compute embeddings with another encoder."""

    def __init__(self, base: EncoderProtocol) -> None:
        self.base = base
        self.mteb_model_meta = base.mteb_model_meta

    def similarity(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Return the base encoder's similarities, shape (n, m)."""
        return self.base.similarity(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Array, embeddings2: Array) -> Array:
        """Return the base encoder's similarities of pairs, shape (n,)."""
        return self.base.similarity_pairwise(embeddings1, embeddings2)


class CachedEncoder(WrappedEncoder):
    """An mteb encoder that encodes each text once per embedding key.

    Embeddings are moved to the CPU. If all texts are distinct and none is cached, the model
    receives the same batches as without a cache. Sparse and multi-vector embeddings are not cached.
    """

    def __init__(self, model: EncoderProtocol, folder: Path) -> None:
        super().__init__(model)
        self.folder = folder
        self._weights: dict[str, str] | None = None

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        prompt_type: PromptType | None = None,
        **arguments: Any,
    ) -> Array:
        """Return the embeddings of the texts. Encode missing texts and add them to the cache."""
        if self._weights is None:
            # Compute the digests once per wrapper, and thus per subset: between subsets, the model
            # may be trained.
            self._weights = digest_weights(self.base)
        name = self.mteb_model_meta.name if self.mteb_model_meta else type(self.base).__name__

        def encode(texts: DataLoader[BatchedInput]) -> Array:
            return self.base.encode(texts, prompt_type=prompt_type, **arguments)

        key = build_embedding_key(self.base, self._weights, arguments, prompt_type)
        if key is None:
            warn_once(
                logger,
                f"Embeddings of {name} are not cached: the model has neither a revision nor "
                "accessible weights, or wraps another encoder.",
            )
            return encode(inputs)
        if not key.shared:
            warn_once(
                logger,
                f"Embeddings of {name} are cached separately for each task: {key.code} may depend "
                "on the task.",
            )
        dataset = cast("Dataset", inputs.dataset)
        columns = ["text"] if key.shared else sorted({*dataset.column_names} - {"id"})
        keys, first, inverse = find_distinct_texts(dataset, columns)
        cache = self._open_cache(key)
        rows, missing = cache.look_up(keys)
        embedding_format = cache.format
        logger.info("%s: encoding %d of %d texts", key.model, len(missing), len(inverse))
        if missing.size:
            is_complete = missing.size == inverse.size
            loader = inputs
            if not is_complete:
                loader = DataLoader(
                    cast("Any", dataset.select(first[missing])),
                    batch_size=inputs.batch_size,
                    collate_fn=inputs.collate_fn,
                    num_workers=inputs.num_workers,
                )
            embeddings = encode(loader)
            embedding_format = EmbeddingFormat.detect(embeddings, missing.size)
            if embedding_format is None:
                warn_once(
                    logger,
                    f"Embeddings of {key.model} are not cached: the model does not return one "
                    "dense vector per text.",
                )
                return embeddings if is_complete else encode(inputs)
            cache.add(keys[missing], embeddings)
            new_rows = embedding_format.to_rows(embeddings)
            if missing.size == len(keys):
                rows = new_rows
            else:
                rows[missing] = new_rows
        assert embedding_format is not None
        return embedding_format.restore(rows if len(rows) == inverse.size else rows[inverse])

    def _open_cache(self, key: EmbeddingKey) -> EmbeddingCache:
        """Open the cache of a key, and write `about.json` into its folder."""
        name = re.sub(r"[^\w.-]+", "__", key.model or "model").strip("_")
        folder = self.folder / name / key.digest()
        about = folder / "about.json"
        if not about.exists():
            write_text(about, json.dumps(asdict(key), indent=2))
        return _get_cache(folder.resolve())


@functools.cache
def _get_cache(folder: Path) -> EmbeddingCache:
    """Return this process's cache for a folder. All tasks share its index."""
    return EmbeddingCache(folder)


def find_distinct_texts(
    dataset: Dataset, columns: Sequence[str]
) -> tuple[Keys, Integers, Integers]:
    """Return the keys of a dataset's distinct texts, shape (distinct, 2), the first row of each
    key, and the key index of each row.
    """
    digests: list[bytes] = []
    for batch in dataset.select_columns(list(columns)).iter(HASH_BATCH_SIZE):
        texts = batch[columns[0]]
        if len(columns) > 1:
            values = zip(*(batch[column] for column in columns), strict=True)
            texts = map(json.dumps, values)
        digests += [hashlib.sha256(text.encode()).digest()[:16] for text in texts]
    distinct = dict.fromkeys(digests)
    keys = np.frombuffer(b"".join(distinct), np.uint64).reshape(-1, 2)
    if len(distinct) == len(digests):
        rows = np.arange(len(digests))
        return keys, rows, rows
    indices = {digest: index for index, digest in enumerate(distinct)}
    inverse = np.fromiter((indices[digest] for digest in digests), np.int64, len(digests))
    return keys, np.unique(inverse, return_index=True)[1], inverse
