"""Find, import, parse and run the commands of posir and its plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from posir_tasks.base.errors import PosirError, UsageError, summarize_error
from posir_tasks.base.public import DECLARATION, Declaration, Function
from posir_tasks.base.wording import suggest_name
from posir_tasks.plugin_api import DATA, EXTEND, PANELS, Command, collect_unique

if TYPE_CHECKING:
    from cyclopts import App, CycloptsError

BUILTIN_COMMANDS = (
    Command(
        "tasks", "posir_tasks.command.api:tasks", "List the tasks that `mteb run -t` accepts.", DATA
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
#: Default command by group: `posir build CONFIG.yaml` runs `posir build run CONFIG.yaml`.
DEFAULT_COMMANDS = {"build": "run"}
HELP_FLAGS = ("-h", "--help")


def list_commands() -> list[Command]:
    """List the commands of posir and all plugins by panel. Warn about unusable commands."""
    declared = collect_unique("posir_commands", Command, builtin=BUILTIN_COMMANDS)
    commands = [command for _, command in declared.values()]
    panels = [*PANELS, *(command.panel for command in commands)]
    return sorted(commands, key=lambda command: panels.index(command.panel))


def find_command(words: Sequence[str], commands: Mapping[str, Command]) -> tuple[str, list[str]]:
    """Find the command or group that a command line starts with.

    Returns:
        The name of the command or group, or "" for `posir` itself, and the remaining words.

    Raises:
        UsageError: The command does not exist.
    """
    if not words or words[0].startswith("-"):
        return "", list(words)
    for size in (1, 2):
        name = " ".join(words[:size])
        if name in commands:
            return name, list(words[size:])
    group, *arguments = words
    members = [name.split(" ")[1] for name in commands if name.startswith(f"{group} ")]
    if not members:
        hint = suggest_name(group, sorted({name.split(" ")[0] for name in commands}))
        raise UsageError(f"No such command '{group}'.{hint}", "posir")
    if not arguments or arguments[0] in HELP_FLAGS:
        return group, arguments
    if group in DEFAULT_COMMANDS:
        return f"{group} {DEFAULT_COMMANDS[group]}", arguments
    hint = suggest_name(arguments[0], members)
    raise UsageError(f"No such command '{name}'.{hint}", f"posir {group}")


def load_command(command: Command) -> Any:
    """Import the target of a command: a public function, a function with cyclopts annotations, or
    a `cyclopts.App`.

    Raises:
        PosirError: The target cannot be imported.
    """
    try:
        return resolve_name(command.target)
    except (ImportError, AttributeError) as error:
        raise PosirError(
            f"Cannot import `posir {command.name}` from {command.target}: "
            f"{summarize_error(error)}. Reinstall its package."
        ) from error


def build_app(target: Any, name: str) -> App:
    """Build the parser of a command."""
    from cyclopts import App

    from posir_tasks.command.options import build_command

    if isinstance(target, App):
        return target
    is_public = hasattr(target, DECLARATION)
    app = App(
        name=f"posir {name}",
        help_flags=() if is_public else HELP_FLAGS,
        version_flags=(),
        result_action="return_value",
    )
    app.default(build_command(target) if is_public else target)
    return app


def install_completion(commands: Mapping[str, Command]) -> Path:
    """Write the completion script of all commands for the current shell, and return its path."""
    from cyclopts import App

    app = App(name="posir", help_flags=HELP_FLAGS, version_flags=("--version",))
    groups: dict[str, App] = {}
    for name, command in commands.items():
        group, _, member = name.rpartition(" ")
        if group and group not in groups:
            groups[group] = App(name=group)
            app.command(groups[group])
        parent = groups[group] if group else app
        parent.command(build_app(load_command(command), name), name=member)
    return app.install_completion()


def run_command(words: Sequence[str]) -> int:
    """Run a command line (without `posir`) and return the exit status.

    Raises:
        PosirError: The command line or its input is invalid.
    """
    from posir_tasks.command.help import render_command, render_group, render_overview

    commands = {command.name: command for command in list_commands()}
    name, arguments = find_command(words, commands)
    if not name:
        if arguments == ["--version"]:
            print(version("posir"))
            return 0
        if arguments == ["--install-completion"]:
            print(f"written: {install_completion(commands)}")
            return 0
        if arguments and arguments[0] not in HELP_FLAGS:
            raise UsageError(f"No such option '{arguments[0]}'.", "posir")
        print(render_overview(commands.values()))
        return 0
    if name not in commands:
        print(render_group(name, commands.values()))
        return 0
    target = load_command(commands[name])
    declaration: Declaration | None = getattr(target, DECLARATION, None)
    if declaration is not None:
        if any(flag in arguments for flag in HELP_FLAGS):
            print(render_command(name, target, is_short="-h" in arguments))
            return 0
        if declaration.settings and "--settings-help" in arguments:
            from posir_tasks.base.settings_file import describe_settings

            print(describe_settings(resolve_name(declaration.settings)))
            return 0
    return call_app(build_app(target, name), name, target, arguments)


def call_app(app: App, name: str, target: Any, words: Sequence[str]) -> int:
    """Parse the arguments of a command, run it and return the exit status.

    Raises:
        UsageError: The arguments are invalid.
    """
    command, bound = parse_call(app, name, target, words)
    status = command(*bound.args, **bound.kwargs)
    return status if isinstance(status, int) else 0


def parse_call(app: App, name: str, target: Any, words: Sequence[str]) -> tuple[Function, Any]:
    """Parse the arguments of a command without running it.

    Raises:
        UsageError: The arguments are invalid.
    """
    from cyclopts import CycloptsError

    from posir_tasks.command.options import add_page_name

    words = add_page_name(name, words) if hasattr(target, DECLARATION) else list(words)
    try:
        command, bound, _ = app.parse_args(words, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        message = describe_error(error, name, target)
        raise UsageError(message, f"posir {name}") from None
    return command, bound


def describe_error(error: CycloptsError, name: str, target: Any) -> str:
    """Describe an error in the arguments of a command. Add an example if an argument is missing."""
    from cyclopts import MissingArgumentError

    argument = error.argument
    if not isinstance(error, MissingArgumentError) or argument is None or argument.tokens:
        return str(error)
    from posir_tasks.command.help import find_example

    parameter = argument.field_info
    label = f"argument '{parameter.name.upper()}'"
    if parameter.kind is parameter.KEYWORD_ONLY:
        label = f"option '{argument.name}'"
    message = f"Missing {label}: {argument.parameter.help or ''}"
    example = find_example(target, name)
    return f"{message} Example: `{example}`." if example else message


def check_words(words: Sequence[str]) -> None:
    """Check a command line without running it.

    Raises:
        PosirError: The command does not exist, or its arguments are invalid.
    """
    commands = {command.name: command for command in list_commands()}
    name, arguments = find_command(words, commands)
    if name not in commands or any(flag in arguments for flag in HELP_FLAGS):
        return
    target = load_command(commands[name])
    parse_call(build_app(target, name), name, target, arguments)
