"""Compare position schemes with pandas.cut and naive loops. Equality, addition and JSON of axes."""

import json
from dataclasses import replace
from fractions import Fraction
from math import ceil

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.base.errors import ProfileError
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.schemes import AbsolutePositions, Axes, LabeledPositions, RelativePositions

SQUAD_BUCKETS = [(0, 100), (100, 200), (200, 300), (300, 400), (400, 500), (500, 3120)]


def evidence(**columns):
    count = len(next(iter(columns.values())))
    arrays = {
        name: tuple(value) if name == "labels" else np.array(value, np.int64)
        for name, value in columns.items()
    }
    return Evidence([f"q{k}" for k in range(count)], ["d"] * count, **arrays)


def relative(spans, tokens=None):
    starts, ends, characters = zip(*spans, strict=True)
    return evidence(
        starts=starts, ends=ends, characters=characters, tokens=tokens or [100] * len(spans)
    )


def memberships(cells):
    return set(zip(cells.query.tolist(), cells.position.tolist(), strict=True))


@st.composite
def spans(draw):
    characters = draw(st.integers(1, 100_000))
    start = draw(st.integers(0, characters - 1))
    return start, draw(st.integers(start + 1, characters)), characters


@st.composite
def spans_on_an_edge(draw):
    """Draw a span whose midpoint is exactly k/20 of its document."""
    unit, k = draw(st.integers(1, 5_000)), draw(st.integers(1, 19))
    reach = draw(st.integers(1, unit))
    return k * unit - reach, k * unit + reach, 20 * unit


@given(st.lists(st.one_of(spans(), spans_on_an_edge()), min_size=1, max_size=30))
def test_relative_bins_equal_pandas_and_exact_arithmetic(result):
    frame = pd.DataFrame(result, columns=["start", "end", "characters"])
    midpoint = ((frame.start + frame.end) / 2 / frame.characters).clip(0, 1)
    expected = pd.cut(midpoint, np.linspace(0, 1, 21), include_lowest=True, labels=False)
    cells = RelativePositions().cells(relative(result))
    exact = [
        ceil(Fraction(start + end, 2 * characters) * 20) - 1 for start, end, characters in result
    ]
    assert cells.position.tolist() == expected.tolist() == exact
    assert cells.query.tolist() == list(range(len(result)))


def test_the_first_bin_is_closed_and_midpoints_are_clipped():
    cells = RelativePositions().cells(
        relative([(0, 0, 10), (-9, 1, 10), (19, 21, 20), (50, 60, 20)])
    )
    assert cells.position.tolist() == [0, 0, 19, 19]


@given(
    st.lists(
        st.one_of(st.integers(1, 5_000), st.sampled_from([512, 513, 1024, 1025, 1536, 1537])),
        min_size=1,
    )
)
def test_length_buckets_equal_pandas_cut(tokens):
    expected = pd.cut(pd.Series(tokens), [0, 512, 1024, 1536, np.inf], labels=False)
    result = relative([(0, 1, 10)] * len(tokens), tokens)
    assert RelativePositions().length_buckets(result).tolist() == expected.tolist()
    assert RelativePositions().cells(result).length.tolist() == expected.tolist()


def test_relative_names_are_the_intervals():
    axes = RelativePositions().axes
    assert axes.lengths == ("Q1", "Q2", "Q3", "Q4")
    assert len(set(axes.positions)) == 20
    assert (axes.positions[0], axes.positions[1], axes.positions[19]) == (
        "[0.00, 0.05]",
        "(0.05, 0.10]",
        "(0.95, 1.00]",
    )


@given(
    st.lists(
        st.one_of(st.integers(0, 4_000), st.sampled_from([0, 100, 101, 500, 3120, 3121])),
        min_size=1,
    )
)
def test_absolute_buckets_are_closed_at_both_ends(starts):
    expected = {
        (query, bucket)
        for query, start in enumerate(starts)
        for bucket, (low, high) in enumerate(SQUAD_BUCKETS)
        if low <= start <= high
    }
    cells = AbsolutePositions().cells(evidence(starts=starts))
    assert memberships(cells) == expected
    assert len(cells.query) == len(expected)
    assert set(cells.length.tolist()) <= {0}


def test_a_label_counts_for_every_position_that_it_names():
    cells = LabeledPositions().cells(
        evidence(labels=["end", "beginning", "beginning+middle", "nowhere"])
    )
    assert memberships(cells) == {(0, 2), (1, 0), (2, 0), (2, 1)}


def test_no_queries_have_no_cells():
    empty = Evidence([], [])
    for scheme in (RelativePositions(), AbsolutePositions(), LabeledPositions()):
        assert len(scheme.cells(empty).query) == 0
        assert len(scheme.length_buckets(empty)) == 0


def test_schemes_with_different_cells_have_different_names():
    schemes = [
        RelativePositions(),
        RelativePositions(bins=10),
        RelativePositions(token_bounds=(512, 1024)),
    ]
    schemes += [
        AbsolutePositions(),
        AbsolutePositions(buckets=((0, 100), (100, 3120))),
        LabeledPositions(),
    ]
    assert len({scheme.axes for scheme in schemes}) == len(schemes)


AXES = Axes(
    "halves",
    ("short", "long"),
    ("first", "second"),
    "Half of the letter",
    ("up to 9 words", "over 9 words"),
    True,
)


def test_titles_are_ignored_in_comparisons_of_axes():
    other = Axes("halves", ("short", "long"), ("first", "second"))
    assert other == AXES
    assert (other.position_title, other.length_titles) == (
        "Position of the evidence",
        ("short", "long"),
    )
    AXES.check_same(other)


@pytest.mark.parametrize(
    "change",
    [{"scheme": "other"}, {"positions": ("first", "last")}, {"lengths": ("short", "longer")}],
)
def test_values_of_different_schemes_or_cells_cannot_be_added(change):
    with pytest.raises(ProfileError, match="cannot be added"):
        AXES.check_same(replace(AXES, **change))


@pytest.mark.parametrize(
    "axes",
    [
        AXES,
        *(scheme.axes for scheme in (RelativePositions(), AbsolutePositions(), LabeledPositions())),
    ],
)
def test_axes_json_round_trip(axes):
    assert Axes.from_json(json.loads(json.dumps(axes.to_json()))).to_json() == axes.to_json()


def test_one_length_bucket_keeps_its_title():
    assert AXES.select_length(1) == replace(
        AXES, lengths=("long",), length_titles=("over 9 words",)
    )
    assert AXES.select_length(1).length_titles == ("over 9 words",)


@pytest.mark.parametrize(
    "damage",
    [{"lengths": None}, {"positions": [1]}, {"length_titles": ["one"]}, {"equal_bins": "perhaps"}],
)
def test_damaged_axes_raise_value_error(damage):
    with pytest.raises(ValueError, match="validation error"):
        Axes.from_json(AXES.to_json() | damage)
