"""Patch modules of mteb as soon as they are imported. A failure here never breaks mteb."""

from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from posir_tasks.host.failures import record_failure


class PatchingLoader(Loader):
    """Load a module with its own loader, then patch it."""

    def __init__(self, loader: Loader, patch: str) -> None:
        self._loader = loader
        self._patch = patch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as its own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, then apply the patch."""
        self._loader.exec_module(module)
        apply_patch(self._patch, module)


def find_patched_spec(name: str, path: Sequence[str] | None, target: ModuleType | None, patch: str) -> ModuleSpec | None:
    """Return the module's spec with a loader that applies a function of `posir_tasks.host.mteb_patches` after loading."""
    spec = PathFinder.find_spec(name, path, target)
    if spec is not None and spec.loader is not None:
        spec.loader = PatchingLoader(spec.loader, patch)
    return spec


def apply_patch(patch: str, module: ModuleType) -> None:
    """Call one function of `posir_tasks.host.mteb_patches`; if it raises, record the failure and continue."""
    try:
        from posir_tasks.host import mteb_patches

        getattr(mteb_patches, patch)(module)
    except Exception as error:
        record_failure(patch, error)
