"""Test results that mteb wrote without posir, and judged queries of several subsets.

All models are compared on the same subsets.
"""

import json
from pathlib import Path

import mteb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import posir
from posir_report.judged import PLAIN_NOTE, describe_subsets, summarize_judged
from posir_tasks.base.errors import PosirError
from posir_tasks.results import JudgedResult
from posir_tasks.values.judgments import METRICS, UNIT, JudgedScores
from tests.support.damage import call_posir
from tests.support.guessing import write_guesses

#: Scores of a split or subset by the printed number.
Scores = dict[str, dict[str, float]]


def write_plain(
    folder: Path, model: str, task: str, scores: Scores, *, revision: str = "1"
) -> Path:
    """Write a result like mteb, given nDCG@10 by split and subset. All metrics have this value."""
    parent = folder / "results" / f"org__{model}" / "r"
    parent.mkdir(parents=True, exist_ok=True)
    (parent / "model_meta.json").write_text(json.dumps({"name": f"org/{model}", "revision": "r"}))
    splits = {}
    for split, subsets in scores.items():
        splits[split] = [
            {
                "hf_subset": subset,
                "languages": ["eng-Latn"],
                "main_score": score,
                **dict.fromkeys(METRICS, score),
            }
            for subset, score in subsets.items()
        ]
    data = {
        "task_name": task,
        "dataset_revision": revision,
        "mteb_version": "2.26.24",
        "scores": splits,
    }
    file = parent / f"{task}.json"
    file.write_text(json.dumps(data | {"evaluation_time": 1.0, "kg_co2_emissions": None}))
    return file


def judge(model: str, subset: str, values: list[float], *, data: str = "d") -> JudgedResult:
    """Build a result on judged queries with the same values of all metrics; each is a cluster."""
    sums = np.array([[round(value * UNIT) for value in values]] * len(METRICS))
    scores = JudgedScores("topic", (f"{data}-{subset}",), np.ones(len(values), np.int64), sums)
    run = {"data_revision": data, "data_digest": {"corpus": data, "queries": data}}
    return JudgedResult(model, "r", "task", subset, scores, run, Path("task.json"))


def tabulate(folder: Path) -> pd.DataFrame:
    return posir.report(folder).to_polars().to_pandas()


@pytest.mark.parametrize(
    ("task", "scores"),
    [
        ("SciFact", {"test": {"default": 0.645}, "train": {"default": 0.66}}),
        (
            "LEMBNeedleRetrieval",
            {f"test_{256 * 2**power}": {"default": 0.944 - power / 10} for power in range(8)},
        ),
        ("XQuADRetrieval", {"validation": {"de": 0.9, "th": 0.5}}),
    ],
)
def test_a_result_of_mteb_has_a_row_for_each_split_and_subset(tmp_path, task, scores):
    write_plain(tmp_path, "a", task, scores)
    rows = tabulate(tmp_path)
    expected = {
        f"{split}, {subset}": score
        for split, subsets in scores.items()
        for subset, score in subsets.items()
    }
    assert dict(zip(rows["subset"], rows["ndcg_at_10"], strict=True)) == expected
    assert set(rows["task"]) == {task}
    shown = str(posir.report(tmp_path))
    assert all(f"({part})" in shown for part in expected)
    assert PLAIN_NOTE.split(":")[0] in " ".join(shown.split())


def test_shared_subsets_are_reported(tmp_path):
    write_plain(tmp_path, "a", "XQuADRetrieval", {"validation": {"de": 0.9, "th": 0.5}})
    write_plain(
        tmp_path,
        "b",
        "XQuADRetrieval",
        {"validation": dict.fromkeys(("de", "th", "ar", "ru"), 0.6)},
    )
    write_plain(tmp_path, "a", "SciFact", {"test": {"default": 0.6}})
    shown = " ".join(str(posir.report(tmp_path)).split())
    assert "XQuADRetrieval: models have results on different" in shown
    assert "All models have 2 of 4: validation, de; validation, th." in shown
    assert "SciFact: models have results" not in shown


