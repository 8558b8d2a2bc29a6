"""Files of a built domain: tables in the PosIR layout, provenance of every question, dataset card,
and sheets for a human check.

No paper reports a human check of its questions; the authors of PosQ (arXiv 2505.13950) read 100
traces. Agreement has a Wilson interval for new questions, in which several people's judgments of
one question are treated as dependent.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from posir_build.balance import BalanceCell, CellScheme
from posir_build.records import Check, Question, StageResult, shuffle
from posir_build.settings import NO_LICENSE
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.base.files import remove_parts_of, write_atomically, write_text
from posir_tasks.base.untrusted import parse_json, read_csv_rows, read_json
from posir_tasks.base.wording import pluralize
from posir_tasks.data.data import PositionData
from posir_tasks.data.posir import Target, write_domain
from posir_tasks.display.export import format_csv, to_json
from posir_tasks.display.numbers import format_count, format_estimate, format_percent
from posir_tasks.display.tables import Table, build_numeric_table
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import compute_wilson_interval

#: Names of the files next to a domain's tables.
PROVENANCE_FILE = "provenance.jsonl"
CONSTRUCTION_FILE = "construction.json"
HUMAN_CHECK_FILE = "human-check.json"
#: Name of the dataset card, in the folder that contains the language folders.
CARD_FILE = "README.md"
#: First line of a card written by posir.
CARD_MARKER = "<!-- written by posir build; your changes below the next line of dashes are kept -->"
CARD_END = "\n-----\n"
QUESTIONS = TypeAdapter(tuple[Question, ...])


def write_dataset(target: Target, result: StageResult, construction: Mapping[str, Any]) -> None:
    """Write a domain atomically, with its provenance and the construction data for the dataset
    card.

    Raises:
        PosirError: The folder exists or cannot be written, there are no questions, or the data is
            invalid.
    """
    target.check()
    provenance = [
        json.dumps(record | {"source": result.by_id[record["document"]].source}, ensure_ascii=False)
        for record in QUESTIONS.dump_python(result.questions)
    ]
    files = {
        PROVENANCE_FILE: "".join(f"{line}\n" for line in provenance),
        CONSTRUCTION_FILE: json.dumps(construction, indent=2, ensure_ascii=False) + "\n",
    }
    data = PositionData.from_questions(
        {document.id: document.text for document in result.documents},
        {row.id: (row.text, row.document, row.evidence) for row in result.questions},
        tokens={document.id: document.tokens for document in result.documents},
    )
    # Only one build writes a dataset. What is unfinished was left by its killed process.
    remove_parts_of(target.folder)
    write_domain(data, target.folder, files)


def read_constructions(output: Path, name: str = CONSTRUCTION_FILE) -> dict[str, Any]:
    """Read the JSON file `name` of every domain below a folder, keyed by `<language>/<domain>`."""
    return {
        file.parent.relative_to(output).as_posix(): read_json(file)
        for file in sorted(output.glob(f"*/*/{name}"))
    }


def record_human_check(
    folder: Path, agreement: Sequence[Mapping[str, Any]], judged_ids: Collection[str]
) -> None:
    """Save the agreement of a human check next to a domain's tables and in the dataset card. Raise
    PosirError unless the domain contains at least one of the judged question ids.
    """
    file = folder / PROVENANCE_FILE
    if not file.is_file():
        raise PosirError(
            f"{folder}: contains no {PROVENANCE_FILE}. Give the folder of a domain, such as "
            "data/NAME/eng-Latn/notes."
        )
    ids = {parse_json(line, file)["id"] for line in file.read_text(encoding="utf-8").splitlines()}
    # The sample may mix both parts of the dataset; its agreement applies to either part.
    if not ids.intersection(judged_ids):
        raise PosirError(
            f"{folder}: contains none of the {pluralize(len(judged_ids), 'judged question')}. "
            "Give the folder of their domain."
        )
    write_text(folder / HUMAN_CHECK_FILE, to_json(agreement) + "\n")
    write_card(folder.parent.parent)


#: Contribution of a language model to the dataset, by check.
CONTRIBUTIONS = {
    Check.LOCATED: "spans",
    Check.RELEVANCE: "grades",
    Check.LEAVE_SPAN_OUT: "grades",
}


def list_answering_models(questions: Sequence[Question]) -> dict[str, list[str]]:
    """List the language models behind the questions, spans and grades, as named by their
    servers.
    """
    models = defaultdict(set)
    for question in questions:
        models["questions"].add(question.model)
        for verdict in question.verdicts:
            if verdict.check in CONTRIBUTIONS:
                models[CONTRIBUTIONS[verdict.check]].add(verdict.judge)
    return {name: sorted(names) for name, names in models.items()}


def write_card(output: Path) -> None:
    """Write the dataset card of a folder: metadata for the Hub, a section per domain, and the
    user's additions. Keep a card that posir did not write.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    file = output / CARD_FILE
    old_card = file.read_text(encoding="utf-8") if file.is_file() else ""
    if old_card and CARD_MARKER not in old_card:
        return
    _, separator, additions = old_card.partition(CARD_END)
    constructions = read_constructions(output)
    licenses = {str(construction["license"]) for construction in constructions.values()}
    license_name = licenses.pop() if len(licenses) == 1 else NO_LICENSE
    # No autoescape: the card is Markdown.
    templates = Environment(
        loader=PackageLoader(__package__), undefined=StrictUndefined, trim_blocks=True
    )
    templates.filters |= {"count": "{:,}".format, "percent": format_percent}
    card = templates.get_template("card.md").render(
        constructions=constructions,
        human_checks=read_constructions(output, HUMAN_CHECK_FILE),
        languages=json.dumps(sorted({path.partition("-")[0] for path in constructions})),
        license="" if license_name == NO_LICENSE else json.dumps(license_name),
        marker=CARD_MARKER,
        provenance=PROVENANCE_FILE,
    )
    write_text(file, card + separator + additions)


