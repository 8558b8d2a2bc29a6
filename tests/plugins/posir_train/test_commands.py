"""`posir train` and `posir compose`, with a tiny model in a local folder."""

import json
from pathlib import Path

import pytest
from transformers.integrations import integration_utils

from posir_tasks.base.errors import PosirError
from tests.plugins.posir_train.texts import build_examples, write_squad
from tests.support.cli import call_posir, invoke
from tests.support.datasets import posir_tables, write_domain
from tests.support.models import write_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def squad(tmp_path_factory):
    return write_squad(
        tmp_path_factory.mktemp("data") / "facts.json", build_examples(articles=10, questions=6)
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory, squad):
    folder = tmp_path_factory.mktemp("composed")
    assert compose(squad, folder, "--tokens", 40).startswith(f"{folder}/eng-Latn/facts_1: ")
    return folder


@pytest.mark.slow
def test_train_and_report(model, data, squad, tmp_path):
    output, file = tmp_path / "tuned", tmp_path / "quick.yaml"
    file.write_text("batch_size: 8\nmax_steps: 4\nheld_out: 0.4\n")
    options = (
        "--data",
        data,
        "--output",
        output,
        "--config",
        file,
        "--guard",
        "PosIR-Mini",
        "--guard",
        squad,
    )
    text = invoke("train", model, *options)
    note = "Forgetting check facts: 60 questions about 10 articles. 6 of these were trained on."
    command = f"POSIR_DATA={output}/training/held-out mteb run -t PosIR-English -m {model}"
    for phrase in (
        "nDCG@10, begin",
        "cosine of unrelated texts",
        "forgetting check PosIR-Mini, nDCG@10",
        note,
        command,
    ):
        assert phrase in text.replace("\n", " ")
    report = json.loads((output / "training" / "report.json").read_text())
    assert report["changes"][0]["score"] == "nDCG@10"
    card = (output / "README.md").read_text()
    for phrase in (
        "## Position of the evidence",
        "MultipleNegativesRankingLoss",
        "Evaluated on",
        "](training/curve.png)",
        "**Base model:** tiny",
        "first 64 tokens",
        "Forgetting check facts: ",
    ):
        assert phrase in card
    assert "Unknown](" not in card
    assert (output / "training" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert ">before<" in (output / "training" / "report.html").read_text()
    text_files = [
        file for file in output.rglob("*") if file.suffix in (".md", ".html", ".json", ".yaml")
    ]
    assert {file.name for file in text_files} >= {
        "README.md",
        "report.html",
        "report.md",
        "report.json",
    }
    # Only settings.yaml contains local paths, to repeat the run on this machine.
    for file in text_files:
        if file.name != "settings.yaml":
            assert not any(
                f"{folder}/" in file.read_text(encoding="utf-8")
                for folder in (tmp_path.parent, Path.home())
            ), file
    assert "tuned" in invoke(
        "probe",
        output,
        "--documents",
        2,
        "--probe",
        "segment_similarity_3",
        "--output",
        tmp_path / "r",
    )
    with pytest.raises(PosirError, match=r"not empty.* --resume"):
        invoke("train", model, *options)
    with pytest.raises(PosirError, match="other values of positions"):
        invoke("train", model, "--positions", "begin", *options, "--resume")
    assert "nDCG@10" in invoke("train", model, *options, "--resume")
    again = tmp_path / "again"
    invoke(
        "train",
        "--config",
        output / "training" / "settings.yaml",
        "--output",
        again,
        "--set",
        "guard=[]",
    )
    for name in ("model.safetensors", "training/before.json"):
        assert (again / name).read_bytes() == (output / name).read_bytes()


@pytest.mark.parametrize(
    ("has_started", "advice"),
    [(True, "with --resume to continue."), (False, "again: nothing was saved yet.")],
)
def test_ctrl_c_explains_how_to_resume(has_started, advice, squad, tmp_path, monkeypatch):
    def stop(*_, **__):
        if has_started:
            (tmp_path / "out" / "training").mkdir(parents=True)
            (tmp_path / "out" / "training" / "run.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr("posir_train.training.train_model", stop)
    result = call_posir(
        ["train", "nothing", "--data", str(squad), "--output", str(tmp_path / "out")]
    )
    assert result.exit_code == 130
    assert f"Interrupted: run the same command {advice}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--positions", "front"),
            "positions: 'front' is not valid. Use begin, middle, end, uniform",
        ),
        (("--pooling", "sum"), "pooling: Input should be 'mean', 'cls', 'lasttoken' or 'max'"),
        (
            ("--set", "loss=Nothing"),
            "settings: field 'loss': Input should be 'MultipleNegativesRankingLoss'",
        ),
        (("--set", "window=4"), "field 'window': .*greater than or equal to 8"),
        (("--set", "trackers=[paper]"), "paper is not supported, only .*tensorboard"),
        (("--set", "trackers=[wandb]"), r"trackers: wandb: .*pip install wandb"),
        (("--guard", "Nothing"), "--guard Nothing: not a file or folder"),
    ],
)
def test_usage_errors(arguments, message, squad, tmp_path, monkeypatch):
    monkeypatch.setattr(integration_utils, "is_wandb_available", lambda: False)
    with pytest.raises(PosirError, match=message):
        invoke("train", "nothing", "--data", squad, "--output", tmp_path / "out", *arguments)


def test_log_lists_stages_unless_quiet(model, squad, tmp_path):
    arguments = ["train", model, "--data", str(squad), "--output", str(tmp_path / "out")]
    stages = ["Loading libraries", "Reading the data", "Loading the model", "Preparing the data"]
    assert call_posir(arguments).stderr.splitlines()[:4] == stages
    assert call_posir([*arguments, "--quiet"]).stderr == ""


def compose(squad, folder, *options):
    return invoke(
        "compose",
        squad,
        "--language",
        "eng-Latn",
        "--domain",
        "facts",
        "--output",
        folder,
        *options,
    )


def test_failed_checks_leave_an_empty_folder(model, squad, tmp_path):
    compose(squad, tmp_path / "begin", "--tokens", 40, "--positions", "begin")
    tables = posir_tables()
    tables["queries"] = tables["queries"].drop("pos_char_span")
    write_domain(tmp_path / "data", tables)
    for data, message in [
        *[(tmp_path / "begin", r"middle or end .*middle 0, end 0")] * 2,
        (squad, r"\d+ of 60 questions .*window of 64 tokens"),
        (tmp_path / "data", "pos_char_span"),
    ]:
        with pytest.raises(PosirError, match=message):
            invoke("train", model, "--data", data, "--output", tmp_path / "out")
    with pytest.raises(PosirError, match="composed"):
        compose(squad, tmp_path, "--tokens", 5000)
