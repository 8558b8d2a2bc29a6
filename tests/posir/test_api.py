"""`import posir`: public names, runnable examples, and results."""

import doctest
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Hashable, Iterator
from concurrent.futures import Future
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

import posir
from posir_run.jobs import Job, JobOutcome
from posir_run.worker import Evaluator, LocalEngine, Settings
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import wrap
from tests.support.cli import invoke
from tests.support.comparison import draw_evidence, write_run
from tests.support.datasets import build_squad
from tests.support.human_answers import Truth, mini_documents, write_documents
from tests.support.language_model_server import NO_FAILURES, serve_language_model
from tests.support.models import write_tiny_model

#: Packages that are slow to import.
HEAVY = {
    "altair",
    "datasets",
    "mteb",
    "numpy",
    "pandas",
    "polars",
    "pydantic",
    "scipy",
    "torch",
    "cyclopts",
}
#: Example documents.
TEXTS = mini_documents()[:3]
HUNG = "It hung there for many years until the tower fell. " * 8
#: Articles with a question about the first words and one about the last words.
BELLS = {
    f"Bell {number}": f"Bell {number} was cast in copper. {HUNG}Year {number}."
    for number in range(6)
}
ASKED = {
    f"{kind} {name}": (f"What of {kind} {name[-1]}?", name, f"{kind} {name[-1]}")
    for name in BELLS
    for kind in ("Bell", "Year")
}
FUNCTIONS = [name for name in posir.__all__ if name.islower()]


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with results of BM25 and MiniLM on PosIR-Mini, a model and data."""
    folder = tmp_path_factory.mktemp("reader")
    write_tiny_model(folder / "my-model")
    write_documents(folder / "texts", TEXTS)
    (folder / "squad.json").write_text(json.dumps(build_squad(BELLS, ASKED)))
    for seed, model in enumerate(("mteb/baseline-bm25s", "sentence-transformers/all-MiniLM-L6-v2")):
        write_run(
            folder / "results", model, seed, {"default": draw_evidence(120)}, task="PosIR-Mini"
        )
    return folder


def test_importing_posir_imports_nothing_slow():
    code = "import sys, posir; print(*{name.partition('.')[0] for name in sys.modules}, dir(posir))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


def test_accessing_every_name_imports_no_framework():
    code = (
        "import gc, sys, posir; gc.disable(); [getattr(posir, name) for name in dir(posir)]; "
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    frameworks = {"torch", "transformers", "sentence_transformers", "mteb"}
    assert not frameworks & set(done.stdout.split())


def test_names_are_public_and_documented():
    stated = re.findall(r"from (\S+) import (\w+) as", inspect.getsource(posir))
    assert dir(posir) == sorted(posir.__all__) == sorted(name for _, name in stated)
    assert all(module == posir._MODULES[name] for module, name in stated)
    for name in FUNCTIONS:
        function = getattr(posir, name)
        documentation = inspect.getdoc(function) or ""
        assert inspect.isfunction(function), name
        assert all(
            f"\n{heading}:\n" in documentation for heading in ("Returns", "Raises", "Examples")
        ), name
        described = set(re.findall(r"^    (\w+): ", documentation, re.MULTILINE))
        assert {
            parameter.lstrip("*") for parameter in inspect.signature(function).parameters
        } <= described, name
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty
    with pytest.raises(AttributeError, match="it has PosirError, "):
        posir.powr  # noqa: B018


@pytest.fixture(scope="module", autouse=True)
def language_model() -> Iterator[None]:
    """Serve human questions about the example documents as the configured language model."""
    with (
        serve_language_model(Truth(TEXTS), rates=dict(NO_FAILURES)) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("OPENAI_BASE_URL", server.url)
        yield


class Worker:
    """A worker that runs jobs in this process: a process of its own would import mteb again."""

    def __init__(self, settings: Settings) -> None:
        self.evaluator = Evaluator(settings, dict(os.environ))
        self.started: Future[None] = Future()
        self.started.set_result(None)

    def submit(self, job: Job) -> Future[JobOutcome]:
        outcome: Future[JobOutcome] = Future()
        outcome.set_result(self.evaluator.evaluate(job))
        return outcome

    def stop(self) -> None:
        pass


class Engine(LocalEngine):
    def start(self, location: Hashable) -> Worker:  # type: ignore[override]  # noqa: ARG002
        return Worker(self._settings)


#: Functions whose examples take the longest.
LONG = ("compose", "correlate", "import_data", "inspect", "probe", "train")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in FUNCTIONS],
)
def test_examples_run_and_their_results_display(
    name: str, reader: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(reader)
    monkeypatch.setattr("posir_run.api.LocalEngine", Engine)
    function = getattr(posir, name)
    for test in doctest.DocTestFinder(recurse=False).find(function, name, globs={}):
        assert test.examples
        assert (
            doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False).failed
            == 0
        )
        for returned in test.globs.values():
            if isinstance(returned, Result):
                check_shown(returned)


NAMES = {"language": "eng-Latn", "domain": "harbour", "sample": {"lengths": "any"}}
#: Results that no example returns.
RETURNED = {
    "stats": lambda _: posir.stats("PosIR-Mini"),
    "published_scores": lambda _: posir.published(
        task=["PosIR-English", "FineWeb-PosQ"], lengths=True
    ),
    "published_training": lambda _: posir.published(training=True),
    "published_mmteb": lambda _: posir.published(mmteb=True),
    "bins": lambda reader: posir.read_results(reader / "results").bins(),
    "recall": lambda reader: posir.read_results(reader / "results").recall(),
    "open_data": lambda reader: posir.open_data(reader / "squad.json"),
    "open_texts": lambda _: posir.open_data(pl.Series(["A text.", "Another text."])),
}


class Fragment(HTMLParser):
    """An HTML parser that checks that tags are closed in order, and counts cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag != "img":
            self.open.append(tag)
        self.cells += tag == "td"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", RETURNED)
