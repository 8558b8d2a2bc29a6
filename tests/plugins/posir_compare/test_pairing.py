"""Tests for the results that are compared, and for pairing queries."""

import json

import numpy as np
import pytest

import posir
from posir_compare.comparison import compare_pairs
from posir_compare.pairing import find_common_results
from posir_significance.findings import Metric, Reason
from posir_significance.observations import Observations
from posir_tasks.base.errors import PosirError
from posir_tasks.values.place_ranks import (
    rank_places,
    serialize_places,
)
from posir_tasks.values.profile import NDCG_AT_10, map_ranks_to_columns
from posir_tasks.values.schemes import RelativePositions
from tests.support.comparison import (
    DOMAINS,
    SCHEME,
    draw_evidence,
    draw_ranks,
    only_pair,
    pair_runs,
    write_run,
)
from tests.support.results import describe_run


def test_queries_are_paired_by_document_ranks(tmp_path):
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write_run(tmp_path, model, seed)
    results = find_common_results(only_pair(tmp_path))
    assert results.notes == []
    assert results.are_paired
    a, b = (Observations.from_ranks(values.ranks) for values in (results.a, results.b))
    np.testing.assert_array_equal(a.layout.clusters, b.layout.clusters)
    np.testing.assert_array_equal(a.layout.position, b.layout.position)
    plain = [
        NDCG_AT_10[map_ranks_to_columns(draw_ranks(len(evidence), seed + place))]
        for seed in (1, 5)
        for place, evidence in enumerate(DOMAINS.values())
    ]
    expected = np.concatenate(plain[2:]) - np.concatenate(plain[:2])
    np.testing.assert_allclose(np.sort(b.gains - a.gains), np.sort(expected))
    by_document = np.bincount(a.layout.clusters, weights=(b.gains - a.gains) ** 2)
    np.testing.assert_allclose(
        np.sort(by_document), np.sort((expected**2).reshape(-1, 5).sum(axis=1)), atol=1e-12
    )


@pytest.mark.parametrize("by_document", [True, False])
def test_different_queries_are_compared_without_pairing(tmp_path, by_document):
    write_run(tmp_path, "org/a", 1)
    other = draw_evidence(300, 1)
    other.query_ids[0] = "another" if by_document else other.query_ids[0]
    write_run(tmp_path, "org/b", 5, DOMAINS | {"game": other}, by_document=by_document)
    common = find_common_results(only_pair(tmp_path))
    assert not common.are_paired
    assert (
        "compared without pairing. The two results are on different queries or documents."
        in common.notes[0]
    )


@pytest.mark.parametrize(
    ("domains", "note"),
    [
        (
            {"sports": DOMAINS["sports"], "mining": DOMAINS["game"]},
            "subsets that only one of them has: game, mining.",
        ),
        (
            DOMAINS | {"game": draw_evidence(299, 1)},
            "skipped subsets whose queries or position bins differ: game",
        ),
    ],
)
def test_subsets_with_different_queries_are_skipped(tmp_path, domains, note):
    write_run(tmp_path, "org/a", 1)
    write_run(tmp_path, "org/b", 1, domains)
    results = find_common_results(only_pair(tmp_path))
    assert (results.subsets, results.a.profile.queries) == (["sports"], 200)
    assert note in results.notes[0]


@pytest.mark.parametrize(
    ("domains", "scheme", "message"),
    [
        (
            {"game": draw_evidence(10), "sports": draw_evidence(10)},
            SCHEME,
            "queries or position bins differ: game, sports",
        ),
        (DOMAINS, RelativePositions(bins=4), "queries or position bins differ: game, sports"),
        ({"mining": draw_evidence(10)}, SCHEME, "that only one of them has: game, mining"),
    ],
)
def test_runs_without_common_queries_raise(tmp_path, domains, scheme, message):
    write_run(tmp_path, "org/a", 1)
    write_run(tmp_path, "org/b", 1, domains, scheme=scheme)
    with pytest.raises(PosirError, match=message):
        compare_pairs(pair_runs(tmp_path))
    write_run(tmp_path, "org/c", 1)
    result = compare_pairs(pair_runs(tmp_path))
    assert {(row.subject.baseline, row.subject.model) for row in result.rows} == {
        ("org/a", "org/c")
    }
    assert any(message in note for note in result.notes)


