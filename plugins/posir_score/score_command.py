"""`posir score`: runs of any system, and any retriever, scored as `mteb run` scores models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posir_score.alignment import DEPTH, SEPARATOR, Missing
from posir_tasks.command.explain_option import Explain
from posir_tasks.command.format_option import TableFormat
from posir_tasks.command.functions import load_function
from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.progress import track
from posir_tasks.display.tables import OutputFormat
from posir_tasks.errors import PosirError


@with_progress
def score(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Runs to score: each file is a run, and so is each folder, whose files are parts."),
    ] = None,
    data: Annotated[str, typer.Option(help="A task, or any other data with judged queries.")] = "",
    retriever: Annotated[str, typer.Option(help="A function to score, `module:function`, called with query and k.")] = "",
    name: Annotated[
        list[str] | None, typer.Option(help="Name of a run, in the order of the runs.  [default: that of the file or function]")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for results, as in `mteb run`.")] = Path("results"),
    missing: Annotated[Missing, typer.Option(help="What becomes of judged queries that a run does not have.")] = Missing.ERROR,
    chunk_separator: Annotated[str, typer.Option(help="Between the id of a document and the number of a chunk.")] = SEPARATOR,
    split: Annotated[str | None, typer.Option(help="Split of a BEIR folder.  [default: test]")] = None,
    language: Annotated[str | None, typer.Option(help="Code of the data's language.  [default: detected]")] = None,
    k: Annotated[int, typer.Option(min=1, help="Documents or chunks to ask a retriever for.")] = DEPTH,
    concurrency: Annotated[int, typer.Option(min=1, help="Queries that a retriever searches at the same time.")] = 8,
    retries: Annotated[int, typer.Option(min=0, help="Further attempts if a retriever raises or takes too long.")] = 3,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds that a search may take.")] = 60.0,
    format_: TableFormat = OutputFormat.TEXT,
    explain: Explain = False,
) -> None:
    """Score runs of any system, or a retriever, as `mteb run` scores models; run again to resume.

    Runs are TREC runs, runs of ranx, predictions of mteb, or JSON, JSON Lines, CSV or Parquet of query id, document id, score.
    """
    if bool(runs) == bool(retriever):
        raise PosirError(f"give runs or --retriever module:function{', not both' if runs else ''}.")
    if not data:
        raise PosirError("no --data is given. Name a task, or a file or folder with judged queries; `posir tasks` lists tasks.")
    with track("Loading libraries"):
        from posir_score.alignment import AlignmentRules
        from posir_score.api import score_runs
        from posir_score.collecting import CollectionSettings
        from posir_tasks.display.presentation import present
        from posir_tasks.sources.formats.options import ReadOptions

    scored = score_runs(
        [load_function("--retriever", retriever)] if retriever else [*(runs or ())],
        name or ([retriever] if retriever else []),
        data,
        output,
        AlignmentRules(missing, chunk_separator),
        CollectionSettings(k, concurrency, retries, timeout),
        ReadOptions(split=split, language=language),
    )
    present(scored, format_, explain=explain)
