"""What a wheel and an editable install put into site-packages."""

import ast
import json
import pkgutil
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import posir_autoload
from posir_tasks.data.mini import read_documents
from tests.support.commands import CLEAN, run_process
from tests.support.comparison import write_run
from tests.support.embedding_server import serve_embeddings
from tests.support.fresh import fresh_environment

ROOT = Path(__file__).parents[2]
AUTOLOAD_FILES = {
    name: (ROOT / "autoload" / name).read_text(encoding="utf-8-sig")
    for name in ("posir.pth", "posir.start")
}


def build(kind: str, folder: Path) -> zipfile.ZipFile:
    """Build a wheel of a kind ("wheel" or "editable") and open it."""
    code = f"from hatchling.build import build_{kind}; print(build_{kind}({str(folder)!r}))"
    done = run_process(sys.executable, "-c", code, cwd=ROOT)
    return zipfile.ZipFile(folder / done.stdout.split()[-1])


def test_a_wheel_has_all_autoload_module_and_data_files(tmp_path: Path):
    wheel = build("wheel", tmp_path)
    names = set(wheel.namelist())
    assert {name: wheel.read(name).decode() for name in AUTOLOAD_FILES} == AUTOLOAD_FILES
    inits = [
        ROOT / "posir_tasks" / "__init__.py",
        *ROOT.glob("plugins/*/__init__.py"),
        *ROOT.glob("leaderboard/*/__init__.py"),
    ]
    missing = [
        file
        for init in inits
        for file in init.parent.rglob("*")
        if file.is_file()
        and "__pycache__" not in file.parts
        and file.relative_to(init.parents[1]).as_posix() not in names
    ]
    assert len(inits) > 2
    assert not missing
    assert "posir_autoload.py" in names
    recipes = {
        f"posir_recipes/{file.relative_to(ROOT).as_posix()}" for file in ROOT.glob("recipes/*/*")
    }
    assert "posir_recipes/recipes/posq/recipe.yaml" in recipes <= names


def test_an_editable_install_has_the_autoload_files_too(tmp_path: Path):
    wheel = build("editable", tmp_path)
    assert {name: wheel.read(name).decode() for name in AUTOLOAD_FILES} == AUTOLOAD_FILES
    (paths,) = (name for name in wheel.namelist() if name.endswith(".pth") and name != "posir.pth")
    assert paths < "posir.pth", (
        "Python reads .pth files in order of name, and this one needs the folders"
    )
    assert str(ROOT / "autoload") in wheel.read(paths).decode().splitlines()


def test_the_start_file_names_one_function_as_pep_829_says():
    lines = [line.strip() for line in AUTOLOAD_FILES["posir.start"].splitlines()]
    (entry_point,) = (line for line in lines if line and not line.startswith("#"))
    assert entry_point.count(":") == 1
    assert pkgutil.resolve_name(entry_point) is posir_autoload.start


def test_the_pth_file_is_one_line_that_executes_no_text():
    (line,) = (ROOT / "autoload" / "posir.pth").read_text().splitlines()
    assert line.startswith("import ")
    called = {
        ast.unparse(node.func) for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call)
    }
    assert called == {"importlib.machinery.PathFinder.find_spec", "importlib.import_module"}


