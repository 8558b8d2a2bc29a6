"""Retrievers as their frameworks have them: objects that are recognized by their methods, and asked
as their own documentation says.

None of their libraries is imported, and no object is changed. Their hits are in order, so that a
score, which may be a distance, is not needed.
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

from posir_score.hits import find
from posir_tasks.base.errors import PosirError
from posir_tasks.base.public import load_object
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.values.read_part import ReadPart

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: Embeds a query: a vector of floats, or a matrix with a row for each token.
QueryEmbedder: TypeAlias = Callable[[str], Any]
#: Names of the number of hits, in functions, in retrievers, and in the components of pipelines.
K_NAMES = ("k", "top_k", "similarity_top_k", "limit", "n_results", "num_results", "size", "n")
#: Names of the inputs of a pipeline that take the query.
QUERY_NAMES = ("query", "text", "question")


@dataclass(frozen=True)
class RetrieverQuery:
    """A query to a retriever object, with the number of hits to return."""

    text: str
    k: int
    embed: QueryEmbedder | None

    @property
    def vector(self) -> list[float]:
        """The embedding of the query."""
        assert self.embed is not None
        vector: list[float] = self.embed(self.text).tolist()
        return vector


class System(NamedTuple):
    """Objects of a framework, told apart by a method or field that those below do not have."""

    name: str
    mark: str
    call: str
    """How it is asked, in its own words."""
    search: Callable[[Any, RetrieverQuery], Any]
    needs_embedder: bool = False


def with_k(retriever: Any, k: int) -> Any:
    """Copy a retriever, with its number of hits set to k where it has one."""
    changed = copy(retriever)
    if isinstance(arguments := getattr(retriever, "search_kwargs", None), Mapping):
        changed.search_kwargs = {**arguments, "k": k}
        return changed
    for name in K_NAMES:
        if isinstance(getattr(retriever, name, None), int):
            with suppress(AttributeError):
                setattr(changed, name, k)
    return changed


def search_engine(engine: Any, question: RetrieverQuery) -> Any:
    """Search with the retriever of a query engine, so that no answer is written."""
    return with_k(engine.retriever, question.k).retrieve(question.text)


def search_chroma(collection: Any, question: RetrieverQuery) -> Any:
    """Search a collection, without an embedder by its own."""
    if question.embed is None:
        return collection.query(query_texts=[question.text], n_results=question.k)
    return collection.query(query_embeddings=[question.vector], n_results=question.k)


def search_lancedb(table: Any, question: RetrieverQuery) -> Any:
    """Search a table, without an embedder by its own or by words."""
    query = question.text if question.embed is None else question.vector
    return table.search(query).limit(question.k).to_list()


def choose_collection(client: Any, listed: Sequence[str]) -> str:
    """Choose the only collection of a client; raise PosirError if there is none, or several."""
    if len(listed) == 1:
        return listed[0]
    names = ", ".join(map(sanitize, listed)) or "none"
    raise PosirError(
        f"{type(client).__name__} has {pluralize(len(listed), 'collection')}: {names}. Name one: "
        "`retriever = (client, 'NAME')`."
    )


def search_qdrant(target: Any, question: RetrieverQuery) -> Any:
    """Search a collection of a client."""
    client, collection = target if isinstance(target, tuple) else (target, None)
    if collection is None:
        names = [collection.name for collection in client.get_collections().collections]
        collection = choose_collection(client, names)
    return client.query_points(collection, question.vector, limit=question.k)


def search_milvus(target: Any, question: RetrieverQuery) -> Any:
    """Search a collection of a client; `*` has all of its fields."""
    client, collection = target if isinstance(target, tuple) else (target, None)
    if collection is None:
        collection = choose_collection(client, client.list_collections())
    fields = {"limit": question.k, "output_fields": ["*"]}
    return client.search(collection, data=[question.vector], **fields)[0]


def search_milvus_collection(collection: Any, question: RetrieverQuery) -> Any:
    """Search a collection by its only index of vectors."""
    field = next(index.field_name for index in collection.indexes)
    found = collection.search([question.vector], field, {}, limit=question.k, output_fields=["*"])
    return [hit.to_dict() for hit in found[0]]


def search_faiss(target: Any, question: RetrieverQuery) -> Any:
    """Search an index; ids are of its rows, or the stated ones of a pair of index and ids."""
    index, ids = target if isinstance(target, tuple) else (target, None)
    import numpy as np

    rows = index.search(np.array([question.vector], np.float32), question.k)[1][0].tolist()
    return [row if ids is None else ids[row] for row in rows if row >= 0]


def search_pylate(index: Any, question: RetrieverQuery) -> Any:
    """Search an index of late interaction, or its retriever."""
    assert question.embed is not None
    retriever = index
    if not hasattr(index, "retrieve"):
        retriever = import_module("pylate.retrieve").ColBERT(index=index)
    return retriever.retrieve(queries_embeddings=[question.embed(question.text)], k=question.k)[0]


def search_component(component: Any, question: RetrieverQuery) -> Any:
    """Ask a component of Haystack, by the embedding of the query if it takes one."""
    if "query_embedding" not in inspect.signature(component.run).parameters:
        return component.run(query=question.text, top_k=question.k)
    if question.embed is None:
        raise missing_embedder("Haystack's retriever by embeddings")
    return component.run(query_embedding=question.vector, top_k=question.k)


def search_pipeline(pipeline: Any, question: RetrieverQuery) -> Any:
    """Ask a pipeline for the documents of its last component that has some; raise PosirError if an
    input is unknown, or none has documents.
    """
    inputs: dict[str, dict[str, Any]] = {}
    for component, sockets in pipeline.inputs().items():
        for name, socket in sockets.items():
            if name in K_NAMES:
                value: Any = question.k
            elif name == "query_embedding" and question.embed is not None:
                value = question.vector
            elif name in QUERY_NAMES:
                value = question.text
            elif not socket["is_mandatory"]:
                continue
            else:
                raise PosirError(
                    f"the pipeline needs {component}.{name}, which is not the query "
                    f"({', '.join(QUERY_NAMES)}) or its number of hits. Give a function of query "
                    "and k that runs it, or, for an embedding, --embedder."
                )
            inputs.setdefault(component, {})[name] = value
    last = pipeline.outputs()
    every = pipeline.outputs(include_components_with_connected_outputs=True)
    with_documents = [name for name, sockets in every.items() if "documents" in sockets]
    if not with_documents:
        raise PosirError(
            "no component of the pipeline has the output `documents`. Give one that retrieves."
        )
    chosen = [name for name in with_documents if "documents" in last.get(name, {})]
    name = (chosen or with_documents)[-1]
    return pipeline.run(inputs, include_outputs_from={name})[name]


#: In order: a query engine of LlamaIndex retrieves, too, and an index of PyLate can be called.
SYSTEMS = (
    System(
        "a LlamaIndex index",
        "as_query_engine",
        "as_retriever(similarity_top_k=k).retrieve(query)",
        lambda index, q: index.as_retriever(similarity_top_k=q.k).retrieve(q.text),
    ),
    System("a LlamaIndex query engine", "synthesize", "retriever.retrieve(query)", search_engine),
    System(
        "a LlamaIndex retriever",
        "aretrieve",
        "retrieve(query)",
        lambda retriever, q: with_k(retriever, q.k).retrieve(q.text),
    ),
    System(
        "a LangChain vector store",
        "similarity_search",
        "similarity_search(query, k=k)",
        lambda store, q: store.similarity_search(q.text, k=q.k),
    ),
    System(
        "a LangChain retriever",
        "ainvoke",
        "invoke(query)",
        lambda retriever, q: with_k(retriever, q.k).invoke(q.text),
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
    """An object of a framework, or a pair of it and its collection or ids, as a retriever."""

    target: Any
    system: System
    name: str
    embed: QueryEmbedder | None = None

    def __call__(self, query: str, k: int) -> Any:
        """Search the best k documents or chunks."""
        return self.system.search(self.target, RetrieverQuery(query, k, self.embed))


@dataclass(frozen=True)
class NamedObject:
    """An object with the name that the command has for it."""

    target: Any
    name: str


def load_retriever(reference: str) -> Any:
    """Load `module:object`: a function as it is, anything else with its name."""
    target = load_object("--retriever", reference)
    return target if inspect.isroutine(target) else NamedObject(target, reference.replace(":", "-"))


def open_retriever(retriever: Any, *, has_embedder: bool) -> Any:
    """Make a retriever of a function, of a function without parameters that makes one, or of an
    object of a framework; raise PosirError if it is none, or lacks an embedder.
    """
    name, target = "", retriever
    if isinstance(retriever, NamedObject):
        name, target = retriever.name, retriever.target
    if inspect.isroutine(target) and _list_parameters(target) == []:
        name = name or f"{target.__module__}-{target.__qualname__}"
        target = target()
    system = find_system(target)
    if system is None and callable(target):
        return adapt_function(target)
    shown = target[0] if isinstance(target, tuple) and target else target
    kind = f"{type(shown).__module__}-{type(shown).__qualname__}"
    name = name or kind
    if system is None:
        known = ", ".join(dict.fromkeys(system.name for system in SYSTEMS))
        raise PosirError(
            f"{name}: {kind} is not a retriever. Give a function of a query and k, also as "
            f"module:object.method, or {known}."
        )
    if system.needs_embedder and not has_embedder:
        raise missing_embedder(f"{name}: {system.name}")
    return SystemRetriever(target, system, name)


def describe_call(retriever: Any) -> str:
    """Describe what a retriever is, and how it is asked."""
    if isinstance(retriever, SystemRetriever):
        return f"{retriever.system.name}, asked by `{retriever.system.call}`"
    return "a function"


def find_system(target: Any) -> System | None:
    """Find the system of an object, or of the first of a pair; None for any other."""
    first = target[0] if isinstance(target, tuple) and len(target) == 2 else target
    if inspect.isroutine(first) or inspect.isclass(first):
        return None
    return next((system for system in SYSTEMS if find(first, system.mark) is not None), None)


def missing_embedder(name: str) -> PosirError:
    """Make the error for vectors that nobody computes."""
    return PosirError(
        f"{name} is asked by the vector of a query. Give --embedder, the model of its documents."
    )


def adapt_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of a query and k of one that has another name for k by keyword, or no k."""
    parameters = _list_parameters(function)
    by_place = [
        item for item in parameters or () if item.kind not in (item.KEYWORD_ONLY, item.VAR_KEYWORD)
    ]
    takes_any = any(item.kind is item.VAR_POSITIONAL for item in by_place)
    takes_k = len(by_place) > 1 and by_place[1].name != "subset"
    if parameters is None or takes_any or takes_k:
        return function
    named = next((item.name for item in parameters if item.name in K_NAMES), None)

    @wraps(function)
    def search(query: str, k: int, **subset: Any) -> Any:
        return function(query, **({named: k} if named else {}), **subset)

    return search


def _list_parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """List the parameters of a function; None if it does not state them."""
    try:
        return [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return None


def add_embedder(retriever: Any, name: str | None, embedder: ReadPart | MTEBModels) -> Any:
    """Let a model embed the queries of an object of a framework; any other retriever is returned
    as it is.

    Args:
        retriever: The retriever.
        name: The reference of the model; None without one.
        embedder: The model, or what one behind an endpoint reads.
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
    # Tokenizers are not safe in several threads.
    lock = Lock()

    def embed(query: str) -> Any:
        with lock:
            rows = DEFAULT_CONTEXT.encode(model, build_texts([query]), PromptType.query)
        row: Any = rows[0]
        return np.asarray(row.cpu().float() if hasattr(row, "cpu") else row, np.float32)

    return replace(retriever, embed=embed)
