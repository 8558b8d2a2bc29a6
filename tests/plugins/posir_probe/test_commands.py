"""Commands with a tiny model in a local folder."""

import csv
import io
import json
import re

import pytest

from posir_tasks.base.errors import PosirError
from tests.support.cli import call_posir, invoke
from tests.support.datasets import posir_tables, write_domain
from tests.support.models import write_tiny_model
from tests.support.probed_encoders import invent_texts


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


PROBES = ("--probe", "segment_similarity", "--probe", "gradient_saliency")


def test_a_model_is_measured_and_shown_in_every_format(model, results):
    arguments = ("probe", model, "--documents", 10, "--output", results, *PROBES)
    text = invoke(*arguments)
    assert text.startswith("Probes of tiny on 10 documents of PosIR-Mini")
    assert (
        f"posir run -t PosIR-Mini -m {model} --output {results}\nposir report {results}"
        in re.sub(r"\n +", "\n", text)
    )
    assert "First minus last third of a text" in text
    assert "--probe" not in text
    assert "start_minus_end" not in text
    assert "The influence of each token on" in text
    assert "Range: the highest minus" not in text
    assert "Range: the highest minus" in invoke(*arguments, "--explain")
    rows = list(csv.DictReader(io.StringIO(invoke(*arguments, "--format", "csv"))))
    assert {row["probe"] for row in rows} == {
        "segment_similarity_3",
        "segment_similarity_10",
        "gradient_saliency",
    }
    assert len([row for row in rows if row["kind"] == "position"]) == 113
    assert all(row["documents"] == "10" for row in rows if row["probe"] == "segment_similarity_3")
    assert len(json.loads(invoke(*arguments, "--format", "json"))["results"]) == 3


@pytest.mark.slow
def test_curves_are_written_as_a_page_and_pictures(model, results, tmp_path):
    page, folder = tmp_path / "page.html", tmp_path / "pictures"
    invoke(
        "probe",
        model,
        "--documents",
        10,
        "--output",
        results,
        *PROBES[:2],
        "--html",
        page,
        "--figures",
        folder,
    )
    assert "stella_en_400M_v5 on SQuAD v2" in page.read_text()
    assert sorted(file.name for file in folder.iterdir()) == [
        "PosIR-Mini.segment_similarity_10.svg",
        "PosIR-Mini.segment_similarity_3.svg",
    ]


def test_domains_are_compared(model, tmp_path):
    for domain in ("sports", "law"):
        write_domain(tmp_path / "data", posir_tables(), domain=domain)
    arguments = (
        "study",
        "domain-similarity",
        model,
        "--data",
        tmp_path / "data",
        "--output",
        tmp_path,
    )
    (row,) = csv.DictReader(
        io.StringIO(invoke(*arguments, "--format", "csv", "--figures", tmp_path))
    )
    assert (row["first"], row["second"]) == ("eng-Latn/sports", "eng-Latn/law")
    assert float(row["similarity"]) == pytest.approx(1)
    assert [file.name for file in tmp_path.glob("*.svg")] == [
        "data.local_tiny.inter_domain_similarity.svg"
    ]
    assert [file.name for file in tmp_path.glob("results/*/*/domains/*")] == ["data.json"]


@pytest.mark.slow
def test_plain_texts_are_measured_and_bad_files_are_reported(model, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, text in enumerate(invent_texts(6, 8)):
        (folder / f"{number}.txt").write_text(text)
    (folder / "scan.doc").write_bytes(b"%PDF\x00")
    arguments = ["probe", model, "--data", folder, "--output", tmp_path, "--format", "json"]
    result = call_posir([str(argument) for argument in arguments])
    assert "Skipped: 1 binary (scan.doc)." in result.stderr
    assert {item["probe"] for item in json.loads(result.stdout)["results"]} == {
        "segment_similarity_3",
        "segment_similarity_10",
        "needle_insertion",
        "text_removal",
        "sentence_regression",
        "sentence_regression_fit",
        "sentence_regression_scatter",
        "permutation",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("study", "correlate", "."), "no result with a position profile"),
        (("study", "correlate", "nowhere"), "nowhere: no such folder"),
        (("study", "subset-validity", "nowhere"), "no such folder"),
        (("probe", "mteb/baseline-bm25s"), "not a dense encoder"),
        (("probe", "tiny", "nothing"), "no such file, folder or task"),
        (("probe", "tiny", "--data", "nothing"), "no such file, folder or task"),
        (("probe", "--data=nothing", "tiny"), "nothing: no such file, folder or task"),
        (("probe", "tiny", "--probe", "nothing"), "unknown probe 'nothing'"),
    ],
)
def test_mistakes_are_explained(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PosirError) as error:
        invoke(*arguments)
    assert message in str(error.value)
