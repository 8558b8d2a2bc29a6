"""The change of an embedding if meaningless text is inserted, or a part removed, at the beginning, middle or end.

Source: Bias Learning, OpenReview 4GD7a9Bo9A (section 3, Fig. 1, Table 2). Measured is the cosine of a text and of the same text
with something inserted or removed.

The inserted needle is the first `max(int(size x n), 1)` tokens of a filler text for a text of n tokens, inserted as in the code
before character `int(place x length)`, without a separator. The paper does not name the tokenizer, and its code has
`cl100k_base`, whose vocabulary would have to be downloaded: tokens are those of the model, or estimated from bytes where it has
no tokenizer here.

The paper removes sentences, a share rounded up; its code removes tokens: `int(n s)` from `int(n (p - s p))` on, for a share s
at place p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

import numpy as np

from posir_probe.data import ProbeData, select_long_enough
from posir_probe.probe import POSITIVE_IS_START, Probe, ProbePlan, SignedFinding, Summary
from posir_probe.results import Compute, ProbeSums
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings
from posir_tasks.interventions import NO_SPAN, insert_text, remove_text
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import Tokenizer, TokenSpans

ONE_SENTENCE = "only one sentence"
#: Series of the means over all sizes, which the paper's Table 2 prints.
MEAN = "mean over sizes"
#: Typesetters' filler; repeated, it is longer than any text.
FILLER = """
lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna aliqua
ut enim ad minim veniam quis nostrud exercitation ullamco laboris nisi ut aliquip ex ea commodo consequat
""".split()  # noqa: SIM905


@dataclass(frozen=True)
class TextTokens:
    """A text that is changed, its tokens, and filler that has as many at least."""

    text: str
    tokens: TokenSpans
    filler: str
    filler_tokens: TokenSpans
    sentences: tuple[Span, ...] = ()
    """Its sentences, where these are changed."""

    def cut_needle(self, tokens: int) -> str:
        """Return the first tokens of the filler."""
        return self.filler[: int(self.filler_tokens[tokens - 1][1])] if tokens else ""


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> list[TextTokens]:
    """Return texts with their tokens."""
    spans = tokenizer.find_tokens(texts)
    # No word has less than a token.
    filler = " ".join(islice(cycle(FILLER), max(map(len, spans), default=0)))
    (filler_tokens,) = tokenizer.find_tokens([filler])
    return [TextTokens(text, tokens, filler, filler_tokens) for text, tokens in zip(texts, spans, strict=True)]


class Perturbation(Probe):
    """Cosine of a text and of the same text changed by a share of its size at a relative place.

    Positions are named `5 % of the text · 0 %`, places within sizes.
    """

    source = "Bias Learning, OpenReview 4GD7a9Bo9A, section 3"
    preference = POSITIVE_IS_START
    value_title = "Cosine of the text and the changed text"
    place_title = "Place of the change"
    place_names = {"0 %": "start", "50 %": "middle", "100 %": "end"}

    sizes: tuple[float, ...]
    """Shares of the text."""
    places: tuple[float, ...]
    """Relative places, from 0 (start) to 1 (end)."""
    change: str
    """The change as a finding names it, such as `Inserting meaningless words`."""
    changed: str
    """The same as a panel names it, such as `inserted`."""

    def __init__(self) -> None:
        sizes = {f"{100 * size:.0f} % of the text": f"{100 * size:.0f} % of the text {self.changed}" for size in self.sizes}
        places = [f"{100 * place:.0f} %" for place in self.places]
        start, middle, end = self._average(0), self._average(self.places.index(0.5)), self._average(-1)
        self.positions = tuple(f"{size} · {place}" for size in sizes for place in places)
        self.averages = {f"{MEAN} · {place}": self._average(number) for number, place in enumerate(places)}
        self.series = {name: (title, "") for name, title in sizes.items()} | {MEAN: ("Mean over all sizes", "")}
        #: Means over sizes: relative drop from end to start, as the paper quotes it, and the means at start, middle and end.
        self.summaries = {
            "relative_drop": Summary(
                f"Relative drop, {self.changed} at the start", lambda values: 1 - start(values) / end(values)
            ),
            "start": Summary(f"Cosine, {self.changed} at the start", start),
            "middle": Summary(f"Cosine, {self.changed} in the middle", middle),
            "end": Summary(f"Cosine, {self.changed} at the end", end),
        }
        self.finding = SignedFinding(
            f"{self.change} at the start of a text lowers its cosine with the original by {{}} more than at the end",
            f"{self.change} at the end of a text lowers its cosine with the original by {{}} more than at the start",
            f"whether {self.change[0].lower()}{self.change[1:]} at the start or at the end of a text changes it more",
            Summary("", lambda values: end(values) - start(values)),
        )

    def _average(self, place: int) -> Compute:
        """Return the mean over sizes at one place."""

        def average(values: Floats) -> Floats:
            by_size = values.reshape(*values.shape[:-1], len(self.sizes), len(self.places))
            mean: Floats = by_size[..., place].mean(axis=-1)
            return mean

        return average

    def perturb(self, text: TextTokens, size: float, place: float) -> str:
        """Return a text changed by a share of its size at a relative place."""
        raise NotImplementedError

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text, and it as changed under every condition."""
        long_enough, skipped = select_long_enough(data)
        sentences = {name: tuple(data.find_sentences(text)) for name, text in long_enough} if self.needs_sentences else {}
        chosen = [(name, text) for name, text in long_enough if not self.needs_sentences or len(sentences[name]) > 1]
        skipped.update([ONE_SENTENCE] * (len(long_enough) - len(chosen)))
        conditions = [(size, place) for size in self.sizes for place in self.places]
        tokenized = tokenize(data.tokenizer, [text for _, text in chosen])
        changed = [
            self.perturb(replace(text, sentences=sentences.get(name, ())), size, place)
            for (name, _), text in zip(chosen, tokenized, strict=True)
            for size, place in conditions
        ]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            texts, others = embeddings.select(text for _, text in chosen), embeddings.select(changed)
            cosines = np.einsum("nd,nkd->nk", texts, others.reshape(len(chosen), len(conditions), others.shape[-1]))
            return ProbeSums.from_means(self.positions, [name for name, _ in chosen], cosines.astype(np.float64), skipped)

        return ProbePlan(summarize, [*(text for _, text in chosen), *changed])


