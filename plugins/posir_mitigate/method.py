"""What a mitigation is: a method with arguments that makes a model of mteb out of another one."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from mteb.models import CrossEncoderProtocol, EncoderProtocol, SearchProtocol

from posir_tasks.errors import PosirError

if TYPE_CHECKING:
    from enum import StrEnum

    from mteb.models.models_protocols import MTEBModels


@runtime_checkable
class Method(Protocol):
    """A mitigation: a frozen dataclass whose fields are its arguments. `str` returns its canonical name."""

    NAME: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def cost(self) -> str:
        """What it costs: vectors per document, and work against the plain model."""

    @property
    def changed_metadata(self) -> dict[str, Any]:
        """Fields of mteb's metadata in which the model differs from the plain one."""

    def apply(self, base: MTEBModels) -> MTEBModels:
        """Return the mitigated model, which shares the weights of the plain one and leaves it as it is.

        Raises:
            PosirError: The method does not work for this model.
        """


def format_method(method: Method, **resolved: int | StrEnum) -> str:
    """Return a method with all of its arguments, such as `chunks(128,64,max,tokens)`; `resolved` replaces defaults."""
    values = [resolved.get(field.name, getattr(method, field.name)) for field in fields(method)]
    return f"{method.NAME}({','.join(map(str, values))})"


def refuse(method: Method, model: Any, reason: str) -> PosirError:
    """Return the error for a method that does not work for a model."""
    meta = getattr(model, "mteb_model_meta", None)
    return PosirError(f"{meta.name if meta else type(model).__name__}+{method}: {reason}")


def require_encoder(method: Method, model: MTEBModels) -> EncoderProtocol:
    """Return a model that has one vector per text.

    Raises:
        PosirError: It is another kind of model.
    """
    if isinstance(model, CrossEncoderProtocol | SearchProtocol) or not isinstance(model, EncoderProtocol):
        raise refuse(method, model, "needs a model with one vector per text, unlike rerankers, BM25 and multi-vector models.")
    return model
