"""Test the leaderboard's scores, files and commands; `test_board_page` tests the page."""

import csv
import gzip
import http.client
import io
import json
import os
import re
import shutil
import struct
import tempfile
import threading
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from itertools import permutations, product
from pathlib import Path

import mteb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from posir_compare.comparison import compare_pairs
from posir_leaderboard.board import averages, charts, groups, views
from posir_leaderboard.board import build as building
from posir_leaderboard.board import records as recording
from posir_leaderboard.board.build import RECORD_ADAPTER
from posir_leaderboard.board.comparable import compute_pin, format_pins
from posir_leaderboard.board.folder import create_server, push_site, write_site
from posir_leaderboard.board.manifest import MANIFEST, hash_content
from posir_leaderboard.board.ranks import (
    average_by_cluster,
    average_differences,
    compute_paired_differences,
    compute_rank_ranges,
)
from posir_leaderboard.board.site import (
    MODEL_FIELDS,
    bundle_table_library,
    render_data_file,
    render_site,
)
from posir_leaderboard.entries import read_entries
from posir_published.rows import list_published_rows
from posir_report.columns import list_score_columns
from posir_report.summary import VERDICT_COLUMNS, build_rows, summarize
from posir_significance.cells import MERGED_BINS, build_curve_cells
from posir_significance.changes import decide_change
from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import ChangeState, Metric, Reason, State
from posir_significance.group_means import MIN_QUERIES
from posir_significance.intervals import build_student_difference
from posir_significance.messages.verdicts import name_state
from posir_tasks.base.errors import PosirError
from posir_tasks.display.position_charts import draw_glyph
from posir_tasks.results import read_results
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.means import estimate_mean
from posir_tasks.values.profile import NDCG_AT_10, PositionProfile, average_gains
from posir_tasks.values.result_schema import round_floats
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import Direction, ScoreInfo, Unit
from tests.support.board import (
    GROUPS,
    NO_LIBRARIES,
    columns_at,
    contents,
    fake_findings,
    fake_model,
    fake_record,
    hostile_names,
    length_columns,
    published,
    read_site,
)
from tests.support.commands import run
from tests.support.comparison import pair_runs
from tests.support.damage import call_posir
from tests.support.guessing import write_guesses
from tests.support.hub import Folder, Store, serve_all
from tests.support.results import write_result

DOMAINS = ("sports", "game", "mining")
EDGES = st.floats(0, 1)


