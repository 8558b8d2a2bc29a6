"""Problems that would stop a build late are found before its first call."""

import json

import pytest

from posir_build.api import check_build
from posir_build.pipeline import dump_dataset_settings, lock
from posir_build.settings import BuildSettings
from posir_tasks.base.errors import PosirError
from posir_tasks.base.settings_file import load_settings, read_overrides


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mill.txt").write_text("The mill stands by the river.")

    def load(*overrides):
        required = (
            "documents=notes",
            "language=eng-Latn",
            "domain=harbour",
            "output=data/made",
            "llm.model=m",
        )
        return load_settings(BuildSettings, None, read_overrides([*required, *overrides]))

    return load


def test_valid_settings_pass(settings):
    check_build(settings())
    check_build(
        settings("output=deep/er/data", "balance.held_out=0.2", "translate.languages=[deu-Latn]")
    )


@pytest.mark.parametrize("language", ["eng-Latn", "deu-Latn"])
@pytest.mark.parametrize("output", ["made", "made-held-out"])
def test_a_dataset_with_other_settings_is_rejected(settings, tmp_path, language, output):
    overrides = ("translate.languages=[deu-Latn]", "balance.held_out=0.2")
    folder = tmp_path / "data" / output / language / "harbour"
    folder.mkdir(parents=True)
    with pytest.raises(PosirError, match=r"harbour: already exists.* Remove it"):
        check_build(settings(*overrides))
    (folder / "construction.json").write_text(
        json.dumps({"settings": dump_dataset_settings(settings(*overrides))})
    )
    check_build(settings(*overrides, "llm.in_flight=2"))
    with pytest.raises(PosirError, match=r"other settings \(ask, verify\)"):
        check_build(settings(*overrides, "ask.questions=1", "verify.gap=2"))


def test_an_output_below_a_file_is_rejected(settings, tmp_path):
    (tmp_path / "file").write_text("")
    for output in ("file", "file/data"):
        with pytest.raises(PosirError, match=r"file"):
            check_build(settings(f"output={output}"))
    with (
        pytest.raises(PosirError, match=r"file"),
        lock(tmp_path / "file"),
    ):
        pass


@pytest.mark.parametrize(
    "override", ["work=notes", "work=notes/work", "output=notes/data", "documents=."]
)
def test_outputs_inside_the_documents_folder_are_rejected(settings, override):
    with pytest.raises(PosirError, match="documents folder"):
        check_build(settings(override), complete=False)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("verify.rerankers=[./missing]", r"./missing: no such folder"),
        ("documents=missing", "no such file, folder or task"),
    ],
)
def test_settings_that_would_fail_late_are_rejected(settings, override, message):
    with pytest.raises(PosirError, match=message):
        check_build(settings(override))
