"""Plugins that fail in different ways: each is reported, and the others keep working."""

import logging
import math
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from posir_tasks.plugin_api import HOOKS, get_plugins, hookimpl, load_plugins, score_result
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.profile import PositionProfile
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ResultValues, Score
from tests.support.simulation import separate_documents


@dataclass(frozen=True)
class Point:
    """In place of an `importlib.metadata.EntryPoint`."""

    name: str
    plugin: Any
    value: str = "module"
    dist: Any = None

    def load(self):
        if isinstance(self.plugin, BaseException):
            raise self.plugin
        return self.plugin


def module(**functions):
    """Return a module with these hook implementations."""
    made = ModuleType("their_plugin")
    for name, function in functions.items():
        setattr(made, name, hookimpl(function))
    return made


def scoring(**values):
    """A plugin that declares scores with these values."""
    return module(
        posir_scores=lambda: [
            Score(key, key, "A score.", compute=lambda _, v=v: v) for key, v in values.items()
        ]
    )


def raising(error):
    """A plugin with a score that raises when it is computed."""

    def compute(_group):
        raise error

    return module(posir_scores=lambda: [Score("mean", "Mean", "A score.", compute=compute)])


MISSPELLED = module(posir_score=lambda profile: {"queries": profile.queries})
UNKNOWN_ARGUMENT = module(posir_scores=lambda results: {"results": len(results)})
UNDECORATED = ModuleType("undecorated")
UNDECORATED.posir_scores = lambda profile: {"queries": profile.queries}


@pytest.fixture
def profile():
    columns = (np.array([row], np.int64) for row in (0, 10, 100, 100))
    return PositionProfile.from_ranks(
        RelativePositions(), Evidence(["q"], ["d"], *columns), np.array([1])
    )


@pytest.fixture
def scores_of(profile, monkeypatch, caplog):
    """Return scores and warnings with these plugins loaded in place of the installed ones."""

    def scores(*points):
        plugins = load_plugins(points)
        monkeypatch.setattr("posir_tasks.plugin_api.get_plugins", lambda: plugins)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            return dict(score_result(ResultValues(separate_documents(profile)))["all"]), [
                record.getMessage() for record in caplog.records
            ]

    return scores


def problems(*points):
    return {
        plugin.name: plugin.problem for plugin in load_plugins(points).plugins if plugin.problem
    }


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            ImportError("No module named 'torch2'"),
            "loading it raised ImportError: No module named 'torch2'",
        ),
        (AttributeError("module has no attribute 'plugin'"), "loading it raised AttributeError"),
        (MISSPELLED, "unknown hook 'posir_score'"),
        (UNKNOWN_ARGUMENT, "results"),
        (
            UNDECORATED,
            "it implements no hook; decorate its functions with `@hookimpl`. The hooks are: "
            f"{', '.join(HOOKS)}",
        ),
        (
            SystemExit("usage: their_plugin [-h]"),
            "loading it raised SystemExit: usage: their_plugin",
        ),
    ],
    ids=["import", "attribute", "misspelled hook", "unknown argument", "no hookimpl", "exit"],
)
def test_a_plugin_that_cannot_be_loaded_says_why(broken, said, scores_of):
    points = [Point("broken", broken), Point("after", scoring(a=1)), Point("before", scoring(b=2))]
    result = problems(*points)
    assert set(result) == {"broken"}
    assert said in result["broken"]
    assert scores_of(*points) == ({"a": 1, "b": 2}, [])


def test_the_second_plugin_of_a_name_is_refused(scores_of):
    points = [Point("same", scoring(a=1), "one"), Point("same", scoring(b=2), "two")]
    (first, second) = load_plugins(points).plugins
    assert (first.origin, first.problem) == ("one", None)
    assert second.origin == "two"
    assert "another plugin of the same name" in second.problem
    assert scores_of(*points) == ({"a": 1}, [])


def test_plugins_that_are_not_used_are_reported_once(monkeypatch, caplog):
    points = [
        Point("broken", ImportError("gone"), "their_package.plugin"),
        Point("good", scoring(a=1)),
    ]
    monkeypatch.setattr(
        "posir_tasks.plugin_api.entry_points", lambda group: points if group == "posir" else []
    )
    get_plugins.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert get_plugins() is get_plugins()
    finally:
        monkeypatch.undo()
        get_plugins.cache_clear()
    assert [record.getMessage() for record in caplog.records] == [
        "posir plugin 'broken' (their_package.plugin) is not used: loading it raised ImportError: "
        "gone"
    ]


INVALID = (
    math.nan,
    {"deep": 1.0},
    np.float32(0.5),
    True,
    Estimate(math.inf),
    Estimate(0.5, (0.6, 0.7)),
)
RAISED = "posir plugin 'broken': score 'mean' raised"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (raising(ZeroDivisionError("division by zero")), RAISED),
        *((scoring(mean=value), RAISED) for value in (*INVALID, Estimate(0.5, (math.nan, 0.7)))),
        (module(posir_scores=lambda: 1 // 0), "could not add its scores: ZeroDivisionError"),
        (
            module(posir_scores=lambda: {"queries": 1}),
            "declared 'queries', which is not a posir_tasks.values.scores.Score",
        ),
        (scoring(main_score=1), "score key 'main_score'"),
        (scoring(first=2), "declared a score 'first', a key of plugin 'a'"),
    ],
)
def test_a_plugin_with_invalid_declarations_is_reported(broken, said, scores_of):
    scores, warnings = scores_of(
        Point("a", scoring(first=1)), Point("broken", broken), Point("z", scoring(last=None))
    )
    assert scores == {"first": 1, "last": None}
    assert len(warnings) == 1
    assert said in warnings[0]


def test_an_invalid_score_is_reported_once_for_many_results(scores_of):
    points = [
        Point("odd", module(posir_scores=lambda: ["odd"])),
        Point("lazy", scoring(mean=math.nan)),
    ]
    assert len(scores_of(*points)[1]) == 2
    assert scores_of(*points) == ({}, [])


def test_a_score_is_computed_for_the_groups_that_are_read(profile, monkeypatch):
    lengths = []
    compute = lambda group: lengths.append(group.length) or group.queries  # noqa: E731
    plugin = module(posir_scores=lambda: [Score("seen", "Seen", "A score.", compute=compute)])
    plugins = load_plugins([Point("own", plugin)])
    monkeypatch.setattr("posir_tasks.plugin_api.get_plugins", lambda: plugins)
    scores = score_result(ResultValues(separate_documents(profile)))
    assert (scores["all"]["seen"], scores["all"]["seen"], lengths) == (1, 1, [None])
    assert (scores["q1"]["seen"], lengths) == (1, [None, 0])


def test_without_the_psi_plugin_the_rest_remains(scores_of):
    points = entry_points(group="posir")
    whole, _ = scores_of(*points)
    rest, warnings = scores_of(*[point for point in points if point.name != "psi"])
    assert warnings == []
    assert whole.keys() - rest.keys() == {"psi_as_published", "queries"}
    assert rest == {name: value for name, value in whole.items() if name in rest}
