"""SQuAD-PosQ, FineWeb-PosQ and their Tiny samples are read as in the authors' code."""

import gzip
import json
import random
import re

import numpy as np
import polars as pl
import pytest

from posir_tasks.base.errors import DataError
from posir_tasks.data import posq
from posir_tasks.data.data import PositionData, build_text_frame
from posir_tasks.data.posq import (
    read_fineweb,
    read_fineweb_raw,
    read_squad,
    sample_tiny_fineweb,
    sample_tiny_squad,
)
from posir_tasks.data.repository import LocalRepository
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import POSITIONS, Evidence
from posir_tasks.values.schemes import AbsolutePositions, LabeledPositions

#: Id, context, question and answer starts (empty if unanswerable).
TRAIN = [
    ("t1", "Rivers run down.", "Where do rivers run?", [11]),
    ("t2", "Rivers run down.", "Why do they run?", []),
    ("t3", "Nobody can say.", "What can nobody say?", []),
    ("t4", "Cats sleep, cats eat.", "What do they do?", [5, 17]),
    ("t5", "Dogs bark a lot.", "What do they do?", [5]),
]
VALIDATION = [
    ("v1", "Bees hum.", "Who hums?", [0]),
    ("v2", "Rivers run down.", "What runs?", [0]),
    ("v3", "Birds sing.", "What do they do?", [6]),
    ("v4", "Bees hum.", "Do they sting?", []),
]
STARTS = pl.List(pl.Int32)


def write_squad(root, train=TRAIN, validation=VALIDATION):
    for split, rows in (("train", train), ("validation", validation)):
        frame = pl.DataFrame(
            {
                "id": [name for name, *_ in rows],
                "title": ["T"] * len(rows),
                "context": [context for _, context, *_ in rows],
                "question": [question for *_, question, _ in rows],
                "answers": [
                    {"text": ["answer"] * len(starts), "answer_start": starts}
                    for *_, starts in rows
                ],
            },
            schema_overrides={
                "answers": pl.Struct({"text": pl.List(pl.String), "answer_start": STARTS})
            },
        )
        file = root / "squad_v2" / f"{split}-00000-of-00001.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(file)
    return LocalRepository(root)


def write_fineweb(root, rows, labels=pl.String):
    frame = pl.DataFrame(
        rows,
        schema={"question": pl.String, "content": pl.String, "span_class": labels},
        orient="row",
    )
    (root / "data").mkdir(parents=True, exist_ok=True)
    frame.write_parquet(root / "data" / "train-00000-of-00001.parquet")
    return LocalRepository(root)


def test_articles_cluster_their_contexts(tmp_path):
    repository = write_squad(tmp_path)
    file = tmp_path / "squad_v2/train-00000-of-00001.parquet"
    pl.read_parquet(file).with_columns(
        title=pl.Series(["Rivers", "Rivers", "None", "Pets", "Pets"])
    ).write_parquet(file)
    evidence = read_squad(repository).evidence
    # The context of v2 occurs first in the train split. t4 and t5 have the same question, which is
    # assigned to its last context.
    assert evidence.query_ids == ["t1", "t4", "t5", "v1", "v2", "v3"]
    assert evidence.clusters == ("Rivers", "T", "T", "T", "Rivers", "T")
    columns = DocumentRanks.from_ranks(AbsolutePositions(), evidence, np.ones(6, int)).columns
    assert (len(np.unique(columns.clusters)), len(np.unique(columns.documents))) == (2, 3)
    for file in (tmp_path / "squad_v2").iterdir():
        pl.read_parquet(file).drop("title").write_parquet(file)
    assert read_squad(repository).evidence.clusters == ()


def pair_texts(data):
    text = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    return [
        (asked, text[name])
        for asked, name in zip(data.queries["text"], data.evidence.document_ids, strict=True)
    ]


def test_squad_has_distinct_contexts_and_answerable_questions(
    tmp_path,
):
    """A question with several contexts is assigned to the last one, but keeps its position."""
    data = read_squad(write_squad(tmp_path))
    assert data.corpus["text"][:] == list(
        dict.fromkeys(context for _, context, *_ in [*TRAIN, *VALIDATION])
    )
    assert data.evidence.query_ids == data.queries["id"][:] == ["t1", "t4", "t5", "v1", "v2", "v3"]
    assert data.evidence.starts.tolist() == [11, 5, 5, 0, 0, 6]
    assert data.revision.startswith("local-")
    rivers, birds, text = (
        ("Where do rivers run?", "What runs?"),
        ("What do they do?", "Birds sing."),
        "Rivers run down.",
    )
    assert pair_texts(data) == [
        (rivers[0], text),
        birds,
        birds,
        ("Who hums?", "Bees hum."),
        (rivers[1], text),
        birds,
    ]


def test_several_files_of_a_split_are_read_in_order(tmp_path):
    for number, rows in ((1, TRAIN[3:]), (0, TRAIN[:3])):
        write_squad(tmp_path, train=rows)
        file = tmp_path / "squad_v2" / "train-00000-of-00001.parquet"
        file.rename(file.with_name(f"train-0000{number}-of-00002.parquet"))
    assert read_squad(LocalRepository(tmp_path)).evidence.query_ids == [
        "t1",
        "t4",
        "t5",
        "v1",
        "v2",
        "v3",
    ]


