"""Tests for PSI, against the tables in the papers."""

import math
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_psi.scores import SCORES, compute_psi
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.schemes import AbsolutePositions, RelativePositions
from posir_tasks.values.scores import ResultValues

MEANS = st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), min_size=1, max_size=20)


def test_psi_equals_the_posq_tables():
    table = pd.read_csv(files("posir_published") / "data" / "posq.csv", dtype=str)
    rows = list(table.groupby(["task", "model"], sort=False))
    assert len(rows) == 39
    for name, row in rows:
        (published,) = row.psi.dropna()
        buckets = row.ndcg_at_10.dropna().astype(float)
        assert len(buckets) == (6 if name[0] == "SQuAD-PosQ" else 3)
        rounding_error = 0.5 * 10.0 ** -len(published.partition(".")[2])
        assert abs(float(compute_psi(buckets)) - float(published)) <= rounding_error, name


@given(MEANS)
def test_psi_is_the_share_lost_from_the_best_to_the_worst_bucket(scores):
    present = [score for score in scores if not math.isnan(score)]
    value = float(compute_psi(scores))
    if present and max(present) > 0:
        assert value == pytest.approx(1 - min(present) / max(present), abs=1e-12)
        assert 0 <= value <= 1
    else:
        assert math.isnan(value)


@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=20),
    st.floats(0.1, 10),
    st.randoms(use_true_random=False),
)
def test_psi_is_independent_of_scale_and_order(scores, factor, random):
    shuffled = [score * factor for score in scores]
    random.shuffle(shuffled)
    assert float(compute_psi(shuffled)) == pytest.approx(float(compute_psi(scores)), abs=1e-9)


def test_psi_is_computed_row_by_row():
    rows = np.array([[0.5, 0.25, np.nan], [0.0, 0.0, 0.0], [0.9, 0.6, 0.3]])
    np.testing.assert_allclose(compute_psi(rows), [0.5, np.nan, 2 / 3])


def compute(ranks):
    values = ResultValues(ranks)
    by_group = {
        group.name: {score.key: score.compute(group) for score in SCORES}
        for group in values.iterate_groups()
    }
    return by_group, [
        {score.key: score.compute(group) for score in SCORES if score.by_position}
        for group in values.iterate_bins()
    ]


def test_undefined_scores_of_groups_and_bins_are_none():
    columns = np.array(
        [
            (0, 100, 1_000, 100),
            (0, 100, 1_000, 400),
            (900, 1_000, 1_000, 500),
            (500, 500, 1_000, 600),
        ]
    ).T
    evidence = Evidence(["a", "b", "c", "d"], ["x"] * 4, *columns)
    groups, bins = compute(
        DocumentRanks.from_ranks(RelativePositions(), evidence, np.array([1, 0, 3, 0]))
    )
    assert groups == {
        "all": {"queries": 4, "psi_as_published": 1.0},
        "q1": {"queries": 3, "psi_as_published": 0.0},
        "q2": {"queries": 1, "psi_as_published": None},
        "q3": {"queries": 0, "psi_as_published": None},
        "q4": {"queries": 0, "psi_as_published": None},
    }
    assert [bin_["queries"] for bin_ in bins] == [2, *[0] * 8, 1, *[0] * 8, 1, 0]


def test_profiles_without_lengths_have_one_group():
    evidence = Evidence(["a"], ["x"], np.array([100]))
    groups, bins = compute(DocumentRanks.from_ranks(AbsolutePositions(), evidence, np.array([1])))
    assert groups.keys() == {"all"}
    assert groups["all"]["queries"] == 1
    assert [bin_["queries"] for bin_ in bins] == [1, 1, 0, 0, 0, 0]
