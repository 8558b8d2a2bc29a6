"""`posir leaderboard build`, `push` and `serve`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.progress import BRIEF_SECONDS, track
from posir_tasks.display.wording import pluralize

#: Default folder of the site, the same for the three commands.
SITE = Path("leaderboard-site")
#: Most problems that are printed; the others are counted.
EXAMPLES = 20


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
) -> None:
    """Build the site from all results with position profiles and the published results of the papers.

    Scored results are cached. An unusable file is reported and excluded.
    """
    from posir_leaderboard.board.source import is_repository, open_results

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    repository = results if is_repository(results) else None
    with open_results(results) as folder:
        with track("Loading mteb", delay=BRIEF_SECONDS):
            from posir_leaderboard.board.build import build_site
            from posir_tasks.files import cache_folder
        built = build_site(folder, output, cache_folder() / "board", repository, url, stats or ())
    for problem in built.problems[:EXAMPLES]:
        console.print(f"excluded: {problem}", markup=False)
    if len(built.problems) > EXAMPLES:
        console.print(f"excluded: {len(built.problems) - EXAMPLES} more; `posir check-results` lists all")
    typer.echo(
        f"{output}: {pluralize(built.models, 'model')}; {pluralize(built.results, 'result')}, {built.scored:,} of them newly "
        f"scored; {pluralize(built.changed_files, 'file')} changed. View it: posir leaderboard serve --site {output}"
    )


@app.command()
def serve(
    site: Annotated[Path, typer.Option(help="Folder of the site.")] = SITE,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Local port; 0 takes any free one.")] = 8000,
) -> None:
    """Serve a site to this machine only, until Ctrl-C."""
    from posir_leaderboard.board.serve import HOST, create_server

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
    from posir_leaderboard.board.push import push_site

    typer.echo(f"{push_site(site, space).commit_url}")
