"""The `posir` command: help, imports, plugins, errors and completion."""

import json
import os
import re
import subprocess
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mteb.models import ModelMeta
from mteb.results import TaskResult

from posir_tasks.base.errors import PosirError
from posir_tasks.command.commands import list_commands
from posir_tasks.command.exit_status import report_errors
from posir_tasks.command.help import OVERVIEW
from posir_tasks.data.mini import read_mini
from posir_tasks.datasets.opening import open_data
from posir_tasks.plugin_api import PANELS, Command
from tests.support.cli import call_posir, function_commands, invoke
from tests.support.commands import BIN, python, run
from tests.support.results import write_result
from tests.support.simulation import build_profile, draw_counts

#: Packages that take longer to import than the command line.
HEAVY = {
    "numpy",
    "scipy",
    "scipy.stats",
    "polars",
    "pyarrow",
    "pandas",
    "pydantic",
    "datasets",
    "altair",
    "mteb",
    "torch",
}


#: The most common commands.
EIGHT = ["window", "inspect", "report", "run", "score", "compare", "mitigate", "train"]


def parse_panels(help_text):
    """Parse the commands of each panel from the help."""
    panels = {}
    for line in help_text.splitlines():
        if title := re.match(r"[A-Z].*", line):
            commands = panels.setdefault(title[0], [])
        elif name := re.match(r"  ([a-z][a-z-]*)  ", line):
            commands.append(name[1])
    return panels


def test_every_command_is_in_a_panel_and_the_panels_are_in_order():
    printed = run("posir", "--help")
    assert printed.returncode == 0, printed.stderr
    panels = parse_panels(printed.stdout)
    assert panels.pop("Usage: posir [--version] COMMAND [ARGS]...") == []
    examples = OVERVIEW.splitlines()[2:]
    assert [line for line in printed.stdout.splitlines() if "  # " in line] == [
        f"  {line}" for line in examples
    ]
    assert tuple(panels) == PANELS
    listed = [name for names in panels.values() for name in names]
    assert sorted(listed) == sorted({name.partition(" ")[0] for name in function_commands()})
    assert [name for title in PANELS[:4] for name in panels[title]] == EIGHT
    alone = run("posir")
    assert (alone.returncode, alone.stdout) == (0, printed.stdout)


def test_summaries_are_sentences_that_fit_a_terminal():
    commands = list_commands()
    assert {
        command.name
        for command in commands
        if len(command.summary) > 60 or not command.summary.endswith(".")
    } == set()


#: Begins a line with imported modules.
IMPORTED = "imported: "


def list_imported_modules(*calls):
    """List the top-level modules that are imported at the end of each command, run one after the
    other in a new process.
    """
    done = python(
        f"""
import json, sys
from posir_tasks.command.app import run_app
for arguments in {calls!r}:
    sys.argv = ["posir", *arguments]
    try:
        run_app()
    except SystemExit:
        pass
    names = {{name.partition(".")[0] for name in sys.modules}}
    print({IMPORTED!r} + json.dumps([*names, *({{"scipy.stats"}} & sys.modules.keys())]))
"""
    )
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stdout.splitlines() if line.startswith(IMPORTED)]
    assert len(printed) == len(calls)
    return [set(json.loads(line.removeprefix(IMPORTED))) for line in printed]


def test_help_imports_nothing_heavy_and_no_command():
    helped, listed = list_imported_modules(["--help"], ["tasks"])
    assert helped & HEAVY == set()
    assert {point.value.partition(".")[0] for point in entry_points(group="posir")} <= helped
    assert listed & {"mteb", "torch", "datasets", "polars"} == set()


def test_commands_that_read_results_do_not_import_mteb(tmp_path):
    write_result(tmp_path, {"": build_profile(draw_counts(np.full(20, 0.5), 40, 0))})
    *shown, rescored = list_imported_modules(
        ["published"], ["report", str(tmp_path)], ["rescore", str(tmp_path)]
    )
    used = {"numpy", "scipy", "pydantic"}
    assert [modules & (HEAVY - used) for modules in shown] == [set(), set()]
    assert rescored & (HEAVY - used - {"scipy.stats"}) == set()


