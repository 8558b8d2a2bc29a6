"""The hook implementations: the builtin probes."""

from collections.abc import Iterable

from posir_tasks.plugin_api import hookimpl


@hookimpl
def posir_probes() -> Iterable[object]:
    """Return the builtin probes."""
    from posir_probes.catalogue import builtin_probes

    return builtin_probes()
