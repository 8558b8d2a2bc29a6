"""Test the leaderboard page in a browser."""

import csv
import io
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from posir_leaderboard.board import records as recording
from posir_leaderboard.board.comparable import separate_data
from posir_leaderboard.board.folder import create_server, write_site
from posir_leaderboard.board.groups import list_builtin_groups
from posir_leaderboard.board.records import BoardRecord
from posir_leaderboard.board.site import render_site
from posir_leaderboard.entries import read_entries
from posir_report.columns import list_score_columns
from posir_significance.findings import State
from posir_significance.messages.verdicts import name_state
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import ScoreInfo, Unit
from tests.leaderboard.test_board import simulate_ranks
from tests.support.board import (
    GROUPS,
    contents,
    fake_model,
    fake_record,
    hostile_names,
    length_columns,
    libraries,
)
from tests.support.board import published as published_results
from tests.support.browser import CHROMIUM
from tests.support.results import write_result

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
expect.set_options(timeout=20_000)
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

TASKS = ("PosIR-English", "PosIR-German", "PosIR-Hindi")
#: Number of rows on a page of the table.
PAGE = 20
MODELS = 120
#: Status of the page if all models are shown.
EVERY = f"{MODELS} models"
#: Labels of states.
NAMES = {state: name_state(state, 0.05) for state in State}
#: State of the page: the average, in long documents.
AVERAGED = "data=PosIR&length=Q4"
#: Records violations of the page's security policy, and scripts injected by names.
WATCH = """
window.forbidden = [];
document.addEventListener("securitypolicyviolation", (event) => window.forbidden.push(event.violatedDirective));
window.alert = () => window.forbidden.push("alert");
"""  # noqa: E501
#: Resolves once the page has drawn pending changes.
PAINTED = "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with create_server(folder, 0) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def write_board(folder: Path, records, groups=GROUPS) -> Path:
    write_site(render_site(records, groups, libraries()), folder)
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    models = [
        fake_model(number, name="local/model-50-" if number == 50 else None)
        for number in range(MODELS)
    ]
    records = [
        fake_record(model, task, 10 * number + at, detail=number < 12)
        for number, model in enumerate(models)
        for at, task in enumerate(TASKS)
        if (number, task) != (20, "PosIR-German")
    ]
    for index, record in enumerate(records):
        if record.model is models[30]:
            unknown = dict.fromkeys(
                (
                    "position_effect",
                    "position_effect_in_window",
                    "unread_share",
                    "psi_by_chance",
                    "state",
                )
            )
            rows = tuple(replace(row.with_scores(**unknown), findings=None) for row in record.rows)
            records[index] = replace(record, model=replace(record.model, published=True), rows=rows)
        elif record.model is models[40]:
            records[index] = replace(record, partial="3 of 31 subsets")
    return write_board(tmp_path_factory.mktemp("board"), records)


@pytest.fixture(scope="session")
def address(folder) -> Iterator[str]:
    with served(folder) as url:
        yield url


@pytest.fixture(scope="session")
def data(folder) -> dict:
    return contents(
        {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.js")}
    )


class Visit:
    def __init__(self, browser, **options) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.add_init_script(WATCH)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console", lambda said: self.errors.append(said.text) if said.type == "error" else None
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def go(self, address: str) -> "Visit":
        self.page.goto("about:blank")
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]", state="attached")
        return self

    def to(self, state: str) -> None:
        self.page.evaluate(f"(state) => {{ location.hash = state; return {PAINTED}; }}", state)

    def settle(self) -> None:
        self.page.wait_for_selector("[aria-busy='true']", state="detached")
        self.page.evaluate(
            "Promise.allSettled(document.getAnimations().map((one) => one.finished)).then(() => "
            "null)"
        )

    def column(self, name: str) -> list[str]:
        """Return the texts of a column, without text that is only for screen readers."""
        return self.page.eval_on_selector_all(
            f"#table tbody td.{name}",
            "cells => cells.map(cell => (cell.querySelector('.value') ?? cell).innerText.trim())",
        )

    def names(self) -> list[str]:
        return self.page.locator("#table .model-name").all_text_contents()

    def state(self) -> dict[str, str]:
        # Playwright's `page.url` is updated a moment later.
        fragment = self.page.evaluate(f"{PAINTED}.then(() => location.hash.slice(1))")
        return {name: values[0] for name, values in parse_qs(fragment).items()}

    def status(self) -> str:
        return self.page.inner_text("#status")

    def assert_nothing_went_wrong(self) -> None:
        forbidden = self.page.evaluate("window.forbidden")
        assert (self.errors, forbidden) == ([], [])
        own = ("http://127.0.0.1:", "file:", "about:", "data:", "blob:")
        assert [url for url in self.requests if not url.startswith(own)] == []

    def forget(self) -> None:
        """Forget everything except what the browser has compiled."""
        self.page.unroute_all()
        self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        self.page.goto("about:blank")
        self.requests.clear()
        self.errors.clear()


@pytest.fixture(scope="session")
def shared_visit(browser) -> Visit:
    """The first visit of each test: a new context takes longer than most tests."""
    return Visit(browser)


@pytest.fixture
def visit(browser, request):
    """Begin a visit. Only the first one without options shares its context, with other tests."""
    shared = []
    own = []

    def begin(**options) -> Visit:
        if options or shared:
            own.append(Visit(browser, **options))
            return own[-1]
        shared.append(request.getfixturevalue("shared_visit"))
        return shared[0]

    yield begin
    for visit in own:
        visit.assert_nothing_went_wrong()
        visit.context.close()
    for visit in shared:
        try:
            visit.assert_nothing_went_wrong()
        finally:
            visit.forget()


def parse_numbers(texts: list[str]) -> list[float]:
    return [float(text) for text in texts if text != "–"]


# The table