class NeedleInsertion(Perturbation):
    """Cosine of a text and of the same text with a needle, with sizes and places of the paper."""

    name = "needle_insertion"
    title = "Meaningless words inserted"
    notes = (
        "The needle divides words, as in the paper's code, so an order-blind model is not quite equal at all places. Tokens "
        "are those of the model, or estimated from bytes.",
    )
    sizes: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5, 1.0)
    places: tuple[float, ...] = (0.0, 0.5, 1.0)
    change, changed = "Inserting meaningless words", "inserted"

    def perturb(self, text: TextTokens, size: float, place: float) -> str:
        """Insert a needle of a share of the text's tokens at a relative place."""
        needle = text.cut_needle(max(1, int(size * len(text.tokens))) if size > 0 else 0)
        return insert_text(text.text, NO_SPAN, needle, int(place * len(text.text))).text


class NeedleInsertionCode(NeedleInsertion):
    """The same with sizes and places of the code."""

    name = "needle_insertion_code"
    title = "Meaningless words at five places"
    is_variant = True
    sizes = (0.05, 0.1, 0.2, 0.5, 1.0)
    places = (0.0, 0.25, 0.5, 0.75, 1.0)


class TextRemoval(Perturbation):
    """Cosine of a text and of the same text without a share of its sentences, as in the paper."""

    name = "text_removal"
    title = "Part of a text removed"
    notes = ("Sentences are removed, as in the paper, unless the title says tokens.",)
    needs_sentences = True
    sizes: tuple[float, ...] = (0.1, 0.25, 0.5)
    places: tuple[float, ...] = (0.0, 0.5, 1.0)
    change, changed = "Removing a part", "removed"

    def perturb(self, text: TextTokens, size: float, place: float) -> str:
        """Remove a share of the sentences, rounded up, at a relative place."""
        return remove_units(text.text, text.sentences, math.ceil(size * len(text.sentences)), place)


class TextRemovalCode(TextRemoval):
    """The same of tokens, with sizes and places of the code."""

    name = "text_removal_code"
    title = "Tokens of a text removed"
    is_variant = True
    needs_sentences = False
    sizes = (0.05, 0.1, 0.2, 0.5)
    places = (0.0, 0.25, 0.5, 0.75, 1.0)

    def perturb(self, text: TextTokens, size: float, place: float) -> str:
        """Remove a share of the tokens at a relative place, as the code does."""
        tokens = [Span(*token) for token in text.tokens.tolist()]
        return remove_units(text.text, tokens, int(len(tokens) * size), place, int(len(tokens) * (place - size * place)))


def remove_units(text: str, units: Sequence[Span], count: int, place: float, first: int | None = None) -> str:
    """Remove consecutive units and the white space after them; the space before them if they end the text."""
    if count < 1:
        return text
    first = int(place * (len(units) - count)) if first is None else first
    end = units[first + count].start if first + count < len(units) else len(text)
    return remove_text(text, NO_SPAN, Span(units[first].start, end)).text.rstrip()
