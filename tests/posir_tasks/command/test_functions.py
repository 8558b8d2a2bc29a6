"""Functions of users are loaded by name."""

from pathlib import Path

import pytest

from posir_tasks.base.errors import PosirError
from posir_tasks.base.public import load_function


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("json", "write module:function"),
        ("absent_module:f", "cannot be imported"),
        ("json:absent", "cannot be imported"),
        ("json:__name__", "str is not callable"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_an_error(reference: str, message: str):
    with pytest.raises(PosirError, match=message):
        load_function("--retriever", reference)


def test_a_module_that_ends_the_process_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "ends_the_process.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        PosirError, match=r"--retriever ends_the_process:f: cannot be imported \(SystemExit: 3\)"
    ):
        load_function("--retriever", "ends_the_process:f")
