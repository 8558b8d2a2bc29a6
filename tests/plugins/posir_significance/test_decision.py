"""Test that states follow from the interval and the margin."""

from dataclasses import replace

import numpy as np
import pytest

from posir_significance.advice import NextStep, advise, build_commands, find_larger_task
from posir_significance.changes import compare_groups, decide_change
from posir_significance.decision import (
    Margins,
    decide,
    decide_state,
    estimate_needed_number,
)
from posir_significance.findings import (
    ChangeState,
    DataUnit,
    Metric,
    Quantity,
    Reason,
    State,
)
from posir_significance.intervals import build_student_difference
from posir_significance.messages.verdicts import NO_DOCUMENT_AT_ENDS, describe_verdict
from posir_significance.observations import Observations
from posir_tasks.base.errors import UsageError
from posir_tasks.models.command_reference import CommandReference
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.layouts import QueryLayout
from posir_tasks.values.read_part import UNKNOWN, ReadPart, WindowSource
from tests.support.rotations import READS_FIRST, build_group, build_test

#: Fields of a test with a value per row.
ROW_FIELDS = ("gains", "thirds", "versions", "unread", "questions", "clusters", "weights")


@pytest.mark.parametrize(
    ("interval", "state"),
    [
        ((0.01, 0.12), State.FAVORS_START),
        ((-0.12, -0.01), State.FAVORS_END),
        ((-0.03, 0.049), State.NO_BIAS),
        ((0.01, 0.04), State.NO_BIAS),
        ((-0.03, 0.05), State.INCONCLUSIVE),
        ((-0.2, 0.3), State.INCONCLUSIVE),
    ],
)
def test_the_state_follows_from_interval_and_margin(interval, state):
    assert decide_state(Estimate(sum(interval) / 2, interval), 0.05) is state


@pytest.mark.parametrize(
    ("group", "state", "reason"),
    [
        (build_group(reason=Reason.ORDER_BLIND), State.NO_BIAS, Reason.ORDER_BLIND),
        (build_group(reason=Reason.NOT_STORED), State.NOT_TESTED, Reason.NOT_STORED),
        (build_group(reason=Reason.NO_TEXTS), State.NOT_TESTED, Reason.NO_TEXTS),
        (build_group(whole=build_test(), read=UNKNOWN), State.NOT_TESTED, Reason.WINDOW_UNKNOWN),
        (
            build_group(whole=build_test(), read=READS_FIRST),
            State.NOT_TESTED,
            Reason.WINDOW_DIFFERS,
        ),
        (build_group(build_test(documents=9)), State.INCONCLUSIVE, Reason.FEW_DOCUMENTS),
        (build_group(build_test(level=1.5)), State.INCONCLUSIVE, Reason.NO_ROOM),
        (build_group(build_test(level=-0.5)), State.INCONCLUSIVE, Reason.NO_ROOM),
        (
            build_group(build_test(documents=12, spread=0.4, seed=4)),
            State.INCONCLUSIVE,
            Reason.WIDE_INTERVAL,
        ),
        (build_group(build_test(documents=200, spread=0.1)), State.NO_BIAS, None),
        (build_group(build_test(effect=0.3)), State.FAVORS_START, None),
        (build_group(build_test(effect=-0.3)), State.FAVORS_END, None),
    ],
)
def test_states_and_reasons(group, state, reason):
    findings = decide(group)
    assert (findings.state, findings.reason) == (state, reason)
    assert findings.to_json()["state"] == state.value


def test_an_order_blind_system_has_an_effect_of_exactly_zero():
    findings = decide(build_group(reason=Reason.ORDER_BLIND))
    assert (
        findings.verdict.estimate
        == findings[Quantity.POSITION_EFFECT].estimate
        == Estimate(0.0, (0.0, 0.0))
    )


