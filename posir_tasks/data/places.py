"""Merge overlapping evidence spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from posir_tasks.text.spans import Span


@dataclass(frozen=True)
class QuerySpan:
    """One of several evidence spans of a query."""

    name: str
    """Id of the span's row."""
    query: str
    document: str
    span: Span
    grade: float


def merge_places(places: Iterable[QuerySpan]) -> dict[str, list[QuerySpan]]:
    """Merge overlapping spans of the same query and document.

    Returns:
        Query to spans, sorted by document and span. A merged span has the name of the first one.
        All spans in a document get the document's highest grade.
    """
    by_query: dict[str, list[QuerySpan]] = defaultdict(list)
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
