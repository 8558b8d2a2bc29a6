"""Custom data: from a file or a new language to a report, with the real commands."""

import json
from pathlib import Path

from posir_tasks.data.formats.question_rows import read_squad_json
from tests.end_to_end.test_run import BM25, result
from tests.support.commands import run
from tests.support.datasets import POSIR_FOLDER, build_squad, imported


def done(*command: str, **environment: str) -> str:
    ran = run(*command, **environment)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    return ran.stdout


#: A text about a house and one about a horse, a question about each, and its answer, by language.
INVENTED = {
    "pes-Arab": (
        (
            "در خانه کنار رود ماهیگیر پیری زندگی می‌کند.",
            "چه کسی در خانه زندگی می‌کند؟",
            "ماهیگیر پیری",
        ),
        ("دختر جوان آهنگر هر روز سوار اسب می‌شود.", "چه کسی سوار اسب می‌شود؟", "دختر جوان آهنگر"),
    ),
    "tha-Thai": (
        ("ชาวประมงชราอาศัยอยู่ในบ้านริมแม่น้ำ", "ใครอาศัยอยู่ในบ้าน", "ชาวประมงชรา"),
        ("ลูกสาวของช่างตีเหล็กขี่ม้าทุกวัน", "ใครขี่ม้า", "ลูกสาวของช่างตีเหล็ก"),
    ),
    "ell-Grek": (
        (
            "Στο σπίτι δίπλα στο ποτάμι ζει ένας γέρος ψαράς.",
            "Ποιος ζει στα σπίτια;",
            "ένας γέρος ψαράς",
        ),
        (
            "Η κόρη του σιδερά καβαλάει το άλογο κάθε μέρα.",
            "Ποιος καβαλάει άλογα;",
            "Η κόρη του σιδερά",
        ),
    ),
    "fin-Latn": (
        ("Talossa asuu vanha kalastaja Turusta.", "Kuka asuu taloissa?", "vanha kalastaja"),
        (
            "Hevosella ratsastaa nuori sepän tytär.",
            "Kuka ratsastaa hevosilla?",
            "nuori sepän tytär",
        ),
    ),
}
ENGLISH = (
    (
        "An old fisherman lives in the house by the river.",
        "Who lives in the house?",
        "An old fisherman",
    ),
    (
        "The smith's daughter rides the horse every day.",
        "Who rides the horse?",
        "The smith's daughter",
    ),
)


def test_a_language_nobody_listed_needs_no_code(tmp_path: Path):
    """Four languages: imported, checked, described, listed, run alone and against English."""
    data, output = tmp_path / "data", tmp_path / "out"
    for language, texts in {**INVENTED, "eng-Latn": ENGLISH}.items():
        # Questions have the same ids in every language.
        numbered = {
            f"q{number}": (question, str(number), answer)
            for number, (_, question, answer) in enumerate(texts)
        }
        file = tmp_path / f"{language}.json"
        file.write_text(
            json.dumps(
                build_squad(
                    {str(number): text for number, (text, *_) in enumerate(texts)}, numbered
                )
            )
        )
        imported(read_squad_json(file), data / POSIR_FOLDER, language=language, domain="own")
    assert "5 languages, 5 domains and 4 against the English corpus checked: no problem" in done(
        "posir", "validate", str(data)
    )
    names = ["Persian", "Thai", "Greek", "Finnish"]
    tasks = [*(f"PosIR-{name}" for name in names), *(f"PosIR-{name}-English" for name in names)]
    listed = {
        line.split()[0]
        for line in done("posir", "tasks", POSIR_DATA=str(data)).splitlines()
        if "PosIR-" in line
    }
    assert listed >= {*tasks}
    assert "PosIR-Persian-English" in done("posir", "doctor", POSIR_DATA=str(data))
    available = done("mteb", "available-tasks", "-l", "pes", POSIR_DATA=str(data))
    assert available.count("- PosIR-Persian") == 3
    (row, *_) = json.loads(
        done("posir", "stats", "PosIR-Thai", "--format", "json", POSIR_DATA=str(data))
    )["rows"]
    assert row["queries"] == 2
    done(
        "mteb",
        "run",
        "-t",
        *tasks,
        "-m",
        BM25,
        "--output-folder",
        str(output),
        POSIR_DATA=str(data),
    )
    for name, language in zip(names, INVENTED, strict=True):
        alone = result(output, f"PosIR-{name}")["own"]
        assert alone["languages"] == [language]
        assert alone["ndcg_at_10"] == 1.0, name
        assert result(output, f"PosIR-{name}-English")["own"]["languages"] == [language, "eng-Latn"]
    assert (
        result(output, "PosIR-Thai")["own"]["position_run"]["bm25_tokens"] == "character trigrams"
    )
    assert "PosIR-Thai" in done("posir", "report", str(output))


def test_a_language_is_found_by_name_and_missing_data_named_once(tmp_path: Path):
    (tmp_path / POSIR_FOLDER).mkdir()
    refused = run("mteb", "run", "-t", "PosIR-Persian", "-m", BM25, POSIR_DATA=str(tmp_path))
    assert refused.returncode == 1
    assert "no Persian data; expected pes-Arab/<domain>/queries.parquet" in refused.stderr
    unknown = run("mteb", "run", "-t", "PosIR-Persien", "-m", BM25, POSIR_DATA=str(tmp_path))
    assert unknown.returncode == 1
    assert "no task or benchmark 'PosIR-Persien'" in unknown.stderr
