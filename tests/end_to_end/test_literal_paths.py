"""Every command that reads paths takes the folder `set[a]` for itself, and not for its sibling
`seta`, which its name matches.

`[a]` is also markup of the library that prints in the terminal.
"""

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest

from posir_build.sample import open_source
from posir_build.settings import BuildSettings
from tests.end_to_end.test_formats import (
    ASKED,
    TEXTS,
    beir,
    layout,
    plain_texts,
    question_lines,
    squad_file,
)
from tests.support.cli import call_posir
from tests.support.commands import OUTPUT, run
from tests.support.datasets import POSIR_FOLDER
from tests.support.models import write_tiny_model

#: What the sibling has: its only document is none of these, and none of its files is complete.
OTHER_TEXTS = {"other": "Another text, which is not to be read. It has two sentences."}
OTHER_ASKED = {"other": ("Which text is that?", "other", "Another")}
TARGET = ("--language", "eng-Latn", "--domain", "sports")


def write_sources(
    folder: Path, texts: dict[str, str], asked: dict[str, tuple[str, str, str]]
) -> None:
    plain_texts(folder / "texts", texts)
    layout(folder / POSIR_FOLDER, texts, asked)
    for write in (beir, question_lines, squad_file):
        write(folder, texts, asked)


def list_files(folder: Path) -> dict[str, int]:
    return {
        file.relative_to(folder).as_posix(): file.stat().st_mtime_ns for file in folder.rglob("*")
    }


@pytest.fixture
def folder(tmp_path):
    """A folder whose name is a pattern, beside one that the pattern matches; the latter is not
    changed.
    """
    for name, texts, asked in (("set[a]", TEXTS, ASKED), ("seta", OTHER_TEXTS, OTHER_ASKED)):
        (tmp_path / name).mkdir()
        write_sources(tmp_path / name, texts, asked)
    before = list_files(tmp_path / "seta")
    yield tmp_path / "set[a]"
    assert list_files(tmp_path / "seta") == before


def posir(*arguments: object) -> str:
    done = call_posir(list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_data_is_imported_and_read(folder, monkeypatch):
    for number, source in enumerate([".", "facts.jsonl", "facts.json"]):
        output = folder / f"imported{number}"
        printed = posir("import", folder / source, *TARGET, "--output", output)
        assert printed.startswith(f"{output}/eng-Latn/sports: 6 documents, 36 questions")
    data = folder / POSIR_FOLDER
    assert "1 language, 1 domain checked: no problem" in posir("validate", data)
    assert f"folder {data}," in posir("stats", data, "--format", "json")
    composed = folder / "composed"
    printed = posir("compose", data, *TARGET, "--output", composed, "--tokens", 40)
    assert f"{composed}/eng-Latn/sports_1: 30 questions" in printed
    monkeypatch.setenv("POSIR_DATA", str(folder))
    (planned,) = json.loads(
        posir(
            "run", "--plan", "-m", "mteb/baseline-bm25s", "-t", "PosIR-English", "--format", "json"
        )
    )
    assert (sum(planned["total"]["documents"]["texts"]), planned["total"]["queries"]) == (6, 36)


def test_documents_of_a_build_are_read(folder):
    pl.DataFrame({"id": list(TEXTS), "text": list(TEXTS.values())}).write_parquet(
        folder / "documents.parquet"
    )
    for name in ("documents.parquet", "corpus.jsonl", "texts"):
        settings = BuildSettings.model_construct(
            documents=str(folder / name), text_field="text", id_field=None
        )
        assert {text.text for text in open_source(settings).read_texts()} == set(TEXTS.values())


@pytest.mark.slow
def test_models_are_run_and_results_are_read(folder):
    environment = {
        "POSIR_DATA": str(folder),
        "POSIR_CACHE": str(folder / "cache"),
        "POSIR_EMBEDDINGS": str(folder / "vectors"),
    }
    results = folder / "results"
    options = ("-t", "PosIR-English")
    dense, reranker = (
        str(write_tiny_model(folder / kind, kind)) for kind in ("dense", "cross-encoder")
    )
    # The later runs read the embeddings (queries, documents, rotated documents) and the first stage
    # from the caches.
    for command in (*[("mteb", "run", "--overwrite-strategy", "always")] * 2, ("posir", "run")):
        for model in (dense, reranker):
            done = run(
                *command, *options, OUTPUT[command[0]], str(results), "-m", model, **environment
            )
            assert done.returncode == 0, done.stderr
    assert len(list((folder / "vectors").rglob("*.arrow"))) == 3
    assert len(list((folder / "cache").rglob("*.parquet"))) == 1
    reported = csv.DictReader(io.StringIO(posir("report", results, "--csv")))
    assert {row["queries"] for row in reported if row["length"] == "all"} == {"36"}
    posir("report", results, "--html", folder / "page.html", "--figures", folder / "charts")
    assert "local/dense" in posir("compare", results, results)
    assert "rescored 2 profiles in 2 files" in " ".join(posir("rescore", results).split())
    assert str(results) in run("posir", "submit", str(results), "--dry-run").stdout
    site = posir("leaderboard", "build", "--results", results, "--output", folder / "site")
    assert "2 results" in site


@pytest.mark.slow
def test_inspect_probe_mitigate_and_train_take_literal_paths(folder):
    model = write_tiny_model(folder / "dense")
    assert "6 texts" in posir("inspect", model, folder / "texts", "--html", folder / "inspect.html")
    for source in (folder, folder / "facts.json", folder / POSIR_FOLDER):
        printed = posir(
            "probe", model, "--data", source, "--probe", "segment_similarity_3", "--format", "csv"
        )
        assert {row["documents"] for row in csv.DictReader(io.StringIO(printed))} == {"6"}
    data = folder / POSIR_FOLDER
    posir("mitigate", model, data, "--method", "chunks(8)", "--output", folder / "results")
    settings = ("max_steps=2", "batch_size=2", "held_out=0.4", "drop_beyond=true")
    options = (
        "--positions",
        "begin",
        *(part for setting in settings for part in ("--set", setting)),
    )
    trained = posir(
        "train",
        model,
        "--data",
        data,
        "--guard",
        folder / "facts.json",
        "--output",
        folder / "tuned",
        *options,
    )
    assert "forgetting check facts, nDCG@10" in trained
