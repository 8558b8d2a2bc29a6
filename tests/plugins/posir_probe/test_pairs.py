"""Pairs of documents: content, and values against SciPy, NumPy and control embedders."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, ProbeQuestion
from posir_probe.pairs import (
    BREVITY,
    KINDS,
    LITERAL_MATCH,
    MISSING_PAIR_REASONS,
    POSITION,
    REPETITION,
    TOO_FEW_SENTENCES,
    ControlledPairs,
    ControlledPairsEffect,
    build_pairs,
    find_names,
)
from posir_probe.probe import run_probe
from posir_published.probes import read_published_curves
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from tests.support.probed_encoders import FirstWords, decaying, invent_questions

PROBE, EFFECT = ControlledPairs(), ControlledPairsEffect()
SENTENCES = (
    "The mill stands by the river.",
    "In 1901 the miller Anna Holt sold her mill to a bank.",
    "It rained.",
    "Nobody knows why.",
    "Holt left the mill by train.",
    "She died far away.",
)
TEXT = " ".join(SENTENCES)
ANSWER = Span(TEXT.index("1901"), TEXT.index("1901") + 4)
QUESTION = ProbeQuestion("When did Anna Holt sell the mill?", "mill", ANSWER)


def build_text_pairs(text, question):
    return build_pairs(text, find_sentences(text, "eng-Latn"), question)


def cosine(first, second):
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


@pytest.fixture(scope="module")
def data():
    return invent_questions(30)


def test_pairs_differ_in_one_property():
    pairs = build_text_pairs(TEXT, QUESTION)
    other_text = " ".join((SENTENCES[0], *SENTENCES[2:]))
    evidence = SENTENCES[1]
    assert pairs[POSITION].document_1 == f"{evidence} {other_text}"
    assert pairs[POSITION].document_2 == f"{other_text} {evidence}"
    assert (pairs[BREVITY].document_1, pairs[BREVITY].document_2) == (
        evidence,
        f"{evidence} {other_text}",
    )
    # The question is about Mill and Holt.
    assert pairs[REPETITION].document_1 == f"{evidence} {SENTENCES[0]} {SENTENCES[4]}"
    assert pairs[REPETITION].document_2 == f"{evidence} {SENTENCES[3]} {SENTENCES[5]}"
    assert pairs[LITERAL_MATCH].query == "When did Holt sell the mill?"
    assert pairs[LITERAL_MATCH].document_1 == evidence.replace("Anna Holt", "Holt")
    assert pairs[LITERAL_MATCH].document_2 == evidence


def test_a_full_name_in_the_question_is_inserted_into_the_evidence():
    text = TEXT.replace("Anna Holt", "Holt")
    start = text.index("1901")
    pair = build_text_pairs(
        text, ProbeQuestion("When did Anna Holt sell?", "mill", Span(start, start + 4))
    )[LITERAL_MATCH]
    assert (pair.query, pair.document_1) == (
        "When did Holt sell?",
        SENTENCES[1].replace("Anna Holt", "Holt"),
    )
    assert pair.document_2 == SENTENCES[1]


def test_sentences_with_the_answer_are_never_added():
    text = f"{TEXT} Holt sold the mill in 1901, they say."
    pair = build_text_pairs(text, QUESTION)[REPETITION]
    assert "they say" not in pair.document_1 + pair.document_2


def test_evidence_includes_all_sentences_that_overlap_it():
    start, end = TEXT.index("sold"), TEXT.index("rained")
    pair = build_text_pairs(TEXT, ProbeQuestion("When?", "mill", Span(start, end)))[BREVITY]
    assert pair.document_1 == " ".join(SENTENCES[1:3])


def test_names_are_runs_of_capitalized_words():
    assert find_names("The New York Times met Ada Lovelace, Bob in Rome") == [
        "New York Times",
        "Ada Lovelace",
    ]
    assert find_names("") == []


def test_missing_pairs_are_counted():
    short = " ".join(SENTENCES[:4])
    start = short.index("1901")
    data = ProbeData(
        {"short": short, "mill": TEXT},
        (
            ProbeQuestion("When?", "short", Span(start, start + 4)),
            ProbeQuestion("Zzz?", "mill", ANSWER),
        ),
    )
    sums = run_probe(PROBE, order_blind, data)
    assert sums.skipped == {
        TOO_FEW_SENTENCES: 1,
        MISSING_PAIR_REASONS[REPETITION]: 1,
        MISSING_PAIR_REASONS[LITERAL_MATCH]: 1,
    }
    assert dict(zip(sums.positions, sums.totals[:, 0], strict=True))["model · position"] == 1


def test_values_match_the_definition(data):
    scores = np.full((len(data.questions), len(KINDS), 2), np.nan)
    for row, question in enumerate(data.questions):
        for kind, pair in build_text_pairs(data.documents[question.document], question).items():
            query, first, second = decaying(pair).astype(float)
            scores[row, KINDS.index(kind)] = cosine(query, first), cosine(query, second)
    means, effects = run_probe(PROBE, decaying, data), run_probe(EFFECT, decaying, data)
    for index, kind in enumerate(KINDS[:3]):
        first, second = scores[~np.isnan(scores[:, index, 0]), index].T
        assert len(first) >= 20, kind
        assert means.values[index] == pytest.approx((first - second).mean(), abs=1e-6)
        assert means.details["sd"][index] == pytest.approx((first - second).std(), abs=1e-6)
        # The paper's t, divided by the square root of the sample size.
        assert effects.values[index] == pytest.approx(
            ttest_rel(first, second).statistic / np.sqrt(len(first)), rel=1e-4
        )


@pytest.mark.parametrize("probe", [PROBE, EFFECT], ids=lambda probe: probe.name)
def test_evidence_first_is_preferred_by_decaying_embedders(data, probe):
    blind, biased = (run_probe(probe, embedder, data) for embedder in (order_blind, decaying))
    estimate = blind.estimate(probe.summaries["position"])
    assert (estimate.value, estimate.low, estimate.high) == (0, 0, 0)
    assert biased.estimate(probe.summaries["position"]).low > 0
    assert biased.values[biased.positions.index("order-blind control · position")] == 0


def test_an_embedder_of_beginnings_prefers_evidence_first(data):
    assert (
        run_probe(PROBE, FirstWords(words=14), data).estimate(PROBE.summaries["position"]).low > 0.1
    )


def test_published_effects_are_t_over_the_root_of_250_pairs():
    curves = {
        curve.model.removesuffix(" on Re-DocRED"): curve.values
        for curve in read_published_curves(EFFECT.name)
    }
    assert len(curves) == 6
    assert np.array(curves["Contriever"]) * np.sqrt(250) == pytest.approx(
        [6.06, 9.46, 6.90, 13.31], abs=2e-3
    )
    assert np.array(curves["Dragon-RoBERTa"]) * np.sqrt(250) == pytest.approx(
        [18.83, 17.33, 7.98, 17.18], abs=2e-3
    )
