"""The `posir` command: its own subcommands, and those that plugins add."""

import logging
import sys

import typer
from rich.console import Console
from rich.text import Text

from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.plugin_api.manager import loaded_plugins
from posir_tasks.plugin_api.panels import PANELS

logger = logging.getLogger(__name__)


def build_app() -> typer.Typer:
    """Return the application with every plugin's commands."""
    # Imported here, so that `main` reports a mistake in the table of languages, before plugins that need the table fail.
    import posir_tasks.languages  # noqa: F401
    from posir_tasks.command import doctor, rescore, tasks

    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Does an embedding model read to the end of a document? Companion commands to `mteb run`.",
    )
    for module in (tasks, doctor, rescore):
        module.add_commands(app)
    for name, caller in loaded_plugins().callers("posir_commands"):
        try:
            caller(app=app)
        except Exception as error:
            logger.warning("posir plugin '%s' could not add its commands: %s", name, summarize_error(error))
    # Help lists the panels in the order of their first commands.
    app.registered_commands.sort(key=lambda command: [*PANELS, command.rich_help_panel].index(command.rich_help_panel))
    return app


def main() -> None:
    """Run the command. A user's mistake is reported as one message, with exit status 1."""
    try:
        build_app()()
    except PosirError as error:
        Console(stderr=True).print(Text.assemble(("error", "bold red"), f": {error}"), soft_wrap=True)
        sys.exit(1)
