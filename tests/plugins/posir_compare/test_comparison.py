"""The rows of a comparison, and their corrected p-values."""

from dataclasses import replace

import numpy as np
import pytest

from posir_compare.comparison import Metric, compare, compare_pair, correct_rows
from posir_compare.pairing import find_common_results
from posir_significance.correction import holm
from tests.support.comparison import draw_evidence, only_pair, pair_runs, write_run
from tests.support.scores import score_groups


@pytest.fixture
def folder(tmp_path):
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write_run(tmp_path, model, seed)
    return tmp_path


def test_each_metric_is_corrected_separately(folder):
    rows = compare_pair(only_pair(folder), find_common_results(only_pair(folder)))
    fixed = correct_rows(rows)
    for metric in Metric:
        tested = [row for row in fixed if row.metric is metric and row.p_value is not None]
        given_, result = zip(*((row.p_value, row.p_corrected) for row in tested), strict=True)
        np.testing.assert_allclose(result, holm(given_))


def test_empty_and_tiny_lengths_take_no_share_of_the_correction(tmp_path):
    """Twenty documents in Q4, two in Q1 and one in Q2: a difference is corrected for `all` and Q4 alone."""
    tokens = np.repeat([*[2000] * 20, 100, 100, 600], 5)
    evidence = replace(draw_evidence(115, 3), tokens=tokens)
    for model, seed in (("org/a", 1), ("org/b", 2)):
        write_run(tmp_path, model, seed, domains={"sports": evidence})
    rows = [row for row in compare(pair_runs(tmp_path)).rows if row.metric is Metric.NDCG]
    assert [row.length for row in rows] == ["all", "Q1", "Q2", "Q4"]
    assert [row.p_corrected is None for row in rows] == [False, True, True, False]
    smallest = min((row for row in rows if row.p_corrected is not None), key=lambda row: row.p_value)
    assert smallest.p_corrected == pytest.approx(min(1, 2 * smallest.p_value))


def test_every_value_lies_within_its_interval_and_agrees_with_the_p_value(folder):
    for row in compare_pair(only_pair(folder), find_common_results(only_pair(folder))):
        for value, low, high in (
            (row.a.value, row.a.low, row.a.high),
            (row.b.value, row.b.low, row.b.high),
            (row.difference.value, row.difference.low, row.difference.high),
        ):
            assert low <= value <= high
        if row.metric is not Metric.PSI:
            assert (row.p_value < 0.05) == (row.difference.low > 0 or row.difference.high < 0)


def test_rows_have_the_scores_of_the_models(folder):
    common = find_common_results(only_pair(folder))
    scores = score_groups(common.b.profile, common.b)
    for row in compare_pair(only_pair(folder), common):
        name = {Metric.NDCG: "ndcg_at_10", Metric.PSI: "psi", Metric.START_TO_END: "start_to_end"}[row.metric]
        assert row.b.value == scores[row.length.lower()][name]
        assert row.queries == scores[row.length.lower()]["queries"]


def test_a_model_does_not_differ_from_itself(tmp_path):
    write_run(tmp_path, "org/a", 1)
    write_run(tmp_path, "org/b", 1)
    for row in compare_pair(only_pair(tmp_path), find_common_results(only_pair(tmp_path))):
        assert (row.difference.value if row.difference else 0, 1 if row.p_value is None else row.p_value) == pytest.approx(
            (0, 1), abs=1e-12
        )
        if row.metric is not Metric.PSI:
            assert row.difference.high < 0.02


def test_pairing_narrows_the_interval_of_models_that_fail_on_the_same_queries(tmp_path):
    write_run(tmp_path, "org/a", 1)
    write_run(tmp_path, "org/b", 1)
    write_run(tmp_path / "old", "org/b", 1, by_document=False)
    unpaired, paired = (compare_pair(pair, find_common_results(pair))[0] for pair in pair_runs(tmp_path))
    assert (paired.method, unpaired.method) == ("paired by query", "unpaired")
    assert paired.difference.high < 0.5 * unpaired.difference.high


def test_same_input_same_numbers(folder):
    assert compare(pair_runs(folder)) == compare(pair_runs(folder))


def test_two_folders_and_one_folder_give_the_same(tmp_path):
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write_run(tmp_path / "both", model, seed)
        write_run(tmp_path / model[-1], model, seed)
    first, second = (compare(pair_runs(*f)) for f in ([tmp_path / "both"], [tmp_path / "a", tmp_path / "b"]))
    assert first == second
    assert [row.length for row in first.rows if row.metric is Metric.PSI] == ["all", "Q1", "Q2", "Q3", "Q4"]
    assert {row.method for row in first.rows} == {"paired by query"}
    turned = compare(pair_runs(tmp_path / "b", tmp_path / "a"))
    assert [row.difference.value for row in turned.rows] == pytest.approx([-row.difference.value for row in first.rows])
    assert [row.p_value for row in turned.rows] == pytest.approx([row.p_value for row in first.rows], abs=0.002)


def test_models_that_find_nothing_have_no_psi(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.support.comparison.draw_ranks", lambda queries, _: np.zeros(queries, np.int64))
    for model in ("org/a", "org/b"):
        write_run(tmp_path, model, 1)
    for row in compare_pair(only_pair(tmp_path), find_common_results(only_pair(tmp_path))):
        if row.metric is Metric.PSI:
            assert row.difference is row.p_value is None
        else:
            assert (row.difference.value, row.p_value) == (0, 1)
