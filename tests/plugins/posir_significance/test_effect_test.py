"""The test of the position effect and the estimate of PSI: level, power, coverage and error, by simulation."""

import numpy as np
import pytest

from benchmarks.simulation import draw_clustered
from posir_psi.scores import compute_psi
from posir_significance.analysis import GroupAnalysis
from posir_significance.correction import holm
from posir_significance.effect_test import EffectModels, _list_shapes, find_p_value
from posir_significance.position_effect import estimate_effect, permute_gains, pseudoinverse

STRUCTURES = [("independent", 0.0), ("random", 0.4), ("near", 0.4), ("confounded", 0.4), ("papers", 0.2)]


def curve(effect, size, level=0.8, bins=20):
    """True scores over positions with a mean near `level` and a PSI of `size`."""
    x = (np.arange(bins) + 0.5) / bins
    shape = {"flat": 0 * x, "linear": x, "step": (x > 0.6) * 1.0, "dip": 1 - (2 * x - 1) ** 2}[effect]
    shape = (shape - shape.min()) / max(np.ptp(shape), 1e-9)
    scores = 1 - size * shape
    return scores * min(level / scores.mean(), 0.97 / scores.max())


def simulate(structure, icc, effect, size, queries, draws):
    """Share of significant results, coverage of PSI and of start to end, and root mean squared error of PSI."""
    means = curve(effect, size)
    third = len(means) // 3 + 1
    truth, difference = float(compute_psi(means)), means[:third].mean() - means[-third:].mean()
    rows = []
    for seed in range(draws):
        group = GroupAnalysis(draw_clustered(structure, queries, icc, means, np.random.default_rng(seed)))
        low, high = group.psi.interval
        start, end = group.position.start_to_end.interval
        rows.append(
            (group.test.p_value < 0.05, low - 1e-9 <= truth <= high, start <= difference <= end, (group.psi.value - truth) ** 2)
        )
    significant, covered, contrast, squares = np.mean(rows, axis=0)
    return significant, covered, contrast, squares**0.5


@pytest.mark.parametrize(("structure", "icc"), STRUCTURES)
def test_without_an_effect_about_one_in_twenty_is_significant(structure, icc):
    significant, covered, contrast, _ = simulate(structure, icc, "flat", 0, 2_000, 100)
    assert significant <= 0.12
    assert covered >= 0.88
    assert contrast >= 0.88


def test_a_linear_effect_is_found_and_covered():
    significant, covered, contrast, error = simulate("independent", 0.0, "linear", 0.1, 2_000, 60)
    assert significant >= 0.65
    assert min(covered, contrast) >= 0.85
    assert error <= 0.05


def test_intervals_hold_where_documents_differ_in_their_position_effect():
    """An effect on the log odds is larger in points for hard documents; gains vary less where nearly all are found."""
    _, covered, contrast, error = simulate("papers", 0.2, "step", 0.6, 2_000, 60)
    assert min(covered, contrast) >= 0.83
    assert error <= 0.05


def share_of_flagged_reports(draws):
    """Share of reports of a flat model, five rows each, that call a position bias significant."""
    flagged = 0
    for seed in range(draws):
        rng = np.random.default_rng([seed, 5])
        drawn = draw_clustered("random", 2_000, 0.2, curve("flat", 0), rng)
        lengths = rng.integers(4, size=drawn.documents.max() + 1)[drawn.documents]
        groups = [drawn, *(drawn.select(lengths == length) for length in range(4))]
        flagged += min(holm([GroupAnalysis(group).test.p_value for group in groups])) < 0.05
    return flagged / draws


@pytest.mark.parametrize(("draws", "most"), [(60, 0.13), pytest.param(1_000, 0.06, marks=pytest.mark.slow)])
def test_a_report_of_a_flat_model_seldom_flags_anything(draws, most):
    assert share_of_flagged_reports(draws) <= most


@pytest.mark.slow
@pytest.mark.parametrize(("structure", "icc"), STRUCTURES)
def test_level_and_coverage(structure, icc):
    significant, covered, contrast, _ = simulate(structure, icc, "flat", 0, 2_000, 1_000)
    assert 0.03 <= significant <= 0.07
    assert min(covered, contrast) >= 0.92
    assert max(covered, contrast) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize(("effect", "size"), [("linear", 0.1), ("linear", 0.6), ("step", 0.3), ("dip", 0.3)])
def test_power_coverage_and_error(effect, size):
    significant, covered, contrast, error = simulate("independent", 0.0, effect, size, 2_000, 500)
    assert significant >= 0.78
    assert covered >= 0.9
    assert contrast >= 0.92
    assert error <= 0.05


def test_single_gains_are_permuted_within_their_stratum():
    drawn = draw_clustered("independent", 300, 0.0, curve("linear", 0.3), np.random.default_rng(2))
    effect = estimate_effect(drawn)
    permuted = permute_gains(drawn, effect, 4_000, np.random.default_rng(3))
    assert permuted @ effect.weights == pytest.approx(0, abs=1e-9)
    scale = np.diag(effect.null_covariance).mean()
    assert np.diag(np.cov(permuted.T)).mean() == pytest.approx(scale, rel=0.1)
    assert np.abs(permuted.mean(axis=0)).max() < 5 * (scale / 4_000) ** 0.5


@pytest.mark.parametrize("structure", ["random", "near"])
def test_gains_of_shared_documents_are_not_permuted(structure):
    drawn = draw_clustered(structure, 300, 0.2, curve("flat", 0), np.random.default_rng(2))
    assert permute_gains(drawn, estimate_effect(drawn), 10, np.random.default_rng(3)) is None


