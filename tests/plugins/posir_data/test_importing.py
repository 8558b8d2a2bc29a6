"""From what a reader yields to a domain on disk: complete or not at all, and nothing guessed."""

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
FLEW = Answer("1999")


def asked(text="When did she fly?", answer=FLEW, name="1", **known):
    return PassageQuestion("file", name, text, (answer,) if answer else (), **known)


def passage(text=TEXT, *questions, **known):
    return Passage("file", "line 1", text, questions, **known)


def document_ids(folder):
    return pl.read_parquet(folder / "eng-Latn/sports/corpus.parquet")["_id"].to_list()


def test_ids_are_preserved_and_missing_ones_derived(tmp_path):
    derived = passage("Time flies.", asked("What flies?", Answer("Time")))
    result = imported([passage(TEXT, asked(id="mine"), id="d7"), derived], tmp_path)
    rows = pl.read_parquet(tmp_path / "eng-Latn/sports/qrels/test.parquet").rows()
    assert re.fullmatch(
        "mine d7 1 [0-9a-f]{32} sports_[0-9a-f]{16} 1",
        " ".join(str(value) for row in rows for value in row),
    )
    assert list(result.documents) == document_ids(tmp_path) == [document for _, document, _ in rows]


def test_a_document_is_known_by_the_ids_of_its_questions(tmp_path):
    """Whatever their order, and in whichever of its occurrences they are."""
    passages = [
        passage(TEXT, asked(), question_ids=["b", "c"]),
        passage("Time flies.", question_ids=["d"]),
        passage(TEXT, asked("Who?", Answer("Zoë")), question_ids=["a"]),
        passage("Nobody asks."),
    ]
    for name, order in (("one", passages), ("other", passages[::-1])):
        imported(order, tmp_path / name)
    first, second = document_ids(tmp_path / "one"), document_ids(tmp_path / "other")
    assert first[:2] == ["sports_a", "sports_d"]
    assert sorted(first) == sorted(second)


def test_an_id_of_two_texts_identifies_neither(tmp_path):
    repeated = [
        passage(TEXT, asked(), question_ids=["1", "2"]),
        passage("Time flies.", question_ids=["1"]),
    ]
    imported(repeated, tmp_path / "questions")
    assert all(
        re.fullmatch("sports_[0-9a-f]{16}", name) for name in document_ids(tmp_path / "questions")
    )
    imported(
        [passage(TEXT, asked(), question_ids=["1"]), passage("Time flies.", id="sports_1")],
        tmp_path / "document",
    )
    assert len({*document_ids(tmp_path / "document")}) == 2


def test_only_relevant_documents_are_counted_in_tokens(tmp_path):
    counted = []
    passages, target = (
        [passage(TEXT, asked()), passage("Nobody asks.")],
        Target("eng-Latn", "sports", tmp_path),
    )
    import_passages(passages, target, count_tokens=lambda text: counted.append(text) or 7)
    assert counted == [TEXT]
    assert pl.read_parquet(tmp_path / "eng-Latn/sports/queries.parquet")[
        "pos_token_length"
    ].to_list() == [7]


def test_an_exact_duplicate_of_a_question_is_skipped(tmp_path):
    result = imported(
        [passage(TEXT, asked(), asked()), passage(TEXT, asked(), asked(name="2"))], tmp_path
    )
    assert len(result.documents) == 1
    assert [skip.detail for skip in result.skipped] == ["is an exact duplicate"] * 2
    assert len(read_back(tmp_path)) == len(result.questions) == 2


def test_a_blank_document_stays_and_its_questions_are_left_out(tmp_path):
    result = imported(
        [passage(TEXT, asked()), passage(" \n", asked(name="2"), id="blank")], tmp_path
    )
    assert [(skip.name, skip.detail) for skip in result.skipped] == [
        ("2", "its relevant document has no text")
    ]
    assert result.documents["blank"] == " \n"
    assert len(read_back(tmp_path)) == 1
    data = result.to_position_data("")
    assert (data.tolerated, len(data.warnings)) == ({"documents_without_text": 1}, 1)
    # The check of data agrees with what reads it.
    checked = posir.validate(tmp_path)
    assert (checked.exit_status, len(checked.values["warnings"])) == (0, 1)


