"""Every shell and Python block of the README and of docs/ runs unchanged, page by page.

What a test cannot download is replaced: models by tiny ones of the same names in a Hub cache, the
benchmarks' data by a small folder, and earlier results that a page refers to by results of these
models.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from posir_tasks.command.shell_lines import check_call
from tests.support.commands import BIN, CLEAN, run_process
from tests.support.datasets import (
    POSIR_FOLDER,
    TEXTS,
    posir_tables,
    write_beir_folder,
    write_domain,
)
from tests.support.fresh import fresh_environment
from tests.support.human_answers import Truth, mini_documents
from tests.support.language_model_server import serve_language_model
from tests.support.models import write_hub_cache

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Languages of the reader's data.
LANGUAGES = ("eng-Latn", "deu-Latn")
#: Documents without questions in the reader's data, for probes that join three of them.
LETTERS = {
    f"letter-{place}": f"The {place} burned down in a dry summer. It was built anew of gray "
    "brick. Nobody remembers who paid."
    for place in ("mill", "weir", "ferry", "lighthouse")
}


def blocks(page: Path, language: str) -> list[str]:
    return [match[2] for match in BLOCK.finditer(page.read_text()) if match[1] == language]


@pytest.fixture(scope="session")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    home = tmp_path_factory.mktemp("reader")
    write_hub_cache(home / "hugging-face")
    for language in LANGUAGES:
        write_domain(home / "data" / POSIR_FOLDER, posir_tables(TEXTS | LETTERS), language=language)
    write_squad(home / "data" / "squad_v2")
    with serve_language_model(Truth(mini_documents(least=0))) as server:
        yield {
            "HF_HOME": str(home / "hugging-face"),
            "POSIR_DATA": str(home / "data"),
            "RAY_worker_niceness": "0",
            "OPENAI_BASE_URL": server.url,
        }


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> Path:
    """Return a folder with earlier results, for pages that refer to them."""
    home = tmp_path_factory.mktemp("earlier")
    both = (
        "mteb run -t PosIR-Mini -m {} --output-folder results/guide --prediction-folder "
        "ranks/guide\n"
    )
    script = both.format("mteb/baseline-bm25s") + both.format("all-MiniLM-L6-v2")
    script += "cp -r results/guide results/old; cp -r results/guide results/new"
    run_script(script, home, fresh_environment(home / "venv") | variables)
    shutil.rmtree(home / "venv")
    return home


def write_squad(folder: Path) -> None:
    """Write one question per split, in the layout of the repository of SQuAD 2.0."""
    folder.mkdir()
    for split in ("train", "validation"):
        answers = [{"text": ["copper"], "answer_start": [21]}]
        columns = {
            "id": [split],
            "context": ["The bell was cast in copper."],
            "question": ["Of what?"],
            "answers": answers,
        }
        pl.DataFrame(columns).write_parquet(folder / f"{split}-00000-of-00001.parquet")


def write_judged(folder: Path) -> None:
    """Write a BEIR folder of 60 queries, each with one relevant document, and two runs, of which
    `b` finds it earlier.
    """
    names = [f"{number:02}" for number in range(60)]
    corpus, queries = ([{"_id": name, "text": f"text {name}"} for name in names] for _ in range(2))
    write_beir_folder(folder / "beir", corpus, queries, ((name, name, 1) for name in names))
    for run, earlier in (("a", 4), ("b", 1)):
        lines = [
            f"{query} Q0 {names[(at + rank - first) % 60]} {rank + 1} {10 - rank} {run}"
            for at, query in enumerate(names)
            for first in (earlier + at % 3,)
            for rank in range(10)
        ]
        (folder / f"{run}.trec").write_text("\n".join(lines))


def run_script(script: str, folder: Path, environment: dict[str, str]) -> None:
    options = {"cwd": folder, "env": environment, "stdin": subprocess.DEVNULL}
    done = run_process("bash", "-euo", "pipefail", "-c", script, **options)
    assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "Traceback" not in done.stderr


def posir_calls(page: Path) -> Iterator[list[str]]:
    """Yield the words of every call of `posir` in the shell blocks of a page."""
    for block in blocks(page, "bash"):
        words: list[str] = []
        lexer = shlex.shlex(
            block.replace("\\\n", " ").replace("\n", "\n;"), posix=True, punctuation_chars=True
        )
        lexer.whitespace_split = True
        for word in (*lexer, ";"):
            if set(word) <= {*"|&;<>()"}:
                if words[:1] == ["posir"]:
                    yield words[1:]
                words = []
            else:
                words.append(word)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_have_the_options_that_are_used(page: Path):
    # `edges` is what docs/python.md builds.
    problems = [
        (words, check_call(["posir", *words])) for words in posir_calls(page) if words[0] != "edges"
    ]
    assert [problem for problem in problems if problem[1]] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_order(
    page: Path, variables: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
):
    # A page may install packages, which must not be visible to the next page.
    environment = fresh_environment(tmp_path / "venv") | variables
    folder = tmp_path / "reader"
    folder.mkdir()
    if "results/guide" in page.read_text():
        shutil.copytree(request.getfixturevalue("earlier"), folder, dirs_exist_ok=True)
    if "--output data/" not in page.read_text():
        shutil.copytree(variables["POSIR_DATA"], folder / "data")
    if "--data beir" in page.read_text():
        write_judged(folder)
    for block in blocks(page, "bash"):
        if not block.startswith("make "):
            run_script(block, folder, environment)
    code = "\n".join(blocks(page, "python"))
    if code:
        (folder / "page.py").write_text(code)
        run_script("python page.py", folder, environment)


#: What the pages below print, on the packaged model and data.
PRINTED = """
mteb run -t PosIR-Mini -m mteb/baseline-bm25s
mteb run -t PosIR-Mini -m all-MiniLM-L6-v2
posir report results
posir report results/results/sentence-transformers__all-MiniLM-L6-v2
posir compare results
posir window all-MiniLM-L6-v2
posir inspect all-MiniLM-L6-v2 PosIR-Mini --budget 120k
"""
SHOWN = re.compile(r"^```(?:text|\{ \.text .*\})\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="session")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("printed")
    options = {"cwd": folder, "stdin": subprocess.DEVNULL}
    environment = CLEAN | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = run_process("bash", "-euc", PRINTED, env=environment, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return " ".join(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README", "index", "inspect", "report", "tutorial", "window"])
def test_what_a_page_shows_is_printed(name: str, printed: str):
    (page,) = (page for page in PAGES if page.stem == name)
    lines = [line for block in SHOWN.findall(page.read_text()) for line in block.splitlines()]
    shown = [" ".join(line.split()) for line in lines if not line.startswith("$")]
    assert [line for line in shown if line not in printed] == []


@pytest.mark.slow
def test_make_demo_runs_and_reports(tmp_path: Path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(BIN)
    (tmp_path / ".venv" / "ready").touch()
    run_script("make demo", tmp_path, CLEAN)
    assert list(tmp_path.rglob("PosIR-Mini.json"))


def test_every_shell_block_is_marked_as_bash():
    fences = {
        name
        for page in PAGES
        for name in re.findall(r"^```(\w*)\n(?!\n)", page.read_text(), re.MULTILINE)
    }
    assert not fences & {"sh", "shell", "console", "zsh"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("docker") is None, reason="there is no Docker")
def test_the_image_runs_the_demo_without_a_network():
    if run_process("docker", "info").returncode:
        pytest.skip("Docker is not running")
    run_script("docker build -q -t posir-demo .", ROOT, dict(os.environ))
    done = run_process("docker", "run", "--rm", "--network", "none", "posir-demo")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "PosIR-Mini" in done.stdout
