"""The papers' rules of acceptance on made scores, with the shares that PosQ (arXiv 2505.13950) and Built-in or Learned
(arXiv 2605.26578) report."""

import numpy as np
import pytest

from posir_build import false_negatives, verify
from posir_build.ask import split_chunks, tag_chunk
from posir_build.translate import find_outliers
from posir_tasks.models.rerankers import compute_margin
from posir_tasks.text.spans import Span


def test_every_reranker_must_rank_the_segment_first_and_a_tie_fails():
    assert verify.ranks_target_first(np.array([[0.9, 0.1, 0.2], [0.5, 0.4, 0.49]]), 0)
    assert not verify.ranks_target_first(np.array([[0.9, 0.1, 0.2], [0.5, 0.4, 0.6]]), 0)
    assert not verify.ranks_target_first(np.array([[0.9, 0.9, 0.2]]), 0)
    assert verify.ranks_target_first(np.array([[0.1, 0.2, 0.9]]), 2)


def test_the_margin_is_the_smallest_over_rerankers():
    scores = np.array([[0.9, 0.1, 0.5], [0.8, 0.2, 0.1], [0.7, 0.39, 0.4]])
    assert compute_margin(scores, 0) == pytest.approx(0.3)
    assert compute_margin(scores, 2) == pytest.approx(-0.7)
    assert compute_margin(np.array([[0.7, 0.4, 0.1]]), 0) >= 0.3


def test_the_counts_of_000_follow_from_the_rules():
    """PosQ, appendix A.2: of 39,183 graded questions 26,356 are kept; 854 suspects, 661 confirmed."""
    rng = np.random.default_rng(7)
    grades = rng.choice(5, (39_183, 3))
    kept = np.array([verify.is_relevant(int(row[0]), row[1:].tolist(), 3, 1) for row in grades])
    expected = (grades[:, 0] >= 3) & (grades[:, 0] >= grades[:, 1] + 1) & (grades[:, 0] >= grades[:, 2] + 1)
    assert np.array_equal(kept, expected)
    # Made scores with as many suspects and confirmed ones as published.
    scores = np.full((26_356, 3), 0.2)
    scores[:854, :2] = 0.5
    suspects = [false_negatives.is_suspect(row, 0.5, 2) for row in scores]
    judged = np.zeros((854, 3), int)
    judged[:661, 1:] = 3
    judged[661:, 0] = 4
    assert sum(suspects) == 854
    assert sum(false_negatives.is_confirmed(row.tolist(), 3, 2) for row in judged) == 661


@pytest.mark.parametrize(
    ("target", "others", "passed"),
    [(3, [2, 2], True), (3, [3, 0], False), (2, [0, 0], False), (4, [3, 3], True), (4, [4, 0], False), (3, [2], True)],
)
def test_relevance_of_000_and_003(target, others, passed):
    assert verify.is_relevant(target, others, level=3, gap=1) is passed


def test_the_span_is_needed_under_every_reranker():
    assert verify.needs_span(np.array([0.9, 0.5]), np.array([0.8, 0.4]))
    assert not verify.needs_span(np.array([0.9, 0.5]), np.array([0.8, 0.5]))


def test_any_reranker_makes_a_false_negative_of_003():
    assert false_negatives.scores_above_positive(np.array([0.1, 0.6]), np.array([0.5, 0.5]))
    assert not false_negatives.scores_above_positive(np.array([0.5, 0.5]), np.array([0.5, 0.5]))


def test_fewer_judges_than_votes_must_agree():
    assert false_negatives.is_suspect(np.array([0.5]), 0.5, 2)
    assert not false_negatives.is_confirmed([4, -1], 3, 3)


def follow_algorithm_1(z: int, m: int, n: int) -> str:
    """Algorithm 1 of PosQ, line by line: total length z, chunk start index m, end index n."""
    third = z // 3
    if n < third:  # line 2
        return "beginning"
    elif m >= 2 * third:  # line 4  # noqa: RET505
        return "end"
    else:
        return "middle"


def test_chunks_are_tagged_by_algorithm_1_of_posq():
    # Chunks that overlap two thirds are in the middle (appendix A.2), also those that start at 0 or end with the text.
    assert [tag_chunk(Span(*chunk), 900) for chunk in ((0, 299), (0, 300), (0, 450), (450, 900), (599, 900), (600, 900))] == [
        "beginning", "middle", "middle", "middle", "middle", "end",
    ]  # fmt: skip
    # A first chunk of 256 is the beginning from a length of 771 on.
    assert [tag_chunk(Span(0, 256), length) for length in (770, 771)] == ["middle", "beginning"]
    chunks = [(start, end) for start in range(50) for end in range(start + 1, 51)]
    for z in (48, 49, 50):
        assert [tag_chunk(Span(*chunk), z) for chunk in chunks] == [follow_algorithm_1(z, *chunk) for chunk in chunks]


def test_chunks_cover_the_text_and_end_at_the_largest_unit():
    text = "One two three.\n\nFour five six seven. Eight nine.\nTen " + "x" * 50
    chunks = split_chunks(text, 4)
    assert "".join(text[chunk.start : chunk.end] for chunk in chunks) == text
    assert [text[chunk.start : chunk.end].strip() for chunk in chunks][:2] == ["One two three.", "Four five six seven."]


def test_outliers_of_length_are_outside_the_quartiles():
    lengths = [*range(100, 200), 1000, 1]
    assert [length for length, is_outlier in zip(lengths, find_outliers(lengths, 1.5, 1.5), strict=True) if is_outlier] == [
        1000,
        1,
    ]
    assert find_outliers([], 1, 1) == []
