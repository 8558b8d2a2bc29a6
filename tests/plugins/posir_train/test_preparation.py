"""Sample training questions, form batches, and prepare the training data."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posir_tasks.base.errors import PosirError
from posir_tasks.text.tokenizer import EstimatedTokenizer
from posir_train.batches import BatchPlan, choose_size, sample_examples
from posir_train.composing import compose_examples, compose_window
from posir_train.examples import tokenize_examples
from posir_train.preparation import (
    PadsLoss,
    build_pairs,
    cut_negatives,
    filter_by_margin,
    prepare_data,
)
from posir_train.settings import Position, PositionWeights, TrainingSettings
from tests.plugins.posir_train.texts import build_examples


def build_plan(examples, positions="uniform", lengths=None, per_article=4, budget="most"):
    weights = PositionWeights.parse(positions)
    rows = sample_examples(examples, lengths or [100] * len(examples), weights, budget, seed=1)
    return BatchPlan(tuple(examples), rows, weights, per_article)


#: Number of questions at begin, middle and end by upper bound of the length bin, with margins of
#: 0.3 (arXiv 2605.26578, table 8).
PUBLISHED_CELLS = {
    512: (105_652, 13_934, 21_405),
    1024: (86_495, 16_660, 21_427),
    2048: (60_357, 13_594, 16_691),
    4096: (43_946, 10_527, 13_363),
    8192: (39_200, 8_189, 9_796),
}


@pytest.fixture(scope="module")
def published():
    """As many examples in each cell as in the paper, and their document lengths in characters."""
    by_position = {}
    for example in build_examples(articles=4, questions=3).examples:
        by_position.setdefault(example.position, []).append(example)
    examples = []
    lengths = []
    for bound, counts in PUBLISHED_CELLS.items():
        for position, count in zip(Position, counts, strict=True):
            examples += [by_position[position][row % 4] for row in range(count)]
            lengths += [bound - row % 200 for row in range(count)]
    return examples, lengths


@pytest.mark.parametrize(
    ("positions", "total"), [("begin", 40_945), ("end", 40_945), ("uniform", 40_935)]
)
def test_training_sets_have_the_published_size(published, positions, total):
    """Section 3.2.2: 8,189 questions per bin for one position, or 2,729 per bin and position for
    uniform positions.
    """
    examples, lengths = published
    rows = build_plan(examples, positions, lengths, budget="equal").rows
    trained_positions = PositionWeights.parse(positions).positions
    count = 8_189 // len(trained_positions)
    assert sum(map(len, rows.values())) == total == 5 * len(trained_positions) * count
    for bin_rows in rows.values():
        assert len({*bin_rows}) == len(bin_rows)
        counts = Counter(examples[row].position for row in bin_rows)
        assert counts == dict.fromkeys(trained_positions, count)
    bounds = [
        min(bound for bound in PUBLISHED_CELLS if lengths[bin_rows[0]] <= bound)
        for bin_rows in rows.values()
    ]
    assert bounds == list(PUBLISHED_CELLS)


def test_bins_with_few_questions_are_dropped(published):
    assert choose_size([300, 280, 3]) == 280
    assert choose_size([300, 280, 150]) == 150
    examples, lengths = published
    rows = build_plan(examples, "end", lengths, budget=10_000).rows
    assert [len(bin_rows) for bin_rows in rows.values()] == [10_000] * 4
    with pytest.raises(PosirError, match=r"20,000 questions .* 16,660"):
        build_plan(examples, "end", lengths, budget=20_000)


def test_per_article_1_gives_random_order(windows):
    """'Built-in or learned?' does not group questions by article."""
    batches = build_plan(windows, per_article=1).form_batches(8, seed=1, epoch=0)
    articles = [[windows[row].document.article for row in batch] for batch in batches]
    are_equal = [first == second for batch in articles for first, second in pairwise(batch)]
    assert sum(are_equal) / len(are_equal) < 2 / 8


@pytest.fixture(scope="module")
def windows():
    sources = tokenize_examples(
        build_examples(articles=8, questions=12, sentences=60), EstimatedTokenizer()
    )
    corpora, _ = compose_examples(sources, partial(compose_window, tokens=90), seed=1)
    return [example for examples in corpora for example in examples]


@pytest.mark.parametrize("positions", ["begin", "uniform", "1,0,3"])
def test_every_batch_has_the_position_shares(windows, positions):
    batches, repeated_batches, next_batches = (
        build_plan(windows, positions).form_batches(8, seed=1, epoch=epoch) for epoch in (0, 0, 1)
    )
    assert batches == repeated_batches != next_batches
    assert len(batches) == len(next_batches) > 5
    all_rows = [row for batch in batches for row in batch]
    for rows, tolerance in [*((batch, 1) for batch in batches), (all_rows, 0.08 * len(all_rows))]:
        counts = Counter(windows[row].position for row in rows)
        for position, share in zip(Position, PositionWeights.parse(positions).shares, strict=True):
            assert abs(counts[position] - share * len(rows)) <= tolerance


def test_batches_are_full_and_from_one_length_bin(windows):
    batches = build_plan(windows).form_batches(8, seed=1, epoch=0)
    for batch in batches:
        examples = [windows[row] for row in batch]
        assert len({example.question for example in examples}) == len(examples)
        assert not any(
            example.is_answered_by(other.document.text)
            for example, other in permutations(examples, 2)
            if example.document.article == other.document.article
        )
    max_counts = [
        max(Counter(windows[row].document.article for row in batch).values()) for batch in batches
    ]
    assert sum(count > 1 for count in max_counts) > len(batches) / 2
    lengths = [100 if row % 2 else 900 for row in range(len(windows))]
    for batch in build_plan(windows, lengths=lengths).form_batches(8, seed=1, epoch=0):
        assert (len(batch), len({lengths[row] for row in batch})) == (8, 1)


def test_missing_positions_raise(windows):
    lengths = [900 if window.position == Position.END else 100 for window in windows]
    with pytest.raises(PosirError, match="all positions"):
        build_plan(windows, lengths=lengths)
    assert build_plan(windows, "end", lengths=lengths).form_batches(8, seed=1, epoch=0)
    with pytest.raises(PosirError, match=r"end .*begin \d+, middle \d+, end 0"):
        build_plan([window for window in windows if window.position != Position.END])
    with pytest.raises(PosirError, match="article, same"):
        build_plan(
            [
                replace(example, document=replace(example.document, article="same"))
                for example in windows
            ]
        )


def test_batches_that_cannot_be_filled_are_smaller():
    batches = build_plan(build_examples(articles=3, questions=4).examples).form_batches(
        8, seed=1, epoch=0
    )
    # A document answers all questions about it, so a batch has one question per article.
    assert [len(batch) for batch in batches] == [3, 3, 3]
    same_questions = [
        replace(example, question="What?")
        for example in build_examples(articles=2, questions=3).examples
    ]
    with pytest.raises(PosirError, match="one batch"):
        build_plan(same_questions).form_batches(8, seed=1, epoch=0)


def test_negatives_contain_no_evidence():
    for example in build_examples().examples:
        negatives = cut_negatives(example)
        assert negatives
        assert not any(example.is_answered_by(negative) for negative in negatives)
        assert all(negative in example.document.text for negative in negatives)
    (short_example,) = build_examples(articles=1, questions=1, sentences=1).examples
    assert not cut_negatives(short_example)


class ThirdReranker:
    """A reranker with a fixed score for each third."""

    name = "third"

    def __init__(self, scores):
        self.scores = scores

    def score_batches(self, batches):
        for number, pairs in enumerate(batches):
            yield number, np.tile(self.scores, len(pairs) // 3)


def test_margin_is_the_minimum_over_rerankers():
    examples = build_examples().examples
    begin_examples = [example for example in examples if example.position == 0]
    first = ThirdReranker([0.9, 0.1, 0.2])
    second = ThirdReranker([0.6, 0.3, 0.1])
    assert filter_by_margin(examples, [first], 0.3) == begin_examples
    assert filter_by_margin(examples, [first, second], 0.29) == begin_examples
    assert filter_by_margin(examples, [first, second], 0.31) == []


TEXTS = [document.text for document in build_examples().documents]


def test_samples_are_half_of_a_text():
    pairs = build_pairs(TEXTS, EstimatedTokenizer(), "pads", seed=1)
    assert pairs["label"] == [1] * len(TEXTS) + [-1] * len(TEXTS)
    for row, text in enumerate(TEXTS):
        for sample in (pairs["first"][row], pairs["second"][row]):
            assert sample in text
            assert len(sample) == pytest.approx(len(text) / 2, rel=0.1)
    assert all(
        first not in text for first, text in zip(pairs["second"][len(TEXTS) :], TEXTS, strict=True)
    )
    assert build_pairs(TEXTS, EstimatedTokenizer(), "pads-published", seed=1)["label"][-1] == 0
    with pytest.raises(PosirError, match="two different texts"):
        build_pairs(TEXTS[:1], EstimatedTokenizer(), "pads", seed=1)


def test_pads_defaults_follow_the_published_code():
    """Batches of one pair, Adam with a constant learning rate of 2e-5, three epochs."""
    settings = TrainingSettings(model="m", data="d", objective="pads")
    assert (settings.batch_size, settings.learning_rate, settings.epochs, settings.warmup) == (
        1,
        2e-5,
        3,
        0,
    )
    assert (settings.schedule, settings.checkpoint_rule) == ("constant", "last")
    assert (
        TrainingSettings(model="m", data="d", objective="pads-published", batch_size=4).batch_size
        == 4
    )
    assert TrainingSettings(model="m", data="d").batch_size == 32
    assert TrainingSettings.model_validate(settings.model_dump()) == settings
    for fields, message in (
        ({"batch_size": 1}, "at least 2"),
        ({"texts": "t"}, "only PADS trains on texts"),
    ):
        with pytest.raises(ValidationError, match=message):
            TrainingSettings(model="m", data="d", **fields)


class EstimatedWindow:
    tokenizer = EstimatedTokenizer()


def test_pads_with_plain_texts_evaluates_all_questions(tmp_path):
    for number, text in enumerate(TEXTS[:3]):
        (tmp_path / f"{number}.txt").write_text(text)
    data = build_examples(seed=3)
    settings = TrainingSettings(model="m", data="d", objective="pads", texts=str(tmp_path))
    result = prepare_data(settings, data, EstimatedWindow())
    assert len(result.dataset) == 6
    assert result.held_out == data
    assert all(any(first in text for text in TEXTS[:3]) for first in result.dataset["first"])
    assert result.description == f"{tmp_path.name}: 6 pairs of 3 texts"
    # By default, documents without questions are also used for training.
    data = build_examples(articles=8)
    data = data.select(
        example for example in data.examples if example.document.id in ("d0", "d1", "d2", "d3")
    )
    settings = TrainingSettings(model="m", data="d", objective="pads", held_out=0.5)
    result = prepare_data(settings, data, EstimatedWindow())
    assert result.description == "made-up: 12 pairs of 6 texts"
    assert not result.articles & {*result.held_out.articles}


def test_negatives_with_label_0_have_no_loss():
    vectors = torch.tensor([[1.0, 0.0], [1.0, 1.0]], requires_grad=True)
    loss = PadsLoss(lambda features: {"sentence_embedding": features})
    features = [vectors[:1], vectors[1:]]
    assert loss(features, torch.tensor([0])).item() == 0
    assert loss(features, torch.tensor([-1])).item() == pytest.approx(0.5**0.5)
    assert loss(features, torch.tensor([1])).item() == pytest.approx(1 - 0.5**0.5)
