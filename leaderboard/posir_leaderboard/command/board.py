"""`posir leaderboard build`, `push` and `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from posir_tasks.display.wording import pluralize
from posir_tasks.plugin_api.panels import LEADERBOARD

#: Folder of the site where none is named, so that the three commands follow each other.
SITE = Path("leaderboard-site")
#: Problems that are printed; the others are counted.
EXAMPLES = 20


def add_commands(app: typer.Typer) -> None:
    """Add `posir leaderboard` with its three commands."""
    board = typer.Typer(no_args_is_help=True, help="Make a leaderboard of results: one static page that needs no server.")
    app.add_typer(board, name="leaderboard", rich_help_panel=LEADERBOARD)
    board.command()(build)
    board.command()(serve)
    board.command()(push)


def build(
    results: Annotated[str, typer.Option(help="The --output-folder of `mteb run`, or ORG/NAME of a dataset repository.")],
    output: Annotated[Path, typer.Option(help="Folder for the site; an earlier site in it is brought up to date.")] = SITE,
) -> None:
    """Build the site: all results with position profiles, and the papers' published ones.

    A result that was scored before is not scored again. A file that cannot be used is named and left out.
    """
    from posir_leaderboard.board.source import is_repository, results_folder

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    repository = results if is_repository(results) else None
    with results_folder(results) as folder:
        with console.status("Loading mteb"):
            from posir_leaderboard.board.build import build_site
            from posir_tasks.search.first_stage import cache_folder
        built = build_site(folder, output, cache_folder() / "board", repository)
    for problem in built.problems[:EXAMPLES]:
        console.print(f"left out: {problem}", markup=False)
    if len(built.problems) > EXAMPLES:
        console.print(f"left out: {len(built.problems) - EXAMPLES} more; `posir check-results` names them all")
    typer.echo(
        f"{output}: {pluralize(built.models, 'model')}; {pluralize(built.results, 'result')}, {built.scored:,} of them newly "
        f"scored; {pluralize(built.changed, 'file')} changed. Look at it: posir leaderboard serve --site {output}"
    )


def serve(
    site: Annotated[Path, typer.Option(help="Folder of the site.")] = SITE,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of this machine; 0 takes any free one.")] = 8000,
) -> None:
    """Show a site on this machine, and on no other, until Ctrl-C."""
    from posir_leaderboard.board.serve import HOST, server_of

    with server_of(site, port) as server:
        typer.echo(f"http://{HOST}:{server.server_port}/  (Ctrl-C ends)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("")


def push(
    space: Annotated[str, typer.Option(help="ORG/NAME of a static Space; it is made if there is none.")],
    site: Annotated[Path, typer.Option(help="Folder of the site.")] = SITE,
) -> None:
    """Upload a site to a static Space of the Hugging Face Hub, in one commit, without what is there already."""
    from posir_leaderboard.board.push import push_site

    typer.echo(f"{push_site(site, space).commit_url}")
