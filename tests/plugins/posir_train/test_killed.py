"""A training run that is killed repeatedly gives the same model as an uninterrupted run."""

import os
import random
import signal
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from posir_train.examples import read_examples
from posir_train.settings import TrainingSettings, open_dataset
from tests.plugins.posir_train.texts import build_examples, write_squad
from tests.support.models import write_tiny_model
from tests.support.processes import CONTEXT

KILLS = 20
#: Audit events of Python's file operations.
FILE_OPERATIONS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"})


def run(folder: Path, output: Path, kill_at: int | None, *, resume: bool) -> None:
    """Train a model and write the number of file operations in the output folder to a file. Kill
    this process at operation `kill_at`.
    """
    from posir_train.training import train_model

    operations = 0

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal operations
        if event in FILE_OPERATIONS and str(arguments[0]).startswith(str(output)):
            operations += 1
            if operations == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    options = {
        "max_steps": 8,
        "batch_size": 8,
        "learning_rate": 1e-3,
        "held_out": 0.3,
        "evaluations": 4,
        "select": "last",
    }
    settings = TrainingSettings(
        model=str(folder / "tiny"), data=str(folder / "facts.json"), **options
    )
    sys.addaudithook(audit)
    train_model(settings, output, read_examples(open_dataset(settings.data)), resume=resume)
    (folder / "operations").write_text(str(operations))


@pytest.mark.slow
def test_run_killed_twenty_times_gives_the_same_model(tmp_path):
    write_tiny_model(tmp_path / "tiny")
    write_squad(tmp_path / "facts.json", build_examples(articles=10, questions=6, sentences=6))
    run_process(tmp_path, tmp_path / "uninterrupted", None, resume=False)
    operations = int((tmp_path / "operations").read_text())
    rng, output, kills = random.Random(1), tmp_path / "killed", 0
    while kills < KILLS:
        kills += 1
        assert (
            run_process(tmp_path, output, rng.randint(3, operations // 4), resume=kills > 1)
            == -signal.SIGKILL
        )
        assert not (output / "modules.json").exists() or (output / "model.safetensors").exists()
    assert run_process(tmp_path, output, None, resume=True) == 0
    expected, result = (
        load_file(value / "model.safetensors") for value in (tmp_path / "uninterrupted", output)
    )
    assert all(torch.equal(expected[name], result[name]) for name in expected)


def run_process(*arguments, resume):
    process = CONTEXT.Process(target=run, args=arguments, kwargs={"resume": resume})
    process.start()
    process.join(300)
    return process.exitcode
