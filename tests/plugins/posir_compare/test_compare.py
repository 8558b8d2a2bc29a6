"""Comparison against SciPy's permutation tests, plain implementations, simulations with known effects, and the command."""

import csv
import io
import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm, permutation_test
from typer.testing import CliRunner

from posir_compare.comparison import Metric, compare, corrected, holm, rows_of
from posir_compare.differences import (
    Estimate,
    ndcg_difference_interval,
    possible_interval,
    possible_p_value,
    possible_psi,
    psi_differences,
)
from posir_compare.model_runs import Contestant, Pair, contestants_of, named, pairs_of
from posir_compare.pairing import Joint, Match, match
from posir_compare.permutation import correlation, dealt, exchange_p_value, exchanged_differences, swapped
from posir_psi import psi
from posir_significance.group_means import compute_group_means
from posir_significance.intervals import ndcg_intervals, psi_interval
from posir_significance.true_score_model import draw_true_scores
from posir_tasks.command.app import build_app
from posir_tasks.errors import PosirError
from posir_tasks.evidence import Evidence
from posir_tasks.profile import NDCG_AT_10, RANKS, PositionProfile, rank_columns
from posir_tasks.query_ranks import save_ranks
from posir_tasks.schemes import AbsolutePositions, RelativePositions
from tests.support.results import write_result
from tests.support.simulation import psi_p_value

#: Ranks of a good and of a bad retriever; mixtures of the two have any mean between theirs.
GOOD = np.array([0.86, 0.05, 0.03, 0.01, 0.01, 0.01, 0.01, 0.0, 0.01, 0.0, 0.01, 0.0])
BAD = np.array([0.02, 0.03, 0.03, 0.02, 0.02, 0.02, 0.01, 0.02, 0.01, 0.02, 0.5, 0.3])
PAIR = Pair(Contestant("org/a", ()), Contestant("org/b", ()), "PosIR-English")


def distributions(means):
    share = (np.asarray(means) - BAD @ NDCG_AT_10) / (GOOD @ NDCG_AT_10 - BAD @ NDCG_AT_10)
    return share[:, None] * GOOD + (1 - share[:, None]) * BAD


def drawn(means_a, means_b, queries, seed, together=0.0):
    """Joint counts (P, 12, 12) of queries that fall into bins at random; `together`: correlation of the two models."""
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, len(means_a), queries)
    normal = rng.standard_normal((2, queries))
    normal[1] = together * normal[0] + np.sqrt(1 - together**2) * normal[1]
    columns = [
        (norm.cdf(one)[:, None] > distributions(means).cumsum(axis=1)[bins, :-1]).sum(axis=1)
        for one, means in zip(normal, (means_a, means_b), strict=True)
    ]
    joint = np.zeros((len(means_a), len(RANKS), len(RANKS)), np.int64)
    np.add.at(joint, (bins, *columns), 1)
    return joint


def match_of(*buckets, paired):
    """A match of one length bucket for each (P, 12, 12)."""
    joint = np.stack(buckets)
    names = tuple(f"Q{k + 1}" for k in range(len(buckets))), tuple(map(str, range(joint.shape[1])))
    totals = joint.sum(axis=1)
    a, b = (PositionProfile("test", *names, joint.sum(axis=axis), totals.sum(axis=axis - 1)) for axis in (3, 2))
    return Match(a, b, Joint(joint, totals) if paired else None, ("default",), ())


def gains_of(joint):
    """Per-query nDCG@10 under both models, shapes (n,)."""
    _, a, b = np.nonzero(joint)
    times = joint[joint > 0]
    return np.repeat(NDCG_AT_10[a], times), np.repeat(NDCG_AT_10[b], times)


# The test of nDCG@10.


def mean_difference(a, b, axis):
    return np.mean(b, axis=axis) - np.mean(a, axis=axis)