def test_a_run_is_scored_without_mteb(tmp_path):
    data = read_mini()
    relevant = zip(data.evidence.query_ids, data.evidence.document_ids, strict=True)
    (tmp_path / "a.trec").write_text(
        "".join(f"{query} Q0 {document} 1 1.0 a\n" for query, document in relevant)
    )
    (modules,) = list_imported_modules(
        ["score", str(tmp_path / "a.trec"), "--data", "PosIR-Mini", "--output", str(tmp_path)]
    )
    assert modules & {"mteb", "torch", "transformers"} == set()
    (file,) = tmp_path.rglob("PosIR-Mini.json")
    (entry,) = json.loads(file.read_text())["scores"]["test"]
    assert (
        entry["main_score"],
        entry["hf_subset"],
        entry["position_run"]["search"]["queries"],
    ) == (1, "default", 720)
    # mteb can read the file and write an equal one.
    assert TaskResult.from_disk(file).get_score() == 1
    described = ModelMeta.create_empty(
        {"name": "run/a", "revision": "unversioned", "loader": None}
    ).to_dict()
    written = json.loads((file.parent / "model_meta.json").read_text())
    assert written == json.loads(json.dumps(described, default=str))


def test_a_plugin_that_cannot_add_its_commands_is_named(monkeypatch, caplog):
    def fail():
        raise ImportError("it moved\nmore")

    extra = Command("extra", "os:getcwd", "Show the folder.", "Their own")
    same = Command("doctor", "os:getpid", "Show the process.")
    declared = {
        "broken": fail,
        "working": lambda: [[extra]],
        "clash": lambda: [[same]],
        "old": lambda: [["name"]],
    }
    plugins = SimpleNamespace(iterate_callers={"posir_commands": declared.items()}.get)
    monkeypatch.setattr("posir_tasks.plugin_api.get_plugins", lambda: plugins)
    assert [command.name for command in list_commands()] == [
        "tasks",
        "doctor",
        "rescore",
        "extra",
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "posir plugin 'broken' could not add its commands: ImportError: it moved",
        "posir plugin 'clash' declared a command 'doctor', a name of plugin 'posir'; it is omitted",
        "posir plugin 'old' declared 'name', which is not a posir_tasks.plugin_api.Command; it is "
        "omitted",
    ]


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("gone.module:run", "ModuleNotFoundError: No module named 'gone'"),
        ("os:gone", "AttributeError: module 'os' has no attribute 'gone'"),
    ],
)
def test_a_command_that_cannot_be_imported_reports_the_reason(monkeypatch, target, problem):
    plugins = SimpleNamespace(
        iterate_callers=lambda _: [("working", lambda: [[Command("extra", target, "Do more.")]])]
    )
    monkeypatch.setattr("posir_tasks.plugin_api.get_plugins", lambda: plugins)
    assert "extra" in call_posir(["--help"]).output
    called = call_posir(["extra"])
    assert isinstance(called.exception, PosirError)
    assert str(called.exception).startswith(
        f"Cannot import `posir extra` from {target}: {problem}."
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("x" * 5_000, f"error: {'x' * 300}...: File name too long."),
        ("file/inside", "Not a directory."),
    ],
)
def test_a_file_that_cannot_be_opened_is_named_with_the_reason(
    tmp_path: Path, monkeypatch, capsys, path: str, message: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended, report_errors(3):
        os.stat(path)  # noqa: PTH116 (a Path asks whether the name is too long)
    assert ended.value.code == 3
    assert message in capsys.readouterr().err


def test_other_system_errors_are_not_user_errors():
    with pytest.raises(ChildProcessError), report_errors():
        raise ChildProcessError


def test_columns_are_listed_without_results():
    assert "unread_share: Share of the questions" in invoke("report", "--columns", "help")


def test_a_misspelled_path_is_not_looked_up_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    with pytest.raises(PosirError, match=r"\./docz: no such file or folder\. Did you mean docs\?"):
        open_data("./docz")


@pytest.mark.slow
def test_completion_contains_commands_and_options(tmp_path):
    done = run("posir", "--install-completion", HOME=str(tmp_path), SHELL="/bin/bash")
    (file,) = (file for file in tmp_path.rglob("posir") if file.is_file())
    assert str(file) in done.stdout
    script = file.read_text()
    assert "agreement" in script
    assert "--fail-if" in script


@pytest.mark.parametrize(
    ("command", "status"),
    [
        pytest.param(["score", "--help"], 141, marks=pytest.mark.slow),
        (["published", "--format=csv"], 141),
        (["tasks"], 0),
    ],
)
def test_a_closed_pipe_ends_a_command_quietly(command, status):
    process = subprocess.Popen(
        [BIN / "posir", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    error = process.stderr.read()
    assert process.wait() == status
    assert error == b""
