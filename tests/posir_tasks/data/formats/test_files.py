"""SQuAD-format JSON and JSON Lines: what is read back is what a file states; a failure is named and
leaves nothing behind.
"""

import json
import re
from collections import Counter
from itertools import chain

import numpy as np
import pytest

from posir_tasks.base.errors import DataError
from posir_tasks.data.formats.passages import Cause
from posir_tasks.data.formats.question_rows import read_json_lines, read_squad_json
from posir_tasks.data.posir import read_domain
from posir_tasks.data.repository import LocalRepository
from posir_tasks.text.words import estimate_tokens
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.schemes import RelativePositions
from tests.support.datasets import imported, read_back

TEXT = "Zoë 👩‍🚀 flew in 1999. She came back in 2001."
START = TEXT.index("1999")
READERS = {".json": read_squad_json, ".jsonl": read_json_lines}


def question(name, text, answer=None, start=None):
    if answer is None:
        return {"id": name, "question": text, "answers": [], "is_impossible": True}
    return {"id": name, "question": text, "answers": [{"text": answer, "answer_start": start}]}


def record(**fields):
    return {"context": TEXT, "question": "When?"} | fields


def squad(*paragraphs):
    """SQuAD-format JSON with pairs of context and questions as one article."""
    return {
        "data": [
            {
                "title": "T",
                "paragraphs": [{"context": context, "qas": asked} for context, asked in paragraphs],
            }
        ]
    }


def write(file, *values):
    """Write values, or texts as they are, one per line."""
    file.write_text(
        "\n".join(value if isinstance(value, str) else json.dumps(value) for value in values)
    )
    return file


def import_files(files, output, language="eng-Latn", **options):
    return imported(
        chain.from_iterable(READERS[file.suffix](file) for file in files),
        output,
        language=language,
        **options,
    )


def import_values(tmp_path, *values, suffix=".json"):
    return import_files([write(tmp_path / f"a{suffix}", *values)], tmp_path / "out")


def read_sports(root, language="eng-Latn"):
    return read_domain(LocalRepository(root), language, language, "sports")


def test_what_is_imported_is_read_back_with_its_spans(tmp_path):
    asked = [
        question("1", "When did she fly?", "1999", START),
        question("2", "When was she back?", "2001", TEXT.index("2001")),
    ]
    more = [("Time flies.", [question("3", "What flies?", "Time", 0)]), ("Nobody asks.", [])]
    result = import_values(tmp_path, squad((TEXT, asked), *more))
    assert read_back(tmp_path / "out") == [
        ("When did she fly?", TEXT, "1999"),
        ("When was she back?", TEXT, "2001"),
        ("What flies?", "Time flies.", "Time"),
    ]
    assert (list(result.documents.values()), result.skipped) == (
        [TEXT, "Time flies.", "Nobody asks."],
        [],
    )
    evidence = read_sports(tmp_path / "out").evidence
    assert evidence.tokens.tolist() == [estimate_tokens(TEXT)] * 2 + [3]
    assert evidence.characters.tolist() == [len(TEXT)] * 2 + [11]


def test_repeated_contexts_and_questions_are_one(tmp_path):
    first, other = question("1", "When?", "1999", START), question("9", "Who flew?", "Zoë", 0)
    files = [
        write(tmp_path / f"{row}.json", squad((TEXT, asked)))
        for row, asked in enumerate([[first], [first, other]])
    ]
    import_files(files, tmp_path / "out")
    assert read_back(tmp_path / "out") == [("When?", TEXT, "1999"), ("Who flew?", TEXT, "Zoë")]
    assert len(read_sports(tmp_path / "out").corpus) == 1


PAIR = record()


def article_about(name, start):
    return {"paragraphs": [{"context": TEXT, "qas": [question(name, "When?", "1999", start)]}]}


