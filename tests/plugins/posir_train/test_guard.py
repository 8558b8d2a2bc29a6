import pytest

from posir_tasks.errors import PosirError
from posir_train.guard import compare_guard, find_guard


def test_queries_are_paired():
    before = {str(row): 0.5 for row in range(40)}
    after = {name: 0.5 - 0.2 * (int(name) % 4 > 0) for name in reversed(list(before))}
    found = compare_guard("SciFact", before, after)
    assert found.before.value == pytest.approx(0.5)
    assert found.difference.value == pytest.approx(-0.15)
    assert found.p_value < 0.001
    assert compare_guard("SciFact", before, before).p_value == 1


@pytest.mark.parametrize(("name", "message"), [("Nothing", "mteb has no such task"), ("STS12", "not a retrieval task")])
def test_other_tasks_are_refused(name, message):
    with pytest.raises(PosirError, match=message):
        find_guard(name)
