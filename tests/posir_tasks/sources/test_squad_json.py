"""Import of SQuAD-format JSON: what is read back is what was said, and nothing is left behind by a failure."""

import json
import os
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.errors import DataError, PosirError
from posir_tasks.sources.posir import read_domain
from posir_tasks.sources.repository import LocalRepository
from posir_tasks.sources.squad_json import Question, first_span, import_squad
from posir_tasks.tokens import estimated_tokens

CONTEXT = "Zoë 👩‍🚀 flew in 1999. She came back in 2001."


def question(name, text, answer=None, start=None):
    if answer is None:
        return {"id": name, "question": text, "answers": [], "is_impossible": True}
    return {"id": name, "question": text, "answers": [{"text": answer, "answer_start": start}]}


def write_json(file, paragraphs):
    """Write (context, questions) pairs as one article."""
    contexts = [{"context": context, "qas": asked} for context, asked in paragraphs]
    file.write_text(json.dumps({"version": "v2.0", "data": [{"title": "T", "paragraphs": contexts}]}), encoding="utf-8")
    return file


def imported(files, output, language="eng-Latn", domain="sports"):
    return import_squad(files, language=language, domain=domain, output=output, count_tokens=estimated_tokens)


def read_back(output, language="eng-Latn", domain="sports"):
    """Question, document and evidence of each imported query."""
    data = read_domain(LocalRepository(output), language, language, domain)
    text = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    evidence = data.evidence
    return [
        (asked, text[name], text[name][start:end])
        for asked, name, start, end in zip(
            data.queries["text"], evidence.document_ids, evidence.starts, evidence.ends, strict=True
        )
    ]


@pytest.fixture
def valid(tmp_path):
    return write_json(tmp_path / "valid.json", [(CONTEXT, [question("1", "When did she fly?", "1999", CONTEXT.index("1999"))])])


def test_what_is_imported_is_read_back_with_its_spans(tmp_path):
    first = question("1", "When did she fly?", "1999", CONTEXT.index("1999"))
    second = question("2", "When was she back?", "2001", CONTEXT.index("2001"))
    third = question("3", "What flies?", "Time", 0)
    file = write_json(tmp_path / "a.json", [(CONTEXT, [first, second]), ("Time flies.", [third]), ("Nobody asks.", [])])
    found = imported([file], tmp_path / "out")
    assert read_back(tmp_path / "out") == [
        ("When did she fly?", CONTEXT, "1999"),
        ("When was she back?", CONTEXT, "2001"),
        ("What flies?", "Time flies.", "Time"),
    ]
    assert (list(found.documents), found.left_out) == ([CONTEXT, "Time flies.", "Nobody asks."], [])
    queries = pl.read_parquet(tmp_path / "out/eng-Latn/sports/queries.parquet")
    assert queries["pos_token_length"].to_list() == [estimated_tokens(CONTEXT)] * 2 + [3]
    assert queries["pos_char_length"].to_list() == [len(CONTEXT)] * 2 + [11]


def test_a_context_in_several_files_is_one_document_and_a_repeated_question_one_query(tmp_path, valid):
    more = question("9", "Who flew?", "Zoë", 0)
    again = write_json(
        tmp_path / "b.json", [(CONTEXT, [question("1", "When did she fly?", "1999", CONTEXT.index("1999")), more])]
    )
    imported([valid, again], tmp_path / "out")
    assert [asked for asked, *_ in read_back(tmp_path / "out")] == ["When did she fly?", "Who flew?"]
    assert pl.read_parquet(tmp_path / "out/eng-Latn/sports/corpus.parquet").height == 1


def test_the_first_of_several_answers_gives_the_span(tmp_path):
    asked = question("1", "What?", "1999", CONTEXT.index("1999"))
    asked["answers"].append({"text": "2001", "answer_start": CONTEXT.index("2001")})
    imported([write_json(tmp_path / "a.json", [(CONTEXT, [asked])])], tmp_path / "out")
    assert [evidence for *_, evidence in read_back(tmp_path / "out")] == ["1999"]


BAD_QUESTIONS = {
    "no answer": (question("bad", "Why?"), "has no answer"),
    "answer elsewhere": (question("bad", "When?", "1999", 0), "'1999' does not stand at character 0"),
    "answer in bytes": (question("bad", "When?", "1999", len(CONTEXT[: CONTEXT.index("1999")].encode())), "does not stand at"),
    "answer beyond the end": (question("bad", "When?", "1999", 10_000), "does not stand at character 10000"),
    "answer from the end": (question("bad", "When?", "2001", -5), "does not stand at character -5"),
    "empty answer": (question("bad", "When?", "", 3), "must be a text"),
    "start is text": (question("bad", "When?", "1999", "14"), "'answer_start' an integer"),
    "no start": ({"id": "bad", "question": "When?", "answers": [{"text": "1999"}]}, "lacks 'text' or 'answer_start'"),
    "blank question": (question("bad", " ", "Zoë", 0), "its text is empty"),
}


@pytest.mark.parametrize("case", BAD_QUESTIONS)
def test_a_question_that_cannot_be_used_is_left_out_and_named(tmp_path, case):
    bad, why = BAD_QUESTIONS[case]
    file = write_json(tmp_path / "a.json", [(CONTEXT, [bad, question("good", "Who?", "Zoë", 0)]), ("Alone.", [bad])])
    found = imported([file], tmp_path / "out")
    assert read_back(tmp_path / "out") == [("Who?", CONTEXT, "Zoë")]
    assert [(one.file, one.question_id) for one in found.left_out] == [(str(file), "bad")] * 2
    assert why in found.left_out[0].why
    assert list(found.documents) == [CONTEXT, "Alone."]


