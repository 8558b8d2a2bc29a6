"""Folders and endpoints through the real commands: results, caches, reports, and what `posir
submit` says.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.commands import OUTPUT, run
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain
from tests.support.embedding_server import Failure, serve_embeddings
from tests.support.models import TINY_KINDS, write_tiny_model

KEY = "sk-secret-of-the-test"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    write_domain(tmp_path / "data" / POSIR_FOLDER, posir_tables())
    return {"POSIR_DATA": str(tmp_path / "data"), "POSIR_CACHE": str(tmp_path / "cache")}


def evaluate(model: object, output: Path, environment: dict[str, str], *command: str) -> str:
    words = command or ("mteb", "run")
    done = run(
        *words,
        "-m",
        str(model),
        "-t",
        "PosIR-English",
        OUTPUT[words[0]],
        str(output),
        **environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def results(output: Path) -> dict[str, dict]:
    return {
        "/".join(file.parts[-3:-1]): json.loads(file.read_text())["scores"]["test"][0]
        for file in output.rglob("PosIR-English.json")
    }


# Each kind is evaluated in tests/posir_tasks/models too; here by the command, which takes most of a
# minute.
@pytest.mark.parametrize(
    "kind",
    [
        "dense",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in TINY_KINDS if kind != "dense"),
    ],
)
def test_every_kind_of_model_in_a_folder_is_evaluated(
    tmp_path: Path, environment: dict[str, str], kind: str
):
    write_tiny_model(tmp_path / "my-model", kind)
    evaluate(tmp_path / "my-model", tmp_path / "out", environment)
    ((name, scores),) = results(tmp_path / "out").items()
    assert name.startswith("local__my-model/")
    assert scores["position_profile"]["queries"] > 0
    assert ("previous_results_model_meta" in scores) == (kind == "cross-encoder")


def test_a_retrained_model_reuses_neither_results_nor_embeddings(
    tmp_path: Path, environment: dict[str, str]
):
    environment["POSIR_EMBEDDINGS"] = str(tmp_path / "embeddings")
    folder, output = tmp_path / "my-model", tmp_path / "out"
    write_tiny_model(folder)
    evaluate(folder, output, environment)
    (first,) = results(output)
    evaluate(folder, output, environment)
    assert list(results(output)) == [first]
    write_tiny_model(folder, seed=1)
    evaluate(folder, output, environment)
    assert len(results(output)) == 2
    keys = [json.loads(file.read_text()) for file in (tmp_path / "embeddings").rglob("about.json")]
    assert {key["revision"] for key in keys} == {name.partition("/")[2] for name in results(output)}
    planned = run(
        "posir",
        "run",
        "--plan",
        "-m",
        str(folder),
        "-t",
        "PosIR-English",
        "--format",
        "json",
        **environment,
    )
    assert planned.returncode == 0, planned.stderr
    assert "local/my-model" in planned.stdout


@pytest.mark.parametrize(
    "command",
    [("mteb", "run"), pytest.param(("posir", "run", "--verbose"), marks=pytest.mark.slow)],
)
def test_an_endpoint_is_evaluated_and_its_key_is_written_nowhere(
    tmp_path: Path, environment: dict[str, str], command: tuple[str, ...]
):
    output = tmp_path / "out"
    environment |= {
        "POSIR_EMBEDDINGS": str(tmp_path / "embeddings"),
        "OPENAI_API_KEY": KEY,
        "TMPDIR": str(tmp_path / "tmp"),
    }
    (tmp_path / "tmp").mkdir()
    with serve_embeddings(key=KEY) as server:
        reference = f"{server.reference}#1"
        printed = evaluate(reference, output, environment)
        (name,) = results(output)
        assert name == f"endpoint__tiny_({server.url[7:-3].replace(':', '-')})/1"
        sent = len(server.batches)
        shutil.rmtree(output)
        printed += evaluate(reference, output, environment, *command)
        assert len(server.batches) == sent + 1
        planned = run(
            "posir",
            "run",
            "--plan",
            "-m",
            reference,
            "-t",
            "PosIR-English",
            "--explain",
            **environment,
        )
        assert planned.returncode == 0, planned.stderr
        printed += planned.stdout
        reported = run("posir", "report", str(output), "--format", "json", **environment)
        printed += reported.stdout
        assert "endpoint/tiny" in reported.stdout
        server.key = "another"
        failed = run(
            *command,
            "-m",
            reference,
            "-t",
            "PosIR-English",
            OUTPUT[command[0]],
            f"{tmp_path}/new",
            **environment,
        )
        assert failed.returncode == 1
        assert "rejects the key in OPENAI_API_KEY" in " ".join(failed.stderr.split())
        assert "Traceback" not in failed.stderr
        printed += failed.stdout + failed.stderr
    assert "***" in printed
    assert KEY not in printed
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(written) > 5
    assert [file for file in written if KEY.encode() in file.read_bytes()] == []


@pytest.mark.slow
def test_a_run_survives_an_unreliable_server(tmp_path: Path, environment: dict[str, str]):
    with serve_embeddings() as server:
        evaluate(server.reference, tmp_path / "smooth", environment)
        server.failures.extend(
            [
                Failure(429, {"Retry-After": "0.1"}),
                Failure(None),
                Failure(503, {"Retry-After": "0.1"}),
            ]
        )
        server.damage = lambda rows: rows[::-1]
        evaluate(server.reference, tmp_path / "rough", environment)
        smooth, rough = (list(results(tmp_path / name).values()) for name in ("smooth", "rough"))
        assert [scores["position_profile"] for scores in smooth] == [
            scores["position_profile"] for scores in rough
        ]
        server.damage = lambda rows: rows[1:]
        output = ("--output-folder", f"{tmp_path}/none")
        failed = run(
            "mteb", "run", "-m", server.reference, "-t", "PosIR-English", *output, **environment
        )
    assert failed.returncode == 1
    assert "has 1 vector, with" in " ".join(failed.stderr.split())
    assert results(tmp_path / "none") == {}


def test_submit_refuses_a_model_in_a_folder_in_one_sentence(
    tmp_path: Path, environment: dict[str, str]
):
    write_tiny_model(tmp_path / "my-model")
    evaluate(tmp_path / "my-model", tmp_path / "out", environment)
    refused = run(
        "posir",
        "submit",
        str(tmp_path / "out"),
        "--repo",
        "org/results",
        "--dry-run",
        **environment,
    )
    assert refused.returncode == 1
    assert "a model in a local folder" in refused.stdout + refused.stderr
