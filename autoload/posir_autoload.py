"""Autoload: patches mteb when it is imported, so that it knows posir's tasks.

Python imports this module at startup, through `posir.pth`, or calls its `start`, through
`posir.start` (3.15 and later). It puts a finder on `sys.meta_path`, and nothing else happens until
mteb is imported. Every start of Python reads this file, so it is small, imports only what is loaded
anyway, and never raises; the rest is in `posir_tasks.mteb`. Where this module is gone, `posir.pth`
does nothing; where the rest is, mteb goes on after one warning.
"""

import os
import sys

#: Why posir could not be imported.
warned: list[Exception] = []

#: The function in `posir_tasks.mteb.mteb_patches` that patches each module.
PATCHES = {
    "mteb.get_tasks": "add_tasks",
    "mteb.benchmarks.benchmarks": "add_benchmarks",
    "mteb.models.model_implementations": "add_model_references",
    "mteb.models.model_meta": "explain_missing_models",
    "mteb.cache.result_cache": "make_saving_safe",
    "mteb.cli.build_cli": "answer_runs",
    "mteb.abstasks.retrieval": "count_corpora",
}


class MtebFinder:
    """Finds the modules in `PATCHES` as Python does, with a loader that patches them."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205, D102
        if name not in PATCHES:
            return None
        try:
            from posir_tasks.mteb.mteb_patches import find_patched_spec

            return find_patched_spec(name, path, target, PATCHES[name])
        except Exception as error:
            warn_once(error)
            return None


def warn_once(error: Exception) -> None:
    """Say on stderr that mteb goes on without posir's tasks: posir is incomplete, such as half
    uninstalled.
    """
    if not warned and sys.stderr is not None:
        print(
            "posir: mteb goes on without posir's tasks, because posir cannot be imported "
            f"({type(error).__name__}: {error}). "
            "Run `pip install --force-reinstall --no-deps posir`, or `pip uninstall posir`.",
            file=sys.stderr,
        )
    warned.append(error)


def is_installed() -> bool:
    """Return whether the finder is on `sys.meta_path`."""
    return MtebFinder in sys.meta_path


def install() -> None:
    """Put the finder on `sys.meta_path`, and patch the modules of mteb that are already
    imported.
    """
    if is_installed():
        return
    sys.meta_path.insert(0, MtebFinder)
    for name, patch in PATCHES.items():
        # A module that is still being imported has asked for posir's tasks itself.
        if name in sys.modules and not getattr(sys.modules[name].__spec__, "_initializing", False):
            try:
                from posir_tasks.mteb.mteb_patches import apply_patch

                apply_patch(patch, sys.modules[name])
            except Exception as error:
                warn_once(error)


def start() -> None:
    """Install the finder unless `POSIR_AUTOLOAD=0`. Called at every start of Python, so it never
    raises.
    """
    try:
        if os.environ.get("POSIR_AUTOLOAD") != "0":
            install()
    except Exception:
        pass


start()
