import numpy as np

from posir_train.preparation import cut_negatives, filter_by_margin
from tests.plugins.posir_train.texts import build_examples


def test_negatives_are_the_other_parts_of_the_document():
    for example in build_examples().examples:
        parts = cut_negatives(example)
        assert parts is not None
        assert not any(example.is_answered_by(part) for part in parts)
        assert all(part in example.document.text for part in parts)
    (almost_all_evidence,) = build_examples(articles=1, questions=1, sentences=1).examples
    assert cut_negatives(almost_all_evidence) is None


class ThirdReranker:
    """Scores the thirds of each document alike, one row after the other."""

    name = "third"

    def __init__(self, scores):
        self.scores = scores

    def score_batches(self, batches):
        for number, pairs in enumerate(batches):
            yield number, np.tile(self.scores, len(pairs) // 3)


def test_the_margin_is_the_smallest_over_rerankers():
    data = build_examples().examples
    beginning = [example for example in data if example.position == 0]
    sure, less_sure = ThirdReranker([0.9, 0.1, 0.2]), ThirdReranker([0.6, 0.3, 0.1])
    assert filter_by_margin(data, [sure], 0.3) == beginning
    assert filter_by_margin(data, [sure, less_sure], 0.29) == beginning
    assert filter_by_margin(data, [sure, less_sure], 0.31) == []
