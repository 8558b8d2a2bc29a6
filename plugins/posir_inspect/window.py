"""The part of a text that a model reads, against the number of tokens that it claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.models import EncoderProtocol
from mteb.types import PromptType

from posir_significance.intervals import TAILS
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.progress import track
from posir_tasks.display.tables import DisplaySection
from posir_tasks.embeddings.encoding import ModelEncoder
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.host.private_names import MODEL_REGISTRY
from posir_tasks.models.endpoint_models import EndpointEncoder
from posir_tasks.models.prompts import find_prompt
from posir_tasks.models.reading_length import Bounds, ReadingLength, measure_reading_length
from posir_tasks.models.references import portable_name, resolve_bare_name
from posir_tasks.models.window import NO_LIMIT, find_cut, keep_measured
from posir_tasks.read_part import BYTES_PER_TOKEN, Part, ReadKind, ReadPart
from posir_tasks.scores import Estimate
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.text.words import count_words

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: Estimated numbers of tokens are off by at most this factor.
ESTIMATE_FACTOR = 1.5
#: The same for frequent words, most of which are a token each.
SYNTHETIC_FACTOR = 1.1
#: Bootstrap samples of texts, and seed of the random numbers.
DRAWS, SEED = 2000, 14


@dataclass(frozen=True)
class UnreadShare:
    """The share of the texts that a model never reads."""

    share: Estimate
    """Share of all tokens, words or characters of the texts, in [0, 1]; its interval is by bootstrap over texts."""
    texts_cut: int


@dataclass(frozen=True, repr=False)
class WindowReading(Presentable):
    """The part of a text that a model reads, measured from its embeddings alone."""

    model: str
    revision: str | None
    reading: ReadingLength
    """Length of the text, without special tokens and prompt."""
    special_tokens: int | None
    """Special tokens of a text; None if the tokenizer is unknown."""
    prompt_tokens: int
    """Tokens of the model's prompt for documents, which are read with every text."""
    claimed_tokens: int | None
    """Tokens that it claims to read, special ones included; None if it claims nothing."""
    claimed_by: str
    """Name of the model that claims it: for an endpoint, the registered model of the same name."""
    required: int | None = None

    @property
    def title(self) -> str:
        """Subject in a few words."""
        return self.model

    @property
    def tokens(self) -> Bounds:
        """Tokens that the model reads, special tokens and prompt included; an estimate if the tokenizer is unknown."""
        return self._count(self.reading)

    @property
    def tokens_from_start(self) -> Bounds:
        """Tokens that it reads from the start of a text on without a gap, counted as `tokens`; 0 if it skips the start."""
        return self._count(self.reading.from_start) if self.reading.from_start else Bounds(0, 0)

    def _count(self, reading: ReadingLength) -> Bounds:
        if reading.tokens is None or self.special_tokens is None:
            return reading.estimated_tokens
        added = self.special_tokens + self.prompt_tokens
        return Bounds(reading.tokens.low + added, reading.tokens.high + added)

    @property
    def read_part(self) -> ReadPart:
        """The part of a text that is read, as results store it; the upper bound where the number is not known exactly."""
        return self.reading.read_part((self.special_tokens or 0) + self.prompt_tokens)

    @property
    def text_tokens(self) -> int:
        """Tokens of a text that are read, without special tokens and prompt, at least."""
        return (self.reading.tokens or self.reading.estimated_tokens).low

    @property
    def characters_of_english(self) -> int:
        """Characters of English text that are read, at least: four a token, unless the limit is in characters."""
        return self.reading.characters.low if self.reading.unit == "characters" else self.text_tokens * BYTES_PER_TOKEN

    @property
    def exit_status(self) -> int:
        """1 if the model reads less than is required."""
        return int(self.enough is False)

    @property
    def enough(self) -> bool | None:
        """Whether the model certainly reads what is required, from the start on without a gap; None if nothing is."""
        return None if self.required is None else self.tokens_from_start.low >= self.required

    @property
    def sentence(self) -> str:
        """A sentence on the part that the model reads, and how that compares with what it claims."""
        reading, claimant, known = self.reading, self.claimed_by, self.special_tokens is not None
        at_start, total, unit, factor, about, parts = reading.at_start, self.tokens, "tokens", 1.0, "", ""
        if known:
            start = self._count(at_start) if at_start and at_start.tokens else None
            special = f", {self.special_tokens} of them special" if self.special_tokens else ""
            parts = special + (f", {self.prompt_tokens} of its prompt" if self.prompt_tokens else "")
        else:
            total, unit = reading.bounds, reading.unit
            start = at_start.in_unit(unit) if at_start else None
            factor = SYNTHETIC_FACTOR if reading.synthetic else ESTIMATE_FACTOR
            about = f" (about {_describe_bounds(self.tokens)} tokens)"
            if not reading.synthetic:
                about = f" (about {self.tokens.high:,} tokens, estimated)"
            elif unit == "words":
                about = " of frequent English words, about a token each"
        lead = {None: "at least", Part.SAMPLES: "samples of"}.get(reading.part, f"the {reading.part}")
        length = f"{lead} {_describe_bounds(total)} {unit}"
        if reading.part is Part.ENDS and start is not None:
            tail = Bounds(total.low - start.low, total.high - start.high)
            length = f"the first {_describe_bounds(start)} and the last {_describe_bounds(tail)} {unit}"
        if reading.complete:
            claimed = f"; {claimant} claims {self.claimed_tokens:,} tokens" if self.claimed_tokens else ""
            return f"It reads {length} of a text{about}{parts}, as many as were tried{claimed}."
        rest = "refuses longer texts" if reading.refusal else "ignores the rest without an error"
        if self.claimed_tokens is None:
            return f"It reads {length} of a text{about}{parts}, and {rest}; it claims no length."
        claimed = f"{self.claimed_tokens:,} tokens that {claimant} claims"
        if self.tokens.high * factor < self.claimed_tokens:
            if known:
                return f"It reads only {length.removesuffix(' tokens')} of the {claimed}{parts}, and {rest}."
            claimed = f"{claimant} claims {self.claimed_tokens:,} tokens"
            return f"It reads only {length} of a text{about}, and {rest}, although {claimed}."
        comparison = f"more than the {claimed}" if self.tokens.low > self.claimed_tokens * factor else "as it claims"
        return f"It reads {length} of a text{about}{parts}, {comparison}, and {rest}."

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the findings."""
        return (DisplaySection(self.title, (self.sentence, *self._describe_unread())),)

    def records(self) -> tuple[dict[str, Any], ...]:
        """Return one row."""
        reading, tokens = self.reading, self.tokens
        row = {
            "model": self.model,
            "revision": self.revision,
            "part": reading.part or ReadKind.ALL,
            "tokens": tokens.low,
            "tokens_high": None if reading.complete else tokens.high,
            "tokens_from_start": self.tokens_from_start.low,
            "tokens_estimated": self.special_tokens is None,
            "special_tokens": self.special_tokens,
            "prompt_tokens": self.prompt_tokens,
            "content_tokens": self.text_tokens,
            "characters_of_english": self.characters_of_english,
            "unit": reading.unit,
            "claimed_tokens": self.claimed_tokens,
            "claimed_by": self.claimed_by,
            "reads_all_tried": reading.complete,
            "refusal": reading.refusal,
            "required": self.required,
            "enough": self.enough,
        }
        return (row,)

    def document(self) -> dict[str, Any]:
        """Return the row, the sentence and the part that is read of the texts of the measurement, in words and characters."""
        (row,) = self.records()
        tried = {"documents": self.reading.documents, "synthetic": self.reading.synthetic}
        lengths = {"words_read": self.reading.words, "characters_read": self.reading.characters}
        return {**row, "sentence": self.sentence, "measured_on": tried | lengths}

    def _describe_unread(self) -> Iterator[str]:
        reading, english = self.reading, f"{self.characters_of_english:,} characters of English text"
        places = {
            Part.FIRST: f"What follows about the first {english}",
            Part.LAST: f"What precedes about the last {english}",
            Part.ENDS: "What is between these",
        }
        if reading.refusal:
            yield f"The error for longer ones: {reading.refusal}."
        elif reading.part is not None:
            yield f"{places.get(reading.part, 'The rest')} does not change its embedding."
        if self.required is None:
            return
        read, needed = self.tokens_from_start, f"{self.required:,} tokens are required"
        verb = "This is" if self.enough else "This is not" if read.high < self.required else "This may not be"
        if reading.part in (None, Part.FIRST):
            yield f"{verb} enough: {needed}."
        else:
            number = (
                f"of which only {_describe_bounds(read)} are read" if read.high else "and the start of a long text is not read"
            )
            yield f"{verb} enough: {needed} from the start without a gap, {number}."


def measure_window(
    encoder: ModelEncoder,
    tokenizer: ModelTokenizer | None,
    texts: Sequence[str] = (),
    *,
    required: int | None = None,
    max_tokens: int | None = None,
) -> WindowReading:
    """Measure which part of a text a model reads; raise PosirError if it cannot encode short texts.

    Documents are put together from the texts, by default from frequent English words. At least the tokens that are required
    are tried, at most `max_tokens`: by default a quarter more than the model claims, at most 32,768.
    """
    model, (claimed, claimant) = encoder.model, find_claim(encoder.model)
    prompt = find_prompt(model, encoder.context.task_metadata, PromptType.document)
    prompt_tokens = tokenizer.count(prompt.text) if tokenizer and prompt and prompt.text else 0
    # A server may fail for every text that is too long.
    with measure(model, retries=0), track("Finding how far the model reads") as advance:
        try:
            reading = measure_reading_length(
                encoder,
                texts,
                tokenizer.count if tokenizer else None,
                claimed_tokens=claimed,
                special_tokens=tokenizer.special_tokens + prompt_tokens if tokenizer else 0,
                required_tokens=required or 0,
                max_tokens=max_tokens,
                advance=advance,
            )
        except PosirError:
            raise
        except Exception as error:  # the model's own code
            raise PosirError(
                f"{model.mteb_model_meta.name}: the model cannot encode even a short text ({summarize_error(error)}). Its "
                "files are damaged, or need another version of its library."
            ) from error
    special_tokens = tokenizer.special_tokens if tokenizer else None
    meta = model.mteb_model_meta
    measured = WindowReading(str(meta.name), meta.revision, reading, special_tokens, prompt_tokens, claimed, claimant, required)
    # That a text was read as a whole says nothing of longer ones, and settings of a run are none of the model.
    if not reading.complete and not meta.experiment_kwargs:
        keep_measured(meta, measured.read_part)
    return measured


def measure_unread(texts: Sequence[str], reading: ReadingLength, tokenizer: ModelTokenizer | None) -> UnreadShare:
    """Return the share of the texts beyond the reading length, in its unit."""
    counters: dict[str, Callable[[str], int]] = {"words": count_words, "characters": len}
    count = tokenizer.count if tokenizer and reading.unit == "tokens" else counters[reading.unit]
    lengths = np.array([count(text.strip()) for text in texts], np.float64)
    unread = np.zeros(len(texts)) if reading.complete else np.maximum(0.0, lengths - reading.bounds.high)
    rng = np.random.default_rng(SEED)
    draws = rng.multinomial(len(texts), np.full(len(texts), 1 / len(texts)), DRAWS) @ np.stack([unread, lengths], axis=1)
    low, high = np.quantile(draws[:, 0] / draws[:, 1], TAILS).tolist()
    return UnreadShare(Estimate(float(unread.sum() / lengths.sum()), (low, high)), int((unread > 0).sum()))


def measure(model: EncoderProtocol, retries: int | None = None) -> AbstractContextManager[None]:
    """Return a context in which a server's truncation is not warned of, since it is measured; see `EndpointEncoder.measure`."""
    return model.measure(retries) if isinstance(model, EndpointEncoder) else nullcontext()


def find_claim(model: MTEBModels) -> tuple[int | None, str]:
    """Return how many tokens the metadata of a model claims, and its name; of an endpoint, that of its registered model."""
    meta = model.mteb_model_meta
    if getattr(meta.loader, "__name__", "") == EndpointEncoder.__name__:
        registered, name = MODEL_REGISTRY.resolve(), portable_name(meta).partition("@http")[0]
        registration = dict.get(registered, name) or resolve_bare_name(name, registered)
        return (_finite(registration.max_tokens), str(registration.name)) if registration else (None, str(meta.name))
    cut = find_cut(model)
    return _finite(meta.max_tokens) or (cut.tokens if cut else None), str(meta.name)


def _finite(tokens: float | None) -> int | None:
    return int(tokens) if tokens and tokens < NO_LIMIT else None


def _describe_bounds(bounds: Bounds) -> str:
    return f"{bounds.low:,}" if bounds.exact else f"{bounds.low:,} to {bounds.high:,}"
