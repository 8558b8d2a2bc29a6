"""`posir validate`: everything that the loader would refuse in a folder of data, before a model runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from posir_build.validation import problems_by_pairing, warnings_of
from posir_tasks.display.progress import progress
from posir_tasks.display.wording import counted
from posir_tasks.plugin_api.panels import DATA
from posir_tasks.sources.checks import Problem
from posir_tasks.sources.folder import Pairing, find_folder


class ValidationFormat(StrEnum):
    """Forms of what was found."""

    TEXT = "text"
    JSON = "json"


def add_commands(app: typer.Typer) -> None:
    """Add `posir validate`."""

    @app.command(rich_help_panel=DATA)
    def validate(
        folder: Annotated[
            Path,
            typer.Argument(
                help="Data in the PosIR layout: the folder of all languages, of one, or of one domain.", metavar="DIR"
            ),
        ],
        format_: Annotated[ValidationFormat, typer.Option("--format", help="Form of what is found.")] = ValidationFormat.TEXT,
    ) -> None:
        """Check data in the PosIR layout against everything that a run demands; exit 1 if there is a problem.

        Each domain is checked by itself and, where the English corpus of its domain is there, against that.
        """
        to_check = find_folder(folder)
        pairings = to_check.pairings()
        found = dict(problems_by_pairing(to_check, progress(pairings, "Checking")))
        warnings = list(warnings_of(pairings))
        if format_ is ValidationFormat.JSON:
            typer.echo(as_json(to_check.root, found, warnings))
        else:
            for line in text_lines(to_check.root, found, warnings):
                typer.echo(line)
        if any(found.values()):
            raise typer.Exit(1)


def as_json(root: Path, found: dict[Pairing, list[Problem]], warnings: list[str]) -> str:
    """Return what was found as a JSON object: the pairings checked, their problems, and warnings."""
    return json.dumps(
        {
            "folder": str(root),
            "checked": [asdict(pairing) for pairing in found],
            "problems": [asdict(pairing) | asdict(problem) for pairing, problems in found.items() for problem in problems],
            "warnings": warnings,
        },
        indent=2,
    )


def text_lines(root: Path, found: dict[Pairing, list[Problem]], warnings: list[str]) -> Iterator[str]:
    """Yield what was found as text."""
    for pairing, problems in found.items():
        if problems:
            yield f"{pairing}:"
            yield from (f"  {problem}" for problem in problems)
    yield from (f"warning: {warning}" for warning in warnings)
    count = sum(map(len, found.values()))
    languages = len({pairing.language for pairing in found})
    own = sum(pairing.language == pairing.corpus_language for pairing in found)
    against = f" and {len(found) - own} against the English corpus" if len(found) > own else ""
    well = counted(count, "problem") if count else "no problem"
    yield f"{root}: {counted(languages, 'language')}, {counted(own, 'domain')}{against} checked: {well}"
