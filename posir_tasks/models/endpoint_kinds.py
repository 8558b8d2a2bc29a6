"""Request and response formats of embedding servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from posir_tasks.base.records import Fields
from posir_tasks.models.references import Endpoint

#: Path that the kinds' routes replace: a version, `/api` or `/embed`.
ROUTES = re.compile(r"(/api|/v\d+)?(/embed)?$")
#: Request field for the vector format.
FORMAT = "encoding_format"


@dataclass(frozen=True)
class EndpointKind:
    """Request and response format of one kind of server."""

    name: str
    route: str
    """Path on the server. Only `/embeddings` is appended to the user's address."""
    texts: str = "input"
    """Request field with the texts."""
    names_model: bool = True
    fields: Fields = field(default_factory=dict)
    query_fields: Fields = field(default_factory=dict)
    passage_fields: Fields = field(default_factory=dict)
    vectors: str = "data"
    """Dotted keys of the list of vectors or rows; empty if the response is the list."""
    truncation: str = ""
    """Option that makes the server truncate texts; empty if it always or never truncates."""
    tokens: str = ""
    """Dotted keys of the token count; empty if the server reports none or only billed tokens."""
    hosts: tuple[str, ...] = ()
    """Suffixes of the host names of services of this kind."""
    limit_route: str = ""
    """Path that reports the window; empty if the server does not report it."""
    limit: str = ""
    """Dotted keys of the window at `limit_route`. Servers may prefix the last key."""
    in_context: EndpointKind | None = None
    """Format for embedding chunks in the context of their document; None if not supported."""
    nests: bool = False
    """If true, requests and responses contain a list of chunks per document."""

    def build_address(self, endpoint: Endpoint, route: str | None = None) -> str:
        """Return the address of a route, by default the route for embeddings."""
        route = self.route if route is None else route
        if route == "/embeddings":
            return endpoint.address + route
        return ROUTES.sub("", endpoint.address) + route


CONTEXTUALIZED = "/v1/contextualizedembeddings"
OPENAI = EndpointKind(
    "openai",
    "/embeddings",
    fields={FORMAT: "float"},
    tokens="usage.prompt_tokens",
    truncation="with vLLM --passage-field truncate_prompt_tokens=-1",
)
TEI = EndpointKind(
    "tei",
    "/embed",
    "inputs",
    False,
    vectors="",
    limit_route="/info",
    limit="max_input_length",
    truncation="--passage-field truncate=true",
)
OLLAMA = EndpointKind(
    "ollama",
    "/api/embed",
    vectors="embeddings",
    tokens="prompt_eval_count",
    truncation="--passage-field truncate=true",
    limit_route="/api/show",
    limit="model_info.context_length",
)
COHERE = EndpointKind(
    "cohere",
    "/v2/embed",
    texts="texts",
    hosts=(".cohere.com", ".cohere.ai"),
    fields={"embedding_types": ["float"]},
    query_fields={"input_type": "search_query"},
    passage_fields={"input_type": "search_document"},
    vectors="embeddings.float",
    truncation="--passage-field truncate=END",
)
PERPLEXITY = EndpointKind(
    "perplexity",
    "/v1/embeddings",
    hosts=(".perplexity.ai",),
    fields={FORMAT: "base64_int8"},
    tokens="usage.prompt_tokens",
)
VOYAGE = EndpointKind(
    "voyage",
    "/v1/embeddings",
    hosts=(".voyageai.com",),
    truncation="--passage-field truncation=true",
)
JINA = EndpointKind(
    "jina", "/v1/embeddings", hosts=(".jina.ai",), truncation="--passage-field truncate=true"
)
#: All kinds by name.
KINDS: Mapping[str, EndpointKind] = {
    kind.name: kind
    for kind in (
        OPENAI,
        TEI,
        OLLAMA,
        COHERE,
        replace(
            VOYAGE, in_context=replace(VOYAGE, route=CONTEXTUALIZED, texts="inputs", nests=True)
        ),
        replace(JINA, in_context=replace(JINA, fields={"late_chunking": True})),
        replace(PERPLEXITY, in_context=replace(PERPLEXITY, route=CONTEXTUALIZED, nests=True)),
    )
}
#: Kinds to try on unknown hosts, in this order. The other kinds belong to a single service.
GENERIC_KINDS = ("openai", "tei", "ollama", "cohere")
