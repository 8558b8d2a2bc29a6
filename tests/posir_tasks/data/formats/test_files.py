"""SQuAD-format JSON and JSON Lines are read back unchanged; errors are named and leave no files."""

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


def build_question(name, text, answer=None, start=None):
    if answer is None:
        return {"id": name, "question": text, "answers": [], "is_impossible": True}
    return {"id": name, "question": text, "answers": [{"text": answer, "answer_start": start}]}


def build_row(**fields):
    return {"context": TEXT, "question": "When?"} | fields


def build_squad_file(*paragraphs):
    """Build SQuAD-format JSON with an article of (context, questions) pairs."""
    return {
        "data": [
            {
                "title": "T",
                "paragraphs": [
                    {"context": context, "qas": questions} for context, questions in paragraphs
                ],
            }
        ]
    }


def write_values(file, *values):
    """Write values as JSON, and texts unchanged, one per line."""
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
    return import_files([write_values(tmp_path / f"a{suffix}", *values)], tmp_path / "out")


def read_sports(root, language="eng-Latn"):
    return read_domain(LocalRepository(root), language, language, "sports")


def test_imported_data_is_read_back_with_its_spans(tmp_path):
    questions = [
        build_question("1", "When did she fly?", "1999", START),
        build_question("2", "When was she back?", "2001", TEXT.index("2001")),
    ]
    more_paragraphs = [
        ("Time flies.", [build_question("3", "What flies?", "Time", 0)]),
        ("Nobody asks.", []),
    ]
    result = import_values(tmp_path, build_squad_file((TEXT, questions), *more_paragraphs))
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


def test_repeated_contexts_and_questions_are_merged(tmp_path):
    first, other = (
        build_question("1", "When?", "1999", START),
        build_question("9", "Who flew?", "Zoë", 0),
    )
    files = [
        write_values(tmp_path / f"{row}.json", build_squad_file((TEXT, questions)))
        for row, questions in enumerate([[first], [first, other]])
    ]
    import_files(files, tmp_path / "out")
    assert read_back(tmp_path / "out") == [("When?", TEXT, "1999"), ("Who flew?", TEXT, "Zoë")]
    assert len(read_sports(tmp_path / "out").corpus) == 1


ROW = build_row()


def build_article(name, start):
    return {
        "paragraphs": [{"context": TEXT, "qas": [build_question(name, "When?", "1999", start)]}]
    }


