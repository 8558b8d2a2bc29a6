"""Models by reference: from what a user writes after `-m` to mteb's metadata of a model, and to the model itself.

mteb looks models up in its registry. `ModelRegistry` takes its place (see `posir_tasks.host`), so that `mteb run`, `posir run`,
`posir plan` and `mteb.get_model` all accept the same references. A new kind of reference is one more function in `RESOLVERS`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.host.private_names import MODEL_REGISTRY

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels


@dataclass(frozen=True)
class ModelReference:
    """A model as a user names it."""

    name: str
    """The name of a registered model, with or without its organisation; of a model on the Hub; or what a resolver accepts."""
    revision: str | None = None
    """None for the registered revision, or the newest one on the Hub if the model is not registered."""


class Resolver(Protocol):
    """One kind of reference to a model."""

    def __call__(self, name: str, registered: Mapping[str, ModelMeta]) -> ModelMeta | None:
        """Return the metadata of the model that a name refers to, None if the name is not of this kind.

        The `name` in the metadata must refer to the same model: results are filed and worker processes load models by it.

        Looking a name up in `registered` resolves the other kinds of references, too.
        """


def resolve_bare_name(name: str, registered: Mapping[str, ModelMeta]) -> ModelMeta | None:
    """Resolve a name without its organisation, if only one registered model has it."""
    full_names = [full for full in registered if bare_name(full) == name]
    return registered[full_names[0]] if len(full_names) == 1 else None


RESOLVERS: tuple[Resolver, ...] = (resolve_bare_name,)


class ModelRegistry(dict[str, Any]):
    """mteb's registry, in which a lookup falls back to the resolvers; its keys and values are unchanged."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and self._resolve(name) is not None)

    def __missing__(self, name: str) -> ModelMeta:
        if (meta := self._resolve(name)) is None:
            raise KeyError(name)
        return meta

    def _resolve(self, name: str) -> ModelMeta | None:
        return next((meta for resolver in RESOLVERS if (meta := resolver(name, self)) is not None), None)


def find_model(reference: ModelReference) -> ModelMeta:
    """Return mteb's metadata of a model.

    Raises:
        PosirError: There is no such model or revision, neither in mteb's registry nor on the Hub.
    """
    import mteb

    name, revision = reference.name, reference.revision
    try:
        meta = mteb.get_model_meta(name, revision, fetch_from_hf=True)
    except Exception as error:  # the Hub's client has its own errors, and so has its HTTP library
        registered, reason = MODEL_REGISTRY.resolve(), f"the Hub does not provide it ({summarize_error(error)})"
        raise PosirError(str(error)) if name in registered else unknown_model(name, registered, reason) from error
    if meta.loader is None:
        raise unknown_model(name, MODEL_REGISTRY.resolve(), "the Hub has none that mteb can load")
    return meta


def load_model(reference: ModelReference) -> MTEBModels:
    """Load a model as `mteb run` does: on the first GPU, or on the CPU if there is none."""
    import mteb
    import torch

    return mteb.get_model(reference.name, reference.revision, device="cuda" if torch.cuda.is_available() else "cpu")


def unknown_model(name: str, registered: Collection[str], reason: str) -> PosirError:
    """Return the error for a name that no model has, with the most similar registered names."""
    full_names = defaultdict(list)
    for full in registered:
        for known in {full, bare_name(full)}:
            full_names[known].append(full)
    similar = dict.fromkeys(full for known in get_close_matches(name, full_names) for full in full_names[known])
    suggestion = f" Did you mean {' or '.join(similar)}?" if similar else ""
    return PosirError(f"no model '{name}' is registered with mteb, and {reason}.{suggestion}")


def bare_name(full_name: str) -> str:
    """Return a model's name without its organisation."""
    return full_name.rpartition("/")[2]
