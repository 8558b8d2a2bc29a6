"""The probes of Bias Learning (arXiv 2412.15241, later OpenReview 4GD7a9Bo9A): perturbation and
sentence regression.

Perturbation (section 3, Fig. 1, Table 2): the cosine of a text and of the same text with something
inserted or removed. The needle is the first `max(int(size x n), 1)` tokens of a filler text for a
text of n tokens, inserted as in the code before character `int(place x length)`, without a
separator. The paper does not name the tokenizer, and its code has `cl100k_base`, whose vocabulary
would have to be downloaded: tokens are those of the model, or estimated from bytes where it has no
tokenizer here. The paper removes sentences, a share rounded up; its code removes tokens: `int(n s)`
from `int(n (p - s p))` on, for a share s at place p.

Sentence regression (section 4, Fig. 2, Tables 3, 5-7): a text's embedding is regressed on those of
its sentences, embedded alone; the coefficients, scaled to unit length, are correlated with the
sentences' relative positions, pooled over the texts with i <= m < i + 10 sentences, i = 5, 15, ..,
55. The paper does not say whether there is an intercept; the last commit of its code has none, and
so it is here. A position is the share of characters before a sentence. Such start positions make r
negative without any bias, since a long sentence pushes its own relative start down: so r of
midpoints, and r of an order-blind embedder on the same texts, are beside it. A text's sentences in
random order are the control for what the sentences themselves contribute.

Sentences are those of the text's language. The code splits at line breaks and `. `, which leaves
one sentence of a text in many scripts, and appends a period to each; `split_at_periods` does the
same.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, product
from typing import NamedTuple

import numpy as np

from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, select_long_enough
from posir_probe.probe import CONTROL, Form, Probe, ProbePlan, Summary, plan_cosines
from posir_probe.results import Compute, ProbeSums, at
from posir_tasks.base.arrays import Floats
from posir_tasks.base.digests import digest
from posir_tasks.models.embeddings.encoding import Embeddings, Vectors, encode_distinct
from posir_tasks.text.interventions import NO_SPAN, insert_text, remove_text
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import Tokenizer, TokenSpans
from posir_tasks.values.scores import Unit

SOURCE = "Bias Learning, OpenReview 4GD7a9Bo9A, section {}"
#: Series of the means over all sizes, which the paper's Table 2 prints.
MEAN = "mean over sizes"
#: Typesetters' filler; repeated, it is longer than any text.
FILLER = """
lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore
et dolore magna aliqua ut enim ad minim veniam quis nostrud exercitation ullamco laboris nisi ut
aliquip ex ea commodo consequat
""".split()  # noqa: SIM905
#: Fewest sentences of each bucket, how many more the next one needs, and the most.
BUCKETS, WIDTH = (5, 15, 25, 35, 45, 55), 10
MOST_SENTENCES = BUCKETS[-1] + WIDTH - 1
BUCKET_NAMES = ("all", *(f"{low}-{low + WIDTH - 1}" for low in BUCKETS))
#: Titles of the buckets.
SIZES = {
    name: "all" if name == "all" else f"{name.replace('-', ' to ')} sentences"
    for name in BUCKET_NAMES
}
#: Lines by the name of a kind of text.
LINES = {"text": "", "shuffled": "sentences shuffled", CONTROL: CONTROL}
SERIES = tuple(f"{text}, {position}" for text, position in product(LINES, ("start", "midpoint")))
#: Cells of the plane of positions, from 0 to 1, and weights, from -1 to 1.
COLUMNS, ROWS = 10, 20
CELLS = tuple(
    (f"{text} · {bucket}", (column + 0.5) / COLUMNS, 2 * (row + 0.5) / ROWS - 1)
    for text, bucket, column, row in product(
        ("text", "shuffled"), BUCKET_NAMES[1:], range(COLUMNS), range(ROWS)
    )
)
IS_NEGATIVE = np.array([weight < 0 for _, _, weight in CELLS])


@dataclass(frozen=True)
class TextTokens:
    """A text that is changed, its tokens, and filler that has as many at least."""

    text: str
    tokens: TokenSpans
    filler: str
    filler_tokens: TokenSpans
    sentences: tuple[Span, ...] = ()
    """Its sentences, where these are changed."""


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> list[TextTokens]:
    """Return texts with their tokens."""
    spans = tokenizer.find_tokens(texts)
    # No word has less than a token.
    filler = " ".join(islice(cycle(FILLER), max(map(len, spans), default=0)))
    (filler_tokens,) = tokenizer.find_tokens([filler])
    return [
        TextTokens(text, tokens, filler, filler_tokens)
        for text, tokens in zip(texts, spans, strict=True)
    ]


class Perturbation(Probe):
    """Cosine of a text and of the same text changed by a share of its size at a relative place.

    Positions are named `5% of the text · 0%`, places within sizes.
    """

    source = SOURCE.format(3)
    stated = ("end_minus_start", "start", "end")
    preference_sign = 1
    value_title = "Cosine with original"
    place_title = "Place of the change"
    place_names = {"0%": "start", "50%": "middle", "100%": "end"}
    sizes: tuple[float, ...]
    """Shares of the text."""
    places: tuple[float, ...] = (0.0, 0.5, 1.0)
    """Relative places, from 0 (start) to 1 (end)."""
    changed: str
    """The change as a panel names it, such as `inserted`."""

    def __init__(self) -> None:
        sizes = {
            f"{100 * size:.0f}% of the text": f"{100 * size:.0f}% {self.changed}"
            for size in self.sizes
        }
        places = [f"{100 * place:.0f}%" for place in self.places]
        start, middle, end = (
            self._average(0),
            self._average(self.places.index(0.5)),
            self._average(-1),
        )
        self.positions = tuple(f"{size} · {place}" for size in sizes for place in places)
        self.averages = {
            f"{MEAN} · {place}": self._average(number) for number, place in enumerate(places)
        }
        self.series = {name: (title, "") for name, title in sizes.items()} | {
            MEAN: ("Mean over all sizes", "")
        }
        #: Means over sizes: relative drop from end to start, as the paper quotes it, and the means
        #: at start, middle and end.
        self.summaries = {
            "relative_drop": Summary(
                f"Relative drop, {self.changed} at start",
                lambda values: 1 - start(values) / end(values),
            ),
            "start": Summary(f"Cosine, {self.changed} at the start", start),
            "middle": Summary(f"Cosine, {self.changed} in the middle", middle),
            "end": Summary(f"Cosine, {self.changed} at the end", end),
            "end_minus_start": Summary(
                f"Cosine, {self.changed} at end minus start",
                lambda means: end(means) - start(means),
            ),
        }

    def _average(self, place: int) -> Compute:
        shape = len(self.sizes), len(self.places)
        return lambda values: values.reshape(*values.shape[:-1], *shape)[..., place].mean(axis=-1)

    def perturb(self, text: TextTokens, size: float, place: float) -> str:
        """Return a text changed by a share of its size at a relative place."""
        raise NotImplementedError

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text, and it as changed under every condition."""
        chosen, skipped = select_long_enough(data)
        sentences: dict[str, tuple[Span, ...]] = {}
        if self.needs_sentences:
            sentences = {name: tuple(data.find_sentences(text)) for name, text in chosen.items()}
            skipped["only one sentence"] += sum(len(spans) < 2 for spans in sentences.values())
            chosen = {name: text for name, text in chosen.items() if len(sentences[name]) > 1}
        conditions = list(product(self.sizes, self.places))
        changed = [
            [
                self.perturb(replace(text, sentences=sentences.get(name, ())), *condition)
                for condition in conditions
            ]
            for name, text in zip(
                chosen, tokenize(data.tokenizer, list(chosen.values())), strict=True
            )
        ]
        return plan_cosines(self.positions, list(chosen), list(chosen.values()), changed, +skipped)


