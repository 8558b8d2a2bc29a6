"""Measure the response times of a large leaderboard for first use, sorting, filtering and other
views, and the bytes transferred before first use.

The site is built from synthetic records, served locally, and opened in headless Chromium. Bytes
are those of compressed files, as a Space sends them.

Usage: python benchmarks/leaderboard_page.py [MODELS [TASKS]], by default 500 and 30
"""

from __future__ import annotations

import gzip
import resource
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from posir_leaderboard.board.folder import create_server, write_site
from posir_leaderboard.board.groups import list_builtin_groups
from posir_leaderboard.board.site import bundle_table_library, render_site
from posir_tasks.display.chart_library import load_chart_library
from tests.support.board import fake_model, fake_record
from tests.support.browser import CHROMIUM

RUNS = 7
#: Resolves in the task after the next frame, when the result of an action has been painted.
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
#: Script that records the time at which the page becomes usable.
WATCH = f"""
new MutationObserver(async () => {{
  if ("ready" in document.documentElement.dataset && !window.usable) {{
    window.usable = -1;
    await ({PAINTED})();
    window.usable = performance.now();
  }}
}}).observe(document, {{ subtree: true, attributes: true, attributeFilter: ["data-ready"] }});
"""
ACTIONS = {
    "sort by Q4": "document.querySelector('th.q4').click()",
    "sort by name": "document.querySelector('th.label').click()",
    "sort by nDCG@10": "document.querySelector('th.score').click()",
    "search by name": "Object.assign(search, { value: 'model-1' }).dispatchEvent(new "
    "Event('input', { bubbles: true }))",
    "search for all": "Object.assign(search, { value: '' }).dispatchEvent(new Event('input', { "
    "bubbles: true }))",
    "filter by kind": "Object.assign(kind, { value: 'Sparse' }).dispatchEvent(new "
    "Event('change', { bubbles: true }))",
    "reset filters": "reset.click()",
    "another length": "document.querySelector('[name=length][value=Q1]').click()",
    "long documents": "document.querySelector('[name=length][value=Q4]').click()",
    "quality and position": "document.getElementById('tab-chart').click()",
    "three models": "document.getElementById('tab-models').click()",
    "their other length": "document.querySelector('[name=length][value=Q1]').click()",
    "their long documents": "document.querySelector('[name=length][value=Q4]').click()",
    "table": "document.getElementById('tab-table').click()",
}


def write_leaderboard(folder: Path, models: int, tasks: int) -> None:
    """Write a site with synthetic records."""
    groups = list_builtin_groups()
    names = [task for group in groups for task in group.labels][:tasks]
    records = (
        fake_record(model, task, 1000 * number + index)
        for number, model in enumerate(map(fake_model, range(models)))
        for index, task in enumerate(names)
    )
    start = time.process_time()
    site = render_site(
        records, groups, {"datatables": bundle_table_library(), "vega": load_chart_library()}
    )
    write_site(site, folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"site: {len(site)} files, {sum(map(len, site.values())) / 1e6:.0f} MB, in "
        f"{time.process_time() - start:.1f} s of CPU time, peak memory {peak:.2f} GB"
    )


def measure_first_use(browser: Browser, address: str) -> tuple[float, float]:
    """Measure milliseconds and kilobytes until the page is usable, in a new browser context."""
    context = browser.new_context()
    page = context.new_page()
    sent: list[float] = []
    page.on("response", lambda answer: sent.append(len(gzip.compress(answer.body())) / 1000))
    page.add_init_script(WATCH)
    page.goto(address)
    page.wait_for_function("window.usable > 0")
    usable = float(page.evaluate("window.usable"))
    page.wait_for_load_state("networkidle")
    context.close()
    return usable, sum(sent)


def time_to_paint(page: Page, action: str) -> float:
    """Measure the milliseconds from an action until its changes are painted, including the URL and
    loaded data.
    """
    return float(
        page.evaluate(
            f"""async () => {{
              const [start, before] = [performance.now(), location.hash];
              {action};
              while (location.hash === before || document.getElementById("main").ariaBusy === "true")
                await new Promise((done) => setTimeout(done));
              await ({PAINTED})();
              return performance.now() - start;
            }}"""  # noqa: E501
        )
    )


def read_main_thread_time(session: CDPSession) -> float:
    """Read the CPU time of the page's main thread in milliseconds, which does not depend on other
    programs.
    """
    metrics = session.send("Performance.getMetrics")["metrics"]
    return 1000 * next(
        float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration"
    )


def time_to_appear(page: Page, action: str, selector: str) -> float:
    """Measure the milliseconds from an action until an element appears."""
    start = time.perf_counter()
    page.evaluate(action)
    page.wait_for_selector(selector)
    return (time.perf_counter() - start) * 1000


def print_times(name: str, values: list[float], unit: str = "ms") -> None:
    print(
        f"{name:22s} median {statistics.median(values):7.1f} {unit}, maximum {max(values):7.1f} "
        f"{unit} of {len(values)}"
    )


def measure_actions(browser: Browser, address: str) -> None:
    """Print the response times of all actions."""
    first_uses = [measure_first_use(browser, address) for _ in range(RUNS)]
    print_times("first use", [usable for usable, _ in first_uses])
    print_times("sent before first use", [kilobytes for _, kilobytes in first_uses], "kB")
    page = browser.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    times, work = ({name: [] for name in ACTIONS} for _ in range(2))
    for _ in range(RUNS):
        for name, action in ACTIONS.items():
            before = read_main_thread_time(session)
            times[name].append(time_to_paint(page, action))
            work[name].append(read_main_thread_time(session) - before)
    for name, values in times.items():
        print_times(name, values)
        print_times("  CPU", work[name])
    print_times(
        "a model, first",
        [
            time_to_appear(
                page, "document.querySelector('.model-name').click()", "#panel-models .chart svg"
            )
        ],
    )


def main() -> None:
    """Build a leaderboard and measure it."""
    models, tasks = (int(given) for given in (sys.argv[1:] + ["500", "30"][len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        write_leaderboard(Path(name), models, tasks)
        server = create_server(Path(name), 0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            measure_actions(browser, f"http://127.0.0.1:{server.server_port}/")
        finally:
            browser.close()
            server.shutdown()


if __name__ == "__main__":
    main()
