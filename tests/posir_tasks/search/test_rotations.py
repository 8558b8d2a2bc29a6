"""Versions are ranked as if they replaced their document in the corpus."""

import json
from dataclasses import replace

import mteb
import numpy as np
import pytest
from datasets import Dataset
from mteb.models import ModelMeta
from mteb.timing import TimingStack

from posir_tasks.base.errors import PosirError, ProfileError, ScoreError
from posir_tasks.data.mini import read_mini
from posir_tasks.models.dispatch import (
    HybridSearch,
    SearchRequest,
    search_and_rank,
    search_with_mteb,
)
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.references import BM25_BASELINE
from posir_tasks.search.rotations import RotationTest
from posir_tasks.search.scoring import select_documents, select_texts
from posir_tasks.search.version_ranks import VersionRanker
from posir_tasks.tasks.posir import PosIRMini
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import ReadEvidence
from posir_tasks.values.profile import NDCG_AT_10
from posir_tasks.values.ranks import rank_results
from posir_tasks.values.read_part import ReadPart, WindowSource
from posir_tasks.values.rotation_ranks import (
    ROTATED_VARIABLE,
    RotationRanks,
    UntestedReason,
    Window,
    read_sample_size,
)
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ResultValues
from tests.support.encode import TASK
from tests.support.rotations import WordVectors


class StartVectors(WordVectors):
    """A bag of words that gives early words a higher weight."""

    def embed(self, text):
        words = text.lower().replace(".", " ").replace(",", " ").split()
        weights = (
            1 / (1 + np.arange(len(words)) / max(len(words), 1) * 4)
            if len(words) > 40
            else np.ones(len(words))
        )
        rows = [
            sum(ord(letter) * 31**index for index, letter in enumerate(word)) % 512
            for word in words
        ]
        return np.bincount(rows, weights, minlength=512).astype(np.float32)


class NanForRotated(WordVectors):
    """A bag of words with NaN vectors for rotated texts."""

    def __init__(self) -> None:
        super().__init__()
        data = read_mini()
        self.original_texts = {*data.corpus["text"], *data.queries["text"]}

    def embed(self, text):
        return (
            super().embed(text) if text in self.original_texts else np.full(512, np.nan, np.float32)
        )


def build_request(data):
    return SearchRequest(
        data.corpus,
        data.queries,
        data.evidence.map_positives(),
        None,
        100,
        EncodingContext(**TASK),
        TimingStack(),
    )


def rotate(model, sample_size=400, subsets=1, data=None):
    data = data or read_mini()
    request = build_request(data)
    results, ranked = search_and_rank(model, request)
    documents = select_documents(data.corpus, data.evidence.document_ids)
    read = model.read_part if hasattr(model, "read_part") else ReadPart.all(WindowSource.CLASS)

    def find_read_evidence(queries, evidence, rows):  # noqa: ARG001
        return ReadEvidence.estimate(read, evidence.add_lengths(select_texts(rows)), ["eng-Latn"])

    read_evidence = find_read_evidence(data.queries, data.evidence, documents)
    scheme = RelativePositions()
    ranks = DocumentRanks.from_ranks(
        scheme, data.evidence, ranked.ranks, read_evidence, "default", select_texts(documents)
    )
    original_ranks = dict(zip(request.positives, ranked.ranks.tolist(), strict=True))
    test = RotationTest(model, request, results, original_ranks, sample_size, subsets)
    rotations = test.rank(scheme, data.evidence, documents, ranks, find_read_evidence, read)
    return data, test, ranks, rotations


@pytest.fixture(scope="module")
def rotated():
    return rotate(WordVectors())


def test_a_bag_of_words_ranks_all_versions_equally(rotated):
    _, _, ranks, rotations = rotated
    rows = rotations.select_rows(ranks, window=False)
    gains = NDCG_AT_10[rows.ranks]
    by_question = {
        question: set(gains[rows.query == question].tolist())
        for question in np.unique(rows.query).tolist()
    }
    assert all(len(values) == 1 for values in by_question.values())
    assert (rotations.window, len(rows.query)) == (Window.WHOLE, 3 * len(ranks.columns.ranks))