def test_rank_ranges_follow_the_order_and_missing_are_last(visit, address, data):
    view = length_columns(data, data["board"]["groups"][0]["views"][0]["file"], "Q4")
    page = visit().go(f"{address}#{AVERAGED}")
    for sort, scores in (("-score", "score"), ("psi", "psi_as_published")):
        page.to(f"{AVERAGED}&sort={sort}")
        known = [
            (score, rank)
            for score, rank in zip(view[scores], view["rank"], strict=True)
            if score is not None
        ]
        known.sort(key=lambda pair: pair[0], reverse=sort.startswith("-"))
        expected = [
            "–" if not rank else "–".join(map(str, dict.fromkeys(rank))) for _, rank in known[:PAGE]
        ]
        assert page.column("rank") == expected
        assert any("–" in rank[1:] for rank in expected), (
            "models that cannot be told apart share a range"
        )
    for sort in ("score", "-score", "psi", "-psi"):
        page.to(f"{AVERAGED}&sort={sort}&page={MODELS // PAGE}")
        *known, last, missing = page.column(sort.removeprefix("-"))
        assert (last, missing, "–" in known) == ("–", "–", False), sort


def test_every_filter_shows_exactly_the_matching_models(visit, address, data):
    models = data["board"]["models"]
    every = [
        dict(zip(models, values, strict=True)) for values in zip(*models.values(), strict=True)
    ]
    page = visit().go(address)
    for filters, passes in {
        "kind=Sparse": lambda model: model["kind"] == "Sparse",
        "size=500M to 1B": lambda model: 5e8 <= model["parameters"] < 1e9,
        "weights=false": lambda model: model["open_weights"] is False,
        "window=up to 512": lambda model: model["window"] <= 512,
        "window=8k and more": lambda model: model["window"] >= 8_000,
        "dimensions=513 to 1,024": lambda model: 513 <= model["dimensions"] <= 1_024,
        "license=mit": lambda model: model["license"] == "mit",
        "source=published": lambda model: model["published"],
        "search=MODEL-49": lambda model: "model-49" in model["name"],
        "kind=Dense&weights=true": lambda model: model["kind"] == "Dense" and model["open_weights"],
    }.items():
        page.to(filters.replace(" ", "+"))
        expected = {model["name"] for model in every if passes(model)}
        assert expected
        assert page.status() == f"{len(expected)} of {EVERY}"
        assert set(page.names()) <= expected
        assert len(page.names()) == min(len(expected), PAGE)


def test_row_has_state_filter_and_answer(visit, address, data):
    view = next(
        view for view in data["board"]["groups"][0]["views"] if view["name"] == "PosIR-English"
    )
    columns = data[f"views/{view['file']}"]["columns"]
    counts = Counter(state for states in columns["states"] for state in states or ())
    assert {*counts} == {*State} - {State.FAVORS_END}
    page = visit().go(f"{address}#data=PosIR-English&bias={State.FAVORS_START}")
    assert page.status() == f"{counts[State.FAVORS_START]} of {EVERY}"
    chips = page.locator(f"td.verdict .state.{State.FAVORS_START.replace('_', '-')}")
    assert set(chips.all_inner_texts()) == {NAMES[State.FAVORS_START]}
    assert chips.count() == min(counts[State.FAVORS_START], PAGE)
    assert chips.first.get_attribute("title") in columns["answer"]
    at = columns["states"].index([State.FAVORS_START])
    assert columns["position_effect_in_window_low"][at] > 0
    assert page.locator("td.verdict .ends").first.inner_text().startswith("+")
    assert page.locator("td.curve .unread").first.inner_text() == "25% truncated"
    page.click("#table .expand >> nth=0")
    expect(page.locator("#table .detail .parts dt")).to_have_text(
        ["Truncated", "Bias within the window", "Next"]
    )
    page.select_option("#bias", State.NO_BIAS)
    assert set(page.locator("td.verdict .state").all_inner_texts()) == {NAMES[State.NO_BIAS]}
    page.select_option("#bias", State.NOT_TESTED)
    assert set(page.locator("td.verdict .state").all_inner_texts()) == {NAMES[State.NOT_TESTED]}
    expect(page.locator("#untested")).to_contain_text("neither windows nor texts")
    page.select_option("#bias", "")
    expect(page.locator("#lead")).to_contain_text(f"{counts[State.NO_BIAS]} {NAMES[State.NO_BIAS]}")


@pytest.mark.slow
def test_filtering_by_hand_and_resetting(visit, address):
    page = visit().go(address)
    page.fill("#search", "model-7-")
    assert page.names() == ["org7/model-7-base"]
    page.fill("#search", "no such model")
    assert "No model passes these filters." in page.inner_text("#finding")
    page.click("#more")
    page.select_option("#kind", "Sparse")
    assert page.state() == {"search": "no such model", "kind": "Sparse"}
    page.click("#reset")
    assert page.status() == EVERY
    assert page.state() == {}
    page.check("input[value=Q3]", force=True)
    page.select_option("#data", label=f"Hindi · {EVERY}")
    expect(page.locator("#finding")).to_contain_text("1,025 to 1,536 tokens")
    assert page.state() == {"data": "PosIR-Hindi", "length": "Q3"}


@pytest.mark.slow
def test_unranked_results_are_marked_and_can_be_hidden(visit, address):
    page = visit().go(f"{address}#data=PosIR-English&search=model-")
    for number, mark in ((30, "published"), (50, "local"), (40, "partial: 3 of 31 subsets")):
        page.fill("#search", f"model-{number}-")
        assert page.inner_text("#table .marks").startswith(mark)
    assert page.column("rank") == ["–"]
    assert "1 result is not comparable" in page.inner_text("#unranked")
    page.click("#unranked button")
    assert page.names() == []
    assert page.state()["unranked"] == "hidden"
    page.go(f"{address}#data=PosIR&search=model-20-")
    assert page.inner_text("#table .marks").startswith("partial: 1 of 2 tasks")
    assert page.column("score") == ["–"]


# Columns follow from the declarations


