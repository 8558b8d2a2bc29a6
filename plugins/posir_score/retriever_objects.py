"""Adapters for the retriever objects of frameworks, which are recognized by their methods.

Each object is called as documented by its framework, and is not modified. No framework is imported,
except PyLate for an index without a retriever. Frameworks return sorted hits, so scores, which may
be distances, are ignored.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from posir_score.hits import get_value
from posir_tasks.base.errors import PosirError
from posir_tasks.base.public import load_object
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.values.read_part import ReadPart

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

Function: TypeAlias = Callable[..., Any]
#: Embeds a query as a vector of floats, or as a matrix with a row for each token.
QueryEmbedder: TypeAlias = Callable[[str], Any]
#: Parameter and attribute names for the number of hits.
K_NAMES = ("k", "top_k", "similarity_top_k", "limit", "n_results", "num_results", "size", "n")
#: Input names for the query of a pipeline.
QUERY_NAMES = ("query", "text", "question")


@dataclass(frozen=True)
class RetrieverQuery:
    """A query for a retriever object, and the number of hits to return."""

    text: str
    k: int
    embed: QueryEmbedder | None

    @property
    def vector(self) -> Any:
        """The query embedding as a list of floats, shape (dimensions,)."""
        assert self.embed is not None
        return self.embed(self.text).tolist()


class System(NamedTuple):
    """A kind of framework object, and how to search it."""

    name: str
    marker: str
    """A method or field that identifies the system. Later items of `SYSTEMS` do not have it."""
    call: str
    """The search call, for messages."""
    search: Callable[[Any, RetrieverQuery], Any]
    needs_embedder: bool = False


def copy_with_k(retriever: Any, k: int) -> Any:
    """Copy a retriever, and set its number of hits to k if it has a setting for it."""
    retriever_copy = copy(retriever)
    if isinstance(arguments := getattr(retriever, "search_kwargs", None), Mapping):
        retriever_copy.search_kwargs = {**arguments, "k": k}
        return retriever_copy
    for name in K_NAMES:
        if isinstance(getattr(retriever, name, None), int):
            with suppress(AttributeError):
                setattr(retriever_copy, name, k)
    return retriever_copy


def search_chroma(collection: Any, query: RetrieverQuery) -> Any:
    """Search a collection with the embedder or with the collection's embedding function."""
    if query.embed is None:
        return collection.query(query_texts=[query.text], n_results=query.k)
    return collection.query(query_embeddings=[query.vector], n_results=query.k)


def search_lancedb(table: Any, query: RetrieverQuery) -> Any:
    """Search a table with the embedder, or with the table's embedding function or text index."""
    value = query.text if query.embed is None else query.vector
    return table.search(value).limit(query.k).to_list()


def choose_collection(target: Any, list_names: Callable[[Any], Sequence[str]]) -> tuple[Any, str]:
    """Return the client and collection name of a pair, or a client and its only collection.

    Raises:
        PosirError: The client does not have exactly one collection.
    """
    if isinstance(target, tuple):
        client, name = target
        return client, name
    names = list_names(target)
    if len(names) == 1:
        return target, names[0]
    listing = ", ".join(map(sanitize, names)) or "none"
    raise PosirError(
        f"{type(target).__name__} has {pluralize(len(names), 'collection')}: {listing}. Name one: "
        "`retriever = (client, 'NAME')`."
    )


def search_qdrant(target: Any, query: RetrieverQuery) -> Any:
    """Search a collection of a client."""
    client, name = choose_collection(
        target, lambda client: [item.name for item in client.get_collections().collections]
    )
    return client.query_points(name, query.vector, limit=query.k)


def search_milvus(target: Any, query: RetrieverQuery) -> Any:
    """Search a collection of a client, and return all fields."""
    client, name = choose_collection(target, lambda client: client.list_collections())
    fields = {"limit": query.k, "output_fields": ["*"]}
    return client.search(name, data=[query.vector], **fields)[0]


def search_milvus_collection(collection: Any, query: RetrieverQuery) -> Any:
    """Search a collection by its only vector index."""
    field = next(index.field_name for index in collection.indexes)
    results = collection.search([query.vector], field, {}, limit=query.k, output_fields=["*"])
    return [hit.to_dict() for hit in results[0]]


def search_faiss(target: Any, query: RetrieverQuery) -> Any:
    """Search an index, or a pair of an index and its row ids. Without ids, return row numbers."""
    index, ids = target if isinstance(target, tuple) else (target, None)
    import numpy as np

    rows = index.search(np.array([query.vector], np.float32), query.k)[1][0].tolist()
    return [row if ids is None else ids[row] for row in rows if row >= 0]


