"""One results folder on every surface: the same p-value, the same verdict."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from posir_compare.comparison import Metric, compare
from posir_inspect.inspection import Scores, read_summary
from posir_leaderboard.board.records import row_columns, score_entry
from posir_leaderboard.entries import read_entries
from posir_report.charts import draw_psi_against_ndcg
from posir_report.columns import known_columns
from posir_report.summary import ReportRow, build_rows, summarize
from posir_report.tables import summary_table, truncation_notes
from posir_significance.verdict import describe_verdict
from posir_tasks.command.app import build_app
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.evidence import Evidence
from posir_tasks.results import read_results
from posir_tasks.schemes import RelativePositions
from posir_tasks.tokens import CountedWith
from posir_tasks.window_coverage import TruncatedEvidence, WindowCoverage
from posir_train.report import NDCG, PSI, START_TO_END, compare_ranks, correct
from tests.support.comparison import pair_runs
from tests.support.results import write_result

SCHEME, WINDOW, QUESTIONS = RelativePositions(bins=5), 400, 400
MODELS = {"org/cut": 0.9, "org/even": 0.0}


def draw_evidence() -> Evidence:
    """Four questions on each of 100 documents, of which few are in Q1 and none in Q3."""
    rng, documents = np.random.default_rng(4), np.arange(QUESTIONS) // 4
    tokens = np.where(documents < 4, 300, np.where(documents < 50, 900, 2000))
    starts = rng.integers(0, 3900, QUESTIONS)
    names = [f"q{row}" for row in range(QUESTIONS)]
    ids = [f"d{document}" for document in documents]
    return Evidence(names, ids, starts, starts + 10, np.full(QUESTIONS, 4000), tokens)


def write_model(folder: Path, model: str, missed: float) -> DocumentRanks:
    """Write the result of a model that misses a share of the evidence beyond its window."""
    evidence, rng = draw_evidence(), np.random.default_rng(len(model))
    truncated = TruncatedEvidence(WINDOW, evidence.estimate_beyond(WINDOW), CountedWith.TOKENIZER)
    ranks = np.where(rng.random(QUESTIONS) < missed * (truncated.beyond > 0), 0, rng.geometric(0.6, QUESTIONS))
    result = DocumentRanks.from_ranks(SCHEME, evidence, ranks, truncated.beyond)
    coverage = WindowCoverage.from_ranks(truncated, SCHEME, evidence, ranks)
    write_result(folder, {"sports": result}, model=model, window_coverage=coverage.to_json())
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("results")
    for model, missed in MODELS.items():
        write_model(output, model, missed)
    return output


@pytest.fixture(scope="module")
def rows(folder: Path) -> dict[tuple[str, str], ReportRow]:
    return {(row.model, row.length): row for item in summarize(read_results(folder)) for row in build_rows(item)}


def run(*arguments: object) -> str:
    done = CliRunner().invoke(build_app(), list(map(str, arguments)))
    assert done.exit_code == 0, done.exception
    return done.stdout


def test_the_rows_show_truncation_chance_and_too_few_documents(rows):
    assert {rows["org/cut", length].verdict for length in ("all", "Q2", "Q4")} == {"truncation"}
    assert {rows["org/even", length].verdict for length in ("all", "Q2", "Q4")} == {"not significant"}
    assert {rows[model, "Q1"].verdict for model in MODELS} == {"too few documents"}
    assert {rows[model, "Q3"].verdict for model in MODELS} == {None}


def test_json_csv_and_table_of_a_report_agree(folder, rows):
    document = json.loads(run("report", folder, "--format", "json"))
    for entry in document:
        for length, scores in entry["position_scores"].items():
            row = rows[entry["model"], length if length == "all" else length.upper()]
            assert (scores["p_value"], scores["p_corrected"], scores["verdict"]) == (row.p_value, row.p_corrected, row.verdict)
    for line in csv.DictReader(io.StringIO(run("report", folder, "--format", "csv"))):
        row = rows[line["model"], line["length"]]
        assert (line["verdict"] or None) == row.verdict
        assert (float(line["p_corrected"]) if line["p_corrected"] else None) == row.p_corrected
    printed = run("report", folder)
    for row in rows.values():
        assert describe_verdict(row, row.verdict) in printed
    assert printed.count("truncation, not bias") == 1


def test_a_model_has_the_same_p_values_in_a_report_without_the_other(rows, tmp_path):
    write_model(tmp_path, "org/cut", MODELS["org/cut"])
    (alone,) = map(build_rows, summarize(read_results(tmp_path)))
    assert [(row.p_corrected, row.verdict) for row in alone] == [
        (row.p_corrected, row.verdict) for (model, _), row in rows.items() if model == "org/cut"
    ]


def test_summary_chart_and_sentence_agree(folder, rows):
    summaries = summarize(read_results(folder))
    overall = [row for row in rows.values() if row.length == "all"]
    table = summary_table(overall, known_columns(), {})
    assert {cells[-1].partition(" (detectable")[0] for cells in table.rows} == {
        describe_verdict(row, row.verdict) for row in overall
    }
    chart = json.dumps(draw_psi_against_ndcg(summaries).to_dict())
    sentences = list(truncation_notes([summary.model for summary in summaries], summaries))
    for model, sentence in zip(MODELS, sentences, strict=True):
        verdict = rows[model, "all"].verdict
        assert f'"verdict": "{verdict}"' in chart
        assert ("truncation, not bias" in sentence) == (verdict == "truncation")


def test_the_leaderboard_agrees(folder, rows):
    entries, problems = read_entries(folder)
    assert problems == []
    for entry in entries:
        scored = score_entry(entry).rows_by_length
        columns = row_columns(list(scored.values()))
        for place, length in enumerate(scored):
            row = rows[entry.model, length]
            assert columns["p_corrected"][place] == (
                None if row.p_corrected is None else pytest.approx(row.p_corrected, abs=1e-6)
            )
            assert columns["verdict"][place] == describe_verdict(row, row.verdict)


def test_an_inspection_of_the_same_scores_agrees(folder, rows):
    for result in read_results(folder):
        (scores,) = json.loads(result.file.read_text(encoding="utf-8"))["scores"]["test"]
        for outcome in build_rows(read_summary(scores, result.task)):
            row = rows[result.model, outcome.length]
            shown = Scores.from_row(outcome)
            assert (shown.p_value, shown.p_corrected, shown.bias) == (row.p_value, row.p_corrected, row.verdict)


def test_a_comparison_and_a_report_of_training_agree(folder):
    compared = {row.metric: row for row in compare(pair_runs(folder), ["all"]).rows}
    before, after = (result.ranks for result in read_results(folder))
    changes = {change.score: change for change in correct(compare_ranks(before, after))}
    for metric, score in ((Metric.NDCG, NDCG), (Metric.START_TO_END, START_TO_END), (Metric.PSI, PSI)):
        row, change = compared[metric], changes[score]
        assert (row.p_value, row.p_corrected) == (change.p_value, change.p_corrected)
        assert row.difference == change.difference
