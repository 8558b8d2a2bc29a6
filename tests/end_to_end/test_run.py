"""From a folder of data to a result and a report, through the real commands."""

import csv
import io
import json
import re
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import polars as pl
import pytest

from posir_significance.findings import State
from tests.support.commands import OUTPUT, run
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain
from tests.support.hub import serve

BM25 = "mteb/baseline-bm25s"


def result(output: Path, task: str) -> dict[str, dict]:
    (file,) = output.rglob(f"{task}.json")
    return {
        scores["hf_subset"]: scores for scores in json.loads(file.read_text())["scores"]["test"]
    }


DOCUMENTS = {
    "d1": "The harbour bell was cast in copper. Later a heron nested on the crane.",
    "d2": "The orchard gave pears and quinces. Its ladder had nineteen rungs.",
    "d3": "A tram climbed the hill each noon. The conductor kept bees at home.",
}
QUESTIONS = {
    "q1": ("what metal was the harbour bell made of", "d1", "cast in copper"),
    "q2": ("which bird nested on the crane", "d1", "a heron nested"),
    "q3": ("how many rungs had the orchard ladder", "d2", "nineteen rungs"),
    "q4": ("who kept bees", "d3", "The conductor kept bees"),
}
#: Another domain of the same name.
OTHER = posir_tables(
    {"d1": "A domain of the same name and other content.", "d2": "Sheep.", "d3": "Geese."},
    {"q1": ("what has other content", "d1", "A domain")},
)


