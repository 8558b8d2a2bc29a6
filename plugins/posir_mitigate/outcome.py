"""Outcomes of trials: what each mitigation gains and costs against the plain model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posir_compare.comparison import ComparisonRow, Metric, compare_pair, correct_rows
from posir_compare.model_runs import ModelRun, Pair, read_model_runs
from posir_compare.pairing import find_common_results
from posir_mitigate.trials import Trials
from posir_significance.verdict import is_significant
from posir_tasks.display.progress import progress
from posir_tasks.estimates import Difference, Estimate
from posir_tasks.result_schema import INDEX_KEY

#: How the names of phases in mteb's result files begin in which queries and documents are encoded and searched. Which phases
#: there are depends on the kind of model: a search of chunks is one, "Encoding queries and documents".
SEARCH_PHASES = ("Encoding ", "Searching ")


@dataclass(frozen=True)
class ScoreChange:
    """A score of a mitigated model, and its difference to the plain one. None where undefined."""

    value: Estimate | None
    difference: Difference | None = None
    """Its interval is not corrected."""
    p_value: float | None = None
    """Before correction."""
    p_corrected: float | None = None
    """Corrected for all methods."""
    verdict: str = ""
    """The verdict on the difference that p and interval allow."""

    @property
    def significant(self) -> bool:
        """Whether it differs significantly from the plain model's."""
        return is_significant(self.difference, self.p_corrected)


@dataclass(frozen=True)
class MitigationOutcome:
    """Gains and cost of a method. Differences and p-values of the plain model are None."""

    method: str
    """`plain` for the model without any."""
    queries: int
    ndcg_at_10: ScoreChange
    start_to_end: ScoreChange
    psi: ScoreChange
    vectors_per_document: float
    seconds: float
    """Wall time of encoding queries and documents and of searching."""
    time_ratio: float | None
    """Ratio of that time to the plain model's."""
    cost: str


def summarize_trials(trials: Trials, task: str, folder: Path) -> list[MitigationOutcome]:
    """Compare every mitigation with the plain model, paired by query; the plain model comes first."""
    runs = {run.results[0].model: run for run in read_model_runs([folder]) if task in {result.task for result in run.results}}
    plain = runs[str(trials.plain.name)]
    pairs = {method: Pair(plain, runs[str(meta.name)], task) for method, meta in trials.mitigated.items()}
    rows: list[ComparisonRow] = []
    for pair in progress(list(pairs.values()), "Comparing"):
        rows += [row for row in compare_pair(pair, find_common_results(pair)) if row.length == "all"]
    corrected = correct_rows(rows)
    seconds = measure_seconds(plain, task)
    outcomes = [describe_plain(rows[: len(Metric)], seconds)]
    for place, (method, pair) in enumerate(pairs.items()):
        scores = scores_by_metric(corrected[place * len(Metric) : (place + 1) * len(Metric)])
        taken = measure_seconds(pair.b, task)
        outcomes.append(
            MitigationOutcome(
                str(method),
                rows[0].queries,
                scores[Metric.NDCG],
                scores[Metric.START_TO_END],
                scores[Metric.PSI],
                count_vectors(pair.b, task),
                taken,
                taken / seconds if seconds else None,
                method.cost,
            )
        )
    return outcomes


def scores_by_metric(rows: Sequence[ComparisonRow]) -> dict[Metric, ScoreChange]:
    """Return the scores of one method."""
    return {row.metric: ScoreChange(row.b, row.difference, row.p_value, row.p_corrected, row.verdict) for row in rows}


def describe_plain(rows: Sequence[ComparisonRow], seconds: float) -> MitigationOutcome:
    """Return the plain model's outcome, from its comparison with any other one."""
    by_metric = {row.metric: ScoreChange(row.a) for row in rows}
    return MitigationOutcome(
        "plain",
        rows[0].queries,
        by_metric[Metric.NDCG],
        by_metric[Metric.START_TO_END],
        by_metric[Metric.PSI],
        1.0,
        seconds,
        1.0,
        "one vector",
    )


def count_vectors(run: ModelRun, task: str) -> float:
    """Return the vectors per document in the index: 1 unless the results say otherwise."""
    sizes = [size for result in run.by_subset(task).values() if (size := result.run.get(INDEX_KEY))]
    documents = sum(size["documents"] for size in sizes)
    return sum(size["vectors"] for size in sizes) / documents if documents else 1.0


def measure_seconds(run: ModelRun, task: str) -> float:
    """Return how long encoding queries and documents and searching took, in seconds; phases may contain each other."""
    file = next(iter(run.by_subset(task).values())).file
    phases = json.loads(file.read_text(encoding="utf-8")).get("evaluation_phases") or []
    spans = sorted((phase["start"], phase["end"]) for phase in phases if phase["name"].startswith(SEARCH_PHASES))
    seconds, reached = 0.0, float("-inf")
    for start, end in spans:
        seconds += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return seconds
