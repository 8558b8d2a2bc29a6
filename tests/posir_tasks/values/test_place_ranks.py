"""Several places of evidence: ranks, weights, addition and JSON."""

import json
import math
from collections import defaultdict

import mteb
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from mteb.cache import ResultCache

import posir
from posir_report.tables import describe_spans
from posir_tasks.base.errors import PosirError, ProfileError
from posir_tasks.results import read_results
from posir_tasks.tasks.base import PositionTask
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence, ReadEvidence
from posir_tasks.values.place_ranks import (
    average_places,
    compute_third_shares,
    count_queries,
    parse_places,
    rank_places,
    serialize_places,
)
from posir_tasks.values.profile import NDCG_AT_10
from posir_tasks.values.read_part import ReadPart, WindowSource
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ResultValues
from tests.support.datasets import write_beir_folder

SCHEME = RelativePositions(bins=4, token_bounds=(100,))
READ = ReadPart.first(60, WindowSource.GIVEN)
#: Places of each query: document and tenth of the document.
queries = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=2, max_size=14, unique=True),
    max_size=8,
)


def compute_rank(query: int, document: int) -> int:
    return (7 * query + 3 * document) % 14


def build(queries_with_places, prefix="q", read=None):
    """Build ranks of places, and rows of query, document, tenth and rank."""
    rows = [
        (query, document, tenth, compute_rank(query, document))
        for query, row in enumerate(queries_with_places)
        for document, tenth in row
    ]
    starts = np.array([10 * tenth for _, _, tenth, _ in rows], np.int64)
    documents = [f"d{document}" for _, document, _, _ in rows]
    tokens = np.array([50 if document % 2 else 200 for _, document, _, _ in rows], np.int64)
    ids = [f"{prefix}{row}" for row in range(len(rows))]
    evidence = Evidence(
        ids, documents, starts, starts + 5, np.full(len(rows), 100, np.int64), tokens
    )
    placed = ReadEvidence.estimate(read, evidence, ["eng-Latn"]) if read else None
    ranks = np.array([rank for *_, rank in rows], np.int64)
    return rank_places(SCHEME, evidence, [f"{prefix}{row[0]}" for row in rows], ranks, placed), rows


@given(queries)
def test_each_place_has_the_rank_of_its_document_and_weight_1_n(queries_with_places):
    places, _ = build(queries_with_places)
    kept = {query: row for query, row in enumerate(queries_with_places) if len(row) <= 12}
    assert (count_queries(places), places.left_out) == (
        len(kept),
        len(queries_with_places) - len(kept),
    )
    shares, gains = defaultdict(float), []
    for query, row in kept.items():
        gains.append(0.0)
        for document, tenth in row:
            shares[int(3 * (10 * tenth + 2.5) / 100)] += 1 / len(row) / len(kept)
            rank = compute_rank(query, document)
            gains[-1] += (1 / math.log2(1 + rank) if 1 <= rank <= 10 else 0.0) / len(row)
    if kept:
        assert compute_third_shares(places) == pytest.approx([shares[third] for third in range(3)])
        assert average_places(places) == pytest.approx(np.mean(gains))
        # The profile counts weights in units of 1 / 27,720.
        assert places.profile.counts.sum() == 27_720 * len(kept)
        assert places.profile.score(NDCG_AT_10) == pytest.approx(np.mean(gains))


@given(queries, queries, queries)
def test_two_sets_add_in_any_order_and_are_stored_exactly(first, second, third):
    a, b, c = (
        build(queries_with_places, prefix, READ)[0]
        for queries_with_places, prefix in ((first, "a"), (second, "b"), (third, "c"))
    )
    assert (a + b) + c == c + (b + a)
    total = a + b
    assert (count_queries(total), total.left_out) == (
        count_queries(a) + count_queries(b),
        a.left_out + b.left_out,
    )
    assert total.profile == a.profile + b.profile
    single = DocumentRanks(SCHEME.axes, (), ())
    values = ResultValues(single, READ, places=total)
    stored = json.loads(json.dumps(values.to_json()))
    assert ResultValues.from_json(stored).places == total
    assert (
        (ResultValues(single, READ) + values).places
        == (values + ResultValues(single, READ)).places
        == total
    )
    # Without places, the field is omitted.
    assert stored.keys() - ResultValues(single, READ).to_json().keys() == {"places"}


def test_places_of_one_query_are_one_cluster():
    places, _ = build([[(0, 1), (1, 2)], [(1, 5), (2, 7)], [(4, 3), (4, 8)]])
    columns = places.columns
    by_document = defaultdict(set)
    for document, cluster in zip(
        columns.documents.tolist(), columns.clusters.tolist(), strict=True
    ):
        by_document[document].add(cluster)
    assert sorted(map(len, by_document.values())) == [1, 1, 1, 1]
    assert sorted(np.bincount(columns.clusters).tolist()) == [2, 4]


