"""Legends in notebooks and on pages."""

from posir_tasks.display.labels import Term
from posir_tasks.display.presentation import Result


def test_each_paragraph_of_a_legend_is_shown_once():
    result = Result(title="Scores", notes=["Depth: of a list"], details=["Depth: of a list"])
    assert result._repr_html_().count("<p>Depth: of a list</p>") == 1


def test_each_line_of_a_legend_is_a_paragraph():
    details = [Term("Depth", "of a list"), Term("Width", "of a row")]
    page = Result(title="Scores", details=details)._repr_html_()
    assert [page.count(f"<p>{text}</p>") for text in ("Depth: of a list", "Width: of a row")] == [
        1,
        1,
    ]
