"""Response times of a large leaderboard: first use, sorting, filtering, other views; and bytes
transferred before first use.

The site is built from synthetic records, served by a local server, and opened in headless
Chromium. Bytes are those of compressed files, as a Space sends them.

Use: python benchmarks/leaderboard_page.py [MODELS [TASKS]], by default 500 and 30
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
from posir_leaderboard.board.site import bundle_chart_library, bundle_table_library, render_site
from tests.support.board import fake_model, fake_record
from tests.support.browser import CHROMIUM

RUNS = 7
#: Resolves when the result of an action has been painted: the task after the frame.
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
#: Records when the page is first usable.
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


def write(folder: Path, models: int, tasks: int) -> None:
    """Write a site with synthetic records."""
    groups = list_builtin_groups()
    names = [task for group in groups for task in group.labels][:tasks]
    records = (
        fake_record(model, task, 1000 * number + at)
        for number, model in enumerate(map(fake_model, range(models)))
        for at, task in enumerate(names)
    )
    start = time.process_time()
    site = render_site(
        records, groups, {"datatables": bundle_table_library(), "vega": bundle_chart_library()}
    )
    write_site(site, folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"site: {len(site)} files, {sum(map(len, site.values())) / 1e6:.0f} MB, in "
        f"{time.process_time() - start:.1f} s of processor time, at most {peak:.2f} GB of memory"
    )


def first_use(browser: Browser, address: str) -> tuple[float, float]:
    """Return the milliseconds and kilobytes until the page is usable, in a new browser context."""
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
    """Return the milliseconds from an action until its changes, including the address and loaded
    data, are painted.
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


def main_thread(session: CDPSession) -> float:
    """Return the milliseconds of CPU time that the page's main thread has worked, which other
    programs do not lengthen.
    """
    metrics = session.send("Performance.getMetrics")["metrics"]
    return 1000 * next(
        float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration"
    )


def time_to_appear(page: Page, action: str, selector: str) -> float:
    """Return the milliseconds from an action until an element that it loads is present."""
    start = time.perf_counter()
    page.evaluate(action)
    page.wait_for_selector(selector)
    return (time.perf_counter() - start) * 1000


def print_times(name: str, values: list[float], unit: str = "ms") -> None:
    print(
        f"{name:22s} median {statistics.median(values):7.1f} {unit}, maximum {max(values):7.1f} "
        f"{unit} of {len(values)}"
    )


def visit(browser: Browser, address: str) -> None:
    """Print the response times of all actions."""
    visits = [first_use(browser, address) for _ in range(RUNS)]
    print_times("first use", [usable for usable, _ in visits])
    print_times("sent before first use", [kilobytes for _, kilobytes in visits], "kB")
    page = browser.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    times, work = ({name: [] for name in ACTIONS} for _ in range(2))
    for _ in range(RUNS):
        for name, action in ACTIONS.items():
            before = main_thread(session)
            times[name].append(time_to_paint(page, action))
            work[name].append(main_thread(session) - before)
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
        write(Path(name), models, tasks)
        server = create_server(Path(name), 0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            visit(browser, f"http://127.0.0.1:{server.server_port}/")
        finally:
            browser.close()
            server.shutdown()


if __name__ == "__main__":
    main()
