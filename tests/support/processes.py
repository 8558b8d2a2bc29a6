"""Processes of their own, forked from a clean one that has imported what takes long to import."""

import multiprocessing
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from multiprocessing.process import BaseProcess
from typing import Any

#: Not forked from the test's own process: PyTorch's threads do not survive that.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "mteb.cli.build_cli",
        "posir_tasks.tasks.base",
        "tests.support.encoders",
        *(point.module for point in entry_points(group="posir")),
    ]
)


def start(target: Callable[..., object], *arguments: Any) -> BaseProcess:
    """Call a function in a process of its own."""
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


def exit_codes(target: Callable[..., object], calls: Iterable[tuple[Any, ...]]) -> list[int | None]:
    """Call a function once with each tuple of arguments, all at the same time; return how the processes ended."""
    processes = [start(target, *arguments) for arguments in calls]
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]