def test_tiny_squad_is_shuffled_like_the_authors_sample(tmp_path, monkeypatch):
    rows = [
        (f"t{number}", f"Context number {number % 40}.", f"Question {number}?", [number % 7])
        for number in range(150)
    ]
    full = read_squad(write_squad(tmp_path, train=rows))

    def list_queries(data):
        return list(
            zip(
                data.evidence.query_ids,
                *zip(*pair_texts(data), strict=True),
                data.evidence.starts.tolist(),
                strict=True,
            )
        )

    monkeypatch.setattr(posq, "TINY_SQUAD_QUERIES", 30)
    queries = list_queries(full)
    random.seed(42)
    random.shuffle(queries)
    # Sampling does not change the global random state.
    state, tiny = random.getstate(), sample_tiny_squad(full)
    assert random.getstate() == state
    assert list_queries(tiny) == queries[:30]
    assert tiny.queries["id"][:] == tiny.evidence.query_ids
    assert tiny.corpus["text"][:] == full.corpus["text"][:]


def test_tiny_sizes_and_seed_match_the_paper():
    sizes = (posq.TINY_SQUAD_QUERIES, posq.TINY_FINEWEB_CLASS, posq.TINY_RAW_CLASS)
    assert (*sizes, posq.TINY_SEED) == (10_000, 1_000, 3_300, 42)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        (("t1", "", "Where?", [0]), "context", "is empty"),
        (("t1", "Rivers run down.", " ", [0]), "question", "is empty"),
        (("t1", "Rivers run down.", "Where?", [16]), "answer_start", "is outside its context"),
        (("t1", "Rivers run down.", "Where?", [None]), "answer_start", "is outside its context"),
    ],
)
def test_errors_name_file_and_field_of_an_invalid_squad_row(tmp_path, change, field, message):
    repository = write_squad(tmp_path, train=[change])
    file = tmp_path / "squad_v2" / "train-00000-of-00001.parquet"
    with pytest.raises(DataError, match=re.escape(f"{file}: field '{field}': {message}")):
        read_squad(repository)


def test_repeated_ids_and_missing_splits_or_columns_are_named(tmp_path):
    with pytest.raises(DataError, match=r"field 'id': is a duplicate.*2 rows"):
        read_squad(write_squad(tmp_path, validation=[TRAIN[0]]))
    (tmp_path / "squad_v2" / "validation-00000-of-00001.parquet").unlink()
    with pytest.raises(DataError, match=r"no file validation-\*\.parquet"):
        read_squad(LocalRepository(tmp_path))
    file = tmp_path / "squad_v2" / "train-00000-of-00001.parquet"
    pl.read_parquet(file).drop("answers").write_parquet(file)
    with pytest.raises(DataError, match=re.escape(f"{file}: field 'answers': missing column")):
        read_squad(LocalRepository(tmp_path))


FINEWEB = [
    ("Where does it begin?", "One passage.", "beginning"),
    ("", "Only a passage.", None),
    ("How does it end?", "One passage.", "end"),
    (None, "Another one without a question.", "middle"),
    ("What holds it together?", "Third passage.", "middle"),
    ("Both?", "Third passage.", "beginning, end"),
]


def test_fineweb_passages_without_questions_are_only_in_the_corpus(tmp_path):
    data = read_fineweb(write_fineweb(tmp_path, FINEWEB))
    assert data.corpus["text"][:] == [
        "One passage.",
        "Only a passage.",
        "Another one without a question.",
        "Third passage.",
    ]
    assert pair_texts(data) == [(question, content) for question, content, _ in FINEWEB if question]
    assert data.evidence.labels == ("beginning", "end", "middle", "beginning, end")
    rows = [
        (question, content, label.split(", ") if label else None)
        for question, content, label in FINEWEB
    ]
    labels = read_fineweb(write_fineweb(tmp_path, rows, pl.List(pl.String))).evidence.labels
    assert labels == ("beginning", "end", "middle", "beginning+end")


@pytest.mark.parametrize("label", ["start", "", None])
def test_fineweb_questions_without_labels_are_omitted(tmp_path, label):
    data = read_fineweb(write_fineweb(tmp_path, [*FINEWEB, ("Where?", "Here.", label)]))
    assert len(data.evidence) == 4
    assert data.corpus["text"][:][-1] == "Here."
    assert data.tolerated == {"questions_without_label": 1}
    assert "1 of 7 rows have a question and no label of beginning, middle, end" in data.warnings[0]
    repository = write_fineweb(tmp_path / "alone", [("Where?", "Here.", label)])
    with pytest.raises(
        DataError, match=r"no question can be evaluated\.\n1 of 1 rows have a question and no label"
    ):
        read_fineweb(repository)


