"""Correlations of probes and architecture with retrieval, against SciPy and simulations."""

import json
from itertools import permutations, product
from math import asin, pi

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kruskal, rankdata, spearmanr

import posir
from posir_probe import correlation
from posir_probe.bias_learning import SentenceRegression, SentenceRegressionFit
from posir_probe.evidence_moving import EvidenceMoving
from posir_probe.probing import build_builtin_probes
from posir_probe.results import ProbeResult, ProbeSums, SubsetSums
from posir_probe.segments import SegmentSimilarity
from posir_published.probes import Architecture, read_architectures
from posir_published.rows import read_mmteb_scores
from posir_report.summary import TaskSummary
from posir_significance.findings import Prediction
from posir_significance.messages.probes import label_needed, label_prediction
from posir_tasks.base.errors import PosirError
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import ResultScores, ResultValues
from tests.plugins.posir_probe.test_studies import make_profile
from tests.support.simulation import separate_documents

PROBES = {probe.name: probe for probe in (EvidenceMoving(), SegmentSimilarity(10))}


def make_summary(model, drop, task="PosIR-Mini"):
    """Make a summary whose start minus end and position effect are `drop`, and PSI its size."""
    scores = {
        "psi_as_published": abs(drop),
        "start_minus_end": Estimate(drop),
        "position_effect": Estimate(drop),
    }
    values = ResultValues(separate_documents(make_profile(np.full(6, 0.5), 10)))
    return TaskSummary(
        model, "1", task, ("default",), (), "1", values, ResultScores((), {"all": scores}, ())
    )


def make_result(model, slope, data="PosIR-Mini", probe="evidence_moving"):
    """Make a probe result whose values fall by `slope` from start to end."""
    sums = ProbeSums.from_means(PROBES[probe].positions, ["d"], np.linspace([slope], [0], 10).T)
    return ProbeResult(
        model, "1", None, data, probe, {"default": SubsetSums("1", "seed 1", 1, 1, sums)}
    )


def correlate_slopes(slopes, drops, families=None, names="m{}"):
    results = [make_result(names.format(number), slope) for number, slope in enumerate(slopes)]
    summaries = [make_summary(names.format(number), drop) for number, drop in enumerate(drops)]
    return {
        row.score: row for row in correlation.correlate_probes(results, summaries, PROBES, families)
    }


def test_rho_matches_scipy_over_models_with_both_values():
    rng = np.random.default_rng(1)
    slopes = rng.normal(size=12)
    drops = 0.2 * slopes + 0.1 * rng.normal(size=12)
    rows = correlate_slopes(slopes, drops[:10])
    assert rows[correlation.START_MINUS_END].rho.value == pytest.approx(
        spearmanr(slopes[:10], drops[:10]).statistic
    )
    # PSI has no sign, so it is correlated with the size of the preference.
    psi = rows[correlation.PSI]
    assert psi.rho.value == pytest.approx(
        spearmanr(np.abs(slopes[:10]), np.abs(drops[:10])).statistic
    )
    assert (psi.models, psi.families, psi.summary) == (10, 10, "start_minus_end")
    assert rows[correlation.START_MINUS_END].verdict is Prediction.PREDICTS
    assert rows[correlation.START_MINUS_END].rho.low > 0
    assert (
        rows[correlation.POSITION_EFFECT].rho.value == rows[correlation.START_MINUS_END].rho.value
    )
    reverse = correlate_slopes(-slopes, drops)[correlation.START_MINUS_END]
    assert reverse.verdict is Prediction.OPPOSITE
    table = correlation.build_table(list(rows.values()))
    labels = [label_prediction(row.verdict) for row in rows.values()]
    assert [row[-1] for row in table.rows] == labels


def test_preferences_are_oriented_by_their_sign():
    regression = SentenceRegression()
    start_minus_end, psi = correlation.START_MINUS_END, correlation.PSI
    signed = [
        correlation.orient(*value)
        for value in product((-0.3, 0.3), (regression,), (start_minus_end, psi))
    ]
    assert signed == [0.3, 0.3, -0.3, 0.3]
    assert correlation.orient(-0.3, SentenceRegressionFit(), correlation.PSI) == -0.3
    undirected = {probe.name for probe in build_builtin_probes() if not probe.preference_sign}
    assert undirected == {
        *("sentence_regression_fit", "sentence_regression_scatter"),
        *("evidence_location", "evidence_location_start", "query_types"),
    }


