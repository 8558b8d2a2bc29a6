"""Train a tiny model: failures, resumed runs and settings."""

import errno
import itertools
import os
import resource
import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import PART_SUFFIX
from posir_tasks.text.tokenizer import EstimatedTokenizer
from posir_train import evaluation
from posir_train.composing import compose_examples, compose_window
from posir_train.examples import tokenize_examples
from posir_train.settings import TrainingSettings
from posir_train.training import PositionTrainer, find_last_checkpoint, train_model
from tests.plugins.posir_train.texts import build_examples
from tests.support.models import write_tiny_gpt2, write_tiny_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data():
    source = build_examples(articles=10, questions=6)
    corpora, _ = compose_examples(
        tokenize_examples(source, EstimatedTokenizer()), partial(compose_window, tokens=40), seed=1
    )
    return source.select(
        replace(item, document=replace(item.document, corpus=f"eng-Latn/c{number}"))
        for number, result in enumerate(corpora)
        for item in result
    )


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    model = str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))
    return TrainingSettings(
        model=model,
        data="made-up",
        max_steps=6,
        batch_size=8,
        learning_rate=1e-3,
        held_out=0.4,
        evaluations=3,
        select="last",
    )


def change_settings(settings, **fields):
    return TrainingSettings(**settings.model_dump() | fields)


def load_weights(folder):
    return load_file(folder / "model.safetensors")


def are_equal(first, second):
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


@pytest.fixture(scope="module")
def uninterrupted(settings, data, tmp_path_factory):
    """Weights of an uninterrupted run."""
    output = tmp_path_factory.mktemp("uninterrupted") / "model"
    train_model(settings, output, data)
    return load_weights(output)


def test_model_without_a_padding_token(settings, data, tmp_path):
    base = write_tiny_gpt2(tmp_path / "gpt2")
    result = train_model(
        change_settings(settings, model=str(base), max_steps=2, drop_beyond=True),
        tmp_path / "out",
        data,
    )
    assert result.steps == 2
    assert not are_equal(load_weights(base), load_weights(tmp_path / "out"))


def stop_at(monkeypatch, step, error):
    compute = PositionTrainer.compute_loss

    def fail(self, *arguments, **options):
        if self.state.global_step == step:
            raise error
        return compute(self, *arguments, **options)

    monkeypatch.setattr(PositionTrainer, "compute_loss", fail)


@pytest.mark.parametrize("select", ["last", "balanced"])
def test_resume_at_the_last_step_trains_nothing(settings, data, tmp_path, monkeypatch, select):
    """The run is interrupted after the last checkpoint, before the model is saved."""
    output = tmp_path / "model"
    settings = change_settings(settings, select=select, schedule="constant")
    expected = train_model(settings, tmp_path / "uninterrupted", data)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("posir_train.training.save_model", stop)
    with pytest.raises(KeyboardInterrupt):
        train_model(settings, output, data)
    monkeypatch.undo()
    monkeypatch.setattr(PositionTrainer, "compute_loss", stop)
    # A killed process leaves what it was writing.
    part = output / f".model.a9k2g38z{PART_SUFFIX}"
    part.mkdir()
    (part / "model.safetensors").write_bytes(b"half")
    (output / "training" / f".report.json.a9k2g38z{PART_SUFFIX}").write_text("{")
    result = train_model(settings, output, data, resume=True)
    assert not [*output.rglob(f"*{PART_SUFFIX}")]
    assert result.steps == expected.steps
    assert result.after.to_json() == expected.after.to_json()
    assert are_equal(load_weights(output), load_weights(tmp_path / "uninterrupted"))


def test_moved_run_keeps_its_best_checkpoint(settings, data, tmp_path, monkeypatch):
    evaluations = itertools.count(1)
    compute = evaluation.compute_scores
    monkeypatch.setattr(
        evaluation,
        "compute_scores",
        lambda *ranks: compute(*ranks) | {"ndcg_at_10": 1 / next(evaluations)},
    )
    output = tmp_path / "model"
    new_output = tmp_path / "moved"
    settings = change_settings(settings, select="ndcg")
    assert train_model(settings, output, data).steps == 2
    for file in (output / "training" / "checkpoints").rglob("*"):
        assert file.is_dir() or str(tmp_path).encode() not in file.read_bytes(), file
    best = load_weights(output)
    last = load_weights(output / "training" / "checkpoints" / "checkpoint-6")
    assert not are_equal(best, last)
    output.rename(new_output)
    assert train_model(settings, new_output, data, resume=True).steps == 2
    assert are_equal(load_weights(new_output), best)


