"""Tests for scoring rules of tasks: scores equal mteb's scores for the same rankings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
from datasets import Dataset

import posir
from posir_tasks.base.errors import PosirError

QUERIES, DOCUMENTS = 12, 1400


class FixedSearch:
    """An mteb search model that returns fixed rankings."""

    mteb_model_meta = mteb.get_model_meta("mteb/baseline-bm25s")

    def __init__(self, rankings: dict[str, dict[str, float]]) -> None:
        self.rankings = rankings

    def index(self, corpus: Dataset, **_: Any) -> None:
        """Index nothing."""

    def search(self, queries: Dataset, **_: Any) -> dict[str, dict[str, float]]:
        return {query: dict(self.rankings[query]) for query in queries["id"]}


def make_task_data(seed: int) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """Make random data whose queries are documents of the corpus, and rankings that start with the
    query itself.
    """
    rng = np.random.default_rng(seed)
    corpus = [{"id": f"q{row}", "title": "", "text": f"text {row}"} for row in range(DOCUMENTS)]
    judged: dict[str, dict[str, int]] = {"unread": {"q1": 1}, "q3": {}}
    rankings: dict[str, dict[str, float]] = {}
    for row in range(QUERIES):
        relevant = {
            f"q{name}": int(rng.integers(0, 4))
            for name in rng.choice(np.arange(QUERIES, DOCUMENTS), 9, replace=False)
        }
        judged.setdefault(f"q{row}", relevant)
        scores = {
            f"q{name}": float(rng.normal()) for name in rng.choice(DOCUMENTS, 1100, replace=False)
        }
        scores |= {name: float(rng.normal() + 1.5) for name in relevant}
        scores[f"q{row}"] = 9.0
        best = sorted(scores.items(), key=lambda item: -item[1])[:1000]
        rankings[f"q{row}"] = dict(best)
    # One judged query has no relevant document.
    judged["q5"] = dict.fromkeys(judged["q5"], 0)
    loaded = {
        "corpus": Dataset.from_list(corpus),
        "queries": Dataset.from_list(
            [{"id": f"q{row}", "text": f"text {row}"} for row in range(QUERIES)]
        ),
        "relevant_docs": judged,
        "top_ranked": None,
    }
    return loaded, rankings


@pytest.fixture
def build_task(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes `mteb.get_task` return a task with random data and changed
    attributes.
    """
    get_task = mteb.get_task

    def build(name: str, loaded: dict[str, Any], split: str, **attributes: Any) -> Any:
        task = get_task(name)
        for key, value in attributes.items():
            monkeypatch.setattr(task, key, value)

        def load(**_: Any) -> None:
            task.dataset = {
                "default": {split: {**loaded, "relevant_docs": {**loaded["relevant_docs"]}}}
            }
            task.data_loaded = True

        monkeypatch.setattr(task, "load_data", load)
        monkeypatch.setattr(mteb, "get_task", lambda *_: task)
        return task

    return build


def evaluate(
    task: Any, split: str, rankings: dict[str, dict[str, float]], folder: Path
) -> tuple[dict[str, Any], Path]:
    """Return mteb's scores for rankings, and the predictions file that mteb saves."""
    model: Any = FixedSearch(rankings)
    scores = task.evaluate(model, split, ["default"], encode_kwargs={}, prediction_folder=folder)[
        "default"
    ]
    return scores, next(folder.rglob("*_predictions.json"))


RULES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "identical ids": ("ArguAna", "test", {}),
    "identical ids, another split": ("MSMARCO", "dev", {}),
    "no rule": ("SciFact", "test", {}),
    "first result": ("SciFact", "test", {"skip_first_result": True}),
    "identical ids and first result": ("ArguAna", "test", {"skip_first_result": True}),
    "other cut-offs": ("LIMITRetrieval", "test", {}),
    "more documents": ("BuiltBenchReranking", "test", {}),
}


