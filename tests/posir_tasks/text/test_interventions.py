"""Interventions match manual string operations."""

from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.text.interventions import move_evidence, reverse_parts
from posir_tasks.text.spans import Span

WORDS = st.text(st.sampled_from("abcé.,漢字ไ"), min_size=1, max_size=6)
GAPS = st.sampled_from([" ", "  ", "\n", "\n\n"])


@st.composite
def documents(draw, max_words=40):
    """Generate a text and a nonempty span without surrounding white space."""
    words = draw(st.lists(WORDS, min_size=1, max_size=max_words))
    text = "".join(word + draw(GAPS) for word in words).strip()
    visible = [index for index, character in enumerate(text) if not character.isspace()]
    first, last = sorted((draw(st.sampled_from(visible)), draw(st.sampled_from(visible))))
    return text, Span(first, last + 1)


def sort_characters(text):
    return sorted("".join(text.split()))


@given(documents(), st.floats(0, 1))
def test_moving_evidence_preserves_all_characters(document, position):
    text, span = document
    evidence = text[slice(*span)]
    moved = move_evidence(text, span, position)
    assert evidence in moved
    assert sort_characters(moved) == sort_characters(text)
    assert move_evidence(text, span, 0).startswith(evidence)
    assert move_evidence(text, span, 1).endswith(evidence)


def test_evidence_is_moved_to_the_nearest_word_boundary():
    text, span = "one two three FOUR FIVE six seven", Span(14, 23)
    assert text[slice(*span)] == "FOUR FIVE"
    remaining = ["one", "two", "three", "six", "seven"]
    lengths = [0, 4, 8, 14, 18, 23]
    for step in range(10):
        target = step * 23 / 9
        nearest = min(range(6), key=lambda index: abs(lengths[index] - target))
        assert move_evidence(text, span, step / 9) == " ".join(
            [*remaining[:nearest], "FOUR FIVE", *remaining[nearest:]]
        )
    # No space is added in a script without spaces.
    assert move_evidence("漢字仮名交文", Span(1, 3), 1) == "漢名交文字仮"


@given(documents(), st.sampled_from([1, 3, 5, 7]))
def test_reversing_twice_restores_the_text(document, parts):
    text, _ = document
    reversed_text = reverse_parts(text, parts)
    assert reverse_parts(reversed_text, parts) == text
    assert sort_characters(reversed_text) == sort_characters(text)


def test_white_space_between_reversed_parts_is_preserved():
    assert reverse_parts("a b\nc d  e f\n\ng h i j", 5) == "i j g h\n\ne f  c d\na b"
