"""References to models, and what a new kind of reference has to provide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mteb.models import ModelMeta

#: First part of the name of a model in a local folder, of a model behind an endpoint, and of a run of any system.
LOCAL, ENDPOINT, RUN = "local", "endpoint", "run"
#: What a model of each kind is, in words.
ORIGINS = {LOCAL: "a model in a local folder", ENDPOINT: "a model behind an endpoint", RUN: "a run that another system made"}


@dataclass(frozen=True)
class ModelReference:
    """A model as a user names it."""

    name: str
    """The name of a registered model, with or without its organization; of a model on the Hub; or what a resolver accepts."""
    revision: str | None = None
    """None for the registered revision, or the newest one on the Hub if the model is not registered."""


class Resolver(Protocol):
    """One kind of reference to a model."""

    def __call__(self, name: str, registered: Mapping[str, ModelMeta]) -> ModelMeta | None:
        """Return the metadata of the model that a name refers to, None if the name is not of this kind.

        Results are filed under the `name` in the metadata. If it does not refer to the model itself, the metadata's loader has
        an attribute `reference` that does, in every process: worker processes load models by it.

        Looking a name up in `registered` resolves the other kinds of references, too.

        Raises:
            PosirError: The name is of this kind, but there is no such model.
        """


def portable_name(meta: ModelMeta) -> str:
    """Return what refers to a model in every process: a full name, the absolute path of a folder, or an endpoint."""
    return str(getattr(meta.loader, "reference", meta.name))


def model_origin(name: str) -> str | None:
    """Return the key in `ORIGINS` for the full name of a model that others cannot load by it, None for all others."""
    organization = name.partition("/")[0]
    return organization if organization in ORIGINS else None
