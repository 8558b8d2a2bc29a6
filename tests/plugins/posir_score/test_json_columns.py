"""Tests that regular JSON Lines are read in columns, with the same hits and errors as rows."""

import codecs
import gzip
import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posir_score.hits import Order
from posir_score.json_columns import parse_json_lines
from posir_score.ranking_builder import ANY_SUBSET, RankingBuilder
from posir_score.run_files import _parse_lines, read_run_file
from posir_tasks.base.errors import DataError
from posir_tasks.base.untrusted import decode

#: JSON values by field: first regular values, then others.
IDS = ('"q"', '"r"', '"é"', '"a b"', r'"\u00e9"', r'"\"\\\/\n\t"', '"\x7f"', "1", "-7", "0")
OTHER_IDS = (
    r'"\ud83d\ude00"',
    r'"\ud800"',
    r'"\ud800x"',
    r'"\udc00"',
    r'"\ud83d\u0041"',
    r'"\u0000"',
    r'"\u12"',
    r'"\x41"',
    '""',
    '"\x01"',
    '"\x1f"',
    "-0",
    "1.0",
    "1e2",
    "01",
    "9223372036854775808",
    "18446744073709551617",
    "true",
    "null",
    "[1]",
    '{"q": 1}',
    "'q'",
    "q",
)
LONG = "1" * 25 + ".5"
SCORES = ("1", "0", "-2", "0.5", "-0.0", "1e3", "1E+2", "-1e-400", "9007199254740993", "0.1", LONG)
OTHER_SCORES = (
    "-0",
    "1e999",
    "-1e999",
    "18446744073709551615",
    "18446744073709551616",
    "18446744073709551617",
    "1" * 25,
    "1" * 400 + ".0",
    "2" * 5000,
    '"0.5"',
    "null",
    "NaN",
    "Infinity",
    "-Infinity",
    "true",
    "01",
    ".5",
    "1.",
    "+1",
    "1_0",
    "0x1",
    "{}",
)
RANKS = ("0", "1", "2", "3", "999999999999999999")
OTHER_RANKS = ("-1", "1.0", "1e0", "null", '"1"', "true", "1000000000000000000", "[]")
NOTES = ('"x"', r'"\ud83d\ude00"', r'"\ud800"', r'"\n\""', "null", "true", "-1.5e3", '""')
OTHER_NOTES = (r'"\udc00"', r'"\ud800\u0041"', "{}", "[1]", "1e999", "9" * 30, "NaN", '"\n"', "01")
VALUES = {
    "qid": (IDS, OTHER_IDS),
    "docno": (IDS, OTHER_IDS),
    "score": (SCORES, OTHER_SCORES),
    "rank": (RANKS, OTHER_RANKS),
    "note": (NOTES, OTHER_NOTES),
}
#: Lines that the pattern must exclude.
OTHER_LINES = (
    '{"qid": "q", "docno": "d", "score": 1, "score": 2}',
    '{"docno": "d", "qid": "q", "score": 1}',
    '{"qid": "q", "docno": "d"}',
    '{"qid": "q", "docno": "d", "score": 1}{"qid": "q", "docno": "e", "score": 2}',
    '{"qid": "q", "docno": "d",',
    '"score": 1}',
    '{"qid": "q", "docno": "d", "score": 1},',
    '{"qid": "q", "docno": "d", "score": 1} # 1',
    '{"qid": "q", "docno": "d", "score": 1,}',
    '{"qid": "q", "docno": "d", "distance": 1}',
    '{"qid": "q", "docno": "d", "_score": 1}',
    r'{"qid": "q", "docno": "d", "scor\u0065": 1}',
    r'{"qid": "q", "docno": "d", "score": 1, "\ud800": 1}',
    '{"qid": "q", "docno": "d", "score": 1, "results": []}',
    '\ufeff{"qid": "q", "docno": "d", "score": 1}',
    "[]",
    "1",
    " ",
    "\x0b",
    "\u00a0",
)
ENDS = ("\n", "\r\n", " \n", "\n\n", "\r\r\n", "\x0b\n", "\u2028\n", "\x1f\n", "\0\n", "\t\n")


