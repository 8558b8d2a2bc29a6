"""mteb's registry of models, which also resolves posir's kinds of references.

mteb looks models up in its registry. `ModelRegistry` takes its place (see `posir_tasks.host`), so that `mteb run`, `posir run`
and `mteb.get_model` all accept the same references. A new kind of reference is one more function in `RESOLVERS`,
or in what a plugin returns from the hook `posir_model_resolvers`.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from posir_tasks.errors import PosirError, hide_tracebacks, summarize_error
from posir_tasks.host.private_names import MODEL_REGISTRY, step_aside
from posir_tasks.models.colbert_head import resolve_colbert_head
from posir_tasks.models.endpoint_resolver import resolve_endpoint
from posir_tasks.models.folder import resolve_model_folder
from posir_tasks.models.hybrid import resolve_hybrid
from posir_tasks.models.references import ModelReference, Resolver, resolve_bare_name, unknown_model
from posir_tasks.models.rerank_resolver import resolve_rerank_endpoint
from posir_tasks.models.run_settings import with_run_settings
from posir_tasks.plugin_api import loaded_plugins

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

logger = logging.getLogger(__name__)

#: In order of precedence, after the full names of registered models and the resolvers of plugins.
RESOLVERS: tuple[Resolver, ...] = (
    resolve_hybrid,
    resolve_rerank_endpoint,
    resolve_endpoint,
    resolve_colbert_head,
    resolve_bare_name,
    resolve_model_folder,
)


class ModelRegistry(dict[str, Any]):
    """mteb's registry, in which a lookup falls back to the resolvers; its keys and values are unchanged."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and self._resolve(name) is not None)

    def __missing__(self, name: str) -> ModelMeta:
        if (meta := self._resolve(name)) is None:
            raise KeyError(name)
        return meta

    def _resolve(self, name: str) -> ModelMeta | None:
        hide_tracebacks()
        for resolver in (*plugin_resolvers(), *RESOLVERS):
            if (meta := step_aside("add_model_references", resolver, name, self, otherwise=None)) is not None:
                return meta
        return None


@cache
def plugin_resolvers() -> tuple[Resolver, ...]:
    """Collect the resolvers of the installed plugins, and warn about each plugin that fails, once per process."""
    resolvers: list[Resolver] = []
    for plugin, caller in loaded_plugins().callers("posir_model_resolvers"):
        try:
            resolvers += [resolver for answer in caller() for resolver in answer]
        except Exception as error:
            logger.warning("posir plugin '%s': posir_model_resolvers: %s", plugin, summarize_error(error))
    return tuple(resolvers)


def find_model(reference: ModelReference) -> ModelMeta:
    """Return mteb's metadata of a model.

    Raises:
        PosirError: There is no such model or revision in mteb's registry, on the Hub, as a folder or as an endpoint.
    """
    import mteb

    name, revision = reference.name, reference.revision
    try:
        meta = mteb.get_model_meta(name, revision, fetch_from_hf=True)
    except PosirError:
        raise
    except Exception as error:  # the Hub's client has its own errors, and so has its HTTP library
        registered, reason = MODEL_REGISTRY.resolve(), f"the Hub does not provide it ({summarize_error(error)})"
        raise PosirError(str(error)) if name in registered else unknown_model(name, registered, reason) from error
    if meta.loader is None:
        raise unknown_model(name, MODEL_REGISTRY.resolve(), "the Hub has none that mteb can load")
    return with_run_settings(meta)


def load_model(reference: ModelReference) -> MTEBModels:
    """Load a model as `mteb run` does: on the first GPU, or on the CPU if there is none.

    Raises:
        PosirError: Its name is known to neither mteb nor the Hub, or its files cannot be loaded.
    """
    import mteb
    import torch

    try:
        return mteb.get_model(reference.name, reference.revision, device="cuda" if torch.cuda.is_available() else "cpu")
    except NotImplementedError as error:  # mteb made up metadata without a way to load it
        raise unknown_model(reference.name, MODEL_REGISTRY.resolve(), "the Hub has none that mteb can load") from error
