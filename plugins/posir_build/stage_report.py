"""Counts of what each stage took, kept and discarded, beside the rates that the papers report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posir_build.locate import LABEL_CHECK
from posir_build.records import StageResult
from posir_build.settings import BuildSettings
from posir_build.verify import MarginPool, MarginRange, list_checked
from posir_significance.intervals import estimate_mean
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import MISSING, format_count, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.values.evidence import POSITIONS


@dataclass(frozen=True)
class StageRow:
    """One stage, or one check of a stage."""

    stage: str
    unit: str
    """Unit of the counts: documents or questions."""
    taken: int
    kept: int
    reasons: Mapping[str, int]
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


#: The papers, as a report names them: PosQ (arXiv 2505.13950), Built-in or Learned (arXiv
#: 2605.26578) and PosIR (arXiv 2601.08363).
POSQ, MOVING, POSIR = "FineWeb-PosQ", "arXiv 2605.26578", "PosIR"
#: Shares kept by check and rule: PosQ, table of appendix A.2; Built-in or Learned, section 3.1.3 at
#: a margin of 0.3.
CHECK_RATES = {
    ("rerankers", "segments"): (0.440, POSQ),
    ("rerankers", "margin"): (0.1632, MOVING),
    ("relevance", "segments"): (0.673, POSQ),
}
#: Questions (PosQ, arXiv 2505.13950), and English documents if 70,000 had been drawn per domain
#: (PosIR; derived).
FALSE_NEGATIVE_RATES = {"question": (0.978, POSQ), "document": (0.792, POSIR)}
#: PosIR, section 2.4: 17,864 of 8 x 1,719,701 documents, and 358 of 8 x 42,015 questions discarded
#: (derived).
TRANSLATION_RATES = {
    "documents": (1 - 17_864 / (8 * 1_719_701), POSIR),
    "questions": (1 - 358 / (8 * 42_015), POSIR),
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
#: Most documents that a note names.
MAX_NAMED = 20


def build_stage_rows(results: Mapping[str, StageResult], settings: BuildSettings) -> list[StageRow]:
    """Return a row for each stage that was run, and for each check of Verify."""
    rows: list[StageRow] = []
    taken = 0
    for stage, result in results.items():
        if stage == "sample":
            rows.append(
                StageRow(
                    stage,
                    "documents",
                    result.counts["documents read"],
                    len(result.documents),
                    result.reasons(),
                )
            )
            continue
        if stage == "ask":
            taken = result.counts["questions"]
        if stage == "verify":
            rules = {
                "rerankers": settings.verify.rerank_rule,
                "relevance": settings.verify.relevance,
            }
            for check in [
                name.removesuffix(": checked")
                for name in result.counts
                if name.endswith(": checked")
            ]:
                ends = result.counts[f"{check}: checked"], result.counts[f"{check}: passed"]
                published = CHECK_RATES.get((check, rules.get(check, "")), (None, ""))
                rows.append(StageRow(f"verify: {check}", "questions", *ends, {}, *published))
        is_search = stage == "false-negatives" and settings.false_negatives.embedder is not None
        rate = FALSE_NEGATIVE_RATES[settings.false_negatives.rule] if is_search else (None, "")
        if is_search and settings.false_negatives.rule == "document":
            before = len(result.documents) + result.counts.get("documents removed", 0)
            rows.append(
                StageRow(
                    f"{stage}: documents", "documents", before, len(result.documents), {}, *rate
                )
            )
            rate = None, ""
        rows.append(
            StageRow(stage, "questions", taken, len(result.questions), result.reasons(), *rate)
        )
        taken = len(result.questions)
        rows += _count_labels(result) if stage == "locate" else []
    return rows


def _count_labels(located: StageResult) -> list[StageRow]:
    """Return how often the span that the data of a question states is the only evidence; no row if
    questions are not given.
    """
    verdicts = [
        (question.document, row) for question in list_checked(located) for row in question.verdicts
    ]
    judged = [(name, verdict) for name, verdict in verdicts if verdict.check == LABEL_CHECK]
    if not judged:
        return []
    only = np.array([verdict.passed for _, verdict in judged], np.float64)
    estimate = estimate_mean(only, np.unique([name for name, _ in judged], return_inverse=True)[1])
    reasons = Counter(verdict.values["reason"] for _, verdict in judged if not verdict.passed)
    interval = list(estimate.interval) if estimate and estimate.interval else None
    counts = len(judged), int(only.sum()), dict(reasons.most_common())
    return [
        StageRow(
            "locate: labeled span the only evidence", "questions", *counts, rate_interval=interval
        )
    ]


def describe_kept(rows: Sequence[StageRow]) -> list[str]:
    """Return in a sentence how many documents the sample has, and how many of the questions asked
    are left.
    """
    sample = next((row for row in rows if row.stage == "sample"), None)
    stages = [row for row in rows if row.unit == "questions" and ":" not in row.stage]
    parts = [f"{sample.kept:,} of {pluralize(sample.taken, 'document')} sampled"] if sample else []
    if stages:
        asked, left = stages[0].taken, stages[-1].kept
        share = f" ({format_percent(left / asked)}%)" if asked else ""
        parts.append(
            f"{left:,} of {pluralize(asked, 'question')} kept{share} after {stages[-1].stage}"
        )
    return [f"{'; '.join(parts)}."] if parts else []


def describe_audit(rates: Mapping[str, float]) -> list[str]:
    """Return a note on the rates of `summarize_audit`, beside those published for a margin of 0.3;
    none without an audit.
    """
    parts = (
        f"{name} {format_percent(rate)}% ({MOVING}: {format_percent(published)}%)"
        for (name, rate), published in zip(rates.items(), AUDIT_RATES[0.3], strict=bool(rates))
    )
    return [f"audit: {', '.join(parts)}"] if rates else []


def describe_lost_documents(verified: StageResult) -> list[str]:
    """Return a note on documents of which the judge discarded every question for one reason, as one
    that commands it would.

    Documents with a single question, and questions discarded by rerankers, which follow no
    commands, do not count.
    """
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for question in verified.questions:
        reasons[question.document].append("")
    for discarded in verified.discarded:
        asked = discarded.question
        if asked and all(
            verdict.passed or not verdict.check.startswith("rerankers")
            for verdict in asked.verdicts
        ):
            reasons[asked.document].append(discarded.reason)
    several = {document: given for document, given in reasons.items() if len(given) > 1}
    lost = {
        document: given for document, given in several.items() if given[0] and len({*given}) == 1
    }
    if not lost:
        return []
    shares = Counter(reason for given in reasons.values() for reason in given if reason)
    judged = sum(map(len, reasons.values()))
    expected = sum(
        (number / judged) ** len(given) for given in several.values() for number in shares.values()
    )
    sources = {document.id: document.source for document in verified.documents}
    named = [
        f"{document} ({sources[document]}): {given[0]}, {len(given)} of {len(given)}"
        for document, given in lost.items()
    ]
    more = f"; and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return [
        f"verify: {pluralize(len(lost), 'document')} lost all questions for one and the same "
        f"reason ({expected:.1f} expected "
        "by chance). Read them: such a text may command the judge. "
        f"{'; '.join(named[:MAX_NAMED])}{more}"
    ]


def build_translation_rows(
    before: StageResult, translated: StageResult, name: str
) -> list[StageRow]:
    """Return a row for the documents and one for the questions of a translation."""
    rows = []
    for unit in ("documents", "questions"):
        taken, kept = (len(getattr(result, unit)) for result in (before, translated))
        own = (
            discard
            for discard in translated.discarded
            if (discard.question is None) == (unit == "documents")
        )
        reasons = dict(Counter(discard.reason for discard in own))
        rows.append(
            StageRow(
                f"translate: {name}, {unit}", unit, taken, kept, reasons, *TRANSLATION_RATES[unit]
            )
        )
    return rows


def build_tables(rows: Sequence[StageRow], notes: Sequence[str]) -> list[Table]:
    """Return the table of a build's stages, and that of the reasons for which they discarded
    something, if any.
    """
    numbers, kept = ("In", "Kept", "Kept %", "Published %"), []
    for row in rows:
        published = (
            MISSING
            if row.published_rate is None
            else f"{format_percent(row.published_rate)} ({row.published_in})"
        )
        interval = (
            f" [{', '.join(map(format_percent, row.rate_interval))}]" if row.rate_interval else ""
        )
        counts = format_count(row.taken), format_count(row.kept)
        kept.append((row.stage, *counts, f"{format_percent(row.rate)}{interval}", published))
    columns, title = build_columns(("Stage", *numbers), numbers), "What each stage kept"
    tables = [Table(columns, tuple(kept), title=title, notes=tuple(notes))]
    reasons = tuple(
        (row.stage, reason, format_count(count))
        for row in rows
        for reason, count in row.reasons.items()
    )
    if reasons:
        columns = build_columns(("Stage", "Reason", "Number"), ("Number",))
        tables.insert(0, Table(columns, reasons, title="Why the rest was discarded"))
    return tables


def build_margin_tables(pools: Sequence[MarginPool], ranges: Sequence[MarginRange]) -> list[Table]:
    """Return the tables of the pools by margin and of the audit by range of margins, each if there
    is any.
    """
    rows = []
    for pool in pools:
        questions, published = sum(pool.positions), MARGIN_POOLS.get(pool.at_least, ())
        rows.append(
            (
                _name_range(pool.at_least, None),
                format_count(questions),
                format_percent(pool.share),
                *(
                    f"{format_count(count)} ({format_percent(count / max(1, questions))}%)"
                    for count in pool.positions
                ),
                format_percent(sum(published) / CANDIDATES) if published else MISSING,
                " / ".join(format_percent(count / sum(published)) for count in published)
                or MISSING,
            )
        )
    headings = (
        "Margin",
        "Questions",
        "Kept %",
        *POSITIONS,
        "Published %",
        f"Published {' / '.join(POSITIONS)} %",
    )
    title = "Questions with at least this margin, and the third of their evidence"
    note = f"Published: {MOVING}, table 6. Questions that a check discarded are counted, too."
    pooled = Table(build_columns(headings, headings[1:]), tuple(rows), title=title, notes=(note,))
    names = ("TargetYes", "DistractorNo", "Exclusive")
    columns = ("Margin", "Audited", *(f"{name} %" for name in names), "Published %")
    cells = []
    for row in ranges:
        rates = map(format_percent, map(row.rates.get, names))
        published_rates = " / ".join(map(format_percent, AUDIT_RATES.get(row.low, ()))) or MISSING
        cells.append(
            (_name_range(row.low, row.high), format_count(row.audited), *rates, published_rates)
        )
    note = (
        f"Published: {MOVING}, table 7, for its ranges: below 0, [0, 0.1), [0.1, 0.2), [0.2, "
        "0.3), from 0.3."
    )
    audited = Table(
        build_columns(columns, columns[1:]), tuple(cells), title="Audit by margin", notes=(note,)
    )
    return [*([pooled] if pools else []), *([audited] if ranges else [])]


def _name_range(low: float | None, high: float | None) -> str:
    if low is None:
        return "all" if high is None else f"below {high:g}"
    return f"from {low:g}" if high is None else f"[{low:g}, {high:g})"
