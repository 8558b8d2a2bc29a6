"""The hook implementations: the builtin probes, `posir probe`, and the commands about its results and about datasets."""

from collections.abc import Iterable

from posir_tasks.plugin_api import Command, hookimpl
from posir_tasks.plugin_api.panels import PROBE


@hookimpl
def posir_probes() -> Iterable[object]:
    """Return the builtin probes."""
    from posir_probe.catalog import builtin_probes

    return builtin_probes()


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("probe", "posir_probe.commands:probe", "Measure how embeddings depend on the position in a text.", PROBE),
        Command("correlate", "posir_probe.commands:correlate", "Correlate probes and benchmarks with PSI over models.", PROBE),
        Command("probe-groups", "posir_probe.commands:probe_groups", "Average probes over groups of models.", PROBE),
        Command(
            "subset-validity", "posir_probe.commands:subset_validity", "Compare Tiny samples with the complete tasks.", PROBE
        ),
        Command(
            "domain-similarity", "posir_probe.commands:domain_similarity", "Show how similar a dataset's domains are.", PROBE
        ),
    ]
