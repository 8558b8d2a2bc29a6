"""Test that every state has a sentence. English is only asserted here."""

import re
import shlex
from collections import Counter

import pytest

from posir_significance.changes import compare_groups
from posir_significance.decision import decide
from posir_significance.findings import (
    POSITION_METRICS,
    ChangeRow,
    ChangeState,
    ChangeSubject,
    DataUnit,
    Metric,
    Prediction,
    Quantity,
    Reason,
    RequiredData,
    State,
)
from posir_significance.messages.board import (
    caption_model,
    count_task_states,
    describe_best,
    describe_ends,
    describe_lead,
    describe_several_spans,
)
from posir_significance.messages.comparisons import (
    INCONCLUSIVE_CHANGES,
    describe_change,
    group_by_state,
    select_title_metrics,
    title_changes,
    title_models,
)
from posir_significance.messages.probes import (
    describe_mmteb,
    describe_predictions,
    describe_probe_sample,
    describe_truncated_tokens,
    describe_values,
    label_prediction,
)
from posir_significance.messages.verdicts import (
    UNTESTED,
    capitalize,
    describe_advice,
    describe_group,
    describe_models,
    describe_observed,
    iterate_answer,
    label_state,
    list_facts,
    list_steps,
    write_predicate,
)
from posir_tasks.command.commands import check_words
from posir_tasks.display.labels import join_steps
from posir_tasks.values.estimates import Difference, Estimate
from posir_tasks.values.read_part import UNKNOWN
from tests.support.rotations import READS_FIRST, build_group, build_test

GROUPS = {
    "order blind": build_group(reason=Reason.ORDER_BLIND),
    "few documents": build_group(build_test(documents=5)),
    "found": build_group(build_test(level=1.5)),
    "open": build_group(build_test(documents=12, spread=0.4, seed=4)),
    "no bias": build_group(build_test(documents=200, spread=0.1)),
    "start": build_group(build_test(effect=0.3)),
    "end": build_group(build_test(effect=-0.3)),
    "truncated": build_group(
        build_test(documents=200, spread=0.1), build_test(unread=2, spread=0.05), READS_FIRST
    ),
    **{
        reason.value: build_group(reason=reason)
        for reason in Reason
        if reason in UNTESTED and reason is not Reason.OTHER_DATA
    },
    "unknown": build_group(whole=build_test(), read=UNKNOWN),
}
BRACKETS = re.compile(r"[{}]|None|nan")


@pytest.mark.parametrize("name", GROUPS)
def test_every_verdict_has_a_sentence(name):
    findings = decide(GROUPS[name])
    texts = [
        describe_group(findings),
        describe_observed(findings),
        describe_advice(findings, "PosIR-Mini"),
        label_state(findings),
        write_predicate(findings),
        *dict(iterate_answer(findings, "PosIR-Mini")).values(),
        *(fact.value or fact.state for fact in list_facts(findings)),
        *list_steps(findings),
    ]
    assert all(texts)
    assert not any(BRACKETS.search(text) for text in texts)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("order blind", r"No position bias: word order plays no part in its scores\."),
        (
            "start",
            r"Favors the start \(primacy bias\): the same evidence scores [\d.]+ points higher in "
            r"the first third",
        ),
        (
            "end",
            r"Favors the end \(recency bias\): the same evidence scores [\d.]+ points lower in "
            r"the first third",
        ),
        ("no bias", r"no bias above 5 points"),
        (
            "open",
            r"Inconclusive: at most [\d.]+ points toward the start, at most [\d.]+ toward the "
            r"end\. About",
        ),
        (
            "truncated",
            r"Reads the first 256 tokens\. The same evidence scores [\d.]+ points lower where it "
            r"is truncated \[",
        ),
        (
            "no_texts",
            r"Not tested\. A run file has ranks only\. "
            r"`posir score RUN --data DATA --embedder MODEL` tests it\.",
        ),
        ("unknown", r"Not tested\. The window is unknown\."),
        ("found", r"Inconclusive: nearly all or nearly no evidence is found, wherever it is"),
    ],
)
def test_verdicts_use_the_specified_words(name, pattern):
    assert re.search(pattern, describe_group(decide(GROUPS[name])))


def test_an_answer_contains_each_next_step():
    findings = decide(GROUPS["start"])
    steps = list_steps(findings)
    assert dict(iterate_answer(findings))["Next"] == join_steps(steps)
    assert steps[0] == "Search in chunks that fit the window"


def test_the_observed_difference_is_a_description():
    assert "These are different questions" in describe_observed(decide(GROUPS["start"]))


