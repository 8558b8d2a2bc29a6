"""`posir submit` and `posir check-results`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from posir_leaderboard.entries import Entry, Problem, read_entries
from posir_tasks.display.wording import counted
from posir_tasks.errors import PosirError
from posir_tasks.plugin_api.panels import LEADERBOARD

if TYPE_CHECKING:
    from posir_leaderboard.hub import Change
    from posir_leaderboard.submission import Way


class CheckFormat(StrEnum):
    """Forms of what is wrong."""

    TEXT = "text"
    JSON = "json"


def add_commands(app: typer.Typer) -> None:
    """Add `posir submit` and `posir check-results`."""

    @app.command(rich_help_panel=LEADERBOARD)
    def submit(
        results: Annotated[Path, typer.Argument(help="The --output-folder of `mteb run`, or a model's folder in it.")],
        repo: Annotated[str, typer.Option(help="The leaderboard's dataset repository on the Hub, owner/name.")],
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and show what would be sent; send nothing.")] = False,
        direct: Annotated[
            bool, typer.Option("--direct", help="Commit to the main branch instead of opening a pull request.")
        ] = False,
        eval_results: Annotated[
            bool,
            typer.Option("--eval-results", help="Also open a pull request with nDCG@10 on the model's own repository."),
        ] = False,
    ) -> None:
        """Check a model's results, and send them to a leaderboard as one commit in one pull request.

        What is there already is not sent again. The token is huggingface_hub's: `hf auth login`, or HF_TOKEN.
        """
        # huggingface_hub takes a second to import, which no other command should pay for.
        from posir_leaderboard.eval_results import eval_results_of
        from posir_leaderboard.hub import HuggingFaceHub
        from posir_leaderboard.submission import ByCommit, ByPullRequest, submission_of

        entries, problems = checked([results])
        if problems:
            raise PosirError("\n".join([*map(str, problems), f"Problems: {len(problems)}; nothing was sent."]))
        hub = HuggingFaceHub()
        change = submission_of(entries, repo)
        changes: list[tuple[Change, Way]] = [(change, ByCommit(hub) if direct else ByPullRequest(hub))]
        if eval_results:
            changes.append((eval_results_of(entries, hub.page(change.repository)), ByPullRequest(hub)))
        for one, way in changes:
            if dry_run:
                show(one, way)
            else:
                send_and_tell(one, way)

    @app.command("check-results", rich_help_panel=LEADERBOARD)
    def check_results(
        results: Annotated[list[Path], typer.Argument(help="Folders with results in mteb's layout.")],
        format_: Annotated[CheckFormat, typer.Option("--format", help="Form of what is wrong.")] = CheckFormat.TEXT,
    ) -> None:
        """Check results as `posir submit` does, and send nothing; exit 1 if anything is wrong."""
        entries, problems = checked(results)
        if format_ == CheckFormat.JSON:
            typer.echo(json.dumps([asdict(problem) for problem in problems], indent=2))
        else:
            for problem in problems:
                typer.echo(problem)
            models = len({entry.model for entry in entries})
            typer.echo(f"results: {len(entries)}, models: {models}, problems: {len(problems)}", err=True)
        if problems:
            raise typer.Exit(1)


def checked(folders: Sequence[Path]) -> tuple[list[Entry], list[Problem]]:
    """Read and check every entry below some folders.

    Raises:
        PosirError: A folder does not exist or has no result with a position profile.
    """
    entries: list[Entry] = []
    problems: list[Problem] = []
    for folder in folders:
        read, unread = read_entries(folder)
        if not (read or unread):
            raise PosirError(f"{folder}: no result with a position profile below it. Give the --output-folder of `mteb run`.")
        entries += read
        problems += unread
    if entries:
        # The tasks take seconds to import, and mteb with them.
        with Console(stderr=True).status("Loading mteb"):
            from posir_leaderboard.validation import problems_of
            from posir_tasks.tasks.catalogue import builtin_tasks

            builtin_tasks()
        # By task: the data of one is read once for all models.
        for entry in sorted(entries, key=lambda entry: entry.task):
            problems += problems_of(entry)
    return entries, problems


def show(change: Change, way: Way) -> None:
    """Print what would be sent."""
    typer.echo(f"{change.repository}, {way}: {change.title}")
    for path, content in change.files.items():
        typer.echo(f"  {path}  {len(content):,} bytes")
    typer.echo("nothing was sent (--dry-run)", err=True)


def send_and_tell(change: Change, way: Way) -> None:
    """Send a change, and say what became of it.

    Raises:
        PosirError: It could not be sent.
    """
    from posir_leaderboard.submission import send

    outcome = send(change, way, tell=lambda text: typer.echo(text, err=True))
    if outcome.sent:
        typer.echo(f"{change.repository}: sent {counted(len(change.files), 'file')}: {outcome.where}")
    else:
        typer.echo(f"{change.repository}: nothing was sent, the same files are there already: {outcome.where}")
