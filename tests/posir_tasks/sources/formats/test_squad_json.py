"""Import of SQuAD-format JSON: what is read back is what the file states, and a failure leaves nothing behind."""

import json
import re
from collections import Counter
from itertools import chain

import numpy as np
import polars as pl
import pytest

from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.errors import DataError
from posir_tasks.read_part import estimate_tokens
from posir_tasks.schemes import RelativePositions
from posir_tasks.sources.formats.files import read_squad_json
from posir_tasks.sources.formats.passages import UNANSWERABLE
from posir_tasks.sources.posir import read_domain
from posir_tasks.sources.repository import LocalRepository
from tests.support.datasets import imported, read_back

CONTEXT = "Zoë 👩‍🚀 flew in 1999. She came back in 2001."
START = CONTEXT.index("1999")


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
    return imported(chain.from_iterable(map(read_squad_json, files)), output, language=language, **options)


@pytest.fixture
def valid(tmp_path):
    return write_json(tmp_path / "valid.json", [(CONTEXT, [question("1", "When did she fly?", "1999", CONTEXT.index("1999"))])])


def test_what_is_imported_is_read_back_with_its_spans(tmp_path):
    first = question("1", "When did she fly?", "1999", START)
    second = question("2", "When was she back?", "2001", CONTEXT.index("2001"))
    third = question("3", "What flies?", "Time", 0)
    file = write_json(tmp_path / "a.json", [(CONTEXT, [first, second]), ("Time flies.", [third]), ("Nobody asks.", [])])
    imported = import_files([file], tmp_path / "out")
    assert read_back(tmp_path / "out") == [
        ("When did she fly?", CONTEXT, "1999"),
        ("When was she back?", CONTEXT, "2001"),
        ("What flies?", "Time flies.", "Time"),
    ]
    assert (list(imported.documents.values()), imported.skipped) == ([CONTEXT, "Time flies.", "Nobody asks."], [])
    queries = pl.read_parquet(tmp_path / "out/eng-Latn/sports/queries.parquet")
    assert queries["pos_token_length"].to_list() == [estimate_tokens(CONTEXT)] * 2 + [3]
    assert queries["pos_char_length"].to_list() == [len(CONTEXT)] * 2 + [11]


def test_a_context_in_several_files_is_one_document_and_a_repeated_question_one_query(tmp_path, valid):
    more = question("9", "Who flew?", "Zoë", 0)
    again = write_json(tmp_path / "b.json", [(CONTEXT, [question("1", "When did she fly?", "1999", START), more])])
    import_files([valid, again], tmp_path / "out")
    assert [asked for asked, *_ in read_back(tmp_path / "out")] == ["When did she fly?", "Who flew?"]
    assert pl.read_parquet(tmp_path / "out/eng-Latn/sports/corpus.parquet").height == 1


BAD_QUESTIONS = {
    "no answer": (question("bad", "Why?"), "has no answer"),
    "answer elsewhere": (question("bad", "When?", "1999", 0), "'1999' is not at character 0"),
    "answer in bytes": (question("bad", "When?", "1999", len(CONTEXT[: CONTEXT.index("1999")].encode())), "is not at"),
    "answer beyond the end": (question("bad", "When?", "1999", 10_000), "is not at character 10000"),
    "answer from the end": (question("bad", "When?", "2001", -5), "is not at character -5"),
    "start is true": (question("bad", "When?", "oë", True), "'answers.answer_start' must be a valid integer, not bool"),
    "answer is half a character": (question("bad", "Who?", "\ud83d", 4), r"encode character '\ud83d' in position 0"),
    "another layout": ({"id": "bad", "question": "?", "answers": {"text": ["Zoë"]}}, "'answers.answer_start' is missing"),
    "empty answer": (question("bad", "When?", "", 3), "its answer is blank"),
    "start is a word": (question("bad", "When?", "1999", "ten"), "'answers.answer_start' must be a valid integer, not str"),
    "start is between": (question("bad", "When?", "1999", 1.5), "'answers.answer_start' must be a valid integer, not float"),
    "no start": ({"id": "bad", "question": "When?", "answers": [{"text": "1999"}]}, "'answers.answer_start' is missing"),
    "blank question": (question("bad", " ", "Zoë", 0), "its text is empty"),
}


