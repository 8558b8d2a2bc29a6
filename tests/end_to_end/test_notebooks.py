"""The notebooks of docs/notebooks print what they show, on packaged model and data."""

import re
from pathlib import Path

import nbformat
import pytest

from docs_site.notebooks import run_notebook

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"\d+(?:\.\d+)?")
#: The address of an object, which differs in every run.
ADDRESS = re.compile(r"0x[0-9a-f]+")


def list_texts(notebook: nbformat.NotebookNode) -> list[str]:
    """List the outputs of the cells as text."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    texts = (
        output.text if output.output_type == "stream" else output.data["text/plain"]
        for output in outputs
    )
    return [ADDRESS.sub("", text) for text in texts]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_has_outputs_with_charts(file: Path):
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    assert len(list_texts(notebook)) >= 3
    assert '<div class=\\"posir\\"' in file.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_prints_what_it_shows(file: Path):
    """Run `python docs_site/notebooks.py` if it does not."""
    notebook = nbformat.read(file, as_version=4)
    kept = list_texts(notebook)
    run_notebook(notebook)
    for shown, printed in zip(kept, list_texts(notebook), strict=True):
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
        numbers = [[*map(float, NUMBER.findall(text))] for text in (printed, shown)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.01, abs=0.02)


def test_there_are_three():
    assert len(NOTEBOOKS) == 3
