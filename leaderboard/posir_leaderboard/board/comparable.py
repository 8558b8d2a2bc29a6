"""Comparable results of a task: complete, and on the same data by content, whatever their revision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from posir_leaderboard.board.records import BoardRecord


@dataclass(frozen=True)
class ReferenceData:
    """The data that the results of a task are ranked on."""

    data: str
    """Digest of its content."""
    local: bool
    """Whether it is of a local folder, and so perhaps not the data of the published results."""


def reference_data(records: Sequence[BoardRecord]) -> ReferenceData | None:
    """Return the data that results of a task are ranked on; None if there are only published results to rank.

    The data of most complete results on the Hub's data, of several with as many the one with the newest result. Local data
    counts only where there is no result on the Hub's; published results are then on other data.

    Args:
        records: Of one task.
    """
    own = [record for record in records if not record.model.published and not record.partial]
    candidates = [record for record in own if not record.local] or own
    counts = Counter(candidate.data for candidate in candidates)
    by_date = sorted(candidates, key=lambda candidate: candidate.detail["date"] or "")
    newest = {candidate.data: candidate.detail["date"] or "" for candidate in by_date}
    best = max(counts, key=lambda data: (counts[data], newest[data], data), default=None)
    return None if best is None else ReferenceData(best, all(candidate.local for candidate in candidates))


def find_references(records: Iterable[BoardRecord]) -> dict[str, ReferenceData | None]:
    """Return the data that results are ranked on, by task."""
    by_task: dict[str, list[BoardRecord]] = {}
    for record in records:
        by_task.setdefault(record.task, []).append(record)
    return {task: reference_data(of_task) for task, of_task in by_task.items()}


def mark_data(record: BoardRecord, reference: ReferenceData | None) -> str:
    """Return what marks a complete result that is on other data than is ranked: where that is from; else an empty text."""
    if record.model.published:
        return "the papers' data" if reference and reference.local else ""
    if record.partial or reference is None or record.data == reference.data:
        return ""
    return "local data" if record.local else "other data"


def select_comparable(records: Iterable[BoardRecord]) -> list[BoardRecord]:
    """Return the complete results on the data that their tasks are ranked on, and the published ones."""
    references = find_references(records := list(records))
    return [record for record in records if not record.partial and not mark_data(record, references[record.task])]


def select_same_revision(records: Iterable[BoardRecord]) -> list[BoardRecord]:
    """Return the comparable results, and the partial ones that name the same revision of the data as one of these."""
    comparable = select_comparable(records := list(records))
    revisions = {(record.task, record.detail["data_revision"]) for record in comparable}
    partial = [record for record in records if record.partial and (record.task, record.detail["data_revision"]) in revisions]
    return [*comparable, *partial]
