"""The time that rerankers take, estimated from a few pairs."""

import numpy as np
import pytest

from posir_build import estimate as reranker_speed
from posir_build.estimate import PAIRS, StageEstimate, add_reranker_seconds
from posir_build.records import Document


class Clock:
    """Time that passes only when something is scored."""

    now = 0.0

    def perf_counter(self):
        return self.now


class SlowReranker:
    """A reranker that takes 50 seconds to load, and some for each pair."""

    name = "slow"

    def __init__(self, clock, seconds):
        self.clock, self.seconds, self.batches = clock, seconds, []

    def score_batches(self, batches):
        for number, pairs in enumerate(batches):
            self.clock.now += self.seconds * len(pairs) + (0 if self.batches else 50)
            self.batches.append(len(pairs))
            yield number, np.zeros(len(pairs))


def test_the_time_of_a_stage_is_that_of_its_pairs_without_loading(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(reranker_speed, "time", clock)
    documents = [Document(f"d{row}", f"text {row} " * 30, 60 + row, "file") for row in range(5)]
    estimates = [StageEstimate("ask", 1, 1, 1, 0.0), StageEstimate("verify", 1, 1, 1, 0.0, reranker_pairs=200)]
    rerankers = [SlowReranker(clock, 0.5), SlowReranker(clock, 2)]
    ask, verify = add_reranker_seconds(estimates, {"verify": rerankers, "false-negatives": []}, documents)
    assert ask.reranker_seconds == 0
    assert verify.reranker_seconds == pytest.approx(100 * 0.5 + 100 * 2)
    assert [reranker.batches for reranker in rerankers] == [[1, PAIRS]] * 2