def profile(seed: int, queries: int = 300) -> PositionProfile:
    """Build the profile of a model that favors the start."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, 980, queries)
    tokens = rng.integers(100, 2500, queries)
    ids = [f"q{number}" for number in range(queries)]
    evidence = Evidence(ids, ["d"] * queries, starts, starts + 20, np.full(queries, 1_000), tokens)
    ranks = np.where(rng.random(queries) < 0.9 - starts / 2000, rng.integers(1, 4, queries), 0)
    return PositionProfile.from_ranks(RelativePositions(), evidence, ranks)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for seed, (model, task) in enumerate(
        [
            ("org/first", "PosIR-English"),
            ("org/first", "PosIR-German"),
            ("org/second", "PosIR-English"),
        ]
    ):
        write_result(
            folder,
            {domain: profile(10 * seed + at) for at, domain in enumerate(DOMAINS)},
            model=model,
            task=task,
        )
    return folder


@pytest.fixture(scope="module")
def built(results, tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("built")
    outcome = building.build_site(results, folder / "site", folder / "cache")
    assert (outcome.results, outcome.scored, outcome.problems) == (3, 3, [])
    return folder / "site", folder / "cache"


# Scores


def test_view_has_the_scores_of_the_report(built, results):
    site = contents(read_site(built[0]))
    (group,) = (group for group in site["board"]["groups"] if group["name"] == "PosIR")
    reported = list(csv.DictReader(io.StringIO(call_posir("report", results, "--csv").printed)))
    compared = 0
    for row in reported:
        (choice,) = (
            view for view in group["views"] if view["name"] == row["task"] and not view["average"]
        )
        view = site[f"views/{choice['file']}"]
        names = [site["board"]["models"]["name"][index] for index in view["models"]]
        columns, at = length_columns(site, choice["file"], row["length"]), names.index(row["model"])
        ends = ("ndcg_at_10", "position_effect", "position_effect_in_window", "start_minus_end")
        single = (
            "queries",
            "ndcg_at_10_as_published",
            "ndcg_at_10_as_published_high",
            "score",
            "unread_share",
        )
        of_psi = ("psi_as_published", "psi_by_chance", "psi_by_chance_high")
        for name in (
            *single,
            *of_psi,
            *(f"{key}{end}" for key in ends for end in ("", "_low", "_high")),
        ):
            reported_value = row.get("ndcg_at_10" if name == "score" else name)
            expected = pytest.approx(float(reported_value), abs=5e-7) if reported_value else None
            assert columns[name][at] == expected
            compared += 1
        for name in ("state", "reason", "answer"):
            assert (columns[name][at] or "") == row[name]
        assert columns["states"][at] == [row["state"]]
    assert compared == 20 * 3 * 5


def test_compiled_charts_are_current():
    stored = json.loads(charts.FILE.read_text())
    if stored["versions"] != charts.find_compiler_versions():
        pytest.skip("other versions compile other specifications")
    assert stored["charts"] == charts.compile_specifications()


def test_preview_has_an_image(built):
    content = (built[0] / "preview.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24]) == (1200, 630)
    assert (
        b'<meta property="og:image" content="preview.png">'
        in (built[0] / "index.html").read_bytes()
    )
    records = [fake_record(fake_model(0), "PosIR-English", 0)]
    page = render_site(records, GROUPS, NO_LIBRARIES, url="https://board.example")["index.html"]
    assert b'<meta property="og:image" content="https://board.example/preview.png">' in page


def test_sparse_bins_of_a_curve_are_merged_as_in_the_report(tmp_path):
    write_result(
        tmp_path, {"one": profile(0) + profile(1)}, model="org/first", task="PosIR-English"
    )
    (summary,) = summarize(read_results(tmp_path))
    (entry,), _ = read_entries(tmp_path)
    record = recording.score_task(recording.pool_subsets(entry))
    view = views.build_task_view("PosIR-English", [record])
    glyph = columns_at(view, "Q4")["strip"][0]
    assert glyph == draw_glyph(build_rows(summary)[-1].position_chart)
    curves = record.detail["curves"][1:]
    counts = summary.profile.counts.sum(axis=2)
    sparse = [bool(queries.min() < MIN_QUERIES) for queries in counts]
    assert True in sparse
    assert [curve is not None for curve in curves] == sparse
    for curve, title in zip(curves, summary.profile.axes.length_titles, strict=True):
        if curve:
            cells = [cell for cell in build_curve_cells(summary.values) if cell.length == title]
            assert len(cells) == MERGED_BINS
            for name in recording.BIN_COLUMNS:
                expected = [cell.to_record().get(name) for cell in cells]
                assert curve[name] == round_floats(expected)


def test_impossible_date_is_unknown():
    assert recording.read_date(1795346613.2) == "2026-11-22"
    assert {recording.read_date(seconds) for seconds in (None, "now", -1, float("nan"), 1e300)} == {
        None
    }


def test_model_page_has_every_position_and_domain(built):
    site = contents(read_site(built[0]))
    index = site["board"]["models"]["name"].index("org/first")
    detail = site[f"models/{site['board']['models']['id'][index]}"]["tasks"]["PosIR-English"]
    whole = profile(0) + profile(1) + profile(2)
    expected = [whole.by_position(), *average_gains(whole.counts, NDCG_AT_10)]
    for panel, scores in zip(detail["panels"], expected, strict=True):
        shown = [np.nan if score is None else score for score in panel["ndcg_at_10"]]
        assert shown == pytest.approx(scores, abs=5e-7, nan_ok=True)
    assert detail["subsets"]["name"] == list(DOMAINS)
    assert detail["subsets"]["ndcg_at_10"] == pytest.approx(
        [profile(seed).score() for seed in range(3)], abs=5e-7
    )


def test_published_averages_match_the_papers():
    records = published()
    for group in groups.list_builtin_groups()[:2]:
        view = views.build_average_view(group, records)
        shown = {
            (row.model.name, length): scored
            for row in view.rows
            for length, scored in row.rows_by_length.items()
        }
        papers = {(row.model, row.length): row for row in list_published_rows(group.name)}
        opened = min(views.build_views(group, records), key=lambda view: view.initial_order)
        assert (opened.name, opened.initial_length) == (group.averaged_tasks[0], "Q4"), (
            "no average of languages"
        )
        assert shown.keys() == papers.keys()
        for key, row in papers.items():
            values = (
                shown[key].score.value,
                shown[key].get_estimate("psi_as_published").value,
                shown[key].queries,
            )
            assert values == pytest.approx((row.ndcg_at_10, row.psi_as_published, row.queries))


def test_added_languages_can_be_selected_and_are_not_averaged():
    listed = groups.list_builtin_groups(
        {"PosIR-Persian", "PosIR-Persian-English", "PosIR-German", "NFCorpus"}
    )
    known = {task for group in groups.list_builtin_groups() for task in group.labels}
    further = {
        task: label for group in listed for task, label in group.labels.items() if task not in known
    }
    assert further == {"PosIR-Persian": "Persian", "PosIR-Persian-English": "Persian → English"}
    assert further.keys().isdisjoint(task for group in listed for task in group.averaged_tasks)


def test_published_intervals_are_the_widest_possible():
    (row,) = (
        record
        for record in published()
        if record.model.name == "bge-m3" and record.task == "PosIR-English"
    )
    all_lengths = row.rows_by_length["all"]
    ndcg = all_lengths.ndcg_at_10
    half = 1.96 * np.sqrt(ndcg.value * (1 - ndcg.value) / 42_015)
    assert ndcg.high - ndcg.low == pytest.approx(2 * half, rel=1e-3)
    assert row.rows_by_length["Q1"].score.interval is None, (
        "the queries of a length bucket are not published"
    )
    assert (all_lengths.position_effect, all_lengths.states) == (None, (State.NOT_TESTED,))


@given(st.lists(st.tuples(EDGES, EDGES, EDGES).map(sorted), min_size=1, max_size=10))
def test_errors_of_independent_tasks_add_in_quadrature(ends):
    template = fake_record(fake_model(0), "PosIR-English", 0).rows[0]
    rows = [
        template.with_scores(position_effect=Estimate(mean, (low, high)))
        for low, mean, high in ends
    ]
    lows, values, highs = np.array(
        [
            (row.position_effect.low, row.position_effect.value, row.position_effect.high)
            for row in rows
        ]
    ).T
    mean = values.mean()
    for power in (2, 1):
        shown = averages.average_rows(rows, "PosIR", power).position_effect
        below, above = (
            (abs(values - tails) ** power).sum() ** (1 / power) / len(rows)
            for tails in (lows, highs)
        )
        assert shown.value == pytest.approx(mean)
        assert shown.interval == (pytest.approx(mean - below), pytest.approx(mean + above))
        assert -1e-9 <= shown.low <= shown.value + 1e-9
        assert shown.value - 1e-9 <= shown.high <= 1 + 1e-9


def test_average_omits_scores_that_a_task_lacks():
    first, second = (fake_record(fake_model(0), "PosIR-English", seed).rows[0] for seed in (0, 1))
    shown = averages.average_rows([first.with_scores(psi_as_published=0.3)] * 4, "PosIR")
    assert shown.scores["psi_as_published"] == pytest.approx(0.3)
    effect = second.position_effect.value
    shown = averages.average_rows(
        [first, second.with_scores(position_effect=Estimate(effect), queries=None)], "PosIR"
    )
    assert (shown.position_effect.interval, shown.queries) == (None, None)
    assert shown.position_effect.value == pytest.approx((first.position_effect.value + effect) / 2)
    assert (
        averages.average_rows(
            [first, second.with_scores(position_effect=None)], "PosIR"
        ).position_effect
        is None
    )


def test_average_counts_states_of_tasks():
    template = fake_record(fake_model(0), "PosIR-English", 0).rows[0]
    states = [State.FAVORS_END, *[State.FAVORS_START] * 3, State.INCONCLUSIVE]
    rows = [replace(template, findings=fake_findings(0.0, state=state)) for state in states]
    average = averages.average_rows(rows, "PosIR")
    assert average.states == (State.FAVORS_START, State.FAVORS_END, State.INCONCLUSIVE)
    start, end, inconclusive = (name_state(state, 0.05) for state in average.states)
    assert average.state_label == f"{start} in 3, {end} in 1, {inconclusive} in 1 of 5"
    columns = recording.build_row_columns([average])
    assert (columns["state"], columns["states"]) == (
        [None],
        [[State.FAVORS_START, State.FAVORS_END, State.INCONCLUSIVE]],
    )
    untested = [replace(row, findings=fake_findings(0.0, state=State.NOT_TESTED)) for row in rows]
    assert averages.average_rows(untested, "PosIR").states == (State.NOT_TESTED,)
    assert averages.average_rows([replace(row, findings=None) for row in rows], "PosIR").states == (
        State.NOT_TESTED,
    )


# Rank ranges


@given(st.lists(st.tuples(EDGES, EDGES), max_size=12))
def test_rank_ranges_count_clearly_better_and_worse_models(pairs):
    intervals = [tuple(sorted(pair)) for pair in pairs]
    scores = [sum(pair) / 2 for pair in pairs]
    ranges = compute_rank_ranges(list(map(Estimate, scores, intervals)))
    for own, result in zip(intervals, ranges, strict=True):
        lower = sum(other[1] < own[0] for other in intervals)
        higher = sum(other[0] > own[1] for other in intervals)
        assert result == (higher + 1, len(pairs) - lower)


def test_scores_without_interval_have_no_range():
    scores = [Estimate(0.9, (0.8, 1.0)), Estimate(0.5), Estimate(0.1, (0.0, 0.2)), None]
    ranges = compute_rank_ranges(scores)
    assert ranges == [(1, 2), None, (2, 3), None]


def simulate_ranks(gains: np.ndarray, articles: np.ndarray) -> list[DocumentRanks]:
    """Simulate each model's ranks, given gains of 0 or 1 and the article of each query."""
    count = gains.shape[1]
    starts = np.arange(count) % 900
    ids, documents = (
        [f"q{query}" for query in range(count)],
        [f"d{article}" for article in articles],
    )
    evidence = Evidence(
        ids, documents, starts, starts + 5, np.full(count, 1_000), 300 + 700 * (articles % 3)
    )
    return [
        DocumentRanks.from_ranks(RelativePositions(), evidence, row.astype(np.int64))
        for row in gains
    ]


