"""`posir --help` lists every command in the panel of its purpose."""

import re

import typer
from typer.main import get_command

from posir_tasks.command.app import build_app
from posir_tasks.plugin_api.panels import PANELS
from tests.support.commands import run


def commands_by_panel(help_text):
    """Read the panels and the commands in them off the printed help."""
    panels = {}
    for line in help_text.splitlines():
        if title := re.match(r"╭─ (.+?) ─+╮", line):
            commands = panels.setdefault(title[1], [])
        elif name := re.match(r"│ ([a-z][a-z-]*) ", line):
            commands.append(name[1])
    return panels


def test_every_command_is_in_a_panel_and_the_panels_are_in_order():
    printed = run("posir", "--help")
    assert printed.returncode == 0, printed.stderr
    panels = commands_by_panel(printed.stdout)
    del panels["Options"]
    assert tuple(panels) == PANELS
    listed = [name for names in panels.values() for name in names]
    assert sorted(listed) == sorted(get_command(build_app()).commands)
    assert panels["Leaderboard"] == ["submit", "check-results", "leaderboard"]


def test_a_plugin_that_cannot_add_its_commands_is_named_and_the_others_stay(monkeypatch, caplog):
    def fail(app):  # noqa: ARG001
        raise ImportError("typer moved it\nmore")

    def add(app):
        app.command("extra", rich_help_panel="Their own")(lambda: typer.echo("ran"))

    class Plugins:
        def callers(self, hook):
            assert hook == "posir_commands"
            yield from (("broken", fail), ("working", add))

    monkeypatch.setattr("posir_tasks.plugin_api.manager.loaded_plugins", Plugins)
    assert [*get_command(build_app()).commands] == ["tasks", "doctor", "rescore", "extra"]
    assert "'broken' could not add its commands: ImportError: typer moved it" in caplog.text
