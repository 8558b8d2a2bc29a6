"""The change of an embedding if a part of the text is removed at its beginning, middle or end.

Definition and source: `posir_probe.perturbation`. The paper removes sentences, a share rounded up; its code removes tokens:
`int(n s)` from `int(n (p - s p))` on, for a share s at place p. For which tokens, see `posir_probe.needle_insertion`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from posir_probe.perturbation import Perturbation, PerturbationProbe, TextTokens
from posir_tasks.interventions import NO_SPAN, remove_text
from posir_tasks.text.sentences import find_at_periods
from posir_tasks.text.spans import Span


def remove_sentences(text: TextTokens, size: float, place: float) -> str:
    """Remove a share of the sentences, rounded up, at a relative place."""
    sentences = find_at_periods(text.text)
    return _remove_units(text.text, sentences, math.ceil(size * len(sentences)), place)


def find_problem(text: str) -> str | None:
    """Return why sentences cannot be removed from a text, None if they can."""
    return "only one sentence" if len(find_at_periods(text)) < 2 else None


def remove_tokens(text: TextTokens, size: float, place: float) -> str:
    """Remove a share of the tokens at a relative place, as the code does."""
    tokens = [Span(*token) for token in text.tokens.tolist()]
    return _remove_units(text.text, tokens, int(len(tokens) * size), place, int(len(tokens) * (place - size * place)))


def _remove_units(text: str, units: list[Span], count: int, place: float, first: int | None = None) -> str:
    """Remove consecutive units and the white space after them; the space before them if they end the text."""
    if count < 1:
        return text
    first = int(place * (len(units) - count)) if first is None else first
    end = units[first + count].start if first + count < len(units) else len(text)
    return remove_text(text, NO_SPAN, Span(units[first].start, end)).text.rstrip()


PAPER = Perturbation((0.1, 0.25, 0.5), (0.0, 0.5, 1.0), remove_sentences, find_problem)
CODE = Perturbation((0.05, 0.1, 0.2, 0.5), (0.0, 0.25, 0.5, 0.75, 1.0), remove_tokens)


@dataclass(frozen=True)
class TextRemoval(PerturbationProbe):
    """Cosine of a text and of the same text with a part removed."""

    name: str = "text_removal"
    perturbation: Perturbation = field(default=PAPER, repr=False)

    title: str = "Part of a text removed"

    change: ClassVar[str] = "Removing a part"
    changed: ClassVar[str] = "removed"
    notes: ClassVar[tuple[str, ...]] = ("Sentences are removed, as in the paper, unless the title says tokens.",)
