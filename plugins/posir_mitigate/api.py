"""The public function of this package: `posir.mitigate`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.display.numbers import (
    MISSING,
    format_estimate,
    format_number,
    format_percent,
    format_points,
    format_psi,
    format_psi_difference,
)
from posir_tasks.display.presentation import Presentable, to_paragraphs
from posir_tasks.display.progress import track
from posir_tasks.display.sections import DisplaySection
from posir_tasks.display.tables import Column, Table
from posir_tasks.errors import PosirError

if TYPE_CHECKING:
    from posir_mitigate.outcome import MitigationOutcome, ScoreChange

#: Tried unless methods are named; those that do not work for a model are named below the table.
DEFAULT_METHODS = (
    "chunks(128)",
    "chunks(64)",
    "chunks(sentences)",
    "chunks(128,mean)",
    "late_chunks",
    "long_late_chunks",
    "calibrated",
    "calibrated_first",
    "calibrated_mean",
    "both_orders",
)
#: Scores, each with its change.
SCORES = ("nDCG@10", "Start to end", "PSI")
BRIEF = (
    "nDCG@10 and start to end (first minus last third of the document) x 100. Intervals: 95 % for new documents, not "
    "corrected. Change: to the plain model; * significant, Holm-corrected. Vectors: per document. Time: against "
    "the plain model."
)
LEGEND = (
    "95 % intervals for new documents. nDCG@10 x 100; start to end: first minus last third of the document, x 100; PSI: "
    "posterior median, with the effect of chunk edges. Change: to the plain model, on the same queries; * significant: "
    "p < 0.05, Holm-corrected for all methods of the table, and an interval without 0; intervals are not corrected. Vectors: "
    "per document. Time: of encoding queries and documents and searching, against the plain model."
)
SOURCES = (
    "Sources. Chunks with one vector: DICE, arXiv 2606.18781. Late chunks: arXiv 2409.04701. calibrated_first: arXiv 2601.16934"
    " (Findings of ACL 2026), with its defaults; calibrated: its follow-up, arXiv 2606.02737, as released in August 2026."
)


@dataclass(frozen=True, repr=False)
class Mitigations(Presentable):
    """The mitigations that were tried, compared with the plain model."""

    model: str
    outcomes: tuple[MitigationOutcome, ...]
    """The plain model, then each method."""
    not_tried: tuple[str, ...]
    """Methods that do not work for the model, with the reason."""

    @property
    def title(self) -> str:
        """Subject in a few words."""
        return f"Mitigations of {self.model}"

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the findings, then the table."""
        return (*to_paragraphs(describe_changes(self.outcomes)), DisplaySection(tables=(build_table(self.outcomes),)))

    def records(self) -> list[dict[str, object]]:
        """Return a row for each method."""
        return [flatten(outcome) for outcome in self.outcomes]

    def document(self) -> dict[str, Any]:
        """Return the outcomes, and what was not tried."""
        return {"outcomes": self.outcomes, "not_tried": self.not_tried}

    def legend(self) -> tuple[str, ...]:
        """Return how to read the numbers."""
        return (BRIEF,)

    def explanation(self) -> tuple[str, ...]:
        """Return what every column means, and what was not tried, which the command prints on the error stream, too."""
        return (LEGEND, SOURCES, *self.not_tried)


def mitigate(
    model: str | Path,
    data: str | Path,
    *,
    methods: Sequence[str] = DEFAULT_METHODS,
    revision: str | None = None,
    batch_size: int = 32,
    output_folder: str | Path = "results",
) -> Mitigations:
    """Try mitigations of position bias that need no training; what has a result is not run again.

    Args:
        model: A registered model, a local folder, or an endpoint.
        data: A task, or any other data with the spans of evidence.
        methods: Methods with arguments, such as `chunks(64,mean)`; by default all that need no arguments.
        revision: Revision of the model.
        batch_size: Number of texts encoded at a time.
        output_folder: Folder for results, as in `mteb run`.

    Returns:
        A row for the plain model and for each method: nDCG@10, start to end and PSI in [-1, 1] with their change on the same
        queries, vectors per document and seconds.

    Raises:
        PosirError: A name is unknown, the data has no evidence, or no method works for the model.

    Examples:
        >>> import posir
        >>> mitigations = posir.mitigate("./my-model", "squad.json", methods=["chunks(32)"], output_folder="my-results")
        >>> mitigations.to_polars()["method"].to_list()
        ['plain', 'chunks(32,16,max,tokens)']
    """
    with track("Loading libraries"):
        from datasets import disable_progress_bars
        from transformers.utils.logging import disable_progress_bar

        from posir_mitigate.outcome import summarize_trials
        from posir_mitigate.references import parse_reference
        from posir_mitigate.trials import TrialRequest, open_task, run_trials
        from posir_tasks.models.references import ModelReference

    disable_progress_bar()  # type: ignore[no-untyped-call]
    disable_progress_bars()
    parsed = [parse_reference(text) for text in methods]
    task, folder = open_task(str(data)), Path(output_folder)
    request = TrialRequest(ModelReference(str(model), revision), list(dict.fromkeys(parsed)), task, batch_size)
    with without_cache():
        trials = run_trials(request, folder)
    if not trials.mitigated:
        raise PosirError("no method works for this model. " + " ".join(trials.refused))
    with track("Comparing"):
        outcomes = summarize_trials(trials, task.metadata.name, folder)
    return Mitigations(str(trials.plain.name), tuple(outcomes), tuple(trials.refused))


