"""Tests for framework objects as retrievers: fakes, and real objects if they are installed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace as Obj
from typing import Any

import numpy as np
import pytest

from posir_score.alignment import AlignmentRules
from posir_score.collecting import CollectionSettings, Journal, PendingQuery, QueryAnswers
from posir_score.hits import RawHit, read_hits
from posir_score.retriever_objects import (
    SYSTEMS,
    NamedObject,
    SystemRetriever,
    describe_call,
    load_retriever,
    name_retriever,
    open_retriever,
)
from posir_tasks.base.errors import PosirError
from tests.plugins.posir_score.test_hits import (
    CHUNKS,
    IDS,
    QUESTION,
    VECTORS,
    build_chroma,
    build_faiss,
    build_haystack,
    build_lancedb,
    build_langchain,
    build_llama_index,
    build_qdrant,
    embed,
)

DOCUMENT_IDS = [f"d{number}" for number in range(20)]


def make_hits(k: int) -> list[dict[str, Any]]:
    return [{"doc_id": name, "_distance": row / 10} for row, name in enumerate(DOCUMENT_IDS[:k])]


class LangChain:
    """A retriever with its own setting for the number of hits."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

    def invoke(self, query: str) -> list[Any]:
        k = getattr(self, "search_kwargs", {}).get("k", getattr(self, "k", 4))
        return [Obj(page_content=query, metadata={"source": name}) for name in DOCUMENT_IDS[:k]]

    ainvoke = invoke


class LlamaIndex:
    """A retriever whose number of hits is a property with a setter."""

    _number = 2

    @property
    def similarity_top_k(self) -> int:
        return self._number

    @similarity_top_k.setter
    def similarity_top_k(self, k: int) -> None:
        self._number = k

    def retrieve(self, query: str) -> list[Any]:
        nodes = [Obj(ref_doc_id=name, text=query) for name in DOCUMENT_IDS[: self._number]]
        return [Obj(node=node, score=0.5) for node in nodes]

    aretrieve = retrieve


class Chroma:
    """A collection with an embedding function."""

    def query(self, n_results: int, **query: list[Any]) -> dict[str, Any]:
        assert query in ({"query_texts": ["q"]}, {"query_embeddings": [[1.0, 2.0]]})
        ids = DOCUMENT_IDS[:n_results]
        return {"ids": [ids], "distances": [[0.1 * row for row in range(len(ids))]]}

    def peek(self) -> None: ...


class LanceDB:
    """A table whose search returns a query builder."""

    def search(self, query: Any) -> Any:
        assert query in ("q", [1.0, 2.0])
        return Obj(limit=lambda k: Obj(to_list=lambda: make_hits(k)))

    def create_fts_index(self) -> None: ...


class Haystack:
    """A pipeline of an embedder, a retriever, and a prompt that contains the documents."""

    def __init__(self, inputs: Mapping[str, Mapping[str, bool]], is_last: bool = False) -> None:
        self._inputs = inputs
        self._is_last = is_last

    def inputs(self) -> dict[str, Any]:
        return {
            name: {key: {"is_mandatory": value} for key, value in sockets.items()}
            for name, sockets in self._inputs.items()
        }

    def outputs(self, *, include_components_with_connected_outputs: bool = False) -> dict[str, Any]:
        is_listed = self._is_last or include_components_with_connected_outputs
        return {"retriever": {"documents": {}}} if is_listed else {"prompt": {"prompt": {}}}

    def run(self, data: dict[str, Any], include_outputs_from: set[str]) -> dict[str, Any]:
        assert include_outputs_from == {"retriever"}
        k = data["retriever"]["top_k"]
        documents = [Obj(content="c", meta={"source_id": name}) for name in DOCUMENT_IDS[:k]]
        return {"prompt": {"prompt": "p"}, "retriever": {"documents": documents}}

    def add_component(self) -> None: ...


INPUTS = {
    "embedder": {"text": True},
    "retriever": {"top_k": False, "filters": False},
    "prompt": {"query": False, "template": False},
}


class Qdrant:
    """A client with collections."""

    def __init__(self, *collections: str) -> None:
        self.collections = collections

    def get_collections(self) -> Any:
        return Obj(collections=[Obj(name=name) for name in self.collections])

    def query_points(self, collection: str, vector: list[float], limit: int) -> Any:
        assert (collection, vector) == ("chunks", [1.0, 2.0])
        points = [Obj(id=7, score=0.5, payload={"doc": name}) for name in DOCUMENT_IDS[:limit]]
        return Obj(points=points)


class Milvus:
    """A client with collections, whose L2 distances rise."""

    def list_collections(self) -> list[str]:
        return ["chunks"]

    def search(self, name: str, data: Any, limit: int, output_fields: list[str]) -> Any:
        assert (name, data, output_fields) == ("chunks", [[1.0, 2.0]], ["*"])
        rows = enumerate(DOCUMENT_IDS[:limit])
        return [[{"id": 1, "distance": row, "entity": {"doc": name}} for row, name in rows]]

    def get_load_state(self) -> None: ...


