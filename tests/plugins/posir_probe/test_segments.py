"""Segments in all orders against the definition, with control embedders."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, truncate_texts
from posir_probe.probe import run_probe
from posir_probe.segments import Permutation, PermutationParts, compute_gini, compute_relative_drop
from posir_published.probes import read_published_curves
from posir_tasks.text.tokenizer import EstimatedTokenizer
from tests.support.probed_encoders import FirstWords, decaying, first_words, invent_texts

TEXTS = invent_texts(14, 5)


def average_by_definition(encode, orders):
    cosines = []
    for order in orders:
        vectors = encode([" ".join(order), *order]).astype(np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines.append(vectors[1:] @ vectors[0])
    return np.mean(cosines, axis=0)


@pytest.mark.parametrize("encode", [decaying, first_words], ids=["decaying", "first words"])
def test_sets_of_texts_match_the_definition(encode):
    sums = run_probe(Permutation(), encode, ProbeData.from_texts(TEXTS))
    expected = [
        average_by_definition(encode, permutations(TEXTS[at : at + 3])) for at in range(0, 12, 3)
    ]
    np.testing.assert_allclose(sums.values, np.mean(expected, axis=0), atol=1e-6)
    assert (sums.documents, sums.skipped) == (4, {"left over from sets": 2})


def test_parts_of_a_text_match_the_definition():
    sums = run_probe(PermutationParts(), decaying, ProbeData.from_texts(TEXTS[:2]))
    thirds = [[" ".join(text.split()[at : at + 20]) for at in (0, 20, 40)] for text in TEXTS[:2]]
    expected = np.mean(
        [average_by_definition(decaying, permutations(parts)) for parts in thirds], axis=0
    )
    np.testing.assert_allclose(sums.values, expected, atol=1e-6)


@pytest.mark.parametrize(
    "probe",
    [Permutation(), PermutationParts()],
    ids=lambda probe: probe.name,
)
def test_order_does_not_affect_an_order_blind_embedder(probe):
    sums = run_probe(probe, order_blind, ProbeData.from_texts(invent_texts(40, 2)))
    first, last = (sums.estimate(probe.summaries[name]).value for name in ("first", "last"))
    assert first == pytest.approx(last, abs=1e-6)
    for name, summarize in probe.summaries.items():
        if name in ("first", "last"):
            continue
        estimate = sums.estimate(summarize)
        assert (estimate.value, estimate.low, estimate.high) == (0, 0, 0), name


def test_a_decaying_embedder_favors_the_first_position():
    sums = run_probe(Permutation(), decaying, ProbeData.from_texts(invent_texts(30, 5)))
    assert sums.values[0] > sums.values[1] > sums.values[2]
    assert all(sums.estimate(summarize).low > 0 for summarize in Permutation().summaries.values())


def test_texts_are_cut_so_that_all_segments_are_read():
    words = EstimatedTokenizer()
    window = 90
    data = replace(ProbeData.from_texts(TEXTS), tokenizer=words, room=window)
    for probe in (Permutation(), PermutationParts()):
        assert max(words.count(text) for text in probe.plan(data).documents) <= window
    assert truncate_texts(words, ["one two three four five six", "a b"], 2) == ["one two", "a b"]
    # Every position within the window has an equal share.
    assert np.ptp(run_probe(Permutation(), FirstWords(words=window), data).values) < 1e-6


@given(st.lists(st.floats(0.01, 1), min_size=3, max_size=6))
def test_gini_and_relative_drop_match_the_definition(means):
    total = sum(
        abs(first - second) for first in means for second in means if abs(first - second) >= 1e-6
    )
    size = len(means)
    assert compute_gini(np.array(means)) == pytest.approx(
        total / (2 * size**2 * (sum(means) / size))
    )
    assert compute_relative_drop(np.array(means)) == pytest.approx(
        1 - means[-1] / means[0], abs=1e-4
    )


def test_gini_matches_the_published_value_and_needs_positive_means():
    (curve,) = read_published_curves("permutation")
    assert compute_gini(np.array(curve.values)) == pytest.approx(0.188, abs=5e-4)
    assert np.isnan(compute_gini(np.array([0.5, -0.1, 0.2])))
    assert np.isnan(compute_relative_drop(np.array([0.5, 0.1, -0.2])))
