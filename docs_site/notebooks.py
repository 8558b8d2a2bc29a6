"""Run the notebooks in the documentation, store their outputs, and render them as pages.

Usage, from the repository root, if outputs have changed: python docs_site/notebooks.py
"""

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path("docs") / "notebooks"
#: Time limit per cell in seconds.
LIMIT = 600


def run_notebook(notebook: NotebookNode) -> None:
    """Run a notebook in an empty folder, and store all outputs except standard error."""
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=LIMIT, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            # Standard error contains progress bars and library warnings.
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]


def render_notebook(notebook: NotebookNode) -> str:
    """Render a notebook with its outputs as Markdown."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += map(render_output, cell.outputs)
    return "\n\n".join(parts) + "\n"


def render_output(output: NotebookNode) -> str:
    """Render an output as HTML if available, else as text."""
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    data = output.data
    if "text/html" not in data:
        return f"```text\n{data['text/plain']}\n```"
    # Empty lines end HTML blocks in Markdown.
    lines = [line for line in data["text/html"].splitlines() if line.strip()]
    return "\n".join(['<div style="overflow-x: auto">', *lines, "</div>"])


def main() -> None:
    """Run all notebooks and store their outputs."""
    for file in sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(file, as_version=4)
        run_notebook(notebook)
        nbformat.write(notebook, file)


if __name__ == "__main__":
    main()
