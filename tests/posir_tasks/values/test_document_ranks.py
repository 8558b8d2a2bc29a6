"""Ranks by document: addition, profile, JSON and size."""

import base64
import json
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.base.errors import NewerSchemaError, ProfileError
from posir_tasks.data.mini import read_mini
from posir_tasks.values.columns import pack_column
from posir_tasks.values.document_keys import KEY_NAMES, pack_keys, unpack_keys
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.profile import PositionProfile, pool
from posir_tasks.values.read_part import ReadPart, TokenCountMethod, WindowSource
from posir_tasks.values.result_schema import KEYS_KEY, RANKS_KEY, READ_RANKS_KEY
from posir_tasks.values.schemes import AbsolutePositions, RelativePositions
from posir_tasks.values.scores import ResultValues
from posir_tasks.values.tokens_read import TokensRead

SCHEME = RelativePositions(bins=4, token_bounds=(100,))


def build_evidence(rows, prefix="q", article=None):
    """Build evidence from rows of document, start in tenths, and rank."""
    starts = np.array([start * 10 for _, start, _ in rows], np.int64)
    names, documents = (
        [f"{prefix}{row}" for row in range(len(rows))],
        [document for document, _, _ in rows],
    )
    tokens = np.array([50 if document % 2 else 200 for document in documents])
    clusters = tuple(f"a{document // 3}" for document in documents) if article else ()
    documents = [f"d{document}" for document in documents]
    return Evidence(
        names, documents, starts, starts + 5, np.full(len(rows), 100), tokens, clusters=clusters
    )


READ = ReadPart.first(512, WindowSource.GIVEN)


def estimate_positions(row_list, window):
    """Estimate the positions of evidence in a window of the first tokens."""
    return ReadEvidence.estimate(
        ReadPart.first(window, WindowSource.GIVEN), build_evidence(row_list), ["eng-Latn"]
    )


rows = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9), st.integers(0, 120)), max_size=40)


def build_ranks(row_list, prefix="q", **options):
    return DocumentRanks.from_ranks(
        SCHEME,
        build_evidence(row_list, prefix),
        np.array([rank for *_, rank in row_list], np.int64),
        **options,
    )


@given(rows)
def test_profile_equals_the_directly_counted_profile(row_list):
    ranks = np.array([rank for *_, rank in row_list], np.int64)
    assert build_ranks(row_list).profile == PositionProfile.from_ranks(
        SCHEME, build_evidence(row_list), ranks
    )


def test_the_stored_form_is_stable_so_that_old_results_can_be_paired():
    stored = build_ranks(
        [
            (document, start, rank)
            for document in range(6)
            for start, rank in ((0, 0), (4, 9), (9, 130))
        ]
    ).to_json()
    (part,) = stored[RANKS_KEY]["sets"]
    assert (part["documents"], part["queries"]) == ("916ee6533da91c8e", "c0d81ff1a8057445")
    assert stored[RANKS_KEY]["cells"] == "0:0 0:1 0:3 1:0 1:1 1:3"
    assert list(zlib.decompress(base64.b85decode(part["document_sizes"][1:]))) == [3] * 6
    # A miss, rank 9, and a rank below 100.
    assert sorted(zlib.decompress(base64.b85decode(part["ranks"][1:]))) == [8] * 6 + [11] * 12


@given(rows, rows, rows)
def test_values_add_in_any_order(first, second, third):
    a, b, c = build_ranks(first, "a"), build_ranks(second, "b"), build_ranks(third, "c")
    assert (a + b) + c == c + (b + a)
    assert (a + b).profile == a.profile + b.profile


