"""SQuAD-format JSON and JSON Lines: what is read back is what a file states; a failure is named and leaves nothing behind."""

import json
import re
from collections import Counter
from itertools import chain

import numpy as np
import polars as pl
import pytest

from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.errors import DataError
from posir_tasks.gate import decode
from posir_tasks.read_part import estimate_tokens
from posir_tasks.schemes import RelativePositions
from posir_tasks.sources.formats.files import is_binary, read_json_lines, read_lines, read_squad_json
from posir_tasks.sources.formats.passages import UNANSWERABLE
from posir_tasks.sources.posir import read_domain
from posir_tasks.sources.repository import LocalRepository
from tests.support.datasets import imported, read_back

TEXT = "Zoë 👩‍🚀 flew in 1999. She came back in 2001."
START = TEXT.index("1999")
READERS = {".json": read_squad_json, ".jsonl": read_json_lines}


def question(name, text, answer=None, start=None):
    """A question of SQuAD-format JSON."""
    if answer is None:
        return {"id": name, "question": text, "answers": [], "is_impossible": True}
    return {"id": name, "question": text, "answers": [{"text": answer, "answer_start": start}]}


def record(**fields):
    """A line of JSON Lines."""
    return {"context": TEXT, "question": "When?"} | fields


def squad(*paragraphs):
    """SQuAD-format JSON with pairs of context and questions as one article."""
    return {"data": [{"title": "T", "paragraphs": [{"context": context, "qas": asked} for context, asked in paragraphs]}]}


def write(file, *values, encoding="utf-8", escape=True):
    """Write values, or texts as they are, one per line."""
    lines = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=escape) for value in values]
    file.write_text("\n".join(lines), encoding=encoding)
    return file


def import_files(files, output, language="eng-Latn", **options):
    return imported(chain.from_iterable(READERS[file.suffix](file) for file in files), output, language=language, **options)


def import_values(tmp_path, *values, suffix=".json", **options):
    return import_files([write(tmp_path / f"a{suffix}", *values, **options)], tmp_path / "out")


def evidence_of(folder):
    return [evidence for *_, evidence in read_back(folder)]


def read_sports(root, language="eng-Latn"):
    return read_domain(LocalRepository(root), language, language, "sports")


def test_what_is_imported_is_read_back_with_its_spans(tmp_path):
    asked = [question("1", "When did she fly?", "1999", START), question("2", "When was she back?", "2001", TEXT.index("2001"))]
    more = [("Time flies.", [question("3", "What flies?", "Time", 0)]), ("Nobody asks.", [])]
    result = import_values(tmp_path, squad((TEXT, asked), *more))
    assert read_back(tmp_path / "out") == [
        ("When did she fly?", TEXT, "1999"),
        ("When was she back?", TEXT, "2001"),
        ("What flies?", "Time flies.", "Time"),
    ]
    assert (list(result.documents.values()), result.skipped) == ([TEXT, "Time flies.", "Nobody asks."], [])
    evidence = read_sports(tmp_path / "out").evidence
    assert evidence.tokens.tolist() == [estimate_tokens(TEXT)] * 2 + [3]
    assert evidence.characters.tolist() == [len(TEXT)] * 2 + [11]


def test_a_context_in_several_files_is_one_document_and_a_repeated_question_one_query(tmp_path):
    first, other = question("1", "When?", "1999", START), question("9", "Who flew?", "Zoë", 0)
    files = [write(tmp_path / f"{row}.json", squad((TEXT, asked))) for row, asked in enumerate([[first], [first, other]])]
    import_files(files, tmp_path / "out")
    assert evidence_of(tmp_path / "out") == ["1999", "Zoë"]
    assert len(read_sports(tmp_path / "out").corpus) == 1


PAIR = {"context": TEXT, "question": "When?"}


def article_about(name, start):
    return {"paragraphs": [{"context": TEXT, "qas": [question(name, "When?", "1999", start)]}]}


