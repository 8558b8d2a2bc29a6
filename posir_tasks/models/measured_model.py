"""Measure the window of a model. Endpoints need neither mteb nor PyTorch."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.progress import format_seconds, track
from posir_tasks.models.endpoint_client import COUNTED_WORDS, EmbeddingClient
from posir_tasks.models.measured_windows import read_measured, store_measured
from posir_tasks.models.reading_length import (
    CLAIM_FACTOR,
    MAX_TOKENS,
    ReadingLength,
    measure_reading_length,
)
from posir_tasks.models.reading_probe import (
    CHANGES,
    MAX_REQUESTS,
    DocumentEncoder,
    ModelProbe,
    TextSource,
    TokenCounter,
)
from posir_tasks.models.references import (
    RERANKER_NAME,
    Endpoint,
    ModelReference,
    find_endpoint,
)
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.text.words import count_words
from posir_tasks.values.read_part import ReadPart

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: Maximum number of special tokens per text.
MAX_SPECIAL = 3
#: Number of words to add to the longest text, so that it exceeds the window.
EXTRA_WORDS = 64
#: Maximum number of requests to verify a window that the server reports.
VERIFICATION_REQUESTS = 5
#: Number of texts per request, including two unchanged texts.
TEXTS_PER_REQUEST = CHANGES + 2


@dataclass
class CachingEncoder:
    """Encodes documents and caches the vector or error of single texts. A text that starts with a
    rejected text is not sent.
    """

    encode: DocumentEncoder
    seconds_per_word: float = 0.0
    """Seconds per word in the slowest request so far."""
    results: dict[str, NDArray[Any] | Exception] = field(default_factory=dict)

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return embeddings, shape (n, dimensions), or raise the error of a rejected text."""
        for sent_text, result in self.results.items():
            if not isinstance(result, Exception):
                if texts == [sent_text]:
                    return result
            elif any(text.startswith(sent_text) for text in texts):
                raise result
        start = time.perf_counter()
        try:
            vectors = self.encode(texts)
        except Exception as error:
            if len(texts) == 1:
                self.results[texts[0]] = error
            raise
        seconds = (time.perf_counter() - start) / max(1, sum(map(count_words, texts)))
        self.seconds_per_word = max(self.seconds_per_word, seconds)
        self.results[texts[0]] = vectors[:1]
        return vectors


