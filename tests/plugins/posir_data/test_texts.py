"""Tests for sampling texts: all formats are read, and unusable texts are reported."""

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from posir_data.texts import are_distinct_languages, read_texts, sample_candidates
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.formats.passages import describe_skipped
from posir_tasks.datasets.opening import open_data

GOOD = "The ferry left the harbour at noon. Nobody on the quay saw where it went after that."
OTHER = (
    "A lamp burned in the upper window. It went out before the clock of the town hall struck nine."
)


def list_names(root: Path, **options) -> list[str]:
    return sorted(text.name for text in read_texts(str(root), **options).texts)


def test_tables_and_pages_are_read(tmp_path: Path):
    quoted = OTHER.replace(" ", "\n", 1)
    (tmp_path / "a.csv").write_text(f'id,title,text\nx,A,"{GOOD}"\n7,B,"{quoted}"\n9,C,\n')
    (tmp_path / "b.tsv").write_text(f"note\trank\n{GOOD[:60]} It came back. Twice, they say.\t1\n")
    (tmp_path / "c.csv").write_text(f"name;remark\nx;{GOOD}\n")
    (tmp_path / "ragged.csv").write_text("text,b\n1,2,3,4\n")
    page = (
        "<style>p "
        f"{{}}</style><script>x</script><h1>Ferry</h1><p>{GOOD[:40]}<b>{GOOD[40:]}</b></p><p>A "
        "&amp; B.</p>"
    )
    (tmp_path / "page.html").write_text(
        f"<html><head><title>T</title></head><body>{page}</body></html>"
    )
    collection = read_texts(str(tmp_path))
    texts = {text.name: text.text for text in collection.texts}
    assert texts == {
        "a.csv:x": GOOD,
        "a.csv:7": quoted,
        "b.tsv:row 1": f"{GOOD[:60]} It came back. Twice, they say.",
        "page.html": texts["page.html"],
    }
    assert texts["page.html"].split("\n") == ["Ferry", "", GOOD, "", "A & B."]
    skipped = [(skip.name, skip.file, skip.reason) for skip in collection.skipped]
    assert sorted(skipped) == [
        ("a.csv:3", "a.csv", "empty"),
        ("c.csv", "c.csv", "without a text column"),
        ("ragged.csv", "ragged.csv", "unreadable"),
    ]
    assert [text.text for text in read_texts(str(tmp_path / "c.csv"), column="remark").texts] == [
        GOOD
    ]


def test_pdf_files_are_read_if_pypdf_is_installed(tmp_path: Path, monkeypatch):
    stream = "".join(
        f"BT /F1 9 Tf 9 {90 - 20 * row} Td ({line}.) Tj ET "
        for row, line in enumerate(GOOD[:-1].split(". "))
    )
    objects = (
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 900 99]/Contents 4 0 R/Resources<</Font<</F1 5 0 "
        "R>>>>>>",
        f"<</Length {len(stream)}>>stream\n{stream}\nendstream",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )
    body = "".join(f"{row} 0 obj{content}endobj\n" for row, content in enumerate(objects, start=1))
    (tmp_path / "a.pdf").write_text(
        f"%PDF-1.4\n{body}trailer<</Root 1 0 R/Size 6>>\nstartxref\n0\n%%EOF"
    )
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.7\x00")
    collection = read_texts(str(tmp_path))
    assert [" ".join(text.text.split()) for text in collection.texts] == [GOOD]
    assert [(skip.name, skip.reason) for skip in collection.skipped] == [
        ("b.pdf", "unreadable as PDF")
    ]
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(
        PosirError, match=r"2 unreadable as PDF \(a.pdf: `pip install 'posir\[pdf\]'`, or convert"
    ):
        read_texts(str(tmp_path))


def test_dataset_cards_and_blobs_are_skipped(tmp_path: Path):
    snapshot = tmp_path / "datasets--o--n" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "README.md").write_text(f"---\nlicense: mit\n---\n{OTHER}")
    (snapshot / "story.txt").write_text(GOOD)
    (tmp_path / "datasets--o--n" / "blobs").mkdir()
    (tmp_path / "datasets--o--n" / "blobs" / "abc").write_text(OTHER)
    assert list_names(tmp_path / "datasets--o--n") == ["snapshots/0123/story.txt"]
    (snapshot / "README.md").write_text(OTHER)
    assert list_names(snapshot) == ["README.md", "story.txt"]
    (snapshot / "train.csv").write_text(f"text\n{OTHER}\n")
    assert list_names(snapshot) == ["story.txt", "train.csv:row 1"]