#: Columns of the sheet for judgments (yes or no), with their titles.
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


def sample_questions(
    result: StageResult, number: int, seed: int, scheme: CellScheme
) -> list[Question]:
    """Sample questions, about the same number from each cell of length and position."""
    sizes: Counter[BalanceCell] = Counter()
    questions_by_round = {}
    for question in shuffle(result.questions, seed, "human check"):
        cell = scheme.find_cell(result, question)
        questions_by_round[sizes[cell], cell] = question
        sizes[cell] += 1
    return [questions_by_round[key] for key in sorted(questions_by_round)[:number]]


def write_sheet(file: Path, result: StageResult, questions: Sequence[Question]) -> None:
    """Write a CSV file with questions, documents with 【marked】 spans, and empty judgment
    columns.
    """
    rows = []
    for question in questions:
        text = result.by_id[question.document].text
        start, end = question.evidence
        marked_text = f"{text[:start]}【{text[start:end]}】{text[end:]}"
        verdicts = "; ".join(f"{verdict.check} {verdict.values}" for verdict in question.verdicts)
        rows.append((question.id, question.text, question.answer, marked_text, verdicts))
    columns = ("id", "question", "answer", "document", "verdicts", *JUDGMENTS, "comment")
    write_sheet_rows(file, columns, rows)


def raise_if_exists(sheet: Path) -> None:
    """Raise PosirError if a sheet exists."""
    if sheet.exists():
        raise PosirError(
            f"{sheet}: already exists and may contain judgments. Remove it, or give another path."
        )


def write_sheet_rows(file: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file for people to fill in; pad short rows with empty cells."""
    padded_rows = []
    for row in rows:
        cells = [cell.replace("\r\n", "\n") for cell in row]
        padded_rows.append(cells + [""] * (len(columns) - len(cells)))
    with write_atomically(file) as part:
        # Spreadsheets need the byte-order mark to recognize UTF-8.
        part.write_text(format_csv(columns, padded_rows), encoding="utf-8-sig", newline="")


def read_sheet(
    file: Path, columns: Iterable[str], values: Mapping[str, Cell], problem: str, command: str
) -> list[tuple[str, dict[str, Cell]]]:
    """Read a sheet that a person has filled in: the id of each row and its values by column.
    Empty cells are skipped.

    Args:
        file: The sheet.
        columns: Columns to read.
        values: Values by cell text in lower case.
        problem: Error message for any other cell text.
        command: Command that writes these sheets, for the error message.

    Raises:
        DataError: The file cannot be read, a column is missing, or a cell is invalid.
    """
    rows = []
    sheet = read_csv_rows(file, ("id", *columns), f"a sheet that `{command}` wrote")
    for number, row in enumerate(sheet, 2):
        row_values = {}
        for column in columns:
            text = row[column]
            if text and text.lower() not in values:
                raise DataError(
                    f"{file}: row {number}: field '{column}': {text!r} {problem}; leave it empty "
                    "if unsure."
                )
            if text:
                row_values[column] = values[text.lower()]
        rows.append((row["id"], row_values))
    return rows


def read_judgments(file: Path) -> dict[str, dict[str, bool]]:
    """Read one person's judgments, by question id and column."""
    return dict(read_sheet(file, JUDGMENTS, ANSWERS, "is neither yes nor no", "posir build sample"))


def count_agreement(sheets: Sequence[dict[str, dict[str, bool]]]) -> list[dict[str, Any]]:
    """Count "yes" judgments per column and in all columns, and how often two people agree.

    `rate` is the share of "yes" with a Wilson interval, or None if there are no judgments.
    """
    rows = [row for sheet in sheets for row in sheet.items()]
    answers_by_title = {
        title: [(name, row[column]) for name, row in rows if column in row]
        for column, title in JUDGMENTS.items()
    }
    complete_rows = [(name, row) for name, row in rows if len(row) == len(JUDGMENTS)]
    answers_by_title["all of these"] = [(name, all(row.values())) for name, row in complete_rows]
    if len(sheets) > 1:
        title = "two people give the same judgment"
        answers_by_title[title] = pairs = []
        for first, second in combinations(sheets, 2):
            for name in first.keys() & second.keys():
                columns = first[name].keys() & second[name].keys()
                pairs += [(name, first[name][column] == second[name][column]) for column in columns]
    agreement = []
    for title, answers in answers_by_title.items():
        yes = sum(answer for _, answer in answers)
        rate = None
        if answers:
            sizes = Counter(name for name, _ in answers).values()
            # Effective sample size if all judgments of a question were equal (Kish 1965, Survey
            # Sampling, section 8.2).
            trials = len(answers) ** 2 / sum(size**2 for size in sizes)
            share = yes / len(answers)
            rate = Estimate(share, compute_wilson_interval(share, trials))
        agreement.append({"judgment": title, "yes": yes, "judged": len(answers), "rate": rate})
    return agreement


def build_agreement_table(agreement: Sequence[Mapping[str, Any]]) -> Table:
    """Build the table of `posir build agreement`."""
    rows = []
    for row in agreement:
        rate = format_estimate(row["rate"], format_percent)
        rows.append((row["judgment"], format_count(row["yes"]), format_count(row["judged"]), rate))
    note = (
        "With 95% intervals. The sample has about the same number of questions from each cell of "
        "length and position."
    )
    headings = ("Judgment", "Yes", "Judged", "Yes %")
    return build_numeric_table(headings, rows, title="Human check", notes=[note])
