"""Processes forked from a clean server process that has imported the slow packages."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from multiprocessing import forkserver
from typing import Any

#: The modules of the commands.
COMMANDS = [f"{point.module.removesuffix('.plugin')}.api" for point in entry_points(group="posir")]
#: Modules that the commands import when they need them.
FOUND_LATE = [
    "bm25s",
    "langcodes.language_distance",
    "posir_report.charts",
    "posir_report.page",
    "posir_report.tables",
    "posir_compare.sections",
    "posir_significance.scores",
    "posir_tasks.command.api",
    "posir_tasks.command.help",
    "posir_tasks.display.figures",
]
#: Not forked from the test's own process: PyTorch's threads do not survive a fork.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "mteb.cli.build_cli",
        "posir_tasks.command.options",
        "posir_tasks.models.bm25",
        "posir_tasks.search.subset",
        "posir_tasks.tasks.published",
        "tests.support.encoders",
        *(point.module for point in entry_points(group="posir")),
        *COMMANDS,
        *FOUND_LATE,
        "tests.support.chart_library",
        "tests.support.seeds",
        "tests.support.frozen",
    ]
)

#: Variable with the address of the fork server that the workers of pytest-xdist share.
ADDRESS = "POSIR_TEST_FORK_SERVER"
#: Later versions let only a process with the server's key connect.
CAN_SHARE = sys.version_info < (3, 14)


def share_fork_server() -> None:
    """Start the fork server for child processes of this process: they import mteb once, not once in
    each worker of pytest-xdist.
    """
    if CAN_SHARE:
        server = forkserver._forkserver  # type: ignore[attr-defined]
        server.ensure_running()
        os.environ[ADDRESS] = server._forkserver_address


def use_shared_fork_server() -> None:
    """Let `CONTEXT` fork from the server that `share_fork_server` started, if it did."""
    address = os.environ.get(ADDRESS)
    if address:
        server = forkserver._forkserver  # type: ignore[attr-defined]
        server._forkserver_address = address
        # Handed to each fork in place of the pipe that keeps the server alive.
        server._forkserver_alive_fd = os.open(os.devnull, os.O_WRONLY)
        server.ensure_running = lambda: None


def exit_codes(target: Callable[..., object], calls: Iterable[tuple[Any, ...]]) -> list[int | None]:
    """Call a function once per tuple of arguments, each in its own process, all at the same time;
    return the exit codes.
    """
    processes = [CONTEXT.Process(target=target, args=arguments) for arguments in calls]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]
