"""Third-party packages beside each other: one that works and three that do not."""

import csv
import io
import json
import re
import shlex
import shutil
import tomllib
from functools import partial
from pathlib import Path

import pytest

from tests.support.board import contents
from tests.support.commands import BIN, CLEAN, python_with_mteb, run_process
from tests.support.datasets import posir_tables, write_domain
from tests.support.hub import serve

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "tests" / "packages"
LETTERS = PACKAGES / "posir-letters"
#: Files that the page writes.
WRITTEN = re.compile(r"^cat > posir-letters/(\S+) <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
#: What is reported about the three.
SAID = (
    "plugin broken (posir-broken 0.1.0: posir_broken): loading it raised ModuleNotFoundError: No "
    "module named 'a_module_that_is_not_installed'",
    "plugin misspelled (posir-misspelled 0.1.0: posir_misspelled): unknown hook 'posir_score' in "
    "plugin",
    "The hooks are: posir_answers, posir_commands, posir_languages, posir_model_resolvers, "
    "posir_probes, posir_scores, posir_task_classes",
    "plugin 'letters_again': task posir_letters_again.BellsHarbourLetters: the name "
    "'HarbourLetters' is taken by plugin 'letters'; choose another",
    "task posir_letters_again.BellsPosIR-Mini: the name 'PosIR-Mini' is taken by "
    "posir_tasks.tasks.posir; choose another",
    "task posir_letters_again.BellsNFCorpus: the name 'NFCorpus' is taken by mteb.tasks.retrieval.",
)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory):
    """Run a line in a shell whose Python has all four packages, as installers leave them; pip is
    called by docs/python.md.
    """
    folder, site = tmp_path_factory.mktemp("third-party"), tmp_path_factory.mktemp("site")
    for package in PACKAGES.iterdir():
        shutil.copytree(package, site, dirs_exist_ok=True)
        project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
        ((name, module),) = project["entry-points"]["posir"].items()
        info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        (info / "entry_points.txt").write_text(f"[posir]\n{name} = {module}\n")
    paths = {
        "PATH": f"{BIN}:{CLEAN['PATH']}",
        "PYTHONPATH": str(site),
        "POSIR_CACHE": str(folder / "cache"),
    }
    return partial(run_process, "bash", "-euo", "pipefail", "-c", cwd=folder, env=CLEAN | paths)


