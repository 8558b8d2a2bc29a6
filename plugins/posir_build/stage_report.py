"""Counts of what each stage took, kept and discarded, beside the rates that the papers report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from posir_build.records import (
    Check,
    DiscardReason,
    Question,
    QuestionVerdict,
    StageResult,
    count_reasons,
)
from posir_build.settings import STAGE_NAMES
from posir_build.verify import MarginPool, MarginRange
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import MISSING, format_count, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.values.evidence import POSITIONS
from posir_tasks.values.means import estimate_mean


@dataclass(frozen=True)
class StageRow:
    """One stage, or one check of a stage."""

    stage: str
    unit: str
    """Unit of the counts: documents or questions."""
    taken: int
    kept: int
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Number of discarded items by reason."""
    published_rate: float | None = None
    """Share kept in a paper, in [0, 1]; None if no paper reports one."""
    published_in: str = ""
    rate_interval: Sequence[float] | None = None
    """95% interval of the share for new documents, of the check of labeled spans."""

    @property
    def rate(self) -> float | None:
        """Share kept, in [0, 1]."""
        return self.kept / self.taken if self.taken else None

    def published(self, stage: str, rule: str) -> StageRow:
        """Add the share that a paper reports for a rule, if one does."""
        rate, source = PUBLISHED_RATES.get((stage, rule), (None, ""))
        return replace(self, published_rate=rate, published_in=source)

    def to_record(self) -> dict[str, Any]:
        """Convert the row to JSON values."""
        return asdict(self) | {"rate": self.rate}


#: The papers, as a report names them: PosQ (arXiv 2505.13950), Built-in or Learned (arXiv
#: 2605.26578) and PosIR (arXiv 2601.08363).
POSQ = "FineWeb-PosQ"
MOVING = "arXiv 2605.26578"
POSIR = "PosIR"
#: Shares kept by stage and rule. PosQ: table of appendix A.2; Built-in or Learned: section 3.1.3 at
#: a margin of 0.3; PosIR: English documents if 70,000 had been drawn per domain (derived), section
#: 2.4: 17,864 of 8 x 1,719,701 documents, and 358 of 8 x 42,015 questions discarded (derived).
PUBLISHED_RATES: Mapping[tuple[str, str], tuple[float, str]] = {
    ("verify: rerankers", "segments"): (0.440, POSQ),
    ("verify: rerankers", "margin"): (0.1632, MOVING),
    ("verify: relevance", "segments"): (0.673, POSQ),
    ("false-negatives", "question"): (0.978, POSQ),
    ("false-negatives: documents", "document"): (0.792, POSIR),
    ("translate", "documents"): (1 - 17_864 / (8 * 1_719_701), POSIR),
    ("translate", "questions"): (1 - 358 / (8 * 42_015), POSIR),
}
#: Built-in or Learned, table 7: TargetYes, DistractorNo and Exclusive by the lowest margin of a
#: range.
AUDIT_RATES: Mapping[float | None, tuple[float, float, float]] = {
    None: (0.877, 0.738, 0.514),
    0.0: (0.934, 0.835, 0.670),
    0.1: (0.937, 0.902, 0.777),
    0.2: (0.947, 0.944, 0.853),
    0.3: (0.954, 0.970, 0.904),
}
#: Built-in or Learned, table 6: questions at the beginning, in the middle and at the end by the
#: least margin, of 2,948,006.
MARGIN_POOLS: Mapping[float | None, tuple[int, int, int]] = {
    0.0: (925_013, 523_440, 553_708),
    0.1: (754_366, 295_120, 335_836),
    0.2: (539_882, 149_127, 180_729),
    0.3: (335_650, 62_904, 82_682),
}
CANDIDATES = 2_948_006
#: Maximum number of documents that a note names.
MAX_NAMED = 20
KEPT_COLUMNS = ("Stage", "In", "Kept", "Kept %", "Published %")
POOL_COLUMNS = (
    "Margin",
    "Questions",
    "Kept %",
    *POSITIONS,
    "Published %",
    f"Published {' / '.join(POSITIONS)} %",
)
#: Rates of the audit.
AUDIT_NAMES = ("TargetYes", "DistractorNo", "Exclusive")
AUDIT_COLUMNS = ("Margin", "Audited", *(f"{name} %" for name in AUDIT_NAMES), "Published %")


