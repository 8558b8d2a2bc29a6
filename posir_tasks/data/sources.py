"""Source datasets of tasks, and their overlap with a model's training data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

from posir_tasks.text.languages import DOMAINS

#: Task name prefix to source name to lower-case patterns of the source's names in mteb's metadata.
#: PosIR: arXiv 2601.08363, section 2.1. PosIR-Mini has no source.
SOURCES: Mapping[str, Mapping[str, str]] = {
    "SQuAD-PosQ": {"SQuAD": "squad squad2 squad_v2"},
    "FineWeb-PosQ": {"FineWeb": "fineweb*"},
    "PosIR-Mini": {},
    "PosIR-": {"IndustryCorpus2": "industrycorpus*", "FineWeb": "fineweb*"},
    "TyDiQA-PosIR": {"TyDi QA": "tydi* mrtydi* mr-tydi* mrtidy*"},
    "MIRACL-PosIR": {"MIRACL": "miracl*"},
    "NQ-PosIR": {"Natural Questions": "nq* nanonq* natural*questions wikipedia-nq wiki-ss-nq"},
    "RepLiQA-PosIR": {"RepLiQA": "repliqa*"},
}


def list_sources(task: str, subsets: Iterable[str]) -> Mapping[str, str]:
    """Return the source datasets of a task with their name patterns; empty if they are unknown."""
    domains = {subset.partition("@")[0] for subset in subsets}
    if task.startswith("PosIR-") and not domains <= {*DOMAINS}:
        return {}
    return next((names for prefix, names in SOURCES.items() if task.startswith(prefix)), {})


def measure_overlap(sources: Mapping[str, str], training: Collection[str]) -> float:
    """Return the share of the sources in a model's training data, in [0, 1]."""
    names = [name.casefold() for name in training]
    overlaps = [
        any(fnmatchcase(name, pattern) for name in names for pattern in patterns.split())
        for patterns in sources.values()
    ]
    return sum(overlaps) / len(overlaps)
