"""Pieces of a text are located, even if they have been rewritten."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.text.locating import TextLocator, locate_chunks
from posir_tasks.text.spans import Span

TEXT = "First part.  First part.\n\nSecond\tpart, and the rest of it."


@pytest.mark.parametrize(
    ("text", "chunks", "spans"),
    [
        (TEXT, ["First part.", "First part.", "Second\tpart,"], [(0, 11), (13, 24), (26, 38)]),
        (TEXT, ["First part. First part. ", "Second part,\nand"], [(0, 24), (26, 42)]),
        ("abcabcabd", ["abcab", "abcab", "abd"], [(0, 5), (3, 8), (6, 9)]),
        ("one two three", ["one two three", "one", "two three"], [(0, 13), (0, 3), (4, 13)]),
        ("one two three", ["three", "stranger", "one"], [(8, 13), None, (0, 3)]),
    ],
)
def test_chunks_are_searched_after_the_previous_chunk_first(text, chunks, spans):
    assert locate_chunks(text, chunks) == spans


@given(st.text("ab \n", min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 9))
def test_spans_contain_their_chunks(text: str, size: int, step: int):
    chunks = [text[start : start + size] for start in range(0, len(text), min(size, step))]
    spans = locate_chunks(text, chunks)
    assert all(
        span and span.slice(text) == chunk for span, chunk in zip(spans, chunks, strict=True)
    )
    if step >= size:
        assert spans == [
            Span(start, min(start + size, len(text))) for start in range(0, len(text), size)
        ]


@pytest.mark.parametrize(
    ("piece", "start", "span"),
    [
        # The piece occurs twice. A start is used only if it matches.
        ("First part.", 13, (13, 24)),
        ("First part.", 5, (0, 11)),
        # Normalized white space; lower case and spaces as in decoded tokens.
        ("First part. Second part,", None, (13, 38)),
        ("second part , and the rest of it .", None, (26, 57)),
        # 31 of 33 letters and digits match; with 3 of 10 different, the piece is not located.
        ("first partt. second part and the rst of it", None, (13, 57)),
        ("Fjrsl tart.", None, None),
        ("", None, (0, 0)),
    ],
)
def test_matches_are_tried_from_exact_to_loose(piece, start, span):
    assert TextLocator(TEXT).locate(piece, start) == span


def test_decomposed_letters_are_located_in_the_original():
    text = "Die Straße nach Zürich, Ångström und ﬁne한국."
    locator = TextLocator(text)
    for piece in ("STRASSE NACH ZURICH", "strasse  nach zürich"):
        assert locator.locate(piece).slice(text) == "Straße nach Zürich"
    assert locator.locate(unicodedata.normalize("NFD", "한국")).slice(text) == "한국"
    assert locator.locate("angstrom UND").slice(text) == "Ångström und"


@given(
    st.lists(st.sampled_from(["Ab1", "ÇD,", "e f", "ß.", "漢字", "\n"]), min_size=3, max_size=12),
    st.data(),
)
def test_decoded_tokens_are_located_by_their_letters(words, data):
    text = "  ".join(words)
    start = data.draw(st.integers(0, len(text) - 1))
    piece = text[start : data.draw(st.integers(start + 1, len(text)))]
    decoded = " ".join(unicodedata.normalize("NFD", piece).casefold())
    letters = [index for index, character in enumerate(text) if character.isalnum()]
    span = TextLocator(text).locate(decoded)
    if any(map(str.isalnum, piece)):
        located_letters = [
            unicodedata.normalize("NFD", text[index]).casefold()
            for index in letters
            if index in range(*span)
        ]
        expected_letters = [
            unicodedata.normalize("NFD", character).casefold()
            for character in piece
            if character.isalnum()
        ]
        assert located_letters == expected_letters
