"""Commands that help lists from their declarations and imports when they are called."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.public import DECLARATION
from posir_tasks.command.help import HelpLayout
from posir_tasks.plugin_api import BIAS, EXTEND, PANELS, Command, collect_items

logger = logging.getLogger(__name__)

OWN_COMMANDS = (
    Command(
        "tasks", "posir_tasks.command.api:tasks", "List the tasks that `mteb run -t` accepts.", BIAS
    ),
    Command(
        "mteb", "posir_tasks.command.lazy:app", "Score a model: `mteb run -t TASK -m MODEL`.", BIAS
    ),
    Command(
        "doctor",
        "posir_tasks.command.api:doctor",
        "Check the installation, plugins and access to data.",
        EXTEND,
    ),
    Command(
        "rescore",
        "posir_tasks.command.api:rescore",
        "Recompute scores of saved results without the model.",
        EXTEND,
    ),
)


#: What `posir --help` says of groups of commands.
GROUPS = {
    "build": "Build questions about documents, with known places of evidence. "
    "`posir build CONFIG.yaml` runs all stages; `posir build run --help` lists the options.",
    "study": "Study probes over models, samples, domains and translations.",
    "leaderboard": "Build, serve and publish a leaderboard: one static page.",
}
#: Of a group, the command that is meant if none is named: `posir build CONFIG.yaml`.
DEFAULTS = {"build": "run"}


class LazyCommand(TyperCommand):
    """Stands for a declared command in help, and is replaced by the command itself when it is
    called.
    """

    def __init__(self, declared: Command) -> None:
        super().__init__(
            declared.name.rpartition(" ")[2], help=declared.summary, rich_help_panel=declared.panel
        )
        self.declared = declared

    def load(self) -> Any:
        """Import the command of Click, or group of them, that the declaration stands for; raise
        PosirError if that fails.
        """
        try:
            target = resolve_name(self.declared.target)
        except (ImportError, AttributeError) as error:
            raise PosirError(
                f"`posir {self.declared.name}` cannot be imported from {self.declared.target}: "
                f"{summarize_error(error)}. "
                "Install the package that it is part of again."
            ) from error
        if isinstance(target, typer.Typer):
            return typer.main.get_command(target)
        app = typer.Typer(add_completion=False)
        if hasattr(target, DECLARATION):
            from posir_tasks.command.options import FunctionCommand, build_command

            app.command(self.declared.name, cls=FunctionCommand)(build_command(target))
        else:
            app.command(self.declared.name)(target)
        return typer.main.get_command(app)

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse arguments with the imported command, which its context then runs."""
        return self.load().make_context(info_name, args, parent, **extra)


class NestedGroup(HelpLayout, TyperGroup):
    """A group of commands, of which one may be meant if none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the default command if the first argument is none, and not a request for help."""
        args = args or ["--help"]
        if (
            self.name in DEFAULTS
            and args[0] not in self.commands
            and args[0] not in ctx.help_option_names
        ):
            args = [DEFAULTS[self.name], *args]
        return super().parse_args(ctx, args)


class LazyGroup(HelpLayout, TyperGroup):
    """The commands of posir and of all plugins, in the order of their panels; `study correlate` is
    a command of a group.
    """

    def __init__(self, **attributes: Any) -> None:
        commands: dict[str, Any] = {}
        for command in declared_commands():
            group, _, name = command.name.rpartition(" ")
            if group and group not in commands:
                options: dict[str, Any] = {
                    "help": GROUPS.get(group),
                    "rich_help_panel": command.panel,
                }
                commands[group] = NestedGroup(name=group, **options)
            members = commands[group].commands if group else commands
            members[name] = LazyCommand(command)
        super().__init__(**attributes | {"commands": commands})


def declared_commands() -> list[Command]:
    """Return the commands of posir and of all plugins by panel; warn about each that cannot be
    used.
    """
    commands = {command.name: command for command in OWN_COMMANDS}
    for owner, command in collect_items("posir_commands", "commands"):
        if not isinstance(command, Command):
            logger.warning(
                "posir plugin '%s' declared %r, which is no posir_tasks.plugin_api.Command; "
                "omitted",
                owner,
                command,
            )
        elif command.name in commands:
            taken = command.name, commands[command.name].target
            logger.warning(
                "posir plugin '%s' declared a command '%s', which is %s; omitted", owner, *taken
            )
        else:
            commands[command.name] = command
    return sorted(
        commands.values(), key=lambda command: [*PANELS, command.panel].index(command.panel)
    )


def show_version(wanted: bool) -> None:
    """Print the version of posir and end, if that is asked for."""
    if wanted:
        typer.echo(version("posir"))
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", is_eager=True, callback=show_version, help="Show the version and exit."
    ),
]


def posir(*, _: Version = False) -> None:
    """Does an embedding model read to the end, and does it prefer the beginning?

    posir window all-MiniLM-L6-v2               # what it reads of a text
    posir inspect all-MiniLM-L6-v2 FOLDER       # what your texts lose
    mteb run -m all-MiniLM-L6-v2 -t PosIR-Mini  # scores a model (mteb)
    posir report results                        # is it biased?
    posir COMMAND -h                            # its usual options
    """


app = typer.Typer(add_completion=False)


class ForwardingCommand(TyperCommand):
    """A command that leaves all of its arguments, `--help` included, to its function."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the arguments as they are."""
        ctx.args = args
        return args


@app.command(cls=ForwardingCommand)
def mteb_command(context: typer.Context) -> None:
    """Call mteb's command line, which knows posir's tasks since this package is imported."""
    from mteb.cli import main

    sys.argv = ["mteb", *(context.args or ["--help"])]
    main()
