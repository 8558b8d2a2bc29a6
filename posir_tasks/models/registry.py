"""mteb's model registry, extended with posir's kinds of references.

`ModelRegistry` replaces mteb's registry (see `posir_tasks.mteb`), so that `mteb run`, `posir run`
and `mteb.get_model` accept the same references. To add a kind of reference, add a function to
`RESOLVERS` or return it from the plugin hook `posir_model_resolvers`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.base.digests import digest, digest_file
from posir_tasks.base.errors import PosirError, hide_tracebacks, summarize_error
from posir_tasks.base.private_names import MODEL_REGISTRY, fall_back, find_mteb_folder
from posir_tasks.base.public import load_object
from posir_tasks.models.folder import (
    check_folder,
    find_model_folder,
    is_model_folder,
    require_weights,
    resolve_model_folder,
)
from posir_tasks.models.hub import (
    describe_missing_weights,
    find_hub_problem,
    is_in_cache,
    is_on_hub,
    make_missing_hub_error,
)
from posir_tasks.models.packaged import is_packaged
from posir_tasks.models.reference_parts import (
    HEAD_SUFFIX,
    HYBRID_END,
    HYBRID_START,
    PAPER_NAMES,
    split_hybrid,
    split_reference,
)
from posir_tasks.models.references import (
    CROSS_ENCODER,
    LOCAL,
    MISSING_REVISIONS,
    MODEL_NAME,
    RERANKER_NAME,
    ModelLoader,
    ModelReference,
    RegisteredModels,
    find_endpoint,
    find_origin,
    get_portable_reference,
    make_unknown_model_error,
    resolve_bare_name,
    strip_organization,
)
from posir_tasks.models.run_settings import add_run_settings, ignore_run_settings
from posir_tasks.plugin_api import Resolver, collect_items

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels
    from torch import Tensor

#: Name of a model in its declaration in mteb's source code.
DECLARED_NAME = re.compile(r' name="([\w.-]+/[\w.-]+)"')
#: Start of a declaration.
DECLARATION = "ModelMeta("
#: Loader of models with weights on the Hub under the model's name.
LOADED_BY_NAME = "loader=SentenceTransformerEncoderWrapper,"
HYBRID_ADVICE = (
    "Write hybrid(MODEL,MODEL), such as 'hybrid(mteb/baseline-bm25s,all-MiniLM-L6-v2)'; in a "
    "shell it needs quotes."
)


NOT_LOADABLE = "the Hub has no such model that mteb can load"


class ModelRegistry(dict[str, Any]):
    """mteb's registry. Other references are looked up with the resolvers."""

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        return isinstance(name, str) and self._resolve(name) is not None

    def __missing__(self, name: str) -> ModelMeta:
        if (meta := self._resolve(name)) is None:
            raise KeyError(name)
        return meta

    def _resolve(self, name: str) -> ModelMeta | None:
        hide_tracebacks()
        for resolver in (*collect_plugin_resolvers(), *RESOLVERS):
            meta = fall_back("add_model_references", resolver, name, self, otherwise=None)
            if meta is not None:
                return meta
        return None


@cache
def collect_plugin_resolvers() -> tuple[Resolver, ...]:
    """Collect the plugins' resolvers, and warn once about each plugin that fails."""
    return tuple(
        resolver for _, resolver in collect_items("posir_model_resolvers", "references to models")
    )


@cache
def read_declarations() -> dict[str, str]:
    """Return the source code of the declarations in mteb by model name.

    The files are read, since importing mteb takes seconds.
    """
    folder = find_mteb_folder() / "models" / "model_implementations"
    declarations: dict[str, str] = {}
    for file in folder.glob("*.py"):
        for declaration in file.read_text(encoding="utf-8").split(DECLARATION):
            declarations |= dict.fromkeys(DECLARED_NAME.findall(declaration), declaration)
    return declarations


def raise_if_unknown(reference: str) -> None:
    """Raise PosirError for an unknown model or an unusable folder, before mteb is imported.

    The import takes seconds. Once mteb is imported, looking up the model raises the error. In
    references such as `hybrid(A,B)` or `A+METHOD`, all models are checked.
    """
    # Without declarations, mteb is not installed, and its import raises the error.
    if "mteb" in sys.modules or not read_declarations():
        return
    for name in split_reference(reference):
        if find_endpoint(name):
            continue
        folder = find_model_folder(name)
        if folder is not None:
            check_folder(folder.resolve())
        elif MODEL_NAME.fullmatch(name):
            _raise_if_unknown_name(name)


