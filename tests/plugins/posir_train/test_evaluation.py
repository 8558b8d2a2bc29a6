from dataclasses import replace
from pathlib import Path

import mteb
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from torch import nn

from posir_significance.observations import Observations
from posir_tasks.errors import ScoreError
from posir_train.evaluation import CRITERION, Measurement, compute_scores, measure
from posir_train.examples import TrainingDocument, list_tasks, write_dataset
from posir_train.report import compare_measurements
from tests.plugins.posir_train.texts import build_examples

DATA = build_examples(articles=12, questions=9)


class ListModel(SentenceTransformer):
    """Embeds each document in a dimension of its own, and a question between its document and the next one."""

    def __init__(self, weights):
        super().__init__(modules=[nn.Identity()])
        self.weights = weights
        self.places = {document.text: place for place, document in enumerate(DATA.documents)}

    def encode_document(self, texts, **_):
        return np.eye(len(self.places))[[self.places[text] for text in texts]]

    def encode_query(self, texts, **_):
        values = []
        by_text = {example.question: example for example in DATA.examples}
        for example in map(by_text.get, texts):
            own = self.places[example.document.text]
            vector = np.zeros(len(self.places))
            vector[own], vector[(own + 1) % len(vector)] = self.weights[example.position], 0.5
            values.append(vector)
        return np.array(values)


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    return write_dataset(DATA, tmp_path_factory.mktemp("data") / "held-out")


def test_ranks_and_scores_by_position(held_out):
    base = measure(ListModel([1.0, 1.0, 1.0]), held_out)
    result = measure(ListModel([1.0, 1.0, 0.1]), held_out)
    scores = compute_scores(result.ranks, base.ranks)
    assert scores["start_to_end"] == pytest.approx(1 - 1 / np.log2(3))
    assert scores["start_to_end_low"] < scores["start_to_end"] < scores["start_to_end_high"]
    assert [scores[f"ndcg_at_10_{name}"] for name in ("begin", "middle", "end")] == pytest.approx([1, 1, 1 / np.log2(3)])
    assert scores["psi_low"] <= scores["psi"] <= scores["psi_high"]
    assert result.unrelated_cosine == 0


def test_the_criterion_prefers_less_bias_unless_ndcg_is_lost(held_out):
    base = measure(ListModel([1.0, 0.1, 0.1]), held_out)
    biased, even, lost = (
        compute_scores(measure(ListModel(weights), held_out).ranks, base.ranks)[CRITERION]
        for weights in ([1.0, 1.0, 0.1], [1.0, 1.0, 1.0], [0.1, 0.1, 0.1])
    )
    assert lost < 0 < biased < even


def test_measurements_are_read_back_with_articles_as_clusters(held_out):
    result = measure(ListModel([1.0, 1.0, 0.1]), held_out)
    again = Measurement.from_json(result.to_json())
    assert (again.ranks, again.unrelated_cosine) == (result.ranks, result.unrelated_cosine)
    assert len(np.unique(Observations.from_ranks(again.ranks).clusters)) == len(DATA.articles)


def test_documents_without_a_question_are_searched(tmp_path):
    data = replace(
        DATA, others=tuple(TrainingDocument(f"x{row}", f"Distractor {row}.", "eng-Latn/c", f"x{row}") for row in range(30))
    )
    dataset = write_dataset(data, tmp_path / "held-out")
    vectors = np.random.default_rng(0).normal(size=(300, 8))
    places = {
        text: row
        for row, text in enumerate([*(corpu.text for corpu in data.corpus), *(example.question for example in data.examples)])
    }

    class Model(ListModel):
        def encode_document(self, texts, **_):
            return vectors[[places[text] for text in texts]]

        encode_query = encode_document

    profile = measure(Model([1, 1, 1]), dataset).ranks.profile
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    corpus = unit[: len(data.corpus)]
    gains = []
    for row, example in enumerate(data.examples):
        scores = corpus @ unit[len(corpus) + row]
        rank = 1 + (scores > scores[data.corpus.index(example.document)]).sum()
        gains.append(1 / np.log2(1 + rank) if rank <= 10 else 0)
    assert profile.score() == pytest.approx(np.mean(gains), abs=1e-6)


def test_mteb_finds_the_same_figures_in_the_folder(held_out, monkeypatch):
    model = ListModel([1.0, 0.6, 0.3])
    changes = compare_measurements(measure(model, held_out), measure(model, held_out))
    monkeypatch.setenv("POSIR_DATA", str(Path(held_out.location.removeprefix("folder ")).parent))
    (name,) = list_tasks(held_out)
    scores = mteb.evaluate(model, mteb.get_task(name), cache=None, co2_tracker=False).task_results[0].scores["test"][0]
    expected = scores["position_scores"]["all"]
    for score, key in (("nDCG@10", "ndcg_at_10"), ("start to end", "start_to_end"), ("PSI", "psi")):
        before = next(change.before for change in changes if change.score == score)
        figures = expected[key], *expected[f"{key}_interval"]
        assert (before.value, before.low, before.high) == pytest.approx(figures, abs=1e-6)


def test_nan_is_refused(held_out):
    class Model(ListModel):
        def encode_document(self, texts, **_):
            return np.full((len(texts), len(self.places)), np.nan)

    with pytest.raises(ScoreError, match="NaN"):
        measure(Model([1, 1, 1]), held_out)
