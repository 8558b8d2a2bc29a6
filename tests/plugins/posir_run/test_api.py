"""`posir run`: its options, and what it says while jobs are evaluated."""

import argparse
import logging

from hypothesis import given
from hypothesis import strategies as st

from posir_run import worker as warning_log
from posir_run.api import report_outcomes
from posir_run.jobs import EvaluationJob, JobOutcome
from posir_run.worker import show_warnings
from posir_tasks.base.progress import report_progress
from posir_tasks.command.options import expand_values
from posir_tasks.models.references import ModelReference
from posir_tasks.plugin_api import Plugin, Plugins

OPTIONS = {"-t", "--task", "-m"}
VALUES = st.lists(st.sampled_from(["A", "B c", "d/e"]), min_size=1, max_size=3)


@given(
    st.lists(
        st.tuples(st.sampled_from(["-t", "--task", "-m", "--engine", "-v"]), VALUES), max_size=5
    )
)
def test_several_values_are_read_as_argparse_reads_them(given_):
    args = [
        arg
        for option, values in given_
        for arg in (option, *values[: {"-v": 0, "--engine": 1}.get(option)])
    ]
    mteb, ours = argparse.ArgumentParser(), argparse.ArgumentParser()
    for parser, how in ((mteb, {"nargs": "+", "action": "extend"}), (ours, {"action": "append"})):
        parser.add_argument("-t", "--task", **how)
        parser.add_argument("-m", **how)
        parser.add_argument("--engine")
        parser.add_argument("-v", action="store_true")
    assert ours.parse_args(expand_values(args, OPTIONS)) == mteb.parse_args(args)
    # A value without an option is unchanged.
    assert expand_values(["A", "--engine", "ray", "B", "-t", "C"], OPTIONS) == [
        "A",
        "--engine",
        "ray",
        "B",
        "-t",
        "C",
    ]


def test_a_warning_is_shown_once_and_those_about_plugins_not_again(monkeypatch):
    refused, shown = Plugin("letters", "letters 1.0: letters", "no hook"), []
    monkeypatch.setattr(
        warning_log, "loaded_plugins", lambda: Plugins(None, (refused, Plugin("psi", "posir")))
    )
    with show_warnings(shown.append):
        for _ in range(2):
            logging.getLogger("mteb").warning("%d domains", 2)
            logging.getLogger("mteb").info("nothing")
            for warning in ("from a worker", "2 domains", refused.warning):
                logging.getLogger("posir_run").warning(warning)
    logging.getLogger("mteb").warning("later")
    assert shown == ["2 domains", "from a worker"]


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
