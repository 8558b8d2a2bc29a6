"""Position profiles: counts of ranks, addition, JSON, and scores of pytrec_eval."""

import json

import numpy as np
import pandas as pd
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from posir_tasks.base.errors import NewerSchemaError, ProfileError
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.profile import (
    MRR_AT_10,
    NDCG_AT_10,
    RANKS,
    PositionProfile,
    average_gains,
    map_ranks_to_columns,
    pool,
)
from posir_tasks.values.schemes import AbsolutePositions, LabeledPositions, RelativePositions

RANK = st.one_of(st.integers(0, 12), st.integers(0, 130))
#: Start and end of the evidence, characters and tokens of the document, and rank.
QUERY = st.tuples(
    st.integers(0, 99), st.integers(100, 200), st.just(200), st.integers(1, 2_000), RANK
)
#: Start (on, next to and far from boundaries of SQuAD-PosQ's buckets) and rank.
SQUAD_QUERY = st.tuples(
    st.one_of(st.sampled_from([0, 100, 200, 500, 3120, 3121]), st.integers(0, 4_000)), RANK
)


def relative_profile(queries):
    starts, ends, characters, tokens, ranks = np.array(queries, np.int64).reshape(-1, 5).T
    names = [f"q{k}" for k in range(len(queries))]
    evidence = Evidence(names, ["d"] * len(queries), starts, ends, characters, tokens)
    return PositionProfile.from_ranks(RelativePositions(), evidence, ranks)


def squad_profile(queries):
    starts, ranks = np.array(queries, np.int64).reshape(-1, 2).T
    names = [f"q{k}" for k in range(len(queries))]
    return PositionProfile.from_ranks(
        AbsolutePositions(), Evidence(names, ["d"] * len(queries), starts), ranks
    )


def score_with_pytrec_eval(ranks):
    """Compute nDCG@10, MRR@10 and recall@1, @5, @10 and @100 of these ranks with pytrec_eval."""
    qrels = {f"q{k}": {"right": 1} for k in range(len(ranks))}
    runs = {
        f"q{k}": {
            "right" if place == rank else f"wrong{place}": 1_000.0 - place
            for place in range(1, 131)
        }
        for k, rank in enumerate(ranks)
    }
    measures = {"ndcg_cut.10", "recall.1,5,10,100"}
    scores = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(runs)
    first_ten = {name: dict(list(run.items())[:10]) for name, run in runs.items()}
    mrr = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(first_ten)
    return pd.DataFrame([{**scores[name], **mrr[name]} for name in qrels])


@given(st.lists(QUERY, min_size=1, max_size=20))
@settings(max_examples=40)
def test_scores_equal_pytrec_eval(queries):
    profile, expected = (
        relative_profile(queries),
        score_with_pytrec_eval([rank for *_, rank in queries]).mean(),
    )
    assert profile.score() == pytest.approx(expected["ndcg_cut_10"], abs=1e-12)
    assert profile.score(NDCG_AT_10) == profile.score()
    assert profile.score(MRR_AT_10) == pytest.approx(expected["recip_rank"], abs=1e-12)


@given(st.lists(QUERY, min_size=1, max_size=20))
@settings(max_examples=40)
def test_scores_by_bin_equal_means_of_pytrec_eval(queries):
    frame = pd.DataFrame(queries, columns=["start", "end", "characters", "tokens", "rank"])
    frame["ndcg"] = score_with_pytrec_eval(frame["rank"])["ndcg_cut_10"]
    midpoint = (frame.start + frame.end) / 2 / frame.characters
    frame["bin"] = pd.cut(midpoint, np.linspace(0, 1, 21), include_lowest=True, labels=False)
    frame["bucket"] = pd.cut(frame.tokens, [0, 512, 1024, 1536, np.inf], labels=False)
    profile = relative_profile(queries)
    means = frame.groupby("bin").ndcg.mean().reindex(range(20))
    np.testing.assert_allclose(profile.by_position(), means, atol=1e-12)
    cells = (
        frame.groupby(["bucket", "bin"])
        .ndcg.mean()
        .reindex(pd.MultiIndex.from_product([range(4), range(20)]))
    )
    np.testing.assert_allclose(
        average_gains(profile.counts, NDCG_AT_10), cells.to_numpy().reshape(4, 20), atol=1e-12
    )
    for bucket, ndcg in frame.groupby("bucket").ndcg.mean().items():
        assert profile.select_length(bucket).score() == pytest.approx(ndcg, abs=1e-12)


