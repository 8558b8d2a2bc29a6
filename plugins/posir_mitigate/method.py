"""The base class of mitigations, which wrap an mteb model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from mteb.models import CrossEncoderProtocol, EncoderProtocol, SearchProtocol

from posir_tasks.base.errors import PosirError

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels


@dataclass(frozen=True)
class Mitigation(ABC):
    """A method with its arguments as fields.

    `str` returns the canonical name, such as `chunks(128,64,max,tokens)`.
    """

    NAME: ClassVar[str]
    """Name of the method in references."""
    DEPLOYMENT: ClassVar[str]
    """Deployment instructions, shown after the method's name."""
    UNLIMITED: ClassVar[bool] = False
    """If true, the mitigated model reads texts of any length; otherwise it has the window of the
    base model.
    """

    def __str__(self) -> str:
        values = {**vars(self), **self.resolve_defaults()}
        return f"{self.NAME}({','.join(str(values[field.name]) for field in fields(self))})"

    def resolve_defaults(self) -> Mapping[str, int]:
        """Return the values of arguments whose default depends on other arguments."""
        return {}

    @abstractmethod
    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return the mitigated model, which shares the weights of the base model.

        Raises:
            PosirError: The method does not work for the model.
        """

    def unsupported(self, model: Any, reason: str) -> PosirError:
        """Build the error for a model that the method does not support."""
        return PosirError(f"{model.mteb_model_meta.name}+{self}: {reason}")

    def require_encoder(self, model: MTEBModels) -> EncoderProtocol:
        """Return the model if it has one vector per text, else raise PosirError."""
        other_kinds = CrossEncoderProtocol | SearchProtocol
        if isinstance(model, other_kinds) or not isinstance(model, EncoderProtocol):
            raise self.unsupported(
                model,
                "needs a model with one vector per text, unlike rerankers, BM25 and multi-vector "
                "models.",
            )
        return model
