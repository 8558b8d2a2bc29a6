"""Options that several commands have: their names, help and values are the same everywhere."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any

import typer

from posir_tasks.display.progress import report_progress
from posir_tasks.display.tables import OutputFormat
from posir_tasks.settings_file import describe_settings

Explain = Annotated[bool, typer.Option("--explain", help="Explain every column below the tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]

SETTINGS_HELP = "--settings-help"
Config = Annotated[Path | None, typer.Option("--config", help=f"YAML file with settings; {SETTINGS_HELP} lists them.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting, such as seed=7; may be repeated. It takes precedence over the file."),
]


def format_option(*formats: OutputFormat) -> Any:
    """Return the option `--format` of a command that supports some formats; other values are refused."""

    def parse(value: str) -> OutputFormat:
        if value not in formats:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(map(repr, map(str, formats)))}.")
        return OutputFormat(value)

    metavar = f"[{'|'.join(formats)}]"
    return typer.Option("--format", help="Output format.", parser=parse, metavar=metavar, autocompletion=lambda: list(formats))


#: Of a command that prints tables.
TableFormat = Annotated[
    OutputFormat, format_option(OutputFormat.TEXT, OutputFormat.MARKDOWN, OutputFormat.CSV, OutputFormat.JSON)
]
#: Of a command that prints sentences.
TextFormat = Annotated[OutputFormat, format_option(OutputFormat.TEXT, OutputFormat.JSON)]


def settings_help(name: str) -> Any:
    """Return an option that prints the settings of a class, `module:class`, as a YAML file and ends the command."""

    def show(wanted: bool) -> None:
        if wanted:
            typer.echo(describe_settings(resolve_name(name)))
            raise typer.Exit

    text = "Print a settings file with all settings and their defaults, and exit."
    return Annotated[bool, typer.Option(SETTINGS_HELP, is_eager=True, callback=show, help=text)]


def with_progress(command: Callable[..., Any]) -> Callable[..., Any]:
    """Report the progress of a command, unless its new option `--quiet` is given: bars on a terminal, lines in a log.

    Put it between `app.command(...)` and the function.
    """

    @wraps(command)
    def run(*args: Any, quiet: bool, **options: Any) -> Any:
        with report_progress(quiet=quiet):
            return command(*args, **options)

    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    run.__annotations__ = command.__annotations__ | {"quiet": Quiet}
    return run
