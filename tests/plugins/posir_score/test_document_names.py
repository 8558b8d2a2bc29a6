"""Tests for matching documents by file name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_score.document_names import DocumentNames, FileName
from posir_tasks.base.errors import PosirError

CORPUS = ("guide.md", "sub/intro.txt", "other/intro.txt", "42", "report.v2", "Fuß note.html")


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("/srv/docs/guide.md", "guide.md"),
        ("guide", "guide.md"),
        (r"C:\docs\guide.md", "guide.md"),
        ("https://example.org/docs/guide.md?page=2", "guide.md"),
        ("https://example.org/docs/guide/", "guide.md"),
        ("s3://bucket/sub/intro.txt", "sub/intro.txt"),
        ("./other/intro.txt", "other/intro.txt"),
        ("/data/sub/intro", "sub/intro.txt"),
        ("https://example.org/articles/42", "42"),
        ("file:///docs/Fu%C3%9F%20note.html", "Fuß note.html"),
        ("Fuß note.pdf", "Fuß note.html"),
        # Chunks.
        ("/srv/docs/guide.md#3", "guide.md#3"),
        ("guide.md#3", "guide.md#3"),
        ("sub/intro#1#2", "sub/intro.txt#1#2"),
        # No match.
        ("report.v1", "report.v1"),
        ("report", "report"),
        ("introduction", "introduction"),
        ("", ""),
        ("/", "/"),
        ("#", "#"),
        ("http://[::1", "http://[::1"),
    ],
)
def test_file_names_match_documents(name: str, document: str):
    assert DocumentNames().translate(name, CORPUS, "#") == document


@pytest.mark.parametrize(
    "name",
    ["intro.txt", "intro", "/elsewhere/intro.txt", "https://example.org/intro.html", "intro#7"],
)
def test_ambiguous_names_raise(name: str):
    with pytest.raises(
        PosirError, match=r"sub/intro.txt and other/intro.txt|other/intro.txt and sub/intro.txt"
    ):
        DocumentNames().translate(name, CORPUS, "#")


def test_ids_of_the_data_are_not_matched_by_file_name():
    names = DocumentNames()
    assert names.translate("intro.txt", (*CORPUS, "intro.txt"), "#") == "intro.txt"
    assert (names.matches, names.describe()) == ({}, "")


def test_two_files_that_match_one_document_raise():
    names = DocumentNames()
    names.translate("new/guide.md", CORPUS, "#")
    # The same file by a longer path.
    names.translate("/srv/new/guide.md", CORPUS, "#")
    with pytest.raises(PosirError, match=r"new/guide.md and old/guide.md"):
        names.translate("old/guide.md", CORPUS, "#")


def test_matches_are_counted():
    names = DocumentNames()
    for name in ("/a/guide.md#1", "/a/guide.md#2", "x/42"):
        names.translate(name, CORPUS, "#")
    assert names.matches == {"/a/guide.md": "guide.md", "x/42": "42"}
    assert "2 documents" in names.describe()


@given(st.text())
def test_any_text_is_parsed(text: str):
    assert isinstance(FileName.parse(text), FileName)
    assert DocumentNames().translate(text, frozenset([text]), "#") == text
