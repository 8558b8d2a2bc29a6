"""The documentation site: strictly built from the pages and the code, readable without a
network.
"""

import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.support.commands import BIN, run_process

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for name in ("docs", "docs_site"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("reference"))
    shutil.copy(ROOT / "zensical.toml", folder)
    (folder / "none").mkdir()
    board = (BIN / "posir", "leaderboard", "build", "--results", "none", "--output", "site/board")
    for command in (
        (sys.executable, "docs_site/reference.py"),
        (BIN / "zensical", "build", "--strict"),
        board,
    ):
        done = run_process(*command, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_navigation_has_every_page():
    pages = set(
        re.findall(
            r"'([^']+\.md)'",
            str(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]),
        )
    )
    files = [file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")]
    generated = {name for name in pages if name.startswith("reference/")}
    assert pages - generated == {*files} - generated


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.stem
)
def test_links_lead_to_files(page: Path):
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [
        link
        for link in links
        if not link.startswith("reference/") and not (page.parent / link).exists()
    ] == []


@pytest.mark.slow
def test_the_reference_has_every_command_and_declared_score(site: Path):
    commands = (site / "reference" / "commands.html").read_text()
    assert {"posir report", "posir compare", "posir build"} <= set(
        re.findall(r"<code>(posir [a-z-]+)</code>", commands)
    )
    assert "position_effect" in (site / "reference" / "scores.html").read_text()


@pytest.mark.slow
def test_pages_load_nothing_from_other_servers(site: Path):
    sources = re.compile(
        r'<(?:script|img|iframe)[^>]*\ssrc="(https?:[^"]+)|<link[^>]*\srel="(?:stylesheet|preload)"[^>]*href="(https?:[^"]+)'
    )
    assert [
        match.group()
        for file in site.rglob("*.html")
        for match in sources.finditer(file.read_text())
    ] == []


@pytest.mark.slow
def test_the_first_page_opens_the_board(site: Path):
    assert set(re.findall(r'href="(board/[^"]+)"', (site / "index.html").read_text())) == {
        "board/index.html"
    }
    assert (site / "board" / "index.html").is_file()


@pytest.mark.slow
def test_search_works_in_a_folder_without_a_server(site: Path, browser: Browser):
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        page.goto((site / "index.html").as_uri())
        page.get_by_role("button", name="Search").first.click()
        page.locator("input[aria-label=Search]").press_sequentially("truncation", delay=30)
        page.get_by_text("Estimates of truncation").first.wait_for(timeout=10_000)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_accessible(site: Path, browser: Browser, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.goto((site / "leaderboard.html").as_uri())
    page.locator("nav.md-code__nav[role=none]").first.wait_for()
    assert [violation["id"] for violation in Axe().run(page).response["violations"]] == []
    page.close()
