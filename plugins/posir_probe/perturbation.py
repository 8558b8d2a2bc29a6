"""The parts that needle insertion and text removal share: texts changed by a share of their size at relative places.

Source: Bias Learning, OpenReview 4GD7a9Bo9A (section 3, Fig. 1, Table 2). Measured is the cosine of
a text and of the same text with something inserted or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import ClassVar

import numpy as np

from posir_probe.probe import POSITIVE_IS_START, Preference, ProbeData, ProbePlan, Summary, select_long_enough
from posir_probe.sums import ProbeSums
from posir_probe.view import ProbeView, SummaryLabel, compare_sides
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings
from posir_tasks.text.tokenizer import Tokenizer, TokenSpans

SOURCE = "Bias Learning, OpenReview 4GD7a9Bo9A, section 3"
#: Series of the means over all sizes.
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


@dataclass(frozen=True)
class Perturbation:
    """Conditions, and what is done to a text under each."""

    sizes: tuple[float, ...]
    """Shares of the text."""
    places: tuple[float, ...]
    """Relative places, from 0 (start) to 1 (end)."""
    change: Callable[[TextTokens, float, float], str]
    """Maps text, size and place to the changed text."""
    reject: Callable[[str], str | None] = lambda _: None
    """Returns why a text cannot be changed, None if it can."""

    @property
    def positions(self) -> tuple[str, ...]:
        """Names of the conditions: `5 % of the text · 0 %`, places within sizes."""
        return tuple(f"{100 * size:.0f} % of the text · {100 * place:.0f} %" for size in self.sizes for place in self.places)

    @property
    def summaries(self) -> dict[str, Summary]:
        """Means over sizes: relative drop from end to start, as the paper quotes it, and the means at start, middle and end."""
        middle = self.places.index(0.5)
        return {
            "relative_drop": lambda values: 1 - self._at(values, 0) / self._at(values, -1),
            "start": lambda values: self._at(values, 0),
            "middle": lambda values: self._at(values, middle),
            "end": lambda values: self._at(values, -1),
        }

    @property
    def averages(self) -> dict[str, Summary]:
        """Means over sizes at each place, which are what the paper's Table 2 prints."""
        return {f"{MEAN} · {100 * place:.0f} %": partial(self._at, place=at) for at, place in enumerate(self.places)}

    def _at(self, values: Floats, place: int) -> Floats:
        """Return the mean over sizes at one place."""
        by_size = values.reshape(*values.shape[:-1], len(self.sizes), len(self.places))
        mean: Floats = by_size[..., place].mean(axis=-1)
        return mean

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text, and it as changed under every condition."""
        long_enough, skipped = select_long_enough(data)
        skipped.update(filter(None, (self.reject(text) for _, text in long_enough)))
        chosen = [(name, text) for name, text in long_enough if not self.reject(text)]
        conditions = [(size, place) for size in self.sizes for place in self.places]
        tokenized = tokenize(data.tokenizer, [text for _, text in chosen])
        changed = [self.change(text, size, place) for text in tokenized for size, place in conditions]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            texts, others = embeddings.select(text for _, text in chosen), embeddings.select(changed)
            cosines = np.einsum("nd,nkd->nk", texts, others.reshape(len(chosen), len(conditions), others.shape[-1]))
            return ProbeSums.from_means(self.positions, [name for name, _ in chosen], cosines.astype(np.float64), skipped)

        return ProbePlan(summarize, [*(text for _, text in chosen), *changed])


@dataclass(frozen=True)
class PerturbationProbe:
    """Cosine of a text and of the same text changed under each condition."""

    name: str
    perturbation: Perturbation = field(repr=False)

    source: ClassVar[str] = SOURCE
    preference: ClassVar[Preference] = POSITIVE_IS_START

    change: ClassVar[str]
    """Change of a text as a finding names it, such as `Inserting meaningless words`."""
    changed: ClassVar[str]
    """The same as a panel names it, such as `inserted`."""

    @property
    def view(self) -> ProbeView:
        """A change at the start against the same at the end."""
        start, end = self.summaries["start"], self.summaries["end"]
        find = compare_sides(
            lambda values: end(values) - start(values),
            f"{self.change} at the start of a text lowers its cosine with the original by {{}} more than at the end",
            f"{self.change} at the end of a text lowers its cosine with the original by {{}} more than at the start",
            f"{self.change} at start and end of a text are not shown to differ in how they change it",
        )
        sizes = {
            f"{100 * size:.0f} % of the text": (f"{100 * size:.0f} % of the text {self.changed}", "")
            for size in self.perturbation.sizes
        }
        return ProbeView(
            find,
            value="Cosine of the text and the changed text",
            place="Place of the change",
            summaries={
                "relative_drop": SummaryLabel(f"Relative drop, {self.changed} at the start"),
                "start": SummaryLabel(f"Cosine, {self.changed} at the start"),
                "middle": SummaryLabel(f"Cosine, {self.changed} in the middle"),
                "end": SummaryLabel(f"Cosine, {self.changed} at the end"),
            },
            series={**sizes, MEAN: ("Mean over all sizes", "")},
            names={"0 %": "start", "50 %": "middle", "100 %": "end"},
        )

    @property
    def positions(self) -> tuple[str, ...]:
        """Names of the conditions."""
        return self.perturbation.positions

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """Relative drop, and means over sizes at start, middle and end."""
        return self.perturbation.summaries

    @property
    def averages(self) -> Mapping[str, Summary]:
        """Means over sizes at each place."""
        return self.perturbation.averages

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text without and with its changes."""
        return self.perturbation.plan(data)