#: Suffix and content of files in documented or published layouts.
LAYOUTS = {
    "answer_start is a text, no ids (TQuAD)": (
        ".json",
        {"data": [build_article(None, str(START))]},
    ),
    "numbers that pandas wrote": (".json", {"data": [build_article(7, float(START))]}),
    "articles without `data`": (".json", [build_article("7", START)]),
    "rows": (
        ".json",
        [
            ROW
            | {
                "id": "7",
                "title": "T",
                "answers": {"text": ["1999", "x"], "answer_start": [START, 0]},
            }
        ],
    ),
    "rows in `data`": (
        ".json",
        {"data": [ROW | {"id": "7", "answers": {"text": ["1999"], "answer_start": [START]}}]},
    ),
    "iapp_wiki_qa_squad": (
        ".json",
        [ROW | {"question_id": "abc", "answers": {"text": ["1999"], "answer_start": [START]}}],
    ),
    "several answers": (
        ".json",
        [ROW | {"answers": [{"text": "1999", "answer_start": START}, {"text": "2001"}]}],
    ),
    "one answer as an object": (
        ".json",
        [ROW | {"answers": {"text": "1999", "answer_start": START}}],
    ),
    "ParsiNLU": (".json", [ROW | {"url": "u", "answers": [[START, "1999"], [0, "x"]]}]),
    "ParsiNLU on the Hub": (
        ".json",
        [ROW | {"answers": {"answer_text": ["1999"], "answer_start": [START]}}],
    ),
    "start and end": (".jsonl", build_row(start=START, end=START + 4)),
    "answer and start": (".jsonl", build_row(start=START, answer="1999")),
    "all three": (".jsonl", build_row(start=START, end=START + 4, answer="1999")),
    "answer alone": (".jsonl", build_row(answer="1999")),
    "nulls for what is not given": (
        ".jsonl",
        build_row(answer="1999", start=None, end=None, id=None, document=None, title=None),
    ),
    "lines of ParsiNLU": (
        ".jsonl",
        {"passage": TEXT, "question": "When?", "answers": [[START, "1999"]]},
    ),
    "as datasets writes SQuAD": (
        ".jsonl",
        build_row(answers={"text": ["1999", "x"], "answer_start": [START, 0]}),
    ),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_answers_are_read_in_all_layouts(tmp_path, case):
    suffix, content = LAYOUTS[case]
    result = import_values(tmp_path, content, suffix=suffix)
    assert (read_back(tmp_path / "out"), result.skipped) == ([("When?", TEXT, "1999")], [])


def test_rows_per_line_are_read_despite_another_suffix(tmp_path):
    import_values(
        tmp_path,
        LAYOUTS["rows"][1][0],
        {"context": "Alone.", "question": "How?", "answer": "Alone"},
    )
    assert read_back(tmp_path / "out") == [("When?", TEXT, "1999"), ("How?", "Alone.", "Alone")]


def test_ids_titles_blank_lines_and_documents_without_questions(tmp_path):
    first, second = (
        build_row(id="q1", document="d1", answer="1999", title="Zoë"),
        build_row(id=2, document="d1", answer="2001"),
    )
    result = import_values(
        tmp_path, first, "", second, {"context": "Nobody asks.", "title": " "}, suffix=".jsonl"
    )
    assert list(result.documents.values()) == [TEXT, "Nobody asks."]
    assert next(iter(result.documents)) == "d1"
    assert result.titles == {"d1": "Zoë"}
    assert read_sports(tmp_path / "out").evidence.map_positives() == {"q1": "d1", "2": "d1"}


INTEGER = "must be an integer, not"
#: Suffix, question, and reason for skipping it.
UNUSABLE_QUESTIONS = {
    "no answer": (".json", build_question("bad", "Why?"), "has no answer"),
    "answer elsewhere": (
        ".json",
        build_question("bad", "When?", "1999", 0),
        "'1999' is not at character 0",
    ),
    "start is true": (
        ".json",
        build_question("bad", "When?", "oë", True),
        f"'answers.answer_start' {INTEGER} bool",
    ),
    "start is between": (
        ".json",
        build_question("bad", "When?", "1999", 1.5),
        f"'answers.answer_start' {INTEGER} float",
    ),
    "answer is half a character": (
        ".json",
        build_question("bad", "Who?", "\ud83d", 4),
        r"encode character '\ud83d' in position 0",
    ),
    "another layout": (
        ".json",
        {"id": "bad", "question": "?", "answers": {"text": ["Zoë"]}},
        "'answers.answer_start' is",
    ),
    "empty answer": (".json", build_question("bad", "When?", "", 3), "has no answer"),
    "blank question": (".json", build_question("bad", " ", "Zoë", 0), "its text is empty"),
    "several places": (
        ".jsonl",
        build_row(answer="in"),
        "its answer 'in' occurs 2 times in its document; add its start",
    ),
    "no question": (
        ".jsonl",
        {"context": TEXT, "answer": "1999"},
        "has an answer but no 'question'",
    ),
    "start is a text": (".jsonl", build_row(start="x", end=18), f"'start' {INTEGER} str"),
    "answer is a list": (
        ".jsonl",
        build_row(answer=["1999"]),
        "'answer' must be a string, not list",
    ),
    "answers of SQuAD's JSON": (
        ".jsonl",
        build_row(answers=[{"text": "1999"}]),
        "'answers.answer_start' is missing",
    ),
    "unanswerable": (
        ".jsonl",
        build_row(answers={"text": [], "answer_start": []}),
        "has no answer",
    ),
    "line with half a character": (
        ".jsonl",
        build_row(answer="\ud83d"),
        "'answer' is not valid: 'utf-8' codec",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE_QUESTIONS)
def test_unusable_questions_are_skipped_and_named(tmp_path, case):
    suffix, bad_question, reason = UNUSABLE_QUESTIONS[case]
    good_question = build_question("good", "Who?", "2001", TEXT.index("2001"))
    values = (
        [build_squad_file((TEXT, [good_question, bad_question]))]
        if suffix == ".json"
        else [build_row(answer="2001"), bad_question]
    )
    (skipped,) = import_values(tmp_path, *values, suffix=suffix).skipped
    assert (skipped.file, skipped.name) == (
        str(tmp_path / f"a{suffix}"),
        "bad" if suffix == ".json" else "line 2",
    )
    assert reason in skipped.detail
    assert [evidence for *_, evidence in read_back(tmp_path / "out")] == ["2001"]


def build_empty_article(**paragraph):
    return {"data": [{"paragraphs": [{"context": TEXT, "qas": []} | paragraph]}]}


def test_malformed_parts_do_not_invalidate_a_file(tmp_path):
    good_question = {
        "context": TEXT,
        "qas": [
            {"id": "a", "question": "When?", "answers": [{"text": "1999", "answer_start": START}]}
        ],
    }
    bad_question = {"qas": [{"id": "lost", "question": "Who?"}, {"id": "too", "question": "Who?"}]}
    questions = good_question | {
        "qas": [*good_question["qas"], {"id": 1.5, "question": "Who?"}, {"id": "b"}]
    }
    articles = [
        {"title": 3, "paragraphs": [bad_question]},
        {"paragraphs": [bad_question, questions]},
        None,
        {"paragraphs": [good_question]},
    ]
    result = import_values(tmp_path, {"data": articles}, suffix=".json")
    texts, questions = [
        [item for item in result.skipped if bool(item.cause) is kind] for kind in (False, True)
    ]
    assert [item.name.rpartition(": ")[2] for item in texts] == [
        "data[0]",
        "data[1].paragraphs[0]",
        "data[2]",
    ]
    assert all(item.reason == "malformed" and item.detail.startswith("'data[") for item in texts)
    # Questions in malformed paragraphs are counted.
    assert len([item for item in questions if "malformed" in item.detail]) == 4
    assert {item.name for item in questions if "malformed" not in item.detail} >= {
        "data[1].paragraphs[1].qas[1]",
        "data[1].paragraphs[1].qas[2]",
    }
    assert [evidence for *_, evidence in read_back(tmp_path / "out")] == ["1999"]


INVALID_JSON_LINE = (
    "line 2: is not readable JSON in UTF-8 (JSONDecodeError: Expecting property name"
)
#: Suffix, content (the second line of JSON Lines), and message after the file name.
INVALID_FILES = {
    "empty": (".json", "", "Expecting value"),
    "not JSON": (".json", "{'data': 1}", "Expecting property name"),
    "a list": (".json", [1], "its layout is not recognized"),
    "no data": (
        ".json",
        {"version": "2"},
        "its layout is not recognized",
    ),
    "data is null": (".json", {"data": None}, "its layout is not recognized"),
    "of ragas": (
        ".json",
        [{"question": "Who?", "contexts": ["Zoë."]}],
        "its layout is not recognized",
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
        build_empty_article(context="a \ud800"),
        "context' is not valid: 'utf-8' codec",
    ),
    "line is no JSON": (".jsonl", "{'context': 1}", INVALID_JSON_LINE),
    "line is a list": (".jsonl", [], "line 2: must be an object, not list"),
    "line without context": (
        ".jsonl",
        {"question": "Who?", "answer": "Zoë"},
        "line 2: 'context' is missing",
    ),
    "null character in an id": (
        ".jsonl",
        build_row(id="a\0b", answer="1999"),
        "line 2: 'id' is not valid: contains a null character",
    ),
}


@pytest.mark.parametrize("case", INVALID_FILES)
def test_errors_for_invalid_files_name_the_field(tmp_path, case):
    suffix, content, message = INVALID_FILES[case]
    first_rows = [build_row(answer="2001")] if suffix == ".jsonl" else []
    with pytest.raises(DataError) as error_info:
        import_values(tmp_path, *first_rows, content, suffix=suffix)
    assert str(error_info.value).startswith(f"{tmp_path / f'a{suffix}'}: ")
    assert message in str(error_info.value)
    assert suffix == ".jsonl" or "Expected: SQuAD-format JSON, data > paragraphs" in str(
        error_info.value
    )
    assert not (tmp_path / "out").exists()


def test_other_encodings_and_missing_files_are_named(tmp_path):
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


def test_unanswerable_questions_are_recognized(tmp_path):
    """UIT-ViQuAD 2.0: `plausible_answers`, and `answers` that are empty, null or blank."""
    plausible = {
        "is_impossible": True,
        "plausible_answers": [{"text": "1999", "answer_start": START}],
    }
    questions = [
        build_question("1", "When?", "1999", START) | {"is_impossible": False, "uit_id": "uit_1"},
        build_question("2", "Why?") | plausible,
        {"id": "3", "question": "Why?", "answers": None} | plausible,
        build_question("4", "Why?", "", 0) | plausible,
        {"id": "5", "question": "Why?"} | plausible,
    ]
    result = import_values(tmp_path, build_squad_file((TEXT, questions)))
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
def test_published_data_is_imported_completely(
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


def test_titles_cluster_documents(tmp_path):
    def build_titled_article(title, text, name):
        return title | {
            "paragraphs": [
                {"context": text, "qas": [build_question(name, f"{name}?", text.split()[0], 0)]}
            ]
        }

    texts = ("Bees hum. Bees sting.", "Cats sleep.", "Bees dance.", "Untitled.")
    titles = ({"title": "Bees"}, {"title": "Cats"}, {"title": "Bees"}, {})
    result = import_values(tmp_path, {"data": [*map(build_titled_article, titles, texts, "1234")]})
    domain = read_sports(tmp_path / "out")
    assert (domain.evidence.clusters, len(result.titles)) == (("Bees", "Cats", "Bees", ""), 3)
    assert domain.corpus.column_names == domain.queries.column_names == ["id", "text"]
    columns = DocumentRanks.from_ranks(
        RelativePositions(), domain.evidence, np.ones(4, int)
    ).columns
    assert (len(np.unique(columns.documents)), len(np.unique(columns.clusters))) == (4, 3)


def test_repair_recovers_answers_shifted_by_a_few_characters(squad_data, tmp_path):
    """The 234 misplaced answers of COVID-QA are located independently at the nearest equal text."""
    file = squad_data / "covidqa.json"
    result = import_files([file], tmp_path, repair=True)
    assert (len(result.documents), len(result.questions), len(result.skipped)) == (98, 1_380, 0)
    shifts = {}
    for paragraph in (
        paragraph
        for build_empty_article in json.loads(file.read_text())["data"]
        for paragraph in build_empty_article["paragraphs"]
    ):
        for qa in paragraph["qas"]:
            answer, context = qa["answers"][0], paragraph["context"]
            starts = [
                match.start() for match in re.finditer(f"(?={re.escape(answer['text'])})", context)
            ]
            if answer["answer_start"] not in starts:
                nearest = min(starts, key=lambda start_: abs(start_ - answer["answer_start"]))
                shifts[str(qa["id"])] = nearest - answer["answer_start"]
    assert Counter(shifts.values()) == {-1: 196, 3: 28, 2: 10}
    assert {
        build_question.name: span.start - answer.start
        for build_question, answer, span in result.repaired
    } == shifts
