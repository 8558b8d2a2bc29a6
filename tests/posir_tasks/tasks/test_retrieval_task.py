"""Prediction files can be exchanged with mteb's tasks."""

import json

import mteb

from posir_tasks.tasks.posir import PosIRMini

RESULTS = {"q": {"a": 0.5, "b": 1.0}}


def test_predictions_have_mtebs_format(tmp_path):
    task, model = PosIRMini(), mteb.get_model("mteb/baseline-bm25s")
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
    for subset in ("another", "default"):
        task.save_predictions(RESULTS, model, tmp_path / "ours", "test", subset)
        task._save_task_predictions(
            RESULTS, model, tmp_path / "theirs", hf_split="test", hf_subset=subset
        )
    ours, theirs = (
        json.loads((tmp_path / folder / task.prediction_file_name).read_text())
        for folder in ("ours", "theirs")
    )
    assert ours == theirs
    task.convert_to_reranking(tmp_path / "ours", top_k=1)
    assert task.dataset["default"]["test"]["top_ranked"] == {"q": ["b"]}
    meta = model.mteb_model_meta
    assert (
        task.first_stage_model
        == {"model_name": meta.name, "revision": meta.revision}
        == task._previous_results_model_meta
    )