@pytest.mark.parametrize("case", RULES)
def test_scores_equal_mteb(build_task: Any, tmp_path: Path, case: str):
    name, split, attributes = RULES[case]
    loaded, rankings = make_task_data(len(case))
    task = build_task(name, loaded, split, **attributes)
    expected, predictions = evaluate(task, split, rankings, tmp_path / "predictions")
    scored = posir.score(predictions, data=name, output=tmp_path / "results")
    (entry,) = json.loads((scored.runs[0].folder / f"{name}.json").read_text())["scores"]["test"]
    common = [key for key in expected if key in entry and not key.startswith("nauc")]
    assert len(common) > 35
    # mteb rounds to five digits.
    assert {key: entry[key] for key in common} == {
        key: pytest.approx(expected[key], abs=1e-5) for key in common
    }
    assert entry["main_score"] == pytest.approx(expected[task.metadata.main_score], abs=1e-5)
    (run,) = scored.runs
    assert run.main_score == (
        task.metadata.main_score,
        pytest.approx(entry["main_score"], abs=1e-6),
    )
    # mteb skips the query without judgments, and judgments without a query.
    assert run.counts.queries == QUERIES - 1
    assert run.audit.items["left_out"].count == 2
    assert run.audit.items["without_relevant"].first == "q5"
    is_ignored = name in ("ArguAna", "MSMARCO")
    assert (run.counts.ignored_ids, run.counts.identical_ids > 0) == (
        (QUERIES - 1) * is_ignored,
        not is_ignored and not attributes,
    )


def test_predictions_for_another_split_raise(build_task: Any, tmp_path: Path):
    loaded, rankings = make_task_data(1)
    task = build_task("MSMARCO", loaded, "dev")
    _, predictions = evaluate(task, "dev", rankings, tmp_path / "predictions")
    predictions.write_text(predictions.read_text().replace('"dev"', '"train"'))
    with pytest.raises(PosirError, match=r"for split train, but split dev of MSMARCO is scored"):
        posir.score(predictions, data="MSMARCO", output=tmp_path / "results")


def test_hits_outside_the_reranking_candidates_are_counted(build_task: Any, tmp_path: Path):
    loaded, rankings = make_task_data(4)
    cut = {query: dict([*ranked.items()][:20]) for query, ranked in rankings.items()}
    candidates = {query: [*ranked][: 17 if query == "q0" else 20] for query, ranked in cut.items()}
    build_task("SciFact", {**loaded, "top_ranked": candidates}, "test")
    (run,) = posir.score(cut, data="SciFact", name="mine", output=tmp_path).runs
    assert run.counts.other_candidates == 3
    assert any("reranks" in sentence for sentence in run.describe())


def test_data_in_the_format_of_mteb_1_is_converted(
    build_task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    loaded, rankings = make_task_data(2)
    task = build_task("SciFact", loaded, "test")

    def load(**_: Any) -> None:
        if not task.dataset:
            texts = {row["id"]: row["text"] for row in loaded["queries"]}
            task.queries, task.corpus = (
                {"test": texts},
                {"test": {row["id"]: row for row in loaded["corpus"]}},
            )
            task.relevant_docs = {"test": dict(loaded["relevant_docs"])}

    monkeypatch.setattr(task, "load_data", load)
    scored = posir.score(
        rankings, data="SciFact", name="mine", output=tmp_path, ignore_identical_ids=True
    )
    assert scored.runs[0].counts.queries == QUERIES - 1


def test_main_scores_that_only_mteb_computes_raise(build_task: Any, tmp_path: Path):
    loaded, rankings = make_task_data(3)
    build_task("Core17InstructionRetrieval", loaded, "test")
    with pytest.raises(
        PosirError,
        match="Core17InstructionRetrieval: only mteb computes its main score, p-MRR",
    ):
        posir.score(rankings, data="Core17InstructionRetrieval", output=tmp_path)
    images = loaded["corpus"].remove_columns("text")
    build_task("CUB200I2IRetrieval", {**loaded, "corpus": images}, "test")
    with pytest.raises(PosirError, match="CUB200I2IRetrieval: its documents are not texts"):
        posir.score(rankings, data="CUB200I2IRetrieval", output=tmp_path)