def test_paired_test_separates_overlapping_intervals():
    rng = np.random.default_rng(0)
    worse = (rng.random(600) < 0.5).astype(int)
    better = np.maximum(worse, rng.random(600) < 0.06)
    means = [
        average_by_cluster(value)[0]
        for value in simulate_ranks(np.array([worse, better]), np.arange(600))
    ]
    intervals = [
        estimate_mean(row.astype(float), np.arange(600)).interval for row in (worse, better)
    ]
    scores = [mean.gains.mean() for mean in means]
    assert scores == pytest.approx([worse.mean(), better.mean()])
    estimates = list(map(Estimate, scores, intervals))
    assert compute_rank_ranges(estimates) == [(1, 2), (1, 2)]
    assert compute_rank_ranges(estimates, compute_paired_differences(means)) == [(2, 2), (1, 1)]


def test_models_on_different_queries_are_compared_by_intervals():
    rng = np.random.default_rng(0)
    gains = (rng.random((2, 400)) < [[0.2], [0.9]]).astype(int)
    (first,), (second,) = (
        simulate_ranks(gains[:1], np.arange(400)),
        simulate_ranks(gains[1:, :399], np.arange(399)),
    )
    means = [average_by_cluster(value)[0] for value in (first, second)]
    differences = compute_paired_differences(means)
    assert not differences.paired.any()
    best = Estimate(0.9, (0.8, 1.0))
    assert compute_rank_ranges([Estimate(0.2, (0.1, 0.3)), best], differences) == [(2, 2), (1, 1)]
    assert compute_rank_ranges([Estimate(0.2, (0.1, 0.95)), best], differences) == [(1, 2), (1, 2)]


def test_paired_errors_match_errors_of_mean_differences():
    rng = np.random.default_rng(3)
    gains = (rng.random((3, 200)) < 0.6).astype(int)
    documents = rng.integers(0, 50, 200)
    differences = compute_paired_differences(
        [average_by_cluster(value)[0] for value in simulate_ranks(gains, documents)]
    )
    for item, two in ((0, 1), (0, 2), (1, 2)):
        difference = gains[item] - gains[two]
        sums = np.bincount(documents, weights=difference - difference.mean())[np.unique(documents)]
        error = np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum()) / 200
        assert differences.values[item, two] == pytest.approx(difference.mean())
        assert differences.errors[item, two] == pytest.approx(error, rel=0.01)
    average = average_differences([differences, differences], power=2)
    assert average.errors == pytest.approx(differences.errors / np.sqrt(2))
    assert average_differences([differences, differences], power=1).errors == pytest.approx(
        differences.errors
    )


