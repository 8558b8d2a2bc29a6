"""Tests for parsing hits: fake hits of all systems, and real ones if the systems are installed."""

import re
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Obj
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pytest

from posir_score.hits import AnswerError, Hit, read_hits
from posir_score.orders import sort_hits

ROOT = Path(__file__).parents[3]
TEXT = "The mill burned down."
NUMBER = UUID(int=7)


def make_langchain_hit(**fields: Any) -> Any:
    metadata = {"source": "d1", "start_index": 4, "page": 3, "chunk": 9}
    return Obj(**{"page_content": TEXT, "id": "5e1f", "metadata": metadata} | fields)


def make_llama_index_hit(reference: str | None = "d1") -> Any:
    node = Obj(
        ref_doc_id=reference,
        text=TEXT,
        start_char_idx=4,
        end_char_idx=25,
        metadata={"source": "d2"},
    )
    return Obj(node=node, score=0.5)


def make_qdrant_hit(**payload: Any) -> Any:
    return Obj(id="5e1f", score=0.5, version=0, payload=payload)


def make_sqlite_rows() -> Any:
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    return database.execute("SELECT 'd1' AS doc_id, 0.5 AS score, ? AS text", (TEXT,)).fetchall()


SPAN = Hit("d1", 0.5, 1, TEXT, 4, 25)
HALF = Hit("d1", 0.5, 1, TEXT, 4)
SCORED = Hit("d1", 0.5, 1, TEXT)
DISTANCE = Hit("d1", None, 1, TEXT, distance=0.5)
BARE = Hit("d1", 0.5, 1)
ES_HIT = {"_id": "d1", "_score": 0.5, "_source": {"text": TEXT, "source": "web"}}
CHUNK = {
    "_id": "d1",
    "_nested": {"field": "chunks", "offset": 2},
    "_score": 0.5,
    "_source": {"text": TEXT},
}
VESPA_HIT = {"id": "id:ns:type::d1", "relevance": 0.5, "fields": {"text": TEXT}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([make_langchain_hit()], Hit("d1", None, 1, TEXT, 4)),
        (
            [make_langchain_hit(metadata={"source": "d1", "start_index": -1})],
            Hit("d1", None, 1, TEXT),
        ),
        ([(make_langchain_hit(), 0.5)], Hit("d1", 0.5, 1, TEXT, 4)),
        ([make_llama_index_hit()], SPAN),
        ([make_llama_index_hit().node], SPAN._replace(score=None)),
        (Obj(source_nodes=[make_llama_index_hit()]), SPAN),
        (
            {
                "documents": [
                    Obj(content=TEXT, meta={"source_id": "d1", "split_idx_start": 4}, score=0.5)
                ]
            },
            HALF,
        ),
        ([make_qdrant_hit(doc_id="d1", text=TEXT, start=4, end=25)], SPAN),
        (
            Obj(points=[make_qdrant_hit(page_content=TEXT, metadata={"source": "d1"})]),
            Hit("d1", 0.5, 1, TEXT),
        ),
        (Obj(points=[Obj(id="d1", score=0.5, payload=None)]), BARE),
        (Obj(groups=[Obj(id="d1", hits=[make_qdrant_hit(text=TEXT)])]), SCORED),
        (
            {
                "ids": [["5e"]],
                "distances": [[0.5]],
                "documents": [[TEXT]],
                "metadatas": [[{"doc": "d1"}]],
            },
            DISTANCE,
        ),
        ([{"doc": "d1", "text": TEXT, "vector": [0.1], "_distance": 0.5}], DISTANCE),
        (pl.DataFrame({"docno": ["d1"], "docid": [0], "text": [TEXT], "score": [0.5]}), SCORED),
        (make_sqlite_rows(), SCORED),
        ({"took": 1, "hits": {"hits": [ES_HIT]}}, SCORED),
        (
            {"hits": {"hits": [ES_HIT | {"inner_hits": {"chunks": {"hits": {"hits": [CHUNK]}}}}]}},
            SCORED,
        ),
        ({"root": {"children": [VESPA_HIT]}}, SCORED),
        (Obj(hits=[VESPA_HIT]), SCORED),
        (
            Obj(
                objects=[
                    Obj(
                        uuid=NUMBER,
                        metadata=Obj(distance=0.5),
                        properties={"doc": "d1", "text": TEXT},
                    )
                ]
            ),
            DISTANCE,
        ),
        ([[{"id": "d1", "distance": 0.5, "entity": {"text": TEXT}}]], SCORED),
        (Obj(matches=[Obj(id="d1", score=0.5, metadata={"text": TEXT})]), SCORED),
        ({"value": [{"@search.score": 0.5, "parent_id": "d1", "chunk": TEXT}]}, SCORED),
        (
            {
                "retrievalResults": [
                    {
                        "content": {"text": TEXT},
                        "score": 0.5,
                        "location": {"s3Location": {"uri": "d1"}},
                    }
                ]
            },
            SCORED,
        ),
        (Obj(contexts=Obj(contexts=[Obj(source_uri="d1", text=TEXT, score=0.5)])), SCORED),
        ({"contexts": {"contexts": [{"sourceUri": "d1", "text": TEXT, "score": 0.5}]}}, SCORED),
        ({"results": [{"corpus_id": "d1", "score": 0.5}]}, BARE),
        ({"hits": [{"hit": ES_HIT, "rating": 1}]}, SCORED),
        ([("d1", 0.5, TEXT)], SCORED),
        ([("d1", 0.5, TEXT, 4, 25)], SPAN),
        ([("d1", 0.5, np.int64(4), 25)], SPAN._replace(text=None)),
        ({"d1": 0.5}, Hit("d1", 0.5)),
        (np.array([11, 12]), Hit("11", None, 1)),
        ([np.int64(11)], Hit("11", None, 1)),
        ([(np.int64(11), np.float32(0.5))], Hit("11", 0.5, 1)),
        ([NUMBER], Hit(str(NUMBER), None, 1)),
        ({"retrieved_ids": ["d1"], "retrieve_scores": [0.5], "retrieved_contents": [TEXT]}, SCORED),
    ],
)
def test_responses_of_all_systems_are_parsed(answer: Any, expected: Hit):
    assert read_hits(answer, 5)[0] == expected


