from dataclasses import replace

import numpy as np
import pytest

from posir_significance.observations import Observations
from posir_tasks.errors import ScoreError
from posir_train.evaluation import CRITERION, HeldOutData, Measurement, PositionEvaluator, compute_scores
from tests.plugins.posir_train.texts import build_examples

DATA = build_examples(articles=12, questions=9)


class ListModel:
    """Embeds each document in a dimension of its own, and a question between its document and the next one."""

    def __init__(self, weights):
        self.weights = weights
        self.places = {document.text: place for place, document in enumerate(DATA.documents)}

    def encode_document(self, texts, **_):
        return np.eye(len(self.places))[[self.places[text] for text in texts]]

    def encode_query(self, texts, **_):
        found = []
        by_text = {example.question: example for example in DATA.examples}
        for example in map(by_text.get, texts):
            own = self.places[example.document.text]
            vector = np.zeros(len(self.places))
            vector[own], vector[(own + 1) % len(vector)] = self.weights[example.position], 0.5
            found.append(vector)
        return np.array(found)


def held_out():
    return HeldOutData.build(DATA.examples, [200] * len(DATA.examples))


def test_ranks_and_scores_by_position():
    base = held_out().measure(ListModel([1.0, 1.0, 1.0]))
    found = held_out().measure(ListModel([1.0, 1.0, 0.1]))
    assert found.ranks.profile.by_position().tolist() == pytest.approx([1, 1, 1 / np.log2(3)])
    scores = compute_scores(found, base)
    assert scores["start_to_end"] == pytest.approx(1 - 1 / np.log2(3))
    assert scores["start_to_end_low"] < scores["start_to_end"] < scores["start_to_end_high"]
    assert scores["ndcg_at_10_end"] == pytest.approx(1 / np.log2(3))
    assert scores["psi_low"] <= scores["psi"] <= scores["psi_high"]
    assert found.unrelated_cosine == 0


def test_the_criterion_prefers_less_bias_unless_ndcg_is_lost():
    base = held_out().measure(ListModel([1.0, 0.1, 0.1]))
    biased, even, lost = (
        compute_scores(held_out().measure(ListModel(weights)), base)[CRITERION]
        for weights in ([1.0, 1.0, 0.1], [1.0, 1.0, 1.0], [0.1, 0.1, 0.1])
    )
    assert lost < 0 < biased < even


def test_measurements_are_read_back():
    found = held_out().measure(ListModel([1.0, 1.0, 0.1]))
    again = Measurement.from_json(found.to_json())
    assert again.ranks == found.ranks
    assert again.unrelated_cosine == found.unrelated_cosine


def test_articles_are_clusters():
    found = held_out().measure(ListModel([1.0, 1.0, 1.0]))
    assert len(np.unique(Observations.from_ranks(found.ranks).clusters)) == len(DATA.articles)


def test_other_documents_with_the_passage_are_not_ranked():
    example = DATA.examples[0]
    text = example.document.text
    copy = replace(example.document, id="copy", text=text[: len(text) // 2 * 2 - 10])
    other = next(one for one in DATA.examples if one.document.article != example.document.article)
    about_copy = replace(DATA.examples[1], document=copy)
    vectors = {text: [0.6, 0.8], copy.text: [1.0, 0.0], other.document.text: [0.8, 0.6]}

    class Model:
        def encode_document(self, texts, **_):
            return np.array([vectors[one] for one in texts])

        def encode_query(self, texts, **_):
            return np.array([[1.0, 0.0]] * len(texts))

    found = HeldOutData.build([example, about_copy, other], [9, 9, 9]).measure(Model())
    # The copy is before the document of the first question, and is ranked for the question about another article alone.
    assert sorted(found.ranks.columns.ranks.tolist()) == [0, 1, 1]


def test_nan_is_refused():
    class Model(ListModel):
        def encode_document(self, texts, **_):
            return np.full((len(texts), 2), np.nan)

    with pytest.raises(ScoreError, match="NaN"):
        held_out().measure(Model([1, 1, 1]))


def test_the_evaluator_keeps_its_measurements():
    base = held_out().measure(ListModel([1.0, 1.0, 1.0]))

    class Model(ListModel):
        model_card_data = type("Card", (), {"set_evaluation_metrics": lambda *_: None})()

    evaluator = PositionEvaluator(held_out(), base)
    scores = evaluator(Model([1.0, 1.0, 0.1]), steps=7)
    assert evaluator.primary_metric in scores
    assert set(evaluator.measured) == {7}
