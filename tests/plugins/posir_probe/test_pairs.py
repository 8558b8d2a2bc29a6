"""Pairs of documents: what is in them, and the values against SciPy, plain NumPy, and embedders whose result is known."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from mteb.models import ModelMeta
from scipy.stats import ttest_rel

import posir
from posir_probe.controls import decaying, first_words, order_blind
from posir_probe.data import Needle, ProbeData, ProbeQuestion, ProbeSource
from posir_probe.pairs import (
    BREVITY,
    KINDS,
    LITERAL_MATCH,
    MISSING,
    NEAR_MISSES,
    POSITION,
    REPETITION,
    TOO_FEW_SENTENCES,
    ControlledPairs,
    ControlledPairsEffect,
    NeedleDistractors,
    NeedleWriter,
    build_documents,
    build_pairs,
    find_names,
    place_sentences,
)
from posir_probe.probe import run_probe
from posir_probe.probing import ProbeRun, run_probes
from posir_published.probes import read_published_curves
from posir_tasks.embeddings.encoding import ModelEncoder
from posir_tasks.errors import PosirError
from posir_tasks.language_models.other_words import find_stems
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from tests.support.probed_encoders import FirstWords, invent_questions

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


def pairs_of(text, question):
    return build_pairs(text, find_sentences(text, "eng-Latn"), question)


def cosine(first, second):
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


@pytest.fixture(scope="module")
def data():
    return invent_questions(30)


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


def test_values_are_those_of_the_definition(data):
    scores = np.full((len(data.questions), len(KINDS), 2), np.nan)
    for row, question in enumerate(data.questions):
        for kind, pair in pairs_of(data.documents[question.document], question).items():
            query, first, second = decaying(pair).astype(float)
            scores[row, KINDS.index(kind)] = cosine(query, first), cosine(query, second)
    means, effects = run_probe(PROBE, decaying, data), run_probe(EFFECT, decaying, data)
    for at, kind in enumerate(KINDS[:3]):
        first, second = scores[~np.isnan(scores[:, at, 0]), at].T
        assert len(first) >= 20, kind
        assert means.values[at] == pytest.approx((first - second).mean(), abs=1e-6)
        assert means.details["sd"][at] == pytest.approx((first - second).std(), abs=1e-6)
        # The paper's t, without the size of the sample.
        assert effects.values[at] == pytest.approx(ttest_rel(first, second).statistic / np.sqrt(len(first)), rel=1e-4)


@pytest.mark.parametrize("probe", [PROBE, EFFECT], ids=lambda probe: probe.name)
def test_evidence_first_is_preferred_by_an_embedder_that_decays_and_not_by_an_order_blind_one(data, probe):
    blind, biased = (run_probe(probe, embedder, data) for embedder in (order_blind, decaying))
    estimate = blind.estimate(probe.summaries["position"])
    assert (estimate.value, estimate.low, estimate.high) == (0, 0, 0)
    assert biased.estimate(probe.summaries["position"]).low > 0
    assert biased.estimate(probe.summaries["order_blind_position"]).value == 0


def test_a_model_that_reads_the_beginning_alone_finds_evidence_at_the_start_only(data):
    assert run_probe(PROBE, FirstWords(words=14), data).estimate(PROBE.summaries["position"]).low > 0.1


def test_published_effects_are_t_over_the_root_of_250_pairs():
    curves = {curve.model.removesuffix(" on Re-DocRED"): curve.values for curve in read_published_curves(EFFECT.name)}
    assert len(curves) == 6
    assert np.array(curves["Contriever"]) * np.sqrt(250) == pytest.approx([6.06, 9.46, 6.90, 13.31], abs=2e-3)
    assert np.array(curves["Dragon-RoBERTa"]) * np.sqrt(250) == pytest.approx([18.83, 17.33, 7.98, 17.18], abs=2e-3)


NEEDLES = NeedleDistractors()
WORDS = [f"{first}{second}{third}le" for first in "bdfgklmn" for second in "aeiou" for third in "mnprst"]


def write_sentence(rng: random.Random, words=WORDS) -> str:
    return " ".join(rng.sample(words, 6)).capitalize() + "."


@pytest.fixture(scope="module")
def needles() -> ProbeData:
    """Documents of eight sentences; the question has words of the needle, so that the direction is known."""
    rng = random.Random(1)
    documents, needles = {}, []
    for number in range(25):
        sentences = [write_sentence(rng) for _ in range(8)]
        documents[f"d{number}"] = " ".join(sentences)
        near_misses = tuple(write_sentence(rng) for _ in range(5))
        needles.append(Needle(f"d{number}", sentences[2], (*sentences[:2], *sentences[3:]), sentences[2][:-7], near_misses))
    return ProbeData(documents, needles=tuple(needles))


def score_plainly(data, encode):
    """Return the differences, shape (needles, 2, 5); seven other sentences: places before 0, 2, 4, 5 and 7."""
    differences = []
    for needle, distracted, place in product(data.needles, (False, True), range(5)):
        scores = []
        for sentence in (needle.sentence, needle.near_misses[0]):
            others, sentences = iter(needle.near_misses[1:]), list(needle.rest)
            placed = [sentence if at == place else next(others) if distracted else "" for at in range(5)]
            for before, added in reversed(list(zip((0, 2, 4, 5, 7), placed, strict=True))):
                sentences[before:before] = [added] if added else []
            query, document = encode([needle.question, " ".join(sentences)]).astype(float)
            scores.append(cosine(query, document))
        differences.append(scores[0] - scores[1])
    return np.array(differences).reshape(-1, 2, 5)


def test_needles_by_the_definition(needles):
    differences = score_plainly(needles, decaying)
    sums = run_probe(NEEDLES, decaying, needles)
    np.testing.assert_allclose(sums.values, differences.mean(axis=0).ravel(), atol=1e-6)
    named = {name: float(sums.estimate(summary).value) for name, summary in NEEDLES.summaries.items()}
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


def test_needles_have_the_same_value_at_every_place_to_an_order_blind_embedder(needles):
    sums = run_probe(NEEDLES, order_blind, needles)
    for name in ("start_to_end", "start_to_end_without"):
        estimate = sums.estimate(NEEDLES.summaries[name])
        assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0, 0, 0), abs=1e-6)
    assert sums.estimate(NEEDLES.summaries["mean"]).low > 0


def test_an_embedder_that_decays_finds_the_needle_at_the_start(needles):
    assert run_probe(NEEDLES, decaying, needles).estimate(NEEDLES.summaries["start_to_end"]).low > 0
    long = replace(needles, needles=tuple(replace(needle, rest=needle.rest * 5) for needle in needles.needles))
    values = run_probe(NEEDLES, first_words, long).values
    assert values[0] > 0
    # Past the window of 128 words both documents are the same.
    np.testing.assert_array_equal(values[4], 0)


def test_places_and_order_of_distractors():
    assert place_sentences(["a", "b", "c", "d"], {0: "0", 2: "2", 4: "4"}) == "0 a b 2 c d 4"
    needle = Needle("d", "N", ("a", "b", "c", "d"), "?", ("F", "1", "2", "3", "4"))
    documents = build_documents(needle)
    assert documents[:4] == ["N a b c d", "F a b c d", "a N b c d", "a F b c d"]
    assert documents[10:14] == ["N a 1 b 2 c 3 d 4", "F a 1 b 2 c 3 d 4", "1 a N b 2 c 3 d 4", "1 a F b 2 c 3 d 4"]


def write_texts(number):
    """Return texts of six sentences with words of their own."""
    rng = random.Random(4)
    topics = [rng.sample(WORDS, 14) for _ in range(number)]
    return [" ".join(write_sentence(rng, topic) for _ in range(6)) for topic in topics]


def test_a_written_needle_shares_no_word_with_its_document_and_its_near_misses():
    texts = write_texts(30)
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
    sums = run_probe(NEEDLES, order_blind, data)
    assert sums.skipped == {next(iter(sums.skipped)): 31 - len(data.needles)}


def test_a_writer_is_needed_and_another_one_measures_anew(tmp_path):
    texts = write_texts(12)
    source = ProbeSource("texts", {"en": lambda: ProbeData.from_texts(texts)})
    run = ProbeRun(ModelEncoder(FirstWords()), source, tmp_path, 20)
    with pytest.raises(PosirError, match="Name one with --question-writer"):
        run_probes(run, [NEEDLES])
    first, second = FirstWords(), FirstWords()
    second.mteb_model_meta = ModelMeta.create_empty({"name": "test/other", "revision": "1"})
    (result,) = run_probes(replace(run, writer=NeedleWriter(ModelEncoder(first))), [NEEDLES])
    written = len(first.encoded)
    (again,) = run_probes(replace(run, writer=NeedleWriter(ModelEncoder(first))), [NEEDLES])
    assert len(first.encoded) == written
    np.testing.assert_array_equal(again.sums.sums, result.sums.sums)
    (other,) = run_probes(replace(run, writer=NeedleWriter(ModelEncoder(second))), [NEEDLES])
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
        posir.probe("all-MiniLM-L6-v2", **options)
