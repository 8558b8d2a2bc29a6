"""Number formats."""

import copy
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.display.labels import is_estimate_text
from posir_tasks.display.numbers import (
    MISSING,
    format_count,
    format_estimate,
    format_number,
    format_p_value,
    format_percent,
    format_points,
    format_psi,
    format_score,
)
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import Unit

#: Units with decimals.
SIGNED = (Unit.PERCENT, Unit.POINTS, Unit.INDEX, Unit.P_VALUE, Unit.NUMBER)


def test_missing_values_are_formatted_alike():
    missing = {form(None) for form in (format_count, format_percent, format_psi, format_p_value)}
    scores = {
        format_score(Unit.PERCENT, None),
        format_number(None, ",.0f"),
        format_estimate(None, format_psi),
    }
    assert missing | scores == {MISSING}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_count(42_015), "42,015"),
        (format_percent(0.5834), "58.3"),
        (format_percent(-0.01, "+.1f"), "-1.0"),
        (format_percent(-0.0001, "+.1f"), "0.0"),
        (format_percent(-0.0), "0.0"),
        (format_number(float("-inf"), ".1f"), "-inf"),
        (format_psi(0.2166), "0.217"),
        (format_estimate(Estimate(0.5, (0.4, 0.61)), format_percent), "50.0 [40.0, 61.0]"),
        (format_estimate(Estimate(0.5), format_percent), "50.0"),
        (format_score(Unit.INDEX, Estimate(0.0694, (0.05, 0.0941))), "0.069 [0.050, 0.094]"),
        (format_score(Unit.POINTS, Estimate(0.042)), "+4.2"),
        (format_score(Unit.COUNT, 42_015), "42,015"),
        (format_score(Unit.TEXT, "document"), "document"),
        (format_p_value(0.0009), "<0.001"),
        (format_p_value(0.001), "0.001"),
    ],
)
def test_numbers_are_formatted_as_in_the_papers(text, expected):
    assert text == expected


@given(st.floats(0, 1))
def test_no_p_value_is_printed_as_zero(value):
    assert format_p_value(value) != "0.000"


@given(st.floats(-1e6, 1e6))
def test_zero_has_no_sign(value):
    estimate = Estimate(value, (value - 1e-6, value + 1e-6))
    for text in (format_score(unit, estimate if unit is Unit.POINTS else value) for unit in SIGNED):
        assert not re.search(r"[-+]0(\.0+)?(?![\d.])", text)
        assert "\N{MINUS SIGN}" not in text


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda text: pickle.loads(pickle.dumps(text))]
)
def test_copies_of_a_formatted_estimate_keep_its_numbers(duplicate):
    text = duplicate(format_estimate(Estimate(0.5, (-0.1, 1.0)), format_points, " (a note)"))
    assert text == "+50.0 [-10.0, +100.0] (a note)"
    assert (text.main, text.ends) == ("+50.0", ["-10.0", "+100.0"])
    assert not is_estimate_text(format_estimate(Estimate(0.5), format_points))
