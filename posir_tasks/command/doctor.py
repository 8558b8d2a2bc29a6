"""`posir doctor`: check the installation."""

from __future__ import annotations

import os
import platform
import site
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import typer
from rich.console import Console

from posir_tasks.errors import PosirError
from posir_tasks.host.failures import failures
from posir_tasks.host.private_names import PRIVATE_NAMES, TASKS_REGISTRY
from posir_tasks.plugin_api.manager import loaded_plugins
from posir_tasks.plugin_api.panels import EXTEND
from posir_tasks.sources.posir import REPO_ID
from posir_tasks.sources.posq import FINEWEB_REPO_ID, SQUAD_REPO_ID
from posir_tasks.sources.repository import DATA_VARIABLE, check_environment, data_folder, folder_name

AUTOLOAD_VARIABLE = "POSIR_AUTOLOAD"
#: The file that Python runs at startup: PEP 829 replaces executable lines in `.pth` files.
AUTOLOAD_FILE = "posir.start" if sys.version_info >= (3, 15) else "posir.pth"
#: When Python does not read `.pth` and `.start` files, by the documentation of the module `site`.
NO_AUTOLOAD = (
    "autoload does not work with `python -S`, in zip applications, if the package is in a folder that is only on PYTHONPATH or "
    "was installed with `pip install --target`, or if it is in the user site and Python runs with -s, -I or in a virtual "
    "environment. There, put `import posir_tasks` before your use of mteb."
)


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    good: bool | None
    """None for a remark that is neither good nor bad."""
    what: str


def add_commands(app: typer.Typer) -> None:
    """Add `posir doctor`."""

    @app.command(rich_help_panel=EXTEND)
    def doctor() -> None:
        """Check the installation: versions, autoload, tasks, plugins, access to the data; exit 1 if any check fails."""
        console = Console(highlight=False, soft_wrap=True)
        with console.status("Checking"):
            findings = [
                finding for section in (versions, autoload, mteb_internals, tasks, plugins, data) for finding in found(section)
            ]
        marks = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[dim]·[/]"}
        for finding in findings:
            console.print(f"{marks[finding.good]} ", end="")
            console.print(finding.what, markup=False)
        if any(finding.good is False for finding in findings):
            raise typer.Exit(1)


def found(section: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """Return the findings of a section; if it raises, that is the finding."""
    try:
        return list(section())
    except Exception as error:
        return [Finding(False, f"{section.__name__}: check failed ({type(error).__name__}: {error})")]


def versions() -> Iterator[Finding]:
    """Report versions."""
    yield Finding(
        None, f"posir {version('posir')}, mteb {version('mteb')}, Python {platform.python_version()} ({sys.executable})"
    )


def autoload() -> Iterator[Finding]:
    """Report whether a new Python process patches mteb without an import of posir_tasks."""
    check = "import posir_autoload; raise SystemExit(not posir_autoload.is_installed())"
    if os.environ.get(AUTOLOAD_VARIABLE) == "0":
        yield Finding(None, f"autoload: switched off by {AUTOLOAD_VARIABLE}=0; `import posir_tasks` registers the tasks")
    elif subprocess.run([sys.executable, "-c", check], check=False, stderr=subprocess.DEVNULL).returncode == 0:
        files = [Path(folder) / AUTOLOAD_FILE for folder in sys.path if (Path(folder) / AUTOLOAD_FILE).exists()]
        yield Finding(True, f"autoload: {next(iter(files), 'works')}")
    else:
        folders = ", ".join((*site.getsitepackages(), site.getusersitepackages()))
        yield Finding(False, f"autoload: Python did not run {AUTOLOAD_FILE}, which must be in one of {folders}")
    yield Finding(None, NO_AUTOLOAD)


def mteb_internals() -> Iterator[Finding]:
    """Report which of mteb's internals posir could not patch or find, and what does not work without them."""
    import mteb  # noqa: F401

    for failure in failures:
        yield Finding(False, f"mteb could not be patched: {failure}")
    for name in PRIVATE_NAMES:
        if name.is_missing():
            yield Finding(False, f"mteb {version('mteb')} has no {name.path}; not available: {name.used_by}")


def tasks() -> Iterator[Finding]:
    """Report whether mteb knows the tasks."""
    from posir_tasks.tasks.catalogue import builtin_task_classes

    classes, registry = builtin_task_classes(), TASKS_REGISTRY.resolve()
    unknown = [task.metadata.name for task in classes if registry.get(task.metadata.name) is not task]
    yield Finding(
        not unknown,
        f"tasks: mteb knows {len(classes) - len(unknown)} of {len(classes)}"
        + (f"; not {', '.join(unknown)}" if unknown else ""),
    )


def plugins() -> Iterator[Finding]:
    """Report each plugin and where it comes from, and the tasks that plugins add."""
    from posir_tasks.tasks.catalogue import checked_plugin_tasks

    for plugin in loaded_plugins().found:
        yield Finding(
            not plugin.problem, f"plugin {plugin.name} ({plugin.origin})" + f": {plugin.problem}" * bool(plugin.problem)
        )
    added = checked_plugin_tasks()
    for name, given in added.tasks.items():
        yield Finding(True, f"task {name} (plugin {given.plugin}: {given.task.__module__}.{given.task.__qualname__})")
    for problem in added.problems:
        yield Finding(False, problem)


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
            local = folder / folder_name(repo_id)
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