def build_stage_rows(results: Mapping[str, StageResult]) -> list[StageRow]:
    """Build a row for each stage that was run, and for each check of Verify."""
    rows = []
    taken = 0
    for stage, result in results.items():
        documents = len(result.documents)
        questions = len(result.questions)
        rule = ""
        if stage == "sample":
            read = result.counts["documents read"]
            rows.append(StageRow(stage, "documents", read, documents, result.reasons()))
            continue
        if stage == "ask":
            taken = result.counts["questions"]
        if stage == "verify":
            rows += _count_checks(result)
        if "suspects" in result.counts:
            rule = "question"
        if "documents removed" in result.counts:
            before = documents + result.counts["documents removed"]
            name = f"{stage}: documents"
            rows.append(StageRow(name, "documents", before, documents).published(name, "document"))
        row = StageRow(stage, "questions", taken, questions, result.reasons())
        rows.append(row.published(stage, rule))
        taken = questions
        if stage == "locate":
            rows += _count_labels(result)
    return rows


def _count_checks(verified: StageResult) -> Iterator[StageRow]:
    """Yield a row for each check that questions passed or failed."""
    for check in (Check.RERANKERS, Check.RELEVANCE, Check.LEAVE_SPAN_OUT):
        verdicts = list_verdicts(verified, check)
        if verdicts:
            passed = sum(verdict.passed for _, verdict in verdicts)
            name = f"verify: {check}"
            row = StageRow(name, "questions", len(verdicts), passed)
            yield row.published(name, verdicts[0][1].rule)


def list_verdicts(result: StageResult, check: Check) -> list[tuple[Question, QuestionVerdict]]:
    """List the verdicts of a check with their questions, kept or discarded."""
    return [
        (question, verdict)
        for question in result.checked_questions()
        for verdict in question.verdicts
        if verdict.check is check
    ]


def _count_labels(located: StageResult) -> Iterator[StageRow]:
    """Yield how often the span that the data of a question states is the only evidence; nothing
    without such spans.
    """
    verdicts = list_verdicts(located, Check.LABELED_SPAN)
    if not verdicts:
        return
    passed = np.array([verdict.passed for _, verdict in verdicts], np.float64)
    names = [question.document for question, _ in verdicts]
    estimate = estimate_mean(passed, np.unique(names, return_inverse=True)[1])
    reasons: Counter[str] = Counter()
    for _, verdict in verdicts:
        reason = verdict.values["reason"]
        if reason == DiscardReason.FURTHER_PASSAGE:
            reason = pluralize(len(verdict.values["others"]), "passage") + " besides it"
        reasons[reason] += not verdict.passed
    yield StageRow(
        "locate: labeled span the only evidence",
        "questions",
        len(verdicts),
        int(passed.sum()),
        dict((+reasons).most_common()),
        rate_interval=estimate.interval if estimate else None,
    )


def describe_kept(rows: Sequence[StageRow]) -> list[str]:
    """Describe how many documents the sample has, and how many of the questions asked are left."""
    parts = []
    stages = {row.stage: row for row in rows if row.stage in STAGE_NAMES}
    sample = stages.pop("sample", None)
    if sample:
        parts.append(f"{sample.kept:,} of {pluralize(sample.taken, 'document')} sampled")
    if stages:
        asked = next(iter(stages.values())).taken
        *_, last = stages.values()
        share = f" ({format_percent(last.kept / asked)}%)" if asked else ""
        number = pluralize(asked, "question")
        parts.append(f"{last.kept:,} of {number} kept{share} after {last.stage}")
    return [f"{'; '.join(parts)}."] if parts else []


def describe_audit(rates: Mapping[str, float]) -> list[str]:
    """Describe the rates of `summarize_audit`, and those published for a margin of 0.3; nothing
    without an audit.
    """
    parts = [
        f"{name} {format_percent(rate)}% ({MOVING}: {format_percent(published)}%)"
        for (name, rate), published in zip(rates.items(), AUDIT_RATES[0.3], strict=False)
    ]
    return [f"audit: {', '.join(parts)}"] if parts else []


