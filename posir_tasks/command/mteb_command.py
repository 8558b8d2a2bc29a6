"""`posir mteb`: mteb's own command line with posir's tasks, also where autoload is off."""

import sys
from typing import Any

import typer
from typer.core import TyperCommand

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

    sys.argv = ["mteb", *context.args]
    main()
