"""Test the workflows in docs/leaderboard.md by running their scripts."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import mteb
import pytest
import yaml

from tests.support.commands import BIN, CLEAN
from tests.support.guessing import write_guesses
from tests.support.hub import Store, serve_all

DOCUMENT = Path(__file__).parents[2] / "docs" / "leaderboard.md"
REPO = "my-org/posir-results"


def workflows() -> dict[str, dict]:
    result = map(
        yaml.safe_load,
        re.findall(r"^```yaml\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL),
    )
    return {workflow["name"]: workflow for workflow in result}


def run_last_step(
    workflow: dict, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the last step like GitHub; the steps before set up Python."""
    (job,) = workflow["jobs"].values()
    variables = CLEAN | {"PATH": f"{BIN}:{CLEAN['PATH']}"} | workflow.get("env", {}) | environment
    step = job["steps"][-1]
    shell = {
        "python": ["python", "-c"],
        "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"],
    }
    command = [*shell[step.get("shell", "bash")], step["run"]]
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=170, check=False
    )


@pytest.fixture
def results(tmp_path) -> Path:
    folder = tmp_path / "made"
    write_guesses(folder, [mteb.get_task("PosIR-Mini")])
    write_guesses(folder, [mteb.get_task("PosIR-Mini")], name="org/edited", seed=1)
    (file,) = folder.rglob("org__edited/*/PosIR-Mini.json")
    data = json.loads(file.read_text())
    data["scores"]["test"][0]["psi_as_published"] = 0.0
    file.write_text(json.dumps(data))
    return folder / "results"


def test_workflows_have_no_permissions():
    assert set(workflows()) == {"Check submissions", "Check results"}
    for workflow in workflows().values():
        assert workflow["permissions"] == {"contents": "read"}
        assert "secrets" not in json.dumps(workflow, default=str)


@pytest.mark.slow
def test_hub_pull_requests_are_checked(results, tmp_path):
    of_model = {
        name: {
            path.relative_to(results.parent).as_posix(): path.read_bytes()
            for path in results.glob(f"{name}/*/*.json")
        }
        for name in ("org__guessing", "org__edited")
    }
    before = {
        path.replace("org__edited", "org__before"): content
        for path, content in of_model["org__edited"].items()
    }
    store = Store(REPO, main={"README.md": b"# Results", **before})
    for name, files in of_model.items():
        store.propose(name, "", files)
    store.propose("closed", "", of_model["org__edited"]).status = "closed"
    (tmp_path / "work").mkdir()
    with serve_all(store) as hub:
        environment = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_OFFLINE": "0",
        }
        done = run_last_step(workflows()["Check submissions"], tmp_path / "work", **environment)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1] == "refused: #2"
    # Earlier results are not part of the pull requests.
    problems = done.stdout.splitlines()
    assert all("pull-request-2/results/org__edited" in problem for problem in problems)
    assert any("field 'psi_as_published': is 0.0" in problem for problem in problems)
    assert done.stderr.count("results: 1, models: 1, problems: ") == 2


@pytest.mark.slow
def test_changed_folders_of_a_pull_request_are_checked(results, tmp_path):
    def git(*arguments, folder=tmp_path / "upstream"):
        who = [
            "-c",
            "user.name=me",
            "-c",
            "user.email=me@example.org",
            "-c",
            "init.defaultBranch=main",
        ]
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(
            ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, env=environment
        )

    upstream, work = tmp_path / "upstream", tmp_path / "work"
    upstream.mkdir()
    git("init")
    (upstream / "README.md").write_text("# Results")
    shutil.copytree(results / "org__edited", upstream / "results" / "org__edited")
    git("add", ".")
    git("commit", "-m", "before the workflow was there")
    git("clone", str(upstream), str(work), folder=tmp_path)

    shutil.copytree(results / "org__guessing", work / "results" / "org__guessing")
    nobodys = work / "results" / "org__nobodys"
    shutil.copytree(results / "org__guessing", nobodys)
    next(nobodys.rglob("model_meta.json")).unlink()
    git("add", ".", folder=work)
    git("commit", "-m", "a good result, and one of a model that has no name", folder=work)
    done = run_last_step(workflows()["Check results"], work, GITHUB_BASE_REF="main")
    assert done.returncode == 1
    (problem,) = done.stdout.splitlines()
    assert f"{nobodys}" in problem
    assert "model_meta.json: is missing" in problem
    # The earlier result is not part of the pull request.
    assert "results: 1, models: 1, problems: 1" in done.stderr
