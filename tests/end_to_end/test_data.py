"""Custom data: from a file or a new language to a report, with the real commands."""

import json
import shutil
from pathlib import Path

import pytest

from posir_build.readers.squad_json import read_squad_json
from tests.end_to_end.test_run import BM25, result
from tests.support.commands import python, run
from tests.support.datasets import POSIR_FOLDER, imported

ROOT = Path(__file__).parents[2]
#: Source roots of the repository.
SOURCES = ("", "autoload", "plugins", "leaderboard")
XQUAD = {"zh": "cmn-Hans", "es": "spa-Latn", "de": "deu-Latn", "ru": "rus-Cyrl", "ar": "ara-Arab"}


def done(*command: str, **environment: str) -> str:
    """Run a command that must succeed; return what it prints."""
    ran = run(*command, **environment)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    return ran.stdout


def import_squad(*files: Path, language: str, output: Path, domain: str = "wikipedia", **environment: str) -> str:
    options = ("--language", language, "--domain", domain, "--output", str(output / POSIR_FOLDER))
    return done("posir", "import-squad", *map(str, files), *options, **environment)


def write_squad(file: Path, paragraphs: dict[str, dict[str, str]]) -> Path:
    """Write contexts with their questions and answers as SQuAD-format JSON."""
    found = [
        {
            "context": context,
            "qas": [
                {"id": question, "question": question, "answers": [{"text": answer, "answer_start": context.index(answer)}]}
                for question, answer in asked.items()
            ],
        }
        for context, asked in paragraphs.items()
    ]
    file.write_text(json.dumps({"data": [{"paragraphs": found}]}, ensure_ascii=False), encoding="utf-8")
    return file


def test_jaquad_becomes_a_task_is_validated_described_run_and_reported(squad_data: Path, tmp_path: Path):
    file = squad_data / "jaquad" / "dev" / "jaquad_dev_0000.json"
    paragraphs = [paragraph for article in json.loads(file.read_text())["data"] for paragraph in article["paragraphs"]]
    questions = sum(len(paragraph["qas"]) for paragraph in paragraphs)
    printed = import_squad(file, language="jpn-Jpan", output=tmp_path)
    assert printed.endswith(f"{len({p['context'] for p in paragraphs}):,} documents, {questions:,} questions\n")
    assert "1 language, 1 domain checked: no problem" in done("posir", "validate", str(tmp_path))
    described = json.loads(done("posir", "stats", str(tmp_path / POSIR_FOLDER), "--format", "json"))
    assert described["rows"][0]["queries"] == questions
    output = tmp_path / "out"
    done("mteb", "run", "-t", "PosIR-Japanese", "-m", BM25, "--output-folder", str(output), POSIR_DATA=str(tmp_path))
    scores = result(output, "PosIR-Japanese")["wikipedia"]
    assert scores["position_profile"]["queries"] == questions
    assert scores["ndcg_at_10"] > 0.8
    assert "PosIR-Japanese (partial: 1 of 32 subsets)" in done("posir", "report", str(output))


@pytest.mark.slow
def test_six_languages_in_one_folder(squad_data: Path, tmp_path: Path):
    files = {"jpn-Jpan": sorted(squad_data.glob("jaquad/*/*.json"))} | {
        XQUAD[name]: [squad_data / f"xquad.{name}.json"] for name in XQUAD
    }
    for language, paths in files.items():
        imported(read_squad_json(paths), tmp_path / POSIR_FOLDER, language=language, domain="wikipedia")
    assert "6 languages, 6 domains checked: no problem" in done("posir", "validate", str(tmp_path))
    tasks = [f"PosIR-{name}" for name in ("Arabic", "Chinese", "German", "Japanese", "Russian", "Spanish")]
    done("mteb", "run", "-t", *tasks, "-m", BM25, "--output-folder", str(tmp_path / "out"), POSIR_DATA=str(tmp_path))
    overview = done("posir", "report", str(tmp_path / "out")).split("\n\n")[0].splitlines()
    assert overview[0].strip() == f"{BM25} · 6 tasks"
    assert [line.split()[:2] for line in overview[2:]] == [
        [task, "35,687" if task == "PosIR-Japanese" else "1,190"] for task in tasks
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the code, for a change of it."""
    for name in ("posir_tasks", "plugins", "leaderboard", "autoload"):
        shutil.copytree(ROOT / name, tmp_path / "tree" / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "tree"


def with_row(tree: Path, row: str) -> dict[str, str]:
    """Add a row to the table of languages; return the variables that have Python import the changed tree."""
    table = tree / "posir_tasks" / "languages.py"
    last = '    Language("Japanese", "jpn-Jpan"),\n'
    before = table.read_text()
    assert last in before
    table.write_text(before.replace(last, f"{last}    {row},\n"))
    return {"PYTHONPATH": ":".join(str(tree / name) for name in SOURCES), "PYTHONSAFEPATH": "1"}


def test_a_language_nobody_listed_is_one_row(tree: Path, tmp_path: Path):
    """Finnish: imported, run alone and against English, its inflected words found by their stems."""
    finnish = with_row(tree, 'Language("Finnish", "fin-Latn")')
    data = tmp_path / "data"
    talo, hevonen = "Talossa asuu vanha kalastaja Turusta.", "Hevosella ratsastaa nuori sepän tytär."
    asked = {talo: {"Kuka asuu taloissa?": "vanha kalastaja"}, hevonen: {"Kuka ratsastaa hevosilla?": "nuori sepän tytär"}}
    english = {"An old fisherman lives in the house.": {}, "The smith's daughter rides a horse.": {"Who rides?": "daughter"}}
    import_squad(write_squad(tmp_path / "fi.json", asked), language="fin-Latn", domain="own", output=data, **finnish)
    imported(read_squad_json([write_squad(tmp_path / "en.json", english)]), data / POSIR_FOLDER, domain="own")
    output = tmp_path / "out"
    tasks = ("PosIR-Finnish", "PosIR-Finnish-English")
    ran = run("mteb", "run", "-t", *tasks, "-m", BM25, "--output-folder", str(output), POSIR_DATA=str(data), **finnish)
    assert ran.returncode == 0, ran.stderr
    alone = result(output, "PosIR-Finnish")["own"]
    assert alone["languages"] == ["fin-Latn"]
    assert alone["ndcg_at_10"] == 1.0
    assert result(output, "PosIR-Finnish-English")["own"]["languages"] == ["fin-Latn", "eng-Latn"]


def test_an_invalid_row_is_reported_and_mteb_works_without_the_tasks(tree: Path, tmp_path: Path):
    wrong = with_row(tree, 'Language("Finnish", "fin-Latin")')
    message = "posir_tasks/languages.py: Language('Finnish', 'fin-Latin'): code 'fin-Latin' is not an ISO 639-3 code"
    code = (
        "import mteb; print([name in mteb.get_tasks.__globals__['_TASKS_REGISTRY'] for name in ('NFCorpus', 'PosIR-Finnish')])"
    )
    listed = python(code, **wrong)
    assert listed.stdout == "[True, False]\n"
    (line,) = (line for line in listed.stderr.splitlines() if "posir" in line)
    assert f"(PosirError: {message}" in line
    refused = run("posir", "validate", str(tmp_path), **wrong)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: {message}")
    assert "Traceback" not in refused.stderr
