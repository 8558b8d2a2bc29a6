"""Names of models and tasks as tables and charts print them."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol

from posir_report.summary import TaskSummary

#: Characters of a model's name in a chart.
NAME_WIDTH = 72


class LabeledRun(Protocol):
    """Anything measured of a model."""

    @property
    def model(self) -> str:
        """Name of the model."""

    @property
    def revision(self) -> str:
        """Its revision."""


def partial_suffix(subsets: int, missing: int) -> str:
    """Return what follows the name of a task of which subsets are missing: ` (partial: 2 of 32 subsets)`; else nothing."""
    return f" (partial: {subsets} of {subsets + missing} subsets)" if missing else ""


def shorten_middle(name: str, width: int = NAME_WIDTH) -> str:
    """Return a name on one line of at most `width` characters; a longer one keeps both ends, as either may identify it."""
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[-tail:]}"


def full_labels(runs: Iterable[LabeledRun]) -> list[str]:
    """Return a label for each run: its model, and the revision if there are several of the model."""
    revisions = defaultdict(set)
    for run in (runs := list(runs)):
        revisions[run.model].add(run.revision)
    return [f"{run.model} @ {run.revision[:12]}" if len(revisions[run.model]) > 1 else run.model for run in runs]


def model_labels(summaries: Iterable[TaskSummary], width: int = NAME_WIDTH) -> list[str]:
    """Return the full label of each summary, shortened to `width` characters unless two of them would become equal."""
    names = full_labels(summaries)
    short = {name: shorten_middle(name, width) for name in names}
    return [short[name] for name in names] if len(set(short.values())) == len(short) else names


def short_labels(runs: Iterable[LabeledRun]) -> list[str]:
    """Return the full label of each run without the model's organization, unless two models differ in it alone."""
    names = full_labels(runs)
    short = {name: name.rpartition("/")[2] for name in names}
    return [short[name] for name in names] if len(set(short.values())) == len(short) else names
