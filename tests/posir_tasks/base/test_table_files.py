"""Delimited tables: quotation marks, line breaks and headings lose no row, repeated names lose no
column.
"""

import csv
import io
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_score.hits import read_rows
from posir_score.run_files import read_run_file
from posir_tasks.base.errors import DataError
from posir_tasks.base.table_files import read_delimited
from posir_tasks.base.untrusted import InputError, parse_table
from posir_tasks.data.checks import iterate_rows, read_columns
from posir_tasks.data.formats.passages import Passage
from posir_tasks.datasets.opening import open_data

LINES = [f"Harbour text {number} tells of boats and lamps." for number in range(12)]


def read_tabs(text: str) -> list[list[str]]:
    return [cells for _, cells in parse_table(text, "x.tsv", delimiter="\t")[1]]


@pytest.mark.parametrize(
    "changes",
    [
        {3: '"Never again" was on the lamp.', 7: 'The sign said "closed"'},
        {3: f'"{LINES[3]}', 7: f'{LINES[7]}"'},
        {3: f'"{LINES[3]}', 4: f'{LINES[4]}"'},
        {3: '20" pipe', 7: '30" pipe'},
        {3: '"Never again"'},
        {3: '"', 7: '""'},
        {3: f'"{LINES[3]}'},
        {0: f'"{LINES[0]}', 11: f'{LINES[11]}"'},
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_quotation_marks_in_a_file_without_quoting_are_literal(
    tmp_path: Path, changes, end, before, mark
):
    texts = [changes.get(number, line) for number, line in enumerate(LINES)]
    rows = ["id\ttext", *(f"{number}\t{text}" for number, text in enumerate(texts))]
    (tmp_path / "a.tsv").write_bytes((mark + before * end + end.join(rows) + end).encode())
    read = [
        item for item in open_data(tmp_path / "a.tsv").read_texts() if isinstance(item, Passage)
    ]
    assert [item.text for item in read] == texts
    assert [item.id for item in read] == [str(number) for number in range(12)]


CELLS = st.text('a"\t ', min_size=1, max_size=6).filter(str.strip) | st.text(
    'a"\n ', min_size=1, max_size=6
).filter(str.strip)


@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=5),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_a_file_with_quoting_round_trip(rows, quoting, end):
    written = io.StringIO(newline="")
    csv.writer(written, delimiter="\t", quoting=quoting, lineterminator=end).writerows(
        [["id", "text"], *rows]
    )
    assert read_tabs(written.getvalue()) == rows


@given(
    st.lists(
        st.lists(st.text('ab" ', min_size=1, max_size=6).filter(str.strip), min_size=2, max_size=2),
        max_size=6,
    )
)
def test_a_file_without_quoting_is_read_literally(rows):
    rows = [*rows, ["1", 'the 20" lamp']]
    assert read_tabs("\n".join(map("\t".join, [["id", "text"], *rows]))) == rows


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ('"id"\t"text"\n"1"\t"Never again"\n', [["1", "Never again"]]),
        ('id\ttext\n1\t"Never again"\n2\t"Always"\n', [["1", "Never again"], ["2", "Always"]]),
        ('id\ttext\n1\t"He said ""no"""\n2\t"Always"\n', [["1", 'He said "no"'], ["2", "Always"]]),
        ('id\ttext\n1\t"Never\ragain"\n', [["1", "Never\ragain"]]),
        ('text\n"Never again" was\n20" pipe\n', [['"Never again" was'], ['20" pipe']]),
    ],
)
def test_enclosed_cells_are_distinguished_from_quoted_text(table, rows):
    assert read_tabs(table) == rows


@pytest.mark.parametrize(
    ("name", "table", "line"),
    [
        ("a.tsv", "id\ttext\n1\ta\n2\n", 3),
        ("a.tsv", 'id\ttext\n1\t"a b\n2\tb\tc\n', 3),
        # With CSV rules, the row with three cells would become part of a text.
        ("a.tsv", 'id\ttext\n1\t"a\n2\tb\n3\tb\tc\n4\td"\n', 2),
        ("a.tsv", 'text\n"a\nb\n c"\n', 2),
        ("a.csv", 'id,text\n1,a\n2,"b\n3,c, d\n4,e"\n', 3),
        ("a.csv", 'id;text\nd8;"b\nd9;c\nd10;e"\n', 2),
        ("a.csv", "id,text\n1,a\n2,b,c\n", 3),
        ("a.csv", 'id,text\n1,20" pipe, x\n', 2),
        ("a.csv", 'id,text\n1,"Never" again\n', 2),
        ("a.csv", 'id,text\n1,a\n2,"open\n3,b\n', 3),
        ("a.csv", "id,text\n1,a\x00b\n", 2),
    ],
)
def test_an_ambiguous_table_is_an_error_that_names_the_line(tmp_path: Path, name, table, line):
    (tmp_path / name).write_text(table)
    with pytest.raises(InputError, match=rf"{name}: line {line}: "):
        read_delimited(tmp_path / name)
    with pytest.raises(DataError, match=rf"{name}: line {line}: "):
        list(open_data(tmp_path / name).read_texts())


