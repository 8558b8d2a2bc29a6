"""Tasks of plugins: one that would not run is refused with a reason, and the others are registered."""

import pytest

from posir_tasks import PositionTask
from posir_tasks.plugin_api import load_plugins
from posir_tasks.schemes import RelativePositions
from posir_tasks.tasks.base import build_folder_task
from posir_tasks.tasks.catalog import collect_tasks
from posir_tasks.tasks.metadata import build_metadata
from tests.posir_tasks.test_plugin_api import Point, module


def metadata(name, **fields):
    return build_metadata(name, dataset="none", revision="1", **{"languages": ["eng-Latn"], **fields})


class Good(PositionTask):
    scheme = RelativePositions()
    metadata = metadata("Good")

    def read_subset(self, subset):
        raise NotImplementedError


def changed(**attributes):
    return type("Changed", (Good,), {"__module__": "theirs", **attributes})


def named(name, **fields):
    return changed(metadata=Good.metadata.model_copy(update={"name": name, **fields}))


class Unfinished(PositionTask):
    pass


class Refusing(Good):
    metadata = metadata("Refusing")

    def __init__(self):
        raise OSError("no license on this machine")


def giving(*tasks):
    return module(posir_task_classes=lambda: list(tasks))


def raising():
    raise ZeroDivisionError("division by zero")


def collect(*plugins, taken=()):
    points = [Point(f"plugin{number}", plugin) for number, plugin in enumerate(plugins)]
    return collect_tasks(load_plugins(points), dict.fromkeys(taken, "mteb.tasks.theirs"))


def test_a_plugins_tasks_are_found_with_the_plugin_they_are_from():
    tasks, _ = collect(giving(Good), module(posir_scores=lambda: {}), giving(named("Other"), named("Third")))
    assert {name: (plugin, task.metadata.name) for name, (plugin, task) in tasks.items()} == {
        "Good": ("plugin0", "Good"),
        "Other": ("plugin2", "Other"),
        "Third": ("plugin2", "Third"),
    }


def test_a_hook_may_yield():
    def posir_task_classes():
        yield Good

    assert list(collect(module(posir_task_classes=posir_task_classes))[0]) == ["Good"]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (42, "42 is not a task class; a task is a subclass of posir_tasks.PositionTask"),
        (dict, "<class 'dict'> is not a task class"),
        (Good(), "is not a task class"),
        (Unfinished, "Unfinished lacks `metadata`, a TaskMetadata of mteb, `scheme`, an object such as RelativePositions()"),
        (Unfinished, ", `read_subset`"),
        (changed(scheme=RelativePositions), "task theirs.Changed lacks `scheme`, an object such as RelativePositions()"),
        (changed(metadata={"name": "Letters"}), "task theirs.Changed lacks `metadata`, a TaskMetadata of mteb"),
        (named("Letters", eval_splits=["dev"]), "eval_splits=['dev']; position-aware tasks have ['test']"),
        (named("let/ters"), "the name 'let/ters' is not allowed; use A-Z"),
        (named("Letters", eval_langs=["eng"]), "language eng: it has no script; did you mean eng-Latn?"),
        (Refusing, "Refusing cannot be created: OSError: no license on this machine"),
        (named("NFCorpus"), "the name 'NFCorpus' is taken by mteb.tasks.theirs; choose another"),
    ],
    ids=[
        "number", "class", "instance", "unfinished", "abstract", "scheme's class", "metadata", "split", "name", "language",
        "raises", "taken",
    ],
)  # fmt: skip
def test_a_task_that_would_not_run_is_refused_and_the_others_are_kept(task, said):
    tasks, problems = collect(giving(task, Good), giving(named("After")), taken=["NFCorpus"])
    (problem,) = problems
    assert problem.startswith("plugin 'plugin0': ")
    assert said in problem
    assert list(tasks) == ["Good", "After"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (module(posir_task_classes=raising), "ZeroDivisionError: division by zero"),
        (module(posir_task_classes=lambda: None), "must return a list of task classes"),
        (module(posir_task_classes=lambda: Good), "must return a list of task classes"),
        (module(posir_task_classes=lambda: "Good"), "must return a list of task classes"),
        (module(posir_task_classes=lambda: 42), "'int' object is not iterable"),
    ],
    ids=["raises", "nothing", "one class", "text", "number"],
)
def test_a_hook_that_returns_no_list_is_reported_and_the_others_are_kept(broken, said):
    tasks, problems = collect(broken, giving(Good))
    (problem,) = problems
    assert problem.startswith("plugin 'plugin0' could not provide its tasks: ")
    assert said in problem
    assert list(tasks) == ["Good"]


def test_of_two_tasks_with_one_name_the_first_is_kept():
    tasks, problems = collect(giving(Good), giving(changed()))
    assert tasks["Good"][1] is Good
    assert problems == [
        "plugin 'plugin1': task theirs.Changed: the name 'Good' is taken by plugin 'plugin0'; choose another",
    ]


def test_a_plugin_cannot_use_a_name_twice():
    tasks, problems = collect(giving(Good, changed()))
    assert tasks["Good"][1] is Good
    assert "is taken by plugin 'plugin0'" in problems[0]


def test_data_that_a_package_ships_in_the_posir_layout_is_a_task_in_one_line(posir_folder):
    tasks, problems = collect(giving(build_folder_task(posir_folder, name="Shipped", language="eng-Latn")))
    assert problems == []
    assert [subset.partition("@")[0] for subset in tasks["Shipped"][1]().hf_subsets] == ["sports"]
