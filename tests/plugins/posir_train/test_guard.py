import pytest

from posir_tasks.errors import PosirError
from posir_train.guard import compare_queries, open_guard
from posir_train.report import NDCG, PSI, START_TO_END, correct
from tests.plugins.posir_train.test_evaluation import DATA, ListModel
from tests.plugins.posir_train.texts import write_squad


def test_queries_are_paired():
    before = {str(row): 0.5 for row in range(40)}
    after = {name: 0.5 - 0.2 * (int(name) % 4 > 0) for name in reversed(list(before))}
    found = compare_queries("SciFact", before, after)
    assert found.title == "guard SciFact, nDCG@10"
    assert found.before.value == pytest.approx(0.5)
    assert found.difference.value == pytest.approx(-0.15)
    assert found.p_value < 0.001
    assert compare_queries("SciFact", before, before).p_value == 1


def test_data_with_evidence_is_measured_by_position(tmp_path):
    guard = open_guard(str(write_squad(tmp_path / "facts.json", DATA)))
    changes = correct(guard.compare(ListModel([1.0, 1.0, 1.0]), ListModel([1.0, 1.0, 0.1])))
    found = {change.score: change for change in changes}
    assert {change.guard for change in changes} == {"facts"}
    assert found[NDCG].verdict == "worse"
    assert found[f"{NDCG}, begin"].difference.value == 0
    assert found[START_TO_END].verdict == found[PSI].verdict == "more biased"
    questions = f"Guard facts: {len(DATA.examples)} questions about {len(DATA.articles)} articles."
    assert guard.describe({"another"}) == questions
    assert guard.describe({*DATA.articles[:2]}) == f"{questions} 2 of these were trained on."


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nothing", "no folder or .json file, and mteb has no such task"),
        ("STS12", "not a retrieval task"),
        ("missing.json", "missing.json"),
    ],
)
def test_other_names_are_refused(name, message):
    with pytest.raises(PosirError, match=message):
        open_guard(name)
