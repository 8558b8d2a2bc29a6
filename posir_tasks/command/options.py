"""Build the commands of public functions, and add the options that all commands have."""

from __future__ import annotations

import inspect
import webbrowser
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter as Cli
from cyclopts import Token
from cyclopts.validators import Number
from rich.console import Console

from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import report_progress
from posir_tasks.base.public import (
    DECLARATION,
    Declaration,
    Function,
    Option,
    Parameter,
    read_parameters,
)
from posir_tasks.base.records import Fields, Record
from posir_tasks.base.settings_file import read_overrides
from posir_tasks.command.exit_status import exit_inconclusive_on_error, print_message
from posir_tasks.display.position_charts import FigureFormat, FigureStyle
from posir_tasks.display.presentation import Result, print_result, write_charts
from posir_tasks.display.tables import OutputFormat

#: Heading of the shared options in the help.
OUTPUT = "Output"


#: Options for charts: the folder, then the fields of `FigureStyle` in order.
FIGURES = (
    Parameter(
        "figures",
        Path,
        None,
        "Folder for the charts. For a paper, add --bare, and perhaps --figure-format, "
        "--figure-width, --font-size and --font.",
        Option(metavar="FOLDER"),
    ),
    Parameter("figure_format", FigureFormat, "svg", "Format of the charts."),
    Parameter("bare", bool, False, "For a paper: charts without title, explanation and source."),
    Parameter(
        "figure_width",
        float,
        None,
        "Width of a --bare chart in inches; by default 3.",
        Option(min=1, max=40),
    ),
    Parameter(
        "font_size",
        float,
        None,
        "Text size of a --bare chart in points; by default 8.",
        Option(min=4, max=40),
    ),
    Parameter("font", str, None, "Font for a --bare chart, such as 'Times New Roman'."),
)
SETTINGS = (
    Parameter(
        "set",
        str,
        None,
        "A setting, such as seed=7; overrides the settings file.",
        Option(metavar="KEY=VALUE"),
        repeats=True,
    ),
    # Handled by `commands.run_command`.
    Parameter(
        "settings_help",
        bool,
        False,
        "Print a settings file with all settings and their defaults, and exit.",
    ),
)
FORMATS = (
    Parameter("format", OutputFormat, OutputFormat.TEXT, "Output format."),
    Parameter("html", Path, None, "Write one HTML page; without a file name, posir-COMMAND.html."),
    Parameter("open", bool, False, "Show the page in the browser."),
)
CARD = Parameter("card", Path, None, "PNG file for the position chart, 1,200 x 630 pixels.")
PRINTING = (
    Parameter("explain", bool, False, "Explain every column below the tables."),
    Parameter("quiet", bool, False, "Hide progress."),
)


def list_function_options(function: Function) -> list[Parameter]:
    """List the parameters of a public function that its command accepts."""
    return [
        parameter for parameter in read_parameters(function) if not parameter.option.python_only
    ]


def list_shared_options(declaration: Declaration) -> list[Parameter]:
    """List the options of a command that are not parameters of its function."""
    return [
        *(SETTINGS if declaration.settings else ()),
        *FORMATS,
        *(FIGURES if declaration.charts else ()),
        *([CARD] if declaration.card else ()),
        *PRINTING,
        *(
            Parameter(name, bool, False, f"Short for --format {name}.")
            for name in declaration.flags
        ),
    ]


def build_command(function: Function) -> Function:
    """Build the function that cyclopts calls for a public function. It returns the exit status."""
    declaration: Declaration = getattr(function, DECLARATION)
    parameters = [*list_function_options(function), *list_shared_options(declaration)]
    has_arguments = any(parameter.is_argument for parameter in parameters)
    signature = inspect.Signature(
        [build_parameter(parameter, takes_list=not has_arguments) for parameter in parameters]
    )

    def command(*args: Any, **kwargs: Any) -> int:
        bound_arguments = signature.bind(*args, **kwargs)
        bound_arguments.apply_defaults()
        return run_function(function, declaration, bound_arguments.arguments)

    command.__name__ = function.__name__
    command.__signature__ = signature  # type: ignore[attr-defined]
    return command


def read_arguments(function: Function, options: Fields) -> Record:
    """Build the arguments of a function from `--set` and its options. Unset options are omitted."""
    arguments = read_overrides(options.get("set") or ())
    for parameter in list_function_options(function):
        value = options[parameter.name]
        if value is None or (parameter.repeats and not value):
            continue
        parse = parameter.option.parse
        if parse is not None:
            value = [parse(text) for text in value] if parameter.repeats else parse(value)
        arguments[parameter.name] = value
    return arguments


