"""Chunks of splitters compete with whole texts."""

import pytest

import posir
from posir_inspect.api import Inspection
from posir_inspect.divisions import SplitterDivision
from posir_inspect.inspection import Setup, inspect_model
from posir_tasks.embeddings.encoding import ModelEncoder
from posir_tasks.errors import PosirError
from posir_tasks.text.splitters import TextSplitter
from posir_tasks.text.tokenizer import EstimatedTokenizer
from tests.plugins.posir_inspect.test_pseudo_questions import collect
from tests.support.probed_encoders import FirstWords, invent_texts


def cut_at(size: int, step: int) -> TextSplitter:
    """Return a splitter into characters."""
    return TextSplitter(f"characters:{size}", lambda text: [text[start : start + size] for start in range(0, len(text), step)])


def test_splitters_are_compared_with_whole_texts():
    splitters = (cut_at(400, 400), cut_at(200, 100), TextSplitter("notes", lambda text: [text, "A note."]))
    encoder = FirstWords(words=60)
    setup = Setup(ModelEncoder(encoder), None, collect(*invent_texts(6, 15)), None, splitters)
    inspection = inspect_model(setup)
    whole, large, small, notes = inspection.chunks
    assert [row.chunker for row in inspection.chunks] == [None, "characters:400", "characters:200", "notes"]
    assert 2 * large.vectors < small.vectors
    assert whole.vectors == 6
    # Chunks overlap by half.
    assert small.counts.tokens == pytest.approx(2 * large.counts.tokens, rel=0.1)
    assert (whole.counts.lost, small.counts.lost, notes.counts.lost) == (0, 0, 6)
    # The model reads 60 words, more than a chunk has.
    assert small.gain.value > 0.1
    shown = str(Inspection(inspection))
    assert "Which chunker serves these texts" in shown
    assert "notes: 6 of 12 chunks are not in their text" in shown
    assert "Tokens" in shown
    rows = Inspection(inspection).to_polars()
    assert rows["chunker"].to_list()[-3:] == ["characters:400", "characters:200", "notes"]
    assert rows["tokens"].to_list()[-2] == small.counts.tokens
    assert encoder.encoded.count("A note.") == 1


def test_a_bad_chunker_is_refused_before_the_model_is_loaded():
    with pytest.raises(PosirError, match="<lambda>: returned no chunk"):
        posir.inspect("no-such-model", invent_texts(2, 15), chunkers=[lambda _: []])


def test_chunks_that_the_model_refuses_are_one_message():
    texts = dict.fromkeys(invent_texts(2, 15), 300)
    with pytest.raises(PosirError, match=r"characters:400: .* chunks are longer than the 50 tokens that"):
        SplitterDivision.from_sample(cut_at(400, 400), texts, EstimatedTokenizer(), 50, refuses=True)


def test_tokens_are_counted_as_far_as_the_model_reads():
    text = "word " * 400
    division = SplitterDivision.from_sample(cut_at(400, 400), {text: 500}, EstimatedTokenizer(), 50, refuses=False)
    assert division.count_texts([text]).tokens == 5 * 50
    assert division.count_texts([text]).cut == 5
    assert division.estimate_tokens(500) == 250
