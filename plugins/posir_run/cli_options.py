"""Options of `posir run` and `posir plan`: the same as in `mteb run`, with several values each (`-t A B`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

Tasks = Annotated[list[str] | None, typer.Option("-t", "--task", help="One or more tasks.")]
Benchmarks = Annotated[list[str] | None, typer.Option("-b", "--benchmark", help="One or more benchmarks.")]
Models = Annotated[
    list[str],
    typer.Option(
        "-m", "--model", help="One or more models: names known to mteb or the Hub, folders, endpoints (MODEL@ADDRESS)."
    ),
]
Revision = Annotated[str | None, typer.Option("--revision", help="Revision of the model; for a single model only.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Number of texts encoded at a time.")]

#: mteb's own default.
DEFAULT_BATCH_SIZE = 32


class MultiValueCommand(TyperCommand):
    """A command without positional arguments that accepts `-t A B` as well as `-t A -t B`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        names = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        return super().parse_args(ctx, expand_values(args, names))


def expand_values(args: Sequence[str], options: Collection[str]) -> list[str]:
    """Repeat the name of an option before each of its values: `-t A B` becomes `-t A -t B`.

    Args:
        args: The arguments of a command.
        options: Names of the options that accept several values.
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
