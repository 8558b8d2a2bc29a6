"""`posir doctor`: what is installed, hooked, loaded and reachable."""

from __future__ import annotations

import os
import platform
import site
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import typer
from rich.console import Console

import posir_startup
from posir_tasks import hooking
from posir_tasks.errors import PosirError
from posir_tasks.hooks.manager import loaded_plugins
from posir_tasks.sources.posir import REPO_ID
from posir_tasks.sources.posq import FINEWEB_REPO_ID, SQUAD_REPO_ID
from posir_tasks.sources.repository import DATA_VARIABLE, check_environment, data_folder, local_name

AUTOLOAD_VARIABLE = "POSIR_AUTOLOAD"
HOOK_FILE = "posir.pth"
#: When Python does not run the lines of `.pth` files; the documentation of the module `site` has the rules.
SKIPPED_WHEN = (
    "Python skips start-up hooks when it runs with -S, when the package lies in a folder that is only on PYTHONPATH or was "
    "installed with `pip install --target`, when it lies in the user site and Python runs with -s, -I or in a virtual "
    "environment, and inside zip applications. There, put `import posir_tasks` before your use of mteb."
)


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    good: bool | None
    """None for a remark that is neither good nor bad."""
    what: str


def add_commands(app: typer.Typer) -> None:
    """Add `posir doctor`."""

    @app.command()
    def doctor() -> None:
        """Say what is installed, hooked into mteb, loaded (tasks, plugins, from where) and reachable; exit 1 if not well."""
        console = Console(highlight=False, soft_wrap=True)
        with console.status("Looking"):
            findings = [*versions(), *hook(), *tasks(), *plugins(), *data()]
        marks = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[dim]·[/]"}
        for finding in findings:
            console.print(f"{marks[finding.good]} ", end="")
            console.print(finding.what, markup=False)
        if any(finding.good is False for finding in findings):
            raise typer.Exit(1)


def versions() -> Iterator[Finding]:
    """Report versions."""
    yield Finding(
        None, f"posir {version('posir')}, mteb {version('mteb')}, Python {platform.python_version()} ({sys.executable})"
    )


def hook() -> Iterator[Finding]:
    """Report the start-up hook."""
    folders = [Path(folder) for folder in (*site.getsitepackages(), site.getusersitepackages())]
    files = [folder / HOOK_FILE for folder in folders if (folder / HOOK_FILE).exists()]
    if os.environ.get(AUTOLOAD_VARIABLE) == "0":
        yield Finding(None, f"start-up hook: switched off by {AUTOLOAD_VARIABLE}=0; `import posir_tasks` registers the tasks")
    elif files:
        yield Finding(posir_startup.is_installed(), f"start-up hook: {files[0]}")
    else:
        yield Finding(False, f"start-up hook: no {HOOK_FILE} in {', '.join(map(str, folders))}. {SKIPPED_WHEN}")
    yield Finding(None, SKIPPED_WHEN)


def tasks() -> Iterator[Finding]:
    """Report whether mteb knows the tasks."""
    from mteb.get_tasks import _TASKS_REGISTRY

    from posir_tasks.registration import task_classes

    for problem in hooking.problems:
        yield Finding(False, f"could not be added to mteb: {problem}")
    names = [task.metadata.name for task in task_classes()]
    unknown = [name for name in names if name not in _TASKS_REGISTRY]
    yield Finding(
        not unknown,
        f"tasks: mteb knows {len(names) - len(unknown)} of {len(names)}" + (f"; not {', '.join(unknown)}" if unknown else ""),
    )


def plugins() -> Iterator[Finding]:
    """Report each plugin and where it comes from."""
    for plugin in loaded_plugins().found:
        yield Finding(
            not plugin.problem, f"plugin {plugin.name} ({plugin.origin})" + f": {plugin.problem}" * bool(plugin.problem)
        )


def data() -> Iterator[Finding]:
    """Report where data would be read."""
    try:
        check_environment()
    except PosirError as error:
        yield Finding(False, str(error))
        return
    folder = data_folder()
    for repo_id in (REPO_ID, SQUAD_REPO_ID, FINEWEB_REPO_ID):
        if folder is not None:
            local = folder / local_name(repo_id)
            yield Finding(
                None, f"data {repo_id}: {local} ({'there' if local.is_dir() else 'not there'}; {DATA_VARIABLE} is set)"
            )
        else:
            yield Finding(None, f"data {repo_id}: {_reachable(repo_id)}")


def _reachable(repo_id: str) -> str:
    from huggingface_hub import HfApi

    try:
        HfApi().dataset_info(repo_id, timeout=5)
    except Exception as error:
        return f"not reachable on the Hub ({type(error).__name__}); a local folder can be read with {DATA_VARIABLE}=/path"
    return "reachable on the Hub"
