"""Base class of mitigations. A mitigation wraps an mteb model."""

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
    """A mitigation method. Its arguments are dataclass fields.

    `str` returns the canonical name, such as `chunks(128,64,max,tokens)`.
    """

    NAME: ClassVar[str]
    """Name of the method in references."""
    DEPLOYMENT: ClassVar[str]
    """Deployment instructions, printed after the method's name."""
    UNLIMITED: ClassVar[bool] = False
    """Whether the mitigated model reads texts of any length. If false, it has the base model's
    window.
    """

    def __str__(self) -> str:
        values = {**vars(self), **self.resolve_defaults()}
        return f"{self.NAME}({','.join(str(values[field.name]) for field in fields(self))})"

    def resolve_defaults(self) -> Mapping[str, int]:
        """Return the values of arguments whose default depends on other arguments."""
        return {}

    @abstractmethod
    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return the mitigated model, which shares the base model's weights.

        Raises:
            PosirError: The model does not support the method.
        """

    def make_error(self, model: Any, reason: str) -> PosirError:
        """Make the error for a model that does not support the method."""
        return PosirError(f"{model.mteb_model_meta.name}+{self}: {reason}")

    def require_encoder(self, model: MTEBModels) -> EncoderProtocol:
        """Return the model; raise PosirError if it does not embed each text as one vector."""
        if isinstance(model, CrossEncoderProtocol | SearchProtocol) or not isinstance(
            model, EncoderProtocol
        ):
            raise self.make_error(
                model,
                "needs a model with one vector per text. Rerankers, BM25 and multi-vector models "
                "are not supported.",
            )
        return model
