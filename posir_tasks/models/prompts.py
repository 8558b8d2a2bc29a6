"""Prompts of loaded models, as defined by their mteb classes, and the preprocessing of inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from inspect import unwrap
from typing import TYPE_CHECKING, Any, TypeAlias

from mteb.models.abs_encoder import AbsEncoder, get_prompt
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.models.sentence_transformer_wrapper import (
    CrossEncoderWrapper,
    MultiVectorWrapper,
    SentenceTransformerEncoderWrapper,
    SparseEncoderWrapper,
)
from mteb.types import PromptType

from posir_tasks.base.errors import PosirError
from posir_tasks.models.endpoint_models import EndpointEncoder

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

#: `encode` methods that use nothing of a task except its prompt in `model_prompts`.
PROMPT_METHODS = (
    SentenceTransformerEncoderWrapper.encode,
    SparseEncoderWrapper.encode,
    EndpointEncoder.encode,
)
#: Names of the default document prompt in sentence-transformers.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
#: Prompts by prompt type. None is never a key, but mteb passes it for some texts.
SidePrompts: TypeAlias = dict[PromptType | None, str]
#: Model attribute that stores the prompts set by `replace_prompts`.
REPLACED_PROMPTS = "posir_replaced_prompts"


@dataclass(frozen=True)
class PromptText:
    """A prompt as passed to a model."""

    text: str | None
    """None if the model chooses its prompt."""


def unwrap_encode(model: Any) -> Any:
    """Return a model's unwrapped `encode` function, or None."""
    # Functions with `functools.wraps` pass on the same texts and task.
    encode: Any = getattr(getattr(model, "encode", None), "__func__", None)
    return encode and unwrap(encode)


def has_model_prompts(model: Any) -> bool:
    """Return True if the model's class only adds a prompt from `model_prompts` to each text."""
    return unwrap_encode(model) in PROMPT_METHODS or type(model) is MultiVectorWrapper


def replace_prompts(model: Any, query: str | None, document: str | None = None) -> bool:
    """Replace the prompts of a loaded model. Return False if its class does not support it.

    None keeps the model's own prompt.
    """
    applied_prompts = [
        getattr(inner, REPLACED_PROMPTS, None) for inner in [model, *vars(model).values()]
    ]
    if (query, document) in applied_prompts:
        return True
    prompts = {PromptType.query: query, PromptType.document: document}
    texts: SidePrompts = {kind: text for kind, text in prompts.items() if text is not None}
    if getattr(type(model), "predict", None) is CrossEncoderWrapper.predict:
        if query is not None:
            model.query_prefix = query
        if document is not None:
            model.passage_prefix = document
    elif has_model_prompts(model):
        model.model_prompts = _select_kept_prompts(model.model_prompts or {}, texts) | texts
    elif unwrap_encode(model) is InstructSentenceTransformerModel.encode:
        model.instruction_template = _build_template(texts, model.instruction_template)
        if document is not None:
            model.apply_instruction_to_passages = bool(document)
    elif isinstance(model, AbsEncoder):
        _replace_lookups(model, texts)
    else:
        return False
    setattr(model, REPLACED_PROMPTS, (query, document))
    return True


def _replace_lookups(model: Any, prompts: SidePrompts) -> None:
    """Replace the methods that look up prompts in a model of any other mteb class.

    Encoding then raises PosirError if the model calls none of them.
    """
    encode = model.encode
    is_used = False

    def wrap_lookup(look_up: Callable[..., Any]) -> Callable[..., Any]:
        def look_up_or_replace(task_metadata: TaskMetadata, prompt_type: PromptType | None) -> Any:
            nonlocal is_used
            if prompt_type not in prompts:
                return look_up(task_metadata, prompt_type)
            is_used = True
            return prompts[prompt_type]

        return look_up_or_replace

    def encode_and_check(
        *inputs: Any, prompt_type: PromptType | None = None, **options: Any
    ) -> Any:
        nonlocal is_used
        is_used = False
        embeddings = encode(*inputs, prompt_type=prompt_type, **options)
        # A class that does not look up a document prompt already runs without one.
        is_needed = prompt_type in prompts and (
            prompt_type is PromptType.query or bool(prompts[prompt_type])
        )
        if is_needed and not is_used:
            raise PosirError(
                f"the class {type(model).__name__} does not support the run's {prompt_type} "
                "prompt. Unset it."
            )
        return embeddings

    for method in ("get_task_instruction", "get_instruction", "get_prompt"):
        setattr(model, method, wrap_lookup(getattr(model, method)))
    # Classes may format the result of `get_instruction`.
    if model.instruction_template is not None:
        model.instruction_template = _build_template(prompts, model.instruction_template)
    model.encode = encode_and_check


def _select_kept_prompts(
    prompts: Mapping[str, str], replaced_sides: Collection[object]
) -> dict[str, str]:
    """Return the prompts for the sides (`query` or `document`) that are not replaced.

    Prompts for both sides become prompts for one side: mteb prefers `<task>-document` to `<task>`,
    and `<task>` to `document`.
    """
    side_prompts: dict[str, str] = {}
    for side in {*PromptType}.difference(replaced_sides):
        for name, text in prompts.items():
            kind = name.split("-")[-1]
            if kind == side:
                side_prompts[name] = text
            elif kind not in replaced_sides:
                side_prompts.setdefault(f"{name}-{side}", text)
    return side_prompts


def _build_template(prompts: SidePrompts, template: Any) -> Callable[..., str]:
    """Build an instruction template that returns fixed texts for the sides in `prompts`."""

    def fill(instruction: str, prompt_type: PromptType | None = None) -> str:
        if prompt_type in prompts:
            return prompts[prompt_type]
        if callable(template):
            return str(template(instruction, prompt_type))
        if template and instruction:
            return str(template).format(instruction=instruction)
        return instruction

    return fill


def find_prompt(
    model: Any, task_metadata: TaskMetadata, prompt_type: PromptType | None
) -> PromptText | None:
    """Return the prompt that a model adds to a task's texts, or None if its class may also use
    other properties of the task.
    """
    if has_model_prompts(model):
        return PromptText(get_prompt(model.model_prompts, task_metadata, prompt_type))
    if unwrap_encode(model) is not InstructSentenceTransformerModel.encode:
        return None
    if prompt_type == PromptType.document and not model.apply_instruction_to_passages:
        return PromptText(None)
    with warnings.catch_warnings(action="ignore"):
        return PromptText(model.get_task_instruction(task_metadata, prompt_type))


def find_document_prompt(model: Any, task_metadata: TaskMetadata) -> str | None:
    """Return the document prompt of a sentence-transformers model, or None if it is unknown."""
    prompt = find_prompt(model, task_metadata, PromptType.document)
    if prompt is None:
        return None
    if prompt.text is not None:
        return prompt.text
    names = () if isinstance(model, InstructSentenceTransformerModel) else DOCUMENT_PROMPTS
    prompts: Mapping[str, str] = model.model.prompts
    prompt_name = next((name for name in names if name in prompts), model.model.default_prompt_name)
    return prompts.get(prompt_name) or ""


def preprocess(model: Any, inputs: Sequence[Any], **options: Any) -> Mapping[str, Any]:
    """Convert inputs to tensors with a sentence-transformers model (`tokenize` before 5.4)."""
    features: Mapping[str, Any]
    if hasattr(model, "preprocess"):
        features = model.preprocess(inputs, **options)
    else:
        features = model.tokenize(inputs)
    return features
