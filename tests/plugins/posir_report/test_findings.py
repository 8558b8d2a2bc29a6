"""Test that chart titles are the findings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from posir_significance.cells import compute_truncated_share, pool_lengths
from posir_significance.decision import decide
from posir_significance.findings import Reason, State
from posir_significance.messages.verdicts import CURVE_TITLE, title_curve
from posir_tasks.values.profile import PositionProfile
from posir_tasks.values.read_part import ReadPart, TokenCountMethod, WindowSource
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ResultValues
from tests.support.rotations import build_group, build_test
from tests.support.simulation import separate_documents


@pytest.mark.parametrize(
    ("group", "state"),
    [
        (build_group(build_test(effect=0.2)), State.FAVORS_START),
        (build_group(build_test(effect=-0.2)), State.FAVORS_END),
        (build_group(build_test(documents=100)), State.NO_BIAS),
        (build_group(build_test(documents=12, questions=1)), State.INCONCLUSIVE),
        (build_group(reason=Reason.NOT_STORED), State.NOT_TESTED),
    ],
)
def test_the_title_of_curves_is_the_finding(group, state):
    findings = decide(group)
    assert findings.state is state
    assert title_curve(findings) != title_curve(None) == CURVE_TITLE


@pytest.mark.parametrize("merged", [False, True])
def test_truncated_evidence_is_counted_per_bin(merged):
    axes = RelativePositions().axes
    counts = np.random.default_rng(1).integers(1, 9, (4, 20, 12))
    kept = np.arange(20) < 7
    within = counts * kept[None, :, None]
    ranks = separate_documents(PositionProfile(axes, counts, counts.sum(axis=1)))
    (part,) = ranks.sets
    read = kept[np.array([bins[0] for _, bins in ranks.cell_keys])][part.cells]
    part = replace(part, twelfths=np.where(read, 0, 13), counted_with=TokenCountMethod.TOKENIZER)
    values = ResultValues(replace(ranks, sets=(part,)), ReadPart.first(256, WindowSource.MEASURED))
    shares = [
        compute_truncated_share(values, cell) for cell in pool_lengths(values.ranks, merged=merged)
    ]
    size = 4 if merged else 1
    total, left = (
        array.sum(axis=(0, 2)).reshape(-1, size).sum(axis=1) for array in (counts, within)
    )
    np.testing.assert_allclose(shares, 1 - left / total)