def test_needed_sample_decides():
    test = build_test(documents=12, spread=0.4, seed=4)
    findings = decide(build_group(test))
    error = test.effect.standard_error
    assert findings.verdict.needed.unit is DataUnit.QUESTIONS
    assert findings.verdict.needed.number == pytest.approx(
        (3.2416 * error / 0.05) ** 2 * 60, rel=0.05
    )
    assert estimate_needed_number(0.01, 0.05, 0.95, 100) is None
    # The level of one of four lengths.
    assert estimate_needed_number(0.1, 0.05, 0.9875, 100) == pytest.approx(
        (3.78 * 0.1 / 0.05) ** 2 * 100, rel=0.05
    )


def test_few_documents_need_proportionally_more():
    needed = decide(build_group(build_test(documents=5))).verdict.needed
    assert (needed.unit, needed.number) == (DataUnit.DOCUMENTS, 10)


def test_published_psi_is_computed_once_on_access():
    loaded = []

    def load():
        loaded.append(1)
        return group

    group = build_group()
    findings = decide(group, load_group=load)
    assert findings.state
    assert not loaded
    estimate = group.published_psi.observed
    assert findings[Quantity.PSI_AS_PUBLISHED].estimate is estimate
    assert findings.to_json()["psi_as_published"] == (estimate and estimate.value)
    assert len(loaded) == 2  # with the one by chance


def test_state_depends_on_the_margin():
    group = build_group(build_test(documents=200, spread=0.1))
    assert decide(group, margin=0.05).state is State.NO_BIAS
    assert decide(group, margin=0.0001).state is not State.NO_BIAS


def test_observed_differences_follow_their_formula():
    rng = np.random.default_rng(1)
    gains, third, cluster = rng.random(90), rng.integers(0, 3, 90), np.repeat(np.arange(30), 3)
    zeros, rows = np.zeros(90, np.int64), np.arange(90)
    observed = Observations(gains, QueryLayout(zeros, cluster, rows, third, 3, thirds=third))
    finding = decide(replace(build_group(), observations=observed))[Quantity.START_MINUS_END]
    assert finding.state is None
    assert finding.estimate.value == pytest.approx(
        gains[third == 0].mean() - gains[third == 2].mean()
    )
    parts = np.zeros(30)
    for sign, part in ((1, 0), (-1, 2)):
        own = third == part
        np.add.at(parts, cluster[own], sign * (gains[own] - gains[own].mean()) / own.sum())
    half = 2.0452 * np.sqrt(30 / 29 * (parts**2).sum())
    assert finding.estimate.interval == pytest.approx(
        (finding.estimate.value - half, finding.estimate.value + half), abs=1e-4
    )


def compare(a, b, **fields):
    versions = {"versions": ("same",), "window_versions": ("same",)} | fields
    return compare_groups(build_group(a, **versions), build_group(b, **versions), paired=True)


def test_effect_nearer_to_zero_is_better():
    biased, even = build_test(effect=0.3, spread=0.1), build_test(effect=0.0, spread=0.1, seed=0)
    assert compare(biased, even)[Metric.POSITION_EFFECT].state is ChangeState.BETTER
    assert compare(even, biased)[Metric.POSITION_EFFECT].state is ChangeState.WORSE
    opposite = build_test(effect=-0.3, spread=0.1)
    assert compare(biased, opposite)[Metric.POSITION_EFFECT].reason is Reason.DIRECTION_UNKNOWN


def test_equal_systems_are_equivalent():
    even = build_test(documents=200, spread=0.05)
    changes = compare(even, even)
    assert {changes[metric].state for metric in (Metric.NDCG_AT_10, Metric.POSITION_EFFECT)} == {
        ChangeState.EQUIVALENT
    }


def test_two_order_blind_systems_are_equivalent_at_any_level():
    blind = build_group(reason=Reason.ORDER_BLIND)
    change = compare_groups(blind, blind, paired=True)[Metric.POSITION_EFFECT]
    assert change.estimate.compute_interval(0.99) == (0.0, 0.0)


