"""The declared scores: the number of queries, and PSI as papers print it."""

from posir_psi.scores import none_if_nan, psi
from posir_tasks.profile import NDCG_AT_10, mean_gain
from posir_tasks.scores import Better, QueryGroup, Score, Unit


def _observed_psi(group: QueryGroup) -> float | None:
    return none_if_nan(float(psi(mean_gain(group.counts, NDCG_AT_10))))


SCORES = (
    Score(
        "queries",
        "Queries",
        "Number of queries.",
        unit=Unit.COUNT,
        compute=lambda group: group.queries,
        by_position=True,
    ),
    Score(
        "psi_as_published",
        "PSI (as published)",
        "The observed 1 - worst / best position bin, to which chance adds.",
        unit=Unit.INDEX,
        better=Better.LOWER,
        citation="Zeng et al. 2025, arXiv 2505.13950",
        compute=_observed_psi,
    ),
)
