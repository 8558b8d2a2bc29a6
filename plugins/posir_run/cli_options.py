"""The options that say what is run: mteb's own words, several values each: `-t A B`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

Tasks = Annotated[list[str] | None, typer.Option("-t", "--tasks", help="Tasks; several are allowed.")]
Benchmarks = Annotated[list[str] | None, typer.Option("-b", "--benchmarks", help="Benchmarks, all tasks of each.")]
Models = Annotated[list[str], typer.Option("-m", "--model", help="Models by mteb's name or the Hub's; several are allowed.")]
Revision = Annotated[str | None, typer.Option("--model-revision", help="The model's revision, where there is one model.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Texts to encode at a time.")]

#: What mteb uses where no batch size is given.
BATCH_SIZE = 32


class MultiValueCommand(TyperCommand):
    """A command without arguments, whose repeatable options may be given as `-t A B` instead of `-t A -t B`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        names = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        return super().parse_args(ctx, repeated(args, names))


def repeated(args: Sequence[str], options: Collection[str]) -> list[str]:
    """Put one of these options' names before each of its values."""
    spread: list[str] = []
    option = None
    for arg in args:
        if arg.startswith("-"):
            option = arg if arg in options else None
        elif option and spread[-1] != option:
            spread.append(option)
        spread.append(arg)
    return spread
