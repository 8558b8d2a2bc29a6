"""BGE's rerankers that are language models, which mteb does not register: FlagEmbedding loads them, as for PosQ's authors.

They score by the logit of a word, which a cross-encoder of sentence-transformers does not. No code of a repository is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from posir_tasks.models.references import CROSS_ENCODER

if TYPE_CHECKING:
    from mteb.models import ModelMeta

#: Class of FlagEmbedding by model (FlagEmbedding 1.3.4, inference/reranker/model_mapping.py), and its settings. A layer-wise
#: model has a score for each layer; the 28th is that of the example on its model card, while the papers state none.
CLASSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "BAAI/bge-reranker-v2-gemma": ("FlagLLMReranker", {}),
    "BAAI/bge-reranker-v2-minicpm-layerwise": ("LayerWiseFlagLLMReranker", {"cutoff_layers": [28]}),
}


def load_flag_reranker(
    model_name: str,
    revision: str | None = None,  # noqa: ARG001
    device: str | None = None,
    *,
    flag_class: str,
    cutoff_layers: list[int] | None = None,
    **_: Any,
) -> Any:
    """Return one of these models in mteb's class for BGE's rerankers, whose scores are probabilities."""
    from mteb.models.model_implementations.rerankers_custom import BGEReranker

    settings = {"cutoff_layers": cutoff_layers} if cutoff_layers else {}
    model = BGEReranker.__new__(BGEReranker)
    # Its constructor loads an encoder.
    super(BGEReranker, model).__init__(model_name)
    model.model = getattr(import_module("FlagEmbedding"), flag_class)(model_name, use_fp16=True, devices=device, **settings)
    return model


def resolve_flag_reranker(name: str, registered: Mapping[str, ModelMeta]) -> ModelMeta | None:  # noqa: ARG001
    """Resolve the name of one of these models; None for any other."""
    if name not in CLASSES:
        return None
    from mteb.models import ModelMeta

    flag_class, settings = CLASSES[name]
    values: dict[str, Any] = {
        "loader": load_flag_reranker,
        "loader_kwargs": {"flag_class": flag_class, **settings},
        "name": name,
        "reference": f"https://huggingface.co/{name}",
        "model_type": [CROSS_ENCODER],
        "framework": ["PyTorch", "Transformers"],
        "extra_requirements_groups": ["flagembedding"],
    }
    return ModelMeta.create_empty(values)
