"""Which probe predicts retrieval: joins, signs, families and findings, on made results."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import spearmanr

from posir_probe.controlled_pairs import ControlledPairsWins
from posir_probe.correlation import (
    OPPOSITE,
    PREDICTS,
    PSI,
    START_TO_END,
    build_table,
    correlate_probes,
    describe_findings,
    find_family,
    judge,
    orient,
    read_families,
)
from posir_probe.evidence_moving import EvidenceMoving
from posir_probe.probing import builtin_probes
from posir_probe.results import ProbeResult, ProbeSums, SubsetSums
from posir_probe.segment_similarity import SegmentSimilarity
from posir_probe.sentence_regression import SentenceRegression, SentenceRegressionFit
from posir_report.summary import TaskSummary
from posir_tasks.errors import PosirError
from posir_tasks.schemes import RelativePositions
from posir_tasks.scores import Estimate, ResultScores, ResultValues
from tests.plugins.posir_probe.test_over_datasets import profile_of
from tests.support.simulation import separate_documents

PROBES = {probe.name: probe for probe in (EvidenceMoving(), SegmentSimilarity(10))}
SCHEME = RelativePositions(bins=6, token_bounds=())


def summary_of(model, drop, task="PosIR-Mini"):
    """Retrieval that falls by `drop` from start to end; PSI is its size."""
    scores = {"psi": Estimate(abs(drop)), "start_to_end": Estimate(drop)}
    values = ResultValues(separate_documents(profile_of(np.full(6, 0.5), 10)))
    return TaskSummary(model, "1", task, ("default",), (), "1", values, ResultScores((), {"all": scores}, ()))


def result_of(model, slope, data="PosIR-Mini", probe="evidence_moving"):
    """Probe that falls by `slope` from start to end."""
    values = np.tile(np.linspace(slope, 0, 10), (6, 1))
    sums = ProbeSums.from_means(PROBES[probe].positions, [f"d{row}" for row in range(6)], values)
    return ProbeResult(model, "1", None, data, probe, {"default": SubsetSums("1", "seed 1", 6, 6, sums)})


def correlate_made(slopes, drops, families=None, names="m{}"):
    results = [result_of(names.format(number), slope) for number, slope in enumerate(slopes)]
    summaries = [summary_of(names.format(number), drop) for number, drop in enumerate(drops)]
    return {row.score: row for row in correlate_probes(results, summaries, PROBES, families)}


def test_rho_is_that_of_scipy_over_the_models_that_have_both():
    rng = np.random.default_rng(1)
    slopes = rng.normal(size=12)
    drops = 0.2 * slopes + 0.1 * rng.normal(size=12)
    rows = correlate_made(slopes, drops[:10])
    assert rows[START_TO_END].rho.value == pytest.approx(spearmanr(slopes[:10], drops[:10]).statistic)
    # PSI has no sign, so the size of the preference is correlated with it.
    assert rows[PSI].rho.value == pytest.approx(spearmanr(np.abs(slopes[:10]), np.abs(drops[:10])).statistic)
    assert (rows[PSI].models, rows[PSI].families, rows[PSI].summary) == (10, 10, "start_to_end")
    assert rows[START_TO_END].verdict == PREDICTS
    assert rows[START_TO_END].rho.low > 0
    assert correlate_made(-slopes, drops)[START_TO_END].verdict == OPPOSITE
    table = build_table(list(rows.values()))
    assert [row[-1] for row in table.rows] == [row.verdict for row in rows.values()]


def test_signs_of_preferences():
    regression = SentenceRegression()
    assert orient(-0.3, regression, START_TO_END) == orient(-0.3, regression, PSI) == orient(0.3, regression, PSI) == 0.3
    assert orient(0.3, regression, START_TO_END) == -0.3
    assert orient(0.1, ControlledPairsWins(), START_TO_END) == pytest.approx(-0.4)
    assert orient(0.1, ControlledPairsWins(), PSI) == pytest.approx(0.4)
    assert orient(-0.3, SentenceRegressionFit(), PSI) == -0.3
    undirected = {probe.name for probe in builtin_probes() if probe.preference is None}
    assert undirected == {
        *("sentence_regression_fit", "sentence_regression_scatter"),
        *("evidence_location", "evidence_location_start", "query_types"),
    }


def test_what_cannot_be_said_names_how_many_models_would_do():
    assert correlate_made([1, 2, 3], [0.1, 0.3, 0.2])[PSI].verdict == "cannot be said: 3 models, at least 5 are needed"
    row = correlate_made([1, 2, 3, 4, 5, 6], [0.1, 0.4, 0.2, 0.5, 0.3, 0.35])[START_TO_END]
    assert row.verdict == f"cannot be said: 6 models, about {row.needed} are needed"
    assert correlate_made([1], [0.1])[PSI].rho is None
    # The interval decides where no p-value is given, as with properties of models.
    assert judge(Estimate(0.8, (0.1, 0.95)), 9) == PREDICTS
    assert judge(Estimate(0.8, (0.1, 0.95)), 9, 0.2).startswith("cannot be said")
    assert judge(None, 9) == "all models have the same value"


def test_variants_of_a_model_are_one_family(tmp_path):
    slopes = np.repeat([1.0, 2, 3, 4, 5, 6], 2)
    drops = np.repeat([0.1, 0.3, 0.2, 0.5, 0.4, 0.6], 2)
    file = tmp_path / "families.csv"
    file.write_text("model,family\n" + "".join(f"m{number},{number // 2}\n" for number in range(12)))
    independent = correlate_made(slopes, drops)[START_TO_END]
    clustered = correlate_made(slopes, drops, read_families(file))[START_TO_END]
    assert (independent.families, clustered.families, clustered.rho.value) == (12, 6, independent.rho.value)
    assert clustered.p_value > independent.p_value
    assert clustered.rho.low < independent.rho.low
    assert find_family("local/m3", read_families(file)) == "1"
    assert find_family("local/m3+calibrated(1.0,32,0.5)", read_families(file)) == "1"
    assert find_family("other/a+chunks(64,64,max)", {}) == "other/a"
    # Mitigated models are variants without a file.
    assert correlate_made([1, 2, 3], [0.1, 0.2, 0.3], names="m+chunks({},mean)")[PSI].families == 1
    with pytest.raises(PosirError, match="no column family"):
        read_families_of(tmp_path, "model\nm\n")


def read_families_of(folder, text):
    file = folder / "wrong.csv"
    file.write_text(text)
    return read_families(file)


def test_probes_meet_retrieval_on_the_same_data_and_p_values_are_corrected_for_the_probes():
    rng = np.random.default_rng(2)
    values = rng.normal(size=12)
    results = [
        result_of(f"m{number}", value + shift * rng.normal(), data, probe)
        for number, value in enumerate(values)
        for (probe, shift), data in product((("evidence_moving", 0.1), ("segment_similarity_10", 90.0)), ("A", "B"))
    ]
    summaries = [summary_of(f"m{number}", value / 9, task) for number, value in enumerate(values) for task in "AB"]
    rows = correlate_probes(results, summaries, PROBES)
    assert {(row.data, row.task) for row in rows} == {("A", "A"), ("B", "B")}
    alone = correlate_probes([result for result in results if result.probe == "evidence_moving"], summaries, PROBES)
    first = {(row.task, row.score): row for row in rows if row.probe == "evidence_moving"}
    for row in alone:
        assert row.p_value <= first[row.task, row.score].p_value
        if row.score == START_TO_END:
            assert first[row.task, row.score].p_value == pytest.approx(2 * row.p_value)
    findings = describe_findings(rows)
    assert len(findings) == 2
    sentence = next(finding for finding in findings if START_TO_END in finding)
    assert sentence.startswith(f"Of 2 probes, 1 is shown to predict {START_TO_END} on all 2 tasks: evidence_moving.")
    assert sentence.endswith("Cannot be said: segment_similarity_10.")
    flipped = [replace(row, verdict=OPPOSITE) if row.probe == "segment_similarity_10" else row for row in rows]
    assert "With the opposite sign: segment_similarity_10 (2 of 2)." in describe_findings(flipped)[0]
    # Data of no task is correlated with every task; what is equal for all models says nothing.
    other = [result_of(f"m{number}", value, "C") for number, value in enumerate(values)]
    assert {(row.data, row.task) for row in correlate_probes(other, summaries, PROBES)} == {("C", "A"), ("C", "B")}
    assert correlate_probes([result_of(f"m{number}", 1.0, "A") for number in range(9)], summaries, PROBES) == []
