"""Import of SQuAD-format JSON: what is read back is what was said, and nothing is left behind by a failure."""

import json
import re
from collections import Counter

import polars as pl
import pytest

from posir_build.squad_json import squad_passages
from posir_tasks.errors import DataError
from posir_tasks.sources.posir import read_domain
from posir_tasks.sources.repository import LocalRepository
from posir_tasks.tokens import estimated_tokens
from tests.support.datasets import imported, read_back

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


def import_files(files, output, language="eng-Latn", **options):
    return imported(squad_passages(files), output, language=language, **options)


@pytest.fixture
def valid(tmp_path):
    return write_json(tmp_path / "valid.json", [(CONTEXT, [question("1", "When did she fly?", "1999", CONTEXT.index("1999"))])])


def test_what_is_imported_is_read_back_with_its_spans(tmp_path):
    first = question("1", "When did she fly?", "1999", CONTEXT.index("1999"))
    second = question("2", "When was she back?", "2001", CONTEXT.index("2001"))
    third = question("3", "What flies?", "Time", 0)
    file = write_json(tmp_path / "a.json", [(CONTEXT, [first, second]), ("Time flies.", [third]), ("Nobody asks.", [])])
    found = import_files([file], tmp_path / "out")
    assert read_back(tmp_path / "out") == [
        ("When did she fly?", CONTEXT, "1999"),
        ("When was she back?", CONTEXT, "2001"),
        ("What flies?", "Time flies.", "Time"),
    ]
    assert (list(found.documents.values()), found.left_out) == ([CONTEXT, "Time flies.", "Nobody asks."], [])
    queries = pl.read_parquet(tmp_path / "out/eng-Latn/sports/queries.parquet")
    assert queries["pos_token_length"].to_list() == [estimated_tokens(CONTEXT)] * 2 + [3]
    assert queries["pos_char_length"].to_list() == [len(CONTEXT)] * 2 + [11]


def test_a_context_in_several_files_is_one_document_and_a_repeated_question_one_query(tmp_path, valid):
    more = question("9", "Who flew?", "Zoë", 0)
    again = write_json(
        tmp_path / "b.json", [(CONTEXT, [question("1", "When did she fly?", "1999", CONTEXT.index("1999")), more])]
    )
    import_files([valid, again], tmp_path / "out")
    assert [asked for asked, *_ in read_back(tmp_path / "out")] == ["When did she fly?", "Who flew?"]
    assert pl.read_parquet(tmp_path / "out/eng-Latn/sports/corpus.parquet").height == 1


def test_the_first_of_several_answers_gives_the_span(tmp_path):
    asked = question("1", "What?", "1999", CONTEXT.index("1999"))
    asked["answers"].append({"text": "2001", "answer_start": CONTEXT.index("2001")})
    import_files([write_json(tmp_path / "a.json", [(CONTEXT, [asked])])], tmp_path / "out")
    assert [evidence for *_, evidence in read_back(tmp_path / "out")] == ["1999"]


BAD_QUESTIONS = {
    "no answer": (question("bad", "Why?"), "has no answer"),
    "answer elsewhere": (question("bad", "When?", "1999", 0), "'1999' does not stand at character 0"),
    "answer in bytes": (question("bad", "When?", "1999", len(CONTEXT[: CONTEXT.index("1999")].encode())), "does not stand at"),
    "answer beyond the end": (question("bad", "When?", "1999", 10_000), "does not stand at character 10000"),
    "answer from the end": (question("bad", "When?", "2001", -5), "does not stand at character -5"),
    "start is true": (question("bad", "When?", "oë", True), "must be an integer and is true or false"),
    "answer is half a character": (question("bad", "Who?", "\ud83d", 4), r"half a surrogate pair, '\ud83d', at character 0"),
    "answers of another layout": ({"id": "bad", "question": "?", "answers": {"text": ["Zoë"]}}, "'answers' must be a list"),
    "empty answer": (question("bad", "When?", "", 3), "its answer is blank"),
    "start is text": (question("bad", "When?", "1999", "14"), "its answer 'answer_start' must be an integer and is a text"),
    "no start": ({"id": "bad", "question": "When?", "answers": [{"text": "1999"}]}, "its answer lacks 'answer_start'"),
    "blank question": (question("bad", " ", "Zoë", 0), "its text is empty"),
}