@st.composite
def build_lines(draw: st.DrawFn, *, is_regular: bool) -> str:
    """Build JSON Lines from regular values, or from any values and line ends."""
    names = draw(st.permutations(["qid", "docno", "score"]))
    names = [*names, *draw(st.sets(st.sampled_from(["rank", "note"])))]
    colon = draw(st.sampled_from([":", ": ", " :\t"]))
    comma = draw(st.sampled_from([",", ", ", " ,"]))
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        is_special = not is_regular and draw(st.booleans())
        members = []
        for name in names:
            regular_values, other_values = VALUES[name]
            values = (*regular_values, *other_values) if is_special else regular_values
            members.append(f'"{name}"{colon}{draw(st.sampled_from(values))}')
        lines.append("{" + comma.join(members) + "}")
    if not is_regular:
        lines[:0] = draw(st.lists(st.sampled_from(OTHER_LINES), max_size=1))
        lines += draw(st.lists(st.sampled_from(OTHER_LINES), max_size=1))
    end = "\n" if is_regular else draw(st.sampled_from(ENDS))
    return "".join(line + end for line in lines)


@given(text=build_lines(is_regular=False), mark=st.sampled_from([b"", codecs.BOM_UTF8]))
@example(text='{"qid": "q", "docno": "d", "score": 1}\n' * 2, mark=b"")
@example(text="".join(f"{line}\n" for line in (OTHER_LINES[2], *OTHER_LINES[4:6])), mark=b"")
def test_columns_equal_rows(text: str, mark: bytes):
    check_columns(mark + text.encode())


@pytest.mark.parametrize("line", OTHER_LINES)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_an_irregular_line_is_read_like_rows(line: str, position: int):
    lines = ['{"qid": "q", "docno": "d", "score": 1}'] * 2
    lines.insert(position, line)
    check_columns("\n".join(lines).encode())


@pytest.mark.parametrize("field", VALUES)
def test_each_value_is_read_like_rows(field: str):
    regular_row = {name: values[0][0] for name, values in VALUES.items()}
    for value in (*VALUES[field][0], *VALUES[field][1]):
        row = regular_row | {field: value}
        line = ", ".join(f'"{name}": {value}' for name, value in row.items())
        is_regular = check_columns(f"{{{line}}}\n".encode())
        assert is_regular == (value in VALUES[field][0]), value


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from("qr"),
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
            st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**17), 10**17),
            st.integers(0, 10**17),
        ),
        min_size=1,
    ),
    has_ranks=st.booleans(),
    is_ascii=st.booleans(),
)
def test_regular_lines_are_read_in_columns(
    rows: list[tuple[str, str, float, int]], has_ranks: bool, is_ascii: bool
):
    lines = []
    for query, document, score, rank in rows:
        row = {"query_id": query, "doc_id": document, "score": score}
        line = json.dumps(row | {"rank": rank} if has_ranks else row, ensure_ascii=is_ascii)
        lines.append(line + "\n")
    # Characters beyond 16 bits are escaped as surrogates.
    has_surrogates = is_ascii and any(max(document) > "\uffff" for _, document, *_ in rows)
    assert check_columns("".join(lines).encode()) != has_surrogates


@pytest.mark.parametrize("name", ["run.jsonl", "run.ndjson.gz"])
def test_an_invalid_line_is_named(name: str, tmp_path: Path):
    file = tmp_path / name
    lines = [f'{{"qid": "q", "docno": "d{row}", "score": {row}}}' for row in range(3)]
    for line, message in (
        (lines[0].replace("0}", '"high"}'), r"first line 4 \('high'\) of query q, document d0"),
        (lines[0].replace("0}", "NaN}"), "line 4: field 'score': is nan"),
    ):
        content = "\n".join([*lines, line]).encode()
        file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        with pytest.raises(DataError, match=message):
            read_run_file(file)


def check_columns(content: bytes) -> bool:
    """If lines are regular, compare reading columns with reading rows. Return True if they are."""
    columns = parse_json_lines(content)
    for order in (None, *get_args(Order)) if columns else ():
        in_columns = RankingBuilder("run", order)
        in_columns.columns = columns
        by_row = RankingBuilder("run", order)
        for location, record in _parse_lines(Path("run"), decode(content)):
            by_row.add_row(location, record)
        assert build_or_describe_error(in_columns) == build_or_describe_error(by_row)
    return columns is not None


def build_or_describe_error(builder: RankingBuilder) -> object:
    """Build a run. Return hits, duplicates and order, or the error message."""
    try:
        run = builder.build("run")
    except DataError as error:
        return str(error)
    hits = {query: [*row] for query, row in run.by_subset[ANY_SUBSET].items()}
    return [*hits.items()], run.duplicates, run.ranked_by
