"""JSON Lines: every documented field, errors that name line and field, and one rule for encodings."""

import json
import re

import polars as pl
import pytest

from posir_tasks.errors import DataError
from posir_tasks.gate import decode
from posir_tasks.sources.formats.files import is_binary, read_json_lines, read_lines
from tests.support.datasets import imported, read_back

TEXT = "Zoë 👩‍🚀 flew in 1999. She came back in 2001."


def write_lines(file, *records, encoding="utf-8"):
    lines = [record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records]
    file.write_bytes("\n".join(lines).encode(encoding))
    return file


def import_lines(tmp_path, *records, **options):
    file = write_lines(tmp_path / "a.jsonl", *records, **options)
    return imported(read_json_lines(file), tmp_path / "out")


def record(**fields):
    return {"context": TEXT, "question": "When?"} | fields


ANSWERED = {
    "start and end": record(start=TEXT.index("1999"), end=TEXT.index("1999") + 4),
    "answer and start": record(start=TEXT.index("1999"), answer="1999"),
    "all three": record(start=TEXT.index("1999"), end=TEXT.index("1999") + 4, answer="1999"),
    "answer alone": record(answer="1999"),
    "nulls for what is not given": record(answer="1999", start=None, end=None, id=None, document=None, title=None),
    "ParsiNLU": {"passage": TEXT, "question": "When?", "answers": [[TEXT.index("1999"), "1999"]]},
    "as datasets writes SQuAD": record(answers={"text": ["1999", "x"], "answer_start": [TEXT.index("1999"), 0]}),
}


