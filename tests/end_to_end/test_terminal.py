"""What the commands print on a narrow terminal and into a pipe: every column, every number, every
name.
"""

import re
from itertools import product

import pytest

from posir_tasks.text.languages import LANGUAGES
from tests.support.commands import BIN, CLEAN, python, run, run_in_terminal, run_process
from tests.support.comparison import write_run
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain

WIDTH = 80
TASKS = [f"PosIR-{language.name}" for language in LANGUAGES] + [
    "PosIR-Chinese-English",
    "SQuAD-PosQ",
    "PosIR-Mini",
]


def test_a_terminal_of_80_columns_shows_the_names_of_all_tasks():
    printed = run_in_terminal("posir", "tasks", "Pos", columns=WIDTH)
    assert max(map(len, printed.splitlines())) <= WIDTH
    assert {*TASKS} <= {line.split()[0] for line in printed.splitlines() if line.strip()}


def test_the_names_of_tasks_can_be_searched_in_a_pipe():
    lines = run("posir", "tasks", "chinese", COLUMNS=str(WIDTH)).stdout.splitlines()
    (result,) = [line for line in lines if "PosIR-Chinese-English" in line]
    assert result.split()[:4] == ["PosIR-Chinese-English", "Chinese,", "English", "1,719,701"]


@pytest.fixture
def results(tmp_path):
    for seed, model in enumerate(("org/a-model-with-a-rather-long-name-of-its-own", "org/b")):
        write_run(tmp_path, model, seed)
    return tmp_path


@pytest.mark.slow
def test_files_are_written_though_the_reader_of_a_pipe_has_left(results, tmp_path):
    done = run_process(
        "bash",
        "-c",
        f"{BIN}/posir report {results} --full --html {tmp_path}/page.html | true; exit "
        f"${{PIPESTATUS[0]}}",
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    assert (tmp_path / "page.html").stat().st_size > 1000


@pytest.fixture
def data(tmp_path):
    for domain in ("Sports", "Computer_Science_Programming_Internet_and_Other_Technology"):
        write_domain(tmp_path / POSIR_FOLDER, posir_tables(), domain=domain)
    return tmp_path / POSIR_FOLDER


#: Kinds of a report beside the usual one.
REPORTS = ("report --bins", "report --published")


@pytest.mark.parametrize(
    "command",
    ["report", "compare", *(pytest.param(name, marks=pytest.mark.slow) for name in REPORTS)],
)
def test_a_terminal_shows_every_cell_of_results(results, command):
    assert_same_cells(
        *command.split(),
        str(results),
        folded=["Bias within the window", "Was not tested for position bias"],
    )


def test_a_terminal_shows_every_cell_of_statistics(data):
    assert_same_cells(
        "stats", str(data), folded=["Computer_Science_Programming_Internet_and_Other_Technology"]
    )


@pytest.mark.parametrize(
    "task", ["PosIR-English", pytest.param("SQuAD-PosQ", marks=pytest.mark.slow)]
)
def test_a_terminal_shows_every_cell_of_published_results(task):
    assert_same_cells("published", "--task", task)


def test_the_demo_shows_no_progress_but_that_of_mteb_and_no_log(tmp_path):
    options = (
        "-t",
        "PosIR-Mini",
        "-m",
        "mteb/baseline-bm25s",
        "--output-folder",
        str(tmp_path),
        "-v",
        "1",
    )
    printed = run_in_terminal("mteb", "run", *options, columns=WIDTH, errors=True)
    assert (tmp_path / "results").is_dir()
    progress, answer = printed.split("mteb/baseline-bm25s", 1)
    shown = {part.partition(":")[0].strip() for part in re.split(r"[\r\n]", progress)}
    assert shown <= {"", "Evaluating tasks", "Evaluating task PosIR-Mini"}
    assert f"posir report {tmp_path}" in " ".join(answer.split())


def assert_same_cells(*command, folded=()):
    """Check that no line is longer than the terminal and that every cell is there, on one line
    unless it may be folded.
    """
    piped = run("posir", *command, COLUMNS=str(WIDTH))
    assert piped.returncode == 0, piped.stderr
    lines = run_in_terminal("posir", *command, columns=WIDTH).splitlines()
    # A word that is longer than a line, such as a path, is not broken.
    assert all(len(line) <= WIDTH or " " not in line for line in lines)
    tables, paragraphs = split_paragraphs(piped.stdout)
    # What all rows of a table share is in its title, which may be broken.
    result = {
        cell
        for text in (*lines, " ".join(lines))
        for cell in re.split(r" {2,}| · |: |; ", text.strip())
    }
    cells = {cell for line in tables if "  " in line for cell in re.split(r" {2,}", line.strip())}
    assert cells - {*folded} <= result
    assert " ".join(paragraphs).split() == " ".join(split_paragraphs("\n".join(lines))[1]).split()


def split_paragraphs(printed):
    """Return the lines of tables and titles, and those below the last of them."""
    last = printed.rindex("\n\n")
    return printed[:last].splitlines(), printed[last:].splitlines()


ENCODED = product(
    ("doctor", "report --bins {}", "compare {}", "stats PosIR-Mini"), ("ascii", "cp1252")
)


@pytest.mark.parametrize(
    ("command", "encoding"),
    [("report {}", "ascii"), *(pytest.param(*row, marks=pytest.mark.slow) for row in ENCODED)],
)
def test_no_encoding_of_the_output_ends_a_command(results, command, encoding):
    variables = CLEAN | {"PYTHONIOENCODING": encoding}
    done = run_process(
        BIN / "posir", *command.format(results).split(), env=variables, encoding=encoding
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


@pytest.mark.parametrize("format_", ["text", pytest.param("csv", marks=pytest.mark.slow)])
def test_a_full_disk_on_standard_output_is_one_message(results, format_):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = run_process(BIN / "posir", "report", results, "--format", format_, stdout=full)
    assert done.returncode == 1
    assert (
        done.stderr
        == "error: standard output: not enough disk space (No space left on device). Free some "
        "space.\n"
    )


@pytest.mark.parametrize("module", ["cyclopts", "posir_tasks.command.api"])
def test_ctrl_c_while_modules_are_imported_prints_no_traceback(module):
    done = python(
        f"""
import signal, sys
from posir_tasks.command.app import main
class Finder:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
sys.argv = ["posir", "tasks"]
main()
"""
    )
    assert done.returncode in (1, 130)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1