def test_changes_match_compare_and_ranks_are_simultaneous():
    rng = np.random.default_rng(5)
    for documents in (5, 60, 400):
        gains = (rng.random((6, documents)) < np.linspace(0.4, 0.6, 6)[:, None]).astype(int)
        gains[5] = gains[4]
        means = [
            average_by_cluster(value)[0] for value in simulate_ranks(gains, np.arange(documents))
        ]
        differences = compute_paired_differences(means)
        states, level = differences.states, 1 - 0.05 / 3
        ranks = compute_rank_ranges(
            [Estimate(mean.gains.mean(), (0.0, 1.0)) for mean in means], differences
        )
        for row, column in permutations(range(6), 2):
            error, degrees = differences.errors[row, column], differences.degrees[row, column]
            difference = build_student_difference(differences.values[row, column], error, degrees)
            change = decide_change(
                Metric.NDCG_AT_10,
                difference,
                DEFAULT_MARGINS.ndcg_at_10,
                int(degrees) + 1,
                1,
                level,
            )
            assert states[row, column] == change.state
            assert differences.half_widths[row, column] == pytest.approx(
                t.ppf((1 + level) / 2, degrees) * error
            )
        joint = (
            differences.values > t.ppf(1 - 0.05 / 15 / 2, differences.degrees) * differences.errors
        )
        before, after = (((states == ChangeState.BETTER) & joint).sum(axis=axis) for axis in (0, 1))
        assert ranks == [(1 + first, 6 - last) for first, last in zip(before, after, strict=True)]
    assert states[5, 4] == ChangeState.EQUIVALENT
    assert ChangeState.BETTER in states


def test_score_names_do_not_clash_with_page_fields():
    script = (resources.files("posir_leaderboard") / "board/static/js/table.js").read_text()
    derived = re.findall(
        r"^ {8}(\w+)[:,]", script.split("Object.assign(row, {")[1].split("});")[0], re.MULTILINE
    )
    assert len(derived) > 5
    named = {
        name
        for column in recording.list_board_columns()
        if recording.get_page_key(column) == column.key
        for name in recording.list_column_names(column, column.key)
    }
    assert {*recording.NAMED_SCORES} <= {column.key for column in list_score_columns()}
    assert named.isdisjoint(
        {*derived, "name", *MODEL_FIELDS, *recording.TABLE_COLUMNS, *VERDICT_COLUMNS} - {"state"}
    )


def test_view_pairs_models_on_the_same_queries(tmp_path):
    rng = np.random.default_rng(0)
    gains = (rng.random((3, 400)) < [[0.5], [0.6], [0.6]]).astype(int)
    models = ("a", "b", "other")
    for name, value in zip(models, simulate_ranks(gains, np.arange(400)), strict=True):
        write_result(
            tmp_path, {"sports": value.profile if name == "other" else value}, model=f"org/{name}"
        )
    entries, problems = read_entries(tmp_path)
    assert problems == []
    records = [recording.score_task(recording.pool_subsets(entry)) for entry in entries]
    columns = columns_at(views.build_task_view("PosIR-English", records), "all")
    assert columns["paired"] == [1, 1, 0]
    assert (
        RECORD_ADAPTER.validate_json(RECORD_ADAPTER.dump_json(records[0])).means.keys()
        == records[0].means.keys()
    )
    view = views.build_task_view("PosIR-English", records)
    paired = view.build_differences(
        {record.model.id: index for index, record in enumerate(records)}, view.compute_differences()
    )
    rows = [
        row
        for row in compare_pairs(pair_runs(tmp_path)).rows
        if row.metric is Metric.NDCG_AT_10 and row.subject.model == "org/b"
    ]
    a, b = map(paired["models"].index, (0, 1))
    assert len(rows) == 4
    for row in rows:
        value, half = (
            paired["lengths"][row.subject.length][name][b][a] for name in ("value", "half")
        )
        assert [value, value - half, value + half] == pytest.approx(
            [row.estimate.value, *row.estimate.interval], abs=2e-6
        )
        assert paired["lengths"][row.subject.length]["state"][b][a] == row.state
    (compared,) = [row for row in rows if row.subject.length == "all"]
    columns = columns_at(views.build_task_view("PosIR-English", records[:2]), "all")
    *_, best, before, second, after = columns["lead"]
    ends = after.split("]")[0].split("[")[1]
    assert (best, second) == ("b", "a")
    assert before == f" is {100 * compared.estimate.value:.1f} points ahead of "
    assert list(map(float, ends.split(",\xa0"))) == pytest.approx(
        [100 * end for end in compared.estimate.interval], abs=0.1
    )


def test_result_without_rotated_versions_has_a_command(results):
    entries, _ = read_entries(results)
    (record,) = (
        recording.score_task(recording.pool_subsets(entry))
        for entry in entries
        if entry.model == "org/second"
    )
    for row in record.rows:
        assert (row.states, row.findings.reason) == ((State.NOT_TESTED,), Reason.NOT_STORED)
    columns = recording.build_row_columns(record.rows)
    assert {*columns["code"]} == {"posir run -t PosIR-English -m org/second"}
    assert {*columns["state"]} == {State.NOT_TESTED}
    assert {*columns["reason"]} == {"not_stored"}
    assert RECORD_ADAPTER.validate_json(RECORD_ADAPTER.dump_json(record)).rows == record.rows


def test_partial_result_is_neither_ranked_nor_averaged():
    group = groups.Group("PosIR", "Language", "", {"A": "A", "B": "B"}, ("A", "B"))
    whole = [fake_record(fake_model(number), task, number) for number in range(2) for task in "AB"]
    third = fake_model(2)
    records = [
        *whole,
        fake_record(third, "A", 6),
        replace(fake_record(third, "B", 7), partial="1 of 31 subsets"),
    ]
    view = views.build_task_view("B", records)
    assert [row.partial for row in view.rows] == ["", "", "1 of 31 subsets"]
    assert columns_at(view, "all")["rank"][2] is None
    assert all(last <= 2 for _, last in columns_at(view, "all")["rank"][:2])
    averaged = views.build_average_view(group, records)
    assert [row.partial for row in averaged.rows] == ["", "", "1 of 2 tasks"]
    assert columns_at(averaged, "all")["score"][2] is None