def test_another_seed_gives_another_model(settings, data, uninterrupted, tmp_path):
    train_model(change_settings(settings, seed=7), tmp_path / "model", data)
    assert not are_equal(load_weights(tmp_path / "model"), uninterrupted)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "CachedMultipleNegativesRankingLoss", "hard_negatives": True},
        *({"objective": objective} for objective in ("pads", "pads-published")),
        *({"select": select} for select in ("balanced", "ndcg")),
    ],
)
def test_every_objective_and_rule_gives_a_model(settings, data, tmp_path, changes):
    result = train_model(change_settings(settings, **changes), tmp_path / "model", data)
    assert result.steps in (2, 4, 6)
    assert (tmp_path / "model" / "modules.json").exists()


@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken", "max"])
def test_pooling_is_saved(settings, data, tmp_path, pooling):
    from sentence_transformers import SentenceTransformer

    settings = change_settings(
        settings, pooling=pooling, query_prompt="query: ", window=48, max_steps=1
    )
    train_model(settings, tmp_path / "model", data)
    model = SentenceTransformer(str(tmp_path / "model"))
    assert model[1].pooling_mode == pooling
    assert model.prompts["query"] == "query: "
    assert model.max_seq_length == 48


def test_checkpoint_before_a_nan_loss_is_complete(settings, data, tmp_path, monkeypatch):
    output, compute = tmp_path / "model", MultipleNegativesRankingLoss.forward
    losses = []

    def compute_nan_loss(self, *arguments, **options):
        losses.append(compute(self, *arguments, **options))
        return losses[-1] * float("nan" if len(losses) > 4 else 1)

    monkeypatch.setattr(MultipleNegativesRankingLoss, "forward", compute_nan_loss)
    with pytest.raises(PosirError, match=r"nan in step 5\. .*learning_rate.*checkpoint-4"):
        train_model(settings, output, data)
    weights = load_weights(output / "training" / "checkpoints" / "checkpoint-4")
    assert all(torch.isfinite(values).all() for values in weights.values())


def check_resumed(settings, output, data, expected):
    assert not (output / "modules.json").exists()
    train_model(settings, output, data, resume=True)
    assert are_equal(load_weights(output), expected)


def test_full_gpu_raises(settings, data, uninterrupted, tmp_path, monkeypatch):
    stop_at(monkeypatch, 3, torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(PosirError, match=r"GPU .*memory.*--resume.*checkpoint-2"):
        train_model(settings, tmp_path / "model", data)
    monkeypatch.undo()
    check_resumed(settings, tmp_path / "model", data, uninterrupted)


def test_full_disk_raises(settings, data, uninterrupted, tmp_path, monkeypatch):
    output, save = tmp_path / "model", torch.save

    def fail(value, file, *arguments, **options):
        if "checkpoint-4" in str(file):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        return save(value, file, *arguments, **options)

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(PosirError, match=r"disk space.*checkpoint-2"):
        train_model(settings, output, data)
    monkeypatch.undo()
    assert not (output / "training" / "checkpoints" / "checkpoint-4").exists()
    check_resumed(settings, output, data, uninterrupted)


def test_file_size_limit_raises(settings, data, uninterrupted, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The limit is smaller than the weights, so safetensors fails as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limits[1]))
    try:
        with pytest.raises(PosirError, match=r"disk space.*no checkpoint"):
            train_model(settings, tmp_path / "model", data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    check_resumed(settings, tmp_path / "model", data, uninterrupted)


def test_incomplete_checkpoint_is_removed(tmp_path):
    for step, state in ((2, '{"global_step": 2}'), (4, '{"global_st')):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert find_last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]
    shutil.rmtree(tmp_path / "checkpoint-2")
    assert find_last_checkpoint(tmp_path) is None


def test_other_folders_are_not_removed(settings, data, tmp_path):
    (tmp_path / "checkpoint-notes").mkdir()
    (tmp_path / "checkpoint-notes" / "thesis.tex").write_text("years of work")
    (tmp_path / "checkpoint-8").symlink_to("checkpoint-notes")
    (tmp_path / "checkpoint-9").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    assert find_last_checkpoint(tmp_path) is None
    with pytest.raises(PosirError, match="no run to resume"):
        train_model(settings, tmp_path, data, resume=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_filter_by_margin_with_a_model(settings, data, tmp_path):
    for margin, positions, note in (
        (-2.0, "uniform", "left out: 0 questions"),
        (0.0, "1,1,1", "left out: "),
    ):
        margin_settings = change_settings(
            settings, positions=positions, rerankers=(settings.model,), margin=margin, max_steps=1
        )
        result = train_model(margin_settings, tmp_path / str(margin), data)
        assert result.data.notes[0].startswith(note)
        assert f"with a margin below {margin:g}" in result.data.notes[0]
