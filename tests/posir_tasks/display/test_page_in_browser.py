"""The shell of all pages in a real browser: accessible, readable and without sideways scroll at any width."""

from __future__ import annotations

import pytest

from posir_tasks.display.charts import add_frame, build_chart, facet_panels
from posir_tasks.display.figures import Figure
from posir_tasks.display.presentation import TableResult
from posir_tasks.display.tables import Table, build_columns

axe = pytest.importorskip("axe_playwright_python.sync_playwright")
STATES = {
    "wide": {"viewport": {"width": 1400, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}},
    "narrow": {"viewport": {"width": 320, "height": 700}},
    "dark": {"viewport": {"width": 1400, "height": 900}, "color_scheme": "dark"},
    "forced colors": {"viewport": {"width": 390, "height": 844}, "forced_colors": "active"},
}
#: Pixels of the smallest text of a chart.
SMALLEST = """Math.min(...[...document.querySelectorAll("svg text")].filter((text) => text.textContent.trim()).map((text) => {
  const svg = text.ownerSVGElement;
  return parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
}))"""


def draw() -> list[Figure]:
    rows = [{"panel": panel, "x": x, "y": x / 4} for panel in ("first", "second") for x in range(4)]
    points = build_chart(rows).mark_point().encode(x="x:Q", y="y:Q")
    chart = facet_panels([points], ["first", "second"], 370, 190)
    return [Figure("rises", None, None, add_frame(chart, "It rises", "a model", "Points: values.", "Source: none."))]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    headings = [f"A long heading {number}" for number in range(12)]
    tables = [Table(build_columns(headings), (("value",) * 12,)) for _ in range(2)]
    page = tmp_path_factory.mktemp("page") / "page.html"
    shown = TableResult(title="Mine", sentences=["It rises by 3."], rows=(), tables=tables, draw=draw)
    page.write_text(shown.to_html(), encoding="utf-8")
    return page


@pytest.mark.parametrize("state", STATES)
def test_a_page_is_accessible_and_readable_in_every_state(browser, file, state):
    page = browser.new_page(**STATES[state])
    page.goto(file.as_uri())
    page.wait_for_selector(".chart svg.marks")
    if STATES[state]["viewport"]["width"] < 400:
        page.wait_for_selector(".wide[tabindex]")
    assert [violation["id"] for violation in axe.Axe().run(page).response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(SMALLEST) >= 11
    assert "It rises by 3." in page.inner_text("main")
    page.close()
