"""Functions of a user's own code, which options name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

from posir_tasks.errors import PosirError, summarize_error


def load_function(option: str, reference: str) -> Callable[..., Any]:
    """Return a function by `module:function`; modules in the working folder are found.

    Args:
        option: The option, for messages, such as `--retriever`.
        reference: Module and function, which may be a method: `module:object.method`.

    Raises:
        PosirError: There is none, or importing its module fails.
    """
    module, colon, name = reference.partition(":")
    if not (module and colon and name):
        raise PosirError(f"{option} {reference}: write module:function, such as pipeline:run for `run` in pipeline.py.")
    folder = os.getcwd()  # noqa: PTH109 (sys.path holds texts)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        function: Callable[..., Any] = resolve_name(reference)
    except (Exception, SystemExit) as error:  # it is the user's own code
        raise PosirError(f"{option} {reference}: cannot be imported ({summarize_error(error)}).") from error
    if not callable(function):
        raise PosirError(f"{option} {reference}: is {type(function).__name__}, which cannot be called.")
    return function
