"""Segments in all orders: against the definition written plainly, with embedders whose result is known."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_probe.controls import decaying, first_words, order_blind
from posir_probe.data import ProbeData, ProbeSource, read_parallel
from posir_probe.probe import run_probe
from posir_probe.probing import ProbeRun, run_probes
from posir_probe.segments import (
    Permutation,
    PermutationParts,
    PermutedLanguages,
    SegmentSimilarity,
    cut_to_tokens,
    find_advantages,
    gini,
    relative_drop,
)
from posir_published.probes import read_published_curves
from posir_tasks.embeddings.encoding import ModelEncoder
from posir_tasks.errors import PosirError
from posir_tasks.text.tokenizer import EstimatedTokenizer
from tests.support.probed_encoders import FirstWords, invent_texts

TEXTS = invent_texts(14, 5)
LANGUAGES = ("deu-Latn", "eng-Latn", "zho-Hans")
TRANSLATED = {
    language: {f"d{number}": text for number, text in enumerate(invent_texts(31, 2, seed))}
    for seed, language in enumerate(LANGUAGES)
}
PROBE = PermutedLanguages()


def average_plainly(encode, orders):
    """Return the mean cosine by place over orders of segments."""
    cosines = []
    for order in orders:
        vectors = encode([" ".join(order), *order]).astype(np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines.append(vectors[1:] @ vectors[0])
    return np.mean(cosines, axis=0)


@pytest.mark.parametrize("encode", [decaying, first_words], ids=["decaying", "first words"])
def test_sets_of_texts_by_the_definition(encode):
    sums = run_probe(Permutation(), encode, ProbeData.from_texts(TEXTS))
    expected = [average_plainly(encode, permutations(TEXTS[at : at + 3])) for at in range(0, 12, 3)]
    np.testing.assert_allclose(sums.values, np.mean(expected, axis=0), atol=1e-6)
    assert (sums.documents, sums.skipped) == (4, {"left over from sets": 2})


def test_parts_of_a_text_by_the_definition():
    sums = run_probe(PermutationParts(), decaying, ProbeData.from_texts(TEXTS[:2]))
    thirds = [[" ".join(text.split()[at : at + 20]) for at in (0, 20, 40)] for text in TEXTS[:2]]
    expected = np.mean([average_plainly(decaying, permutations(parts)) for parts in thirds], axis=0)
    np.testing.assert_allclose(sums.values, expected, atol=1e-6)


@pytest.mark.parametrize("probe", [Permutation(), Permutation(4), PermutationParts()], ids=lambda probe: probe.name)
def test_order_makes_no_difference_to_an_order_blind_embedder(probe):
    sums = run_probe(probe, order_blind, ProbeData.from_texts(invent_texts(40, 2)))
    for name, summarize in probe.summaries.items():
        estimate = sums.estimate(summarize)
        assert (estimate.value, estimate.low, estimate.high) == (0, 0, 0), name


def test_an_embedder_that_decays_favors_the_first_place():
    sums = run_probe(Permutation(), decaying, ProbeData.from_texts(invent_texts(30, 5)))
    assert sums.values[0] > sums.values[1] > sums.values[2]
    assert all(sums.estimate(summarize).low > 0 for summarize in Permutation().summaries.values())


def test_texts_are_cut_so_that_all_segments_are_read():
    words = EstimatedTokenizer()
    window = 90
    data = replace(ProbeData.from_texts(TEXTS), tokenizer=words, room=window)
    for probe in (Permutation(), PermutationParts()):
        assert max(words.count(text) for text in probe.plan(data).documents) <= window
    assert cut_to_tokens(words, ["one two three four five six"], 2) == ["one two"]
    # Whatever is within the window has an equal share, wherever it is.
    assert np.ptp(run_probe(Permutation(), FirstWords(words=window), data).values) < 1e-6


@given(st.lists(st.floats(0.01, 1), min_size=3, max_size=6))
def test_gini_and_relative_drop_are_those_of_the_definition(means):
    total = sum(abs(first - second) for first in means for second in means if abs(first - second) >= 1e-6)
    size = len(means)
    assert gini(np.array(means)) == pytest.approx(total / (2 * size**2 * (sum(means) / size)))
    assert relative_drop(np.array(means)) == pytest.approx(1 - means[-1] / means[0], abs=1e-4)


def test_gini_and_relative_drop_of_the_published_curve_and_of_means_below_0():
    (curve,) = read_published_curves("permutation")
    assert gini(np.array(curve.values)) == pytest.approx(0.188, abs=5e-4)
    assert np.isnan(gini(np.array([0.5, -0.1, 0.2])))
    assert np.isnan(relative_drop(np.array([0.5, 0.1, -0.2])))


def build_source(languages):
    """Return a source with a subset for each language; of the last, one document is missing."""

    def read(language):
        texts = dict(TRANSLATED[language])
        if language == languages[-1]:
            del texts["d30"]
        return ProbeData(texts, revision=f"local-{language}")

    return ProbeSource("invented", {f"{name}/news": lambda language=name: read(language) for name in languages})


@pytest.fixture(scope="module")
def data():
    return read_parallel(build_source(LANGUAGES))


def test_documents_are_those_that_all_languages_have(data):
    assert set(data.translations) == set(LANGUAGES)
    assert {len(texts) for texts in data.translations.values()} == {30}
    assert data.translations["zho-Hans"]["news/d3"] == TRANSLATED["zho-Hans"]["d3"]
    assert read_parallel(build_source(LANGUAGES[:1])) is None


def test_values_of_two_languages_by_the_definition(data):
    few = replace(data, documents=dict(list(data.documents.items())[:6]))
    sums = run_probe(PROBE, decaying, few)
    values = dict(zip(sums.positions, sums.values, strict=True))
    names = list(few.documents)
    for first, rest in permutations(LANGUAGES, 2):
        orders = [
            [data.translations[rest if place else first][name] for place, name in enumerate(order)]
            for at in (0, 3)
            for order in permutations(names[at : at + 3])
        ]
        measured = [values[f"first {first}, rest {rest} · {place}"] for place in ("first", "second", "third")]
        np.testing.assert_allclose(measured, average_plainly(decaying, orders), atol=1e-6)


def test_the_places_of_one_language_are_equal_to_an_order_blind_embedder(data):
    estimate = run_probe(PROBE, order_blind, data).estimate(PROBE.summaries["second_to_last"])
    assert (estimate.value, estimate.low, estimate.high) == (0, 0, 0)
    assert run_probe(PROBE, decaying, data).estimate(PROBE.summaries["second_to_last"]).low > 0


def test_advantages_are_of_languages_and_not_of_the_first_place():
    """Values of three languages: what each language adds wherever it is, and what the first place adds."""
    worth, first_place = np.array([0.1, 0.4, 0.2]), 0.3
    values = [[worth[first] + first_place, worth[rest], worth[rest]] for first, rest in permutations(range(3), 2)]
    # Each language against the mean of the others.
    expected = [worth[at] - np.delete(worth, at).mean() for at in range(3)]
    np.testing.assert_allclose(find_advantages(np.array(values)), expected)


def test_a_run_measures_all_languages_at_once(tmp_path):
    run = ProbeRun(ModelEncoder(FirstWords()), build_source(LANGUAGES[:2]), tmp_path, 12)
    result, similarity = run_probes(run, [PROBE, SegmentSimilarity(3)])
    assert list(result.subsets) == ["all languages"]
    assert (result.sums.documents, len(result.sums.positions)) == (4, 6)
    assert list(similarity.subsets) == ["deu-Latn/news", "eng-Latn/news"]


def test_data_of_one_language_is_refused(tmp_path):
    run = ProbeRun(ModelEncoder(FirstWords()), build_source(LANGUAGES[:1]), tmp_path, 12)
    with pytest.raises(PosirError, match="several languages"):
        run_probes(run, [PROBE])
    with pytest.raises(PosirError, match="several languages"):
        run_probe(PROBE, decaying, ProbeData(TRANSLATED["eng-Latn"]))