def test_lengths_of_another_scheme_have_names():
    record = fake_record(fake_model(0), "PosIR-English", 0)
    names = {"all": "all", "Q1": "s", "Q2": "m", "Q3": "l", "Q4": "xl"}
    rows = tuple(replace(row, length=names[row.length]) for row in record.rows)
    view = views.build_task_view("PosIR-English", [replace(record, rows=rows)])
    described = [view.describe_documents(length) for length in ("s", "m", "xl")]
    assert described == ["in short documents", "in documents of m", "in long documents"]


# Columns follow from the declarations


@pytest.fixture
def share(monkeypatch):
    share = ScoreInfo(
        "length",
        "First, <b>share",
        "Share of queries.",
        unit=Unit.PERCENT,
        better=Direction.HIGHER,
        interval=True,
    )
    monkeypatch.setattr(recording, "list_score_columns", lambda: [*list_score_columns(), share])
    recording.list_board_columns.cache_clear()
    yield share
    recording.list_board_columns.cache_clear()


def test_plugin_score_named_like_a_field_is_a_column(
    share,
):
    records = [
        replace(
            record,
            rows=tuple(row.with_scores(length=Estimate(0.25, (0.2, 0.3))) for row in record.rows),
        )
        for record in (
            fake_record(fake_model(0), task, 1) for task in ("PosIR-English", "PosIR-German")
        )
    ]
    site = render_site(records, GROUPS, NO_LIBRARIES)
    data = contents(site)
    (column,) = [column for column in data["board"]["columns"] if column["key"] == "scores.length"]
    assert (column["title"], column["description"], column["unit"]) == (
        share.title,
        "Share of queries.",
        "percent",
    )
    assert (column["better"], column["citation"], column["interval"], column["column"]) == (
        "higher",
        "",
        True,
        True,
    )
    for view in data["board"]["groups"][0]["views"]:
        shown = length_columns(data, view["file"], "all")
        assert (
            shown["scores.length"],
            shown["scores.length_low"],
            shown["scores.length_high"],
        ) == ([0.25], [0.2], [0.3])
    lines = list(csv.DictReader(io.StringIO(gzip.decompress(site["scores.csv.gz"]).decode())))
    assert [(line["scores.length"], line["scores.length_low"]) for line in lines] == [
        ("0.25", "0.2")
    ] * 10


def test_csv_has_every_declared_score():
    records = [
        record
        for record in published()
        if record.model.name == "bge-m3" and record.task == "PosIR-English"
    ]
    site = render_site(
        [*records, fake_record(fake_model(0), "PosIR-English", 1)], GROUPS, NO_LIBRARIES
    )
    lines = list(csv.DictReader(io.StringIO(gzip.decompress(site["scores.csv.gz"]).decode())))
    assert {column.key for column in list_score_columns()} <= lines[0].keys()
    means = ("ndcg_at_10", "ndcg_at_10_as_published")
    filled = {
        (line["published"], line["length"] == "all", *(bool(line[mean]) for mean in means))
        for line in lines
    }
    of_papers = {("true", True, True, False), ("true", False, False, True)}
    assert filled == of_papers | {("false", True, True, True), ("false", False, True, True)}
    data = contents(site)
    (view,) = [
        view for view in data["board"]["groups"][0]["views"] if view["name"] == "PosIR-English"
    ]
    for length, key in (("all", "ndcg_at_10"), ("Q1", "ndcg_at_10_as_published")):
        shown = length_columns(data, view["file"], length)
        from_paper = [
            data["board"]["models"]["published"][index]
            for index in data[f"views/{view['file']}"]["models"]
        ]
        keys = [key if of_paper else "ndcg_at_10" for of_paper in from_paper]
        assert shown["score"] == [shown[name][at] for at, name in enumerate(keys)]
        assert None not in shown["score"]


# A submitter's description of a model


def test_invalid_metadata_is_unknown():
    address = "https://huggingface.co/a/b"
    meta = {
        "n_parameters": 22713216,
        "max_tokens": 256.0,
        "embed_dim": [64, 384],
        "open_weights": True,
        "reference": address,
    }
    model = recording.read_board_model("a/b", "r", meta | {"model_type": ["late-interaction"]})
    assert (model.parameters, model.window, model.dimensions) == (22713216, 256, 384)
    assert (model.kind, model.open_weights, model.reference) == ("Late interaction", True, address)
    bm25 = recording.read_board_model(
        "mteb/baseline-bm25s", "r", {"model_type": ["sparse"], "n_parameters": 0}
    )
    assert bm25.kind == recording.BM25
    wrong = {
        "n_parameters": "many",
        "max_tokens": -3,
        "embed_dim": [{}, "x"],
        "open_weights": "yes",
        "license": ["mit"],
    }
    wrong |= {"model_type": "dense"}
    long = "https://" + "a" * 300
    for address in (
        "javascript:alert(1)",
        "http://a",
        "https://a b",
        'https://a"b',
        "https://a<b",
        long,
        " https://a",
    ):
        model = recording.read_board_model("a/b", "r", wrong | {"reference": address})
        assert model == recording.BoardModel("a/b", "r", kind=recording.UNKNOWN)


# Hostile names


def test_hostile_names_cannot_escape():
    models = [replace(fake_model(number), name=name) for number, name in enumerate(hostile_names())]
    models.append(replace(models[0], revision="another"))
    records = [
        fake_record(model, task, 3)
        for model in models
        for task in ("PosIR-English", "../../evil", "</script>")
    ]
    site = render_site(records, GROUPS, NO_LIBRARIES)
    folders = "(data/)?((views|lengths|models|differences|js|lib)/)?"
    safe = (
        folders + r"[a-z0-9-]+\.(js|css|html)|README\.md|preview\.png|(scores|positions)\.csv\.gz"
    )
    assert all(re.fullmatch(safe, path) for path in site)
    for path, body in site.items():
        if path.startswith("data/"):
            assert body.isascii()
            assert b"<" not in body
    index = contents(site)["board"]
    assert len(set(index["models"]["id"])) == len(models)
    assert sorted(index["models"]["name"]) == sorted(model.name for model in models)
    assert sum(path.startswith("data/models/") for path in site) == len(models)


