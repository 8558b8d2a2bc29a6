"""The base of mitigations: methods with arguments that make a model of mteb out of another one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from mteb.models import CrossEncoderProtocol, EncoderProtocol, SearchProtocol
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper

from posir_tasks.base.errors import PosirError

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels


@dataclass(frozen=True)
class TransformerParts:
    """A loaded model: tokens to token states, pooling, and what follows it."""

    encoder: EncoderProtocol
    loaded: Any
    transformer: Any
    """Its first module, with the model of transformers in `auto_model`."""
    pooling: Any
    """Its `pooling_mode` is `cls`, `mean` or `lasttoken`, for example."""
    after_pooling: tuple[Any, ...]


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

    @property
    @abstractmethod
    def cost(self) -> str:
        """The cost: vectors per document, and work against the plain model."""

    @property
    def deployment(self) -> str:
        """The deployment, or why there is none, after the name of the method and a colon."""
        return self.DEPLOYMENT

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
        if isinstance(model, CrossEncoderProtocol | SearchProtocol) or not isinstance(
            model, EncoderProtocol
        ):
            raise self.unsupported(
                model,
                "needs a model with one vector per text, unlike rerankers, BM25 and multi-vector "
                "models.",
            )
        return model

    def find_parts(self, model: MTEBModels) -> TransformerParts:
        """Return the parts of a loaded model of sentence-transformers; raise PosirError if it has
        others, or is none.
        """
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

        encoder = self.require_encoder(model)
        loaded = getattr(model, "model", None)
        wrappers = (SentenceTransformerEncoderWrapper, InstructSentenceTransformerModel)
        modules = list(loaded) if isinstance(model, wrappers) and loaded is not None else []
        if (
            len(modules) < 2
            or not isinstance(modules[0], Transformer)
            or not isinstance(modules[1], Pooling)
        ):
            raise self.unsupported(
                model,
                "works inside models of sentence-transformers that are loaded here, with a "
                "transformer and pooling.",
            )
        return TransformerParts(encoder, loaded, modules[0], modules[1], tuple(modules[2:]))
