"""Misfits in the judgments of data: counts, and the sentences on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from posir_tasks.base.wording import pluralize, sanitized
from posir_tasks.data.grades import Pair

if TYPE_CHECKING:
    from posir_tasks.data.data import Judgments

#: What is said of each kind of misfits.
SENTENCES = {
    "missing_documents": "{count} of {relevant} {is_} not in the corpus (first {first}): no system "
    "can find what the corpus lacks.",
    "unanswerable": "{count} of {queries} can only be scored 0, since none of their relevant "
    "documents is in the corpus (first {first}).",
    "contradictions": "{count} of the pairs of query and document {is_} judged several times with "
    "different grades (first {first}): the highest counts.",
    "without_relevant": "{count} of {queries} {has} no relevant document (first {first}): scored 0 "
    "for every system.",
    "without_text": "{count} of {queries} {has} no text in the data (first {first}), so that no "
    "retriever can be asked.",
    "left_out": "{count} of the queries {has} no text or no judgment (first {first}): not scored, "
    "as in mteb.",
}


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
        pairs = [(query, name) for query, names in relevant.items() for name in names]
        missing = [pair for pair in pairs if documents is not None and pair[1] not in documents]
        found = {query for query, _ in {*pairs} - {*missing}}
        texts = relevant if documents is None else judgments.queries
        return cls(
            queries=len(relevant),
            relevant=len(pairs),
            missing_documents=Misfits.from_pairs(missing),
            unanswerable=Misfits.from_names(
                dict.fromkeys(query for query, _ in missing if query not in found)
            ),
            contradictions=Misfits.from_pairs(judgments.contradictions),
            without_relevant=Misfits.from_names(
                query for query, names in relevant.items() if not names
            ),
            without_text=Misfits.from_names(query for query in relevant if query not in texts),
            left_out=Misfits.from_names(judgments.left_out),
        )

    def __add__(self, other: JudgmentAudit) -> JudgmentAudit:
        names = [item.name for item in fields(self)]
        return JudgmentAudit(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def describe(self) -> Iterator[str]:
        """Yield a sentence for each kind of misfit."""
        for kind, sentence in SENTENCES.items():
            misfits = getattr(self, kind)
            is_single = misfits.count == 1
            if misfits.count:
                yield sentence.format(
                    count=f"{misfits.count:,}",
                    first=sanitized(misfits.first),
                    is_="is" if is_single else "are",
                    has="has" if is_single else "have",
                    queries=pluralize(self.queries, "query", "queries"),
                    relevant=pluralize(self.relevant, "relevant document"),
                )