def test_a_system_is_compared_with_an_order_blind_one():
    blind, biased = build_group(reason=Reason.ORDER_BLIND), build_group(build_test(effect=0.3))
    change = compare_groups(blind, biased, paired=True)
    assert (
        change[Metric.POSITION_EFFECT].state
        is change[Metric.POSITION_EFFECT_IN_WINDOW].state
        is ChangeState.WORSE
    )
    assert (
        compare_groups(biased, blind, paired=True)[Metric.POSITION_EFFECT].state
        is ChangeState.BETTER
    )
    assert (
        compare_groups(blind, blind, paired=True)[Metric.POSITION_EFFECT].state
        is ChangeState.EQUIVALENT
    )


def test_different_windows_and_versions_are_not_compared():
    test = build_test()
    a = build_group(test, versions=("same",), window_versions=("256",))
    b = build_group(test, versions=("same",), window_versions=("512",))
    change = compare_groups(a, b, paired=True)
    assert change[Metric.POSITION_EFFECT].state is not ChangeState.NOT_TESTED
    assert change[Metric.POSITION_EFFECT_IN_WINDOW].reason is Reason.WINDOW_DIFFERS
    other = replace(a, versions=("other",))
    assert compare_groups(a, other, paired=True)[Metric.POSITION_EFFECT].reason is Reason.OTHER_DATA
    assert compare_groups(a, b, paired=False)[Metric.POSITION_EFFECT].reason is Reason.OTHER_DATA


@pytest.mark.parametrize(
    ("value", "error", "state"),
    [
        (0.05, 0.005, ChangeState.BETTER),
        (-0.05, 0.005, ChangeState.WORSE),
        (0.0, 0.004, ChangeState.EQUIVALENT),
        (0.01, 0.02, ChangeState.INCONCLUSIVE),
    ],
)
def test_state_of_a_change_follows_from_its_interval(value, error, state):
    change = decide_change(
        Metric.NDCG_AT_10, build_student_difference(value, error, 200), 0.02, 100
    )
    assert change.state is state
    assert (change.needed is not None) == (state is ChangeState.INCONCLUSIVE)


def test_change_is_inconclusive_with_few_documents():
    change = decide_change(Metric.NDCG_AT_10, build_student_difference(0.5, 0.01, 5), 0.02, 9)
    assert (change.state, change.reason) == (ChangeState.INCONCLUSIVE, Reason.FEW_DOCUMENTS)


@pytest.mark.parametrize(
    ("group", "steps"),
    [
        (build_group(reason=Reason.ORDER_BLIND), [NextStep.NONE]),
        (build_group(build_test(documents=200, spread=0.1)), [NextStep.NONE]),
        (build_group(build_test(effect=0.3)), [NextStep.CHUNK, NextStep.TRAIN]),
        (
            build_group(build_test(effect=0.3), read=ReadPart.all(WindowSource.CHUNKS)),
            [NextStep.TRAIN],
        ),
        (build_group(reason=Reason.NOT_STORED), [NextStep.RUN_AGAIN]),
        (build_group(reason=Reason.NO_TEXTS), [NextStep.GIVE_EMBEDDER]),
        (build_group(whole=build_test(), read=UNKNOWN), [NextStep.MEASURE_WINDOW]),
        (build_group(build_test(documents=12, spread=0.4, seed=4)), [NextStep.MORE_QUESTIONS]),
        (build_group(build_test(documents=5)), [NextStep.MORE_DOCUMENTS]),
        (build_group(build_test(documents=0)), [NextStep.OTHER_DATA]),
        (build_group(reason=Reason.ONE_UNIT), [NextStep.OTHER_DATA]),
        (
            build_group(build_test(), build_test(unread=2, spread=0.05), READS_FIRST),
            [NextStep.CHUNK, NextStep.MORE_QUESTIONS],
        ),
    ],
)
def test_advice_follows_from_codes(group, steps):
    assert [advice.step for advice in advise(decide(group))] == steps


