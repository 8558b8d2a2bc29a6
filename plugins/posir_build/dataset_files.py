"""The files of a built domain: the PosIR layout, the provenance of every question, the dataset
card, and sheets for people.

No paper reports a check of its questions by people (PosQ, arXiv 2505.13950, read 100 traces). The
interval is Wilson's, for new questions: judgments of one question by several people are not
independent, and count as one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from posir_build.balance import BalanceCell, CellScheme
from posir_build.records import Document, Question, StageResult, by_id, seeded_order
from posir_significance.intervals import wilson_interval
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.base.files import atomic_write, write_text
from posir_tasks.base.untrusted import parse_json, read_csv_rows, read_json
from posir_tasks.base.wording import pluralize
from posir_tasks.data.data import PositionData
from posir_tasks.data.posir import Target, write_domain
from posir_tasks.display.numbers import format_count, format_interval, format_percent
from posir_tasks.display.tables import Table, build_columns, format_csv, to_json
from posir_tasks.values.scores import Estimate

#: Files beside the tables of a domain.
PROVENANCE_FILE, CONSTRUCTION_FILE, HUMAN_CHECK_FILE = (
    "provenance.jsonl",
    "construction.json",
    "human-check.json",
)
#: The dataset card in the folder that holds the languages, and the line that marks it as written by
#: posir.
CARD_FILE, CARD_MARK = (
    "README.md",
    "<!-- written by posir build; your changes below the next line of dashes are kept -->",
)
CARD_END = "\n-----\n"
QUESTIONS = TypeAdapter(tuple[Question, ...])


def write_dataset(
    target: Target,
    documents: Sequence[Document],
    questions: Sequence[Question],
    construction: Mapping[str, Any],
) -> None:
    """Write a domain with its provenance and, for the dataset card, how it was built, completely or
    not at all.

    PosirError is raised if the folder exists or cannot be written, there is no question, or the
    loader would refuse the data.
    """
    target.check()
    sources = {document.id: document.source for document in documents}
    provenance = "".join(
        json.dumps(record | {"source": sources[record["document"]]}, ensure_ascii=False) + "\n"
        for record in QUESTIONS.dump_python(tuple(questions))
    )
    others = {
        PROVENANCE_FILE: provenance,
        CONSTRUCTION_FILE: json.dumps(construction, indent=2, ensure_ascii=False) + "\n",
    }
    known = {
        question.id: (question.text, question.document, question.evidence) for question in questions
    }
    texts, tokens = (
        {item.id: item.text for item in documents},
        {item.id: item.tokens for item in documents},
    )
    data = PositionData.from_questions(texts, known, tokens=tokens)
    write_domain(data, target.folder, others)


def read_constructions(output: Path, name: str = CONSTRUCTION_FILE) -> dict[str, Any]:
    """Return what is known about every built domain below a folder, by `<language>/<domain>`, or
    what files of a name say.
    """
    return {
        file.parent.relative_to(output).as_posix(): read_json(file)
        for file in sorted(output.glob(f"*/*/{name}"))
    }


def record_human_check(
    folder: Path, agreement: Sequence[Mapping[str, Any]], judged: Collection[str]
) -> None:
    """Save what people found out about a domain, of whose questions these ids are, beside its
    tables and in the card.
    """
    file = folder / PROVENANCE_FILE
    if not file.is_file():
        raise PosirError(
            f"{folder}: has no {PROVENANCE_FILE}. Name the folder of a domain, such as "
            "data/NAME/eng-Latn/notes."
        )
    known = {parse_json(line, file)["id"] for line in file.read_text(encoding="utf-8").splitlines()}
    # A sample of a build with a held-out part has questions of both parts, and says as much about
    # either.
    if not known.intersection(judged):
        raise PosirError(
            f"{folder}: has none of the {pluralize(len(judged), 'judged question')}. Name the "
            "domain they are of."
        )
    write_text(folder / HUMAN_CHECK_FILE, to_json(agreement) + "\n")
    write_card(folder.parent.parent)


def list_answering_models(questions: Sequence[Question]) -> dict[str, list[str]]:
    """Return the language models, as their servers name them, by what they did: questions, spans
    and grades.
    """
    done: dict[str, set[str]] = {
        "questions": {question.model for question in questions},
        "spans": set(),
        "grades": set(),
    }
    for verdict in (verdict for question in questions for verdict in question.verdicts):
        if verdict.check == "located" or verdict.check.startswith(("relevance", "leave-span-out")):
            done["spans" if verdict.check == "located" else "grades"].add(
                verdict.judge.rpartition(" ")[0]
            )
    return {result: sorted(models) for result, models in done.items()}


def _describe_models(construction: Mapping[str, Any]) -> str:
    """Return which language model did what, as `questions and spans by A (answered as A-2024),
    grades by B`.
    """
    work: dict[tuple[str, ...], list[str]] = {}
    settings = construction["settings"]
    for stage, result in (("ask", "questions"), ("locate", "spans"), ("verify", "grades")):
        if stage == "ask" and settings["ask"]["method"] == "given":
            continue
        asked = (settings[stage]["llm"] or settings["llm"])["model"]
        others = [model for model in construction["answered_by"][result] if model != asked]
        work.setdefault((asked, *others), []).append(result)
    described = []
    for (asked, *served), results in work.items():
        names = f" (answered as {', '.join(f'`{name}`' for name in served)})" if served else ""
        described.append(f"{' and '.join(results)} by `{asked}`{names}")
    return ", ".join(described)


def write_card(output: Path) -> None:
    """Write the dataset card of a folder: metadata for the Hub, a section for each domain, and what
    a user has added below.

    A card that posir has not written stays as it is.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    file = output / CARD_FILE
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    if before and CARD_MARK not in before:
        return
    _, separator, own = before.partition(CARD_END)
    constructions = read_constructions(output)
    licenses = sorted({str(construction["license"]) for construction in constructions.values()})
    # Markdown, in which nothing is escaped.
    templates = Environment(
        loader=PackageLoader(__package__), undefined=StrictUndefined, trim_blocks=True
    )
    templates.filters |= {"count": "{:,}".format, "percent": format_percent}
    card = templates.get_template("card.md").render(
        constructions=constructions,
        human_checks=read_constructions(output, HUMAN_CHECK_FILE),
        languages=json.dumps(sorted({path.partition("-")[0] for path in constructions})),
        license=json.dumps(licenses[0])
        if len(licenses) == 1 and licenses != ["not specified"]
        else "",
        mark=CARD_MARK,
        provenance=PROVENANCE_FILE,
        describe_models=_describe_models,
    )
    write_text(file, card + (separator + own if separator else ""))


