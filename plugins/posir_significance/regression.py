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
from posir_significance.position_effect import SHARED_QUERIES, TOLERANCE, Stratum, pseudoinverse, symmetric_root
from posir_tasks.evidence import TWELFTHS
from posir_tasks.scores import Difference

#: Largest share of a cluster in the information on an estimate that its residuals are corrected for.
MAX_LEVERAGE = 0.98


@dataclass(frozen=True)
class Contrast(Difference):
    """A difference between groups of questions, with its 95 % interval and p-value for new documents."""

    standard_error: float = 0.0
    degrees: float = 1.0
    """Satterthwaite's degrees of freedom, at least 1."""
    held_fixed: Stratum = Stratum.DOCUMENT
    documents: int = 0
    """Independent documents (or articles) with questions in a compared group, of the group that has the fewest."""


@dataclass(frozen=True, eq=False)
class GroupContrasts:
    """Groups of questions that are compared with the stratum held fixed.

    The document is held fixed if at least half of the questions are in documents with several of them and it is compared
    within them, else the subset and the length.
    """

    observations: Observations
    """The n questions."""
    groups: Sequence[NDArray[np.bool_]]
    """Masks of one or two disjoint groups, shape (n,) each; the other questions are the reference."""
    limit: float = 1.0
    """Largest possible difference: 1 of gains, 2 of differences of two models."""

    @cached_property
    def _rows(self) -> tuple[Observations, Floats]:
        """The rows that are compared, and the share of each in the groups, shape (rows, groups)."""
        columns = np.stack([np.asarray(group, np.float64) for group in self.groups], axis=1)
        return self.observations.merge_places(columns)

    @cached_property
    def _by_document(self) -> Regression | None:
        documents = self._rows[0].documents
        if not len(documents) or (np.bincount(documents)[documents] > 1).mean() < SHARED_QUERIES:
            return None
        return self._fit(Stratum.DOCUMENT, documents)

    @cached_property
    def _by_length(self) -> Regression | None:
        observations, _ = self._rows
        several = len(np.unique(observations.subsets)) > 1
        lengths = observations.half_octaves if observations.half_octaves.any() else observations.lengths
        cells = observations.subsets * (lengths.max(initial=0) + 1) + lengths
        return self._fit(Stratum.SUBSET_AND_LENGTH if several else Stratum.LENGTH, cells)

    def _fit(self, held_fixed: Stratum, strata: Integers) -> Regression | None:
        observations, columns = self._rows
        return Regression.fit(observations.gains, columns, held_fixed, strata, observations.clusters, observations.weights)

    def contrast(self, *weights: float) -> Contrast | None:
        """Estimate a difference; None if no stratum has questions on both sides, or only one cluster has.

        Weights are of the groups: 1, -1 is the first minus the second one.
        """
        chosen = np.array(weights, np.float64)
        estimate = self._by_document.contrast(chosen, self.limit) if self._by_document else None
        return estimate or (self._by_length.contrast(chosen, self.limit) if self._by_length else None)