@pytest.mark.parametrize(
    ("share", "interval", "steps"),
    [
        (0.9, (-0.02, 0.30), [NextStep.CHUNK]),
        (0.9, (-0.02, 0.04), [NextStep.NONE]),
        (0.3, (-0.02, 0.30), [NextStep.NONE]),
        (0.3, (0.01, 0.30), [NextStep.CHUNK]),
        (0.0, (0.01, 0.30), [NextStep.NONE]),
    ],
)
def test_chunks_are_advised_while_a_loss_is_possible(share, interval, steps):
    findings = decide(build_group(build_test(documents=200, spread=0.1)))
    estimates = {
        Quantity.UNREAD_SHARE: Estimate(share),
        Quantity.TRUNCATION_LOSS: Estimate(sum(interval) / 2, interval),
    }
    replaced = {
        quantity: replace(findings[quantity], estimate=estimate)
        for quantity, estimate in estimates.items()
    }
    findings = replace(findings, findings={**findings.findings, **replaced})
    assert [advice.step for advice in advise(findings)] == steps


def test_commands_quote_the_users_reference():
    findings = decide(build_group(build_test(), build_test(unread=2, spread=0.05), READS_FIRST))
    commands = build_commands(
        findings, CommandReference("my model@http://127.0.0.1:8000", "PosIR-Mini")
    )
    assert commands[0] == "posir mitigate 'my model@http://127.0.0.1:8000' PosIR-Mini"
    assert build_commands(findings, CommandReference("", "PosIR-Mini")) == ()


@pytest.mark.parametrize(
    ("model", "commands"),
    [
        ("org/a", ["posir window org/a"]),
        ("./my model", ["posir window './my model'"]),
        ("hybrid(org/a,b)", ["posir run -t PosIR-Mini -m org/a b"]),
        (
            "hybrid(org/a,b+chunks(64,32))",
            ["posir run -t PosIR-Mini -m org/a 'b+chunks(64,32)'"],
        ),
        ("org/a+chunks(64)", []),
        ("org/a:colbert", []),
    ],
)
def test_window_command_is_only_for_single_models(model, commands):
    findings = decide(build_group(whole=build_test(), read=UNKNOWN))
    assert [*build_commands(findings, CommandReference(model, "PosIR-Mini"))] == commands


@pytest.mark.parametrize("model", ["hybrid(org/a,b)", "org/a+chunks(64)"])
def test_combined_models_have_no_mitigation(model):
    findings = decide(build_group(build_test(), build_test(unread=2, spread=0.05), READS_FIRST))
    commands = build_commands(findings, CommandReference(model, "PosIR-Mini"))
    assert not any("mitigate" in command for command in commands)


def test_a_larger_task_is_named_only_if_it_has_enough_questions():
    assert find_larger_task("PosIR-Mini", 500) == "PosIR-English-Nano"
    assert find_larger_task("PosIR-Mini", 5_000) == "PosIR-English"
    assert find_larger_task("PosIR-Mini", 10**6) == ""
    assert find_larger_task("PosIR-English", 5_000) == ""


def test_margins():
    assert Margins.parse(["3", "ndcg_at_10=1"]) == Margins(position_effect=0.03, ndcg_at_10=0.01)
    for wrong in ("0", "abc", "psi=10", "200"):
        with pytest.raises(UsageError, match="margin"):
            Margins.parse([wrong])


@pytest.mark.parametrize("thirds", [(0,), (1,), (0, 1)])
def test_evidence_at_one_end_has_no_needed_number(thirds):
    test = build_test(documents=72)
    kept = np.isin(test.thirds, thirds)
    rows = {name: getattr(test, name)[kept] for name in ROW_FIELDS}
    findings = decide(build_group(replace(test, **rows), documents=72))
    verdict = findings.verdict
    assert (verdict.state, verdict.reason) == (State.INCONCLUSIVE, Reason.FEW_DOCUMENTS)
    assert verdict.needed is None
    assert describe_verdict(findings) == NO_DOCUMENT_AT_ENDS
    assert not any(step.number for step in advise(findings))
