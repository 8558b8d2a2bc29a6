"""Models behind an endpoint of the OpenAI-compatible embeddings API, referred to as `MODEL@ADDRESS`.

For example `bge-m3@http://localhost:8000/v1`: the model `bge-m3` at this address. Nothing in it needs quotes in a shell. A
fragment, as in `...:8000/v1#2025-06`, states the revision of the model: the API does not tell which weights are served.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from posir_tasks.errors import PosirError
from posir_tasks.models.references import ENDPOINT, legible_name

#: Kind of a reranker, in references.
RERANK = "rerank"
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
EXAMPLE = "Write MODEL@ADDRESS, such as bge-m3@http://localhost:8000/v1"


@dataclass(frozen=True)
class Endpoint:
    """A model behind an address."""

    model: str
    """Name of the model on the server."""
    address: str
    """Base address of the API, which usually ends in `/v1`."""
    revision: str | None
    """Revision that the user states."""

    def __str__(self) -> str:
        return f"{self.model}@{self.address}{f'#{self.revision}' if self.revision else ''}"

    @property
    def name(self) -> str:
        """Name under which results are filed, such as `endpoint/bge-m3 (localhost-8000)`; without the usual path `/v1`."""
        parts = urlsplit(self.address)
        return f"{ENDPOINT}/{legible_name(self.model)} ({legible_name(parts.netloc + parts.path.removesuffix('/v1'))})"


def parse_endpoint(model: str, address: str) -> Endpoint:
    """Return a checked endpoint. No message repeats an address that may contain a password or key.

    Raises:
        PosirError: The model is missing, or the address is not allowed.
    """
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise PosirError(f"the address of the model '{model}' is not valid ({error}). {EXAMPLE}.") from None
    if parts.username or parts.password or parts.query:
        raise PosirError(
            f"the address of the model '{model}' has a user, a password or a query. Addresses are shown in results, so they "
            f"must not contain secrets: set the key as OPENAI_API_KEY. {EXAMPLE}."
        )
    if not model or not host or any(map(str.isspace, address)):
        raise PosirError(f"'{model}@{address}': {'no model' if host else 'no host'} is given. {EXAMPLE}.")
    if parts.fragment and not REVISION.fullmatch(parts.fragment):
        raise PosirError(f"'#{parts.fragment}': a revision has letters, digits and ._- only, such as #2025-06.")
    path = parts.path.rstrip("/").removesuffix("/embeddings")
    return Endpoint(model, f"{parts.scheme}://{parts.netloc.lower()}{path}", parts.fragment or None)
