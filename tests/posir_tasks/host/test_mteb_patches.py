"""mteb's registry with others behind it, which are made when they are needed and no sooner."""

import pytest

from posir_tasks.host import failures
from posir_tasks.host.mteb_patches import LazyTasks, Registry, TaskList


class Maker:
    """Makes the tasks it is given, and counts how often."""

    def __init__(self, **tasks):
        self.tasks = tasks
        self.times = 0

    def __call__(self):
        self.times += 1
        return self.tasks


@pytest.fixture
def problems(monkeypatch):
    monkeypatch.setattr(failures, "failures", [])
    return failures.failures


def test_a_task_is_looked_for_no_further_than_where_it_is():
    ours, theirs = Maker(Own=int), Maker(Other=str)
    registry = Registry({"Host": dict}, LazyTasks(ours), LazyTasks(theirs))
    assert registry["Host"] is dict
    assert (ours.times, theirs.times) == (0, 0)
    assert "Own" in registry
    assert registry.get("Own") is int
    assert (ours.times, theirs.times) == (1, 0)
    assert "None" not in registry
    assert (ours.times, theirs.times) == (1, 1)
    assert registry["Other"] is str
    assert (ours.times, theirs.times) == (1, 1)


def test_all_tasks_are_listed_the_hosts_first_and_a_name_has_its_first_class():
    registry = Registry({"Host": dict}, LazyTasks(Maker(Own=int, Host=bool)), LazyTasks(Maker(Own=set, Other=str)))
    expected = {"Host": dict, "Own": int, "Other": str}
    assert dict(registry) == expected
    assert list(registry) == list(expected)
    tasks = TaskList(registry)
    assert list(tasks) == [dict, int, str]
    assert (len(tasks), tasks[0], tasks[-1], tasks[1:]) == (3, dict, str, (int, str))
    assert (*tasks, float) == (dict, int, str, float)


def test_a_new_task_is_the_hosts_and_is_listed():
    host = {"Host": dict}
    registry = Registry(host, LazyTasks(Maker()))
    registry["New"] = list
    assert host == {"Host": dict, "New": list}
    assert list(TaskList(registry)) == [dict, list]


def test_making_tasks_may_ask_the_registry():
    def make():
        asked.append("Own" in registry)
        return {"Own": int}

    asked = []
    registry = Registry({}, LazyTasks(make))
    assert registry["Own"] is int
    assert asked == [False]


def test_tasks_that_cannot_be_made_are_told_once_and_the_others_stay(problems, capsys):
    def fail():
        raise ImportError("mteb moved it")

    registry = Registry({"Host": dict}, LazyTasks(fail))
    assert list(registry) == ["Host"]
    assert "None" not in registry
    assert problems == ["fail: ImportError: mteb moved it"]
    assert capsys.readouterr().err.count("posir: fail failed for mteb 2.") == 1