def search_pylate(index: Any, query: RetrieverQuery) -> Any:
    """Search a late-interaction index, or its retriever."""
    assert query.embed is not None
    retriever = index
    if not hasattr(index, "retrieve"):
        retriever = import_module("pylate.retrieve").ColBERT(index=index)
    return retriever.retrieve(queries_embeddings=[query.embed(query.text)], k=query.k)[0]


def search_component(component: Any, query: RetrieverQuery) -> Any:
    """Search with a Haystack component, by text or by embedding."""
    if "query_embedding" not in inspect.signature(component.run).parameters:
        return component.run(query=query.text, top_k=query.k)
    if query.embed is None:
        raise make_embedder_error("a Haystack embedding retriever")
    return component.run(query_embedding=query.vector, top_k=query.k)


def search_pipeline(pipeline: Any, query: RetrieverQuery) -> Any:
    """Run a pipeline, and return the output of the last component that outputs documents.

    Raises:
        PosirError: A required input is unknown, or no component outputs documents.
    """
    inputs: dict[str, dict[str, Any]] = {}
    for component, sockets in pipeline.inputs().items():
        for name, socket in sockets.items():
            if name in K_NAMES:
                value: Any = query.k
            elif name == "query_embedding" and query.embed is not None:
                value = query.vector
            elif name in QUERY_NAMES:
                value = query.text
            elif not socket["is_mandatory"]:
                continue
            else:
                raise PosirError(
                    f"the pipeline needs {component}.{name}, which is neither the query "
                    f"({', '.join(QUERY_NAMES)}) nor the number of hits. Give a function of query "
                    "and k that runs the pipeline or, for an embedding, --embedder."
                )
            inputs.setdefault(component, {})[name] = value
    final_outputs = pipeline.outputs()
    outputs = pipeline.outputs(include_components_with_connected_outputs=True)
    components = [name for name, sockets in outputs.items() if "documents" in sockets]
    if not components:
        raise PosirError(
            "no component of the pipeline has the output `documents`. Give a pipeline that "
            "retrieves documents."
        )
    final_components = [name for name in components if "documents" in final_outputs.get(name, {})]
    name = (final_components or components)[-1]
    return pipeline.run(inputs, include_outputs_from={name})[name]


#: An object belongs to the first system whose marker it has.
SYSTEMS = (
    System(
        "a LlamaIndex index",
        "as_query_engine",
        "as_retriever(similarity_top_k=k).retrieve(query)",
        lambda index, query: index.as_retriever(similarity_top_k=query.k).retrieve(query.text),
    ),
    # Searching the engine's retriever avoids calls to its language model.
    System(
        "a LlamaIndex query engine",
        "synthesize",
        "retriever.retrieve(query)",
        lambda engine, query: copy_with_k(engine.retriever, query.k).retrieve(query.text),
    ),
    System(
        "a LlamaIndex retriever",
        "aretrieve",
        "retrieve(query)",
        lambda retriever, query: copy_with_k(retriever, query.k).retrieve(query.text),
    ),
    System(
        "a LangChain vector store",
        "similarity_search",
        "similarity_search(query, k=k)",
        lambda store, query: store.similarity_search(query.text, k=query.k),
    ),
    System(
        "a LangChain retriever",
        "ainvoke",
        "invoke(query)",
        lambda retriever, query: copy_with_k(retriever, query.k).invoke(query.text),
    ),
    System("a Haystack pipeline", "add_component", "run(...)", search_pipeline),
    System("a Haystack retriever", "__haystack_input__", "run(query, top_k=k)", search_component),
    System("a Chroma collection", "peek", "query(..., n_results=k)", search_chroma),
    System("a LanceDB table", "create_fts_index", "search(...).limit(k)", search_lancedb),
    System(
        "a Qdrant collection",
        "query_points",
        "query_points(..., limit=k)",
        search_qdrant,
        needs_embedder=True,
    ),
    System(
        "a Milvus collection",
        "get_load_state",
        "search(..., limit=k)",
        search_milvus,
        needs_embedder=True,
    ),
    System(
        "a Milvus collection",
        "indexes",
        "search(..., limit=k)",
        search_milvus_collection,
        needs_embedder=True,
    ),
    System("a FAISS index", "ntotal", "search(..., k)", search_faiss, needs_embedder=True),
    System(
        "a PyLate index",
        "get_documents_embeddings",
        "retrieve(..., k=k)",
        search_pylate,
        needs_embedder=True,
    ),
    System(
        "a PyLate retriever",
        "index/get_documents_embeddings",
        "retrieve(..., k=k)",
        search_pylate,
        needs_embedder=True,
    ),
)


@dataclass(frozen=True)
class SystemRetriever:
    """A framework object, or a pair of the object and its collection name or ids."""

    target: Any
    system: System
    name: str
    embed: QueryEmbedder | None = None

    def __call__(self, query: str, k: int) -> Any:
        """Return the best k documents or chunks, best first."""
        return self.system.search(self.target, RetrieverQuery(query, k, self.embed))