def test_unusable_texts_are_skipped_with_a_reason(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "good.md").write_text(GOOD)
    (tmp_path / "copy.txt").write_text(GOOD.replace(" ", "  "))
    (tmp_path / "empty.txt").touch()
    (tmp_path / "short.txt").write_text("Two words. And four more words.")
    (tmp_path / "one.txt").write_text(
        "One sentence of more than ten words is not enough to move anything within it."
    )
    (tmp_path / "binary.txt").write_bytes(b"\x00\x01\x02")
    (tmp_path / "latin.txt").write_bytes("Größe".encode("latin-1"))
    (tmp_path / "picture.png").write_bytes(b"PNG without zeros")
    (tmp_path / ".hidden.txt").write_text(GOOD)
    german = (
        " Der Kutter verließ den Hafen am Mittag. Niemand am Kai sah, wohin er danach gefahren ist."
    )
    (tmp_path / "mixed.txt").write_text(GOOD + german)
    (tmp_path / "rows.jsonl").write_text(
        f'{json.dumps({"text": OTHER})}\nno json\n{{"count": 1}}\n'
    )
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    collection = read_texts(str(tmp_path))
    reasons = {skip.name: skip.reason for skip in collection.skipped}
    copy = {"copy.txt", "deep/good.md"} & reasons.keys()
    assert len(copy) == 1
    assert reasons == {
        copy.pop(): "duplicate",
        "empty.txt": "empty",
        "short.txt": "with fewer than ten words",
        "one.txt": "with only one sentence",
        "binary.txt": "binary",
        "latin.txt": "not UTF-8",
        "picture.png": "of an unsupported type",
        "mixed.txt": "in mixed languages",
        "rows.jsonl:2": "not a JSON object",
        "rows.jsonl:3": "without a text column",
        "broken.parquet": "unreadable",
    }
    assert len(collection.texts) == 2
    assert collection.languages == {"en": 2}
    assert collection.total == len(reasons) + 2
    assert "1 in mixed languages (mixed.txt: en, then de)" in describe_skipped(collection.skipped)


def test_every_file_format_is_read(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes("\ufeff".encode() + GOOD.encode())
    (tmp_path / "b.txt").write_text(OTHER, encoding="utf-16")
    (tmp_path / "c.jsonl").write_text(
        json.dumps({"_id": "x", "title": "Fog", "text": f"Fog came in. {GOOD}"})
    )
    pl.DataFrame({"id": [7], "body": [f"Rain. {OTHER}"], "n": [1]}).write_parquet(
        tmp_path / "d.parquet"
    )
    assert list_names(tmp_path) == ["a.txt", "b.txt", "c.jsonl:x", "d.parquet:7"]
    assert list_names(tmp_path / "a.txt") == ["a.txt"]
    assert all("\ufeff" not in text.text for text in read_texts(str(tmp_path)).texts)


def test_ambiguous_text_columns_raise(tmp_path: Path):
    pl.DataFrame({"left": [GOOD], "right": [OTHER]}).write_parquet(tmp_path / "two.parquet")
    with pytest.raises(PosirError, match="it has left, right; choose one with --column"):
        read_texts(str(tmp_path))
    assert read_texts(str(tmp_path), column="right").texts[0].text == OTHER


def test_languages_that_the_detector_confuses_are_not_distinct():
    assert are_distinct_languages("en", "de")
    assert not are_distinct_languages("no", "da")
    assert not are_distinct_languages("en", "en")


def test_samples_are_uniform_and_reproducible():
    count, sample = sample_candidates(range(10_000), 500)
    assert count == 10_000
    assert sample == sample_candidates(iter(range(10_000)), 500)[1]
    assert len(set(sample)) == 500
    assert 4_500 < sum(sample) / 500 < 5_500
    assert sorted(sample_candidates("abc", 5)[1]) == ["a", "b", "c"]


@pytest.mark.parametrize("content", [b"garbage", b"", b"PAR1" + b"\0" * 300])
def test_an_unreadable_parquet_file_raises(tmp_path, content):
    (tmp_path / "damaged.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"damaged\.parquet: not a readable"):
        open_data(tmp_path / "damaged.parquet")