def raise_if_unloadable(reference: str) -> None:
    """Raise PosirError like `raise_if_unknown`, or if the weights of a registered model are neither
    in the cache nor downloadable.
    """
    raise_if_unknown(reference)
    if "mteb" in sys.modules:
        return
    declarations = read_declarations()
    for name in split_reference(reference):
        full_names = [] if is_model_folder(Path(name).expanduser()) else find_declared_names(name)
        # Other loaders may load weights of another name, or call an API.
        needs_weights = full_names and all(
            LOADED_BY_NAME in declarations[full_name] for full_name in full_names
        )
        if not needs_weights or any(
            is_in_cache(full_name) or is_packaged(full_name) for full_name in full_names
        ):
            continue
        problem = find_hub_problem()
        if problem:
            raise make_missing_hub_error(describe_missing_weights(full_names[0]), problem)


def find_declared_names(name: str) -> list[str]:
    """Return the full names of the models in mteb with this full or bare name."""
    return [
        full_name
        for full_name in read_declarations()
        if name in (full_name, strip_organization(full_name))
    ]


def _raise_if_unknown_name(name: str) -> None:
    """Raise PosirError if neither mteb, the plugins, the Hub nor its cache provides the model."""
    if find_declared_names(name) or name in FLAG_CLASSES or is_in_cache(name):
        return
    if any(resolver(name, {}) for resolver in collect_plugin_resolvers()):
        return
    problem = find_hub_problem()
    reason = "the Hub has no model of this name"
    if problem:
        reason = f"the Hub cannot be searched for it ({problem})"
    if problem or not is_on_hub(name):
        raise make_unknown_model_error(name, read_declarations(), reason)


def find_model(reference: ModelReference) -> ModelMeta:
    """Return mteb's metadata for a model.

    Raises:
        PosirError: The model is not in mteb, on the Hub, in a folder or at an endpoint.
    """
    raise_if_unknown(reference.name)
    import mteb

    name = reference.name
    revision = reference.revision
    try:
        meta = mteb.get_model_meta(name, revision, fetch_from_hf=True)
    except PosirError:
        raise
    except Exception as error:  # the Hub's client and its HTTP library raise their own errors
        registry = MODEL_REGISTRY.resolve()
        if name in registry:
            raise PosirError(str(error)) from error
        reason = f"the Hub does not provide it ({summarize_error(error)})"
        raise make_unknown_model_error(name, registry, reason) from error
    if meta.loader is None:
        raise make_unknown_model_error(name, MODEL_REGISTRY.resolve(), NOT_LOADABLE)
    return add_run_settings(meta)


def load_model(reference: ModelReference) -> MTEBModels:
    """Load a model like `mteb run`, on the first GPU or else the CPU.

    Raises:
        PosirError: The model is unknown, or its weights cannot be loaded.
    """
    raise_if_unloadable(reference.name)
    import mteb
    import torch

    try:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return mteb.get_model(reference.name, reference.revision, device=device)
    except NotImplementedError as error:  # mteb created metadata without a loader
        raise make_unknown_model_error(
            reference.name, MODEL_REGISTRY.resolve(), NOT_LOADABLE
        ) from error


def resolve_endpoint(name: str, registered: RegisteredModels) -> ModelMeta | None:  # noqa: ARG001
    """Resolve `MODEL@ADDRESS` without a request. Raise PosirError if it is invalid."""
    endpoint = find_endpoint(name)
    if endpoint is None:
        return None
    from mteb.models import ModelMeta
    from mteb.models.model_meta import ScoringFunction

    is_reranker = bool(RERANKER_NAME.fullmatch(endpoint.model))
    loader = "RerankEndpoint" if is_reranker else "EndpointEncoder"

    def connect(_name: str, _revision: str | None, **options: Any) -> Any:
        from posir_tasks.models import endpoint_models

        return getattr(endpoint_models, loader)(endpoint, **options)

    return ModelMeta.create_empty(
        {
            "loader": ModelLoader(loader, str(endpoint), connect),
            "name": endpoint.name,
            "revision": endpoint.revision,
            "framework": ["API"],
            "reference": endpoint.address,
            "model_type": [CROSS_ENCODER if is_reranker else "dense"],
            "similarity_fn_name": None if is_reranker else ScoringFunction.COSINE,
        }
    )


