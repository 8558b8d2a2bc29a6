"""The kinds of servers with embeddings: how each is asked, and where its answer has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from posir_tasks.models.references import Endpoint

#: Fields of a request, by name.
Fields: TypeAlias = Mapping[str, Any]

#: The part of an address that is not the server's: a version, or what `/api` and `/embed` begin.
ROUTES = re.compile(r"(/api|/v\d+)?(/embed)?$")
#: The field of a request for the form of vectors.
FORMAT = "encoding_format"


@dataclass(frozen=True)
class EndpointKind:
    """A kind of server: how it is asked for embeddings, and where its answer has them."""

    name: str
    route: str
    """The path at the server; `/embeddings` is one below the address as it is given."""
    texts: str = "input"
    """Field of the texts."""
    names_model: bool = True
    fields: Fields = field(default_factory=dict)
    query_fields: Fields = field(default_factory=dict)
    passage_fields: Fields = field(default_factory=dict)
    vectors: str = "data"
    """Keys of the answer to its vectors, or rows with an `embedding`; empty if they are the
    answer.
    """
    truncation: str = ""
    """The option with which the server truncates texts; empty if it has none, or always does."""
    tokens: str = ""
    """Keys to the number of tokens that were read; empty if it does not say, or says what is
    billed.
    """
    hosts: tuple[str, ...] = ()
    """Ends of the hosts of services of this kind."""
    limit_route: str = ""
    """The path at which the server says how many tokens it reads of a text; empty if there is
    none.
    """
    limit: str = ""
    """Keys of its answer to that number, the last of which is the end of a key."""
    in_context: EndpointKind | None = None
    """The kind that embeds the chunks of a document with the rest of it as context; None if the
    server does not do so.
    """
    nests: bool = False
    """Whether a request has several documents, each a list of chunks, and its answer a list for
    each.
    """

    def address(self, endpoint: Endpoint, route: str | None = None) -> str:
        """Return the address of a route, by default that of embeddings."""
        route = self.route if route is None else route
        if route == "/embeddings":
            return endpoint.address + route
        return ROUTES.sub("", endpoint.address) + route

    def serves(self, host: str) -> bool:
        """Return whether a service is of this kind."""
        return f".{host}".endswith(self.hosts)


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
#: In the order in which they are tried where neither the reference nor the host says which it is.
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
#: Those that are of one service alone are not tried elsewhere.
TRIED = ("openai", "tei", "ollama", "cohere")