#: Suffix and content of files as they are documented or published: rows, other layouts of answers.
STATED = {
    "answer_start is a text, no ids (TQuAD)": (
        ".json",
        {"data": [article_about(None, str(START))]},
    ),
    "numbers that pandas wrote": (".json", {"data": [article_about(7, float(START))]}),
    "articles without `data`": (".json", [article_about("7", START)]),
    "rows": (
        ".json",
        [
            PAIR
            | {
                "id": "7",
                "title": "T",
                "answers": {"text": ["1999", "x"], "answer_start": [START, 0]},
            }
        ],
    ),
    "rows in `data`": (
        ".json",
        {"data": [PAIR | {"id": "7", "answers": {"text": ["1999"], "answer_start": [START]}}]},
    ),
    "iapp_wiki_qa_squad": (
        ".json",
        [PAIR | {"question_id": "abc", "answers": {"text": ["1999"], "answer_start": [START]}}],
    ),
    "several answers": (
        ".json",
        [PAIR | {"answers": [{"text": "1999", "answer_start": START}, {"text": "2001"}]}],
    ),
    "one answer as an object": (
        ".json",
        [PAIR | {"answers": {"text": "1999", "answer_start": START}}],
    ),
    "ParsiNLU": (".json", [PAIR | {"url": "u", "answers": [[START, "1999"], [0, "x"]]}]),
    "ParsiNLU on the Hub": (
        ".json",
        [PAIR | {"answers": {"answer_text": ["1999"], "answer_start": [START]}}],
    ),
    "start and end": (".jsonl", record(start=START, end=START + 4)),
    "answer and start": (".jsonl", record(start=START, answer="1999")),
    "all three": (".jsonl", record(start=START, end=START + 4, answer="1999")),
    "answer alone": (".jsonl", record(answer="1999")),
    "nulls for what is not given": (
        ".jsonl",
        record(answer="1999", start=None, end=None, id=None, document=None, title=None),
    ),
    "lines of ParsiNLU": (
        ".jsonl",
        {"passage": TEXT, "question": "When?", "answers": [[START, "1999"]]},
    ),
    "as datasets writes SQuAD": (
        ".jsonl",
        record(answers={"text": ["1999", "x"], "answer_start": [START, 0]}),
    ),
}


@pytest.mark.parametrize("case", STATED)
def test_an_answer_is_read_in_any_documented_or_published_layout(tmp_path, case):
    suffix, content = STATED[case]
    result = import_values(tmp_path, content, suffix=suffix)
    assert (read_back(tmp_path / "out"), result.skipped) == ([("When?", TEXT, "1999")], [])


def test_a_file_with_one_row_per_line_is_read_whatever_its_name(tmp_path):
    import_values(
        tmp_path, STATED["rows"][1][0], {"context": "Alone.", "question": "How?", "answer": "Alone"}
    )
    assert read_back(tmp_path / "out") == [("When?", TEXT, "1999"), ("How?", "Alone.", "Alone")]


def test_ids_titles_blank_lines_and_documents_without_a_question(tmp_path):
    first, second = (
        record(id="q1", document="d1", answer="1999", title="Zoë"),
        record(id=2, document="d1", answer="2001"),
    )
    result = import_values(
        tmp_path, first, "", second, {"context": "Nobody asks.", "title": " "}, suffix=".jsonl"
    )
    assert list(result.documents.values()) == [TEXT, "Nobody asks."]
    assert next(iter(result.documents)) == "d1"
    assert result.titles == {"d1": "Zoë"}
    assert read_sports(tmp_path / "out").evidence.map_positives() == {"q1": "d1", "2": "d1"}


