"""The regression against the direct matrix form of CR2 with Satterthwaite's degrees of freedom."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from posir_significance.observations import Observations
from posir_significance.position_effect import Stratum
from posir_significance.regression import MAX_LEVERAGE, GroupContrasts, PositionContrasts


def observe(gains, documents, clusters, subsets=None, lengths=None):
    rows, zeros = np.arange(len(gains)), np.zeros(len(gains), np.int64)
    subsets, lengths = (zeros if column is None else column for column in (subsets, lengths))
    return Observations(np.asarray(gains, float), subsets, lengths, documents, clusters, rows, zeros, 1)


def draw(seed, documents=12, questions=6):
    rng = np.random.default_rng(seed)
    document = np.repeat(np.arange(documents), rng.integers(2, questions + 1, documents))
    third = rng.integers(0, 3, len(document))
    difficulty = rng.normal(0, 0.2, documents)
    gains = np.clip(0.5 + difficulty[document] - 0.1 * third + rng.normal(0, 0.3, len(document)), 0, 1)
    return gains, third, document


def direct_cr2(gains, third, document, clusters):
    """delta, its standard error and degrees of freedom, from n by n matrices: the weights of each cluster in y."""
    dummies = (document[:, None] == np.unique(document)).astype(float)
    within = np.eye(len(gains)) - dummies @ np.linalg.pinv(dummies)
    x = within @ np.stack([third == 0, third == 2], axis=1).astype(float)
    y = within @ gains
    inverse, k = np.linalg.inv(x.T @ x), np.array([1.0, -1.0])
    beta = inverse @ x.T @ y
    residuals, projection = y - x @ beta, np.eye(len(gains)) - x @ inverse @ x.T
    rows = []
    for cluster in np.unique(clusters):
        own = clusters == cluster
        hat = x[own] @ inverse @ x[own].T
        values, vectors = np.linalg.eigh(hat)
        adjust = (vectors * (1 - np.minimum(values, MAX_LEVERAGE)) ** -0.5) @ vectors.T
        rows.append(k @ inverse @ x[own].T @ adjust @ projection[own])
    weights = np.array(rows)
    level = (gains.sum() + 0.5) / (len(gains) + 1)
    floor = level * (1 - level) / (len(gains) - len(np.unique(document)))
    cross = weights @ weights.T
    error = np.sqrt(((weights @ y) ** 2).sum() + floor * k @ inverse @ k)
    assert np.allclose(weights @ y, weights @ residuals)
    return k @ beta, error, max(np.trace(cross) ** 2 / (cross**2).sum(), 1)


@given(st.integers(0, 10**6))
def test_the_contrast_is_that_of_the_direct_matrix_form(seed):
    gains, third, document = draw(seed)
    clusters = document // 2
    observations = observe(gains, document, clusters)
    contrast = GroupContrasts(observations, (third == 0, third == 2), limit=10.0).contrast(1.0, -1.0)
    value, error, degrees = direct_cr2(gains, third, document, clusters)
    assert contrast.held_fixed is Stratum.DOCUMENT
    assert contrast.value == pytest.approx(value)
    assert contrast.standard_error == pytest.approx(error)
    assert contrast.degrees == pytest.approx(degrees)
    assert contrast.p_value == pytest.approx(2 * student.sf(abs(value) / error, degrees))
    half = student.ppf(0.975, degrees) * error
    assert contrast.interval == pytest.approx((value - half, value + half))


def test_lengths_and_subsets_are_held_fixed_where_documents_have_a_question_each():
    rng = np.random.default_rng(5)
    lengths, subsets, third = rng.integers(0, 4, 400), rng.integers(0, 2, 400), rng.integers(0, 3, 400)
    gains = np.clip(0.2 * lengths / 4 + 0.3 * subsets + rng.uniform(0, 0.5, 400), 0, 1)
    documents = np.arange(400)
    observations = observe(gains, documents, documents, subsets, lengths)
    contrast = GroupContrasts(observations, (third == 0, third == 2)).contrast(1, -1)
    dummies = (lengths * 2 + subsets)[:, None] == np.arange(8)
    direct = np.linalg.lstsq(np.column_stack([third == 0, third == 2, dummies]).astype(float), gains, rcond=None)[0]
    assert contrast.held_fixed is Stratum.SUBSET_AND_LENGTH
    assert contrast.value == pytest.approx(direct[0] - direct[1])


def test_a_single_group_is_compared_with_the_rest():
    gains, third, document = draw(3)
    contrast = GroupContrasts(observe(gains, document, document), (third < 2,)).contrast(1.0)
    dummies = document[:, None] == np.unique(document)
    direct = np.linalg.lstsq(np.column_stack([third < 2, dummies]).astype(float), gains, rcond=None)[0]
    assert contrast.value == pytest.approx(direct[0])


def test_no_estimate_without_a_comparison_and_with_one_cluster():
    documents = np.array([0, 0, 1, 1])
    gains, first = np.array([0.0, 1.0, 0.0, 1.0]), np.array([True, False, True, False])
    together = observe(gains, documents, np.zeros(4, np.int64))
    assert GroupContrasts(together, (first,)).contrast(1.0) is None
    assert GroupContrasts(observe(gains, documents, documents), (np.zeros(4, bool),)).contrast(1.0) is None
    assert GroupContrasts(together.select(np.zeros(4, bool)), (first[:0],)).contrast(1.0) is None


def test_equal_gains_keep_an_error():
    documents = np.repeat(np.arange(30), 4)
    third = np.tile([0, 1, 2, 2], 30)
    contrast = GroupContrasts(observe(np.ones(120), documents, documents), (third == 0, third == 2)).contrast(1, -1)
    assert contrast.value == 0
    assert contrast.interval[0] < 0 < contrast.interval[1]


def observe_places(seed, effect=0.2, documents=120, questions=3):
    """Questions with 2 to 4 places in their document, each place at 1/n; a place in the last third costs the question."""
    rng = np.random.default_rng(seed)
    number = np.repeat(np.arange(documents * questions), rng.integers(2, 5, documents * questions))
    document, third = number // questions, rng.integers(0, 3, len(number))
    weights = 1 / np.bincount(number)[number]
    late = np.bincount(number, weights * (third == 2))
    asked = np.arange(documents * questions)
    gains = 0.6 - effect * late + rng.normal(0, 0.1, documents)[asked // questions] + rng.normal(0, 0.2, len(asked))
    observed = observe(gains[number], document, document)
    return replace(observed, questions=number, weights=weights, thirds=third), gains


def test_places_of_a_question_in_a_document_are_one_row_with_its_shares_of_the_thirds():
    observed, gains = observe_places(3)
    contrast = GroupContrasts(observed, (observed.thirds == 0, observed.thirds == 2), limit=10.0).contrast(1.0, -1.0)
    shares = np.stack([np.bincount(observed.questions, observed.weights * (observed.thirds == third)) for third in (0, 2)], 1)

    def estimate(kept):
        dummies = np.eye(120)[np.arange(360) // 3]
        fitted = np.linalg.lstsq(np.hstack([shares, dummies])[kept], gains[kept], rcond=None)[0]
        return fitted[0] - fitted[1]

    assert contrast.held_fixed is Stratum.DOCUMENT
    assert contrast.value == pytest.approx(estimate(np.ones(360, bool)))
    left_out = np.array([estimate(np.arange(360) // 3 != document) for document in range(120)])
    assert contrast.standard_error == pytest.approx(np.sqrt(119 / 120 * ((left_out - left_out.mean()) ** 2).sum()), rel=0.05)
    assert contrast.low < 0.2 < contrast.high


@pytest.mark.slow
@pytest.mark.parametrize("questions", [1, 3])
def test_intervals_of_places_hold_without_an_effect(questions):
    contrasts = (PositionContrasts(observe_places(seed, 0.0, questions=questions)[0]).start_to_end for seed in range(400))
    alarms = [not contrast.low <= 0 <= contrast.high for contrast in contrasts]
    assert 0.02 <= np.mean(alarms) <= 0.08


def test_a_question_with_a_place_in_every_third_says_nothing_of_them():
    third = np.tile([0, 1, 2], 40)
    observed = observe(np.repeat(np.arange(40) % 2, 3), np.repeat(np.arange(40) // 4, 3), np.repeat(np.arange(40) // 4, 3))
    observed = replace(observed, questions=np.repeat(np.arange(40), 3), weights=np.full(120, 1 / 3))
    assert GroupContrasts(observed, (third == 0, third == 2)).contrast(1.0, -1.0) is None


@pytest.mark.parametrize("shared", [False, True])
def test_two_documents_of_a_question_count_by_their_weights(shared):
    """Weighted least squares by hand; each question has two places in a document and one in another."""
    rng = np.random.default_rng(8)
    number = np.repeat(np.arange(60), 3)
    document = np.stack([2 * np.arange(60), 2 * np.arange(60), 2 * np.arange(60) + 1], axis=1).ravel()
    document = document % 40 if shared else document
    gains = np.where(np.tile([True, True, False], 60), np.repeat(rng.random(60), 3), np.repeat(rng.random(60), 3))
    third = rng.integers(0, 3, 180)
    observed = replace(observe(gains, document, document // 2), questions=number, weights=np.full(180, 1 / 3))
    contrast = GroupContrasts(observed, (third == 0, third == 2), limit=10.0).contrast(1.0, -1.0)
    rows = [(third[3 * q : 3 * q + 2], gains[3 * q], document[3 * q], 2 / 3) for q in range(60)]
    rows += [(third[3 * q + 2 : 3 * q + 3], gains[3 * q + 2], document[3 * q + 2], 1 / 3) for q in range(60)]
    x = np.array(
        [[*(np.mean(own == side) for side in (0, 2)), *(np.eye(40)[name] if shared else [1])] for own, _, name, _ in rows]
    )
    root = np.sqrt([weight for *_, weight in rows])
    fitted = np.linalg.lstsq(x * root[:, None], root * [gain for _, gain, *_ in rows], rcond=None)[0]
    assert contrast.value == pytest.approx(fitted[0] - fitted[1])
    assert (contrast.held_fixed is Stratum.DOCUMENT) == shared