def test_a_result_displays_and_converts_to_a_data_frame(name: str, reader: Path):
    check_shown(RETURNED[name](reader))


def check_shown(shown: object) -> None:
    """Check a result in a terminal, a notebook, JSON and data frames."""
    assert isinstance(shown, Result)
    tables = [table for section in shown.sections() for table in section.tables]
    assert 1 + bool(tables) <= len(repr(shown).splitlines()) <= 12
    assert repr(shown).startswith(type(shown).__name__)
    frame = shown.to_polars()
    assert frame.height == len(shown.records()) > 0
    assert frame.to_dicts() == pl.from_pandas(shown.to_pandas()).to_dicts()
    # Two computations of the published PSI differ in the last digit.
    numbers = {round(number, 12) for number in walk_numbers(json.loads(shown.to_json()))}
    for column in frame.select(pl.col(pl.Float64)).iter_columns():
        assert {round(value, 12) for value in column if value is not None} <= numbers, column.name
    assert_well_written(shown)
    fragment = Fragment()
    html = shown._repr_html_()
    fragment.feed(html)
    fragment.close()
    assert not fragment.open
    assert (fragment.cells > 0) == bool(tables)
    assert not re.search(
        r"https?:|//\w", re.sub(r"base64,[^\"]*|(xmlns|<a href)=\"[^\"]*\"", "", html)
    )
    with pytest.raises(AttributeError):
        shown.title = "changed"


def assert_well_written(shown: Result) -> None:
    """Check minus signs, negative zeros, percent signs and the length of the legend."""
    text = str(shown)
    assert not re.search(r"(?<![\w.,])-0(\.0+)?(?![\d.])", text)
    assert "\N{MINUS SIGN}" not in text
    assert not re.search(r"\d\s%", text)
    assert sum(len(wrap(paragraph, 80)) for paragraph in shown.notes) <= 6
    assert {len(decimals) for decimals in re.findall(r"nDCG@10 [-+]?\d+\.(\d+)", text)} <= {1}


def walk_numbers(value: object) -> Iterator[float]:
    """Yield all numbers in a JSON value."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from walk_numbers(item)
    elif isinstance(value, int | float):
        yield value


COMMANDS = {
    "power --difference 8 --difference 10": lambda: posir.power(difference=[8, 10]),
    "report results --columns psi_as_published": lambda: posir.read_results(
        "results", columns=["psi_as_published"]
    ),
    "report results --recall": lambda: posir.read_results("results").recall(),
    "compare results": lambda: posir.compare("results"),
    "published --task SQuAD-PosQ": lambda: posir.published(task="SQuAD-PosQ"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_print_what_functions_return(
    command: str, reader: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(reader)
    shown = COMMANDS[command]()
    assert invoke(*command.split(), "--format", "json") == shown.to_json() + "\n"
    printed, hint = (
        invoke(*command.split()).rstrip(),
        "\n--explain: all columns" if shown.details else "",
    )
    assert printed.partition("; --full")[0].removesuffix(".") == (str(shown) + hint).removesuffix(
        "."
    )


MISTAKES = {
    "nowhere: no such folder": lambda: posir.read_results("nowhere"),
    "at most 100": lambda: posir.power(difference=1_000),
    "divide percentages": lambda: posir.psi([58.3, 40.1]),
    "must be numbers": lambda: posir.psi(["a"]),
    "undefined": lambda: posir.psi([0, None]),
    "no such column": lambda: posir.read_results("results", columns=["pis"]),
    "no results of a model 'gpt'": lambda: posir.compare(
        ["gpt", "baseline-bm25s"], results="results"
    ),
    "`posir tasks` lists the tasks": lambda: posir.evaluate("mteb/baseline-bm25s", "PosIR-Minni"),
    "Give the column with the texts": lambda: posir.open_data(pl.DataFrame({"text": ["A text."]})),
    "The data is None, of type NoneType. Give ": lambda: posir.open_data(None),
    "no published results for a task": lambda: posir.published(task="MSMARCO"),
    "positions: 'front' is not valid": lambda: posir.train(
        "my-model", data="squad.json", output="out", positions="front"
    ),
    "did you mean learning_rate": lambda: posir.train(
        "my-model", data="squad.json", output="refused", learningrate=1
    ),
    "field 'output': Field required": lambda: posir.build(
        documents="texts", **NAMES, llm={"model": "my-llm"}
    ),
    "needs two models": lambda: posir.compare("baseline-bm25s", results="results"),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_invalid_input_raises_posir_errors(
    message: str, reader: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(reader)
    with pytest.raises(posir.PosirError, match=re.escape(message)):
        MISTAKES[message]()
