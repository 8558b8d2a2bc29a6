"""The notebooks of docs/notebooks run from beginning to end, with a tiny model in place of
MiniLM.
"""

from pathlib import Path

import pytest

from tests.support.models import write_hub_cache

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
#: Seconds that a notebook may take.
LIMIT = 120


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_and_shows_tables_and_charts(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import nbformat
    from nbclient import NotebookClient

    write_hub_cache(tmp_path / "hugging-face")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hugging-face"))
    (tmp_path / "reader").mkdir()
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    NotebookClient(
        notebook, timeout=LIMIT, resources={"metadata": {"path": str(tmp_path / "reader")}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pages = [
        output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})
    ]
    assert any('<div class="posir"' in page for page in pages)


def test_there_are_three():
    assert len(NOTEBOOKS) == 3
