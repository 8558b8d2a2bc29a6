"""`posir rescore`: plugins over stored profiles, without the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError
from posir_tasks.results import rescore, result_files


def add_commands(app: typer.Typer) -> None:
    """Add `posir rescore`."""

    @app.command("rescore")
    def rescore_command(
        results: Annotated[Path, typer.Argument(help="The --output-folder of `mteb run`.")],
    ) -> None:
        """Run the plugins again over the profiles of stored results, and write their scores; no model is needed."""
        counts = [rescore(file) for file in progress(list(result_files(results)), "Rescoring")]
        if not any(counts):
            raise PosirError(f"{results}: no result with a position profile below it; nothing was written.")
        typer.echo(f"{results}: rescored {sum(counts)} profiles in {sum(count > 0 for count in counts)} files")
