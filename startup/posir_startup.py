"""The start-up hook: lets `mteb` know PosIR's tasks the moment it has defined its own.

Python runs `posir.pth` when it starts, which calls `install`. That puts one small finder on `sys.meta_path`; nothing
else happens until `mteb` is imported. `POSIR_AUTOLOAD=0` keeps Python from calling it.
"""

from __future__ import annotations

import sys

# `import typing` alone would cost every Python start more than the rest of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

#: The modules of mteb that are added to, and the function of `posir_tasks.registration` that does it.
HOOKED = {
    "mteb.tasks": "add_tasks",
    "mteb.benchmarks.benchmarks": "add_benchmarks",
    "mteb.models.model_implementations": "add_bare_model_names",
}


class LoaderWithSequel:
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
        run_sequel(self._sequel, module)


class MtebFinder:
    """Finds the modules in `HOOKED` as Python would, and has their loading followed by ours."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a hooked module with its loader extended, and None for any other module."""
        if name not in HOOKED:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LoaderWithSequel(spec.loader, HOOKED[name])  # type: ignore[assignment]
        return spec


def run_sequel(sequel: str, module: ModuleType) -> None:
    """Call one function of `posir_tasks.registration`; what goes wrong there is one warning line and never mteb's."""
    try:
        from posir_tasks import registration

        getattr(registration, sequel)(module)
    except Exception as error:
        from importlib.metadata import version

        print(
            f"posir: could not add its tasks to mteb {version('mteb')} ({type(error).__name__}: {error}). mteb goes on "
            "without them. Run `posir doctor`, install versions that fit (`pip install -U posir 'mteb>=2.26.24,<3'`), "
            "or silence this with POSIR_AUTOLOAD=0.",
            file=sys.stderr,
        )


def is_installed() -> bool:
    """Whether the finder is on `sys.meta_path`."""
    return MtebFinder in sys.meta_path


def install() -> None:
    """Put the finder on `sys.meta_path`; modules of mteb that are already loaded are added to at once."""
    if is_installed():
        return
    sys.meta_path.insert(0, MtebFinder)
    for name, sequel in HOOKED.items():
        if name in sys.modules:
            run_sequel(sequel, sys.modules[name])