@pytest.mark.parametrize(
    "answer",
    [{"ids": [[]], "distances": [[]]}, Obj(points=[]), [[]], [], {}, {"hits": {"hits": []}}],
)
def test_answers_without_hits_are_empty(answer: Any):
    assert read_hits(answer, 5) == []


def test_the_id_is_read_from_the_given_field():
    hits = [
        make_langchain_hit(metadata={"file": "d9", "source": "d1"}),
        make_qdrant_hit(file="d9"),
        {"file": "d9"},
        ES_HIT | {"_source": {"file": "d9"}},
    ]
    assert {read_hits([hit], 5, "file")[0].document for hit in hits} == {"d9"}
    with pytest.raises(
        AnswerError,
        match=r"hit 1 has no field name \(--document-field\); its fields are source, start_index",
    ):
        read_hits([make_langchain_hit()], 5, "name")


def test_chunks_of_a_group_are_hits_of_its_document():
    groups = Obj(
        groups=[
            Obj(id="d1", hits=[make_qdrant_hit(text="a"), make_qdrant_hit(text="b")]),
            Obj(id="d2", hits=[make_qdrant_hit(text="c")]),
        ]
    )
    hits = [(hit.document, hit.text, hit.rank) for hit in read_hits(groups, 5, "doc")]
    assert hits == [("d1", "a", 1), ("d1", "b", None), ("d2", "c", 2)]


def test_all_chunks_of_a_group_have_its_rank():
    groups = [
        Obj(id=name, hits=[make_qdrant_hit(text=f"{name}{part}") for part in range(3)])
        for name in "abcd"
    ]
    ranked = sort_hits(read_hits(Obj(groups=groups), 9, "doc"), "rank")
    assert [hit.text for hit in ranked] == [f"{name}{part}" for name in "abcd" for part in range(3)]