def ndcg_p_value(joint, paired, draws):
    a, b = gains_of(joint)
    exchanged = exchanged_differences(match_of(joint, paired=paired), draws)["all"]
    return exchange_p_value(b.mean() - a.mean(), exchanged), exchanged


@pytest.mark.parametrize(("seed", "gap"), [(1, 0.06), (2, 0.1), (3, 0.03)])
@pytest.mark.parametrize("paired", [True, False])
def test_p_value_agrees_with_scipy(paired, seed, gap):
    joint = drawn([0.6], [0.6 + gap], 150, seed, together=0.5)
    kind = "samples" if paired else "independent"
    theirs = permutation_test(
        gains_of(joint), mean_difference, permutation_type=kind, vectorized=True, n_resamples=20_000, rng=seed
    )
    p_value, exchanged = ndcg_p_value(joint, paired, 20_000)
    error = np.sqrt(theirs.pvalue * (1 - theirs.pvalue) / 20_000)
    assert abs(p_value - theirs.pvalue) < 5 * np.sqrt(2) * error
    assert exchanged.std() == pytest.approx(theirs.null_distribution.std(), rel=0.04)
    assert abs(exchanged.mean()) < 5 * exchanged.std() / np.sqrt(20_000)


def test_ranks_are_dealt_within_cells():
    joint = drawn([0.9, 0.3], [0.8, 0.4], 60, 4)
    a, b = joint.sum(axis=2), joint.sum(axis=1)
    rng = np.random.default_rng(5)

    def plain():
        sums = []
        for cell_a, cell_b in zip(a, b, strict=True):
            mixed = rng.permutation(np.repeat(NDCG_AT_10, cell_a + cell_b))
            sums.append(mixed[cell_a.sum() :].sum() - mixed[: cell_a.sum()].sum())
        return sums

    theirs, ours = np.array([plain() for _ in range(5000)]), dealt(a, b, 5000, np.random.default_rng(6))
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.06)
    assert (np.abs(ours.mean(axis=0)) < 5 * ours.std(axis=0) / np.sqrt(5000)).all()


@settings(deadline=None, max_examples=30)
@given(arrays(np.int64, (2, 12, 12), elements=st.sampled_from([0, 0, 0, 0, 1, 3])))
def test_swapped_sums_lie_within_what_the_queries_differ_by(joint):
    steps = (joint * np.abs(NDCG_AT_10[:, None] - NDCG_AT_10)).sum(axis=(1, 2))
    assert (np.abs(swapped(joint, 40, np.random.default_rng(1))) <= steps + 1e-9).all()


def test_a_length_is_exchanged_as_the_unweighted_mean_of_its_bins():
    joint = drawn([0.8, 0.5, 0.4], [0.8, 0.5, 0.4], 90, 1, together=0.4)
    joint[1] = 0
    queries = joint.sum(axis=(1, 2))[[0, 2]]
    exchanged = exchanged_differences(match_of(joint, joint, paired=True), 8000)["Q2"]
    squares = (joint * (NDCG_AT_10[:, None] - NDCG_AT_10) ** 2).sum(axis=(1, 2))[[0, 2]]
    assert exchanged.std() == pytest.approx(np.sqrt((squares / queries**2).sum()) / 2, rel=0.04)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("queries", [300, 3000])
def test_no_difference_is_called_significant_in_one_of_twenty(queries, paired):
    means, together = np.linspace(0.8, 0.4, 5), 0.6 if paired else 0.0
    found = [ndcg_p_value(drawn(means, means, queries, seed, together), paired, 500)[0] < 0.05 for seed in range(600)]
    assert 0.03 <= np.mean(found) <= 0.07


def test_pairing_finds_what_independent_samples_do_not():
    joint = drawn([0.6, 0.5], [0.66, 0.56], 400, 8, together=0.9)
    assert ndcg_p_value(joint, True, 2000)[0] < 0.01 < ndcg_p_value(joint, False, 2000)[0]


