"""Tasks and errors can be sent to other processes."""

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import mteb
import pytest

from posir_tasks import PositionTask
from posir_tasks.data.checks import DataProblem, ProblemsError, raise_problems
from posir_tasks.tasks.catalog import builtin_task_classes
from tests.support.datasets import posir_tables, write_domain


def describe(task):
    """Return a task's name, its number of queries, and whether mteb finds it by name."""
    task.load_data()
    loaded_task = mteb.get_task(task.metadata.name)
    return (
        task.metadata.name,
        len(task.dataset[task.hf_subsets[0]]["test"]["queries"]),
        type(loaded_task) is type(task),
    )


def fail(_):
    raise_problems(
        [DataProblem("a.parquet", "text", "is blank"), DataProblem("b.parquet", None, "is missing")]
    )


@pytest.mark.parametrize("task", builtin_task_classes(), ids=lambda task: task.metadata.name)
def test_every_task_is_pickled(task):
    before = task()
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is task
    assert after.metadata == before.metadata
    assert vars(after).keys() == vars(before).keys()


@pytest.mark.slow
def test_tasks_and_errors_can_be_sent_between_processes(posir_folder, monkeypatch):
    write_domain(posir_folder, posir_tables(), language="pes-Arab")
    monkeypatch.setenv("POSIR_DATA", str(posir_folder.parent))
    tasks = [
        mteb.get_task("PosIR-Persian-English"),
        mteb.get_task("PosIR-English"),
        PositionTask.from_folder(posir_folder, name="Pickled", language="eng-Latn"),
        mteb.get_task("PosIR-Mini"),
    ]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        result = list(pool.map(describe, tasks))
        assert result[0] == ("PosIR-Persian-English", 4, True)
        assert result[1:] == [
            ("PosIR-English", 4, True),
            ("Pickled", 4, True),
            ("PosIR-Mini", 720, True),
        ]
        with pytest.raises(ProblemsError) as raised:
            pool.submit(fail, 0).result()
    assert str(raised.value) == "a.parquet: field 'text': is blank\nb.parquet: is missing"
    assert [problem.field for problem in raised.value.problems] == ["text", None]
