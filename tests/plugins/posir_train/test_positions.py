import numpy as np
import pytest

from posir_tasks.evidence import Evidence
from posir_tasks.schemes import RelativePositions
from posir_train.settings import Position, PositionWeights, find_position


def test_positions_are_the_bins_of_posir():
    spans = [(start, start + size) for start in range(30) for size in (1, 2, 5) if start + size <= 30]
    evidence = Evidence(
        [str(row) for row in range(len(spans))],
        ["d"] * len(spans),
        *(np.array(column, np.int64) for column in zip(*[(*span, 30, 8) for span in spans], strict=True)),
    )
    assert RelativePositions(len(Position)).cells(evidence).position.tolist() == [find_position(*span, 30) for span in spans]


@pytest.mark.parametrize(
    ("text", "shares", "needed"),
    [
        ("begin", (1, 0, 0), 1),
        ("uniform", (1 / 3, 1 / 3, 1 / 3), 3),
        ("2,1,1", (0.5, 0.25, 0.25), 3),
        ("1,0,3", (0.25, 0, 0.75), 2),
    ],
)
def test_weights_are_named_or_numbers(text, shares, needed):
    weights = PositionWeights.parse(text)
    assert (weights.shares, len(weights.needed)) == (pytest.approx(shares), needed)


@pytest.mark.parametrize("text", ["front", "1,2", "0,0,0", "1,-1,1", "nan,1,1", "inf,1,1"])
def test_other_weights_are_refused(text):
    with pytest.raises(ValueError, match="uniform"):
        PositionWeights.parse(text)