def test_correlation_is_that_of_deviations_from_the_bin_means():
    joint = drawn([0.9, 0.2], [0.8, 0.3], 500, 1, together=0.5)
    deviations = np.concatenate([[one - one.mean() for one in gains_of(cell[None])] for cell in joint], axis=1)
    assert correlation(joint) == pytest.approx(
        (deviations[0] * deviations[1]).sum() / np.sqrt(np.prod((deviations**2).sum(axis=1)))
    )
    assert correlation(np.zeros((2, 12, 12), np.int64)) == 0


# The intervals.


def test_square_and_add_is_newcombes_worked_example():
    # Newcombe 1998, Statistics in Medicine 17, 873-890, table II, example (a), method 10: 56/70 against 48/80.
    first, second = Estimate(48 / 80, 0.4904, 0.7004), Estimate(56 / 70, 0.6916, 0.8774)
    assert ndcg_difference_interval(first, second, 0.0) == pytest.approx((0.0524, 0.3339), abs=2e-3)


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6), st.floats(-1, 1))
def test_interval_of_a_difference_turns_with_the_models_and_holds_the_observed_one(values, together):
    a, b = (Estimate(value, low, high) for low, value, high in (sorted(values[:3]), sorted(values[3:])))
    low, high = ndcg_difference_interval(a, b, together)
    assert low <= b.value - a.value <= high
    assert ndcg_difference_interval(b, a, together) == pytest.approx((-high, -low))


FLAT, SLOPE, STEP = np.full(20, 0.75), np.linspace(0.8, 0.5, 20), np.where(np.arange(20) < 12, 0.8, 0.55)


def possible_differences(joint, paired):
    """What `rows_of` has for PSI, with fewer draws."""
    a, b = joint.sum(axis=2), joint.sum(axis=1)
    return psi_differences(a, b, (psi_p_value(a, 100), psi_p_value(b, 100)), correlation(joint) if paired else 0.0, 500)


def estimate(joint, axis):
    counts = joint.sum(axis=(0, axis))
    ((low, high),) = ndcg_intervals(compute_group_means(counts[None]))
    return Estimate(float(counts @ NDCG_AT_10) / counts.sum(), low, high)


@pytest.mark.parametrize(
    ("a", "b"), [(SLOPE, SLOPE), (FLAT, SLOPE), (STEP, SLOPE - 0.1)], ids=["same", "flat and slope", "step and slope"]
)
@pytest.mark.parametrize("paired", [True, False])
def test_intervals_cover_the_truth(a, b, paired):
    found = []
    for seed in range(200):
        joint = drawn(a, b, 3000, seed, 0.6 if paired else 0.0)
        together = correlation(joint.sum(axis=0, keepdims=True)) if paired else 0.0
        ndcg = ndcg_difference_interval(estimate(joint, 2), estimate(joint, 1), together)
        low, high = possible_interval(possible_differences(joint, paired))
        found.append([ndcg[0] <= (b - a).mean() <= ndcg[1], low <= psi(b) - psi(a) <= high])
    shares = np.mean(found, axis=0)
    assert 0.92 <= shares[0] <= 0.98
    assert shares[1] >= 0.9


@pytest.mark.parametrize("paired", [True, False])
def test_levels_do_not_pose_as_a_difference_in_psi(paired):
    found, observed = [], []
    for seed in range(200):
        joint = drawn(np.full(20, 0.85), np.full(20, 0.45), 2000, seed, 0.6 if paired else 0.0)
        found.append(possible_p_value(possible_differences(joint, paired)) < 0.05)
        observed.append(psi(compute_group_means(joint.sum(axis=1)).means) - psi(compute_group_means(joint.sum(axis=2)).means))
    assert np.mean(observed) > 0.15
    assert np.mean(found) <= 0.07


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2, 0.5]))
def test_ends_of_possible_psi_are_the_models_own_interval(seed, fall):
    counts = drawn(np.linspace(0.7, 0.7 - fall, 8), FLAT[:8], 600, seed).sum(axis=2)
    p_value = psi_p_value(counts, 100)
    values = possible_psi(draw_true_scores(compute_group_means(counts)), p_value)
    low, high = psi_interval(counts, p_value)
    ends = possible_interval(values)
    assert ends == pytest.approx((low, high), abs=0.01)


