"""The number of tokens that a model reads, against the number that it claims."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from mteb.models import EncoderProtocol
from mteb.types import PromptType

from posir_inspect.claims import Claim, describe_reading, find_claim
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.progress import track
from posir_tasks.display.sections import DisplaySection
from posir_tasks.embeddings.encoding import ModelEncoder
from posir_tasks.models.endpoint_encoder import EndpointEncoder
from posir_tasks.models.prompts import find_prompt
from posir_tasks.models.reading_length import Bounds, ReadingLength, measure_reading_length
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.tokens import BYTES_PER_TOKEN


@dataclass(frozen=True, repr=False)
class WindowReading(Presentable):
    """The length of text that a model reads, measured from its embeddings alone."""

    model: str
    revision: str | None
    reading: ReadingLength
    """Length of the text, without special tokens and prompt."""
    special_tokens: int | None
    """Special tokens of a text; None if the tokenizer is unknown."""
    prompt_tokens: int
    """Tokens of the model's prompt for documents, which are read with every text."""
    claim: Claim
    required: int | None = None
    """Tokens that it should read; None if none are required."""

    @property
    def title(self) -> str:
        """Subject in a few words."""
        return self.model

    @property
    def tokens(self) -> Bounds:
        """Tokens that the model reads, special tokens and prompt included; an estimate if the tokenizer is unknown."""
        if self.reading.tokens is None or self.special_tokens is None:
            return self.reading.estimated_tokens
        added = self.special_tokens + self.prompt_tokens
        return Bounds(self.reading.tokens.low + added, self.reading.tokens.high + added)

    @property
    def text_tokens(self) -> int:
        """Tokens of a text that are read, without special tokens and prompt, at least."""
        return (self.reading.tokens or self.reading.estimated_tokens).low

    @property
    def characters_of_english(self) -> int:
        """Characters of English text that are read, at least: four a token, unless the limit is in characters."""
        return self.reading.characters.low if self.reading.unit == "characters" else self.text_tokens * BYTES_PER_TOKEN

    @property
    def enough(self) -> bool | None:
        """Whether the model certainly reads what is required; None if nothing is."""
        return None if self.required is None else self.tokens.low >= self.required

    @property
    def sentence(self) -> str:
        """A sentence on how far the model reads, and how that compares with what it claims."""
        return describe_reading(self.reading, self.tokens, self.claim, self.special_tokens, self.prompt_tokens)

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the findings."""
        sentences = [self.sentence, *self._describe_landmarks(), *self._describe_unread(), *self._describe_requirement()]
        return (DisplaySection(self.title, tuple(sentences)),)

    def records(self) -> tuple[dict[str, Any], ...]:
        """Return one row."""
        reading, tokens = self.reading, self.tokens
        row = {
            "model": self.model,
            "revision": self.revision,
            "tokens": tokens.low,
            "tokens_high": None if reading.complete else tokens.high,
            "tokens_estimated": self.special_tokens is None,
            "special_tokens": self.special_tokens,
            "prompt_tokens": self.prompt_tokens,
            "content_tokens": self.text_tokens,
            "characters_of_english": self.characters_of_english,
            "unit": reading.unit,
            "claimed_tokens": self.claim.tokens,
            "claimed_by": self.claim.model,
            "reads_all_tried": reading.complete,
            "refusal": reading.refusal,
            "required": self.required,
            "enough": self.enough,
        }
        return (row,)

    def document(self) -> dict[str, Any]:
        """Return the row, the sentence and the part that is read of the texts of the measurement, in words and characters."""
        (row,) = self.records()
        reading = self.reading
        tried = {
            "documents": reading.documents,
            "synthetic": reading.synthetic,
            "words_read": reading.words,
            "characters_read": reading.characters,
        }
        return {**row, "sentence": self.sentence, "measured_on": tried}

    def _describe_landmarks(self) -> list[str]:
        room, tokens = self.claim.landmark_room, self.claim.tokens
        if not room or not tokens:
            return []
        return [f"Its window of {tokens + room:,} tokens holds {room:,} less of a long text for its landmarks."]

    def _describe_unread(self) -> list[str]:
        reading = self.reading
        if reading.refusal:
            return [f"The error for longer ones: {reading.refusal}."]
        if reading.complete:
            return []
        characters = f"{self.characters_of_english:,} characters of English text"
        return [f"What follows about the first {characters} does not change its embedding."]

    def _describe_requirement(self) -> list[str]:
        if self.required is None:
            return []
        verb = "This is" if self.enough else "This is not" if self.tokens.high < self.required else "This may not be"
        return [f"{verb} enough: {self.required:,} tokens are required."]


def measure_window(
    encoder: ModelEncoder,
    tokenizer: ModelTokenizer | None,
    texts: Sequence[str] = (),
    *,
    required: int | None = None,
    max_tokens: int | None = None,
) -> WindowReading:
    """Measure how far a model reads.

    Args:
        encoder: The model.
        tokenizer: Its tokenizer, None if it is unknown.
        texts: Texts that documents are put together from; by default, frequent English words.
        required: Tokens that it should read; at least so many are tried. None if none are required.
        max_tokens: Longest text that is tried; by default a quarter more than the model claims, at most 32,768.
    """
    model, claim = encoder.model, find_claim(encoder.model)
    prompt_tokens = count_prompt(encoder, tokenizer)
    # A server may fail for every text that is too long.
    with measure(model, retries=0), track("Finding how far the model reads") as advance:
        reading = measure_reading_length(
            encoder,
            texts,
            tokenizer.count if tokenizer else None,
            claimed_tokens=claim.tokens,
            special_tokens=tokenizer.special_tokens + prompt_tokens if tokenizer else 0,
            required_tokens=required or 0,
            max_tokens=max_tokens,
            advance=advance,
        )
    special_tokens = tokenizer.special_tokens if tokenizer else None
    return WindowReading(*identify(model), reading, special_tokens, prompt_tokens, claim, required)


def measure(model: EncoderProtocol, retries: int | None = None) -> AbstractContextManager[None]:
    """Return a context in which a server's truncation is not warned of, since it is measured; see `EndpointEncoder.measure`."""
    return model.measure(retries) if isinstance(model, EndpointEncoder) else nullcontext()


def identify(model: EncoderProtocol) -> tuple[str, str | None]:
    """Return the name and the revision of a model."""
    return str(model.mteb_model_meta.name), model.mteb_model_meta.revision


def count_prompt(encoder: ModelEncoder, tokenizer: ModelTokenizer | None) -> int:
    """Return the tokens of a model's prompt for documents; 0 if there is none, or the prompt or tokenizer is unknown."""
    prompt = find_prompt(encoder.model, encoder.context.task_metadata, PromptType.document)
    return tokenizer.count(prompt.text) if tokenizer and prompt and prompt.text else 0
