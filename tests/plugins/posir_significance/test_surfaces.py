"""Four results on every surface: the same state, the same numbers, the same words."""

import csv
import html
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from posir_compare import api as compare_api
from posir_compare.comparison import Metric
from posir_report.api import Results, read_results
from posir_report.cells import build_curve_cells
from posir_report.charts import draw_curves, draw_models, draw_psi_against_ndcg
from posir_report.summary import ReportRow, TaskSummary
from posir_report.tables import describe_answer, describe_findings
from posir_significance.decision import Decision, State
from posir_significance.sentences import (
    describe_decision,
    describe_metric_change,
    describe_state,
    format_contrast,
    iterate_answer,
    label_change,
    label_state,
)
from posir_tasks.command.app import build_app
from posir_tasks.display.tables import escape_latex
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.evidence import TWELFTHS, Evidence, Integers, ReadEvidence
from posir_tasks.read_part import UNKNOWN, KnownBy, ReadPart
from posir_tasks.schemes import RelativePositions
from posir_tasks.tokens import CountedWith
from tests.support.results import write_result

ROOT = Path(__file__).parents[3]
SCHEME, DOCUMENTS, QUESTIONS, WINDOW = RelativePositions(bins=5), 300, 8, 400
#: What each model reads, and the state that its ranks have by construction.
MODELS = {
    "org/even": (ReadPart.all(KnownBy.CLASS), State.NO_BIAS),
    "org/start": (ReadPart.all(KnownBy.CLASS), State.BIASED_TO_START),
    "org/window": (ReadPart.first(WINDOW, KnownBy.CLASS), State.BIASED_TO_END),
    "org/unknown": (UNKNOWN, State.CANNOT_BE_SAID),
}


def draw_evidence() -> Evidence:
    """Eight questions on each of 300 documents, of two lengths."""
    rng, documents = np.random.default_rng(4), np.arange(DOCUMENTS * QUESTIONS) // QUESTIONS
    tokens, starts = np.where(documents < DOCUMENTS / 2, 900, 2000), rng.integers(0, 3900, len(documents))
    names, ids = [f"q{row}" for row in range(len(documents))], [f"d{document}" for document in documents]
    return Evidence(names, ids, starts, starts + 10, np.full(len(documents), 4000), tokens)


