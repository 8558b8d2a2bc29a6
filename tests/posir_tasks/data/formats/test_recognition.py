"""Errors for unknown formats name the content, the nearest format and invalid lines."""

import json
from pathlib import Path

import polars as pl
import pytest

from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.formats.catalog import FORMATS, describe_format, find_nearest_format
from posir_tasks.data.formats.question_rows import is_squad_json
from posir_tasks.data.posir import find_layout
from posir_tasks.datasets.opening import QRELS, open_data

JUDGED = [f"q{number} 0 d{number} 1" for number in range(30)]


def replace_line(index: int, line: str) -> list[str]:
    return [*JUDGED[:index], line, *JUDGED[index + 1 :]]


@pytest.mark.parametrize(
    ("name", "lines", "line"),
    [
        ("a.qrels", [f"q{number} 0 d{number}" for number in range(30)], 1),
        ("a.txt", [f"q{number} Q0 d{number}" for number in range(30)], 1),
        ("a.txt", replace_line(4, "q4 0 d4"), 5),
        ("a.txt", replace_line(25, "q4 0 d4 high"), 26),
        ("a", ["# judged in May", *JUDGED], 1),
        ("a.txt", ["# judged", "#", *JUDGED], 1),
        ("a.txt", [*JUDGED, "", "# the end"], 32),
        ("qrels.test", ["q,0,d,1"], 1),
        ("qrels.test", ["q 0 d 1 x"] * 5, 1),
    ],
)
def test_errors_name_the_invalid_line_of_qrels(tmp_path: Path, name, lines, line):
    (tmp_path / name).write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"{name}: line {line}: "):
        open_data(tmp_path / name)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_qrels_without_judgments_are_rejected(tmp_path: Path, content):
    (tmp_path / "a.qrels").write_text(content)
    with pytest.raises(DataError, match=r"a\.qrels: has no judgment"):
        open_data(tmp_path / "a.qrels")


def test_qrels_are_distinguished_from_texts(tmp_path: Path):
    (tmp_path / "a").write_text("\n".join(JUDGED))
    (tmp_path / "b.txt").write_text(
        "We saw 3 boats\nThey had 2 lamps\nEach was made of copper and rang at noon.\nAll day."
    )
    assert open_data(tmp_path / "a").kind == QRELS
    assert open_data(tmp_path / "b.txt").kind != QRELS


@pytest.mark.parametrize(
    "format_", [format_ for format_ in FORMATS if format_.fields], ids=lambda format_: format_.title
)
def test_the_nearest_format_of_its_own_fields_is_the_format(format_):
    for layout in format_.layouts:
        assert find_nearest_format(sorted(layout)) == format_


def test_other_fields_have_no_nearest_format():
    assert find_nearest_format(["foo", "bar"]) is None


def test_autorag_folders_are_distinguished_from_the_posir_layout(tmp_path: Path):
    corpus = {"doc_id": ["a"], "contents": ["A text."], "metadata": [""]}
    questions = {
        "qid": ["1"],
        "query": ["Who?"],
        "retrieval_gt": [[["a"]]],
        "generation_gt": [["x"]],
    }
    pl.DataFrame(corpus).write_parquet(tmp_path / "corpus.parquet")
    pl.DataFrame(questions).write_parquet(tmp_path / "qa.parquet")
    assert find_layout(tmp_path) is None
    message = describe_format(tmp_path)
    assert "corpus.parquet (nearest format: AutoRAG's corpus)" in message
    assert "qa.parquet (nearest format: AutoRAG's questions)" in message
    assert open_data(tmp_path).kind == "a folder of AutoRAG"
    # A domain with only a corpus still counts as the PosIR layout.
    pl.DataFrame({"_id": ["a"], "text": ["A text."]}).write_parquet(tmp_path / "corpus.parquet")
    assert find_layout(tmp_path) is not None


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "a.json",
            json.dumps([{"question": "Who?", "contexts": ["a"]}]),
            "format is a golden set of LlamaIndex or ragas; missing: ground_truth",
        ),
        ("a.json", '{"foo": 1}', "the fields foo"),
        ("a.tsv", "query-id\tcorpus-id\tscore\nq\td\t1\n", "the qrels of a BEIR folder"),
        ("run.trec", "q0 Q0 d0 1 0.5 tag\n", "Its first line is 'q0 Q0 d0 1 0.5 tag'"),
        ("a.csv", "doc_id,contents\n1,2\n", "AutoRAG's corpus"),
    ],
)
def test_errors_list_fields_and_the_nearest_format(tmp_path: Path, name, content, expected):
    (tmp_path / name).write_text(content)
    assert expected in describe_format(tmp_path / name)
    with pytest.raises(PosirError, match=expected):
        open_data(tmp_path / name).select_questions("posir score").subsets[0].read()


def test_errors_for_data_without_text_do_not_mention_the_language(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"foo": 1}\n')
    with pytest.raises(PosirError, match=r"has no text\. Skipped: 1 without a text column"):
        open_data(tmp_path / "a.jsonl").find_languages()


LONG = json.dumps("文" * 5_000, ensure_ascii=False)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"data": [{"title": LONG', True),
        ('{"context": LONG}', True),
        ('{"version": LONG, "data": []}', True),
        ('{"text": LONG}', False),
        ('\ufeff{"data": []}', True),
        ('{"text": "a"}\n{"data": []}', False),
        ("[LONG]", True),
        ("{", True),
        ("", True),
    ],
)
def test_squad_is_recognized_by_the_start_of_a_long_line(
    tmp_path: Path, content: str, expected: bool
):
    file = tmp_path / "a.json"
    file.write_text(content.replace("LONG", LONG))
    assert is_squad_json(file) is expected