@dataclass(frozen=True, eq=False)
class PositionContrasts:
    """The differences that position makes to questions, each computed when it is asked for. None if sides are not compared."""

    observations: Observations
    """Gains of a model in [0, 1], or differences of two models in [-1, 1], with the places of the evidence."""
    limit: float = 1.0
    """Largest possible difference: 1 of gains, 2 of differences."""

    @cached_property
    def _thirds(self) -> GroupContrasts:
        thirds = self.observations.document_thirds
        return GroupContrasts(self.observations, (thirds == 0, thirds == 2), self.limit)

    @cached_property
    def _within_read(self) -> GroupContrasts | None:
        """First and last third of what is read, where that is not all."""
        if not self.not_read:
            return None
        within = self.observations.select_read()
        thirds = within.twelfths // (TWELFTHS // 3)
        return GroupContrasts(within, (thirds == 0, thirds == 2), self.limit)

    @cached_property
    def start_to_end(self) -> Contrast | None:
        """First minus last third of the document."""
        return self._thirds.contrast(1.0, -1.0)

    @cached_property
    def start_to_end_plain(self) -> float | None:
        """Mean over questions of the first third minus that of the last: nothing is held fixed."""
        sides, weights = self._thirds.groups, self.observations.shares
        if not all(side.any() for side in sides):
            return None
        first, last = (
            np.average(self.observations.gains[side], weights=None if weights is None else weights[side]) for side in sides
        )
        return float(first - last)

    @cached_property
    def start_to_middle(self) -> Contrast | None:
        """First minus middle third of the document."""
        return self._thirds.contrast(1.0, 0.0)

    @cached_property
    def middle_to_end(self) -> Contrast | None:
        """Middle minus last third of the document."""
        return self._thirds.contrast(0.0, -1.0)

    @cached_property
    def middle_to_ends(self) -> Contrast | None:
        """Middle third of the document minus the mean of the other two."""
        return self._thirds.contrast(-0.5, -0.5)

    @cached_property
    def not_read(self) -> float | None:
        """Share of the questions whose evidence is not read, or not all of it; None if unknown."""
        return self.observations.not_read

    @cached_property
    def bias_within_read(self) -> Contrast | None:
        """First minus last third of what is read, over the questions whose evidence is read; None if that is unknown, too.

        If all is read, positions in it are those in the document.
        """
        if self.not_read == 0:
            return self.start_to_end
        return self._within_read.contrast(1.0, -1.0) if self._within_read else None

    @cached_property
    def middle_to_ends_within_read(self) -> Contrast | None:
        """Middle third of what is read minus the mean of the other two."""
        if self.not_read == 0:
            return self.middle_to_ends
        return self._within_read.contrast(-0.5, -0.5) if self._within_read else None

    @cached_property
    def not_read_difference(self) -> Contrast | None:
        """nDCG@10 of the questions whose evidence is read minus that of the others."""
        read = self.observations.twelfths < TWELFTHS
        return GroupContrasts(self.observations, (read,), self.limit).contrast(1.0) if self.not_read else None


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
        cls,
        gains: Floats,
        columns: Floats,
        held_fixed: Stratum,
        strata: Integers,
        clusters: Integers,
        weights: Floats | None = None,
    ) -> Regression | None:
        """Fit the regression; None if no stratum has questions on both sides of a column.

        Args:
            gains: Shape (n,).
            columns: Indicators or, of places, shares; shape (n, p).
            held_fixed: The kind of strata. Only documents are nested in clusters.
            strata: Number of each question's stratum, shape (n,).
            clusters: Number of each question's cluster, shape (n,).
            weights: Of each question, shape (n,); None or (0,) if all are equal.
        """
        if not len(gains):
            return None
        _, stratum, sizes = np.unique(strata, return_inverse=True, return_counts=True)
        weights = np.ones(len(gains)) if weights is None or not len(weights) else weights
        totals = np.bincount(stratum, weights)
        y, *deviations = (
            np.sqrt(weights) * (values - (np.bincount(stratum, weights * values) / totals)[stratum])
            for values in (gains, *columns.T)
        )
        x = np.stack(deviations, axis=1)
        # Only questions whose stratum has several groups say anything.
        used = (np.abs(x) > TOLERANCE).any(axis=1)
        if not used.any():
            return None
        level = (np.abs(gains).sum() + 0.5) / (len(gains) + 1)
        pseudo = max(level * (1 - level), 0.0) / (len(gains) - len(sizes))
        x, y, stratum, columns = x[used], y[used], stratum[used], columns[used]
        inverse, _ = pseudoinverse(x.T @ x)
        coefficients: Floats = inverse @ (x.T @ y)
        residuals = y - x @ coefficients
        if held_fixed is not Stratum.DOCUMENT:
            residuals *= np.sqrt(sizes / np.maximum(sizes - 1, 1))[stratum]
        _, cluster = np.unique(clusters[used], return_inverse=True)
        pairs = [[np.bincount(cluster, weights=a * b) for b in x.T] for a in x.T]
        scores: Floats = np.stack([np.bincount(cluster, weights=column * residuals) for column in x.T], axis=1)
        sides = [columns[:, 0] > 0, columns[:, -1] > 0 if columns.shape[1] > 1 else columns[:, 0] < 1]
        documents = min(len(np.unique(cluster[side])) for side in sides)
        return cls(held_fixed, coefficients, inverse, np.moveaxis(np.array(pairs), 2, 0), scores, pseudo, documents)

    @cached_property
    def leverages(self) -> tuple[Floats, Floats, Floats]:
        """R = M^(1/2), shape (p, p), and eigenvalues and eigenvectors of each cluster's R A_c R, (C, p) and (C, p, p)."""
        root = symmetric_root(self.inverse)
        shares, axes = np.linalg.eigh(root @ self.information @ root)
        return root, np.clip(shares, 0, MAX_LEVERAGE), axes

    def contrast(self, weights: Floats, limit: float = 1.0) -> Contrast | None:
        """Estimate a weighted sum of the coefficients; None if it is not compared within strata, or only within one cluster."""
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
            **vars(difference), standard_error=error, degrees=degrees, held_fixed=self.held_fixed, documents=self.documents
        )