#: Rows of the first release, with one or two labels per question.
RAW = [
    {
        "question": "Where does it begin?",
        "content": "One passage.",
        "span_class": ["before"],
        "id": 1,
    },
    {
        "question": "What holds it?",
        "content": "One passage.",
        "span_class": ["before", "middle"],
        "id": 2,
    },
    {
        "question": "How does it end?",
        "content": "Another [one].",
        "span_class": ["middle", "after"],
        "id": 3,
    },
]


@pytest.mark.parametrize(
    "name", ["train.json", "data/fineweb[1].jsonl", "fineweb.jsonl.gz", "list.json"]
)
def test_the_first_fineweb_release_is_json_with_two_labels(tmp_path, name):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    text = json.dumps(RAW) if name == "list.json" else "\n".join(map(json.dumps, RAW))
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    (tmp_path / "dataset_infos.json").write_text("{}")
    data = read_fineweb_raw(LocalRepository(tmp_path))
    assert pair_texts(data) == [(row["question"], row["content"]) for row in RAW]
    assert data.evidence.labels == ("beginning", "beginning+middle", "middle+end")
    cells = LabeledPositions().cells(data.evidence)
    assert list(zip(cells.query.tolist(), cells.position.tolist(), strict=True)) == [
        (0, 0),
        (1, 0),
        (1, 1),
        (2, 1),
        (2, 2),
    ]
    assert data.revision.startswith("local-")
    file.unlink()
    rows = [row | {"span_class": ", ".join(row["span_class"])} for row in RAW]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    labels = read_fineweb_raw(LocalRepository(tmp_path)).evidence.labels
    assert labels == ("beginning", "beginning, middle", "middle, end")


def test_fineweb_in_json_lines_equals_parquet(tmp_path):
    parquet, folder = read_fineweb(write_fineweb(tmp_path / "parquet", FINEWEB)), tmp_path / "lines"
    folder.mkdir()
    rows = [dict(zip(("question", "content", "span_class"), row, strict=True)) for row in FINEWEB]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = read_fineweb(LocalRepository(folder))
    assert (pair_texts(data), data.corpus["text"][:]) == (
        pair_texts(parquet),
        parquet.corpus["text"][:],
    )
    assert data.evidence.labels == parquet.evidence.labels
    (folder / "train.jsonl").unlink()
    with pytest.raises(DataError, match=r"no file train-\*\.parquet, and no JSON file"):
        read_fineweb(LocalRepository(folder))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"question": "a", "content": "b"', "train.jsonl: is not readable JSON"),
        (
            '{"question": "a", "content": "b"}',
            "train.jsonl: field 'span_class': missing column; the file has question",
        ),
        (
            '{"question": 1, "content": "b", "span_class": "after"}',
            "train.jsonl: field 'question': is Int64, must be String",
        ),
    ],
)
def test_invalid_json_files_are_named(tmp_path, text, message):
    (tmp_path / "train.jsonl").write_text(text)
    with pytest.raises(DataError, match=re.escape(message)):
        read_fineweb_raw(LocalRepository(tmp_path))


def test_the_first_tiny_sample_has_the_published_sizes():
    """Labels have the published frequencies (Myopic Trap, Table 2; PosQ, Appendix B)."""
    shares = {
        "beginning": 15_961,
        "beginning+middle": 87_883,
        "middle": 1_189,
        "middle+end": 110_670,
        "end": 50_162,
    }
    labels = [label for label, count in shares.items() for _ in range(count)]
    random.Random(0).shuffle(labels)
    names = [str(row) for row in range(len(labels))]
    texts = build_text_frame(names, names)
    data = PositionData(texts, texts, Evidence(names, names, labels=tuple(labels)), "local")
    tiny = sample_tiny_fineweb(data, posq.TINY_RAW_CLASS)
    counts = [sum(name in label for label in tiny.evidence.labels) for name in POSITIONS]
    assert counts == [3_300, pytest.approx(5_098, abs=60), 3_300]
    assert len(tiny.evidence) == pytest.approx(6_620, abs=10)


def test_tiny_fineweb_is_shuffled_by_class_like_the_authors_sample(tmp_path):
    labels = ["beginning", "middle", "end", "beginning+middle", "end"]
    rows = [
        (
            f"Question {number % 90}?" if number % 9 else "",
            f"Passage {number % 50}.",
            labels[number % 5],
        )
        for number in range(200)
    ]
    full = read_fineweb(write_fineweb(tmp_path, rows))
    queries = [row for row in rows if row[0]]
    random.seed(42)
    random.shuffle(queries)
    expected, last = {}, {question: passage for question, passage, _ in rows}
    for name in ("beginning", "middle", "end"):
        for question, _, label in [row for row in queries if name in row[2]][:12]:
            expected.setdefault(question, (last[question], label))
    tiny = sample_tiny_fineweb(full, 12)
    values = {
        question: (passage, label)
        for (question, passage), label in zip(pair_texts(tiny), tiny.evidence.labels, strict=True)
    }
    assert list(values.items()) == list(expected.items())
    assert len(tiny.queries) == len(values) < 36
    assert tiny.corpus["text"][:] == full.corpus["text"][:]
