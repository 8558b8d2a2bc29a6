"""Places of evidence of one query that overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from posir_tasks.text.spans import Span


@dataclass(frozen=True)
class PlacedEvidence:
    """One place of a query's evidence."""

    name: str
    """Id of its row."""
    query: str
    document: str
    span: Span
    grade: float


def merge_places(places: Iterable[PlacedEvidence]) -> dict[str, list[PlacedEvidence]]:
    """Merge the places of one query that overlap in a document.

    Returns:
        The places by query, in the order of documents and spans. One that is merged has the name of
        the first; all of one document have the highest grade that is stated of it.
    """
    by_query: dict[str, list[PlacedEvidence]] = defaultdict(list)
    grades: dict[tuple[str, str], float] = {}
    for place in sorted(places, key=lambda place: (place.document, place.span)):
        pair = place.query, place.document
        grades[pair] = max(place.grade, grades.get(pair, place.grade))
        merged = by_query[place.query]
        if merged and merged[-1].document == place.document:
            last = merged[-1].span
            if place.span.start < last.end or place.span == last:
                span = Span(last.start, max(last.end, place.span.end))
                merged[-1] = replace(merged[-1], span=span)
                continue
        merged.append(place)
    for query, merged in by_query.items():
        merged[:] = [replace(place, grade=grades[query, place.document]) for place in merged]
    return by_query
