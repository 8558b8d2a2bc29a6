"""Custom data: from a file or a new language to a report, with the real commands."""

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest

from posir_tasks.sources.formats.files import read_squad_json
from tests.end_to_end.test_run import BM25, result
from tests.support.commands import run
from tests.support.datasets import POSIR_FOLDER, imported

XQUAD = {"zh": "cmn-Hans", "es": "spa-Latn", "de": "deu-Latn", "ru": "rus-Cyrl", "ar": "ara-Arab"}


def done(*command: str, **environment: str) -> str:
    ran = run(*command, **environment)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    return ran.stdout


@pytest.mark.slow
def test_six_languages_in_one_folder(squad_data: Path, tmp_path: Path):
    files = {"jpn-Jpan": sorted(squad_data.glob("jaquad/*/*.json"))} | {
        XQUAD[name]: [squad_data / f"xquad.{name}.json"] for name in XQUAD
    }
    for language, paths in files.items():
        imported(
            chain.from_iterable(map(read_squad_json, paths)), tmp_path / POSIR_FOLDER, language=language, domain="wikipedia"
        )
    assert "6 languages, 6 domains checked: no problem" in done("posir", "validate", str(tmp_path))
    tasks = [f"PosIR-{name}" for name in ("Arabic", "Chinese", "German", "Japanese", "Russian", "Spanish")]
    done("mteb", "run", "-t", *tasks, "-m", BM25, "--output-folder", str(tmp_path / "out"), POSIR_DATA=str(tmp_path))
    blocks = done("posir", "report", str(tmp_path / "out")).split("\n\n")
    (overview,) = [block.splitlines() for block in blocks if block.startswith(f"{BM25} · 6 tasks")]
    task_column, queries_column = 0, 2
    rows = [line.split() for line in overview[2:]]
    assert {row[task_column]: row[queries_column] for row in rows} == {
        task: "35,687" if task == "PosIR-Japanese" else "1,190" for task in tasks
    }


#: A text about a house and one about a horse, a question about each, and its answer, by language.
INVENTED = {
    "pes-Arab": (
        ("در خانه کنار رود ماهیگیر پیری زندگی می‌کند.", "چه کسی در خانه زندگی می‌کند؟", "ماهیگیر پیری"),
        ("دختر جوان آهنگر هر روز سوار اسب می‌شود.", "چه کسی سوار اسب می‌شود؟", "دختر جوان آهنگر"),
    ),
    "tha-Thai": (
        ("ชาวประมงชราอาศัยอยู่ในบ้านริมแม่น้ำ", "ใครอาศัยอยู่ในบ้าน", "ชาวประมงชรา"),
        ("ลูกสาวของช่างตีเหล็กขี่ม้าทุกวัน", "ใครขี่ม้า", "ลูกสาวของช่างตีเหล็ก"),
    ),
    "ell-Grek": (
        ("Στο σπίτι δίπλα στο ποτάμι ζει ένας γέρος ψαράς.", "Ποιος ζει στα σπίτια;", "ένας γέρος ψαράς"),
        ("Η κόρη του σιδερά καβαλάει το άλογο κάθε μέρα.", "Ποιος καβαλάει άλογα;", "Η κόρη του σιδερά"),
    ),
    "fin-Latn": (
        ("Talossa asuu vanha kalastaja Turusta.", "Kuka asuu taloissa?", "vanha kalastaja"),
        ("Hevosella ratsastaa nuori sepän tytär.", "Kuka ratsastaa hevosilla?", "nuori sepän tytär"),
    ),
}
ENGLISH = (
    ("An old fisherman lives in the house by the river.", "Who lives in the house?", "An old fisherman"),
    ("The smith's daughter rides the horse every day.", "Who rides the horse?", "The smith's daughter"),
)


def write_translation(file: Path, texts: Sequence[tuple[str, str, str]]) -> Path:
    """Write texts whose questions have the same ids in every language."""
    paragraphs = []
    for number, (text, question, answer) in enumerate(texts):
        answers = [{"text": answer, "answer_start": text.index(answer)}]
        paragraphs.append({"context": text, "qas": [{"id": f"q{number}", "question": question, "answers": answers}]})
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}, ensure_ascii=False), encoding="utf-8")
    return file


def test_a_language_nobody_listed_needs_no_code(tmp_path: Path):
    """Four languages: imported, checked, described, listed, run alone and against English."""
    data, output = tmp_path / "data", tmp_path / "out"
    for language, texts in {**INVENTED, "eng-Latn": ENGLISH}.items():
        file = write_translation(tmp_path / f"{language}.json", texts)
        imported(read_squad_json(file), data / POSIR_FOLDER, language=language, domain="own")
    assert "5 languages, 5 domains and 4 against the English corpus checked: no problem" in done("posir", "validate", str(data))
    names = ["Persian", "Thai", "Greek", "Finnish"]
    tasks = [*(f"PosIR-{name}" for name in names), *(f"PosIR-{name}-English" for name in names)]
    listed = {line.split()[0] for line in done("posir", "tasks", POSIR_DATA=str(data)).splitlines() if "PosIR-" in line}
    assert listed >= {*tasks}
    assert "PosIR-Persian-English" in done("posir", "doctor", POSIR_DATA=str(data))
    available = done("mteb", "available-tasks", "-l", "pes", POSIR_DATA=str(data))
    assert available.count("- PosIR-Persian") == 3
    (row, *_) = json.loads(done("posir", "stats", "PosIR-Thai", "--format", "json", POSIR_DATA=str(data)))["rows"]
    assert row["queries"] == 2
    done("mteb", "run", "-t", *tasks, "-m", BM25, "--output-folder", str(output), POSIR_DATA=str(data))
    for name, language in zip(names, INVENTED, strict=True):
        alone = result(output, f"PosIR-{name}")["own"]
        assert alone["languages"] == [language]
        assert alone["ndcg_at_10"] == 1.0, name
        assert result(output, f"PosIR-{name}-English")["own"]["languages"] == [language, "eng-Latn"]
    assert result(output, "PosIR-Thai")["own"]["position_run"]["bm25_tokens"] == "character trigrams"
    assert "PosIR-Thai" in done("posir", "report", str(output))


def test_a_language_is_found_by_its_name_alone_and_missing_data_is_one_message(tmp_path: Path):
    (tmp_path / POSIR_FOLDER).mkdir()
    refused = run("mteb", "run", "-t", "PosIR-Persian", "-m", BM25, POSIR_DATA=str(tmp_path))
    assert refused.returncode == 1
    assert "no Persian data; expected pes-Arab/<domain>/queries.parquet" in refused.stderr
    unknown = run("mteb", "run", "-t", "PosIR-Persien", "-m", BM25, POSIR_DATA=str(tmp_path))
    assert unknown.returncode == 1
    assert "'PosIR-Persien' not found" in unknown.stderr