@pytest.mark.parametrize("case", BAD_QUESTIONS)
def test_an_unusable_question_is_skipped_and_named(tmp_path, case):
    bad, reason = BAD_QUESTIONS[case]
    file = write_json(tmp_path / "a.json", [(CONTEXT, [bad, question("good", "Who?", "Zoë", 0)]), ("Alone.", [bad])])
    imported = import_files([file], tmp_path / "out")
    assert read_back(tmp_path / "out") == [("Who?", CONTEXT, "Zoë")]
    assert [(skip.file, skip.name) for skip in imported.skipped] == [(str(file), "bad")] * 2
    assert reason in imported.skipped[0].detail
    assert list(imported.documents.values()) == [CONTEXT, "Alone."]


def article(**paragraph):
    return json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": []} | paragraph]}]}).encode()


#: A file's bytes and the expected message.
NOT_SQUAD = {
    "empty": (b"", "Expecting value"),
    "not JSON": (b"{'data': 1}", "Expecting property name"),
    "Windows-1254": ('{"data": "ş"}'.encode("cp1254"), "can't decode byte 0xfe in position 10"),
    "a list": (b"[1]", "'data[0]' must be a valid dictionary, not int"),
    "no data": (b'{"version": "2"}', "'data' is missing"),
    "data is null": (b'{"data": null}', "'data' must be a valid list, not null"),
    "article is a text": (b'{"data": ["T"]}', "'data[0]' must be a valid dictionary, not str"),
    "no paragraphs": (b'{"data": [{"title": "T"}]}', "'data[0].paragraphs' is missing"),
    "no context": (b'{"data": [{"paragraphs": [{"qas": []}]}]}', "'data[0].paragraphs[0].context' is missing"),
    "no questions": (b'{"data": [{"paragraphs": [{"context": "A"}]}]}', "'data[0].paragraphs[0].qas' is missing"),
    "context is null": (article(context=None), "'data[0].paragraphs[0].context' must be a valid string, not null"),
    "context is a list": (article(context=["a"]), "context' must be a valid string, not list"),
    "context is half a character": (article(context="a \ud800"), r"context' is not valid: 'utf-8' codec"),
    "id is a number": (article(qas=[{"id": 1.5, "question": "Who?"}]), "id' must be a valid string, not float"),
    "question is null": (article(qas=[question("1", None, "Zoë", 0)]), "question' must be a valid string, not null"),
    "question is half a character": (article(qas=[question("1", "\udc00", "Zoë", 0)]), "surrogates not allowed"),
    "endless nesting": (b"[" * 100_000, "deep"),
}


@pytest.mark.parametrize("case", NOT_SQUAD)
def test_a_file_in_another_format_is_refused_with_the_field_and_nothing_written(tmp_path, valid, case):
    content, message = NOT_SQUAD[case]
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        import_files([valid, file], tmp_path / "out")
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)
    assert "Expected: SQuAD-format JSON, data > paragraphs" in str(caught.value)
    assert not (tmp_path / "out").exists()


PAIR = {"context": CONTEXT, "question": "When did she fly?"}


def article_about(name, start):
    return {"paragraphs": [{"context": CONTEXT, "qas": [question(name, PAIR["question"], "1999", start)]}]}


