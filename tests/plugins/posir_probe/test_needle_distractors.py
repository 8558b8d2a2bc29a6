"""Needles with distractors against the definition written plainly, and embedders whose result is known."""

import random
from dataclasses import replace

import numpy as np
import pytest
from mteb.models import ModelMeta

from posir_probe.api import probe
from posir_probe.controls import decaying, first_words, order_blind
from posir_probe.data import Needle, ProbeData, ProbeSource, SourceSubset, SubsetData
from posir_probe.needle_distractors import (
    NEAR_MISSES,
    NeedleDistractors,
    NeedleDistractorsWins,
    NeedleWriter,
    build_documents,
    place_sentences,
)
from posir_probe.probe import run_probe
from posir_probe.probing import ProbeRun, run_probes
from posir_tasks.embeddings.encoding import ModelEncoder
from posir_tasks.errors import PosirError
from posir_tasks.language_models.other_words import find_stems
from tests.support.probed_encoders import FirstWords

PROBE = NeedleDistractors()
WORDS = [f"{first}{second}{third}le" for first in "bdfgklmn" for second in "aeiou" for third in "mnprst"]


def write_sentence(rng: random.Random, words=WORDS) -> str:
    return " ".join(rng.sample(words, 6)).capitalize() + "."


@pytest.fixture(scope="module")
def data() -> ProbeData:
    """Documents of eight sentences; the question has words of the needle, so that the direction is known."""
    rng = random.Random(1)
    documents, needles = {}, []
    for number in range(25):
        sentences = [write_sentence(rng) for _ in range(8)]
        documents[f"d{number}"] = " ".join(sentences)
        near_misses = tuple(write_sentence(rng) for _ in range(5))
        needles.append(Needle(f"d{number}", sentences[2][:-7], sentences[2], (*sentences[:2], *sentences[3:]), near_misses))
    return ProbeData(documents, needles=tuple(needles))


def cosine(first, second) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def expected(data: ProbeData, encode) -> np.ndarray:
    """Return the differences, shape (needles, 2, 5); seven other sentences: places before 0, 2, 4, 5 and 7."""
    rows = []
    for needle in data.needles:
        for distracted in (False, True):
            for place in range(5):
                scores = []
                for sentence in (needle.sentence, needle.near_misses[0]):
                    others = iter(needle.near_misses[1:])
                    text = []
                    for index in range(8):
                        for number, before in enumerate([0, 2, 4, 5, 7]):
                            if before == index and number == place:
                                text.append(sentence)
                            elif before == index and distracted:
                                text.append(next(others))
                        text += needle.rest[index : index + 1]
                    query, document = encode([needle.question])[0], encode([" ".join(text)])[0]
                    scores.append(cosine(query.astype(float), document.astype(float)))
                rows.append(scores[0] - scores[1])
    return np.array(rows).reshape(len(data.needles), 2, 5)


def test_by_the_definition(data):
    differences = expected(data, decaying)
    sums = run_probe(PROBE, decaying, data)
    np.testing.assert_allclose(sums.values, differences.mean(axis=0).ravel(), atol=1e-6)
    shares = np.where(np.abs(differences) < 1e-6, 0.5, differences > 0)
    np.testing.assert_allclose(run_probe(NeedleDistractorsWins(), decaying, data).values, shares.mean(axis=0).ravel())
    named = {name: float(sums.estimate(summary).value) for name, summary in PROBE.summaries.items()}
    means = differences.mean(axis=0)
    assert named == pytest.approx(
        {
            "start_to_end": means[1, 0] - means[1, 4],
            "start_to_end_without": means[0, 0] - means[0, 4],
            "mean": means[1].mean(),
            "mean_without": means[0].mean(),
            "cost_of_distractors": means[0].mean() - means[1].mean(),
        },
        abs=1e-6,
    )


def test_an_order_blind_embedder_has_the_same_value_at_every_place(data):
    sums = run_probe(PROBE, order_blind, data)
    for name in ("start_to_end", "start_to_end_without"):
        estimate = sums.estimate(PROBE.summaries[name])
        assert estimate.value == pytest.approx(0, abs=1e-6)
        assert estimate.low <= 1e-6
        assert estimate.high >= -1e-6
    assert sums.estimate(PROBE.summaries["mean"]).low > 0


def test_an_embedder_that_decays_finds_the_needle_at_the_start(data):
    assert run_probe(PROBE, decaying, data).estimate(PROBE.summaries["start_to_end"]).low > 0
    long = ProbeData(data.documents, needles=tuple(_lengthen(needle) for needle in data.needles))
    values = run_probe(PROBE, first_words, long).values
    assert values[0] > 0
    # Past the window of 128 words both documents are the same.
    np.testing.assert_array_equal(values[4], 0)


