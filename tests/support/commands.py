"""Run the `mteb` and `posir` commands as a user would."""

import importlib
import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import datasets.config
from huggingface_hub import constants
from huggingface_hub.utils import logging

from tests.support.processes import CONTEXT

BIN = Path(sys.executable).parent
#: The environment without variables of posir and the Hub, and without network access.
CLEAN = {
    name: value for name, value in os.environ.items() if not name.startswith(("POSIR_", "HF_"))
} | {
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "160",
}
#: Variables that nothing reads while it is imported.
READ_LATE = {
    f"POSIR_{name}"
    for name in (
        "DATA",
        "EMBEDDINGS",
        "CACHE",
        "FIRST_STAGE",
        "PROTOCOL",
        "QUERY_PROMPT",
        "DOCUMENT_PROMPT",
        "WINDOW",
    )
} | {*("OPENAI_API_KEY", "OPENAI_BASE_URL", "TMPDIR", "COLUMNS")}
#: Variables that a fork with HF_ENDPOINT reads again.
HUB_VARIABLES = {"HF_DEBUG", "HF_ENDPOINT", "HF_HOME", "HF_HUB_OFFLINE", "HF_TOKEN"}
TIMEOUT_SECONDS = 300
#: The option of `mteb run` and of `posir run` for the folder of the results.
OUTPUT = {"mteb": "--output-folder", "posir": "--output"}


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this Python environment to completion.

    Unless an environment variable may matter to an import, the function behind the command is
    called in a fork of a process that has imported mteb, which takes a fraction of the time.
    """
    if environment.keys() <= READ_LATE | (HUB_VARIABLES if "HF_ENDPOINT" in environment else set()):
        return _run_forked(_call_command, command, CLEAN | environment)
    return run_process(BIN / command[0], *command[1:], env=CLEAN | environment)


def run_process(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program, in the environment without variables of the user unless `env` is given."""
    options = {
        "env": CLEAN,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "timeout": TIMEOUT_SECONDS,
    } | options
    return subprocess.run([*map(str, command)], text=True, check=False, **options)


def run_in_terminal(*command: str, columns: int, errors: bool = False, **environment: str) -> str:
    """Run a command in a terminal with a number of columns, in a fork as in `run`.

    Returns:
        What it prints, without styles; with `errors`, its messages and progress bars, too.
    """
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (50, columns))
    printed = bytearray()
    reader = threading.Thread(target=_read_to_end, args=(terminal, printed))
    reader.start()
    name = Path(os.ttyname(end))
    variables = CLEAN | {"COLUMNS": str(columns), "TERM": "xterm"} | environment
    arguments = (_call_command, command, variables, name, name if errors else Path(os.devnull))
    process = CONTEXT.Process(target=_call, args=arguments)
    process.start()
    process.join(TIMEOUT_SECONDS)
    os.close(end)
    reader.join()
    os.close(terminal)
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", printed.decode().replace("\r\n", "\n"))


def _read_to_end(terminal: int, printed: bytearray) -> None:
    # Linux reports the end of a terminal as an error.
    with suppress(OSError):
        while chunk := os.read(terminal, 4096):
            printed += chunk


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new interpreter.

    It does not look for garbage, which takes a fifth of the time of importing mteb.
    """
    code = f"import gc; gc.disable()\n{code}"
    return run_process(sys.executable, "-c", code, env=CLEAN | environment)


def python_with_mteb(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a fork of a process that has imported mteb, which takes a fraction of the
    time of `python`.

    Args:
        code: Does not test what an import does.
        environment: Variables that nothing reads while it is imported.
    """
    return _run_forked(_run_code, (code,), CLEAN | environment)


def _run_forked(
    function: Callable[..., object], arguments: tuple[str, ...], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as name:
        stdout, stderr = Path(name) / "stdout", Path(name) / "stderr"
        process = CONTEXT.Process(
            target=_call, args=(function, arguments, environment, stdout, stderr)
        )
        process.start()
        process.join(TIMEOUT_SECONDS)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(
                arguments, TIMEOUT_SECONDS, stdout.read_text(), stderr.read_text()
            )
        return subprocess.CompletedProcess(
            arguments, process.exitcode, stdout.read_text(), stderr.read_text()
        )


def _call(
    function: Callable[..., object],
    arguments: tuple[str, ...],
    environment: dict[str, str],
    stdout: Path,
    stderr: Path,
) -> None:
    for name, number, file in (("stdout", 1, stdout), ("stderr", 2, stderr)):
        with file.open("wb") as opened:
            os.dup2(opened.fileno(), number)
        # A stream knows of the file that it was opened for whether it can be sought in.
        setattr(sys, name, open(number, "w", buffering=1, encoding="utf-8", closefd=False))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    if "HF_ENDPOINT" in environment:
        importlib.reload(constants)
        importlib.reload(datasets.config)
        if constants.HF_DEBUG:
            logging.set_verbosity_debug()
    # The folder that TMPDIR names is looked up once.
    tempfile.tempdir = None
    try:
        sys.exit(function(*arguments))
    except Exception:
        # As in a new interpreter; multiprocessing would ignore the hook and print a traceback.
        sys.excepthook(*sys.exc_info())
        sys.exit(1)


def _call_command(name: str, *arguments: str) -> object:
    sys.argv = [str(BIN / name), *arguments]
    (script,) = entry_points(group="console_scripts", name=name)
    return script.load()()


def _run_code(code: str) -> None:
    exec(code, {"__name__": "__main__"})