def test_ids_depend_on_name_and_revision():
    parts = ("", "a", "b", "ab", "ba", "a\0", "\0b", "\ud800")
    models = [
        recording.BoardModel(*pair, published=published)
        for pair in product(parts, parts)
        for published in (False, True)
    ]
    assert len({model.id for model in models}) == len(models)
    assert (
        recording.BoardModel("NV-Embed-v2", "").id == recording.BoardModel("NV-embed-v2", "").id
    ), "whatever the case"
    assert all(re.fullmatch("[0-9a-f]{12}", model.id) for model in models)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)
    )
)
def test_data_file_contains_the_value_and_no_markup(value):
    text = render_data_file("x", value).decode("ascii")
    assert "<" not in text
    assert contents({"data/x.js": text.encode()})["x"] == value


def test_model_with_two_descriptions_has_one_row():
    model = fake_model(0)
    other = replace(model, license="mine", parameters=1)
    records = [fake_record(model, "PosIR-English", 0), fake_record(other, "PosIR-German", 1)]
    site = contents(render_site(records, GROUPS, NO_LIBRARIES))
    assert site["board"]["models"]["id"] == [model.id]
    assert set(site[f"models/{model.id}"]["tasks"]) == {"PosIR-English", "PosIR-German"}
    averaged = site[f"views/{site['board']['groups'][0]['views'][0]['file']}"]
    assert averaged["models"] == [0]
    assert averaged["partial"] == [""]


def test_unreadable_file_is_reported_and_the_others_shown(results, tmp_path):
    shutil.copytree(results, tmp_path / "a")
    bad = tmp_path / "a" / "results" / "org__first" / "rev1" / "PosIR-German.json"
    bad.write_text("[" * 100_000)
    (tmp_path / "elsewhere.json").write_text(bad.with_name("PosIR-English.json").read_text())
    link = tmp_path / "a" / "results" / "org__second" / "rev1" / "PosIR-English.json"
    link.unlink()
    link.symlink_to(tmp_path / "elsewhere.json")
    files = list(building.find_entry_files(tmp_path / "a"))
    for _ in range(2):
        records, problems, _ = building.score_results(files, tmp_path / "cache", submitted=False)
        assert [(record.model.name, record.task) for record in records.values()] == [
            ("org/first", "PosIR-English")
        ]
        assert sorted(Path(problem.file).name for problem in problems) == [
            "PosIR-English.json",
            "PosIR-German.json",
        ]


# Reproducible builds, and the cache


def test_order_of_results_does_not_matter():
    records = [
        fake_record(fake_model(number), task, number)
        for number in range(4)
        for task in GROUPS[0].averaged_tasks
    ]
    assert render_site(records, GROUPS, NO_LIBRARIES) == render_site(
        reversed(records), GROUPS, NO_LIBRARIES
    )


def test_second_build_scores_and_writes_nothing(built, results):
    site, cache = built
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    again = building.build_site(results, site, cache)
    assert (again.scored, again.changed_files) == (0, 0)
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before


def test_only_changed_results_are_scored_again(results, tmp_path, monkeypatch):
    shutil.copytree(results, tmp_path / "a")
    files = list(building.find_entry_files(tmp_path / "a"))
    cache = tmp_path / "cache"
    first, _, scored = building.score_results(files, cache, submitted=False)
    assert scored == 3
    write_result(tmp_path / "a", {"sports": profile(99)}, model="org/second")
    next((cache / "records").iterdir()).write_text("{damaged")
    scored = []
    record = first[files[0]]
    monkeypatch.setattr(
        recording,
        "score_task",
        lambda task: scored.append((task.entry.model, task.entry.task)) or record,
    )
    building.score_results(files, cache, submitted=False)
    assert 1 <= len(scored) <= 2
    assert ("org/second", "PosIR-English") in scored


def test_results_scored_together_have_the_same_scores_as_alone(results, tmp_path, monkeypatch):
    write_result(tmp_path, {"web": profile(3)}, model="org/short", task="PosIR-English")
    subsets = {"one": profile(0) + profile(1), "two": profile(2)}
    write_result(tmp_path, subsets, model="org/third", task="PosIR-English")
    files = [*building.find_entry_files(results), *building.find_entry_files(tmp_path)]
    together = building.score_results(files, tmp_path / "a", submitted=False)
    monkeypatch.setattr(building, "MAX_CHUNK_BYTES", 0)
    assert [len(chunk) for chunk in building._split_files(files)] == [1] * len(files)
    assert building.score_results(files, tmp_path / "b", submitted=False) == together
    assert together[2] == len(files) == 5


@pytest.mark.slow
def test_several_processes_give_the_same_scores(results, tmp_path, monkeypatch):
    files = list(building.find_entry_files(results))
    alone = building.score_results(files, tmp_path / "a", submitted=False)
    monkeypatch.setattr(building, "MIN_PARALLEL", 1)
    assert building.score_results(files, tmp_path / "b", submitted=False) == alone


def test_empty_folder_shows_published_results(tmp_path):
    (tmp_path / "results").mkdir()
    outcome = building.build_site(tmp_path / "results", tmp_path / "site", tmp_path / "cache")
    index = contents(read_site(tmp_path / "site"))["board"]
    assert outcome.results == 0
    assert index["models"]["published"] == [True] * outcome.models
    assert {"bge-m3", "BM25", "voyage-3-large"} <= set(index["models"]["name"])


# The output folder


def test_later_site_replaces_an_earlier_site(tmp_path):
    site = render_site([fake_record(fake_model(0), "PosIR-English", 0)], GROUPS, NO_LIBRARIES)
    write_site(site, tmp_path)
    later = render_site([fake_record(fake_model(1), "PosIR-English", 0)], GROUPS, NO_LIBRARIES)
    assert site.keys() - later.keys()
    write_site(later, tmp_path)
    assert list_site_files(tmp_path) == later
    assert write_site(later, tmp_path).changed_files == 0


