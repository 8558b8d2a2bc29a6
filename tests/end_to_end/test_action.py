"""The steps of `action.yml`, run as GitHub runs them: each script in a file, with bash, and inputs
as variables only.
"""

import re
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from packaging.requirements import Requirement

from posir_compare.api import compare
from posir_significance.findings import Metric
from posir_significance.messages.comparisons import format_change
from tests.support.commands import BIN, CLEAN, run_process
from tests.support.comparison import write_run

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
INSTALL, COMPARE = ACTION["runs"]["steps"]
EXPRESSION = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")


def run_step(step, folder, inputs, path=BIN):
    defaults = {name: declared.get("default", "") for name, declared in ACTION["inputs"].items()}
    given = defaults | inputs
    environment = {
        name: EXPRESSION.sub(lambda match: given[match[1]], value)
        for name, value in step.get("env", {}).items()
    }
    files = {"GITHUB_STEP_SUMMARY": folder / "summary.md", "GITHUB_OUTPUT": folder / "output"}
    for file in files.values():
        file.write_text("")
    script = folder / "step.sh"
    script.write_text(step["run"])
    github = {name: str(file) for name, file in files.items()} | {
        "GITHUB_ACTION_PATH": "/the action"
    }
    variables = CLEAN | github | environment | {"PATH": f"{path}:/usr/bin:/bin"}
    done = run_process(
        "bash", "--noprofile", "--norc", "-eo", "pipefail", script, cwd=folder, env=variables
    )
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return done, outputs, files["GITHUB_STEP_SUMMARY"].read_text()


def test_inputs_are_not_part_of_a_script():
    assert not [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step["run"]]


def test_the_verdict_is_exit_status_output_and_summary(tmp_path):
    for name, model, seed in (("base", "org/a", 1), ("new", "org/b", 5)):
        write_run(tmp_path / "all results" / name, model, seed)
    folders = {name: str(tmp_path / "all results" / name) for name in ("base", "new")}
    limits = {
        "fail-if": "ndcg_at_10 < 99\n\n  ndcg_at_10 > 99\n",
        "tasks": "PosIR-English",
        "junit": "reports/gate.xml",
    }
    done, outputs, summary = run_step(COMPARE, tmp_path, folders | limits)
    assert (done.returncode, outputs) == (1, {"verdict": "fails"}), done.stderr
    printed, error, rest = done.stdout.rpartition("::error title=")
    assert (summary, "::error" in printed) == (printed, False)
    assert (error + rest).startswith(
        "::error title=ndcg_at_10 < 99%2C all (PosIR-English%2C org/b)::change "
    )
    assert "\n" not in rest.rstrip("\n")
    assert summary.startswith("### The gate fails · org/b against org/a")
    compared = compare(
        [Path(folder) for folder in folders.values()], lengths="all", task="PosIR-English"
    )
    states = [format_change(row) for row in compared.rows if row.metric is Metric.NDCG_AT_10]
    assert [state for state in states if f"| {state} |" not in summary] == []
    suite = ElementTree.parse(tmp_path / "reports" / "gate.xml").getroot()
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["2", "1", "0"]


@pytest.mark.parametrize(
    ("status", "verdict"), [(0, "passes"), (1, "fails"), (2, "inconclusive"), (137, "inconclusive")]
)
def test_inputs_become_options_and_nothing_in_them_is_run(tmp_path, status, verdict):
    posir = write_command(tmp_path, "posir", f"exit {status}")
    (posir.parent / "python").symlink_to(sys.executable)
    limit = "position_effect > 5'; touch pwned; $(touch pwned) `touch pwned`"
    inputs = {
        "base": "--help",
        "new": "a b",
        "fail-if": f"{limit}\n \npsi < 1",
        "lengths": "all\nQ4",
        "strict": "true",
    }
    done, outputs, summary = run_step(COMPARE, tmp_path, inputs, path=posir.parent)
    limits = f"--fail-if={limit}|--fail-if=psi < 1|--lengths=all|--lengths=Q4"
    called, sign, title = done.stdout.partition("::error title=")
    assert (summary, bool(sign)) == (called, status > 0)
    assert title in ("", f"PosIR gate::The verdict: {verdict}. The log has the reason.\n")
    assert re.fullmatch(
        rf"compare\|--format\|markdown\|{re.escape(limits)}\|--strict\|--junit=\S+\|--\|--help\|a "
        r"b\|",
        called,
    )
    assert (done.returncode, outputs) == (status, {"verdict": verdict})
    assert not (tmp_path / "pwned").exists()


def write_command(folder, name, last_line=""):
    command = folder / "bin" / name
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nprintf "%s|" "$@"\n{last_line}\n')
    command.chmod(0o755)
    return command


def test_posir_is_installed_from_the_action_unless_it_is_there(tmp_path):
    python = write_command(tmp_path, "python")
    assert (
        run_step(INSTALL, tmp_path, {}, path=python.parent)[0].stdout
        == "-m|pip|install|--quiet|/the action/gate|"
    )
    assert run_step(INSTALL, tmp_path, {})[0].stdout == ""
    write_run(tmp_path / "a", "org/a", 1)
    done = run_process(BIN / "python", "-c", IMPORTED, tmp_path / "a", cwd=tmp_path, env=CLEAN)
    gate = tomllib.loads((ROOT / "gate" / "pyproject.toml").read_text())["project"]["dependencies"]
    needed, imported = (
        {re.split(r"[^\w-]", line)[0] for line in gate},
        set(done.stdout.replace("_", "-").split()),
    )
    assert {"numpy", "scipy"} <= imported, done.stderr
    of_these = {
        requirement.name.replace("_", "-")
        for name in needed
        for requirement in map(Requirement, requires(name) or ())
        # Extras are not installed.
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    # The last two are imported when this environment starts.
    assert imported <= needed | of_these | {"posir", "charset-normalizer", "setuptools"}


#: Prints the distributions that a gate on scores imports, which has what one on changes imports.
IMPORTED = """
import sys
from importlib.metadata import packages_distributions
from posir_report.api import report
from posir_tasks.command.app import main
sys.argv = ["posir", "report", sys.argv[1], "--fail-if", "ndcg_at_10 < 2", "--junit", "gate.xml", "--format", "markdown"]
sys.stdout, printed = sys.stderr, sys.stdout
try:
    main()
except SystemExit as end:
    assert not end.code
known = packages_distributions()
modules = {name.partition(".")[0] for name in sys.modules}
print(*{distribution.lower() for module in modules for distribution in known.get(module, ())}, file=printed)
"""  # noqa: E501
