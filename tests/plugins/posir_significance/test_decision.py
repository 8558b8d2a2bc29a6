"""The states that follow from intervals, and the words for them."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.stats import norm

from posir_significance.analysis import GroupAnalysis
from posir_significance.decision import (
    CHANGE_LEVEL,
    ChangeState,
    Decision,
    Margins,
    Reason,
    State,
    compare_gains,
    compare_groups,
    compare_judged,
    decide_change,
    decide_state,
    require_documents,
)
from posir_significance.observations import Observations
from posir_significance.position_effect import Stratum
from posir_significance.regression import Contrast
from posir_significance.sentences import advise, describe_decision, describe_metric_change, iterate_answer, label_state
from posir_tasks.errors import PosirError
from posir_tasks.judgments import METRICS, JudgedScores
from posir_tasks.read_part import UNKNOWN, KnownBy, Part, ReadPart
from posir_tasks.scores import Estimate

ALL, FIRST = ReadPart.all(KnownBy.CLASS), ReadPart.first(256, KnownBy.MEASURED)


def contrast(value, error, documents=100, held_fixed=Stratum.DOCUMENT):
    def interval_at(level):
        half = norm.ppf((1 + level) / 2) * error / 100
        return value / 100 - half, value / 100 + half

    p_value = 2 * norm.sf(abs(value) / error)
    return Contrast(value / 100, interval_at(0.95), p_value, interval_at, error / 100, 1e6, held_fixed, documents)


@pytest.mark.parametrize(
    ("bias", "state", "reason"),
    [
        (contrast(0.6, 1.3), State.NO_BIAS, None),
        (contrast(2, 0.5), State.NO_BIAS, None),
        (contrast(8, 2), State.BIASED_TO_START, None),
        (contrast(-8, 2), State.BIASED_TO_END, None),
        (contrast(2.2, 3.2), State.CANNOT_BE_SAID, Reason.WIDE_INTERVAL),
        (contrast(8, 2, documents=9), State.CANNOT_BE_SAID, Reason.FEW_DOCUMENTS),
        (contrast(8, 2, documents=29, held_fixed=Stratum.LENGTH), State.CANNOT_BE_SAID, Reason.FEW_DOCUMENTS),
        (contrast(8, 2, documents=30, held_fixed=Stratum.LENGTH), State.BIASED_TO_START, None),
        (None, State.CANNOT_BE_SAID, Reason.NOT_COMPARED),
    ],
)
def test_the_state_follows_from_the_interval(bias, state, reason):
    assert decide_state(bias, 0.05, 100)[:2] == (state, reason)


def test_documents_needed_to_tell():
    assert decide_state(contrast(2, 3), 0.05, 100)[2] == 380  # (3.24 * 3 / 5)^2 = 3.78 times as many
    assert decide_state(contrast(4, 1), 0.05, 100)[2] is None


@pytest.mark.parametrize(
    ("bias", "fewest"), [(contrast(82, 10, documents=5), 200), (contrast(8, 2, documents=20, held_fixed=Stratum.LENGTH), 150)]
)
def test_too_few_documents_are_a_reason_with_the_number_of_that_rule(bias, fewest):
    assert decide_state(bias, 0.05, 100) == (State.CANNOT_BE_SAID, Reason.FEW_DOCUMENTS, fewest)
    assert require_documents(bias, 100) == fewest
    change = decide_change(bias, 0.05, 100, 1, few=fewest)
    assert (change.reason, change.documents_needed) == (Reason.FEW_DOCUMENTS, fewest)
    assert f"at least {fewest}" in advise(decision(bias))


def decision(bias, read=ALL, not_read=0.0, lost=None, p_value=None, middle=None, **fields):
    position = SimpleNamespace(middle_to_ends_within_read=middle)
    group = SimpleNamespace(position=position, p_value_within_read=p_value, psi=None, psi_as_published=None, psi_chance=None)
    values = dict.fromkeys(("start_to_end_plain", "ndcg_at_10")) | {
        "margin": 0.05,
        "documents": 100,
        "read": read,
        "bias_within_read": bias,
        "not_read": not_read,
        "not_read_difference": lost,
        "start_to_end": bias,
        "find_group": lambda: group,
    }
    return Decision(**(values | fields))


LOST = contrast(35, 3.5)
BEYOND = "It reads the first 256 tokens; 59.0 % of the evidence lies beyond and scores 35.0 points lower [28.1, 41.9]. "
SENTENCES = [
    (
        decision(contrast(8.1, 2)),
        "Biased to the start: evidence in the last third of documents scores 8.1 points lower than in the first [4.2, 12.0].",
    ),
    (
        decision(contrast(-8.1, 2)),
        "Biased to the end: evidence in the first third of documents scores 8.1 points lower than in the last [4.2, 12.0].",
    ),
    (decision(contrast(0.6, 1.3)), "No bias larger than 5 points: start to end +0.6 [-1.9, +3.1]."),
    (decision(contrast(2, 0.5)), "No bias larger than 5 points: start to end +2.0 [+1.0, +3.0]; there is a small one."),
    (
        decision(contrast(2.2, 3.16)),
        "Whether it is biased cannot be said.",
    ),
    (
        decision(contrast(14.1, 4.64), FIRST, 0.59, LOST),
        f"{BEYOND}Within what it reads it is biased to the start, too: +14.1 [+5.0, +23.2].",
    ),
    (
        decision(contrast(0.4, 1.63), FIRST, 0.59, LOST),
        f"{BEYOND}Within what it reads there is no bias larger than 5 points: +0.4 [-2.8, +3.6]. What a longer window would "
        "show is not known.",
    ),
    (
        decision(contrast(2.2, 8.9), FIRST, 0.59, LOST),
        f"{BEYOND}Whether it is also biased within what it reads cannot be said: +2.2 [-15.2, +19.6].",
    ),
    (
        decision(contrast(-8.1, 2), replace(FIRST, known_by=KnownBy.GIVEN), 0.59, LOST),
        f"{BEYOND}Within what it reads (tokens are estimated; `--embedder` counts them) it is biased to the end: -8.1 [-12.0, "
        "-4.2].",
    ),
    (
        decision(contrast(2.2, 8.9), FIRST, 0.59, contrast(3, 3.57)),
        "It reads the first 256 tokens; 59.0 % of the evidence lies beyond; that evidence beyond is found less often is not "
        "shown: difference +3.0 [-4.0, +10.0]. Whether it is biased within what it reads cannot be said: +2.2 [-15.2, +19.6].",
    ),
    (
        decision(contrast(0.6, 1.3), p_value=0.003, middle=contrast(-9, 3)),
        "No bias larger than 5 points: start to end +0.6 [-1.9, +3.1]. Position matters in another way (p 0.003): the middle "
        "scores 9.0 points lower than the ends [3.1, 14.9].",
    ),
    (
        decision(contrast(0.6, 1.3), p_value=0.003, middle=contrast(-2, 3)),
        "No bias larger than 5 points: start to end +0.6 [-1.9, +3.1]. Position matters in another way (p 0.003): no simple "
        "shape.",
    ),
    (
        decision(contrast(8, 2), UNKNOWN, None, bias_within_read=None),
        "Whether it is biased cannot be said: the window is unknown; `posir window MODEL` tells it.",
    ),
]


@pytest.mark.parametrize(("value", "sentence"), SENTENCES)
def test_a_decision_says_no_more_than_its_interval(value, sentence):
    assert describe_decision(value) == sentence
    assert json.loads(json.dumps(value.to_json()))["state"] == value.state
    assert [title for title, _ in iterate_answer(value)] == ["How well", "Start to end", "Not read", "Bias", "What to do"]
    assert label_state(value)
    assert advise(value).endswith(".")


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (decision(contrast(0.6, 1.3)), "Nothing"),
        (decision(contrast(0.6, 1.3), p_value=0.003, middle=contrast(-9, 3)), "curve"),
        (decision(contrast(0.6, 1.3), FIRST, 0.59, contrast(3, 3.57)), "documents"),
        (decision(contrast(0.6, 1.3), FIRST, 0.59, LOST), "chunks"),
        (decision(contrast(8.1, 2)), "chunks"),
        (decision(contrast(0.6, 1.3), ndcg_at_10=Estimate(0.013)), "ids of documents"),
        (decision(None, FIRST, None, None, start_to_end=contrast(8, 2)), "Run the model again"),
        (decision(None, replace(FIRST, part=Part.CHUNKS), None, None, start_to_end=contrast(8, 2)), "--k"),
    ],
)
def test_the_advice_says_no_more_than_the_state(value, word):
    assert word in advise(value)
    assert ("Nothing" in advise(value)) == (word == "Nothing")


def test_rows_read_together_print_the_level_of_their_intervals():
    text = describe_decision(decision(contrast(0.6, 1.3), level=0.9875))
    assert text == "No bias larger than 5 points: start to end +0.6 [-2.6, +3.8] (98.75 % interval)."


def test_margins_are_points():
    assert Margins.parse(["3", "psi=20"]) == Margins(0.02, 0.03, 0.2)
    for text in ("mrr=3", "five", "0", "-1", "nan", "100"):
        with pytest.raises(PosirError, match="KEY=POINTS"):
            Margins.parse([text])


def observe(slope, seed, documents=60, questions=12):
    """Questions in 20 bins whose gain falls with position."""
    rng = np.random.default_rng(seed)
    document = np.repeat(np.arange(documents), questions)
    bins = rng.integers(0, 20, len(document))
    chance = 0.6 - slope * (bins / 19 - 0.5) + rng.normal(0, 0.1, documents)[document]
    gains = (np.random.default_rng(seed + 100).random(len(document)) < chance).astype(float)
    rows, zeros = np.arange(len(document)), np.zeros(len(document), np.int64)
    return Observations(gains, zeros, zeros, document, document, rows, bins, 20, read=ALL)


def test_a_change_is_better_worse_or_equivalent_and_the_opposite_the_other_way_round():
    steep, flat = (GroupAnalysis(observe(slope, 1)) for slope in (0.6, 0.0))
    change, back = compare_groups(steep, flat, paired=True), compare_groups(flat, steep, paired=True)
    assert change.start_to_end.state is ChangeState.BETTER
    assert back.start_to_end.state is ChangeState.WORSE
    low, high = change.start_to_end.difference.interval_at(CHANGE_LEVEL)
    assert back.start_to_end.difference.interval_at(CHANGE_LEVEL) == pytest.approx((-high, -low))
    same = compare_groups(flat, flat, paired=True)
    assert same.ndcg_at_10.state is ChangeState.EQUIVALENT
    text = describe_metric_change("start to end", change.start_to_end, change, "A", "B")
    assert text.startswith("B is better than A in start to end: -")
    text = describe_metric_change("nDCG@10", same.ndcg_at_10, same, "A", "B")
    assert text.startswith("A and B are equivalent within 2 points in nDCG@10")


def test_a_change_of_sign_is_not_called_better():
    start, end = (GroupAnalysis(observe(slope, 2)) for slope in (0.4, -0.4))
    change = compare_groups(start, end, paired=False).start_to_end
    assert (change.state, change.reason) == (ChangeState.CANNOT_BE_SAID, Reason.OTHER_SIDE)


def test_psi_is_never_below_start_to_end():
    group = GroupAnalysis(observe(0.5, 3))
    low = group.position.start_to_end.interval[0]
    assert low > 0
    assert low <= group.psi.low <= group.psi.value <= group.psi.high
    assert group.psi_chance.low <= group.psi_chance.value < group.psi_as_published


def test_few_documents_say_nothing_of_a_change():
    a, b = (GroupAnalysis(observe(slope, 4, documents=6)) for slope in (0.0, 0.9))
    change = compare_groups(a, b, paired=True)
    assert {change.ndcg_at_10.reason, change.start_to_end.reason} == {Reason.FEW_DOCUMENTS}
    assert {change.ndcg_at_10.documents_needed, change.start_to_end.documents_needed} == {10}
    text = describe_metric_change("nDCG@10", change.ndcg_at_10, change, "A", "B")
    assert "6 documents are too few, at least 10 are needed" in text
    few = JudgedScores("topic", ("",), np.ones(6, int), np.full((len(METRICS), 6), 500_000))
    change = compare_judged(few, few)
    assert "6 topics are too few, at least 10" in describe_metric_change("nDCG@10", change.ndcg_at_10, change, "A", "B")
    assert compare_judged(replace(few, clusters="user"), few).counted == "cluster"


@pytest.mark.parametrize("size", [80, 400])
def test_the_detectable_difference_is_found_in_eight_of_ten(size):
    """SciPy's t test at the level of a change, of samples whose true mean is that difference."""
    rng = np.random.default_rng(size)
    change = compare_gains(rng.normal(0, 0.3, size), np.arange(size))
    detectable = change.ndcg_at_10.detectable(change.level)
    assert change.psi.detectable(change.level) is None
    # The standard error is estimated from the sample: at the true one, whatever the sample's.
    interval = change.ndcg_at_10.difference.interval
    scale = 0.3 / size**0.5 / ((interval[1] - interval[0]) / 2 / stats.t.ppf((1 + change.level) / 2, size - 1))
    drawn = rng.normal(scale * detectable, 0.3, (size, 4000))
    p_values = stats.ttest_1samp(drawn, 0).pvalue
    assert np.mean(p_values < 1 - change.level) == pytest.approx(0.8, abs=0.025)
