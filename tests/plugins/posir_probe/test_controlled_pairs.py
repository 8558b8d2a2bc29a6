"""Controlled pairs: what is in them, and the values against SciPy and plain NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from posir_probe.controlled_pairs import (
    BREVITY,
    KINDS,
    LITERAL_MATCH,
    MISSING,
    POSITION,
    REPETITION,
    TOO_FEW_SENTENCES,
    ControlledPairs,
    ControlledPairsEffect,
    ControlledPairsWins,
    DividedDocument,
    build_pairs,
    find_names,
)
from posir_probe.controls import decaying, order_blind
from posir_probe.data import ProbeData, ProbeQuestion
from posir_probe.probe import run_probe
from posir_published.probes import read_published_curves
from posir_tasks.text.spans import Span
from tests.support.probed_encoders import FirstWords, invent_texts

PROBE, EFFECT, WINS = ControlledPairs(), ControlledPairsEffect(), ControlledPairsWins()
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


def pairs_of(text, question):
    return build_pairs(DividedDocument.divide(text, "eng-Latn"), question)


def cosine(first, second):
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


@pytest.fixture(scope="module")
def data():
    """Texts of eight sentences with a question about one, whose words other sentences share."""
    documents, questions = {}, []
    for number, text in enumerate(invent_texts(30, 8)):
        sentences = text.split(". ")
        sentences[-1] = sentences[-1].rstrip(".")
        at = number % 8
        evidence = sentences[at] + "."
        asked = " ".join(evidence.split()[2:5])
        other = (at + 3) % 8
        sentences[other] += f" {asked.rstrip('.')}"
        joined = ". ".join(sentences) + "."
        start = joined.index(evidence)
        documents[f"d{number}"] = joined
        questions.append(
            ProbeQuestion(f"{asked} {sentences[(at + 5) % 8].split()[4]}", f"d{number}", Span(start, start + len(evidence)))
        )
    return ProbeData(documents, tuple(questions))


def test_what_is_in_each_pair():
    pairs = pairs_of(TEXT, QUESTION)
    rest = " ".join((SENTENCES[0], *SENTENCES[2:]))
    evidence = SENTENCES[1]
    assert pairs[POSITION].document_1 == f"{evidence} {rest}"
    assert pairs[POSITION].document_2 == f"{rest} {evidence}"
    assert (pairs[BREVITY].document_1, pairs[BREVITY].document_2) == (evidence, f"{evidence} {rest}")
    # Mill and Holt are asked about.
    assert pairs[REPETITION].document_1 == f"{evidence} {SENTENCES[0]} {SENTENCES[4]}"
    assert pairs[REPETITION].document_2 == f"{evidence} {SENTENCES[3]} {SENTENCES[5]}"
    assert pairs[LITERAL_MATCH].query == "When did Holt sell the mill?"
    assert pairs[LITERAL_MATCH].document_1 == evidence.replace("Anna Holt", "Holt")
    assert pairs[LITERAL_MATCH].document_2 == evidence


def test_a_long_name_of_the_question_alone_is_put_into_the_evidence():
    text = TEXT.replace("Anna Holt", "Holt")
    start = text.index("1901")
    pair = pairs_of(text, ProbeQuestion("When did Anna Holt sell?", "mill", Span(start, start + 4)))[LITERAL_MATCH]
    assert (pair.query, pair.document_1) == ("When did Holt sell?", SENTENCES[1].replace("Anna Holt", "Holt"))
    assert pair.document_2 == SENTENCES[1]


def test_sentences_with_the_answer_are_never_added():
    text = f"{TEXT} Holt sold the mill in 1901, they say."
    pair = pairs_of(text, QUESTION)[REPETITION]
    assert "they say" not in pair.document_1 + pair.document_2


def test_evidence_across_sentences_is_all_of_them():
    start, end = TEXT.index("sold"), TEXT.index("rained")
    pair = pairs_of(TEXT, ProbeQuestion("When?", "mill", Span(start, end)))[BREVITY]
    assert pair.document_1 == " ".join(SENTENCES[1:3])


def test_names_are_runs_of_capitalized_words():
    assert find_names("The New York Times met Ada Lovelace, Bob in Rome") == ["New York Times", "Ada Lovelace"]
    assert find_names("") == []


def test_what_has_no_pair_is_counted():
    short = " ".join(SENTENCES[:4])
    start = short.index("1901")
    data = ProbeData(
        {"short": short, "mill": TEXT},
        (ProbeQuestion("When?", "short", Span(start, start + 4)), ProbeQuestion("Zzz?", "mill", ANSWER)),
    )
    sums = run_probe(PROBE, order_blind, data)
    assert sums.skipped == {TOO_FEW_SENTENCES: 1, MISSING[REPETITION]: 1, MISSING[LITERAL_MATCH]: 1}
    assert dict(zip(sums.positions, sums.sums[:, 0], strict=True))["model · position"] == 1


def measure_plainly(data, encode):
    """Return the scores of both documents of each pair by kind, one row per question; NaN where there is none."""
    scores = np.full((len(data.questions), len(KINDS), 2), np.nan)
    for row, question in enumerate(data.questions):
        for kind, pair in pairs_of(data.documents[question.document], question).items():
            query, first, second = (
                encode([text])[0].astype(np.float64) for text in (pair.query, pair.document_1, pair.document_2)
            )
            scores[row, KINDS.index(kind)] = cosine(query, first), cosine(query, second)
    return scores


def test_values_are_those_of_the_definition(data):
    scores = measure_plainly(data, decaying)
    first, second = scores[..., 0], scores[..., 1]
    means = run_probe(PROBE, decaying, data)
    effects = run_probe(EFFECT, decaying, data)
    wins = run_probe(WINS, decaying, data)
    for at, kind in enumerate(KINDS[:3]):
        here = ~np.isnan(first[:, at])
        assert here.sum() >= 20, kind
        difference = first[here, at] - second[here, at]
        assert means.values[at] == pytest.approx(difference.mean(), abs=1e-6)
        assert means.details["sd"][at] == pytest.approx(difference.std(), abs=1e-6)
        # The paper's t, without the size of the sample.
        t = ttest_rel(first[here, at], second[here, at]).statistic
        assert effects.values[at] == pytest.approx(t / np.sqrt(here.sum()), rel=1e-4)
        assert wins.values[at] == pytest.approx((difference > 0).mean())


def test_the_place_of_evidence_makes_no_difference_to_an_order_blind_embedder(data):
    for probe, neutral in ((PROBE, 0), (EFFECT, 0), (WINS, 0.5)):
        estimate = run_probe(probe, order_blind, data).estimate(probe.summaries["position"])
        assert (estimate.value, estimate.low, estimate.high) == (neutral,) * 3


def test_an_embedder_that_decays_prefers_evidence_first_and_the_control_stays(data):
    for probe, neutral in ((PROBE, 0), (EFFECT, 0), (WINS, 0.5)):
        sums = run_probe(probe, decaying, data)
        assert sums.estimate(probe.summaries["position"]).low > neutral
        assert sums.estimate(probe.summaries["order_blind_position"]).value == neutral


def test_a_model_that_reads_the_beginning_alone_finds_evidence_at_the_start_only(data):
    assert run_probe(WINS, FirstWords(words=14), data).values[0] > 0.9


@settings(max_examples=5)
@given(st.integers(1, 29))
def test_sums_of_parts_add(data, cut):
    names = list(data.documents)
    for probe in (PROBE, EFFECT, WINS):
        first, second = (
            run_probe(
                probe,
                decaying,
                ProbeData(
                    {name: data.documents[name] for name in chosen},
                    tuple(question for question in data.questions if question.document in chosen),
                ),
            )
            for chosen in (names[:cut], names[cut:])
        )
        whole = run_probe(probe, decaying, data)
        together = first + second
        np.testing.assert_allclose(together.sums, whole.sums, atol=1e-9)
        np.testing.assert_allclose(together.replicates, whole.replicates, atol=1e-9)
        np.testing.assert_allclose(together.values, whole.values, atol=1e-9)


def test_published_effects_are_t_over_the_root_of_250_pairs():
    curves = {curve.model.removesuffix(" on Re-DocRED"): curve.values for curve in read_published_curves(EFFECT.name)}
    assert len(curves) == 6
    assert np.array(curves["Contriever"]) * np.sqrt(250) == pytest.approx([6.06, 9.46, 6.90, 13.31], abs=2e-3)
    assert np.array(curves["Dragon-RoBERTa"]) * np.sqrt(250) == pytest.approx([18.83, 17.33, 7.98, 17.18], abs=2e-3)
