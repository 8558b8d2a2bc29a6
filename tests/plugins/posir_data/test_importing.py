"""Tests for importing passages as a domain on disk."""

import errno
import os
import re

import polars as pl
import pytest

import posir
from posir_data.api import import_passages
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.formats.passages import (
    Answer,
    Cause,
    Passage,
    PassageQuestion,
    skip_question,
)
from posir_tasks.data.posir import Target
from tests.support.datasets import imported, read_back

TEXT = "Zoë 👩‍🚀 flew in 1999."
ANSWER = Answer("1999")


def make_question(text="When did she fly?", answer=ANSWER, name="1", **fields):
    return PassageQuestion("file", name, text, (answer,) if answer else (), **fields)


def make_passage(text=TEXT, *questions, **fields):
    return Passage("file", "line 1", text, questions, **fields)


def document_ids(folder):
    return pl.read_parquet(folder / "eng-Latn/sports/corpus.parquet")["_id"].to_list()


def test_ids_are_preserved_or_derived(tmp_path):
    derived = make_passage("Time flies.", make_question("What flies?", Answer("Time")))
    result = imported([make_passage(TEXT, make_question(id="mine"), id="d7"), derived], tmp_path)
    rows = pl.read_parquet(tmp_path / "eng-Latn/sports/qrels/test.parquet").rows()
    assert re.fullmatch(
        "mine d7 1 [0-9a-f]{32} sports_[0-9a-f]{16} 1",
        " ".join(str(value) for row in rows for value in row),
    )
    assert list(result.documents) == document_ids(tmp_path) == [document for _, document, _ in rows]


def test_document_ids_are_derived_from_question_ids(tmp_path):
    """Neither the order of passages nor the occurrence with the question matters."""
    passages = [
        make_passage(TEXT, make_question(), question_ids=["b", "c"]),
        make_passage("Time flies.", question_ids=["d"]),
        make_passage(TEXT, make_question("Who?", Answer("Zoë")), question_ids=["a"]),
        make_passage("Nobody asks."),
    ]
    for name, order in (("one", passages), ("other", passages[::-1])):
        imported(order, tmp_path / name)
    first, second = document_ids(tmp_path / "one"), document_ids(tmp_path / "other")
    assert first[:2] == ["sports_a", "sports_d"]
    assert sorted(first) == sorted(second)


def test_ids_of_two_texts_are_replaced(tmp_path):
    repeated = [
        make_passage(TEXT, make_question(), question_ids=["1", "2"]),
        make_passage("Time flies.", question_ids=["1"]),
    ]
    imported(repeated, tmp_path / "questions")
    assert all(
        re.fullmatch("sports_[0-9a-f]{16}", name) for name in document_ids(tmp_path / "questions")
    )
    imported(
        [
            make_passage(TEXT, make_question(), question_ids=["1"]),
            make_passage("Time flies.", id="sports_1"),
        ],
        tmp_path / "document",
    )
    assert len({*document_ids(tmp_path / "document")}) == 2


def test_only_tokens_of_relevant_documents_are_counted(tmp_path):
    counted = []
    passages, target = (
        [make_passage(TEXT, make_question()), make_passage("Nobody asks.")],
        Target("eng-Latn", "sports", tmp_path),
    )
    import_passages(passages, target, count_tokens=lambda text: counted.append(text) or 7)
    assert counted == [TEXT]
    assert pl.read_parquet(tmp_path / "eng-Latn/sports/queries.parquet")[
        "pos_token_length"
    ].to_list() == [7]


def test_exact_duplicates_of_questions_are_skipped(tmp_path):
    result = imported(
        [
            make_passage(TEXT, make_question(), make_question()),
            make_passage(TEXT, make_question(), make_question(name="2")),
        ],
        tmp_path,
    )
    assert len(result.documents) == 1
    assert [skip.detail for skip in result.skipped] == ["is an exact duplicate"] * 2
    assert len(read_back(tmp_path)) == len(result.questions) == 2


def test_blank_documents_are_kept_and_their_questions_are_skipped(tmp_path):
    result = imported(
        [
            make_passage(TEXT, make_question()),
            make_passage(" \n", make_question(name="2"), id="blank"),
        ],
        tmp_path,
    )
    assert [(skip.name, skip.detail) for skip in result.skipped] == [
        ("2", "its relevant document has no text")
    ]
    assert result.documents["blank"] == " \n"
    assert len(read_back(tmp_path)) == 1
    data = result.to_position_data("")
    assert (data.tolerated, len(data.warnings)) == ({"documents_without_text": 1}, 1)
    # Validation gives the same warning.
    validation = posir.validate(tmp_path)
    assert (validation.exit_status, len(validation.values["warnings"])) == (0, 1)


