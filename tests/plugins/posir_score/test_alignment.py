"""Tests for the alignment of runs with the data."""

from itertools import pairwise, permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from posir_score.alignment import (
    AlignmentRules,
    Rankings,
    RunCounts,
    SubsetQueries,
    align_run,
    has_decisive_tie,
    merge_chunks,
)
from posir_score.hits import Hit
from posir_score.ranking_builder import ANY_SUBSET, HitsByQuery, Run
from posir_tasks.base.errors import PosirError
from posir_tasks.data.data import Judgments

NAMES = st.text("ab#", min_size=1, max_size=4)


def build_subset(name: str = "all", **grades: dict[str, int]) -> SubsetQueries:
    return SubsetQueries(
        name,
        Judgments(dict.fromkeys(grades, "text"), grades),
        frozenset({"d1", "d2", "d#3"}),
        len(grades),
    )


def build_hits(rankings: Rankings) -> HitsByQuery:
    return {query: [Hit(*item) for item in scores.items()] for query, scores in rankings.items()}


def build_run(rankings: Rankings, duplicates: int = 0) -> Run:
    return Run("r", {ANY_SUBSET: build_hits(rankings)}, duplicates)


DATA = [build_subset(q1={"d1": 1}, q2={"d2": 1})]
MISSING_AS_ZERO = AlignmentRules(requires_all=False)


@given(corpus=st.frozensets(NAMES, min_size=1), number=st.integers(0, 99), data=st.data())
def test_chunk_ids_resolve_to_their_documents(
    corpus: frozenset[str], number: int, data: st.DataObject
):
    rules = AlignmentRules()
    document = data.draw(st.sampled_from(sorted(corpus)))
    assert rules.resolve(document, corpus) == document
    assume(f"{document}#{number}" not in corpus)
    assert rules.resolve(f"{document}#{number}", corpus) == document


@given(
    scores=st.dictionaries(
        st.sampled_from(["d1", "d1#0", "d1#1", "d2#0", "x"]), st.floats(-9, 9), min_size=1
    )
)
def test_documents_get_the_score_of_their_best_chunk(scores: dict[str, float]):
    (hits,) = build_hits({"q": scores}).values()
    assert merge_chunks(AlignmentRules().resolve_hits(hits, {"d1", "d2"})) == {
        name: max(score for chunk, score in scores.items() if chunk.partition("#")[0] == name)
        for name in {chunk.partition("#")[0] for chunk in scores}
    }


def test_a_function_can_map_chunks_to_documents():
    rules = AlignmentRules(find_document=lambda name: f"d{name[0]}")
    assert rules.resolve_hits([Hit("1-a", 1.0, text="A"), Hit("1-b", 3.0)], {"d1"}) == [
        Hit("d1", 1.0, text="A", chunk="1-a"),
        Hit("d1", 3.0, chunk="1-b"),
    ]
    assert AlignmentRules(separator="").resolve("d1#0", {"d1"}) == "d1#0"


def test_mismatches_are_counted():
    run = build_run({"q1": {"d1#0": 2.0, "d1#1": 3.0, "x": 1.0}, "q9": {"d1": 1.0}}, duplicates=4)
    aligned = align_run(run, DATA, MISSING_AS_ZERO)
    assert aligned.rankings == {"all": {"q1": {"d1": 3.0, "x": 1.0}}}
    assert aligned.hits == {
        "all": {
            "q1": [
                Hit("d1", 2.0, chunk="d1#0"),
                Hit("d1", 3.0, chunk="d1#1"),
                Hit("x", 1.0),
            ]
        }
    }
    assert aligned.total == RunCounts(
        queries=2,
        with_position=2,
        missing=1,
        unknown_queries=1,
        unknown_documents=1,
        first_unknown="x of query q1",
        short=1,
        depth=3,
        chunks=2,
        duplicates=4,
    )
    assert len(list(aligned.total.describe())) == 6
    counts = align_run(build_run({"q1": {}, "q2": {"d2": 1.0}}), DATA, AlignmentRules()).total
    assert (counts.empty, counts.short) == (1, 1)
    assert "1 query returned nothing" in next(counts.describe())


