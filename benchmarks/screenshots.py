"""Recreate the images of the docs: screenshots of the leaderboard, and position charts.

Usage: python benchmarks/screenshots.py RESULTS

RESULTS is a folder with results of BM25 and MiniLM on PosIR-Mini.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

import posir
from posir_leaderboard.board.build import build_site
from posir_leaderboard.board.folder import create_server
from posir_published.rows import find_curve
from posir_tasks.display.position_charts import (
    MARK_STYLES,
    NARROW,
    PositionChart,
    draw_position_charts,
)
from posir_tasks.values.estimates import Estimate
from tests.support.browser import CHROMIUM

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PUBLISHED_STATE = "benchmark=PosIR"
#: Page state, width, maximum height and theme by image name: published results, then own results.
PICTURES = {
    "leaderboard": (PUBLISHED_STATE, 980, 450, "light"),
    "leaderboard-dark": (PUBLISHED_STATE, 980, 450, "dark"),
    "leaderboard-narrow": (PUBLISHED_STATE, 358, 620, "light"),
    "leaderboard-dark-narrow": (PUBLISHED_STATE, 358, 620, "dark"),
    "leaderboard-own": ("", 1280, 760, "light"),
    "leaderboard-models": ("tab=models&length=all", 1280, 1050, "light"),
}
#: CSS that hides controls in images of published results.
STATIC_STYLE = """header, #controls, .bar, #answers, #measured, .select, .expand { display: none !important; }
.model-cell { grid-template-columns: 0 minmax(0, 1fr) !important; } .model-cell .model-name { grid-column: 2; }"""  # noqa: E501
#: Widths in pixels: the figure of the README, and a column on the first page of the site.
README_WIDTH, COLUMN_WIDTH = 500, 340
#: Model, task and length of a published curve. The model reads these documents completely.
PUBLISHED = "Qwen3-Embedding-4B", "PosIR-English", "Q4"


def take_screenshots(browser: Browser, address: str) -> None:
    """Write images of the leaderboard, which end below a row."""
    for name, (state, width, height, scheme) in PICTURES.items():
        page = browser.new_page(
            viewport={"width": width, "height": height},
            device_scale_factor=1.5,
            color_scheme=scheme,
            bypass_csp=True,
        )
        page.goto(f"{address}#{state}")
        page.wait_for_selector("html[data-ready]", state="attached")
        page.wait_for_selector("[aria-busy='true']", state="detached")
        page.locator(".results svg.strip:visible, .chart svg").first.wait_for()
        if state == PUBLISHED_STATE:
            page.add_style_tag(content=STATIC_STYLE)
        rows = [
            row.bounding_box()
            for row in page.locator(".results > tbody > tr").all()
            if state == PUBLISHED_STATE
        ]
        ends = [box["y"] + box["height"] for box in rows if box]
        height = int(max((end for end in ends if end <= height), default=height))
        page.screenshot(
            path=IMAGES / f"{name}.png", clip={"x": 0, "y": 0, "width": width, "height": height}
        )
        page.close()
        print(IMAGES / f"{name}.png")


def label_verdict(chart: PositionChart) -> str:
    """Return the verdict of a chart in a few words. Truncation is visible in the chart."""
    return chart.words[-1].rpartition("; ")[2].partition(":")[0].removeprefix("Has ")


def draw_figures(results: Path) -> None:
    """Write the position charts of README and site: all models in one image, and each model and a
    published model in an image.
    """
    charts = posir.read_results(results).position_charts()
    named_charts = [
        replace(chart, name=f"{chart.name}: {label_verdict(chart)}") for chart in charts
    ]
    model, task, length = PUBLISHED
    curve = find_curve(task, model, length)
    assert curve
    words = (
        f"Reads whole texts. Start minus end {100 * curve.start_to_end_unweighted:+.1f}, "
        "without an interval",
    )
    published = PositionChart(model, words, tuple(Estimate(mean) for mean in curve.ndcg_at_10))
    pictures = {
        "posir-mini": (named_charts, README_WIDTH),
        "posir-mini-narrow": (named_charts, NARROW),
    }
    # The text above the image contains the name.
    single_charts = {chart.name: replace(chart, name="") for chart in (*charts, published)}
    pictures |= {f"first-{name}": ([chart], COLUMN_WIDTH) for name, chart in single_charts.items()}
    for name, (picture_charts, width) in pictures.items():
        svg = draw_position_charts(picture_charts, width=width, explained=False)
        if name.startswith("first-"):
            svg = svg.replace(">start of documents<", ">start<")
        # The dark background of the site differs from that of reports.
        (IMAGES / f"{name}.svg").write_text(
            svg.replace(f".paper{{{MARK_STYLES['paper'][1]}}}", ".paper{fill:none}")
        )
        print(IMAGES / f"{name}.svg")


def main() -> None:
    """Build a leaderboard from the results, and write all images."""
    results = Path(sys.argv[1])
    draw_figures(results)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        build_site(results, Path(name) / "site", Path(name) / "cache")
        server = create_server(Path(name) / "site", 0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            take_screenshots(browser, f"http://127.0.0.1:{server.server_port}/")
        finally:
            browser.close()
            server.shutdown()


if __name__ == "__main__":
    main()