class NeedleInsertion(Perturbation):
    """Cosine of a text and of the same text with a needle, with sizes and places of the paper."""

    name = "needle_insertion"
    title = "Meaningless words inserted"
    notes = (
        "Meaningless words are inserted into a text, and both are compared. The lower the cosine, "
        "the more this place counts.",
        "The needle divides words, as in the paper's code, so an order-blind model is not quite "
        "equal at all places. Tokens "
        "are those of the model, or estimated from bytes.",
    )
    sizes: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5, 1.0)
    changed = "inserted"

    def perturb(self, text: TextTokens, size: float, place: float) -> str:
        """Insert a needle of a share of the text's tokens at a relative place."""
        tokens = max(1, int(size * len(text.tokens))) if size > 0 else 0
        needle = text.filler[: int(text.filler_tokens[tokens - 1][1])] if tokens else ""
        return insert_text(text.text, NO_SPAN, needle, int(place * len(text.text))).text


class NeedleInsertionCode(NeedleInsertion):
    """The same with sizes and places of the code."""

    name = "needle_insertion_code"
    title = "Words inserted at five places"
    is_variant = True
    sizes = (0.05, 0.1, 0.2, 0.5, 1.0)
    places = (0.0, 0.25, 0.5, 0.75, 1.0)


class TextRemoval(Perturbation):
    """Cosine of a text and of the same text without a share of its sentences, as in the paper."""

    name = "text_removal"
    title = "Part of a text removed"
    notes = (
        "Some sentences of a text are removed, and both are compared. The lower the cosine, the "
        "more the removed part counts.",
    )
    needs_sentences = True
    sizes: tuple[float, ...] = (0.1, 0.25, 0.5)
    changed = "removed"

    def perturb(self, text: TextTokens, size: float, place: float) -> str:
        """Remove a share of the sentences, rounded up, at a relative place."""
        count = math.ceil(size * len(text.sentences))
        return self.remove(
            text.text, text.sentences, count, int(place * (len(text.sentences) - count))
        )

    def remove(self, text: str, units: Sequence[Span], count: int, first: int) -> str:
        """Remove consecutive units and the white space after them; the space before them if they
        end the text.
        """
        if count < 1:
            return text
        end = units[first + count].start if first + count < len(units) else len(text)
        return remove_text(text, NO_SPAN, Span(units[first].start, end)).text.rstrip()


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
        return self.remove(
            text.text, tokens, int(len(tokens) * size), int(len(tokens) * (place - size * place))
        )


