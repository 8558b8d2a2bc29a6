"""Options of `posir run`, and its output while jobs run."""

import argparse
import logging

from hypothesis import given
from hypothesis import strategies as st

from posir_run import worker as warning_log
from posir_run.api import report_outcomes, run
from posir_run.jobs import EvaluationJob, JobOutcome
from posir_run.worker import show_warnings
from posir_tasks.base.progress import report_progress
from posir_tasks.command.commands import build_app, parse_call
from posir_tasks.models.references import ModelReference
from posir_tasks.plugin_api import Plugin, Plugins

VALUES = st.lists(st.sampled_from(["A", "B c", "d/e"]), min_size=1, max_size=3)
APP = build_app(run, "run")


@given(st.lists(st.tuples(st.sampled_from(["-t", "--task", "-m"]), VALUES), max_size=5))
def test_options_parse_several_values_like_argparse(options):
    words = ["-m", "X", *(word for option, values in options for word in (option, *values))]
    parser = argparse.ArgumentParser()
    parser.add_argument("-t", "--task", nargs="+", action="extend")
    parser.add_argument("-m", nargs="+", action="extend")
    expected = parser.parse_args(words)
    _, arguments = parse_call(APP, "run", run, words)
    given_options = arguments.kwargs
    assert (given_options.get("task"), given_options.get("model")) == (expected.task, expected.m)


def test_each_warning_is_shown_once_except_plugin_warnings(monkeypatch):
    invalid_plugin, warnings = Plugin("letters", "letters 1.0: letters", "no hook"), []
    monkeypatch.setattr(
        warning_log, "get_plugins", lambda: Plugins(None, (invalid_plugin, Plugin("psi", "posir")))
    )
    with show_warnings(warnings.append):
        for _ in range(2):
            logging.getLogger("mteb").warning("%d domains", 2)
            logging.getLogger("mteb").info("nothing")
            for warning in ("from a worker", "2 domains", invalid_plugin.warning):
                logging.getLogger("posir_run").warning(warning)
    logging.getLogger("mteb").warning("later")
    assert warnings == ["2 domains", "from a worker"]


def test_a_log_has_one_line_per_job_and_failures_are_returned(capsys, caplog):
    jobs = [
        EvaluationJob(ModelReference("org/[model]"), "PosIR-English", subset, "")
        for subset in ("game", "sports")
    ]
    outcomes = [
        JobOutcome(warnings=("first",)),
        JobOutcome(failure="bad data", warnings=("second",)),
    ]
    with report_progress(quiet=False):
        assert report_outcomes(zip(jobs, outcomes, strict=True), 2) == [f"{jobs[1]}: bad data"]
    assert caplog.messages == [
        "first",
        "second",
        "2/2 failed: org/[model] · PosIR-English · sports",
    ]
    assert capsys.readouterr().err.splitlines() == [
        "Evaluating: 0 of 2",
        "1/2 done: org/[model] · PosIR-English · game",
    ]
