"""Chunks of consecutive tokens or sentences."""

from types import SimpleNamespace

import pytest

from posir_tasks.base.errors import PosirError
from posir_tasks.text.chunks import Chunking, TextSplitter, name_splitters


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


def test_a_single_chunk_is_the_unchanged_text():
    assert Chunking(2).split_text(" one two ", [(1, 4), (5, 8)]) == [" one two "]
    assert Chunking(1).split_text(" one two ", [(1, 4), (5, 8)]) == ["one", "two"]


@pytest.mark.parametrize(
    "split",
    [
        str.split,
        lambda text: iter(text.split()),
        lambda text: [SimpleNamespace(text=part) for part in text.split()],
    ],
    ids=["list", "generator", "objects"],
)
def test_splitters_may_return_lists_generators_or_objects(split):
    chunked = TextSplitter("split", split).split_text("a b  a")
    assert chunked.chunks == ("a", "b", "a")
    assert chunked.spans == ((0, 1), (2, 3), (5, 6))
    # Blank chunks are omitted.
    assert TextSplitter("lines", str.splitlines).split_text("a\n\n \nb").chunks == ("a", "b")


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (lambda _: 1 / 0, "s: raised ZeroDivisionError: division by zero, for 'Some text.'."),
        (lambda text: text, "s: returned str; it must return a list of texts."),
        (lambda text: [text, 3], "s: returned int; it must return a list of texts."),
        (lambda _: [" "], "s: returned no chunk for 'Some text.'. Every text needs at least one."),
        (
            lambda _: ["Other"],
            "s: no chunk occurs in its text, for example 'Other'. Return parts of the text",
        ),
    ],
)
def test_splitter_errors_are_one_sentence(split, message: str):
    with pytest.raises(PosirError) as error:
        TextSplitter("s", split).split_texts(["Some text."])
    assert str(error.value).startswith(message)


def test_splitters_with_the_same_name_are_numbered():
    class Recursive:
        def split_text(self, text: str) -> list[str]:
            return [text]

        def __call__(self, text: str) -> list[str]:
            return [text]

    def split(text: str) -> list[str]:
        return [text]

    splitters = [split, split, split, Recursive().split_text, Recursive()]
    assert [splitter.name for splitter in name_splitters(splitters)] == [
        "split",
        "split#2",
        "split#3",
        "Recursive",
        "Recursive#2",
    ]
    with pytest.raises(PosirError, match="chunkers: int is not callable"):
        name_splitters([3])
