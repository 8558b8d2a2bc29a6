"""The acceptance rules of PosQ (arXiv 2505.13950), Built-in or Learned and PosIR."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from posir_build.ask import label_chunk, split_chunks
from posir_build.false_negatives import has_votes
from posir_build.records import Check, DiscardReason, StageResult
from posir_build.settings import VerifySettings
from posir_build.translate import find_outliers
from posir_build.verify import Verifier
from posir_tasks.models.rerankers import compute_margin
from posir_tasks.text.spans import Span
from tests.support.construction import ScriptedModel, document, question


def test_the_margin_is_the_smallest_over_rerankers():
    scores = np.array([[0.9, 0.1, 0.5], [0.8, 0.2, 0.1], [0.7, 0.39, 0.4]])
    assert [compute_margin(scores, target) for target in (0, 2)] == pytest.approx([0.3, -0.7])
    assert compute_margin(np.array([[0.7, 0.4, 0.1]]), 0) >= 0.3


def test_votes_of_rerankers_and_judges():
    """PosQ, appendix A.2: two of three must agree, or all if there are fewer."""
    flagged = [has_votes(row, 0.5, 2) for row in ([0.5, 0.5, 0.2], [0.9, 0.4, 0.4], [0.5], [0.4])]
    assert flagged == [True, False, True, False]
    confirmed = [has_votes(row, 3, 2) for row in ([3, 0, 3], [4, 2, 2], [3], [2], [4, -1])]
    assert confirmed == [True, False, True, False, False]


def follow_posq(z: int, m: int, n: int) -> str:
    """Algorithm 1 of PosQ, line by line: total length z, chunk start index m, end index n."""
    third = z // 3
    if n < third:  # line 2
        return "beginning"
    elif m >= 2 * third:  # line 4  # noqa: RET505
        return "end"
    else:
        return "middle"


def follow_myopic_trap(z: int, m: int, n: int) -> tuple[str, ...]:
    """Algorithm 1 of Myopic Trap, line by line, with its labels "before" and "after" renamed to
    "beginning" and "end".
    """
    third = z // 3
    if n < third:  # line 2
        return ("beginning",)
    elif m >= third and n < 2 * third:  # line 4  # noqa: RET505
        return ("middle",)
    elif m >= 2 * third:  # line 6
        return ("end",)
    elif n < 2 * third:  # line 8
        return ("beginning", "middle")
    else:
        return ("middle", "end")


def test_chunks_are_labeled_by_algorithm_1_of_both_versions():
    # A first chunk of 256 characters is in one third from a text length of 771 on.
    assert [label_chunk(Span(0, 256), length) for length in (770, 771)] == [
        ("beginning", "middle"),
        ("beginning",),
    ]
    chunks = [(start, end) for start in range(50) for end in range(start + 1, 51)]
    for z in (2, 48, 49, 50):
        for chunk in chunks:
            labels = label_chunk(Span(*chunk), z)
            assert labels == follow_myopic_trap(z, *chunk)
            # The later version labels chunks in two thirds as middle (appendix A.2).
            label = labels[0] if len(labels) == 1 else "middle"
            assert label == follow_posq(z, *chunk)


def test_chunks_cover_the_text_and_end_at_the_largest_unit():
    text = "One two three.\n\nFour five six seven. Eight nine.\nTen " + "x" * 50
    chunks = split_chunks(text, 4)
    assert "".join(text[chunk.start : chunk.end] for chunk in chunks) == text
    assert [text[chunk.start : chunk.end].strip() for chunk in chunks][:2] == [
        "One two three.",
        "Four five six seven.",
    ]


def test_length_outliers():
    lengths = [*range(100, 200), 1000, 1]
    assert find_outliers(lengths, 1.5, 1.5) == [*[False] * 100, True, True]
    assert find_outliers([], 1, 1) == []


def test_thirds_are_balanced_between_rerankers_and_judge():
    source = document("d", "x" * 90)
    starts = [*range(10), *range(31, 35), *range(62, 68)]
    questions = [
        replace(question(source, f"q{start}"), span=Span(start, start + 1)) for start in starts
    ]
    options = VerifySettings(balance=True, relevance="none", leave_out=False)
    model = ScriptedModel(lambda *_: "")
    result = Verifier(
        StageResult((source,), tuple(questions)), options, "eng-Latn", model, [], 1
    ).verify()
    thirds = Counter(kept.evidence.start // 30 for kept in result.questions)
    assert thirds == {0: 4, 1: 4, 2: 4}
    assert Counter(row.reason for row in result.discarded) == {DiscardReason.FULL_CELL: 8}
    assert {row.check for kept in result.questions for row in kept.verdicts} == {Check.BALANCED}
