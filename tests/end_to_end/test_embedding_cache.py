"""`mteb run` with POSIR_EMBEDDINGS: a registered instruction model, three languages, two runs."""

import json
from pathlib import Path

import pytest

from posir_tasks.embeddings.cache import read_embeddings
from tests.support.commands import run
from tests.support.datasets import ASKED, POSIR_FOLDER, TEXTS, posir_tables, write_domain
from tests.support.models import write_hub_cache

MODEL = "Qwen/Qwen3-Embedding-0.6B"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    write_hub_cache(tmp_path / "hub")
    for language in ("eng-Latn", "deu-Latn", "fra-Latn"):
        asked = {name: (f"{language}: {question}", *rest) for name, (question, *rest) in ASKED.items()}
        write_domain(tmp_path / "data" / POSIR_FOLDER, posir_tables(TEXTS, asked), language=language)
    folders = {"HF_HOME": "hub", "POSIR_DATA": "data", "POSIR_EMBEDDINGS": "embeddings"}
    return {name: str(tmp_path / folder) for name, folder in folders.items()}


def count_cached(folder: Path) -> dict[str, int]:
    """Return the number of cached embeddings by prompt type."""
    counts: dict[str, int] = {}
    for about in folder.rglob("about.json"):
        prompt_type = json.loads(about.read_text())["prompt_type"]
        keys = sum(len(read_embeddings(file).keys) for file in about.parent.glob("*.arrow"))
        counts[prompt_type] = counts.get(prompt_type, 0) + keys
    return counts


@pytest.mark.slow
def test_tasks_and_runs_share_embeddings(environment: dict[str, str], tmp_path: Path):
    def mteb_run(folder: str, *tasks: str) -> None:
        ran = run("mteb", "run", "-t", *tasks, "-m", MODEL, "--output-folder", str(tmp_path / folder), **environment)
        assert ran.returncode == 0, ran.stderr

    mteb_run("first", "PosIR-English", "PosIR-German-English")
    assert count_cached(tmp_path / "embeddings") == {"document": 4, "query": 8}
    mteb_run("second", "PosIR-German-English", "PosIR-French-English")
    assert count_cached(tmp_path / "embeddings") == {"document": 4, "query": 12}
    first, second = (next((tmp_path / name).rglob("PosIR-German-English.json")) for name in ("first", "second"))
    assert json.loads(first.read_text())["scores"] == json.loads(second.read_text())["scores"]
