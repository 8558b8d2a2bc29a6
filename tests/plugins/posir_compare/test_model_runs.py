"""Runs found in result folders, and their pairs."""

import pytest

from posir_compare.model_runs import build_pairs, read_model_runs
from posir_tasks.errors import PosirError
from tests.support.comparison import write_run


def test_several_models_and_tasks_make_all_pairs(tmp_path):
    for model in ("org/a", "org/b", "org/c"):
        write_run(tmp_path, model, 1)
    write_run(tmp_path, "org/c", 1, task="PosIR-German")
    write_run(tmp_path, "org/a", 1, task="PosIR-German")
    pairs = [(one.a.label, one.b.label, one.task) for one in build_pairs(read_model_runs([tmp_path]))]
    assert pairs == [
        ("org/a", "org/b", "PosIR-English"),
        ("org/a", "org/c", "PosIR-English"),
        ("org/a", "org/c", "PosIR-German"),
        ("org/b", "org/c", "PosIR-English"),
    ]


def test_runs_of_one_model_have_different_labels_and_a_folder_given_twice_is_read_once(tmp_path):
    write_run(tmp_path / "old", "org/a", 1)
    write_run(tmp_path / "old", "org/a", 2, experiment="batch")
    write_run(tmp_path / "new", "org/a", 3)
    found = read_model_runs([tmp_path / "old", tmp_path / "new", tmp_path / "old" / "results"])
    assert len(found) == len({one.label for one in found}) == 3
    assert all(one.label.startswith("org/a (") for one in found)


def test_no_task_in_common(tmp_path):
    write_run(tmp_path, "org/a", 1)
    write_run(tmp_path, "org/b", 1, task="PosIR-German")
    with pytest.raises(PosirError, match="org/a: PosIR-English; org/b: PosIR-German"):
        build_pairs(read_model_runs([tmp_path]))
