"""The public functions `posir.report` and `posir.read_results`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from posir_compare.gate import Gate, parse_limits, run_gate
from posir_report.columns import choose_columns, list_default_columns, list_score_columns
from posir_report.results import Results, build_results
from posir_significance.decision import Margins
from posir_tasks.base.errors import PosirError
from posir_tasks.base.public import Names, Option, public, to_list
from posir_tasks.display.labels import Term
from posir_tasks.display.presentation import Result
from posir_tasks.results import StoredResult, read_all_results


def read_results(
    path: str | Path,
    *,
    columns: Collection[str] = (),
    full: bool = False,
    margins: Collection[str] = (),
) -> Results:
    """Read the results of `mteb run`, `mteb.evaluate`, `posir.evaluate` or `posir.score` that have
    positions or judgments.

    Args:
        path: The folder of results, searched with its subfolders.
        columns: Keys of the scores to show, as in `posir report --columns`; empty for the default
            ones.
        full: If true, also show the published PSI, PSI by chance, and observed differences.
        margins: The smallest differences that matter, in points: `5` for the position effect, or
            KEY=POINTS such as `ndcg_at_10=2`.

    Returns:
        A sequence with the result of each subset, ordered by model, task and subset. As a data
        frame it has a row for each model, task and length: scores in [0, 1] with intervals, and the
        verdict on bias within the window.

    Raises:
        PosirError: The folder does not exist, or has no readable result.

    Examples:
        >>> import posir
        >>> results = posir.read_results("results")
        >>> results[0].task, results[0].profile.queries
        ('PosIR-Mini', 120)
        >>> results.to_polars().select("model", "length", "queries").row(0)
        ('mteb/baseline-bm25s', 'all', 120)
    """
    # Reject unknown keys before reading.
    choose_columns(tuple(columns))
    parsed_margins = Margins.parse(margins)
    results = read_all_results(Path(path), StoredResult)
    return build_results(results, columns, full=full, margins=parsed_margins)


@public(
    charts=True,
    card=True,
    flags=("markdown", "csv", "latex"),
    check_options=("fail_if", "strict", "junit"),
)
def report(
    results: str | Path = "results",
    *,
    bins: bool = False,
    recall: bool = False,
    published: bool = False,
    columns: Annotated[Names | None, Option(one_value=True, metavar="KEY,KEY")] = None,
    full: bool = False,
    margin: Annotated[Names | None, Option(metavar="POINTS")] = None,
    fail_if: Annotated[Names | None, Option(metavar="LIMIT")] = None,
    strict: bool = False,
    junit: str | Path | None = None,
) -> Results | Result | Gate:
    """Show how well models retrieve, what they truncate, and whether they favor an end of
    documents.

        posir report results
        posir report results --html report.html
        posir report results --fail-if "position_effect > 10"

    Args:
        results: The --output-folder of `mteb run`; by default results.
        bins: Show nDCG@10 of every position bin.
        recall: Show Recall@5, @10 and @100 of every position bin.
        published: Include the published results of the same tasks.
        columns: Keys of the scores to show, separated by commas; `--columns help` lists them.
        full: Also show the published PSI, PSI by chance, and observed differences.
        margin: Smallest difference that matters, in points: 5 for the position effect, or
            KEY=POINTS such as ndcg_at_10=2.
        fail_if: Exit status 1 if a score is beyond a limit, such as 'position_effect > 10'; 2 if
            inconclusive.
        strict: With `fail_if`: fail unless the interval is wholly within the limit.
        junit: With `fail_if`: write JUnit XML to this file.

    Returns:
        The results, as from `posir.read_results`, or the chosen table. With `fail_if`, the verdict
        on every limit for each model and task, and overall.

    Raises:
        PosirError: The folder has no readable result, a score does not exist, or options conflict.
            With `fail_if`, a limit is malformed, or the file cannot be written.

    Examples:
        >>> import posir
        >>> posir.report("results", bins=True).to_polars().height
        10
    """
    if limits := parse_limits(to_list(fail_if), strict=strict, junit=junit):
        if bins or recall or published or columns or full:
            raise PosirError(
                "--fail-if cannot be combined with tables. Omit --bins, --recall, --published, "
                "--columns and --full."
            )
        return run_gate(
            lambda: read_results(results).check(limits, strict=strict),
            limits,
            "report",
            junit,
            strict=strict,
        )
    if bins + recall + published > 1:
        raise PosirError("--bins, --recall and --published are different tables. Give one of them.")
    names = ",".join(to_list(columns)).split(",")
    keys = [key.strip() for key in names if key.strip()]
    if keys == ["help"]:
        return _tabulate_scores()
    all_results = read_results(results, columns=keys, full=full, margins=to_list(margin))
    if recall:
        return all_results.recall()
    if published:
        return all_results.with_published()
    return all_results.bins() if bins else all_results


def _tabulate_scores() -> Result:
    defaults = list_default_columns()
    rows = []
    terms = []
    for score in list_score_columns():
        source = f" [{score.citation}]" if score.citation else ""
        terms.append(Term(score.key, f"{score.description}{source}"))
        row = {
            "key": score.key,
            "title": score.title,
            "shown_by_default": score in defaults,
            "description": score.description,
            "source": score.citation,
        }
        rows.append(row)
    default = f"Default: {', '.join(score.key for score in defaults)}."
    return Result(title="Scores", sentences=[default], notes=terms, rows=rows)
