"""The change of an embedding if meaningless text is inserted at the beginning, middle or end.

Definition and source: `posir_probe.perturbation`. The needle is the first `max(int(size x n), 1)` tokens of a filler text for
a text of n tokens, inserted as in the code before character `int(place x length)`, without a separator. The paper does not
name the tokenizer, and its code has `cl100k_base`, whose vocabulary would have to be downloaded: tokens are those of the model,
or estimated from bytes where it has no tokenizer here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from posir_probe.perturbation import Perturbation, PerturbationProbe, TextTokens
from posir_tasks.interventions import NO_SPAN, insert_text


def insert_needle(text: TextTokens, size: float, place: float) -> str:
    """Insert a needle of a share of the text's tokens at a relative place."""
    needle = text.cut_needle(max(1, int(size * len(text.tokens))) if size > 0 else 0)
    return insert_text(text.text, NO_SPAN, needle, int(place * len(text.text))).text


PAPER = Perturbation((0.05, 0.1, 0.25, 0.5, 1.0), (0.0, 0.5, 1.0), insert_needle)
CODE = Perturbation((0.05, 0.1, 0.2, 0.5, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0), insert_needle)


@dataclass(frozen=True)
class NeedleInsertion(PerturbationProbe):
    """Cosine of a text and of the same text with a needle."""

    name: str = "needle_insertion"
    perturbation: Perturbation = field(default=PAPER, repr=False)

    title: str = "Meaningless words inserted"

    change: ClassVar[str] = "Inserting meaningless words"
    changed: ClassVar[str] = "inserted"
    notes: ClassVar[tuple[str, ...]] = (
        "The needle divides words, as in the paper's code, so an order-blind model is not quite equal at all places. Tokens "
        "are those of the model, or estimated from bytes.",
    )
