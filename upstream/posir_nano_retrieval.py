from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

if TYPE_CHECKING:
    from mteb.types import RelevantDocumentsType

_THIRDS = ("first", "middle", "last")
_TOP_K = 10


class PosIRNanoRetrieval(AbsTaskRetrieval):
    """Retrieval scores by the position of the evidence in its document.

    The configuration `queries` has a column `position`: the midpoint of the evidence as a share of
    the document, from 0 to 1.
    """

    metadata = TaskMetadata(
        name="PosIRNanoRetrieval",
        dataset={
            "path": "mteb/PosIRNanoRetrieval",
            "revision": "0000000000000000000000000000000000000000",
        },
        description=(
            "A sample of PosIR's English queries, balanced over domains and the position of the "
            "evidence, with PosIR's document lengths, and distractors from the full corpus. "
            "Additional scores are nDCG@10 for evidence in the first, middle and last third of a "
            "document, and the difference between the first and the last third."
        ),
        reference="https://arxiv.org/abs/2601.08363",
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=("2026-01-13", "2026-01-13"),
        domains=["Web", "Written", "Non-fiction"],
        task_subtypes=["Article retrieval", "Question answering"],
        license="not specified",
        annotations_creators="LM-generated",
        dialect=[],
        sample_creation="found",
        prompt={
            "query": "Given a web search query, retrieve relevant passages that answer the query"
        },
        bibtex_citation=r"""
@misc{zeng2026posir,
  archiveprefix = {arXiv},
  author = {Ziyang Zeng and Dun Zhang and Yu Yan and Xu Sun and Yudong Zhou and Yuqing Yang},
  eprint = {2601.08363},
  title = {PosIR: Position-Aware Heterogeneous Information Retrieval Benchmark},
  year = {2026},
}
""",
    )

    def task_specific_scores(
        self,
        scores: dict[str, dict[str, float]],
        qrels: RelevantDocumentsType,
        results: dict[str, dict[str, float]],
        hf_split: str,
        hf_subset: str,
    ) -> dict[str, float]:
        """Compute nDCG@10 by third of the document, and the first third minus the last.

        Args:
            scores: Scores by query and metric.
            qrels: Relevant documents by query.
            results: Scores of the retrieved documents by query.
            hf_split: Name of the split.
            hf_subset: Name of the subset.

        Returns:
            `ndcg_at_10_first_third`, `_middle_third` and `_last_third` for thirds with queries, and
            `start_minus_end`, the first third minus the last.
        """
        queries = self.dataset[hf_subset][hf_split]["queries"]
        gains: dict[str, list[float]] = {third: [] for third in _THIRDS}
        for query_id, position in zip(queries["id"], queries["position"], strict=True):
            third = _THIRDS[min(int(position * 3), 2)]
            gains[third].append(_compute_ndcg(qrels[query_id], results.get(query_id, {})))
        thirds = {
            f"ndcg_at_10_{third}_third": float(np.mean(values))
            for third, values in gains.items()
            if values
        }
        if gains["first"] and gains["last"]:
            thirds["start_minus_end"] = (
                thirds["ndcg_at_10_first_third"] - thirds["ndcg_at_10_last_third"]
            )
        return thirds


def _compute_ndcg(relevant: dict[str, int], scores: dict[str, float]) -> float:
    """Compute nDCG@10 of a query with one relevant document."""
    ranking = sorted(scores, key=lambda document: (scores[document], document), reverse=True)
    ranks = [
        rank
        for rank, document in enumerate(ranking[:_TOP_K], start=1)
        if relevant.get(document, 0) > 0
    ]
    return 1 / float(np.log2(1 + ranks[0])) if ranks else 0.0
