"""Valid data in the PosIR layout is read unchanged, and errors name file, field and row."""

import re
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from posir_tasks.base.errors import DataError
from posir_tasks.data.checks import raise_problems
from posir_tasks.data.posir import (
    SubsetKey,
    find_layout,
    inspect_domain,
    list_domains,
    read_domain,
)
from posir_tasks.data.repository import LocalRepository
from posir_tasks.datasets.opening import open_data
from posir_tasks.values.schemes import RelativePositions
from tests.support.datasets import FILES, posir_tables, write_domain


def read(root, language="eng-Latn", corpus_language="eng-Latn"):
    return read_domain(LocalRepository(root), language, corpus_language, "sports")


def validate(root, language="eng-Latn", corpus_language="eng-Latn"):
    raise_problems(
        inspect_domain(LocalRepository(root), SubsetKey(language, corpus_language, "sports"))[0]
    )


def change_cell(tables, table, field, row, value):
    """Change one value in the tables, and the column type if necessary."""
    values = tables[table][field].to_list()
    values[row] = value
    numbers = [
        number for value in values for number in (value if isinstance(value, list) else [value])
    ]
    dtype = (
        pl.UInt64
        if any(isinstance(number, int) and number >= 2**63 for number in numbers)
        else None
    )
    column = pl.Series(
        field, values, pl.List(dtype) if dtype and isinstance(value, list) else dtype, strict=False
    )
    return tables | {table: tables[table].with_columns(column)}


def test_a_valid_domain_is_read_unchanged(posir_folder):
    data, tables = read(posir_folder), posir_tables()
    assert data.corpus.to_dict() == {
        "id": list(tables["corpus"]["_id"]),
        "text": list(tables["corpus"]["text"]),
    }
    assert data.queries.to_dict() == {
        "id": list(tables["queries"]["_id"]),
        "text": list(tables["queries"]["text"]),
    }
    assert data.evidence.query_ids == list(tables["queries"]["_id"])
    assert data.evidence.document_ids == list(tables["qrels"]["corpus-id"])
    assert data.evidence.starts.tolist() == [15, 0, 32, 14]
    assert data.evidence.ends.tolist() == [27, 3, 41, 33]
    assert data.evidence.characters.tolist() == list(tables["queries"]["pos_char_length"])
    assert data.evidence.tokens.tolist() == [400, 800, 1200, 1600]
    assert data.revision.startswith("local-")
    assert (data.tolerated, data.warnings) == ({}, ())


def test_titles_are_optional_and_not_model_input(tmp_path):
    tables = posir_tables()
    tables["queries"] = tables["queries"].with_columns(
        pos_title=pl.Series([None, "Bees", "Bees", " "])
    )
    write_domain(tmp_path, tables)
    data = read(tmp_path)
    assert data.evidence.clusters == ("", "Bees", "Bees", "")
    assert data.corpus.column_names == data.queries.column_names == ["id", "text"]


def test_compatible_types_and_other_row_orders_are_equivalent(tmp_path, posir_folder):
    tables, expected = posir_tables(), read(posir_folder).evidence
    types = {
        "pos_char_span": pl.Array(pl.Int32, 2),
        "pos_char_length": pl.Int32,
        "pos_token_length": pl.UInt16,
    }
    # Irrelevant documents and repeated judgments do not add positives.
    more_rows = pl.DataFrame(
        {"query-id": ["q0", "q1"], "corpus-id": ["doc_3", "doc_1"], "score": [0, 1]}
    )
    qrels = pl.concat([tables["qrels"], more_rows]).reverse()
    write_domain(tmp_path, tables | {"queries": tables["queries"].cast(types), "qrels": qrels})
    data = read(tmp_path)
    assert data.evidence.query_ids == data.queries["id"][:] == expected.query_ids
    assert data.evidence.document_ids == expected.document_ids
    assert data.evidence.starts.tolist() == expected.starts.tolist()


def test_queries_only_in_qrels_are_dropped_and_counted(tmp_path):
    tables = posir_tables()
    extra_rows = pl.DataFrame(
        {
            "query-id": ["gone0", "gone0", "gone1"],
            "corpus-id": ["doc_0", "doc_9", "doc_1"],
            "score": [1, 1, 1],
        }
    )
    write_domain(tmp_path, tables | {"qrels": pl.concat([extra_rows, tables["qrels"]])})
    data = read(tmp_path)
    assert data.tolerated == {"queries_removed": 2}
    assert data.warnings == ("eng-Latn/sports: 2 queries are in the qrels but not in the data",)
    assert data.evidence.query_ids == ["q0", "q1", "q2", "q3"]


