"""The option `--explain` of commands whose output has a legend."""

from typing import Annotated

import typer

Explain = Annotated[bool, typer.Option("--explain", help="Explain every column below the tables.")]