#: Suffix and content of files as they are documented or published: rows, other layouts of answers.
STATED = {
    "answer_start is a text, no ids (TQuAD)": (".json", {"data": [article_about(None, str(START))]}),
    "numbers that pandas wrote": (".json", {"data": [article_about(7, float(START))]}),
    "articles without `data`": (".json", [article_about("7", START)]),
    "rows": (".json", [PAIR | {"id": "7", "title": "T", "answers": {"text": ["1999", "x"], "answer_start": [START, 0]}}]),
    "rows in `data`": (".json", {"data": [PAIR | {"id": "7", "answers": {"text": ["1999"], "answer_start": [START]}}]}),
    "iapp_wiki_qa_squad": (".json", [PAIR | {"question_id": "abc", "answers": {"text": ["1999"], "answer_start": [START]}}]),
    "several answers": (".json", [PAIR | {"answers": [{"text": "1999", "answer_start": START}, {"text": "2001"}]}]),
    "one answer as an object": (".json", [PAIR | {"answers": {"text": "1999", "answer_start": START}}]),
    "ParsiNLU": (".json", [PAIR | {"url": "u", "answers": [[START, "1999"], [0, "x"]]}]),
    "ParsiNLU on the Hub": (".json", [PAIR | {"answers": {"answer_text": ["1999"], "answer_start": [START]}}]),
    "start and end": (".jsonl", record(start=START, end=START + 4)),
    "answer and start": (".jsonl", record(start=START, answer="1999")),
    "all three": (".jsonl", record(start=START, end=START + 4, answer="1999")),
    "answer alone": (".jsonl", record(answer="1999")),
    "nulls for what is not given": (".jsonl", record(answer="1999", start=None, end=None, id=None, document=None, title=None)),
    "lines of ParsiNLU": (".jsonl", {"passage": TEXT, "question": "When?", "answers": [[START, "1999"]]}),
    "as datasets writes SQuAD": (".jsonl", record(answers={"text": ["1999", "x"], "answer_start": [START, 0]})),
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("case", STATED)
def test_an_answer_is_read_in_any_documented_or_published_layout(tmp_path, case, encoding):
    suffix, content = STATED[case]
    result = import_values(tmp_path, content, suffix=suffix, encoding=encoding, escape=False)
    assert (read_back(tmp_path / "out"), result.skipped) == ([("When?", TEXT, "1999")], [])


def test_a_file_with_one_row_per_line_is_read_whatever_its_name(tmp_path):
    import_values(tmp_path, STATED["rows"][1][0], {"context": "Alone.", "question": "How?", "answer": "Alone"})
    assert evidence_of(tmp_path / "out") == ["1999", "Alone"]


def test_ids_titles_blank_lines_and_documents_without_a_question(tmp_path):
    first, second = record(id="q1", document="d1", answer="1999", title="Zoë"), record(id=2, document="d1", answer="2001")
    result = import_values(tmp_path, first, "", second, {"context": "Nobody asks.", "title": " "}, suffix=".jsonl")
    assert list(result.documents.values()) == [TEXT, "Nobody asks."]
    assert next(iter(result.documents)) == "d1"
    assert result.titles == {"d1": "Zoë"}
    assert read_sports(tmp_path / "out").evidence.positives() == {"q1": "d1", "2": "d1"}


INTEGER = "must be a valid integer, not"
#: Suffix, question and the reason why it is skipped.
UNUSABLE = {
    "no answer": (".json", question("bad", "Why?"), "has no answer"),
    "answer elsewhere": (".json", question("bad", "When?", "1999", 0), "'1999' is not at character 0"),
    "answer in bytes": (".json", question("bad", "When?", "1999", len(TEXT[:START].encode())), "is not at"),
    "answer beyond the end": (".json", question("bad", "When?", "1999", 10_000), "is not at character 10000"),
    "answer from the end": (".json", question("bad", "When?", "2001", -5), "is not at character -5"),
    "start is true": (".json", question("bad", "When?", "oë", True), f"'answers.answer_start' {INTEGER} bool"),
    "start is a word": (".json", question("bad", "When?", "1999", "ten"), f"'answers.answer_start' {INTEGER} str"),
    "start is between": (".json", question("bad", "When?", "1999", 1.5), f"'answers.answer_start' {INTEGER} float"),
    "answer is half a character": (".json", question("bad", "Who?", "\ud83d", 4), r"encode character '\ud83d' in position 0"),
    "another layout": (".json", {"id": "bad", "question": "?", "answers": {"text": ["Zoë"]}}, "'answers.answer_start' is"),
    "empty answer": (".json", question("bad", "When?", "", 3), "its answer is blank"),
    "blank question": (".json", question("bad", " ", "Zoë", 0), "its text is empty"),
    "nothing stated": (".jsonl", record(), "states neither the text of its answer nor both start and end"),
    "several places": (".jsonl", record(answer="in"), "its answer 'in' occurs 2 times in its document; state its start"),
    "nowhere": (".jsonl", record(answer="1998"), "does not occur in its document"),
    "start alone": (".jsonl", record(start=3), "states the start of its answer but neither its end nor its text"),
    "beyond the end": (".jsonl", record(start=3, end=99), f"span 3 to 99 is not within its document of {len(TEXT)} char"),
    "no question": (".jsonl", {"context": TEXT, "answer": "1999"}, "has an answer but no 'question'"),
    "start is a text": (".jsonl", record(start="14", end=18), f"'start' {INTEGER} str"),
    "start is a number": (".jsonl", record(start=14.0, end=18.0), f"'start' {INTEGER} float"),
    "answer is a list": (".jsonl", record(answer=["1999"]), "'answer' must be a valid string, not list"),
    "answers of SQuAD's JSON": (".jsonl", record(answers=[{"text": "1999"}]), "'answers.answer_start' is missing"),
    "unanswerable": (".jsonl", record(answers={"text": [], "answer_start": []}), "has no answer"),
    "unanswerable, no answers": (".jsonl", record(answers=None, is_impossible=True), "has no answer"),
    "line with half a character": (".jsonl", record(answer="\ud83d"), "'answer' is not valid: 'utf-8' codec"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_question_is_skipped_and_named(tmp_path, case):
    suffix, bad, reason = UNUSABLE[case]
    good = question("good", "Who?", "2001", TEXT.index("2001"))
    values = [squad((TEXT, [good, bad]))] if suffix == ".json" else [record(answer="2001"), bad]
    (skipped,) = import_values(tmp_path, *values, suffix=suffix).skipped
    assert (skipped.file, skipped.name) == (str(tmp_path / f"a{suffix}"), "bad" if suffix == ".json" else "line 2")
    assert reason in skipped.detail
    assert evidence_of(tmp_path / "out") == ["2001"]


def article(**paragraph):
    return {"data": [{"paragraphs": [{"context": TEXT, "qas": []} | paragraph]}]}


READABLE = "line 2: is not readable JSON in UTF-8 (JSONDecodeError: Expecting property name"
#: Suffix, content, of JSON Lines the second line, and the message after the file's name.
REFUSED = {
    "empty": (".json", "", "Expecting value"),
    "not JSON": (".json", "{'data': 1}", "Expecting property name"),
    "a list": (".json", [1], "'data[0]' must be a valid dictionary, not int"),
    "no data": (".json", {"version": "2"}, "'data' is missing"),
    "data is null": (".json", {"data": None}, "'data' must be a valid list, not null"),
    "no paragraphs": (".json", {"data": [{"title": "T"}]}, "'data[0].paragraphs' is missing"),
    "no context": (".json", {"data": [{"paragraphs": [{"qas": []}]}]}, "'data[0].paragraphs[0].context' is missing"),
    "no questions": (".json", {"data": [{"paragraphs": [{"context": "A"}]}]}, "'data[0].paragraphs[0].qas' is missing"),
    "context is a list": (".json", article(context=["a"]), "context' must be a valid string, not list"),
    "half a character": (".json", article(context="a \ud800"), "context' is not valid: 'utf-8' codec"),
    "id is a number": (".json", article(qas=[{"id": 1.5, "question": "Who?"}]), "id' must be a valid string, not float"),
    "no text": (".json", article(qas=[question("1", None, "Zoë", 0)]), "question' must be a valid string, not null"),
    "endless nesting": (".json", "[" * 100_000, "deep"),
    "line is no JSON": (".jsonl", "{'context': 1}", READABLE),
    "line is a list": (".jsonl", [], "line 2: must be a valid dictionary, not list"),
    "several lines": (".jsonl", '{\n"context": "a"}', READABLE),
    "line without context": (".jsonl", {"question": "Who?", "answer": "Zoë"}, "line 2: 'context' is missing"),
    "line's context is a list": (".jsonl", {"context": ["a"]}, "line 2: 'context' must be a valid string, not list"),
    "question is a number": (".jsonl", record(question=1), "line 2: 'question' must be a valid string, not int"),
    "id is a list": (".jsonl", record(id=["1"]), "line 2: 'id' must be a valid string, not list"),
    "null character in an id": (".jsonl", record(id="a\0b", answer="1999"), "line 2: 'id' is not valid: has a null character"),
    "null character in a document": (".jsonl", record(document="a\0b"), "line 2: 'document' is not valid: has a null"),
    "blank context": (".jsonl", {"context": " "}, "line 2: the text is empty"),
    "line with half a character": (".jsonl", '{"context": "\\udc00"}', "line 2: 'context' is not valid: 'utf-8' codec"),
    "line of endless nesting": (".jsonl", "[" * 100_000, "line 2: is nested more than 64 deep"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_in_another_format_is_refused_with_the_field_and_nothing_written(tmp_path, case):
    suffix, content, message = REFUSED[case]
    before = [record(answer="2001")] if suffix == ".jsonl" else []
    with pytest.raises(DataError) as caught:
        import_values(tmp_path, *before, content, suffix=suffix)
    assert str(caught.value).startswith(f"{tmp_path / f'a{suffix}'}: ")
    assert message in str(caught.value)
    assert suffix == ".jsonl" or "Expected: SQuAD-format JSON, data > paragraphs" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_another_encoding_and_a_missing_file_are_named(tmp_path):
    (tmp_path / "a.json").write_bytes('{"data": "ş"}'.encode("cp1254"))
    (tmp_path / "a.jsonl").write_bytes('{"context": "Zoë, 1999", "question": "When?", "answer": "1999"}'.encode("latin-1"))
    for name, message in (
        ("a.json", r"can't decode byte 0xfe in position 10"),
        ("a.jsonl", r"Skipped: 1 not UTF-8 \(.*a\.jsonl: line 1: byte 0xeb at 15\)"),
        ("none.json", r"none\.json: cannot be read \(No such file"),
        ("none.jsonl", r"none\.jsonl: cannot be read \(No such file"),
    ):
        with pytest.raises(DataError, match=message):
            import_files([tmp_path / name], tmp_path / "out")


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
    result = import_values(tmp_path, squad((TEXT, asked)))
    assert [(skip.name, skip.detail) for skip in result.skipped] == [(str(name), UNANSWERABLE) for name in range(2, 6)]
    assert len(result.questions) == 1


def test_a_surrogate_pair_in_an_escape_is_one_code_point(tmp_path):
    import_values(tmp_path, squad(("\U0001f600 smiles", [question(1, "Who smiles?", "smiles", 2)])))
    assert r"\ud83d\ude00" in (tmp_path / "a.json").read_text()
    assert read_back(tmp_path / "out") == [("Who smiles?", "\U0001f600 smiles", "smiles")]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_ids_that_are_given_never_collide_with_stated_ones(tmp_path, order):
    texts = ("A text without an id.", "Another text without an id.", "A text with an id.")
    stated = ({}, {}, {"document": "sports_1"})
    lines = [{"context": texts[item], "question": "Which?", "answer": texts[item].split()[0]} | stated[item] for item in order]
    import_values(tmp_path, *lines, suffix=".jsonl")
    ids = dict(pl.read_parquet(tmp_path / "out/eng-Latn/sports/corpus.parquet").select("text", "_id").iter_rows())
    assert ids[texts[2]] == "sports_1"
    assert len({*ids.values()}) == 3


def test_of_two_texts_with_one_stated_id_the_second_line_is_named(tmp_path):
    lines = [record(answer="1999"), record(answer="1999", context=f"{TEXT} And 1998.", document="d"), record(document="d")]
    with pytest.raises(DataError, match="line 3: another document has the id 'd'"):
        import_values(tmp_path, *lines, suffix=".jsonl")


@pytest.mark.parametrize(
    ("files", "language", "documents", "questions", "skipped"),
    [
        ("xquad.ar.json", "ara-Arab", 240, 1_190, 0),
        ("covidqa.json", "eng-Latn", 98, 1_380 - 234, 234),
        ("jaquad/*/*.json", "jpn-Jpan", 11_144, 35_687, 0),
    ],
)
def test_real_data_is_imported_in_full(squad_data, tmp_path, files, language, documents, questions, skipped):
    result = import_files(sorted(squad_data.glob(files)), tmp_path, language)
    assert (len(result.documents), len(result.questions), len(result.skipped)) == (documents, questions, skipped)
    data = read_sports(tmp_path, language)
    assert (len(data.corpus), len(data.queries)) == (documents, questions)


def test_the_title_is_the_cluster_of_an_articles_documents(tmp_path):
    def about(title, text, name):
        return title | {"paragraphs": [{"context": text, "qas": [question(name, f"{name}?", text.split()[0], 0)]}]}

    texts = ("Bees hum. Bees sting.", "Cats sleep.", "Bees dance.", "Untitled.")
    titles = ({"title": "Bees"}, {"title": "Cats"}, {"title": "Bees"}, {})
    result = import_values(tmp_path, {"data": [*map(about, titles, texts, "1234")]})
    domain = read_sports(tmp_path / "out")
    assert (domain.evidence.clusters, len(result.titles)) == (("Bees", "Cats", "Bees", ""), 3)
    assert domain.corpus.column_names == domain.queries.column_names == ["id", "text"]
    columns = DocumentRanks.from_ranks(RelativePositions(), domain.evidence, np.ones(4, int)).columns
    assert (len(np.unique(columns.documents)), len(np.unique(columns.clusters))) == (4, 3)


def test_xquad_has_240_documents_in_48_articles(squad_data, tmp_path):
    import_files([squad_data / "xquad.en.json"], tmp_path)
    evidence = read_sports(tmp_path).evidence
    columns = DocumentRanks.from_ranks(RelativePositions(), evidence, np.ones(len(evidence), int)).columns
    articles = dict(zip(columns.documents.tolist(), columns.clusters.tolist(), strict=True))
    assert np.bincount(list(articles.values())).tolist() == [5] * 48


def test_repair_recovers_what_is_off_by_a_few_characters(squad_data, tmp_path):
    """The 234 answers of COVID-QA that are not where it says are found independently: the nearest equal text."""
    file = squad_data / "covidqa.json"
    result = import_files([file], tmp_path, repair=True)
    assert (len(result.documents), len(result.questions), len(result.skipped)) == (98, 1_380, 0)
    off = {}
    for paragraph in (paragraph for article in json.loads(file.read_text())["data"] for paragraph in article["paragraphs"]):
        for qa in paragraph["qas"]:
            answer, context = qa["answers"][0], paragraph["context"]
            places = [match.start() for match in re.finditer(f"(?={re.escape(answer['text'])})", context)]
            if answer["answer_start"] not in places:
                nearest = min(places, key=lambda place: abs(place - answer["answer_start"]))
                off[str(qa["id"])] = nearest - answer["answer_start"]
    assert Counter(off.values()) == {-1: 196, 3: 28, 2: 10}
    assert {question.name: span.start - question.answer.start for question, span in result.repaired} == off


@pytest.mark.parametrize(("encoding", "mark"), [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16", b"")])
def test_lines_are_read_in_every_encoding(tmp_path, encoding, mark):
    file = tmp_path / "lines.jsonl"
    file.write_bytes(mark + "ä\n\nb\n".encode(encoding))
    assert [line for _, line in read_lines(file, "")] == (["ä\n", "b\n"] if encoding == "utf-8" else ["ä", "b"])
    assert decode(file.read_bytes()) == "ä\n\nb\n"
    assert not is_binary(file.read_bytes())
    assert is_binary(b"PK\x00")


def test_a_bad_line_is_named_by_its_byte_and_the_others_are_read(tmp_path):
    file = tmp_path / "lines.jsonl"
    file.write_bytes(b"good\n" + "böse\n".encode("latin-1") + b"gut\n")
    first, (number, bad), third = read_lines(file, "line ")
    assert (first, third) == ((1, "good\n"), (3, "gut\n"))
    assert (number, bad.name, bad.detail) == (2, "line 2", "byte 0xf6 at 6")
    assert file.read_bytes()[6] == 0xF6
