"""`posir build` as a user calls it."""

import json
import re

import pytest
import typer
import yaml
from typer.testing import CliRunner

from posir_build import commands
from posir_tasks.errors import PosirError
from tests.support.human_answers import Truth, mini_documents, write_documents
from tests.support.language_model_server import NO_FAILURES, serve_language_model

MADE = mini_documents()[:4]


@pytest.fixture
def app():
    made = typer.Typer()
    made.add_typer(commands.app, name="build")

    @made.callback()
    def main() -> None:
        """Make `build` a command of a group."""

    return made


def call(app, *arguments, fails=False):
    done = CliRunner().invoke(app, ["build", *map(str, arguments)])
    if fails:
        assert isinstance(done.exception, PosirError), done.output
        return str(done.exception)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_plan_build_sample_and_agreement(app, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_documents(tmp_path / "texts", MADE)
    with serve_language_model(Truth(MADE), rates=dict(NO_FAILURES)) as server:
        config = tmp_path / "build.yaml"
        values = {
            "documents": "texts", "language": "eng-Latn", "domain": "harbour", "output": "data/made",
            "llm": {"model": "human", "endpoints": [server.url], "in_flight": 4, "prices": {"input": 1, "output": 2}},
            "sample": {"lengths": "any"},
        }  # fmt: skip
        config.write_text(yaml.safe_dump(values))
        plan = json.loads(call(app, config, "--plan", "--format", "json"))
        assert [item["stage"] for item in plan] == ["ask", "locate", "verify", "false-negatives", "translate"]
        assert plan[0]["calls"] == 3 * len(MADE)
        assert not server.answered
        first, _, heading = call(app, config, "--plan", "--set", "llm.prices.currency=EUR").splitlines()[:3]
        assert re.fullmatch(r"At most (under )?0\.\d\d EUR for [\d,]+ calls of human: [\d,]+ input and .*", first)
        assert heading.split("  ")[-1].strip() == "Cost (EUR)"
        assert "is not finished" in call(app, "sample", "5", config, fails=True)
        report = json.loads(call(app, config, "--stage", "ask", "--format", "json"))
        assert [stage["stage"] for stage in report["stages"]] == ["sample", "ask"]
        assert not (tmp_path / "data").exists()
        printed = call(app, "run", config)
        assert printed.startswith(f"{len(MADE)} of {len(MADE)} documents sampled; ")
        assert "data/made/eng-Latn/harbour: " in printed
        assert "false negatives" in printed
        assert "97.8" not in printed
        assert f"human, total: {sum(server.answered.values())} calls" in printed
        assert "\nsample: 4 of 4 documents; 1,000 wanted\n" in printed
        plan = call(app, config, "--plan")
        assert f"Answered before, and not paid again: human, total: {sum(server.answered.values())} calls" in plan
        assert "| verify: leave-span-out |" in (tmp_path / "harbour-build" / "report.md").read_text()
        calls = sum(server.answered.values())
        call(app, config)
        assert sum(server.answered.values()) == calls
        assert "human-check.csv: 5 questions" in call(app, "sample", 5, config)
        assert "already exists" in call(app, "sample", 5, config, fails=True)
        sheet, domain = tmp_path / "harbour-build" / "human-check.csv", tmp_path / "data" / "made" / "eng-Latn" / "harbour"
        assert "all of these" in call(app, "agreement", sheet)
        assert "named twice" in call(app, "agreement", sheet, sheet, fails=True)
        assert "0 judged questions" in call(app, "agreement", sheet, "--data", domain, fails=True)
        sheet.write_text(sheet.read_text(encoding="utf-8-sig").replace(",,,,\n", ",yes,yes,no,\n"), encoding="utf-8")
        call(app, "agreement", sheet, "--data", domain)
        card = (tmp_path / "data" / "made" / "README.md").read_text()
        assert "| nothing else in the document answers it | 0 | 5 | 0.0 | [0.0, 43.4] |" in card
        assert "has no provenance.jsonl" in call(app, "agreement", sheet, "--data", tmp_path, fails=True)
        assert "already exists" in call(app, config, "--set", "ask.questions=1", fails=True)


def test_mistakes_are_one_message(app, tmp_path):
    assert "no such file" in call(app, tmp_path / "missing.yaml", fails=True)
    needed = ["--set", "language=eng-Latn", "--set", "domain=a", "--set", "output=o", "--set", "llm.model=m"]
    work = ["--set", f"work={tmp_path}/work"]
    assert "field 'documents'" in call(app, "run", *needed, fails=True)
    assert "--stage x: " in call(app, "run", *needed, "--set", "documents=d", "--stage", "x", fails=True)
    missing = call(app, "run", *needed, *work, "--set", "documents=nowhere", fails=True)
    assert "'nowhere'" in missing