def test_queries_are_read_with_a_corpus_in_another_language(tmp_path):
    english, german = posir_tables(), posir_tables()
    question_text = pl.concat_str(pl.lit("Frage: "), "text").alias("text")
    german["queries"] = german["queries"].with_columns(
        question_text, pl.col("pos_char_length") + 50
    )
    write_domain(tmp_path, english)
    write_domain(
        tmp_path, {name: german[name] for name in ("queries", "qrels")}, language="deu-Latn"
    )
    data = read(tmp_path, "deu-Latn")
    assert data.corpus["text"][:] == list(english["corpus"]["text"])
    assert data.queries["text"][0] == "Frage: Where was the mill?"
    assert data.evidence.characters.tolist() == [
        length + 50 for length in english["queries"]["pos_char_length"]
    ]


def test_domains_are_folders_with_data(posir_folder):
    write_domain(posir_folder, posir_tables(), domain="game")
    write_domain(posir_folder, posir_tables(), language="deu-Latn", domain="news_media")
    (posir_folder / "eng-Latn" / "extra.parquet").write_bytes(b"")
    assert list_domains(LocalRepository(posir_folder), "eng-Latn") == ["game", "sports"]


@pytest.mark.parametrize("table", FILES)
@pytest.mark.parametrize("content", [None, b"", b"PAR1" + bytes(20) + b"PAR1", "truncated"])
def test_a_missing_or_corrupt_file_is_named(posir_folder, table, content):
    file = posir_folder / "eng-Latn" / "sports" / FILES[table]
    if content is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-40] if content == "truncated" else content)
    problem = "missing" if content is None else "not a readable parquet file"
    with pytest.raises(DataError, match=re.escape(f"{file}: {problem}")):
        read(posir_folder)


#: Table, field and values of the wrong type.
WRONG_TYPES = [
    ("queries", "pos_char_span", ["15-27", "0-3", "32-41", "14-33"]),
    ("queries", "pos_char_span", [[15.5, 27.0], [0.0, 3.0], [32.0, 41.0], [14.0, 33.0]]),
    ("queries", "pos_char_length", [52.5, 64.0, 64.0, 33.0]),
    ("corpus", "text", [{"title": "a"}, {"title": "b"}, {"title": "c"}, {"title": "d"}]),
    ("qrels", "score", ["yes", "yes", "yes", "yes"]),
]
#: Table, change, and start of the message after the file name.
INVALID_TABLES = [
    *(
        (table, lambda frame, field=field: frame.drop(field), f"field '{field}': missing column;")
        for table in FILES
        for field in posir_tables()[table].columns
    ),
    *(
        (
            table,
            lambda frame, column=(field, values): frame.with_columns(pl.Series(*column)),
            f"field '{field}'",
        )
        for table, field, values in WRONG_TYPES
    ),
    *((table, pl.DataFrame.clear, "has no rows; at least one") for table in ("corpus", "queries")),
]


@pytest.mark.parametrize(("table", "change", "message"), INVALID_TABLES)
def test_missing_or_invalid_columns_and_empty_tables_are_named(tmp_path, table, change, message):
    tables = posir_tables()
    folder = write_domain(tmp_path, tables | {table: change(tables[table])})
    with pytest.raises(DataError, match=re.escape(f"{folder / FILES[table]}: {message}")):
        read(tmp_path)


