"""The prompt that a loaded model puts before a text, where mteb's class for the model tells, and
the input it makes of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from inspect import unwrap
from typing import TYPE_CHECKING, Any

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

#: Methods that put a prompt of `model_prompts` before each text, and use nothing else of the task.
PROMPT_METHODS = (
    SentenceTransformerEncoderWrapper.encode,
    SparseEncoderWrapper.encode,
    EndpointEncoder.encode,
)
#: Names of the prompt that sentence-transformers looks for if it is given none for a document.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
#: Attribute of a model whose prompts were replaced.
REPLACED = "posir_replaced_prompts"


@dataclass(frozen=True)
class PromptText:
    """The prompt that is passed to a model."""

    text: str | None
    """None if the model chooses."""


def find_encode(model: Any) -> Any:
    """Return the function that encodes texts of a loaded model, without its wrappers; None if it
    has none.
    """
    # A method around another one, of `functools.wraps`, calls it with the same texts and task.
    encode: Any = getattr(getattr(model, "encode", None), "__func__", None)
    return encode and unwrap(encode)


def has_model_prompts(model: Any) -> bool:
    """Return whether the class of a loaded model puts a prompt of `model_prompts` before each text,
    and nothing else.
    """
    return find_encode(model) in PROMPT_METHODS or type(model) is MultiVectorWrapper


def replace_prompts(model: Any, query: str | None, document: str | None = None) -> bool:
    """Let a loaded model put texts before queries and documents instead of its own prompts; return
    False if its class cannot.

    Without a text for queries or for documents, their prompts are left as they are.
    """
    replaced = [getattr(inner, REPLACED, None) for inner in [model, *vars(model).values()]]
    if (query, document) in replaced:
        return True
    prompts = {PromptType.query.value: query, PromptType.document.value: document}
    texts = {kind: text for kind, text in prompts.items() if text is not None}
    if getattr(type(model), "predict", None) is CrossEncoderWrapper.predict:
        if query is not None:
            model.query_prefix = query
        if document is not None:
            model.passage_prefix = document
    elif has_model_prompts(model):
        model.model_prompts = _keep_prompts(model.model_prompts or {}, texts) | texts
    elif find_encode(model) is InstructSentenceTransformerModel.encode:
        model.instruction_template = _build_template(texts, model.instruction_template)
        if document is not None:
            model.apply_instruction_to_passages = bool(document)
    elif isinstance(model, AbsEncoder):
        _answer_with_prompts(model, texts)
    else:
        return False
    setattr(model, REPLACED, (query, document))
    return True


def _answer_with_prompts(model: Any, prompts: Mapping[str, str]) -> None:
    """Answer with texts when a model of any other class of mteb asks for its prompts.

    Encoding then raises PosirError if it has not asked: its class has a prompt of its own, or none.
    """
    encode = model.encode
    asked_methods = list[str]()

    def answer(method: str) -> Callable[..., Any]:
        original = getattr(model, method)

        def find(task_metadata: TaskMetadata, prompt_type: PromptType | None) -> Any:
            if prompt_type is None or prompt_type.value not in prompts:
                return original(task_metadata, prompt_type)
            asked_methods.append(method)
            return prompts[prompt_type.value]

        return find

    def encode_asking(*inputs: Any, prompt_type: PromptType | None = None, **options: Any) -> Any:
        asked_methods.clear()
        embeddings = encode(*inputs, prompt_type=prompt_type, **options)
        kind = prompt_type.value if prompt_type else ""
        # A protocol gives documents no text, and a class that does not ask for one puts none there.
        is_needed = kind in prompts and (kind == PromptType.query.value or bool(prompts[kind]))
        if is_needed and not asked_methods:
            raise PosirError(
                f"the {kind} prompt of the run cannot be given to the class "
                f"{type(model).__name__}. Unset it."
            )
        return embeddings

    for method in ("get_task_instruction", "get_instruction", "get_prompt"):
        setattr(model, method, answer(method))
    # A class may format what `get_instruction` returns.
    if model.instruction_template is not None:
        model.instruction_template = _build_template(prompts, model.instruction_template)
    model.encode = encode_asking


def _keep_prompts(prompts: Mapping[str, str], replaced: Collection[str]) -> dict[str, str]:
    """Return the prompts of the kind, `query` or `document`, that is not replaced; none if both
    are.

    The other kind does not get them: mteb prefers `<task>-document` to `<task>`, and that to
    `document`.
    """
    kept_prompts: dict[str, str] = {}
    for kept in {PromptType.query.value, PromptType.document.value}.difference(replaced):
        for name, text in prompts.items():
            kind = name.split("-")[-1]
            if kind == kept:
                kept_prompts[name] = text
            elif kind not in replaced:
                kept_prompts.setdefault(f"{name}-{kept}", text)
    return kept_prompts


def _build_template(prompts: Mapping[str, str], other: Any) -> Callable[..., str]:
    """Build a template of instructions with a fixed text for queries, documents, or both."""

    def fill(instruction: str, prompt_type: PromptType | None = None) -> str:
        if prompt_type is not None and prompt_type.value in prompts:
            return prompts[prompt_type.value]
        if callable(other):
            return str(other(instruction, prompt_type))
        return str(other).format(instruction=instruction) if other and instruction else instruction

    return fill


def find_prompt(
    model: Any, task_metadata: TaskMetadata, prompt_type: PromptType | None
) -> PromptText | None:
    """Return the prompt with which an mteb model encodes texts of a task; None if its class may use
    anything in the task.
    """
    if has_model_prompts(model):
        return PromptText(get_prompt(model.model_prompts, task_metadata, prompt_type))
    if find_encode(model) is not InstructSentenceTransformerModel.encode:
        return None
    if prompt_type == PromptType.document and not model.apply_instruction_to_passages:
        return PromptText(None)
    with warnings.catch_warnings(action="ignore"):
        return PromptText(model.get_task_instruction(task_metadata, prompt_type))


def find_document_prompt(model: Any, task_metadata: TaskMetadata) -> str | None:
    """Return the text that reaches a loaded model of sentence-transformers before each document;
    None if it is unknown.
    """
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
    """Make the tensors of inputs as a model of sentence-transformers does; before 5.4 it calls
    this `tokenize`.
    """
    has_preprocess = hasattr(model, "preprocess")
    features: Mapping[str, Any] = (
        model.preprocess(inputs, **options) if has_preprocess else model.tokenize(inputs)
    )
    return features
