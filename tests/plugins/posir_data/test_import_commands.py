"""Tests for the input and output of `posir import`."""

import json

import pytest

from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.formats.passages import Cause
from tests.support.cli import call_posir
from tests.support.datasets import FILES, read_back, write_beir_folder

TEXT = "The bell was cast in copper. A heron 🐦 nested on the crane."
START = TEXT.index("heron")


def posir(command, *sources, output, **options):
    options = {"language": "eng-Latn", "domain": "sports", "output": output, **options}
    arguments = [
        argument
        for name, value in options.items()
        for argument in ([f"--{name}"] if value is True else [f"--{name}", str(value)])
    ]
    return call_posir([command, *map(str, sources), *arguments], catch_exceptions=False).stdout


@pytest.fixture
def lines(tmp_path):
    file = tmp_path / "a.jsonl"
    line = {
        "document": "d",
        "id": "q",
        "context": TEXT,
        "question": "Who?",
        "answer": "heron",
        "title": "A bell",
    }
    file.write_text(json.dumps(line))
    return file


def test_json_lines_and_beir_folders_are_imported_alike(tmp_path, lines):
    corpus, queries = (
        [{"_id": "d", "title": "A bell", "text": TEXT}],
        [{"_id": "q", "text": "Who?", "answer": "heron"}],
    )
    beir = write_beir_folder(tmp_path / "beir", corpus, queries, [("q", "d", 1)])
    (beir / "qrels" / "test.tsv").rename(beir / "qrels" / "dev.tsv")
    printed = posir("import", lines, output=tmp_path / "lines")
    first, *titles = printed.splitlines()
    assert first == f"{tmp_path / 'lines/eng-Latn/sports'}: 1 document, 1 question"
    assert titles == ["titles: 1 document in 1 article; spans refer to the texts only"]
    printed = posir("import", beir, output=tmp_path / "beir_out", split="dev")
    assert printed.splitlines()[1:] == titles
    for name in FILES.values():
        first, second = (
            (tmp_path / folder / "eng-Latn/sports" / name).read_bytes()
            for folder in ("lines", "beir_out")
        )
        assert first == second
    assert read_back(tmp_path / "lines") == [("Who?", TEXT, "heron")]
    # Several sources are imported as one domain.
    (tmp_path / "b.jsonl").write_text(
        json.dumps({"context": "Alone.", "question": "How?", "answer": "Alone"})
    )
    printed = posir("import", tmp_path / "b.jsonl", lines, output=tmp_path / "out")
    assert printed.splitlines()[0].endswith(": 2 documents, 2 questions")


def test_repaired_and_skipped_questions_are_listed_with_examples(tmp_path):
    questions = [
        {
            "id": row,
            "question": f"Q{row}?",
            "answers": [{"text": "heron", "answer_start": START - 1}],
        }
        for row in range(7)
    ]
    questions += [
        {"id": "gone", "question": "Who?", "answers": [{"text": "stork", "answer_start": START}]}
    ]
    questions += [
        {"id": name, "question": "Why?", "answers": [], "is_impossible": True}
        for name in ("no", "neither")
    ]
    questions += [
        {
            "id": "right",
            "question": "What?",
            "answers": [{"text": "crane", "answer_start": TEXT.index("crane")}],
        }
    ]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": TEXT, "qas": questions}]}]}))
    no_repair = {"no-repair": True}
    with pytest.raises(DataError, match="8 of 9 questions would be skipped"):
        posir("import", file, output=tmp_path / "as is", **no_repair)
    assert not (tmp_path / "as is").exists()
    printed = posir("import", file, output=tmp_path / "as is", **no_repair, **{"allow-loss": True})
    first, unanswered, heading, *skipped = printed.splitlines()
    assert first.endswith(": 1 document, 1 question")
    assert (unanswered, heading) == (
        "without an answer: 2 questions, not imported",
        "skipped: 8 of 9 questions:",
    )
    assert [row.partition(":")[0] for row in skipped] == ["  8 of 9"]
    assert f"first: {file}: question 0: its answer 'heron' is not at character" in skipped[0]
    first, *printed = posir("import", file, output=tmp_path / "repaired").splitlines()
    assert first.endswith(": 1 document, 8 questions")
    assert printed[0] == "repaired: 7 spans, moved by characters +1 (7); first:"
    assert printed[1] == f"  {file}: question 0: 'heron' from character {START - 1} to {START}"
    assert printed[6:8] == [
        "without an answer: 2 questions, not imported",
        "skipped: 1 of 9 questions:",
    ]
    assert printed[8].startswith(
        f"  1 of 9: {file}: question gone: its answer 'stork' is not at character {START} or "
        "anywhere else"
    )


@pytest.mark.parametrize("lost", [2, 3])
def test_skipping_more_than_a_fifth_of_the_questions_raises(tmp_path, lost):
    """Different answers that are not found have one cause. Questions without an answer do not
    count.
    """
    answers = [f"stork {number}" for number in range(lost)] + ["heron"] * (10 - lost)
    questions = [
        {
            "id": f"q{number}",
            "question": f"Who {number}?",
            "answers": [{"text": text, "answer_start": START}],
        }
        for number, text in enumerate(answers)
    ]
    questions += [
        {"id": f"none{number}", "question": "Why?", "answers": [], "is_impossible": True}
        for number in range(9)
    ]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": TEXT, "qas": questions}]}]}))
    cause = f"{lost} of 10: {Cause.ELSEWHERE}; first: "
    if lost > 2:
        with pytest.raises(DataError, match=cause):
            posir("import", file, output=tmp_path / "out")
        assert not (tmp_path / "out").exists()
    options = {"allow-loss": True} if lost > 2 else {}
    assert cause in posir("import", file, output=tmp_path / "out", **options)


@pytest.mark.parametrize("unknown", [False, True])
def test_queries_of_another_split_do_not_count_as_skipped(tmp_path, unknown):
    queries = [
        {"_id": f"q{number}", "text": f"Who {number}?", "answer": "heron"} for number in range(10)
    ]
    judged = [(f"q{number}", "gone" if unknown and number else "d", 1) for number in range(3)]
    folder = write_beir_folder(tmp_path / "beir", [{"_id": "d", "text": TEXT}], queries, judged)
    if unknown:
        with pytest.raises(DataError, match="2 of 3 questions would be skipped"):
            posir("import", folder, output=tmp_path / "out")
        return
    printed = posir("import", folder, output=tmp_path / "out").splitlines()
    assert printed[0].endswith(": 1 document, 3 questions")
    assert printed[1] == "excluded by the rules of the data: 7 questions:"
    assert printed[2].startswith(f"  7 of 10: {Cause.NOT_RELEVANT}; first: ")


def test_judgments_or_texts_without_questions_raise(tmp_path):
    (tmp_path / "a.qrels").write_text("q 0 d 1\n")
    (tmp_path / "a.csv").write_text("doc_id,contents\n1,A text.\n")
    pairs = {"queries": {"q": "Who?"}, "corpus": {"c": TEXT}, "relevant_docs": {"q": ["c"]}}
    (tmp_path / "a.json").write_text(json.dumps(pairs))
    for name, message in (
        ("a.qrels", "has judgments but no texts"),
        ("a.csv", "AutoRAG's corpus"),
        ("a.json", r"judgments without evidence spans.*posir score RUN --data .*a\.json`"),
    ):
        with pytest.raises(PosirError, match=message):
            posir("import", tmp_path / name, output=tmp_path / "out")
