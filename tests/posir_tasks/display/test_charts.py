"""The label of the window's end, descriptions of scores, and file names."""

from __future__ import annotations

from typing import Any

from posir_tasks.display.charts import describe_scores, explain_window, label_window_end
from posir_tasks.display.figures import Figure


def test_the_end_of_the_window_is_labeled_once_per_panel():
    shares = {"short": (0.0, 0.1, 0.5), "long": (0.2, 0.6, 1.0)}
    rows = [
        {"panel": panel, "beyond_share": share}
        for panel, shared in shares.items()
        for share in shared
    ]
    marked = label_window_end(rows, 256)
    assert [row["beyond_label"] for row in marked] == [None] * 4 + ["beyond 256 tokens", None]
    assert "256 tokens" in explain_window(marked, 256)
    unknown = label_window_end([{"beyond_share": None}], None)
    assert not any(row["beyond_label"] for row in unknown)
    assert explain_window(unknown, None) == ""


def test_scores_are_described_for_screen_readers():
    assert (
        describe_scores("nDCG@10", [0.616, None, 0.27]) == "nDCG@10 from start to end: 62, –, 27."
    )


def test_files_of_models_with_long_names_differ():
    chart: Any = None
    slugs = {Figure("curves", "Task", f"a/{'m' * 90}{end}", chart).slug for end in "bc"}
    assert len(slugs) == 2
    assert Figure("curves", "Task", "a/b", chart).slug == "Task.a_b.curves"
