"""Pipelines as users have them: chunks in a database, and a reranker in the loop."""

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import CrossEncoder

import posir
from posir_tasks.sources.opening import open_data
from tests.support.encoders import write_tiny_bert

CHUNK_WORDS, STEP, RERANKED = 120, 100, 5


def read_chunks() -> dict[str, str]:
    """Return the chunks of PosIR-Mini by id."""
    chunks = {}
    for document in open_data("PosIR-Mini").read_texts():
        words = document.text.split()  # type: ignore[union-attr]
        for start in range(0, len(words), STEP):
            chunks[f"{document.id}#{start}"] = " ".join(words[start : start + CHUNK_WORDS])  # type: ignore[union-attr]
    return chunks


def rerank(model: CrossEncoder, query: str, names: list[str], chunks: dict[str, str]) -> list[str]:
    """Return the ids with the first few in the order of a cross-encoder."""
    scores = model.predict([(query, chunks[name]) for name in names[:RERANKED]], show_progress_bar=False)
    ranked = sorted(zip(scores.tolist(), names, strict=False), reverse=True)
    return [*(name for _, name in ranked), *names[RERANKED:]]


@pytest.fixture(scope="module")
def chunks() -> dict[str, str]:
    return read_chunks()


def build_full_text_search(chunks: dict[str, str]) -> Callable[[str, int], list[str]]:
    """Return a search in SQLite's full-text index."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("CREATE VIRTUAL TABLE chunks USING fts5(id UNINDEXED, text, tokenize='porter')")
    database.executemany("INSERT INTO chunks VALUES (?, ?)", chunks.items())

    def search(query: str, k: int) -> list[str]:
        terms = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        statement = "SELECT id FROM chunks WHERE chunks MATCH ? ORDER BY rank LIMIT ?"
        return [name for (name,) in database.execute(statement, (terms, k))]

    return search


def test_chunks_in_sqlite_are_scored_as_documents(chunks: dict[str, str], tmp_path: Path):
    scored = posir.score(build_full_text_search(chunks), data="PosIR-Mini", k=300, name="fts5", output=tmp_path)
    (run,) = scored.runs
    # That of BM25 on whole documents is 0.689.
    assert 0.6 < run.ndcg_at_10 < 0.9
    assert run.counts.chunks > 720 * 100
    assert run.counts.unknown_documents == 0


@pytest.mark.slow
def test_a_cross_encoder_in_the_loop_changes_the_order_alone(chunks: dict[str, str], tmp_path: Path):
    search = build_full_text_search(chunks)
    model = CrossEncoder(str(write_tiny_bert(tmp_path / "model")), num_labels=1, max_length=64)
    scored = [
        posir.score(retriever, data="PosIR-Mini", k=300, name=name, output=tmp_path / "results")
        for name, retriever in (
            ("plain", search),
            ("reranked", lambda query, k: rerank(model, query, search(query, k), chunks)),
        )
    ]
    plain, reranked = (shown.runs[0] for shown in scored)
    assert reranked.recall_at_100 == plain.recall_at_100
    # The weights of the reranker are random.
    assert reranked.ndcg_at_10 < plain.ndcg_at_10


@pytest.mark.slow
def test_chunks_in_qdrant_have_the_ranks_of_exact_search(chunks: dict[str, str], tmp_path: Path):
    qdrant: Any = pytest.importorskip("qdrant_client")
    from sklearn.feature_extraction.text import HashingVectorizer

    vectorizer = HashingVectorizer(n_features=256, norm="l2", alternate_sign=False)
    vectors = vectorizer.transform(chunks.values()).toarray()
    names, client = list(chunks), qdrant.QdrantClient(":memory:")
    parameters = qdrant.models.VectorParams(size=256, distance=qdrant.models.Distance.COSINE)
    client.create_collection("chunks", vectors_config=parameters)
    client.upsert("chunks", [qdrant.models.PointStruct(id=row, vector=vector.tolist()) for row, vector in enumerate(vectors)])

    def search(query: str, k: int) -> list[tuple[str, float]]:
        hits = client.query_points("chunks", vectorizer.transform([query]).toarray()[0].tolist(), limit=k).points
        return [(names[hit.id], hit.score) for hit in hits]

    def search_exactly(query: str, k: int) -> list[tuple[str, float]]:
        scores = vectors @ vectorizer.transform([query]).toarray()[0]
        return [(names[row], float(scores[row])) for row in scores.argsort()[::-1][:k]]

    scored = [
        posir.score(retriever, data="PosIR-Mini", k=300, name=name, output=tmp_path, concurrency=1)
        for name, retriever in (("qdrant", search), ("exact", search_exactly))
    ]
    database, exact = (shown.runs[0] for shown in scored)
    assert database.ndcg_at_10 == pytest.approx(exact.ndcg_at_10, abs=2e-3)
