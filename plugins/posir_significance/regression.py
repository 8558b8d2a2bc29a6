"""Differences in gain between groups of questions, with the document or the length held fixed, for new documents.

One regression serves the bias within what a model reads (first minus last third of it), start to end (thirds of the document)
and what is not read (read minus not read). Its intervals are cluster-robust with the correction CR2 and Satterthwaite's degrees
of freedom (Bell & McCaffrey 2002, Survey Methodology 28, 169-181; Pustejovsky & Tipton 2018, Journal of Business & Economic
Statistics 36, 672-683), which hold for few and for unequal clusters. Two parameters at most: two questions a document suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from posir_significance.intervals import student_difference
from posir_significance.observations import Floats, Integers, Observations
from posir_significance.position_effect import Stratum
from posir_tasks.evidence import TWELFTHS
from posir_tasks.scores import Difference

#: Largest share of a cluster in the information on an estimate that its residuals are corrected for.
MAX_LEVERAGE = 0.98
#: The document is held fixed if at least this share of the questions are in documents with several of them.
SHARED_QUESTIONS = 0.5
#: Eigenvalues below this share of the largest are rounding errors.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Contrast(Difference):
    """A difference between groups of questions, with its 95 % interval and p-value for new documents."""

    standard_error: float = 0.0
    degrees: float = 1.0
    """Satterthwaite's degrees of freedom, at least 1."""
    held_fixed: Stratum = Stratum.DOCUMENT
    documents: int = 0
    """Independent documents (or articles) with questions in a compared group, of the group that has the fewest."""


def estimate_contrasts(
    observations: Observations, groups: Sequence[NDArray[np.bool_]], contrasts: Sequence[Sequence[float]], limit: float = 1.0
) -> list[Contrast | None]:
    """Estimate differences between the mean gains of groups of questions, with the stratum held fixed.

    The document is held fixed if at least half of the questions are in documents with several of them and it is compared
    within them, else the subset and the length.

    Args:
        observations: Of n questions.
        groups: Masks of one or two disjoint groups, shape (n,) each; the other questions are the reference.
        contrasts: Weights of the groups in each contrast; (1, -1) is the first minus the second group.
        limit: Largest possible difference: 1 of gains, 2 of differences of two models.

    Returns:
        For each contrast its estimate, or None if no stratum has questions on both sides, or only one cluster has.
    """
    gains, documents = observations.gains, observations.documents
    several = len(gains) > 0 and (np.bincount(documents)[documents] > 1).mean() >= SHARED_QUESTIONS
    columns = np.stack([np.asarray(group, np.float64) for group in groups], axis=1)
    length = Stratum.SUBSET_AND_LENGTH if len(np.unique(observations.subsets)) > 1 else Stratum.LENGTH
    lengths = observations.half_octaves if observations.half_octaves.any() else observations.lengths
    cells = observations.subsets * (lengths.max(initial=0) + 1) + lengths
    estimates: list[Contrast | None] = [None] * len(contrasts)
    for held_fixed, strata in ((Stratum.DOCUMENT, documents), (length, cells))[0 if several else 1 :]:
        fit = Regression.fit(gains, columns, held_fixed, strata, observations.clusters)
        estimates = [
            estimate or (fit.contrast(np.array(weights, np.float64), limit) if fit else None)
            for estimate, weights in zip(estimates, contrasts, strict=True)
        ]
        if all(estimates):
            break
    return estimates


@dataclass(frozen=True)
class PositionContrasts:
    """The differences that position makes to a group of questions. None where the sides are not compared."""

    start_to_end: Contrast | None
    """First minus last third of the document."""
    start_to_end_plain: float | None
    """Mean over questions of the first third minus that of the last: nothing is held fixed."""
    start_to_middle: Contrast | None
    middle_to_end: Contrast | None
    middle_to_ends: Contrast | None
    """Middle third minus the mean of the other two."""
    not_read: float | None
    """Share of the questions whose evidence is not read, or not all of it; None if unknown."""
    bias_within_read: Contrast | None
    """First minus last third of what is read, over the questions whose evidence is read; None if that is unknown, too."""
    middle_to_ends_within_read: Contrast | None
    not_read_difference: Contrast | None
    """nDCG@10 of the questions whose evidence is read minus that of the others."""


#: Weights of the first and the last third, with the middle one as reference.
START_TO_END, START_TO_MIDDLE, MIDDLE_TO_END, MIDDLE_TO_ENDS = (1.0, -1.0), (1.0, 0.0), (0.0, -1.0), (-0.5, -0.5)