@pytest.mark.slow
def test_headers_follow_from_the_declarations(visit, tmp_path, monkeypatch):
    share = ScoreInfo(
        "rank",
        "First, <b>share",
        "Share of queries.",
        unit=Unit.PERCENT,
        citation="Doe 2026",
        interval=True,
    )
    unfilled = ScoreInfo("never_filled", "Never", "Never filled.")
    monkeypatch.setattr(
        recording, "list_score_columns", lambda: [*list_score_columns(), share, unfilled]
    )
    recording.list_board_columns.cache_clear()
    records = [
        fake_record(fake_model(number), "PosIR-English", number, detail=False)
        for number in range(3)
    ]
    for index, record in enumerate(records):
        value = Estimate((index + 1) / 10, (0.0, 1.0))
        records[index] = replace(
            record, rows=tuple(row.with_scores(rank=value) for row in record.rows)
        )
    folder = write_board(
        tmp_path, [*records, fake_record(fake_model(9), "PosIR-Mini", 9, detail=False)]
    )
    recording.list_board_columns.cache_clear()
    with served(folder) as address:
        page = visit().go(f"{address}#data=PosIR-English&sort=-scores.rank")
        header = page.locator("th.scores-rank")
        expect(header).to_have_text("First, <b>share")
        expect(header).to_have_attribute("title", "Share of queries. Doe 2026.")
        expect(header).to_have_attribute("aria-sort", "descending")
        assert page.column("scores-rank") == ["30.0", "20.0", "10.0"]
        assert page.locator("td.scores-rank").first.inner_text().endswith("[0.0, 100.0]")
        titles = page.locator("th .dt-column-title").all_text_contents()
        assert titles.index("First, <b>share") == titles.index("PSI") + 1
        assert "Never" not in titles
        declared = {column.key: column for column in list_score_columns()}
        for css, key in (
            ("score", "ndcg_at_10"),
            ("effect", "position_effect"),
            ("verdict", "state"),
            ("psi", "psi_as_published"),
        ):
            header = page.locator(f"th.{css}")
            title = header.locator(".dt-column-title").text_content()
            assert title == declared[key].title.removesuffix(" (as published)")
            assert declared[key].description in header.get_attribute("title")
        page.check("input[value='PosIR-Mini']", force=True)
        expect(page.locator("th.scores-rank")).to_have_count(0)


# The first screen


def test_the_first_screen_answers_the_question(visit, address, data):
    """It shows curves, lengths, verdicts, and computed answers that link to their state."""
    view = data[f"views/{data['board']['groups'][0]['views'][0]['file']}"]
    page = visit().go(f"{address}#{AVERAGED}")
    assert list_labels(page)
    assert all(": nDCG@10 from start to end " in label for label in list_labels(page))
    names = ("q1", "q2", "q3")
    assert [page.inner_text(f"th.{name} .tokens") for name in names] == [
        "≤ 512",
        "≤ 1,024",
        "≤ 1,536",
    ]
    names = [NAMES[state] for state in (State.FAVORS_START, State.INCONCLUSIVE, State.NO_BIAS)]
    alike = {f"{name} in 2 of 2" for name in names}
    mixed = {f"{first} in 1, {second} in 1 of 2" for first, second in permutations(names, 2)}
    states = set(page.locator("td.verdict .state").all_inner_texts())
    # A published result is not tested.
    assert states <= alike | mixed | {NAMES[State.NOT_TESTED]}
    best = max(score for score in view["scores"]["Q4"] if score is not None)
    text = page.inner_text("#finding")
    assert text.endswith(f" to {100 * best:.1f}")
    assert " cannot be told apart in long documents: nDCG@10 " in text
    page.check("input[value=all]", force=True)
    expect(page.locator("#finding")).to_contain_text(" on PosIR: nDCG@10 ")
    answers = page.locator("#answers .question").all_inner_texts()
    assert answers[:2] == ["Loses least from short to long", "Best with a window of 8k or more"]
    provenance = page.text_content("#provenance")
    assert "main (" in provenance
    assert "2026-01-31 according to its file" in provenance
    page.check("input[value=Q4]", force=True)
    assert page.state() == {"data": "PosIR", "length": "Q4"}
    expect(page.locator("th.score .tokens")).to_have_text("in Q4")
    expect(page.locator("th.score .dt-column-title")).to_have_text("nDCG@10")
    page.click("#answers .answer:has-text('short to long')")
    assert page.state() == {"data": "PosIR", "length": "Q4", "sort": "-change"}
    assert page.column("change")[0].startswith(("+", "-", "0.0"))
    page.fill("#search", "base 7-")
    assert page.names()
    assert all("7-" in name and "base" in name for name in page.names()), (
        "every word is in the name"
    )


# Links


def test_link_restores_the_state(visit, address):
    page = visit().go(address)
    page.select_option("#data", label=f"German · {MODELS - 1} models")
    page.settle()
    page.check("input[value=Q2]", force=True)
    page.click("#more")
    page.select_option("#weights", "true")
    page.fill("#search", "model-1")
    for direction in ("descending", "ascending"):
        page.click("th.q4")
        expect(page.locator("th.q4")).to_have_attribute("aria-sort", direction)
    page.click(".pages button:text-is('2')")
    page.settle()
    for index in range(2):
        page.locator("#table td.select input").nth(index).check()
    page.click("#theme")
    before = (page.state(), page.names(), page.column("rank"), page.column("q4"), page.status())
    chosen = {
        "data": "PosIR-German",
        "length": "Q2",
        "weights": "true",
        "search": "model-1",
        "sort": "q4",
        "page": "2",
    }
    assert page.state() | {"models": ""} == chosen | {"models": "", "theme": "light"}
    again = visit().go(page.evaluate("location.href"))
    assert (
        again.state(),
        again.names(),
        again.column("rank"),
        again.column("q4"),
        again.status(),
    ) == before
    assert again.page.eval_on_selector_all("#table tr.selected", "rows => rows.length") == 2
    assert again.page.evaluate("document.documentElement.dataset.theme") == "light"
    assert again.page.input_value("#search") == "model-1"


@pytest.mark.slow
def test_history_and_links_to_unknown_choices(visit, address):
    page = visit().go(address)
    page.click("#table .model-name")
    page.wait_for_selector("#panel-models h2")
    page.go_back()
    page.wait_for_selector("#panel-table", state="visible")
    assert page.status() == EVERY
    page.go(
        f"{address}#benchmark=None&data=no&length=Q9&sort=constructor&page=99&models=zzz,<b>&tab=table&size=__proto__"
    )
    assert page.status() == f"0 of {EVERY}"
    notice = page.inner_text("#notice")
    for part in (
        "benchmark “None”; it shows PosIR",
        "data “no”",
        "length “Q9”; it shows all lengths",
        "filter “size”",
        "model “zzz”",
    ):
        assert f"This board has no {part}" in notice
    page.go(f"{address}#tab=constructor&page=-3")
    assert page.is_visible("#table table")


