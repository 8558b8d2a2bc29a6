"""Misfits in the judgments of data: counts, and the sentences on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from posir_tasks.base.wording import pluralize, sanitized
from posir_tasks.data.grades import Pair

if TYPE_CHECKING:
    from posir_tasks.data.data import Judgments


@dataclass(frozen=True)
class Misfits:
    """The number of items of one kind that do not fit, and the first of them; those of subsets
    add.
    """

    count: int = 0
    first: str = ""
    """Empty if there are none."""

    @classmethod
    def from_names(cls, names: Iterable[str]) -> Misfits:
        """Count names."""
        listed = [*names]
        return cls(len(listed), listed[0] if listed else "")

    @classmethod
    def from_pairs(cls, pairs: Iterable[Pair]) -> Misfits:
        """Count pairs of query and document."""
        return cls.from_names(f"{document} of query {query}" for query, document in pairs)

    def __add__(self, other: Misfits) -> Misfits:
        return Misfits(self.count + other.count, self.first or other.first)

    def __bool__(self) -> bool:
        return bool(self.count)

    @property
    def example(self) -> str:
        """The first of them, for a sentence."""
        return f"first {sanitized(self.first)}"


@dataclass(frozen=True)
class JudgmentAudit:
    """Counts of what does not fit in judgments; those of subsets add."""

    queries: int = 0
    """Judged queries."""
    relevant: int = 0
    """Pairs of a query and a document with a grade above 0."""
    missing_documents: Misfits = Misfits()
    """Relevant pairs whose document is not in the corpus."""
    unanswerable: Misfits = Misfits()
    """Queries with relevant documents, none of which is in the corpus."""
    contradictions: Misfits = Misfits()
    """Pairs that are judged several times, with different grades."""
    without_relevant: Misfits = Misfits()
    """Queries without any relevant document."""
    without_text: Misfits = Misfits()
    """Judged queries whose text is not in the data."""
    left_out: Misfits = Misfits()
    """Queries that the owner of the data does not score, since they have no text or no judgment."""

    @classmethod
    def from_judgments(
        cls, judgments: Judgments, documents: Collection[str] | None
    ) -> JudgmentAudit:
        """Compare judgments with the ids of the corpus; None if the data has no texts, neither of
        documents nor of queries.
        """
        relevant = judgments.list_relevant()
        audit = cls(
            queries=len(relevant),
            relevant=sum(map(len, relevant.values())),
            contradictions=Misfits.from_pairs(judgments.contradictions),
            without_relevant=Misfits.from_names(
                query for query, names in relevant.items() if not names
            ),
            left_out=Misfits.from_names(judgments.left_out),
        )
        if documents is None:
            return audit
        missing = {
            query: [name for name in names if name not in documents]
            for query, names in relevant.items()
        }
        pairs = ((query, name) for query, names in missing.items() for name in names)
        lost = (
            query
            for query, names in missing.items()
            if names and len(names) == len(relevant[query])
        )
        return replace(
            audit,
            missing_documents=Misfits.from_pairs(pairs),
            unanswerable=Misfits.from_names(lost),
            without_text=Misfits.from_names(
                query for query in relevant if query not in judgments.queries
            ),
        )

    def __add__(self, other: JudgmentAudit) -> JudgmentAudit:
        names = [item.name for item in fields(self)]
        return JudgmentAudit(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def describe(self) -> Iterator[str]:
        """Yield a sentence for each kind of misfit."""
        queries = pluralize(self.queries, "query", "queries")
        if self.missing_documents:
            relevant = pluralize(self.relevant, "relevant document")
            verb = "is" if self.missing_documents.count == 1 else "are"
            yield (
                f"{self.missing_documents.count:,} of {relevant} {verb} not in the corpus "
                f"({self.missing_documents.example}): no system can find what the corpus lacks."
            )
        if self.unanswerable:
            yield (
                f"{self.unanswerable.count:,} of {queries} can only be scored 0, since none of "
                f"their relevant documents is in the corpus ({self.unanswerable.example})."
            )
        if self.contradictions:
            pairs = pluralize(
                self.contradictions.count,
                "pair of query and document is",
                "pairs of query and document are",
            )
            yield (
                f"{pairs} judged several times with different grades "
                f"({self.contradictions.example}): the highest counts."
            )
        if self.without_relevant:
            lacking = "has no" if self.without_relevant.count == 1 else "have no"
            yield (
                f"{self.without_relevant.count:,} of {queries} {lacking} relevant document "
                f"({self.without_relevant.example}): scored 0 for every system."
            )
        if self.without_text:
            lacking = "has no" if self.without_text.count == 1 else "have no"
            yield (
                f"{self.without_text.count:,} of {queries} {lacking} text in the data "
                f"({self.without_text.example}), so that no retriever can be asked."
            )
        if self.left_out:
            omitted = pluralize(self.left_out.count, "query has", "queries have")
            yield (
                f"{omitted} no text or no judgment ({self.left_out.example}): not scored, as in "
                "mteb."
            )
