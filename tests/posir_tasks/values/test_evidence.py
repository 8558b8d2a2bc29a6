"""Positions of evidence in the window of a model."""

import numpy as np
import pytest

from posir_tasks.values.evidence import Evidence, Unread, locate_in_window
from posir_tasks.values.read_part import Part, ReadKind, ReadPart, WindowSource

TOKENS = 600
#: Start and end of the evidence in a document of 600 tokens.
SPANS = [
    (0, 10),
    (90, 100),
    (95, 105),
    (100, 110),
    (290, 310),
    (490, 500),
    (495, 505),
    (500, 510),
    (590, 600),
]
FIRST = ReadPart.first(100, WindowSource.GIVEN)
LAST = ReadPart(ReadKind.PART, Part.LAST, 100, known_by=WindowSource.GIVEN)
ENDS = ReadPart(ReadKind.PART, Part.ENDS, 200, 100, WindowSource.GIVEN)


def locate_naively(read: ReadPart, start: int, end: int) -> int:
    """Compute the twelfth of the window token by token."""
    seen = list(range(100))
    if read is LAST:
        seen = list(range(500, TOKENS))
    elif read is ENDS:
        seen = [*range(100), *range(500, TOKENS)]
    inside = [token for token in range(start, end) if token in seen]
    if not inside:
        return Unread.BEYOND
    if len(inside) < end - start:
        return Unread.CUT
    middle = (seen.index(start) + seen.index(end - 1) + 1) / 2
    return int(12 * middle / len(seen))


@pytest.mark.parametrize("read", [FIRST, LAST, ENDS], ids=["first", "last", "ends"])
def test_evidence_is_within_cut_or_beyond_the_window(read: ReadPart):
    starts, ends = (np.array(column, np.float64) for column in zip(*SPANS, strict=True))
    expected = [locate_naively(read, start, end) for start, end in SPANS]
    assert {Unread.CUT, Unread.BEYOND} <= set(expected)
    head, tail = 100 * (read is not LAST), TOKENS - 100 * (read is not FIRST)
    assert locate_in_window(starts, ends, head, tail, read.tokens or 0).tolist() == expected
    names, lengths = [str(number) for number in range(len(SPANS))], np.full(len(SPANS), TOKENS)
    evidence = Evidence(
        names, ["d"] * len(SPANS), starts.astype(int), ends.astype(int), lengths, lengths
    )
    assert evidence.estimate_twelfths(read).tolist() == expected
