"""Ranks by document: additive, small, and the source of the profile."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.document_ranks import DocumentRanks, pack_column, unpack_column
from posir_tasks.errors import NewerSchemaError, ProfileError
from posir_tasks.evidence import Evidence
from posir_tasks.profile import PositionProfile
from posir_tasks.schemes import AbsolutePositions, RelativePositions
from posir_tasks.sources.mini import read_mini

SCHEME = RelativePositions(bins=4, token_bounds=(100,))


def evidence_of(rows, prefix="q", article=None):
    """Evidence of (document, start in tenths, tokens) rows."""
    starts = np.array([start * 10 for _, start, _ in rows], np.int64)
    return Evidence(
        query_ids=[f"{prefix}{row}" for row in range(len(rows))],
        document_ids=[f"d{document}" for document, _, _ in rows],
        starts=starts,
        ends=starts + 5,
        characters=np.full(len(rows), 100),
        tokens=np.array([50 if document % 2 else 200 for document, _, _ in rows]),
        clusters=tuple(f"a{document // 3}" for document, _, _ in rows) if article else (),
    )


rows = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9), st.integers(0, 120)), max_size=40)


def built(given_rows, prefix="q", **options):
    return DocumentRanks.from_ranks(
        SCHEME, evidence_of(given_rows, prefix), np.array([rank for *_, rank in given_rows], np.int64), **options
    )


@given(rows)
def test_the_profile_follows_from_it(given_rows):
    ranks = np.array([rank for *_, rank in given_rows], np.int64)
    assert built(given_rows).profile == PositionProfile.from_ranks(SCHEME, evidence_of(given_rows), ranks)


@given(rows, rows, rows)
def test_values_add_in_any_order(first, second, third):
    a, b, c = built(first, "a"), built(second, "b"), built(third, "c")
    assert (a + b) + c == c + (b + a)
    assert (a + b).profile == a.profile + b.profile


@given(rows, st.integers(1, 300))
def test_json_round_trip(given_rows, window):
    value = built(given_rows, beyond=evidence_of(given_rows).estimate_beyond(window))
    data = json.loads(json.dumps(value.to_json()))
    assert DocumentRanks.from_json(data, value.axes) == value


@given(st.lists(st.integers(0, 2**20)))
def test_columns_round_trip(column):
    assert unpack_column(pack_column(np.array(column, np.int64))).tolist() == column


@given(rows, st.integers(1, 300))
def test_queries_within_the_window_are_those_of_the_window_coverage(given_rows, window):
    evidence = evidence_of(given_rows)
    kept = np.flatnonzero(evidence.estimate_beyond(window) == 0)
    ranks = np.array([rank for *_, rank in given_rows], np.int64)
    expected = PositionProfile.from_ranks(SCHEME, evidence.select(kept.tolist()), ranks[kept])
    assert built(given_rows, beyond=evidence_of(given_rows).estimate_beyond(window)).within_window().profile == expected


def test_two_models_list_the_same_queries_in_the_same_order():
    given_rows = [(3, 1, 1), (1, 9, 2), (3, 5, 3), (2, 2, 0)]
    shuffled = [given_rows[row] for row in (2, 0, 3, 1)]
    ids = ["q2", "q0", "q3", "q1"]
    evidence = evidence_of(shuffled)
    other = Evidence(ids, evidence.document_ids, evidence.starts, evidence.ends, evidence.characters, evidence.tokens)
    first, second = built(given_rows), DocumentRanks.from_ranks(SCHEME, other, np.array([row[2] for row in shuffled]))
    assert first == second


def test_documents_and_articles_are_shared_between_results_on_the_same_documents():
    first, second = built([(0, 1, 1), (1, 2, 1)], "german"), built([(0, 7, 5), (1, 8, 5)], "french")
    columns = (first + second).columns
    assert sorted(columns.documents.tolist()) == [0, 0, 1, 1]
    articles = DocumentRanks.from_ranks(SCHEME, evidence_of([(0, 1, 1), (1, 1, 1), (3, 1, 1)], article=True), np.ones(3, int))
    assert sorted(articles.columns.clusters.tolist()) == [0, 0, 1]


def test_a_query_on_a_shared_boundary_counts_in_two_bins():
    scheme = AbsolutePositions()
    evidence = Evidence(["q"], ["d"], starts=np.array([100]), ends=np.array([101]))
    value = DocumentRanks.from_ranks(scheme, evidence, np.array([1]))
    assert value.profile == PositionProfile.from_ranks(scheme, evidence, np.array([1]))
    assert value.to_json()["cells"] == "0:0,1"


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"cells": "9:0"},
        {"cells": "x"},
        {"sets": [{}]},
        {"sets": 3},
    ],
)
def test_damaged_json_is_refused(change):
    value = built([(1, 1, 1)])
    with pytest.raises((ProfileError, NewerSchemaError)):
        DocumentRanks.from_json({**value.to_json(), **change}, value.axes)


@pytest.mark.parametrize("text", ["z!!", "-1", "zabc", "99999999999", ""])
def test_damaged_columns_are_refused(text):
    value = built([(1, 1, 1)])
    data = value.to_json()
    data["sets"][0]["ranks"] = text
    with pytest.raises(ProfileError):
        DocumentRanks.from_json(data, value.axes)


def test_it_is_small():
    rng = np.random.default_rng(0)
    count = 1_355
    starts = rng.integers(0, 4_000, count)
    evidence = Evidence(
        [f"q{row}" for row in range(count)],
        [f"d{row}" for row in rng.integers(0, 1_000, count)],
        starts,
        starts + 100,
        np.full(count, 4_200),
        rng.integers(100, 2_000, count),
    )
    ranks = rng.choice([1, 1, 1, 2, 3, 5, 9, 40, 0], count)
    value = DocumentRanks.from_ranks(RelativePositions(), evidence, ranks, evidence.estimate_beyond(512))
    assert len(json.dumps(value.to_json(), indent=2)) < 4_000


def test_a_result_of_the_size_of_squad_posq_grows_by_less_than_100_kilobytes():
    """92,749 questions in 20,233 documents of 477 articles, with as varied ranks as a weak model has."""
    rng = np.random.default_rng(0)
    documents = np.sort(rng.integers(0, 20_233, 92_749))
    articles = np.sort(rng.integers(0, 477, 20_233))[documents]
    evidence = Evidence(
        [f"q{row}" for row in range(len(documents))],
        [f"c{document}" for document in documents],
        starts=(rng.random(len(documents)) * rng.integers(300, 1_200, 20_233)[documents]).astype(np.int64),
        clusters=tuple(f"a{article}" for article in articles),
    )
    ranks = np.where(rng.random(len(documents)) < 0.7, 1, rng.integers(0, 30, len(documents)))
    value = DocumentRanks.from_ranks(AbsolutePositions(), evidence, ranks)
    text = json.dumps(value.to_json())
    assert len(text) <= 100_000
    assert DocumentRanks.from_json(json.loads(text), value.axes) == value
    assert len(np.unique(value.columns.clusters)) == 477
    for name in [*evidence.query_ids[:50], *set(evidence.document_ids[:50]), *set(evidence.clusters[:50])]:
        assert f'"{name}"' not in text


def test_a_result_of_a_posir_domain_grows_by_less_than_4_kilobytes():
    """1,355 questions about documents of one to four, in 80 cells."""
    rng = np.random.default_rng(0)
    documents = np.sort(rng.integers(0, 700, 1_355))
    starts = rng.integers(0, 990, 1_355)
    tokens = rng.integers(100, 2_048, 700)[documents]
    evidence = Evidence(
        [f"q{row}" for row in range(1_355)],
        [f"d{document}" for document in documents],
        starts,
        starts + 10,
        np.full(1_355, 1_000),
        tokens,
    )
    ranks = np.where(rng.random(1_355) < 0.6, 1, rng.integers(0, 30, 1_355))
    value = DocumentRanks.from_ranks(RelativePositions(), evidence, ranks, evidence.estimate_beyond(512))
    assert len(json.dumps(value.to_json())) <= 4_000


def test_a_real_result_grows_by_less_than_4_kilobytes():
    data = read_mini()
    ranks, beyond = np.arange(len(data.evidence)) % 12, data.evidence.estimate_beyond(256)
    value = DocumentRanks.from_ranks(RelativePositions(), data.evidence, ranks, beyond)
    assert len(json.dumps(value.to_json())) <= 4_000