def test_rank_fields_take_priority_over_the_order_of_hits():
    hits = [{"doc": "x", "rank": 2}, {"doc": "y", "rank": 1}]
    assert [hit.document for hit in sort_hits(read_hits(hits, 5), None)] == ["y", "x"]
    with pytest.raises(AnswerError, match="hit 3, z, has the rank None"):
        read_hits([*hits, {"doc": "z", "rank": None}], 5)
    assert [hit.rank for hit in read_hits([{"doc": "x", "rank": 0.7}, {"doc": "y"}], 5)] == [1, 2]


@pytest.mark.parametrize("frame", [pl.DataFrame, lambda rows: pl.DataFrame(rows).to_pandas()])
def test_frames_with_a_null_score_raise(frame: Any):
    answer = frame({"docno": ["x", "y"], "score": [1.0, None]})
    with pytest.raises(AnswerError, match=r"hit 2, y, has (no score|the score nan)"):
        read_hits(answer, 5)
    assert [hit.document for hit in sort_hits(read_hits(answer, 5, order="rank"), "rank")] == [
        "x",
        "y",
    ]


def test_duplicate_columns_raise():
    table = pl.DataFrame({"docno": ["x"], "score": [1.0], "other": [2.0]}).to_pandas()
    table.columns = ["docno", "score", "score"]
    with pytest.raises(AnswerError, match="'score' occurs twice"):
        read_hits(table, 5)


def test_distances_are_negated_once():
    hits = read_hits([{"doc": "d1", "_distance": 0.1}, {"doc": "d2", "_distance": 0.4}], 5)
    assert (
        sort_hits(hits, "distance")
        == sort_hits(hits, None)
        == [Hit("d1", -0.1, 1, distance=0.1), Hit("d2", -0.4, 2, distance=0.4)]
    )


def test_fields_of_hits_take_priority_over_columns():
    class HybridHits(list[Any]):
        ids = (7,)
        distances = (0.5,)

    found = read_hits(HybridHits([{"id": 7, "distance": 0.5, "entity": {"doc": "d1"}}]), 5)
    assert found == [Hit("d1", 0.5, 1)]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            {"retrieval_context": [TEXT]},
            "field 'retrieval_context' contains chunk texts .* as field 'retrieved_context_ids'$",
        ),
        (
            {"retrieved_contents": [TEXT]},
            "field 'retrieved_contents' contains chunk texts .* as field 'retrieved_ids'$",
        ),
        ({"ids": ["a", "b"], "scores": [1.0]}, "different lengths"),
        ((np.array([[0.5]]), np.array([[3]])), "hit 1 is .*it must be an id"),
        ([Obj(page_content=TEXT, metadata={})], "it must be an id"),
        ([("d1", 0.5, TEXT, 1, 2, 3)], "it must be an id"),
        ([{"doc": "d1", "_distance": float("nan")}], "hit 1, d1, has the score nan"),
    ],
)
def test_invalid_hits_raise_with_number_and_id(answer: Any, message: str):
    with pytest.raises(AnswerError, match=message):
        read_hits(answer, 5)


#: Three documents with two chunks each.
CHUNKS = [
    {"doc": f"{name}.txt", "start": start, "text": f"{part} of the {name} was {deed} last year."}
    for name in ("mill", "bell", "crane")
    for part, deed, start in (("roof", "painted", 0), ("floor", "swept", 41))
]
IDS, STARTS, TEXTS = zip(*(chunk.values() for chunk in CHUNKS), strict=True)
QUESTION: Any = TEXTS[3]


def embed(text: Any) -> list[float]:
    vector = np.zeros(64)
    for word in re.findall(r"\w+", text.lower()):
        vector[zlib.crc32(word.encode()) % 64] += 1
    return (vector / np.linalg.norm(vector)).tolist()  # type: ignore[no-any-return]


VECTORS = [embed(text) for text in TEXTS]


