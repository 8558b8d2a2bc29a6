"""Evidence dilution against the definition written plainly with pandas, and embedders whose result is known."""

import random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posir_probe.controls import decaying, order_blind
from posir_probe.evidence_dilution import EvidenceDilution
from posir_probe.probe import ProbeData, ProbeQuestion, run_probe
from posir_tasks.interventions import NO_SPAN
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer

TOKENS = 20
PROBE = EvidenceDilution("short", TOKENS)
VOCABULARY = [f"w{number:03d}" for number in range(300)]


def ask(texts, seed=0):
    """Return data with three questions for each text: of words of its evidence, in each third."""
    rng = random.Random(seed)
    documents, questions = {}, []
    for number, text in enumerate(texts):
        documents[f"d{number}"] = text
        words = text.split()
        for third in range(3):
            first = rng.randrange(third * len(words) // 3, (third + 1) * len(words) // 3 - 5)
            start = len(" ".join(words[:first])) + bool(first)
            evidence = " ".join(words[first : first + 5])
            questions.append(
                ProbeQuestion(" ".join(words[first : first + 3]), f"d{number}", Span(start, start + len(evidence)))
            )
    return ProbeData(documents, tuple(questions))


@pytest.fixture(scope="module")
def data():
    rng = random.Random(3)
    return ask([" ".join(rng.choices(VOCABULARY, k=120)) for _ in range(30)])


def cosine(first, second):
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def dilution_table(data, encode):
    """Return EDI and third of each question; words of four letters are a token each in estimated tokens."""
    rows = []
    for question in data.questions:
        text = data.documents[question.document]
        tokens = EstimatedTokenizer().find_tokens([text])[0]
        pieces = [tokens[at : at + TOKENS] for at in range(0, len(tokens), TOKENS)]
        query = encode([question.text])[0].astype(np.float64)
        best = max(cosine(query, encode([text[piece[0][0] : piece[-1][1]]])[0].astype(np.float64)) for piece in pieces)
        middle = (question.span.start + question.span.end) / 2 / len(text)
        third = pd.cut([middle], [0, 1 / 3, 2 / 3, 1], labels=["first third", "middle third", "last third"])[0]
        rows.append({"edi": best - cosine(query, encode([text])[0].astype(np.float64)), "third": third})
    return pd.DataFrame(rows)


def test_by_the_definition(data):
    sums = run_probe(PROBE, decaying, data)
    values = dict(zip(sums.positions, sums.values, strict=True))
    for series, encode in (("model", decaying), ("order-blind control", order_blind)):
        table = dilution_table(data, encode)
        assert values[f"{series} · all questions"] == pytest.approx(table["edi"].mean(), abs=1e-5)
        for third, mean in table.groupby("third")["edi"].mean().items():
            assert values[f"{series} · {third}"] == pytest.approx(mean, abs=1e-5)


def test_a_document_of_one_chunk_has_no_dilution(data):
    sums = run_probe(EvidenceDilution("long", 10_000), decaying, data)
    np.testing.assert_array_equal(sums.values, 0)


def test_an_order_blind_embedder_dilutes_the_first_and_the_last_third_alike(data):
    sums = run_probe(PROBE, order_blind, data)
    difference = sums.estimate(PROBE.summaries["last_minus_first_third"])
    assert difference.low <= 0 <= difference.high
    # Short texts score higher without any effect of position.
    assert sums.estimate(PROBE.summaries["edi"]).low > 0


def test_an_embedder_that_decays_dilutes_the_end(data):
    sums = run_probe(PROBE, decaying, data)
    assert sums.estimate(PROBE.summaries["last_minus_first_third"]).low > 0
    control = sums.estimate(PROBE.summaries["order_blind_last_minus_first_third"])
    assert control.low <= 0 <= control.high


def test_questions_without_a_span_are_in_no_third(data):
    questions = tuple(ProbeQuestion(question.text, question.document, NO_SPAN) for question in data.questions)
    sums = run_probe(PROBE, decaying, ProbeData(data.documents, questions))
    counts = dict(zip(sums.positions, sums.sums[:, 0], strict=True))
    assert (counts["model · all questions"], counts["model · first third"]) == (90, 0)
    assert sums.estimate(PROBE.summaries["last_minus_first_third"]) is None


@settings(max_examples=5)
@given(st.integers(1, 29))
def test_sums_of_parts_add(data, cut):
    names = list(data.documents)
    parts = [
        ProbeData(
            {name: data.documents[name] for name in chosen},
            tuple(question for question in data.questions if question.document in chosen),
        )
        for chosen in (names[:cut], names[cut:])
    ]
    first, second = (run_probe(PROBE, decaying, part) for part in parts)
    whole = run_probe(PROBE, decaying, data)
    np.testing.assert_allclose((first + second).sums, whole.sums, atol=1e-9)
    np.testing.assert_allclose((first + second).replicates, whole.replicates, atol=1e-9)