def test_random_signs_of_documents_have_the_covariance_of_their_contributions():
    effect = estimate_effect(draw_clustered("random", 600, 0.2, curve("flat", 0), np.random.default_rng(2)))
    drawn = effect.null_clusters.draw(999)
    rows = effect.null_clusters.rows
    assert np.diag(np.cov(drawn.T)) == pytest.approx(np.diag(rows.T @ rows), rel=0.3)


@pytest.mark.parametrize(("documents", "level"), [(3, 0.8), (12, 0.8), (40, 0.98)])
def test_an_interval_of_psi_without_significance_excludes_nothing_that_start_to_end_allows(documents, level):
    """Where few documents vary, the posterior alone would promise a PSI near 0 beside a start to end of any size."""
    means, checked = curve("flat", 0, level), 0
    for seed in range(12):
        row = GroupAnalysis(draw_clustered(f"{documents}x10", 0, 0.3, means, np.random.default_rng(seed), 0.2))
        if row.test.p_value is None or row.test.p_value >= 0.05:
            lost = max(map(abs, row.position.start_to_end.interval))
            assert row.psi.high >= lost / 2
            checked += 1
    assert checked >= 6


@pytest.mark.parametrize(
    ("structure", "effect", "size", "queries", "least"), [("random", "dip", 0.2, 300, 15), ("near", "linear", 0.3, 500, 30)]
)
def test_what_is_not_significant_is_within_the_interval_of_psi(structure, effect, size, queries, least):
    """Questions near each other say little about distant positions; the posterior would follow the prior to small effects."""
    means, covered = curve(effect, size), []
    for seed in range(50):
        group = GroupAnalysis(draw_clustered(structure, queries, 0.2, means, np.random.default_rng([seed, 6])))
        if group.test.p_value >= 0.05:
            covered.append(group.psi.low <= compute_psi(means) <= group.psi.high)
    assert len(covered) >= least
    assert np.mean(covered) >= 0.9


def test_with_fewer_than_10_documents_there_is_an_estimate_and_no_p_value():
    drawn = draw_clustered("random", 45, 0.2, curve("linear", 0.6), np.random.default_rng(2))
    few = GroupAnalysis(drawn)
    assert few.effect.count == 9
    assert few.test.p_value is None
    assert few.position.start_to_end.low <= few.psi.low <= few.psi.value <= few.psi.high
    assert few.position.start_to_end.low <= few.position.start_to_end.value <= few.position.start_to_end.high
    more = GroupAnalysis(draw_clustered("random", 50, 0.2, curve("linear", 0.6), np.random.default_rng(2)))
    assert more.test.p_value is not None


def test_the_level_holds_for_few_queries_of_a_good_model():
    """Nearly all gains are 1: sums of few of them are far from normal."""
    means = curve("flat", 0, 0.95)
    drawn = (draw_clustered("independent", 80, 0.0, means, np.random.default_rng([seed, 3])) for seed in range(150))
    assert sum(GroupAnalysis(draw).test.p_value < 0.05 for draw in drawn) <= 16


def share_of_small_p_values(evidence, size, repeats):
    """Share of p-values of at most `size` if the evidence follows the distribution that its null draws come from."""
    rng = np.random.default_rng(8)
    return np.mean(
        [
            [find_p_value(value, null) <= size for value in rng.choice(evidence, 2_000)]
            for null in (rng.choice(evidence, 999) for _ in range(repeats))
        ]
    )


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_p_values_beyond_all_draws_keep_their_level(scale):
    evidence = np.random.default_rng(7).exponential(scale, 10**6)
    assert share_of_small_p_values(evidence, 3e-4, 20) <= 3e-4


@pytest.mark.slow
@pytest.mark.parametrize(("queries", "level", "bins"), [(60, 0.9, 20), (80, 0.95, 20), (300, 0.95, 20), (80, 0.95, 6)])
def test_p_values_beyond_all_permutations_keep_their_level(queries, level, bins):
    """Under permutation of few gains, most of which are 1, the evidence has a far heavier tail than under normal effects."""
    drawn = draw_clustered("independent", queries, 0.0, curve("flat", 0, level, bins), np.random.default_rng(1))
    effect, rng = estimate_effect(drawn), np.random.default_rng(2)
    models = EffectModels.from_precision(pseudoinverse(effect.null_covariance)[0], bins, effect.filled)
    evidence = np.concatenate([models.log_evidence(permute_gains(drawn, effect, 2_000, rng)) for _ in range(50)])
    assert share_of_small_p_values(evidence, 1e-4, 100) <= 1.2e-4


@pytest.mark.parametrize("null", [np.zeros(999), np.arange(4.0)])
def test_without_a_tail_the_p_value_is_the_smallest_that_the_draws_can_show(null):
    assert find_p_value(5.0, null) == pytest.approx(1 / (len(null) + 1))


@pytest.mark.parametrize("bins", [2, 5, 20])
def test_every_interval_of_bins_is_a_shape_and_each_kind_weighs_the_same(bins):
    shapes, log_prior = _list_shapes(bins, True)
    runs = [np.arange(bins)[start:end] for start in range(bins) for end in range(start + 1, bins + 1) if end - start < bins]
    for run in runs:
        curve = np.isin(np.arange(bins), run) * 1.0
        standardized = (curve - curve.mean()) / curve.std()
        assert np.isclose(np.abs(shapes @ standardized), bins).any(), run
    # Trend, curvature (none over two bins), single bins, steps, inner intervals, and ends.
    sizes = np.round(np.exp(-log_prior))
    inner = sum(bins - start - 1 for start in range(1, bins))
    kinds = [1, *([1] if bins > 2 else []), bins, bins - 1, *([inner] if inner else []), 4 if bins > 2 else 2]
    assert sorted(sizes.tolist()) == sorted(float(size) for size in kinds for _ in range(size))
