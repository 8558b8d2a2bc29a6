"""Segments of two languages in all orders, against the definition written plainly."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from posir_probe.controls import decaying, order_blind
from posir_probe.data import ProbeData, ProbeSource, SourceSubset, SubsetData, read_parallel
from posir_probe.permutation import PermutedLanguages, find_advantages
from posir_probe.probe import run_probe
from posir_probe.probing import ProbeRun, run_probes
from posir_probe.segment_similarity import SegmentSimilarity
from posir_tasks.embeddings.encoding import ModelEncoder
from posir_tasks.errors import PosirError
from tests.support.probed_encoders import FirstWords, invent_texts

LANGUAGES = ("deu-Latn", "eng-Latn", "zho-Hans")
PROBE = PermutedLanguages()


def write_texts(seed):
    return {f"d{number}": text for number, text in enumerate(invent_texts(16, 4, seed))}


TEXTS = {language: write_texts(seed) for seed, language in enumerate(LANGUAGES)}


def build_source(languages):
    """Return a source with a subset for each language; of the last, one document is missing."""

    def read(language):
        texts = dict(TEXTS[language])
        if language == languages[-1]:
            del texts["d15"]
        return SubsetData(f"local-{language}", ProbeData(texts))

    subsets = (SourceSubset(f"{language}/news", lambda language=language: read(language)) for language in languages)
    return ProbeSource("invented", tuple(subsets))


@pytest.fixture(scope="module")
def data():
    return read_parallel(build_source(LANGUAGES)).data


def test_documents_are_those_that_all_languages_have(data):
    assert set(data.translations) == set(LANGUAGES)
    assert {len(texts) for texts in data.translations.values()} == {15}
    assert data.translations["zho-Hans"]["news/d3"] == TEXTS["zho-Hans"]["d3"]
    assert read_parallel(build_source(LANGUAGES[:1])) is None


def test_values_by_the_definition(data):
    sums = run_probe(PROBE, decaying, data)
    values = dict(zip(sums.positions, sums.values, strict=True))
    names = list(data.documents)
    for first, rest in permutations(LANGUAGES, 2):
        cosines = []
        for at in range(0, 15, 3):
            for order in permutations(names[at : at + 3]):
                segments = [data.translations[rest if place else first][name] for place, name in enumerate(order)]
                vectors = decaying([" ".join(segments), *segments]).astype(np.float64)
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
                cosines.append(vectors[1:] @ vectors[0])
        expected = np.mean(cosines, axis=0)
        measured = [values[f"first {first}, rest {rest} · {place}"] for place in ("first", "second", "third")]
        np.testing.assert_allclose(measured, expected, atol=1e-6)


def test_the_places_of_one_language_are_equal_to_an_order_blind_embedder(data):
    estimate = run_probe(PROBE, order_blind, data).estimate(PROBE.summaries["second_to_last"])
    assert (estimate.value, estimate.low, estimate.high) == (0, 0, 0)
    assert run_probe(PROBE, decaying, data).estimate(PROBE.summaries["second_to_last"]).low > 0


def test_advantages_are_of_languages_and_not_of_the_first_place():
    """Values of three languages: what each language adds wherever it is, and what the first place adds."""
    worth, first_place = np.array([0.1, 0.4, 0.2]), 0.3
    values = [[worth[first] + first_place, worth[rest], worth[rest]] for first, rest in permutations(range(3), 2)]
    measured = find_advantages(np.array(values).ravel(), 3)
    # Each language against the mean of the others.
    np.testing.assert_allclose(measured, [worth[at] - np.delete(worth, at).mean() for at in range(3)])


def test_sums_of_parts_add(data):
    names = list(data.documents)
    parts = [
        run_probe(PROBE, decaying, replace(data, documents={name: data.documents[name] for name in chosen}))
        for chosen in (names[:6], names[6:])
    ]
    whole = run_probe(PROBE, decaying, data)
    np.testing.assert_allclose((parts[0] + parts[1]).sums, whole.sums)
    np.testing.assert_allclose((parts[0] + parts[1]).replicates, whole.replicates)


def test_a_run_measures_all_languages_at_once(tmp_path):
    encoder = ModelEncoder(FirstWords())
    run = ProbeRun(encoder, build_source(LANGUAGES[:2]), tmp_path, 12)
    result, similarity = run_probes(run, [PROBE, SegmentSimilarity(3)])
    assert list(result.subsets) == ["all languages"]
    assert (result.sums.documents, len(result.sums.positions)) == (4, 6)
    assert list(similarity.subsets) == ["deu-Latn/news", "eng-Latn/news"]


def test_data_of_one_language_is_refused(tmp_path):
    run = ProbeRun(ModelEncoder(FirstWords()), build_source(LANGUAGES[:1]), tmp_path, 12)
    with pytest.raises(PosirError, match="no documents in several languages"):
        run_probes(run, [PROBE])
    with pytest.raises(PosirError, match="no documents in several languages"):
        run_probe(PROBE, decaying, ProbeData(TEXTS["eng-Latn"]))