@pytest.mark.parametrize("case", BAD_QUESTIONS)
def test_a_question_that_cannot_be_used_is_left_out_and_named(tmp_path, case):
    bad, why = BAD_QUESTIONS[case]
    file = write_json(tmp_path / "a.json", [(CONTEXT, [bad, question("good", "Who?", "Zoë", 0)]), ("Alone.", [bad])])
    found = import_files([file], tmp_path / "out")
    assert read_back(tmp_path / "out") == [("Who?", CONTEXT, "Zoë")]
    assert [(one.file, one.question) for one in found.left_out] == [(str(file), "bad")] * 2
    assert why in found.left_out[0].why
    assert list(found.documents.values()) == [CONTEXT, "Alone."]


def article(**paragraph):
    return json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": []} | paragraph]}]}).encode()


#: A file's bytes and what is said of them.
NOT_SQUAD = {
    "empty": (b"", "Expecting value"),
    "not JSON": (b"{'data': 1}", "Expecting property name"),
    "UTF-16": ('{"data": []}'.encode("utf-16"), "can't decode byte"),
    "a list": (b"[]", "must be an object and is a list"),
    "no data": (b'{"version": "2"}', "lacks 'data'"),
    "data is null": (b'{"data": null}', "lacks 'data'"),
    "article is a text": (b'{"data": ["T"]}', "article 0: must be an object and is a text"),
    "no paragraphs": (b'{"data": [{"title": "T"}]}', "article 0: lacks 'paragraphs'"),
    "no context": (b'{"data": [{"paragraphs": [{"qas": []}]}]}', "article 0, paragraph 0: lacks 'context'"),
    "no questions": (b'{"data": [{"paragraphs": [{"context": "A"}]}]}', "article 0, paragraph 0: lacks 'qas'"),
    "context is null": (article(context=None), "lacks 'context'"),
    "context is a list": (article(context=["a"]), "'context' must be a text and is a list"),
    "context is half a character": (
        article(context="a \ud800"),
        r"'context' has half a surrogate pair, '\ud800', at character 2",
    ),
    "question without id": (article(qas=[{"question": "Who?"}]), "the question 'Who?' lacks 'id'"),
    "id is a number": (article(qas=[{"id": 1.5, "question": "Who?"}]), "'id' must be a text and is a number"),
    "question is null": (article(qas=[question("1", None, "Zoë", 0)]), "lacks 'question'"),
    "question is half a character": (article(qas=[question("1", "\udc00", "Zoë", 0)]), "half a surrogate pair"),
    "endless nesting": (b"[" * 100_000, "recursion"),
}


@pytest.mark.parametrize("case", NOT_SQUAD)
def test_what_is_not_squad_format_is_refused_with_its_place_and_nothing_written(tmp_path, valid, case):
    content, said = NOT_SQUAD[case]
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        import_files([valid, file], tmp_path / "out")
    assert str(caught.value).startswith(f"{file}: ")
    assert said in str(caught.value)
    assert "Wanted: SQuAD-format JSON, data > paragraphs" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_missing_file_is_named(tmp_path, valid):
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'none.json'}: cannot be read (No such file")):
        import_files([valid, tmp_path / "none.json"], tmp_path / "out")


def test_a_surrogate_pair_in_an_escape_is_one_code_point(tmp_path):
    file = tmp_path / "a.json"
    file.write_text(
        r'{"data": [{"paragraphs": [{"context": "\ud83d\ude00 smiles", "qas": [{"id": 1, "question": "Who smiles?", '
        r'"answers": [{"text": "smiles", "answer_start": 2}]}]}]}]}'
    )
    import_files([file], tmp_path / "out")
    assert read_back(tmp_path / "out") == [("Who smiles?", "\U0001f600 smiles", "smiles")]


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
    found = import_files(paths, tmp_path, language)
    assert (len(found.documents), len(found.queries), len(found.left_out)) == (documents, questions, left_out)
    data = read_domain(LocalRepository(tmp_path), language, language, "sports")
    assert (len(data.corpus), len(data.queries)) == (documents, questions)


def test_repair_recovers_what_is_off_by_a_few_characters(shared_data, tmp_path):
    """The 234 answers of COVID-QA that do not stand where it says are found by another way: the nearest same text."""
    file = shared_data / "squad-format" / "covidqa.json"
    found = import_files([file], tmp_path, repair=True)
    assert (len(found.documents), len(found.queries), len(found.left_out)) == (98, 1_380, 0)
    off = {}
    for article in json.loads(file.read_text())["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                answer, context = qa["answers"][0], paragraph["context"]
                places = [match.start() for match in re.finditer(f"(?={re.escape(answer['text'])})", context)]
                if answer["answer_start"] not in places:
                    nearest = min(places, key=lambda place: abs(place - answer["answer_start"]))
                    off[str(qa["id"])] = nearest - answer["answer_start"]
    assert Counter(off.values()) == {-1: 196, 3: 28, 2: 10}
    assert {one.question: one.span.start - one.claim.start for one in found.moved} == off
