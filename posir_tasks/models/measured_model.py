"""Models whose window is measured. Endpoints need neither mteb nor PyTorch."""

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
    RERANKER,
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
#: Number of words beyond the longest window, so that a text is certainly truncated.
BEYOND = 64
#: Maximum number of requests to verify a window that the server reports.
VERIFIED_REQUESTS = 5
#: Texts per request, including two unchanged texts.
TEXTS = CHANGES + 2


@dataclass
class RememberingEncoder:
    """Encodes documents and caches the vector or the error of single texts. Texts that start with a
    rejected text are not sent.
    """

    encode: DocumentEncoder
    seconds_per_word: float = 0.0
    """Seconds per word of the slowest request so far."""
    answers: dict[str, NDArray[Any] | Exception] = field(default_factory=dict)

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return the embeddings of texts, shape (n, dimensions), or raise the error of a rejected
        text.
        """
        for sent_text, answer in self.answers.items():
            if not isinstance(answer, Exception):
                if texts == [sent_text]:
                    return answer
            elif any(text.startswith(sent_text) for text in texts):
                raise answer
        start = time.perf_counter()
        try:
            vectors = self.encode(texts)
        except Exception as error:
            if len(texts) == 1:
                self.answers[texts[0]] = error
            raise
        speed = (time.perf_counter() - start) / max(1, sum(map(count_words, texts)))
        self.seconds_per_word = max(self.seconds_per_word, speed)
        self.answers[texts[0]] = vectors[:1]
        return vectors


@dataclass(frozen=True)
class MeasuredModel:
    """A model under measurement: its encoder and the limits that it claims."""

    name: str
    revision: str | None
    encode: DocumentEncoder
    measuring: Callable[[], AbstractContextManager[None]]
    """Creates a context in which overlong texts fail at once, without retries."""
    count_tokens: TokenCounter | None = None
    special_tokens: int | None = None
    prompt_tokens: int = 0
    claimed_tokens: int | None = None
    claimed_by: str = ""
    tokenizer: ModelTokenizer | None = None
    """None if unknown."""
    is_experiment: bool = False
    """If true, run settings are applied, and the result is not the model's default window."""
    is_reranker: bool = False
    """If true, scores with a fixed question replace embeddings."""
    seconds_per_word: float = 0.0
    """Seconds that a server takes per word; 0 if unknown."""

    @classmethod
    def connect(
        cls,
        endpoint: Endpoint,
        tokenizer: ModelTokenizer | None = None,
        longest: int = MAX_TOKENS,
        *,
        retries: int | None = None,
    ) -> MeasuredModel:
        """Connect to a model behind an endpoint, and find its window from the server's report or
        token counts.

        `retries` limits the retries of failed requests; by default, the usual limit applies.
        """
        client = EmbeddingClient(endpoint, retries)
        measuring = partial(client.measure, retries=0)
        encode = RememberingEncoder(client.embed)
        seconds_per_word = 0.0
        with measuring():
            claim, refuses = client.read_limit()
            limit = claim
            if client.kind.tokens or limit is None:
                sizes = [words for words in COUNTED_WORDS if words < longest]
                source = TextSource((), None)
                counted_limit, refuses, seconds_per_word = client.count_read(
                    source.build(words, 0).prefix(words) for words in [*sizes, longest + BEYOND]
                )
                limit = counted_limit or limit
            special = find_special_tokens(encode, limit, refuses=refuses) if limit else None
        count: TokenCounter | None = None
        if special is not None:
            # The window was confirmed, which also shows that frequent words are single tokens.
            claim = limit
            count = count_words
        if tokenizer:
            count = tokenizer.count
            special = tokenizer.special_tokens
        return cls(
            endpoint.name,
            endpoint.revision,
            encode,
            measuring,
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
        """Measure which part of a text the model reads, and store it.

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
        # In frequent words with a known tokenizer, pieces are tokens.
        if claimed and self.count_tokens and not texts and self.added_tokens < claimed < limit:
            claim = claimed - self.added_tokens
        description = "Measuring the model's window"
        requests = None
        if self.seconds_per_word:
            requests = VERIFIED_REQUESTS if claimed and self.count_tokens else MAX_REQUESTS
            words = TEXTS * (claimed or limit)
            seconds = format_seconds(requests * words * self.seconds_per_word)
            description += f" (at most {requests} requests, up to about {seconds})"
        with self.measuring(), track(description, requests) as advance:
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
            store_measured(self.name, self.revision, length.stored_part(self.added_tokens))
        return length


def load_embedder(name: str) -> ReadPart | MTEBModels:
    """Load a model, or return an endpoint's window. The window is measured unless a measurement is
    stored for the revision.
    """
    endpoint = find_endpoint(name)
    if endpoint is None or RERANKER.fullmatch(endpoint.model):
        from posir_tasks.models.registry import load_model

        with track(f"Loading {name}"):
            return load_model(ModelReference(name))
    read_part = read_measured(endpoint.name, endpoint.revision)
    if read_part:
        return read_part
    model = MeasuredModel.connect(endpoint)
    return model.measure().stored_part(model.added_tokens)


def find_special_tokens(encode: DocumentEncoder, limit: int, *, refuses: bool) -> int | None:
    """Return the number of special tokens if the reported limit is confirmed, or None.

    The limit is confirmed if words before it change the embedding and words after it do not; or, if
    the server rejects long texts, if a text up to the limit is accepted and a longer one is not.
    Frequent words must be single tokens.
    """
    size = round(limit * CLAIM_FACTOR)
    probe = ModelProbe(encode, lambda: None)
    document = TextSource((), None).build(size, 0)
    cuts = [limit - special for special in range(MAX_SPECIAL + 2)]
    if cuts[-1] < 1:
        return None
    if not refuses:
        with suppress(PosirError):
            ratios = probe.compare(document, [(cut, size) for cut in cuts], variants=1)
            first = next((number for number, ratio in enumerate(ratios) if ratio > 1), 0)
            return first - 1 if first else None
    sizes = range(limit + 1, cuts[-1], -1)
    first = bisect_left(sizes, True, key=lambda cut: probe.accepts(document.prefix(cut)))
    return first - 1 if 0 < first < len(sizes) else None
