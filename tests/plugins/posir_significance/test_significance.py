"""Noise floor, intervals and direction against independent computations, simulations and constructed profiles."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posir_psi import psi
from posir_psi.plugin import posir_scores as psi_plugin
from posir_significance.direction import FIRST_MINUS_LAST, contrast, thirds, trend
from posir_significance.group_means import sample
from posir_significance.intervals import Z, bucket_interval, ndcg_intervals, psi_interval, score_interval
from posir_significance.permutation_null import null_psi, null_summary, permuted_gains
from posir_significance.plugin import posir_scores
from posir_significance.true_score_model import midpoints, true_scores
from posir_tasks.profile import NDCG_AT_10, RANKS, PositionProfile

FIELDS = {
    "queries",
    "ndcg_at_10",
    "ndcg_at_10_interval",
    "psi",
    "psi_interval",
    "psi_null_mean",
    "psi_null_p95",
    "p_value",
    "psi_corrected",
}
#: Ranks of a good and of a bad retriever; mixtures of the two have any mean between theirs.
GOOD = np.array([0.86, 0.05, 0.03, 0.01, 0.01, 0.01, 0.01, 0.0, 0.01, 0.0, 0.01, 0.0])
BAD = np.array([0.02, 0.03, 0.03, 0.02, 0.02, 0.02, 0.01, 0.02, 0.01, 0.02, 0.5, 0.3])


def distributions(means):
    share = (np.asarray(means) - BAD @ NDCG_AT_10) / (GOOD @ NDCG_AT_10 - BAD @ NDCG_AT_10)
    return share[:, None] * GOOD + (1 - share[:, None]) * BAD


def drawn(means, queries, seed):
    """Counts (P, 12) of queries that fall into bins at random."""
    rng = np.random.default_rng(seed)
    bins = rng.multinomial(queries, np.full(len(means), 1 / len(means)))
    return rng.multinomial(bins, distributions(means))


def expected(means, queries):
    """Counts (P, 12) that have almost exactly the given means, `queries` in each bin."""
    return np.round(distributions(means) * queries).astype(np.int64)


def profile_of(*buckets):
    counts = np.array(buckets, np.int64)
    lengths = tuple(f"Q{k + 1}" for k in range(len(counts)))
    return PositionProfile("test", lengths, tuple(map(str, range(counts.shape[1]))), counts, counts.sum(axis=1))


def p_of(counts, draws, seed=1):
    queries = counts.sum(axis=1)
    return null_summary(
        float(psi(sample(counts).means)), null_psi(permuted_gains(counts[None], draws, seed)[:, 0], queries)
    ).p_value


# The noise floor.


def shuffled_psi(counts, draws, seed):
    """PSI of the pooled bins after shuffling each length bucket's per-query gains: nothing but NumPy."""
    rng = np.random.default_rng(seed)
    lengths, bins, _ = counts.shape
    found = []
    for _ in range(draws):
        sums, queries = np.zeros(bins), np.zeros(bins)
        for bucket in range(lengths):
            position = np.repeat(np.arange(bins), counts[bucket].sum(axis=1))
            gains = rng.permutation(np.repeat(NDCG_AT_10, counts[bucket].sum(axis=0)))
            sums += np.bincount(position, gains, bins)
            queries += np.bincount(position, minlength=bins)
        means = (sums / queries)[queries > 0]
        found.append(1 - means.min() / means.max())
    return np.array(found)