def test_every_possible_change_has_a_sentence():
    difference = Difference(0.03, (0.01, 0.05))
    reasons = {state: [None] for state in ChangeState}
    reasons[ChangeState.INCONCLUSIVE] = [Reason.WIDE_INTERVAL, *INCONCLUSIVE_CHANGES]
    reasons[ChangeState.NOT_TESTED] = list(UNTESTED)
    pairs = [(state, reason) for state, listed in reasons.items() for reason in listed]
    for state, reason in pairs:
        needed = RequiredData(120, DataUnit.QUESTIONS) if reason is Reason.WIDE_INTERVAL else None
        for metric in Metric:
            change = ChangeRow(metric, state, 0.05, difference, reason, needed)
            text = describe_change(change, "org/a", "org/b")
            first_word = text.split()[0]
            assert first_word in ("org/a", "org/b") or not first_word.islower()
            assert "NDCG" not in capitalize(text)
            assert text.endswith(".")
            assert not BRACKETS.search(text)


def test_commands_in_messages_have_their_required_options():
    commands = re.findall(r"`posir ([^`]+)`", " ".join(UNTESTED.values()))
    assert commands
    for command in commands:
        check_words(shlex.split(command))


def test_changes_of_comparisons_have_a_template():
    groups = list(GROUPS.values())
    for a in groups:
        for b in groups:
            for change in compare_groups(a, b, paired=True).values():
                assert describe_change(change, "A", "B")


def test_a_title_names_the_model_that_truncates():
    rows = [("bm25", decide(GROUPS["order blind"])), ("minilm", decide(GROUPS["truncated"]))]
    assert "".join(describe_models(rows)) == (
        "minilm truncates 20% of the evidence; within its window no bias above 5 points"
    )


def test_systems_are_grouped_by_the_state_of_their_change():
    states = {"one": ChangeState.BETTER, "two": ChangeState.WORSE, "four": ChangeState.BETTER}
    changes = {name: ChangeRow(Metric.NDCG_AT_10, state, 0.02) for name, state in states.items()}
    changes["three"] = ChangeRow(Metric.NDCG_AT_10, ChangeState.EQUIVALENT, 0.02)
    assert group_by_state("nDCG@10", changes) == (
        "nDCG@10: better with one, four; worse with two; equivalent within 2 points with three."
    )


def _make_changes(states: str, model: str = "B") -> list[ChangeRow]:
    """Build a change per position metric, with the state given by its first letter."""
    letters = {state.value[0]: state for state in ChangeState}
    subject = ChangeSubject(baseline="A", model=model)
    difference = Difference(0.03, (0.01, 0.05))
    return [
        ChangeRow(metric, letters[letter], 0.05, difference, subject=subject)
        for metric, letter in zip(POSITION_METRICS, states, strict=True)
    ]


@pytest.mark.parametrize(
    ("states", "metrics"),
    [
        ("iiw", [Metric.POSITION_EFFECT_IN_WINDOW]),
        ("ibw", [Metric.POSITION_EFFECT_IN_WINDOW]),
        ("ibi", [Metric.POSITION_EFFECT]),
        ("eib", [Metric.POSITION_EFFECT_IN_WINDOW]),
        ("bbw", [Metric.NDCG_AT_10, Metric.POSITION_EFFECT_IN_WINDOW]),
        ("wbe", [Metric.NDCG_AT_10]),
        ("ewi", [Metric.POSITION_EFFECT]),
        ("bie", [Metric.NDCG_AT_10]),
        ("iie", [Metric.NDCG_AT_10, Metric.POSITION_EFFECT_IN_WINDOW]),
        ("inn", [Metric.NDCG_AT_10]),
    ],
)
def test_title_names_the_decided_metrics(states, metrics):
    assert select_title_metrics(_make_changes(states)) == metrics


def test_the_title_of_one_model_has_the_state_of_each_decided_metric():
    assert title_changes(_make_changes("iiw")).startswith(
        "B is worse than A in position effect within the window"
    )
    both = title_changes(_make_changes("bbw"))
    assert both.startswith("B scores 3.0 points higher than A")
    assert "; worse in position effect within the window: +3.0" in both
    assert title_changes(_make_changes("inn")) == "nDCG@10 of B and A: inconclusive"


def test_the_title_of_several_models_counts_the_states_of_each_decided_metric():
    one_decided = _make_changes("iiw") + _make_changes("iii", "C")
    title = title_models(one_decided, "A", 2)
    assert title == (
        "2 models against A in position effect within the window: 1 worse, 1 inconclusive"
    )
    both_decided = _make_changes("iiw") + _make_changes("bii", "C")
    assert select_title_metrics(both_decided) == [
        Metric.NDCG_AT_10,
        Metric.POSITION_EFFECT_IN_WINDOW,
    ]


# Sentences about the leaderboard.