# One model, and several models


def list_first_ids(data, number: int) -> list[str]:
    models, names = data["board"]["models"], {fake_model(at).name for at in range(number)}
    return [
        identity
        for name, identity in zip(models["name"], models["id"], strict=True)
        if name in names
    ]


def wait_for_charts(page: Visit, number: int) -> None:
    expect(page.locator("#panel-models .chart svg")).to_have_count(number)


def test_page_of_one_model(visit, address, data):
    (identity,) = list_first_ids(data, 1)
    page = visit().go(f"{address}#{AVERAGED}")
    page.fill("#search", fake_model(0).name)
    assert not any("vega" in url or "/models/" in url for url in page.requests), (
        "detail is fetched when it is asked for"
    )
    page.click("#table .model-name")
    wait_for_charts(page, 1 + 1 + 1)
    titles = page.locator("#panel-models h2").all_inner_texts()
    assert titles == [
        "PosIR, average of 2 languages: by position of the evidence",
        "PosIR, average of 2 languages: by document length",
        "PosIR-English: by domain",
        "PosIR: by language and position",
        "PosIR: by language, Q4",
        fake_model(0).name,
        "Notes",
    ]
    page.click("#panel-models summary >> nth=0")
    panel = data[f"models/{identity}"]["averages"]["PosIR"]["panels"][4]
    cells = page.locator("#panel-models details").first.locator("tbody td:nth-child(4)")
    expect(cells).to_have_count(len(panel["ndcg_at_10"]))
    assert parse_numbers(cells.all_inner_texts()) == pytest.approx(
        [100 * score for score in panel["ndcg_at_10"]], abs=0.051
    )
    page.locator("#panel-models .chart >> nth=0 >> g.mark-symbol.role-mark path").nth(3).hover(
        force=True
    )
    score, low, high = (
        f"{100 * panel[name][3]:.1f}"
        for name in ("ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high")
    )
    for text in (
        f"nDCG@10{score}",
        f"95% interval[{low}, {high}]",
        f"Queries{panel['queries'][3]:,}",
    ):
        expect(page.locator(".vg-tooltip")).to_contain_text(text)
    assert (
        "20"
        in page.locator(
            "#panel-models .chart >> nth=0 >> g.role-axis-label text"
        ).all_text_contents()
    )
    page.select_option("#panel-models select", label="German")
    expect(page.locator("#panel-models h2").nth(2)).to_contain_text("PosIR-German")
    assert page.state()["task"] == "PosIR-German"
    page.check("input[value=Q3]", force=True)
    expect(page.locator("#panel-models .large figcaption")).to_contain_text("Q3")
    titles = page.locator("#panel-models h2").all_inner_texts()
    assert "PosIR: by language, Q3" in titles


def test_up_to_four_models_share_a_chart(visit, address, data):
    page = visit().go(f"{address}#tab=models")
    page.wait_for_selector("#panel-models .legend")
    assert page.locator("#panel-models .chips li").count() == 3, (
        "it opens with the first of the table"
    )
    page.go(f"{address}#search=model-")
    boxes = page.query_selector_all("#table td.select input")
    for box in boxes[:4]:
        box.check()
    assert boxes[4].is_disabled()
    assert "the most that can be compared" in boxes[4].get_attribute("title")
    boxes[3].uncheck()
    assert boxes[4].is_enabled()
    page.go(f"{address}#models={','.join(list_first_ids(data, 4)[:4])}")
    page.click("#tray > button")
    wait_for_charts(page, 1 + 1 + 4)
    assert page.locator("#panel-models .per-model caption bdi").count() >= 4
    assert page.locator("#panel-models .chart >> nth=0 >> g.mark-line path").count() == 4
    page.click("#panel-models .chip button >> nth=0")
    wait_for_charts(page, 1 + 1 + 3)
    page.fill("#panel-models .adder input", fake_model(5).name)
    wait_for_charts(page, 1 + 1 + 4)
    assert len(page.state()["models"].split(",")) == 4


def test_models_on_the_same_queries_are_compared_by_their_short_names(visit, tmp_path):
    rng = np.random.default_rng(0)
    gains = (rng.random((2, 400)) < [[0.5], [0.6]]).astype(int)
    for name, ranks in zip("ab", simulate_ranks(gains, np.arange(400)), strict=True):
        write_result(tmp_path / "results", {"sports": ranks}, model=f"org/{name}")
    entries, problems = read_entries(tmp_path / "results")
    assert problems == []
    records = [recording.score_task(recording.pool_subsets(entry)) for entry in entries]
    first, other = (record.model for record in records)
    with served(write_board(tmp_path / "site", records)) as address:
        page = visit().go(f"{address}#tab=models&models={first.id},{other.id}")
        section = page.locator("#panel-models section", has_text="Differences to org/a")
        expect(section.locator("tbody tr").first).to_contain_text("+")
        assert "cannot be compared" not in section.inner_text()
        page.go(f"{address}#search=org")
        expect(page.locator("#finding bdi").first).to_have_text("b")


def test_scatter_points_open_models(visit, address):
    page = visit().go(f"{address}#kind=Sparse&tab=chart")
    page.wait_for_selector("#panel-chart .chart svg")
    number = int(page.status().split()[0])
    points = page.query_selector_all("#panel-chart g.mark-symbol.role-mark path")
    assert len(points) == number
    page.fill("#search", "model-1")
    expect(page.locator("#panel-chart g.mark-symbol.role-mark path")).not_to_have_count(number)
    page.query_selector("#panel-chart g.mark-symbol.role-mark path").click(force=True)
    page.wait_for_selector("#panel-models h2")


# Files


