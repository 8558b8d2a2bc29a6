"""Weighted regression within strata, with intervals that hold for few and for unequal clusters.

The covariance is cluster-robust with the correction CR2 and Satterthwaite's degrees of freedom
(Bell & McCaffrey 2002, Survey Methodology 28, 169-181; Pustejovsky & Tipton 2018, Journal of
Business & Economic Statistics 36, 672-683).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from posir_significance.intervals import student_difference
from posir_significance.observations import Floats, Integers
from posir_tasks.values.estimates import Difference

#: Largest share of a cluster in the information on an estimate that its residuals are corrected
#: for.
MAX_LEVERAGE = 0.98
#: Eigenvalues below this share of the largest are rounding errors.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Contrast(Difference):
    """A difference between groups of rows, with its 95% interval for new clusters."""

    standard_error: float = 0.0
    degrees: float = 1.0
    """Satterthwaite's degrees of freedom, at least 1."""


@dataclass(frozen=True, eq=False)
class Regression:
    """Gains regressed on p columns within strata, which are nested in clusters. x and y are
    deviations from stratum means.
    """

    coefficients: Floats
    """b = M sum x y, shape (p,)."""
    inverse: Floats
    """M, the pseudoinverse of sum x x', shape (p, p)."""
    information: Floats
    """Sum of x x' over each of C clusters, shape (C, p, p)."""
    scores: Floats
    """Sum of x times the residual over each cluster, shape (C, p)."""
    pseudo: float
    """Variance of a row of the largest variance that the mean gain allows, by the residual degrees
    of freedom.

    It keeps errors positive where all gains are equal.
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
        """Fit the regression; None if no stratum has rows that differ in a column.

        Args:
            gains: Shape (n,).
            columns: Indicators, shape (n, p).
            strata: Number of each row's stratum, shape (n,).
            clusters: Number of each row's cluster, shape (n,).
            weights: Of each row, with mean 1, shape (n,); None if all are equal.
        """
        if not len(gains):
            return None
        _, stratum, sizes = np.unique(strata, return_inverse=True, return_counts=True)
        row_weights = np.ones(len(gains)) if weights is None else weights
        totals = np.bincount(stratum, row_weights)

        def center(values: Floats) -> Floats:
            means = np.bincount(stratum, row_weights * values) / totals
            centered: Floats = np.sqrt(row_weights) * (values - means[stratum])
            return centered

        x = np.stack([center(column) for column in columns.T], axis=1)
        used = (np.abs(x) > TOLERANCE).any(axis=1)
        if not used.any():
            return None
        # Half a success more, so that a mean of 0 or 1 has a variance.
        level = (np.abs(gains).sum() + 0.5) / (len(gains) + 1)
        pseudo = max(level * (1 - level), 0.0) / max(len(gains) - len(sizes), 1)
        x = x[used]
        y = center(gains)[used]
        inverse = np.linalg.pinv(x.T @ x, TOLERANCE, hermitian=True).astype(np.float64)
        coefficients: Floats = inverse @ (x.T @ y)
        residuals = y - x @ coefficients
        _, cluster = np.unique(clusters[used], return_inverse=True)
        pairs = np.array([[np.bincount(cluster, weights=a * b) for b in x.T] for a in x.T])
        sums = [np.bincount(cluster, weights=column * residuals) for column in x.T]
        scores = np.stack(sums, axis=1).astype(np.float64)
        return cls(coefficients, inverse, np.moveaxis(pairs, 2, 0), scores, pseudo)

    @cached_property
    def leverages(self) -> tuple[Floats, Floats, Floats]:
        """R = M^(1/2), shape (p, p), and eigenvalues and eigenvectors of each cluster's R A_c R,
        (C, p) and (C, p, p).
        """
        root = symmetric_root(self.inverse)
        shares, axes = np.linalg.eigh(root @ self.information @ root)
        return root, np.clip(shares, 0, MAX_LEVERAGE), axes

    def contrast(self, weights: Floats, limit: float = 1.0) -> Contrast | None:
        """Estimate a weighted sum of the coefficients in [-limit, limit].

        None if it is not compared within strata, or only within one cluster.
        """
        outside = weights - self.inverse @ self.information.sum(axis=0) @ weights
        if len(self.scores) < 2 or np.abs(outside).max() > TOLERANCE**0.5:
            return None
        root, shares, axes = self.leverages
        a = root @ weights
        # Coordinates of a in the eigenvectors of each cluster's leverage H: F a = V (1 - h)^-1/2
        # V'a, H F a likewise.
        turned = (axes.transpose(0, 2, 1) @ a) / np.sqrt(1 - shares)
        corrected = (axes @ turned[..., None])[..., 0]
        squares = ((corrected @ root * self.scores).sum(axis=1) ** 2).sum()
        own = (shares * turned**2).sum(axis=1)
        shared = (axes @ (shares * turned)[..., None])[..., 0]
        gram = shared.T @ shared
        trace = float(own.sum() - np.trace(gram))
        spread = float((own**2).sum() - 2 * own @ (shared**2).sum(axis=1) + np.trace(gram @ gram))
        degrees = max(trace**2 / spread, 1.0) if spread > 0 else 1.0
        error = float(np.sqrt(squares + self.pseudo * weights @ self.inverse @ weights))
        difference = student_difference(float(weights @ self.coefficients), error, degrees, limit)
        return Contrast(**vars(difference), standard_error=error, degrees=degrees)


def symmetric_root(matrix: Floats) -> Floats:
    """Return the symmetric root of a positive semidefinite matrix, shape (B, B).

    It is the only one that does not depend on which eigenvectors the linear algebra library
    returns.
    """
    values, vectors = np.linalg.eigh(matrix)
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return root
