"""Adding to a module of mteb when it has been loaded, without ever being what keeps mteb from working."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import version
from types import ModuleType
from typing import Any

#: What could not be added in this process, and why.
problems: list[str] = []


class PatchingLoader(Loader):
    """Runs a module as its own loader does, then adds to it."""

    def __init__(self, loader: Loader, sequel: str) -> None:
        self._loader = loader
        self._sequel = sequel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as its own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, then the sequel."""
        self._loader.exec_module(module)
        apply_patch(self._sequel, module)


def patched_spec(name: str, path: Sequence[str] | None, target: ModuleType | None, sequel: str) -> ModuleSpec | None:
    """Return the module's spec with its loader extended by a function of `posir_tasks.host.mteb_patches`."""
    spec = PathFinder.find_spec(name, path, target)
    if spec is not None and spec.loader is not None:
        spec.loader = PatchingLoader(spec.loader, sequel)
    return spec


def apply_patch(sequel: str, module: ModuleType) -> None:
    """Call one function of `posir_tasks.host.mteb_patches`; what goes wrong there is one warning line and never mteb's."""
    try:
        from posir_tasks.host import mteb_patches

        getattr(mteb_patches, sequel)(module)
    except Exception as error:
        note(sequel, error)


def note(what: str, error: Exception) -> None:
    """Remember what could not be added; the first such thing is told at once."""
    if not problems:
        warn(error)
    problems.append(f"{what}: {type(error).__name__}: {error}")


def warn(error: Exception) -> None:
    """Say in one line that mteb runs without PosIR's tasks, under which version, and what to do."""
    print(
        f"posir: could not add its tasks to mteb {version('mteb')} ({type(error).__name__}: {error}). mteb goes on without "
        "them. Run `posir doctor`, install versions that fit (`pip install -U posir 'mteb>=2.26.24,<3'`), or silence this "
        "with POSIR_AUTOLOAD=0.",
        file=sys.stderr,
    )