#: Table, field, row, invalid value, message, rule key (None for an error), and number of remaining
#: queries in a task.
INVALID_VALUES = {
    "empty document": ("corpus", "text", 2, "", "is empty", "documents_without_text", 4),
    "null query": ("queries", "text", 1, None, "is empty", "queries_without_text", 3),
    "null document id": ("corpus", "_id", 3, None, "is empty", "documents_without_id", 4),
    "duplicate document id": (
        "corpus",
        "_id",
        3,
        "doc_2",
        "is a duplicate",
        "documents_with_repeated_id",
        4,
    ),
    "null query id": ("queries", "_id", 0, None, "is empty", "queries_without_id", 3),
    "duplicate query id": (
        "queries",
        "_id",
        1,
        "q0",
        "is a duplicate",
        "queries_with_repeated_id",
        3,
    ),
    "span beyond": (
        "queries",
        "pos_char_span",
        3,
        [14, 34],
        "is outside its document",
        "queries_with_outside_span",
        4,
    ),
    "empty span": (
        "queries",
        "pos_char_span",
        3,
        [14, 14],
        "is empty",
        "queries_with_empty_span",
        4,
    ),
    "reversed span": (
        "queries",
        "pos_char_span",
        3,
        [20, 14],
        "is reversed",
        "queries_with_reversed_span",
        4,
    ),
    "span of one": (
        "queries",
        "pos_char_span",
        3,
        [14],
        "must be two integers",
        "queries_without_span",
        3,
    ),
    "null span": (
        "queries",
        "pos_char_span",
        3,
        None,
        "must be two integers",
        "queries_without_span",
        3,
    ),
    "span with a null": (
        "queries",
        "pos_char_span",
        3,
        [14, None],
        "must be two integers",
        "queries_without_span",
        3,
    ),
    "another length": (
        "queries",
        "pos_char_length",
        2,
        65,
        "is not the length",
        "queries_with_another_length",
        4,
    ),
    "no tokens": (
        "queries",
        "pos_token_length",
        2,
        0,
        "must be at least 1",
        "queries_without_token_length",
        3,
    ),
    "positive not in the corpus": (
        "qrels",
        "corpus-id",
        1,
        "doc_9",
        "is not in",
        "judgments_of_missing_documents",
        3,
    ),
    "length beyond any text": (
        "queries",
        "pos_char_length",
        2,
        2**31,
        "must be at least 1 and",
        "queries_without_length",
        3,
    ),
    "tokens beyond 64 bits": (
        "queries",
        "pos_token_length",
        2,
        2**63,
        "does not fit Int64",
        None,
        0,
    ),
    "span beyond 64 bits": (
        "queries",
        "pos_char_span",
        3,
        [0, 2**64 - 1],
        "does not fit List(Int64)",
        None,
        0,
    ),
    "score is NaN": (
        "qrels",
        "score",
        1,
        float("nan"),
        "is not a number",
        "judgments_without_score",
        3,
    ),
    "null query in the qrels": (
        "qrels",
        "query-id",
        1,
        None,
        "is missing",
        "judgments_with_missing_values",
        3,
    ),
    "null positive": (
        "qrels",
        "corpus-id",
        1,
        None,
        "is missing",
        "judgments_with_missing_values",
        3,
    ),
}


@pytest.mark.parametrize("case", INVALID_VALUES)
def test_errors_name_file_field_and_row_of_an_invalid_value(tmp_path, case):
    table, field, row, value, message, key, remaining = INVALID_VALUES[case]
    folder = write_domain(tmp_path, change_cell(posir_tables(), table, field, row, value))
    with pytest.raises(DataError) as caught:
        validate(tmp_path)
    if case == "empty document":
        # Only the query about this document has a problem.
        assert [row.split("field ")[1][:17] for row in str(caught.value).splitlines()] == [
            "'pos_char_length'"
        ]
    else:
        (line,) = [
            line for line in str(caught.value).splitlines() if f"field '{field}': {message}" in line
        ]
        assert line.startswith(f"{folder / FILES[table]}: ")
        rows = (
            [0, 1]
            if case == "duplicate query id"
            else [2, 3]
            if case == "duplicate document id"
            else [row]
        )
        assert f"{len(rows)} row{'s' * (len(rows) > 1)}, first: {rows[0]}" in line
    if not remaining:
        with pytest.raises(DataError):
            read(tmp_path)
        return
    data = read(tmp_path)
    removed_queries = (
        {"queries_removed"} if case in ("null query id", "duplicate query id") else set()
    )
    missing_document = {"queries_without_document"} if table == "qrels" else set()
    assert {*data.tolerated} - removed_queries - missing_document - {
        "queries_with_another_length"
    } | {key} == {key}
    assert set(data.tolerated.values()) == {1}
    assert len(data.evidence) == len(data.queries) == remaining
    assert len(data.warnings) == len(data.tolerated)
    assert any(warning.startswith("eng-Latn/sports: 1 of 4 ") for warning in data.warnings)
    assert None not in data.corpus["text"]


def test_positions_of_translations_come_from_the_columns(tmp_path, posir_folder):
    """The texts are three times as long as the English originals, to which the columns refer."""
    tables = posir_tables()
    tables["corpus"] = tables["corpus"].with_columns(
        pl.concat_str(pl.col("text"), pl.col("text"), pl.col("text"))
    )
    write_domain(tmp_path, tables, language="deu-Latn")
    data, english = read(tmp_path, "deu-Latn", "deu-Latn"), read(posir_folder)
    scheme = RelativePositions()
    assert (
        scheme.cells(data.evidence).position.tolist()
        == scheme.cells(english.evidence).position.tolist()
    )
    assert data.tolerated == {"queries_with_another_length": 4}
    (warning,) = data.warnings
    assert warning.startswith(
        "deu-Latn/sports: 4 of 4 queries have a pos_char_length that is not the length"
    )
    texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    for span, start, name in zip(
        data.locate_spans(), data.evidence.starts, data.evidence.document_ids, strict=True
    ):
        assert span.start == 3 * start
        assert 0 <= span.start < span.end <= len(texts[name])
    assert english.locate_spans() == list(
        zip(english.evidence.starts, english.evidence.ends, strict=True)
    )