@dataclass(frozen=True)
class MeasuredModel:
    """A model to measure: its encoder and the limits that it claims."""

    name: str
    revision: str | None
    encode: DocumentEncoder
    open_measurement: Callable[[], AbstractContextManager[None]]
    """Opens a context in which overlong texts fail without retries."""
    count_tokens: TokenCounter | None = None
    special_tokens: int | None = None
    prompt_tokens: int = 0
    claimed_tokens: int | None = None
    claimed_by: str = ""
    tokenizer: ModelTokenizer | None = None
    """None if unknown."""
    is_experiment: bool = False
    """If true, run settings are applied, so the measurement is not stored for later runs."""
    is_reranker: bool = False
    """If true, scores for a fixed question replace embeddings."""
    seconds_per_word: float = 0.0
    """Seconds per word that a server takes; 0 if unknown."""

    @classmethod
    def connect(
        cls,
        endpoint: Endpoint,
        tokenizer: ModelTokenizer | None = None,
        longest: int = MAX_TOKENS,
        *,
        retries: int | None = None,
    ) -> MeasuredModel:
        """Connect to an endpoint. The server's report or token counts determine the claimed window.

        `retries` limits the retries of the first requests; by default, the usual limit applies.
        """
        client = EmbeddingClient(endpoint, retries)
        open_measurement = partial(client.open_measurement, retries=0)
        encode = CachingEncoder(client.embed)
        seconds_per_word = 0.0
        with open_measurement():
            claim, rejects = client.read_limit()
            limit = claim
            if client.kind.tokens or limit is None:
                sizes = [words for words in COUNTED_WORDS if words < longest]
                source = TextSource((), None)
                counted_limit, rejects, seconds_per_word = client.detect_window(
                    source.build(words, 0).prefix(words)
                    for words in [*sizes, longest + EXTRA_WORDS]
                )
                limit = counted_limit or limit
            special = count_special_tokens(encode, limit, rejects=rejects) if limit else None
        count: TokenCounter | None = None
        if special is not None:
            # The window is confirmed, so frequent words are single tokens.
            claim = limit
            count = count_words
        if tokenizer:
            count = tokenizer.count
            special = tokenizer.special_tokens
        return cls(
            endpoint.name,
            endpoint.revision,
            encode,
            open_measurement,
            count,
            special,
            claimed_tokens=claim,
            claimed_by="the server",
            tokenizer=tokenizer,
            is_experiment=bool(client.query_fields or client.passage_fields),
            seconds_per_word=max(seconds_per_word, encode.seconds_per_word),
        )

    @property
    def added_tokens(self) -> int:
        """Number of special and prompt tokens."""
        return (self.special_tokens or 0) + self.prompt_tokens

    def measure(
        self, texts: Sequence[str] = (), *, required: int = 0, max_tokens: int | None = None
    ) -> ReadingLength:
        """Measure which part of a text the model reads, and store the measurement.

        Args:
            texts: Texts for the documents; by default, frequent English words.
            required: Minimum length of the longest document in tokens.
            max_tokens: Maximum length of documents; by default 1.25 times the claimed window, at
                most 32,768.

        Raises:
            PosirError: The model cannot encode short texts.
        """
        claimed = self.claimed_tokens
        default_limit = min(MAX_TOKENS, round(claimed * CLAIM_FACTOR)) if claimed else MAX_TOKENS
        limit = max(max_tokens or default_limit, required)
        claim = None
        # If the tokenizer is known, synthetic texts consist of single-token words.
        if claimed and self.count_tokens and not texts and self.added_tokens < claimed < limit:
            claim = claimed - self.added_tokens
        description = "Measuring the model's window"
        requests = None
        if self.seconds_per_word:
            requests = VERIFICATION_REQUESTS if claimed and self.count_tokens else MAX_REQUESTS
            words = TEXTS_PER_REQUEST * (claimed or limit)
            seconds = format_seconds(requests * words * self.seconds_per_word)
            description += f" (at most {requests} requests, up to about {seconds})"
        with self.open_measurement(), track(description, requests) as advance:
            try:
                probe = ModelProbe(self.encode, advance)
                source = TextSource(texts, self.count_tokens)
                length = measure_reading_length(probe, source, limit, claim)
            except PosirError:
                raise
            except Exception as error:  # the model's own code
                raise PosirError(
                    f"{self.name}: the model cannot encode even a short text "
                    f"({summarize_error(error)}). Its files may be corrupt or need another version "
                    "of its library."
                ) from error
        if not self.is_experiment:
            store_measured(self.name, self.revision, length.to_stored_part(self.added_tokens))
        return length


def load_embedder(name: str) -> ReadPart | MTEBModels:
    """Load a model, or return an endpoint's stored window, measuring it first if necessary."""
    endpoint = find_endpoint(name)
    if endpoint is None or RERANKER_NAME.fullmatch(endpoint.model):
        from posir_tasks.models.registry import load_model

        with track(f"Loading {name}"):
            return load_model(ModelReference(name))
    read_part = read_measured(endpoint.name, endpoint.revision)
    if read_part:
        return read_part
    model = MeasuredModel.connect(endpoint)
    return model.measure().to_stored_part(model.added_tokens)


def count_special_tokens(encode: DocumentEncoder, limit: int, *, rejects: bool) -> int | None:
    """Confirm a reported limit and return the number of special tokens, or None if it is wrong.

    The limit is correct if the words before it change the embedding and the words after it do not,
    or, for a server that rejects long texts, if it accepts exactly the texts up to the limit.
    Frequent words must be single tokens.
    """
    size = round(limit * CLAIM_FACTOR)
    probe = ModelProbe(encode, lambda: None)
    document = TextSource((), None).build(size, 0)
    cuts = [limit - special for special in range(MAX_SPECIAL + 2)]
    if cuts[-1] < 1:
        return None
    if not rejects:
        with suppress(PosirError):
            ratios = probe.compare(document, [(cut, size) for cut in cuts], variants=1)
            first = next((number for number, ratio in enumerate(ratios) if ratio > 1), 0)
            return first - 1 if first else None
    sizes = range(limit + 1, cuts[-1], -1)
    first = bisect_left(sizes, True, key=lambda cut: probe.accepts(document.prefix(cut)))
    return first - 1 if 0 < first < len(sizes) else None