def test_the_original_document_keeps_its_rank(rotated):
    _, _, ranks, rotations = rotated
    rows = rotations.select_rows(ranks, window=False)
    unmoved = rows.version == 0
    assert np.array_equal(rows.ranks[unmoved], ranks.columns.ranks[rows.query[unmoved]])


def test_each_third_contains_the_evidence_of_each_question_once(rotated):
    _, _, ranks, rotations = rotated
    rows = rotations.select_rows(ranks, window=False)
    thirds = np.bincount(rows.twelfths // 4, minlength=3) / len(rows.query)
    assert thirds == pytest.approx([1 / 3] * 3, abs=0.02)


def test_a_version_is_ranked_as_in_a_corpus_that_contains_it():
    data, test, _, _ = rotate(StartVectors(), sample_size=2)
    positives = data.evidence.map_positives()
    questions = list(positives)[:40:5]
    texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    rows, pairs = [], {}
    for question in questions:
        owner = positives[question]
        half = len(texts[owner]) // 2
        pairs[question] = [f"{owner}\0w1"]
        rows.append(
            {
                "id": f"{owner}\0w1",
                "title": "",
                "text": texts[owner][half:] + " " + texts[owner][:half],
            }
        )
    unique = {row["id"]: row for row in rows}
    ranker = VersionRanker(
        test.request, test.results, Dataset.from_list(list(unique.values())), pairs,
        {q: positives[q] for q in questions},
        select_documents(data.corpus, positives.values()),
    )  # fmt: skip
    ranks = ranker.rank(test.model)
    for question in questions:
        moved = {**texts, positives[question]: unique[f"{positives[question]}\0w1"]["text"]}
        corpus = Dataset.from_dict({"id": list(moved), "text": list(moved.values())})
        row = data.queries["id"][:].index(question)
        request = SearchRequest(
            corpus,
            data.queries.select([row]),
            {question: positives[question]},
            None,
            100,
            test.request.context,
            TimingStack(),
        )
        rank = rank_results(search_with_mteb(test.model, request), request.positives).ranks[0]
        assert ranks[question, f"{positives[question]}\0w1"] == rank


def test_a_model_that_weights_early_words_favors_the_start():
    _, _, ranks, rotations = rotate(StartVectors())
    rows = rotations.select_rows(ranks, window=True)
    means = [NDCG_AT_10[rows.ranks[rows.twelfths // 4 == third]].mean() for third in range(3)]
    assert means[0] > means[1] > means[2]


def test_nan_scores_of_rotated_versions_are_rejected():
    with pytest.raises(ScoreError, match="for 480 of 480 rotated versions"):
        rotate(NanForRotated(), sample_size=6)


def test_excerpts_for_a_truncating_model_are_read_completely():
    _, _, ranks, rotations = rotate(WordVectors(window=150))
    (part,) = rotations.sets
    whole = rotations.select_rows(ranks, window=False)
    within = rotations.select_rows(ranks, window=True)
    assert (part.window, part.room) == (Window.EXCERPT, 120)
    assert 0 < len(np.unique(within.query)) < len(np.unique(whole.query))
    assert whole.unread.any()
    # Rotating an excerpt does not change its bag of words.
    gains = NDCG_AT_10[within.ranks]
    spread = [
        np.ptp(gains[within.query == question]) for question in np.unique(within.query).tolist()
    ]
    assert np.mean(np.array(spread) > 1e-9) < 0.1


@pytest.mark.parametrize("times", [1, 2])
def test_a_document_and_its_versions_have_the_same_window(times):
    data = read_mini()
    # The data's token counts may differ from the estimate.
    counted = replace(data, evidence=replace(data.evidence, tokens=times * data.evidence.tokens))
    _, _, ranks, rotations = rotate(WordVectors(window=150), sample_size=5, data=counted)
    assert rotations.select_rows(ranks, window=False).unread.any()
    assert RotationRanks.from_json(rotations.to_json(), ranks) == rotations


def test_bm25_is_order_blind_when_rotated_texts_are_reindexed():
    model = mteb.get_model(BM25_BASELINE)
    data, test, _, rotations = rotate(model)
    assert rotations.untested is UntestedReason.ORDER_BLIND
    texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    borders = {name: text.rfind(". ", 0, len(text) // 2) + 2 for name, text in texts.items()}
    moved = {
        name: text[borders[name] :] + " " + text[: borders[name]] for name, text in texts.items()
    }
    corpus = Dataset.from_dict({"id": list(moved), "text": list(moved.values())})
    request = replace(build_request(data), corpus=corpus)
    assert search_and_rank(model, request)[1].ranks.tolist() == list(test.ordinary_ranks.values())


def test_a_hybrid_of_bags_of_words_ranks_all_versions_equally():
    hybrid = HybridSearch([mteb.get_model(BM25_BASELINE), WordVectors()])
    hybrid.mteb_model_meta = ModelMeta.create_empty({"name": "test/hybrid", "revision": "1"})
    hybrid.read_part = ReadPart.all(WindowSource.CLASS)
    _, _, ranks, rotations = rotate(hybrid)
    rows = rotations.select_rows(ranks, window=False)
    by_question = [
        np.ptp(rows.ranks[rows.query == question]) for question in np.unique(rows.query).tolist()
    ]
    assert max(by_question) == 0


def test_the_sample_is_split_between_subsets_and_nested():
    _, _, ranks, few = rotate(WordVectors(), sample_size=20, subsets=4)
    _, _, _, more = rotate(WordVectors(), sample_size=40, subsets=4)
    small, large = few.sets[0].sample, more.sets[0].sample
    assert (small > 0).sum() == 4 * 5
    assert (large > 0).sum() == 4 * 10
    assert np.array_equal(np.where(large <= 5, large, 0), small)
    assert np.array_equal(
        more.select_rows(ranks, window=False, sample_size=20).query,
        few.select_rows(ranks, window=False).query,
    )


def test_values_survive_json_and_add(rotated):
    _, _, ranks, rotations = rotated
    stored = json.loads(json.dumps(rotations.to_json()))
    assert RotationRanks.from_json(stored, ranks) == rotations
    values = ResultValues(ranks, rotations=rotations)
    assert (
        ResultValues.from_json({**values.to_json(), "read": {"kind": "unknown"}}).rotations
        == rotations
    )
    assert len((rotations + rotations).sets) == 2
    assert len(json.dumps(stored)) < 2 * 3 * len(ranks.columns.ranks)


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": "5"},
        {"sample": "3"},
        {"documents": "ff"},
        {"subsets": 0},
        {"sample_size": "many"},
        {"window": "some"},
        {"left_out": {"nothing": 3}},
        {"untested": "weather"},
    ],
)
def test_corrupt_rotations_are_rejected(rotated, change):
    _, _, ranks, rotations = rotated
    stored = json.loads(json.dumps(rotations.to_json()))
    stored["sets"][0] |= change
    with pytest.raises(ProfileError, match="rotations"):
        RotationRanks.from_json(stored, ranks)


@pytest.mark.parametrize(("given", "size"), [(None, 400), ("", 400), ("0", 0), ("25", 25)])
def test_the_variable_sets_the_sample(monkeypatch, given, size):
    monkeypatch.delenv(ROTATED_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(ROTATED_VARIABLE, given)
    assert read_sample_size() == size


@pytest.mark.parametrize("given", ["-1", "all", "1.5", "9" * 12])
def test_an_invalid_value_of_the_variable_is_rejected(monkeypatch, given):
    monkeypatch.setenv(ROTATED_VARIABLE, given)
    with pytest.raises(PosirError, match=ROTATED_VARIABLE):
        read_sample_size()


def test_mtebs_own_scores_do_not_change(monkeypatch):
    task, model = PosIRMini(), WordVectors()
    task.load_data()
    entries = []
    for size in ("0", "5"):
        monkeypatch.setenv(ROTATED_VARIABLE, size)
        (entry,) = task.evaluate(model, "test", encode_kwargs={"batch_size": 32}).values()
        entries.append(entry)
    without, with_rotations = entries
    assert "rotations" not in without
    assert "rotations" in with_rotations
    mteb_scores = [
        name
        for name in without
        if name.startswith(("ndcg_at", "map_", "recall_", "mrr_", "nauc_", "precision_"))
    ]
    assert mteb_scores
    np.testing.assert_equal(
        [without[name] for name in mteb_scores], [with_rotations[name] for name in mteb_scores]
    )