def contrast_positions(observations: Observations, limit: float = 1.0) -> PositionContrasts:
    """Estimate what position does to a group of questions.

    Args:
        observations: Gains of a model in [0, 1], or differences of two models in [-1, 1], with the places of the evidence.
        limit: Largest possible difference: 1 of gains, 2 of differences.
    """
    gains, thirds, share = observations.gains, observations.document_thirds, observations.not_read
    ends = thirds == 0, thirds == 2
    weights = START_TO_END, START_TO_MIDDLE, MIDDLE_TO_END, MIDDLE_TO_ENDS
    overall, first, last, middle = estimate_contrasts(observations, ends, weights, limit)
    plain = float(gains[ends[0]].mean() - gains[ends[1]].mean()) if ends[0].any() and ends[1].any() else None
    # If all is read, positions in the document and in what is read are the same.
    bias, middle_within, lost = (overall, middle, None) if share == 0 else (None, None, None)
    if share:
        within = observations.select_read()
        third = within.twelfths // (TWELFTHS // 3)
        bias, middle_within = estimate_contrasts(within, (third == 0, third == 2), (START_TO_END, MIDDLE_TO_ENDS), limit)
        (lost,) = estimate_contrasts(observations, (observations.twelfths < TWELFTHS,), [(1.0,)], limit)
    return PositionContrasts(overall, plain, first, last, middle, share, bias, middle_within, lost)


@dataclass(frozen=True, eq=False)
class Regression:
    """Gains regressed on p = 1 or 2 indicator columns within strata. x and y are deviations from the stratum's means."""

    held_fixed: Stratum
    coefficients: Floats
    """b = M sum x y, shape (p,)."""
    inverse: Floats
    """M, the pseudoinverse of sum x x', shape (p, p)."""
    information: Floats
    """Sum of x x' over each of C clusters, shape (C, p, p)."""
    scores: Floats
    """Sum of x times the residual over each cluster, shape (C, p)."""
    pseudo: float
    """Variance of a question of the largest variance that the mean gain allows, by the residual degrees of freedom.

    It keeps errors positive where all gains are equal.
    """
    documents: int
    """See `Contrast`."""

    @classmethod
    def fit(
        cls, gains: Floats, columns: Floats, held_fixed: Stratum, strata: Integers, clusters: Integers
    ) -> Regression | None:
        """Fit the regression; None if no stratum has questions on both sides of a column.

        Args:
            gains: Shape (n,).
            columns: Indicators, shape (n, p).
            held_fixed: The kind of strata. Only documents are nested in clusters.
            strata: Number of each question's stratum, shape (n,).
            clusters: Number of each question's cluster, shape (n,).
        """
        if not len(gains):
            return None
        _, stratum, sizes = np.unique(strata, return_inverse=True, return_counts=True)
        y = gains - (np.bincount(stratum, weights=gains) / sizes)[stratum]
        x = np.stack([column - (np.bincount(stratum, weights=column) / sizes)[stratum] for column in columns.T], axis=1)
        # Only questions whose stratum has several groups say anything.
        used = (np.abs(x) > TOLERANCE).any(axis=1)
        if not used.any():
            return None
        level = (np.abs(gains).sum() + 0.5) / (len(gains) + 1)
        pseudo = max(level * (1 - level), 0.0) / (len(gains) - len(sizes))
        x, y, stratum, columns = x[used], y[used], stratum[used], columns[used]
        inverse = _invert(x.T @ x)
        coefficients: Floats = inverse @ (x.T @ y)
        residuals = y - x @ coefficients
        if held_fixed is not Stratum.DOCUMENT:
            residuals *= np.sqrt(sizes / np.maximum(sizes - 1, 1))[stratum]
        _, cluster = np.unique(clusters[used], return_inverse=True)
        pairs = [[np.bincount(cluster, weights=a * b) for b in x.T] for a in x.T]
        scores: Floats = np.stack([np.bincount(cluster, weights=column * residuals) for column in x.T], axis=1)
        sides = [columns[:, 0] > 0, columns[:, -1] > 0 if columns.shape[1] > 1 else columns[:, 0] == 0]
        documents = min(len(np.unique(cluster[side])) for side in sides)
        return cls(held_fixed, coefficients, inverse, np.moveaxis(np.array(pairs), 2, 0), scores, pseudo, documents)

    @cached_property
    def leverages(self) -> tuple[Floats, Floats, Floats]:
        """R = M^(1/2), shape (p, p), and eigenvalues and eigenvectors of each cluster's R A_c R, (C, p) and (C, p, p)."""
        values, vectors = np.linalg.eigh(self.inverse)
        root: Floats = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        shares, axes = np.linalg.eigh(root @ self.information @ root)
        return root, np.clip(shares, 0, MAX_LEVERAGE), axes

    def contrast(self, weights: Floats, limit: float = 1.0) -> Contrast | None:
        """Estimate a weighted sum of the coefficients; None if it is not compared within strata, or only within one cluster.

        Args:
            weights: Shape (p,).
            limit: Largest possible value.
        """
        outside = weights - self.inverse @ self.information.sum(axis=0) @ weights
        if len(self.scores) < 2 or np.abs(outside).max() > TOLERANCE**0.5:
            return None
        root, shares, axes = self.leverages
        a = root @ weights
        # Coordinates of a in the eigenvectors of each cluster's leverage H: F a = V (1 - h)^-1/2 V'a, H F a likewise.
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
        return Contrast(
            difference.value,
            difference.interval,
            difference.p_value,
            difference.interval_at,
            error,
            degrees,
            self.held_fixed,
            self.documents,
        )


def _invert(matrix: Floats) -> Floats:
    """Return the pseudoinverse of a positive semidefinite matrix, shape (p, p)."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > TOLERANCE * values.max()
    inverse: Floats = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    return inverse
