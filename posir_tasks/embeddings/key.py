"""What an embedding depends on besides the text: the model, its settings, and what it is told of the task.

An embedding that is kept must never be given for another. So whatever can be seen of the model goes in, its weights included,
and of the task what mteb's code for that kind of model looks at; where this is not known, all of it.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import EncoderProtocol
from mteb.models.abs_encoder import get_prompt
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
from mteb.types import PromptType
from torch import Tensor, nn, uint8

#: Attributes of a model that say where it runs and in what mode, which `encode` sets.
NO_SETTINGS = frozenset({"device", "training"})
#: Arguments of `encode` that change an embedding by no more than rounding.
NO_ARGUMENTS = frozenset({"batch_size", "show_progress_bar"})
#: What mteb gives as the revision of a model that has none.
NO_REVISION = (None, "", "no_revision_available")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Encoding:
    """Everything but the text; equal encodings give equal embeddings, up to rounding."""

    model: str | None
    revision: str | None
    code: str
    """The class that encodes."""
    weights: Mapping[str, str]
    """Digests of the model's PyTorch modules by name; none where they cannot be seen, such as behind an API."""
    settings: str
    """Digest of the model's and its modules' settings."""
    prompt_type: str | None
    told: str | None
    """The prompt; or, where `shared` is False, a digest of all that the model is told of the task."""
    shared: bool
    """Whether the model sees nothing of the task but the prompt, so that tasks share its embeddings."""
    arguments: Mapping[str, Any]
    """Of `encode`."""

    def digest(self) -> str:
        """Return 32 hexadecimal digits that stand for it."""
        return digest_of(asdict(self))


def encoding_of(
    model: EncoderProtocol,
    weights: Mapping[str, str],
    arguments: Mapping[str, Any],
    *,
    task_metadata: TaskMetadata,
    hf_split: str,
    hf_subset: str,
    prompt_type: PromptType | None,
) -> Encoding | None:
    """Return what a call of `encode` depends on; None for a model that cannot be told from others.

    That is one without a revision whose weights cannot be seen, and one that changes what another encoder gives, as mteb's
    `CompressionWrapper` does: an embedding may then depend on the other texts.

    Args:
        model: Encodes.
        weights: As `weights_of` gives them.
        arguments: Of `encode`, besides what the model is told of the task.
        task_metadata: As mteb gives it to the model, like the following.
        hf_split: Name of the split.
        hf_subset: Name of the subset.
        prompt_type: Whether the texts are queries or documents.
    """
    meta, held = model.mteb_model_meta, getattr(model, "__dict__", {})
    revision = meta.revision if meta else None
    if any(isinstance(value, EncoderProtocol) for value in held.values()) or (not weights and revision in NO_REVISION):
        return None
    shared, told = _told(model, task_metadata, hf_split, hf_subset, prompt_type)
    loading = {**meta.loader_kwargs, **(meta.experiment_kwargs or {}), "embed_dim": meta.embed_dim} if meta else {}
    return Encoding(
        model=meta.name if meta else None,
        revision=revision,
        code=_name_of(type(model)),
        weights=weights,
        settings=digest_of([_settings(loading), _settings(held), [module_settings(of) for of in modules_of(model).values()]]),
        prompt_type=prompt_type.value if prompt_type else None,
        told=told,
        shared=shared,
        arguments={name: plain(value) for name, value in sorted(arguments.items()) if name not in NO_ARGUMENTS},
    )


def _told(
    model: EncoderProtocol, task_metadata: TaskMetadata, hf_split: str, hf_subset: str, prompt_type: PromptType | None
) -> tuple[bool, str | None]:
    """Return whether only a prompt reaches the model, and the prompt, or else a digest of all that it is told."""
    encode = getattr(model.encode, "__func__", None)
    if encode is SentenceTransformerEncoderWrapper.encode:
        return True, get_prompt(model.model_prompts, task_metadata, prompt_type)  # type: ignore[attr-defined]
    if encode is InstructSentenceTransformerModel.encode:
        assert isinstance(model, InstructSentenceTransformerModel)
        if prompt_type == PromptType.document and not model.apply_instruction_to_passages:
            return True, None
        with warnings.catch_warnings(action="ignore"):
            return True, model.get_task_instruction(task_metadata, prompt_type)
    return False, digest_of([task_metadata.model_dump(mode="json"), hf_split, hf_subset])


def module_settings(module: nn.Module) -> dict[str, Any]:
    """Return the settings of a PyTorch module that its weights do not show."""
    tokenizer = getattr(module, "tokenizer", None)
    limits = ("model_max_length", "padding_side", "truncation_side", "_add_bos_token", "_add_eos_token", "add_eos_token")
    configurations = [getattr(part, "config", None) for part in module.modules()]
    return {
        "layers": ADDRESS.sub("", str(module)),
        "settings": _settings(vars(module)),
        "max_seq_length": plain(getattr(module, "max_seq_length", None)),
        "tokenizer": {name: plain(getattr(tokenizer, name, None)) for name in limits},
        "attention": sorted({str(getattr(configuration, "_attn_implementation", None)) for configuration in configurations}),
    }


def _settings(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in attributes.items() if not name.startswith("_") and name not in NO_SETTINGS}


def plain(value: Any) -> Any:
    """Return a value as JSON, in which any other object is the name of its class and a function its own name."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(str(plain(item)) for item in value)
    return _name_of(value if hasattr(value, "__qualname__") else type(value))


def _name_of(of: Any) -> str:
    return f"{of.__module__}.{of.__qualname__}"


def digest_of(value: Any) -> str:
    """Return 32 hexadecimal digits that stand for JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def modules_of(model: EncoderProtocol) -> dict[str, nn.Module]:
    """Return the PyTorch modules of a model by the names of the attributes that hold them; it may be one itself."""
    held = {"self": model, **getattr(model, "__dict__", {})}
    return {name: value for name, value in held.items() if isinstance(value, nn.Module)}


def weights_of(model: EncoderProtocol) -> dict[str, str]:
    """Return digests of a model's PyTorch modules by name; without those whose weights, or some of them, cannot be seen."""
    digests = {name: weights_digest(module) for name, module in modules_of(model).items()}
    return {name: digest for name, digest in digests.items() if digest}


def weights_digest(module: nn.Module) -> str | None:
    """Return 32 hexadecimal digits that stand for the weights; None where they are not in this process's memory."""
    tensors = {name: value for name, value in module.state_dict().items() if isinstance(value, Tensor)}
    if not tensors or any(tensor.is_meta for tensor in tensors.values()):
        return None
    with ThreadPoolExecutor() as pool:
        return digest_of([list(tensors), list(pool.map(_tensor_digest, tensors.values()))])


def _tensor_digest(tensor: Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype} {list(tensor.shape)}".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(uint8).numpy().data)
    return digest.hexdigest()
