"""Scores of retrieved chunks are those counted by hand, and of a text splitter with the same
chunks.
"""

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
    lacks_words,
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

#: Ten words of ten characters each, a blank included.
TEXT = {name: "".join(f"{name}{number}elevens " for number in range(10)) for name in "ab"}
#: By question: document and characters of the evidence, and the chunks that are retrieved, as
#: document and characters.
ASKED: dict[str, tuple[tuple[str, int, int], list[tuple[str, int, int]]]] = {
    "cut": (("a", 30, 50), [("a", 0, 40), ("a", 70, 100), ("b", 0, 40)]),
    "other chunk": (("a", 80, 90), [("a", 0, 40), ("b", 0, 40), ("a", 40, 70)]),
    "absent": (("b", 80, 90), [("a", 0, 40)]),
    "whole": (("a", 90, 100), [("b", 40, 70), ("a", 70, 100)]),
}


def build_data(*extra: EvidenceSpan) -> EvidenceData:
    questions = [
        (query, (EvidenceSpan(f"s/{name}", Span(*span)),))
        for query, ((name, *span), _) in ASKED.items()
    ]
    questions += [("extra", (excerpt,)) for excerpt in extra]
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


@pytest.mark.parametrize("stated", ["text", "place", "both"])
def test_recall_and_losses_are_those_counted_by_hand(stated: str):
    def build(name: str, start: int, end: int) -> Hit:
        text = TEXT[name][start:end] if stated != "place" else None
        place = (start, end) if stated != "text" else (None, None)
        return Hit(name, 1.0, None, text, *place)

    chunks = locate(
        {query: [build(*chunk) for chunk in retrieved] for query, (_, retrieved) in ASKED.items()},
        build_data(),
    )
    scores = score_chunks("run", ReadChunks.measure(chunks, UNKNOWN))
    first, third = scores.depths
    assert (first.k, third.k, scores.k, scores.chunks, scores.not_located) == (1, 3, 3, 5, [])
    # 10 of 20 characters, and of the 40 of its chunk; nothing; nothing; nothing.
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
    places = {(row.place, row.part): (row.spans, row.recall.value) for row in scores.by_position}
    assert places == {
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


def test_a_chunk_that_is_not_in_its_document_is_named():
    hits = {
        query: [Hit("b" if query == "absent" else "a", 1.0, None, "Quite another text.")]
        for query in ASKED
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


def test_what_is_no_chunk_is_named():
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
    named = {"a: characters 1,000,000 to 1,002,000 of 100", f"b: {'b?' * 28}b... (80 characters)"}
    assert named < {*scores.not_located}
    assert [
        scores.lost[loss].value for loss in (Loss.NOT_RETURNED, Loss.NOT_LOCATED, Loss.OTHER_CHUNK)
    ] == [0.25, 0.5, 0]
    warning = "1 hit contains the text of the query. Return the text of the chunk."
    assert scores.suspects == [warning]


def test_a_repeated_text_is_where_its_number_says():
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
    # Without a number, it is the first.
    chunks = locate({"q": [hit._replace(chunk="a") for hit in hits]}, data)
    assert [chunks.spans[hit] for hit in chunks.by_query["s", "q"]] == [
        (0, 14),
        (15, 24),
        (0, 14),
        (40, 50),
    ]


def test_what_is_beyond_the_window_of_its_chunk_is_not_read():
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
        np.array([excerpts[0].span.start for _, excerpts in data.questions]),
        np.array([excerpts[0].span.end for _, excerpts in data.questions]),
        np.full(5, 100),
    )
    # Read: 30 to 50, and 80 to 90 of the other document, whose chunk begins at 60; beyond: 80 to
    # 90, 90 to 100.
    assert read.locate(evidence, "s", ["eng-Latn"]).twelfths.tolist() == [4, 13, 10, 13, 3]
    assert read.uncovered_spans == 0
    # Only 80 to 85 of the evidence is in a returned chunk: which evidence is known depends on what
    # is returned.
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
    said = " ".join(score_chunks("run", read).describe_chunks())
    assert all(
        words in said
        for words in ("1 of 5 evidence spans", "unknown", "estimated; 1 is read in part")
    )
    # That all returned chunks are read whole says nothing of the others.
    read = ReadChunks.measure(part, ReadPart.first(100, WindowSource.GIVEN))
    assert (read.read.part, read.locate(evidence, "s", ["eng-Latn"]).twelfths.tolist()) == (
        Part.CHUNKS,
        [],
    )
    none = {query: [Hit("b", 1.0, None, TEXT["b"][60:])] for query in hits} | {
        "extra": hits["extra"]
    }
    chunks = locate(none, data)
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


def test_the_same_chunks_have_the_scores_of_their_splitter(tmp_path: Path):
    opened = open_data(write_chunking_folder(tmp_path))
    splitter = TextSplitter(
        "words",
        lambda text: [" ".join(text.split()[at : at + 3]) for at in range(0, len(text.split()), 3)],
    )
    encoder = ModelEncoder(FirstWords())
    (subset,) = opened.subsets
    data = EvidenceData.from_positions("data", {"all": subset.read()})
    assert [len(excerpts) for _, excerpts in data.questions] == [2, 1]
    pieces = [
        (name, chunk) for name, text in TEXTS.items() for chunk in splitter.divide(text).chunks
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
    ours = score_chunks("run", ReadChunks.measure(chunks, UNKNOWN))
    for row in ours.depths:
        scored = score_splitters(
            encoder, EstimatedTokenizer(), read_evidence_data(opened), [splitter], row.k
        )
        theirs = scored.rows[0]
        assert (row.evidence_recall, row.iou, row.precision) == (
            theirs.recall,
            theirs.iou,
            theirs.precision,
        )
        if row.k == ours.k:
            assert [(r.place, r.part, r.spans, r.recall) for r in ours.by_position] == [
                (r.place, r.part, r.spans, r.recall) for r in scored.places
            ]


def test_a_span_is_divided_into_what_ranges_have_and_lack():
    def list_covered(chunks: list[tuple[int, int]]) -> list[int]:
        return (3 + np.flatnonzero(find_covered(Span(3, 20), chunks))).tolist()

    assert list_covered([(8, 10), (0, 5), (30, 40), (0, 2)]) == [3, 4, 8, 9]
    assert list_covered([]) == []
    assert list_covered([(0, 25), (4, 6)]) == [*range(3, 20)]
    assert not lacks_words(Span(0, 5), [(0, 2), (3, 5)], "ab cd")
    assert lacks_words(Span(0, 5), [(0, 1), (3, 5)], "ab cd")
