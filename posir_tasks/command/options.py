"""The command of a public function, which is the function plus the options that all commands share;
and these options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import report_progress
from posir_tasks.base.public import (
    DECLARATION,
    Declaration,
    Parameter,
    describe_function,
    read_parameters,
)
from posir_tasks.base.settings_file import describe_settings, read_overrides
from posir_tasks.command.help import HelpLayout
from posir_tasks.command.undecided import say, undecided_on_error
from posir_tasks.display.presentation import Presentable, Result, present, write_charts
from posir_tasks.display.strip import FigureFormat, FigureStyle
from posir_tasks.display.tables import DisplaySection, OutputFormat

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Such as seed=7; it takes precedence over the file."
    ),
]


def settings_help(name: str) -> Any:
    """Return an option that prints the settings of a class, `module:class`, as a YAML file and ends
    the command.
    """

    def show(wanted: bool) -> None:
        if wanted:
            typer.echo(describe_settings(resolve_name(name)))
            raise typer.Exit

    text = "Print a settings file with all settings and their defaults, and exit."
    return Annotated[bool, typer.Option("--settings-help", is_eager=True, callback=show, help=text)]


def build_command(function: Callable[..., Presentable]) -> Callable[..., None]:
    """Return a function with Typer's annotations that calls a public function and prints what it
    returns.
    """
    declaration: Declaration = getattr(function, DECLARATION)
    parameters = [
        parameter for parameter in read_parameters(function) if not parameter.option.python_only
    ]
    shared = [
        *SHARED,
        *(FIGURES if declaration.charts else ()),
        *((CARD,) if declaration.card else ()),
        *LAST,
    ]
    if declaration.settings:
        shared = [
            _share("set", Overrides, None),
            _share("settings_help", settings_help(declaration.settings), False),
            *shared,
        ]

    for name in declaration.flags:
        shared.append(
            _share(
                name,
                Annotated[bool, typer.Option(f"--{name}", help=f"Short for --format {name}.")],
                False,
            )
        )

    panels = {name: title for title, names in declaration.groups.items() for name in names.split()}
    built = [build_parameter(parameter, panels.get(parameter.name)) for parameter in parameters]

    def command(**options: Any) -> None:
        flags = {OutputFormat(name) for name in declaration.flags if options.pop(name)}
        format_, explain = _choose_format(options.pop("format"), flags), options.pop("explain")
        overrides, html, card = (
            options.pop("set", None),
            options.pop("html"),
            options.pop("card", None),
        )
        folder, style = _choose_style(options)
        options.pop("settings_help", None)
        quiet = options.pop("quiet")
        given = read_overrides(overrides or ())
        for parameter in parameters:
            value, parse = options[parameter.name], parameter.option.parse or (lambda given: given)
            if value is not None and (value or not parameter.repeats):
                given[parameter.name] = (
                    list(map(parse, value)) if parameter.repeats else parse(value)
                )
        printed: list[DisplaySection] = []

        def show(known: Presentable) -> None:
            console = Console(highlight=False)
            for section in known.sections()[len(printed) :]:
                section.print_on(console)
                printed.append(section)
            console.file.flush()

        if declaration.streams and format_ is OutputFormat.TEXT:
            given["show"] = show
        is_check = any(given.get(name) for name in declaration.undecided_by)
        with report_progress(quiet=quiet), undecided_on_error() if is_check else nullcontext():
            result = function(**given)
            warnings = result.warnings if isinstance(result, Result) else result.warnings()
            for warning in warnings:
                say(warning)
            # Rich exits where a reader such as `head` has left; the files are written all the same.
            with suppress(SystemExit):
                present(result, format_, explain=explain, printed=len(printed))
            write_charts(result, folder, style, html, card)
        raise typer.Exit(result.exit_status)

    command.__name__, command.__doc__ = function.__name__, describe_function(function)
    command.__signature__ = inspect.Signature([*built, *shared])  # type: ignore[attr-defined]
    command.__annotations__ = {}
    return command


def _choose_format(format_: OutputFormat, flags: set[OutputFormat]) -> OutputFormat:
    """Return the format that is asked for by `--format` or a flag; raise PosirError if several
    are.
    """
    requested = sorted(flags | ({format_} - {OutputFormat.TEXT}))
    if len(requested) > 1:
        raise PosirError(
            f"Several output formats: {', '.join(requested)}. Give one; --html and --figures go "
            "with any."
        )
    return requested[0] if requested else format_


def _choose_style(options: dict[str, Any]) -> tuple[Path | None, FigureStyle]:
    """Take the folder for charts and their style out of the options; raise PosirError if they
    contradict.
    """
    folder, *chosen = (options.pop(parameter.name, parameter.default) for parameter in FIGURES)
    style = FigureStyle(*chosen)
    if style.bare and not folder:
        raise PosirError("--bare is how --figures writes charts. Add --figures DIR.")
    return folder, style


class FunctionCommand(HelpLayout, TyperCommand):
    """The command of a public function; one without arguments takes `-t A B` as well as `-t A -t
    B`, as `mteb run` does.

    One whose last argument is DATA takes `--data DATA`, too, as those with other arguments do.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        arguments = [
            parameter.name for parameter in self.params if parameter.param_type_name == "argument"
        ]
        repeated = {
            name
            for option in self.params
            if getattr(option, "multiple", False)
            for name in option.opts
        }
        data = None
        if args in (["--columns", "help"], ["--columns=help"]):
            args = [*args, "results"]  # which are not read
        if arguments[1:] == ["data"]:
            args = [
                part
                for arg in args
                for part in (arg.split("=", 1) if arg.startswith("--data=") else [arg])
            ]
            place = args.index("--data") if "--data" in args[:-1] else len(args)
            data = next(iter(args[place + 1 : place + 2]), None)
            args = [*args[:place], *args[place + 2 :], *([data] if data else [])]
        args = args if arguments else expand_values(args, repeated)
        self._refuse_repeated(ctx, args)
        rest: list[str] = super().parse_args(ctx, args)
        if data and ctx.params[arguments[0]] == data:
            ctx.fail(f"Missing argument '{arguments[0]}': --data {data} has no model.")
        return rest

    def _refuse_repeated(self, ctx: Any, args: Sequence[str]) -> None:
        """Fail for an option of one value that is given twice: the last would win silently."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        single = [
            param for param in order if param.param_type_name == "option" and not _may_repeat(param)
        ]
        for param in single:
            if single.count(param) > 1:
                ctx.fail(
                    f"Option '{param.opts[0]}' is given {single.count(param)} times and takes one "
                    "value. Give it once."
                )


def _may_repeat(param: Any) -> bool:
    return bool(param.multiple or param.is_flag or param.count)


def expand_values(args: Sequence[str], options: Collection[str]) -> list[str]:
    """Repeat the name of an option that accepts several values before each of them: `-t A B`
    becomes `-t A -t B`.
    """
    expanded: list[str] = []
    option = None
    for arg in args:
        if arg.startswith("-"):
            option = arg if arg in options else None
        elif option and expanded[-1] != option:
            expanded.append(option)
        expanded.append(arg)
    return expanded


def build_parameter(parameter: Parameter, panel: str | None = None) -> inspect.Parameter:
    """Return a parameter with Typer's annotation: an argument, or an option of the same name, in a
    panel of the help.
    """
    option, required = parameter.option, parameter.default is inspect.Parameter.empty
    kind = str if option.parse else parameter.type
    settings: dict[str, Any] = {
        "help": parameter.help,
        "metavar": option.metavar,
        "rich_help_panel": panel,
    }
    settings |= {"min": option.min, "max": option.max} if kind in (int, float) else {}
    if parameter.is_argument:
        info: Any = typer.Argument(
            **settings | {"metavar": option.metavar or parameter.name.upper()}
        )
    else:
        name = parameter.name.replace("_", "-")
        # What is done by default can only be turned off.
        both = f"--{name}/--no-{name}" if parameter.default is True else f"--{name}"
        info = typer.Option(*filter(None, (both, option.short)), **settings)
    default = None if parameter.repeats else parameter.default
    annotation = list[kind] if parameter.repeats else kind  # type: ignore[valid-type]
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else default,
        annotation=Annotated[
            annotation if required or default is not None else annotation | None, info
        ],
    )


def _share(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    (option,) = annotation.__metadata__
    option.rich_help_panel = "Output"
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


#: Options that every command of a public function has.
SHARED = (
    _share(
        "format", Annotated[OutputFormat, typer.Option(help="Output format.")], OutputFormat.TEXT
    ),
    _share(
        "html", Annotated[Path | None, typer.Option(help="File for one page with all of it.")], None
    ),
)
Width = Annotated[
    float | None, typer.Option(min=1, max=40, help="Inches of a --bare chart; by default 3.3.")
]
CHARTS = (
    "Folder for the charts, as --figure-format svg, pdf or png; for a paper --bare, with "
    "--figure-width (inches), --font-size "
    "(points) and --font."
)
#: The folder of charts, and the fields of their style in order.
FIGURES = (
    _share("figures", Annotated[Path | None, typer.Option(help=CHARTS)], None),
    _share(
        "figure_format", Annotated[FigureFormat, typer.Option(help="Format of the charts.")], "svg"
    ),
    _share(
        "bare",
        Annotated[
            bool, typer.Option("--bare", help="For a paper: no title, explanation and source.")
        ],
        False,
    ),
    _share("figure_width", Width, None),
    _share(
        "font_size",
        Annotated[
            float | None, typer.Option(min=4, max=40, help="Points of its text; by default 8.")
        ],
        None,
    ),
    _share(
        "font",
        Annotated[str | None, typer.Option(help="Its font, such as 'Times New Roman'.")],
        None,
    ),
)
CARD = _share(
    "card",
    Annotated[
        Path | None, typer.Option(help="PNG file for the picture of the answer, 1,200 x 630.")
    ],
    None,
)
LAST = (
    _share(
        "explain",
        Annotated[bool, typer.Option("--explain", help="Explain every column below the tables.")],
        False,
    ),
    _share("quiet", Annotated[bool, typer.Option("--quiet", help="Show no progress.")], False),
)
