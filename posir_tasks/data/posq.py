"""Read the two PosQ datasets (Zeng et al. 2025, arXiv 2505.13950) as in the authors' code."""

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
from polars._typing import PolarsDataType

from posir_tasks.base.errors import DataError
from posir_tasks.data.checks import (
    CheckedTable,
    Rule,
    build_id_rules,
    build_text_rule,
    count_tolerated,
    raise_problems,
    read_column_types,
    read_columns,
)
from posir_tasks.data.data import PositionData
from posir_tasks.data.repository import DATA_SUFFIXES, Repository
from posir_tasks.values.evidence import POSITIONS, Evidence

SQUAD: dict[str, PolarsDataType] = {
    "id": pl.String,
    "context": pl.String,
    "question": pl.String,
    "answers": pl.Struct({"text": pl.List(pl.String), "answer_start": pl.List(pl.Int64)}),
}
#: Number of queries in SQuAD-PosQ-Tiny, queries per class in the FineWeb samples, and seed.
TINY_SQUAD_QUERIES = 10_000
TINY_FINEWEB_CLASS = 1_000
TINY_RAW_CLASS = 3_300
TINY_SEED = 42
#: Article title. The column is missing in older copies of the data.
TITLE = {"title": pl.String}
#: Rows of FineWeb-PosQ with a question. Other rows contain only a passage.
IS_QUESTION = pl.col("question").str.strip_chars() != ""
#: Labels of the first release, and current labels.
OLD_LABELS = {"before": "beginning", "after": "end"}
#: JSON files in Hub datasets that contain no data.
METADATA_FILES = ("dataset_infos.json", "dataset_dict.json", "state.json")
IS_UNLABELED = IS_QUESTION.fill_null(False) & ~pl.col("span_class").fill_null("").str.contains(
    "|".join(POSITIONS)
)
FINEWEB_RULES = (
    build_text_rule("content", "passages", keep=True),
    Rule(
        "span_class",
        IS_UNLABELED,
        f"must contain one of {', '.join(POSITIONS)}",
        "questions_without_label",
        f"rows have a question and no label of {', '.join(POSITIONS)}",
        "only the passage is used",
    ),
)


def _fetch_split(repository: Repository, split: str) -> list[Path]:
    """Fetch the files of a split, `SPLIT-*.parquet`; raise DataError if none exists."""
    paths = [
        path for path in repository.list_paths() if path.split("/")[-1].startswith(f"{split}-")
    ]
    if not paths:
        raise DataError(
            f"{repository.location}: no file {split}-*.parquet; the split '{split}' is required."
        )
    return [repository.fetch(path) for path in paths]


def read_squad(repository: Repository) -> PositionData:
    """Read SQuAD-PosQ: distinct contexts and answerable questions of SQuAD 2.0, train split first.

    As in the authors' code, all questions with the same text are assigned to the context of the
    last one, but keep their positions.
    """
    frames = []
    has_answer = pl.col("answer_start").list.len() > 0
    start = pl.col("answer_start").list.get(0, null_on_oob=True)
    is_inside = start.is_between(0, pl.col("context").str.len_chars(), closed="left")
    message = "is outside its context; 0 <= answer_start < characters of the context"
    texts = [build_text_rule(field, "rows", keep=False) for field in ("context", "question")]
    files = (_fetch_split(repository, split) for split in ("train", "validation"))
    for file in chain.from_iterable(files):
        frame = read_columns(file, SQUAD, TITLE).unnest("answers")
        table = CheckedTable(str(file), frame)
        outside = table.check_rows(
            has_answer.fill_null(False) & ~is_inside, "answer_start", message
        )
        raise_problems([*table.check(texts), *outside])
        frames.append(frame)
    rows = pl.concat(frames, how="diagonal")
    raise_problems(CheckedTable(repository.location, rows).check(build_id_rules("id", "questions")))
    has_titles = "title" in rows.columns
    title = pl.col("title").fill_null("") if has_titles else pl.lit("")
    contexts = rows.select("context", article=title)
    contexts = contexts.unique("context", keep="first", maintain_order=True).with_row_index("row")
    contexts = contexts.select("context", "article", document=pl.format("c{}", "row"))
    queries = _assign_last(rows.filter(has_answer), contexts, "context")
    starts = queries["answer_start"].list.get(0).to_numpy()
    revision = repository.resolve_revision(repository.list_paths())
    articles = tuple(queries["article"].to_list()) if has_titles else ()
    return _build_data(contexts, "context", queries, revision, starts=starts, clusters=articles)


def _assign_last(questions: pl.DataFrame, documents: pl.DataFrame, text: str) -> pl.DataFrame:
    """Assign each question to the document of the last question with the same text."""
    last = questions.with_columns(pl.col(text).last().over("question"))
    return last.join(documents, on=text, how="left", maintain_order="left")


