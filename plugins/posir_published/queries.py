"""How many queries stand behind the published figures, as far as the papers say it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Queries:
    """A number of queries."""

    number: int
    exact: bool = True

    def __str__(self) -> str:
        return f"{self.number:,}" if self.exact else f"about {self.number:,}"


#: Distinct queries of a task; of an average over tasks, all its tasks' together (arXiv 2601.08363, 2505.13950).
TASK_QUERIES = {
    "PosIR": Queries(421_708),
    "PosIR-English": Queries(42_015),
    "PosIR(cross-lingual)": Queries(337_000, exact=False),
    "SQuAD-PosQ": Queries(92_749),
    "SQuAD-PosQ-Tiny": Queries(10_000),
    "FineWeb-PosQ": Queries(25_775),
    "FineWeb-PosQ-Tiny": Queries(3_000, exact=False),
}
#: A language of PosIR on average: 421,708 queries in ten languages.
LANGUAGE_QUERIES = Queries(42_170, exact=False)
#: Queries of each position bucket; a query on a shared boundary of SQuAD-PosQ counts in two (arXiv 2505.13950).
BUCKET_QUERIES = {
    "SQuAD-PosQ": (21_220, 16_527, 13_667, 11_514, 10_089, 20_384),
    "SQuAD-PosQ-Tiny": (2_252, 1_813, 1_444, 1_210, 1_108, 2_237),
    "FineWeb-PosQ": (8_467, 8_213, 9_095),
    # The first 1,000 of each class, less repeated questions; how many those are is not published.
    "FineWeb-PosQ-Tiny": (1_000, 1_000, 1_000),
}


def queries_of(task: str, length: str) -> Queries | None:
    """Return how many queries a published figure rests on; None where the papers do not say, as for each length bucket."""
    return TASK_QUERIES.get(task, LANGUAGE_QUERIES) if length == "all" else None
