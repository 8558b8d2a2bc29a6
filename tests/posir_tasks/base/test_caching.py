"""Caches that keep many small results, or few large ones."""

import pytest

from posir_tasks.base.caching import cache_recent


def make_counter(least, size):
    calls = []

    @cache_recent(least, size, len)
    def repeat(number):
        calls.append(number)
        return "x" * number

    return repeat, calls


@pytest.mark.parametrize(
    ("numbers", "is_kept"),
    [
        # Small results, up to the total size.
        (range(1, 10), True),
        # Ten of these exceed it.
        (range(20, 30), False),
        # Large results count as a third of it.
        ((1000, 2000, 3000), True),
        ((1000, 2000, 3000, 4000), False),
        # An empty result counts as well.
        ((0, 1, 2), True),
    ],
)
def test_the_total_size_of_small_results_is_limited_and_some_results_are_kept(numbers, is_kept):
    repeat, calls = make_counter(least=3, size=100)
    for number in numbers:
        assert len(repeat(number)) == number
    first = numbers[0]
    assert len(repeat(first)) == first
    assert (calls.count(first) == 1) == is_kept


def test_the_least_recent_result_is_dropped_first():
    repeat, calls = make_counter(least=2, size=100)
    for number in (500, 600, 500, 700, 500, 600):
        repeat(number)
    assert calls == [500, 600, 700, 600]
