"""The multi-vector head of BGE-M3, `colbert_linear.pt` beside a dense model, as a late-interaction model.

Chen et al. 2024 (arXiv 2402.03216), section 3.1: the last hidden state of every token but the first, projected and normalized;
queries and documents are scored by MaxSim. The PosQ papers call it bge-m3-colbert (arXiv 2505.13950). `MODEL:colbert` refers to
the head of any model that has it: `BAAI/bge-m3:colbert`, `./my-bge-m3:colbert`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.models.folder import FolderLoader, require_weights
from posir_tasks.models.references import portable_name

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels
    from torch import Tensor

#: File of the head's weights: those of a linear layer.
HEAD_FILE = "colbert_linear.pt"
SUFFIX = ":colbert"
#: The papers' names of the head of a registered model.
PAPER_NAMES = {"bge-m3-colbert": "BAAI/bge-m3:colbert", "BAAI/bge-m3-colbert": "BAAI/bge-m3:colbert"}


class ColbertHeadLoader:
    """Loads the multi-vector head of a model, in place of a class of mteb that loads models by name."""

    def __init__(self, base: ModelMeta) -> None:
        self.base = base
        # What mteb records as the loader.
        self.__name__ = "MultiVectorWrapper"
        self.reference = portable_name(base) + SUFFIX

    def __call__(
        self,
        name: str,  # noqa: ARG002
        revision: str | None = None,
        device: str | None = None,
        **options: Any,
    ) -> MTEBModels:
        """Load the model; raise PosirError if it has no such head, or its files cannot be loaded."""
        from mteb.models.sentence_transformer_wrapper import MultiVectorWrapper
        from sentence_transformers import MultiVectorEncoder
        from sentence_transformers.base.modules import Dense, Normalize, Transformer
        from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
        from torch import nn

        folder = self.base.loader.folder if isinstance(self.base.loader, FolderLoader) else None
        weights = _read_head(folder or str(self.base.name), revision)
        # A folder's revision is a digest and not one of the Hub.
        source: dict[str, Any] = {} if folder else {"revision": revision}
        # Without `trust_remote_code`, transformers asks on the terminal whether code of the model may run.
        source["trust_remote_code"] = False
        kwargs = {part: dict(source) for part in ("model_kwargs", "processor_kwargs", "config_kwargs")}
        with require_weights(folder) if folder else nullcontext():
            transformer = Transformer(str(folder or self.base.name), **kwargs)
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


def _read_head(model: Path | str, revision: str | None) -> dict[str, Tensor]:
    """Return the weights of a head, in a folder or on the Hub."""
    import torch
    from huggingface_hub import hf_hub_download

    try:
        file = model / HEAD_FILE if isinstance(model, Path) else Path(hf_hub_download(model, HEAD_FILE, revision=revision))
        weights: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # the Hub's client and torch have their own errors
        raise PosirError(f"{model}: the multi-vector head, {HEAD_FILE}, cannot be read ({summarize_error(error)}).") from error
    return weights


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
    folder = base.loader.folder if isinstance(base.loader, FolderLoader) else None
    if folder is not None and not (folder / HEAD_FILE).is_file():
        raise PosirError(f"{name}: the folder has no {HEAD_FILE}, the weights of a multi-vector head.")
    return base.model_copy(
        update={
            "name": f"{base.name}-colbert",
            "loader": ColbertHeadLoader(base),
            "loader_kwargs": {},
            "model_type": ["late-interaction"],
            "similarity_fn_name": ScoringFunction.MAX_SIM,
        }
    )