def start(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python whose only site folder is this one."""
    return run_process(
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import site; site.addsitedir({str(folder)!r}); {code}",
        env={},
    )


def test_a_pth_file_without_its_module_is_silent(tmp_path: Path):
    shutil.copy(ROOT / "autoload" / "posir.pth", tmp_path)
    done = start(tmp_path, "print('started')")
    assert (done.stdout, done.stderr) == ("started\n", "")


def test_mteb_without_the_rest_of_posir_imports_after_a_warning(tmp_path: Path):
    for name in ("posir.pth", "posir_autoload.py"):
        shutil.copy(ROOT / "autoload" / name, tmp_path)
    (tmp_path / "mteb" / "benchmarks").mkdir(parents=True)
    imports = "from mteb import get_tasks\nimport mteb.benchmarks.benchmarks"
    modules = {
        "__init__": imports,
        "get_tasks": "TASKS = 1",
        "benchmarks/__init__": "",
        "benchmarks/benchmarks": "",
    }
    for name, code in modules.items():
        (tmp_path / "mteb" / f"{name}.py").write_text(code)
    done = start(tmp_path, "import mteb; print(mteb.get_tasks.TASKS)")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "1\n", 1)
    assert done.stderr.startswith("posir: ")


def test_the_module_imports_only_what_python_has_loaded_at_start():
    code = (
        "import sys; before = set(sys.modules); import posir_autoload; "
        "print(sorted(set(sys.modules) - before))"
    )
    path = f"import sys; sys.path.insert(0, {str(ROOT / 'autoload')!r})"
    done = run_process(sys.executable, "-I", "-c", f"{path}; {code}", env={"POSIR_AUTOLOAD": "1"})
    assert done.stdout in ("[]\n", "['posir_autoload']\n")


@pytest.mark.parametrize(("switch", "installed"), [("1", True), ("0", False)])
def test_an_import_installs_the_hook_unless_switched_off(switch: str, installed: bool):
    code = "import posir_autoload as a; print(a.is_installed()); a.start(); print(a.is_installed())"
    done = run_process(
        sys.executable, "-S", "-c", code, cwd=ROOT / "autoload", env={"POSIR_AUTOLOAD": switch}
    )
    assert (done.stdout, done.stderr) == (f"{installed}\n{installed}\n", "")


def test_neither_the_import_nor_the_function_ever_raises():
    code = (
        "import os; os.environ = None; import posir_autoload as a; a.is_installed = None; a.start()"
    )
    done = run_process(sys.executable, "-S", "-c", code, cwd=ROOT / "autoload", env={})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_readme_avoids_cuda_before_its_first_command():
    readme = (ROOT / "README.md").read_text()
    cpu_build = readme.index("pip install torch --index-url https://download.pytorch.org/whl/cpu")
    assert cpu_build < readme.index("\npip install '.[demo]'") < readme.index("\nposir window")


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """Return the folder of what `make wheel` builds: an sdist, and a wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run_process(sys.executable, "-m", "build", "-q", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def test_the_published_wheel_passes_pypi_and_is_the_clones_wheel(published: Path, tmp_path: Path):
    done = run_process(sys.executable, "-m", "twine", "check", "--strict", *published.iterdir())
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = published.glob("*.whl")
    assert set(zipfile.ZipFile(file).namelist()) == set(build("wheel", tmp_path).namelist())


@pytest.mark.slow
def test_the_wheel_works_in_a_fresh_environment(published: Path, tmp_path: Path):
    (wheel,) = published.glob("*.whl")
    environment = fresh_environment(tmp_path / "venv") | {"PYTHONPATH": ""}

    def run_there(*command: str) -> str:
        done = run_process(*command, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run_there("python", "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(wheel))
    assert str(tmp_path / "venv") in run_there(
        "python", "-c", "import posir_tasks; print(posir_tasks.__file__)"
    )
    run_there("mteb", "run", "-t", "PosIR-Mini", "-m", "mteb/baseline-bm25s")
    (record,) = json.loads(run_there("posir", "report", "results", "--format", "json"))
    overall = record["position_scores"]["all"]
    assert (overall["state"], overall["reason"]) == ("no_bias", "order_blind")


#: Runs a command with no library but those that a distribution declares, and what they need.
WITHOUT_OTHERS = """
import sys
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions, requires
from packaging.requirements import Requirement

def collect(name, known):
    for line in requires(name) or ():
        requirement = Requirement(line)
        if not requirement.marker or requirement.marker.evaluate({"extra": ""}):
            if (key := requirement.name.lower().replace("_", "-")) not in known:
                known.add(key)
                collect(requirement.name, known)
    return known

allowed = collect("posir-gate", {"posir-gate", "posir", "setuptools", "pip"})
owners = packages_distributions()

class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        # Libraries look for others that they can use.
        if path is None and name in owners and not allowed & {owner.lower().replace("_", "-") for owner in owners[name]}:
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
sys.argv[0] = "posir"
from posir_tasks.command.app import main
main()
"""  # noqa: E501


@pytest.mark.slow
def test_the_light_distribution_works_with_its_own_libraries(
    tmp_path: Path,
):
    run_process(
        sys.executable,
        "-c",
        f"from hatchling.build import build_wheel; build_wheel({str(tmp_path)!r})",
        cwd=ROOT / "gate",
    )
    (wheel,) = tmp_path.glob("posir_gate-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    for name, seed in (("a", 1), ("b", 5)):
        write_run(tmp_path / name, f"org/{name}", seed)

    document = next(read_documents())
    (tmp_path / "splitter.py").write_text("split = str.splitlines")
    (tmp_path / "texts.txt").write_text("A line of six short words.\n")
    (tmp_path / "long.txt").write_text(document.text)
    (tmp_path / "a.trec").write_text(f"{document.id}/1 Q0 {document.id} 1 1.0 a\n")

    def run_there(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-c", WITHOUT_OTHERS, *arguments)
        return run_process(
            *command, cwd=tmp_path, env=CLEAN | {"PYTHONPATH": str(tmp_path / "site")}
        )

    with serve_embeddings(window=512, special=2) as server:
        done = [
            run_there(
                "window",
                server.reference,
                "texts.txt",
                "--chunker",
                "splitter:split",
                "--require-fit",
                "--require",
                512,
            ),
            run_there("compare", "a", "b", "--fail-if", "ndcg_at_10 < -101"),
            run_there("report", "a"),
            run_there("score", "a.trec", "--data", "PosIR-Mini", "--missing", "zero"),
            run_there("stats", "PosIR-Mini"),
            run_there("validate", "PosIR-Mini"),
            run_there("tasks"),
            run_there("inspect", "all-MiniLM-L6-v2", "long.txt"),
        ]
    assert [run.returncode for run in done] == [*[0] * 7, 1], "".join(run.stderr for run in done)
    assert "which is not installed" in done[-1].stderr


#: Runs a command as with mteb without its extra for models, which mteb-core would be.
WITHOUT_TORCH = """
import sys
from importlib.machinery import PathFinder

class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is None and name in ("torch", "sentence_transformers", "transformers"):
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
sys.argv[0] = "posir"
from posir_tasks.command.app import main
main()
"""


@pytest.mark.slow
def test_what_reads_results_and_data_needs_no_torch(tmp_path: Path):
    for name, seed in (("a", 1), ("b", 5)):
        write_run(tmp_path / name, f"org/{name}", seed)
    commands = ("report a", "compare a b", "stats PosIR-Mini", "tasks", "validate PosIR-Mini")
    for command in commands:
        arguments = command.split()
        done = run_process(sys.executable, "-c", WITHOUT_TORCH, *arguments, cwd=tmp_path, env=CLEAN)
        assert done.returncode == 0, f"{command}: {done.stderr}"
    refused = run_process(
        sys.executable, "-c", WITHOUT_TORCH, "probe", "all-MiniLM-L6-v2", cwd=tmp_path, env=CLEAN
    )
    assert (refused.returncode, refused.stderr.count("Traceback")) == (1, 0)
    assert "which is not installed" in refused.stderr
