"""The documentation site: strictly built from the pages and the code, readable without a
network.
"""

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from docs_site.json_schema import SCHEMAS, build_schema
from posir_recipes.api import list_papers
from posir_tasks.command.commands import list_commands
from tests.support.commands import BIN, run_process

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Folders of pages that `make docs` makes.
GENERATED = ("reference/", "papers/")


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
    generated = {name for name in pages if name.startswith(GENERATED)}
    assert pages - generated == {name for name in files if not name.startswith(GENERATED)}
    commands = {f"posir-{command.name.replace(' ', '-')}" for command in list_commands()}
    notebooks = {f"notebook-{file.stem}" for file in (DOCS / "notebooks").glob("*.ipynb")}
    papers = {*list_papers()}
    others = {"commands", "json", "python", "scores"}
    assert {Path(name).stem for name in generated} == commands | notebooks | papers | others


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.stem
)
def test_links_lead_to_files(page: Path):
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [
        link
        for link in links
        if not link.startswith(GENERATED) and not (page.parent / link).exists()
    ] == []


@pytest.mark.slow
def test_the_reference_has_every_command_and_declared_score(site: Path):
    for command in list_commands():
        page = site / "reference" / f"posir-{command.name.replace(' ', '-')}.html"
        assert "<h1 id=" in page.read_text()
    options = re.findall(
        r"<code>(--[a-z-]+)", (site / "reference" / "posir-report.html").read_text()
    )
    assert {"--fail-if", "--html", "--figures", "--format"} <= {*options}
    for file in site.rglob("*.html"):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", file.read_text()), file.name
    assert "position_effect" in (site / "reference" / "scores.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_the_site_has_the_schema_of_a_command(site: Path, name):
    assert json.loads((site / "reference" / "json" / f"{name}.json").read_text()) == build_schema(
        name
    )


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


#: What people search for, and pages of which one should be the first.
SEARCHES = {
    "fine-tuned": "fine-tuned.html",
    "RAG": "production.html",
    "inconclusive": "troubleshooting.html",
    "LangChain": "production.html",
    "truncation": "report.html",
    "chunk size": "inspect.html",
    "PDF": "inspect.html",
    "Qdrant": "production.html",
    "LaTeX": "paper.html",
    "GPU": "run.html",
}


@pytest.mark.slow
def test_search_finds_a_fitting_page_first_without_a_server(site: Path, browser: Browser):
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        page.goto((site / "index.html").as_uri())
        page.get_by_role("button", name="Search").first.click()
        found = {}
        for words in SEARCHES:
            page.locator("input[aria-label=Search]").fill(words)
            hit = page.locator(f"li a[href*='?h={words.replace(' ', '+')}']").first
            hit.wait_for(timeout=30_000)
            found[words] = re.search(r"([a-z-]+\.html)", hit.get_attribute("href") or "")[1]
    assert found == SEARCHES


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_accessible(site: Path, browser: Browser, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.goto((site / "leaderboard.html").as_uri())
    page.locator("nav.md-code__nav[role=none]").first.wait_for()
    assert [violation["id"] for violation in Axe().run(page).response["violations"]] == []
    page.close()
