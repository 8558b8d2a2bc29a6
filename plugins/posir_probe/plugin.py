"""The hook implementations: the builtin probes, `posir probe`, and the studies of its results and of datasets."""

from collections.abc import Iterable

from posir_tasks.plugin_api import PROBE, Command, hookimpl

API = "posir_probe.api"


@hookimpl
def posir_probes() -> Iterable[object]:
    """Return the builtin probes."""
    from posir_probe.probing import builtin_probes

    return builtin_probes()


@hookimpl
def posir_commands() -> list[Command]:
    """Return the declarations."""
    return [
        Command("probe", f"{API}:probe", "Measure how embeddings depend on the position in a text.", PROBE),
        Command("study correlate", f"{API}:correlate", "Correlate probes and benchmarks with PSI over models.", PROBE),
        Command("study probe-groups", f"{API}:probe_groups", "Average probes over groups of models.", PROBE),
        Command("study subset-validity", f"{API}:subset_validity", "Compare Tiny samples with the complete tasks.", PROBE),
        Command("study domain-similarity", f"{API}:domain_similarity", "Show how similar a dataset's domains are.", PROBE),
    ]