@given(rows, st.integers(1, 300))
def test_json_round_trip(row_list, window):
    texts = {f"d{document}": f"text {document} " * 150 for document in range(9)}
    value = build_ranks(
        row_list,
        read_evidence=estimate_positions(row_list, window),
        texts=texts if window % 2 else None,
    )
    data = json.loads(json.dumps(value.to_json()))
    assert DocumentRanks.from_json(data, value.axes) == value
    read = ReadPart.first(window, WindowSource.MEASURED)
    values = ResultValues(
        value,
        read,
        TokensRead(np.array([50, 40]), np.array([0, 1060]), TokenCountMethod.TOKENIZER, 7),
    )
    assert (
        ResultValues.from_json(json.loads(json.dumps(values.to_json()))).to_json()
        == values.to_json()
    )
    assert (values + values).tokens_read.not_read.tolist() == [0, 2120]


@given(rows, rows, st.integers(1, 300))
def test_columns_of_a_sum_are_concatenated(first, second, window):
    parts = [
        build_ranks(row_list, prefix, read_evidence=estimate_positions(row_list, window))
        for row_list, prefix in ((first, "a"), (second, "b"))
    ]
    columns, whole = [part.columns for part in parts], (parts[0] + parts[1]).columns
    for name in ("gains", "ranks", "twelfths", "thirds"):
        joined = np.concatenate([getattr(part, name) for part in columns])
        assert sorted(joined.tolist()) == sorted(getattr(whole, name).tolist())
    # Without texts, documents are only linked if the sets contain the same documents.
    assert (
        len(np.unique(whole.clusters))
        <= len(np.unique(whole.documents))
        <= sum(len(set(x.documents)) for x in columns)
    )


@given(rows, st.integers(1, 300))
def test_queries_within_the_window_equal_a_loop(row_list, window):
    tokens = [(50 if document % 2 else 200) for document, _, _ in row_list]
    ends = [
        (start * 10 + 5) / 100 * length > window
        for (_, start, _), length in zip(row_list, tokens, strict=True)
    ]
    value = build_ranks(row_list, read_evidence=estimate_positions(row_list, window))
    read = ResultValues(value, ReadPart.first(window, WindowSource.GIVEN)).read_profile
    assert value.select_within_window().profile.queries == len(row_list) - sum(ends)
    if row_list:
        assert read == value.select_within_window().profile
    assert ResultValues(value).read_profile is None


def test_fields_of_a_newer_version_are_logged(caplog):
    value = build_ranks([(1, 1, 1)])
    data = value.to_json()
    data[READ_RANKS_KEY]["sets"][0]["hundredths"] = "1"
    assert DocumentRanks.from_json(data, value.axes, 1) == value
    assert "hundredths" in caplog.text


def test_unknown_positions_make_the_positions_of_a_sum_unknown():
    known, unknown = (
        build_ranks([(0, 1, 1)], "a", read_evidence=estimate_positions([(0, 1, 1)], 50)),
        build_ranks([(1, 1, 1)], "b"),
    )
    # The evidence consists of tokens 20 to 30; the window has 50 of 200 tokens.
    assert known.columns.twelfths.tolist() == [6]
    assert (known + unknown).columns.twelfths.tolist() == []
    with pytest.raises(ProfileError, match="unknown"):
        (known + unknown).select_within_window()


def test_articles_are_linked_by_text_title_or_opening():
    words = [f"word{number}" for number in range(300)]
    texts = {
        "d0": " ".join(words),
        "d1": "  ".join(words).upper(),
        "d2": " ".join([*words[:200], "another", "end"]),
        "d3": " ".join(words[1:]),
    }

    def build_subset(document, title, subset):
        evidence = replace(build_evidence([(document, 1, 1)], subset), clusters=(title,))
        return DocumentRanks.from_ranks(SCHEME, evidence, np.ones(1, np.int64), None, subset, texts)

    values = [
        build_subset(0, "", "a"),
        build_subset(1, "", "b"),
        build_subset(2, "Bees", "c"),
        build_subset(3, "bees", "d"),
    ]
    columns = pool(values).columns
    by_subset = np.argsort(columns.subsets)
    assert len(np.unique(columns.clusters)) == 1
    documents = columns.documents[by_subset]
    assert (documents[0] == documents[1], len(np.unique(documents))) == (True, 3)
    assert len(np.unique((values[0] + build_subset(3, "", "d")).columns.clusters)) == 2


