import re
from dataclasses import replace

import numpy as np
import pytest

from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.estimates import Difference, Estimate
from posir_tasks.evidence import Evidence
from posir_tasks.schemes import RelativePositions
from posir_tasks.thirds import assign_thirds
from posir_tasks.tokens import CountedWith
from posir_tasks.window_coverage import TruncatedEvidence, WindowCoverage
from posir_train.evaluation import Measurement
from posir_train.report import (
    COSINE,
    NDCG,
    PSI,
    START_TO_END,
    Change,
    TrainingComparison,
    build_table,
    correct,
    find_warnings,
    title_changes,
    to_records,
)
from tests.plugins.posir_train.texts import build_examples

DATA = build_examples(articles=25, questions=9)


SCHEME = RelativePositions()
EVIDENCE = Evidence(
    query_ids=[example.id for example in DATA.examples],
    document_ids=[example.document.id for example in DATA.examples],
    starts=np.array([example.start for example in DATA.examples]),
    ends=np.array([example.end for example in DATA.examples]),
    characters=np.array([len(example.document.text) for example in DATA.examples]),
    tokens=np.full(len(DATA.examples), 100),
)
THIRDS = assign_thirds(20)[SCHEME.cells(EVIDENCE).position]


def measurement(result, cosine=0.1, seed=0, beyond=None):
    """Return a model that ranks a document first with these probabilities by third, else in the tenth place."""
    rng = np.random.default_rng(seed)
    ranks = np.array([1 if rng.random() < result[third] else 10 for third in THIRDS], np.int64)
    truncated = None if beyond is None else TruncatedEvidence(40, beyond, CountedWith.TOKENIZER)
    coverage = WindowCoverage.from_ranks(truncated, SCHEME, EVIDENCE, ranks) if truncated else None
    return Measurement(DocumentRanks.from_ranks(SCHEME, EVIDENCE, ranks, beyond), coverage, cosine)


def compare(before, after):
    return TrainingComparison(before, after, ("base", "trained")).changes


BIASED, EVEN = measurement([0.9, 0.5, 0.2]), measurement([0.85, 0.85, 0.85], seed=1)


def verdicts(before, after):
    return {change.score: change.verdict for change in correct(compare(before, after))}


def test_a_cure_is_better_and_less_biased():
    result = verdicts(BIASED, EVEN)
    assert (result[NDCG], result[START_TO_END], result[PSI]) == ("better", "less biased", "less biased")
    assert result[f"{NDCG}, end"] == "better"
    assert result[COSINE] == ""


def test_the_title_of_the_curves_is_the_change_of_held_out_articles():
    title = title_changes(correct(compare(BIASED, EVEN)))
    assert re.fullmatch(r"Training changes nDCG@10 by \+[\d.]+ \(better\) and start to end by -[\d.]+ \(less biased\)", title)
    assert title_changes([]) == "nDCG@10 by position before and after training"


def test_the_other_way_is_worse_and_more_biased():
    result = verdicts(EVEN, BIASED)
    assert (result[NDCG], result[START_TO_END], result[PSI]) == ("worse", "more biased", "more biased")


def test_chance_is_not_significant():
    result = verdicts(EVEN, measurement([0.85, 0.85, 0.85], seed=2))
    assert {value for score, value in result.items() if score != COSINE} == {"not significant"}


@pytest.mark.parametrize(
    ("score", "before", "after", "difference", "verdict"),
    [
        (START_TO_END, Estimate(0.4, (0.3, 0.5)), Estimate(-0.1, (-0.2, 0.0)), Estimate(-0.5, (-0.6, -0.4)), "less biased"),
        (START_TO_END, Estimate(-0.1, (-0.2, 0.0)), Estimate(0.4, (0.3, 0.5)), Estimate(0.5, (0.4, 0.6)), "more biased"),
        (START_TO_END, Estimate(-0.2, (-0.3, -0.1)), Estimate(0.22, (0.1, 0.3)), Estimate(0.42, (0.3, 0.5)), "reversed"),
        (START_TO_END, Estimate(0.4, (0.3, 0.5)), Estimate(0.1, (0.0, 0.2)), Estimate(-0.3, (-0.4, -0.2)), "less biased"),
        (
            PSI,
            Estimate(0.06, (0.0, 0.15)),
            Estimate(0.16, (0.09, 0.23)),
            Estimate(0.1, (-0.01, 0.23)),
            "the effect of position differs, PSI not clearly",
        ),
        (NDCG, Estimate(0.8), Estimate(0.9), Estimate(0.1, (0.01, 0.19)), "better"),
        (PSI, Estimate(0.06, (0.0, 0.15)), Estimate(0.5, (0.4, 0.6)), Estimate(0.44, (0.3, 0.5)), "more biased"),
    ],
)
def test_bias_is_compared_by_magnitude(score, before, after, difference, verdict):
    assert Change(score, before, after, Difference(difference.value, difference.interval, 0.001), 0.004).verdict == verdict