@contextmanager
def without_cache() -> Iterator[None]:
    """Switch the embedding cache off: a cached embedding takes no time."""
    from posir_tasks.embeddings.cached_encoder import EMBEDDINGS_VARIABLE

    folder = os.environ.pop(EMBEDDINGS_VARIABLE, None)
    try:
        yield
    finally:
        if folder is not None:
            os.environ[EMBEDDINGS_VARIABLE] = folder


def build_table(outcomes: Sequence[MitigationOutcome]) -> Table:
    """Return a table with a line for each method."""
    rows = tuple(
        (
            outcome.method,
            format_estimate(outcome.ndcg_at_10.value, format_percent),
            format_change(outcome.ndcg_at_10, format_points),
            format_estimate(outcome.start_to_end.value, format_points),
            format_change(outcome.start_to_end, format_points),
            format_estimate(outcome.psi.value, format_psi),
            format_change(outcome.psi, format_psi_difference),
            format_number(outcome.vectors_per_document, ",.1f"),
            format_ratio(outcome.time_ratio),
        )
        for outcome in outcomes
    )
    scores = (Column(heading, group=score) for score in SCORES for heading in (score, "Change"))
    cost = (Column(heading, "right", "Cost") for heading in ("Vectors", "Time"))
    return Table((Column("Method"), *scores, *cost), rows)


def format_ratio(ratio: float | None) -> str:
    """Format a ratio of times: `x 1.25`; `MISSING` for None."""
    if ratio is None:
        return MISSING
    return "x <0.01" if ratio < 0.005 else f"x {format_number(ratio, ',.2f')}"


def format_change(score: ScoreChange, form: Callable[[float | None], str]) -> str:
    """Format a difference to the plain model, with a star if it is significant; `MISSING` for the plain model."""
    return MISSING if score.difference is None else format_estimate(score.difference, form) + ("*" if score.significant else "")


def describe_changes(outcomes: Sequence[MitigationOutcome]) -> Iterator[str]:
    """Yield a sentence for each kind of significant change, with the methods that make it."""
    others = outcomes[1:]
    ndcg = [row for row in others if row.ndcg_at_10.significant]
    psi = [row for row in others if row.psi.significant]
    start_to_end = [row for row in others if row.start_to_end.significant]
    kinds = {
        "nDCG@10 is significantly better with": _list_changes([row for row in ndcg if rises(row.ndcg_at_10)], "ndcg_at_10"),
        "nDCG@10 is significantly worse with": _list_changes([row for row in ndcg if not rises(row.ndcg_at_10)], "ndcg_at_10"),
        "PSI is significantly lower with": _list_changes([row for row in psi if not rises(row.psi)], "psi"),
        "PSI is significantly higher with": _list_changes([row for row in psi if rises(row.psi)], "psi"),
        "Start to end is significantly different with": _list_changes(start_to_end, "start_to_end"),
    }
    for words, changes in kinds.items():
        if changes:
            yield f"{words} {', '.join(changes)}."
    if not any(kinds.values()):
        yield "No method changes nDCG@10, PSI or start to end significantly."


def _list_changes(rows: Sequence[MitigationOutcome], name: str) -> list[str]:
    """Return methods with the change of a score, the largest change first."""
    form = format_psi_difference if name == "psi" else format_points
    changes = [(row.method, difference.value) for row in rows if (difference := getattr(row, name).difference)]
    return [f"{method} ({form(value)})" for method, value in sorted(changes, key=lambda change: -abs(change[1]))]


def rises(score: ScoreChange) -> bool:
    """Return whether a score is higher than the plain model's."""
    return score.difference is not None and score.difference.value > 0


def flatten(outcome: MitigationOutcome) -> dict[str, object]:
    """Return an outcome as a row of CSV."""
    row: dict[str, object] = {}
    for name, value in vars(outcome).items():
        row |= {f"{name}_{key}": item for key, item in vars(value).items()} if is_dataclass(value) else {name: value}
    return row
