"""Bare jobs that users would run instead of posir commands, for comparison in `commands.py`.

Usage: python benchmarks/bare_jobs.py JOB FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def evaluate_run(folder: Path) -> None:
    """Read judgments and a run in TREC format, and compute nDCG@10 with pytrec_eval."""
    import pytrec_eval

    qrels: dict[str, dict[str, int]] = {}
    with (folder / "beir" / "qrels" / "test.tsv").open() as lines:
        next(lines)
        for line in lines:
            query, document, grade = line.split("\t")
            qrels.setdefault(query, {})[document] = int(grade)
    with (folder / "run.trec").open() as lines:
        run = pytrec_eval.parse_run(lines)
    scores = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut_10"}).evaluate(run)
    print(sum(score["ndcg_cut_10"] for score in scores.values()) / len(scores))


def decode_results(folder: Path) -> None:
    """Decode every result file as JSON and print its number of scores."""
    for file in sorted((folder / "results").rglob("*.json")):
        print(file.name, len(json.loads(file.read_bytes())))


def convert_questions(folder: Path) -> None:
    """Read questions in SQuAD format and write corpus and queries as Parquet."""
    import polars

    articles = json.loads((folder / "questions.json").read_bytes())["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    questions = [question for paragraph in paragraphs for question in paragraph["qas"]]
    corpus = polars.DataFrame({"text": [paragraph["context"] for paragraph in paragraphs]})
    corpus.write_parquet(folder / "bare-corpus.parquet")
    queries = polars.DataFrame({"text": [question["question"] for question in questions]})
    queries.write_parquet(folder / "bare-queries.parquet")


def count_lengths(folder: Path) -> None:
    """Read questions in SQuAD format, and summarize the lengths of texts and answer positions."""
    import polars

    articles = json.loads((folder / "questions.json").read_bytes())["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    texts = polars.Series([paragraph["context"] for paragraph in paragraphs])
    starts = [
        question["answers"][0]["answer_start"]
        for paragraph in paragraphs
        for question in paragraph["qas"]
    ]
    print(texts.str.len_chars().describe(), polars.Series(starts).describe())


def encode_text(folder: Path) -> None:
    """Load a model with sentence-transformers and encode one text as long as its window."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder / "model"), device="cpu")
    print(model.encode("word " * model.max_seq_length).shape)


def look_up_model(_folder: Path) -> None:
    """Look up a missing model in the cache of the Hub client."""
    from huggingface_hub import try_to_load_from_cache

    print(try_to_load_from_cache("nobody/no-such-model", "config.json"))


def list_tasks(_folder: Path) -> None:
    """List mteb's tasks and one of its benchmarks."""
    import mteb

    print(len(mteb.get_tasks()), mteb.get_benchmark("MTEB(eng, v2)").name)


def import_libraries(_folder: Path) -> None:
    """Import the libraries that posir's functions use: torch, mteb and sentence-transformers."""
    import mteb
    import sentence_transformers
    import torch

    print(torch.__version__, mteb.__version__, sentence_transformers.__version__)


def run_without_rotations(folder: Path) -> None:
    """Evaluate MiniLM on PosIR-Mini without rotated documents."""
    os.environ["POSIR_ROTATED"] = "0"
    import mteb

    import posir_tasks  # noqa: F401

    model = mteb.get_model("all-MiniLM-L6-v2")
    cache = mteb.ResultCache(tempfile.mkdtemp(dir=folder))
    print(mteb.evaluate(model, mteb.get_tasks(["PosIR-Mini"]), cache=cache).task_results)


def multiply_blocks(folder: Path) -> None:
    """Multiply embeddings in blocks of documents, and keep the top 100 scores of each query."""
    import numpy as np
    import torch

    queries = torch.from_numpy(np.load(folder / "queries.npy"))
    documents = torch.from_numpy(np.load(folder / "documents.npy", mmap_mode="c"))
    best = torch.full((len(queries), 0), 0.0)
    for block in documents.split(50_000):
        scores = torch.cat([best, queries @ block.T], dim=1)
        best = scores.topk(100, dim=1).values
    print(best.shape)


JOBS: dict[str, Callable[[Path], None]] = {
    job.__name__: job
    for job in (
        evaluate_run,
        decode_results,
        convert_questions,
        count_lengths,
        encode_text,
        look_up_model,
        list_tasks,
        import_libraries,
        run_without_rotations,
        multiply_blocks,
    )
}

if __name__ == "__main__":
    JOBS[sys.argv[1]](Path(sys.argv[2]))
