"""The datasets that the documents of tasks were taken from, and whether a model was trained on
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

from posir_tasks.text.languages import DOMAINS

#: Sources by the beginning of a task's name: the name of each, and patterns of its names in mteb's
#: metadata, in small letters. PosIR: arXiv 2601.08363, 2.1. PosIR-Mini was written for PosIR.
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
    """List the sources of a task's documents, with the patterns of their names; none of data that
    is not known.
    """
    domains = {subset.partition("@")[0] for subset in subsets}
    if task.startswith("PosIR-") and not domains <= {*DOMAINS}:
        return {}
    return next((named for start, named in SOURCES.items() if task.startswith(start)), {})


def measure_overlap(sources: Mapping[str, str], training: Collection[str]) -> float:
    """Return the share of sources that are among the datasets a model was trained on."""
    names = [name.casefold() for name in training]
    found = [
        any(fnmatchcase(name, pattern) for name in names for pattern in patterns.split())
        for patterns in sources.values()
    ]
    return sum(found) / len(found)