def run_function(function: Function, declaration: Declaration, options: Fields) -> int:
    """Call a function with the options of its command, print the result and return the exit status.

    Raises:
        PosirError: Several output formats are given, or `--bare` without `--figures`.
    """
    formats = {OutputFormat(name) for name in declaration.flags if options[name]}
    formats |= {options["format"]} - {OutputFormat.TEXT}
    if len(formats) > 1:
        raise PosirError(f"Several output formats: {', '.join(sorted(formats))}. Choose one.")
    format_ = next(iter(formats), OutputFormat.TEXT)
    names = [parameter.name for parameter in FIGURES[1:]]
    style = FigureStyle(*(options[name] for name in names if name in options))
    if style.bare and not options["figures"]:
        raise PosirError("--bare needs --figures. Add --figures FOLDER.")
    arguments = read_arguments(function, options)
    sections_printed = 0

    def show(result: Result) -> None:
        nonlocal sections_printed
        console = Console(highlight=False)
        sections = result.sections()
        for section in sections[sections_printed:]:
            section.print_on(console)
        sections_printed = len(sections)
        console.file.flush()

    if declaration.streams and format_ is OutputFormat.TEXT:
        arguments["show"] = show
    is_check = any(arguments.get(name) for name in declaration.check_options)
    error_context = exit_inconclusive_on_error() if is_check else nullcontext()
    with report_progress(quiet=options["quiet"]), error_context:
        result: Result = function(**arguments)
        for warning in result.warnings:
            print_message(warning)
        # If a pipe is closed (`| head`), Rich exits, but the files must still be written.
        with suppress(SystemExit):
            print_result(
                result, format_, explain=options["explain"], sections_printed=sections_printed
            )
        write_charts(result, options.get("figures"), style, options["html"], options.get("card"))
    if options["open"]:
        webbrowser.open(options["html"].resolve().as_uri())
    return result.exit_status


def add_page_name(name: str, words: Sequence[str]) -> list[str]:
    """Add the file name `posir-COMMAND.html` to `--html` or `--open` if none is given."""
    page = f"posir-{name.replace(' ', '-')}.html"
    expanded_words: list[str] = []
    for word, next_word in zip_longest(words, words[1:], fillvalue="-"):
        expanded_words.append(word)
        if word == "--html" and next_word.startswith("-"):
            expanded_words.append(page)
    has_page = any(word.partition("=")[0] == "--html" for word in words)
    return (
        [*expanded_words, "--html", page] if "--open" in words and not has_page else expanded_words
    )


def parse_integers(kind: Any, tokens: Sequence[Token]) -> int | list[int]:
    """Parse an integer or a list of integers. (cyclopts rounds 1.5.)"""
    numbers = [int(token.value) for token in tokens]
    return numbers if kind is list[int] else numbers[0]


def build_parameter(parameter: Parameter, *, takes_list: bool) -> inspect.Parameter:
    """Build a parameter of a command with its cyclopts annotation.

    Args:
        parameter: The parameter of a public function.
        takes_list: Whether a repeatable option accepts `-t A B` besides `-t A -t B`. False for
            commands with arguments, since arguments may follow the option.
    """
    option = parameter.option
    kind = str if option.parse else parameter.type
    names = [f"--{parameter.name.replace('_', '-')}"]
    if option.short:
        names.append(option.short)
    limits = None
    if option.min is not None or option.max is not None:
        limits = Number(gte=option.min, lte=option.max)
    cli = Cli(
        name=names,
        help=parameter.help,
        validator=limits,
        converter=parse_integers if kind is int else None,
        # Flags that are on by default have only the `--no-` form.
        negative_bool="no-" if parameter.default is True else (),
        negative_iterable=(),
        consume_multiple=parameter.repeats and takes_list,
        allow_repeating=parameter.repeats,
    )
    annotation = list[kind] if parameter.repeats else kind  # type: ignore[valid-type]
    default = None if parameter.repeats else parameter.default
    if parameter.default is inspect.Parameter.empty:
        default = inspect.Parameter.empty
    elif default is None:
        annotation = annotation | None
    elif kind is str:
        default = str(default)
    kinds = inspect.Parameter
    return inspect.Parameter(
        parameter.name,
        kinds.POSITIONAL_OR_KEYWORD if parameter.is_argument else kinds.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, cli],
    )
