"""The first stage of a reranker: its candidates are in pytrec_eval's order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.ranks import Hits
from posir_tasks.search.first_stage import sort_candidates

IDS = ["d1", "d10", "d2", "ä", "文", "😀", "-"]


@given(st.lists(st.permutations(range(len(IDS))), min_size=1, max_size=5), st.data())
def test_candidates_are_sorted_by_score_then_by_id_both_descending(documents, data):
    scores = data.draw(
        st.lists(
            st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=len(IDS), max_size=len(IDS)),
            min_size=len(documents),
            max_size=len(documents),
        )
    )
    ordered = sort_candidates(Hits(np.array(documents), np.array(scores), IDS)).to_list()
    for rows, of_query, found in zip(documents, scores, ordered, strict=True):
        best = sorted(((score, IDS[row]) for row, score in zip(rows, of_query, strict=True)), reverse=True)
        assert found == [name for _, name in best]