def download(page: Visit, button: str) -> str:
    with page.expect_download() as started:
        page.click(button)
    return Path(started.value.path()).read_text(encoding="utf-8")


def test_downloads_contain_the_shown_rows(visit, address):
    page = visit(accept_downloads=True).go(
        f"{address}#data=PosIR-German&length=Q3&kind=Dense&search=model-2&sort=psi"
    )
    rows = json.loads(download(page, "#json"))
    assert f"{len(rows)} of {MODELS - 1} models" == page.status()
    assert [row["model"] for row in rows][: len(page.names())] == page.names()
    assert [f"{row['psi_as_published']:.3f}" for row in rows[:PAGE]] == page.column("psi")
    assert [f"{100 * row['ndcg_at_10']:.1f}" for row in rows[:PAGE]] == page.column("score")
    assert {(row["data"], row["length"], row["kind"]) for row in rows} == {
        ("PosIR-German", "Q3", "Dense")
    }
    table = list(csv.DictReader(io.StringIO(download(page, "#csv"))))
    assert [{name: value or None for name, value in row.items()} for row in table] == [
        {
            name: None if value is None else json.dumps(value).strip('"')
            for name, value in row.items()
        }
        for row in rows
    ]


# Hostile names, and empty boards


def test_hostile_names_are_text(visit, tmp_path):
    names = enumerate(hostile_names())
    models = [
        replace(fake_model(number), name=name, license="<b>", reference=None)
        for number, name in names
    ]
    tasks = ("PosIR-English", "<script>alert(2)</script>", "__proto__")
    records = [fake_record(model, task, 5) for model in models for task in tasks]
    records.append(fake_record(models[0], "constructor", 5))
    with served(write_board(tmp_path, records)) as address:
        page = visit(accept_downloads=True).go(f"{address}#data=PosIR-English")
        assert sorted(page.names()) == sorted(hostile_names())
        assert page.query_selector("#table img, #table script, #table b") is None
        rows = list(csv.reader(io.StringIO(download(page, "#csv"), newline="")))
        suspicious = [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]
        assert all(float(cell) < 0 for cell in suspicious), "a number is no formula"
        for group in page.query_selector_all("#benchmark label"):
            group.click()
        expect(page.locator("#data")).to_have_value("<script>alert(2)</script>")
        page.select_option("#data", "__proto__")
        expect(page.locator("#data")).to_have_value("__proto__")
        assert len(page.names()) == len(models)
        page.go(f"{address}#data=PosIR-English&tab=chart&search=<img")
        page.locator("#panel-chart g.mark-symbol.role-mark path").hover(force=True)
        expect(page.locator(".vg-tooltip")).to_contain_text("<img src=x onerror=alert(1)>")
        assert page.query_selector(".vg-tooltip img") is None
        for four in (models[:4], models[4:8]):
            page.go(
                f"{address}#benchmark=Other+tasks&tab=models&models={','.join(model.id for model in four)}"  # noqa: E501
            )
            wait_for_charts(page, 1 + 1 + 4)
            for model in four:
                assert model.name in page.text_content("#panel-models .chips")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_the_theme_follows_the_system_and_the_button(visit, address):
    page = visit(color_scheme="dark").go(address)
    seen = []
    for _ in range(3):
        seen.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.click("#theme")
    assert seen[0] == seen[2] != seen[1]


# Accessibility


def test_page_works_from_a_file_and_without_scripts(visit, browser, folder, data):
    page = visit().go((folder / "index.html").as_uri())
    assert page.status() == EVERY
    without = browser.new_context(java_script_enabled=False).new_page()
    without.goto((folder / "index.html").as_uri())
    assert without.inner_text("#finding") == page.inner_text("#finding")
    assert without.locator("#table tbody th bdi").all_inner_texts() == page.names()
    shown = [
        text.split(" ")[0]
        for text in without.locator("#table tbody td[data-title='nDCG@10']").all_inner_texts()
    ]
    assert shown == page.column("score")
    assert page.inner_text("#lead").startswith(without.inner_text("#lead"))
    assert "25% truncated" in without.locator("#table .unread").all_inner_texts()
    assert (without.is_visible("#table tbody th"), without.is_visible("#controls")) == (True, False)
    without.context.close()
    page.select_option("#data", label=f"German · {MODELS - 1} models")
    expect(page.locator("#status")).to_have_text(f"{MODELS - 1} models")
    page.go(f"{(folder / 'index.html').as_uri()}#tab=models&models={list_first_ids(data, 1)[0]}")
    wait_for_charts(page, 1 + 1 + 1)


@pytest.mark.slow
def test_page_works_with_the_keyboard(visit, address):
    page = visit().go(address)
    keyboard = page.keyboard
    keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "results"
    keyboard.press("Tab")
    assert page.evaluate("results.contains(document.activeElement)"), "the controls are passed over"
    page.focus("th.q3 .dt-column-order")
    keyboard.press("Enter")
    expect(page.locator("th.q3")).to_have_attribute("aria-sort", "descending")
    assert page.state() == {"sort": "-q3"}
    page.focus("#table .expand >> nth=0")
    keyboard.press("Enter")
    details = page.text_content("#table tr .detail")
    assert all(part in details for part in ("PSI by chance", "Start minus end", "42,000"))
    page.focus("#table td.select input >> nth=2")
    keyboard.press("Space")
    assert len(page.state()["models"].split(",")) == 1
    assert page.evaluate(
        "document.activeElement === document.querySelectorAll('#table td.select input')[2]"
    )
    page.focus("#tab-table")
    keyboard.press("ArrowRight")
    assert page.state()["tab"] == "chart"
    assert page.evaluate("document.activeElement.id") == "tab-chart"
    page.focus("input[name=length]:checked")
    keyboard.press("ArrowRight")
    assert page.state()["length"] == "Q1"


def test_failed_load_is_reported_and_retried(visit, address):
    page = visit().go(address)
    page.route("**/models/*", lambda route: route.abort())
    page.click("#table .model-name")
    expect(page.locator("#status")).to_contain_text("could not be loaded")
    page.unroute("**/models/*")
    page.errors.clear()
    page.click("#tab-table")
    page.click("#table .model-name >> nth=1")
    page.wait_for_selector("#panel-models h2")
    page.errors.clear()


