"""The pictures of the docs, made anew: the leaderboard in Chromium, and the figure of the README.

Use: python benchmarks/screenshots.py RESULTS, a folder with results of BM25 and MiniLM on
PosIR-Mini
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
#: State of the page, width, most height and theme of each picture: the published results, then
#: one's own.
PICTURES = {
    "leaderboard": (PUBLISHED_STATE, 980, 450, "light"),
    "leaderboard-dark": (PUBLISHED_STATE, 980, 450, "dark"),
    "leaderboard-narrow": (PUBLISHED_STATE, 358, 620, "light"),
    "leaderboard-dark-narrow": (PUBLISHED_STATE, 358, 620, "dark"),
    "leaderboard-own": ("", 1280, 760, "light"),
    "leaderboard-models": ("tab=models&length=all", 1280, 1050, "light"),
}
#: A picture of the published results is no page: it has nothing to be clicked.
STILL = """header, #controls, .bar, #answers, #measured, .select, .expand { display: none !important; }
.model-cell { grid-template-columns: 0 minmax(0, 1fr) !important; } .model-cell .model-name { grid-column: 2; }"""  # noqa: E501
#: Pixels of the figure of README, and of those beside each other on the site's first page.
MIDDLE, THIRD = 500, 340
#: A published curve of a model that reads all of these documents: name, task and length.
PUBLISHED = "Qwen3-Embedding-4B", "PosIR-English", "Q4"


def photograph(browser: Browser, address: str) -> None:
    """Write the pictures of the leaderboard: the published results in both themes, and of a phone;
    each ends below a row.
    """
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
            page.add_style_tag(content=STILL)
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


def label_verdict(strip: PositionChart) -> str:
    """Return the verdict of a strip in a few words; what is truncated is in the picture itself."""
    return strip.words[-1].rpartition("; ")[2].partition(":")[0].removeprefix("Has ")


def draw_figures(results: Path) -> None:
    """Write the pictures of README and site: the models on PosIR-Mini below each other, and alone,
    and a published one.
    """
    strips = posir.read_results(results).position_charts()
    named = [replace(strip, name=f"{strip.name}: {label_verdict(strip)}") for strip in strips]
    model, task, length = PUBLISHED
    curve = find_curve(task, model, length)
    assert curve
    words = (
        f"Reads whole texts. Start minus end {100 * curve.start_to_end_unweighted:+.1f}, "
        "without an interval",
    )
    published = PositionChart(model, words, tuple(Estimate(mean) for mean in curve.ndcg_at_10))
    pictures = {"posir-mini": (named, MIDDLE), "posir-mini-narrow": (named, NARROW)}
    # Without a name: it begins the sentence above the picture.
    alone = {strip.name: replace(strip, name="") for strip in (*strips, published)}
    pictures |= {f"first-{name}": ([strip], THIRD) for name, strip in alone.items()}
    for name, (shown, width) in pictures.items():
        svg = draw_position_charts(shown, width=width, explained=False)
        if name.startswith("first-"):
            svg = svg.replace(">start of documents<", ">start<")
        # On pages whose dark color is another one than that of reports.
        (IMAGES / f"{name}.svg").write_text(
            svg.replace(f".paper{{{MARK_STYLES['paper'][1]}}}", ".paper{fill:none}")
        )
        print(IMAGES / f"{name}.svg")


def main() -> None:
    """Build the leaderboard of the results and write all pictures."""
    results = Path(sys.argv[1])
    draw_figures(results)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        build_site(results, Path(name) / "site", Path(name) / "cache")
        server = create_server(Path(name) / "site", 0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            photograph(browser, f"http://127.0.0.1:{server.server_port}/")
        finally:
            browser.close()
            server.shutdown()


if __name__ == "__main__":
    main()
