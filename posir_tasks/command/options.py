"""The command of a public function: the function plus the options that all commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
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
    Option,
    Parameter,
    read_parameters,
)
from posir_tasks.base.settings_file import read_overrides
from posir_tasks.command.undecided import say, undecided_on_error
from posir_tasks.display.presentation import Presentable, Result, present, write_charts
from posir_tasks.display.strip import FigureFormat, FigureStyle
from posir_tasks.display.tables import DisplaySection, OutputFormat

#: Title in the help of the options that commands share.
OUTPUT = "Output"


def _share(
    name: str, kind: Any, default: Any, text: str, option: Option | None = None
) -> Parameter:
    repeats = isinstance(default, tuple)
    return Parameter(name, kind, repeats, default, False, text, option or Option())


#: Options of every command.
FORMAT = _share("format", OutputFormat, OutputFormat.TEXT, "Output format.")
HTML = _share("html", Path, None, "File for one page with all of it.")
EXPLAIN = _share("explain", bool, False, "Explain every column below the tables.")
QUIET = _share("quiet", bool, False, "Show no progress.")
#: The folder of charts, and the fields of `FigureStyle` in order.
FIGURES = (
    _share(
        "figures",
        Path,
        None,
        "Folder for the charts, as --figure-format svg, pdf or png; for a paper --bare, with "
        "--figure-width (inches), --font-size (points) and --font.",
    ),
    _share("figure_format", FigureFormat, "svg", "Format of the charts."),
    _share("bare", bool, False, "For a paper: no title, explanation and source."),
    _share(
        "figure_width",
        float,
        None,
        "Inches of a --bare chart; by default 3.3.",
        Option(min=1, max=40),
    ),
    _share("font_size", float, None, "Points of its text; by default 8.", Option(min=4, max=40)),
    _share("font", str, None, "Its font, such as 'Times New Roman'."),
)
CARD = _share("card", Path, None, "PNG file for the picture of the answer, 1,200 x 630.")
#: Options of commands with a settings file. `commands.run_command` prints the settings.
SET = _share(
    "set",
    str,
    (),
    "Such as seed=7; it takes precedence over the file.",
    Option(metavar="KEY=VALUE"),
)
SETTINGS_HELP = _share(
    "settings_help",
    bool,
    False,
    "Print a settings file with all settings and their defaults, and exit.",
)


def list_own(function: Callable[..., Any]) -> list[Parameter]:
    """List the parameters of a public function that its command has."""
    return [
        parameter for parameter in read_parameters(function) if not parameter.option.python_only
    ]


def list_shared(declaration: Declaration) -> list[Parameter]:
    """List the options that a command has beside the parameters of its function."""
    shared = [SET, SETTINGS_HELP] if declaration.settings else []
    shared += [FORMAT, HTML]
    if declaration.charts:
        shared += FIGURES
    if declaration.card:
        shared.append(CARD)
    shared += [EXPLAIN, QUIET]
    for name in declaration.flags:
        shared.append(_share(name, bool, False, f"Short for --format {name}."))
    return shared


@dataclass(frozen=True)
class CommandCall:
    """One call of a command: its function, and the values that were given."""

    function: Callable[..., Presentable]
    declaration: Declaration
    options: dict[str, Any]

    def take(self, parameter: Parameter) -> Any:
        """Return the value of a shared option."""
        return self.options.get(parameter.name, parameter.default)

    def choose_format(self) -> OutputFormat:
        """Return the format of `--format` or of a flag.

        Raises:
            PosirError: Several formats are asked for.
        """
        flags = {OutputFormat(name) for name in self.declaration.flags if self.options[name]}
        requested = sorted(flags | ({self.take(FORMAT)} - {OutputFormat.TEXT}))
        if len(requested) > 1:
            raise PosirError(
                f"Several output formats: {', '.join(requested)}. Give one; --html and --figures "
                "go with any."
            )
        return requested[0] if requested else OutputFormat.TEXT

    def choose_style(self) -> FigureStyle:
        """Return the style of charts.

        Raises:
            PosirError: `--bare` is given without `--figures`.
        """
        style = FigureStyle(*(self.take(parameter) for parameter in FIGURES[1:]))
        if style.bare and not self.take(FIGURES[0]):
            raise PosirError("--bare is how --figures writes charts. Add --figures DIR.")
        return style

    def read_arguments(self) -> dict[str, Any]:
        """Return the arguments of the function: settings of `--set`, and what was given."""
        arguments = read_overrides(self.take(SET) or ())
        for parameter in list_own(self.function):
            value = self.options[parameter.name]
            if value is None or (parameter.repeats and not value):
                continue
            parse = parameter.option.parse
            if parse is not None:
                value = [parse(text) for text in value] if parameter.repeats else parse(value)
            arguments[parameter.name] = value
        return arguments

    def run(self) -> int:
        """CommandCall the function, print and write its result, and return the exit status."""
        chosen = self.choose_format()
        style = self.choose_style()
        arguments = self.read_arguments()
        printed: list[DisplaySection] = []

        def show(result: Presentable) -> None:
            console = Console(highlight=False)
            for section in result.sections()[len(printed) :]:
                section.print_on(console)
                printed.append(section)
            console.file.flush()

        if self.declaration.streams and chosen is OutputFormat.TEXT:
            arguments["show"] = show
        is_check = any(arguments.get(name) for name in self.declaration.undecided_by)
        guard = undecided_on_error() if is_check else nullcontext()
        with report_progress(quiet=self.take(QUIET)), guard:
            result = self.function(**arguments)
            warnings = result.warnings if isinstance(result, Result) else result.warnings()
            for warning in warnings:
                say(warning)
            # Rich exits where a reader such as `head` has left; the files are written all the same.
            with suppress(SystemExit):
                present(result, chosen, explain=self.take(EXPLAIN), printed=len(printed))
            write_charts(result, self.take(FIGURES[0]), style, self.take(HTML), self.take(CARD))
        return result.exit_status


def build_command(function: Callable[..., Presentable]) -> Callable[..., int]:
    """Build the function that cyclopts calls for a public function; it returns the exit status."""
    declaration: Declaration = getattr(function, DECLARATION)
    parameters = [*list_own(function), *list_shared(declaration)]
    has_arguments = any(parameter.is_argument for parameter in parameters)

    def command(*args: Any, **kwargs: Any) -> int:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return CommandCall(function, declaration, given.arguments).run()

    signature = inspect.Signature(
        [build_parameter(parameter, several=not has_arguments) for parameter in parameters]
    )
    command.__name__ = function.__name__
    command.__signature__ = signature  # type: ignore[attr-defined]
    return command


def read_whole_number(_type: Any, tokens: Sequence[Token]) -> int:
    """Read a whole number; cyclopts would round 1.5."""
    return int(tokens[0].value)


def read_whole_numbers(_type: Any, tokens: Sequence[Token]) -> list[int]:
    """Read whole numbers."""
    return [int(token.value) for token in tokens]


def build_parameter(parameter: Parameter, *, several: bool) -> inspect.Parameter:
    """Build a parameter of a command with the annotation of cyclopts.

    Args:
        parameter: The parameter of a public function.
        several: Whether an option takes several values, `-t A B` as well as `-t A -t B`; not
            where arguments may follow it.
    """
    option = parameter.option
    kind = str if option.parse else parameter.type
    names = [f"--{parameter.name.replace('_', '-')}"]
    if option.short:
        names.append(option.short)
    has_limits = option.min is not None or option.max is not None
    limits = Number(gte=option.min, lte=option.max) if has_limits else None
    read_whole = read_whole_numbers if parameter.repeats else read_whole_number
    cli = Cli(
        name=names,
        help=parameter.help,
        validator=limits,
        converter=read_whole if kind is int else None,
        # What is done by default can only be turned off.
        negative_bool="no-" if parameter.default is True else (),
        negative_iterable=(),
        consume_multiple=parameter.repeats and several,
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
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD
        if parameter.is_argument
        else inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, cli],
    )