def test_the_package_is_the_one_that_the_page_builds():
    written = dict(WRITTEN.findall((ROOT / "docs" / "python.md").read_text()))
    assert written == {
        file.relative_to(LETTERS).as_posix(): file.read_text()
        for file in LETTERS.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.mark.slow
def test_doctor_lists_what_each_package_adds_and_its_faults(shell):
    checked = shell("posir doctor")
    assert checked.returncode == 1
    assert "Traceback" not in checked.stderr
    lines = checked.stdout.splitlines()
    assert "✓ plugin letters (posir-letters 0.1.0: posir_letters.plugin)" in lines
    assert "✓ task HarbourLetters (plugin letters: posir_letters.task.HarbourLetters)" in lines
    assert (
        "✓ task HarbourBells (plugin letters_again: "
        "posir_letters_again.posir_task_classes.<locals>.Bells)" in lines
    )
    wrong = [line for line in lines if line.startswith("✗")]
    assert len(wrong) == 5
    printed = " ".join(checked.stdout.split())
    assert [said for said in SAID if said not in printed] == []


#: Calls commands in one process, since importing mteb takes longer than what they do.
CALL = """
import gc
import sys
from importlib.metadata import entry_points
gc.disable()
for command in sys.argv[1:]:
    sys.argv = command.split()
    (script,) = entry_points(group="console_scripts", name=sys.argv[0])
    try:
        script.load()()
    except SystemExit as end:
        if end.code:
            raise
"""


@pytest.mark.slow
def test_third_party_tasks_run_and_each_problem_is_reported_once(
    shell,
):
    commands = (
        "mteb available-tasks -t HarbourLetters HarbourBells PosIR-Mini NFCorpus",
        "mteb run -t HarbourLetters -m mteb/baseline-bm25s --output-folder out",
        "posir report out --explain",
        "posir edges out",
    )
    ran = shell(f"COLUMNS=1000 {shlex.join(['python', '-c', CALL, *commands])}")
    assert ran.returncode == 0, ran.stderr
    names = re.findall(r"^    - (\S+), t2t$", ran.stdout, re.MULTILINE)
    assert names == ["HarbourLetters", "HarbourBells", "PosIR-Mini", "NFCorpus"]
    printed = " ".join((ran.stdout + ran.stderr).split())
    for package in (
        "(posir-broken 0.1.0: posir_broken)",
        "(posir-misspelled 0.1.0: posir_misspelled)",
    ):
        assert printed.count(f"{package} is not used: ") == 1
    for said in SAID[3:]:
        assert printed.count(said) == 1
    assert re.search(r"^HarbourLetters · \d+ quer", ran.stdout, re.MULTILINE)
    assert "MRR@10, first: MRR@10 of the first position bin." in printed
    assert (
        "mteb/baseline-bm25s · HarbourLetters: mrr_at_10_first_position 1.0, "
        "mrr_at_10_last_position 1.0\n" in ran.stdout
    )
    (scores,) = json.loads(shell("cat out/results/*/*/HarbourLetters.json").stdout)["scores"][
        "test"
    ]
    assert (scores["mrr_at_10_first_position"], scores["mrr_at_10_last_position"]) == (1.0, 1.0)
    assert {"mrr_at_10_first_position", "psi_as_published"} <= set(
        scores["position_run"]["plugin_score_names"]
    )
    assert scores["position_profile"]["queries"] == 12
    assert "queries_there" not in scores


@pytest.mark.slow
def test_the_score_is_a_column_of_reports_and_of_the_leaderboard(shell):
    ran = shell(
        "mteb run -t HarbourLetters -m mteb/baseline-bm25s --output-folder columns && posir "
        "report columns --csv"
    )
    assert ran.returncode == 0, ran.stderr
    (row,) = csv.DictReader(io.StringIO(ran.stdout[ran.stdout.index("model,") :]))
    assert row["mrr_at_10_first_position"] == "1.0"
    report, chosen = "posir report columns", "--columns mrr_at_10_first_position"
    forms = shell(
        f"{report} --latex && {report} {chosen} --latex --html page.html && {report} {chosen} "
        "--format json && cat page.html"
    )
    assert forms.returncode == 0, forms.stderr
    papers, table, rest = re.split(r"\\end{table\*}", forms.stdout)
    assert re.search(r"Truncated.* & MRR@10, first & MRR@10, last \\\\", papers, re.DOTALL)
    assert "MRR@10, first: MRR@10 of the first position bin." in papers
    assert "Length & MRR@10, first" in table
    assert "MRR@10, first: MRR@10 of the first position bin." in table
    assert '"mrr_at_10_first_position": 1.0' in rest
    assert "<dd>MRR@10 of the first position bin.</dd>" in rest
    built = shell(
        "posir leaderboard build --results columns --output board && gunzip -c board/scores.csv.gz"
    )
    assert built.returncode == 0, built.stderr
    lines = list(csv.DictReader(io.StringIO(built.stdout[built.stdout.index("model,") :])))
    assert [
        line["mrr_at_10_first_position"] for line in lines if line["task"] == "HarbourLetters"
    ] == ["1.0"]
    files = shell(
        "cd board && for file in data/board.js data/views/*.js; do echo $file; cat $file; done"
    ).stdout
    data = contents(
        dict(
            zip(
                files.splitlines()[::2], files.encode().splitlines(keepends=True)[1::2], strict=True
            )
        )
    )
    (column,) = [
        column
        for column in data["board"]["columns"]
        if column["key"] == "scores.mrr_at_10_first_position"
    ]
    assert (column["title"], column["description"]) == (
        "MRR@10, first",
        "MRR@10 of the first position bin.",
    )
    (group,) = [
        group
        for group in data["board"]["groups"]
        if any(view["name"] == "HarbourLetters" for view in group["views"])
    ]
    (view,) = group["views"]
    assert data[f"views/{view['file']}"]["columns"]["scores.mrr_at_10_first_position"] == [1.0]


@pytest.mark.slow
def test_a_package_may_import_its_task_before_mteb_is_imported(shell):
    code = (
        "from posir_letters.task import HarbourLetters as T; import mteb; "
        "print(type(mteb.get_task('HarbourLetters')) is T)"
    )
    first = shell(f'python -c "{code}"')
    assert first.stdout == "True\n", first.stderr


THREE_LINES = """
import mteb
from posir_tasks import PositionTask
task = PositionTask.from_hub("someone/letters", name="HubLetters", language="eng-Latn")
result = mteb.evaluate(mteb.get_model("mteb/baseline-bm25s"), task, cache=mteb.ResultCache({cache!r}))
print(task.hf_subsets, task.metadata.dataset, result.task_results[0].scores["test"][0]["position_run"]["data_revision"])
for repository, language in (("someone/letters", "deu-Latn"), ("someone/else", "eng-Latn")):
    try:
        PositionTask.from_hub(repository, name="Other", language=language)
    except Exception as error:
        print(type(error).__name__, error)
PositionTask.from_folder("nowhere", name="Nowhere", language="eng-Latn")
"""  # noqa: E501


def test_a_repository_is_a_task_in_three_lines(
    tmp_path: Path,
):
    write_domain(tmp_path / "repository", posir_tables())
    with serve("someone/letters", tmp_path / "repository", "c" * 40) as hub:
        ran = python_with_mteb(
            THREE_LINES.format(cache=str(tmp_path / "results")),
            HF_ENDPOINT=hub.url,
            HF_HOME=str(tmp_path / "hub"),
            HF_HUB_OFFLINE="0",
        )
    task, language, repository = ran.stdout.splitlines()[-3:]
    assert (
        task == f"['sports@{'c' * 8}'] {{'path': 'someone/letters', 'revision': '{'c' * 40}'}} "
        f"{'c' * 40}"
    )
    assert language.startswith(
        "DataError Hub dataset someone/letters@main: no deu-Latn data; expected <language>/"
    )
    assert language.endswith("It contains eng-Latn.")
    assert repository.startswith(
        "DataError Hub dataset someone/else@main: cannot be read (RepositoryNotFoundError"
    )
    assert list((tmp_path / "results").rglob("HubLetters.json"))
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("error: ")
    assert ran.stderr.splitlines()[-1].endswith(
        "/nowhere: no such folder. Give a folder in the PosIR layout, or one of its domains."
    )
    assert "Traceback" not in ran.stderr
