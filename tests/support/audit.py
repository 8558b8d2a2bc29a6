"""An audit hook that fails on code from outside the installed packages and the repository, and on
commands of a shell.
"""

import sys
from contextlib import contextmanager
from pathlib import Path

import tests

#: Folders whose code may run; `<string>` and the like are made by code that may.
TRUSTED = tuple(
    {
        str(Path(path).resolve())
        for path in (sys.prefix, sys.base_prefix, Path(tests.__file__).parents[1])
    }
)
#: Events of the interpreter that run a program.
PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "os.startfile", "pty.spawn")

_active: list[list[str]] = []


def _listen(event: str, arguments: tuple) -> None:
    if not _active:
        return
    if event in PROGRAMS:
        origin = f"{event} {arguments[0]!r}"
    elif event == "exec":
        origin = getattr(arguments[0], "co_filename", "")
    elif event in ("import", "compile"):
        origin = arguments[1]
    else:
        return
    if event in PROGRAMS or (
        isinstance(origin, str) and origin.startswith("/") and not origin.startswith(TRUSTED)
    ):
        _active[-1].append(origin)
        raise RuntimeError(f"code from outside: {event} {origin}")


# A hook stays for the life of the process; it listens inside of `forbid_foreign_code` alone.
sys.addaudithook(_listen)


@contextmanager
def forbid_foreign_code():
    """Fail if code is loaded from outside, even where the caller catches the error that stops
    it.
    """
    seen: list[str] = []
    _active.append(seen)
    try:
        yield
    finally:
        _active.remove(seen)
    assert not seen
