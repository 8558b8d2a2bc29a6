"""Interventions: texts are what string surgery by hand gives."""

from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.text.interventions import move_evidence, reverse_parts
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
    evidence = text[slice(*span)]
    moved = move_evidence(text, span, position)
    assert evidence in moved
    assert squeezed(moved) == squeezed(text)
    assert move_evidence(text, span, 0).startswith(evidence)
    assert move_evidence(text, span, 1).endswith(evidence)


def test_moving_is_string_reconstruction_at_word_borders():
    text, span = "one two three FOUR FIVE six seven", Span(14, 23)
    assert text[slice(*span)] == "FOUR FIVE"
    rest = ["one", "two", "three", "six", "seven"]
    lengths = [0, 4, 8, 14, 18, 23]
    for i in range(10):
        at = i * 23 / 9
        nearest = min(range(6), key=lambda k: abs(lengths[k] - at))
        assert move_evidence(text, span, i / 9) == " ".join(
            [*rest[:nearest], "FOUR FIVE", *rest[nearest:]]
        )
    # No space is added in a script without spaces.
    assert move_evidence("漢字仮名交文", Span(1, 3), 1) == "漢名交文字仮"


@given(documents(), st.sampled_from([1, 3, 5, 7]))
def test_reversing_twice_is_identity(document, parts):
    text, _ = document
    once = reverse_parts(text, parts)
    assert reverse_parts(once, parts) == text
    assert squeezed(once) == squeezed(text)


def test_five_parts_are_reversed_with_the_space_between_them():
    assert reverse_parts("a b\nc d  e f\n\ng h i j", 5) == "i j g h\n\ne f  c d\na b"