class Fit(NamedTuple):
    """The regression of one text on its m sentences, in-sample and over dimensions."""

    weights: Floats
    """Coefficients, scaled to unit length; shape (m,)."""
    r_squared: float
    """May be negative without an intercept."""
    mae: float


def fit_sentences(text: Vectors, sentences: Vectors) -> Fit | None:
    """Regress a text's embedding, shape (d,), on its sentences', shape (m, d), without an
    intercept; None if all weights are 0.

    With as many sentences as dimensions the fit is exact. Of repeated sentences, the solution has
    the minimum norm.
    """
    target, columns = text.astype(np.float64), sentences.astype(np.float64).T
    coefficients, *_ = np.linalg.lstsq(columns, target, rcond=None)
    length = float(np.linalg.norm(coefficients))
    if not length:
        return None
    error, spread = target - columns @ coefficients, target - target.mean()
    r_squared = 1 - float(error @ error) / float(spread @ spread)
    return Fit((coefficients / length).astype(np.float64), r_squared, float(np.abs(error).mean()))


def locate_sentences(sentences: Sequence[str]) -> tuple[Floats, Floats]:
    """Return the relative start and midpoint of each sentence in all of them joined without a
    separator, shape (m,).
    """
    lengths = np.array([len(sentence) for sentence in sentences], np.float64)
    ends = lengths.cumsum()
    return (ends - lengths) / ends[-1], (ends - lengths / 2) / ends[-1]


@dataclass(frozen=True)
class SplitText:
    """A text, in order or with its sentences shuffled, and its sentences."""

    name: str
    text: str
    sentences: tuple[str, ...]
    bucket: int
    """Index of its bucket by number of sentences."""

    def fit(self, embeddings: Embeddings) -> Fit | None:
        """Return the regression of the text on its sentences."""
        return fit_sentences(embeddings.select([self.text])[0], embeddings.select(self.sentences))


