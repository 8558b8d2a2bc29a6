"""`posir build` with its subcommands: the build itself, and the check of its questions by people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from posir_build.api import build
from posir_tasks.command.options import Overrides, TableFormat, build_command
from posir_tasks.display.presentation import TableResult, present
from posir_tasks.display.tables import OutputFormat
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.settings_file import load_settings

#: The command that `posir build CONFIG.yaml` stands for.
DEFAULT = "run"

Config = Annotated[Path | None, typer.Argument(help="YAML file with the settings.", metavar="CONFIG.yaml")]


class DefaultGroup(TyperGroup):
    """A group of commands, of which one is meant if none is named: `posir build CONFIG.yaml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the default command if the first argument is none, and not a request for help."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=DefaultGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Build a dataset with questions about documents, controlled for the position of the evidence. "
    "`posir build CONFIG.yaml` runs all stages; `posir build run --help` lists the options.",
)


app.command(DEFAULT)(build_command(build))


@app.command("sample")
def sample_command(
    number: Annotated[int, typer.Argument(min=1, help="Number of questions.", metavar="N")],
    config: Config = None,
    overrides: Overrides = None,
    output: Annotated[Path | None, typer.Option(help="CSV file; by default human-check.csv in the work folder.")] = None,
) -> None:
    """Write a sheet for a human check: question, document with the span marked, verdicts, and columns for yes or no.

    The questions are a random sample of a finished build, with about as many from each cell of length and position.
    """
    from posir_build.balance import CELLS
    from posir_build.dataset_files import choose_questions, write_sheet
    from posir_build.pipeline import STAGE_NAMES, Tools, locked, run_stages
    from posir_build.settings import BuildSettings

    settings = load_settings(BuildSettings, config, overrides or ())
    with locked(settings.work_folder):
        results = run_stages(Tools(settings), None)
    if STAGE_NAMES[-1] not in results:
        raise PosirError(f"{settings.work_folder}: the build is not finished, or its settings have changed. Run it first.")
    file = output or settings.work_folder / "human-check.csv"
    if file.exists():
        raise PosirError(f"{file}: already exists, and may have judgments. Remove it, or choose another --output.")
    result = results[STAGE_NAMES[-1]]
    questions = choose_questions(result, number, settings.seed, CELLS[settings.balance.cells])
    write_sheet(file, result, questions)
    typer.echo(f"{file}: {pluralize(len(questions), 'question')}")


@app.command("agreement")
def agreement_command(
    sheets: Annotated[list[Path], typer.Argument(help="Sheets with judgments, one per person.")],
    dataset: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Folder of the domain, such as data/NAME/eng-Latn/notes: put the agreement into its dataset card."
        ),
    ] = None,
    format_: TableFormat = OutputFormat.TEXT,
) -> None:
    """Read judgments back: how often people find a question right, with a 95 % interval."""
    from posir_build.dataset_files import build_agreement_table, count_agreement, read_judgments, record_human_check

    files = [sheet.resolve() for sheet in sheets]
    if len(set(files)) < len(files):
        raise PosirError("a sheet is named twice. Name one sheet per person.")
    judgments = [read_judgments(sheet) for sheet in sheets]
    counted = count_agreement(judgments)
    if dataset is not None:
        record_human_check(dataset, counted, {name for sheet in judgments for name, given in sheet.items() if given})
    present(TableResult(tables=[build_agreement_table(counted)], rows=counted), format_)
