"""Titles of charts state the finding, and say so if nothing can be said."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from posir_report.cells import find_beyond, pool_lengths
from posir_report.summary import ReportRow
from posir_report.tables import title_effect, title_lengths
from posir_significance.decision import Decision
from posir_significance.position_effect import Stratum
from posir_significance.regression import Contrast
from posir_tasks.profile import PositionProfile
from posir_tasks.read_part import UNKNOWN, CountedWith, KnownBy, ReadKind, ReadPart
from posir_tasks.schemes import RelativePositions
from posir_tasks.scores import Estimate, ResultValues
from tests.support.simulation import separate_documents


def decision(low, high, kind=ReadKind.ALL, margin=0.05):
    value, documents = (low + high) / 2, 100
    contrast = Contrast(value, (low, high), None, lambda _: (low, high), 0.01, 50.0, Stratum.DOCUMENT, documents)
    return Decision(
        margin=margin,
        documents=documents,
        read=ReadPart(kind, known_by=KnownBy.CLASS),
        bias_within_read=contrast,
        not_read=0.0,
        not_read_difference=None,
        start_to_end=contrast,
        start_to_end_plain=value,
        ndcg_at_10=Estimate(0.5, (0.4, 0.6)),
        find_group=lambda: SimpleNamespace(p_value_within_read=None),
    )


def row(decided=None, ndcg=0.5, task="Task", length="all"):
    return ReportRow(
        model="org/m", task=task, length=length, scores={"ndcg_at_10": Estimate(ndcg, (0.4, 0.6))}, decision=decided
    )


@pytest.mark.parametrize(
    ("decided", "words"),
    [
        (None, "nDCG@10 by position of the evidence"),
        (decision(0.1, 0.2), "Biased to the start"),
        (decision(-0.2, -0.1), "Biased to the end"),
        (decision(-0.02, 0.03), "No bias larger than 5 points"),
        (replace(decision(-0.02, 0.03), read=UNKNOWN), "start and end differ by at most 5 points"),
        (decision(-0.1, 0.2), "more than 5 points between start and end is neither shown nor excluded"),
    ],
)
def test_the_title_of_curves_is_the_finding(decided, words):
    assert words in title_effect(row(decided))


def test_lengths_are_compared():
    rows = [row(None), row(None, ndcg=0.6, length="Q1"), row(None, ndcg=0.5, length="Q4")]
    assert title_lengths(rows) == "nDCG@10 is 60.0 in the shortest documents, 50.0 in the longest"
    assert title_lengths(rows[:1]) == title_effect(rows[0])


@pytest.mark.parametrize("merged", [False, True])
def test_evidence_beyond_the_window_is_counted_in_each_bin(merged):
    axes = RelativePositions().axes
    counts = np.random.default_rng(1).integers(1, 9, (4, 20, 12))
    kept = np.arange(20) < 7
    within = counts * kept[None, :, None]
    ranks = separate_documents(PositionProfile(axes, counts, counts.sum(axis=1)))
    (part,) = ranks.sets
    read = kept[np.array([bins[0] for _, bins in ranks.cell_keys])][part.cells]
    part = replace(part, twelfths=np.where(read, 0, 13), counted_with=CountedWith.TOKENIZER)
    values = ResultValues(replace(ranks, sets=(part,)), ReadPart.first(256, KnownBy.MEASURED))
    shares = [find_beyond(values, cell) for cell in pool_lengths(values.ranks, merged=merged)]
    size = 4 if merged else 1
    total, left = (array.sum(axis=(0, 2)).reshape(-1, size).sum(axis=1) for array in (counts, within))
    np.testing.assert_allclose(shares, 1 - left / total)
