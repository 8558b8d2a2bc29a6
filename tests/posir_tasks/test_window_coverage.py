"""What a model's input window leaves of the evidence."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.errors import ProfileError
from posir_tasks.evidence import Evidence
from posir_tasks.schemes import LabelledPositions, RelativePositions
from posir_tasks.window_coverage import WindowCoverage, pool_coverages

SCHEME = RelativePositions()
ROWS = st.lists(
    st.tuples(st.integers(0, 899), st.integers(1, 100), st.integers(1, 3000), st.integers(0, 100)), min_size=1, max_size=40
)


def evidence_of(rows: list[tuple[int, int, int, int]]) -> tuple[Evidence, np.ndarray]:
    """Return evidence of (start, length of the span, tokens, rank) in documents of 1,000 characters, and the ranks."""
    names = [f"q{row}" for row in range(len(rows))]
    starts, sizes, tokens, ranks = np.array(rows).T
    return Evidence(names, names, starts, starts + sizes, np.full(len(rows), 1000), tokens), ranks


def measured(rows: list[tuple[int, int, int, int]], window: int) -> WindowCoverage:
    coverage = WindowCoverage.from_ranks(window, SCHEME, *evidence_of(rows))
    assert coverage is not None
    return coverage


@given(ROWS, st.integers(1, 3000))
def test_counts_are_those_of_a_loop_over_the_queries(rows, window):
    coverage = measured(rows, window)
    starts = [start / 1000 * tokens >= window for start, _, tokens, _ in rows]
    ends = [(start + size) / 1000 * tokens > window for start, size, tokens, _ in rows]
    assert coverage.starts_beyond.sum() == sum(starts)
    assert coverage.ends_beyond.sum() == sum(ends)
    assert coverage.within_window.queries == len(rows) - sum(ends)


@given(ROWS, ROWS, st.integers(1, 3000))
def test_coverages_add_and_survive_json(first, second, window):
    whole = measured([*first, *second], window)
    pooled = pool_coverages([measured(first, window), measured(second, window)])
    for coverage in (pooled, WindowCoverage.from_json(whole.to_json())):
        assert coverage is not None
        assert coverage.to_json() == whole.to_json()


def test_unknown_lengths_and_windows_stay_unknown():
    labelled = Evidence(["q"], ["d"], labels=("end",))
    assert WindowCoverage.from_ranks(512, LabelledPositions(), labelled, np.array([1])) is None
    assert WindowCoverage.from_json({"window": None}) is None
    assert pool_coverages([measured([(0, 1, 10, 1)], 5), None]) is None
    assert pool_coverages([]) is None


def test_different_windows_do_not_add_and_damage_is_named():
    with pytest.raises(ProfileError, match="256 and 512"):
        measured([(0, 1, 10, 1)], 256) + measured([(0, 1, 10, 1)], 512)
    with pytest.raises(ProfileError, match="damaged"):
        WindowCoverage.from_json({**measured([(0, 1, 10, 1)], 256).to_json(), "ends_beyond": [1]})
