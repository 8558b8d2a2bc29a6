"""`posir submit` and `posir check-results`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posir_tasks.command.format_option import TextFormat
from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.progress import BRIEF_SECONDS, track
from posir_tasks.display.tables import OutputFormat
from posir_tasks.display.wording import pluralize, sanitized
from posir_tasks.errors import PosirError

if TYPE_CHECKING:
    from posir_leaderboard.entries import Entry, EntryProblem
    from posir_leaderboard.hub import Commit
    from posir_leaderboard.submission import Uploader


OTHER_SETTINGS = "results of other settings than a model's own (in `experiments`) cannot be submitted"


@with_progress
def submit(
    results: Annotated[Path, typer.Argument(help="The --output-folder of `mteb run`, or a model's folder in it.")],
    repo: Annotated[str, typer.Option(help="The leaderboard's dataset repository on the Hub, owner/name.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and show what would be sent; send nothing.")] = False,
    direct: Annotated[
        bool, typer.Option("--direct", help="Commit to the main branch instead of opening a pull request.")
    ] = False,
    eval_results: Annotated[
        bool, typer.Option("--eval-results", help="Also open a pull request with nDCG@10 on the model's own repository.")
    ] = False,
) -> None:
    """Check a model's results, and send them to a leaderboard as one commit in one pull request.

    Files that are there already are not sent again. The token is huggingface_hub's: `hf auth login`, or HF_TOKEN.
    """
    # huggingface_hub takes a second to import, which no other command should pay for.
    from posir_leaderboard.eval_results import build_eval_results
    from posir_leaderboard.hub import HuggingFaceHub
    from posir_leaderboard.submission import CommitUploader, PullRequestUploader, build_submission

    entries, problems = check([results])
    if problems:
        raise PosirError("\n".join([*map(str, problems), f"Problems: {len(problems)}; nothing was sent."]))
    hub = HuggingFaceHub()
    submission = build_submission(entries, repo)
    uploads: list[tuple[Commit, Uploader]] = [(submission, CommitUploader(hub) if direct else PullRequestUploader(hub))]
    if eval_results:
        uploads.append((build_eval_results(entries, hub.url(submission.repository)), PullRequestUploader(hub)))
    for commit, uploader in uploads:
        if dry_run:
            show(commit, uploader)
        else:
            send(commit, uploader)


@with_progress
def check_results(
    results: Annotated[list[Path], typer.Argument(help="Folders with results in mteb's layout.")],
    format_: TextFormat = OutputFormat.TEXT,
) -> None:
    """Check results as `posir submit` does, but send nothing; exit 1 if any check fails."""
    entries, problems = check(results)
    if format_ is OutputFormat.JSON:
        typer.echo(json.dumps([asdict(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            typer.echo(problem)
        models = len({entry.model for entry in entries})
        typer.echo(f"results: {len(entries)}, models: {models}, problems: {len(problems)}", err=True)
    if problems:
        raise typer.Exit(1)


def check(folders: Sequence[Path]) -> tuple[list[Entry], list[EntryProblem]]:
    """Read and check all entries below folders, each file once; return them and their problems.

    Raises:
        PosirError: A folder has no entry.
    """
    entries, problems = read_folders(folders)
    if entries:
        # The tasks take seconds to import, and mteb with them.
        with track("Loading mteb", delay=BRIEF_SECONDS):
            from posir_leaderboard.validation import validate_entry
            from posir_tasks.tasks.catalog import builtin_tasks

            builtin_tasks()
        # By task, so that a dataset is read once for all models.
        for entry in sorted(entries, key=lambda entry: entry.task):
            problems += validate_entry(entry)
    return entries, problems


def read_folders(folders: Sequence[Path]) -> tuple[list[Entry], list[EntryProblem]]:
    """Read the entries below folders, each file once, and say which results are skipped.

    Raises:
        PosirError: A folder has no entry.
    """
    from posir_leaderboard.entries import experiment_files, read_entries

    entries: dict[Path, Entry] = {}
    problems: dict[EntryProblem, None] = {}
    skipped: dict[Path, None] = {}
    for folder in folders:
        read, unreadable = read_entries(folder)
        experiments = dict.fromkeys(experiment_files(folder))
        if not (read or unreadable):
            reason = OTHER_SETTINGS if experiments else "no result with a position profile below it"
            raise PosirError(f"{folder}: {reason}. Give the --output-folder of `mteb run`.")
        entries |= {entry.file: entry for entry in read}
        problems |= dict.fromkeys(unreadable)
        skipped |= experiments
    if skipped:
        first = sanitized(str(next(iter(skipped))), 300)
        typer.echo(f"skipped: {pluralize(len(skipped), 'result')}, first {first}: {OTHER_SETTINGS}", err=True)
    return list(entries.values()), list(problems)


def show(commit: Commit, uploader: Uploader) -> None:
    """Print what would be sent."""
    typer.echo(f"{commit.repository}, {uploader}: {commit.title}")
    for path, content in commit.files.items():
        typer.echo(f"  {path}  {len(content):,} bytes")
    typer.echo("nothing was sent (--dry-run)", err=True)


def send(commit: Commit, uploader: Uploader) -> None:
    """Send a commit, and print where its files are; raise PosirError if it could not be sent."""
    from posir_leaderboard.submission import upload

    result = upload(commit, uploader, report=lambda text: typer.echo(text, err=True))
    if result.sent:
        typer.echo(f"{commit.repository}: sent {pluralize(len(commit.files), 'file')}: {result.location}")
    else:
        typer.echo(f"{commit.repository}: nothing was sent, the same files are there already: {result.location}")