@pytest.mark.parametrize(
    ("rankings", "rules", "message"),
    [
        ({"7": {"d1": 1.0}}, MISSING_AS_ZERO, "the run has 7, the data has q1, q2"),
        (
            {"q1": {"x#0": 1.0}, "q2": {"y": 1.0}},
            MISSING_AS_ZERO,
            "has x#0, y, .*--chunk-separator",
        ),
        ({"q1": {}, "q2": {}}, MISSING_AS_ZERO, "r: 2 queries returned nothing"),
        (
            {"q1": {"d1": 1.0}},
            AlignmentRules(),
            "1 judged query is not in the run, first q2.*--missing zero",
        ),
    ],
)
def test_runs_on_other_data_raise(rankings: Rankings, rules: AlignmentRules, message: str):
    with pytest.raises(PosirError, match=message):
        align_run(build_run(rankings), DATA, rules)


def test_queries_are_assigned_to_subsets_and_raise_if_ambiguous():
    subsets = [build_subset("a", q1={"d1": 1}), build_subset("b", q2={"d2": 1})]
    run = build_run({"q1": {"d1": 1.0}, "q2": {"d2": 1.0}})
    assert align_run(run, subsets, AlignmentRules()).rankings == {
        "a": {"q1": {"d1": 1.0}},
        "b": {"q2": {"d2": 1.0}},
    }
    ambiguous_subsets = [*subsets[:1], build_subset("b", q1={"d1": 1})]
    with pytest.raises(PosirError, match="query q1 is in several subsets of the data, a, b"):
        align_run(run, ambiguous_subsets, AlignmentRules())
    by_subset = {"b": {"q1": {"d2": 1.0}}, "a": {"q1": {"d1": 1.0}}, "c": {"q1": {}}}
    hits = {name: build_hits(rankings) for name, rankings in by_subset.items()}  # type: ignore[arg-type]
    aligned = align_run(Run("r", hits), ambiguous_subsets, AlignmentRules())
    assert aligned.rankings == {"a": {"q1": {"d1": 1.0}}, "b": {"q1": {"d2": 1.0}}}
    assert aligned.total.unknown_queries == 1


def test_query_texts_are_accepted_as_query_ids():
    judgments = Judgments(
        {"q1": "Who?", "q2": "Who?", "q3": "When?"},
        {query: {"d1": 1} for query in ("q1", "q2", "q3")},
    )
    subset = SubsetQueries("all", judgments, frozenset({"d1"}), 3)
    counts = align_run(
        build_run({"Who?": {"d1": 2.0, "Who?": 1.0}, "When?": {"d1": 1.0}}),
        [subset],
        AlignmentRules(),
    ).total
    assert (counts.missing, counts.unknown_queries, counts.unknown_documents, counts.own_texts) == (
        0,
        0,
        2,
        2,
    )
    assert counts.first_unknown == "Who? of query q1"


def test_sentences_agree_in_number():
    counts = RunCounts(2, 2, 1, 1, 1, short=1, depth=100, chunks=1, duplicates=1)
    singular, plural = (" ".join(several.describe()) for several in (counts, counts + counts))
    for phrase in (
        "1 judged query is",
        "1 query of the run is",
        "1 document is",
        "1 query has",
        "1 chunk was",
        "1 row repeats",
    ):
        assert phrase in singular
    assert "2 queries have fewer than 100 documents" in plural


@given(
    scores=st.lists(st.sampled_from([0.0, 1.0, 2.0]), max_size=5),
    grades=st.lists(st.integers(0, 2), max_size=5),
)
def test_ties_are_decisive_if_their_order_changes_the_grades(
    scores: list[float], grades: list[int]
):
    names = [f"d{row}" for row in range(min(len(scores), len(grades)))]
    run = dict(zip(names, scores, strict=False))
    judged = dict(zip(names, grades, strict=False))
    grade_orders = {
        tuple(judged[name] for name in order)
        for order in permutations(names)
        if all(run[a] >= run[b] for a, b in pairwise(order))
    }
    assert has_decisive_tie(run, judged) == (len(grade_orders) > 1)


def test_queries_with_decisive_ties_are_counted():
    judged = [build_subset(q1={"d1": 1}, q2={"d2": 1}, q3={"d1": 1, "d2": 1})]
    rankings = {
        "q1": {"d1": 1.0, "d2": 1.0},
        "q2": {"d1": 1.0, "d2": 2.0},
        "q3": {"d1": 1.0, "d2": 1.0},
    }
    counts = align_run(build_run(rankings), judged, AlignmentRules()).total
    assert counts.tied == 1
    assert any("--order rank" in sentence for sentence in counts.describe())
    assert not align_run(
        build_run({query: {"d1": 2.0, "d2": 1.0} for query in rankings}), judged, AlignmentRules()
    ).total.tied