def draw_ranks(model: str, evidence: Evidence, twelfths: Integers) -> Integers:
    """Ranks of a model: of one, late evidence is missed; of another, what it does not read, and what it reads first."""
    rng = np.random.default_rng(7)
    rank = rng.geometric(0.8, len(evidence))
    luck = rng.random(len(evidence))
    match model:
        case "org/start":
            missed = (evidence.twelfths() >= 2 * TWELFTHS // 3) & (luck < 0.5)
        case "org/window":
            missed = (twelfths >= TWELFTHS) | ((twelfths < TWELFTHS // 3) & (luck < 0.6))
        case _:
            missed = np.zeros(len(evidence), bool)
    return np.where(missed, 0, rank)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output, evidence = tmp_path_factory.mktemp("results"), draw_evidence()
    for model, (read, _) in MODELS.items():
        twelfths = evidence.estimate_twelfths(read)
        placed = ReadEvidence(read, twelfths, CountedWith.TOKENIZER if read.tokens else None)
        ranks = draw_ranks(model, evidence, twelfths)
        write_result(output, {"sports": DocumentRanks.from_ranks(SCHEME, evidence, ranks, placed)}, model=model, read=read)
    return output


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return read_results(folder)


@pytest.fixture(scope="module")
def decisions(results: Results) -> dict[str, Decision]:
    return {summary.model: summary.decisions[0] for summary in results.summaries}


def run(*arguments: object) -> str:
    done = CliRunner().invoke(build_app(), list(map(str, arguments)), env={"COLUMNS": "4000"})
    assert done.exit_code in (0, 1, 2), done.exception
    return done.stdout


def visible(page: str) -> str:
    """The text of a page as it is read."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_each_model_has_the_state_that_it_was_made_for(decisions):
    assert {model: decision.state for model, decision in decisions.items()} == {
        model: state for model, (_, state) in MODELS.items()
    }


@pytest.mark.parametrize("surface", ["text", "markdown", "html", "notebook", "repr"])
def test_the_answer_in_five_parts_stands_on_every_page(folder, results, decisions, surface):
    shown = {
        "text": lambda: run("report", folder),
        "markdown": lambda: run("report", folder, "--format", "markdown"),
        "html": lambda: visible(results.to_html()),
        "notebook": lambda: visible(results._repr_html_()),
        "repr": lambda: repr(results),
    }[surface]()
    flat = " ".join(shown.split())
    for decision in decisions.values() if surface != "repr" else [decisions["org/even"]]:
        assert describe_answer(decision) in flat
        assert [part for part, _ in iterate_answer(decision)] == ["How well", "Start to end", "Not read", "Bias", "What to do"]
    if surface != "repr":
        for decision in decisions.values():
            assert label_state(decision) in flat
            assert format_contrast(decision, decision.start_to_end) in flat
        assert "PSI by chance" not in flat.split("How to read this")[0], "that stands behind --full"


def test_json_and_csv_have_the_values_of_the_decision(folder, decisions):
    entries = {
        entry["model"]: entry["position_scores"]["all"] for entry in json.loads(run("report", folder, "--format", "json"))
    }
    lines = csv.DictReader(io.StringIO(run("report", folder, "--format", "csv")))
    rows = {line["model"]: line for line in lines if line["length"] == "all"}
    for model, decision in decisions.items():
        expected = json.loads(json.dumps(decision.to_json()))
        assert {name: entries[model][name] for name in expected} == expected
        assert entries[model]["answer"] == dict(iterate_answer(decision))
        assert (rows[model]["state"], rows[model]["reason"] or None) == (decision.state, decision.reason)
        assert describe_decision(decision) in rows[model]["answer"]
        for name in ("start_to_end", "bias_within_read"):
            contrast = getattr(decision, name)
            assert rows[model][name] == ("" if contrast is None else str(contrast.value))


def test_latex_has_the_state_and_the_numbers(folder, decisions):
    text = run("report", folder, "--latex")
    for decision in decisions.values():
        assert label_state(decision) in text
        if decision.start_to_end and (interval := decision.interval(decision.start_to_end)):
            assert f"[{interval[0] * 100:+.1f}, {interval[1] * 100:+.1f}]" in text
    assert escape_latex("It reads the first 400 tokens") in text


def test_pictures_are_titled_by_the_state(results, decisions):
    def texts(summary: TaskSummary) -> str:
        return " ".join(json.dumps(draw_curves(summary, build_curve_cells(summary)).to_dict(), ensure_ascii=False).split())

    by_model = {summary.model: summary for summary in results.summaries}
    for model in ("org/window", "org/start"):
        words = describe_state(decisions[model]).removesuffix(".").split()
        assert " ".join(words[:4]) in texts(by_model[model])
    compared = json.dumps(draw_models(results.summaries[:2]).to_dict()) + json.dumps(
        draw_psi_against_ndcg(results.summaries).to_dict()
    )
    assert all(label_state(decisions[summary.model]) in compared for summary in results.summaries[:2])


def test_lengths_are_one_family_at_a_level_that_is_said(folder, results):
    (summary,) = (item for item in results.summaries if item.model == "org/start")
    levels = {decision.level for decision in summary.decisions[1:]}
    assert levels == {0.975}, "two lengths have documents"
    assert "97.5 %" in run("report", folder)


def test_a_margin_changes_the_state_everywhere(folder):
    wide = ("report", folder, "--margin", "90")
    assert run(*wide).count("no bias larger than 90 points") > 3
    assert {entry["position_scores"]["all"]["margin"] for entry in json.loads(run(*wide, "--format", "json"))} == {0.9}
    done = CliRunner().invoke(build_app(), ["report", str(folder), "--margin", "many"])
    assert done.exit_code == 1
    assert "margin" in str(done.exception)


@pytest.mark.parametrize("limit", ["ndcg_at_10 < -1", "start_to_end > 5", "psi > 0.1"])
def test_a_change_has_one_state_in_comparison_gate_and_junit(folder, tmp_path, limit):
    comparison = compare_api.compare(folder, "even", "start", lengths=["all"])
    metric = next(metric for metric in Metric if metric.key == limit.split()[0])
    (row,) = (row for row in comparison.rows if row.metric is metric)
    sentence = describe_metric_change(metric.value, row.metric_change, row.change, row.baseline, row.model)
    options = ("compare", "--results", folder, "even", "start")
    flat = " ".join(run(*options).split())
    assert sentence in flat
    assert label_change(row.metric_change) in flat
    (stored,) = [
        item
        for item in json.loads(run(*options, "--format", "json"))["comparisons"]
        if (item["metric"], item["length"]) == (metric.value, "all")
    ]
    assert (stored["state"], stored["answer"]) == (row.metric_change.state, sentence)
    (tested,) = json.loads(run(*options, "--fail-if", limit, "--junit", tmp_path / "gate.xml", "--format", "json"))["limits"]
    assert (tested["state"], tested["answer"]) == (row.metric_change.state, sentence)
    assert label_change(row.metric_change) in run(*options, "--fail-if", limit)
    assert sentence in "".join(ElementTree.parse(tmp_path / "gate.xml").getroot().itertext())


def test_many_results_say_how_many_are_expected_by_chance(results):
    rows = [row for row in results.rows if row.length == "all"] * 3
    counts, chance = describe_findings(rows)
    assert "3 biased to the start" in counts
    assert "about 0.6 would be expected" in chance


def test_a_published_row_has_no_state():
    assert ReportRow(model="a", task="b").columns()["state"] is None


@pytest.mark.parametrize("words", ["no significant effect", "truncation, not bias"])
def test_words_that_the_data_do_not_allow_are_nowhere(words):
    rooms = ("posir", "posir_tasks", "plugins", "leaderboard", "recipes", "docs", "README.md")
    files = [file for room in rooms for file in ([ROOT / room] if room.endswith("md") else (ROOT / room).rglob("*"))]
    texts = [file for file in files if file.suffix in (".py", ".md", ".html", ".js", ".yaml")]
    assert [str(file) for file in texts if words in file.read_text(encoding="utf-8").casefold()] == []
