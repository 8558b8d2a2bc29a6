"""Tests for runs in result folders, and for pairing them."""

import pytest

from posir_compare.pairing import build_pairs
from posir_compare.runs import choose_baseline
from posir_tasks.base.errors import PosirError
from tests.support.comparison import pair_runs, read_model_runs, write_run


def test_all_models_are_paired_with_the_baseline(tmp_path):
    for model in ("org/a", "org/b", "org/c"):
        write_run(tmp_path, model, 1)
    write_run(tmp_path, "org/c", 1, task="PosIR-German")
    write_run(tmp_path, "org/a", 1, task="PosIR-German")
    runs = read_model_runs([tmp_path])
    assert runs[0].label == "org/a"
    pairs = [
        (pair.a.label, pair.b.label, pair.task)
        for pair in build_pairs(runs, choose_baseline(runs, "c"))
    ]
    assert pairs == [
        ("org/c", "org/a", "PosIR-English"),
        ("org/c", "org/b", "PosIR-English"),
        ("org/c", "org/a", "PosIR-German"),
    ]


def test_the_default_baseline_is_the_first_model(tmp_path):
    for model in ("org/a", "org/b"):
        write_run(tmp_path / model[-1], model, 1)
    runs = read_model_runs([tmp_path / "b", tmp_path / "a"])
    assert runs[0].label == "org/b"
    with pytest.raises(PosirError, match="no results of a model 'c'"):
        choose_baseline(runs, "c")


def test_ambiguous_baselines_are_chosen_by_label(tmp_path):
    write_run(tmp_path, "org/a", 1)
    write_run(tmp_path, "org/a", 2, experiment="batch")
    runs = read_model_runs([tmp_path])
    with pytest.raises(
        PosirError,
        match=r"--baseline a matches 'org/a .*rev1.' and 'org/a .*batch.'. Give one of these",
    ):
        choose_baseline(runs, "a")
    assert choose_baseline(runs, runs[1].label) is runs[1]


def test_runs_of_one_model_have_unique_labels(tmp_path):
    write_run(tmp_path / "old", "org/a", 1)
    write_run(tmp_path / "old", "org/a", 2, experiment="batch")
    write_run(tmp_path / "new", "org/a", 3)
    runs = read_model_runs([tmp_path / "old", tmp_path / "new", tmp_path / "old" / "results"])
    assert len(runs) == len({run.label for run in runs}) == 3
    assert all(run.label.startswith("org/a (") for run in runs)


def test_names_that_differ_only_in_case_are_one_model(tmp_path, caplog):
    write_run(tmp_path / "old", "org/Tiny", 1)
    write_run(tmp_path / "new", "ORG/tiny", 2)
    write_run(tmp_path / "new", "org/b", 3)
    runs = read_model_runs([tmp_path / "old", tmp_path / "new"])
    assert [run.label.partition(" (")[0] for run in runs] == ["ORG/tiny", "ORG/tiny", "org/b"]
    assert "org/Tiny: counts as ORG/tiny" in caplog.text
    assert choose_baseline(runs, "Org/B") is runs[2]
    with pytest.raises(PosirError, match="--baseline TINY matches"):
        choose_baseline(runs, "TINY")


def test_models_without_common_tasks_are_skipped_with_a_warning(tmp_path, caplog):
    for model in ("org/a", "org/b"):
        write_run(tmp_path, model, 1)
    write_run(tmp_path, "org/c", 1, task="PosIR-German")
    runs = read_model_runs([tmp_path])
    assert len(build_pairs(runs, runs[0])) == 1
    assert "org/c is not compared: org/a has no results of its tasks" in caplog.text


def test_runs_without_common_tasks_raise(tmp_path):
    write_run(tmp_path, "org/a", 1)
    write_run(tmp_path, "org/b", 1, task="PosIR-German")
    with pytest.raises(PosirError, match="org/a: PosIR-English; org/b: PosIR-German"):
        pair_runs(tmp_path)