def test_a_model_does_not_differ_from_itself():
    joint = np.einsum("pa,ab->pab", drawn(SLOPE, SLOPE, 900, 1).sum(axis=2), np.eye(12, dtype=np.int64))
    ndcg, psi_ = rows_of(PAIR, match_of(joint, paired=True), 500)
    for row in (ndcg, psi_):
        assert (row.difference, row.p_value) == (0, 1)
        assert (row.difference_low, row.difference_high) == pytest.approx((0, 0), abs=2e-3)


def test_pairing_narrows_the_intervals():
    joint = drawn(SLOPE, SLOPE - 0.05, 4000, 3, together=0.8)
    for paired, unpaired in zip(*(rows_of(PAIR, match_of(joint, paired=one), 1000) for one in (True, False)), strict=True):
        assert paired.difference == unpaired.difference
        width = paired.difference_high - paired.difference_low
        assert width < 0.85 * (unpaired.difference_high - unpaired.difference_low)


def test_interval_and_p_value_of_psi_agree():
    for values in (np.linspace(-0.1, 0.9, 1000), np.linspace(-0.02, 0.9, 1000), np.linspace(-0.9, 0.01, 1000)):
        low, high = possible_interval(values)
        assert (possible_p_value(values) < 0.05) == (low > 0 or high < 0)
    assert possible_p_value(np.zeros(10)) == 1


def test_same_input_same_numbers():
    match_ = match_of(drawn(SLOPE, STEP, 500, 1), drawn(STEP, SLOPE, 300, 2), paired=True)
    assert rows_of(PAIR, match_, 300) == rows_of(PAIR, match_, 300)
    counts = match_.a.counts[0], match_.b.counts[0]
    np.testing.assert_array_equal(*(psi_differences(*counts, (0.3, 0.2), 0.4, 100) for _ in range(2)))


# The correction.


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_agrees_with_its_definition(p_values):
    plain = []
    for one in p_values:
        # The largest of the corrected values up to this one's place, by the step-down procedure.
        order = sorted(p_values)
        place = max(k for k, other in enumerate(order) if other == one)
        plain.append(min(1.0, max(order[k] * (len(order) - k) for k in range(place + 1))))
    np.testing.assert_allclose(holm(np.array(p_values)), plain)


def test_each_metric_is_corrected_by_itself():
    rows = rows_of(PAIR, match_of(drawn(FLAT, SLOPE, 400, 1), np.zeros((20, 12, 12), np.int64), paired=False), 200)
    fixed = corrected(rows)
    for metric in Metric:
        given_, found = zip(*((row.p_value, row.p_corrected) for row in fixed if row.metric is metric), strict=True)
        assert given_[2] is found[2] is None
        np.testing.assert_allclose(found[:2], holm(np.array(given_[:2])))


# Results on disk.

SCHEME = RelativePositions(bins=5)


def evidence_of(queries, seed=0, scheme_starts=4000):
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, scheme_starts, queries)
    names = [f"q{row}" for row in range(queries)]
    lengths = np.full(queries, 4010), rng.integers(100, 2500, queries)
    return Evidence(names, ["d"] * queries, starts, starts + 10, *lengths)


def ranks_of(queries, seed, hit=0.5):
    return np.random.default_rng(seed).geometric(hit, queries) % 14


DOMAINS = {"game": evidence_of(300, 1), "sports": evidence_of(200, 2)}


