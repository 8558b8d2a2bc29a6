"""Misfits in the judgments of data: counts, and the sentences on them."""

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
    """A kind of misfits, as tables and sentences have it."""

    label: str
    of: str
    """The field with the number of items that there are; empty if that is not counted."""
    sentence: str = ""
    """Empty if it is described elsewhere."""


#: Each kind by its field. Copies and spans have sentences of their own, and questions that are left
#: out are listed by cause.
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
        "{count} of the pairs of query and document {is_} judged several times with different "
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
        "{count} of {queries} {has} no text in the data (first {first}), so that no retriever can "
        "be asked.",
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
        "{count} of the grades {is_} below 0 (first {first}), as for what was not judged or is "
        "spam: not relevant.",
    ),
    "repeated_questions": AuditKind(
        "Queries with the text of an earlier query",
        "queries",
        "{count} of {queries} {has} the text of an earlier query (first {first}): no system can "
        "tell them apart.",
    ),
    "self_hits": AuditKind(
        "Queries whose text is a document",
        "queries",
        "{count} of {queries} {has} the text of a document of the corpus (first {first}), which "
        "every system finds first.",
    ),
    "moved": AuditKind("Answers moved from where the file says to their only match", "queries"),
    "unverified": AuditKind("Spans without an answer's text, which nothing verifies", "queries"),
    "copies": AuditKind(
        "Relevant documents with the text of another document", "relevant_documents"
    ),
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
    fractional: Misfits = Misfits()
    """Pairs whose grade is not a whole number."""
    sentinels: Misfits = Misfits()
    """Pairs whose grade is below 0."""
    repeated_questions: Misfits = Misfits()
    """Queries with the text of an earlier one, white space aside."""
    self_hits: Misfits = Misfits()
    """Queries whose text is that of a document, white space aside."""
    moved: Misfits = Misfits()
    """Questions whose answer was moved."""
    unverified: Misfits = Misfits()
    """Questions whose span is stated without the text of the answer."""
    copies: Misfits = Misfits()
    """Relevant documents with the text of another document, white space aside."""
    relevant_documents: int = 0
    """Relevant documents, each once, where copies were looked for."""
    lost: tuple[tuple[str, Misfits], ...] = ()
    """Questions that are left out, by cause; a cause may occur several times."""
    unjudged: int = 0
    """Questions that are left out and not among the judged queries."""

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
        stated = judgments.grades.items()
        grades = [(query, name, grade) for query, of in stated for name, grade in of.items()]
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
            fractional=Misfits.from_pairs(
                (query, name) for query, name, grade in grades if grade % 1
            ),
            sentinels=Misfits.from_pairs(
                (query, name) for query, name, grade in grades if grade < 0
            ),
            repeated_questions=Misfits.from_names(_list_repeated(judgments)),
        )

    def add_data(self, data: PositionData, judgments: Judgments) -> JudgmentAudit:
        """Add what the texts of the data show, in two passes over the corpus, and the questions
        that were left out.
        """
        from posir_tasks.data.copies import find_copies, find_texts, list_relevant

        relevant = list_relevant(judgments)
        copies = find_copies(data.documents, relevant)
        copied = [name for group in copies.groups for name in group if name in relevant]
        by_cause: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
        # Of judgments alone, no question has a position that it could lose.
        for item in data.skipped if len(data.evidence) else ():
            if item.cause:
                # A question with several documents may be listed several times.
                by_cause[str(item.cause)][item.file, item.name] = item.name
        lost = [(cause, Misfits.from_names(names.values())) for cause, names in by_cause.items()]
        unjudged = {key for names in by_cause.values() for key in names}
        known = find_texts(data.documents, judgments.queries)
        return self + JudgmentAudit(
            self_hits=Misfits.from_names(known),
            moved=Misfits.from_names(data.moved),
            unverified=Misfits.from_names(data.unverified),
            copies=Misfits.from_names(copied),
            relevant_documents=len(relevant),
            lost=tuple(lost),
            unjudged=sum(name not in judgments.grades for _, name in unjudged),
        )

    def __add__(self, other: JudgmentAudit) -> JudgmentAudit:
        names = [item.name for item in fields(self)]
        return JudgmentAudit(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def has_findings(self) -> bool:
        """Whether anything does not fit."""
        return bool(self.lost) or any(getattr(self, kind).count for kind in KINDS)

    def describe(self) -> Iterator[str]:
        """Yield a sentence for each kind of misfit."""
        for field, kind in KINDS.items():
            misfits = getattr(self, field)
            is_single = misfits.count == 1
            if misfits.count and kind.sentence:
                yield kind.sentence.format(
                    count=f"{misfits.count:,}",
                    first=sanitize(misfits.first),
                    is_="is" if is_single else "are",
                    has="has" if is_single else "have",
                    queries=pluralize(self.queries, "query", "queries"),
                    relevant=pluralize(self.relevant, "relevant document"),
                )

    def list_rows(self) -> list[dict[str, str | int]]:
        """List a row for each kind of misfit, also those that there are none of, and for each cause
        of questions left out, with keys `finding`, `count`, `of`, `first`.
        """
        rows = []
        for field, kind in KINDS.items():
            total = getattr(self, kind.of) if kind.of else ""
            rows.append((kind.label, getattr(self, field), total))
        by_cause: dict[str, Misfits] = {}
        for cause, misfits in self.lost:
            by_cause[cause] = by_cause.get(cause, Misfits()) + misfits
        questions = self.queries + self.unjudged
        rows += [(f"Question left out: {cause}", by_cause[cause], questions) for cause in by_cause]
        return [
            {"finding": label, "count": misfits.count, "of": total, "first": misfits.first}
            for label, misfits, total in rows
        ]


def _list_repeated(judgments: Judgments) -> list[str]:
    """List the judged queries with the text of an earlier one, white space aside."""
    first: set[str] = set()
    repeated = []
    for query in judgments.grades:
        text = " ".join((judgments.queries.get(query) or "").split())
        if text and text in first:
            repeated.append(query)
        first.add(text)
    return repeated
