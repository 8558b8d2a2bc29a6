"""Titles of charts state the finding, and say so if nothing is significant."""

from __future__ import annotations

import numpy as np
import pytest

from posir_report.cells import find_beyond, pool_lengths
from posir_report.findings import title_effect, title_lengths, title_models, title_sensitivity
from posir_report.summary import ReportRow
from posir_significance.verdict import Verdict
from posir_tasks.estimates import Estimate
from posir_tasks.profile import PositionProfile
from posir_tasks.schemes import RelativePositions
from posir_tasks.scores import ResultValues
from posir_tasks.tokens import CountedWith
from posir_tasks.window_coverage import WindowCoverage
from tests.support.simulation import separate_documents


def row(verdict, change=0.241, ndcg=0.5, task="Task", length="all"):
    scores = {"start_to_end": Estimate(change, (change - 0.1, change + 0.1)), "ndcg_at_10": Estimate(ndcg, (0.4, 0.6))}
    return ReportRow(model="org/m", task=task, length=length, scores=scores, p_corrected=0.2, verdict=verdict)


@pytest.mark.parametrize(
    ("verdict", "change", "title"),
    [
        (None, 0.2, "nDCG@10 by position of the evidence"),
        (Verdict.TOO_FEW, 0.2, "nDCG@10 by position of the evidence: too few documents for a test"),
        (Verdict.NOT_SIGNIFICANT, 0.2, "No significant effect of position on nDCG@10 (p 0.200)"),
        (Verdict.PRIMACY, 0.241, "nDCG@10 falls by 24.1 points from start to end (primacy)"),
        (Verdict.RECENCY, -0.1, "nDCG@10 rises by 10.0 points from start to end (recency)"),
        (Verdict.TRUNCATION, 0.241, "nDCG@10 falls by 24.1 points from start to end: truncation, not bias"),
        (Verdict.TRUNCATION, -0.01, "The effect of position on nDCG@10 is truncation, not bias"),
        (Verdict.MIDDLE_DIP, 0.0, "Evidence in the middle is found worse than at both ends"),
    ],
)
def test_the_title_of_curves_is_the_verdict(verdict, change, title):
    assert title_effect(row(verdict, change)) == title


def test_models_are_named_or_counted():
    rows = [row(Verdict.NOT_SIGNIFICANT), row(Verdict.TRUNCATION)]
    title = "Effect of position on nDCG@10: a not significant; b 24.1 points less at the end (truncation)"
    assert title_models(["org/a", "org/b"], rows) == title
    assert title_models(list("abcd"), rows * 2) == "Position has a significant effect on nDCG@10 of 2 of 4 models"
    assert title_models(["a"], [row(None)]) == "nDCG@10 of the models by position of the evidence"


def test_the_best_model_is_named_if_there_is_one_task():
    rows = [row(Verdict.NOT_SIGNIFICANT), row(Verdict.PRIMACY, ndcg=0.7)]
    tests = "position matters significantly in 1 of 2 results"
    assert title_sensitivity(["org/a", "org/b"], rows) == f"b has the highest nDCG@10, 70.0; {tests}"
    rows[0] = row(Verdict.NOT_SIGNIFICANT, task="Other")
    assert title_sensitivity(["org/a", "org/b"], rows) == tests.capitalize()


def test_lengths_are_compared_with_their_intervals():
    rows = [row(None), row(None, ndcg=0.6, length="Q1"), row(None, ndcg=0.5, length="Q4")]
    expected = "nDCG@10 is 60.0 [40.0, 60.0] in the shortest documents (Q1), 50.0 [40.0, 60.0] in the longest (Q4)"
    assert title_lengths(rows) == expected
    assert title_lengths(rows[:1]) == title_effect(rows[0])


@pytest.mark.parametrize("merged", [False, True])
def test_evidence_beyond_the_window_is_counted_in_each_bin(merged):
    axes = RelativePositions().axes
    counts = np.random.default_rng(1).integers(1, 9, (4, 20, 12))
    kept = np.arange(20) < 7
    within = counts * kept[None, :, None]
    profile, read = (PositionProfile(axes, values, values.sum(axis=1)) for values in (counts, within))
    beyond = (counts - within).sum(axis=(1, 2))
    values = ResultValues(separate_documents(profile), WindowCoverage(256, beyond, beyond, read, CountedWith.TOKENIZER))
    shares = [find_beyond(values, cell) for cell in pool_lengths(values.ranks, merged=merged)]
    size = 4 if merged else 1
    total, left = (array.sum(axis=(0, 2)).reshape(-1, size).sum(axis=1) for array in (counts, within))
    np.testing.assert_allclose(shares, 1 - left / total)
