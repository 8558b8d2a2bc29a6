"""Models by what they read: a model whose reading length is measured, and the embedder of a system
by name.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.progress import format_seconds, track
from posir_tasks.models.endpoint_client import COUNTED_WORDS, EmbeddingClient
from posir_tasks.models.measured_windows import keep_measured, read_measured
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
    RememberingEncoder,
    TextSource,
    TokenCounter,
)
from posir_tasks.models.references import (
    RERANKER,
    Endpoint,
    ModelReference,
    find_endpoint,
)
from posir_tasks.models.request_fields import find_request_fields
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.text.words import count_words
from posir_tasks.values.read_part import ReadPart

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

logger = logging.getLogger(__name__)

#: Maximum number of special tokens of a text.
MAX_SPECIAL = 3
#: What claims the limit that a server states.
SERVER = "the server"
#: Words beyond the longest window, by which a text is certainly cut.
BEYOND = 64
#: Most requests about a limit that is where the server says; texts in a request, of which two are
#: unchanged.
VERIFIED_REQUESTS = 5
TEXTS = CHANGES + 2


@dataclass(frozen=True)
class MeasuredModel:
    """A model whose reading length is measured: what encodes, and what is known of it before."""

    name: str
    revision: str | None
    encode: DocumentEncoder
    measuring: Callable[[], AbstractContextManager[None]]
    """Returns a context in which the model fails at once for a text that is too long."""
    count_tokens: TokenCounter | None = None
    special_tokens: int | None = None
    prompt_tokens: int = 0
    claimed_tokens: int | None = None
    claimed_by: str = ""
    tokenizer: ModelTokenizer | None = None
    """Counts the tokens of any text; None if it is unknown."""
    is_experiment: bool = False
    """Whether it has settings of a run, which are none of the model."""
    is_reranker: bool = False
    """Whether it reads a question before the text, whose score takes the place of the embedding."""
    seconds_per_word: float = 0.0
    """Seconds that a server takes for a word; 0 if that is unknown."""

    @classmethod
    def connect(
        cls,
        endpoint: Endpoint,
        tokenizer: ModelTokenizer | None = None,
        longest: int = MAX_TOKENS,
        *,
        retries: int | None = None,
    ) -> MeasuredModel:
        """Return a model behind an endpoint, with the limit that its server states and what the
        tokens of a text show of it.

        Neither mteb nor PyTorch is imported. Failed requests are repeated `retries` times, by
        default as ever.
        """
        client = EmbeddingClient(endpoint, find_request_fields(), retries)
        count, special = (tokenizer.count, tokenizer.special_tokens) if tokenizer else (None, None)
        encode = RememberingEncoder(client.embed)
        measuring = partial(client.measure, retries=0)
        with measuring():
            stated, refuses = client.read_limit()
            limit = stated
            speed = 0.0
            if client.kind.tokens or stated is None:
                sizes = [*(words for words in COUNTED_WORDS if words < longest), longest + BEYOND]
                source = TextSource((), None)
                counted = client.count_read(source.build(words, 0).prefix(words) for words in sizes)
                limit = counted.limit or stated
                refuses = counted.refuses
                speed = counted.seconds_per_word
            start = time.perf_counter()
            verified = find_special_tokens(encode, limit, refuses=refuses) if limit else None
            if limit and not speed:
                speed = (time.perf_counter() - start) / (TEXTS * limit)
            claimed = limit if verified is not None else stated
            if verified is not None and tokenizer is None:
                # Frequent words are a token each if the limit is where the server says.
                count = count_words
                special = verified
        return cls(
            endpoint.name,
            endpoint.revision,
            encode,
            measuring,
            count,
            special,
            0,
            claimed,
            SERVER,
            tokenizer,
            is_experiment=bool(client.fields.query or client.fields.passage),
            seconds_per_word=speed,
        )

    @property
    def added_tokens(self) -> int:
        """Special tokens and those of the prompt."""
        return (self.special_tokens or 0) + self.prompt_tokens

    def measure(
        self, texts: Sequence[str] = (), *, required: int = 0, max_tokens: int | None = None
    ) -> ReadingLength:
        """Measure which part of a text the model reads, and keep it; raise PosirError if it cannot
        encode short texts.

        Documents are put together from the texts, by default from frequent English words. At least
        the tokens that are required are tried, at most `max_tokens`: by default a quarter more than
        the model claims, at most 32,768.
        """
        description = (
            "Finding how far the model "
            f"reads{self._estimate_cost(max(required, max_tokens or MAX_TOKENS))}"
        )
        with self.measuring(), track(description) as advance:
            try:
                reading = measure_reading_length(
                    self.encode,
                    texts,
                    self.count_tokens,
                    claimed_tokens=self.claimed_tokens,
                    special_tokens=self.added_tokens,
                    required_tokens=required,
                    max_tokens=max_tokens,
                    advance=advance,
                )
            except PosirError:
                raise
            except Exception as error:  # the model's own code
                raise PosirError(
                    f"{self.name}: the model cannot encode even a short text "
                    f"({summarize_error(error)}). Its files are "
                    "damaged, or need another version of its library."
                ) from error
        if not self.is_experiment:
            keep_measured(self.name, self.revision, reading.stored_part(self.added_tokens))
        return reading

    def _estimate_cost(self, longest: int) -> str:
        """Return the most requests to a server, and the time that they take with texts of the
        claimed or longest length.
        """
        if not self.seconds_per_word:
            return ""
        is_verified = self.claimed_tokens is not None and self.count_tokens is not None
        requests = VERIFIED_REQUESTS if is_verified else MAX_REQUESTS
        seconds = requests * TEXTS * (self.claimed_tokens or longest) * self.seconds_per_word
        return f" (at most {MAX_REQUESTS} requests, up to about {format_seconds(seconds)})"


def load_embedder(name: str) -> ReadPart | MTEBModels:
    """Load a model; of an endpoint, return what it reads, which is measured unless that is known of
    its revision.
    """
    endpoint = find_endpoint(name)
    if endpoint is None or RERANKER.fullmatch(endpoint.model):
        from posir_tasks.models.registry import load_model

        with track(f"Loading {name}"):
            return load_model(ModelReference(name))
    if measured := read_measured(endpoint.name, endpoint.revision):
        return measured
    model = MeasuredModel.connect(endpoint)
    return model.measure().stored_part(model.added_tokens)


def find_special_tokens(
    encode: DocumentEncoder, limit: int, *, refuses: bool = False
) -> int | None:
    """Return the special tokens of a text if the limit is true, and frequent words are a token
    each; None if it is not so.

    The last words of the text before the limit change the embedding, and what follows does not; of
    a model that refuses longer texts, a text up to the limit is accepted, and one with a word more
    is not.
    """
    size = round(limit * CLAIM_FACTOR)
    probe = ModelProbe(encode, lambda: None)
    document = TextSource((), None).build(size, 0)
    cuts = [limit - special for special in range(MAX_SPECIAL + 2)]
    if cuts[-1] < 1:
        return None
    if not refuses:
        with suppress(PosirError):
            read = [
                ratio > 1
                for ratio in probe.compare(document, [(cut, size) for cut in cuts], variants=1)
            ]
            return read.index(True) - 1 if True in read[1:] and not read[0] else None
    tried = range(limit + 1, cuts[-1], -1)
    place = bisect_left(tried, True, key=lambda cut: probe.accepts(document.prefix(cut)))
    return place - 1 if 0 < place < len(tried) else None