def test_inconclusive_results_state_the_number_of_models_needed():
    inconclusive = correlate_slopes([1, 2, 3], [0.1, 0.3, 0.2])[correlation.PSI]
    assert inconclusive.verdict is Prediction.INCONCLUSIVE
    assert inconclusive.needed >= correlation.MIN_FOR_INTERVAL > inconclusive.models == 3
    row = correlate_slopes([1, 2, 3, 4, 5, 6], [0.1, 0.4, 0.2, 0.5, 0.3, 0.35])[
        correlation.START_MINUS_END
    ]
    assert row.verdict is Prediction.INCONCLUSIVE
    assert row.needed > row.models == 6
    assert correlate_slopes([1], [0.1])[correlation.PSI].rho is None
    rho = Estimate(0.8, (0.1, 0.95))
    assert correlation.decide_prediction(rho, 9, 0.01) is Prediction.PREDICTS
    assert correlation.decide_prediction(rho, 9, 0.2) is Prediction.INCONCLUSIVE
    assert correlation.decide_prediction(rho, 4, 0.01) is Prediction.INCONCLUSIVE
    assert correlation.decide_prediction(None, 9, None) is Prediction.INCONCLUSIVE


def test_variants_of_a_model_are_one_family(tmp_path):
    slopes = np.repeat([1.0, 2, 3, 4, 5, 6], 2)
    drops = np.repeat([0.1, 0.3, 0.2, 0.5, 0.4, 0.6], 2)
    file = tmp_path / "families.csv"
    file.write_text(
        "model,family\n" + "".join(f"m{number},{number // 2}\n" for number in range(12))
    )
    independent = correlate_slopes(slopes, drops)[correlation.START_MINUS_END]
    clustered = correlate_slopes(slopes, drops, correlation.read_families(file))[
        correlation.START_MINUS_END
    ]
    assert (independent.families, clustered.families, clustered.rho.value) == (
        12,
        6,
        independent.rho.value,
    )
    assert clustered.p_value > independent.p_value
    assert clustered.rho.low < independent.rho.low
    assert correlation.find_family("local/m3", correlation.read_families(file)) == "1"
    assert (
        correlation.find_family("local/m3+both_orders(1)", correlation.read_families(file)) == "1"
    )
    assert correlation.find_family("other/a+chunks(64,64,max)", {}) == "other/a"
    # Mitigated models are variants even without a file.
    assert (
        correlate_slopes([1, 2, 3], [0.1, 0.2, 0.3], names="m+chunks({},mean)")[
            correlation.PSI
        ].families
        == 1
    )
    file.write_text("model\nm\n")
    with pytest.raises(PosirError, match="no column family"):
        correlation.read_families(file)


def test_probes_are_correlated_with_retrieval_on_the_same_data():
    rng = np.random.default_rng(2)
    values = rng.normal(size=12)
    results = [
        make_result(f"m{number}", value + shift * rng.normal(), data, probe)
        for number, value in enumerate(values)
        for (probe, shift), data in product(
            (("evidence_moving", 0.1), ("segment_similarity_10", 90.0)), ("A", "B")
        )
    ]
    summaries = [
        make_summary(f"m{number}", value / 9, task)
        for number, value in enumerate(values)
        for task in "AB"
    ]
    rows = correlation.correlate_probes(results, summaries, PROBES)
    assert {(row.data, row.task) for row in rows} == {("A", "A"), ("B", "B")}
    other_rows = correlation.correlate_probes(
        [result for result in results if result.probe == "evidence_moving"], summaries, PROBES
    )
    first = {(row.task, row.score): row for row in rows if row.probe == "evidence_moving"}
    for row in other_rows:
        assert row.p_value <= first[row.task, row.score].p_value
        if row.score == correlation.START_MINUS_END:
            assert first[row.task, row.score].p_value == pytest.approx(2 * row.p_value)
    findings = correlation.describe_correlations(rows)
    assert len(findings) == 3, "position effect, start minus end, PSI"
    verdicts = {row.probe: row.verdict for row in rows if row.score == correlation.START_MINUS_END}
    assert verdicts == {
        "evidence_moving": Prediction.PREDICTS,
        "segment_similarity_10": Prediction.INCONCLUSIVE,
    }
    # Other data is correlated with every task, and constant values are omitted.
    other = [make_result(f"m{number}", value, "C") for number, value in enumerate(values)]
    assert {
        (row.data, row.task) for row in correlation.correlate_probes(other, summaries, PROBES)
    } == {("C", "A"), ("C", "B")}
    assert (
        correlation.correlate_probes(
            [make_result(f"m{number}", 1.0, "A") for number in range(9)], summaries, PROBES
        )
        == []
    )