def sample_tiny_squad(data: PositionData) -> PositionData:
    """Sample SQuAD-PosQ-Tiny: `random.seed(42); random.shuffle(queries); queries[:10000]`, with the
    complete corpus.
    """
    return data.select(_shuffle(len(data.evidence))[:TINY_SQUAD_QUERIES])


def list_fineweb_files(repository: Repository) -> list[str]:
    """List the Parquet files of FineWeb-PosQ, or else its JSON files."""
    return repository.list_paths() or list_raw_files(repository)


def list_raw_files(repository: Repository) -> list[str]:
    """List the data files of a FineWeb-PosQ release in any format."""
    paths = repository.list_paths(suffixes=DATA_SUFFIXES)
    return [path for path in paths if path.split("/")[-1] not in METADATA_FILES]


def read_fineweb(repository: Repository) -> PositionData:
    """Read FineWeb-PosQ: all passages, and the questions, each with its last passage.

    Reads the Parquet split `train`, or else all JSON files.

    Raises:
        DataError: There are no files, or no question can be evaluated.
    """
    paths = repository.list_paths()
    if not paths:
        return read_fineweb_raw(repository)
    return _build_fineweb(repository, _fetch_split(repository, "train"), paths)


def read_fineweb_raw(repository: Repository) -> PositionData:
    """Read all Parquet and JSON files of a FineWeb-PosQ release.

    Labels are lists or strings with one or two positions: `before`, `middle` and `after` in the
    first release, `beginning`, `middle` and `end` in later releases.
    """
    paths = list_raw_files(repository)
    if not paths:
        raise DataError(
            f"{repository.location}: no file train-*.parquet, and no JSON file (*.json or *.jsonl)."
        )
    return _build_fineweb(repository, map(repository.fetch, paths), paths)


def _build_fineweb(
    repository: Repository, files: Iterable[Path], paths: Iterable[str]
) -> PositionData:
    frames = []
    tolerated = []
    for file in files:
        table, tolerated_rows = CheckedTable(str(file), _read_fineweb_rows(file)).tolerate(
            FINEWEB_RULES
        )
        frames.append(table.frame.with_columns(pl.col("content").fill_null("")))
        tolerated += tolerated_rows
    rows = pl.concat(frames).with_row_index("row")
    passages = rows.select("content").unique(maintain_order=True).with_row_index("row")
    passages = passages.select("content", document=pl.format("p{}", "row"))
    queries = _assign_last(rows.filter(IS_QUESTION & ~IS_UNLABELED), passages, "content")
    queries = queries.with_columns(id=pl.format("q{}", "row"))
    warnings = tuple(rows.sentence for rows in tolerated)
    if queries.is_empty():
        problem = f"{repository.location}: no question can be evaluated."
        raise DataError("\n".join([problem, *warnings]))
    labels = tuple(queries["span_class"].to_list())
    data = _build_data(
        passages, "content", queries, repository.resolve_revision(paths), labels=labels
    )
    return replace(data, tolerated=count_tolerated(tolerated), warnings=warnings)


def _read_fineweb_rows(file: Path) -> pl.DataFrame:
    """Read questions, passages and labels. Labels are converted to strings with current names."""
    dtype = read_column_types(file, ["span_class"]).get("span_class")
    labels = pl.List(pl.String) if isinstance(dtype, pl.List) else pl.String
    frame = read_columns(file, {"question": pl.String, "content": pl.String, "span_class": labels})
    label = pl.col("span_class")
    if isinstance(dtype, pl.List):
        label = label.list.join("+")
    return frame.with_columns(label.str.replace_many(OLD_LABELS))


def sample_tiny_fineweb(data: PositionData, per_class: int) -> PositionData:
    """Sample a Tiny set: shuffle with seed 42, take the first `per_class` questions of each class,
    and drop repeated question texts.

    A question with two labels belongs to both classes. This reproduces the paper's counts: 1,000
    per class, and 3,300 per class for the first release (6,620 questions, of which 5,098 are about
    the middle).
    """
    order = _shuffle(len(data.evidence))
    rows: dict[str, int] = {}
    texts = data.questions["text"]
    for name in POSITIONS:
        in_class = [row for row in order if name in data.evidence.labels[row]]
        for row in in_class[:per_class]:
            rows.setdefault(texts[row], row)
    return data.select([*rows.values()])


def _shuffle(count: int) -> list[int]:
    order = [*range(count)]
    random.Random(TINY_SEED).shuffle(order)
    return order


def _build_data(
    documents: pl.DataFrame, text: str, queries: pl.DataFrame, revision: str, **columns: Any
) -> PositionData:
    evidence = Evidence(queries["id"].to_list(), queries["document"].to_list(), **columns)
    return PositionData(
        documents.select(id="document", text=text),
        queries.select("id", text="question"),
        evidence,
        revision,
    )
