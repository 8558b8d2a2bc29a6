"""The start-up hook: lets `mteb` know PosIR's tasks the moment it has defined its own.

Python runs `posir.pth` when it starts, which calls `install`. That puts one small finder on `sys.meta_path`; nothing else
happens until `mteb` is imported. `POSIR_AUTOLOAD=0` keeps Python from calling it. Every start of Python reads this file,
so it is short, and what is done to mteb stands in `posir_tasks.host.import_hook`.
"""

import sys

#: The modules of mteb that are added to, and the function of `posir_tasks.host.mteb_patches` that does it.
HOOKED = {
    "mteb.get_tasks": "add_tasks",
    "mteb.benchmarks.benchmarks": "add_benchmarks",
    "mteb.models.model_implementations": "add_model_references",
    "mteb.cache.result_cache": "make_saving_atomic",
}


class MtebFinder:
    """Finds the modules in `HOOKED` as Python would, and has their loading followed by ours."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205, D102
        if name not in HOOKED:
            return None
        from posir_tasks.host.import_hook import find_patched_spec

        return find_patched_spec(name, path, target, HOOKED[name])


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
            from posir_tasks.host.import_hook import apply_patch

            apply_patch(sequel, sys.modules[name])
