"""A hit, as any system returns it: the reader of a retriever's answers, the order of hits, and a check of that order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, pairwise
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

from posir_tasks.display.wording import pluralize, sanitized

#: Scores of unranked documents that rise in at least this share of queries, and by chance with less than this probability, are
#: taken for distances.
RISING_SHARE, RISING_CHANCE = 0.9, 1e-3
#: Most hits that are read of an answer whose order says nothing, such as a mapping.
MAX_HITS = 100_000
#: The order of a query's documents: the highest score first, as in trec_eval, the lowest, or that of the stated ranks, or else
#: of the rows or hits.
Order: TypeAlias = Literal["score", "distance", "rank"]


class Hit(NamedTuple):
    """A retrieved document or chunk as a system states it."""

    document: str
    """Its id, perhaps that of a chunk, such as `d1#3`."""
    score: float | None = None
    """None if the order alone is stated."""
    rank: int | None = None
    """Its stated rank or place, lower is better; None if the order of the hits means nothing."""
    text: str | None = None
    """The text of a chunk; None if it is not stated."""
    start: int | None = None
    """The chunk's place in the document as the system states it, in code points, half-open; None where it is not stated."""
    end: int | None = None


class AnswerError(Exception):
    """A query has no ranking: the retriever failed in all attempts, or returned something else."""


@dataclass
class OrderCheck:
    """Finds scores that contradict the order in which a system returned documents: distances, or those of an earlier stage."""

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
        """Compare the scores of a query's documents with their order."""
        scores = [hit.score for hit in hits if hit.score is not None]
        distinct = len(set(scores))
        if distinct < 2 or len(scores) < len(hits):
            return
        self.queries += 1
        ranked = sorted((hit.rank, score) for hit, score in zip(hits, scores, strict=True) if hit.rank is not None)
        if ranked:
            # Of the same rank, scores may be any.
            groups = [[score for _, score in group] for _, group in groupby(ranked, key=lambda item: item[0])]
            lowest = math.inf
            for group in groups:
                if max(group) > lowest:
                    self.contradicting.append(query)
                    break
                lowest = min(lowest, *group)
            return
        self.unranked += 1
        if all(a <= b for a, b in pairwise(scores)):
            self.rising += 1
            self.log_chance -= math.lgamma(distinct + 1)

    def describe_problem(self) -> str:
        """Return a sentence if the scores cannot be trusted, which names the option that decides; else nothing."""
        if self.contradicting:
            problem = (
                f"in {len(self.contradicting):,} of {pluralize(self.queries, 'query', 'queries')}, first "
                f"{sanitized(self.contradicting[0])}, the scores contradict the ranks: a document with a higher score comes "
                "later"
            )
        elif self.rising >= RISING_SHARE * max(self.unranked, 1) and self.log_chance < math.log(RISING_CHANCE):
            problem = (
                f"in {self.rising:,} of {pluralize(self.unranked, 'query', 'queries')} the scores rise from the first document "
                "to the last, as distances do"
            )
        else:
            return ""
        return (
            f"{problem}. Say what decides: --order distance (the lowest score is best), --order rank (the order as it is "
            "stated), or --order score (the highest score is best)."
        )


def rank_hits(hits: Sequence[Hit], order: Order | None) -> list[Hit]:
    """Return the hits best first, each with a score, the higher the better. Chunks of one document remain several hits.

    Without an order, that of the scores counts, or of the ranks if there are no scores.
    """
    if order == "rank" or any(hit.score is None for hit in hits):
        placed = sorted(enumerate(hits), key=lambda item: (item[0] if item[1].rank is None else item[1].rank, item[0]))
        return [hit._replace(score=float(len(hits) - place)) for place, (_, hit) in enumerate(placed)]
    if order == "distance":
        hits = [hit._replace(score=-hit.score) for hit in hits if hit.score is not None]
    return sorted(hits, key=attrgetter("score"), reverse=True)


def read_id(value: object) -> str | None:
    """Return the id of a query or document as a text; None if it can be none.

    trec_eval would read it up to a zero byte, and ends the process if it is not Unicode.
    """
    try:
        text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        text.encode()
    except ValueError:  # half of a surrogate pair, or an integer of thousands of digits
        return None
    return text if text and "\0" not in text else None


def read_hits(answer: object, k: int) -> list[Hit]:
    """Return an answer as hits, at most `k` where they are in order, of a mapping all; raise AnswerError if it is none."""
    is_ordered = not isinstance(answer, Mapping)
    if isinstance(answer, Mapping):
        answer = list(islice(answer.items(), MAX_HITS + 1))
        if len(answer) > MAX_HITS:
            raise AnswerError(f"the retriever returned more than {MAX_HITS:,} hits, and {k:,} were asked for")
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise AnswerError(f"the retriever returned {type(answer).__name__}; it must return a list of ids or of (id, score)")
    hits = []
    for place, hit in enumerate(islice(answer, k) if is_ordered else answer, start=1):
        is_pair = isinstance(hit, tuple | list) and len(hit) == 2
        name, score = hit if is_pair else (hit, None)
        if (read := read_id(name)) is None:
            raise AnswerError(f"hit {place} is {_abbreviate(hit)}; it must be an id or (id, score)")
        try:
            value = float(score) if is_pair else None  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise AnswerError(
                f"hit {place}, {_abbreviate(name)}, has the score {_abbreviate(score)}; it must be a finite number"
            )
        hits.append(Hit(read, value, place if is_ordered else None))
    return hits


def _abbreviate(value: object) -> str:
    """Return a value for a message; Python writes no integer of thousands of digits."""
    try:
        return sanitized(value if isinstance(value, str) else str(value))
    except ValueError:
        return "a very large number"
