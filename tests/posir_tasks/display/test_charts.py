"""Names of lines, and the shade of a model's window."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.display.charts import (
    LABEL_GAP,
    LABEL_LIFT,
    MAX_LABELS,
    describe_scores,
    explain_window,
    mark_beyond,
    spread_heights,
)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=MAX_LABELS))
def test_names_of_lines_do_not_overlap_and_stay_in_the_chart_in_the_order_of_their_lines(ends):
    heights = spread_heights(ends)
    order = np.argsort(ends, kind="stable")
    assert (np.diff(np.array(heights)[order]) >= LABEL_GAP - 1e-9).all()
    assert max(heights) <= 1


def test_a_name_that_is_alone_is_above_its_line():
    assert spread_heights([0.2, 0.7]) == [0.2 + LABEL_LIFT, 0.7 + LABEL_LIFT]


def test_the_window_ends_where_most_evidence_is_beyond_it_named_once_in_each_panel():
    shares = {"short": (0.0, 0.1, 0.5), "long": (0.2, 0.6, 1.0)}
    rows = [{"panel": panel, "beyond_share": share} for panel, shared in shares.items() for share in shared]
    marked = mark_beyond(rows, 256)
    assert [row["beyond_label"] for row in marked] == [None] * 4 + ["beyond 256 tokens", None]
    assert "256 tokens" in explain_window(marked, 256)
    unknown = mark_beyond([{"beyond_share": None}], None)
    assert not any(row["beyond_label"] for row in unknown)
    assert explain_window(unknown, None) == ""


def test_scores_are_described_for_those_who_do_not_see_them():
    assert describe_scores("nDCG@10", [0.616, None, 0.27]) == "nDCG@10 from start to end: 62, –, 27."