@given(
    st.lists(QUERY, max_size=20).map(relative_profile)
    | st.lists(SQUAD_QUERY, max_size=20).map(squad_profile)
)
def test_json_round_trip(profile):
    assert PositionProfile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


@given(
    st.lists(st.lists(QUERY, max_size=8), min_size=1, max_size=5), st.randoms(use_true_random=False)
)
def test_pooling_in_any_order_equals_a_single_count(shards, random):
    whole = relative_profile([query for shard in shards for query in shard])
    random.shuffle(shards)
    assert pool(map(relative_profile, shards)) == whole


@given(*[st.lists(SQUAD_QUERY, max_size=8)] * 3)
def test_addition_is_associative_and_commutative(first, second, third):
    a, b, c = map(squad_profile, (first, second, third))
    assert (a + b) + c == a + (b + c) == squad_profile(first + second + third)
    assert a + b == b + a


@given(st.lists(SQUAD_QUERY, min_size=1, max_size=30))
def test_a_query_in_two_buckets_or_none_counts_once(queries):
    profile = squad_profile(queries)
    memberships = [
        sum(low <= start <= high for low, high in AbsolutePositions().buckets)
        for start, _ in queries
    ]
    assert profile.queries == profile.queries_by_length.sum() == len(queries)
    assert profile.counts.sum() == sum(memberships)
    evidence = Evidence(
        [""] * len(queries), ["d"] * len(queries), np.array([start for start, _ in queries])
    )
    assert PositionProfile.from_ranks(AbsolutePositions(), evidence).has_same_queries(profile)
    assert profile.score() == pytest.approx(
        score_with_pytrec_eval([rank for _, rank in queries])["ndcg_cut_10"].mean(), abs=1e-12
    )


def test_ranks_up_to_ten_have_a_column_each():
    columns = map_ranks_to_columns(np.array([1, 10, 11, 100, 101, 0]))
    assert [RANKS[column] for column in columns] == ["1", "10", "11-100", "11-100", "miss", "miss"]


def test_scores_without_queries_are_nan():
    profile = relative_profile([(0, 100, 200, 100, 1)])
    assert np.flatnonzero(~np.isnan(profile.by_position())).tolist() == [4]
    assert np.isnan(relative_profile([]).score())


def test_profiles_of_different_schemes_or_lengths_do_not_add():
    labeled = PositionProfile.from_ranks(
        LabeledPositions(), Evidence(["q"], ["d"], labels=("end",)), np.array([1])
    )
    with pytest.raises(ProfileError, match=r"label-beginning-middle-end.*absolute-"):
        labeled + squad_profile([(5, 1)])
    whole = relative_profile([(0, 100, 200, 100, 1), (0, 100, 200, 700, 1)])
    short, long = whole.select_length(0), whole.select_length(1)
    for item, other in ((whole, short), (short, whole), (short, long)):
        with pytest.raises(ProfileError):
            item + other


def dump_profile():
    return relative_profile(
        [(0, 100, 200, 100, 1), (50, 100, 200, 700, 3), (50, 150, 200, 700, 0)]
    ).to_json()


def test_a_newer_schema_is_rejected_with_advice_to_update():
    with pytest.raises(NewerSchemaError, match=r"schema 2.*reads up to 1\..*Update posir"):
        PositionProfile.from_json(dump_profile() | {"schema": 2})


@pytest.mark.parametrize("field", ["axes", "counts", "totals", "queries", "schema"])
def test_a_missing_field_is_rejected(field):
    profile = dump_profile()
    del profile[field]
    with pytest.raises(ProfileError, match=field):
        PositionProfile.from_json(profile)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"counts": "gone"}, "damaged"),
        ({"counts": [["1 2 3"]]}, "shape"),
        ({"counts": []}, "shape"),
        ({"totals": ["one two"] * 4}, "one"),
        ({"totals": [1, 2, 3, 4]}, "int"),
        ({"totals": ["9" * 30] * 4}, "too large"),
        ({"totals": ["-1" + " 0" * 11] * 4}, "between 0"),
        ({"axes": {"scheme": "s", "lengths": ["Q1", "Q2"], "positions": ["0"]}}, "shape"),
        ({"axes": None}, "damaged"),
        ({"queries": 4}, "'queries' is 4"),
        ({"schema": "1"}, "JSON object"),
    ],
    ids=str,
)
def test_damaged_profiles_are_rejected(damage, message):
    with pytest.raises(ProfileError, match=message):
        PositionProfile.from_json(dump_profile() | damage)
    for other in (None, [], "profile", 1):
        with pytest.raises(ProfileError, match="JSON object"):
            PositionProfile.from_json(other)
