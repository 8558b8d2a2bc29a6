"""Report the items that enter, pass and fail each stage, next to published rates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
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
from posir_build.verify import RERANK_REASONS, MarginPool, MarginRange
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import MISSING, format_count, format_percent
from posir_tasks.display.tables import Table, build_numeric_table
from posir_tasks.values.evidence import POSITIONS
from posir_tasks.values.means import estimate_mean


@dataclass(frozen=True)
class StageRow:
    """Counts of a stage or one of its checks."""

    stage: str
    unit: str
    """Unit of the counts, `documents` or `questions`."""
    taken: int
    kept: int
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Number of discarded items by reason."""
    published_rate: float | None = None
    """Share kept in a paper, in [0, 1]."""
    published_in: str = ""
    """Name of the paper; empty without a published rate."""
    rate_interval: Sequence[float] | None = None
    """95% interval of the share for new documents, for the check of labeled spans only."""

    @property
    def rate(self) -> float | None:
        """Share kept, in [0, 1]; None if nothing was taken."""
        return self.kept / self.taken if self.taken else None

    def to_record(self) -> dict[str, Any]:
        """Convert the row to JSON values."""
        return asdict(self) | {"rate": self.rate}


#: Names of PosQ (arXiv 2505.13950), Built-in or Learned (arXiv 2605.26578) and PosIR (arXiv
#: 2601.08363) in reports.
POSQ = "FineWeb-PosQ"
BUILT_IN = "arXiv 2605.26578"
POSIR = "PosIR"
#: Published shares kept, by stage and rule. PosQ: table in appendix A.2. Built-in or Learned:
#: section 3.1.3, at a margin of 0.3. PosIR, false negatives: English documents, assuming 70,000
#: sampled documents per domain. PosIR, translations: section 2.4, 17,864 of 8 x 1,719,701 documents
#: and 358 of 8 x 42,015 questions discarded.
PUBLISHED_RATES: Mapping[tuple[str, str], tuple[float, str]] = {
    ("verify: rerankers", "segments"): (0.440, POSQ),
    ("verify: rerankers", "margin"): (0.1632, BUILT_IN),
    ("verify: relevance", "segments"): (0.673, POSQ),
    ("false-negatives", "question"): (0.978, POSQ),
    ("false-negatives: documents", "document"): (0.792, POSIR),
    ("translate", "documents"): (1 - 17_864 / (8 * 1_719_701), POSIR),
    ("translate", "questions"): (1 - 358 / (8 * 42_015), POSIR),
}
#: Built-in or Learned, table 7: TargetYes, DistractorNo and Exclusive, by margin range.
AUDIT_RATES: Mapping[tuple[float | None, float | None], tuple[float, ...]] = {
    (None, 0.0): (0.877, 0.738, 0.514),
    (0.0, 0.1): (0.934, 0.835, 0.670),
    (0.1, 0.2): (0.937, 0.902, 0.777),
    (0.2, 0.3): (0.947, 0.944, 0.853),
    (0.3, None): (0.954, 0.970, 0.904),
}
#: Built-in or Learned, table 6: number of questions at the beginning, in the middle and at the end,
#: by minimum margin.
MARGIN_POOLS: Mapping[float | None, tuple[int, ...]] = {
    0.0: (925_013, 523_440, 553_708),
    0.1: (754_366, 295_120, 335_836),
    0.2: (539_882, 149_127, 180_729),
    0.3: (335_650, 62_904, 82_682),
}
#: Built-in or Learned: number of questions before the margin filter.
PUBLISHED_QUESTIONS = 2_948_006
#: Keys of `MarginRange.rates`.
AUDIT_NAMES = ("TargetYes", "DistractorNo", "Exclusive")
#: Maximum number of documents to list in a note.
MAX_LISTED_DOCUMENTS = 20


