"""Patch mteb when it is imported, to register posir's tasks.

At startup, Python imports this module because of `posir.pth`, or calls `start` because of
`posir.start` (3.15 and later). The module only adds a finder to `sys.meta_path`, which waits for
the import of mteb. Every Python process runs this file, so it is small, never raises, and only
imports modules that are already loaded. The patches are in `posir_tasks.mteb`. If posir is only
partly installed, mteb still works, with a warning.
"""

import os
import sys

#: Errors that prevented the import of posir.
import_errors: list[Exception] = []

#: Functions in `posir_tasks.mteb.mteb_patches` by the module that they patch.
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
    """Finds the modules in `PATCHES`, with loaders that patch them."""

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
    """Warn that posir cannot be imported, for example after an incomplete uninstall."""
    if not import_errors and sys.stderr is not None:
        print(
            "posir: mteb runs without posir's tasks, because posir cannot be imported "
            f"({type(error).__name__}: {error}). Run `pip install --force-reinstall --no-deps "
            "posir`, or `pip uninstall posir`.",
            file=sys.stderr,
        )
    import_errors.append(error)


def is_installed() -> bool:
    """Return True if the finder is in `sys.meta_path`."""
    return MtebFinder in sys.meta_path


def install() -> None:
    """Add the finder to `sys.meta_path`, and patch mteb modules that are already imported."""
    if is_installed():
        return
    sys.meta_path.insert(0, MtebFinder)
    for name, patch in PATCHES.items():
        # Skip the module whose import has triggered this import.
        if name in sys.modules and not getattr(sys.modules[name].__spec__, "_initializing", False):
            try:
                from posir_tasks.mteb.mteb_patches import apply_patch

                apply_patch(patch, sys.modules[name])
            except Exception as error:
                warn_once(error)


def start() -> None:
    """Install the finder unless `POSIR_AUTOLOAD=0`. Every Python process calls this function, so it
    never raises.
    """
    try:
        if os.environ.get("POSIR_AUTOLOAD") != "0":
            install()
    except Exception:
        pass


start()
