"""Axes: what makes two of them the same, and their JSON form."""

import json
from dataclasses import replace

import pytest

from posir_tasks.errors import ProfileError
from posir_tasks.schemes import AbsolutePositions, Axes, LabeledPositions, RelativePositions

AXES = Axes("halves", ("short", "long"), ("first", "second"), "Half of the letter", ("up to 9 words", "over 9 words"), True)


def test_titles_do_not_make_other_axes():
    other = Axes("halves", ("short", "long"), ("first", "second"))
    assert other == AXES
    assert (other.position_title, other.length_titles) == ("Position of the evidence", ("short", "long"))
    AXES.check_same(other)


@pytest.mark.parametrize("change", [{"scheme": "other"}, {"positions": ("first", "last")}, {"lengths": ("short", "longer")}])
def test_other_schemes_or_cells_do_not_add(change):
    with pytest.raises(ProfileError, match="do not add"):
        AXES.check_same(replace(AXES, **change))


@pytest.mark.parametrize(
    "axes", [AXES, *(scheme.axes for scheme in (RelativePositions(), AbsolutePositions(), LabeledPositions()))]
)
def test_axes_survive_json_with_their_titles(axes):
    assert Axes.from_json(json.loads(json.dumps(axes.to_json()))).to_json() == axes.to_json()


def test_one_length_bucket_keeps_its_title():
    assert AXES.select_length(1) == replace(AXES, lengths=("long",), length_titles=("over 9 words",))
    assert AXES.select_length(1).length_titles == ("over 9 words",)


@pytest.mark.parametrize(
    "damage", [{"lengths": None}, {"positions": [1]}, {"length_titles": ["one"]}, {"equal_bins": "perhaps"}]
)
def test_damage_is_a_value_error(damage):
    with pytest.raises(ValueError, match="validation error"):
        Axes.from_json(AXES.to_json() | damage)