def sample_models(rng, families, variants, rho, within):
    """Sample two values per model with correlation `rho`. A share `within` of the variance is
    between families.
    """
    covariance = [[1, rho], [rho, 1]]
    shared = np.repeat(rng.multivariate_normal([0, 0], covariance, families), variants, axis=0)
    model_values = rng.multivariate_normal([0, 0], covariance, families * variants)
    return (np.sqrt(within) * shared + np.sqrt(1 - within) * model_values).T


def test_rho_of_independent_models_matches_scipy():
    rng = np.random.default_rng(1)
    x, y = sample_models(rng, 14, 1, 0.5, 0)
    rho, p_value = correlation.estimate_rho(x, y, list("abcdefghijklmn"))
    assert rho.value == pytest.approx(pd.Series(x).corr(pd.Series(y), method="spearman"))
    assert p_value == pytest.approx(spearmanr(x, y).pvalue, abs=0.02)
    assert correlation.estimate_rho(x, y)[1] == spearmanr(x, y).pvalue
    assert rho.interval == correlation.compute_interval(rho.value, 14)
    assert correlation.estimate_rho(x[:2], y[:2], ["a", "b"]) == (None, None)
    assert correlation.estimate_rho(np.ones(9), y[:9], list("abcdefghi")) == (None, None)


def test_p_values_match_all_permutations_of_a_few_models():
    x, y = sample_models(np.random.default_rng(6), 7, 1, 0.6, 0)
    orders = np.array(list(permutations(rankdata(y) - 4)))
    statistics = np.abs(orders @ (rankdata(x) - 4))
    exact = np.mean(statistics >= statistics[0] - 1e-9)
    assert correlation.compute_permutation_p_value(x, y, np.arange(7)) == pytest.approx(
        exact, abs=0.02
    )


