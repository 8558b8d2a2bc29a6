"""Every command that posir prints: collected from the output of commands, parsed, and run where
that takes seconds.
"""

import html
import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from posir_tasks.command.shell_lines import PROGRAMS, Call, check_call, expand_line
from tests.support.commands import run
from tests.support.datasets import build_squad
from tests.support.embedding_server import serve_embeddings
from tests.support.models import write_tiny_model
from tests.support.probed_encoders import invent_texts

pytestmark = pytest.mark.slow

#: A folder of a model whose path a shell would take apart.
FOLDER = "./my model (1)"
#: A line of commands that is set off, and a command between backticks with more than its name.
LINE = re.compile(r"^ {2,}((?:POSIR_\w+=(?:'[^']*'|\S)+ )*(?:posir|mteb) .+)$", re.MULTILINE)
QUOTED = re.compile(r"`((?:posir|mteb) [a-z-]+ [^`]+)`")
CODE = re.compile(r"<(?:code|pre)[^>]*>((?:POSIR_|posir |mteb |#)[^<]*)<")


def collect_commands(printed: str) -> Iterator[Call]:
    """Yield the calls in what a command printed: in a terminal or on a page."""
    lines = [*LINE.findall(printed), *QUOTED.findall(printed)]
    for block in CODE.findall(printed):
        lines += [
            line
            for line in html.unescape(block).splitlines()
            if re.match(r"POSIR_|posir |mteb ", line)
        ]
    for line in lines:
        yield from (call for call in expand_line(line, {}) if not names_a_command(call))


def names_a_command(call: Call) -> bool:
    """Return whether a call is the name of a command alone, perhaps with that of an option, as
    sentences have it.
    """
    return (
        len([word for word in call.arguments if not word.startswith("--")]) == 2
        and "--help" not in call.arguments
    )


class Session:
    """A shell in a folder that keeps what its commands print."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: dict[str, Call] = {}

    def run(self, *words: str, succeeds: bool = True, **environment: str) -> str:
        """Run a command and keep the commands that it prints."""
        with chdir(self.folder):
            done = run(*words, POSIR_CACHE=str(self.folder / "cache"), **environment)
        printed = done.stdout + done.stderr
        assert not succeeds or done.returncode == 0, (words, printed)
        for page in self.folder.glob("*.html"):
            printed += page.read_text(encoding="utf-8")
            page.unlink()
        for call in collect_commands(printed):
            self.calls[str(call)] = call
        return printed

    def find(self, *words: str) -> list[Call]:
        """Return the kept calls that begin with some words."""
        return [call for call in self.calls.values() if call.arguments[: len(words)] == words]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session in which a folder, an endpoint, a reranker with its first stage and settings were
    evaluated and reported.
    """
    session = Session(tmp_path_factory.mktemp("session"))
    folder = session.folder
    write_tiny_model(folder / FOLDER)
    write_tiny_model(folder / "reranker", "cross-encoder")
    (folder / "my texts").mkdir()
    for number, text in enumerate(invent_texts(20, 30)):
        (folder / "my texts" / f"{number}.txt").write_text(text, encoding="utf-8")
    (folder / "my questions.json").write_text(json.dumps(build_squad()), encoding="utf-8")
    on_mini = ("mteb", "run", "-t", "PosIR-Mini", "--output-folder", "my results")
    small = ("my questions.json", "--method", "chunks(16)", "--output", "my results")
    with serve_embeddings() as server:
        session.run(*on_mini, "-m", FOLDER)
        session.run(*on_mini, "-m", FOLDER, POSIR_WINDOW="16", POSIR_QUERY_PROMPT="find: ")
        session.run("posir", "mitigate", server.reference, *small)
        session.run("posir", "report", "my results", "--html", "report.html")
        session.run("posir", "compare", "my results", "--html", "compare.html", succeeds=False)
        session.run("posir", "window", FOLDER)
        session.run(
            "posir", "inspect", FOLDER, "my texts", "--budget", "30k", "--html", "inspect.html"
        )
        session.run("posir", "inspect", "my texts", "all-MiniLM-L6-v2", succeeds=False)
        session.run(
            "posir",
            "probe",
            FOLDER,
            "PosIR-Mini",
            "--documents",
            "6",
            "--output",
            "probes",
            "--html",
            "probe.html",
        )
        session.run("posir", "mitigate", FOLDER, *small[:-1], "mitigated")
        session.run("posir", "report", "mitigated", "--html", "report.html")
        session.run("posir", "report", "nothing", succeeds=False)
        session.run("posir", "power", "--documents", "100", succeeds=False)
        yield session


def test_every_printed_command_is_one_the_command_line_takes(session: Session):
    assert len(session.calls) >= 5, session.calls.keys()
    assert {call.arguments[0] for call in session.calls.values()} <= {*PROGRAMS}
    problems = {
        text: problem
        for text, call in session.calls.items()
        if (problem := check_call(call.arguments))
    }
    assert not problems


def test_no_printed_command_has_the_name_that_results_have(session: Session):
    words = {word for call in session.calls.values() for word in call.arguments}
    assert not {word for word in words if word.startswith(("local/", "endpoint/", "run/"))}
    assert FOLDER in words
    assert any(re.fullmatch(r"tiny@http://[\w.:/]+", word) for word in words)


def test_the_settings_of_a_run_are_part_of_its_commands(session: Session):
    settings = {"POSIR_WINDOW": "16", "POSIR_QUERY_PROMPT": "find: "}
    assert [
        call
        for call in session.calls.values()
        if call.environment == settings and FOLDER in call.arguments
    ]


def test_printed_commands_run(session: Session):
    """Those of a model in a folder: the others differ in the model alone."""
    chosen = {
        call.arguments[1]: call for call in session.calls.values() if FOLDER in call.arguments
    }
    assert {"window", "inspect", "mitigate", "probe"} & chosen.keys()
    for name, call in chosen.items():
        if name in ("window", "inspect", "probe"):
            session.run(*call.arguments, **call.environment)


def test_a_folder_that_is_gone_and_a_run_have_no_command(session: Session, tmp_path: Path):
    other = Session(tmp_path)
    results = os.path.relpath(session.folder / "my results", tmp_path)
    (session.folder / FOLDER).rename(session.folder / "moved")
    try:
        other.run("posir", "report", results, "--html", "report.html")
    finally:
        (session.folder / "moved").rename(session.folder / FOLDER)
    assert not [call for call in other.calls.values() if FOLDER in shlex.join(call.arguments)]
    other.run("posir", "report", results)
    named = {word for call in other.calls.values() for word in call.arguments}
    assert str((session.folder / FOLDER).resolve()) in named
