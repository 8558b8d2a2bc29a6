"""The order of hits: what ranks them, and a check of what keeps scores from deciding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from operator import attrgetter

from posir_score.hits import GIVE_EACH, Hit, Order
from posir_tasks.base.wording import pluralize, sanitize

#: Scores of unranked documents that rise in at least this share of queries, and by chance with less
#: than `RISING_CHANCE`, count as distances.
RISING_SHARE = 0.9
RISING_CHANCE = 1e-3


def uses_distance(hit: Hit, order: Order | None) -> bool:
    """Tell whether a distance ranks a hit, and not a score."""
    return hit.distance is not None and (hit.score is None or order == "distance")


def read_value(hit: Hit, order: Order | None) -> float | None:
    """Find the value that ranks a hit, the higher the better; None if it has none.

    If the user says that scores decide, what the system calls a distance is a similarity; if
    distances do, a score is one.
    """
    if hit.distance is None and order != "distance":
        return hit.score
    is_distance = uses_distance(hit, order)
    value = hit.distance if is_distance else hit.score
    is_turned = order == "distance" or (is_distance and order != "score")
    return -value if is_turned and value is not None else value


@dataclass
class OrderCheck:
    """Finds what keeps scores from deciding: hits without one, distances, and scores that
    contradict the stated order.
    """

    order: Order | None = None
    """The order that the user chose. If it is None, scores may not contradict the stated order."""
    scored: int = 0
    """Hits with a score or a distance."""
    unscored: int = 0
    """Hits without one."""
    first_unscored: str = ""
    """Document and query of the first of these."""
    distances: int = 0
    """Hits that are ranked by a distance."""
    queries: int = 0
    """Queries of which at least two documents have different scores."""
    contradicting: list[str] = field(default_factory=list)
    """Queries in which a document with a higher score has a later rank."""
    unranked: int = 0
    """Queries without ranks."""
    rising: int = 0
    """Queries without ranks whose scores rise from the first document to the last."""
    log_chance: float = 0.0
    """Natural logarithm of the probability that as many scores rise in random order."""

    def add(self, query: str, hits: Sequence[Hit]) -> None:
        """Count the hits of a query, and compare their scores with their order."""
        scores: list[float] = []
        for hit in hits:
            value = read_value(hit, self.order)
            if value is not None:
                scores.append(value)
                self.distances += hit.distance is not None and uses_distance(hit, self.order)
            elif not self.first_unscored:
                self.first_unscored = (
                    f"document {sanitize(hit.document)} of query {sanitize(query)}"
                )
        self.scored += len(scores)
        self.unscored += len(hits) - len(scores)
        distinct = len(set(scores))
        if self.order is not None or distinct < 2 or len(scores) < len(hits):
            return
        self.queries += 1
        pairs = zip(hits, scores, strict=True)
        ranked = sorted((hit.rank, score) for hit, score in pairs if hit.rank is not None)
        if ranked:
            # Of the same rank, scores may be any.
            groups = [[score for _, score in group] for _, group in groupby(ranked, lambda x: x[0])]
            lowest = accumulate(map(min, groups), min)
            if any(max(group) > low for low, group in zip(lowest, groups[1:], strict=False)):
                self.contradicting.append(query)
            return
        self.unranked += 1
        if scores == sorted(scores):
            self.rising += 1
            self.log_chance -= math.lgamma(distinct + 1)

    def describe_problem(self) -> str:
        """Describe why the scores cannot decide, and which option does; empty if they can."""
        value = "distance" if self.order == "distance" else "score"
        if self.order == "rank":
            return ""
        if self.unscored and self.scored:
            lacking = pluralize(self.unscored, "hit has", "hits have")
            return (
                f"{lacking} no {value}, first {self.first_unscored}, and {self.scored:,} have one. "
                f"{GIVE_EACH}."
            )
        if self.unscored and self.order is not None:
            return (
                f"no hit has a {value}, which --order {self.order} needs. Omit --order, or give "
                "--order rank."
            )
        if 0 < self.distances < self.scored:
            return (
                f"{pluralize(self.distances, 'hit has', 'hits have')} a distance and "
                f"{self.scored - self.distances:,} a score, which cannot be compared. {GIVE_EACH}."
            )
        if self.contradicting:
            queries = pluralize(self.queries, "query", "queries")
            problem = (
                f"in {len(self.contradicting):,} of {queries}, first "
                f"{sanitize(self.contradicting[0])}, the scores contradict the ranks: a document "
                "with a higher score comes later"
            )
        elif self.rising >= RISING_SHARE * max(self.unranked, 1) and self.log_chance < math.log(
            RISING_CHANCE
        ):
            problem = (
                f"in {self.rising:,} of {pluralize(self.unranked, 'query', 'queries')} the "
                "scores rise from the first document to the last, as distances do"
            )
        else:
            return ""
        return (
            f"{problem}. Say what decides: --order distance (the lowest score is best), --order "
            "rank (the order as it is stated), or --order score (the highest score is best)."
        )

    @property
    def ranked_by(self) -> Order:
        """The value that hits are ranked by."""
        if self.order == "rank" or not self.scored:
            return "rank"
        return self.order or ("distance" if self.distances else "score")

    def describe_guess(self) -> str:
        """Describe what ranks documents if it was inferred from a field called distance."""
        if self.order is not None or not self.distances:
            return ""
        return (
            "the lowest distance is best, as its field is called distance; --order score makes "
            "the highest best"
        )


def has_gap(hits: Sequence[Hit], order: Order | None) -> bool:
    """Tell whether some hits lack the score or the distance that ranks others."""
    kinds = {(read_value(hit, order) is not None, uses_distance(hit, order)) for hit in hits}
    return order != "rank" and len(kinds) > 1


def sort_hits(hits: Sequence[Hit], order: Order | None) -> list[Hit]:
    """Sort hits, best first, each with a score, the higher the better. Chunks of one document
    remain several hits.

    Without an order, that of the scores counts, or of the ranks if there are no scores. Some hits
    without a score, which `has_gap` finds, are a ValueError.
    """
    values = [read_value(hit, order) for hit in hits]
    if order == "rank" or all(value is None for value in values):
        rank = 0
        ranks = []
        for hit in hits:
            # In a group, the first hit has the rank of all.
            rank = rank if hit.rank is None else hit.rank
            ranks.append(rank)
        placed = sorted(range(len(hits)), key=ranks.__getitem__)
        values = [0.0] * len(hits)
        for place, row in enumerate(placed):
            values[row] = float(len(hits) - place)
    if None in values:
        raise ValueError("some hits have no score")
    return sort_by_score(
        hit if hit.score == value else hit._replace(score=value)
        for hit, value in zip(hits, values, strict=True)
    )


def sort_by_score(hits: Iterable[Hit]) -> list[Hit]:
    """Sort hits that all have a score, the highest first."""
    return sorted(hits, key=attrgetter("score"), reverse=True)
