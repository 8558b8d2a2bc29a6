"""mteb's registry with others behind it, whose tasks are created when they are needed."""

import pytest

from posir_tasks.host import failures
from posir_tasks.host.mteb_patches import LazyTasks, Registry, TaskList


class Factory:
    """Returns its tasks, and counts the calls."""

    def __init__(self, **tasks):
        self.tasks = tasks
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.tasks


@pytest.fixture
def problems(monkeypatch):
    monkeypatch.setattr(failures, "failures", [])
    return failures.failures


def test_a_lookup_stops_at_the_first_registry_with_the_name():
    ours, theirs = Factory(Own=int), Factory(Other=str)
    registry = Registry({"Host": dict}, LazyTasks(ours), LazyTasks(theirs))
    assert registry["Host"] is dict
    assert (ours.calls, theirs.calls) == (0, 0)
    assert "Own" in registry
    assert registry.get("Own") is int
    assert (ours.calls, theirs.calls) == (1, 0)
    assert "None" not in registry
    assert (ours.calls, theirs.calls) == (1, 1)
    assert registry["Other"] is str
    assert (ours.calls, theirs.calls) == (1, 1)


def test_all_tasks_are_listed_mtebs_first_and_the_first_class_of_a_name_wins():
    registry = Registry({"Host": dict}, LazyTasks(Factory(Own=int, Host=bool)), LazyTasks(Factory(Own=set, Other=str)))
    expected = {"Host": dict, "Own": int, "Other": str}
    assert dict(registry) == expected
    assert list(registry) == list(expected)
    tasks = TaskList(registry)
    assert list(tasks) == [dict, int, str]
    assert (len(tasks), tasks[0], tasks[-1], tasks[1:]) == (3, dict, str, (int, str))
    assert (*tasks, float) == (dict, int, str, float)


def test_a_new_task_is_added_to_mtebs_registry():
    host = {"Host": dict}
    registry = Registry(host, LazyTasks(Factory()))
    registry["New"] = list
    assert host == {"Host": dict, "New": list}
    assert list(TaskList(registry)) == [dict, list]


def test_creating_tasks_may_look_tasks_up():
    def make():
        asked.append("Own" in registry)
        return {"Own": int}

    asked = []
    registry = Registry({}, LazyTasks(make))
    assert registry["Own"] is int
    assert asked == [False]


def test_tasks_that_cannot_be_created_are_reported_once_and_the_others_are_kept(problems, capsys):
    def fail():
        raise ImportError("mteb moved it")

    registry = Registry({"Host": dict}, LazyTasks(fail))
    assert list(registry) == ["Host"]
    assert "None" not in registry
    assert problems == ["fail: ImportError: mteb moved it"]
    assert capsys.readouterr().err.count("posir: fail failed for mteb 2.") == 1