@pytest.mark.parametrize(
    ("passages", "message"),
    [
        (
            [make_passage(TEXT, make_question(), id="d"), make_passage("Other.", id="d")],
            "file: line 1: another document has the same id, 'd'",
        ),
        (
            [make_passage(" \n", make_question())],
            "file: question 1: its relevant document has no text",
        ),
        (
            [make_passage(TEXT, make_question(answer=Answer("2001")))],
            "nothing was written.\n  1 of 1: file: question 1: ",
        ),
        (
            [skip_question("file", "1", Cause.UNANSWERABLE)],
            "file: question 1: has no answer\nCorrect them",
        ),
        ([], "There is no question with a usable answer; nothing was written."),
    ],
)
def test_unusable_data_raises_and_nothing_is_written(tmp_path, passages, message):
    with pytest.raises(DataError, match=re.escape(message)):
        imported(passages, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_judgments_without_spans_raise_with_advice(tmp_path):
    with pytest.raises(
        DataError, match=r"`start` and `end` to BEIR's qrels.*`posir score RUN --data DATA`"
    ):
        imported([make_passage(TEXT, make_question(answer=None))], tmp_path / "out")


def test_duplicate_question_ids_are_derived_from_the_content(tmp_path, caplog):
    others = (
        make_question("Who?", Answer("Zoë"), id="q"),
        make_question("Whose?", Answer("Zoë"), id="r"),
    )
    imported([make_passage(TEXT, make_question(id="q"), *others)], tmp_path)
    ids = {*pl.read_parquet(tmp_path / "eng-Latn" / "sports" / "queries.parquet")["_id"]}
    assert (len(ids), ids & {"q", "r"}) == (3, {"r"})
    assert "first q" in caplog.text


def test_existing_domains_and_files_are_not_overwritten(tmp_path):
    folder = tmp_path / "eng-Latn" / "sports"
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("keep")
    with pytest.raises(PosirError, match=re.escape(f"{folder}: already exists")):
        imported([make_passage(TEXT, make_question())], tmp_path)
    assert [path.name for path in folder.rglob("*")] == ["mine.txt"]
    with pytest.raises(PosirError, match="cannot be written"):
        imported([make_passage(TEXT, make_question())], folder / "mine.txt")
    assert (folder / "mine.txt").read_text() == "keep"


NAMES = {
    "language": ["eng", "xxx-Latn", "../eng-Latn", ""],
    "domain": ["..", "a/b", "", "_x", "späße", "sports\n", "x" * 300],
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names]
)
def test_unknown_languages_and_malformed_domains_raise(tmp_path, kind, name):
    message = (
        f"language {name}: "
        if kind == "language"
        else "invalid domain. Give a folder name of at most 100 characters"
    )
    with pytest.raises(PosirError, match=re.escape(message)):
        imported([make_passage(TEXT, make_question())], tmp_path / "out", **{kind: name})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        pl.exceptions.ComputeError(
            "parquet: underlying IO error: No space left on device (os error 28)"
        ),
    ],
)
def test_a_full_disk_leaves_no_partial_import(tmp_path, monkeypatch, error):
    write = pl.DataFrame.write_parquet

    def fail_for_queries(frame, file):
        if file.name == "queries.parquet":
            raise error
        write(frame, file)

    monkeypatch.setattr(pl.DataFrame, "write_parquet", fail_for_queries)
    with pytest.raises(PosirError, match="No space left"):
        imported([make_passage(TEXT, make_question())], tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.name != "eng-Latn"] == []
    monkeypatch.undo()
    imported([make_passage(TEXT, make_question())], tmp_path)
    assert len(read_back(tmp_path)) == 1


def test_remains_of_a_killed_import_are_removed_after_a_day(tmp_path):
    old, new = (
        tmp_path / "eng-Latn" / f".sports.{name}.posir-part" for name in ("oldolder", "newnewer")
    )
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "corpus.parquet").write_bytes(b"PAR1")
    os.utime(old, (0, 0))
    imported([make_passage(TEXT, make_question())], tmp_path)
    assert {path.name for path in old.parent.iterdir()} == {"sports", new.name}
    assert len(read_back(tmp_path)) == 1


#: Characters whose length depends on how characters are counted: line ends, combining marks,
#: letters whose normal forms differ in length, characters with two UTF-16 units, joined emoji and
#: flags, right-to-left letters and marks, and all kinds of white space.
CHARACTERS = [
    *(
        "a",
        " ",
        "\n",
        "\r\n",
        "é",
        "e\u0301",
        "ﬁ",
        "\u212b",
        "ß",
        "İ",
        "क्षि",
        "ความ",
        "한",
        "\u1112\u1161\u11ab",
    ),
    *(
        "字",
        "漢\ufe00",
        "𠮷",
        "👩‍🚀",
        "👨‍👩‍👧‍👦",
        "🇫🇮",
        "❤️",
        "שלום",
        "العربيّة",
        "\u200f",
        "\u202e",
        "\u200b",
    ),
    *("\x00", "\x1c", "\ufeff", "\u2028"),
]


def test_spans_are_counted_in_code_points(tmp_path):
    """The loaded evidence equals Python's slices of the text in any script."""
    characters = [character for character in CHARACTERS if character.strip()]
    texts = [
        f"{' '.join(CHARACTERS)}|{row}{character} {character}x|{' '.join(CHARACTERS)}"
        for row, character in enumerate(characters)
    ]
    answers = [f"{row}{character} {character}x" for row, character in enumerate(characters)]
    starts = [text.index(f"|{answer}|") + 1 for text, answer in zip(texts, answers, strict=True)]
    questions = [
        make_question(f"{character}?", Answer(*answer))
        for character, *answer in zip(characters, answers, starts, strict=True)
    ]
    imported(
        [make_passage(text, question) for text, question in zip(texts, questions, strict=True)],
        tmp_path,
    )
    assert read_back(tmp_path) == list(
        zip([f"{character}?" for character in characters], texts, answers, strict=True)
    )
    spans = pl.read_parquet(tmp_path / "eng-Latn/sports/queries.parquet")["pos_char_span"].to_list()
    assert spans == [
        [start, start + len(answer)] for start, answer in zip(starts, answers, strict=True)
    ]
