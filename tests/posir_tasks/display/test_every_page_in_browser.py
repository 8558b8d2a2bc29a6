"""Check all kinds of pages in a browser: accessibility, text size, scrolling and console errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import posir
from posir_build.api import BuildReport
from posir_build.stage_report import StageRow
from posir_mitigate.api import present_trials
from posir_probe.probing import build_builtin_probes
from posir_probe.tables import build_measurements
from posir_report.summary import summarize
from posir_train.measurement import Measurement
from posir_train.report import assemble_report
from tests.leaderboard.test_board import profile
from tests.plugins.posir_inspect.test_inspection import run as inspect_texts
from tests.plugins.posir_mitigate.test_mitigate_command import build_trial
from tests.plugins.posir_probe.test_tables import measure
from tests.support.datasets import posir_tables, write_domain
from tests.support.models import write_tiny_model
from tests.support.probed_encoders import FirstWords, invent_texts
from tests.support.results import write_result

axe = pytest.importorskip("axe_playwright_python.sync_playwright")
#: Combinations of color scheme and forced colors.
STATES = [("light", "none"), ("dark", "none"), ("light", "active")]
#: Minimum text size of charts in pixels.
SMALLEST = """Math.min(...[...document.querySelectorAll("svg text")].filter((text) => text.getClientRects().length)
.map((text) => {
  const svg = text.ownerSVGElement;
  return parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
}))"""  # noqa: E501


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for seed, model in enumerate(("org/first", "org/second")):
        for task in ("PosIR-English", "SQuAD-PosQ", "SQuAD-PosQ-Tiny"):
            write_result(folder, {"sports": profile(seed)}, model=model, task=task)
    return folder


def report_models(folder):
    """Report two models on a task, and one on another; axe takes as long as the page is large."""
    for seed, model in enumerate(("org/first", "org/second")):
        write_result(folder, {"sports": profile(seed)}, model=model)
    write_result(folder, {"sports": profile(2)}, model="org/first", task="SQuAD-PosQ")
    return posir.read_results(folder).to_html()


def report_training(results):
    """Report a training run with the first model as base and the second as the trained model."""
    measurements = [
        Measurement(summary.values, 0.1)
        for summary in summarize(posir.read_results(results))
        if summary.task == "PosIR-English"
    ]
    return assemble_report(
        "all-MiniLM-L6-v2, trained on uniform",
        Path("trained"),
        (),
        ("20 steps.",),
        measurements=measurements,
        settings={"seed": 1},
        footer="trained",
        commands=("posir train",),
    )


def compare_models(folder):
    for model in ("org/first", "org/second"):
        write_result(folder, {"sports": profile(0)}, model=model)
    return posir.compare(folder)


def compare_domains(folder):
    for domain in ("sports", "law"):
        write_domain(folder / "data", posir_tables(), domain=domain)
    model = write_tiny_model(folder / "tiny")
    return posir.domain_similarity(str(model), data=folder / "data", output=folder / "domains")


STAGES = (
    StageRow("sample", "documents", 30, 20, {"too short": 10}),
    StageRow("verify", "questions", 20, 12, {"no span": 8}),
)


BUILDERS = {
    "compare": lambda results: compare_models(results.parent / "comparison").to_html(),
    "build": lambda results: BuildReport(
        title="Build of sports",
        rows=STAGES,
        notes=("One note.",),
        datasets={},
        folder=results,
    ).to_html(),
    "correlate": lambda _: posir.correlate(architecture=True, published=True).to_html(),
    "subset_validity": lambda results: posir.subset_validity(results).to_html(),
    "domain_similarity": lambda results: compare_domains(results.parent / "similarity").to_html(),
    "inspect": lambda _: inspect_texts(FirstWords(words=60), invent_texts(60, 15)).to_html(),
    "mitigate": lambda _: present_trials(
        "org/first", (build_trial("plain"), build_trial("chunks(64)", 0.7)), ()
    ).to_html(),
    "probe": lambda _: build_measurements(
        [measure(probe.name) for probe in build_builtin_probes() if not probe.is_variant], Path()
    ).to_html(),
    "train": lambda results: report_training(results).to_html(),
    "report": lambda results: report_models(results.parent / "report"),
    "stats": lambda _: posir.stats("PosIR-Mini").to_html(),
    "published": lambda _: posir.published().to_html(),
    "power": lambda _: posir.power(difference=8).to_html(),
}

#: The first chart may be in nested folded sections.
FOLD_CHART = (
    "for (let at = document.querySelector('.chart'); at; at = at.parentElement) if "
    "(at.matches('details')) at.open = {}"
)


@pytest.mark.parametrize(
    "kind",
    [
        "compare",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in BUILDERS if kind != "compare"),
    ],
)
def test_a_page_is_accessible_and_legible_without_console_errors(kind, results, browser, tmp_path):
    file = tmp_path / f"{kind}.html"
    file.write_text(BUILDERS[kind](results), encoding="utf-8")
    page, console = browser.new_page(viewport={"width": 390, "height": 844}), []
    page.on("console", lambda message: console.append(message.text))
    page.goto(file.as_uri())
    page.evaluate(FOLD_CHART.format("true"))
    charts = page.locator(".chart").count()
    if charts:
        page.locator(".chart svg.marks").first.wait_for()
        assert page.evaluate(SMALLEST) >= 12
    for scheme, forced in STATES:
        page.emulate_media(color_scheme=scheme, forced_colors=forced)
        assert [violation["id"] for violation in axe.Axe().run(page).response["violations"]] == []
    for width in (1400, 320):
        page.set_viewport_size({"width": width, "height": 700})
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(FOLD_CHART.format("false"))
    folded = page.locator("details.folded > :last-child")
    assert not any(part.is_visible() for part in folded.all())
    page.emulate_media(media="print", color_scheme="light", forced_colors="none")
    # Lists keep the rows of the screen.
    rows = "details.row > :last-child, details:has(> details.row) > :last-child"
    assert not any(part.is_visible() for part in page.locator(rows).all())
    assert all(
        part.is_visible()
        for part in page.locator("details.folded:not(.row, :has(> .row)) > :last-child").all()
    )
    assert page.locator("h1").bounding_box()["y"] < 200
    assert not [line for line in console if "WARN" in line or "rror" in line]
    page.close()