def test_an_interval_without_0_that_is_not_significant_is_said_to_be_uncorrected():
    change = Change(f"{NDCG}, end", Estimate(0.8), Estimate(0.9), Difference(0.1, (0.01, 0.19), 0.03), 0.09)
    assert change.verdict == "not significant (p 0.030 before correction)"


def test_positions_are_corrected_together_and_nothing_else():
    changes = [
        replace(change, difference=replace(change.difference, p_value=0.03))
        for change in compare(BIASED, EVEN)
        if change.p_value is not None
    ]
    result = {change.score: change.p_corrected for change in correct(changes)}
    positions = [p_value for score, p_value in result.items() if score.startswith(f"{NDCG}, ")]
    assert positions == pytest.approx([0.09] * 3)
    assert result[NDCG] == result[START_TO_END] == result[PSI] == 0.03


def test_differences_are_those_of_the_scores():
    changes = {change.score: change for change in compare(BIASED, EVEN)}
    profiles = BIASED.ranks.profile, EVEN.ranks.profile
    assert changes[NDCG].difference.value == pytest.approx(profiles[1].score() - profiles[0].score())
    begin, end = (changes[f"{NDCG}, {name}"] for name in ("begin", "end"))
    assert begin.before.value == pytest.approx(0.9, abs=0.08)
    assert end.before.value == pytest.approx(0.2 + 0.8 * 0.289, abs=0.1)
    assert changes[START_TO_END].difference.value == pytest.approx(begin.difference.value - end.difference.value, abs=0.02)


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ([0.2, 0.2, 0.2], r"less biased, but worse: nDCG@10 -\d\d\.\d"),
        ([0.5, 0.5, 0.5], r"less biased \(nDCG@10 -\d\.\d, not significant\)"),
        ([0.7, 0.7, 0.7], "less biased"),
    ],
)
def test_less_bias_is_never_said_without_the_loss(after, verdict):
    assert re.fullmatch(verdict, verdicts(BIASED, measurement(after, seed=1))[START_TO_END])


def test_the_loss_is_that_of_the_same_questions():
    lost = compare(BIASED, measurement([0.2, 0.2, 0.2], seed=1))
    changes = correct([*compare(BIASED, EVEN), *(replace(change, forgetting_check="others") for change in lost)])
    verdicts = {change.title: change.verdict for change in changes}
    assert verdicts[START_TO_END] == "less biased"
    assert "but worse" in verdicts[f"forgetting check others, {START_TO_END}"]


def test_truncation_is_said_of_both_models():
    beyond = np.where(THIRDS == 0, 0, 2)
    before, after = measurement([0.9, 0.5, 0.2], beyond=beyond), measurement([0.5, 0.5, 0.5])
    first, other = TrainingComparison(before, after, ("base", "trained")).truncation
    share = f"{100 * np.mean(beyond > 0):.1f}"
    assert first.startswith(
        f"base reads the first 40 tokens of a document. By the model's own tokenizer, for {share} % of the quer"
    )
    assert "where the model cannot find it. Over the other" in first
    assert other == "The input window is unknown for trained."


def test_a_collapse_is_named():
    changes = correct(compare(BIASED, measurement([0.3, 0.3, 0.3], cosine=0.98)))
    result = find_warnings(changes)
    assert "cosine of unrelated texts has risen from 0.10 to 0.98" in result[0]
    assert "nDCG@10 is significantly below" in result[1]
    assert find_warnings(correct(compare(BIASED, EVEN))) == []


def test_the_table_has_every_score():
    changes = correct(compare(BIASED, EVEN))
    table = build_table(changes, "title", [])
    assert (
        [row[0] for row in table.rows]
        == [change.score for change in changes]
        == [record["score"] for record in to_records(changes)]
    )
    assert table.rows[0][1].startswith(f"{100 * BIASED.ranks.profile.score():.1f} [")
