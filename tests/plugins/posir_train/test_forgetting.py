from zlib import crc32

import mteb
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from torch import nn

from posir_tasks.errors import PosirError
from posir_train.report import NDCG, START_TO_END, check_forgetting, compare_queries, open_forgetting_check
from tests.plugins.posir_train.test_evaluation import DATA, ListModel
from tests.plugins.posir_train.texts import write_squad


def test_queries_are_paired():
    before = {str(row): 0.5 for row in range(40)}
    after = {name: 0.5 - 0.2 * (int(name) % 4 > 0) for name in reversed(list(before))}
    queries = compare_queries("SciFact", before, after)
    assert queries.title == "forgetting check SciFact, nDCG@10"
    assert queries.before.value == pytest.approx(0.5)
    assert queries.difference.value == pytest.approx(-0.15)
    assert queries.label == "worse"
    assert compare_queries("SciFact", before, before).label == "equivalent within 2 points"


LABELS = ("base", "trained")


def test_data_with_evidence_is_measured_by_position(tmp_path):
    forgetting_check = open_forgetting_check(str(write_squad(tmp_path / "facts.json", DATA)))
    models = ListModel([1.0, 1.0, 1.0]), ListModel([1.0, 1.0, 0.1])
    changed, notes = check_forgetting(forgetting_check, models, LABELS, {"another"})
    changes = {change.score: change for change in changed}
    assert {change.forgetting_check for change in changed} == {"facts"}
    assert changes[NDCG].label == "worse"
    assert changes[f"{NDCG}, begin"].difference.value == 0
    assert changes[START_TO_END].label == "worse"
    questions = f"Forgetting check facts: {len(DATA.examples)} questions about {len(DATA.articles)} articles."
    assert notes[0] == questions
    _, notes = check_forgetting(forgetting_check, models, LABELS, DATA.articles[:2])
    assert notes[0] == f"{questions} 2 of these were trained on."


def test_a_task_with_positions_is_measured_as_mteb_does_and_by_document():
    class Model(SentenceTransformer):
        def __init__(self):
            super().__init__(modules=[nn.Identity()])

        def encode_document(self, texts, **_):
            return np.stack([np.random.default_rng(crc32(text.encode())).normal(size=8) for text in texts]).astype(np.float32)

        encode_query = encode_document

    model = Model()
    (ndcg, *_), _ = check_forgetting(open_forgetting_check("PosIR-Mini"), (model, model), LABELS, ())
    scores = mteb.evaluate(model, mteb.get_task("PosIR-Mini"), cache=None, co2_tracker=False).task_results[0].scores["test"][0]
    (low, high), expected = scores["position_scores"]["all"]["ndcg_at_10_interval"], scores["ndcg_at_10"]
    assert (ndcg.before.value, ndcg.before.low, ndcg.before.high) == pytest.approx((expected, low, high), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nothing", "no file or folder, and mteb has no such task"),
        ("STS12", "not a retrieval task"),
        ("missing.json", "missing.json"),
    ],
)
def test_other_names_are_refused(name, message):
    with pytest.raises(PosirError, match=message):
        open_forgetting_check(name)
