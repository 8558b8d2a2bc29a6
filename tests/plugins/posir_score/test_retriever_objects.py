"""Objects of frameworks as retrievers: stand-ins of the same shape, and the real ones where they
are installed.
"""

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

DOCUMENTS = [f"d{number}" for number in range(20)]


def hits(k: int) -> list[dict[str, Any]]:
    return [{"doc_id": name, "_distance": place / 10} for place, name in enumerate(DOCUMENTS[:k])]


class LangChain:
    """A retriever with a number of its own."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

    def invoke(self, query: str) -> list[Any]:
        k = getattr(self, "search_kwargs", {}).get("k", getattr(self, "k", 4))
        return [Obj(page_content=query, metadata={"source": name}) for name in DOCUMENTS[:k]]

    ainvoke = invoke


class LlamaIndex:
    """A retriever whose number is a property with a setter."""

    _number = 2

    @property
    def similarity_top_k(self) -> int:
        return self._number

    @similarity_top_k.setter
    def similarity_top_k(self, k: int) -> None:
        self._number = k

    def retrieve(self, query: str) -> list[Any]:
        nodes = [Obj(ref_doc_id=name, text=query) for name in DOCUMENTS[: self._number]]
        return [Obj(node=node, score=0.5) for node in nodes]

    aretrieve = retrieve


class Chroma:
    """A collection with an embedding function of its own."""

    def query(self, n_results: int, **query: list[Any]) -> dict[str, Any]:
        assert query in ({"query_texts": ["q"]}, {"query_embeddings": [[1.0, 2.0]]})
        ids = DOCUMENTS[:n_results]
        return {"ids": [ids], "distances": [[0.1 * place for place in range(len(ids))]]}

    def peek(self) -> None: ...


class LanceDB:
    """A table, whose search is a builder."""

    def search(self, query: Any) -> Any:
        assert query in ("q", [1.0, 2.0])
        return Obj(limit=lambda k: Obj(to_list=lambda: hits(k)))

    def create_fts_index(self) -> None: ...


class Haystack:
    """A pipeline of an embedder, a retriever and a prompt that uses its documents."""

    def __init__(self, inputs: Mapping[str, Mapping[str, bool]], is_last: bool = False) -> None:
        self._inputs = inputs
        self._is_last = is_last

    def inputs(self) -> dict[str, Any]:
        return {
            name: {key: {"is_mandatory": value} for key, value in sockets.items()}
            for name, sockets in self._inputs.items()
        }

    def outputs(self, *, include_components_with_connected_outputs: bool = False) -> dict[str, Any]:
        shown = self._is_last or include_components_with_connected_outputs
        return {"retriever": {"documents": {}}} if shown else {"prompt": {"prompt": {}}}

    def run(self, data: dict[str, Any], include_outputs_from: set[str]) -> dict[str, Any]:
        assert include_outputs_from == {"retriever"}
        k = data["retriever"]["top_k"]
        found = [Obj(content="c", meta={"source_id": name}) for name in DOCUMENTS[:k]]
        return {"prompt": {"prompt": "p"}, "retriever": {"documents": found}}

    def add_component(self) -> None: ...


INPUTS = {
    "embedder": {"text": True},
    "retriever": {"top_k": False, "filters": False},
    "prompt": {"query": False, "template": False},
}


class Qdrant:
    """A client of collections."""

    def __init__(self, *collections: str) -> None:
        self.collections = collections

    def get_collections(self) -> Any:
        return Obj(collections=[Obj(name=name) for name in self.collections])

    def query_points(self, collection: str, vector: list[float], limit: int) -> Any:
        assert (collection, vector) == ("chunks", [1.0, 2.0])
        points = [Obj(id=7, score=0.5, payload={"doc": name}) for name in DOCUMENTS[:limit]]
        return Obj(points=points)


class Milvus:
    """A client of collections, whose distances of L2 rise."""

    def list_collections(self) -> list[str]:
        return ["chunks"]

    def search(self, name: str, data: Any, limit: int, output_fields: list[str]) -> Any:
        assert (name, data, output_fields) == ("chunks", [[1.0, 2.0]], ["*"])
        found = enumerate(DOCUMENTS[:limit])
        return [[{"id": 1, "distance": place, "entity": {"doc": name}} for place, name in found]]

    def get_load_state(self) -> None: ...


class Faiss:
    """An index of rows with padding."""

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
    return {"documents": hits(top_k)}


class PyLate:
    """A retriever of late interaction."""

    index = Obj(get_documents_embeddings=len)

    def retrieve(self, queries_embeddings: Any, k: int) -> Any:
        assert queries_embeddings[0].tolist() == [1.0, 2.0]
        return [[{"id": name, "score": 1.0} for name in DOCUMENTS[:k]]]


def search(target: Any, k: int = 7, *, has_vectors: bool = True) -> tuple[list[str], str]:
    """Return the documents of an object, and how its hits were read."""
    opened = open_retriever(target, has_embedder=has_vectors)
    if has_vectors and isinstance(opened, SystemRetriever):
        opened = SystemRetriever(
            opened.target, opened.system, opened.name, lambda _: np.array([1.0, 2.0])
        )
    shown: list[RawHit] = []
    found = read_hits(opened("q", k), k, order="rank", on_first_hit=shown.append)
    return [hit.document for hit in found], f"{describe_call(opened)}; {shown[0].describe()}"


@pytest.mark.parametrize(
    ("target", "how"),
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
        (Obj(similarity_search=lambda _, k: hits(k), invoke=len), "a LangChain vector store"),
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
        (lambda _, k: DOCUMENTS[:k], "a function; ids"),
        (lambda: LangChain(k=2), "a LangChain retriever"),
        (lambda _, *, top_k: DOCUMENTS[:top_k], "a function; ids"),
        (lambda _: DOCUMENTS[:7], "a function"),
        (lambda *of: DOCUMENTS[: of[1]], "a function"),
        (lambda _, number=3: DOCUMENTS[:number], "a function"),
    ],
)
def test_an_object_is_asked_for_k_hits_in_order(target: Any, how: str):
    found, described = search(target)
    assert found == DOCUMENTS[:7]
    assert described.startswith(how)


def test_a_retriever_without_a_number_keeps_its_own():
    assert search(LangChain())[0] == DOCUMENTS[:4]


def test_an_object_with_k_of_its_own_stays_as_it_is():
    for retriever in (LangChain(k=4), LangChain(search_kwargs={"k": 4}), LlamaIndex()):
        before = repr(vars(retriever))
        search(retriever)
        assert repr(vars(retriever)) == before


def test_collections_with_embedders_of_their_own_need_none():
    for collection in (Chroma(), LanceDB()):
        assert search(collection, has_vectors=False)[0] == DOCUMENTS[:7]


def test_rows_of_an_index_are_ids_or_those_of_a_pair():
    assert search(Faiss(), 5)[0] == ["2", "0", "1"]
    assert search((Faiss(), ["a", "b", "c"]), 5)[0] == ["c", "a", "b"]


@pytest.mark.parametrize("target", [Qdrant("chunks"), Milvus(), Faiss(), PyLate()])
def test_vectors_need_an_embedder(target: Any):
    with pytest.raises(PosirError, match="Give --embedder"):
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
def test_what_cannot_be_asked_says_what_to_do(target: Any, message: str):
    with pytest.raises(PosirError, match=message):
        search(target)


@pytest.mark.parametrize("target", [object(), 7, {"q": ["d1"]}, ("a", "b"), Obj(retrieve=len)])
def test_what_is_no_retriever_lists_what_can_be_one(target: Any):
    with pytest.raises(PosirError) as raised:
        open_retriever(NamedObject(target, "app.rag-it"), has_embedder=False)
    assert "app.rag-it" in str(raised.value)
    assert all(system.name in str(raised.value) for system in SYSTEMS)


def test_a_retriever_is_named_as_the_command_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = "from types import SimpleNamespace as O\nit = O(similarity_search=lambda q, k: [])\n"
    (tmp_path / "ret5_app.py").write_text(f"{source}def find(query, k): return []\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    opened = open_retriever(load_retriever("ret5_app:it"), has_embedder=False)
    assert name_retriever(opened) == "ret5_app-it"
    assert name_retriever(load_retriever("ret5_app:find")) == "ret5_app-find"


def test_how_the_first_hit_was_read_is_kept(tmp_path: Path):
    settings = CollectionSettings(3, order="rank", folder=tmp_path)
    journal = Journal(tmp_path / "answers.jsonl")
    opened = open_retriever(NamedObject(Chroma(), "app-it"), has_embedder=False)
    answers = QueryAnswers(journal, settings, AlignmentRules(), {"": DOCUMENTS})
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


#: Real objects, the k that they have themselves if that is fewer than all, and their build.
REAL: dict[str, Callable[[Path], Any]] = {
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
@pytest.mark.parametrize("kind", REAL)
def test_real_objects_find_the_document_of_a_chunk(kind: str, tmp_path: Path):
    opened = open_retriever(REAL[kind](tmp_path), has_embedder=True)
    assert opened.system.name == f"a {kind}"
    opened = replace(opened, embed=lambda query: np.array(embed(query), np.float32))
    found = read_hits(opened(QUESTION, 6), 6, order="rank")
    assert found[0].document == "bell.txt"
    assert {hit.document for hit in found} == {*IDS}
    assert found[0].text is None or QUESTION in found[0].text
