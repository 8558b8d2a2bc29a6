"""Order hits by score, distance or rank, and check for contradictions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter

from posir_score.hits import SCORE_ADVICE, Hit, Order, OrderChoice
from posir_tasks.base.wording import pluralize, sanitize

#: Scores without ranks count as distances if they rise in at least this share of queries and the
#: probability of this by chance is below `RISING_CHANCE`.
RISING_SHARE = 0.9
RISING_CHANCE = 1e-3


def is_ranked_by_distance(hit: Hit, order: OrderChoice) -> bool:
    """Return True if a hit is ranked by its distance instead of its score."""
    return hit.distance is not None and (hit.score is None or order == "distance")


def read_value(hit: Hit, order: OrderChoice) -> float | None:
    """Return the value that ranks a hit (higher is better), or None.

    The user's order overrides field names: with order `score`, distances count as similarities, and
    with order `distance`, scores count as distances.
    """
    if hit.distance is None and order != "distance":
        return hit.score
    is_distance = is_ranked_by_distance(hit, order)
    value = hit.distance if is_distance else hit.score
    is_negated = order == "distance" or (is_distance and order != "score")
    return -value if is_negated and value is not None else value


@dataclass
class OrderCheck:
    """Counts hits without scores, distances, and contradictions between scores and ranks."""

    order: OrderChoice = None
    """The user's choice. If None, contradictions are reported."""
    scored_hits: int = 0
    """Number of hits with a score or a distance."""
    unscored_hits: int = 0
    """Number of hits without a score or a distance."""
    first_unscored: str = ""
    """Document and query of the first hit without a score or a distance."""
    distance_hits: int = 0
    """Number of hits that are ranked by distance."""
    queries: int = 0
    """Number of queries with at least two different scores."""
    contradictions: list[str] = field(default_factory=list)
    """Queries with a higher score at a later rank."""
    unranked_queries: int = 0
    """Number of queries without ranks."""
    rising_queries: int = 0
    """Number of queries without ranks whose scores never fall."""
    log_chance: float = 0.0
    """Natural logarithm of the probability that scores in random order rise in these queries."""

    def add(self, query: str, hits: Sequence[Hit]) -> None:
        """Count the hits of a query, and compare scores with ranks."""
        scores = []
        for hit in hits:
            value = read_value(hit, self.order)
            if value is not None:
                scores.append(value)
                self.distance_hits += hit.distance is not None and is_ranked_by_distance(
                    hit, self.order
                )
            elif not self.first_unscored:
                self.first_unscored = (
                    f"document {sanitize(hit.document)} of query {sanitize(query)}"
                )
        self.scored_hits += len(scores)
        self.unscored_hits += len(hits) - len(scores)
        distinct = len(set(scores))
        if self.order is not None or distinct < 2 or len(scores) < len(hits):
            return
        self.queries += 1
        pairs = zip(hits, scores, strict=True)
        # Hits with the same rank may have different scores.
        ranked_scores = sorted((hit.rank, -score) for hit, score in pairs if hit.rank is not None)
        if ranked_scores:
            negative_scores = [score for _, score in ranked_scores]
            if negative_scores != sorted(negative_scores):
                self.contradictions.append(query)
            return
        self.add_unranked(1, [distinct] if scores == sorted(scores) else [])

    def add_unranked(self, queries: int, distinct_counts: Sequence[int]) -> None:
        """Count queries without ranks, given the number of distinct scores of each query whose
        scores never fall.
        """
        self.unranked_queries += queries
        self.rising_queries += len(distinct_counts)
        self.log_chance -= sum(math.lgamma(distinct + 1) for distinct in distinct_counts)

    def describe_problem(self) -> str:
        """Describe a problem with the order and how to fix it; empty if there is none."""
        value = "distance" if self.order == "distance" else "score"
        if self.order == "rank":
            return ""
        if self.unscored_hits and self.scored_hits:
            hits = pluralize(self.unscored_hits, "hit has", "hits have")
            return (
                f"{hits} no {value}, first {self.first_unscored}, and {self.scored_hits:,} have "
                f"one. {SCORE_ADVICE}."
            )
        if self.unscored_hits and self.order is not None:
            return (
                f"no hit has a {value}, but --order {self.order} needs one. Omit --order, or give "
                "--order rank."
            )
        if 0 < self.distance_hits < self.scored_hits:
            return (
                f"{pluralize(self.distance_hits, 'hit has', 'hits have')} a distance and "
                f"{self.scored_hits - self.distance_hits:,} a score, which cannot be compared. "
                f"{SCORE_ADVICE}."
            )
        if self.contradictions:
            queries = pluralize(self.queries, "query", "queries")
            problem = (
                f"in {len(self.contradictions):,} of {queries}, first "
                f"{sanitize(self.contradictions[0])}, the scores contradict the ranks: a document "
                "with a higher score comes later"
            )
        elif self.rising_queries >= RISING_SHARE * max(
            self.unranked_queries, 1
        ) and self.log_chance < math.log(RISING_CHANCE):
            queries = pluralize(self.unranked_queries, "query", "queries")
            problem = (
                f"in {self.rising_queries:,} of {queries} the scores rise from the first document "
                "to the last, as distances do"
            )
        else:
            return ""
        return (
            f"{problem}. Use --order distance (the lowest score is best), --order rank (the ranks "
            "or the order of the hits), or --order score (the highest score is best)."
        )

    @property
    def ranked_by(self) -> Order:
        """The values that rank the hits."""
        if self.order == "rank" or not self.scored_hits:
            return "rank"
        return self.order or ("distance" if self.distance_hits else "score")

    def describe_guess(self) -> str:
        """Describe the order if it was inferred from a distance field; empty otherwise."""
        if self.order is not None or not self.distance_hits:
            return ""
        return (
            "the lowest value is best, since the field is called distance; use --order score if "
            "the highest is best"
        )


def has_gap(hits: Sequence[Hit], order: OrderChoice) -> bool:
    """Return True if some hits lack the score or distance that other hits have."""
    kinds = {
        (read_value(hit, order) is not None, is_ranked_by_distance(hit, order)) for hit in hits
    }
    return order != "rank" and len(kinds) > 1


def sort_hits(hits: Sequence[Hit], order: OrderChoice) -> list[Hit]:
    """Sort hits, best first, and give each hit a score (higher is better).

    By default, hits are sorted by score, or by rank if no hit has a score. Chunks of a document are
    not merged.

    Raises:
        ValueError: Some hits have no score; see `has_gap`.
    """
    values = [read_value(hit, order) for hit in hits]
    if order == "rank" or all(value is None for value in values):
        rank = 0
        ranked_hits = []
        for hit in hits:
            # Only the first hit of a group has a rank.
            rank = rank if hit.rank is None else hit.rank
            ranked_hits.append((rank, hit))
        ranked_hits.sort(key=itemgetter(0))
        scores = range(len(hits), 0, -1)
        return [
            hit._replace(score=float(score))
            for score, (_, hit) in zip(scores, ranked_hits, strict=True)
        ]
    if None in values:
        raise ValueError("some hits have no score")
    return sort_by_score(
        hit if hit.score == value else hit._replace(score=value)
        for hit, value in zip(hits, values, strict=True)
    )


def sort_by_score(hits: Iterable[Hit]) -> list[Hit]:
    """Sort hits by score, highest first."""
    return sorted(hits, key=attrgetter("score"), reverse=True)
