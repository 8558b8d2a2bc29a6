"""Compare chunking strategies with whole texts."""

import numpy as np
import pytest

import posir
from posir_inspect.inspection import InspectionInput, inspect_model
from posir_inspect.questions import generate_questions
from posir_inspect.splitting import (
    ChunkComparison,
    ChunkCounts,
    ChunkRow,
    SplitterStrategy,
    select_chunks,
)
from posir_significance.analysis import GroupAnalysis
from posir_significance.changes import compare_groups
from posir_significance.findings import ChangeState, Metric, Reason
from posir_significance.observations import Observations
from posir_tasks.base.errors import PosirError
from posir_tasks.models.embeddings.encoding import ModelEncoder
from posir_tasks.text.chunks import TextSplitter
from posir_tasks.text.tokenizer import EstimatedTokenizer
from posir_tasks.values.layouts import QueryLayout
from tests.plugins.posir_inspect.test_questions import collect
from tests.support.probed_encoders import FirstWords, invent_texts


def build_splitter(size: int, step: int) -> TextSplitter:
    return TextSplitter(
        f"characters:{size}",
        lambda text: [text[start : start + size] for start in range(0, len(text), step)],
    )


def test_splitters_are_compared_with_whole_texts():
    splitters = (
        build_splitter(400, 400),
        build_splitter(200, 100),
        TextSplitter("notes", lambda text: [text, "A note."]),
    )
    encoder = FirstWords(words=60)
    inspection = inspect_model(
        InspectionInput(ModelEncoder(encoder), None, collect(*invent_texts(6, 15)), None, splitters)
    )
    whole, large, small, notes = inspection.chunks.rows
    assert [row.chunker for row in inspection.chunks.rows] == [
        None,
        "characters:400",
        "characters:200",
        "notes",
    ]
    assert (whole.vectors, 2 * large.vectors < small.vectors) == (6, True)
    # The small chunks overlap by half.
    assert small.counts.tokens == pytest.approx(2 * large.counts.tokens, rel=0.1)
    assert (whole.counts.unlocated, small.counts.unlocated, notes.counts.unlocated) == (0, 0, 6)
    # The small chunks have fewer than the 60 words that the model reads.
    assert small.change.estimate.value > 0.1
    printed = " ".join(str(inspection).split())
    assert "Which chunker works best" in printed
    assert "notes: 6 of 12 chunks are not in their text" in printed
    rows = inspection.to_polars()
    assert rows["chunker"].to_list()[-3:] == ["characters:400", "characters:200", "notes"]
    assert rows["tokens"].to_list()[-2] == small.counts.tokens
    assert encoder.encoded.count("A note.") == 1


def sample_gains(*means: float, documents: int, noise: float = 0.05) -> list[Observations]:
    """Sample gains for each mean, with one question per tenth of a document. The difficulty of a
    document is the same for all means.
    """
    rng = np.random.default_rng(0)
    tenths = np.tile(np.arange(10), documents)
    difficulty = rng.normal(0, 0.1, documents).repeat(10)
    return [
        Observations(
            gains=np.clip(mean + difficulty + rng.normal(0, noise, len(tenths)), 0, 1),
            layout=QueryLayout(
                lengths=np.zeros(len(tenths), np.int64),
                clusters=np.repeat(np.arange(documents), 10),
                query=np.arange(len(tenths)),
                position=tenths,
                bins=10,
            ),
        )
        for mean in means
    ]


def compare(*means: float, documents: int = 60, noise: float = 0.05) -> ChunkComparison:
    """Compare whole texts and chunks of 512 and 128 tokens, given the mean gain of each."""
    groups = [
        GroupAnalysis(observations)
        for observations in sample_gains(*means, documents=documents, noise=noise)
    ]
    sizes = [None, 512, 128]
    vectors = [200, 400, 1600]
    changes = [
        compare_groups(groups[0], group, paired=True)[Metric.NDCG_AT_10] if size else None
        for size, group in zip(sizes, groups, strict=False)
    ]
    rows = [
        ChunkRow(size, None, count, ChunkCounts(0), group, change, cost=count / 200)
        for size, count, group, change in zip(sizes, vectors, groups, changes, strict=False)
    ]
    return select_chunks(rows, "m")


def test_cheapest_chunks_better_than_whole_texts_are_selected():
    assert compare(0.4, 0.695, 0.7).selection.size == 512
    assert compare(0.695, 0.7, 0.7).selection.size is None
    comparison = compare(0.4, 0.5, 0.7)
    assert comparison.chunked_model == "m+chunks(512)"
    assert comparison.selection.state is ChangeState.BETTER
    assert comparison.is_decided
    assert comparison.selection.cost == 2
    assert comparison.build_table().recommended == 1


def test_too_few_documents_give_no_recommendation():
    comparison = compare(0.4, 0.5, 0.7, documents=8)
    assert not comparison.is_decided
    assert comparison.selection.change.reason is Reason.FEW_DOCUMENTS
    assert comparison.build_table().recommended is None


def test_inconclusive_alternatives_are_reported():
    comparison = compare(0.4, 0.67, 0.7, documents=12, noise=0.3)
    assert comparison.selection.size == 512
    assert "inconclusive" in comparison.sentences[-1]


def test_faulty_chunker_raises_before_the_model_is_loaded():
    with pytest.raises(PosirError, match="<lambda>: returned no chunk"):
        posir.inspect("no-such-model", invent_texts(2, 15), chunker=[lambda _: []])


def test_chunk_tokens_are_counted_within_the_window():
    questions = generate_questions(collect("word " * 400), [500])
    splitter = build_splitter(400, 400)
    strategy = SplitterStrategy(splitter, questions, EstimatedTokenizer(), 50, rejects_long=False)
    assert strategy.count_chunks(questions) == ChunkCounts(5 * 50, too_long=5)
    assert strategy.estimate_tokens(500) == 250
    with pytest.raises(
        PosirError, match=r"characters:400: .* chunks are longer than the 50 tokens that"
    ):
        SplitterStrategy(splitter, questions, EstimatedTokenizer(), 50, rejects_long=True)


def test_tokens_are_estimated_from_the_sample():
    questions = generate_questions(collect(*invent_texts(6, 15)), [150] * 6)
    splitter = build_splitter(400, 400)
    estimates = []
    for sample in (questions, questions.select_first(2)):
        strategy = SplitterStrategy(
            splitter, sample, EstimatedTokenizer(), None, rejects_long=False
        )
        estimates.append(strategy.estimate_tokens(10_000))
    assert estimates[1] == pytest.approx(estimates[0], rel=0.05)