#: Files as they are published: rows, other layouts of answers, other encodings.
PUBLISHED = {
    "answer_start is a text, no ids (TQuAD)": {"data": [article_about(None, str(START))]},
    "numbers that pandas wrote": {"data": [article_about(7, float(START))]},
    "articles without `data`": [article_about("7", START)],
    "rows": [PAIR | {"id": "7", "title": "T", "answers": {"text": ["1999", "x"], "answer_start": [START, 0]}}],
    "rows in `data`": {"data": [PAIR | {"id": "7", "answers": {"text": ["1999"], "answer_start": [START]}}]},
    "iapp_wiki_qa_squad": [
        {"question_id": "abc_000", "article_id": "abc", "answers": {"text": ["1999"], "answer_start": [START]}} | PAIR
    ],
    "several answers": [PAIR | {"answers": [{"text": "1999", "answer_start": START}, {"text": "2001", "answer_start": 42}]}],
    "one answer as an object": [PAIR | {"answers": {"text": "1999", "answer_start": START}}],
    "ParsiNLU": [PAIR | {"url": "u", "answers": [[START, "1999"], [0, "x"]]}],
    "ParsiNLU on the Hub": [PAIR | {"answers": {"answer_text": ["1999"], "answer_start": [START]}}],
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("case", PUBLISHED)
def test_published_layouts_are_read(tmp_path, case, encoding):
    (tmp_path / "a.json").write_text(json.dumps(PUBLISHED[case], ensure_ascii=False), encoding=encoding)
    imported = import_files([tmp_path / "a.json"], tmp_path / "out")
    assert (read_back(tmp_path / "out"), imported.skipped) == ([("When did she fly?", CONTEXT, "1999")], [])


def test_a_file_with_one_row_per_line_is_read_whatever_its_name(tmp_path):
    rows = [PUBLISHED["rows"][0], {"context": "Alone.", "question": "How?", "answer": "Alone"}]
    (tmp_path / "a.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    import_files([tmp_path / "a.json"], tmp_path / "out")
    assert [evidence for *_, evidence in read_back(tmp_path / "out")] == ["1999", "Alone"]


def test_unanswerable_questions_are_told_from_wrong_ones(tmp_path):
    """UIT-ViQuAD 2.0: `plausible_answers`, and `answers` that are empty, null or blank."""
    plausible = {"is_impossible": True, "plausible_answers": [{"text": "1999", "answer_start": START}]}
    asked = [
        question("1", "When?", "1999", START) | {"is_impossible": False, "uit_id": "uit_1"},
        question("2", "Why?") | plausible,
        {"id": "3", "question": "Why?", "answers": None} | plausible,
        question("4", "Why?", "", 0) | plausible,
        {"id": "5", "question": "Why?"} | plausible,
    ]
    imported = import_files([write_json(tmp_path / "a.json", [(CONTEXT, asked)])], tmp_path / "out")
    assert [(skip.name, skip.detail) for skip in imported.skipped] == [(str(name), UNANSWERABLE) for name in range(2, 6)]
    assert len(imported.questions) == 1


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
    ("files", "language", "documents", "questions", "skipped"),
    [
        ("xquad.en.json", "eng-Latn", 240, 1_190, 0),
        ("xquad.zh.json", "cmn-Hans", 240, 1_190, 0),
        ("xquad.ar.json", "ara-Arab", 240, 1_190, 0),
        ("covidqa.json", "eng-Latn", 98, 1_380 - 234, 234),
        ("jaquad/*/*.json", "jpn-Jpan", 11_144, 35_687, 0),
    ],
)
def test_real_data_is_imported_in_full(squad_data, tmp_path, files, language, documents, questions, skipped):
    paths = sorted(squad_data.glob(files))
    imported = import_files(paths, tmp_path, language)
    assert (len(imported.documents), len(imported.questions), len(imported.skipped)) == (documents, questions, skipped)
    data = read_domain(LocalRepository(tmp_path), language, language, "sports")
    assert (len(data.corpus), len(data.queries)) == (documents, questions)


def test_the_title_is_the_cluster_of_an_articles_documents(tmp_path):
    first, second, third = ("Bees hum. Bees sting.", "Bees dance.", "Cats sleep.")
    data = [
        {"title": "Bees", "paragraphs": [{"context": first, "qas": [question("1", "Who hums?", "Bees", 0)]}]},
        {"title": "Cats", "paragraphs": [{"context": third, "qas": [question("2", "Who sleeps?", "Cats", 0)]}]},
        {"title": "Bees", "paragraphs": [{"context": second, "qas": [question("3", "Who dances?", "Bees", 0)]}]},
        {"paragraphs": [{"context": "Untitled.", "qas": [question("4", "What is it?", "Untitled", 0)]}]},
    ]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"data": data}))
    import_files([file], tmp_path / "out")
    domain = read_domain(LocalRepository(tmp_path / "out"), "eng-Latn", "eng-Latn", "sports")
    assert domain.evidence.clusters == ("Bees", "Cats", "Bees", "")
    assert domain.corpus.column_names == domain.queries.column_names == ["id", "text"]
    columns = DocumentRanks.from_ranks(RelativePositions(), domain.evidence, np.ones(4, int)).columns
    assert (len(np.unique(columns.documents)), len(np.unique(columns.clusters))) == (4, 3)


def test_xquad_has_240_documents_in_48_articles(squad_data, tmp_path):
    import_files([squad_data / "xquad.en.json"], tmp_path)
    evidence = read_domain(LocalRepository(tmp_path), "eng-Latn", "eng-Latn", "sports").evidence
    ranks = DocumentRanks.from_ranks(RelativePositions(), evidence, np.ones(len(evidence), int))
    columns = ranks.columns
    articles = dict(zip(columns.documents.tolist(), columns.clusters.tolist(), strict=True))
    assert np.bincount(list(articles.values())).tolist() == [5] * 48


def test_repair_recovers_what_is_off_by_a_few_characters(squad_data, tmp_path):
    """The 234 answers of COVID-QA that are not where it says are found independently: the nearest equal text."""
    file = squad_data / "covidqa.json"
    imported = import_files([file], tmp_path, repair=True)
    assert (len(imported.documents), len(imported.questions), len(imported.skipped)) == (98, 1_380, 0)
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
    assert {question.name: span.start - question.answer.start for question, span in imported.repaired} == off
