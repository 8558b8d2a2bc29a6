"""`posir import`: what it accepts and what it prints."""

import json

import pytest
from typer.testing import CliRunner

from posir_tasks.command.app import build_app
from tests.support.datasets import FILES, read_back, write_beir_folder

TEXT = "The bell was cast in copper. A heron 🐦 nested on the crane."
START = TEXT.index("heron")


def posir(command, *sources, output, **options):
    given = {"language": "eng-Latn", "domain": "sports", "output": output, **options}
    words = [word for name, value in given.items() for word in ([f"--{name}"] if value is True else [f"--{name}", str(value)])]
    return CliRunner().invoke(build_app(), [command, *map(str, sources), *words], catch_exceptions=False).stdout


@pytest.fixture
def lines(tmp_path):
    file = tmp_path / "a.jsonl"
    line = {"document": "d", "id": "q", "context": TEXT, "question": "Who?", "answer": "heron", "title": "A bell"}
    file.write_text(json.dumps(line))
    return file


def test_json_lines_and_beir_folders_become_the_same_domain(tmp_path, lines):
    corpus, queries = [{"_id": "d", "title": "A bell", "text": TEXT}], [{"_id": "q", "text": "Who?", "answer": "heron"}]
    beir = write_beir_folder(tmp_path / "beir", corpus, queries, [("q", "d", 1)])
    (beir / "qrels" / "test.tsv").rename(beir / "qrels" / "dev.tsv")
    printed = posir("import", lines, output=tmp_path / "lines")
    first, *titles = printed.splitlines()
    assert first == f"{tmp_path / 'lines/eng-Latn/sports'}: 1 document, 1 question"
    assert titles == ["titles: 1 document in 1 article; spans count in the texts alone"]
    printed = posir("import", beir, output=tmp_path / "beir_out", split="dev")
    assert printed.splitlines()[1:] == titles
    for name in FILES.values():
        first, second = ((tmp_path / folder / "eng-Latn/sports" / name).read_bytes() for folder in ("lines", "beir_out"))
        assert first == second
    assert read_back(tmp_path / "lines") == [("Who?", TEXT, "heron")]
    # Several sources are one domain.
    (tmp_path / "b.jsonl").write_text(json.dumps({"context": "Alone.", "question": "How?", "answer": "Alone"}))
    printed = posir("import", tmp_path / "b.jsonl", lines, output=tmp_path / "out")
    assert printed.splitlines()[0].endswith(": 2 documents, 2 questions")


def test_repaired_and_skipped_questions_are_listed_with_examples(tmp_path):
    asked = [{"id": row, "question": f"Q{row}?", "answers": [{"text": "heron", "answer_start": START - 1}]} for row in range(7)]
    asked += [{"id": "gone", "question": "Who?", "answers": [{"text": "stork", "answer_start": START}]}]
    asked += [{"id": name, "question": "Why?", "answers": [], "is_impossible": True} for name in ("no", "neither")]
    asked += [{"id": "right", "question": "What?", "answers": [{"text": "crane", "answer_start": TEXT.index("crane")}]}]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": TEXT, "qas": asked}]}]}))
    first, unanswered, heading, *skipped = posir("import", file, output=tmp_path / "as is", **{"no-repair": True}).splitlines()
    assert first.endswith(": 1 document, 1 question")
    assert (unanswered, heading) == ("without an answer: 2 questions, not imported", "skipped: 8 questions, first:")
    assert skipped[0].startswith(f"  {file}: question 0: its answer 'heron' is not at character {START - 1}; it is at {START}")
    assert [row.endswith("(and 6 more)") for row in skipped] == [True, False]
    first, *printed = posir("import", file, output=tmp_path / "repaired").splitlines()
    assert first.endswith(": 1 document, 8 questions")
    assert printed[0] == "repaired: 7 spans, moved by characters +1 (7); first:"
    assert printed[1] == f"  {file}: question 0: 'heron' from character {START - 1} to {START}"
    assert printed[6:8] == ["without an answer: 2 questions, not imported", "skipped: 1 question, first:"]
    assert printed[8].startswith(f"  {file}: question gone: its answer 'stork' is not at character {START} or anywhere else")
