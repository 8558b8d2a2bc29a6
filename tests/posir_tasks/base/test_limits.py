"""Small inputs that expand too much are rejected quickly, and large inputs are read."""

import base64
import gzip
import os
import re
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from posir_score.run_files import NUMBER, read_run_file
from posir_tasks.base.digests import digest_file
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.base.files import find_files, iterate_lines, open_decompressed, read_decompressed
from posir_tasks.base.limits import MAX_BYTES, MAX_EXPANSION, LimitError, limit_seconds
from posir_tasks.base.parquet import iterate_batches
from posir_tasks.base.table_files import read_delimited, read_json_rows
from posir_tasks.base.untrusted import (
    InputError,
    find_repeated,
    parse_json,
    parse_table,
    parse_yaml,
    read_bytes,
)
from posir_tasks.data.checks import iterate_rows, read_column_types
from posir_tasks.data.formats.catalog import read_file
from posir_tasks.data.formats.documents import read_html_file
from posir_tasks.data.formats.passages import ReadOptions, SkippedItem
from posir_tasks.data.formats.qrels import is_qrels
from posir_tasks.data.formats.records import read_lines
from posir_tasks.datasets.opening import open_data
from posir_tasks.text.locating import TextLocator
from posir_tasks.values.columns import unpack_column

#: Maximum seconds to reject an input on a busy machine. Without limits it took minutes.
SOON = 20.0