def test_mteb_results_on_different_revisions_are_separate(tmp_path):
    write_plain(tmp_path, "a", "SciFact", {"test": {"default": 0.6}}, revision="1" * 40)
    write_plain(tmp_path, "b", "SciFact", {"test": {"default": 0.7}}, revision="2" * 40)
    assert set(tabulate(tmp_path)["data_revision"]) == {"1" * 40, "2" * 40}
    (table,) = (table for section in posir.report(tmp_path).sections() for table in section.tables)
    assert len({row[1] for row in table.rows}) == 2


def test_duplicate_split_and_subset_is_rejected(tmp_path):
    for folder in ("x", "y"):
        write_plain(tmp_path / folder, "a", "SciFact", {"test": {"default": 0.6}})
    with pytest.raises(PosirError, match="the subset 'test, default' has several results"):
        posir.report(tmp_path).to_polars()


def test_mteb_results_are_reported_as_not_comparable(tmp_path):
    for model in "ab":
        write_plain(
            tmp_path, model, "SciFact", {"test": {"default": 0.6}, "train": {"default": 0.7}}
        )
    done = call_posir("compare", tmp_path)
    assert done.status == 1
    assert "only plain results of mteb, on SciFact" in done.said
    assert "They store no queries" in done.said
    # Next to comparable results, the results without posir are named.
    for model in "cd":
        write_guesses(tmp_path, [mteb.get_task("PosIR-Mini")], name=f"org/{model}")
    done = call_posir("compare", tmp_path)
    assert done.status == 0
    assert "not compared: plain results of mteb, on SciFact" in done.said


def test_subsets_are_pooled_if_all_models_of_the_task_have_them():
    values = {"de": [1.0, 0.5, 0.0], "en": [0.25]}
    results = [judge(model, subset, listed) for model in "ab" for subset, listed in values.items()]
    pooled = summarize_judged(results)
    assert [(summary.model, summary.subset, summary.subsets) for summary in pooled] == [
        ("a", "", ("de", "en")),
        ("b", "", ("de", "en")),
    ]
    # The mean over all queries, computed by hand.
    assert pooled[0].estimates["ndcg_at_10"].value == pytest.approx(1.75 / 4)
    assert list(describe_subsets(pooled)) == []

    apart = summarize_judged([*results, judge("c", "de", values["de"])])
    assert [(summary.model, summary.subset) for summary in apart] == [
        ("a", "de"),
        ("a", "en"),
        ("b", "de"),
        ("b", "en"),
        ("c", "de"),
    ]
    means = {
        summary.subset: summary.estimates["ndcg_at_10"].value
        for summary in apart
        if summary.model == "a"
    }
    assert means == pytest.approx({"de": 0.5, "en": 0.25})
    (note,) = describe_subsets(apart)
    assert "All models have 1 of 2: de." in note
    (note,) = describe_subsets(summarize_judged([results[0], judge("c", "fr", [1.0])]))
    assert "No row is shared by all models." in note


def test_judged_queries_of_other_data_have_another_name():
    summaries = summarize_judged([judge("a", "de", [1.0]), judge("b", "de", [0.5], data="e")])
    assert [summary.full_task for summary in summaries] == ["task (data d)", "task (data e)"]
    assert [summary.full_task for summary in summarize_judged([judge("a", "de", [1.0])])] == [
        "task"
    ]


@settings(max_examples=50)
@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=4))
def test_every_result_is_in_one_row_with_the_same_subsets(owned):
    results = [
        judge(f"m{number}", subset, [0.5])
        for number, subsets in enumerate(owned)
        for subset in subsets
    ]
    summaries = summarize_judged(results)
    rows = [(summary.model, subset) for summary in summaries for subset in summary.subsets]
    assert sorted(rows) == sorted((result.model, result.subset) for result in results)
    by_name: dict[str, set[tuple[str, ...]]] = {}
    for summary in summaries:
        by_name.setdefault(summary.full_task, set()).add(summary.subsets)
    assert all(len(subsets) == 1 for subsets in by_name.values())
