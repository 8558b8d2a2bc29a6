"""The `scores` that mteb's `task_specific_scores` is called with, and what posir's own scores are computed from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posir_tasks.plugin_api.scoring import score_result
from posir_tasks.ranks import query_scores
from posir_tasks.result_schema import NO_SCORES
from posir_tasks.scores import ResultValues


@dataclass(frozen=True, eq=False)
class QueryScores(Mapping[str, Mapping[str, float]]):
    """The scores of each query under the names of pytrec_eval, as mteb passes them; computed on access."""

    ranks: Mapping[str, int]
    """Rank of the relevant document by query id; 0 where it is not among the results."""
    k_values: Sequence[int]
    usual: Mapping[str, Any]
    """mteb's own scores of the subset."""
    additive: ResultValues
    """Additive values that posir's scores are computed from."""

    def __getitem__(self, query: str) -> Mapping[str, float]:
        return query_scores(self.ranks[query], self.k_values)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def compute_declared(self) -> dict[str, Any]:
        """Compute the scores that plugins declare, as a result has them beside mteb's own."""
        computed = score_result(self.additive)
        return computed.to_json(self.additive.profile.positions, taken={*self.usual, *NO_SCORES})