def test_the_error_for_unusable_data_lists_the_reasons(tmp_path):
    tables = posir_tables()
    write_domain(tmp_path, tables | {"queries": tables["queries"].with_columns(pos_token_length=0)})
    with pytest.raises(
        DataError,
        match=r"queries\.parquet: no query can be evaluated\.\n.*4 of 4 .* no pos_token_length",
    ):
        read(tmp_path)


@pytest.mark.parametrize(("documents", "number"), [([], "no"), (["doc_1", "doc_3"], "several")])
def test_queries_need_exactly_one_positive(tmp_path, documents, number):
    tables = posir_tables()
    more_rows = pl.DataFrame(
        {"query-id": "q1", "corpus-id": pl.Series(documents, dtype=pl.String), "score": 1}
    )
    qrels = pl.concat(
        [tables["qrels"].filter(pl.col("query-id") != "q1"), more_rows], how="vertical_relaxed"
    )
    folder = write_domain(tmp_path, tables | {"qrels": qrels})
    message = (
        f"{folder / FILES['queries']}: field '_id': has {number} relevant document.* in "
        f"{folder / FILES['qrels']}"
    )
    with pytest.raises(DataError, match=rf"{message}.*1 row, first: 1 \('q1'\)"):
        validate(tmp_path)


def test_duplicate_column_names_are_rejected_if_read(tmp_path):
    folder = write_domain(tmp_path, posir_tables())
    table = posir_tables()["queries"].to_arrow()
    pq.write_table(
        table.append_column("more", table["text"]).append_column("more", table["text"]),
        folder / "queries.parquet",
    )
    assert len(read(tmp_path).evidence) == 4
    pq.write_table(table.append_column("text", table["_id"]), folder / "queries.parquet")
    with pytest.raises(
        DataError, match=r"queries\.parquet: field 'text': several columns have this name"
    ):
        read(tmp_path)


#: New columns, and the message.
INVALID_COLUMNS = {
    "one document of two articles": (
        {"queries": {"pos_title": ["a", "b", "other", "c"]}},
        r"field 'pos_title': differs between the queries of one document; .*; 2 rows, first: 1",
    ),
    "a title that is no text": (
        {"queries": {"pos_title": [1, 2, 2, 3]}},
        "field 'pos_title': is Int64, must be String",
    ),
    "missing ids beside duplicates": (
        {"corpus": {"_id": ["doc_0", "doc_0", None, ""]}},
        r"(?s)field '_id': is empty; .*; 2 rows, first: 2 \(None\), 3 \(''\).*"
        r"field '_id': is a duplicate; .*; 2 rows, first: 0 \('doc_0'\), 1 \('doc_0'\)",
    ),
    "ids with a null character": (
        {"corpus": {"_id": ["a\0", "b\0", "c\0", "d\0"]}},
        r"corpus\.parquet: field '_id': contains a null character.*; 4 rows, first: 0",
    ),
}


@pytest.mark.parametrize("case", INVALID_COLUMNS)
def test_errors_of_columns_list_the_rows(tmp_path, case):
    changes, message = INVALID_COLUMNS[case]
    tables = posir_tables()
    for table, columns in changes.items():
        tables[table] = tables[table].with_columns(
            pl.Series(name, values) for name, values in columns.items()
        )
    write_domain(tmp_path, tables)
    with pytest.raises(DataError, match=message):
        validate(tmp_path)


def test_a_layout_is_found_from_data_language_and_domain_folders(posir_folder):
    write_domain(posir_folder, posir_tables(), domain="game")
    write_domain(posir_folder, posir_tables(), language="deu-Latn")
    counts_by_path = {
        ".": 4,
        "..": 4,
        "eng-Latn": 2,
        "deu-Latn": 2,
        "eng-Latn/game": 1,
        "deu-Latn/sports": 2,
    }
    for name, count in counts_by_path.items():
        root, keys = find_layout(posir_folder / name)
        assert (root, len(keys)) == (posir_folder, count), name


@pytest.mark.parametrize("name", ["none", "empty", "file"])
def test_a_path_without_data_has_no_layout(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    assert find_layout(tmp_path / name) is None


def test_dataset_cards_are_not_texts(tmp_path: Path):
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\nTexts on mills.")
    (tmp_path / "data").mkdir()
    assert not open_data(tmp_path).rows
    (tmp_path / "data" / "train.jsonl").write_text('{"text": "The mill burned down."}\n')
    assert [row["text"] for row in open_data(tmp_path).rows] == ["The mill burned down."]
