"""The files of a built domain: the PosIR layout, the provenance of every question, and what a dataset card needs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from posir_build.records import Document, Question, by_id
from posir_data.importing import Target, write_domain
from posir_tasks.display.numbers import format_percent
from posir_tasks.display.tables import to_json
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.files import atomic_write
from posir_tasks.gate import parse_json, read_json
from posir_tasks.sources.checks import CheckedTable
from posir_tasks.sources.posir_rules import CORPUS, QRELS, QUERIES, PosirTables

#: Files beside the tables of a domain.
PROVENANCE_FILE, CONSTRUCTION_FILE, HUMAN_CHECK_FILE = "provenance.jsonl", "construction.json", "human-check.json"
#: The dataset card in the folder that holds the languages, and the line that marks it as written by posir.
CARD_FILE, CARD_MARK = "README.md", "<!-- written by posir build; your changes below the next line of dashes are kept -->"
CARD_END = "\n-----\n"
QUESTIONS = TypeAdapter(tuple[Question, ...])
NO_CHECKS: Mapping[str, Any] = {}


def build_tables(documents: Sequence[Document], questions: Sequence[Question], folder: Path) -> PosirTables:
    """Return the tables of the PosIR layout."""
    known = by_id(documents)
    queries = [
        {
            "_id": question.id,
            "text": question.text,
            "pos_char_span": [question.evidence.start, question.evidence.end],
            "pos_char_length": len(known[question.document].text),
            "pos_token_length": known[question.document].tokens,
        }
        for question in questions
    ]
    qrels = [{"query-id": question.id, "corpus-id": question.document, "score": 1.0} for question in questions]
    corpus = {"_id": [document.id for document in documents], "text": [document.text for document in documents]}
    return PosirTables(
        CheckedTable(str(folder / "corpus.parquet"), pl.DataFrame(corpus, schema=CORPUS)),
        CheckedTable(str(folder / "queries.parquet"), pl.DataFrame(queries, schema=QUERIES)),
        CheckedTable(str(folder / "qrels" / "test.parquet"), pl.DataFrame(qrels, schema=QRELS)),
        same_language=True,
    )


def write_dataset(
    target: Target, documents: Sequence[Document], questions: Sequence[Question], construction: Mapping[str, Any]
) -> None:
    """Write a domain with its provenance and, for the dataset card, how it was built, completely or not at all.

    Raises:
        PosirError: The folder exists or cannot be written, there is no question, or the loader would refuse the data.
    """
    target.check()
    sources = {document.id: document.source for document in documents}
    provenance = "".join(
        json.dumps(record | {"source": sources[record["document"]]}, ensure_ascii=False) + "\n"
        for record in QUESTIONS.dump_python(tuple(questions))
    )
    others = {PROVENANCE_FILE: provenance, CONSTRUCTION_FILE: json.dumps(construction, indent=2, ensure_ascii=False) + "\n"}
    write_domain(build_tables(documents, questions, target.folder), target.folder, others)


def read_constructions(output: Path) -> dict[str, dict[str, Any]]:
    """Return what is known about every built domain below a folder, by `<language>/<domain>`."""
    return _read_files(output, CONSTRUCTION_FILE)


def _read_files(output: Path, name: str) -> dict[str, Any]:
    """Return the JSON of every file of a name below a folder, by `<language>/<domain>`."""
    return {file.parent.relative_to(output).as_posix(): read_json(file) for file in sorted(output.glob(f"*/*/{name}"))}


def record_human_check(folder: Path, agreement: Sequence[Mapping[str, Any]], judged: Collection[str]) -> None:
    """Save what people found out about a domain beside its tables, and in the dataset card; `judged` are ids of questions.

    Raises:
        PosirError: The folder has no questions that `posir build` has made, or none of these.
    """
    file = folder / PROVENANCE_FILE
    if not file.is_file():
        raise PosirError(f"{folder}: has no {PROVENANCE_FILE}. Name the folder of a domain, such as data/NAME/eng-Latn/notes.")
    known = {parse_json(line, file)["id"] for line in file.read_text(encoding="utf-8").splitlines()}
    # A sample of a build with a held-out part has questions of both parts, and says as much about either.
    if not known.intersection(judged):
        raise PosirError(f"{folder}: has none of the {pluralize(len(judged), 'judged question')}. Name the domain they are of.")
    with atomic_write(folder / HUMAN_CHECK_FILE) as part:
        part.write_text(to_json(agreement) + "\n", encoding="utf-8")
    write_card(folder.parent.parent)


def build_card(constructions: Mapping[str, Mapping[str, Any]], human_checks: Mapping[str, Any] = NO_CHECKS) -> str:
    """Return the dataset card: the metadata that the Hub reads, one configuration per domain, and a section for each.

    It says how each domain was built and what people found out about some, both by `<language>/<domain>`.
    """
    licenses = sorted({str(construction["license"]) for construction in constructions.values()})
    languages = sorted({path.partition("-")[0] for path in constructions})
    lines = ["---", f"language: {json.dumps(languages)}"]
    if len(licenses) == 1 and licenses != ["not specified"]:
        lines.append(f"license: {json.dumps(licenses[0])}")
    lines += ["task_categories: [text-retrieval]", "tags: [posir, position-bias]", "configs:"]
    for path in constructions:
        for part, file in (("corpus", "corpus"), ("queries", "queries"), ("qrels", "qrels/test")):
            lines += [f"- config_name: {path.replace('/', '-')}-{part}", "  data_files:"]
            lines.append(f"  - {{split: test, path: {path}/{file}.parquet}}")
    lines += ["---", "", CARD_MARK, "", "# Position-aware retrieval", ""]
    lines.append(
        "Every query has one relevant document and the span of its evidence, in Unicode code points of the document; the "
        f"end is exclusive. `{PROVENANCE_FILE}` has for every question its document, prompt version, model, answer, span and "
        "verdicts. Evaluate with `posir`: `POSIR_DATA=<parent folder> mteb run -t PosIR-<Language> -m <model>`."
    )
    for path, construction in constructions.items():
        lines += ["", *_describe_domain(path, construction), *_describe_human_check(human_checks.get(path, ()))]
    return "\n".join(lines) + "\n"


def list_answering_models(questions: Sequence[Question]) -> dict[str, list[str]]:
    """Return the language models, as their servers name them, by what they did: questions, spans and grades."""
    done: dict[str, set[str]] = {"questions": {question.model for question in questions}, "spans": set(), "grades": set()}
    for verdict in (verdict for question in questions for verdict in question.verdicts):
        if verdict.check == "located" or verdict.check.startswith(("relevance", "leave-span-out")):
            done["spans" if verdict.check == "located" else "grades"].add(verdict.judge.rpartition(" ")[0])
    return {result: sorted(models) for result, models in done.items()}


def _describe_models(construction: Mapping[str, Any]) -> str:
    """Return which language model did what, as `questions and spans by A (answered as A-2024), grades by B`."""
    work: dict[tuple[str, ...], list[str]] = {}
    settings = construction["settings"]
    for stage, result in (("ask", "questions"), ("locate", "spans"), ("verify", "grades")):
        asked = (settings[stage]["llm"] or settings["llm"])["model"]
        others = [model for model in construction["answered_by"][result] if model != asked]
        work.setdefault((asked, *others), []).append(result)
    described = []
    for (asked, *served), results in work.items():
        names = f" (answered as {', '.join(f'`{name}`' for name in served)})" if served else ""
        described.append(f"{' and '.join(results)} by `{asked}`{names}")
    return ", ".join(described)


def _describe_domain(path: str, construction: Mapping[str, Any]) -> list[str]:
    settings = construction["settings"]
    lines = [
        f"## {path}",
        "",
        f"- {construction['documents']:,} documents from `{settings['documents']}` (license: {construction['license']}), "
        f"{construction['questions']:,} questions ({construction['part']})",
        f"- {_describe_models(construction)}; method `{settings['ask']['method']}`, seed {settings['seed']}",
        "",
        "| stage | in | out | discarded because |",
        "| --- | ---: | ---: | --- |",
    ]
    for row in construction["stages"]:
        reasons = "; ".join(f"{reason} ({count:,})" for reason, count in row["reasons"].items())
        lines.append(f"| {row['stage']} | {row['taken']:,} | {row['kept']:,} | {reasons} |")
    return lines


def _describe_human_check(agreement: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not agreement:
        return
    yield from ("", "Human check of a sample:", "", "| judgment | yes | judged | yes % | 95 % interval |")
    yield "| --- | ---: | ---: | ---: | ---: |"
    for row in agreement:
        interval = f"[{', '.join(map(format_percent, row['rate_interval']))}]" if row["judged"] else ""
        yield f"| {row['judgment']} | {row['yes']:,} | {row['judged']:,} | {format_percent(row['rate'])} | {interval} |"


def write_card(output: Path) -> bool:
    """Write the dataset card of a folder, with what a user has added below its last line of dashes.

    Returns False if there is a card that posir has not written; it stays as it is.
    """
    file = output / CARD_FILE
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    if before and CARD_MARK not in before:
        return False
    _, separator, own = before.partition(CARD_END)
    card = build_card(read_constructions(output), _read_files(output, HUMAN_CHECK_FILE))
    file.write_text(card + (separator + own if separator else ""), encoding="utf-8")
    return True
