"""Run `mteb` with an additional task: a domain in the PosIR layout as a plain retrieval task.

Usage: python benchmarks/plain_mteb.py DOMAIN_FOLDER LANGUAGE run -t Plain -m MODEL ...
"""

import sys
from pathlib import Path

import mteb  # noqa: F401
import polars as pl
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.cli.build_cli import main

FOLDER, LANGUAGE = Path(sys.argv[1]), sys.argv[2]


class Plain(AbsTaskRetrieval):
    """A retrieval task on the domain, without positions."""

    metadata = TaskMetadata(
        name="Plain",
        description="A domain in the PosIR layout, without positions.",
        dataset={"path": "local", "revision": "local"},
        type="Retrieval",
        category="t2t",
        eval_langs=[LANGUAGE],
        main_score="ndcg_at_10",
        prompt={
            "query": "Given a web search query, retrieve relevant passages that answer the query"
        },
    )

    def load_data(self, num_proc: int | None = None, **kwargs: object) -> None:  # noqa: ARG002
        """Read the three tables."""
        texts = {
            name: pl.read_parquet(FOLDER / f"{name}.parquet") for name in ("corpus", "queries")
        }
        qrels = pl.read_parquet(FOLDER / "qrels" / "test.parquet")
        self.dataset = {
            "default": {
                "test": {
                    **{
                        k: Dataset.from_polars(v.select(pl.col("_id").alias("id"), "text"))
                        for k, v in texts.items()
                    },
                    "relevant_docs": {
                        q: {d: 1} for q, d in qrels.select("query-id", "corpus-id").iter_rows()
                    },
                    "top_ranked": None,
                }
            }
        }
        self.data_loaded = True


if __name__ == "__main__":
    sys.modules["mteb.get_tasks"]._TASKS_REGISTRY["Plain"] = Plain
    sys.argv = ["mteb", *sys.argv[3:]]
    main()