INTEGER = "must be an integer, not"
#: Suffix, question and the reason why it is skipped.
UNUSABLE = {
    "no answer": (".json", question("bad", "Why?"), "has no answer"),
    "answer elsewhere": (
        ".json",
        question("bad", "When?", "1999", 0),
        "'1999' is not at character 0",
    ),
    "start is true": (
        ".json",
        question("bad", "When?", "oë", True),
        f"'answers.answer_start' {INTEGER} bool",
    ),
    "start is between": (
        ".json",
        question("bad", "When?", "1999", 1.5),
        f"'answers.answer_start' {INTEGER} float",
    ),
    "answer is half a character": (
        ".json",
        question("bad", "Who?", "\ud83d", 4),
        r"encode character '\ud83d' in position 0",
    ),
    "another layout": (
        ".json",
        {"id": "bad", "question": "?", "answers": {"text": ["Zoë"]}},
        "'answers.answer_start' is",
    ),
    "empty answer": (".json", question("bad", "When?", "", 3), "has no answer"),
    "blank question": (".json", question("bad", " ", "Zoë", 0), "its text is empty"),
    "several places": (
        ".jsonl",
        record(answer="in"),
        "its answer 'in' occurs 2 times in its document; add its start",
    ),
    "no question": (
        ".jsonl",
        {"context": TEXT, "answer": "1999"},
        "has an answer but no 'question'",
    ),
    "start is a text": (".jsonl", record(start="x", end=18), f"'start' {INTEGER} str"),
    "answer is a list": (
        ".jsonl",
        record(answer=["1999"]),
        "'answer' must be a string, not list",
    ),
    "answers of SQuAD's JSON": (
        ".jsonl",
        record(answers=[{"text": "1999"}]),
        "'answers.answer_start' is missing",
    ),
    "unanswerable": (".jsonl", record(answers={"text": [], "answer_start": []}), "has no answer"),
    "line with half a character": (
        ".jsonl",
        record(answer="\ud83d"),
        "'answer' is not valid: 'utf-8' codec",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_question_is_skipped_and_named(tmp_path, case):
    suffix, bad, reason = UNUSABLE[case]
    good = question("good", "Who?", "2001", TEXT.index("2001"))
    values = [squad((TEXT, [good, bad]))] if suffix == ".json" else [record(answer="2001"), bad]
    (skipped,) = import_values(tmp_path, *values, suffix=suffix).skipped
    assert (skipped.file, skipped.name) == (
        str(tmp_path / f"a{suffix}"),
        "bad" if suffix == ".json" else "line 2",
    )
    assert reason in skipped.detail
    assert [evidence for *_, evidence in read_back(tmp_path / "out")] == ["2001"]


def article(**paragraph):
    return {"data": [{"paragraphs": [{"context": TEXT, "qas": []} | paragraph]}]}


def test_a_malformed_part_does_not_refuse_a_file(tmp_path):
    good = {
        "context": TEXT,
        "qas": [
            {"id": "a", "question": "When?", "answers": [{"text": "1999", "answer_start": START}]}
        ],
    }
    bad = {"qas": [{"id": "lost", "question": "Who?"}, {"id": "too", "question": "Who?"}]}
    questions = good | {"qas": [*good["qas"], {"id": 1.5, "question": "Who?"}, {"id": "b"}]}
    articles = [
        {"title": 3, "paragraphs": [bad]},
        {"paragraphs": [bad, questions]},
        None,
        {"paragraphs": [good]},
    ]
    result = import_values(tmp_path, {"data": articles}, suffix=".json")
    texts, asked = [
        [item for item in result.skipped if bool(item.cause) is kind] for kind in (False, True)
    ]
    assert [item.name.rpartition(": ")[2] for item in texts] == [
        "data[0]",
        "data[1].paragraphs[0]",
        "data[2]",
    ]
    assert all(item.reason == "malformed" and item.detail.startswith("'data[") for item in texts)
    # The questions of a malformed paragraph are counted.
    assert len([item for item in asked if "malformed" in item.detail]) == 4
    assert {item.name for item in asked if "malformed" not in item.detail} >= {
        "data[1].paragraphs[1].qas[1]",
        "data[1].paragraphs[1].qas[2]",
    }
    assert [evidence for *_, evidence in read_back(tmp_path / "out")] == ["1999"]


READABLE = "line 2: is not readable JSON in UTF-8 (JSONDecodeError: Expecting property name"
#: Suffix, content, of JSON Lines the second line, and the message after the file's name.
REFUSED = {
    "empty": (".json", "", "Expecting value"),
    "not JSON": (".json", "{'data': 1}", "Expecting property name"),
    "a list": (".json", [1], "its form is not recognized"),
    "no data": (
        ".json",
        {"version": "2"},
        "its form is not recognized",
    ),
    "data is null": (".json", {"data": None}, "its form is not recognized"),
    "of ragas": (
        ".json",
        [{"question": "Who?", "contexts": ["Zoë."]}],
        "its form is not recognized",
    ),
    "no paragraph": (
        ".json",
        {"data": [{"paragraphs": 1}, {"paragraphs": [None]}]},
        "'data[0].paragraphs' must be a list",
    ),
    "no context": (
        ".json",
        {"data": [{"paragraphs": [{"qas": []}]}]},
        "'data[0].paragraphs[0].context' is missing",
    ),
    "half a character": (
        ".json",
        article(context="a \ud800"),
        "context' is not valid: 'utf-8' codec",
    ),
    "line is no JSON": (".jsonl", "{'context': 1}", READABLE),
    "line is a list": (".jsonl", [], "line 2: must be an object, not list"),
    "line without context": (
        ".jsonl",
        {"question": "Who?", "answer": "Zoë"},
        "line 2: 'context' is missing",
    ),
    "null character in an id": (
        ".jsonl",
        record(id="a\0b", answer="1999"),
        "line 2: 'id' is not valid: contains a null character",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_in_another_format_is_refused_with_the_field(tmp_path, case):
    suffix, content, message = REFUSED[case]
    before = [record(answer="2001")] if suffix == ".jsonl" else []
    with pytest.raises(DataError) as caught:
        import_values(tmp_path, *before, content, suffix=suffix)
    assert str(caught.value).startswith(f"{tmp_path / f'a{suffix}'}: ")
    assert message in str(caught.value)
    assert suffix == ".jsonl" or "Expected: SQuAD-format JSON, data > paragraphs" in str(
        caught.value
    )
    assert not (tmp_path / "out").exists()


def test_another_encoding_and_a_missing_file_are_named(tmp_path):
    (tmp_path / "a.json").write_bytes('{"data": "ş"}'.encode("cp1254"))
    (tmp_path / "a.jsonl").write_bytes(
        '{"context": "Zoë, 1999", "question": "When?", "answer": "1999"}'.encode("latin-1")
    )
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
    plausible = {
        "is_impossible": True,
        "plausible_answers": [{"text": "1999", "answer_start": START}],
    }
    asked = [
        question("1", "When?", "1999", START) | {"is_impossible": False, "uit_id": "uit_1"},
        question("2", "Why?") | plausible,
        {"id": "3", "question": "Why?", "answers": None} | plausible,
        question("4", "Why?", "", 0) | plausible,
        {"id": "5", "question": "Why?"} | plausible,
    ]
    result = import_values(tmp_path, squad((TEXT, asked)))
    assert [(skip.name, skip.detail) for skip in result.skipped] == [
        (str(name), Cause.UNANSWERABLE) for name in range(2, 6)
    ]
    assert len(result.questions) == 1


@pytest.mark.parametrize(
    ("files", "language", "articles", "documents", "questions", "skipped"),
    [
        ("xquad.ar.json", "ara-Arab", 48, 240, 1_190, 0),
        ("covidqa.json", "eng-Latn", 0, 98, 1_380 - 234, 234),
        ("jaquad/dev/*.json", "jpn-Jpan", 101, 1_431, 3_939, 0),
        pytest.param("jaquad/*/*.json", "jpn-Jpan", 792, 11_144, 35_687, 0, marks=pytest.mark.slow),
    ],
)
def test_real_data_is_imported_in_full(
    squad_data, tmp_path, files, language, articles, documents, questions, skipped
):
    result = import_files(sorted(squad_data.glob(files)), tmp_path, language)
    assert (len(result.documents), len(result.questions), len(result.skipped)) == (
        documents,
        questions,
        skipped,
    )
    data = read_sports(tmp_path, language)
    assert (len(data.corpus), len(data.queries), len({*data.evidence.clusters})) == (
        documents,
        questions,
        articles,
    )


def test_the_title_is_the_cluster_of_an_articles_documents(tmp_path):
    def about(title, text, name):
        return title | {
            "paragraphs": [
                {"context": text, "qas": [question(name, f"{name}?", text.split()[0], 0)]}
            ]
        }

    texts = ("Bees hum. Bees sting.", "Cats sleep.", "Bees dance.", "Untitled.")
    titles = ({"title": "Bees"}, {"title": "Cats"}, {"title": "Bees"}, {})
    result = import_values(tmp_path, {"data": [*map(about, titles, texts, "1234")]})
    domain = read_sports(tmp_path / "out")
    assert (domain.evidence.clusters, len(result.titles)) == (("Bees", "Cats", "Bees", ""), 3)
    assert domain.corpus.column_names == domain.queries.column_names == ["id", "text"]
    columns = DocumentRanks.from_ranks(
        RelativePositions(), domain.evidence, np.ones(4, int)
    ).columns
    assert (len(np.unique(columns.documents)), len(np.unique(columns.clusters))) == (4, 3)


def test_repair_recovers_what_is_off_by_a_few_characters(squad_data, tmp_path):
    """The 234 answers of COVID-QA that are not where it says are found independently: the nearest
    equal text.
    """
    file = squad_data / "covidqa.json"
    result = import_files([file], tmp_path, repair=True)
    assert (len(result.documents), len(result.questions), len(result.skipped)) == (98, 1_380, 0)
    off = {}
    for paragraph in (
        paragraph
        for article in json.loads(file.read_text())["data"]
        for paragraph in article["paragraphs"]
    ):
        for qa in paragraph["qas"]:
            answer, context = qa["answers"][0], paragraph["context"]
            places = [
                match.start() for match in re.finditer(f"(?={re.escape(answer['text'])})", context)
            ]
            if answer["answer_start"] not in places:
                nearest = min(places, key=lambda place: abs(place - answer["answer_start"]))
                off[str(qa["id"])] = nearest - answer["answer_start"]
    assert Counter(off.values()) == {-1: 196, 3: 28, 2: 10}
    assert {
        question.name: span.start - answer.start for question, answer, span in result.repaired
    } == off