#: What a person judges, yes or no, each in a column.
JUDGMENTS = {
    "question_ok": "the question makes sense without the document, and names no position in it",
    "answered": "the marked span answers the question",
    "needed": "nothing else in the document answers it",
}
COLUMNS = ("id", "question", "answer", "document", "verdicts", *JUDGMENTS, "comment")
#: What the span is put between.
OPEN, CLOSE = "【", "】"
ANSWERS = dict.fromkeys(("yes", "y", "1", "true", "ja", "oui", "sí", "si"), True) | dict.fromkeys(
    ("no", "n", "0", "false", "nein", "non"), False
)
Cell = TypeVar("Cell")


def choose_questions(
    result: StageResult, number: int, seed: int, scheme: CellScheme
) -> list[Question]:
    """Return a random sample of questions with about equally many from each cell of length and
    position.
    """
    known = by_id(result.documents)
    cells: dict[BalanceCell, list[Question]] = {}
    for question in sorted(
        result.questions, key=lambda question: seeded_order(seed, "human check", question.id)
    ):
        cells.setdefault(scheme.find(question, known[question.document]), []).append(question)
    rounds = [
        (row, cell, question)
        for cell, questions in sorted(cells.items())
        for row, question in enumerate(questions)
    ]
    return [question for _, _, question in sorted(rounds, key=lambda row: row[:2])[:number]]


