"""Small valid datasets, written to and read from folders."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from posir_data.api import import_passages
from posir_tasks.data.data import PositionData
from posir_tasks.data.formats.passages import Item
from posir_tasks.data.mini import read_mini
from posir_tasks.data.posir import Target, read_domain
from posir_tasks.data.questions import ImportedData
from posir_tasks.data.repository import LocalRepository
from posir_tasks.text.words import estimate_tokens

Tables = dict[str, pl.DataFrame]

FILES = {"corpus": "corpus.parquet", "queries": "queries.parquet", "qrels": "qrels/test.parquet"}
#: Name of the folder of the repository infgrad/PosIR-Benchmark-v1.
POSIR_FOLDER = "PosIR-Benchmark-v1"

#: Text, question and evidence; one query asks about the first document, two about the second, one
#: about the third.
TEXTS = {
    "doc_0": "The mill stood by the river. It burned down in 1901.",
    "doc_1": "Ada kept bees. Her brother kept the books. Neither kept secrets.",
    "doc_2": "Nothing grows on the north slope.",
    "doc_3": "A text that nobody asks about.",
}
ASKED = {
    "q0": ("Where was the mill?", "doc_0", "by the river"),
    "q1": ("Who kept bees?", "doc_1", "Ada"),
    "q2": ("What did her brother keep?", "doc_1", "the books"),
    "q3": ("Where does nothing grow?", "doc_2", "on the north slope."),
}


def build_squad(
    texts: Mapping[str, str] = TEXTS, asked: Mapping[str, tuple[str, str, str]] = ASKED
) -> dict[str, Any]:
    """Build SQuAD-format JSON, an article for each text; a span is the first occurrence of the
    evidence.
    """
    questions: dict[str, list[dict[str, Any]]] = {name: [] for name in texts}
    for name, (question, document, evidence) in asked.items():
        answers = [{"text": evidence, "answer_start": texts[document].index(evidence)}]
        questions[document].append({"id": name, "question": question, "answers": answers})
    paragraphs = {name: [{"context": text, "qas": questions[name]}] for name, text in texts.items()}
    return {
        "data": [{"title": name, "paragraphs": several} for name, several in paragraphs.items()]
    }


def posir_tables(
    texts: Mapping[str, str] = TEXTS, asked: Mapping[str, tuple[str, str, str]] = ASKED
) -> Tables:
    """Build the tables of one domain; a span is the first occurrence of the evidence in its
    text.
    """
    spans = [
        (texts[document].index(evidence), len(evidence)) for _, document, evidence in asked.values()
    ]
    return {
        "corpus": pl.DataFrame({"_id": list(texts), "text": list(texts.values())}),
        "queries": pl.DataFrame(
            {
                "_id": list(asked),
                "text": [question for question, _, _ in asked.values()],
                "pos_char_span": [[start, start + length] for start, length in spans],
                "pos_char_length": [len(texts[document]) for _, document, _ in asked.values()],
                "pos_token_length": [400 * (row + 1) for row in range(len(asked))],
            }
        ),
        "qrels": pl.DataFrame(
            {
                "query-id": list(asked),
                "corpus-id": [document for _, document, _ in asked.values()],
                "score": [1] * len(asked),
            }
        ),
    }


def write_domain(
    root: Path, tables: Tables, *, language: str = "eng-Latn", domain: str = "sports"
) -> Path:
    """Write the given tables of a domain in the PosIR layout; return its folder."""
    folder = root / language / domain
    for name, table in tables.items():
        (folder / FILES[name]).parent.mkdir(parents=True, exist_ok=True)
        table.write_parquet(folder / FILES[name])
    return folder


def imported(
    passages: Iterable[Item],
    output: Path,
    *,
    language: str = "eng-Latn",
    domain: str = "sports",
    repair: bool = False,
) -> ImportedData:
    """Import passages with the default token count."""
    return import_passages(
        passages, Target(language, domain, output), count_tokens=estimate_tokens, repair=repair
    )


def read_back(
    root: Path, *, language: str = "eng-Latn", domain: str = "sports"
) -> list[tuple[str, str, str]]:
    """Return question, document and evidence of each query, as the loader reads them."""
    data = read_domain(LocalRepository(root), language, language, domain)
    text, evidence = dict(zip(data.corpus["id"], data.corpus["text"], strict=True)), data.evidence
    rows = zip(
        data.queries["text"], evidence.document_ids, evidence.starts, evidence.ends, strict=True
    )
    return [(asked, text[name], text[name][start:end]) for asked, name, start, end in rows]


def write_beir_folder(
    folder: Path,
    corpus: Iterable[Mapping[str, Any]],
    queries: Iterable[Mapping[str, Any]],
    qrels: Iterable[tuple[str | int, ...]],
    further: Iterable[str] = (),
) -> Path:
    """Write a BEIR folder with rows of corpus and queries as given, and query, document, grade and
    further columns.
    """
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [
        "\t".join(("query-id", "corpus-id", "score", *further)),
        *("\t".join(map(str, row)) for row in qrels),
    ]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


def write_squad(folder: Path, starts: Iterable[int]) -> None:
    """Write SQuAD 2.0 in small: a question for each start of an answer."""
    folder.mkdir(parents=True)
    answers = [{"text": ["x"], "answer_start": [start]} for start in starts]
    rows = [
        {
            "id": f"q{row}",
            "title": "",
            "context": f"{'x' * 400}{row % 7}",
            "question": f"which {row}",
            "answers": answer,
        }
        for row, answer in enumerate(answers)
    ]
    for split, part in (("train", rows[:2]), ("validation", rows[2:])):
        pl.DataFrame(part).write_parquet(folder / f"{split}-00000-of-00001.parquet")


def read_part_of_mini(step: int) -> PositionData:
    """Read every n-th document of PosIR-Mini, with its questions."""
    data = read_mini()
    documents = data.documents.gather_every(step)
    names = {*documents["id"]}
    rows = [row for row, name in enumerate(data.evidence.document_ids) if name in names]
    return replace(data.select(rows), documents=documents)