def write(folder, model, seed, domains=DOMAINS, kept=None, scheme=SCHEME, **options):
    """Write a model's result, and its ranks where a folder for them is given."""
    profiles = {}
    for place, (subset, evidence) in enumerate(domains.items()):
        ranks = ranks_of(len(evidence), seed + place)
        profiles[subset] = PositionProfile.from_ranks(scheme, evidence, ranks)
        if kept:
            save_ranks(kept, model, "rev1", options.get("task", "PosIR-English"), subset, scheme, evidence, ranks)
    return write_result(folder, profiles, model=model, **options)


def only_pair(*folders):
    (pair,) = pairs_of(contestants_of(folders))
    return pair


def test_joint_counts_are_those_of_the_queries(tmp_path):
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write(tmp_path / "out", model, seed, kept=tmp_path / "kept")
    found = match(only_pair(tmp_path / "out"), tmp_path / "kept")
    assert found.notes == ()
    np.testing.assert_array_equal(found.joint.cells.sum(axis=3), found.a.counts)
    np.testing.assert_array_equal(found.joint.cells.sum(axis=2), found.b.counts)
    np.testing.assert_array_equal(found.joint.totals.sum(axis=2), found.a.totals)
    plain = np.zeros((12, 12), int)
    for place, evidence in enumerate(DOMAINS.values()):
        np.add.at(plain, tuple(rank_columns(ranks_of(len(evidence), seed + place)) for seed in (1, 5)), 1)
    np.testing.assert_array_equal(found.joint.cells.sum(axis=(0, 1)), plain)


def test_queries_on_a_shared_boundary_are_exchanged_once_for_all_and_in_both_buckets(tmp_path):
    starts = np.array([100] * 40 + [50] * 30 + [9000] * 10)
    evidence = Evidence([f"q{k}" for k in range(80)], ["d"] * 80, starts, starts + 1)
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write(tmp_path / "out", model, seed, {"default": evidence}, tmp_path / "kept", AbsolutePositions())
    for folder in (None, tmp_path / "kept"):
        found = match(only_pair(tmp_path / "out"), folder)
        gains = [np.append(NDCG_AT_10, 0)[rank_columns(ranks_of(80, seed))] for seed in (1, 5)]
        exchanged = exchanged_differences(found, 8000)["all"]
        spread = (
            np.sqrt(((gains[1] - gains[0]) ** 2).sum()) / 80
            if folder
            else np.concatenate(gains).std() * np.sqrt(2 * 160 / 159 / 80)
        )
        assert exchanged.std() == pytest.approx(spread, rel=0.04)
        (row, _) = rows_of(only_pair(tmp_path / "out"), found, 500)
        assert row.difference == pytest.approx(gains[1].mean() - gains[0].mean())
        assert row.queries == 80


def test_two_folders_and_one_folder_give_the_same(tmp_path):
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write(tmp_path / "both", model, seed)
        write(tmp_path / model[-1], model, seed)
    one, two = (compare(pairs_of(contestants_of(f)), None) for f in ([tmp_path / "both"], [tmp_path / "a", tmp_path / "b"]))
    assert one == two
    assert [row.length for row in one.rows if row.metric is Metric.PSI] == ["all", "Q1", "Q2", "Q3", "Q4"]
    assert {row.method for row in one.rows} == {"unpaired"}
    turned = compare(pairs_of(contestants_of([tmp_path / "b", tmp_path / "a"])), None)
    assert [row.difference for row in turned.rows] == pytest.approx([-row.difference for row in one.rows])


def test_several_models_and_tasks_make_all_pairs(tmp_path):
    for model in ("org/a", "org/b", "org/c"):
        write(tmp_path, model, 1)
    write(tmp_path, "org/c", 1, task="PosIR-German")
    write(tmp_path, "org/a", 1, task="PosIR-German")
    pairs = [(one.a.label, one.b.label, one.task) for one in pairs_of(contestants_of([tmp_path]))]
    assert pairs == [
        ("org/a", "org/b", "PosIR-English"),
        ("org/a", "org/c", "PosIR-English"),
        ("org/a", "org/c", "PosIR-German"),
        ("org/b", "org/c", "PosIR-English"),
    ]


