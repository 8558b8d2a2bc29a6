"""The threshold of garbage collection."""

import gc
from collections.abc import Iterator

import pytest

from posir_tasks.base.garbage import GARBAGE_THRESHOLD, collect_rarely


@pytest.fixture(autouse=True)
def _restore_thresholds() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(700, GARBAGE_THRESHOLD), (0, 0), (2 * GARBAGE_THRESHOLD, 2 * GARBAGE_THRESHOLD)],
)
def test_garbage_is_collected_rarely_until_the_end(threshold: int, expected: int):
    gc.set_threshold(threshold, 5, 6)
    with collect_rarely():
        assert gc.get_threshold() == (expected, 5, 6)
    assert gc.get_threshold() == (threshold, 5, 6)


def test_an_error_restores_the_threshold():
    gc.set_threshold(700)

    @collect_rarely()
    def fail() -> None:
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert gc.get_threshold()[0] == 700


def test_overlapping_contexts_restore_the_threshold_at_the_last_end():
    gc.set_threshold(700, 5, 6)
    first = collect_rarely()
    second = collect_rarely()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] == GARBAGE_THRESHOLD
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 5, 6)