@pytest.mark.parametrize("case", ANSWERED)
def test_an_answer_is_stated_in_any_of_the_documented_ways(tmp_path, case):
    imported = import_lines(tmp_path, ANSWERED[case])
    assert (imported.skipped, imported.titles) == ([], {})
    assert read_back(tmp_path / "out") == [("When?", TEXT, "1999")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_ids_titles_blank_lines_and_documents_without_a_question(tmp_path, encoding):
    imported = import_lines(
        tmp_path,
        record(id="q1", document="d1", answer="1999", title="Zoë"),
        "",
        record(id=2, document="d1", answer="2001"),
        {"context": "Nobody asks.", "title": " "},
        encoding=encoding,
    )
    folder = tmp_path / "out/eng-Latn/sports"
    assert list(imported.documents.values()) == [TEXT, "Nobody asks."]
    assert next(iter(imported.documents)) == "d1"
    assert imported.titles == {"d1": "Zoë"}
    assert pl.read_parquet(folder / "qrels/test.parquet").rows() == [("q1", "d1", 1), ("2", "d1", 1)]


UNUSABLE = {
    "no answer": (record(), "states neither the text of its answer nor both start and end"),
    "several places": (record(answer="in"), "its answer 'in' occurs 2 times in its document; state its start"),
    "nowhere": (record(answer="1998"), "does not occur in its document"),
    "start alone": (record(start=3), "states the start of its answer but neither its end nor its text"),
    "beyond the end": (record(start=3, end=99), f"its span 3 to 99 is not within its document of {len(TEXT)} characters"),
    "no question": ({"context": TEXT, "answer": "1999"}, "has an answer but no 'question'"),
    "start is a text": (record(start="14", end=18), "'start' must be a valid integer, not str"),
    "start is a number": (record(start=14.0, end=18.0), "'start' must be a valid integer, not float"),
    "answer is a list": (record(answer=["1999"]), "'answer' must be a valid string, not list"),
    "answers of SQuAD's JSON": (record(answers=[{"text": "1999"}]), "'answers.answer_start' is missing"),
    "unanswerable": (record(answers={"text": [], "answer_start": []}), "has no answer"),
    "unanswerable, no answers": (record(answers=None, is_impossible=True), "has no answer"),
    "half a character": ('{"context": "a b", "question": "?", "answer": "\\ud83d"}', "'answer' is not valid: 'utf-8' codec"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_question_is_skipped_and_named_by_its_line(tmp_path, case):
    bad, reason = UNUSABLE[case]
    imported = import_lines(tmp_path, record(answer="2001"), bad)
    (skipped,) = imported.skipped
    assert (skipped.file, skipped.name) == (str(tmp_path / "a.jsonl"), "line 2")
    assert reason in skipped.detail
    assert [evidence for *_, evidence in read_back(tmp_path / "out")] == ["2001"]


REFUSED = {
    "not JSON": ("{'context': 1}", "line 2: is not readable JSON in UTF-8 (JSONDecodeError: Expecting property name"),
    "a list": ("[]", "line 2: must be a valid dictionary, not list"),
    "several lines": ('{\n"context": "a"}', "line 2: is not readable JSON in UTF-8 (JSONDecodeError: Expecting property name"),
    "no context": ({"question": "Who?", "answer": "Zoë"}, "line 2: 'context' is missing"),
    "context is a list": ({"context": ["a"]}, "line 2: 'context' must be a valid string, not list"),
    "question is a number": (record(question=1), "line 2: 'question' must be a valid string, not int"),
    "id is a list": (record(id=["1"]), "line 2: 'id' must be a valid string, not list"),
    "blank context": ({"context": " "}, "line 2: the text is empty"),
    "half a character": ('{"context": "\\udc00"}', "line 2: 'context' is not valid: 'utf-8' codec"),
    "endless nesting": ("[" * 100_000, "line 2: is nested more than 64 deep"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_invalid_line_is_named_and_nothing_written(tmp_path, case):
    bad, message = REFUSED[case]
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'a.jsonl'}: {message}")):
        import_lines(tmp_path, record(answer="2001"), bad)
    assert not (tmp_path / "out").exists()


def test_another_encoding_and_a_missing_file_are_named(tmp_path):
    line = json.dumps(record(answer="1999", context="Zoë, 1999"), ensure_ascii=False)
    (tmp_path / "a.jsonl").write_bytes(line.encode("latin-1"))
    with pytest.raises(DataError, match=r"Skipped: 1 not UTF-8 \(.*a\.jsonl: line 1: byte 0xeb at 15\)"):
        imported(read_json_lines(tmp_path / "a.jsonl"), tmp_path / "out")
    with pytest.raises(DataError, match=r"b\.jsonl: cannot be read \(No such file"):
        imported(read_json_lines(tmp_path / "b.jsonl"), tmp_path / "out")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_ids_that_are_given_never_collide_with_stated_ones(tmp_path, order):
    texts = ("A text without an id.", "Another text without an id.", "A text with an id.")
    stated = ({}, {}, {"document": "sports_1"})
    lines = [{"context": texts[item], "question": "Which?", "answer": texts[item].split()[0]} | stated[item] for item in order]
    import_lines(tmp_path, *lines)
    documents = pl.read_parquet(tmp_path / "out/eng-Latn/sports/corpus.parquet")
    assert dict(documents.select("text", "_id").iter_rows())[texts[2]] == "sports_1"
    assert documents["_id"].n_unique() == len(documents) == 3


def test_of_two_texts_with_one_stated_id_the_second_line_is_named(tmp_path):
    lines = [record(answer="1999"), record(answer="1999", context=f"{TEXT} And 1998.", document="d"), record(document="d")]
    with pytest.raises(DataError, match="line 3: another document has the id 'd'"):
        import_lines(tmp_path, *lines)


@pytest.mark.parametrize("field", ["id", "document"])
def test_an_id_with_a_null_character_is_refused(tmp_path, field):
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"context": "Alone.", "question": "How?", "answer": "Alone", field: "a\0b"}))
    with pytest.raises(DataError, match=rf"a\.jsonl: line 1: '{field}.*' is not valid: has a null character"):
        imported(read_json_lines(file), tmp_path / "out")


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