class Faiss:
    """An index whose results are padded with -1."""

    ntotal = 3

    def search(self, vectors: Any, k: int) -> Any:
        assert vectors.dtype == np.float32
        return np.zeros((1, k)), np.array([[2, 0, 1, *[-1] * (k - 3)]])


def as_retriever(similarity_top_k: int) -> LlamaIndex:
    retriever = LlamaIndex()
    retriever.similarity_top_k = similarity_top_k
    return retriever


def run_component(query: str, top_k: int) -> dict[str, Any]:
    assert query == "q"
    return {"documents": make_hits(top_k)}


class PyLate:
    """A late-interaction retriever."""

    index = Obj(get_documents_embeddings=len)

    def retrieve(self, queries_embeddings: Any, k: int) -> Any:
        assert queries_embeddings[0].tolist() == [1.0, 2.0]
        return [[{"id": name, "score": 1.0} for name in DOCUMENT_IDS[:k]]]


def search(target: Any, k: int = 7, *, has_vectors: bool = True) -> tuple[list[str], str]:
    """Search an object. Return the document ids, and a description of the object and its hits."""
    opened = open_retriever(target, has_embedder=has_vectors)
    if has_vectors and isinstance(opened, SystemRetriever):
        opened = SystemRetriever(
            opened.target, opened.system, opened.name, lambda _: np.array([1.0, 2.0])
        )
    first_hits: list[RawHit] = []
    hits = read_hits(opened("q", k), k, order="rank", on_first_hit=first_hits.append)
    return [hit.document for hit in hits], f"{describe_call(opened)}; {first_hits[0].describe()}"


@pytest.mark.parametrize(
    ("target", "description_start"),
    [
        (
            LangChain(search_kwargs={}),
            "a LangChain retriever, called as `invoke(query)`; LangChain, id in `metada",
        ),
        (LangChain(k=4), "a LangChain retriever"),
        (LangChain(search_kwargs={"k": 4, "filter": 1}), "a LangChain retriever"),
        (
            LlamaIndex(),
            "a LlamaIndex retriever, called as `retrieve(query)`; LlamaIndex, id in",
        ),
        (Obj(as_query_engine=1, as_retriever=as_retriever), "a LlamaIn"),
        (Obj(synthesize=len, retrieve=len, aretrieve=len, retriever=LlamaIndex()), "a LlamaIndex"),
        (Obj(similarity_search=lambda _, k: make_hits(k), invoke=len), "a LangChain vector store"),
        (Chroma(), "a Chroma collection, called as `query(..., n_results=k)`; rows, such as L"),
        (LanceDB(), "a LanceDB table"),
        (
            Haystack(INPUTS),
            "a Haystack pipeline, called as `run(...)`; Haystack, id in",
        ),
        (Haystack(INPUTS, is_last=True), "a Haystack pipeline"),
        (Obj(__haystack_input__=1, run=run_component), "a Hayst"),
        (Qdrant("chunks"), "a Qdrant collection, called as `query_points(..., limit=k)`; Qdrant, "),
        ((Qdrant("chunks", "other"), "chunks"), "a Qdrant collection"),
        (Milvus(), "a Milvus collection"),
        (PyLate(), "a PyLate retriever"),
        (lambda _, k: DOCUMENT_IDS[:k], "a function; ids"),
        (lambda: LangChain(k=2), "a LangChain retriever"),
        (lambda _, *, top_k: DOCUMENT_IDS[:top_k], "a function; ids"),
        (lambda _: DOCUMENT_IDS[:7], "a function"),
        (lambda *arguments: DOCUMENT_IDS[: arguments[1]], "a function"),
        (lambda _, number=3: DOCUMENT_IDS[:number], "a function"),
    ],
)
def test_all_kinds_of_objects_return_k_hits_in_order(target: Any, description_start: str):
    documents, description = search(target)
    assert documents == DOCUMENT_IDS[:7]
    assert description.startswith(description_start)


def test_retrievers_without_a_setting_for_k_keep_their_default():
    assert search(LangChain())[0] == DOCUMENT_IDS[:4]


def test_searching_does_not_modify_the_retriever():
    for retriever in (LangChain(k=4), LangChain(search_kwargs={"k": 4}), LlamaIndex()):
        before = repr(vars(retriever))
        search(retriever)
        assert repr(vars(retriever)) == before


def test_collections_with_an_embedding_function_need_no_embedder():
    for collection in (Chroma(), LanceDB()):
        assert search(collection, has_vectors=False)[0] == DOCUMENT_IDS[:7]


def test_index_rows_are_mapped_to_given_ids():
    assert search(Faiss(), 5)[0] == ["2", "0", "1"]
    assert search((Faiss(), ["a", "b", "c"]), 5)[0] == ["c", "a", "b"]