def test_csv_cells_may_contain_lines_with_commas_and_numbers(tmp_path: Path):
    texts = ["Steps:\n1, do this\n2, do that", "Hello,\nworld", "a\n9, b", "x\n\ny"]
    rows = [[str(number), text] for number, text in enumerate(texts, start=7)]
    with (tmp_path / "a.csv").open("w", newline="") as opened:
        csv.writer(opened).writerows([["id", "text"], *rows])
    assert [list(row) for row in read_delimited(tmp_path / "a.csv").rows()] == rows


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_may_contain_stray_marks_and_blank_lines(tmp_path: Path, end):
    table = ["", "id,text", '1,20" pipe', "", '2,"30"" pipe, x"', "3,", ""]
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + end.join(table).encode())
    assert read_delimited(tmp_path / "a.csv").rows() == [
        ("1", '20" pipe'),
        ("2", '30" pipe, x'),
        ("3", None),
    ]


@pytest.mark.parametrize(
    ("table", "columns", "rows"),
    [
        ("0\tThe presence of\n1\tThe Manhattan\n", ["id", "text"], 2),
        (f"{LINES[0] * 2}\n{LINES[1]}\n", ["text"], 2),
        ("0\t1\n5\ta\n", ["0", "1"], 1),
        ("\ttext\n5\ta\n", ["column 1", "text"], 1),
    ],
)
def test_a_first_line_without_headings_is_a_row(tmp_path: Path, table, columns, rows):
    (tmp_path / "collection.tsv").write_text(table)
    frame = read_delimited(tmp_path / "collection.tsv")
    assert (frame.columns, frame.height) == (columns, rows)


def test_three_columns_without_headings_are_rejected(tmp_path: Path):
    (tmp_path / "docs.tsv").write_text("0\thttps://a\tA title\tA body\n")
    with pytest.raises(InputError, match=r"docs\.tsv: line 1: is a row"):
        read_delimited(tmp_path / "docs.tsv")


REPEATED = {
    "csv": "id,text,text\n1,a,b\n",
    "tsv": "id\ttext\ttext \n1\ta\tb\n",
    "jsonl": '{"id": "1", "text": "a", "text": "b"}\n',
}


@pytest.mark.parametrize("kind", REPEATED)
def test_a_repeated_column_of_texts_is_rejected_by_name(tmp_path: Path, kind):
    (tmp_path / f"a.{kind}").write_text(REPEATED[kind])
    try:
        said = [*open_data(tmp_path / f"a.{kind}").read_texts()]
        problem = " ".join(item.detail for item in said if not isinstance(item, Passage))
        assert not any(isinstance(item, Passage) for item in said)
    except DataError as error:
        problem = str(error)
    assert "'text' occurs twice" in problem


def test_a_repeated_column_of_a_run_is_rejected_by_name(tmp_path: Path):
    columns = ["query_id", "doc_id", "score", "score"]
    pq.write_table(pa.table([["q"], ["d"], [0.5], [0.7]], names=columns), tmp_path / "run.parquet")
    (tmp_path / "run.csv").write_text(",".join(columns) + "\nq,d,0.5,0.7\n")
    (tmp_path / "run.json").write_text('[{"query_id": "q", "doc_id": "d", "score": 1, "score": 2}]')
    for name in ("run.parquet", "run.csv", "run.json"):
        with pytest.raises(DataError, match="'score' occurs twice"):
            read_run_file(tmp_path / name)
    frame = pd.DataFrame([["q", "d", 0.5, 0.7]], columns=columns)
    for table in (frame, pa.Table.from_arrays([["q"], ["d"], [0.5], [0.7]], names=columns)):
        with pytest.raises(DataError, match="'score' occurs twice"):
            read_rows(table)
    assert read_rows(frame.iloc[:, :3]) == [{"query_id": "q", "doc_id": "d", "score": 0.5}]


def test_a_repeated_column_of_questions_is_rejected_by_name(tmp_path: Path):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table([["a"], ["b"], ["c"]], names=["question", "context", "question"]), file)
    with pytest.raises(DataError, match="'question' occurs twice"):
        list(iterate_rows(file))
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "a", "text": "b"}\n')
    with pytest.raises(DataError, match="'text' occurs twice"):
        read_columns(tmp_path / "a.jsonl", {"text": pl.String})


def test_quotation_marks_in_ids_are_kept(tmp_path: Path):
    (tmp_path / "run.tsv").write_text(
        'query_id\tdoc_id\tscore\nq1\t"d1\t3\nq1\td2\t2\nq1\td3"\t1\n'
    )
    run = read_run_file(tmp_path / "run.tsv")
    assert [hit.document for hit in run.by_subset[""]["q1"]] == ['"d1', "d2", 'd3"']
    (tmp_path / "run.tsv").write_bytes(b"query_id\tdoc_id\tscore\rq1\td1\t3\rq1\td2\t2\r")
    assert len(read_run_file(tmp_path / "run.tsv").by_subset[""]["q1"]) == 2