@pytest.mark.parametrize("queries", [300, 3000])
def test_null_agrees_with_a_plain_shuffle_of_gains_per_query(queries):
    # Length and position go together here, so that a shuffle over all lengths would give another null.
    short = np.append(drawn(np.full(4, 0.8), queries, 1), drawn(np.full(4, 0.8), queries // 5, 2), axis=0)
    long = np.append(drawn(np.full(4, 0.3), queries // 5, 3), drawn(np.full(4, 0.3), queries, 4), axis=0)
    counts = np.stack([short, long])
    ours = null_psi(permuted_gains(counts).sum(axis=1), counts.sum(axis=(0, 2)))
    plain = shuffled_psi(counts, 2000, 5)
    assert abs(ours.mean() - plain.mean()) < 4 * plain.std() * np.sqrt(2 / 2000)
    low, high = np.quantile(plain, [0.93, 0.97])
    assert low < np.quantile(ours, 0.95) < high


def test_null_keeps_empty_bins_empty_and_a_length_buckets_gains():
    counts = np.stack([drawn(np.linspace(0.8, 0.3, 6), 200, seed) for seed in (1, 2, 3)])
    counts[0, 2] = 0
    counts[1] = 0
    exchanged = permuted_gains(counts, 50)
    assert (exchanged[:, 0, 2] == 0).all()
    assert (exchanged[:, 1] == 0).all()
    np.testing.assert_allclose(exchanged.sum(axis=2), np.tile((counts @ NDCG_AT_10).sum(axis=1), (50, 1)))


def test_one_bin_or_one_rank_leaves_nothing_to_exchange():
    one_rank, one_bin = np.zeros((2, 3, len(RANKS)), np.int64)
    one_rank[:, 2] = [900, 40, 3]
    one_bin[1, :3] = [900, 40, 3]
    exchanged = permuted_gains(np.stack([one_rank, one_bin]), 5)
    np.testing.assert_allclose(exchanged, np.tile(np.stack([one_rank, one_bin]) @ NDCG_AT_10, (5, 1, 1)))


def test_noise_floor_by_hand():
    floor = null_summary(0.3, np.array([0.1, 0.2, 0.3 - 1e-12, 0.4]))
    assert floor.p_value == 3 / 5
    assert floor.mean == pytest.approx(0.25)
    assert floor.corrected == pytest.approx(0.05 / 0.75)
    assert null_summary(1.0, np.ones(4)).corrected is None


@pytest.mark.parametrize("queries", [500, 2000, 42_000])
@pytest.mark.parametrize("mean", [0.5, 0.85])
def test_no_effect_is_called_significant_in_one_of_twenty(queries, mean):
    found = [p_of(drawn(np.full(20, mean), queries, seed), draws=400, seed=seed) < 0.05 for seed in range(700)]
    assert 0.03 <= np.mean(found) <= 0.07


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(6)))
def test_null_does_not_depend_on_the_order_of_bins(order):
    counts = drawn([0.7, 0.6, 0.6, 0.5, 0.4, 0.2], 240, 3)
    one, other = (null_psi(permuted_gains(c[None], 500)[:, 0], c.sum(axis=1)) for c in (counts, counts[list(order)]))
    assert abs(one.mean() - other.mean()) < 5 * one.std() * np.sqrt(2 / 500)


# The intervals.


def test_score_interval_ends_are_one_error_quantile_from_the_mean():
    mean, units = np.array([0.2, 0.9, 0.0, 1.0]), np.array([40.0, 10.0, 25.0, 25.0])
    for end in score_interval(mean, units):
        np.testing.assert_allclose(np.abs(mean - end), Z * np.sqrt(end * (1 - end) / units), atol=1e-7)


def test_dispersion_is_that_of_a_coin_where_gains_are_0_or_1():
    counts = np.zeros((2, len(RANKS)), np.int64)
    counts[:, 0], counts[:, -1] = [400, 200], [100, 300]
    assert sample(counts).dispersion == pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(sample(counts).variances(np.array([0.8, 0.4])), [0.16 / 500, 0.24 / 500], rtol=0.01)


@pytest.mark.parametrize(
    ("means", "queries"),
    [
        (np.linspace(0.6, 0.4, 20), 2000),
        (np.where(np.arange(20) < 12, 0.85, 0.5), 500),
        (np.array([0.8, 0.5, 0.75]), 500),
    ],
    ids=["slope", "step", "dip"],
)
def test_intervals_cover_the_truth(means, queries):
    covered = []
    for seed in range(300):
        counts = drawn(means, queries, seed)
        p_value = p_of(counts, draws=200)
        low, high = psi_interval(counts, p_value)
        overall = ndcg_intervals(sample(counts.sum(axis=0, keepdims=True)))[0]
        mean_of_bins = bucket_interval(sample(counts))
        bins = ndcg_intervals(sample(counts))
        covered.append(
            [
                low <= psi(means) <= high,
                overall[0] <= means.mean() <= overall[1],
                mean_of_bins[0] <= means.mean() <= mean_of_bins[1],
                np.mean([bin[0] <= mean <= bin[1] for bin, mean in zip(bins, means, strict=True)]),
            ]
        )
    shares = np.mean(covered, axis=0)
    assert (shares >= 0.92).all(), shares
    assert (shares <= 0.99).all(), shares


@pytest.mark.parametrize("queries", [500, 2000, 42_000])
def test_intervals_cover_a_clear_decline_in_92_to_98_of_100_draws(queries):
    means, covered = np.linspace(0.8, 0.3, 20), []
    for seed in range(500):
        counts = drawn(means, queries, seed)
        low, high = psi_interval(counts, p_of(counts, draws=200))
        (overall,) = ndcg_intervals(sample(counts.sum(axis=0, keepdims=True)))
        covered.append([low <= psi(means) <= high, overall[0] <= means.mean() <= overall[1]])
    shares = np.mean(covered, axis=0)
    assert (shares >= 0.92).all(), shares
    assert (shares <= 0.98).all(), shares


def test_true_scores_scatter_less_than_observed_ones_where_there_is_no_effect():
    counts = drawn(np.full(20, 0.5), 1000, 1)
    possible = true_scores(sample(counts))
    assert possible.scores.shape == possible.centres.shape == (1000, 20)
    assert np.median(psi(possible.scores)) < float(psi(sample(counts).means)) / 2


def test_interval_is_above_0_only_where_psi_is_told_from_noise():
    counts = drawn(np.linspace(0.8, 0.3, 20), 2000, 1)
    assert psi_interval(counts, 0.049)[0] > 0
    assert psi_interval(counts, 0.05)[0] == 0


# The direction.


@pytest.mark.parametrize("bins", [2, 3, 6, 20])
@pytest.mark.parametrize(
    ("curve", "verdict"),
    [
        (lambda x: 0.7 - 0.4 * x, "primacy"),
        (lambda x: 0.3 + 0.4 * x, "recency"),
        (lambda x: np.where(np.abs(x - 0.5) < 0.17, 0.3, 0.7), "middle dip"),
        (lambda x: np.where(np.abs(x - 0.5) < 0.17, 0.7, 0.3), "middle peak"),
        (lambda x: np.full(len(x), 0.5), "none"),
    ],
)
def test_verdicts(bins, curve, verdict):
    scores = posir_scores(profile_of(expected(curve(midpoints(bins)), 2000 // bins)))["position_direction"]["all"]
    assert scores["verdict"] == ("none" if bins == 2 and "middle" in verdict else verdict)


def test_a_straight_trend_with_most_queries_early_is_no_dip():
    counts = np.concatenate(
        [expected([mean], queries) for mean, queries in zip([0.7, 0.5, 0.3], [4000, 900, 600], strict=True)]
    )
    middle = posir_scores(profile_of(counts))["position_direction"]["all"]["middle_minus_ends_interval"]
    assert middle[0] < 0 < middle[1]


def test_length_cannot_pose_as_position():
    short = np.concatenate([expected([0.8], 900), expected([0.8], 500), expected([0.8], 100)])
    long = np.concatenate([expected([0.3], 100), expected([0.3], 500), expected([0.3], 900)])
    scores = posir_scores(profile_of(short, long))
    assert scores["position_direction"]["all"]["verdict"] == "none"
    assert scores["position_direction"]["all"]["first_minus_last"] == pytest.approx(0, abs=0.01)
    assert scores["psi_significance"]["all"]["p_value"] > 0.05
    assert scores["psi_significance"]["all"]["psi"] > 0.3


def test_contrast_of_one_length_is_the_difference_of_the_thirds():
    counts = drawn(np.linspace(0.8, 0.4, 6), 900, 2)
    gains, queries = counts @ NDCG_AT_10, counts.sum(axis=1)
    by_hand = gains[:2].sum() / queries[:2].sum() - gains[4:].sum() / queries[4:].sum()
    assert contrast(counts[None], FIRST_MINUS_LAST).difference == pytest.approx(by_hand)


def test_contrast_covers_the_truth():
    means = np.linspace(0.75, 0.35, 6)
    truth = means[:2].mean() - means[4:].mean()
    intervals = [contrast(drawn(means, 300, seed)[None], FIRST_MINUS_LAST).interval for seed in range(1000)]
    assert 0.92 <= np.mean([low <= truth <= high for low, high in intervals]) <= 0.98


def test_thirds():
    assert thirds(2).tolist() == [0, 2]
    assert thirds(3).tolist() == [0, 1, 2]
    assert thirds(6).tolist() == [0, 0, 1, 1, 2, 2]
    assert np.bincount(thirds(20)).tolist() == [7, 6, 7]


def test_trend_of_a_straight_line():
    counts = np.zeros((5, len(RANKS)), np.int64)
    counts[:, 0], counts[:, -1] = [90, 80, 0, 60, 50], [10, 20, 0, 40, 50]
    found = trend(counts)
    assert found.slope == pytest.approx(-0.5)
    assert found.spearman == pytest.approx(-1)
    assert found.slope_p_value < 1e-6
    counts[1:] = 0
    assert trend(counts).slope is None


# The plugin.


@pytest.fixture(scope="module")
def profile():
    return profile_of(*(drawn(np.linspace(0.8 - 0.1 * k, 0.4, 20), 400, k) for k in range(4)))


def test_fields(profile):
    scores = posir_scores(profile)
    assert scores.keys() == {"psi_significance", "position_intervals", "position_direction"}
    assert list(scores["psi_significance"]) == list(scores["position_direction"]) == ["all", "q1", "q2", "q3", "q4"]
    assert all(entry.keys() == FIELDS for entry in scores["psi_significance"].values())
    assert len(scores["position_intervals"]) == 20
    assert json.loads(json.dumps(scores, allow_nan=False)) == scores


def test_values_agree_with_the_psi_plugin(profile):
    scores, others = posir_scores(profile)["psi_significance"], psi_plugin(profile)
    assert scores["all"]["psi"] == pytest.approx(others["psi"])
    assert scores["all"]["ndcg_at_10"] == pytest.approx(profile.score())
    for name in ("q1", "q2", "q3", "q4"):
        assert scores[name]["psi"] == pytest.approx(others[f"psi_{name}"])
        assert scores[name]["ndcg_at_10"] == pytest.approx(others[f"ndcg_at_10_{name}"])
        assert scores[name]["queries"] == others[f"queries_{name}"]


def test_same_profile_same_numbers(profile):
    assert posir_scores(profile) == posir_scores(replace(profile, counts=profile.counts.copy()))


def test_one_length_has_no_entries_of_its_own():
    assert list(posir_scores(profile_of(drawn(np.full(3, 0.5), 90, 1)))["psi_significance"]) == ["all"]


def test_empty_profile():
    scores = posir_scores(profile_of(np.zeros((3, 12)), np.zeros((3, 12))))
    for entry in scores["psi_significance"].values():
        assert entry == dict.fromkeys(FIELDS) | {"queries": 0}
    assert scores["position_intervals"] == [None] * 3
    assert all(value is None for entry in scores["position_direction"].values() for value in entry.values())


def test_all_misses():
    counts = np.zeros((3, 12))
    counts[:, -1] = 50
    entry = posir_scores(profile_of(counts))["psi_significance"]["all"]
    assert entry["ndcg_at_10"] == 0
    assert entry["ndcg_at_10_interval"][1] > 0
    assert all(entry[name] is None for name in FIELDS if "psi" in name or name == "p_value")


def test_all_first():
    counts = np.zeros((3, 12))
    counts[:, 0] = 50
    entry = posir_scores(profile_of(counts))["psi_significance"]["all"]
    assert entry["psi"] == 0
    assert entry["p_value"] == 1
    assert entry["psi_interval"][0] == 0 < entry["psi_interval"][1] < 0.1
    assert entry["ndcg_at_10_interval"][0] < 1


@pytest.mark.parametrize("bins", [1, 4])
def test_single_bin(bins):
    counts = np.zeros((bins, 12))
    counts[0] = 3
    scores = posir_scores(profile_of(counts))
    entry = scores["psi_significance"]["all"]
    assert entry["psi"] == 0
    assert [entry[name] for name in ("psi_interval", "psi_null_mean", "p_value", "psi_corrected")] == [None] * 4
    assert scores["position_direction"]["all"]["verdict"] is None


@settings(deadline=None, max_examples=60)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 7)).flatmap(
        lambda shape: arrays(np.int64, (*shape, len(RANKS)), elements=st.sampled_from([0, 0, 0, 1, 2, 30]))
    )
)
def test_every_profile_gets_plain_scores_within_their_ranges(counts):
    scores = posir_scores(profile_of(*counts))
    json.dumps(scores, allow_nan=False)
    for entry in scores["psi_significance"].values():
        for interval in (entry["psi_interval"], entry["ndcg_at_10_interval"]):
            assert interval is None or 0 <= interval[0] <= interval[1] <= 1
        assert entry["p_value"] is None or 0 < entry["p_value"] <= 1
        assert entry["psi_corrected"] is None or entry["psi_corrected"] <= 1
        if entry["ndcg_at_10"] is not None:
            assert entry["ndcg_at_10_interval"][0] <= entry["ndcg_at_10"] <= entry["ndcg_at_10_interval"][1]
        if entry["psi_interval"] and entry["p_value"] >= 0.05:
            assert entry["psi_interval"][0] == 0
