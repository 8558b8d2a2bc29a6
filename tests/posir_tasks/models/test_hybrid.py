"""Hybrids of several models by name."""

import mteb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mteb.models.models_protocols import SearchProtocol

from posir_tasks.errors import PosirError
from posir_tasks.models.registry import split_models
from posir_tasks.search.dispatch import HybridSearch, fuse_rankings

BM25 = "mteb/baseline-bm25s"
RANKING = st.lists(st.sampled_from("abcdef"), unique=True)


@given(rankings=st.lists(RANKING, min_size=1, max_size=3))
def test_documents_score_the_sum_of_their_reciprocal_ranks(rankings: list[list[str]]):
    scores = fuse_rankings(rankings)
    assert scores.keys() == {document for ranking in rankings for document in ranking}
    for document, score in scores.items():
        assert np.isclose(score, sum(1 / (61 + ranking.index(document)) for ranking in rankings if document in ranking))


@pytest.mark.parametrize(
    ("text", "parts"),
    [("a, b", ["a", "b"]), ("a,b+chunks(1,2)", ["a", "b+chunks(1,2)"]), ("hybrid(a,b),c", ["hybrid(a,b)", "c"]), ("a", ["a"])],
)
def test_models_are_divided_by_the_commas_outside_of_parentheses(text: str, parts: list[str]):
    assert split_models(text) == parts


def test_a_hybrid_is_named_by_the_full_names_of_its_models_in_order():
    metas = [mteb.get_model_meta(f"hybrid({a},{b})") for a, b in ((BM25, "all-MiniLM-L6-v2"), ("all-MiniLM-L6-v2", BM25))]
    assert metas[0].name == f"hybrid({BM25},sentence-transformers/all-MiniLM-L6-v2)"
    assert metas[0].name != metas[1].name
    assert metas[0].revision != metas[1].revision
    assert metas[0].loader.reference == metas[0].name  # type: ignore[union-attr]
    with_method = mteb.get_model_meta(f"hybrid({BM25},all-MiniLM-L6-v2+chunks(64))")
    assert "+chunks(64" in str(with_method.name)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (f"hybrid({BM25})", "at least two models"),
        (f"hybrid({BM25},all-MiniLM-L6-v2", "a parenthesis is not closed"),
        (f"hybrid({BM25},)", "at least two models"),
        (f"hybrid({BM25},{BM25})", "occurs more than once"),
        (f"hybrid({BM25},rerank@http://localhost:1/v1)", "reranks and does not search"),
    ],
)
def test_a_hybrid_that_makes_no_sense_is_refused(reference: str, message: str):
    with pytest.raises(PosirError, match=message):
        mteb.get_model_meta(reference)


def test_a_hybrid_ranks_as_its_models_fused():
    model, other = mteb.get_model(BM25), mteb.get_model(BM25, k1=0.1)
    hybrid = HybridSearch([model, other])
    hybrid.mteb_model_meta = model.mteb_model_meta
    assert isinstance(hybrid, SearchProtocol)
    result = mteb.evaluate(hybrid, mteb.get_task("PosIR-Mini"), cache=None, show_progress_bar=False)  # type: ignore[arg-type]
    # That of BM25 alone is 0.689.
    assert 0.6 < result.task_results[0].scores["test"][0]["ndcg_at_10"] < 0.8