class RegressionProbe(Probe):
    """A probe of texts of 5 to 64 sentences, and of the same texts with their sentences in random
    order.
    """

    source = SOURCE.format(4)
    needs_sentences = True
    needs_shuffled = True
    """Whether it measures the shuffled texts."""

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text and its sentences, and both shuffled in an order that the text's id
        determines.
        """
        skipped: Counter[str] = Counter()
        texts: list[tuple[SplitText, SplitText]] = []
        for name, text in data.documents.items():
            sentences = data.split_sentences(text)
            if BUCKETS[0] <= len(sentences) <= MOST_SENTENCES:
                split = SplitText(
                    name, text, tuple(sentences), (len(sentences) - BUCKETS[0]) // WIDTH
                )
                random.Random(digest(name)).shuffle(sentences)
                shuffled = " ".join(sentences)
                texts.append(
                    (
                        split,
                        replace(
                            split, text=shuffled, sentences=tuple(data.split_sentences(shuffled))
                        ),
                    )
                )
            else:
                few = (
                    "empty text"
                    if not text.strip()
                    else "one sentence"
                    if len(sentences) == 1
                    else "fewer than 5 sentences"
                )
                skipped[
                    few if len(sentences) < BUCKETS[0] else f"more than {MOST_SENTENCES} sentences"
                ] += 1
        versions = [version for pair in texts for version in pair[: 1 + self.needs_shuffled]]
        return ProbePlan(
            lambda embeddings: replace(self.summarize(embeddings, texts), skipped=dict(skipped)),
            [part for version in versions for part in (version.text, *version.sentences)],
        )

    def summarize(
        self, embeddings: Embeddings, texts: Sequence[tuple[SplitText, SplitText]]
    ) -> ProbeSums:
        """Return the sums of texts, each in order and shuffled."""
        raise NotImplementedError


class SentenceRegression(RegressionProbe):
    """Pearson's r of sentences' positions and weights, by number of sentences, with slope and
    p-value.
    """

    name = "sentence_regression"
    title = "Weight of sentences by position"
    notes = (
        "A text's embedding is explained by those of its sentences, each with a weight. Where r "
        "is below 0, the weights fall "
        "from start to end. Where r is the same with the sentences shuffled, the position "
        "matters, and not the sentences.",
        "Start positions, the paper's, make r negative without any bias, because a long sentence "
        "pushes its own relative start "
        "down. Compare with r of the order-blind control on the same texts, or read the midpoints.",
    )
    positions = tuple(f"{series} · {bucket}" for series, bucket in product(SERIES, BUCKET_NAMES))
    #: Pooled over all numbers of sentences.
    summaries = {
        f"{name}{position}": Summary(
            title.format(position), at(SERIES.index(f"{text}, {position}") * len(BUCKET_NAMES))
        )
        for text, name, title, order in (
            ("text", "r_", "r of sentences' {}s and weights", ("midpoint", "start")),
            ("shuffled", "r_shuffled_", f"{LINES['shuffled']}: r of {{}}s", ("start", "midpoint")),
            (CONTROL, "r_order_blind_", f"{CONTROL}: r of {{}}s", ("start", "midpoint")),
        )
        for position in order
    }
    preference_sign = -1
    value_title = "Pearson's r of position and weight"
    place_title = "Sentences of the text"
    form = Form.CATEGORIES
    series = {
        f"{text}, {position}": (f"By the {position} of sentences", line)
        for (text, line), position in product(LINES.items(), ("start", "midpoint"))
    }
    place_names = SIZES

    def summarize(
        self, embeddings: Embeddings, texts: Sequence[tuple[SplitText, SplitText]]
    ) -> ProbeSums:
        """Return the moments that Pearson's r follows from, of every series and bucket."""
        names, rows, columns = [], [], []
        for text, shuffled in texts:
            control = encode_distinct(order_blind, [text.text, *text.sentences]).normalize()
            for number, (split, vectors) in enumerate(
                ((text, embeddings), (shuffled, embeddings), (text, control))
            ):
                if fit := split.fit(vectors):
                    y = fit.weights
                    for series, x in enumerate(locate_sentences(split.sentences), 2 * number):
                        names += [text.name] * 2
                        rows += [
                            series * len(BUCKET_NAMES) + bucket for bucket in (0, text.bucket + 1)
                        ]
                        columns += [[len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y]] * 2
        shaped = np.array(columns, np.float64).reshape(len(rows), 6)
        return ProbeSums.from_columns(
            "pearson", self.positions, names, np.array(rows, np.int64), shaped
        )


