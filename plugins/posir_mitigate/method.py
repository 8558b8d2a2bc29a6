"""A mitigation: a method with arguments that makes a model of mteb out of another one; and the parts of a model it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from mteb.models import CrossEncoderProtocol, EncoderProtocol, SearchProtocol
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper

from posir_tasks.errors import PosirError
from posir_tasks.text.chunks import Chunking, ChunkUnit

if TYPE_CHECKING:
    from enum import StrEnum

    from mteb.models.models_protocols import MTEBModels


@runtime_checkable
class Mitigation(Protocol):
    """A mitigation: a frozen dataclass whose fields are its arguments. `str` returns its canonical name."""

    NAME: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def cost(self) -> str:
        """The cost: vectors per document, and work against the plain model."""

    @property
    def changed_metadata(self) -> dict[str, Any]:
        """Fields of mteb's metadata in which the model differs from the plain one."""

    def apply(self, base: MTEBModels) -> MTEBModels:
        """Return the mitigated model, which shares the weights of the plain one and leaves it as it is.

        Raises:
            PosirError: The method does not work for this model.
        """


def format_method(method: Mitigation, **resolved: int | StrEnum) -> str:
    """Return a method with all of its arguments, such as `chunks(128,64,max,tokens)`; `resolved` replaces defaults."""
    values = [resolved.get(field.name, getattr(method, field.name)) for field in fields(method)]
    return f"{method.NAME}({','.join(map(str, values))})"


class DividingMethod(Mitigation):
    """Base of the dataclasses of methods that divide documents into overlapping chunks."""

    DEFAULT_SIZES: ClassVar[Mapping[ChunkUnit, int]]
    """Units of a chunk unless its size is given."""

    size: int
    """Units of a chunk; 0 for the default."""
    stride: int
    """Units from the start of a chunk to that of the next; 0 for half the size."""
    unit: ChunkUnit

    def __str__(self) -> str:
        return format_method(self, size=self.chunking.size, stride=self.chunking.step)

    @property
    def chunking(self) -> Chunking:
        """Size and overlap of the chunks."""
        return Chunking(self.size or self.DEFAULT_SIZES[self.unit], self.stride, self.unit)


def refuse(method: Mitigation, model: Any, reason: str) -> PosirError:
    """Return the error for a method that does not work for a model."""
    meta = getattr(model, "mteb_model_meta", None)
    return PosirError(f"{meta.name if meta else type(model).__name__}+{method}: {reason}")


def require_encoder(method: Mitigation, model: MTEBModels) -> EncoderProtocol:
    """Return a model that has one vector per text.

    Raises:
        PosirError: It is another kind of model.
    """
    if isinstance(model, CrossEncoderProtocol | SearchProtocol) or not isinstance(model, EncoderProtocol):
        raise refuse(method, model, "needs a model with one vector per text, unlike rerankers, BM25 and multi-vector models.")
    return model


@dataclass(frozen=True)
class TransformerParts:
    """A loaded model: tokens to token states, pooling, and what follows it."""

    encoder: EncoderProtocol
    """mteb's model."""
    loaded: Any
    """The model of sentence-transformers."""
    transformer: Any
    """Its first module, with the model of transformers in `auto_model`."""
    pooling: Any
    after_pooling: tuple[Any, ...]

    @property
    def pooling_mode(self) -> str:
        """Name of the pooling, such as `cls`, `mean` or `lasttoken`."""
        return str(self.pooling.pooling_mode)


def find_parts(method: Mitigation, model: MTEBModels) -> TransformerParts:
    """Return the parts of a model.

    Raises:
        PosirError: It is not a model of sentence-transformers that is loaded here, with a transformer, then pooling.
    """
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    encoder = require_encoder(method, model)
    loaded = getattr(model, "model", None)
    known = isinstance(model, SentenceTransformerEncoderWrapper | InstructSentenceTransformerModel)
    modules = list(loaded) if known and loaded is not None else []
    if len(modules) < 2 or not isinstance(modules[0], Transformer) or not isinstance(modules[1], Pooling):
        raise refuse(
            method, model, "works inside models of sentence-transformers that are loaded here, with a transformer and pooling."
        )
    return TransformerParts(encoder, loaded, modules[0], modules[1], tuple(modules[2:]))
