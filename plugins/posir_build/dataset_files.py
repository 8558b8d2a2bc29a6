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
from posir_build.records import Check, Document, Question, StageResult, by_id, seeded_order
from posir_build.settings import NO_LICENSE
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.base.files import atomic_write, write_text
from posir_tasks.base.untrusted import parse_json, read_csv_rows, read_json
from posir_tasks.base.wording import pluralize
from posir_tasks.data.data import PositionData
from posir_tasks.data.posir import Target, write_domain
from posir_tasks.display.numbers import format_count, format_estimate, format_percent
from posir_tasks.display.tables import Table, build_columns, format_csv, to_json
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import wilson_interval

#: Files next to the tables of a domain.
PROVENANCE_FILE = "provenance.jsonl"
CONSTRUCTION_FILE = "construction.json"
HUMAN_CHECK_FILE = "human-check.json"
#: The dataset card in the folder that holds the languages.
CARD_FILE = "README.md"
#: The line that marks a card as written by posir.
CARD_MARK = "<!-- written by posir build; your changes below the next line of dashes are kept -->"
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
    provenance = [
        json.dumps(record | {"source": sources[record["document"]]}, ensure_ascii=False)
        for record in QUESTIONS.dump_python(tuple(questions))
    ]
    files = {
        PROVENANCE_FILE: "".join(f"{line}\n" for line in provenance),
        CONSTRUCTION_FILE: json.dumps(construction, indent=2, ensure_ascii=False) + "\n",
    }
    data = PositionData.from_questions(
        {document.id: document.text for document in documents},
        {row.id: (row.text, row.document, row.evidence) for row in questions},
        tokens={document.id: document.tokens for document in documents},
    )
    write_domain(data, target.folder, files)


def read_constructions(output: Path, name: str = CONSTRUCTION_FILE) -> dict[str, Any]:
    """Read how every domain below a folder was built, by `<language>/<domain>`, or other files
    next to their tables.
    """
    return {
        file.parent.relative_to(output).as_posix(): read_json(file)
        for file in sorted(output.glob(f"*/*/{name}"))
    }


def record_human_check(
    folder: Path, agreement: Sequence[Mapping[str, Any]], judged: Collection[str]
) -> None:
    """Save the judgments of people on a domain next to its tables and in the card; `judged` are
    ids of questions.
    """
    file = folder / PROVENANCE_FILE
    if not file.is_file():
        raise PosirError(
            f"{folder}: has no {PROVENANCE_FILE}. Name the folder of a domain, such as "
            "data/NAME/eng-Latn/notes."
        )
    ids = {parse_json(line, file)["id"] for line in file.read_text(encoding="utf-8").splitlines()}
    # A sample of a build with a held-out part has questions of both parts, and says as much about
    # either.
    if not ids.intersection(judged):
        raise PosirError(
            f"{folder}: has none of the {pluralize(len(judged), 'judged question')}. Name the "
            "domain they are of."
        )
    write_text(folder / HUMAN_CHECK_FILE, to_json(agreement) + "\n")
    write_card(folder.parent.parent)


#: What a language model does by a verdict on a question.
WORK = {
    Check.LOCATED: "spans",
    Check.RELEVANCE: "grades",
    Check.LEAVE_SPAN_OUT: "grades",
}


def list_answering_models(questions: Sequence[Question]) -> dict[str, list[str]]:
    """List the language models, as their servers name them, by their work: questions, spans and
    grades.
    """
    models = {"questions": {question.model for question in questions}}
    for question in questions:
        for verdict in question.verdicts:
            if verdict.check in WORK:
                models.setdefault(WORK[verdict.check], set()).add(verdict.judge)
    return {work: sorted(names) for work, names in models.items()}


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
    _, separator, additions = before.partition(CARD_END)
    constructions = read_constructions(output)
    licenses = {str(construction["license"]) for construction in constructions.values()}
    license_name = licenses.pop() if len(licenses) == 1 else NO_LICENSE
    # Markdown, in which nothing is escaped.
    templates = Environment(
        loader=PackageLoader(__package__), undefined=StrictUndefined, trim_blocks=True
    )
    templates.filters |= {"count": "{:,}".format, "percent": format_percent}
    card = templates.get_template("card.md").render(
        constructions=constructions,
        human_checks=read_constructions(output, HUMAN_CHECK_FILE),
        languages=json.dumps(sorted({path.partition("-")[0] for path in constructions})),
        license="" if license_name == NO_LICENSE else json.dumps(license_name),
        mark=CARD_MARK,
        provenance=PROVENANCE_FILE,
    )
    write_text(file, card + separator + additions)


#: What a person judges, yes or no, each in a column.
JUDGMENTS = {
    "question_ok": "the question makes sense without the document, and names no position in it",
    "answered": "the marked span answers the question",
    "needed": "nothing else in the document answers it",
}
ANSWERS = {
    **dict.fromkeys(("yes", "y", "1", "true", "ja", "oui", "sí", "si"), True),
    **dict.fromkeys(("no", "n", "0", "false", "nein", "non"), False),
}
Cell = TypeVar("Cell")


