"""First stage of a reranker: candidates are in pytrec_eval's order, and a corrupt cache is
replaced.
"""

import numpy as np
import polars as pl
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from mteb.timing import TimingStack

from posir_tasks.data.mini import read_mini
from posir_tasks.models.dispatch import order_documents
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.request import SearchRequest
from posir_tasks.search.first_stage import load_first_stage
from posir_tasks.values.ranks import Hits, HitsByQuery
from tests.support.encode import TASK


def build_request(corpus: Dataset, queries: Dataset) -> SearchRequest:
    return SearchRequest(corpus, queries, {}, None, 5, EncodingContext(**TASK), TimingStack())


IDS = ["d1", "d10", "d2", "ä", "文", "😀", "-"]


@given(st.lists(st.permutations(range(len(IDS))), min_size=1, max_size=5), st.data())
def test_candidates_are_sorted_by_score_then_id_descending(documents, data):
    score = st.sampled_from([0.0, 0.5, 2.0])
    scores = [[data.draw(score) for _ in IDS] for _ in documents]
    rows_by_query = {str(row): row for row in range(len(documents))}
    hits = Hits(np.array(documents), np.array(scores), IDS)
    ordered = order_documents(HitsByQuery(hits, rows_by_query))
    for rows, of_query, ordering in zip(documents, scores, ordered.values(), strict=True):
        best = sorted(
            ((score, IDS[row]) for row, score in zip(rows, of_query, strict=True)), reverse=True
        )
        assert ordering == [name for _, name in best]


@pytest.mark.parametrize("damage", ["cut off", "empty", "another table"])
def test_a_corrupt_cache_file_is_replaced_with_a_warning(
    tmp_path, monkeypatch, caplog, damage: str
):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    data = read_mini()
    request = build_request(data.corpus.select(range(20)), data.queries.select(range(4)))
    first = load_first_stage(request)
    assert not caplog.records
    (file,) = tmp_path.rglob("*.parquet")
    content = file.read_bytes()
    if damage == "another table":
        pl.DataFrame({"query": [1]}).write_parquet(file)
    else:
        file.write_bytes(content[: len(content) // 2] if damage == "cut off" else b"")
    assert load_first_stage(request) == first
    assert f"{file}: " in caplog.text
    assert "the first stage runs again and replaces the file" in caplog.text
    caplog.clear()
    assert load_first_stage(request) == first
    assert not caplog.records
