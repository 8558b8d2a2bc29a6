"""Names of models and tasks as tables and charts print them."""

from collections.abc import Iterable

from posir_report.summary import TaskSummary

#: Characters of a model's name in a chart.
NAME_WIDTH = 72


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


def model_labels(summaries: Iterable[TaskSummary], width: int = NAME_WIDTH) -> list[str]:
    """Return a label for each summary: its model, and the revision if the model was run in several.

    Labels have at most `width` characters, unless shortening would make two of them equal.
    """
    runs = [(one.model, one.revision) for one in summaries]
    ambiguous = {model for model, _ in runs if len({revision for name, revision in runs if name == model}) > 1}
    names = {run: f"{run[0]} @ {run[1][:12]}" if run[0] in ambiguous else run[0] for run in runs}
    short = {run: shorten_middle(name, width) for run, name in names.items()}
    labels = short if len(set(short.values())) == len(names) else names
    return [labels[run] for run in runs]
