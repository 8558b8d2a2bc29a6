"""Test the HTML report in a browser: dark mode and printing."""

from pathlib import Path

import pytest

from posir_report.api import read_results
from tests.leaderboard.test_board import profile
from tests.support.results import write_result

pytestmark = pytest.mark.slow
#: Width of an A4 page without margins, in pixels.
A4 = 688


@pytest.fixture(scope="module")
def page(tmp_path_factory, browser):
    folder = tmp_path_factory.mktemp("report")
    for seed, model in enumerate(("org/first", "org/second")):
        write_result(folder / "results", {"sports": profile(seed)}, model=model)
    file = Path(folder / "report.html")
    file.write_text(read_results(folder / "results").to_html(), encoding="utf-8")
    opened = browser.new_page(viewport={"width": A4, "height": 1000})
    opened.goto(file.as_uri())
    opened.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true })")
    opened.wait_for_selector(".chart svg.marks")
    yield opened
    opened.close()


def test_dark_figures_have_no_white_cards(page):
    page.emulate_media(color_scheme="dark", media="screen")
    assert (
        page.evaluate("getComputedStyle(document.querySelector('figure')).backgroundColor")
        == "rgba(0, 0, 0, 0)"
    )
    assert "invert" in page.evaluate(
        "getComputedStyle(document.querySelector('figure .chart')).filter"
    )


def test_a_printed_page_has_whole_charts_and_no_folded_figures(page):
    page.emulate_media(color_scheme="light", media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= A4
    widths = page.eval_on_selector_all(
        ".chart svg.marks", "charts => charts.map((one) => one.getBoundingClientRect().width)"
    )
    assert len(widths) >= 2
    assert all(0 < width <= A4 for width in widths)
    tables = page.eval_on_selector_all(
        "table", "tables => tables.map((one) => one.getBoundingClientRect().right)"
    )
    assert max(tables) <= A4
    page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = false })")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.eval_on_selector_all("details", "all => all.every((one) => one.open)")
    pdf = page.pdf(prefer_css_page_size=True)
    assert (
        pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page/") + pdf.count(b"/Type /Page ") <= 7
    )
