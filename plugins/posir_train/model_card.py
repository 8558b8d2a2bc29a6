"""The parts of the model card that are added to those of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from posir_tasks.display.wording import pluralize
from posir_tasks.files import atomic_write
from posir_tasks.models.landmarks import LandmarkTransformer
from posir_train.layout import list_tasks
from posir_train.settings import HELD_OUT, Objective

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from posir_train.settings import TrainingSettings
    from posir_train.training import TrainedModel

CARD_FILE, HEADING = "README.md", "## Position of the evidence"


def describe(settings: TrainingSettings, trained: TrainedModel) -> list[str]:
    """Return what a model was trained on and measured with, in sentences."""
    training, held_out = trained.data.training, trained.data.held_out
    tasks = " ".join(f"-t {name}" for name in list_tasks(trained.held_out))
    shares = ", ".join(f"{share:.2f}" for share in settings.weights.shares)
    sampled = (
        f"Positions in batches: {settings.positions} (begin, middle, end: {shares}), balanced within length bins; "
        f"{settings.loss}, scale {settings.scale:g}."
        if settings.objective is Objective.RETRIEVAL
        else f"Objective: {settings.objective.value}; positions of the evidence play no part in it."
    )
    return [
        f"Trained on {training.description}. {sampled} Batches of {settings.batch_size}, learning rate "
        f"{settings.learning_rate:g}, seed {settings.seed}; the weights are those of step {trained.steps:,}.",
        f"Measured with {pluralize(len(held_out.examples), 'question')} about {pluralize(len(held_out.articles), 'article')} "
        f"that were not trained on, searched in the whole corpus of {pluralize(len(held_out.corpus), 'document')}. They are in "
        f"`{HELD_OUT}` in this folder, where `POSIR_DATA={HELD_OUT} mteb run {tasks} -m .` repeats the figures.",
        *_describe_landmarks(trained.model),
    ]


def _describe_landmarks(model: SentenceTransformer) -> list[str]:
    """Return how a model with landmarks is loaded and what its window holds; nothing about another model."""
    first = model[0]
    if not isinstance(first, LandmarkTransformer):
        return []
    window, read = first.max_seq_length, first.text_window
    room = f" Its window of {window:,} tokens holds {window - read:,} less of a long text for it." if window and read else ""
    return [
        f"Landmark pooling (arXiv 2601.21525): a separator after every {first.landmark_size} tokens, and the mean of their "
        f"states.{room} Loading it needs posir: `SentenceTransformer(FOLDER, trust_remote_code=True)`, or this folder as a "
        "model of `mteb run` and `posir`."
    ]


def add_to_card(folder: Path, report: str, base: str | None) -> None:
    """Add a report to the model card in a folder, in place of an earlier one.

    Args:
        folder: A model.
        report: Markdown.
        base: Name of the base model. sentence-transformers links to it on the Hub; the name of a folder is no such link.
    """
    card = folder / CARD_FILE
    text = card.read_text(encoding="utf-8").partition(HEADING)[0] if card.exists() else ""
    if base and "/" not in base:
        text = text.replace(f"[{base}](https://huggingface.co/{base})", base)
    with atomic_write(card) as temporary:
        temporary.write_text(f"{text.rstrip()}\n\n{HEADING}\n\n{report}\n", encoding="utf-8")
