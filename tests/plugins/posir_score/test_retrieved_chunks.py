"""Tests for scores of retrieved chunks, against manual counts and the scores of a text splitter."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mteb.types import PromptType

from posir_score.alignment import AlignedRun
from posir_score.chunk_scoring import score_splitters
from posir_score.evidence_spans import (
    EvidenceData,
    EvidenceSpan,
    find_covered,
    has_uncovered_words,
    read_evidence_data,
)
from posir_score.hits import Hit
from posir_score.retrieved_chunks import Loss, ReadChunks, RetrievedChunks, score_chunks
from posir_tasks.datasets.opening import open_data
from posir_tasks.models.embeddings.encoding import ModelEncoder
from posir_tasks.text.chunks import TextSplitter
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.read_part import UNKNOWN, Part, ReadPart, WindowSource
from tests.posir_tasks.data.formats.test_folders import TEXTS, write_chunking_folder
from tests.support.probed_encoders import FirstWords

#: Ten words of ten characters each, including a space.
TEXT = {name: "".join(f"{name}{number}elevens " for number in range(10)) for name in "ab"}
#: Evidence and retrieved chunks of each question, as document, start and end.
QUESTIONS: dict[str, tuple[tuple[str, int, int], list[tuple[str, int, int]]]] = {
    "cut": (("a", 30, 50), [("a", 0, 40), ("a", 70, 100), ("b", 0, 40)]),
    "other chunk": (("a", 80, 90), [("a", 0, 40), ("b", 0, 40), ("a", 40, 70)]),
    "absent": (("b", 80, 90), [("a", 0, 40)]),
    "whole": (("a", 90, 100), [("b", 40, 70), ("a", 70, 100)]),
}


def build_data(*extra: EvidenceSpan) -> EvidenceData:
    questions = [
        (query, (EvidenceSpan(f"s/{name}", Span(*span)),))
        for query, ((name, *span), _) in QUESTIONS.items()
    ]
    questions += [("extra", (span,)) for span in extra]
    ids = tuple(("s", query) for query, _ in questions)
    return EvidenceData(
        "data",
        {f"s/{name}": text for name, text in TEXT.items()},
        tuple(questions),
        {"s/a": 0, "s/b": 1},
        0,
        ids,
    )


def locate(hits: dict[str, list[Hit]], data: EvidenceData) -> RetrievedChunks:
    chunks = RetrievedChunks.locate(data, AlignedRun(hits={"s": hits}))
    assert chunks
    return chunks


@pytest.mark.parametrize("fields", ["text", "offsets", "both"])
def test_recall_and_losses_equal_manual_counts(fields: str):
    def build(name: str, start: int, end: int) -> Hit:
        text = TEXT[name][start:end] if fields != "offsets" else None
        offsets = (start, end) if fields != "text" else (None, None)
        return Hit(name, 1.0, None, text, *offsets)

    chunks = locate(
        {
            query: [build(*chunk) for chunk in retrieved]
            for query, (_, retrieved) in QUESTIONS.items()
        },
        build_data(),
    )
    scores = score_chunks("run", ReadChunks.measure(chunks, UNKNOWN))
    first, third = scores.depths
    assert (first.k, third.k, scores.k, scores.chunks, scores.not_located) == (1, 3, 3, 5, [])
    # Only the first question finds evidence: 10 of 20 characters, in a chunk of 40.
    assert first.evidence_recall.value == pytest.approx((10 / 20 + 0 + 0 + 0) / 4)
    assert first.iou.value == pytest.approx(10 / (40 + 10) / 4)
    assert first.precision.value == pytest.approx(10 / 40 / 4)
    # The last question finds 10 of 10 characters in chunks of 30 and 30.
    assert third.evidence_recall.value == pytest.approx((10 / 20 + 0 + 0 + 1) / 4)
    assert third.iou.value == pytest.approx((10 / (110 + 10) + 10 / 60) / 4)
    assert third.precision.value == pytest.approx((10 / 110 + 10 / 60) / 4)
    lost = {loss: share.value for loss, share in scores.lost.items() if share.value}
    assert lost == pytest.approx(
        {Loss.CUT: 0.5 / 4, Loss.OTHER_CHUNK: 1 / 4, Loss.NOT_RETRIEVED: 1 / 4}
    )
    by_position = {
        (row.place, row.part): (row.spans, row.recall.value) for row in scores.by_position
    }
    assert by_position == {
        ("document", "second third"): (1, 0.5),
        ("document", "last third"): (3, pytest.approx(1 / 3)),
        ("chunk", "second third"): (1, 0),
        ("chunk", "last third"): (1, 1),
        ("chunk", "split across chunks"): (1, 0.5),
        ("chunk", "in no returned chunk"): (1, 0),
    }
    assert scores.to_json()["lost_cut_at_3"].value == 0.5 / 4
    assert Loss.NOT_READ not in scores.lost
    assert "how much is beyond the embedder's context window" in " ".join(scores.describe(0.5))


def test_unlocated_chunks_are_described():
    hits = {
        query: [Hit("b" if query == "absent" else "a", 1.0, None, "Quite another text.")]
        for query in QUESTIONS
    }
    chunks = locate(hits, build_data())
    scores = score_chunks("run", ReadChunks.measure(chunks, UNKNOWN))
    assert scores.not_located == [
        "a: Quite another text. (19 characters)",
        "b: Quite another text. (19 characters)",
    ]
    assert (
        scores.depths[0].evidence_recall.value,
        scores.chunks,
        "preview" in scores.suspects[0],
    ) == (0, 0, True)
    assert ReadChunks.measure(
        chunks, ReadPart.first(100, WindowSource.GIVEN)
    ).may_have_selection_bias
    assert {loss: share.value for loss, share in scores.lost.items() if share.value} == {
        Loss.NOT_LOCATED: 1
    }
    assert "2 chunks were not found in their documents" in " ".join(scores.describe_chunks())


def test_hits_that_are_not_chunks_are_described():
    hits = {
        "cut": [
            Hit("a", 1.0, None, None, 1_000_000, 1_002_000),
            Hit("a", 0.5, None, TEXT["a"][:20]),
        ],
        "other chunk": [Hit("a", 1.0, None, TEXT["a"][:20])],
        "absent": [Hit("b", 1.0, None, "b?" * 40), Hit("b", 1.0, None, "absent")],
    }
    chunks = locate(hits, build_data())
    scores = score_chunks("run", ReadChunks.measure(chunks, UNKNOWN))
    descriptions = {
        "a: characters 1,000,000 to 1,002,000 of 100",
        f"b: {'b?' * 28}b... (80 characters)",
    }
    assert descriptions < {*scores.not_located}
    assert [
        scores.lost[loss].value for loss in (Loss.NOT_RETURNED, Loss.NOT_LOCATED, Loss.OTHER_CHUNK)
    ] == [0.25, 0.5, 0]
    warning = "1 hit contains the text of the query. Return the text of the chunk."
    assert scores.suspects == [warning]


def test_repeated_texts_are_located_by_chunk_number():
    text = "One bell fell. Two rang. One bell fell. Four rang."
    data = EvidenceData(
        "data",
        {"s/a": text},
        (("q", (EvidenceSpan("s/a", Span(25, 39)),)),),
        {"s/a": 0},
        0,
        (("s", "q"),),
    )
    pieces = ["One bell fell.", "Two rang.", "One bell fell.", "Four rang."]
    hits = [Hit("a", 1.0, None, piece, chunk=f"a#{number}") for number, piece in enumerate(pieces)]
    chunks = locate({"q": [hits[2], hits[0], hits[3], hits[1]]}, data)
    assert [chunks.spans[hit] for hit in chunks.by_query["s", "q"]] == [
        (25, 39),
        (0, 14),
        (40, 50),
        (15, 24),
    ]
    # Without a number, the first match counts.
    chunks = locate({"q": [hit._replace(chunk="a") for hit in hits]}, data)
    assert [chunks.spans[hit] for hit in chunks.by_query["s", "q"]] == [
        (0, 14),
        (15, 24),
        (0, 14),
        (40, 50),
    ]


def test_evidence_beyond_the_window_of_a_chunk_is_unread():
    data = build_data(EvidenceSpan("s/a", Span(15, 35)))
    hits = {
        query: [Hit("a", 1.0, None, TEXT["a"])]
        for query in ("cut", "other chunk", "whole", "extra")
    }
    hits["absent"] = [Hit("b", 1.0, None, TEXT["b"][60:])]
    chunks = locate(hits, data)
    read = ReadChunks.measure(chunks, ReadPart.first(14, WindowSource.GIVEN))
    assert (read.read.part, read.read.tokens, read.truncated_chunks) == (Part.CHUNKS, 14, 1)
    limit = int(EstimatedTokenizer().find_tokens([TEXT["a"]])[0][13, 1])
    assert [
        read.find_unread(name, Span(0, 100)).nonzero()[0].tolist() for name in ("s/a", "s/b")
    ] == [
        [*range(limit, 100)],
        [],
    ]
    assert 50 <= limit < 80
    evidence = Evidence(
        [query for _, query in data.ids],
        ["a", "a", "b", "a", "a"],
        np.array([spans[0].span.start for _, spans in data.questions]),
        np.array([spans[0].span.end for _, spans in data.questions]),
        np.full(5, 100),
    )
    # Characters 30 to 50 are read, and 80 to 90 of the other document, whose chunk starts at 60.
    # Characters 80 to 90 and 90 to 100 are beyond the window.
    assert read.locate(evidence, "s", ["eng-Latn"]).twelfths.tolist() == [4, 13, 10, 13, 3]
    assert read.uncovered_spans == 0
    # Returned chunks contain only characters 80 to 85 of this evidence, so selection bias is
    # possible.
    part = locate(hits | {"absent": [Hit("b", 1.0, None, TEXT["b"][60:85])]}, data)
    read = ReadChunks.measure(part, ReadPart.first(14, WindowSource.GIVEN))
    assert (
        read.uncovered_spans,
        read.read.part,
        read.locate(evidence, "s", ["eng-Latn"]).twelfths.tolist(),
    ) == (
        1,
        Part.CHUNKS,
        [],
    )
    text = " ".join(score_chunks("run", read).describe_chunks())
    assert all(
        phrase in text
        for phrase in ("1 of 5 evidence spans", "unknown", "estimated; 1 is read in part")
    )
    # Even if all returned chunks are read completely, other chunks may be truncated.
    read = ReadChunks.measure(part, ReadPart.first(100, WindowSource.GIVEN))
    assert (read.read.part, read.locate(evidence, "s", ["eng-Latn"]).twelfths.tolist()) == (
        Part.CHUNKS,
        [],
    )
    hits_in_b = {query: [Hit("b", 1.0, None, TEXT["b"][60:])] for query in hits} | {
        "extra": hits["extra"]
    }
    chunks = locate(hits_in_b, data)
    scores = score_chunks("run", ReadChunks.measure(chunks, ReadPart.first(14, WindowSource.GIVEN)))
    lost = {loss: share.value for loss, share in scores.lost.items() if share.value}
    assert lost == {Loss.NOT_READ: 2 / 5, Loss.NOT_RETRIEVED: 1 / 5}
    # All chunks fit.
    read = ReadChunks.measure(chunks, ReadPart.first(100, WindowSource.MEASURED))
    assert (read.read, read.truncated_chunks, read.tokens) == (
        ReadPart.all(WindowSource.MEASURED),
        0,
        [10, 25],
    )


def test_chunks_of_a_run_score_like_those_of_a_splitter(tmp_path: Path):
    opened = open_data(write_chunking_folder(tmp_path))
    splitter = TextSplitter(
        "words",
        lambda text: [" ".join(text.split()[at : at + 3]) for at in range(0, len(text.split()), 3)],
    )
    encoder = ModelEncoder(FirstWords())
    (subset,) = opened.subsets
    data = EvidenceData.from_positions("data", {"all": subset.read()})
    assert [len(spans) for _, spans in data.questions] == [2, 1]
    pieces = [
        (name, chunk) for name, text in TEXTS.items() for chunk in splitter.split_text(text).chunks
    ]
    vectors = encoder([chunk for _, chunk in pieces], PromptType.document)
    hits: dict[str, list[Hit]] = {}
    for (_, query), (text, _) in zip(data.ids, data.questions, strict=True):
        scores: Any = encoder.model.similarity(encoder([text], PromptType.query), vectors).numpy()[
            0
        ]
        best = np.argsort(-scores, kind="stable")
        hits[query] = [
            Hit(pieces[row][0], float(scores[row]), None, pieces[row][1]) for row in best
        ]
    chunks = RetrievedChunks.locate(data, AlignedRun(hits={"all": hits}))
    assert chunks
    run_scores = score_chunks("run", ReadChunks.measure(chunks, UNKNOWN))
    for row in run_scores.depths:
        scored = score_splitters(
            encoder, EstimatedTokenizer(), read_evidence_data(opened), [splitter], row.k
        )
        splitter_scores = scored.rows[0]
        assert (row.evidence_recall, row.iou, row.precision) == (
            splitter_scores.recall,
            splitter_scores.iou,
            splitter_scores.precision,
        )
        if row.k == run_scores.k:
            assert [(r.place, r.part, r.spans, r.recall) for r in run_scores.by_position] == [
                (r.place, r.part, r.spans, r.recall) for r in scored.places
            ]


def test_finding_the_covered_characters_of_a_span():
    def list_covered(chunks: list[tuple[int, int]]) -> list[int]:
        return (3 + np.flatnonzero(find_covered(Span(3, 20), chunks))).tolist()

    assert list_covered([(8, 10), (0, 5), (30, 40), (0, 2)]) == [3, 4, 8, 9]
    assert list_covered([]) == []
    assert list_covered([(0, 25), (4, 6)]) == [*range(3, 20)]
    assert not has_uncovered_words(Span(0, 5), [(0, 2), (3, 5)], "ab cd")
    assert has_uncovered_words(Span(0, 5), [(0, 1), (3, 5)], "ab cd")