# Scales and colors


@pytest.mark.slow
def test_psi_by_chance_is_a_range_next_to_the_observed_psi(visit, address, data):
    view = length_columns(data, data["board"]["groups"][0]["views"][0]["file"], "Q4")
    page = visit().go(f"{address}#{AVERAGED}&sort=psi")
    observed = view["psi_as_published"]
    index = observed.index(min(score for score in observed if score is not None))
    expected = f"{view['psi_by_chance'][index]:.3f} to {view['psi_by_chance_high'][index]:.3f}"
    page.click("#table .expand >> nth=0")
    assert f"PSI by chance{expected}" in page.text_content("#table .detail")
    page.fill("#search", page.names()[0])
    page.click("#tab-chart")
    page.locator("#panel-chart g.mark-symbol.role-mark path").hover(force=True)
    expect(page.locator(".vg-tooltip")).to_contain_text(expected)


@pytest.mark.slow
def test_each_color_has_one_meaning(visit, address, data):
    page = visit().go(f"{address}#{AVERAGED}")
    color = (
        "(names) => names.map((name) => { probe.style.color = `var(--${name})`; return "
        "getComputedStyle(probe).color; })"
    )
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('i'), { id: 'probe' }))"
    )
    models = page.evaluate(color, [f"series-{number}" for number in range(1, 7)])
    scores = page.evaluate(color, ["ink", "heat-1", "heat-2", "heat-3", "heat-4"])
    assert len({*models, *scores}) == len(models) + len(scores)
    line = page.eval_on_selector("#table .strip .mean", "line => getComputedStyle(line).stroke")
    assert line not in {*models, *scores}, (
        "a picture in the table has the color of no model and no score"
    )
    page.go(f"{address}#tab=models&models={','.join(list_first_ids(data, 2))}")
    wait_for_charts(page, 1 + 1 + 2)
    fills = "points => [...new Set(points.map((one) => one.getAttribute('fill')))]"
    points = page.eval_on_selector_all(
        "#panel-models .chart >> nth=1 >> g.mark-symbol.role-mark path", fills
    )
    assert sorted(points) == sorted(models[:2]), "nDCG@10 of a model by domain has its color"


@pytest.mark.slow
def test_language_without_result_is_hatched(visit, tmp_path):
    first, other = fake_model(1), fake_model(2)
    records = [
        fake_record(model, task, 5)
        for model in (first, other)
        for task in TASKS
        if (model, task) != (other, TASKS[1])
    ]
    with served(write_board(tmp_path, records)) as address:
        page = visit().go(f"{address}#data=PosIR-English&tab=models&models={first.id},{other.id}")
        wait_for_charts(page, 1 + 1 + 2)
        whole, missing = (page.locator("#panel-models .chart").nth(index) for index in (2, 3))
        for chart, cells, strokes in ((whole, 60, 0), (missing, 40, 40)):
            assert chart.locator("g.mark-rect.role-mark path").count() == cells
            assert chart.locator("g.mark-symbol.role-mark path").count() == strokes
            languages = chart.locator("g.role-axis-label text").all_text_contents()
            assert [text for text in languages if text.isalpha()] == [
                "English",
                "German",
                "Hindi",
            ], "rows align across models"
        assert "Hatched: no result" in page.inner_text("#panel-models")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 1024, 390])
def test_axis_labels_do_not_overlap(visit, address, data, width):
    page = visit(viewport={"width": width, "height": 900}).go(
        f"{address}#tab=models&models={','.join(list_first_ids(data, 2))}"
    )
    wait_for_charts(page, 1 + 1 + 2)
    for index in range(4):
        assert_no_overlap(
            page.locator("#panel-models .chart").nth(index).locator("g.role-axis-label text"),
            touching=1,
        )


@pytest.mark.slow
def test_new_length_redraws_only_dependent_sections(visit, address, data):
    page = visit().go(f"{address}#tab=models&models={','.join(list_first_ids(data, 2))}")
    wait_for_charts(page, 1 + 1 + 2)
    page.evaluate(
        "document.querySelectorAll('#panel-models .chart').forEach((one, at) => (one.dataset.mark "
        "= at))"
    )
    before = page.get_attribute("#panel-models .large g.mark-line path", "d")
    page.check("input[value=Q3]", force=True)
    expect(page.locator("#panel-models .large figcaption")).to_contain_text("Q3")
    expect(page.locator("#panel-models .large g.mark-line path").first).not_to_have_attribute(
        "d", before
    )
    marks = page.locator("#panel-models .chart").evaluate_all(
        "charts => charts.map((one) => one.dataset.mark)"
    )
    assert marks == [str(at) for at in range(4)], "every chart is the one that was there"


def assert_no_overlap(texts, touching: int = 0) -> None:
    boxes = (
        "texts => texts.filter((one) => one.textContent).map((one) => "
        "one.getBoundingClientRect().toJSON())"
    )
    shown = texts.evaluate_all(boxes)
    assert len(shown) > 3
    for box, other in combinations(shown, 2):
        beside = box["right"] <= other["left"] or other["right"] <= box["left"]
        assert (
            beside
            or box["bottom"] <= other["top"] + touching
            or other["bottom"] <= box["top"] + touching
        ), (box, other)


# The published results, with runs of BM25 and MiniLM


def build_mixed_records() -> list[BoardRecord]:
    bm25 = replace(fake_model(1, "mteb/baseline-bm25s"), kind="BM25", parameters=None, window=None)
    minilm = replace(
        fake_model(2, "sentence-transformers/all-MiniLM-L6-v2"), window=256, parameters=22_700_000
    )
    records = [fake_record(model, "PosIR-Mini", seed) for seed, model in enumerate((bm25, minilm))]
    local = {"data_revision": "local-0123", "data": "0123"}
    for seed, model in enumerate((bm25, minilm), start=5):
        record = fake_record(model, "PosIR-English", seed)
        records.append(replace(record, detail={**record.detail, **local}))
    return [*records, *published_results()]


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Iterator[str]:
    with served(
        write_board(
            tmp_path_factory.mktemp("published"),
            build_mixed_records(),
            list_builtin_groups(),
        )
    ) as url:
        yield url


