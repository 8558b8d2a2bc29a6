"""Untrusted input is parsed unambiguously, or rejected with an `InputError` that names it."""

import csv
import gzip
import io
import json
import math

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from posir_tasks.base.untrusted import (
    MAX_CELL,
    MAX_DEPTH,
    InputError,
    parse_json,
    parse_table,
    parse_yaml,
    read_bytes,
    read_csv_rows,
    read_json,
    read_yaml,
)

NUMBERS = st.integers(-(2**64), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_json_round_trip(value):
    assert parse_json(json.dumps(value), "x") == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode(), "x") == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode("utf-16"), "x") == value


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a": 1, "b": {"nDCG": 1, "nDCG": 2}}', "'nDCG' occurs twice"),
        (b'{"a": {"b": [1, NaN]}}', "'a.b.1'"),
        (b'{"a": -Infinity}', "'a': is -inf"),
        (b'{"a": 1e999}', "'a': is inf"),
        (b"1e999", "is inf"),
        (b'{"a": [%d]}' % (2**64 + 1), "64 bits"),
        (b'{"a": %s}' % (b"9" * 400), "64 bits"),
        (b'{"a": %s}' % (b"9" * 5_000), "limit"),
        (b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2), "deep"),
        (b'{"a":' * 100_000, "deep"),
        (b"[" * 100_000 + b"]" * 100_000, "deep"),
        (b'{"a": "\xff"}', "0xff"),
        (b"\xff\xfe{", "utf-16"),
        (b"", "Expecting value"),
        (b'{"a": 1} {"a": 2}', "Extra data"),
        (b'{"nauc_a": Infinity}', "nauc_a"),
    ],
)
def test_ambiguous_json_is_rejected(data, why):
    with pytest.raises(InputError, match=why) as caught:
        parse_json(data, "run.json")
    assert str(caught.value).startswith("run.json: ")


def test_nan_is_allowed_for_keys_with_the_prefix():
    assert math.isnan(
        parse_json('{"scores": [{"nauc_mrr": NaN}]}', "x", nan_prefix="nauc_")["scores"][0][
            "nauc_mrr"
        ]
    )
    for data in ('{"psi": NaN}', '{"nauc_mrr": [NaN]}', '{"nauc_mrr": Infinity}', "NaN"):
        with pytest.raises(InputError):
            parse_json(data, "x", nan_prefix="nauc_")


def test_decompression_stops_at_the_limit(tmp_path):
    bomb = tmp_path / "a.json.gz"
    bomb.write_bytes(gzip.compress(b"[" + b" " * 10_000_000 + b"]"))
    with pytest.raises(InputError, match="larger than 1,000 bytes"):
        read_json(bomb, max_bytes=1000)
    assert read_json(bomb) == []
    bomb.write_bytes(bomb.read_bytes()[:-20])
    for file in (bomb, tmp_path / "missing.json", tmp_path):
        with pytest.raises(InputError, match=file.name):
            read_bytes(file)


CELLS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), min_size=1, max_size=8
).filter(str.strip)


@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=6)
    )
)
@example([["a\r\nb", 'c"'], [",", "'"]])
def test_table_round_trip(rows):
    written = io.StringIO(newline="")
    headings = [f"c{place}" for place in range(len(rows[0]) if rows else 1)]
    csv.writer(written).writerows([headings, *rows])
    read_headings, read_rows = parse_table(written.getvalue(), "x")
    assert read_headings == headings
    assert [cells for _, cells in read_rows] == rows


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"a,b\n1,2\n3\n", "line 3: has 1 cell"),
        (b"a,b\n1,2,3\n", "line 2: has 3 cells"),
        (b"a,b\n1,2\x00\n", "line 2: contains a zero byte"),
        (b'a,b\n1,"2\n3,4\n', "line"),
        (b"a,a\n1,2\n", "'a' occurs twice"),
        (b"a,b\n\xff,2\n", "0xff"),
        (b"a\n" + b"x" * (MAX_CELL + 1), "line 2"),
    ],
)
def test_an_ambiguous_table_is_rejected(data, why):
    with pytest.raises(InputError, match=why):
        parse_table(data, "sheet.csv")


def test_a_table_may_contain_long_cells_and_blank_lines(tmp_path):
    before = csv.field_size_limit()
    file = tmp_path / "sheet.csv"
    file.write_text(
        "\ufeffid; text ;;\n1;" + "x" * 200_000 + ";;\n\n;;;\n2;y;;;;\n", encoding="utf-8"
    )
    assert read_csv_rows(file, ("text", "id"), "x") == [
        {"text": "x" * 200_000, "id": "1"},
        {"text": "y", "id": "2"},
    ]
    assert csv.field_size_limit() == before
    with pytest.raises(InputError, match="no column score"):
        read_csv_rows(file, ("id", "score"), "a list")


@given(VALUES)
def test_yaml_round_trip(value):
    assert parse_yaml(yaml.safe_dump(value), "x") == value


def bomb(levels: int) -> str:
    """Build YAML of a few lines that expands to 9 ** levels values."""
    lines = ["a0: &a0 [" + ",".join("x" * 9) + "]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("domain: law\nx: 1\ndomain: health\n", "'domain' occurs twice"),
        ("ask:\n  a: 1\n  a: 2\n", "line 2: .*'a' occurs twice"),
        (bomb(9), "aliases"),
        ("a: &a [*a]", "nested"),
        ("prices:\n  input: .inf\n", "'prices.input': is inf"),
        ("a: .nan", "is nan"),
        ("a: " + "9" * 400, "64 bits"),
        ("[" * 100_000, "nest"),
        ("[" * 100 + "]" * 100, "deep"),
        ("a: !!python/object/apply:os.system [x]", "python/object"),
        ("a: 2020-99-99", "month"),
        ("a: b: c", "not readable YAML"),
        ("? [a]\n: 1", "not readable YAML"),
        ("a\0b", "not readable YAML"),
        ("a: 1\n---\nb: 2\n", "not readable YAML"),
        (b"a: \xff", "0xff"),
        ("a" * (2**20 + 1), "larger than 1 MiB"),
    ],
)
def test_ambiguous_yaml_is_rejected(text, why):
    with pytest.raises(InputError, match=why):
        parse_yaml(text, "settings.yaml")


def test_yaml_may_use_anchors(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: *a\n")
    assert read_yaml(file) == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}, "c": {"x": 1, "y": 2}}
    assert parse_yaml("", "x") is None