def mteb_run(output: Path, *tasks: str, **variables: str) -> CompletedProcess[str]:
    return run("mteb", "run", "-t", *tasks, "-m", BM25, "--output-folder", str(output), **variables)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One domain of PosIR and one custom domain, in English and German."""
    for language in ("eng-Latn", "deu-Latn"):
        for domain in ("sports", "custom"):
            write_domain(
                tmp_path / POSIR_FOLDER,
                posir_tables(DOCUMENTS, QUESTIONS),
                language=language,
                domain=domain,
            )
    return tmp_path


def test_mini_runs_and_reports(tmp_path: Path):
    ran = run(
        "mteb", "run", "-t", "PosIR-Mini", "-m", "baseline-bm25s", "--output-folder", str(tmp_path)
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "results" / "mteb__baseline-bm25s").is_dir()
    scores = result(tmp_path, "PosIR-Mini")["default"]
    assert scores["main_score"] == scores["ndcg_at_10"]
    assert scores["position_profile"]["queries"] == 720
    assert {
        "psi_as_published",
        "psi_as_published_q1",
        "ndcg_at_10_q4",
        "recall_at_100",
        "nauc_mrr_at_10_std",
    } <= scores.keys()
    report = run("posir", "report", str(tmp_path), "--format", "json")
    (pooled,) = json.loads(report.stdout)
    assert pooled["position_scores"]["all"]["scores"]["psi_as_published"] == pytest.approx(
        scores["psi_as_published"], abs=1e-6
    )
    table = run("posir", "report", str(tmp_path))
    assert "PosIR-Mini" in table.stdout
    assert pooled["position_scores"]["all"]["state"] == State.NO_BIAS


def test_results_of_partial_data_are_marked_and_extended_later(data: Path, tmp_path: Path):
    output = tmp_path / "out"
    custom = data / POSIR_FOLDER / "eng-Latn" / "custom"
    custom.rename(data / "aside")
    first = mteb_run(output, "PosIR-English", POSIR_DATA=str(data))
    assert first.returncode == 0, first.stderr
    assert list(result(output, "PosIR-English")) == ["sports"]
    (data / "aside").rename(custom)
    second = mteb_run(output, "PosIR-English", POSIR_DATA=str(data))
    assert second.returncode == 0, second.stderr
    scores = result(output, "PosIR-English")
    assert set(scores) == {"sports", "custom"}
    assert "only running missing" in " ".join(second.stderr.split() + second.stdout.split())
    assert len(scores["sports"]["position_run"]["missing_subsets"]) == 30
    shown = run("posir", "report", str(output))
    assert "partial: 2 of 32 subsets" in shown.stdout


@pytest.mark.parametrize("command", ["mteb", pytest.param("posir", marks=pytest.mark.slow)])
def test_changed_domains_are_evaluated_again_and_no_others(
    command: str, data: Path, tmp_path: Path
):
    output, folder = tmp_path / "out", data / POSIR_FOLDER / "eng-Latn"
    tasks = ("PosIR-English", "PosIR-German-English")

    def revisions() -> dict[str, dict[str, str]]:
        ran = run(
            command,
            "run",
            "-t",
            *tasks,
            "-m",
            BM25,
            OUTPUT[command],
            str(output),
            POSIR_DATA=str(data),
        )
        assert ran.returncode == 0, ran.stderr
        return {
            task: {
                name: scores["position_run"]["data_revision"]
                for name, scores in result(output, task).items()
            }
            for task in tasks
        }

    before = revisions()
    files = {file: file.read_bytes() for file in output.rglob("PosIR-*.json")}
    assert revisions() == before
    assert {file: file.read_bytes() for file in files} == files
    corpus = folder / "sports" / "corpus.parquet"
    pl.read_parquet(corpus).with_columns(pl.col("text") + "!").write_parquet(corpus)
    queries = folder / "sports" / "queries.parquet"
    pl.read_parquet(queries).with_columns(pl.col("pos_char_length") + 1).write_parquet(queries)
    after = revisions()
    for task in tasks:
        assert after[task]["custom"] == before[task]["custom"]
        assert after[task]["sports"] != before[task]["sports"]
    (folder / "custom").rename(data / "removed")
    assert revisions() == after
    write_domain(folder.parent, OTHER, domain="custom")
    assert revisions()["PosIR-English"]["custom"] != after["PosIR-English"]["custom"]
    assert result(output, "PosIR-English")["custom"]["position_profile"]["queries"] == 1
    (file,) = output.rglob("PosIR-English.json")
    assert re.fullmatch("local-[0-9a-f]{16}", json.loads(file.read_text())["dataset_revision"])


@pytest.mark.parametrize("command", ["mteb", pytest.param("posir", marks=pytest.mark.slow)])
def test_a_benchmark_runs_what_is_there_and_names_the_rest_once(
    command: str, data: Path, tmp_path: Path
):
    ran = run(
        command,
        "run",
        "-b",
        "PosIR",
        "-m",
        BM25,
        OUTPUT[command],
        str(tmp_path / "out"),
        POSIR_DATA=str(data),
    )
    assert ran.returncode == 0, ran.stderr
    assert {file.stem for file in tmp_path.rglob("PosIR-*.json")} == {
        "PosIR-English",
        "PosIR-German",
    }
    printed = ran.stderr + ran.stdout
    assert printed.count("2 of 10 tasks are evaluated; no data for PosIR-Chinese") == 1
    assert printed.count("no data for") == 1
    (data / "empty").mkdir()
    refused = run(command, "run", "-b", "PosIR", "-m", BM25, POSIR_DATA=str(data / "empty"))
    assert refused.returncode == 1
    assert "benchmark PosIR: none of its tasks (PosIR-" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_symlinked_data_and_results_are_read(data: Path, tmp_path: Path):
    folder = data / POSIR_FOLDER
    (folder / "eng-Latn" / "sports").rename(data / "elsewhere")
    (folder / "eng-Latn" / "sports").symlink_to(data / "elsewhere")
    assert (
        "2 languages, 4 domains and 2 against the English corpus checked"
        in run("posir", "validate", str(data)).stdout
    )
    assert (
        len(
            json.loads(run("posir", "stats", str(folder / "eng-Latn"), "--format", "json").stdout)[
                "rows"
            ]
        )
        >= 2
    )
    run(
        "mteb",
        "run",
        "-t",
        "PosIR-English",
        "-m",
        BM25,
        "--output-folder",
        str(data / "out"),
        POSIR_DATA=str(data),
    )
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "results").symlink_to(data / "out")
    (pooled,) = json.loads(
        run("posir", "report", str(tmp_path / "linked"), "--format", "json").stdout
    )
    assert pooled["position_scores"]["all"]["scores"]["queries"] == 8


def test_cross_lingual_and_language_filter(data: Path, tmp_path: Path):
    tasks = ("PosIR-German-English", "PosIR-German", "PosIR-English")
    ran = run(
        "mteb",
        "run",
        "-t",
        *tasks,
        "-l",
        "deu",
        "-m",
        BM25,
        "--output-folder",
        str(tmp_path),
        POSIR_DATA=str(data),
    )
    assert ran.returncode == 0, ran.stderr
    assert result(tmp_path, "PosIR-German-English")["sports"]["languages"] == [
        "deu-Latn",
        "eng-Latn",
    ]
    assert not list(tmp_path.rglob("PosIR-English.json"))


def test_bad_data_is_one_message_and_keeps_what_was_finished(data: Path, tmp_path: Path):
    queries = data / POSIR_FOLDER / "eng-Latn" / "custom" / "queries.parquet"
    frame = pl.read_parquet(queries)
    frame.drop("pos_char_span").write_parquet(queries)
    ran = mteb_run(tmp_path, "PosIR-English", POSIR_DATA=str(data))
    assert ran.returncode == 1
    assert f"{queries}: field 'pos_char_span': missing column" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(result(tmp_path, "PosIR-English")) == ["sports"]


def test_a_user_mistake_of_the_posir_command_is_one_message(tmp_path: Path):
    for command in (
        ("report", str(tmp_path / "none")),
        ("report", str(tmp_path)),
        ("rescore", str(tmp_path)),
    ):
        failed = run("posir", *command)
        assert failed.returncode == 1
        assert failed.stderr.startswith("error: ")
        assert "Traceback" not in failed.stderr


def test_reports_parse_and_rescore_restores_plugin_scores(data: Path, tmp_path: Path):
    mteb_run(tmp_path, "PosIR-English", POSIR_DATA=str(data))
    (file,) = tmp_path.rglob("PosIR-English.json")
    rows = list(
        csv.DictReader(io.StringIO(run("posir", "report", str(tmp_path), "--format", "csv").stdout))
    )
    assert [row["length"] for row in rows] == ["all", "Q1", "Q2", "Q3", "Q4"]
    assert rows[0]["queries"] == "8"
    printed = run(
        "posir", "report", str(tmp_path), "--bins", "--format", "markdown"
    ).stdout.splitlines()
    table = [line for line in printed if line.startswith("|")]
    assert len(table) == 2 + 20
    assert {line.count("|") for line in table} == {6}
    original = file.read_text()
    stripped = json.loads(original)
    for scores in stripped["scores"]["test"]:
        for name in scores["position_run"]["plugin_score_names"]:
            del scores[name]
    file.write_text(json.dumps(stripped))
    rescored = run("posir", "rescore", str(tmp_path))
    assert rescored.returncode == 0, rescored.stderr
    assert json.loads(file.read_text()) == json.loads(original)


def test_import_run_and_report_agree_with_an_independent_squad(squad_data: Path, tmp_path: Path):
    """SQuAD-PosQ's protocol on XQuAD English: all contexts as corpus, the authors' BM25
    settings.
    """
    import bm25s
    import Stemmer

    paragraphs = [
        part
        for article in json.loads((squad_data / "xquad.en.json").read_text())["data"]
        for part in article["paragraphs"]
    ]
    # In the format of squad_v2.
    rows = []
    for context, asked in (
        (part["context"], asked) for part in paragraphs for asked in part["qas"]
    ):
        answers = {
            field: [answer[field] for answer in asked["answers"]]
            for field in ("text", "answer_start")
        }
        rows.append(
            {
                "id": asked["id"],
                "title": "",
                "context": context,
                "question": asked["question"],
                "answers": answers,
            }
        )
    folder = tmp_path / "data" / "squad_v2" / "squad_v2"
    folder.mkdir(parents=True)
    half = len(rows) // 2
    pl.DataFrame(rows[:half]).write_parquet(folder / "train-00000-of-00001.parquet")
    pl.DataFrame(rows[half:]).write_parquet(folder / "validation-00000-of-00001.parquet")
    ran = mteb_run(tmp_path, "SQuAD-PosQ", POSIR_DATA=str(tmp_path / "data"))
    assert ran.returncode == 0, ran.stderr
    scores = result(tmp_path, "SQuAD-PosQ")["default"]

    contexts = list(dict.fromkeys(row["context"] for row in rows))
    positive = {row["question"]: contexts.index(row["context"]) for row in rows}
    stemmer = Stemmer.Stemmer("english")
    retriever = bm25s.BM25()
    retriever.index(
        bm25s.tokenize(contexts, stopwords="en", stemmer=stemmer, show_progress=False),
        show_progress=False,
    )
    queries = bm25s.tokenize(
        [row["question"] for row in rows], stopwords="en", stemmer=stemmer, show_progress=False
    )
    outcome, values = retriever.retrieve(queries, k=len(contexts), show_progress=False)
    ndcg = np.zeros(len(rows))
    for query, (row, documents, of_document) in enumerate(zip(rows, outcome, values, strict=True)):
        # Ties are in descending order of document id, as in pytrec_eval.
        ranked = sorted(
            zip(of_document, (f"c{document}" for document in documents), strict=True), reverse=True
        )
        rank = [name for _, name in ranked].index(f"c{positive[row['question']]}")
        ndcg[query] = 1 / np.log2(rank + 2) if rank < 10 else 0
    starts = np.array([row["answers"]["answer_start"][0] for row in rows])
    buckets = [(0, 100), (100, 200), (200, 300), (300, 400), (400, 500), (500, 3120)]
    means = [ndcg[(starts >= low) & (starts <= high)].mean() for low, high in buckets]
    assert scores["ndcg_at_10"] == pytest.approx(ndcg.mean(), abs=1e-6)
    assert [bucket["ndcg_at_10"] for bucket in scores["position_bins"]] == pytest.approx(
        means, abs=1e-6
    )
    assert scores["psi_as_published"] == pytest.approx(1 - min(means) / max(means), abs=1e-6)


def test_doctor_finds_no_problem():
    checked = run("posir", "doctor")
    assert checked.returncode == 0, checked.stdout
    assert "✓ autoload: " in checked.stdout
    assert re.search(r"(\d+) of \1 are registered in mteb", checked.stdout)


@pytest.mark.slow
def test_the_hubs_listing_overrules_the_table_of_domains(data: Path, tmp_path: Path):
    with serve("infgrad/PosIR-Benchmark-v1", data / POSIR_FOLDER, "a" * 40) as hub:
        variables = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hub"),
            "HF_HUB_OFFLINE": "0",
        }
        ran = mteb_run(tmp_path / "out", "PosIR-English", **variables)
    assert ran.returncode == 0, ran.stderr
    scores = result(tmp_path / "out", "PosIR-English")
    assert set(scores) == {"sports", "custom"}
    assert scores["custom"]["languages"] == ["eng-Latn"]
    assert scores["custom"]["position_run"]["data_revision"] == "a" * 40
    output = " ".join((ran.stdout + ran.stderr).split())
    assert "has domains unknown to posir: custom" in output
    assert "marked as partial" in output
