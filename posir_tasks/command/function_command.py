"""The command of a public function: the function, plus the options that all commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from posir_tasks.command.options import Overrides, TableFormat, settings_help, with_progress
from posir_tasks.command.undecided import undecided_on_error
from posir_tasks.display.presentation import Presentable, SectionPrinter, present, write_charts
from posir_tasks.display.tables import OutputFormat
from posir_tasks.public import (
    DECLARATION,
    Declaration,
    Parameter,
    describe_function,
    read_parameters,
)
from posir_tasks.settings_file import read_overrides


def build_command(function: Callable[..., Presentable]) -> Callable[..., None]:
    """Return a function with Typer's annotations that calls a public function and prints what it returns."""
    declaration: Declaration = getattr(function, DECLARATION)
    parameters = [parameter for parameter in read_parameters(function) if not parameter.option.python_only]
    shared = [parameter for parameter in SHARED if parameter.name != "png" or declaration.charts]
    if declaration.settings:
        shared = [_share("set", Overrides, None), _share("settings_help", settings_help(declaration.settings), False), *shared]

    def command(**options: Any) -> None:
        format_, html, png = options.pop("format"), options.pop("html"), options.pop("png", None)
        explain, overrides = options.pop("explain"), options.pop("set", None)
        options.pop("settings_help", None)
        given = {parameter.name: parse_given(parameter, options[parameter.name]) for parameter in parameters}
        given = read_overrides(overrides or ()) | {name: value for name, value in given.items() if value is not None}
        printer = SectionPrinter()
        if declaration.streams and format_ is OutputFormat.TEXT:
            given["show"] = printer.print_new
        is_check = any(given.get(name) for name in declaration.undecided_by)
        with undecided_on_error() if is_check else nullcontext():
            result = function(**given)
            for warning in result.warnings():
                typer.echo(warning, err=True)
            present(result, format_, explain=explain, printed=printer.printed)
            write_charts(result, png, html)
        raise typer.Exit(result.exit_status)

    command.__name__, command.__doc__ = function.__name__, describe_function(function)
    command.__signature__ = inspect.Signature([*map(build_parameter, parameters), *shared])  # type: ignore[attr-defined]
    command.__annotations__ = {}
    return with_progress(command)


def build_parameter(parameter: Parameter) -> inspect.Parameter:
    """Return a parameter with Typer's annotation: an argument, or an option of the same name."""
    option, required = parameter.option, parameter.default is inspect.Parameter.empty
    kind = str if option.parse else parameter.type
    settings: dict[str, Any] = {"help": parameter.help + (" May be repeated." if parameter.repeats else "")}
    settings |= {"metavar": option.metavar} if option.metavar else {}
    if kind in (int, float):
        settings |= {"min": option.min, "max": option.max}
    if parameter.is_argument:
        info: Any = typer.Argument(**settings)
    else:
        name = parameter.name.replace("_", "-")
        # What is done by default can only be turned off.
        both = f"--{name}/--no-{name}" if parameter.default is True else f"--{name}"
        names = [both, *([option.short] if option.short else [])]
        info = typer.Option(*names, **settings)
    default = None if parameter.repeats else parameter.default
    annotation = list[kind] if parameter.repeats else kind  # type: ignore[valid-type]
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else default,
        annotation=Annotated[annotation if required or default is not None else annotation | None, info],
    )


def parse_given(parameter: Parameter, value: Any) -> Any:
    """Return a value as the function takes it, None if nothing was given; raise PosirError if it cannot be read."""
    if value is None or (parameter.repeats and not value):
        return None
    if parameter.option.parse is None:
        return value
    return [parameter.option.parse(text) for text in value] if parameter.repeats else parameter.option.parse(value)


def _share(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


#: Options that every command of a public function has; `--quiet` is added by `with_progress`.
SHARED = (
    _share("format", TableFormat, OutputFormat.TEXT),
    _share("html", Annotated[Path | None, typer.Option(help="File for all of it as one page that needs no network.")], None),
    _share("png", Annotated[Path | None, typer.Option(help="Folder for the charts as PNG files.")], None),
    _share("explain", Annotated[bool, typer.Option("--explain", help="Explain every column below the tables.")], False),
)
