"""The base of mitigations: methods with arguments that make a model of mteb out of another one."""

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
    """A method, whose fields are its arguments. `str` returns its canonical name, such as
    `chunks(128,64,max,tokens)`.
    """

    NAME: ClassVar[str]
    DEPLOYMENT: ClassVar[str]
    UNLIMITED: ClassVar[bool] = False
    """Whether the mitigated model reads texts of any length; else the window is the plain
    model's.
    """

    def __str__(self) -> str:
        values = {**vars(self), **self.resolve_defaults()}
        return f"{self.NAME}({','.join(str(values[field.name]) for field in fields(self))})"

    def resolve_defaults(self) -> Mapping[str, int]:
        """Return the arguments whose defaults depend on others."""
        return {}

    @abstractmethod
    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return the mitigated model, which shares the weights of the plain one; raise PosirError
        if that does not work.
        """

    def unsupported(self, model: Any, reason: str) -> PosirError:
        """Return the error for a model for which the method does not work."""
        meta = getattr(model, "mteb_model_meta", None)
        return PosirError(f"{meta.name if meta else type(model).__name__}+{self}: {reason}")

    def require_encoder(self, model: MTEBModels) -> EncoderProtocol:
        """Return a model that has one vector per text; raise PosirError for another kind of
        model.
        """
        other_kinds = CrossEncoderProtocol | SearchProtocol
        if isinstance(model, other_kinds) or not isinstance(model, EncoderProtocol):
            raise self.unsupported(
                model,
                "needs a model with one vector per text, unlike rerankers, BM25 and multi-vector "
                "models.",
            )
        return model