def build_stage_rows(results: Mapping[str, StageResult]) -> list[StageRow]:
    """Build a row for each completed stage and for each check of Verify."""
    rows = []
    for stage, result in results.items():
        document_count = len(result.documents)
        counts = result.counts
        if stage == "sample":
            taken = counts["documents read"]
            rows.append(StageRow(stage, "documents", taken, document_count, result.count_reasons()))
            continue
        if stage == "verify":
            rows += _count_checks(result)
        if "documents removed" in counts:
            taken = document_count + counts["documents removed"]
            name = f"{stage}: documents"
            rows.append(_build_row(name, "documents", taken, document_count, {}, "document"))
        taken = len(result.list_all_questions())
        kept_count = len(result.questions)
        rule = "question" if "suspects" in counts else ""
        rows.append(_build_row(stage, "questions", taken, kept_count, result.count_reasons(), rule))
        if stage == "locate":
            rows += _count_labels(result)
    return rows


def _build_row(
    stage: str, unit: str, taken: int, kept: int, reasons: Mapping[str, int], rule: str
) -> StageRow:
    """Build a row with the published share for the stage and rule."""
    return StageRow(
        stage, unit, taken, kept, reasons, *PUBLISHED_RATES.get((stage, rule), (None, ""))
    )


def _count_checks(result: StageResult) -> Iterator[StageRow]:
    """Yield a row for each check with verdicts."""
    for check in (Check.RERANKERS, Check.RELEVANCE, Check.LEAVE_SPAN_OUT):
        verdicts = [verdict for _, verdict in list_verdicts(result, check)]
        if verdicts:
            passed = sum(verdict.passed for verdict in verdicts)
            name = f"verify: {check}"
            yield _build_row(name, "questions", len(verdicts), passed, {}, verdicts[0].rule)


def list_verdicts(result: StageResult, check: Check) -> list[tuple[Question, QuestionVerdict]]:
    """List the verdicts of a check with their questions, whether kept or discarded."""
    return [
        (question, verdict)
        for question in result.list_all_questions()
        for verdict in question.verdicts
        if verdict.check is check
    ]


def _count_labels(result: StageResult) -> Iterator[StageRow]:
    """Yield a row that counts how often the labeled span is the only evidence. Yield nothing if the
    data has no labels.
    """
    verdicts = list_verdicts(result, Check.LABELED_SPAN)
    if not verdicts:
        return
    passed = np.array([verdict.passed for _, verdict in verdicts], np.float64)
    names = [question.document for question, _ in verdicts]
    estimate = estimate_mean(passed, np.unique(names, return_inverse=True)[1])
    reasons = []
    for _, verdict in verdicts:
        reason = verdict.values["reason"]
        if reason == DiscardReason.ADDITIONAL_PASSAGE:
            reason = pluralize(len(verdict.values["others"]), "passage") + " besides it"
        reasons.append(reason)
    yield StageRow(
        "locate: labeled span the only evidence",
        "questions",
        len(verdicts),
        int(passed.sum()),
        dict(Counter(filter(None, reasons)).most_common()),
        rate_interval=estimate.interval if estimate else None,
    )


def describe_lost_documents(result: StageResult) -> list[str]:
    """Describe documents whose questions were all discarded for the same reason, since they may
    contain instructions to the judge.

    Documents with one question are skipped, and so are questions that rerankers discarded, since
    rerankers do not follow instructions.
    """
    reasons_by_document: defaultdict[str, list[str]] = defaultdict(list)
    for question in result.questions:
        reasons_by_document[question.document].append("")
    for item in result.discarded:
        if item.question and item.reason not in RERANK_REASONS.values():
            reasons_by_document[item.question.document].append(item.reason)
    counts = Counter(chain.from_iterable(reasons_by_document.values()))
    total = counts.total()
    del counts[""]
    expected_agreement = 0.0
    descriptions = []
    for name, reasons in reasons_by_document.items():
        number = len(reasons)
        if number == 1:
            continue
        expected_agreement += sum((count / total) ** number for count in counts.values())
        if reasons[0] and len(set(reasons)) == 1:
            source = result.by_id[name].source
            descriptions.append(f"{name} ({source}): {reasons[0]}, {number} of {number}")
    if not descriptions:
        return []
    return [
        f"verify: {pluralize(len(descriptions), 'document')} lost all questions for the same "
        f"reason ({expected_agreement:.1f} expected by chance). Read them: they may contain "
        f"instructions to the judge. {'; '.join(descriptions[:MAX_LISTED_DOCUMENTS])}"
    ]


