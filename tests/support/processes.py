"""Processes forked from a clean server process that has imported the slow packages."""

import multiprocessing
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import Any

#: Not forked from the test's own process: PyTorch's threads do not survive a fork.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "mteb.cli.build_cli",
        "posir_tasks.tasks.base",
        "tests.support.encoders",
        *(point.module for point in entry_points(group="posir")),
        "tests.support.seeds",
        "tests.support.frozen",
    ]
)


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