def describe_lost_documents(verified: StageResult) -> list[str]:
    """Describe documents of which the judge discarded every question for one reason, as it would
    if a document commanded it.

    Documents with a single question do not count, nor do questions discarded by rerankers, which
    follow no commands.
    """
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for question in verified.questions:
        reasons[question.document].append("")
    for item in verified.discarded:
        verdicts = item.question.verdicts if item.question else ()
        if item.question and all(
            row.passed or row.check is not Check.RERANKERS for row in verdicts
        ):
            reasons[item.question.document].append(item.reason)
    judged = [reason for group in reasons.values() for reason in group]
    shares = [count / len(judged) for reason, count in Counter(judged).items() if reason]
    sources = {document.id: document.source for document in verified.documents}
    expected = 0.0
    lost = []
    for name, group in reasons.items():
        number = len(group)
        if number == 1:
            continue
        expected += sum(share**number for share in shares)
        if group[0] and group.count(group[0]) == number:
            lost.append(f"{name} ({sources[name]}): {group[0]}, {number} of {number}")
    if not lost:
        return []
    more = f"; and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else ""
    return [
        f"verify: {pluralize(len(lost), 'document')} lost all questions for one and the same "
        f"reason ({expected:.1f} expected by chance). Read them: such a text may command the "
        f"judge. {'; '.join(lost[:MAX_NAMED])}{more}"
    ]


def build_translation_rows(
    before: StageResult, translated: StageResult, name: str
) -> list[StageRow]:
    """Build a row for the documents and one for the questions of a translation."""
    rows = []
    for unit in ("documents", "questions"):
        discarded = [
            item
            for item in translated.discarded
            if (item.question is None) == (unit == "documents")
        ]
        row = StageRow(
            f"translate: {name}, {unit}",
            unit,
            len(getattr(before, unit)),
            len(getattr(translated, unit)),
            count_reasons(discarded),
        )
        rows.append(row.published("translate", unit))
    return rows


def build_stage_tables(rows: Sequence[StageRow]) -> list[Table]:
    """Build the table of the reasons for which stages discarded something, and that of what they
    kept.
    """
    kept = []
    reasons: list[tuple[str, ...]] = []
    for row in rows:
        published = format_percent(row.published_rate)
        rate = format_percent(row.rate)
        if row.rate_interval:
            rate += f" [{', '.join(map(format_percent, row.rate_interval))}]"
        if row.published_in:
            published += f" ({row.published_in})"
        kept.append((row.stage, format_count(row.taken), format_count(row.kept), rate, published))
        reasons += [
            (row.stage, reason, format_count(count)) for reason, count in row.reasons.items()
        ]
    tables = [_build_table("What each stage kept", KEPT_COLUMNS, kept)]
    if reasons:
        columns = build_columns(("Stage", "DiscardReason", "Number"), ("Number",))
        tables.insert(0, Table(columns, tuple(reasons), title="Why the rest was discarded"))
    return tables


def build_margin_tables(pools: Sequence[MarginPool], ranges: Sequence[MarginRange]) -> list[Table]:
    """Build the tables of the pools by margin and of the audit by range of margins, each if there
    is any.
    """
    tables = []
    rows = []
    for pool in pools:
        questions = sum(pool.positions)
        published = MARGIN_POOLS.get(pool.at_least, ())
        total = sum(published)
        rows.append(
            (
                _name_range(pool.at_least, None),
                format_count(questions),
                format_percent(pool.share),
                *(
                    f"{format_count(count)} ({format_percent(count / max(1, questions))}%)"
                    for count in pool.positions
                ),
                format_percent(total / CANDIDATES if total else None),
                _join_percent(count / total for count in published),
            )
        )
    if rows:
        title = "Questions with at least this margin, and the third of their evidence"
        note = f"Published: {MOVING}, table 6. Questions that a check discarded are included."
        tables.append(_build_table(title, POOL_COLUMNS, rows, note))
    if ranges:
        note = (
            f"Published: {MOVING}, table 7, for its ranges: below 0, [0, 0.1), [0.1, 0.2), [0.2, "
            "0.3), from 0.3."
        )
        cells = [
            (
                _name_range(row.low, row.high),
                format_count(row.audited),
                *(format_percent(row.rates.get(name)) for name in AUDIT_NAMES),
                _join_percent(AUDIT_RATES.get(row.low, ())),
            )
            for row in ranges
        ]
        tables.append(_build_table("Audit by margin", AUDIT_COLUMNS, cells, note))
    return tables


def _build_table(
    title: str, headings: Sequence[str], rows: Iterable[tuple[str, ...]], *notes: str
) -> Table:
    """Build a table whose columns after the first are numbers."""
    columns = build_columns(headings, headings[1:])
    return Table(columns, tuple(rows), title=title, notes=notes)


def _join_percent(rates: Iterable[float]) -> str:
    return " / ".join(map(format_percent, rates)) or MISSING


def _name_range(low: float | None, high: float | None) -> str:
    if low is None:
        return "all" if high is None else f"below {high:g}"
    return f"from {low:g}" if high is None else f"[{low:g}, {high:g})"
