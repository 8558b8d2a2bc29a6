"""Base class for posir's retrieval tasks, and functions that read mteb's retrieval tasks.

This module wraps mteb's private methods in public ones.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mteb.abstasks.retrieval import AbsTaskRetrieval

from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.private_names import EVALUATE_SUBSET
from posir_tasks.base.records import Record
from posir_tasks.base.untrusted import read_json
from posir_tasks.data.data import Judgments, PositionData, ScoringRules
from posir_tasks.data.formats.passages import Item, Passage
from posir_tasks.data.grades import read_grade
from posir_tasks.search.scoring import SplitData, build_split
from posir_tasks.values.result_schema import SPLIT

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import ScoresDict


def find_retrieval_task(name: str) -> AbsTaskRetrieval | None:
    """Find an mteb retrieval task by name, or return None."""
    import mteb

    try:
        task = mteb.get_task(name)
    except KeyError:
        return None
    return task if isinstance(task, AbsTaskRetrieval) else None


def _load_split(task: AbsTaskRetrieval, subset: str, split: str | None) -> SplitData:
    """Load mteb's data for a subset and a split; by default, the first evaluated split.

    Raises:
        DataError: The split does not exist, or the data cannot be loaded or has no texts.
    """
    name = split or task.metadata.eval_splits[0]
    if name not in task.metadata.eval_splits:
        raise DataError(
            f"--split {name}: {task.metadata.name} has {', '.join(task.metadata.eval_splits)}."
        )
    try:
        task.load_data()
        # Some tasks load the format of mteb 1. mteb converts it in the same way.
        task.convert_v1_dataset_format_to_v2(num_proc=None)
    except Exception as error:
        raise DataError(
            f"{task.metadata.name}: its data cannot be loaded ({summarize_error(error)})."
        ) from error
    split_data: SplitData = dict(task.dataset[subset][name])
    for key, nouns in (("queries", "queries"), ("corpus", "documents")):
        if "text" not in split_data[key].column_names:
            raise DataError(
                f"{task.metadata.name}: its {nouns} are not texts, which posir needs. Score it "
                "with mteb."
            )
    return split_data


def read_task_judgments(task: AbsTaskRetrieval, subset: str, split: str | None) -> Judgments:
    """Return the relevance judgments for the queries of a subset that mteb scores.

    Raises:
        DataError: The data cannot be loaded, or a grade is invalid.
    """
    split_data = _load_split(task, subset, split)
    queries = split_data["queries"]
    texts = dict(zip(queries["id"], map(_join_turns, queries["text"]), strict=True))
    grades = dict[str, dict[str, float]]()
    left_out = list[str]()
    for query, documents in split_data["relevant_docs"].items():
        if not documents or query not in texts:
            left_out.append(query)
            continue
        try:
            grades[query] = {name: read_grade(grade) for name, grade in documents.items()}
        except ValueError as error:
            raise DataError(f"{task.metadata.name}: a grade of query {query} {error}.") from error
    candidates = {
        query: frozenset(names) for query, names in (split_data.get("top_ranked") or {}).items()
    }
    query_texts = {query: texts[query] for query in grades}
    return Judgments(query_texts, grades, left_out=tuple(sorted(left_out)), candidates=candidates)


def _join_turns(text: object) -> str:
    """Return the text of a query, or the turns of a conversation as JSON."""
    return text if isinstance(text, str) else json.dumps(text)


def read_scoring_rules(task: AbsTaskRetrieval, split: str | None) -> ScoringRules:
    """Return a task's scoring rules for a split; by default, the first evaluated split."""
    return ScoringRules(
        split=split or task.metadata.eval_splits[0],
        ignore_identical_ids=task.ignore_identical_ids,
        skip_first_result=task.skip_first_result,
        main_score=task.metadata.main_score,
        k_values=tuple(task.k_values),
    )


def list_task_texts(task: AbsTaskRetrieval, subset: str, split: str | None) -> Iterator[Item]:
    """Yield the documents of a subset, including titles, like mteb."""
    for row in _load_split(task, subset, split)["corpus"]:
        text = f"{row.get('title') or ''} {row['text'] or ''}".strip()
        yield Passage(task.metadata.name, row["id"], text, id=row["id"])


#: Key in a prediction file for the model's name and revision.
FIRST_STAGE_KEY = "mteb_model_meta"


class RetrievalTask(AbsTaskRetrieval):
    """An mteb retrieval task that posir evaluates subset by subset."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.top_k = max(self.k_values)
        """Number of documents to retrieve or rerank per query."""
        self.first_stage_model: dict[str, str] | None = None
        """Name and revision of the first-stage model, which `convert_to_reranking` sets."""

    @abstractmethod
    def evaluate_subset(self, *args: Any, **settings: Any) -> ScoresDict:
        """Score a model on a subset, with the arguments of mteb's `_evaluate_subset`."""

    def save_predictions(
        self,
        results: Mapping[str, Mapping[str, float]],
        model: MTEBModels,
        folder: Path,
        hf_split: str,
        hf_subset: str,
    ) -> None:
        """Add a subset's results to the prediction file in a folder, in mteb's format."""
        file = folder / self.prediction_file_name
        meta = model.mteb_model_meta
        predictions: Record = {
            FIRST_STAGE_KEY: {"model_name": meta.name, "revision": meta.revision}
        }
        if file.exists():
            predictions = read_json(file)
        predictions.setdefault(hf_subset, {})[hf_split] = results
        file.write_text(json.dumps(predictions), encoding="utf-8")

    def convert_to_reranking(self, top_ranked_path: str | Path, top_k: int = 10) -> RetrievalTask:
        """Rerank the documents in a prediction file, or in the task's file in a folder."""
        super().convert_to_reranking(top_ranked_path, top_k)
        file = Path(top_ranked_path)
        file = file / self.prediction_file_name if file.is_dir() else file
        self.top_k = top_k
        self.first_stage_model = read_json(file)[FIRST_STAGE_KEY]
        return self

    def evaluate(
        self, *args: Any, prediction_folder: Path | None = None, **kwargs: Any
    ) -> Mapping[str, ScoresDict]:
        """Evaluate like mteb. Raise PosirError if the installed mteb would bypass posir."""
        EVALUATE_SUBSET.resolve()
        return super().evaluate(*args, prediction_folder=prediction_folder, **kwargs)

    def _evaluate_subset(self, *args: Any, **settings: Any) -> ScoresDict:
        return self.evaluate_subset(*args, **settings)


class LazySubsets(Mapping[str, dict[str, SplitData]]):
    """Data by subset and split. Subsets are read on access, and only the last one stays in memory.

    mteb evaluates subsets one at a time, and the 31 domains of a language contain about 8 GB of
    text. Candidates that `convert_to_reranking` adds are kept for all subsets.
    """

    def __init__(self, subsets: list[str], read: Callable[[str], PositionData]) -> None:
        self._subsets = subsets
        self._read = read
        self._loaded: dict[str, dict[str, SplitData]] = {}
        self._top_ranked: Record = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._subsets)

    def __len__(self) -> int:
        return len(self._subsets)

    def __getitem__(self, subset: str) -> dict[str, SplitData]:
        if subset not in self._subsets:
            raise KeyError(subset)
        if subset not in self._loaded:
            self._top_ranked |= {
                name: splits[SPLIT]["top_ranked"] for name, splits in self._loaded.items()
            }
            # Free memory before reading the next subset.
            self._loaded.clear()
            split = build_split(self._read(subset), self._top_ranked.get(subset))
            self._loaded[subset] = {SPLIT: split}
        return self._loaded[subset]
