"""References to rerankers behind an endpoint, `rerank@ADDRESS`, or `MODEL:rerank@ADDRESS` if the server has several models.

For example `bge-reranker-v2-m3:rerank@http://localhost:8000/v1`. A fragment, as in `...:8000/v1#2025-06`, states the revision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from posir_tasks.models.endpoint import RERANK, Endpoint, parse_endpoint

if TYPE_CHECKING:
    from mteb.models import ModelMeta

    from posir_tasks.models.rerank_endpoint import RerankEndpoint

REFERENCE = re.compile(rf"(?:(?P<model>[^()]+):)?{RERANK}@(?P<address>https?://.*)", re.DOTALL)


class RerankLoader:
    """Connects to a reranker, in place of a class of mteb that loads models by name."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        # What mteb records as the loader.
        self.__name__ = "RerankEndpoint"
        self.reference = str(endpoint)

    def __call__(self, name: str, revision: str | None = None, device: str | None = None, **_: Any) -> RerankEndpoint:
        """Connect to the server; raise PosirError if it does not score two short texts."""
        from posir_tasks.models.rerank_endpoint import RerankEndpoint

        return RerankEndpoint(name, revision, device, endpoint=self.endpoint)


def resolve_rerank_endpoint(name: str, registered: Mapping[str, ModelMeta]) -> ModelMeta | None:  # noqa: ARG001
    """Resolve `rerank@ADDRESS` or `MODEL:rerank@ADDRESS`, without contacting the server.

    Raises:
        PosirError: The address is not allowed.
    """
    match = REFERENCE.fullmatch(name)
    if match is None:
        return None
    from mteb.models import ModelMeta

    from posir_tasks.models.run_settings import CROSS_ENCODER

    model = f"{match['model']}:{RERANK}" if match["model"] else RERANK
    endpoint = parse_endpoint(model, match["address"].rstrip("/").removesuffix("/rerank"))
    values: dict[str, Any] = {
        "loader": RerankLoader(endpoint),
        "name": endpoint.name,
        "revision": endpoint.revision,
        "model_type": [CROSS_ENCODER],
        "framework": ["API"],
        "reference": endpoint.address,
    }
    return ModelMeta.create_empty(values)
