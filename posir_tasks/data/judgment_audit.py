"""Judgment audit: counts of suspicious items, and sentences that describe them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.data.grades import Pair

if TYPE_CHECKING:
    from posir_tasks.data.data import Judgments, PositionData


class AuditKind(NamedTuple):
    """A kind of suspicious item."""

    label: str
    total_field: str
    """Field of `JudgmentAudit` that counts all items; empty if there is no total."""
    sentence: str = ""
    """Sentence template; empty if another module writes the sentence."""


#: Kinds by field of `JudgmentAudit`.
KINDS = {
    "missing_documents": AuditKind(
        "Relevant documents missing from the corpus",
        "relevant",
        "{count} of {relevant} {is_} not in the corpus (first {first}): no system can find what "
        "the corpus lacks.",
    ),
    "unanswerable": AuditKind(
        "Queries whose relevant documents are all missing",
        "queries",
        "{count} of {queries} can only be scored 0, since none of their relevant documents is in "
        "the corpus (first {first}).",
    ),
    "contradictions": AuditKind(
        "Pairs with different grades",
        "",
        "{count} of the query-document pairs {is_} judged several times with different "
        "grades (first {first}): the highest counts.",
    ),
    "without_relevant": AuditKind(
        "Queries without a relevant document",
        "queries",
        "{count} of {queries} {has} no relevant document (first {first}): scored 0 for every "
        "system.",
    ),
    "without_text": AuditKind(
        "Judged queries without a text",
        "queries",
        "{count} of {queries} {has} no text in the data (first {first}), so no retriever can "
        "search for them.",
    ),
    "left_out": AuditKind(
        "Queries without text or judgment",
        "",
        "{count} of the queries {has} no text or no judgment (first {first}): not scored, as in "
        "mteb.",
    ),
    "fractional": AuditKind(
        "Fractional grades",
        "",
        "{count} of the grades {is_} fractional (first {first}): each is the gain of its document; "
        "trec_eval reads whole grades only.",
    ),
    "sentinels": AuditKind(
        "Grades below 0",
        "",
        "{count} of the grades {is_} below 0 (first {first}), a mark of unjudged or spam "
        "documents: not relevant.",
    ),
    "repeated_questions": AuditKind(
        "Queries with the text of an earlier query",
        "queries",
        "{count} of {queries} {has} the text of an earlier query (first {first}): no system can "
        "distinguish them.",
    ),
    "self_hits": AuditKind(
        "Queries whose text is a document",
        "queries",
        "{count} of {queries} {has} the text of a document in the corpus (first {first}), which "
        "every system ranks first.",
    ),
    "moved": AuditKind("Misplaced answers that were moved to their only match", "queries"),
    "unverified": AuditKind("Spans that no answer text verifies", "queries"),
    "copies": AuditKind(
        "Relevant documents with the text of another document", "relevant_documents"
    ),
}


@dataclass(frozen=True)
class SuspiciousItems:
    """The number of suspicious items of one kind, and the first item. Additive."""

    count: int = 0
    first: str = ""
    """Name of the first item; empty without items."""

    @classmethod
    def from_names(cls, names: Iterable[str]) -> SuspiciousItems:
        """Count names."""
        items = [*names]
        return cls(len(items), items[0] if items else "")

    @classmethod
    def from_pairs(cls, pairs: Iterable[Pair]) -> SuspiciousItems:
        """Count pairs of query and document."""
        return cls.from_names(f"{document} of query {query}" for query, document in pairs)

    def __add__(self, other: SuspiciousItems) -> SuspiciousItems:
        return SuspiciousItems(self.count + other.count, self.first or other.first)


@dataclass(frozen=True)
class JudgmentAudit:
    """Counts of suspicious items in judgments. Additive."""

    queries: int = 0
    """Judged queries."""
    relevant: int = 0
    """Pairs of a query and a document with a grade above 0."""
    missing_documents: SuspiciousItems = SuspiciousItems()
    """Relevant pairs whose document is missing from the corpus."""
    unanswerable: SuspiciousItems = SuspiciousItems()
    """Queries whose relevant documents are all missing from the corpus."""
    contradictions: SuspiciousItems = SuspiciousItems()
    """Pairs with different grades."""
    without_relevant: SuspiciousItems = SuspiciousItems()
    """Queries without a relevant document."""
    without_text: SuspiciousItems = SuspiciousItems()
    """Judged queries without a text."""
    left_out: SuspiciousItems = SuspiciousItems()
    """Queries that the dataset owner does not score, since a text or a judgment is missing."""
    fractional: SuspiciousItems = SuspiciousItems()
    """Pairs with a fractional grade."""
    sentinels: SuspiciousItems = SuspiciousItems()
    """Pairs with a grade below 0."""
    repeated_questions: SuspiciousItems = SuspiciousItems()
    """Queries with the text of an earlier query, up to white space."""
    self_hits: SuspiciousItems = SuspiciousItems()
    """Queries with the text of a document, up to white space."""
    moved: SuspiciousItems = SuspiciousItems()
    """Questions with a repaired span."""
    unverified: SuspiciousItems = SuspiciousItems()
    """Questions whose span cannot be verified because there is no answer text."""
    copies: SuspiciousItems = SuspiciousItems()
    """Relevant documents with the text of another document, up to white space."""
    relevant_documents: int = 0
    """Distinct relevant documents, if copies were counted."""
    lost: tuple[tuple[str, SuspiciousItems], ...] = ()
    """Skipped questions by cause; causes may repeat."""
    unjudged: int = 0
    """Skipped questions that are not among the judged queries."""

    @classmethod
    def from_judgments(
        cls, judgments: Judgments, documents: Collection[str] | None
    ) -> JudgmentAudit:
        """Audit judgments.

        Args:
            judgments: The judgments.
            documents: Ids of the documents in the corpus; None for qrels without texts.
        """
        relevant = judgments.list_relevant()
        pairs = [(query, name) for query, names in relevant.items() for name in names]
        missing = [pair for pair in pairs if documents is not None and pair[1] not in documents]
        answerable = {query for query, _ in {*pairs} - {*missing}}
        texts = relevant if documents is None else judgments.queries
        grades = [
            (query, name, grade)
            for query, row in judgments.grades.items()
            for name, grade in row.items()
        ]
        return cls(
            queries=len(relevant),
            relevant=len(pairs),
            missing_documents=SuspiciousItems.from_pairs(missing),
            unanswerable=SuspiciousItems.from_names(
                dict.fromkeys(query for query, _ in missing if query not in answerable)
            ),
            contradictions=SuspiciousItems.from_pairs(judgments.contradictions),
            without_relevant=SuspiciousItems.from_names(
                query for query, names in relevant.items() if not names
            ),
            without_text=SuspiciousItems.from_names(
                query for query in relevant if query not in texts
            ),
            left_out=SuspiciousItems.from_names(judgments.left_out),
            fractional=SuspiciousItems.from_pairs(
                (query, name) for query, name, grade in grades if grade % 1
            ),
            sentinels=SuspiciousItems.from_pairs(
                (query, name) for query, name, grade in grades if grade < 0
            ),
            repeated_questions=SuspiciousItems.from_names(_list_repeated(judgments)),
        )

    def add_data(self, data: PositionData, judgments: Judgments) -> JudgmentAudit:
        """Add copies, queries that equal documents, span repairs and skipped questions.

        The corpus is scanned twice.
        """
        from posir_tasks.data.copies import find_copied_texts, find_copies, list_relevant

        relevant = list_relevant(judgments)
        copies = find_copies(data.documents, relevant)
        relevant_copies = [name for group in copies.groups for name in group if name in relevant]
        by_cause: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
        # Qrels without spans have no positions to lose.
        for item in data.skipped if len(data.evidence) else ():
            if item.cause:
                # A question with several documents may be skipped several times.
                by_cause[str(item.cause)][item.file, item.name] = item.name
        lost = [
            (cause, SuspiciousItems.from_names(names.values())) for cause, names in by_cause.items()
        ]
        unjudged = {key for names in by_cause.values() for key in names}
        return self + JudgmentAudit(
            self_hits=SuspiciousItems.from_names(
                find_copied_texts(data.documents, judgments.queries)
            ),
            moved=SuspiciousItems.from_names(data.moved),
            unverified=SuspiciousItems.from_names(data.unverified),
            copies=SuspiciousItems.from_names(relevant_copies),
            relevant_documents=len(relevant),
            lost=tuple(lost),
            unjudged=sum(name not in judgments.grades for _, name in unjudged),
        )

    def __add__(self, other: JudgmentAudit) -> JudgmentAudit:
        names = [item.name for item in fields(self)]
        return JudgmentAudit(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def has_findings(self) -> bool:
        """True if there is any suspicious item."""
        return bool(self.lost) or any(getattr(self, kind).count for kind in KINDS)

    def describe(self) -> Iterator[str]:
        """Yield a sentence for each kind with suspicious items."""
        for field, kind in KINDS.items():
            items = getattr(self, field)
            is_single = items.count == 1
            if items.count and kind.sentence:
                yield kind.sentence.format(
                    count=f"{items.count:,}",
                    first=sanitize(items.first),
                    is_="is" if is_single else "are",
                    has="has" if is_single else "have",
                    queries=pluralize(self.queries, "query", "queries"),
                    relevant=pluralize(self.relevant, "relevant document"),
                )

    def list_rows(self) -> list[dict[str, str | int]]:
        """List a row per kind, including kinds without items, and a row per cause of skipped
        questions.

        Keys are `finding`, `count`, `of` and `first`.
        """
        rows = []
        for field, kind in KINDS.items():
            total = getattr(self, kind.total_field) if kind.total_field else ""
            rows.append((kind.label, getattr(self, field), total))
        by_cause: dict[str, SuspiciousItems] = {}
        for cause, items in self.lost:
            by_cause[cause] = by_cause.get(cause, SuspiciousItems()) + items
        questions = self.queries + self.unjudged
        rows += [(f"Question left out: {cause}", by_cause[cause], questions) for cause in by_cause]
        return [
            {"finding": label, "count": items.count, "of": total, "first": items.first}
            for label, items, total in rows
        ]


def _list_repeated(judgments: Judgments) -> list[str]:
    """List the judged queries with the text of an earlier query, up to white space."""
    texts: set[str] = set()
    repeated = []
    for query in judgments.grades:
        text = " ".join((judgments.queries.get(query) or "").split())
        if text and text in texts:
            repeated.append(query)
        texts.add(text)
    return repeated
