"""What kind of search a model does."""

from __future__ import annotations

from mteb.models import (
    CrossEncoderProtocol,
    EncoderProtocol,
    SearchCrossEncoderWrapper,
    SearchEncoderWrapper,
    SearchProtocol,
)
from mteb.models.models_protocols import MTEBModels


def is_reranker(model: MTEBModels) -> bool:
    """Whether the model only reorders documents that something else found."""
    return isinstance(model, CrossEncoderProtocol) and not isinstance(model, EncoderProtocol | SearchProtocol)


def as_search(model: MTEBModels) -> SearchProtocol:
    """Give any model of mteb the search interface, as `AbsTaskRetrieval` does.

    Raises:
        TypeError: It is no model of mteb.
    """
    if isinstance(model, SearchProtocol):
        return model
    if isinstance(model, EncoderProtocol):
        return SearchEncoderWrapper(model)
    if isinstance(model, CrossEncoderProtocol):
        return SearchCrossEncoderWrapper(model)
    raise TypeError(f"{type(model).__name__} is neither a search model, an encoder nor a cross-encoder of mteb.")
