"""Chunks of consecutive tokens or sentences."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.errors import PosirError
from posir_tasks.text.chunks import Chunking, TextSplitter, locate_chunks, name_splitters
from posir_tasks.text.spans import Span


@pytest.mark.parametrize(
    ("units", "size", "stride", "chunks"),
    [
        (10, 4, 0, [(0, 4), (2, 6), (4, 8), (6, 10)]),
        (9, 4, 4, [(0, 4), (4, 8), (8, 9)]),
        (9, 4, 8, [(0, 4), (4, 8), (8, 9)]),
        (4, 4, 2, [(0, 4)]),
        (2, 1, 0, [(0, 1), (1, 2)]),
        (0, 4, 2, [(0, 0)]),
    ],
)
def test_chunks_cover_every_unit_and_end_with_the_text(units, size, stride, chunks):
    assert Chunking(size, stride).group(units) == chunks


def test_a_text_of_one_chunk_is_left_as_it_is():
    assert Chunking(2).divide(" one two ", [(1, 4), (5, 8)]) == [" one two "]
    assert Chunking(1).divide(" one two ", [(1, 4), (5, 8)]) == ["one", "two"]


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
def test_chunks_are_sought_where_the_last_one_ends_with_other_white_space_or_elsewhere(text, chunks, spans):
    assert locate_chunks(text, chunks) == spans


@given(st.text("ab \n", min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 9))
def test_each_located_chunk_is_the_text_of_its_span(text: str, size: int, step: int):
    chunks = [text[start : start + size] for start in range(0, len(text), min(size, step))]
    spans = locate_chunks(text, chunks)
    assert all(span and span.of(text) == chunk for span, chunk in zip(spans, chunks, strict=True))
    if step >= size:
        assert spans == [Span(start, min(start + size, len(text))) for start in range(0, len(text), size)]


@pytest.mark.parametrize(
    "split",
    [str.split, lambda text: iter(text.split()), lambda text: [SimpleNamespace(text=part) for part in text.split()]],
    ids=["list", "generator", "objects"],
)
def test_lists_generators_and_objects_with_a_text_are_chunks(split):
    divided = TextSplitter("split", split).divide("a b  a")
    assert divided.chunks == ("a", "b", "a")
    assert divided.spans == ((0, 1), (2, 3), (5, 6))
    # Blank chunks are left out.
    assert TextSplitter("lines", str.splitlines).divide("a\n\n \nb").chunks == ("a", "b")


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (lambda _: 1 / 0, "s: raised ZeroDivisionError: division by zero, for 'Some text.'."),
        (lambda text: text, "s: returned str; it must return a list of texts."),
        (lambda text: [text, 3], "s: item 1 of its list is int; it must be a text."),
        (lambda _: [" "], "s: returned no chunk, for 'Some text.'; every text needs at least one."),
        (lambda _: ["Other"], "s: none of its chunks is in the text that it was given, such as 'Other'. It must return parts"),
    ],
)
def test_a_bad_splitter_is_one_sentence(split, message: str):
    with pytest.raises(PosirError) as error:
        TextSplitter("s", split).divide_all(["Some text."])
    assert str(error.value).startswith(message)


def test_splitters_of_one_name_are_numbered():
    class Recursive:
        def split_text(self, text: str) -> list[str]:
            return [text]

        def __call__(self, text: str) -> list[str]:
            return [text]

    def split(text: str) -> list[str]:
        return [text]

    given = [split, split, split, Recursive().split_text, Recursive()]
    assert [splitter.name for splitter in name_splitters(given)] == ["split", "split#2", "split#3", "Recursive", "Recursive#2"]
    with pytest.raises(PosirError, match="chunkers: int cannot be called"):
        name_splitters([3])
