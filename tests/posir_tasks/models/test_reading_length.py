"""Reading lengths are measured from embeddings, exact to the word, character or token."""

from contextlib import nullcontext
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mteb.types import PromptType

from posir_tasks.base.errors import PosirError
from posir_tasks.models.embeddings.encoding import load_encoder
from posir_tasks.models.endpoint_models import EndpointEncoder
from posir_tasks.models.measured_model import MeasuredModel
from posir_tasks.models.reading_length import Bounds, ReadingLength
from posir_tasks.text.words import estimate_tokens
from posir_tasks.values.read_part import Part
from tests.support.embedding_server import EmbeddingServer, Pooling, serve_embeddings
from tests.support.probed_encoders import (
    FirstWords,
    KeepsPart,
    RefusesLong,
    invent_texts,
    keep_ends,
    keep_last,
    keep_samples,
)

TEXTS = invent_texts(20, 30)


def measure_length(encode, texts=(), count_tokens=None, claimed_tokens=None, max_tokens=None):
    model = MeasuredModel(
        "test", None, encode, nullcontext, count_tokens, claimed_tokens=claimed_tokens
    )
    return model.measure(texts, max_tokens=max_tokens)


def measure_server(server: EmbeddingServer) -> ReadingLength:
    encoder = load_encoder(server.reference)
    assert isinstance(encoder.model, EndpointEncoder)
    with encoder.model.open_measurement(retries=0):
        return measure_length(partial(encoder, prompt_type=PromptType.document))


@pytest.mark.parametrize(
    ("words", "noise"), [(1, 0), (40, 0), (127, 0), (128, 0), (300, 0), (300, 1e-4), (2500, 0)]
)
def test_windows_in_words_are_measured_exactly(words: int, noise: float):
    length = measure_length(FirstWords(words=words, noise=noise), TEXTS)
    assert (length.is_complete, length.unit, length.words) == (False, "words", Bounds(words, words))


def test_a_limit_in_characters_is_not_reported_in_words():
    length = measure_length(FirstWords(characters=3001), TEXTS)
    assert length.unit == "characters"
    # A cut within a word is located at one end of the word.
    assert 2990 < length.characters.low <= length.characters.high < 3010


def test_windows_in_tokens_are_measured_exactly():
    def count(text: str) -> int:
        return sum(1 + (len(word) > 6) for word in text.split())

    class FirstTokens(FirstWords):
        def __call__(self, texts, prompt_type=None):
            tokens = [
                [part for word in text.split() for part in (word[:6], word[6:]) if part]
                for text in texts
            ]
            return super().__call__([" ".join(parts[:200]) for parts in tokens], prompt_type)

    length = measure_length(FirstTokens(), TEXTS, count)
    assert (length.unit, length.tokens) == ("tokens", Bounds(200, 200))


@pytest.mark.parametrize(
    ("words", "pooling"),
    [
        (256, Pooling.MEAN),
        (512, Pooling.CLS),
        (2048, Pooling.CLS),
        pytest.param(8191, Pooling.MEAN, marks=pytest.mark.slow),
    ],
)
def test_truncating_servers_are_measured_exactly_in_few_requests(words: int, pooling: Pooling):
    with serve_embeddings(window=words, pooling=pooling, noise=1e-6) as server:
        length = measure_server(server)
    assert (length.is_complete, length.unit, length.words) == (False, "words", Bounds(words, words))
    assert len(server.times) <= 25


def test_noise_gives_bounds_and_servers_may_reject_and_truncate():
    with (
        serve_embeddings(window=1024, pooling=Pooling.MEAN, noise=1e-3) as noisy,
        serve_embeddings(window=400, max_words=600) as rejecting,
    ):
        lengths = measure_server(noisy), measure_server(rejecting)
    assert lengths[0].words.low < 1024 <= lengths[0].words.high < 1100
    assert (lengths[1].words, "600 tokens" in lengths[1].refusal) == (Bounds(400, 400), True)
    assert max(len(noisy.times), len(rejecting.times)) <= 40


def test_an_unlimited_model_is_tested_up_to_its_claim():
    encoder = FirstWords()
    length = measure_length(encoder, TEXTS[:1], claimed_tokens=1000)
    assert length.is_complete
    assert length.estimated_tokens.low >= 1250
    assert max(map(estimate_tokens, encoder.encoded)) < 3 * 1250


@pytest.mark.parametrize("words", [10, 128, 701])
def test_the_longest_accepted_text_is_measured_exactly(words: int):
    length = measure_length(RefusesLong(words), TEXTS)
    assert (length.unit, length.words, length.refusal) == (
        "words",
        Bounds(words, words),
        f"ValueError: at most {words} words",
    )


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 900), st.integers(1, 900), st.booleans(), st.sampled_from([0.0, 1e-4]))
def test_parts_at_one_or_both_ends_are_measured_exactly(
    first: int, last: int, claimed: bool, noise: float
):
    for keep, part, words in (
        (keep_last(last), Part.LAST, last),
        (keep_ends(first, last), Part.ENDS, first + last),
    ):
        encoder = KeepsPart(keep, noise)
        claim = (
            {"claimed_tokens": max(words, 20), "count_tokens": lambda text: len(text.split())}
            if claimed
            else {}
        )
        length = measure_length(encoder, **claim)
        assert encoder.requests <= 38
        if part is Part.ENDS and words < 20 and claimed:
            continue
        assert length.part is part
        assert length.words.low <= words <= length.words.high <= words + 25 * bool(noise)
        head = length.from_start
        assert (
            (head and head.words.low <= first <= head.words.high)
            if part is Part.ENDS
            else head is None
        )


@settings(max_examples=4, deadline=None)
@given(st.integers(3, 7), st.integers(20, 120))
def test_samples_are_distinguished_from_ends(number: int, size: int):
    encoder = KeepsPart(keep_samples(number, size))
    length = measure_length(encoder, max_tokens=8192)
    assert (length.part, encoder.requests <= 38) == (Part.SAMPLES, True)
    assert length.words.low <= number * size <= length.words.high
    assert length.from_start is not None
    assert length.from_start.words.low <= size <= length.from_start.words.high


def test_a_model_may_reject_long_texts_and_read_the_end():
    class RejectsAndTruncates(KeepsPart):
        def __call__(self, texts, prompt_type=None):
            if max(len(text.split()) for text in texts) > 600:
                raise ValueError("at most 600 words")
            return super().__call__(texts, prompt_type)

    length = measure_length(RejectsAndTruncates(keep_last(400)))
    assert (length.part, length.words, length.refusal) == (
        Part.LAST,
        Bounds(400, 400),
        "ValueError: at most 600 words",
    )


def test_words_without_tokens_have_ordered_bounds():
    tokens = measure_length(FirstWords(60), TEXTS, lambda _: 3).tokens
    assert tokens.low <= tokens.high
    with pytest.raises(PosirError, match="at most 0 words"):
        measure_length(RefusesLong(0), TEXTS)