def resolve_hybrid(name: str, registered: RegisteredModels) -> ModelMeta | None:  # noqa: ARG001
    """Resolve `hybrid(MODEL,MODEL)`. Raise PosirError for fewer than two models, for duplicates,
    and for unknown or reranking models.
    """
    references = split_hybrid(name)
    if not references:
        return None
    from mteb.models import ModelMeta

    if len(references) < 2 or not all(references):
        raise PosirError(f"{name}: a hybrid needs at least two models. {HYBRID_ADVICE}")
    with ignore_run_settings():
        members = [find_model(ModelReference(member)) for member in references]
    names = [str(member.name) for member in members]
    if len({*names}) < len(names):
        raise PosirError(f"{name}: a model occurs more than once. {HYBRID_ADVICE}")
    for member in members:
        if CROSS_ENCODER in member.model_type:
            raise PosirError(
                f"{name}: {member.name} reranks and does not search. Set the hybrid as its "
                "POSIR_FIRST_STAGE instead."
            )

    def load(_name: str, _revision: str | None, **options: Any) -> MTEBModels:
        from posir_tasks.models.dispatch import HybridSearch

        return HybridSearch([member.load_model(**options) for member in members])

    revisions = [member.revision for member in members]
    is_pinned = not {*MISSING_REVISIONS} & {*revisions}
    reference = f"{HYBRID_START}{','.join(map(get_portable_reference, members))}{HYBRID_END}"
    frameworks = dict.fromkeys(framework for member in members for framework in member.framework)
    return ModelMeta.create_empty(
        {
            "loader": ModelLoader("HybridSearch", reference, load),
            "name": f"{HYBRID_START}{','.join(names)}{HYBRID_END}",
            "revision": digest(*revisions).hex() if is_pinned else None,
            "framework": list(frameworks),
        }
    )


# `MODEL:colbert` uses the multi-vector head of BGE-M3 (`colbert_linear.pt`) as a late-interaction
# model. Chen et al. 2024 (arXiv 2402.03216), section 3.1: the last hidden states of all tokens but
# the first are projected, normalized and scored by MaxSim. The PosQ papers call the model
# bge-m3-colbert (arXiv 2505.13950). Fine-tuned models may also have this head.

#: Weights of the head's linear layer.
HEAD_FILE = "colbert_linear.pt"


def _load_head(
    base: ModelMeta,
    folder: Path | None,
    _name: str,
    revision: str | None,
    device: str | None = None,
    **options: Any,
) -> MTEBModels:
    """Load a model and its head. Raise PosirError if the head's weights cannot be read."""
    import torch
    from huggingface_hub import hf_hub_download
    from mteb.models.sentence_transformer_wrapper import MultiVectorWrapper
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from torch import nn

    model = str(folder or base.name)
    try:
        if folder:
            file = str(folder / HEAD_FILE)
        else:
            file = hf_hub_download(model, HEAD_FILE, revision=revision)
        weights: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # the Hub's client and torch raise their own errors
        raise PosirError(
            f"{model}: the multi-vector head, {HEAD_FILE}, cannot be read "
            f"({summarize_error(error)})."
        ) from error
    # Without this option, transformers asks on the terminal whether to run the model's code.
    source: dict[str, Any] = {"trust_remote_code": False}
    if not folder:
        # The revision of a folder is a digest, not a commit.
        source["revision"] = revision
    with require_weights(folder) if folder else nullcontext():
        transformer = Transformer(
            model, **{f"{part}_kwargs": dict(source) for part in ("model", "processor", "config")}
        )
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
    # The first token, CLS, provides the dense vector and has no token vector.
    mask = MultiVectorMask([transformer.tokenizer.cls_token], skiplist_tasks=["query", "document"])
    modules: list[nn.Module] = [
        transformer,
        head,
        mask,
        Normalize(module_input_name="token_embeddings"),
    ]
    return MultiVectorWrapper(MultiVectorEncoder(modules=modules, device=device), **options)