def choose_questions(
    result: StageResult, number: int, seed: int, scheme: CellScheme
) -> list[Question]:
    """Draw questions with about equally many from each cell of length and position."""
    documents = by_id(result.documents)
    filled: Counter[BalanceCell] = Counter()
    rounds = {}
    ordered = sorted(result.questions, key=lambda row: seeded_order(seed, "human check", row.id))
    for question in ordered:
        cell = scheme.find(question, documents[question.document])
        rounds[filled[cell], cell] = question
        filled[cell] += 1
    return [rounds[key] for key in sorted(rounds)[:number]]


def write_sheet(file: Path, result: StageResult, questions: Sequence[Question]) -> None:
    """Write questions as a CSV file with empty columns for judgments."""
    documents = by_id(result.documents)
    rows = []
    for question in questions:
        text = documents[question.document].text
        start, end = question.evidence
        marked = f"{text[:start]}【{text[start:end]}】{text[end:]}"
        verdicts = "; ".join(f"{verdict.check} {verdict.values}" for verdict in question.verdicts)
        rows.append((question.id, question.text, question.answer, marked, verdicts))
    columns = ("id", "question", "answer", "document", "verdicts", *JUDGMENTS, "comment")
    write_sheet_rows(file, columns, rows)


def refuse_overwrite(sheet: Path) -> None:
    """Raise PosirError if a sheet exists."""
    if sheet.exists():
        raise PosirError(
            f"{sheet}: already exists, and may be filled in. Remove it, or name another path."
        )


def write_sheet_rows(file: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file for people to fill in; the last columns, for which a row has no cell, are
    empty.
    """
    filled = []
    for row in rows:
        cells = [cell.replace("\r\n", "\n") for cell in row]
        filled.append(cells + [""] * (len(columns) - len(cells)))
    with atomic_write(file) as part:
        # With a byte-order mark, or spreadsheets take UTF-8 for something else.
        part.write_text(format_csv(columns, filled), encoding="utf-8-sig", newline="")


def read_sheet(
    file: Path, columns: Iterable[str], values: Mapping[str, Cell], problem: str, command: str
) -> list[tuple[str, dict[str, Cell]]]:
    """Read the id of each row of a sheet that a person has filled in, and its values by column.

    Empty cells are left out. `problem` is the message on a text that stands for no value.

    Raises:
        DataError: The file is not a sheet of the command, or has a text that stands for no value.
    """
    rows = []
    sheet = read_csv_rows(file, ("id", *columns), f"a sheet that `{command}` wrote")
    for number, row in enumerate(sheet, 2):
        filled = {}
        for column in columns:
            text = row[column]
            if text and text.lower() not in values:
                where = f"{file}: row {number}: field '{column}'"
                raise DataError(f"{where}: {text!r} {problem}; leave it empty if unsure.")
            if text:
                filled[column] = values[text.lower()]
        rows.append((row["id"], filled))
    return rows


def read_judgments(file: Path) -> dict[str, dict[str, bool]]:
    """Read the judgments of one person, by question id and column."""
    return dict(read_sheet(file, JUDGMENTS, ANSWERS, "is neither yes nor no", "posir build sample"))


def count_agreement(sheets: Sequence[dict[str, dict[str, bool]]]) -> list[dict[str, Any]]:
    """Count how often people say yes, by column and to all of them; and how often two people give
    the same judgment.

    `rate` is the share of yes with Wilson's interval; None if nothing was judged.
    """
    judged: dict[str, list[tuple[str, bool]]] = {title: [] for title in JUDGMENTS.values()}
    judged["all of these"] = []
    for sheet in sheets:
        for name, row in sheet.items():
            for column, answer in row.items():
                judged[JUDGMENTS[column]].append((name, answer))
            if len(row) == len(JUDGMENTS):
                judged["all of these"].append((name, all(row.values())))
    if len(sheets) > 1:
        same = judged.setdefault("two people give the same judgment", [])
        for sheet, other in combinations(sheets, 2):
            for name in sheet.keys() & other.keys():
                columns = sheet[name].keys() & other[name].keys()
                same += [(name, sheet[name][column] == other[name][column]) for column in columns]
    agreement = []
    for title, answers in judged.items():
        yes = sum(answer for _, answer in answers)
        rate = None
        if answers:
            sizes = Counter(name for name, _ in answers).values()
            # Independent judgments, as if those of one question were always the same (Kish 1965,
            # Survey Sampling, section 8.2).
            trials = len(answers) ** 2 / sum(size**2 for size in sizes)
            share = yes / len(answers)
            rate = Estimate(share, wilson_interval(share, trials))
        agreement.append({"judgment": title, "yes": yes, "judged": len(answers), "rate": rate})
    return agreement


def build_agreement_table(agreement: Sequence[Mapping[str, Any]]) -> Table:
    """Build the table of `posir build agreement`."""
    rows = []
    for row in agreement:
        rate = format_estimate(row["rate"], format_percent)
        rows.append((row["judgment"], format_count(row["yes"]), format_count(row["judged"]), rate))
    numbers = ("Yes", "Judged", "Yes %")
    columns = build_columns(("Judgment", *numbers), numbers)
    note = (
        "With 95% intervals. The sample has about as many questions from each cell of length and "
        "position, whatever their number."
    )
    return Table(columns, tuple(rows), title="Human check", notes=(note,))