def test_jackknife_by_hand():
    rng = np.random.default_rng(3)
    families = np.repeat(np.arange(6), [3, 1, 2, 3, 3, 2])
    x = rng.normal(size=14)
    y = x + rng.normal(size=14)
    z_values = []
    for family in range(6):
        mask = families != family
        z_values.append(np.arctanh(np.corrcoef(rankdata(x[mask]), rankdata(y[mask]))[0, 1]))
    half_width = 2.570582 * np.sqrt(5 / 6 * np.sum((np.array(z_values) - np.mean(z_values)) ** 2))
    z = np.arctanh(np.corrcoef(rankdata(x), rankdata(y))[0, 1])
    assert correlation.compute_jackknife_interval(x, y, families) == pytest.approx(
        (np.tanh(z - half_width), np.tanh(z + half_width))
    )
    assert correlation.compute_jackknife_interval(x, y, families // 2) is None
    assert correlation.compute_jackknife_interval(x, x, families) is None


def test_tests_of_families_keep_their_level():
    rng = np.random.default_rng(4)
    families = np.repeat(np.arange(12), 3)
    rejected, naive, covered = [], [], []
    for _ in range(100):
        x, y = sample_models(rng, 12, 3, 0, 0.8)
        rejected.append(correlation.compute_permutation_p_value(x, y, families) < 0.05)
        naive.append(spearmanr(x, y).pvalue < 0.05)
        low, high = correlation.compute_jackknife_interval(x, y, families)
        covered.append(low <= 0 <= high)
    assert np.mean(rejected) <= 0.10
    assert np.mean(naive) > 0.12
    assert np.mean(covered) >= 0.90


@pytest.mark.parametrize("rho", [0.4, 0.7])
def test_the_number_of_models_needed_gives_the_power(rho):
    needed = correlation.count_needed(rho)
    rng = np.random.default_rng(5)
    excludes = []
    for _ in range(400):
        # Pearson's correlation of normal values with rank correlation `rho`.
        x, y = sample_models(rng, needed, 1, 2 * np.sin(pi * rho / 6), 0)
        low, high = correlation.compute_interval(correlation.estimate_rho(x, y)[0].value, needed)
        excludes.append(not low <= 0 <= high)
    assert 6 / pi * asin(np.sin(pi * rho / 6)) == pytest.approx(rho)
    assert np.mean(excludes) == pytest.approx(0.80, abs=0.07)


def test_numbers_of_models_in_words():
    assert correlation.count_needed(0.0) is None
    assert label_needed(None, 10_000) == "over 10,000"
    assert correlation.count_needed(0.5) == 33
    assert correlation.count_needed(1.0) == correlation.count_needed(-1.0) == 5


PUBLISHED_PSI = correlation.read_scores((), (correlation.PSI,), published=True)


def test_spearman_with_mmteb_matches_the_paper(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text(
        "model,score\n"
        + "".join(f"org/{name},{score}\n" for name, score in read_mmteb_scores().items())
    )
    assert correlation.read_benchmark(file) == correlation.read_benchmark(correlation.MMTEB)
    scores = correlation.read_scores((), (correlation.NDCG,), published=True)
    mmteb_scores = correlation.read_benchmark(correlation.MMTEB)
    rows = [
        correlation.correlate_values(key, "MMTEB", by_model, mmteb_scores)
        for key, by_model in scores.items()
    ]
    rho = {row.length: round(row.value.value, 2) for row in rows if row.task == "PosIR"}
    assert rho == {"all": 0.62, "Q1": 0.73, "Q2": 0.71, "Q3": 0.44, "Q4": 0.39}
    assert {row.models for row in rows if row.task == "PosIR"} == {10}


def test_architecture_agrees_with_scipy():
    architectures = read_architectures()
    key = ("PosIR", "Q4", correlation.PSI)
    metas = {
        name: {"n_parameters": 1_000 + place, "embed_dim": [8, 16]}
        for place, name in enumerate(PUBLISHED_PSI[key])
    }
    rows = {
        row.factor: row
        for row in correlation.correlate_architecture(
            {key: PUBLISHED_PSI[key]}, metas, architectures
        )
    }
    psi = PUBLISHED_PSI[key]
    assert rows["parameters"].value.value == pytest.approx(
        spearmanr(range(10), list(psi.values())).statistic
    )
    assert (rows["dimension"].models, rows["dimension"].value) == (10, None)
    classified_models = [name for name in psi if name in architectures]
    kinds = {
        kind: [psi[name] for name in classified_models if architectures[name].attention == kind]
        for kind in ("causal", "bidirectional")
    }
    test = kruskal(*kinds.values())
    attention = rows["attention"]
    assert (attention.groups, attention.models) == ("bidirectional 6, causal 3", 9)
    assert (attention.value.value, attention.p_value) == pytest.approx(
        (test.statistic / 8, test.pvalue)
    )


@pytest.mark.parametrize("options", [{"architecture": True}, {"benchmark": correlation.MMTEB}])
def test_model_properties_have_numbers_but_no_verdict(options):
    """Without correction, 49 of the 530 rows of published models would be significant."""
    shown = posir.correlate(published=True, **options)
    assert shown.to_polars().columns == [
        *(
            "task",
            "length",
            "score",
            "factor",
            "models",
            "groups",
            "test",
            "value",
            "value_low",
            "value_high",
            "p_value",
            "p_corrected",
        ),
    ]
    frame = shown.to_polars().drop_nulls("p_value")
    family = frame.filter(task="PosIR", score=frame["score"][0]).sort("p_value")
    smallest = family["p_value"][0] * family.height
    assert family["p_corrected"][0] == pytest.approx(min(1, smallest))
    (table,) = shown.tables
    assert [column.heading for column in table.columns][-3:] == ["Value", "p", "p corrected"]
    assert {len(row) for row in table.rows} == {len(table.columns)}
    words = str(shown)
    for verdict in Prediction:
        assert label_prediction(verdict) not in words


def write_main_scores(tmp_path, tasks):
    for model, scores in tasks.items():
        folder = tmp_path / "results" / f"org__{model}" / "1"
        folder.mkdir(parents=True)
        (folder / "model_meta.json").write_text(
            json.dumps({"name": f"org/{model}", "revision": "1"})
        )
        for task, score in scores.items():
            entry = {"hf_subset": "default", "languages": ["eng-Latn"], "main_score": score}
            content = {
                "task_name": task,
                "dataset_revision": "1",
                "mteb_version": "2.0.0",
                "scores": {"test": [entry]},
            }
            (folder / f"{task}.json").write_text(
                json.dumps(content | {"evaluation_time": 1, "kg_co2_emissions": None})
            )


def test_scores_are_averaged_over_models_with_an_ending(tmp_path):
    tasks = {
        "a-begin": {"SciFact": 0.5, "NFCorpus": 0.3},
        "b-begin": {"SciFact": 0.7, "NFCorpus": 0.2},
        "c-begin": {"SciFact": 0.9},
        "a-end": {"SciFact": 0.1},
    }
    write_main_scores(tmp_path, tasks)
    shown = posir.model_means(tmp_path, ending=["-begin", "-end"]).to_polars()
    assert shown.rows() == [
        ("-begin", "NFCorpus", 2, pytest.approx(0.25)),
        ("-begin", "SciFact", 2, pytest.approx(0.6)),
        ("-begin", "mean of 2 tasks", 2, pytest.approx(0.425)),
        ("-end", "SciFact", 1, pytest.approx(0.1)),
    ]
    assert posir.model_means(tmp_path).to_polars()["models"].to_list() == [2, 2, 2]
    with pytest.raises(PosirError, match="no model whose name ends in '-middle'"):
        posir.model_means(tmp_path, ending="-middle")
    with pytest.raises(PosirError, match="no results of mteb"):
        posir.model_means(tmp_path / "nowhere")


def test_a_folders_score_is_the_mean_over_shared_tasks(tmp_path):
    tasks = {
        "a": {"SciFact": 0.5, "NFCorpus": 0.3, "PosIR-Mini": 1.0},
        "b": {"SciFact": 0.7, "NFCorpus": 0.2, "FiQA2018": 0.9},
    }
    write_main_scores(tmp_path, tasks)
    assert correlation.read_benchmark(tmp_path) == pytest.approx({"a": 0.4, "b": 0.45})
    # A split or subset with results of only one model does not change the means.
    for split, subset in (("train", "default"), ("test", "de")):
        file = tmp_path / "results" / "org__a" / "1" / "SciFact.json"
        content = json.loads(file.read_text())
        content["scores"].setdefault(split, []).append(
            {"hf_subset": subset, "languages": ["eng-Latn"], "main_score": 0.99}
        )
        file.write_text(json.dumps(content))
        assert correlation.read_benchmark(tmp_path) == pytest.approx({"a": 0.4, "b": 0.45})
    (tmp_path / "empty").mkdir()
    with pytest.raises(PosirError, match="no benchmark scores"):
        correlation.read_benchmark(tmp_path / "empty")


def test_results_with_other_settings_are_listed(tmp_path, monkeypatch):
    run_summary = make_summary("Qwen/Qwen3-Embedding-0.6B", 0.5, "PosIR-English")
    monkeypatch.setattr("posir_probe.api.read_results", lambda _: ())
    monkeypatch.setattr("posir_probe.api.summarize", lambda _: [run_summary])
    _, note = posir.correlate(tmp_path, architecture=True, published=True).notes
    assert "mteb's settings; the authors of PosIR: " in note
    assert not posir.correlate(tmp_path, architecture=True).notes


def test_own_results_replace_published_ones(tmp_path):
    run_summary = make_summary("org/bge-m3 (batch_size=8)", 0.5, "PosIR-English")
    joined = correlation.read_scores([run_summary], (correlation.PSI,), published=True)[
        "PosIR-English", "all", correlation.PSI
    ]
    assert joined["bge-m3"] == pytest.approx(0.5)
    assert len(joined) == 10
    file = tmp_path / "architectures.csv"
    file.write_text("model,positional_encoding,attention,pooling\nme/Mine,RoPE,causal,\n")
    assert read_architectures(file)["mine"] == Architecture("RoPE", "causal", "")
    file.write_text("model,pooling\nmine,CLS\n")
    with pytest.raises(PosirError, match="no column positional_encoding, attention"):
        read_architectures(file)
    with pytest.raises(
        PosirError, match=r"no column score\. Expected a CSV file with the columns model,score"
    ):
        correlation.read_benchmark(file)
    file.write_text("model;score\nmine;0.5\nother;n/a\n")
    with pytest.raises(PosirError, match="row 3: field 'score': 'n/a' is not a number"):
        correlation.read_benchmark(file)