def test_runs_of_one_model_are_told_apart_and_a_folder_given_twice_counts_once(tmp_path):
    write(tmp_path / "old", "org/a", 1)
    write(tmp_path / "old", "org/a", 2, experiment="batch")
    write(tmp_path / "new", "org/a", 3)
    found = contestants_of([tmp_path / "old", tmp_path / "new", tmp_path / "old" / "results"])
    assert len(found) == len({one.label for one in found}) == 3
    assert all(one.label.startswith("org/a (") for one in found)


def test_only_common_subsets_are_compared(tmp_path):
    write(tmp_path, "org/a", 1)
    write(tmp_path, "org/b", 1, {"sports": DOMAINS["sports"], "mining": DOMAINS["game"]})
    found = match(only_pair(tmp_path), None)
    assert (found.subsets, found.a.queries) == (("sports",), 200)
    assert found.notes == (
        "org/a and org/b on PosIR-English: only one of them has the subsets game, mining; they are left out.",
    )


def test_subsets_of_other_queries_are_left_out(tmp_path):
    write(tmp_path, "org/a", 1)
    write(tmp_path, "org/b", 1, DOMAINS | {"game": evidence_of(299, 1)})
    found = match(only_pair(tmp_path), None)
    assert found.subsets == ("sports",)
    assert "not the same queries in the subsets game" in found.notes[0]


@pytest.mark.parametrize(
    ("domains", "scheme", "told"),
    [
        ({"game": evidence_of(10), "sports": evidence_of(10)}, SCHEME, "different data"),
        (DOMAINS, RelativePositions(bins=4), "other position bins"),
        ({"mining": evidence_of(10)}, SCHEME, "no subset in common"),
    ],
)
def test_nothing_in_common(tmp_path, domains, scheme, told):
    write(tmp_path, "org/a", 1)
    write(tmp_path, "org/b", 1, domains, scheme=scheme)
    with pytest.raises(PosirError, match=told):
        compare(pairs_of(contestants_of([tmp_path])), None)
    write(tmp_path, "org/c", 1)
    found = compare(pairs_of(contestants_of([tmp_path])), None)
    assert {(row.model_a, row.model_b) for row in found.rows} == {("org/a", "org/c")}
    assert any(told in note for note in found.notes)


def other_ranks(kept):
    save_ranks(kept, "org/b", "rev1", "PosIR-English", "game", SCHEME, DOMAINS["game"], ranks_of(300, 99))


def other_ids(kept):
    for place, (subset, one) in enumerate(DOMAINS.items()):
        ids = [f"other{name}" for name in one.query_ids]
        evidence = Evidence(ids, one.document_ids, one.starts, one.ends, one.characters, one.tokens)
        save_ranks(kept, "org/b", "rev1", "PosIR-English", subset, SCHEME, evidence, ranks_of(len(ids), 5 + place))


def one_subset(kept):
    (kept / "org__b" / "rev1" / "PosIR-English_ranks.parquet").unlink()
    save_ranks(kept, "org/b", "rev1", "PosIR-English", "sports", SCHEME, DOMAINS["sports"], ranks_of(200, 6))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda kept: (kept / "org__b" / "rev1" / "PosIR-English_ranks.parquet").unlink(), "no ranks were kept"),
        (lambda kept: (kept / "org__b" / "rev1" / "PosIR-English_ranks.parquet").write_bytes(b"PAR1"), "no file of kept ranks"),
        (one_subset, "no ranks of the subset 'game'"),
        (other_ranks, "are not those of the result"),
        (other_ids, "not of the same queries"),
    ],
    ids=["absent", "damaged", "subset", "ranks", "ids"],
)
def test_ranks_that_do_not_fit_leave_queries_unpaired_and_say_why(tmp_path, spoil, told):
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write(tmp_path / "out", model, seed, kept=tmp_path / "kept")
    spoil(tmp_path / "kept")
    found = match(only_pair(tmp_path / "out"), tmp_path / "kept")
    assert found.joint is None
    assert "without pairing" in found.notes[0]
    assert told in found.notes[0]