def build_translation_rows(
    original: StageResult, translation: StageResult, name: str
) -> Iterator[StageRow]:
    """Yield the rows for the documents and the questions of a translation."""
    for unit in ("documents", "questions"):
        reasons = count_reasons(
            item for item in translation.discarded if bool(item.question) == (unit == "questions")
        )
        yield StageRow(
            f"translate: {name}, {unit}",
            unit,
            len(getattr(original, unit)),
            len(getattr(translation, unit)),
            reasons,
            *PUBLISHED_RATES["translate", unit],
        )


def build_stage_tables(rows: Sequence[StageRow], notes: Sequence[str]) -> list[Table]:
    """Build the table of discard reasons and the table of counts per stage. The notes follow the
    first table.
    """
    stage_rows = []
    reasons: list[tuple[str, ...]] = []
    for row in rows:
        published_rate = format_percent(row.published_rate)
        if row.published_in:
            published_rate += f" ({row.published_in})"
        rate = format_percent(row.rate)
        if row.rate_interval:
            rate += f" [{', '.join(map(format_percent, row.rate_interval))}]"
        counts = (format_count(row.taken), format_count(row.kept))
        stage_rows.append((row.stage, *counts, rate, published_rate))
        reasons += [
            (row.stage, reason, format_count(count)) for reason, count in row.reasons.items()
        ]
    headings = ("Stage", "In", "Kept", "Kept %", "Published %")
    title = "What each stage kept"
    if not reasons:
        return [build_numeric_table(headings, stage_rows, title=title, notes=notes)]
    return [
        build_numeric_table(
            ("Stage", "Reason", "Number"),
            reasons,
            keys=2,
            title="Reasons for discarding",
            notes=notes,
        ),
        build_numeric_table(headings, stage_rows, title=title),
    ]


def build_margin_tables(
    pools: Sequence[MarginPool], ranges: Sequence[MarginRange]
) -> Iterator[Table]:
    """Yield the tables of questions and of audit rates by margin; skip empty tables."""
    if pools:
        thirds = f"Published {' / '.join(POSITIONS)} %"
        headings = ("Margin", "Questions", "Kept %", *POSITIONS, "Published %", thirds)
        title = "Questions with at least this margin, and the third of their evidence"
        note = f"Published: {BUILT_IN}, table 6. Questions that a check discarded are included."
        yield build_numeric_table(headings, map(_format_pool, pools), title=title, notes=[note])
    if ranges:
        rates = (f"{name} %" for name in AUDIT_NAMES)
        audit_headings = ("Margin", "Audited", *rates, "Published %")
        note = f"Published: {BUILT_IN}, table 7, for its margin ranges."
        title = "Audit by margin"
        yield build_numeric_table(
            audit_headings, map(_format_range, ranges), title=title, notes=[note]
        )


def _format_pool(pool: MarginPool) -> tuple[str, ...]:
    question_count = sum(pool.positions)
    counts = [
        f"{format_count(count)} ({format_percent(count / max(1, question_count))}%)"
        for count in pool.positions
    ]
    published_counts = MARGIN_POOLS.get(pool.at_least, ())
    total = sum(published_counts)
    return (
        "all" if pool.at_least is None else f"from {pool.at_least:g}",
        format_count(question_count),
        format_percent(pool.share),
        *counts,
        format_percent(total / PUBLISHED_QUESTIONS if total else None),
        _join_percent(count / total for count in published_counts),
    )


def _format_range(row: MarginRange) -> tuple[str, ...]:
    name = f"from {row.low:g}" if row.low is not None else "kept"
    if row.high is not None:
        name = f"below {row.high:g}" if row.low is None else f"[{row.low:g}, {row.high:g})"
    rates = [format_percent(row.rates.get(rate)) for rate in AUDIT_NAMES]
    published_rates = _join_percent(AUDIT_RATES.get((row.low, row.high), ()))
    return (name, format_count(row.audited), *rates, published_rates)


def _join_percent(rates: Iterable[float]) -> str:
    return " / ".join(map(format_percent, rates)) or MISSING