def _lengthen(needle: Needle) -> Needle:
    return Needle(needle.document, needle.question, needle.sentence, needle.rest * 5, needle.near_misses)


def test_sums_of_blocks_add_to_the_sums_of_all(data):
    first, *others = [run_probe(PROBE, decaying, block) for block in data.blocks(10)]
    total = sum(others, first)
    whole = run_probe(PROBE, decaying, data)
    np.testing.assert_allclose(total.sums, whole.sums)
    np.testing.assert_allclose(total.replicates, whole.replicates)


def test_places_and_order_of_distractors():
    assert place_sentences(["a", "b", "c", "d"], {0: "0", 2: "2", 4: "4"}) == "0 a b 2 c d 4"
    needle = Needle("d", "?", "N", ("a", "b", "c", "d"), ("F", "1", "2", "3", "4"))
    documents = build_documents(needle)
    assert documents[:4] == ["N a b c d", "F a b c d", "a N b c d", "a F b c d"]
    assert documents[10:14] == ["N a 1 b 2 c 3 d 4", "F a 1 b 2 c 3 d 4", "1 a N b 2 c 3 d 4", "1 a F b 2 c 3 d 4"]


def test_a_written_needle_shares_no_word_with_its_document_and_its_near_misses():
    rng = random.Random(4)
    topics = [rng.sample(WORDS, 14) for _ in range(30)]
    texts = [" ".join(write_sentence(rng, topic) for _ in range(6)) for topic in topics]
    short = "One sentence is not enough for a needle among others."
    data = NeedleWriter(ModelEncoder(FirstWords())).write(ProbeData.from_texts([*texts, short]))
    assert 20 < len(data.needles) <= 30
    pool = [f"{sentence}." for text in texts for sentence in text.rstrip(".").split(". ")]

    def embed(sentence: str) -> np.ndarray:
        vector = FirstWords()([sentence])[0]
        return vector / np.linalg.norm(vector)

    for needle in data.needles:
        text = data.documents[needle.document]
        assert needle.sentence in text
        assert needle.sentence not in needle.rest
        assert not any(miss in text for miss in needle.near_misses)
        assert find_stems(needle.question).isdisjoint(find_stems(text, *needle.near_misses))
        scores = {sentence: embed(sentence) @ embed(needle.sentence) for sentence in pool if sentence not in text}
        best = sorted(scores.values(), reverse=True)[:NEAR_MISSES]
        assert [scores[miss] for miss in needle.near_misses] == pytest.approx(best)
    sums = run_probe(PROBE, order_blind, data)
    assert sums.skipped == {next(iter(sums.skipped)): 31 - len(data.needles)}


@pytest.fixture
def run(tmp_path) -> ProbeRun:
    rng = random.Random(4)
    topics = [rng.sample(WORDS, 14) for _ in range(12)]
    texts = [" ".join(write_sentence(rng, topic) for _ in range(6)) for topic in topics]
    source = ProbeSource("texts", (SourceSubset("en", lambda: SubsetData("1", ProbeData.from_texts(texts))),))
    return ProbeRun(ModelEncoder(FirstWords()), source, tmp_path, 20)


def test_a_writer_is_needed_and_another_one_measures_anew(run):
    with pytest.raises(PosirError, match="Name one with --question-writer"):
        run_probes(run, [PROBE])
    first, second = FirstWords(), FirstWords()
    second.mteb_model_meta = ModelMeta.create_empty({"name": "test/other", "revision": "1"})
    (result,) = run_probes(replace(run, writer=NeedleWriter(ModelEncoder(first))), [PROBE])
    written = len(first.encoded)
    (again,) = run_probes(replace(run, writer=NeedleWriter(ModelEncoder(first))), [PROBE])
    assert len(first.encoded) == written
    np.testing.assert_array_equal(again.sums.sums, result.sums.sums)
    (other,) = run_probes(replace(run, writer=NeedleWriter(ModelEncoder(second))), [PROBE])
    assert len(second.encoded) == written
    assert other.subsets["en"].selection.endswith("questions by test/other")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"question_writer": "all-MiniLM-L6-v2"}, "go with --probe needle_distractors"),
        ({"llm": "name", "probe": ["needle_distractors"]}, "Add --question-writer"),
    ],
)
def test_options_that_do_not_go_together(options, message: str):
    with pytest.raises(PosirError, match=message):
        probe("all-MiniLM-L6-v2", **options)
