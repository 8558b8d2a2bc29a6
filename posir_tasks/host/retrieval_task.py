"""mteb's retrieval task, with public names for the private methods and attributes that posir's tasks use."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mteb.abstasks.retrieval import AbsTaskRetrieval

from posir_tasks.host.private_names import EVALUATE_SUBSET, FIRST_STAGE_MODEL, SAVE_PREDICTIONS

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.timing import TimingStack
    from mteb.types import EncodeKwargs, ScoresDict


@dataclass(frozen=True)
class SubsetRun:
    """Settings of the evaluation of one subset, as mteb passes them."""

    hf_split: str
    hf_subset: str
    encode_kwargs: EncodeKwargs
    prediction_folder: Path | None
    num_proc: int | None
    timer: TimingStack


class RetrievalTask(AbsTaskRetrieval):
    """A retrieval task of mteb that evaluates its subsets itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.top_k = max(self.k_values)
        """Documents to retrieve, or to rerank, for each query."""
        self.first_stage_model: dict[str, str] | None = None
        """Name and revision of the model whose predictions are reranked, None without `convert_to_reranking`."""

    @abstractmethod
    def evaluate_subset(self, model: MTEBModels, data: dict[str, Any], run: SubsetRun) -> ScoresDict:
        """Return the scores of a model on one subset."""

    def save_predictions(
        self, results: Mapping[str, Mapping[str, float]], model: MTEBModels, folder: Path, run: SubsetRun
    ) -> None:
        """Add a subset's results to mteb's prediction file in a folder."""
        self._save_task_predictions(results, model, folder, hf_split=run.hf_split, hf_subset=run.hf_subset)

    def convert_to_reranking(self, top_ranked_path: str | Path, top_k: int = 10) -> RetrievalTask:
        """Rerank the documents in a prediction file, as mteb's tasks do.

        Raises:
            PosirError: The installed version of mteb does not record which model made the predictions.
        """
        FIRST_STAGE_MODEL.resolve()
        super().convert_to_reranking(top_ranked_path, top_k)
        self.top_k, self.first_stage_model = top_k, FIRST_STAGE_MODEL.read(self)
        return self

    def evaluate(self, *args: Any, prediction_folder: Path | None = None, **kwargs: Any) -> Mapping[str, ScoresDict]:
        """Evaluate as mteb's tasks do, after checking that mteb has what the evaluation needs.

        Raises:
            PosirError: It does not: mteb would compute its own scores, or could not save the predictions in the end.
        """
        EVALUATE_SUBSET.resolve()
        if prediction_folder:
            SAVE_PREDICTIONS.resolve()
        return super().evaluate(*args, prediction_folder=prediction_folder, **kwargs)

    def _evaluate_subset(  # type: ignore[override]
        self,
        model: MTEBModels,
        data_split: dict[str, Any],
        *,
        encode_kwargs: EncodeKwargs,
        hf_split: str,
        hf_subset: str,
        prediction_folder: Path | None = None,
        num_proc: int | None = None,
        timer: TimingStack,
        **kwargs: Any,  # noqa: ARG002
    ) -> ScoresDict:
        run = SubsetRun(hf_split, hf_subset, encode_kwargs, prediction_folder, num_proc, timer)
        return self.evaluate_subset(model, data_split, run)