def list_labels(page: Visit) -> list[str]:
    return page.locator("#table svg.strip").evaluate_all(
        "curves => curves.map(one => one.getAttribute('aria-label'))"
    )


AVERAGE = "benchmark=PosIR&data=PosIR"


@pytest.mark.slow
def test_published_first_screen_has_every_known_position(visit, published):
    page = visit().go(f"{published}#benchmark=PosIR&data=PosIR-German")
    assert (
        page.inner_text("#finding")
        == "Qwen3-Embedding-8B scores highest in long German documents: nDCG@10 56.8"
    )
    lead = (
        "Evidence at the start scores 20.6 points higher than at the end with gte-multilingual-base"
    )
    assert page.inner_text("#lead").startswith(lead)
    assert "bias" not in page.inner_text("#lead")
    assert page.is_visible("#untested")
    assert set(page.locator("td.verdict .state").all_inner_texts()) == {NAMES[State.NOT_TESTED]}
    assert page.column("behind")[:2] == ["best", "-1.5"]
    assert page.locator("#table tbody tr").nth(8).bounding_box()["y"] < 900, (
        "eight rows are on the first screen"
    )
    assert (
        page.locator("#table .meta").first.inner_text() == "Dense · 7.6B · 32k tokens · apache-2.0"
    )
    buttons = page.locator("#table [role=button]").evaluate_all(
        "all => all.map((one) => one.getAttribute('aria-label'))"
    )
    titles = ["Model", "nDCG@10", "Start minus end", "PSI (as published)", "Q1", "Q2", "Q3"]
    assert [name.split(":")[0] for name in buttons[:7]] == titles
    page.click("#more")
    cut = "all => all.filter((one) => one.offsetParent && one.scrollWidth > one.clientWidth).length"
    assert page.eval_on_selector_all("#filters select", cut) == 0
    page.to(AVERAGE)
    expect(page.locator("#lead")).to_contain_text("0.8 points ahead of Qwen3-Embedding-8B")
    assert page.column("psi")[0] == "0.176"
    assert list_labels(page) == [], "curves are known of other languages for each model"
    expect(page.locator("th.rank")).to_have_text("#"), "places by score, as there are no intervals"
    assert page.column("rank")[:4] == ["1", "2", "3", "4"]
    page.check("input[value=all]", force=True)
    expect(page.locator(":is(th.effect, th.difference)")).to_have_count(0)
    expect(page.locator("#table tbody tr").first).to_contain_text("0.110")
    assert page.column("psi")[0] == "0.110", "PSI is known where curves are not"
    page.fill("#search", "qwen 8b")
    assert page.names() == ["Qwen3-Embedding-8B"]
    page.go(f"{published}#benchmark=PosQ&data=SQuAD-PosQ")
    assert len(list_labels(page)) == len(page.names()) == 11, "the buckets of PosQ are published"
    assert page.locator("td.difference .ends").count() == 11
    page.click("#table .expand >> nth=0")
    expect(page.locator("#table .detail")).to_contain_text(
        "widest possible for independent queries"
    )
    names = page.evaluate("board.data('board').then((index) => index.models.label)")
    assert [name.lower() for name in names].count("nv-embed-v2") == 1, (
        "one row, whatever the case of its name"
    )


def test_evaluated_results_come_first(visit, tmp_path):
    records = separate_data(build_mixed_records(), {}, submitted=False)
    with served(write_board(tmp_path, records, list_builtin_groups())) as address:
        page = visit().go(address)
        own = {"mteb/baseline-bm25s", "sentence-transformers/all-MiniLM-L6-v2"}
        assert page.input_value("#data") == "PosIR-English", "the first data with own results"
        assert set(page.names()[:2]) == own
        assert all(rank != "–" for rank in page.column("rank")[:2])
        scores = parse_numbers(page.column("score"))
        assert scores[:2] == sorted(scores[:2], reverse=True)
        assert scores[2:] == sorted(scores[2:], reverse=True), "unranked results are in order, too"
        page.to("sort=-change")
        assert page.is_visible("th.change")
        assert "10 results are not comparable" in page.inner_text("#unranked")
        assert "the papers' data" in page.locator("#table .marks").last.inner_text()
        assert "local-0123 (2 results)" in page.text_content("#provenance")
        page.check("input[value='PosIR-Mini']", force=True)
        expect(page.locator("#finding")).to_contain_text("truncates 25% of the evidence")


def test_answers_follow_the_filters_without_the_first_row(visit, published):
    page = visit().go(f"{published}#{AVERAGE}")
    answers = page.locator("#answers .answer")
    answers.nth(1).wait_for()
    titles = page.locator("#answers .question").all_inner_texts()
    assert titles == ["Loses least from short to long", "Best under 1B parameters"]
    assert "-16.6 points from Q1 to Q4" in answers.first.inner_text()
    page.to(f"{AVERAGE}&size=under+1B")
    assert page.inner_text("#finding").startswith(
        "Of 3 models with these filters, Qwen3-Embedding-0.6B scores highest"
    )
    page.wait_for_selector("#answers .answer", state="detached")  # all of them are row 1
    assert page.column("behind")[0] == "-11.4", "behind the best of all"
    page.to("benchmark=PosQ&data=FineWeb-PosQ")
    expect(page.locator("#table .model-name").first).to_have_text("BM25")
    assert not any("under 1B" in text for text in answers.all_inner_texts()), (
        "BM25, the best, has no parameters"
    )


@pytest.mark.slow
def test_layout_is_stable(visit, published):
    page = visit(viewport={"width": 1024, "height": 900})
    page.add_init_script(
        "window.shift = 0; new PerformanceObserver((list) => list.getEntries().forEach((one) => "
        "(window.shift += one.value))).observe({ type: 'layout-shift', buffered: true });"
    )
    page.go(published)
    for tab in ("chart", "models", "table"):
        page.click(f"#tab-{tab}")
        page.wait_for_selector("#table td" if tab == "table" else f"#panel-{tab} .chart svg")
    assert page.evaluate(f"{PAINTED}.then(() => window.shift)") < 0.05