@pytest.mark.parametrize(
    ("passages", "message"),
    [
        (
            [passage(TEXT, asked(), id="d"), passage("Other.", id="d")],
            "file: line 1: another document has the same id, 'd'",
        ),
        ([passage(" \n", asked())], "file: question 1: its relevant document has no text"),
        (
            [passage(TEXT, asked(answer=Answer("2001")))],
            "nothing was written.\n  1 of 1: file: question 1: ",
        ),
        (
            [skip_question("file", "1", Cause.UNANSWERABLE)],
            "file: question 1: has no answer\nCorrect them",
        ),
        ([], "There is no question with a usable answer; nothing was written."),
    ],
)
def test_unusable_data_is_refused_and_nothing_written(tmp_path, passages, message):
    with pytest.raises(DataError, match=re.escape(message)):
        imported(passages, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_judgments_alone_are_refused_with_how_spans_are_added(tmp_path):
    with pytest.raises(
        DataError, match=r"`start` and `end` to BEIR's qrels.*`posir score RUN --data DATA`"
    ):
        imported([passage(TEXT, asked(answer=None))], tmp_path / "out")


def test_an_id_of_several_questions_is_made_from_their_content(tmp_path, caplog):
    others = (
        asked("Who?", Answer("Zoë"), id="q"),
        asked("Whose?", Answer("Zoë"), id="r"),
    )
    imported([passage(TEXT, asked(id="q"), *others)], tmp_path)
    ids = {*pl.read_parquet(tmp_path / "eng-Latn" / "sports" / "queries.parquet")["_id"]}
    assert (len(ids), ids & {"q", "r"}) == (3, {"r"})
    assert "first q" in caplog.text


def test_an_existing_domain_or_file_is_refused_and_untouched(tmp_path):
    folder = tmp_path / "eng-Latn" / "sports"
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("keep")
    with pytest.raises(PosirError, match=re.escape(f"{folder}: already exists")):
        imported([passage(TEXT, asked())], tmp_path)
    assert [path.name for path in folder.rglob("*")] == ["mine.txt"]
    with pytest.raises(PosirError, match="cannot be written"):
        imported([passage(TEXT, asked())], folder / "mine.txt")
    assert (folder / "mine.txt").read_text() == "keep"


NAMES = {
    "language": ["eng", "xxx-Latn", "../eng-Latn", ""],
    "domain": ["..", "a/b", "", "_x", "späße", "sports\n", "x" * 300],
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names]
)
def test_an_unknown_language_or_a_malformed_domain_is_refused(tmp_path, kind, name):
    message = (
        f"language {name}: "
        if kind == "language"
        else "invalid domain. Give a folder name of at most 100 characters"
    )
    with pytest.raises(PosirError, match=re.escape(message)):
        imported([passage(TEXT, asked())], tmp_path / "out", **{kind: name})
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
def test_a_disk_that_fails_half_way_leaves_nothing_behind(tmp_path, monkeypatch, error):
    write = pl.DataFrame.write_parquet

    def fails_at_the_second(frame, file):
        if file.name == "queries.parquet":
            raise error
        write(frame, file)

    monkeypatch.setattr(pl.DataFrame, "write_parquet", fails_at_the_second)
    with pytest.raises(PosirError, match="No space left"):
        imported([passage(TEXT, asked())], tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.name != "eng-Latn"] == []
    monkeypatch.undo()
    imported([passage(TEXT, asked())], tmp_path)
    assert len(read_back(tmp_path)) == 1


def test_the_rest_of_a_killed_import_is_removed_after_a_day(tmp_path):
    old, new = (
        tmp_path / "eng-Latn" / f".sports.{name}.posir-part" for name in ("oldolder", "newnewer")
    )
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "corpus.parquet").write_bytes(b"PAR1")
    os.utime(old, (0, 0))
    imported([passage(TEXT, asked())], tmp_path)
    assert {path.name for path in old.parent.iterdir()} == {"sports", new.name}
    assert len(read_back(tmp_path)) == 1


#: Characters that other ways of counting count otherwise: line ends, combining marks, letters whose
#: normal forms differ in length, characters of two UTF-16 units, emoji joined and in flags,
#: right-to-left letters and marks, white space of all sorts.
PIECES = [
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


def test_spans_count_code_points_from_import_to_evidence(tmp_path):
    """What Python's own slices of the text are, in any script, is what the loader's evidence
    marks.
    """
    pieces = [piece for piece in PIECES if piece.strip()]
    texts = [
        f"{' '.join(PIECES)}|{row}{piece} {piece}x|{' '.join(PIECES)}"
        for row, piece in enumerate(pieces)
    ]
    answers = [f"{row}{piece} {piece}x" for row, piece in enumerate(pieces)]
    starts = [text.index(f"|{answer}|") + 1 for text, answer in zip(texts, answers, strict=True)]
    stated = [
        asked(f"{piece}?", Answer(*answer))
        for piece, *answer in zip(pieces, answers, starts, strict=True)
    ]
    imported(
        [passage(text, question) for text, question in zip(texts, stated, strict=True)], tmp_path
    )
    assert read_back(tmp_path) == list(
        zip([f"{piece}?" for piece in pieces], texts, answers, strict=True)
    )
    spans = pl.read_parquet(tmp_path / "eng-Latn/sports/queries.parquet")["pos_char_span"].to_list()
    assert spans == [
        [start, start + len(answer)] for start, answer in zip(starts, answers, strict=True)
    ]
