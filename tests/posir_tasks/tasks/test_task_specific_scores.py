"""Scores from plugins and subclasses, which `task_specific_scores` returns."""

import mteb
import pytest
from mteb.abstasks.retrieval import AbsTaskRetrieval

from posir_tasks import PositionTask
from posir_tasks.base.errors import PosirError
from posir_tasks.tasks.posir import PosIRMini

BM25 = "mteb/baseline-bm25s"


class WithOwnScore(PosIRMini):
    def task_specific_scores(self, scores, qrels, results, hf_split, hf_subset):
        plugin_scores = super().task_specific_scores(
            scores, qrels, results, hf_split=hf_split, hf_subset=hf_subset
        )
        first = [
            max(results[query], key=results[query].get) in relevant
            for query, relevant in qrels.items()
        ]
        mean = sum(score["ndcg_cut_10"] for score in scores.values()) / len(scores)
        return {
            **plugin_scores,
            "own_ndcg": mean,
            "own_accuracy": sum(first) / len(first),
            "where": f"{hf_subset}, {hf_split}",
        }


class WithoutScores(PosIRMini):
    task_specific_scores = AbsTaskRetrieval.task_specific_scores


class WithCopiedScores(PosIRMini):
    def task_specific_scores(self, scores, qrels, results, hf_split, hf_subset):
        return super().task_specific_scores(dict(scores), qrels, results, hf_split, hf_subset)


def evaluate(task: PositionTask, **options):
    result = mteb.evaluate(
        mteb.get_model(BM25), task, cache=None, show_progress_bar=False, **options
    )
    return result.task_results[0].scores["test"][0]


@pytest.fixture(scope="module")
def scores():
    return evaluate(PosIRMini())


def test_a_subclass_adds_to_posirs_scores(scores):
    extended = evaluate(WithOwnScore())
    added = {name: extended[name] for name in extended.keys() - scores.keys()}
    assert added == {
        "own_ndcg": pytest.approx(scores["ndcg_at_10"], abs=1e-6),
        "own_accuracy": pytest.approx(scores["accuracy"], abs=1e-2),
        "where": "default, test",
    }
    names = extended["position_run"].pop("plugin_score_names")
    assert names == sorted({*scores["position_run"]["plugin_score_names"], *added})
    rest = {name: value for name, value in scores.items() if name != "position_run"}
    assert {name: extended[name] for name in rest} == rest


def test_without_plugin_scores_mtebs_scores_and_values_remain(scores):
    plain = evaluate(WithoutScores())
    assert "psi_as_published" in scores
    assert {*scores} - {*plain} == {*scores["position_run"]["plugin_score_names"]}
    assert plain["position_run"]["plugin_score_names"] == []
    assert plain["position_profile"] == scores["position_profile"]


def test_copied_scores_are_rejected():
    with pytest.raises(PosirError, match="pass them to super"):
        evaluate(WithCopiedScores(), raise_error=True)
