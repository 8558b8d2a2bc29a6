"""Windows: validation, pooling and JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.base.errors import ProfileError
from posir_tasks.values.read_part import UNKNOWN, Part, ReadKind, ReadPart, WindowSource

known = st.sampled_from(WindowSource)
tokens = st.integers(2, 10**6)
parts = st.one_of(
    st.just(UNKNOWN),
    st.builds(ReadPart.all, known),
    st.builds(
        ReadPart,
        st.just(ReadKind.PART),
        st.sampled_from([Part.FIRST, Part.LAST, Part.SAMPLES]),
        tokens,
        st.none(),
        known,
    ),
    st.builds(
        lambda number, share, by: ReadPart(
            ReadKind.PART, Part.ENDS, number, 1 + int(share * (number - 2)), by
        ),
        tokens,
        st.floats(0, 1),
        known,
    ),
)


@given(parts, known)
def test_round_trip_and_addition(part: ReadPart, by: WindowSource) -> None:
    assert ReadPart.from_json(part.to_json()) == part
    assert part + part == part
    assert part + UNKNOWN == UNKNOWN + part == UNKNOWN
    if part != UNKNOWN:
        other = ReadPart(part.kind, part.part, part.tokens, part.tokens_at_start, by)
        assert (part + other).known_by == max(part.known_by or by, by, key=list(WindowSource).index)


@given(st.integers(1, 10**6), st.integers(1, 10**6), known)
def test_a_minimum_becomes_a_full_window_if_the_longest_text_fits(
    tokens: int, longest: int, by: WindowSource
) -> None:
    part, other = ReadPart.at_least(tokens), ReadPart.at_least(longest)
    assert ReadPart.from_json(part.to_json()) == part
    assert part.to_json() == {"kind": "unknown", "least_tokens": tokens}
    assert part.resolve(longest) == (
        ReadPart.all(WindowSource.MEASURED) if longest <= tokens else part
    )
    assert part + other == other + part == ReadPart.at_least(min(tokens, longest))
    assert part + ReadPart.all(by) == ReadPart.all(by) + part == part
    assert (
        part + UNKNOWN
        == part + ReadPart.first(tokens, by)
        == ReadPart.first(tokens, by) + part
        == UNKNOWN
    )
    assert UNKNOWN.resolve(0) == UNKNOWN


def test_different_windows_cannot_be_added() -> None:
    with pytest.raises(ProfileError, match="first 256 tokens"):
        ReadPart.first(256, WindowSource.CLASS) + ReadPart.first(512, WindowSource.CLASS)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"kind": "some"},
        {"kind": "all"},
        {"kind": "unknown", "known_by": "class"},
        {"kind": "all", "known_by": "class", "tokens": 3},
        {"kind": "part", "part": "first", "known_by": "given"},
        {"kind": "part", "part": "first", "tokens": 0, "known_by": "given"},
        {"kind": "part", "part": "first", "tokens": True, "known_by": "given"},
        {"kind": "part", "part": "ends", "tokens": 9, "known_by": "given"},
        {"kind": "part", "part": "ends", "tokens": 9, "tokens_at_start": 9, "known_by": "given"},
        {"kind": "part", "part": "last", "tokens": 9, "tokens_at_start": 3, "known_by": "given"},
        {"kind": ["all"]},
        {"kind": "unknown", "least_tokens": 0},
        {"kind": "unknown", "least_tokens": True},
        {"kind": "unknown", "least_tokens": 1.5},
        {"kind": "all", "known_by": "measured", "least_tokens": 9},
        {"kind": "part", "part": "first", "tokens": 9, "known_by": "measured", "least_tokens": 9},
    ],
)
def test_damaged_json_is_rejected(data: dict[str, object]) -> None:
    with pytest.raises(ProfileError, match="read"):
        ReadPart.from_json(data)


def test_phrases_and_tokens_at_the_end() -> None:
    ends = ReadPart(ReadKind.PART, Part.ENDS, 512, 128, WindowSource.MEASURED)
    assert (ends.tokens_at_end, ends.phrase) == (384, "the first 128 and the last 384 tokens")
    last = ReadPart(ReadKind.PART, Part.LAST, 256, None, WindowSource.CLAIMED)
    assert (last.tokens_at_end, last.phrase) == (256, "the last 256 tokens")
    assert ReadPart.first(1, WindowSource.GIVEN).phrase == "the first 1 token"
    assert ReadPart.all(WindowSource.CLASS).tokens_at_end == 0