def build_langchain(_: Path) -> dict[str, Any]:
    pytest.importorskip("langchain_core")
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore

    class Embedder(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [embed(text) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return embed(text)

    store = InMemoryVectorStore(Embedder())
    store.add_documents(
        [
            Document(c["text"], metadata={"source": c["doc"], "start_index": c["start"]})
            for c in CHUNKS
        ]
    )
    return {"store": store, "retriever": store.as_retriever()}


def build_llama_index(_: Path) -> dict[str, Any]:
    pytest.importorskip("llama_index.core")
    from llama_index.core import Document, MockEmbedding, VectorStoreIndex

    class Embedder(MockEmbedding):
        _get_query_embedding = _get_text_embedding = lambda _, text: embed(text)

    documents = [
        Document(text=" ".join(TEXTS[row : row + 2]), doc_id=IDS[row]) for row in (0, 2, 4)
    ]  # type: ignore[arg-type]
    index = VectorStoreIndex.from_documents(documents, embed_model=Embedder(embed_dim=64))
    return {"retriever": index.as_retriever(similarity_top_k=300)}


def build_haystack(_: Path) -> dict[str, Any]:
    pytest.importorskip("haystack")
    from haystack import Document
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore()
    metas = [
        {"source_id": name, "split_idx_start": start}
        for name, start in zip(IDS, STARTS, strict=True)
    ]
    store.write_documents(
        [Document(content=TEXTS[row], embedding=VECTORS[row], meta=metas[row]) for row in range(6)]
    )
    return {"retriever": InMemoryEmbeddingRetriever(store)}


def build_qdrant(_: Path) -> dict[str, Any]:
    models = pytest.importorskip("qdrant_client").models
    client = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    client.create_collection(
        "chunks", vectors_config=models.VectorParams(size=64, distance=models.Distance.COSINE)
    )
    client.upsert(
        "chunks",
        [models.PointStruct(id=row, vector=VECTORS[row], payload=CHUNKS[row]) for row in range(6)],
    )
    return {"client": client}


def build_chroma(_: Path) -> dict[str, Any]:
    client = pytest.importorskip("chromadb").EphemeralClient()
    # All clients in a process share collections.
    client.get_or_create_collection("chunks")
    client.delete_collection("chunks")
    collection = client.create_collection("chunks", embedding_function=None)
    collection.add(
        ids=[*map(str, range(6))], embeddings=VECTORS, documents=[*TEXTS], metadatas=CHUNKS
    )
    return {"collection": collection}


def build_lancedb(folder: Path) -> dict[str, Any]:
    rows = [chunk | {"vector": vector} for chunk, vector in zip(CHUNKS, VECTORS, strict=True)]
    return {"table": pytest.importorskip("lancedb").connect(folder).create_table("chunks", rows)}


def build_faiss(_: Path) -> dict[str, Any]:
    index = pytest.importorskip("faiss").IndexFlatIP(64)
    index.add(np.array(VECTORS, "f4"))
    return {"index": index, "ids": IDS, "texts": TEXTS, "np": np}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "build"),
    [
        ("LangChain", build_langchain),
        ("LangChain, with scores", build_langchain),
        ("LlamaIndex, ", build_llama_index),
        ("Haystack", build_haystack),
        ("Qdrant", build_qdrant),
        ("Qdrant, groups", build_qdrant),
        ("Chroma", build_chroma),
        ("LanceDB", build_lancedb),
        ("FAISS, ", build_faiss),
    ],
)
def test_documented_adapters_return_valid_hits(
    system: str, build: Callable[[Path], dict[str, Any]], tmp_path: Path
):
    names = {"embed": embed} | build(tmp_path)
    (code,) = re.findall(
        rf"^\| {system}[^|]* \| `(.*)` \|$", (ROOT / "docs/score.md").read_text(), re.MULTILINE
    )[:1]
    exec(f"def search(query, k): return {code}", names)
    hits = read_hits(names["search"](QUESTION, 6), 6)
    first = sort_hits(hits, None)[0]
    assert first.document == "bell.txt"
    assert QUESTION in (first.text or "")
    assert {hit.document for hit in hits} == {*IDS}
    if build not in (build_faiss, build_llama_index):
        assert (len(hits), first.start) == (6, 41)
    is_scored = hits[0].score is not None or hits[0].distance is not None
    assert is_scored == (system != "LangChain")
