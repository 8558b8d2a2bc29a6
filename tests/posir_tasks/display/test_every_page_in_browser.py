"""Every kind of page in a real browser: accessible, legible, without sideways scroll, silent on the console."""

from __future__ import annotations

import pytest

import posir
from tests.leaderboard.test_board import profile
from tests.posir_tasks.display.test_page_in_browser import SMALLEST, axe
from tests.support.results import write_result

pytestmark = pytest.mark.slow
STATES = {
    "light": {"color_scheme": "light", "forced_colors": "none"},
    "dark": {"color_scheme": "dark", "forced_colors": "none"},
    "forced": {"color_scheme": "light", "forced_colors": "active"},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for seed, model in enumerate(("org/first", "org/second")):
        write_result(folder, {"sports": profile(seed)}, model=model)
    return folder


BUILDERS = {
    "report": lambda results: posir.read_results(results).to_html(),
    "stats": lambda _: posir.stats("PosIR-Mini").to_html(),
    "published": lambda _: posir.published().to_html(),
    "power": lambda _: posir.power(psi=0.3).to_html(),
}


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_page_is_accessible_legible_and_silent(kind, results, browser, tmp_path):
    file = tmp_path / f"{kind}.html"
    file.write_text(BUILDERS[kind](results), encoding="utf-8")
    page, console = browser.new_page(viewport={"width": 390, "height": 844}), []
    page.on("console", lambda message: console.append(message.text))
    page.goto(file.as_uri())
    charts = page.locator(".chart").count()
    if charts:
        page.locator(".chart svg.marks").first.wait_for()
        assert page.evaluate(SMALLEST) >= 11
    for media in STATES.values():
        page.emulate_media(**media)
        assert [violation["id"] for violation in axe.Axe().run(page).response["violations"]] == []
    page.set_viewport_size({"width": 320, "height": 700})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.emulate_media(media="print", color_scheme="light", forced_colors="none")
    assert page.locator("h1").bounding_box()["y"] < 200
    assert not [line for line in console if "WARN" in line or "rror" in line]
    page.close()
