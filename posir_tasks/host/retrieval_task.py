"""mteb's retrieval task, with public names for the private methods and attributes that posir's tasks use."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mteb.abstasks.retrieval import AbsTaskRetrieval

from posir_tasks.gate import read_json
from posir_tasks.host.private_names import EVALUATE_SUBSET

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.timing import TimingStack
    from mteb.types import EncodeKwargs, ScoresDict


#: Key in a prediction file of the name and revision of the model that made it.
FIRST_STAGE_KEY = "mteb_model_meta"


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
        """Add a subset's results to the prediction file in a folder, as mteb's tasks write it."""
        file, meta = folder / self.prediction_file_name, model.mteb_model_meta
        predictions: dict[str, Any] = {FIRST_STAGE_KEY: {"model_name": meta.name, "revision": meta.revision}}
        if file.exists():
            predictions = read_json(file)
        predictions.setdefault(run.hf_subset, {})[run.hf_split] = results
        file.write_text(json.dumps(predictions), encoding="utf-8")

    def convert_to_reranking(self, top_ranked_path: str | Path, top_k: int = 10) -> RetrievalTask:
        """Rerank the documents in a prediction file, or in the one of this task in a folder, as mteb's tasks do."""
        super().convert_to_reranking(top_ranked_path, top_k)
        file = Path(top_ranked_path)
        file = file / self.prediction_file_name if file.is_dir() else file
        self.top_k, self.first_stage_model = top_k, read_json(file)[FIRST_STAGE_KEY]
        return self

    def evaluate(self, *args: Any, prediction_folder: Path | None = None, **kwargs: Any) -> Mapping[str, ScoresDict]:
        """Evaluate as mteb's tasks do, after checking that mteb has what the evaluation needs.

        Raises:
            PosirError: It does not: mteb would compute its own scores.
        """
        EVALUATE_SUBSET.resolve()
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