class SentenceRegressionFit(RegressionProbe):
    """Mean R2 and absolute error of the regression of texts on their sentences, by number of
    sentences.
    """

    name = "sentence_regression_fit"
    title = "Fit of sentences to their text"
    notes = (
        "R² is in-sample and over dimensions; with as many sentences as dimensions it is 1. The "
        "error is per dimension.",
    )
    positions = tuple(
        f"{measure} · {bucket}" for measure in ("R2", "MAE") for bucket in BUCKET_NAMES
    )
    summaries = {
        "r_squared": Summary("R² of sentences for their text", at(0)),
        "mae": Summary("Mean absolute error per dimension", at(len(BUCKET_NAMES))),
    }
    needs_shuffled = False
    value_title = "Mean over texts"
    place_title = "Sentences of the text"
    form = Form.CATEGORIES
    series = {"R2": ("R²", ""), "MAE": ("Mean absolute error", "")}
    same_scale = False
    place_names = SIZES

    def summarize(
        self, embeddings: Embeddings, texts: Sequence[tuple[SplitText, SplitText]]
    ) -> ProbeSums:
        """Return R2 and error, over all texts and by bucket."""
        values = np.full((len(texts), len(self.positions)), np.nan)
        for row, (text, _) in enumerate(texts):
            if fit := text.fit(embeddings):
                for first, value in enumerate((fit.r_squared, fit.mae)):
                    values[row, first * len(BUCKET_NAMES) + np.array([0, text.bucket + 1])] = value
        return ProbeSums.from_means(self.positions, [text.name for text, _ in texts], values)


class SentenceRegressionScatter(RegressionProbe):
    """Number of sentences by start position and weight, of texts and of shuffled texts, by number
    of sentences (Fig. 2).
    """

    name = "sentence_regression_scatter"
    title = "Starts and weights of single sentences"
    notes = ("Each sentence of texts, and of the same texts with their sentences shuffled.",)
    cells = CELLS
    cell_size = (1 / COLUMNS, 2 / ROWS)
    positions = tuple(f"{panel} · {x:.2f}, {y:+.2f}" for panel, x, y in CELLS)
    summaries = {
        #: The paper calls negative weights rare.
        "negative_weights": Summary(
            "Sentences with a negative weight (%)",
            lambda values: values[..., IS_NEGATIVE].sum(axis=-1),
            Unit.PERCENT,
        )
    }
    value_title = "Weight"
    place_title = "Start of the sentence"
    form = Form.CELLS
    series = {
        f"{text} · {bucket}": (f"{title}, {SIZES[bucket].removesuffix(' sentences')}", "")
        for text, title in (("text", "Texts"), ("shuffled", "Shuffled"))
        for bucket in BUCKET_NAMES[1:]
    }

    def summarize(
        self, embeddings: Embeddings, texts: Sequence[tuple[SplitText, SplitText]]
    ) -> ProbeSums:
        """Return the number of sentences in each cell of each panel, counted by column and then by
        row.
        """
        names: list[str] = []
        rows: list[int] = []
        for pair in texts:
            for first, split in enumerate(pair):
                if fit := split.fit(embeddings):
                    starts, _ = locate_sentences(split.sentences)
                    column = np.minimum((starts * COLUMNS).astype(np.int64), COLUMNS - 1)
                    row = np.clip(((fit.weights + 1) / 2 * ROWS).astype(np.int64), 0, ROWS - 1)
                    panel = first * len(BUCKETS) + split.bucket
                    rows += (panel * COLUMNS * ROWS + column * ROWS + row).tolist()
                    names += [split.name] * len(column)
        return ProbeSums.from_counts(self.positions, names, rows)
