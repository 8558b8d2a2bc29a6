"""Stage 8, Human check: a sheet of questions for people to judge, and how often they agree that a question is right.

No paper reports such a check of its questions (PosQ, arXiv 2505.13950, read 100 traces). The interval is Wilson's, for new
questions: judgments of one question by several people are not independent, and count as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from posir_build.balance import BalanceCell, CellScheme
from posir_build.records import Document, Question, StageResult, by_id, seeded_order
from posir_significance.intervals import wilson_interval
from posir_tasks.display.numbers import format_count, format_interval, format_percent
from posir_tasks.display.tables import Table, build_columns, format_csv
from posir_tasks.errors import DataError
from posir_tasks.estimates import Estimate
from posir_tasks.files import atomic_write
from posir_tasks.gate import read_csv_rows

#: What a person judges, yes or no, each in a column.
JUDGMENTS = {
    "question_ok": "the question makes sense without the document, and names no position in it",
    "answered": "the marked span answers the question",
    "needed": "nothing else in the document answers it",
}
COLUMNS = ("id", "question", "answer", "document", "verdicts", *JUDGMENTS, "comment")
#: What the span is put between.
OPEN, CLOSE = "【", "】"
YES, NO = {"yes", "y", "1", "true", "ja", "oui", "sí", "si"}, {"no", "n", "0", "false", "nein", "non"}


@dataclass(frozen=True)
class JudgmentAgreement:
    """The share of judgments that are yes."""

    judgment: str
    yes: int
    judged: int
    trials: float
    """Independent judgments that they count for: the number of questions, if all have been judged by as many people."""

    @classmethod
    def from_judgments(cls, judgment: str, given: Sequence[tuple[str, bool]]) -> JudgmentAgreement:
        """Count judgments, each with the id of its question.

        Trials are N^2 / sum N_q^2 with N_q judgments of question q, as if those of one question were always the same (Kish
        1965, Survey Sampling, section 8.2).
        """
        squares = sum(number**2 for number in Counter(name for name, _ in given).values())
        return cls(judgment, sum(yes for _, yes in given), len(given), len(given) ** 2 / squares if given else 0.0)

    @property
    def rate(self) -> Estimate | None:
        """Share of yes, in [0, 1], with Wilson's interval; None if nothing was judged."""
        share = self.yes / self.judged if self.judged else None
        return None if share is None else Estimate(share, wilson_interval(share, self.trials))


def choose_questions(result: StageResult, number: int, seed: int, scheme: CellScheme) -> list[Question]:
    """Return a random sample of questions with about equally many from each cell of length and position."""
    known = by_id(result.documents)
    cells: dict[BalanceCell, list[Question]] = {}
    for question in sorted(result.questions, key=lambda question: seeded_order(seed, "human check", question.id)):
        cells.setdefault(scheme.find(question, known[question.document]), []).append(question)
    rounds = [(row, cell, question) for cell, questions in sorted(cells.items()) for row, question in enumerate(questions)]
    return [question for _, _, question in sorted(rounds, key=lambda row: row[:2])[:number]]


def write_sheet(file: Path, result: StageResult, questions: Sequence[Question]) -> None:
    """Write questions as a CSV file with empty columns for judgments."""
    known = by_id(result.documents)
    rows = []
    for question in questions:
        verdicts = "; ".join(f"{verdict.check} {verdict.values}" for verdict in question.verdicts)
        rows.append((question.id, question.text, question.answer, mark_span(known[question.document], question), verdicts))
    write_sheet_rows(file, COLUMNS, rows)


def write_sheet_rows(file: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file for people to fill in; the last columns, for which a row has no cell, are left empty."""
    filled = ([*(cell.replace("\r\n", "\n") for cell in row), *("" for _ in columns[len(row) :])] for row in rows)
    with atomic_write(file) as part:
        # With a byte-order mark, or spreadsheets take UTF-8 for something else.
        part.write_text(format_csv(columns, filled), encoding="utf-8-sig", newline="")


def mark_span(document: Document, question: Question) -> str:
    """Return a document with its span between marks."""
    span, text = question.evidence, document.text
    return f"{text[: span.start]}{OPEN}{text[span.start : span.end]}{CLOSE}{text[span.end :]}"


def read_sheet(file: Path) -> dict[str, dict[str, bool]]:
    """Return the judgments of one person: by question id and column; empty cells are left out.

    Raises:
        DataError: The file is no such sheet, or has a judgment that is neither yes nor no.
    """
    rows = read_csv_rows(file, ("id", *JUDGMENTS), "a sheet that `posir build sample` wrote")
    return {row["id"]: dict(_read_row(file, number, row)) for number, row in enumerate(rows, 2)}


def _read_row(file: Path, number: int, row: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    for column in JUDGMENTS:
        value = row[column].lower()
        if value in YES | NO:
            yield column, value in YES
        elif value:
            where = f"{file}: row {number}: field '{column}'"
            raise DataError(f"{where}: {value!r} is neither yes nor no; leave it empty if unsure.")


def count_agreement(sheets: Sequence[dict[str, dict[str, bool]]]) -> list[JudgmentAgreement]:
    """Return how often people say yes, by column and to all of them; and how often two people give the same judgment."""
    rows = [(name, row) for sheet in sheets for name, row in sheet.items()]
    counted = [
        JudgmentAgreement.from_judgments(title, [(name, row[column]) for name, row in rows if column in row])
        for column, title in JUDGMENTS.items()
    ]
    complete = [(name, all(row.values())) for name, row in rows if len(row) == len(JUDGMENTS)]
    counted.append(JudgmentAgreement.from_judgments("all of these", complete))
    if len(sheets) > 1:
        same = [
            (name, sheet[name][column] == other[name][column])
            for sheet, other in combinations(sheets, 2)
            for name in sheet.keys() & other.keys()
            for column in sheet[name].keys() & other[name].keys()
        ]
        counted.append(JudgmentAgreement.from_judgments("two people give the same judgment", same))
    return counted


def build_agreement_table(counted: Sequence[JudgmentAgreement]) -> Table:
    """Return the table of `posir build agreement`."""
    numbers = ("Yes", "Judged", "Yes %", "95 % interval")
    return Table(
        columns=build_columns(("Judgment", *numbers), numbers),
        rows=tuple(
            (
                row.judgment,
                format_count(row.yes),
                format_count(row.judged),
                format_percent(row.rate.value if row.rate else None),
                format_interval(row.rate, format_percent),
            )
            for row in counted
        ),
        title="Human check",
        notes=("The sample has about as many questions from each cell of length and position, whatever their number.",),
    )
