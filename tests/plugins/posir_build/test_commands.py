"""The commands of `posir build`."""

import json
import re
from contextlib import nullcontext

import pytest
import yaml

import posir
from posir_tasks.base.errors import PosirError
from tests.support.cli import invoke
from tests.support.human_answers import Truth, mini_documents, write_documents
from tests.support.language_model_server import NO_FAILURES, serve_language_model

DOCUMENTS = mini_documents()[:4]


def call(*arguments, fails=None):
    with pytest.raises(PosirError, match=fails) if fails else nullcontext():
        return invoke("build", *arguments)


def test_plan_build_sample_and_agreement(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_documents(tmp_path / "texts", DOCUMENTS)
    with serve_language_model(Truth(DOCUMENTS), rates=dict(NO_FAILURES)) as server:
        config = tmp_path / "build.yaml"
        values = {
            "documents": "texts",
            "language": "eng-Latn",
            "domain": "harbour",
            "output": "data/made",
            "llm": {
                "model": "human",
                "endpoints": [server.url],
                "in_flight": 4,
                "prices": {"input": 1, "output": 2},
            },
            "sample": {"lengths": "any"},
        }
        config.write_text(yaml.safe_dump(values))
        plan = json.loads(call(config, "--plan", "--format", "json"))
        assert [item["stage"] for item in plan] == [
            "ask",
            "locate",
            "verify",
            "false-negatives",
            "translate",
        ]
        assert plan[0]["calls"] == 3 * len(DOCUMENTS)
        assert not server.answered
        first, _, heading = call(config, "--plan", "--set", "llm.prices.currency=EUR").splitlines()[
            :3
        ]
        assert re.fullmatch(
            r"At most (under )?0\.\d\d EUR for [\d,]+ calls to human: [\d,]+ input and .*", first
        )
        assert heading.split("  ")[-1].strip() == "Cost (EUR)"
        call("sample", "5", config, fails="is not finished")
        report = json.loads(call(config, "--stage", "ask", "--format", "json"))
        assert [stage["stage"] for stage in report["stages"]] == ["sample", "ask"]
        assert not (tmp_path / "data").exists()
        printed = call("run", config)
        calls = sum(server.answered.values())
        for text in (
            "data/made/eng-Latn/harbour: ",
            "skipped, since false_negatives.embedder is not set",
            f"human, total: {calls} calls",
        ):
            assert text in printed
        assert "97.8" not in printed
        assert "\nsample: 4 of 4 documents; 1,000 requested\n" in printed
        assert f"Already answered, not charged again: human, total: {calls} calls" in call(
            config, "--plan"
        )
        assert (
            "| verify: leave-span-out |" in (tmp_path / "harbour-build" / "report.md").read_text()
        )
        call(config)
        assert sum(server.answered.values()) == calls
        assert "human-check.csv: 5 questions" in call("sample", 5, config)
        call("sample", 5, config, fails="already exists")
        sheet = tmp_path / "harbour-build" / "human-check.csv"
        domain = tmp_path / "data" / "made" / "eng-Latn" / "harbour"
        assert "all of these" in call("agreement", sheet)
        call("agreement", sheet, sheet, fails="given twice")
        call("agreement", sheet, "--data", domain, fails="0 judged questions")
        sheet.write_text(
            sheet.read_text(encoding="utf-8-sig").replace(",,,,\n", ",yes,yes,no,\n"),
            encoding="utf-8",
        )
        call("agreement", sheet, "--data", domain)
        card = (tmp_path / "data" / "made" / "README.md").read_text()
        assert "| nothing else in the document answers it | 0 | 5 | 0.0 | [0.0, 43.4] |" in card
        call("agreement", sheet, "--data", tmp_path, fails="contains no provenance.jsonl")
        call(config, "--set", "ask.questions=1", fails="already exists")


def test_invalid_input_raises_posir_error(tmp_path):
    call(tmp_path / "missing.yaml", fails="no such file")
    required = [
        "--set",
        "language=eng-Latn",
        "--set",
        "domain=a",
        "--set",
        "output=o",
        "--set",
        "llm.model=m",
    ]
    work = ["--set", f"work={tmp_path}/work"]
    call("run", *required, fails="field 'documents'")
    with pytest.raises(PosirError, match="stage='x': must be 'sample' or "):
        posir.build(stage="x")  # type: ignore[arg-type]
    call("run", *required, *work, "--set", "documents=nowhere", fails="nowhere: no such")