def test_folder_without_a_site_is_not_changed(
    tmp_path,
):
    (tmp_path / "thesis.tex").write_text("years of work")
    for use, word in (
        (lambda: write_site({"index.html": b""}, tmp_path), "other than a leaderboard"),
        (lambda: write_site({"index.html": b""}, tmp_path / "thesis.tex"), "is a file"),
        (lambda: create_server(tmp_path, 0), "is not a leaderboard"),
        (lambda: push_site(tmp_path, "org/space"), "is not a leaderboard"),
    ):
        with pytest.raises(PosirError, match=word):
            use()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


EARLIER = {"index.html": b"a", "data/board.js": b"b", "data/old.js": b"c", "js/core.js": b"d"}
LATER = {"index.html": b"A", "data/board.js": b"B", "js/core.js": b"d", "js/new.js": b"e"}


def list_site_files(folder: Path) -> dict[str, bytes]:
    return {path: content for path, content in read_site(folder).items() if path != MANIFEST}


def test_added_and_edited_files_are_kept(tmp_path):
    write_site(EARLIER, tmp_path)
    added = {"lib/thesis.tex": b"1", "data/notes.js": b"2", "js/deep/own.js": b"3", "CNAME": b"4"}
    for path, content in (added | {"data/old.js": b"changed", "index.html": b"edited"}).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    change = write_site(LATER, tmp_path)
    kept = {"index.html.replaced": b"edited", "data/old.js": b"changed"}
    assert list_site_files(tmp_path) == LATER | added | kept
    assert set(change.kept_files) == {str(tmp_path / path) for path in kept}
    # They now belong to the user, and later builds ignore them.
    assert write_site(EARLIER | {"data/old.js": b"changed"}, tmp_path).kept_files == []


@pytest.mark.parametrize("path", ["js/new.js", "js/new.js/inner"])
def test_foreign_file_at_a_site_path_is_an_error(tmp_path, path):
    write_site(EARLIER, tmp_path)
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text("precious")
    before = read_site(tmp_path)
    with pytest.raises(PosirError, match=r"js/new\.js.*--output"):
        write_site(LATER, tmp_path)
    assert read_site(tmp_path) == before


def test_links_are_not_followed(tmp_path):
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    write_site(EARLIER, site)
    elsewhere.mkdir()
    (site / "data" / "old.js").rename(elsewhere / "old.js")
    (site / "data" / "old.js").symlink_to(elsewhere / "old.js")
    assert write_site(LATER, site).kept_files == [str(site / "data" / "old.js")]
    (site / "js").rename(elsewhere / "js")
    (site / "js").symlink_to(elsewhere / "js")
    before = read_site(elsewhere)
    with pytest.raises(PosirError, match="is a link"):
        write_site({**LATER, "js/core.js": b"new"}, site)
    assert read_site(elsewhere) == before
    (tmp_path / "link").symlink_to("new")
    write_site(LATER, tmp_path / "link")
    assert (list_site_files(tmp_path / "new"), (tmp_path / "link").is_symlink()) == (LATER, True)


@pytest.mark.parametrize(
    "manifest",
    [
        "[]",
        "{",
        "{}",
        '{"schema_version": 1, "files": {"../precious": ["DIGEST"]}}',
        '{"schema_version": 1, "files": {"ABSOLUTE": ["DIGEST"]}}',
        '{"schema_version": 1, "files": {"js/../../precious": ["DIGEST"]}}',
        '{"schema_version": 1, "files": {"js//core.js": ["DIGEST"]}}',
        '{"schema_version": 1, "files": {"js/core.js": "DIGEST"}}',
        '{"schema_version": 1, "files": {"js/core.js": [1]}}',
        '{"schema_version": 2, "files": {}}',
    ],
)
def test_manifest_with_other_paths_is_rejected(tmp_path, manifest):
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    filled = manifest.replace("ABSOLUTE", str(precious)).replace(
        "DIGEST", hash_content(precious.read_bytes())
    )
    (tmp_path / "site" / MANIFEST).parent.mkdir(parents=True)
    (tmp_path / "site" / MANIFEST).write_text(filled)
    with pytest.raises(PosirError):
        write_site(LATER, tmp_path / "site")
    assert precious.read_text() == "years of work"


PATHS = st.sampled_from(
    [*EARLIER, *LATER, "data/a.js", "js/b/c.js", "lib/d", ".env", "e.html", "data/old.js.replaced"]
)
STEPS = st.lists(
    st.one_of(
        st.sampled_from([EARLIER, LATER]), st.tuples(PATHS, st.binary(min_size=1, max_size=3))
    ),
    max_size=8,
)


@given(STEPS)
def test_foreign_files_survive_every_build(steps):
    with tempfile.TemporaryDirectory() as name:
        folder, written = Path(name) / "site", []
        write_site(EARLIER, folder)
        for step in steps:
            if isinstance(step, dict):
                with suppress(PosirError):
                    write_site(step, folder)
                    assert step.items() <= list_site_files(folder).items()
            else:
                path, content = step
                # A user may overwrite a user's file.
                before = folder / path
                written = [
                    other
                    for other in written
                    if not before.is_file() or other != before.read_bytes()
                ]
                before.parent.mkdir(parents=True, exist_ok=True)
                before.write_bytes(content)
                written.append(content)
        assert set(written) <= set(list_site_files(folder).values())


@pytest.mark.parametrize("writes", range(1, 8))
def test_next_build_finishes_a_killed_build(tmp_path, monkeypatch, writes):
    write_site(EARLIER, tmp_path)
    done = []
    replace_file = Path.replace

    def replace_or_die(source: Path, target: Path) -> Path:
        done.append(target)
        if len(done) == writes:
            raise KeyboardInterrupt
        return replace_file(source, target)

    monkeypatch.setattr(Path, "replace", replace_or_die)
    with suppress(KeyboardInterrupt):
        write_site(LATER, tmp_path)
    monkeypatch.undo()
    assert write_site(LATER, tmp_path).kept_files == []
    assert list_site_files(tmp_path) == LATER


