"""Options have the same names and meanings in all commands."""

import webbrowser

import pytest

from posir_tasks.base.progress import track
from posir_tasks.base.public import public
from posir_tasks.command.commands import build_app
from posir_tasks.display.presentation import Result
from tests.support.cli import call_posir, command_parameters, name_option


def test_stages_are_logged_to_standard_error_unless_quiet():
    @public()
    def example(name: str, *, loud: bool = False) -> Result:
        """Work."""
        with track("Working"):
            return Result(rows=(), tables=(), footer=[f"{name} {loud}"])

    app = build_app(example, "example")
    for option, printed in (
        ("--loud", ("text True\n", "Working\n")),
        ("--quiet", ("text False\n", "")),
    ):
        done = call_posir(["text", option], run=app)
        assert (done.stdout, done.stderr) == printed


#: Synonyms that no command may use, by the common option name.
SYNONYMS = {
    "--output": {
        "--output-folder",
        "--output-dir",
        "--output-file",
        "--out",
        "--folder",
        "--output-path",
    },
    "--format": {"--json", "--output-format"},
    "--html": {"--page", "--html-file"},
    "--figures": {"--png", "--pictures"},
    "--language": {"--languages", "--lang"},
    "--documents": {"--max-documents", "--docs"},
    "--data": {"--dataset", "--datasets"},
    "--revision": {"--model-revision"},
    "--task": {"--tasks"},
    "--benchmark": {"--benchmarks"},
    "--config": {"--settings"},
    "--quiet": {"--silent", "--no-progress"},
}
#: Pairs of options with different meanings: text column and shown columns; view and table of
#: models; seed and number of seeds; domain of a dataset and domains to evaluate; output format and
#: list of input formats.
DIFFERENT = {"--columns", "--architectures", "--seeds", "--domains", "--formats"}


def test_no_command_uses_a_synonym_of_an_option():
    names = {}
    for name, parameters in command_parameters():
        for parameter in (item for item in parameters if not item.is_argument):
            names.setdefault(name_option(parameter), set()).add(name)
    assert {
        name: names[name] for refused in SYNONYMS.values() for name in refused & names.keys()
    } == {}
    assert {name for name in names if f"{name}s" in names and f"{name}s" not in DIFFERENT} == set()


def test_an_option_has_the_same_short_name_in_all_commands():
    short = {}
    for _, parameters in command_parameters():
        for parameter in parameters:
            if parameter.option.short:
                short.setdefault(parameter.option.short, set()).add(parameter.name)
    assert {letter: names for letter, names in short.items() if len(names) > 1} == {}
    assert short


@pytest.mark.parametrize(
    ("words", "page"),
    [
        (["stats", "PosIR-Mini", "--html"], "posir-stats.html"),
        (["stats", "PosIR-Mini", "--html", "--quiet"], "posir-stats.html"),
        (["stats", "PosIR-Mini", "--open"], "posir-stats.html"),
        (["stats", "PosIR-Mini", "--html", "mine.html", "--open"], "mine.html"),
        (["stats", "PosIR-Mini", "--html=mine.html", "--open"], "mine.html"),
    ],
)
def test_a_page_without_a_file_name_is_named_after_the_command(tmp_path, monkeypatch, words, page):
    opened = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert call_posir(words).exit_code == 0
    assert [file.name for file in tmp_path.glob("*.html")] == [page]
    assert opened == [(tmp_path / page).as_uri()] * ("--open" in words)
