"""What the package adds: scores, a command and a task."""

import math
from pathlib import Path

import typer

from posir_tasks.plugin_api import hookimpl
from posir_tasks.profile import MRR_AT_10, PositionProfile
from posir_tasks.results import read_results


@hookimpl
def posir_scores(profile: PositionProfile) -> dict[str, float | None]:
    """MRR@10 of the first and of the last position; None where nothing is asked about it."""
    first, *_, last = [None if math.isnan(score) else score for score in profile.by_position(MRR_AT_10).tolist()]
    return {"mrr_at_10_first_position": first, "mrr_at_10_last_position": last}


@hookimpl
def posir_commands(app: typer.Typer) -> None:
    """Add `posir edges`."""

    @app.command()
    def edges(results: Path) -> None:
        """Print the MRR@10 of the first and of the last position of every result in a folder."""
        for result in read_results(results):
            scores = posir_scores(result.profile)
            typer.echo(f"{result.model} · {result.task}: {', '.join(f'{name} {score}' for name, score in scores.items())}")


@hookimpl
def posir_task_classes() -> list[type]:
    """The package's tasks."""
    from posir_letters.task import HarbourLetters

    return [HarbourLetters]