@pytest.mark.parametrize("target", [Qdrant("chunks"), Milvus(), Faiss(), PyLate()])
def test_vector_search_needs_an_embedder(target: Any):
    with pytest.raises(PosirError, match="Use --embedder"):
        open_retriever(target, has_embedder=False)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (Qdrant("a", "b"), "2 collections: a, b. Name one"),
        (Qdrant(), "0 collections: none"),
        (Haystack({"retriever": {"query": True, "filters": True}}), "needs retriever.filters"),
        (Obj(add_component=1, inputs=dict, outputs=lambda **_: {"llm": {}}), "`documents`"),
    ],
)
def test_unusable_retrievers_raise(target: Any, message: str):
    with pytest.raises(PosirError, match=message):
        search(target)


@pytest.mark.parametrize("target", [object(), 7, {"q": ["d1"]}, ("a", "b"), Obj(retrieve=len)])
def test_other_objects_raise_with_a_list_of_retrievers(target: Any):
    with pytest.raises(PosirError) as raised:
        open_retriever(NamedObject(target, "app.rag-it"), has_embedder=False)
    assert "app.rag-it" in str(raised.value)
    assert all(system.name in str(raised.value) for system in SYSTEMS)


def test_a_retriever_is_named_after_its_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = "from types import SimpleNamespace as O\nit = O(similarity_search=lambda q, k: [])\n"
    (tmp_path / "ret5_app.py").write_text(f"{source}def find(query, k): return []\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    opened = open_retriever(load_retriever("ret5_app:it"), has_embedder=False)
    assert name_retriever(opened) == "ret5_app-it"
    assert name_retriever(load_retriever("ret5_app:find")) == "ret5_app-find"


def test_the_format_of_the_first_hit_is_described(tmp_path: Path):
    settings = CollectionSettings(3, order="rank", folder=tmp_path)
    journal = Journal(tmp_path / "answers.jsonl")
    opened = open_retriever(NamedObject(Chroma(), "app-it"), has_embedder=False)
    answers = QueryAnswers(journal, settings, AlignmentRules(), {"": DOCUMENT_IDS})
    answers.ask(opened, "app-it", [PendingQuery("", "q1", "q")])
    journal.close()
    assert answers.retriever_description == (
        "app-it: a Chroma collection, called as `query(..., n_results=k)`, k = 3; hits: rows, such "
        "as LanceDB's, id in `id`."
    )


def build_langchain_retriever(folder: Path) -> Any:
    return build_langchain(folder)["store"].as_retriever()


def build_haystack_pipeline(folder: Path) -> Any:
    retriever = build_haystack(folder)["retriever"]
    from haystack import Pipeline, component
    from haystack.components.builders import PromptBuilder

    @component
    class Embedder:
        @component.output_types(embedding=list[float])
        def run(self, text: str) -> dict[str, list[float]]:
            return {"embedding": embed(text)}

    pipeline = Pipeline()
    pipeline.add_component("embedder", Embedder())
    pipeline.add_component("retriever", retriever)
    pipeline.add_component("prompt", PromptBuilder("{{documents}} {{query}}"))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    pipeline.connect("retriever.documents", "prompt.documents")
    return pipeline


def build_llama_index_engine(folder: Path) -> Any:
    retriever = build_llama_index(folder)["retriever"]
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    return RetrieverQueryEngine.from_args(retriever, llm=MockLLM())


def build_milvus(folder: Path) -> Any:
    client = pytest.importorskip("pymilvus").MilvusClient(str(folder / "milvus.db"))
    client.create_collection("chunks", dimension=64, metric_type="L2", auto_id=False)
    rows = [chunk | {"id": row, "vector": VECTORS[row]} for row, chunk in enumerate(CHUNKS)]
    client.insert("chunks", rows)
    return client


#: Functions that build real objects, by system name.
REAL_SYSTEMS: dict[str, Callable[[Path], Any]] = {
    "LangChain vector store": lambda folder: build_langchain(folder)["store"],
    "LangChain retriever": build_langchain_retriever,
    "LlamaIndex retriever": lambda folder: build_llama_index(folder)["retriever"],
    "LlamaIndex index": lambda folder: build_llama_index(folder)["retriever"]._index,
    "LlamaIndex query engine": build_llama_index_engine,
    "Haystack retriever": lambda folder: build_haystack(folder)["retriever"],
    "Haystack pipeline": build_haystack_pipeline,
    "Chroma collection": lambda folder: build_chroma(folder)["collection"],
    "LanceDB table": lambda folder: build_lancedb(folder)["table"],
    "Qdrant collection": lambda folder: build_qdrant(folder)["client"],
    "Milvus collection": build_milvus,
    "FAISS index": lambda folder: (build_faiss(folder)["index"], IDS),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REAL_SYSTEMS)
def test_real_systems_find_the_document_of_a_chunk(kind: str, tmp_path: Path):
    opened = open_retriever(REAL_SYSTEMS[kind](tmp_path), has_embedder=True)
    assert opened.system.name == f"a {kind}"
    opened = replace(opened, embed=lambda query: np.array(embed(query), np.float32))
    hits = read_hits(opened(QUESTION, 6), 6, order="rank")
    assert hits[0].document == "bell.txt"
    assert {hit.document for hit in hits} == {*IDS}
    assert hits[0].text is None or QUESTION in hits[0].text
