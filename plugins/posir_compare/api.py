"""The public function of this package: `posir.compare`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from posir_compare import comparison
from posir_compare.comparison import (
    ComparisonRow,
    ModelComparison,
    ModelRun,
    build_pairs,
    choose_baseline,
    collect_runs,
    comparison_table,
    describe_differences,
    describe_levels,
    select_by_name,
    select_tasks,
)
from posir_compare.gate import Gate, check
from posir_significance.decision import Margins
from posir_tasks.display.presentation import Presentable, to_paragraphs
from posir_tasks.display.tables import DisplaySection
from posir_tasks.errors import PosirError
from posir_tasks.results import SubsetResult, read_results
from posir_tasks.scores import ALL

#: A folder of results, or what was read from it.
ResultSource: TypeAlias = str | Path | Sequence[SubsetResult]

BRIEF = (
    "Difference: model minus baseline; nDCG@10 and start to end (first minus last third of the document) x 100. Change: "
    "better, worse or equivalent within the margin, as the interval says; of start to end it cannot be said, too, where it is "
    "open which is nearer to 0. Intervals of scores are those of a report."
)
NOTE = (
    "Difference: model minus baseline. nDCG@10 x 100; start to end: first minus last third of the document, x 100, better "
    "nearer to 0; PSI: posterior median, better lower. The change follows from the interval of the difference: equivalent if "
    "it lies within the margin, better or worse if 0 is outside, else it cannot be said."
)


@dataclass(frozen=True, repr=False)
class Comparison(Presentable):
    """Models against a baseline, by task, length and metric."""

    models: tuple[str, ...]
    """Names of the compared models, with the folder where several runs have one name; the baseline is among them."""
    details: ModelComparison
    """All rows, and what was skipped or could not be paired."""

    @property
    def rows(self) -> tuple[ComparisonRow, ...]:
        """A row for each task, model, length and metric."""
        return self.details.rows

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on pairs and subsets that were skipped, or could not be paired by query."""
        return self.details.notes

    @property
    def baseline(self) -> str:
        """Name of the model that all others are compared with."""
        return self.rows[0].baseline

    @property
    def title(self) -> str:
        """Subject in a few words."""
        return f"Comparison with {self.baseline}"

    def check(self, limits: str | Sequence[str], *, lengths: Collection[str] = (ALL,), strict: bool = False) -> Gate:
        """Test limits on the change from the baseline, as `posir compare --fail-if` does.

        Args:
            limits: A metric, `<` or `>`, and a number in the unit in which its change is printed, such as `start_to_end > 5`;
                or several of these.
            lengths: `all` or names of length buckets.
            strict: Whether a limit already fails if the interval of the change is not wholly within it.

        Returns:
            The verdict on every limit, and over all.

        Raises:
            PosirError: A limit is none.
        """
        return check(self.details, [limits] if isinstance(limits, str) else limits, lengths, strict=strict)

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the findings, then the table."""
        return (*to_paragraphs(describe_differences(self.rows)), DisplaySection(tables=(comparison_table(self.rows),)))

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each task, model, length and metric."""
        return [row.columns() for row in self.rows]

    def document(self) -> dict[str, Any]:
        """Return baseline, rows and notes."""
        return {"baseline": self.baseline, "comparisons": self.records(), "notes": self.notes}

    def legend(self) -> tuple[str, ...]:
        """Return how to read the numbers."""
        return (f"{BRIEF} {describe_levels(self.rows)}",)

    def explanation(self) -> tuple[str, ...]:
        """Return what every column means, and the notes, which the command prints on the error stream, too."""
        return (NOTE, *self.notes)


def compare(
    results: ResultSource | Sequence[ResultSource],
    *models: str,
    baseline: str | None = None,
    lengths: Collection[str] = (),
    tasks: Sequence[str] = (),
    margins: Collection[str] = (),
) -> Comparison:
    """Compare models with a baseline in nDCG@10, in the effect of position and in PSI, paired by query where ranks allow it.

    Args:
        results: A folder of results, what `posir.read_results` or `posir.evaluate` returned, or several of these.
        models: Full names of models, or the part after the slash; without any, all models of the results.
        baseline: Model that the others are compared with; by default the first.
        lengths: Lengths to compare: `all` or names of length buckets; empty for every one. Intervals of fewer are narrower.
        tasks: Names of tasks to compare; empty for all.
        margins: The smallest differences that matter, in points: `5` for start to end, `ndcg_at_10=2`, `psi=10`.

    Returns:
        A row for each task, model, length and metric: both scores with 95 % intervals, their difference in [-1, 1] with its
        simultaneous interval, and the state of the change.

    Raises:
        PosirError: There are no such results, models or lengths, or fewer than two models.

    Examples:
        >>> import posir
        >>> comparison = posir.compare("results", "baseline-bm25s", "all-MiniLM-L6-v2")
        >>> comparison.rows[0].metric.value
        'nDCG@10'
        >>> comparison.to_polars()["length"].unique(maintain_order=True).to_list()
        ['all', 'Q1', 'Q2', 'Q3', 'Q4']
    """
    runs = collect_runs([_read(source) for source in _list_sources(results)])
    chosen = select_tasks(_select_runs(runs, models, baseline), tasks)
    pairs = build_pairs(chosen, choose_baseline(chosen, baseline))
    return Comparison(tuple(run.label for run in chosen), comparison.compare_pairs(pairs, lengths, Margins.parse(margins)))


def _list_sources(results: ResultSource | Sequence[ResultSource]) -> Sequence[ResultSource]:
    if isinstance(results, str | Path) or any(isinstance(result, SubsetResult) for result in results):
        return [results]  # type: ignore[list-item]
    return results  # type: ignore[return-value]


def _read(source: ResultSource) -> Sequence[SubsetResult]:
    return read_results(Path(source)) if isinstance(source, str | Path) else source


def _select_runs(runs: Sequence[ModelRun], models: Sequence[str], baseline: str | None) -> list[ModelRun]:
    """Return the runs to compare; with names of models, the baseline need not be among them.

    Raises:
        PosirError: Fewer than two models were given or found.
    """
    named = select_by_name(runs, models) if models else list(runs)
    added = [] if baseline is None else [choose_baseline(runs, baseline)]
    chosen = [*(run for run in added if run not in named), *named]
    if len(chosen) < 2:
        names = ", ".join(run.label for run in chosen)
        raise PosirError(f"A comparison needs two models; found: {names}. Name another one or give another folder.")
    return chosen
