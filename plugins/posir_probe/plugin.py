"""The commands `posir probe` and `posir study`, and the builtin probes."""

from collections.abc import Iterable

from posir_tasks.plugin_api import PROBE, Command, declare, hookimpl


@hookimpl
def posir_probes() -> Iterable[object]:
    """Return the builtin probes."""
    from posir_probe.probing import build_builtin_probes

    return build_builtin_probes()


posir_commands = declare(
    Command(
        "probe",
        "posir_probe.api:probe",
        "Measure how embeddings depend on the position in a text.",
        PROBE,
    ),
    Command(
        "study correlate",
        "posir_probe.api:correlate",
        "Correlate probes and benchmarks with position bias.",
        PROBE,
    ),
    Command(
        "study probe-groups",
        "posir_probe.api:probe_groups",
        "Average probes over groups of models.",
        PROBE,
    ),
    Command(
        "study model-means",
        "posir_probe.api:model_means",
        "Average mteb's scores over models.",
        PROBE,
    ),
    Command(
        "study subset-validity",
        "posir_probe.api:subset_validity",
        "Compare Tiny samples with the complete tasks.",
        PROBE,
    ),
    Command(
        "study domain-similarity",
        "posir_probe.api:domain_similarity",
        "Measure the similarity of a dataset's domains.",
        PROBE,
    ),
)