@given(st.text(max_size=30), st.text(min_size=1, max_size=10), st.integers(-50, 50))
def test_a_span_is_given_exactly_where_its_text_stands(before, answer, shift):
    context, start = before + answer + " after", len(before) + shift
    asked = Question("file", "1", "Which?", [{"text": answer, "answer_start": start}])
    if start >= 0 and context.startswith(answer, start):
        assert first_span(asked, context) == (start, start + len(answer))
    else:
        with pytest.raises(ValueError, match="does not stand at character"):
            first_span(asked, context)


def test_an_existing_domain_is_refused_and_untouched(tmp_path, valid):
    folder = tmp_path / "out" / "eng-Latn" / "sports"
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("keep")
    with pytest.raises(PosirError, match=re.escape(f"{folder}: exists already")):
        imported([valid], tmp_path / "out")
    assert [path.name for path in folder.rglob("*")] == ["mine.txt"]
    assert (folder / "mine.txt").read_text() == "keep"


@pytest.mark.parametrize("language", ["english", "eng", "xxx-Latn", "../eng-Latn", ""])
def test_an_unknown_language_is_refused_with_the_known_ones(tmp_path, valid, language):
    with pytest.raises(PosirError, match=re.escape(f"--language {language}: unknown. Known are eng-Latn, ")):
        imported([valid], tmp_path / "out", language=language)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("domain", ["News", "..", "a/b", "", "_x", "späße", "a b", ".hidden", "sports\n"])
def test_a_domain_that_is_no_plain_folder_name_is_refused(tmp_path, valid, domain):
    with pytest.raises(PosirError, match=r"not allowed\. A domain is a folder's name of a-z, 0-9 and _"):
        imported([valid], tmp_path / "out", domain=domain)
    assert not (tmp_path / "out").exists()


def article(**paragraph):
    return json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": []} | paragraph]}]}).encode()


NOT_SQUAD = {
    "empty": b"",
    "not JSON": b"{'data': 1}",
    "not UTF-8": b'{"data": "\xff\xfe"}',
    "a list": b"[]",
    "no data": b'{"version": "2"}',
    "data is null": b'{"data": null}',
    "no paragraphs": b'{"data": [{"title": "T"}]}',
    "no context": b'{"data": [{"paragraphs": [{"qas": []}]}]}',
    "context is null": article(context=None),
    "context is a list": article(context=["a"]),
    "question without id": article(qas=[{"question": "Who?"}]),
    "question is null": article(qas=[{"id": "1", "question": None, "answers": [{"text": "Zoë", "answer_start": 0}]}]),
    "endless nesting": b"[" * 100_000,
}


@pytest.mark.parametrize("case", NOT_SQUAD)
def test_what_is_not_squad_format_is_refused_and_nothing_written(tmp_path, valid, case):
    file = tmp_path / "bad.json"
    file.write_bytes(NOT_SQUAD[case])
    with pytest.raises(DataError, match=re.escape(f"{file}: not SQuAD-format JSON")):
        imported([valid, file], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_file_is_named(tmp_path, valid):
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'none.json'}: cannot be read (No such file")):
        imported([valid, tmp_path / "none.json"], tmp_path / "out")


def test_a_text_that_is_no_unicode_is_refused_as_data(tmp_path, valid):
    file = tmp_path / "lone.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": "\ud800 x", "qas": [question("1", "?", "x", 2)]}]}]}))
    with pytest.raises(DataError, match=re.escape(str(file))):
        imported([valid, file], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_without_any_usable_question_write_nothing(tmp_path):
    file = write_json(tmp_path / "a.json", [(CONTEXT, [question("1", "Why?")])])
    with pytest.raises(DataError, match="no question with a usable answer; nothing was written"):
        imported([file], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_context_is_refused(tmp_path, valid):
    file = write_json(tmp_path / "a.json", [("", [])])
    with pytest.raises(DataError, match=r"corpus\.parquet: field 'text': is empty"):
        imported([valid, file], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_disk_that_fails_half_way_leaves_nothing_behind(tmp_path, valid, monkeypatch):
    write = pl.DataFrame.write_parquet

    def fails_at_the_second(frame, file):
        if file.name == "queries.parquet":
            raise OSError(28, os.strerror(28))
        write(frame, file)

    monkeypatch.setattr(pl.DataFrame, "write_parquet", fails_at_the_second)
    with pytest.raises(OSError, match="No space left"):
        imported([valid], tmp_path / "out")
    assert [path for path in (tmp_path / "out").rglob("*") if path.name != "eng-Latn"] == []
    monkeypatch.undo()
    imported([valid], tmp_path / "out")
    assert len(read_back(tmp_path / "out")) == 1


@pytest.mark.parametrize(
    ("files", "language", "documents", "questions", "left_out"),
    [
        ("xquad.en.json", "eng-Latn", 240, 1_190, 0),
        ("xquad.zh.json", "cmn-Hans", 240, 1_190, 0),
        ("xquad.ar.json", "ara-Arab", 240, 1_190, 0),
        ("covidqa.json", "eng-Latn", 98, 1_380 - 234, 234),
        ("jaquad/*/*.json", "jpn-Jpan", 11_144, 35_687, 0),
    ],
)
def test_real_data_is_imported_in_full(shared_data, tmp_path, files, language, documents, questions, left_out):
    paths = sorted((shared_data / "squad-format").glob(files))
    found = imported(paths, tmp_path, language)
    assert (len(found.documents), len(found.queries), len(found.left_out)) == (documents, questions, left_out)
    data = read_domain(LocalRepository(tmp_path), language, language, "sports")
    assert (len(data.corpus), len(data.queries)) == (documents, questions)
