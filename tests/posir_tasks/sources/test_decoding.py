"""One rule for encodings: UTF-8, UTF-16 with its mark, and a name for every byte that is neither."""

import pytest

from posir_tasks.gate import decode
from posir_tasks.sources.formats.files import is_binary, read_lines


@pytest.mark.parametrize(("encoding", "mark"), [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16", b"")])
def test_lines_are_read_in_every_encoding(tmp_path, encoding, mark):
    file = tmp_path / "lines.jsonl"
    file.write_bytes(mark + "ä\n\nb\n".encode(encoding))
    assert [line for _, line in read_lines(file, "")] == (["ä\n", "b\n"] if encoding == "utf-8" else ["ä", "b"])
    assert decode(file.read_bytes()) == "ä\n\nb\n"
    assert not is_binary(file.read_bytes())


def test_a_bad_line_is_named_by_its_byte_and_the_others_are_read(tmp_path):
    file = tmp_path / "lines.jsonl"
    file.write_bytes(b"good\n" + "böse\n".encode("latin-1") + b"gut\n")
    first, (number, bad), third = read_lines(file, "line ")
    assert (first, third) == ((1, "good\n"), (3, "gut\n"))
    assert (number, bad.name, bad.detail) == (2, "line 2", "byte 0xf6 at 6")
    assert file.read_bytes()[6] == 0xF6


def test_a_zero_byte_is_binary_unless_the_file_is_utf_16():
    assert is_binary(b"PK\x00")
    assert not is_binary("ab".encode("utf-16"))