# The command.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    output = tmp_path_factory.mktemp("output")
    for model, seed in (("org/a", 1), ("org/b", 5), ("other/b", 9)):
        write(output / "results", model, seed, kept=output / "kept")
    return output


def invoke(*arguments):
    return CliRunner().invoke(build_app(), ["compare", *map(str, arguments)])


def test_every_form(folder):
    asked = ("--results", folder / "results", "a", "org/b", "--ranks", folder / "kept")
    pairs = pairs_of(named(contestants_of([folder / "results"]), ["a", "org/b"]))
    rows = compare(pairs, folder / "kept").rows
    assert json.loads(invoke(*asked, "--format", "json").stdout)["comparisons"] == json.loads(json.dumps([*map(asdict, rows)]))
    table = list(csv.DictReader(io.StringIO(invoke(*asked, "--format", "csv").stdout)))
    assert [float(line["difference"]) for line in table] == [row.difference for row in rows]
    assert {line["method"] for line in table} == {"paired by query"}
    lines = [line.strip("| ").split(" | ") for line in invoke(*asked, "--format", "markdown").stdout.splitlines()]
    assert len({len(line) for line in lines}) == 1
    first = dict(zip(lines[0], lines[2], strict=True))
    assert (first["Model A"], first["Model B"], first["Method"]) == ("org/a", "org/b", "paired by query")
    assert first["B - A"].split()[0] == f"{rows[0].difference * 100:+.1f}"
    printed = invoke(*asked)
    assert printed.exit_code == 0
    assert "PosIR-English · paired by query" in printed.stdout
    assert "by Holm's method" in " ".join(printed.stdout.split())


def test_psi_stands_beside_its_interval_noise_floor_and_ndcg(folder):
    found = json.loads(invoke(folder / "results", "--format", "json").stdout)["comparisons"]
    assert [row["metric"] for row in found[:2]] == ["nDCG@10", "PSI"]
    for row in found[1::2]:
        assert all(row[f"{one}_{field}"] is not None for one in "ab" for field in ("low", "high", "noise_mean", "noise_p95"))
        assert row["queries"] > 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Nothing to compare was given"),
        (["nowhere"], "nowhere: no such folder"),
        (["--results", "nowhere"], "nowhere: no such folder"),
        (["--results", "RESULTS", "c"], "no results of a model 'c'. Those there are: org/a, org/b, other/b"),
        (["--results", "RESULTS", "b", "a"], "org/b or other/b"),
        (["--results", "RESULTS", "a"], "needs two models; found: org/a"),
        (["RESULTS", "--ranks", "nowhere"], "nowhere: no such folder. Give the --prediction-folder"),
    ],
)
def test_mistakes(folder, arguments, told):
    done = invoke(*(str(folder / "results") if one == "RESULTS" else one for one in arguments))
    assert isinstance(done.exception, PosirError)
    assert told in str(done.exception)


def test_no_task_in_common(tmp_path):
    write(tmp_path, "org/a", 1)
    write(tmp_path, "org/b", 1, task="PosIR-German")
    with pytest.raises(PosirError, match="org/a: PosIR-English; org/b: PosIR-German"):
        pairs_of(contestants_of([tmp_path]))


def test_notes_go_to_the_error_stream(folder):
    done = invoke("--results", folder / "results", "a", "org/b", "--ranks", folder, "--format", "json")
    assert "note: org/a and org/b on PosIR-English: compared without pairing." in done.stderr
    assert len(json.loads(done.stdout)["notes"]) == 1
