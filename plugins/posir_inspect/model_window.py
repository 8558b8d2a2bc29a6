"""The claimed window of a model, and the share of a user's texts beyond the measured window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from datasets import disable_progress_bars
from mteb.models import EncoderProtocol
from mteb.types import PromptType

from posir_tasks.base.private_names import MODEL_REGISTRY
from posir_tasks.models.embeddings.context import build_texts
from posir_tasks.models.embeddings.encoding import ModelEncoder
from posir_tasks.models.endpoint_models import EndpointEncoder
from posir_tasks.models.loaded_model import read_ids
from posir_tasks.models.measured_model import MeasuredModel
from posir_tasks.models.prompts import find_prompt
from posir_tasks.models.reading_length import ReadingLength
from posir_tasks.models.references import find_endpoint, get_portable_reference, resolve_bare_name
from posir_tasks.models.rerankers import build_scorer
from posir_tasks.models.window import NO_LIMIT, find_window
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_tasks.text.words import count_words
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import TAILS

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: Number of bootstrap samples of the texts.
BOOTSTRAP_SAMPLES = 2000
SEED = 14
#: Question for measuring rerankers. It is unrelated to the texts, because the scores of relevant
#: texts are all close to 1 and hardly differ.
QUESTION = "which enzyme"
#: Text for counting the special tokens of a reranker.
TEXT = "the"
LANGUAGE = "eng-Latn"


@dataclass(frozen=True)
class UnreadShare:
    """The share of a set of texts that is beyond the window."""

    share: Estimate
    """Share of all tokens, words or characters, in [0, 1], with a bootstrap interval over texts."""
    texts_cut: int
    """Number of texts that exceed the window."""
    by_text: tuple[float, ...] = ()
    """Unread share of each text, in [0, 1]."""


def describe_model(encoder: ModelEncoder, tokenizer: ModelTokenizer | None) -> MeasuredModel:
    """Describe an embedding model and the window that its metadata claims."""
    model = encoder.model
    prompt = find_prompt(model, encoder.context.task_metadata, PromptType.document)
    claimed_tokens, claimed_by = find_claimed_window(model)
    meta = model.mteb_model_meta
    return MeasuredModel(
        str(meta.name),
        meta.revision,
        partial(encoder, prompt_type=PromptType.document),
        partial(suppress_truncation_warnings, model, retries=0),
        tokenizer.count if tokenizer else None,
        tokenizer.special_tokens if tokenizer else None,
        tokenizer.count(prompt.text) if tokenizer and prompt and prompt.text else 0,
        claimed_tokens,
        claimed_by,
        tokenizer,
        is_experiment=bool(meta.experiment_kwargs),
    )


def describe_reranker(model: MTEBModels, tokenizer: ModelTokenizer | None) -> MeasuredModel:
    """Describe a reranker. The score of a text for a fixed question is used as its embedding."""
    score = build_scorer(model, [QUESTION], LANGUAGE)
    claimed_tokens, claimed_by = find_claimed_window(model)
    meta = model.mteb_model_meta
    disable_progress_bars()
    special_tokens = None
    if tokenizer:
        special_tokens = tokenizer.tokenizer.num_special_tokens_to_add(pair=True)
        # The template of a language model also adds tokens.
        ids = read_ids(model, build_texts([QUESTION]), build_texts([TEXT]))
        if ids:
            special_tokens = len(ids) - tokenizer.count(QUESTION) - tokenizer.count(TEXT)
    return MeasuredModel(
        str(meta.name),
        meta.revision,
        lambda texts: score([(QUESTION, text) for text in texts])[:, None],
        nullcontext,
        tokenizer.count if tokenizer else None,
        special_tokens,
        tokenizer.count(QUESTION) if tokenizer else 0,
        claimed_tokens,
        claimed_by,
        tokenizer,
        is_experiment=bool(meta.experiment_kwargs),
        is_reranker=True,
    )


def measure_unread(
    texts: Sequence[str], reading: ReadingLength, tokenizer: ModelTokenizer | None
) -> UnreadShare:
    """Measure the share of texts beyond the window, in tokens, words or characters."""
    count: Callable[[str], int] = count_words if reading.unit == "words" else len
    if tokenizer and reading.unit == "tokens":
        count = tokenizer.count
    lengths = np.array([count(text.strip()) for text in texts], np.float64)
    limit = np.inf if reading.is_complete else reading.bounds.high
    unread_lengths = np.maximum(0.0, lengths - limit)
    rng = np.random.default_rng(SEED)
    weights = rng.multinomial(len(texts), np.full(len(texts), 1 / len(texts)), BOOTSTRAP_SAMPLES)
    low, high = np.quantile(weights @ unread_lengths / (weights @ lengths), TAILS).tolist()
    return UnreadShare(
        Estimate(float(unread_lengths.sum() / lengths.sum()), (low, high)),
        int((unread_lengths > 0).sum()),
        tuple((unread_lengths / lengths).tolist()),
    )


def suppress_truncation_warnings(
    model: EncoderProtocol, retries: int | None = None
) -> AbstractContextManager[None]:
    """Suppress an endpoint's truncation warnings. If `retries` is given, it limits retries, since a
    server may fail for overlong texts.
    """
    return model.open_measurement(retries) if isinstance(model, EndpointEncoder) else nullcontext()


def find_claimed_window(model: MTEBModels) -> tuple[int | None, str]:
    """Find the window that a model claims, in tokens, and the name of the claiming model.

    For an endpoint, this is the registered model with the same name.
    """
    meta = model.mteb_model_meta
    if not isinstance(model, EndpointEncoder):
        return _drop_infinite(meta.max_tokens) or find_window(model), str(meta.name)
    endpoint = find_endpoint(get_portable_reference(meta))
    assert endpoint is not None
    registry = MODEL_REGISTRY.resolve()
    registered_meta = dict.get(registry, endpoint.model)
    registered_meta = registered_meta or resolve_bare_name(endpoint.model, registry)
    if registered_meta is None:
        return None, str(meta.name)
    return _drop_infinite(registered_meta.max_tokens), str(registered_meta.name)


def _drop_infinite(tokens: float | None) -> int | None:
    return int(tokens) if tokens and tokens < NO_LIMIT else None
