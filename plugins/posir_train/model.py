"""The model that is trained: how it pools, and what it reads of a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelCard

from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.models.folder import is_model_folder, name_folder
from posir_tasks.models.landmarks import (
    VARIED_SIZES,
    LandmarkPooling,
    LandmarkSettings,
    add_landmarks,
    find_text_window,
    window_for,
)
from posir_tasks.models.prompts import DOCUMENT_PROMPTS
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.text.tokenizer import ModelTokenizer
from posir_train.composing import TokenizedExample, tokenize_examples
from posir_train.examples import Examples
from posir_train.settings import Pooling, TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: Types of models whose positions begin after the id of the padding token.
ROBERTA = ("roberta", "xlm-roberta", "camembert")


def load_base(settings: TrainingSettings) -> SentenceTransformer:
    """Load the model to train, with the changes that the settings ask for.

    Raises:
        PosirError: There is no such model, it is none that sentence-transformers can train, or it has no such window.
    """
    from sentence_transformers import SentenceTransformer

    name = settings.model
    wrapper = load_model(ModelReference(name, settings.revision))
    loaded = getattr(wrapper, "model", None)
    if type(loaded) is not SentenceTransformer:
        raise PosirError(f"{name}: not a dense model of sentence-transformers, which alone can be trained.")
    if settings.window is not None:
        _set_window(loaded, settings.window, name)
    if settings.pooling is not None:
        _set_pooling(loaded, settings, settings.pooling)
    if settings.query_prompt is not None:
        loaded.prompts["query"] = settings.query_prompt
    folder = Path(name).expanduser()
    loaded.model_card_data.base_model = find_base(folder) if is_model_folder(folder) else wrapper.mteb_model_meta.name
    return loaded


def find_base(folder: Path) -> str:
    """Return what the model in a folder was made from, by its card; if that does not say, the model's own name."""
    try:
        stated = ModelCard.load(folder / "README.md", ignore_metadata_errors=True).data.base_model
    except Exception:  # there is no card, or a mistake in it, which is no reason not to train the model
        stated = None
    named = stated[0] if isinstance(stated, list) and stated else stated
    return named if isinstance(named, str) and named else name_folder(folder)


def _set_pooling(model: SentenceTransformer, settings: TrainingSettings, pooling: Pooling) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

    modules = [module for module in model if isinstance(module, PoolingModule)]
    landmarks = pooling is Pooling.LANDMARK
    exchanged = len(modules) == 1 and isinstance(modules[0].pooling_mode, str)
    if not exchanged or (isinstance(modules[0], LandmarkPooling) and not landmarks):
        raise PosirError(f"{settings.model}: its pooling cannot be exchanged. Train it without --pooling.")
    if landmarks:
        _set_landmarks(model, settings)
    else:
        modules[0].pooling_mode = pooling.value


def _set_landmarks(model: SentenceTransformer, settings: TrainingSettings) -> None:
    """Let a model pool landmarks (arXiv 2601.21525)."""
    tokens, window = settings.landmark_tokens, model.max_seq_length
    made = LandmarkSettings(varied_sizes=VARIED_SIZES) if tokens == "var" else LandmarkSettings(tokens)
    if window is not None and made.size + 2 > window:
        raise PosirError(
            f"landmark_tokens {tokens}: the first landmark, after {made.size} tokens, is beyond the window of {window}. Choose "
            f"{window - 2} at most, or a larger window."
        )
    landmarked = add_landmarks(model, made)
    for place in (0, 1):
        model[place] = landmarked[place]


def _set_window(model: SentenceTransformer, window: int, name: str) -> None:
    longest = longest_window(model)
    if longest is not None and window > longest:
        raise PosirError(f"window {window}: {name} reads {longest} tokens at most. Choose a smaller one, or another model.")
    model.max_seq_length = window


def longest_window(model: SentenceTransformer) -> int | None:
    """Return the most tokens that a model can read by its position embeddings; None if there is no limit."""
    config: Any = getattr(model[0], "config", None)
    limit = getattr(config, "max_position_embeddings", None)
    if not isinstance(limit, int):
        return None
    # RoBERTa counts positions from the id of the padding token.
    return limit - config.pad_token_id - 1 if config.model_type in ROBERTA else limit


@dataclass(frozen=True)
class ModelReader:
    """Finds the part of a document that a model reads."""

    tokens: ModelTokenizer
    window: int | None
    longest: int | None
    extra: int
    """Special tokens, and those of the prompt."""
    find_window: Callable[[int], int] = int
    """Returns the window in which so many tokens are read, special ones at the ends included: larger if it has landmarks."""

    @classmethod
    def of_model(cls, model: SentenceTransformer, name: str) -> ModelReader:
        """Return the reader of a model; PosirError if its tokenizer does not say where tokens are."""
        tokenizer = ModelTokenizer(model.tokenizer)
        if not tokenizer.locates_tokens:
            raise PosirError(
                f"{name}: its tokenizer does not say where its tokens are in a text. Choose a model with a fast one."
            )
        prompt = next((model.prompts[name] for name in DOCUMENT_PROMPTS if model.prompts.get(name)), "")
        extra = tokenizer.special_tokens + (tokenizer.count(prompt) if prompt else 0)
        return cls(tokenizer, find_text_window(model), longest_window(model), extra, partial(window_for, model))

    def tokenize(self, data: Examples) -> list[TokenizedExample]:
        """Return the examples with the tokens of their documents."""
        return tokenize_examples(data, self.tokens)

    def count(self, source: TokenizedExample) -> int:
        """Return how many tokens of its document the model reads, special ones and prompt included."""
        length = len(source.tokens) + self.extra
        return length if self.window is None else min(length, self.window)

    def reads_evidence(self, source: TokenizedExample) -> bool:
        """Return whether the window has all of the evidence."""
        return self.window is None or source.last + self.extra <= self.window

    def refuse_beyond(self, sources: Sequence[TokenizedExample], name: str) -> None:
        """Raise PosirError if the model does not read the evidence of some questions; it says how many, and what to do."""
        beyond = [source for source in sources if not self.reads_evidence(source)]
        if not beyond:
            return
        needed = self.find_window(max(source.last for source in beyond) + self.extra)
        advice = f"Give --set window={needed}"
        if self.longest is not None and needed > self.longest:
            advice = f"They need one of {needed:,}, and the model reads {self.longest:,} at most: train another model"
        raise PosirError(
            f"{name}: the evidence of {len(beyond):,} of {pluralize(len(sources), 'question')} is beyond the model's window of "
            f"{self.window:,} tokens, where it cannot learn to find it. {advice}, leave these questions out with "
            "--set drop_beyond=true, or cut windows with `posir compose`."
        )
