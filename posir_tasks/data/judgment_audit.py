"""Audit judgments: count suspicious items and describe them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.data.grades import JudgedPair

if TYPE_CHECKING:
    from posir_tasks.data.data import Judgments, PositionData


class AuditCheck(NamedTuple):
    """A check of judgments for one kind of suspicious item."""

    label: str
    total: str
    """Key of the total in `JudgmentAudit.totals`, or an empty string."""
    sentence: str = ""
    """Template; empty if another module writes the sentence."""


#: Checks by key of `JudgmentAudit.items`.
AUDIT_CHECKS = {
    "missing_documents": AuditCheck(
        "Relevant documents missing from the corpus",
        "relevant",
        "{count} of {relevant} {is_} not in the corpus (first {first}): no system can find what "
        "the corpus lacks.",
    ),
    "unanswerable": AuditCheck(
        "Queries whose relevant documents are all missing",
        "queries",
        "{count} of {queries} can only be scored 0, since none of their relevant documents is in "
        "the corpus (first {first}).",
    ),
    "contradictions": AuditCheck(
        "Pairs with different grades",
        "",
        "{count} of the query-document pairs {is_} judged several times with different "
        "grades (first {first}): the highest counts.",
    ),
    "without_relevant": AuditCheck(
        "Queries without a relevant document",
        "queries",
        "{count} of {queries} {has} no relevant document (first {first}): scored 0 for every "
        "system.",
    ),
    "without_text": AuditCheck(
        "Judged queries without a text",
        "queries",
        "{count} of {queries} {has} no text in the data (first {first}), so no retriever can "
        "search for them.",
    ),
    "left_out": AuditCheck(
        "Queries without text or judgment",
        "",
        "{count} of the queries {has} no text or no judgment (first {first}): not scored, as in "
        "mteb.",
    ),
    "fractional": AuditCheck(
        "Fractional grades",
        "",
        "{count} of the grades {is_} fractional (first {first}): each is the gain of its document; "
        "trec_eval reads whole grades only.",
    ),
    "sentinels": AuditCheck(
        "Grades below 0",
        "",
        "{count} of the grades {is_} below 0 (first {first}), a mark of unjudged or spam "
        "documents: not relevant.",
    ),
    "repeated_questions": AuditCheck(
        "Queries with the text of an earlier query",
        "queries",
        "{count} of {queries} {has} the text of an earlier query (first {first}): no system can "
        "distinguish them.",
    ),
    "self_hits": AuditCheck(
        "Queries whose text is a document",
        "queries",
        "{count} of {queries} {has} the text of a document in the corpus (first {first}), which "
        "every system ranks first.",
    ),
    "moved": AuditCheck("Misplaced answers that were moved to their only match", "queries"),
    "unverified": AuditCheck("Spans that no answer text verifies", "queries"),
    "copies": AuditCheck(
        "Relevant documents with the text of another document", "relevant_documents"
    ),
}


@dataclass(frozen=True)
class SuspiciousItems:
    """Number of suspicious items that a check finds, with an example. Additive."""

    count: int = 0
    first: str = ""
    """Name of the first item, or an empty string."""

    @classmethod
    def from_names(cls, names: Iterable[str]) -> SuspiciousItems:
        """Count the names of suspicious items."""
        items = [*names]
        return cls(len(items), items[0] if items else "")

    def __add__(self, other: SuspiciousItems) -> SuspiciousItems:
        return SuspiciousItems(self.count + other.count, self.first or other.first)


NO_ITEMS = SuspiciousItems()
#: Keys of `JudgmentAudit.totals` and their descriptions.
TOTALS = {
    "queries": "Judged queries.",
    "relevant": "Pairs of a query and a document with a grade above 0.",
    "relevant_documents": "Distinct relevant documents, if copies were counted.",
    "unjudged": "Skipped questions that are not among the judged queries.",
}


def name_pairs(pairs: Iterable[JudgedPair]) -> list[str]:
    """Name pairs of query and document."""
    return [f"{document} of query {query}" for query, document in pairs]


@dataclass(frozen=True)
class JudgmentAudit:
    """Counts of suspicious items in judgments. Additive."""

    totals: Counter[str] = field(default_factory=Counter)
    """Counts by key of `TOTALS`."""
    items: Mapping[str, SuspiciousItems] = field(default_factory=dict)
    """Suspicious items by key of `AUDIT_CHECKS`, and skipped questions by cause."""

    @classmethod
    def from_judgments(
        cls, judgments: Judgments, documents: Collection[str] | None
    ) -> JudgmentAudit:
        """Audit judgments.

        Args:
            judgments: The judgments.
            documents: Ids of the corpus; None for qrels without texts.
        """
        relevant = judgments.list_relevant()
        pairs = [(query, name) for query, names in relevant.items() for name in names]
        missing = [pair for pair in pairs if documents is not None and pair[1] not in documents]
        answerable = {query for query, _ in {*pairs} - {*missing}}
        texts = relevant if documents is None else judgments.queries
        fractional = []
        sentinels = []
        for query, grades in judgments.grades.items():
            fractional += [(query, name) for name, grade in grades.items() if grade % 1]
            sentinels += [(query, name) for name, grade in grades.items() if grade < 0]
        names = {
            "missing_documents": name_pairs(missing),
            "unanswerable": dict.fromkeys(query for query, _ in missing if query not in answerable),
            "contradictions": name_pairs(judgments.contradictions),
            "without_relevant": [query for query, names in relevant.items() if not names],
            "without_text": [query for query in relevant if query not in texts],
            "left_out": judgments.left_out,
            "fractional": name_pairs(fractional),
            "sentinels": name_pairs(sentinels),
            "repeated_questions": _list_repeated(judgments),
        }
        return cls(Counter(queries=len(relevant), relevant=len(pairs)), _count_items(names))

    def add_data(self, data: PositionData, judgments: Judgments) -> JudgmentAudit:
        """Add copies, queries that equal documents, repaired spans and skipped questions.

        This scans the corpus twice.
        """
        from posir_tasks.data.copies import find_copied_texts, find_copies, list_relevant

        relevant = list_relevant(judgments)
        copies = find_copies(data.documents, relevant)
        names: dict[str, Collection[str]] = {
            "self_hits": find_copied_texts(data.documents, judgments.queries),
            "moved": data.moved,
            "unverified": data.unverified,
            "copies": [name for group in copies.groups for name in group if name in relevant],
        }
        # Qrels without spans have no positions that could be lost.
        skipped = data.skipped if len(data.evidence) else ()
        # A question may be skipped once per document.
        lost = dict.fromkeys((item.cause, item.file, item.name) for item in skipped if item.cause)
        for cause, _, name in lost:
            names[cause] = [*names.get(cause, ()), name]
        unjudged = {(file, name) for _, file, name in lost if name not in judgments.grades}
        totals = Counter(relevant_documents=len(relevant), unjudged=len(unjudged))
        return self + JudgmentAudit(totals, _count_items(names))

    def __add__(self, other: JudgmentAudit) -> JudgmentAudit:
        items = dict(self.items)
        for key, other_items in other.items.items():
            items[key] = items.get(key, NO_ITEMS) + other_items
        return JudgmentAudit(self.totals + other.totals, items)

    def to_json(self) -> dict[str, Any]:
        """Return totals, items of all checks, and `lost`: pairs of cause and skipped questions."""
        totals = {key: self.totals[key] for key in TOTALS}
        kinds = {key: vars(self.items.get(key, NO_ITEMS)) for key in AUDIT_CHECKS}
        lost = [
            (cause, vars(items)) for cause, items in self.items.items() if cause not in AUDIT_CHECKS
        ]
        return {**totals, **kinds, "lost": lost}

    @property
    def has_findings(self) -> bool:
        """True if any check found a suspicious item."""
        return any(items.count for items in self.items.values())

    def describe(self) -> Iterator[str]:
        """Yield a sentence for each check that found items."""
        for key, check in AUDIT_CHECKS.items():
            items = self.items.get(key, NO_ITEMS)
            is_single = items.count == 1
            if items.count and check.sentence:
                yield check.sentence.format(
                    count=f"{items.count:,}",
                    first=sanitize(items.first),
                    is_="is" if is_single else "are",
                    has="has" if is_single else "have",
                    queries=pluralize(self.totals["queries"], "query", "queries"),
                    relevant=pluralize(self.totals["relevant"], "relevant document"),
                )

    def list_rows(self) -> list[dict[str, str | int]]:
        """List a row per check, and a row per cause of skipped questions.

        Keys are `finding`, `count`, `of` and `first`.
        """
        rows: list[dict[str, str | int]] = []
        for key in dict.fromkeys((*AUDIT_CHECKS, *self.items)):
            items = self.items.get(key, NO_ITEMS)
            label = f"Question left out: {key}"
            total: int | str = self.totals["queries"] + self.totals["unjudged"]
            if key in AUDIT_CHECKS:
                label, total_key, _ = AUDIT_CHECKS[key]
                total = self.totals[total_key] if total_key else ""
            rows.append({"finding": label, "count": items.count, "of": total, "first": items.first})
        return rows


def _count_items(names: Mapping[str, Iterable[str]]) -> dict[str, SuspiciousItems]:
    return {key: SuspiciousItems.from_names(values) for key, values in names.items()}


def _list_repeated(judgments: Judgments) -> list[str]:
    """List the judged queries with the text of an earlier query, ignoring white space."""
    texts = set()
    repeated = []
    for query in judgments.grades:
        text = " ".join((judgments.queries.get(query) or "").split())
        if text and text in texts:
            repeated.append(query)
        texts.add(text)
    return repeated