def test_runs_of_one_model_with_different_settings_are_paired(tmp_path):
    for seed, experiment in enumerate((None, "dim_64", "dim_32")):
        write_run(tmp_path, "org/a", seed, experiment=experiment)
    results = [find_common_results(pair) for pair in pair_runs(tmp_path)]
    assert [(common.are_paired, common.notes) for common in results] == [(True, [])] * 2


@pytest.mark.parametrize(
    ("other", "differing"),
    [
        (describe_run("local-2", corpus="c1"), "corpus"),
        (describe_run("local-2", queries="q1"), "queries"),
        (describe_run("local-2", corpus="c1", queries="q1"), "corpus and queries"),
        ({"schema": 1, "data_revision": "local-2"}, "revision"),
    ],
)
def test_different_data_raises_with_file_and_revision(tmp_path, other, differing):
    files = [
        write_run(tmp_path, model, 1, position_run=run)
        for model, run in (("org/a", describe_run("local-1")), ("org/b", other))
    ]
    with pytest.raises(PosirError) as error_info:
        compare_pairs(pair_runs(tmp_path))
    assert f"skipped subsets whose data differ ({differing}) in " in str(error_info.value)
    for file, revision in zip(files, ("local-1", "local-2"), strict=True):
        assert f"{file} (data revision {revision})" in str(error_info.value)


def test_equal_content_is_compared_across_revisions(tmp_path):
    for model, revision in (("org/a", "c" * 40), ("org/b", "local-1")):
        write_run(tmp_path, model, 1, position_run=describe_run(revision))
    common = find_common_results(only_pair(tmp_path))
    assert common.subsets == ["game", "sports"]
    assert common.are_paired
    assert common.notes == []


def test_only_subsets_with_different_data_are_skipped(tmp_path):
    write_run(tmp_path, "org/a", 1, position_run=describe_run("r"))
    file = write_run(tmp_path, "org/b", 2, position_run=describe_run("r"))
    written = json.loads(file.read_text())
    written["scores"]["test"][0]["position_run"] = describe_run("local-2", corpus="c1")
    file.write_text(json.dumps(written))
    common = find_common_results(only_pair(tmp_path))
    assert common.subsets == ["sports"]
    assert common.are_paired
    assert "skipped subsets whose data differ (corpus) in " in common.notes[0]


def test_queries_with_several_spans_are_compared_separately(tmp_path):
    evidence, gains = draw_evidence(600, 3), []
    for model, seed in (("org/a", 1), ("org/b", 5)):
        ranks = draw_ranks(600, seed)
        gains.append(NDCG_AT_10[map_ranks_to_columns(ranks)])
        places = rank_places(
            SCHEME, evidence, [f"q{row // 2}" for row in range(600)], ranks, subset="game"
        )
        write_run(
            tmp_path,
            model,
            seed,
            {"game": draw_evidence(300, 1)},
            places=serialize_places(places),
            hit_rates=(0.5, 0.5, 0.5),
        )
    comparison = posir.compare(tmp_path)
    rows = {
        row.metric: row
        for row in comparison.rows
        if row.subject.task == "PosIR-English, several places"
    }
    assert [
        (metric.key, row.subject.queries, row.subject.method) for metric, row in rows.items()
    ] == [("ndcg_at_10", 300, "paired by query")]
    assert rows[Metric.NDCG_AT_10].estimate.value == pytest.approx(np.mean(gains[1] - gains[0]))
    gate = comparison.check(["ndcg_at_10 < -50", "position_effect > 99"])
    tested = [(limit.task, limit.metric.key, limit.verdict.value) for limit in gate.limits]
    assert tested.count(("PosIR-English, several places", "ndcg_at_10", "passes")) == 1
    assert {row.subject.unit_name for row in rows.values()} == {"cluster"}
    assert (len(tested), gate.exit_status) == (3, 0)
    shown = posir.report(tmp_path)
    assert shown.check("position_effect > 90").exit_status == 0
    (row,) = (row for row in shown.span_rows if row.model == "org/b")
    assert row.ndcg_at_10.value == pytest.approx(np.mean(gains[1]))
    assert row.findings.reason is Reason.SEVERAL_POSITIONS
    assert "PosIR-English, several places · 300 queries" in str(shown)