def test_using_only_the_first_span_is_biased_to_the_start():
    """Spans are uniform, so the first of several is early, as in FiRA (61.1 instead of 36.1%)."""
    rng = np.random.default_rng(7)
    queries_with_places = [
        [
            (document, tenth)
            for tenth in sorted(rng.choice(10, rng.integers(2, 5), replace=False).tolist())
        ]
        for document in range(400)
    ]
    places, _ = build(queries_with_places)
    first = np.bincount(
        [int(3 * (10 * row[0][1] + 2.5) / 100) for row in queries_with_places], minlength=3
    ) / len(queries_with_places)
    assert first[0] > 0.55
    assert first[2] < 0.15
    # Each third contains three or four of the ten tenths.
    share = (
        np.bincount([int(3 * (10 * tenth + 2.5) / 100) for tenth in range(10)], minlength=3) / 10
    )
    assert compute_third_shares(places) == pytest.approx(share, abs=0.03)


def damage(change):
    stored = build([[(0, 1), (1, 2)], [(1, 5), (2, 7)]])[0]
    stored = serialize_places(stored)
    change(stored)
    return parse_places(stored, SCHEME.axes)


@pytest.mark.parametrize("number", ["4", "zc-jqeK"])
def test_inconsistent_weights_are_rejected(number):
    with pytest.raises(ProfileError, match=r"places|weights|column"):
        damage(lambda stored: stored["weights"]["sets"][0].update(weights=number))


@pytest.mark.parametrize("left_out", [-1, None, 2**60])
def test_an_invalid_number_of_queries_is_rejected(left_out):
    with pytest.raises(PosirError, match="places"):
        damage(lambda stored: stored.update(left_out=left_out))


def test_scores_use_grades_of_documents_and_ranks_of_places(tmp_path):
    """Compare BM25 on both search paths with pytrec_eval and a loop over places."""
    words = ["mill", "weir", "crane", "heron", "bell", "tower"]
    texts = {
        f"d{row}": " ".join(words[(row + step) % 6] for step in range(1 + row % 4)) + " stood"
        for row in range(12)
    }
    spans = {name: [(0, 4), (text.rindex("stood"), len(text))] for name, text in texts.items()}
    queries_with_places = {
        "one": {"d3": (1, 1)},
        "two": {"d0": (2, 1), "d6": (1, 1)},
        "four": {"d1": (1, 2), "d7": (3, 2)},
    }
    qrels = [
        (query, document, grade, *spans[document][place])
        for query, relevant in queries_with_places.items()
        for document, (grade, places) in relevant.items()
        for place in range(places)
    ]
    corpus = [{"_id": name, "text": text} for name, text in texts.items()]
    queries = [
        {"_id": query, "text": text}
        for query, text in zip(queries_with_places, ["heron", "mill", "weir bell"], strict=True)
    ]
    folder = write_beir_folder(tmp_path / "beir", corpus, queries, qrels, ("start", "end"))
    posir.import_data(folder, language="eng-Latn", domain="mills", output=tmp_path / "data")
    entries = []
    for number, predictions in enumerate((None, tmp_path / "run")):
        task, model = (
            PositionTask.from_folder(tmp_path / "data", name="Mills", language="eng-Latn"),
            "mteb/baseline-bm25s",
        )
        cache = ResultCache(tmp_path / f"results{number}")
        mteb.evaluate(
            mteb.get_model(model),
            task,
            cache=cache,
            prediction_folder=predictions,
            show_progress_bar=False,
        )
        (result,) = read_results(tmp_path / f"results{number}")
        entries.append(json.loads(result.file.read_text())["scores"]["test"][0])
    assert {**entries[0], "position_run": None} == {**entries[1], "position_run": None}
    run = next(
        iter(
            json.loads((tmp_path / "run" / "Mills_predictions.json").read_text())
            .popitem()[1]
            .values()
        )
    )
    grades = {
        query: {name: grade for name, (grade, _) in relevant.items()}
        for query, relevant in queries_with_places.items()
    }
    judged = pytrec_eval.RelevanceEvaluator(grades, {"ndcg_cut.10", "map_cut.10"}).evaluate(run)
    for name, key in (("ndcg_cut_10", "ndcg_at_10"), ("map_cut_10", "map_at_10")):
        assert entries[0][key] == pytest.approx(
            np.mean([row[name] for row in judged.values()]), abs=1e-6
        )
    assert entries[0]["main_score"] == entries[0]["ndcg_at_10"]
    gains = []
    for query in ("two", "four"):
        order = [
            name
            for _, name in sorted(
                ((np.float32(score), name) for name, score in run[query].items()), reverse=True
            )
        ]
        places = [
            name for name, (_, number) in queries_with_places[query].items() for _ in range(number)
        ]
        gains.append(
            np.mean(
                [
                    1 / math.log2(2 + order.index(name)) if name in order[:10] else 0
                    for name in places
                ]
            )
        )
    stored = result.values.places
    assert stored is not None
    assert (count_queries(stored), average_places(stored), result.profile.queries) == (
        2,
        pytest.approx(np.mean(gains)),
        1,
    )
    assert "position_profile" in entries[0]
    assert describe_spans(posir.read_results(tmp_path / "results0").summaries[0])["places"] == 6
