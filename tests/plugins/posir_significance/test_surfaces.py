"""Four results on every surface: the same state, the same numbers, the same words."""

import csv
import dataclasses
import html
import io
import json
import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pytest
from typer.testing import CliRunner

import posir
from posir_compare.api import Comparison, compare
from posir_compare.comparison import ComparisonRow, Metric
from posir_compare.gate import gate_table, write_junit
from posir_inspect.model_window import UnreadShare
from posir_inspect.questions import Wording
from posir_inspect.sections import Fading, Inspection
from posir_inspect.splitting import ChunkComparison, ChunkCounts, ChunkRow
from posir_inspect.window import WindowReading
from posir_leaderboard.board.records import BoardRow, row_columns
from posir_report.api import Results, read_results
from posir_report.cells import build_curve_cells
from posir_report.charts import draw_curves
from posir_report.tables import describe_findings
from posir_significance.decision import ChangeState, Decision, State
from posir_significance.sentences import (
    advise,
    describe_decision,
    describe_finding,
    describe_metric_change,
    describe_not_read,
    describe_start_to_end,
    format_change,
    format_contrast,
    format_difference,
    iterate_answer,
    label_change,
    label_state,
    list_facts,
)
from posir_tasks.command.app import build_app
from posir_tasks.display.numbers import MISSING
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.strip import draw_strips
from posir_tasks.display.tables import escape_latex, to_markdown
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.errors import PosirError
from posir_tasks.evidence import TWELFTHS, Evidence, Integers, ReadEvidence
from posir_tasks.models.reading_length import Bounds, ReadingLength
from posir_tasks.read_part import UNKNOWN, CountedWith, KnownBy, ReadPart
from posir_tasks.schemes import RelativePositions
from posir_tasks.scores import ALL, Estimate
from posir_train.evaluation import Measurement
from posir_train.report import (
    TrainingReport,
    compare_measurements,
    describe_changes,
    list_not_read,
    summarize_measurement,
    write_report,
)
from tests.support.results import write_result

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
        case "org/end":
            missed = (evidence.twelfths() < TWELFTHS // 3) & (luck < 0.5)
        case "org/window":
            missed = (twelfths >= TWELFTHS) | ((twelfths < TWELFTHS // 3) & (luck < 0.6))
        case _:
            missed = np.zeros(len(evidence), bool)
    return np.where(missed, 0, rank)


def write_model(output: Path, model: str, read: ReadPart) -> None:
    evidence = draw_evidence()
    twelfths = evidence.estimate_twelfths(read)
    placed = ReadEvidence(read, twelfths, CountedWith.TOKENIZER if read.tokens else None)
    ranks = draw_ranks(model, evidence, twelfths)
    write_result(output, {"sports": DocumentRanks.from_ranks(SCHEME, evidence, ranks, placed)}, model=model, read=read)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("results")
    for model, (read, _) in MODELS.items():
        write_model(output, model, read)
    return output


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is as biased as `org/start`, to the end."""
    write_model(output := tmp_path_factory.mktemp("mirrored"), "org/end", ReadPart.all(KnownBy.CLASS))
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
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", re.sub("</?code>", "`", page))).split())


def test_each_model_has_the_state_that_it_was_made_for(decisions):
    assert {model: decision.state for model, decision in decisions.items()} == {
        model: state for model, (_, state) in MODELS.items()
    }


def inspect(decision: Decision) -> Inspection:
    read = decision.read
    bounds = Bounds(read.tokens or 4000, read.tokens or 4000)
    reading = ReadingLength(read.part, bounds, bounds, bounds, bounds, "tokens", 1)
    window = WindowReading("org/model", None, reading, 0, 0, None, "org/model")
    fading = Fading(Wording.RAREST_WORDS, None, None, {ALL: (100, decision)})
    whole = ChunkRow(None, None, 300, ChunkCounts(0), None, None)
    chunks = ChunkComparison((), whole, ("Search in whole texts.",), (), "org/model")
    return Inspection(
        model="org/model",
        revision=None,
        source="texts",
        texts=300,
        texts_found=300,
        languages={"en": 300},
        median_tokens=900,
        tokens_estimated=False,
        skipped=(),
        window=window,
        unread=UnreadShare(Estimate(0.5), 300),
        fading=(fading,),
        chunks=chunks,
    )


PAGES: dict[str, Callable[[Path, Results], str]] = {
    "text": lambda folder, _: run("report", folder),
    "markdown": lambda folder, _: run("report", folder, "--format", "markdown"),
    "html": lambda _, results: visible(results.to_html()),
    "notebook": lambda _, results: visible(results._repr_html_()),
    "repr": lambda _, results: repr(results),
}


@pytest.mark.parametrize("surface", PAGES)
def test_the_answer_in_five_parts_stands_on_every_page(folder, results, decisions, surface):
    flat = " ".join(PAGES[surface](folder, results).split())
    for decision in decisions.values():
        known = describe_decision(decision) if decision.not_read else describe_finding(decision)
        facts = "\n".join(dict(list_facts(decision)).values()).split("\n") if surface == "html" else [advise(decision)]
        answer = [describe_finding(decision) if surface == "html" else known, *facts]
        assert [text for text in answer if text not in flat] == []
        assert [part for part, _ in iterate_answer(decision)] == ["How well", "Start to end", "Not read", "Bias", "What to do"]
        if surface != "repr":
            assert label_state(decision) in flat
            assert format_contrast(decision, decision.start_to_end) in flat
    assert "PSI by chance" not in flat.split("How to read this")[0], "that stands behind --full"


PRINTED: dict[str, Callable[[Presentable], str]] = {
    "text": str,
    "html": lambda shown: visible(shown.to_html()),
    "markdown": lambda shown: "\n\n".join(section.to_markdown() for section in shown.sections()),
}


@pytest.mark.parametrize("surface", PRINTED)
def test_an_inspection_says_what_a_report_says(decisions, surface):
    # A page has charts, which take a second: it shows the sections of the text.
    models = decisions if surface in ("text", "markdown") else ("org/window",)
    for decision in (decisions[model] for model in models):
        flat = " ".join(PRINTED[surface](inspect(decision)).split())
        shown = [format_contrast(decision, decision.bias_within_read), label_state(decision), advise(decision)]
        shown += [format_contrast(decision, decision.start_to_end)] if surface == "html" else []
        assert [text for text in shown if text != MISSING and text.lower() not in flat.lower()] == []


def test_json_of_an_inspection_has_the_decision(decisions):
    for decision in decisions.values():
        document = json.loads(inspect(decision).to_json())
        group, (row,) = document["fading"][0]["groups"][ALL], document["rows"]
        expected = json.loads(json.dumps(decision.to_json()))
        assert {name: group[name] for name in expected} == expected
        assert [row[name] for name in ("state", "reason", "p_value_within_read")] == [
            expected.get(name) for name in ("state", "reason", "p_value_within_read")
        ]


def test_json_and_csv_have_the_values_of_the_decision(folder, decisions):
    entries = {
        entry["model"]: entry["position_scores"]["all"] for entry in json.loads(run("report", folder, "--format", "json"))
    }
    lines = csv.DictReader(io.StringIO(run("report", folder, "--format", "csv")))
    rows = {line["model"]: line for line in lines if line["length"] == "all"}
    for model, decision in decisions.items():
        expected = json.loads(json.dumps(decision.to_json()))
        assert "p_value" not in expected, "that is the score of any effect in the document"
        assert {name: entries[model][name] for name in expected} == expected
        assert entries[model]["answer"] == dict(iterate_answer(decision))
        assert (rows[model]["state"], rows[model]["reason"] or None) == (decision.state, decision.reason)
        assert describe_decision(decision) in rows[model]["answer"]
        # A number has one value under one name: in the decision, in JSON, in CSV.
        numbers = entries[model]["scores"] | expected
        for name, value in entries[model]["scores"].items():
            assert numbers[name] == pytest.approx(value)
        shared = numbers.keys() & rows[model].keys() - {"read"}
        for name in shared:
            value = numbers[name]
            assert rows[model][name] == ("" if value is None else str(value)) or float(rows[model][name]) == pytest.approx(
                value
            )
        assert {"p_value", "psi", "start_to_end", "bias_within_read", "state", "documents_needed"} < shared


def test_latex_has_the_state_and_the_numbers(folder, decisions):
    text = run("report", folder, "--latex")
    for decision in decisions.values():
        assert label_state(decision) in text
        if decision.start_to_end and (interval := decision.interval(decision.start_to_end)):
            assert f"[{interval[0] * 100:+.1f}, {interval[1] * 100:+.1f}]" in text
        assert escape_latex(describe_not_read(decision)) in text
    assert escape_latex("It reads the first 400 tokens") in text


def read_drawn(chart: alt.VConcatChart) -> str:
    """Title, subject and explanation as a PNG shows them, without its line breaks."""
    title = chart.to_dict()["vconcat"][0]["title"]
    return " ".join(chain(title["text"], title["subtitle"])).replace("\u00a0", " ")


def test_pictures_are_titled_by_the_state(results, decisions):
    for summary in results.summaries[1:3]:
        decision = decisions[summary.model]
        finding = describe_finding(decision).removesuffix(".")
        curves = read_drawn(draw_curves(summary, build_curve_cells(summary)))
        assert curves.startswith(finding)
        (strip,) = inspect(decision).strips()
        assert strip.words[-1] == finding
        for unread, read in re.findall(r"nDCG@10 (\d+) against (\d+)", finding):
            mixed = strip.not_read * float(unread) + (1 - strip.not_read) * float(read)
            assert mixed == pytest.approx(100 * decision.ndcg_at_10.value, abs=0.6)


def test_every_surface_begins_with_the_picture(folder, results, decisions, tmp_path):
    drawn = draw_strips(results.strips())
    shown = [drawn.index(f">{name}<") for name in ("even", "start", "window", "unknown")]
    assert len(re.findall(r">\d+ % of the evidence not read<", drawn)) == 1
    assert drawn.index("is not known", shown[3]) > 0
    assert compare(["org/even", "org/window"], results=results).to_html().count('<svg class="strip"') == 2
    for page in (results.to_html(), results._repr_html_(), inspect(decisions["org/window"]).to_html()):
        assert page.index('<svg class="strip"') < (page + "<table").index("<table")
    text = inspect(decisions["org/window"]).to_markdown()
    assert re.search(r"model +[▁▂▃▄▅▆▇█]+┊░+ +Sentences past that point are found", text)
    run("report", folder, "--card", tmp_path / "card.png", "--quiet")
    assert (tmp_path / "card.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(PosirError, match="no results by position"):
        results.bins().to_card()


def test_a_notebook_needs_no_network_and_shows_few_letters(folder, results, tmp_path):
    assert len(repr(results[0])) < 300
    assert results._repr_html_().count("<script") == 0
    (svg,) = results.figures()[0].chart._repr_mimebundle_().values()
    assert svg.startswith("<svg")
    picture = results.plot()
    assert ">even<" in picture._repr_html_()
    picture.save(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(PosirError, match=r"\.svg or \.png"):
        picture.save(tmp_path / "picture.pdf")
    with pytest.raises(TypeError, match="did you mean bins"):
        posir.report(folder, bin=True)


def test_a_row_of_the_board_has_the_state_and_its_tooltip_the_answer(results, decisions):
    rows = [BoardRow.of_report(row) for row in results.rows if row.length == ALL]
    columns = json.loads(json.dumps(row_columns(rows)))
    for place, row in enumerate(rows):
        decision = decisions[row.model]
        cells = {name: values[place] for name, values in columns.items()}
        assert (cells["states"], cells["state_label"]) == ([decision.state], label_state(decision))
        states = [cells[name] for name in ("state", "reason", "documents_needed")]
        assert states == [decision.state, decision.reason, decision.documents_needed]
        assert cells["parts"] == dict(iterate_answer(decision))
        assert cells["answer"] == f"{describe_start_to_end(decision)} {describe_decision(decision)}"
        interval = decision.interval(decision.start_to_end)
        shown = [cells["start_to_end"], cells["start_to_end_low"], cells["start_to_end_high"]]
        assert shown == pytest.approx([decision.start_to_end.value, *interval], abs=1e-6)


def test_lengths_are_one_family_at_a_level_that_is_said(folder, results):
    (summary,) = (item for item in results.summaries if item.model == "org/start")
    levels = {decision.level for decision in summary.decisions[1:]}
    assert levels == {0.975}, "two lengths have documents"
    assert "97.5 %" in run("report", folder, "--full")


def test_a_margin_changes_the_state_everywhere(folder):
    wide = ("report", folder, "--margin", "90")
    assert " ".join(run(*wide).split()).count("no bias larger than 90 points") > 3
    assert {entry["position_scores"]["all"]["margin"] for entry in json.loads(run(*wide, "--format", "json"))} == {0.9}
    done = CliRunner().invoke(build_app(), ["report", str(folder), "--margin", "many"])
    assert done.exit_code == 1
    assert "margin" in str(done.exception)


#: Pairs of results by the state of the change in start to end, as they are made.
PAIRS = {
    ChangeState.WORSE: ("org/even", "org/start"),
    ChangeState.BETTER: ("org/start", "org/even"),
    ChangeState.EQUIVALENT: ("org/even", "org/unknown"),
    ChangeState.CANNOT_BE_SAID: ("org/start", "org/end"),
}


@pytest.fixture(scope="module")
def comparisons(folder: Path, mirrored: Path) -> dict[ChangeState, Comparison]:
    return {state: compare(pair, results=[folder, mirrored], lengths="all", full=True) for state, pair in PAIRS.items()}


def test_each_pair_has_the_state_that_it_was_made_for(comparisons):
    rows = {state: read_row(comparison, Metric.START_TO_END) for state, comparison in comparisons.items()}
    assert {state: row.metric_change.state for state, row in rows.items()} == {state: state for state in PAIRS}


def read_row(comparison: Comparison, metric: Metric) -> ComparisonRow:
    (row,) = (row for row in comparison.rows if row.metric is metric)
    return row


@pytest.mark.parametrize("state", PAIRS)
def test_a_change_has_one_state_in_comparison_gate_action_and_junit(comparisons, tmp_path, state):
    comparison = comparisons[state]
    metrics = [row.metric for row in comparison.rows]
    gate = comparison.check([f"{metric.key} > 0" for metric in metrics])
    write_junit(gate, tmp_path / "gate.xml")
    junit = "".join(ElementTree.parse(tmp_path / "gate.xml").getroot().itertext())
    # Pages take long: one state's show the same sections.
    shown = PRINTED if state is ChangeState.WORSE else {"text": str}
    printed = {name: " ".join(show(comparison).split()) for name, show in shown.items()}
    records = {record["metric"]: record for record in comparison.records()}
    for metric, tested in zip(metrics, gate.limits, strict=True):
        row = read_row(comparison, metric)
        sentence, cell, reason = row.describe(), format_change(row.metric_change, row.change), row.metric_change.reason
        assert label_change(row.metric_change) in cell
        assert format_difference(row.metric_change, row.change) in sentence
        shown = (label_change(row.metric_change), format_difference(row.metric_change, row.change))
        assert all(words in text for text in printed.values() for words in shown)
        record = records[metric]
        assert (record["state"], record["reason"], record["answer"]) == (row.metric_change.state, reason, sentence)
        assert (tested.state, tested.compared, tested.answer) == (row.metric_change.state, cell, sentence)
        # The action writes the gate's Markdown into the summary of its job.
        assert cell in to_markdown(gate_table(gate))
        assert sentence in junit


def test_a_comparison_prints_the_intervals_of_the_report(folder, results):
    reported = {(row.model, row.length): row.start_to_end.interval for row in results.rows if row.start_to_end}
    rows = [row for row in compare(["org/even", "org/start"], results=folder).rows if row.metric is Metric.START_TO_END]
    assert [row.length for row in rows] == ["all", "Q2", "Q4"]
    for row in rows:
        assert row.a.interval == pytest.approx(reported[row.baseline, row.length])
        assert row.b.interval == pytest.approx(reported[row.model, row.length])


@pytest.mark.parametrize("format_", ["text", "json"])
def test_the_command_prints_the_change_of_the_function(comparisons, folder, format_):
    comparison = comparisons[ChangeState.WORSE]
    options = ("compare", "--results", folder, *PAIRS[ChangeState.WORSE], "--lengths", "all", "--format", format_)
    shown = " ".join(run(*options, "--full").split())
    gate = " ".join(run(*options, "--fail-if", "start_to_end > 5").split())
    for row in comparison.rows:
        assert format_difference(row.metric_change, row.change) in shown or format_ == "json"
        assert row.describe() in shown or format_ == "text"
    assert read_row(comparison, Metric.START_TO_END).describe() in gate or format_ == "text"
    assert format_change(row.metric_change, row.change) in gate or row.metric is not Metric.START_TO_END


def train(comparison: Comparison, results: Results, mirrored: Path) -> TrainingReport:
    """The report of a training that turned the first of two models into the second."""
    row = comparison.rows[0]
    values = {summary.model: summary.values for summary in (*results.summaries, *read_results(mirrored).summaries)}
    before, after = (Measurement(values[model], 0.1) for model in (row.baseline, row.model))
    return TrainingReport(
        title="base, trained",
        settings={},
        folder=Path("model"),
        steps=1,
        changes=tuple(compare_measurements(before, after)),
        notes=tuple(list_not_read(before, after, (row.baseline, "The trained model"))),
        commands=(),
        measured=(summarize_measurement("base", before), summarize_measurement("The trained model", after)),
    )


@pytest.mark.parametrize("state", PAIRS)
def test_a_training_says_what_a_comparison_says(comparisons, results, mirrored, state):
    report = train(comparisons[state], results, mirrored)
    shown, records = " ".join(str(report).split()), {record["score"]: record for record in report.records()}
    for row in comparisons[state].rows:
        metric = row.metric_change
        sentence = describe_metric_change(row.metric.value, metric, row.change, "the base model", "the trained model")
        assert sentence[1:] in shown
        assert shown.count(format_difference(metric, row.change)) >= 2, "in the sentence and in the table"
        record = records[row.metric.value]
        assert (record["state"], record["reason"]) == (metric.state, metric.reason and metric.reason.value)
        assert record["difference"].value == metric.difference.value


def test_the_card_of_a_trained_model_says_what_its_report_says(comparisons, results, mirrored, tmp_path):
    report = dataclasses.replace(train(comparisons[ChangeState.WORSE], results, mirrored), folder=tmp_path)
    (tmp_path / "training").mkdir()
    write_report(report, SimpleNamespace(model_card_data=SimpleNamespace(base_model="base")))
    card, page = (tmp_path / "README.md").read_text(), visible((tmp_path / "training" / "report.html").read_text())
    (sentences,) = describe_changes(report.changes)
    assert sentences.count("worse") == 3
    for shown in (card, (tmp_path / "training" / "report.md").read_text(), page):
        assert sentences in shown
    assert all(strip.description in card for strip in report.strips())
    assert [strip.name for strip in report.strips()] == ["before", "after"]
    assert to_markdown(report.tables[0]) in card


def test_many_results_say_how_many_are_expected_by_chance(results):
    rows = [row for row in results.rows if row.length == "all"] * 3
    counts, chance = describe_findings(rows)
    assert "3 biased to the start" in counts
    assert "about 0.5 would be expected" in chance
