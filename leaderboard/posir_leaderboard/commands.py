"""`posir submit`, and `posir leaderboard build`, `pin`, `push` and `serve`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from posir_tasks.command.options import TextFormat, with_progress
from posir_tasks.display.progress import BRIEF_SECONDS, track
from posir_tasks.display.tables import OutputFormat
from posir_tasks.display.wording import pluralize, sanitized
from posir_tasks.errors import PosirError

if TYPE_CHECKING:
    from posir_leaderboard.entries import Entry, EntryProblem

#: Default folder of the site, the same for the three commands.
SITE = Path("leaderboard-site")

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Build a leaderboard: one static page that needs no server.")


@app.command()
@with_progress
def build(
    results: Annotated[str, typer.Option(help="The --output-folder of `mteb run`, or ORG/NAME of a dataset repository.")],
    output: Annotated[Path, typer.Option(help="Folder for the site; an earlier site in it is updated.")] = SITE,
    url: Annotated[str, typer.Option(help="Address where the site will be, for the picture of link previews.")] = "",
    stats: Annotated[
        list[Path] | None,
        typer.Option(help="Output of `posir stats TASK --format json`: query counts for published results. Repeatable."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if a result is excluded or not ranked.")] = False,
) -> None:
    """Build the site from all results with position profiles and the published results of the papers.

    Scored results are cached. An unusable file is reported and excluded.
    """
    from posir_leaderboard.submission import is_repository, open_results

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    repository = results if is_repository(results) else None
    with open_results(results) as folder:
        with track("Loading mteb", delay=BRIEF_SECONDS):
            from posir_leaderboard.board.build import build_site
            from posir_tasks.files import cache_folder
        built = build_site(folder, output, cache_folder() / "board", repository, url, stats or ())
    for problem in built.problems:
        console.print(f"excluded: {problem}", markup=False)
    for name in built.unchecked:
        console.print(f"model not looked up: {name}", markup=False)
    for name in built.unranked:
        console.print(f"not ranked: {name}", markup=False)
    typer.echo(
        f"{output}: {pluralize(built.models, 'model')}; {pluralize(built.results, 'result')}, {built.scored:,} of them newly "
        f"scored; {pluralize(built.changed_files, 'file')} changed. View it: posir leaderboard serve --site {output}"
    )
    if strict and (built.problems or built.unranked):
        raise typer.Exit(1)


@app.command()
@with_progress
def pin(
    tasks: Annotated[list[str], typer.Argument(help="Tasks, as `posir tasks` names them.")],
    results: Annotated[str, typer.Option(help="A folder of results, or ORG/NAME of a dataset repository.")],
) -> None:
    """Pin the data on which results of a task are ranked: its content as it can be read now.

    The pins are in pins.json of the folder, or are committed to the repository, for which you need to be a member of it.
    """
    from posir_leaderboard.board.comparable import compute_pin, format_pins, read_pins, write_pins
    from posir_leaderboard.entries import PINS
    from posir_leaderboard.submission import Commit, HuggingFaceHub, is_repository, open_results, upload

    with open_results(results, [PINS]) as folder:
        pins = {**(read_pins(folder) or {}), **{task: compute_pin(task) for task in tasks}}
        if not is_repository(results):
            typer.echo(f"{write_pins(folder, pins)}: {pluralize(len(pins), 'task')} pinned")
            return
    title = f"Pin the data of {', '.join(tasks)}"
    commit = Commit("dataset", results, {PINS: format_pins(pins).encode()}, title, title)
    typer.echo(upload(commit, HuggingFaceHub(direct=True)).location)


@app.command()
def serve(
    site: Annotated[Path, typer.Option(help="Folder of the site.")] = SITE,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Local port; 0 takes any free one.")] = 8000,
) -> None:
    """Serve a site to this machine only, until Ctrl-C."""
    from posir_leaderboard.board.folder import HOST, create_server

    with create_server(site, port) as server:
        typer.echo(f"http://{HOST}:{server.server_port}/  (Ctrl-C ends)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("")


@app.command()
def push(
    space: Annotated[str, typer.Option(help="ORG/NAME of a static Space; created if missing.")],
    site: Annotated[Path, typer.Option(help="Folder of the site.")] = SITE,
) -> None:
    """Upload a site to a static Space of the Hugging Face Hub, in one commit of the changed files."""
    from posir_leaderboard.board.folder import push_site

    typer.echo(f"{push_site(site, space).commit_url}")


@with_progress
def submit(
    results: Annotated[list[Path], typer.Argument(help="Folders with results in mteb's layout, such as a model's.")],
    repo: Annotated[
        str | None, typer.Option(help="The leaderboard's dataset repository on the Hub, owner/name. Needed to send.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and send nothing; exit 1 if a check fails. With --repo, show the files.")
    ] = False,
    direct: Annotated[
        bool, typer.Option("--direct", help="Commit to the main branch instead of opening a pull request.")
    ] = False,
    eval_results: Annotated[
        bool, typer.Option("--eval-results", help="Also open a pull request with nDCG@10 on the model's own repository.")
    ] = False,
    format_: TextFormat = OutputFormat.TEXT,
) -> None:
    """Check a model's results, and send them to a leaderboard as one commit in one pull request.

    Files that are there already are not sent again. The token is huggingface_hub's: `hf auth login`, or HF_TOKEN. With
    --dry-run neither a repository nor a token is needed, and results of any number of models are checked; --format json
    prints the problems.
    """
    if repo is None and not dry_run:
        raise PosirError("--repo: name the leaderboard's dataset repository, owner/name; or check only, with --dry-run.")
    entries, problems = check(results)
    if dry_run:
        _show_problems(entries, problems, format_)
    elif problems:
        raise PosirError("\n".join([*map(str, problems), f"Problems: {len(problems)}; nothing was sent."]))
    if repo is None:
        return
    # huggingface_hub takes a second to import, which no other command should pay for.
    from posir_leaderboard.submission import HuggingFaceHub, build_eval_results, build_submission, upload

    submission, hub = build_submission(entries, repo), HuggingFaceHub(direct=direct)
    uploads = [(submission, hub)]
    if eval_results:
        uploads.append((build_eval_results(entries, hub.url(submission)), HuggingFaceHub()))
    for commit, hub in uploads:
        if not dry_run:
            result = upload(commit, hub, report=lambda text: typer.echo(text, err=True))
            count = f"sent {pluralize(len(commit.files), 'file')}"
            sent = count if result.sent else "nothing was sent, the same files are there already"
            typer.echo(f"{commit.repository}: {sent}: {result.location}")
        elif format_ is OutputFormat.TEXT:
            way = "one commit to the main branch" if hub.direct else "one commit in one pull request"
            typer.echo(f"{commit.repository}, {way}: {commit.title}")
            for path, content in commit.files.items():
                typer.echo(f"  {path}  {len(content):,} bytes")
            typer.echo("nothing was sent (--dry-run)", err=True)


def _show_problems(entries: Sequence[Entry], problems: Sequence[EntryProblem], format_: OutputFormat) -> None:
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
    """Read and check all entries below folders, each file once; return them and their problems."""
    entries, problems = _read_folders(folders)
    if not entries:
        return entries, problems
    # The tasks take seconds to import, and mteb with them.
    with track("Loading mteb", delay=BRIEF_SECONDS):
        from posir_leaderboard.entries import EntryProblem
        from posir_leaderboard.identity import identify_models
        from posir_leaderboard.validation import validate_entry
        from posir_tasks.files import cache_folder
        from posir_tasks.models.references import model_origin
        from posir_tasks.tasks.catalog import builtin_tasks

        builtin_tasks()
    # By task, so that a dataset is read once for all models.
    for entry in sorted(entries, key=lambda entry: entry.task):
        problems += validate_entry(entry)
    public = [entry for entry in entries if not model_origin(entry.model)]
    identities = identify_models(((entry.model, entry.revision) for entry in public), cache_folder() / "board" / "models")
    for (name, revision), identity in identities.items():
        if identity.unchecked:
            typer.echo(f"model not looked up: {sanitized(name)}, {sanitized(revision)}: {identity.unchecked}", err=True)
    for entry in public:
        if problem := identities[entry.model, entry.revision].problem:
            problems.append(EntryProblem(str(entry.file), f"{entry.model} {problem}", field="name"))
    return entries, problems


def _read_folders(folders: Sequence[Path]) -> tuple[list[Entry], list[EntryProblem]]:
    """Read the entries below folders, each file once, and say which results are skipped."""
    from posir_leaderboard.entries import entry_files, read_entries

    entries: dict[Path, Entry] = {}
    problems: dict[EntryProblem, None] = {}
    skipped: dict[Path, None] = {}
    other = "results of other settings than a model's own (in `experiments`) cannot be submitted"
    for folder in folders:
        read, unreadable = read_entries(folder)
        experiments = dict.fromkeys(entry_files(folder, experiments=True))
        if not (read or unreadable):
            reason = other if experiments else "no result with a position profile below it"
            raise PosirError(f"{folder}: {reason}. Give the --output-folder of `mteb run`.")
        entries |= {entry.file: entry for entry in read}
        problems |= dict.fromkeys(unreadable)
        skipped |= experiments
    if skipped:
        first = sanitized(str(next(iter(skipped))), 300)
        typer.echo(f"skipped: {pluralize(len(skipped), 'result')}, first {first}: {other}", err=True)
    return list(entries.values()), list(problems)
