"""Options of commands that take a settings file."""

from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any

import typer

from posir_tasks.settings_file import describe_settings

SETTINGS_HELP = "--settings-help"

Config = Annotated[Path | None, typer.Option("--config", help=f"YAML file with settings; {SETTINGS_HELP} lists them.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting, such as seed=7; may be repeated. It takes precedence over the file."),
]


def settings_help(name: str) -> Any:
    """Return an option that prints the settings of a class as a YAML file and ends the command.

    Args:
        name: `module:class`, imported only when the option is given.
    """

    def show(wanted: bool) -> None:
        if wanted:
            typer.echo(describe_settings(resolve_name(name)))
            raise typer.Exit

    text = "Print a settings file with all settings and their defaults, and exit."
    return Annotated[bool, typer.Option(SETTINGS_HELP, is_eager=True, callback=show, help=text)]