def write_sheet(file: Path, result: StageResult, questions: Sequence[Question]) -> None:
    """Write questions as a CSV file with empty columns for judgments."""
    known = by_id(result.documents)
    rows = []
    for question in questions:
        span, text = question.evidence, known[question.document].text
        marked = f"{text[: span.start]}{OPEN}{span.of(text)}{CLOSE}{text[span.end :]}"
        verdicts = "; ".join(f"{verdict.check} {verdict.values}" for verdict in question.verdicts)
        rows.append((question.id, question.text, question.answer, marked, verdicts))
    write_sheet_rows(file, COLUMNS, rows)


def write_sheet_rows(file: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file for people to fill in; the last columns, for which a row has no cell, are
    left empty.
    """
    filled = (
        [*(cell.replace("\r\n", "\n") for cell in row), *("" for _ in columns[len(row) :])]
        for row in rows
    )
    with atomic_write(file) as part:
        # With a byte-order mark, or spreadsheets take UTF-8 for something else.
        part.write_text(format_csv(columns, filled), encoding="utf-8-sig", newline="")


def read_sheet(
    file: Path, columns: Iterable[str], values: Mapping[str, Cell], problem: str, command: str
) -> list[tuple[str, dict[str, Cell]]]:
    """Return for each row of a sheet that a person has filled in its id, and the values by column;
    empty cells are left out.

    DataError is raised if the file is no sheet of the command, or has text that stands for no
    value, which the problem says.
    """
    rows = []
    for number, row in enumerate(
        read_csv_rows(file, ("id", *columns), f"a sheet that `{command}` wrote"), 2
    ):
        given = {column: row[column] for column in columns if row[column]}
        for column, text in given.items():
            if text.lower() not in values:
                where = f"{file}: row {number}: field '{column}'"
                raise DataError(f"{where}: {text!r} {problem}; leave it empty if unsure.")
        rows.append((row["id"], {column: values[text.lower()] for column, text in given.items()}))
    return rows


def read_judgments(file: Path) -> dict[str, dict[str, bool]]:
    """Return the judgments of one person, by question id and column; raise DataError as
    `read_sheet`.
    """
    return dict(read_sheet(file, JUDGMENTS, ANSWERS, "is neither yes nor no", "posir build sample"))


def count_agreement(sheets: Sequence[dict[str, dict[str, bool]]]) -> list[dict[str, Any]]:
    """Return how often people say yes, by column and to all of them; and how often two people give
    the same judgment.

    `rate` is the share of yes with Wilson's interval; None if nothing was judged.
    """
    rows = [(name, row) for sheet in sheets for name, row in sheet.items()]
    given = {
        title: [(name, row[column]) for name, row in rows if column in row]
        for column, title in JUDGMENTS.items()
    }
    given["all of these"] = [
        (name, all(row.values())) for name, row in rows if len(row) == len(JUDGMENTS)
    ]
    if len(sheets) > 1:
        given["two people give the same judgment"] = [
            (name, sheet[name][column] == other[name][column])
            for sheet, other in combinations(sheets, 2)
            for name in sheet.keys() & other.keys()
            for column in sheet[name].keys() & other[name].keys()
        ]
    counted = []
    for title, judged in given.items():
        yes, number, rate = sum(answer for _, answer in judged), len(judged), None
        if judged:
            # Independent judgments, as if those of one question were always the same (Kish 1965,
            # Survey Sampling, section 8.2).
            trials = number**2 / sum(own**2 for own in Counter(name for name, _ in judged).values())
            rate = Estimate(yes / number, wilson_interval(yes / number, trials))
        counted.append({"judgment": title, "yes": yes, "judged": number, "rate": rate})
    return counted


def build_agreement_table(counted: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of `posir build agreement`."""
    numbers = ("Yes", "Judged", "Yes %", "95% interval")
    rows = []
    for row in counted:
        counts, rate = (format_count(row["yes"]), format_count(row["judged"])), row["rate"]
        rows.append(
            (
                row["judgment"],
                *counts,
                format_percent(rate and rate.value),
                format_interval(rate, format_percent),
            )
        )
    note = (
        "The sample has about as many questions from each cell of length and position, whatever "
        "their number."
    )
    return Table(
        build_columns(("Judgment", *numbers), numbers),
        tuple(rows),
        title="Human check",
        notes=(note,),
    )
