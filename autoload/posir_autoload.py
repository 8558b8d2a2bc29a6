"""Patch mteb when it is imported, so that it knows posir's tasks.

Python imports this module at startup because of `posir.pth`, or calls `start` because of
`posir.start` (3.15 and later). It only adds a finder to `sys.meta_path` and waits for the import of
mteb. As every Python process runs this file, it is small, imports only modules that are already
loaded, and never raises. The patches are in `posir_tasks.mteb`. If posir is partly uninstalled,
mteb still works, with a warning.
"""

import os
import sys

#: Errors that prevented the import of posir.
import_errors: list[Exception] = []

#: Name of the function in `posir_tasks.mteb.mteb_patches` that patches each module.
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
    """Finds the modules in `PATCHES` and returns loaders that patch them."""

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
    """Warn on stderr that posir cannot be imported, for example after an incomplete uninstall."""
    if not import_errors and sys.stderr is not None:
        print(
            "posir: mteb continues without posir's tasks, because posir cannot be imported "
            f"({type(error).__name__}: {error}). Run `pip install --force-reinstall --no-deps "
            "posir`, or `pip uninstall posir`.",
            file=sys.stderr,
        )
    import_errors.append(error)


def is_installed() -> bool:
    """Return True if the finder is in `sys.meta_path`."""
    return MtebFinder in sys.meta_path


def install() -> None:
    """Add the finder to `sys.meta_path`, and patch the mteb modules that are already imported."""
    if is_installed():
        return
    sys.meta_path.insert(0, MtebFinder)
    for name, patch in PATCHES.items():
        # A module that is still being imported has triggered the import of this one.
        if name in sys.modules and not getattr(sys.modules[name].__spec__, "_initializing", False):
            try:
                from posir_tasks.mteb.mteb_patches import apply_patch

                apply_patch(patch, sys.modules[name])
            except Exception as error:
                warn_once(error)


def start() -> None:
    """Install the finder unless `POSIR_AUTOLOAD=0`. Never raises, since every Python process calls
    it.
    """
    try:
        if os.environ.get("POSIR_AUTOLOAD") != "0":
            install()
    except Exception:
        pass


start()
