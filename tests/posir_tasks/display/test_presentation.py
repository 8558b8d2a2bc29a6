"""Results on a page."""

from posir_tasks.display.presentation import Result


def test_each_term_of_a_legend_is_explained_once_on_a_page():
    result = Result(title="Scores", notes=["Depth: of a list"], details=["Depth: of a list"])
    page = result._repr_html_()
    assert (page.count("<dt>Depth</dt>"), page.count("<dd>")) == (1, 1)


def test_each_line_of_a_legend_is_a_term_of_its_own():
    page = Result(title="Scores", details=["Depth: of a list\nWidth: of a row"])._repr_html_()
    assert [page.count(f"<dt>{term}</dt>") for term in ("Depth", "Width")] == [1, 1]