@pytest.mark.slow
def test_small_screen_has_large_targets(visit, address, data):
    page = visit(viewport={"width": 320, "height": 800}, has_touch=True)
    models = ",".join(list_first_ids(data, 4)[:4])
    for state in ("tab=chart&search=model-1", f"tab=models&models={models}", ""):
        page.go(f"{address}#{state}")
        page.wait_for_selector(".chart svg" if state else "#table td")
        assert page.evaluate("document.documentElement.scrollWidth") == 320, state
        small = page.evaluate(
            """() => [...document.querySelectorAll("button, select, label.box, .pills label, .model-name, summary")]
              .filter((one) => one.offsetParent).map((one) => [one.outerHTML, one.getBoundingClientRect()])
              .filter(([, { width, height }]) => width < 24 || height < 24).map(([html]) => html)"""  # noqa: E501
        )
        assert small == [], state
    page.click("#table .expand >> nth=0")
    page.wait_for_selector("#table .detail table")
    assert page.evaluate("document.documentElement.scrollWidth") == 320, "with a row open"
    page.to(f"models={','.join(list_first_ids(data, 2)[:2])}")
    assert page.locator("#tray").bounding_box()["height"] < 130
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.locator("#table tbody tr").first.bounding_box()["y"] + 60 < 844, (
        "the first row is on the first screen"
    )
    assert not page.is_visible("#kind")
    page.click("#more")
    assert page.is_visible("#kind")


@pytest.mark.slow
def test_forced_colors_show_the_selection(visit, published):
    page = visit(forced_colors="active").go(f"{published}#{AVERAGE}")
    page.settle()
    color = "(one) => getComputedStyle(one).backgroundColor"
    for chosen, other in (
        ("#length input:checked + span", "#length input:not(:checked) + span"),
        ("#tab-table", "#tab-chart"),
    ):
        backgrounds = [page.eval_on_selector(selector, color) for selector in (chosen, other)]
        assert len(set(backgrounds)) == 2, chosen


@pytest.mark.slow
def test_names_in_the_scatter_do_not_overlap(visit, published):
    page = visit(viewport={"width": 1400, "height": 900}).go(
        f"{published}#benchmark=PosQ&tab=chart"
    )
    page.wait_for_selector("#panel-chart .chart svg")
    assert_no_overlap(page.locator("#panel-chart g.mark-text.role-mark text"))
    names = page.locator("#panel-chart g.mark-text.role-mark text")
    assert names.count() == int(page.status().split()[0]), "no point lacks one"
    height = "one => one.getBoundingClientRect().y"
    lowest = max(names.all(), key=lambda name: name.evaluate(height)).text_content()
    assert lowest == "BM25", "whose start minus end is the lowest"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 1024, 390])
def test_nothing_is_clipped_at_any_width(visit, published, width):
    page = visit(viewport={"width": width, "height": 900})
    for state in (
        "",
        "benchmark=PosQ&data=SQuAD-PosQ",
        "benchmark=PosIR-Mini",
        "tab=chart",
        "benchmark=PosIR-Mini&tab=models",
    ):
        page.go(f"{published}#{state}")
        page.settle()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, state
        cut = (
            "cells => cells.filter((one) => one.offsetWidth && one.scrollWidth > one.clientWidth "
            "+ 1).length"
        )
        assert page.eval_on_selector_all("#table .value, #table .state, #table .ends", cut) == 0, (
            state
        )


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 1024, 390])
def test_axe_finds_nothing_at_any_width(visit, request, published, data, width):
    page = visit(viewport={"width": width, "height": 900})
    shown = {"chart": "#panel-chart svg", "models": "#panel-models .chart svg"}
    states = ["", "benchmark=PosQ&data=SQuAD-PosQ", "tab=chart", "benchmark=PosIR-Mini&tab=models"]
    visits = [(published, state) for state in states]
    if width == 1400:
        own = ("search=model-49", f"models={','.join(list_first_ids(data, 2)[:2])}&tab=models")
        visits += [(request.getfixturevalue("address"), state) for state in own]
    for board, state in visits:
        for theme in ("light", "dark"):
            page.go(f"{board}#{state}&theme={theme}")
            page.wait_for_selector(shown.get(state[-6:].split("=")[-1], "td >> visible=true"))
            page.settle()
            violations = (
                axe.Axe()
                .run(page.page, options={"resultTypes": ["violations"]})
                .response["violations"]
            )
            assert [
                (violation["id"], violation["nodes"][0]["html"]) for violation in violations
            ] == [], (state, theme)


@pytest.mark.slow
def test_print_is_light_and_keeps_the_choices(visit, published):
    page = visit(viewport={"width": 1024, "height": 900}).go(
        f"{published}#benchmark=PosIR-Mini&length=Q3&theme=dark"
    )
    page.emulate_media(media="print")
    shown = "labels => labels.filter((one) => one.offsetParent).map((one) => one.innerText)"
    assert page.eval_on_selector_all(".pills label", shown) == ["PosIR-Mini", "Q3\n≤ 1,536"]
    assert page.eval_on_selector_all("[role=tab]", shown) == ["Table"]
    assert all(page.is_visible(f"th.q{number}") for number in (1, 2, 4))
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    widths = page.eval_on_selector_all(
        ".model-cell .model-name", "names => names.map((name) => name.offsetWidth)"
    )
    assert min(widths) > 60, (
        "names are not squeezed into the column of the arrow, which is not printed"
    )
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")


@pytest.mark.slow
def test_charts_are_saved_as_images_and_csv(visit, published):
    page = visit(accept_downloads=True).go(f"{published}#benchmark=PosIR-Mini&tab=models")
    page.wait_for_selector("#panel-models .chart svg")
    assert "<svg" in download(page, "#panel-models .pictures button:text-is('SVG') >> nth=0")
    with page.expect_download() as started:
        page.click("#panel-models .pictures button:text-is('PNG') >> nth=0")
    assert Path(started.value.path()).read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(io.StringIO(download(page, "button:text-is('Positions as CSV')"))))
    assert len(rows) == 2 * 20
