"""How a run and the data fit together."""

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
from posir_score.run_files import ANY_SUBSET, HitsByQuery, Run
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


def as_hits(rankings: Rankings) -> HitsByQuery:
    return {query: [Hit(*item) for item in scores.items()] for query, scores in rankings.items()}


def unify(rankings: Rankings, duplicates: int = 0) -> Run:
    return Run("r", {ANY_SUBSET: as_hits(rankings)}, duplicates)


DATA = [build_subset(q1={"d1": 1}, q2={"d2": 1})]
LENIENT = AlignmentRules(requires_all_queries=False)


@given(corpus=st.frozensets(NAMES, min_size=1), number=st.integers(0, 99), data=st.data())
def test_a_chunk_is_of_its_document_and_a_document_of_itself(
    corpus: frozenset[str], number: int, data: st.DataObject
):
    ids, document = AlignmentRules(), data.draw(st.sampled_from(sorted(corpus)))
    assert ids.resolve(document, corpus) == document
    assume(f"{document}#{number}" not in corpus)
    assert ids.resolve(f"{document}#{number}", corpus) == document


@given(
    scores=st.dictionaries(
        st.sampled_from(["d1", "d1#0", "d1#1", "d2#0", "x"]), st.floats(-9, 9), min_size=1
    )
)
def test_a_document_scores_what_its_best_chunk_scores(scores: dict[str, float]):
    (hits,) = as_hits({"q": scores}).values()
    assert merge_chunks(AlignmentRules().resolve_hits(hits, {"d1", "d2"})) == {
        name: max(score for chunk, score in scores.items() if chunk.partition("#")[0] == name)
        for name in {chunk.partition("#")[0] for chunk in scores}
    }


def test_a_function_may_map_chunks_to_documents():
    rules = AlignmentRules(find_document=lambda name: f"d{name[0]}")
    assert rules.resolve_hits([Hit("1-a", 1.0, text="A"), Hit("1-b", 3.0)], {"d1"}) == [
        Hit("d1", 1.0, text="A", chunk="1-a"),
        Hit("d1", 3.0, chunk="1-b"),
    ]
    assert AlignmentRules(separator="").resolve("d1#0", {"d1"}) == "d1#0"


def test_everything_that_does_not_fit_is_counted():
    run = unify({"q1": {"d1#0": 2.0, "d1#1": 3.0, "x": 1.0}, "q9": {"d1": 1.0}}, duplicates=4)
    aligned = align_run(run, DATA, LENIENT)
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
    counts = align_run(unify({"q1": {}, "q2": {"d2": 1.0}}), DATA, AlignmentRules()).total
    assert (counts.empty, counts.short) == (1, 1)
    assert "1 query returned nothing" in next(counts.describe())


@pytest.mark.parametrize(
    ("rankings", "rules", "message"),
    [
        ({"7": {"d1": 1.0}}, LENIENT, "the run has 7, the data has q1, q2"),
        ({"q1": {"x#0": 1.0}, "q2": {"y": 1.0}}, LENIENT, "has x#0, y, .*--chunk-separator"),
        ({"q1": {}, "q2": {}}, LENIENT, "r: 2 queries returned nothing"),
        (
            {"q1": {"d1": 1.0}},
            AlignmentRules(),
            "1 judged query is not in the run, first q2.*--missing zero",
        ),
    ],
)
def test_a_run_on_other_data_is_refused(rankings: Rankings, rules: AlignmentRules, message: str):
    with pytest.raises(PosirError, match=message):
        align_run(unify(rankings), DATA, rules)


def test_queries_find_their_subset_or_are_refused_as_ambiguous():
    subsets = [build_subset("a", q1={"d1": 1}), build_subset("b", q2={"d2": 1})]
    run = unify({"q1": {"d1": 1.0}, "q2": {"d2": 1.0}})
    assert align_run(run, subsets, AlignmentRules()).rankings == {
        "a": {"q1": {"d1": 1.0}},
        "b": {"q2": {"d2": 1.0}},
    }
    same = [*subsets[:1], build_subset("b", q1={"d1": 1})]
    with pytest.raises(PosirError, match="query q1 is in several subsets of the data, a, b"):
        align_run(run, same, AlignmentRules())
    by_subset = {"b": {"q1": {"d2": 1.0}}, "a": {"q1": {"d1": 1.0}}, "c": {"q1": {}}}
    stated = Run("r", {name: as_hits(rankings) for name, rankings in by_subset.items()})  # type: ignore[arg-type]
    aligned = align_run(stated, same, AlignmentRules())
    assert aligned.rankings == {"a": {"q1": {"d1": 1.0}}, "b": {"q1": {"d2": 1.0}}}
    assert aligned.total.unknown_queries == 1


def test_queries_may_be_named_by_their_texts():
    judgments = Judgments(
        {"q1": "Who?", "q2": "Who?", "q3": "When?"},
        {query: {"d1": 1} for query in ("q1", "q2", "q3")},
    )
    subset = SubsetQueries("all", judgments, frozenset({"d1"}), 3)
    counts = align_run(
        unify({"Who?": {"d1": 2.0, "Who?": 1.0}, "When?": {"d1": 1.0}}), [subset], AlignmentRules()
    ).total
    assert (counts.missing, counts.unknown_queries, counts.unknown_documents, counts.own_texts) == (
        0,
        0,
        2,
        2,
    )
    assert counts.first_unknown == "Who? of query q1"


def test_a_sentence_agrees_with_its_number():
    counts = RunCounts(2, 2, 1, 1, 1, short=1, depth=100, chunks=1, duplicates=1)
    singular, plural = (" ".join(several.describe()) for several in (counts, counts + counts))
    for said in (
        "1 judged query is",
        "1 query of the run is",
        "1 document is",
        "1 query has",
        "1 chunk was",
        "1 row repeats",
    ):
        assert said in singular
    assert "2 queries have fewer than 100 documents" in plural


@given(
    scores=st.lists(st.sampled_from([0.0, 1.0, 2.0]), max_size=5),
    grades=st.lists(st.integers(0, 2), max_size=5),
)
def test_a_tie_is_decisive_if_its_order_changes_the_grades(scores: list[float], grades: list[int]):
    names = [f"d{row}" for row in range(min(len(scores), len(grades)))]
    run, judged = dict(zip(names, scores, strict=False)), dict(zip(names, grades, strict=False))
    orders = {
        tuple(judged[name] for name in order)
        for order in permutations(names)
        if all(run[a] >= run[b] for a, b in pairwise(order))
    }
    assert has_decisive_tie(run, judged) == (len(orders) > 1)


def test_queries_whose_ties_decide_are_counted():
    judged = [build_subset(q1={"d1": 1}, q2={"d2": 1}, q3={"d1": 1, "d2": 1})]
    rankings = {
        "q1": {"d1": 1.0, "d2": 1.0},
        "q2": {"d1": 1.0, "d2": 2.0},
        "q3": {"d1": 1.0, "d2": 1.0},
    }
    counts = align_run(unify(rankings), judged, AlignmentRules()).total
    assert counts.tied == 1
    assert any("--order rank" in sentence for sentence in counts.describe())
    assert not align_run(
        unify({query: {"d1": 2.0, "d2": 1.0} for query in rankings}), judged, AlignmentRules()
    ).total.tied
