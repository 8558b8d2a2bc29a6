"""Files that GitHub and others read: workflows, citation, issue form."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_run_make_targets_and_nothing_else(file: Path):
    jobs = yaml.safe_load(file.read_text())["jobs"].values()
    scripts = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert scripts
    assert {
        match[1]
        for script in scripts
        if (match := re.fullmatch(r"(?:sudo )?make ([a-z-]+)", script))
    } <= TARGETS
    assert all(re.fullmatch(r"(?:sudo )?make [a-z-]+", script) for script in scripts)


def test_workflows_test_every_python_and_publish_without_token():
    workflows = {file.stem: yaml.safe_load(file.read_text()) for file in WORKFLOWS}
    assert workflows["test"]["jobs"]["test"]["strategy"]["matrix"]["python"][0] == PROJECT[
        "requires-python"
    ].removeprefix(">=")
    assert workflows["release"]["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in "".join(file.read_text() for file in WORKFLOWS)


def test_the_citation_has_the_version_and_license_of_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])


def test_the_issue_form_has_fields_that_github_knows():
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "results.yml").read_text())
    assert {field["type"] for field in form["body"]} <= {
        "input",
        "dropdown",
        "textarea",
        "markdown",
        "checkboxes",
    }
    assert len({field["id"] for field in form["body"]}) == len(form["body"])
