"""The multi-vector head of BGE-M3, `colbert_linear.pt` beside a dense model, as a late-interaction model.

Chen et al. 2024 (arXiv 2402.03216), section 3.1: the last hidden state of every token but the first, projected and normalized;
queries and documents are scored by MaxSim. The PosQ papers call it bge-m3-colbert (arXiv 2505.13950). `MODEL:colbert` refers to
the head of any model that has it: `BAAI/bge-m3:colbert`, `./my-bge-m3:colbert`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.models.folder import require_weights
from posir_tasks.models.references import LOCAL, ModelLoader, model_origin, portable_name

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels
    from torch import Tensor

#: File of the head's weights: those of a linear layer.
HEAD_FILE = "colbert_linear.pt"
SUFFIX = ":colbert"
#: The papers' names of the head of a registered model.
PAPER_NAMES = {"bge-m3-colbert": "BAAI/bge-m3:colbert", "BAAI/bge-m3-colbert": "BAAI/bge-m3:colbert"}


def _load_head(
    base: ModelMeta, folder: Path | None, _name: str, revision: str | None, device: str | None = None, **options: Any
) -> MTEBModels:
    """Load a model with its head, from a folder or the Hub; raise PosirError if its files cannot be loaded."""
    import torch
    from huggingface_hub import hf_hub_download
    from mteb.models.sentence_transformer_wrapper import MultiVectorWrapper
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from torch import nn

    model = str(folder or base.name)
    try:
        file = folder / HEAD_FILE if folder else Path(hf_hub_download(model, HEAD_FILE, revision=revision))
        weights: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # the Hub's client and torch have their own errors
        raise PosirError(f"{model}: the multi-vector head, {HEAD_FILE}, cannot be read ({summarize_error(error)}).") from error
    # A folder's revision is a digest and not one of the Hub.
    source: dict[str, Any] = {} if folder else {"revision": revision}
    # Without `trust_remote_code`, transformers asks on the terminal whether code of the model may run.
    source["trust_remote_code"] = False
    with require_weights(folder) if folder else nullcontext():
        transformer = Transformer(model, **{f"{part}_kwargs": dict(source) for part in ("model", "processor", "config")})
    vector_size, hidden_size = weights["weight"].shape
    head = Dense(
        hidden_size,
        vector_size,
        bias="bias" in weights,
        activation_function=nn.Identity(),
        init_weight=weights["weight"],
        init_bias=weights.get("bias"),
        module_input_name="token_embeddings",
    )
    # The first token, CLS, stands for the whole text in the dense vector and has none here.
    mask = MultiVectorMask([transformer.tokenizer.cls_token], skiplist_tasks=["query", "document"])
    modules: list[nn.Module] = [transformer, head, mask, Normalize(module_input_name="token_embeddings")]
    return MultiVectorWrapper(MultiVectorEncoder(modules=modules, device=device), **options)


def resolve_colbert_head(name: str, registered: Mapping[str, ModelMeta]) -> ModelMeta | None:
    """Resolve `MODEL:colbert`, or a paper's name of it; raise PosirError if there is no such model or head."""
    name = PAPER_NAMES.get(name, name)
    if not name.endswith(SUFFIX):
        return None
    from mteb.models.model_meta import ScoringFunction

    reference = name.removesuffix(SUFFIX)
    if reference not in registered:
        raise PosirError(f"{name}: mteb knows no model '{reference}', and there is no such folder.")
    base = registered[reference]
    folder = Path(portable_name(base)) if model_origin(str(base.name)) == LOCAL else None
    if folder is not None and not (folder / HEAD_FILE).is_file():
        raise PosirError(f"{name}: the folder has no {HEAD_FILE}, the weights of a multi-vector head.")
    return base.model_copy(
        update={
            "name": f"{base.name}-colbert",
            "loader": ModelLoader("MultiVectorWrapper", portable_name(base) + SUFFIX, partial(_load_head, base, folder)),
            "loader_kwargs": {},
            "model_type": ["late-interaction"],
            "similarity_fn_name": ScoringFunction.MAX_SIM,
        }
    )
