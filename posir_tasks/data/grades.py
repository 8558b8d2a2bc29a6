"""Read and collect relevance grades."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from numbers import Real
from typing import TypeAlias

from posir_tasks.data.formats.passages import SkippedItem

#: Query id and document id.
JudgedPair: TypeAlias = tuple[str, str]

#: Maximum absolute value of a grade; smaller whole numbers are exact in double precision.
MAX_GRADE = 2**53
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
#: The grade rule in messages.
GRADE_RULE = "must be a number, such as 1 or 0.5, of at most 2^53"
#: Reason for skipping judgments; follows a number in messages.
CONTRADICTED = "judgments of pairs that have a higher grade elsewhere, which counts"


def read_grade(value: object) -> float:
    """Parse a grade (the gain of a document) from a number or a string.

    Raises:
        ValueError: The value is not a finite number of at most `MAX_GRADE`.
    """
    is_number = isinstance(value, Real) or (
        isinstance(value, str) and NUMBER.fullmatch(value.strip())
    )
    # Comparisons with NaN are false.
    if not is_number or not abs(grade := float(value)) <= MAX_GRADE:  # type: ignore[arg-type]
        raise ValueError(GRADE_RULE)
    return int(grade) if grade.is_integer() else grade


@dataclass(frozen=True)
class CollectedGrades:
    """Grades by query and document."""

    by_query: dict[str, dict[str, float]] = field(default_factory=dict)
    """Highest grade of each pair: query id to document id to grade."""
    contradictions: tuple[JudgedPair, ...] = ()
    """Pairs with different grades, sorted."""

    def skip_contradictions(self, file: str) -> Iterator[SkippedItem]:
        """Yield a skipped item for each contradictory pair."""
        for query, document in self.contradictions:
            yield SkippedItem(f"query {query}, document {document}", CONTRADICTED, file=file)


def collect_grades(rows: Iterable[tuple[str, str, float]]) -> CollectedGrades:
    """Collect rows of query, document and grade. Integral grades become integers.

    Each pair gets its highest grade, regardless of row order.
    """
    by_query: dict[str, dict[str, float]] = defaultdict(dict)
    contradictions = set()
    for query, document, value in rows:
        grade = int(value) if float(value).is_integer() else value
        earlier = by_query[query].setdefault(document, grade)
        if earlier != grade:
            contradictions.add((query, document))
            by_query[query][document] = max(earlier, grade)
    return CollectedGrades(dict(by_query), tuple(sorted(contradictions)))