def test_keys_take_at_most_20_characters_per_document():
    keys = np.random.default_rng(0).integers(1, 2**40, 1_001)
    text = pack_keys(keys)
    assert unpack_keys(text, len(keys)).tolist() == keys.tolist()
    assert 3 * len(text) / len(keys) < 19
    for damaged in (text[:-1], text + "0", "'" + text[1:], "~" * len(text)):
        with pytest.raises(ValueError, match=r"column of keys|base85"):
            unpack_keys(damaged, len(keys))


def test_two_models_list_the_same_queries_in_the_same_order():
    row_list = [(3, 1, 1), (1, 9, 2), (3, 5, 3), (2, 2, 0)]
    shuffled = [row_list[row] for row in (2, 0, 3, 1)]
    ids = ["q2", "q0", "q3", "q1"]
    evidence = build_evidence(shuffled)
    other = Evidence(
        ids,
        evidence.document_ids,
        evidence.starts,
        evidence.ends,
        evidence.characters,
        evidence.tokens,
    )
    first, second = (
        build_ranks(row_list),
        DocumentRanks.from_ranks(SCHEME, other, np.array([row[2] for row in shuffled])),
    )
    assert first == second


def test_results_on_the_same_documents_share_documents():
    first, second = (
        build_ranks([(0, 1, 1), (1, 2, 1)], "german"),
        build_ranks([(0, 7, 5), (1, 8, 5)], "french"),
    )
    columns = (first + second).columns
    assert sorted(columns.documents.tolist()) == [0, 0, 1, 1]
    articles = DocumentRanks.from_ranks(
        SCHEME, build_evidence([(0, 1, 1), (1, 1, 1), (3, 1, 1)], article=True), np.ones(3, int)
    )
    assert sorted(np.bincount(articles.columns.clusters)) == [1, 2]


def test_a_query_on_a_shared_boundary_counts_in_two_bins():
    scheme = AbsolutePositions()
    evidence = Evidence(["q"], ["d"], starts=np.array([100]), ends=np.array([101]))
    value = DocumentRanks.from_ranks(scheme, evidence, np.array([1]))
    assert value.profile == PositionProfile.from_ranks(scheme, evidence, np.array([1]))
    assert value.to_json()[RANKS_KEY]["cells"] == "0:0,1"


NO_LISTS = [{"sets": sets} for sets in (3, {"a": [1]}, "a", ["a"], [None])]


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        *(
            (RANKS_KEY, change, "")
            for change in ({"schema": 2}, {"cells": "9:0"}, {"cells": "x"}, {"sets": [{}]})
        ),
        *(
            (key, change, "'sets' must be a list")
            for key in (RANKS_KEY, READ_RANKS_KEY, KEYS_KEY)
            for change in NO_LISTS
        ),
    ],
)
def test_damaged_json_is_rejected(key, change, message):
    value = build_ranks([(1, 1, 1)])
    data = value.to_json()
    with pytest.raises((ProfileError, NewerSchemaError), match=f"'{key}'.*{message}"):
        DocumentRanks.from_json({**data, key: {**data[key], **change}}, value.axes)


@pytest.mark.parametrize("text", ["z!!", "-1", "zabc", "99999999999", "2", ""])
@pytest.mark.parametrize(
    ("key", "name"), [(RANKS_KEY, "ranks"), (READ_RANKS_KEY, "twelfths"), (KEYS_KEY, "titles")]
)
def test_the_error_for_a_damaged_column_names_its_field(key, name, text):
    value = build_ranks([(1, 1, 1)])
    data = value.to_json()
    data[key]["sets"][0][name] = text
    with pytest.raises(ProfileError, match=f"'{key}'") as refused:
        DocumentRanks.from_json(data, value.axes)
    assert refused.value.field == key


