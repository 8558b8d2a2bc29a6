"""The command `posir edges`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from posir_letters.scores import SCORES
from posir_tasks.results import read_results
from posir_tasks.values.scores import QueryGroup, ResultValues


def edges(
    results: Annotated[Path, Parameter(help="The --output-folder of `mteb run`.")],
) -> None:
    """Print the MRR@10 of the first and of the last position of every result in a folder."""
    for result in read_results(results):
        group = QueryGroup(ResultValues(result.ranks))
        scores = {score.key: score.compute(group) for score in SCORES}
        values = ", ".join(f"{name} {score}" for name, score in scores.items())
        print(f"{result.model} · {result.task}: {values}")
