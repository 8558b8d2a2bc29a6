"""Interventions: the span stays true, and texts are what string surgery by hand gives."""

from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.text.interventions import (
    NO_SPAN,
    insert_text,
    move_evidence,
    remove_text,
    reverse_parts,
)
from posir_tasks.text.spans import Span

WORDS = st.text(st.sampled_from("abcé.,漢字ไ"), min_size=1, max_size=6)
GAPS = st.sampled_from([" ", "  ", "\n", "\n\n"])


@st.composite
def documents(draw, most_words=40):
    """A text, and a non-empty span of it without white space at its ends."""
    words = draw(st.lists(WORDS, min_size=1, max_size=most_words))
    text = "".join(word + draw(GAPS) for word in words).strip()
    inked = [index for index, character in enumerate(text) if not character.isspace()]
    first, last = sorted((draw(st.sampled_from(inked)), draw(st.sampled_from(inked))))
    return text, Span(first, last + 1)


def squeezed(text):
    return sorted("".join(text.split()))


@given(documents(), st.floats(0, 1))
def test_moved_evidence_is_quoted_and_nothing_is_lost(document, position):
    text, span = document
    moved = move_evidence(text, span, position)
    assert moved.evidence == text[slice(*span)]
    assert squeezed(moved.text) == squeezed(text)
    assert move_evidence(text, span, 0).span[0] == 0
    end = move_evidence(text, span, 1)
    assert end.span[1] == len(end.text)


def test_moving_is_string_reconstruction_at_word_borders():
    text, span = "one two three FOUR FIVE six seven", Span(14, 23)
    assert text[slice(*span)] == "FOUR FIVE"
    rest = ["one", "two", "three", "six", "seven"]
    lengths = [0, 4, 8, 14, 18, 23]
    for i in range(10):
        at = i * 23 / 9
        nearest = min(range(6), key=lambda k: abs(lengths[k] - at))
        assert move_evidence(text, span, i / 9).text == " ".join(
            [*rest[:nearest], "FOUR FIVE", *rest[nearest:]]
        )
    # No space is added in a script without spaces.
    assert move_evidence("漢字仮名交文", Span(1, 3), 1).text == "漢名交文字仮"


@given(documents(), st.sampled_from([1, 3, 5, 7]))
def test_reversing_twice_is_identity(document, parts):
    text, span = document
    once = reverse_parts(text, span, parts)
    assert reverse_parts(*once, parts).text == text
    assert squeezed(once.text) == squeezed(text)
    assert once.evidence in text[slice(*span)]
    assert once.evidence


def test_five_parts_are_reversed_with_the_space_between_them():
    once = reverse_parts("a b\nc d  e f\n\ng h i j", Span(9, 10))
    assert once.text == "i j g h\n\ne f  c d\na b"
    assert once.evidence == "e"


def test_evidence_across_a_cut_is_the_piece_with_the_midpoint():
    text = "aa bb cc dd ee ff gg hh ii jj"
    once = reverse_parts(text, Span(3, 14))
    assert text[3:14] == "bb cc dd ee"
    assert once.evidence == "cc dd"


@given(documents(), documents(), st.data())
def test_insertion_keeps_the_evidence(document, other, data):
    text, span = document
    at = data.draw(st.integers(0, len(text)))
    inserted = insert_text(text, span, other[0], at)
    assert inserted.evidence == text[slice(*span)]
    assert len(inserted.text) == len(text) + len(other[0])
    assert insert_text("abcd", NO_SPAN, "XY", 2) == ("abXYcd", NO_SPAN)


@given(documents(), st.data())
def test_removal_leaves_what_is_left_of_the_evidence(document, data):
    text, (start, end) = document
    first, last = sorted(
        (data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text))))
    )
    left = remove_text(text, Span(start, end), Span(first, last))
    kept = [index for index in range(len(text)) if not first <= index < last]
    assert left.text == "".join(text[index] for index in kept)
    assert left.evidence == "".join(text[index] for index in kept if start <= index < end)