@pytest.fixture
def fail_if_slow() -> Iterator[None]:
    """Fail a test after too many seconds."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SOON)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@given(st.lists(st.integers(0, 9)))
def test_the_first_repeated_value_is_found(values: list[int]):
    expected = [value for place, value in enumerate(values) if value in values[:place]]
    assert find_repeated(values) == (expected[0] if expected else None)


@pytest.mark.usefixtures("fail_if_slow")
@pytest.mark.parametrize(
    "read",
    [
        lambda: parse_json(
            "{" + "".join(f'"q{n}":1,' for n in range(200_000)) + '"q199999":1}', "x"
        ),
        lambda: parse_json(
            "[" + "".join(f'{{"q{n}":1,"q{n}":2}},' for n in range(100_000)) + "{}]", "x"
        ),
        lambda: parse_yaml("".join(f"a{n}: 1\n" for n in range(40_000)) + "a39999: 1\n", "x"),
        lambda: parse_yaml("? {a: 1}\n: 1\n" * 20_000, "x"),
        lambda: parse_yaml("a: " + "1:" * 400_000 + "1\n", "x"),
        lambda: parse_yaml("a: !!int " + "59:" * 300_000 + "1\n", "x"),
        lambda: parse_table(",".join(f"c{n}" for n in range(500_000)) + "\n", "x"),
        lambda: parse_table(",".join(f"c{n}" for n in range(9_999)) + ",c9998\n", "x"),
    ],
)
def test_a_repeated_name_is_found_quickly(read: Callable[[], object]):
    with pytest.raises(InputError):
        read()


@pytest.mark.usefixtures("fail_if_slow")
def test_each_folder_is_visited_once(tmp_path: Path):
    folders = [tmp_path / f"d{number}" for number in range(12)]
    for folder in folders:
        folder.mkdir()
        (folder / "a.json").touch()
        for linked in folders:
            (folder / f"link-{linked.name}").symlink_to(linked)
    assert find_files(tmp_path, ".json") == sorted(folder / "a.json" for folder in folders)


def test_a_folder_behind_a_link_is_visited(tmp_path: Path):
    outside = tmp_path / "outside"
    (outside / "deeper").mkdir(parents=True)
    (outside / "deeper" / "a.json").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(outside)
    (tmp_path / "data" / "twice").symlink_to(outside)
    assert find_files(tmp_path / "data", ".json") == [
        tmp_path / "data" / "link" / "deeper" / "a.json"
    ]


def test_folders_may_be_nested_more_deeply_than_the_recursion_limit(tmp_path: Path):
    folders = [tmp_path / "deep"]
    for _ in range(1_010):
        folders.append(folders[-1] / "d")
    for folder in folders:
        folder.mkdir()
    file = folders[-1] / "a.json"
    file.touch()
    files = find_files(tmp_path / "deep", ".json")
    # pytest removes temporary folders recursively.
    file.unlink()
    for folder in reversed(folders):
        folder.rmdir()
    assert files == [file]


def test_files_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for number in range(5):
        (tmp_path / f"{number}.json").touch()
    monkeypatch.setenv("POSIR_MAX_FILES", "4")
    with pytest.raises(LimitError, match="POSIR_MAX_FILES"):
        find_files(tmp_path, ".json")
    monkeypatch.setenv("POSIR_MAX_FILES", "5")
    assert len(find_files(tmp_path, ".json")) == 5


@pytest.mark.parametrize("value", ["0", "-1", "many", "1e9", "1" * 30])
def test_an_invalid_limit_raises_a_posir_error(value: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POSIR_MAX_BYTES", value)
    with pytest.raises(PosirError, match="POSIR_MAX_BYTES"):
        MAX_BYTES.read()


def test_a_compressed_file_is_unpacked_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POSIR_MAX_BYTES", "4000")
    bomb, large = tmp_path / "bomb.jsonl.gz", tmp_path / "large.jsonl.gz"
    bomb.write_bytes(gzip.compress(b"{}\n" * 1_000_000))
    assert MAX_EXPANSION * bomb.stat().st_size < 3_000_000
    with pytest.raises(LimitError, match="POSIR_MAX_BYTES"), open_decompressed(bomb) as opened:
        list(iterate_lines(opened, bomb))
    with pytest.raises(LimitError):
        list(read_lines(bomb, ""))
    # Above the limit for lines, but with a normal ratio.
    lines = [b'{"text": "%s"}\n' % os.urandom(16).hex().encode() for _ in range(1_000)]
    large.write_bytes(gzip.compress(b"".join(lines)))
    assert len(list(read_lines(large, ""))) == 1_000
    for read in (read_decompressed, read_bytes):
        with pytest.raises(DataError, match="POSIR_MAX_BYTES"):
            read(large)
    monkeypatch.setenv("POSIR_MAX_BYTES", "100000")
    assert read_bytes(large) == read_decompressed(large) == b"".join(lines)


@pytest.mark.parametrize(
    "name", ["a.txt", "a.jsonl", "a.jsonl.gz", "a.csv", "a.tsv", "a.html", "a.md.gz", "a.json", "a"]
)
def test_a_document_that_is_too_large_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / name
    content = b'{"text": "' + b"The bell rang. " * 4_000 + b'"}\n'
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    monkeypatch.setenv("POSIR_MAX_BYTES", "50000")
    with pytest.raises(DataError, match=f"{name}.*POSIR_MAX_BYTES"):
        list(read_file(file, ReadOptions()))


@pytest.mark.usefixtures("fail_if_slow")
@pytest.mark.parametrize(
    "suffix", ["", ".txt", ".json", ".jsonl", ".gz", ".parquet", ".csv", ".pdf", ".yaml"]
)
@pytest.mark.parametrize("kind", ["pipe", "device", "link"])
def test_devices_and_pipes_are_rejected_at_once(kind: str, suffix: str, tmp_path: Path):
    file = tmp_path / f"a{suffix}"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / "fifo")
        file.symlink_to("fifo")
    for read in (
        read_decompressed,
        digest_file,
        open_decompressed,
        lambda path: next(iterate_batches(path)),
    ):
        with pytest.raises(OSError, match="save its content in a file"):
            read(file)
    for refuse in (read_bytes, is_qrels, read_run_file, lambda path: open_data(path).to_polars()):
        with pytest.raises(DataError, match=re.escape(str(file))):
            refuse(file)


def test_reading_a_pipe_has_a_time_limit(monkeypatch: pytest.MonkeyPatch):
    end, start = os.pipe()
    file = Path(f"/dev/fd/{end}")
    os.write(start, b"q1 Q0 d1 1 9.5 tag\n")
    writer = threading.Timer(0.2, os.close, (start,))
    writer.start()
    # Data sets are read several times, which a pipe does not allow.
    with pytest.raises(DataError, match="save its content in a file"):
        is_qrels(file)
    assert read_bytes(file) == b"q1 Q0 d1 1 9.5 tag\n"
    os.close(end)
    end, start = os.pipe()
    monkeypatch.setenv("POSIR_MAX_SECONDS", "1")
    with pytest.raises(InputError, match="POSIR_MAX_SECONDS"):
        read_bytes(Path(f"/dev/fd/{end}"))
    os.close(start)
    os.close(end)


def write_parquet(file: Path, columns: dict[str, pa.Array]) -> Path:
    pq.write_table(pa.table(columns), file, store_schema=False)
    return file


def repeat(value: object, times: int) -> pa.Array:
    return (
        pa.array([value])
        .dictionary_encode()
        .take(pa.array([0]).take(pa.nulls(times, pa.int32()).fill_null(0)))
    )


TEXT = "x" * 1_000_000


def build_rows() -> dict[str, pa.Array]:
    return {"query": repeat("a", 20_000_000)}


def build_texts() -> dict[str, pa.Array]:
    return {"id": pa.array(map(str, range(2_000))), "text": repeat(TEXT, 2_000)}


def build_lists() -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array([0, 2_000]), repeat(TEXT, 2_000))


def build_nested_lists() -> dict[str, pa.Array]:
    structs = pa.StructArray.from_arrays([build_lists()], ["a"])
    return {"deep": pa.ListArray.from_arrays(pa.array([0, 1]), structs)}


@pytest.mark.parametrize(
    ("build", "variable"),
    [
        (build_rows, "POSIR_MAX_ROWS"),
        (build_texts, "POSIR_MAX_BYTES"),
        (lambda: {"texts": build_lists()}, "POSIR_MAX_BYTES"),
        (build_nested_lists, "POSIR_MAX_BYTES"),
    ],
)
def test_a_small_parquet_file_that_expands_too_much_is_rejected(
    build: Callable[[], dict[str, pa.Array]],
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("POSIR_MAX_BYTES", str(200 * 2**20))
    file = write_parquet(tmp_path / "a.parquet", build())
    assert file.stat().st_size < 2**20
    with pytest.raises(LimitError, match=variable):
        list(iterate_batches(file))
    with pytest.raises(LimitError, match=variable):
        list(iterate_rows(file))


@pytest.mark.parametrize(
    "column", ["9" * 12, "z" + base64.b85encode(zlib.compress(bytes(2**25))).decode()]
)
def test_a_column_of_a_result_is_limited(column: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POSIR_MAX_ROWS", "1000000")
    with pytest.raises(ValueError, match="column"):
        unpack_column(column, 10**12)


def test_values_of_json_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POSIR_MAX_ROWS", "1000")
    for document in ("[" + "{}," * 2_000 + "{}]", b"[" + b"[]," * 2_000 + b"[]]"):
        with pytest.raises(InputError, match="POSIR_MAX_ROWS"):
            parse_json(document, "x")
    text = '["' + "The bell rang. " * 2_000 + '"]'
    assert parse_json(text, "x")[0].startswith("The bell")
    run = tmp_path / "run.trec.gz"
    run.write_bytes(gzip.compress(b"q Q0 d 1 1 t\n" * 100_000))
    with pytest.raises(DataError, match="POSIR_MAX_ROWS"):
        read_run_file(run)


def test_lists_of_parquet_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POSIR_MAX_ROWS", "1000")
    values = pa.array([7]).take(pa.nulls(10_000_000, pa.int32()).fill_null(0))
    file = write_parquet(
        tmp_path / "a.parquet",
        {"numbers": pa.ListArray.from_arrays(pa.array([0, 10_000_000]), values)},
    )
    with pytest.raises(LimitError, match="values"):
        list(iterate_batches(file))


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "text": st.text(max_size=5) | st.none(),
                "lists": st.lists(st.text(max_size=5), max_size=3),
                "rows": st.lists(
                    st.fixed_dictionaries({"name": st.sampled_from("ab"), "n": st.integers(0, 9)}),
                    max_size=3,
                ),
            }
        ),
        min_size=1,
        max_size=200,
    ),
    st.booleans(),
)
def test_parquet_round_trip(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict], dictionary: bool
):
    file = tmp_path_factory.mktemp("parquet") / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file, use_dictionary=dictionary, row_group_size=70)
    assert [row for batch in iterate_batches(file) for row in batch.to_pylist()] == rows
    assert list(iterate_rows(file)) == rows


@pytest.mark.usefixtures("fail_if_slow")
def test_tables_with_too_many_columns_are_rejected(tmp_path: Path):
    wide = tmp_path / "a.csv"
    wide.write_text(",".join(f"c{n}" for n in range(500_000)) + "\n")
    with pytest.raises(DataError, match="columns"):
        read_delimited(wide)
    for name, content in (
        ("a.jsonl", "".join(f'{{"k{n}": 1}}\n' for n in range(20_000))),
        ("a.json", "[" + ",".join(f'{{"k": {{"k{n}": 1}}}}' for n in range(20_000)) + "]"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(LimitError, match="POSIR_MAX_ROWS"):
            read_json_rows(tmp_path / name)
    parquet = write_parquet(tmp_path / "a.parquet", {f"c{n}": pa.array([1]) for n in range(5_000)})
    assert len(read_column_types(parquet)) == 5_000


@pytest.mark.usefixtures("fail_if_slow")
def test_time_is_not_quadratic_in_the_text_length(tmp_path: Path):
    assert not NUMBER.fullmatch("1" * 500_000 + "x")
    text = "".join(f"w{n} " for n in range(60_000))
    assert TextLocator(text).locate("".join(f"v{n} " for n in range(30_000))) is None
    page = tmp_path / "a.html"
    page.write_text('<div style="margin-top: 99999999em">' * 100 + "text")
    assert not any(isinstance(item, SkippedItem) for item in read_html_file(page, ReadOptions()))


def test_the_time_of_a_document_is_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POSIR_MAX_SECONDS", "1")
    handler, start = signal.getsignal(signal.SIGALRM), time.monotonic()
    with pytest.raises(LimitError, match="POSIR_MAX_SECONDS"), limit_seconds("a.pdf"):
        time.sleep(10 * SOON)
    assert time.monotonic() - start < SOON
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    with limit_seconds("a.pdf"):
        pass


def write_pdf(file: Path, kids: list[str], objects: list[str]) -> Path:
    """Write a PDF with a page tree, which references pages, and objects from number 3."""
    tree = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    bodies = ["<< /Type /Catalog /Pages 2 0 R >>", tree, *objects]
    content, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(bodies, start=1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = (
        f"trailer << /Size {len(bodies) + 1} /Root 1 0 R >>\nstartxref\n{len(content)}\n%%EOF\n"
    )
    file.write_bytes(
        content
        + f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n{table}".encode()
        + trailer.encode()
    )
    return file


@pytest.mark.usefixtures("fail_if_slow")
def test_pages_of_a_pdf_and_their_time_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>"
    many = write_pdf(
        tmp_path / "many.pdf", [f"{number} 0 R" for number in range(3, 23)], [page] * 20
    )
    monkeypatch.setenv("POSIR_MAX_ROWS", "10000")
    (skipped,) = read_file(many, ReadOptions())
    assert isinstance(skipped, SkippedItem)
    assert "POSIR_MAX_ROWS" in skipped.detail
    monkeypatch.undo()
    (empty,) = read_file(many, ReadOptions())
    assert isinstance(empty, SkippedItem)
    assert empty.reason == "empty"
    # Each node contains the next one ten times.
    levels = [
        f"<< /Type /Pages /Kids [{f'{number + 1} 0 R ' * 10}] /Count 10 >>"
        for number in range(3, 18)
    ]
    nested = write_pdf(tmp_path / "nested.pdf", ["3 0 R"], [*levels, page])
    monkeypatch.setenv("POSIR_MAX_SECONDS", "1")
    (refused,) = read_file(nested, ReadOptions())
    assert isinstance(refused, SkippedItem)


def test_limits_allow_normal_yaml():
    rows = {f"name{number}": {"value": number, "text": "a: b"} for number in range(500)}
    assert parse_yaml(yaml.safe_dump(rows), "x") == rows
