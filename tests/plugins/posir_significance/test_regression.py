"""Test the regression against the matrix form of CR2 with Satterthwaite's degrees of freedom."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from posir_significance.regression import MAX_LEVERAGE, Regression

FIRST_MINUS_LAST = np.array([1.0, -1.0])


def simulate_rows(seed, documents=12, questions=6):
    rng = np.random.default_rng(seed)
    document = np.repeat(np.arange(documents), rng.integers(2, questions + 1, documents))
    third = rng.integers(0, 3, len(document))
    difficulty = rng.normal(0, 0.2, documents)
    gains = np.clip(
        0.5 + difficulty[document] - 0.1 * third + rng.normal(0, 0.3, len(document)), 0, 1
    )
    return gains, third, document


def build_columns(third):
    return np.stack([third == 0, third == 2], axis=1).astype(float)


def compute_cr2(gains, third, document, clusters, weights):
    """Compute the difference, its standard error and degrees of freedom from n by n matrices."""
    roots = np.sqrt(weights)
    dummies = (document[:, None] == np.unique(document)).astype(float) * roots[:, None]
    within = np.eye(len(gains)) - dummies @ np.linalg.pinv(dummies)
    x = within @ (build_columns(third) * roots[:, None])
    y = within @ (gains * roots)
    inverse, k = np.linalg.inv(x.T @ x), FIRST_MINUS_LAST
    beta = inverse @ x.T @ y
    projection = np.eye(len(gains)) - x @ inverse @ x.T
    rows = []
    for cluster in np.unique(clusters):
        own = clusters == cluster
        values, vectors = np.linalg.eigh(x[own] @ inverse @ x[own].T)
        adjust = (vectors * (1 - np.minimum(values, MAX_LEVERAGE)) ** -0.5) @ vectors.T
        rows.append(k @ inverse @ x[own].T @ adjust @ projection[own])
    shares = np.array(rows)
    level = (gains.sum() + 0.5) / (len(gains) + 1)
    floor = level * (1 - level) / (len(gains) - len(np.unique(document)))
    cross = shares @ shares.T
    error = np.sqrt(((shares @ y) ** 2).sum() + floor * k @ inverse @ k)
    return k @ beta, error, max(np.trace(cross) ** 2 / (cross**2).sum(), 1)


@given(st.integers(0, 10**6), st.booleans())
def test_contrast_matches_the_matrix_form(seed, weighted):
    gains, third, document = simulate_rows(seed)
    clusters = document // 2
    weights = (
        np.random.default_rng(seed).uniform(0.3, 3, 12)[document]
        if weighted
        else np.ones(len(gains))
    )
    weights /= weights.mean()
    fitted = Regression.fit(
        gains, build_columns(third), document, clusters, weights if weighted else None
    )
    contrast = fitted.contrast(FIRST_MINUS_LAST, limit=10.0)
    value, error, degrees = compute_cr2(gains, third, document, clusters, weights)
    assert contrast.value == pytest.approx(value)
    assert contrast.standard_error == pytest.approx(error)
    assert contrast.degrees == pytest.approx(degrees)
    half = student.ppf(0.975, degrees) * error
    assert contrast.interval == pytest.approx((value - half, value + half))


def test_no_estimate_without_a_comparison_or_with_one_cluster():
    documents = np.array([0, 0, 1, 1])
    gains = np.array([0.0, 1.0, 0.0, 1.0])
    first = np.array([[1.0], [0.0], [1.0], [0.0]])
    assert (
        Regression.fit(gains, first, documents, np.zeros(4, np.int64)).contrast(np.ones(1)) is None
    )
    assert Regression.fit(gains, np.zeros((4, 1)), documents, documents) is None
    assert Regression.fit(gains[:0], first[:0], documents[:0], documents[:0]) is None


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_equal_gains_have_a_positive_error(level):
    documents = np.repeat(np.arange(30), 4)
    third = np.tile([0, 1, 2, 2], 30)
    contrast = Regression.fit(
        np.full(120, level), build_columns(third), documents, documents
    ).contrast(FIRST_MINUS_LAST)
    assert contrast.value == pytest.approx(0)
    assert contrast.interval[0] < 0 < contrast.interval[1]