def pack_repeated(number: int, times: int) -> str:
    """Pack a column of equal numbers, in a fraction of the time of `pack_column`."""
    once = zlib.decompress(base64.b85decode(pack_column(np.array([number]))[1:]))
    return "z" + base64.b85encode(zlib.compress(once * times, 9)).decode()


@pytest.mark.parametrize(
    "packed",
    [str(2**22), str(2**25), pack_repeated(5, 2**22), pack_repeated(2**30, 2**16)],
)
@pytest.mark.parametrize(
    "name",
    [
        "document_sizes",
        "cells",
        "ranks",
        "twelfths",
        "thirds",
        "texts",
        "titles",
        "openings",
    ],
)
def test_columns_take_no_more_memory_than_their_queries_need(packed, name):
    value = build_ranks([(1, 1, 1), (2, 2, 2)])
    data = value.to_json()
    for key in (RANKS_KEY, READ_RANKS_KEY, KEYS_KEY):
        first = data[key]["sets"][0]
        changed = (
            {**first, name: packed}
            if name in first or (key == KEYS_KEY and name in KEY_NAMES)
            else first
        )
        data[key]["sets"] = [first, *([changed] * 40)]
    tracemalloc.start()
    try:
        with pytest.raises(ProfileError):
            DocumentRanks.from_json(data, value.axes, 82)
        assert tracemalloc.get_traced_memory()[1] < 2**19
    finally:
        tracemalloc.stop()


def test_sets_together_have_no_more_queries_than_the_profile():
    value = build_ranks([(1, 1, 1), (2, 2, 2)])
    data = value.to_json()
    assert DocumentRanks.from_json(data, value.axes, 2) == value
    for key in (RANKS_KEY, READ_RANKS_KEY, KEYS_KEY):
        data[key]["sets"] *= 2
    with pytest.raises(ProfileError):
        DocumentRanks.from_json(data, value.axes, 3)


def test_a_large_result_grows_by_less_than_100_kilobytes():
    """92,749 questions in 20,233 documents of 477 articles, with ranks of a weak model."""
    rng = np.random.default_rng(0)
    documents = np.sort(rng.integers(0, 20_233, 92_749))
    articles = np.sort(rng.integers(0, 477, 20_233))[documents]
    evidence = Evidence(
        [f"q{row}" for row in range(len(documents))],
        [f"c{document}" for document in documents],
        starts=(rng.random(len(documents)) * rng.integers(300, 1_200, 20_233)[documents]).astype(
            np.int64
        ),
        clusters=tuple(f"a{article}" for article in articles),
    )
    ranks = np.where(rng.random(len(documents)) < 0.7, 1, rng.integers(0, 30, len(documents)))
    value = DocumentRanks.from_ranks(AbsolutePositions(), evidence, ranks)
    text = json.dumps(value.to_json())
    keys = len(json.dumps(value.to_json()[KEYS_KEY]))
    assert (len(text) - keys <= 100_000, keys <= 7 * 20_233) == (True, True)
    assert DocumentRanks.from_json(json.loads(text), value.axes) == value
    assert len(np.unique(value.columns.clusters)) == 477
    for name in [
        *evidence.query_ids[:50],
        *set(evidence.document_ids[:50]),
        *set(evidence.clusters[:50]),
    ]:
        assert f'"{name}"' not in text


def test_a_real_result_grows_by_less_than_4_kilobytes():
    data = read_mini()
    ranks, estimate = (
        np.arange(len(data.evidence)) % 12,
        ReadEvidence.estimate(READ, data.evidence, ["eng-Latn"]),
    )
    value = DocumentRanks.from_ranks(RelativePositions(), data.evidence, ranks, estimate)
    assert len(json.dumps(value.to_json())) <= 4_000