@pytest.mark.parametrize(
    ("names", "paired", "words"),
    [
        (["a"], True, "a finds evidence best on X: nDCG@10 52.0"),
        (["a"], False, "a scores highest on X: nDCG@10 52.0"),
        (["a", "b"], True, "a and b cannot be told apart on X: nDCG@10 50.0 to 52.0"),
        (["a", "b", "c"], True, "a and 2 others cannot be told apart on X: nDCG@10 50.0 to 52.0"),
    ],
)
def test_a_heading_names_the_best_model(names, paired, words):
    lowest, best = Estimate(0.5), Estimate(0.52)
    assert describe_best(names, lowest, best, "on X", paired=paired) == words


@pytest.mark.parametrize(
    ("lead", "state", "published", "words"),
    [
        (Estimate(0.02), None, True, ". "),
        (Estimate(0.02), None, False, " (no interval: other queries or few documents). "),
        (Estimate(0.02, (-0.01, 0.05)), ChangeState.INCONCLUSIVE, False, " [-1.0,\xa0+5.0]. "),
        (
            Estimate(0.02, (0.001, 0.019)),
            ChangeState.EQUIVALENT,
            False,
            " [+0.1,\xa0+1.9] (equivalent within 2 points). ",
        ),
    ],
)
def test_a_lead_has_its_interval_and_state(lead, state, published, words):
    text = describe_lead("a", "b", lead, state, published=published, margin=0.02)
    assert text == f"a is 2.0 points ahead of b{words}"


def test_ends_need_intervals_that_exclude_0():
    rows = [("a", Estimate(0.3, (-0.1, 0.7))), ("b", Estimate(0.2)), ("c", Estimate(-0.1))]
    assert describe_ends(rows) == (
        "Evidence at the start scores 20.0 points higher than at the end with b. "
        "Evidence at the start scores 10.0 points lower than at the end with c. "
    )
    assert describe_ends(rows[:1]) == ""


def test_states_of_an_average_are_counted():
    states = [State.INCONCLUSIVE, State.FAVORS_START, State.FAVORS_START]
    text = count_task_states(states, 0.05)
    assert text == "favors the start in 2, inconclusive in 1 of 3"
    assert count_task_states([State.NOT_TESTED] * 2, 0.05) == "not tested"


def test_queries_with_several_spans_are_described():
    places = {"queries": 2, "ndcg_at_10": 0.5, "start_minus_end": 0.1, "left_out": 1_000}
    text = describe_several_spans(places)
    assert text.startswith("2 queries with several evidence spans")
    assert text.endswith("nDCG@10 is 50.0, start minus end +10.0; 1,000 more have too many spans.")


def test_a_caption_has_a_line_for_each_estimate():
    estimates = {Quantity.NDCG_AT_10: Estimate(0.5, (0.4, 0.6)), Quantity.POSITION_EFFECT: None}
    lines = ["nDCG@10 50.0 [40.0, 60.0]", "Bias within the window: inconclusive"]
    assert caption_model(estimates, "inconclusive") == lines
    assert caption_model(estimates, "") == lines[:1]


PREDICTED = Counter({Prediction.PREDICTS: 2})
MIXED = Counter({Prediction.PREDICTS: 1, Prediction.OPPOSITE: 1})
OPEN = Counter({Prediction.INCONCLUSIVE: 2})


def test_predictions_are_grouped_by_verdict():
    verdicts = {"mirror": PREDICTED, "moving": MIXED, "tenths": OPEN}
    text = describe_predictions("PSI", ["A", "B"], verdicts)
    assert text == (
        "Shown to predict PSI on A, B: mirror, moving (1 of 2). With the opposite sign: moving (1 "
        "of 2). Inconclusive: tenths."
    )
    none = describe_predictions("PSI", ["A"], {"tenths": OPEN})
    assert none == "Shown to predict PSI on A: no probe. Inconclusive: tenths."
    assert {label_prediction(verdict) for verdict in Prediction} == {
        "predicts it",
        "predicts the opposite",
        "inconclusive",
    }


def test_probe_samples_and_values_are_described():
    values = [("First third", "0.5 [0.4, 0.6]", ""), ("nDCG@10", "50.2", "points")]
    described = describe_values("Title", values)
    assert described == "Title: first third 0.5 [0.4, 0.6]; nDCG@10 50.2 points"
    assert describe_values("Title", []) == "Title"
    whole = describe_probe_sample(10, 0, "words", "seed 1", None)
    assert whole == "10 documents of words, drawn at random (seed 1)."
    part = describe_probe_sample(10, 72, "words", "seed 1", 512)
    assert part == "10 of 72 documents of words, drawn at random (seed 1), median 512 tokens."
    truncated = describe_truncated_tokens(0.5, 256, 0, 10)
    assert truncated.startswith("50% of the tokens are truncated: the window is 256 tokens")


def test_published_results_are_described():
    order = describe_mmteb({"Q1": 0.73, "Q4": 0.39}, 10, ["Q1"], 0.05)
    assert "0.73 in Q1, 0.39 in Q4. With 10 models" in order
    assert "only in Q1 (corrected p < 0.05)" in order