@dataclass(frozen=True)
class NamedObject:
    """An object, with its name on the command line."""

    target: Any
    name: str


def load_retriever(reference: str) -> Any:
    """Load `module:object`, and attach its name unless it is a function."""
    target = load_object("--retriever", reference)
    return target if inspect.isroutine(target) else NamedObject(target, reference.replace(":", "-"))


def open_retriever(retriever: Any, *, has_embedder: bool) -> Any:
    """Build a retriever from a function, a factory without parameters, or a framework object.

    Raises:
        PosirError: The object is not a retriever, or needs an embedder.
    """
    name = ""
    target = retriever
    if isinstance(retriever, NamedObject):
        name = retriever.name
        target = retriever.target
    if inspect.isroutine(target) and _list_parameters(target) == []:
        name = name or name_retriever(target)
        target = target()
    system = find_system(target)
    if system is None and callable(target):
        return adapt_function(target)
    first = target[0] if isinstance(target, tuple) and target else target
    kind = name_retriever(first)
    name = name or kind
    if system is None:
        names = ", ".join(dict.fromkeys(system.name for system in SYSTEMS))
        raise PosirError(
            f"{name}: {kind} is not a retriever. Give a function of a query and k, also as "
            f"module:object.method, or {names}."
        )
    if system.needs_embedder and not has_embedder:
        raise make_embedder_error(f"{name}: {system.name}")
    return SystemRetriever(target, system, name)


def name_retriever(search: Function) -> str:
    """Name a retriever after its module and its function or class, without enclosing functions."""
    if isinstance(search, SystemRetriever):
        return search.name
    target = search if hasattr(search, "__qualname__") else type(search)
    name = target.__qualname__.rpartition("<locals>.")[2].replace("<lambda>", "lambda")
    return f"{target.__module__}-{name}".removeprefix("__main__-")


def describe_call(retriever: Any) -> str:
    """Describe what a retriever is and how it is called."""
    if isinstance(retriever, SystemRetriever):
        return f"{retriever.system.name}, called as `{retriever.system.call}`"
    return "a function"


def find_system(target: Any) -> System | None:
    """Find the system of an object, or of the first item of a pair; None if unknown."""
    first = target[0] if isinstance(target, tuple) and len(target) == 2 else target
    if inspect.isroutine(first) or inspect.isclass(first):
        return None
    return next((system for system in SYSTEMS if get_value(first, system.marker) is not None), None)


def make_embedder_error(name: str) -> PosirError:
    """Build the error for a retriever that needs query embeddings."""
    return PosirError(
        f"{name} is searched by query embedding. Use --embedder to name the model that embedded "
        "its documents."
    )


def adapt_function(function: Function) -> Function:
    """Wrap a function without a second positional parameter, so that it accepts a query and k."""
    parameters = _list_parameters(function)
    if parameters is None:
        return function
    keyword_kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    positional = [item for item in parameters if item.kind not in keyword_kinds]
    accepts_any = any(item.kind is item.VAR_POSITIONAL for item in positional)
    accepts_k = len(positional) > 1 and positional[1].name != "subset"
    if accepts_any or accepts_k:
        return function
    k_name = next((item.name for item in parameters if item.name in K_NAMES), None)

    @wraps(function)
    def search(query: str, k: int, **arguments: Any) -> Any:
        if k_name:
            arguments[k_name] = k
        return function(query, **arguments)

    return search


def _list_parameters(function: Function) -> list[inspect.Parameter] | None:
    """List the parameters of a function; None if they are unknown."""
    try:
        return [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return None


def add_embedder(retriever: Any, name: str | None, embedder: ReadPart | MTEBModels) -> Any:
    """Add a query embedder to a framework object. Return other retrievers unchanged.

    Args:
        retriever: The retriever.
        name: Reference of the model, or None.
        embedder: The loaded model, or the window of a model behind an endpoint.
    """
    if name is None or not isinstance(retriever, SystemRetriever):
        return retriever
    import numpy as np
    from mteb.types import PromptType

    from posir_tasks.models.embeddings.context import build_texts
    from posir_tasks.models.embeddings.encoding import DEFAULT_CONTEXT
    from posir_tasks.models.references import ModelReference
    from posir_tasks.models.registry import load_model

    model: Any = embedder
    if isinstance(embedder, ReadPart):
        model = load_model(ModelReference(name))
    # Tokenizers are not thread-safe.
    lock = Lock()

    def embed(query: str) -> Any:
        with lock:
            rows = DEFAULT_CONTEXT.encode(model, build_texts([query]), PromptType.query)
        row: Any = rows[0]
        return np.asarray(row.cpu().float() if hasattr(row, "cpu") else row, np.float32)

    return replace(retriever, embed=embed)
