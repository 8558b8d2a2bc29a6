"""Failing plugins are reported, and do not affect other plugins."""

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
class FakeEntryPoint:
    """Replacement for `importlib.metadata.EntryPoint`."""

    name: str
    plugin: Any
    value: str = "module"
    dist: Any = None

    def load(self):
        if isinstance(self.plugin, BaseException):
            raise self.plugin
        return self.plugin


def make_plugin(**functions):
    """Build a plugin with the given hook implementations."""
    plugin = ModuleType("their_plugin")
    for name, function in functions.items():
        setattr(plugin, name, hookimpl(function))
    return plugin


def make_score_plugin(**values):
    """Build a plugin that declares scores with the given values."""
    return make_plugin(
        posir_scores=lambda: [
            Score(key, key, "A score.", compute=lambda _, v=v: v) for key, v in values.items()
        ]
    )


def make_failing_plugin(error):
    """Build a plugin with a score that raises an error."""

    def compute(_group):
        raise error

    return make_plugin(posir_scores=lambda: [Score("mean", "Mean", "A score.", compute=compute)])


MISSPELLED = make_plugin(posir_score=lambda profile: {"queries": profile.queries})
UNKNOWN_ARGUMENT = make_plugin(posir_scores=lambda results: {"results": len(results)})
UNDECORATED = ModuleType("undecorated")
UNDECORATED.posir_scores = lambda profile: {"queries": profile.queries}


@pytest.fixture
def profile():
    columns = (np.array([row], np.int64) for row in (0, 10, 100, 100))
    return PositionProfile.from_ranks(
        RelativePositions(), Evidence(["q"], ["d"], *columns), np.array([1])
    )


@pytest.fixture
def compute_scores(profile, monkeypatch, caplog):
    """Compute scores and warnings with the given plugins instead of the installed ones."""

    def scores(*points):
        plugins = load_plugins(points)
        monkeypatch.setattr("posir_tasks.plugin_api.get_plugins", lambda: plugins)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            return dict(score_result(ResultValues(separate_documents(profile)))["all"]), [
                record.getMessage() for record in caplog.records
            ]

    return scores


def list_problems(*points):
    return {
        plugin.name: plugin.problem for plugin in load_plugins(points).plugins if plugin.problem
    }


@pytest.mark.parametrize(
    ("broken", "message"),
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
def test_load_failures_are_reported(broken, message, compute_scores):
    points = [
        FakeEntryPoint("broken", broken),
        FakeEntryPoint("after", make_score_plugin(a=1)),
        FakeEntryPoint("before", make_score_plugin(b=2)),
    ]
    result = list_problems(*points)
    assert set(result) == {"broken"}
    assert message in result["broken"]
    assert compute_scores(*points) == ({"a": 1, "b": 2}, [])


def test_a_second_plugin_with_the_same_name_is_rejected(compute_scores):
    points = [
        FakeEntryPoint("same", make_score_plugin(a=1), "one"),
        FakeEntryPoint("same", make_score_plugin(b=2), "two"),
    ]
    (first, second) = load_plugins(points).plugins
    assert (first.origin, first.problem) == ("one", None)
    assert second.origin == "two"
    assert "another plugin of the same name" in second.problem
    assert compute_scores(*points) == ({"a": 1}, [])


def test_unused_plugins_are_reported_once(monkeypatch, caplog):
    points = [
        FakeEntryPoint("broken", ImportError("gone"), "their_package.plugin"),
        FakeEntryPoint("good", make_score_plugin(a=1)),
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
    ("broken", "message"),
    [
        (make_failing_plugin(ZeroDivisionError("division by zero")), RAISED),
        *(
            (make_score_plugin(mean=value), RAISED)
            for value in (*INVALID, Estimate(0.5, (math.nan, 0.7)))
        ),
        (make_plugin(posir_scores=lambda: 1 // 0), "could not add its scores: ZeroDivisionError"),
        (
            make_plugin(posir_scores=lambda: {"queries": 1}),
            "declared 'queries', which is not a posir_tasks.values.scores.Score",
        ),
        (make_score_plugin(main_score=1), "score key 'main_score'"),
        (make_score_plugin(first=2), "declared a score 'first', a key of plugin 'a'"),
    ],
)
def test_invalid_declarations_are_reported(broken, message, compute_scores):
    scores, warnings = compute_scores(
        FakeEntryPoint("a", make_score_plugin(first=1)),
        FakeEntryPoint("broken", broken),
        FakeEntryPoint("z", make_score_plugin(last=None)),
    )
    assert scores == {"first": 1, "last": None}
    assert len(warnings) == 1
    assert message in warnings[0]


def test_invalid_scores_are_reported_once_for_many_results(compute_scores):
    points = [
        FakeEntryPoint("odd", make_plugin(posir_scores=lambda: ["odd"])),
        FakeEntryPoint("lazy", make_score_plugin(mean=math.nan)),
    ]
    assert len(compute_scores(*points)[1]) == 2
    assert compute_scores(*points) == ({}, [])


def test_scores_are_computed_for_groups_on_demand(profile, monkeypatch):
    lengths = []
    compute = lambda group: lengths.append(group.length) or group.queries  # noqa: E731
    plugin = make_plugin(posir_scores=lambda: [Score("seen", "Seen", "A score.", compute=compute)])
    plugins = load_plugins([FakeEntryPoint("own", plugin)])
    monkeypatch.setattr("posir_tasks.plugin_api.get_plugins", lambda: plugins)
    scores = score_result(ResultValues(separate_documents(profile)))
    assert (scores["all"]["seen"], scores["all"]["seen"], lengths) == (1, 1, [None])
    assert (scores["q1"]["seen"], lengths) == (1, [None, 0])


def test_a_failing_score_is_computed_once_per_group(profile, monkeypatch):
    lengths = []

    def fail(group):
        lengths.append(group.length)
        raise ValueError

    plugin = make_plugin(posir_scores=lambda: [Score("bad", "Bad", "A score.", compute=fail)])
    plugins = load_plugins([FakeEntryPoint("own", plugin)])
    monkeypatch.setattr("posir_tasks.plugin_api.get_plugins", lambda: plugins)
    scores = score_result(ResultValues(separate_documents(profile)))
    for _ in range(2):
        assert list(scores["all"]) == []
        with pytest.raises(KeyError):
            scores["all"]["bad"]
        assert "bad" not in scores["q1"]
    assert lengths == [None, 0]


def test_other_scores_remain_without_the_psi_plugin(compute_scores):
    points = entry_points(group="posir")
    all_scores, _ = compute_scores(*points)
    other_scores, warnings = compute_scores(*[point for point in points if point.name != "psi"])
    assert warnings == []
    assert all_scores.keys() - other_scores.keys() == {"psi_as_published", "queries"}
    assert other_scores == {
        name: value for name, value in all_scores.items() if name in other_scores
    }