@pytest.mark.slow
def test_repository_and_copy_give_the_same_site(tmp_path):
    results, commit = tmp_path / "results", "a" * 40
    write_guesses(results, [mteb.get_task("PosIR-Mini")], name="org/guessing", revision=commit)
    (results / "pins.json").write_text(format_pins({"PosIR-Mini": compute_pin("PosIR-Mini")}))
    arguments = ("leaderboard", "build", "--results")
    with serve_all(
        Folder("org/results", results, "b" * 40),
        Store("org/guessing", kind="models", commits=[commit]),
    ) as hub:
        home = {"HF_HOME": str(tmp_path / "hf"), "POSIR_CACHE": str(tmp_path)}
        environment = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", **home}
        missing = run(
            "posir", *arguments, "org/nothing", "--output", str(tmp_path / "site"), **environment
        )
        assert not (tmp_path / "site").exists()
        done = run(
            "posir",
            *arguments,
            "org/results",
            "--output",
            str(tmp_path / "site"),
            "--strict",
            **environment,
        )
        copy = run(
            "posir",
            *arguments,
            str(results),
            "--output",
            str(tmp_path / "copy"),
            "--strict",
            **environment,
        )
    assert missing.returncode == 1
    assert "org/nothing" in missing.stderr
    assert "Traceback" not in missing.stderr
    assert (done.returncode, copy.returncode) == (0, 0), done.stderr
    assert "1 result, 1 of them newly scored" in done.stdout
    made, expected = read_site(tmp_path / "site"), read_site(tmp_path / "copy")
    assert b"--repo org/results" in made["index.html"]
    made["index.html"] = made["index.html"].replace(b"--repo org/results", b"--repo ORG/RESULTS")
    # The file contains the digest of the page.
    assert made.pop(MANIFEST) != expected.pop(MANIFEST)
    assert made == expected


# The local server


@pytest.fixture
def served(tmp_path):
    write_site(
        render_site([fake_record(fake_model(0), "PosIR-English", 0)], GROUPS, NO_LIBRARIES),
        tmp_path / "site",
    )
    (tmp_path / "secret.txt").write_text("secret")
    with create_server(tmp_path / "site", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def request(server, path: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(*server.server_address)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer, answer.read()


def test_server_is_local_and_sends_content_types(served):
    assert served.server_address[0] == "127.0.0.1"
    for path, kind in {
        "/": "text/html",
        "/board.css": "text/css",
        "/js/core.js": "text/javascript",
    }.items():
        assert request(served, path)[0].getheader("Content-Type").startswith(kind)


def test_server_serves_only_its_folder(served, tmp_path):
    site = tmp_path / "site"
    for name, target in {
        "out": tmp_path,
        "out.js": tmp_path / "secret.txt",
        "up.js": "../secret.txt",
    }.items():
        (site / "js" / name).symlink_to(target)
    (site / "js" / "loop.js").symlink_to("loop.js")
    (site / ".git").mkdir()
    (site / ".git" / "config").write_text("secret")
    (site / "js" / "hidden.js").symlink_to("../.git/config")
    (site / ".env").write_text("secret")
    os.mkfifo(site / "js" / "fifo.js")
    missing = (
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/nothing.js",
        "/..\\secret.txt",
    )
    missing += (
        "/js/out.js",
        "/js/up.js",
        "/js/out/secret.txt",
        "/js/loop.js",
        "/js/hidden.js",
        "/js/fifo.js",
    )
    missing += (
        "/.env",
        "/.git/config",
        "/%2egit/config",
        "/js",
        "/js/",
        "/data/",
        "/js//core.js",
        "/js/./core.js",
    )
    missing += (
        "/js/core.js/",
        "/JS/core.js",
        "/" + "x" * 300,
        "/" + "x/" * 5_000,
        "/%2e",
        "/js/%2e%2e/index.html",
    )
    malformed = (
        "/%00",
        "/%00.js",
        "/js/core.js%00",
        "/%",
        "/%2",
        "/%zz",
        "/%ff",
        "/%0a",
        "/%0d%0aX:%20y",
        "*",
        "x",
    )
    for path in missing + malformed:
        answer, body = request(served, path)
        assert (path, answer.status, b"secret" in body) == (path, 404, False)
    for path in (
        "/",
        "/?x=1",
        "/index.html",
        "/js/core.js?v=..",
        "/js/core.js#x",
        "/%6as/core.js",
        "//js/core.js",
    ):
        assert request(served, path)[0].status == 200, path


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/", 200),
        ("HEAD", "/%00", 404),
        ("HEAD", "/js/", 404),
        ("POST", "/", 501),
        ("PUT", "/index.html", 501),
        ("DELETE", "/index.html", 501),
        ("OPTIONS", "*", 501),
        ("NOTHING", "/", 501),
    ],
)
def test_server_rejects_other_methods(served, method, path, status):
    connection = http.client.HTTPConnection(*served.server_address)
    connection.request(method, path, body=b"x" if method in ("POST", "PUT") else None)
    answer = connection.getresponse()
    assert answer.status == status
    if method == "HEAD":
        assert answer.read() == b""


def test_port_in_use_is_reported(served, tmp_path):
    with pytest.raises(PosirError, match="is not available"):
        create_server(tmp_path / "site", served.server_port)


def test_index_data_are_small():
    records = [
        fake_record(fake_model(number), "PosIR-English", number, detail=False)
        for number in range(500)
    ]
    site = render_site(
        records, GROUPS, {"datatables": bundle_table_library(), "vega": "x" * 2_000_000}
    )
    page = site["index.html"].decode()
    first = ["index.html", "board.css", *re.findall(r'src="([^"?]+)', page)]
    sizes = {path: len(gzip.compress(site[path])) for path in first if path in site}
    assert len(sizes) == len(first)
    assert "lib/vega.js" not in sizes
    assert sum(sizes.values()) < 1_000_000, json.dumps(sizes)