def resolve_colbert_head(name: str, registered: RegisteredModels) -> ModelMeta | None:
    """Resolve `MODEL:colbert` or a name in `PAPER_NAMES`. Raise PosirError if the model is unknown
    or has no head.
    """
    name = PAPER_NAMES.get(name, name)
    if not name.endswith(HEAD_SUFFIX):
        return None
    from mteb.models.model_meta import ScoringFunction

    reference = name.removesuffix(HEAD_SUFFIX)
    if reference not in registered:
        raise PosirError(
            f"{name}: '{reference}' is neither a model registered with mteb nor a folder."
        )
    base = registered[reference]
    folder = Path(get_portable_reference(base)) if find_origin(str(base.name)) == LOCAL else None
    if folder is not None and not (folder / HEAD_FILE).is_file():
        raise PosirError(
            f"{name}: the folder has no {HEAD_FILE}, the weights of a multi-vector head."
        )
    return base.model_copy(
        update={
            "name": f"{base.name}-colbert",
            "loader": ModelLoader(
                "MultiVectorWrapper",
                get_portable_reference(base) + HEAD_SUFFIX,
                partial(_load_head, base, folder),
            ),
            "loader_kwargs": {},
            "model_type": ["late-interaction"],
            "similarity_fn_name": ScoringFunction.MAX_SIM,
        }
    )


#: A reference to an object with an `encode` method in the user's code.
OBJECT_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def resolve_object(name: str, registered: RegisteredModels) -> ModelMeta | None:  # noqa: ARG001
    """Resolve `module:object`, which is an object with `encode`, or a class or function that
    creates one without arguments. Raise PosirError if it cannot be imported or has no `encode`.
    """
    if not OBJECT_REFERENCE.fullmatch(name):
        return None
    from mteb.models import ModelMeta
    from mteb.models.model_meta import ScoringFunction

    from posir_tasks.models.encoder_object import ObjectEncoder

    target = load_object("--model", name)
    if isinstance(target, type) or (callable(target) and not hasattr(target, "encode")):
        try:
            target = target()
        except Exception as error:  # the user's code
            raise PosirError(
                f"{name}: cannot be called without arguments ({summarize_error(error)}). Give an "
                "object whose `encode(texts)` returns a vector for each text."
            ) from error
    if not hasattr(target, "encode"):
        raise PosirError(
            f"{name}: is {type(target).__name__}, which has no `encode`. Give an object whose "
            "`encode(texts)` returns a vector for each text."
        )
    code = Path(str(getattr(sys.modules[name.partition(":")[0]], "__file__", "")))

    def load(_name: str, _revision: str | None, **options: Any) -> Any:
        return ObjectEncoder(target, options.get("model_prompts"))

    return ModelMeta.create_empty(
        {
            "loader": ModelLoader("ObjectEncoder", name, load),
            "name": f"{LOCAL}/{name.replace(':', '-')}",
            "revision": digest_file(code).hex()[:16] if code.is_file() else None,
            "model_type": ["dense"],
            "similarity_fn_name": ScoringFunction.COSINE,
        }
    )


# mteb does not register BGE's language model rerankers. As in the PosQ papers, FlagEmbedding loads
# them, since a CrossEncoder cannot use the logit of a word as the score. No code from the Hub is
# run.

#: Class in FlagEmbedding (1.3.4, inference/reranker/model_mapping.py) and settings, by model. A
#: layer-wise model returns a score for each layer. The papers do not report a layer; 28 is from the
#: example on the model card.
FLAG_CLASSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
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
    """Load a reranker in mteb's class for BGE's rerankers. Its scores are probabilities."""
    from mteb.models.model_implementations.rerankers_custom import BGEReranker

    settings = {"cutoff_layers": cutoff_layers} if cutoff_layers else {}
    model = BGEReranker.__new__(BGEReranker)
    # Skip the constructor, which would load an encoder.
    super(BGEReranker, model).__init__(model_name)
    load = getattr(import_module("FlagEmbedding"), flag_class)
    model.model = load(model_name, use_fp16=True, devices=device, **settings)
    return model


def resolve_flag_reranker(name: str, registered: RegisteredModels) -> ModelMeta | None:  # noqa: ARG001
    """Resolve the name of a reranker in `FLAG_CLASSES`."""
    if name not in FLAG_CLASSES:
        return None
    from mteb.models import ModelMeta

    flag_class, settings = FLAG_CLASSES[name]
    return ModelMeta.create_empty(
        {
            "loader": load_flag_reranker,
            "loader_kwargs": {"flag_class": flag_class, **settings},
            "name": name,
            "reference": f"https://huggingface.co/{name}",
            "model_type": [CROSS_ENCODER],
            "framework": ["PyTorch", "Transformers"],
            "extra_requirements_groups": ["flagembedding"],
        }
    )


#: Resolvers in order of precedence, after registered full names and the plugins' resolvers.
RESOLVERS: tuple[Resolver, ...] = (
    resolve_hybrid,
    resolve_endpoint,
    resolve_colbert_head,
    resolve_flag_reranker,
    resolve_bare_name,
    resolve_model_folder,
    resolve_object,
)
