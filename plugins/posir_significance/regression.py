"""Weighted regression within strata, with intervals for few and unequal clusters.

The covariance is cluster-robust with the correction CR2 and Satterthwaite's degrees of freedom
(Bell & McCaffrey 2002, Survey Methodology 28, 169-181; Pustejovsky & Tipton 2018, Journal of
Business & Economic Statistics 36, 672-683).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from posir_significance.intervals import build_student_difference
from posir_significance.observations import Floats, Integers
from posir_tasks.values.estimates import Difference

#: Maximum leverage of a cluster in the correction of residuals.
MAX_LEVERAGE = 0.98
#: Eigenvalues below this share of the largest are rounding errors.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Contrast(Difference):
    """A difference between groups of rows with its 95% interval for new clusters."""

    standard_error: float = 0.0
    degrees: float = 1.0
    """Satterthwaite's degrees of freedom, at least 1."""


@dataclass(frozen=True, eq=False)
class Regression:
    """Regression of gains on p columns within strata, which are nested in clusters.

    x and y are deviations from stratum means.
    """

    coefficients: Floats
    """b = M sum x y, shape (p,)."""
    inverse: Floats
    """M, the pseudoinverse of sum x x', shape (p, p)."""
    information: Floats
    """Sum of x x' per cluster, shape (C, p, p)."""
    scores: Floats
    """Sum of x times the residual per cluster, shape (C, p)."""
    pseudo_variance: float
    """Maximum variance of a row given the mean gain, divided by the residual degrees of freedom. It
    keeps errors positive if all gains are equal.
    """

    @classmethod
    def fit(
        cls,
        gains: Floats,
        columns: Floats,
        strata: Integers,
        clusters: Integers,
        weights: Floats | None = None,
    ) -> Regression | None:
        """Fit the regression; None if no column varies within a stratum.

        Args:
            gains: Gains, shape (n,).
            columns: Indicators, shape (n, p).
            strata: Stratum numbers, shape (n,).
            clusters: Cluster numbers, shape (n,).
            weights: Row weights with mean 1, shape (n,); by default equal.
        """
        if not len(gains):
            return None
        _, stratum, sizes = np.unique(strata, return_inverse=True, return_counts=True)
        row_weights = np.ones(len(gains)) if weights is None else weights
        totals = np.bincount(stratum, row_weights)

        def center(values: Floats) -> Floats:
            means = np.bincount(stratum, row_weights * values) / totals
            deviations: Floats = np.sqrt(row_weights) * (values - means[stratum])
            return deviations

        x = np.stack([center(column) for column in columns.T], axis=1)
        varies = (np.abs(x) > TOLERANCE).any(axis=1)
        if not varies.any():
            return None
        # Half a success keeps the variance positive if all gains are 0 or 1.
        level = (np.abs(gains).sum() + 0.5) / (len(gains) + 1)
        pseudo_variance = max(level * (1 - level), 0.0) / max(len(gains) - len(sizes), 1)
        x = x[varies]
        y = center(gains)[varies]
        inverse = np.linalg.pinv(x.T @ x, TOLERANCE, hermitian=True).astype(np.float64)
        coefficients: Floats = inverse @ (x.T @ y)
        residuals = y - x @ coefficients
        _, cluster = np.unique(clusters[varies], return_inverse=True)
        pairs = np.array([[np.bincount(cluster, weights=a * b) for b in x.T] for a in x.T])
        sums = [np.bincount(cluster, weights=column * residuals) for column in x.T]
        scores = np.stack(sums, axis=1).astype(np.float64)
        return cls(coefficients, inverse, np.moveaxis(pairs, 2, 0), scores, pseudo_variance)

    @cached_property
    def leverages(self) -> tuple[Floats, Floats, Floats]:
        """R = M^(1/2), shape (p, p), and the eigenvalues, shape (C, p), and eigenvectors, shape (C,
        p, p), of each cluster's R A_c R.
        """
        root = compute_symmetric_root(self.inverse)
        shares, axes = np.linalg.eigh(root @ self.information @ root)
        return root, np.clip(shares, 0, MAX_LEVERAGE), axes

    def contrast(self, weights: Floats, limit: float = 1.0) -> Contrast | None:
        """Estimate a weighted sum of the coefficients, in [-limit, limit].

        None if no stratum identifies the sum, or if only strata in a single cluster do.
        """
        outside = weights - self.inverse @ self.information.sum(axis=0) @ weights
        if len(self.scores) < 2 or np.abs(outside).max() > TOLERANCE**0.5:
            return None
        root, shares, axes = self.leverages
        a = root @ weights
        # For each cluster, H = V diag(shares) V' and F = V diag(1 - shares)^-1/2 V'. Below are F a,
        # q = a'F H F a, and h = H F a.
        coordinates = (axes.transpose(0, 2, 1) @ a) / np.sqrt(1 - shares)
        corrected_weights = (axes @ coordinates[..., None])[..., 0]
        squares = ((corrected_weights @ root * self.scores).sum(axis=1) ** 2).sum()
        q = (shares * coordinates**2).sum(axis=1)
        h = (axes @ (shares * coordinates)[..., None])[..., 0]
        gram = h.T @ h
        trace = float(q.sum() - np.trace(gram))
        spread = float((q**2).sum() - 2 * q @ (h**2).sum(axis=1) + np.trace(gram @ gram))
        degrees = max(trace**2 / spread, 1.0) if spread > 0 else 1.0
        error = float(np.sqrt(squares + self.pseudo_variance * weights @ self.inverse @ weights))
        difference = build_student_difference(
            float(weights @ self.coefficients), error, degrees, limit
        )
        return Contrast(**vars(difference), standard_error=error, degrees=degrees)


def compute_symmetric_root(matrix: Floats) -> Floats:
    """Compute the symmetric root of a positive semidefinite matrix, shape (B, B).

    Unlike other roots, it does not depend on the linear algebra library's choice of eigenvectors.
    """
    values, vectors = np.linalg.eigh(matrix)
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return root
