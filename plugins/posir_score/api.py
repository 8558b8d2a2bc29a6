"""The public function of this package: `posir.score`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_score.alignment import DEPTH, SEPARATOR, AlignmentRules, Missing
from posir_score.collecting import CollectionSettings, Retriever, collect_run
from posir_score.run_files import Run, check_exists, read_run
from posir_tasks.display.presentation import Presentable, to_paragraphs
from posir_tasks.display.sections import DisplaySection
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.results import SubsetResult
from posir_tasks.sources.formats.options import ReadOptions

if TYPE_CHECKING:
    from posir_score.evaluation import RunScores
    from posir_score.run_search import RunSearch


@dataclass(frozen=True, repr=False)
class ScoredRuns(Presentable):
    """The scores of one or several runs."""

    runs: tuple[RunScores, ...]

    @property
    def title(self) -> str:
        """Subject in a few words."""
        return f"{pluralize(len(self.runs), 'run')} on {', '.join(dict.fromkeys(run.task for run in self.runs))}"

    @cached_property
    def results(self) -> tuple[SubsetResult, ...]:
        """The results by position, as `posir.read_results` returns them; none of data without positions."""
        return tuple(result for run in self.runs for result in run.read_positions())

    def sections(self) -> Sequence[DisplaySection]:
        """Return the findings, the scores of all judged queries, and those by position."""
        from posir_report.findings import describe_findings
        from posir_score.tables import build_position_rows, build_position_table, build_table

        tables = [build_table(self.runs), *([build_position_table(self.results)] if self.results else [])]
        findings = to_paragraphs(describe_findings(build_position_rows(self.results)) if self.results else ())
        return (*findings, *(DisplaySection(tables=(table,)) for table in tables))

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each run; scores in [0, 1]."""
        return [run.to_json() for run in self.runs]

    def legend(self) -> Sequence[str]:
        """Return paragraphs on how to read the tables."""
        from posir_score.tables import LEGEND

        return (LEGEND,)

    def explanation(self) -> Sequence[str]:
        """Return what the columns of scores by position mean."""
        from posir_report.columns import build_legend, default_columns

        return (build_legend(default_columns()),) if self.results else ()


def score(
    run: Retriever | str | Path | Mapping[str, Any],
    data: str | Path,
    *,
    name: str | None = None,
    output: str | Path = "results",
    missing: str = "error",
    chunk_separator: str = SEPARATOR,
    find_document: Callable[[str], str] | None = None,
    k: int = DEPTH,
    concurrency: int = 8,
    retries: int = 3,
    timeout: float = 60.0,
    options: ReadOptions | None = None,
) -> ScoredRuns:
    """Score a retriever, or a run of any system, as `mteb run` scores a model, and save the result.

    Source of the usual scores: trec_eval's definitions, for several relevant documents and grades, too. Position scores are of
    the queries whose evidence has one position.

    Args:
        run: A retriever, called as `search(query, k)`, synchronous or not, which returns ids, best first, or pairs of id and
            score; a file or folder with a run; or a score by document id by query id.
        data: A task, or anything else with judged queries: see docs/data.md.
        name: Name of the system, under which results are filed as `run/NAME`; by default that of the file or the function.
        output: Folder for results, as in `mteb run`; an interrupted run of a retriever is continued from there.
        missing: `error` refuses judged queries without a ranking, `zero` scores them 0.
        chunk_separator: A chunk's id is its document's, this separator, and anything else; empty if there are no chunks.
        find_document: Returns the id of a chunk's document, in place of the separator.
        k: Documents or chunks that the retriever is asked for; 100 documents are scored.
        concurrency: Queries that are searched at the same time.
        retries: Further attempts if the retriever raises or takes too long.
        timeout: Seconds that a search may take.
        options: Split of a BEIR folder, language of the data and the like.

    Returns:
        The scores; `results` are those by position, as `posir.read_results` returns them.

    Raises:
        PosirError: Run and data do not fit, a row of the run is invalid, or the retriever fails. All answers of a retriever are
            kept, and the same call goes on from there.

    Examples:
        >>> import posir
        >>> posir.score("bm25.trec", "PosIR-Mini")  # doctest: +SKIP
    """
    try:
        rules = AlignmentRules(Missing(missing), chunk_separator, find_document)
    except ValueError:
        raise PosirError(f"missing={missing!r}: must be 'error' or 'zero'.") from None
    if min(k, concurrency) < 1 or retries < 0 or not timeout > 0:
        raise PosirError("k and concurrency must be at least 1, retries at least 0, and timeout above 0.")
    settings = CollectionSettings(k, concurrency, retries, timeout)
    return score_runs([run], [name] if name else [], str(data), Path(output), rules, settings, options or ReadOptions())


def score_runs(
    runs: Sequence[Retriever | str | Path | Mapping[str, Any]],
    names: Sequence[str],
    data: str,
    output: Path,
    rules: AlignmentRules,
    settings: CollectionSettings,
    options: ReadOptions,
) -> ScoredRuns:
    """Score several runs on the same data; arguments and errors as in `score`, with a name for each run or none."""
    from posir_score.evaluation import evaluate_run, prepare_run
    from posir_score.judged_task import open_scored_data

    if names and len(names) != len(runs):
        raise PosirError(f"{len(runs)} runs and {len(names)} names. Give a --name for each run, or none.")
    # Mistakes in the runs are reported before the data is read.
    for given in runs:
        if isinstance(given, str | Path):
            check_exists(Path(given).expanduser())
        elif not isinstance(given, Mapping) and not callable(given):
            raise PosirError(
                f"{type(given).__name__} is no run. Give a file or folder, a score by document id by query id, or a retriever, "
                "called as search(query, k)."
            )
    opened = open_scored_data(data, options)
    models: list[RunSearch] = []
    journals = []
    for place, given in enumerate(runs):
        name, journal = names[place] if names else None, None
        if isinstance(given, str | Path):
            run = read_run(Path(given).expanduser(), opened.task.metadata.name)
        elif isinstance(given, Mapping):
            run = read_mapping(given, name or "run")
        else:
            name = name or describe_retriever(given)
            run, journal = collect_run(given, name, opened.subsets, rules.missing, settings, output)
        models.append(prepare_run(replace(run, name=name or run.name), opened, rules, models))
        journals.append(journal)
    scored = []
    for model, journal in zip(models, journals, strict=True):
        scored.append(evaluate_run(model, opened, output))
        if journal and not scored[-1].counts.missing:
            journal.remove()
    return ScoredRuns(tuple(scored))


def read_mapping(rankings: Mapping[str, Any], name: str) -> Run:
    """Return a run from scores by document id by query id; raise DataError if they are not."""
    from posir_score.run_files import check_rankings

    return Run(name, check_rankings(name, "", rankings))


def describe_retriever(search: Retriever) -> str:
    """Return a retriever's name: that of its module and function, or of its class, without the functions around it."""
    named = search if hasattr(search, "__qualname__") else type(search)
    name = named.__qualname__.rpartition("<locals>.")[2].replace("<lambda>", "lambda")
    return f"{named.__module__}-{name}".removeprefix("__main__-")
