"""Run the `mteb` and `posir` commands as a user would."""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

from tests.support.processes import CONTEXT

BIN = Path(sys.executable).parent
#: The environment without variables of posir and the Hub, and without network access.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("POSIR_", "HF_"))} | {
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "160",
}
#: Variables that nothing reads while it is imported.
READ_LATE = frozenset({"POSIR_DATA", "POSIR_EMBEDDINGS", "POSIR_CACHE"})
TIMEOUT_SECONDS = 300


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this Python environment to completion.

    Unless an environment variable may matter to an import, the function behind the command is called in a fork of a process
    that has imported mteb, which takes a fraction of the time.
    """
    if environment.keys() <= READ_LATE:
        return _run_forked(command, CLEAN | environment)
    return _run_script(command, CLEAN | environment)


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new interpreter."""
    return _run_script((Path(sys.executable).name, "-c", code), CLEAN | environment)


def _run_script(command: tuple[str, ...], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        capture_output=True,
        text=True,
        env=environment,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def _run_forked(command: tuple[str, ...], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as name:
        stdout, stderr = Path(name) / "stdout", Path(name) / "stderr"
        process = CONTEXT.Process(target=_call_command, args=(command, environment, stdout, stderr))
        process.start()
        process.join(TIMEOUT_SECONDS)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(command, TIMEOUT_SECONDS, stdout.read_text(), stderr.read_text())
        return subprocess.CompletedProcess(command, process.exitcode, stdout.read_text(), stderr.read_text())


def _call_command(command: tuple[str, ...], environment: dict[str, str], stdout: Path, stderr: Path) -> None:
    for stream, file in ((sys.stdout, stdout), (sys.stderr, stderr)):
        with file.open("wb") as opened:
            os.dup2(opened.fileno(), stream.fileno())
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(BIN / command[0]), *command[1:]]
    (script,) = entry_points(group="console_scripts", name=command[0])
    try:
        sys.exit(script.load()())
    except Exception:
        # As in a new interpreter; multiprocessing would ignore the hook and print a traceback.
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
