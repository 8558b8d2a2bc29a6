"""The key of a cached embedding, besides its text: the model, its settings, and what it sees of the task.

A cached embedding must never be used in place of a different one. The key therefore covers everything observable about the
model, weights included, and of the task what mteb's code for that kind of model reads; where this is unknown, all of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import EncoderProtocol
from mteb.types import PromptType
from torch import Tensor, nn, uint8

from posir_tasks.digests import digest_json
from posir_tasks.models.prompts import find_prompt

#: Attributes of a model that say where it runs and in which mode, which `encode` sets.
IGNORED_ATTRIBUTES = frozenset({"device", "training"})
#: Arguments of `encode` that change an embedding by no more than rounding.
IGNORED_ARGUMENTS = frozenset({"batch_size", "show_progress_bar"})
#: What mteb reports as the revision of a model without one.
MISSING_REVISIONS = (None, "", "no_revision_available")
MEMORY_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class EmbeddingKey:
    """Everything but the text; equal keys mean equal embeddings, up to rounding."""

    model: str | None
    revision: str | None
    code: str
    """The class that encodes."""
    weights: Mapping[str, str]
    """Digests of the model's PyTorch modules by name; empty if they are not accessible, as behind an API."""
    settings: str
    """Digest of the settings of the model and its modules."""
    prompt_type: str | None
    task_context: str | None
    """The prompt; or, unless `shared`, a digest of everything passed to the model about the task."""
    shared: bool
    """Whether the model sees only the prompt of a task, so that tasks share its embeddings."""
    arguments: Mapping[str, Any]
    """Arguments of `encode`."""

    def digest(self) -> str:
        """Return 32 hexadecimal digits that identify the key."""
        return digest_json(asdict(self))


def build_embedding_key(
    model: EncoderProtocol,
    weights: Mapping[str, str],
    arguments: Mapping[str, Any],
    *,
    task_metadata: TaskMetadata,
    hf_split: str,
    hf_subset: str,
    prompt_type: PromptType | None,
) -> EmbeddingKey | None:
    """Return the key of a call of `encode`; None for a model that cannot be identified.

    That is a model without a revision whose weights are not accessible, or one that changes the output of another encoder, as
    mteb's `CompressionWrapper` does: an embedding may then depend on the other texts.

    Args:
        model: The encoder.
        weights: Digests from `digest_weights`.
        arguments: Arguments of `encode`, other than the following four, with which mteb describes the task.
        task_metadata, hf_split, hf_subset, prompt_type: As passed to `encode`.
    """
    meta, attributes = model.mteb_model_meta, getattr(model, "__dict__", {})
    revision = meta.revision if meta else None
    wraps_encoder = any(isinstance(value, EncoderProtocol) for value in attributes.values())
    if wraps_encoder or (not weights and revision in MISSING_REVISIONS):
        return None
    shared, task_context = _task_context(model, task_metadata, hf_split, hf_subset, prompt_type)
    loading = {**meta.loader_kwargs, **(meta.experiment_kwargs or {}), "embed_dim": meta.embed_dim} if meta else {}
    modules = [module_settings(module) for module in find_modules(model).values()]
    return EmbeddingKey(
        model=meta.name if meta else None,
        revision=revision,
        code=_qualified_name(type(model)),
        weights=weights,
        settings=digest_json([_public_settings(loading), _public_settings(attributes), modules]),
        prompt_type=prompt_type.value if prompt_type else None,
        task_context=task_context,
        shared=shared,
        arguments={name: describe_value(value) for name, value in sorted(arguments.items()) if name not in IGNORED_ARGUMENTS},
    )


def _task_context(
    model: EncoderProtocol, task_metadata: TaskMetadata, hf_split: str, hf_subset: str, prompt_type: PromptType | None
) -> tuple[bool, str | None]:
    """Return whether the model sees only the prompt, and that prompt, or else a digest of all that is passed to it."""
    prompt = find_prompt(model, task_metadata, prompt_type)
    if prompt is not None:
        return True, prompt.text
    return False, digest_json([task_metadata.model_dump(mode="json"), hf_split, hf_subset])


def module_settings(module: nn.Module) -> dict[str, Any]:
    """Return the settings of a PyTorch module that affect its output besides its weights."""
    tokenizer = getattr(module, "tokenizer", None)
    attributes = ("model_max_length", "padding_side", "truncation_side", "_add_bos_token", "_add_eos_token", "add_eos_token")
    configs = [getattr(submodule, "config", None) for submodule in module.modules()]
    return {
        "layers": MEMORY_ADDRESS.sub("", str(module)),
        "settings": _public_settings(vars(module)),
        "max_seq_length": describe_value(getattr(module, "max_seq_length", None)),
        "tokenizer": {name: describe_value(getattr(tokenizer, name, None)) for name in attributes},
        "attention": sorted({str(getattr(config, "_attn_implementation", None)) for config in configs}),
    }


def _public_settings(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: describe_value(value) for name, value in attributes.items() if name[:1] != "_" and name not in IGNORED_ATTRIBUTES
    }


def describe_value(value: Any) -> Any:
    """Return a value as JSON; functions and other objects are represented by the name of the function or class."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): describe_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [describe_value(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(str(describe_value(item)) for item in value)
    return _qualified_name(value if hasattr(value, "__qualname__") else type(value))


def _qualified_name(function_or_class: Any) -> str:
    return f"{function_or_class.__module__}.{function_or_class.__qualname__}"


def find_modules(model: EncoderProtocol) -> dict[str, nn.Module]:
    """Return a model's PyTorch modules by attribute name, and the model itself as `self` if it is one."""
    attributes = {"self": model, **getattr(model, "__dict__", {})}
    return {name: value for name, value in attributes.items() if isinstance(value, nn.Module)}


def digest_weights(model: EncoderProtocol) -> dict[str, str]:
    """Return digests of a model's PyTorch modules by name, except modules with inaccessible weights."""
    digests = {name: digest_module(module) for name, module in find_modules(model).items()}
    return {name: digest for name, digest in digests.items() if digest}


def digest_module(module: nn.Module) -> str | None:
    """Return 32 hexadecimal digits that identify a module's weights; None if they are not in this process's memory."""
    tensors = {name: value for name, value in module.state_dict().items() if isinstance(value, Tensor)}
    if not tensors or any(tensor.is_meta for tensor in tensors.values()):
        return None
    with ThreadPoolExecutor() as pool:
        return digest_json([list(tensors), list(pool.map(_digest_tensor, tensors.values()))])


def _digest_tensor(tensor: Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype} {list(tensor.shape)}".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(uint8).numpy().data)
    return digest.hexdigest()
