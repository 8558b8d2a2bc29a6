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
midpoints, and r of an order-blind embedder on the same texts, are shown with it. A text's
sentences in random order are the control for what the sentences themselves contribute.

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
from typing import Any, NamedTuple

import numpy as np

from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, select_long_enough
from posir_probe.probe import CONTROL, Form, Probe, ProbePlan, Summary, plan_cosines
from posir_probe.results import Compute, ProbeSums, at, subtract
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
#: Places of a change, in the paper and in its code.
PAPER_PLACES = (0.0, 0.5, 1.0)
CODE_PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Fewest sentences of each bucket.
BUCKETS = (5, 15, 25, 35, 45, 55)
#: Numbers of sentences of a bucket.
WIDTH = 10
MAX_SENTENCES = BUCKETS[-1] + WIDTH - 1
RANGES = tuple(f"{low}-{low + WIDTH - 1}" for low in BUCKETS)
BUCKET_NAMES = ("all", *RANGES)
#: Titles of the buckets, without the noun.
RANGE_TITLES = {name: name.replace("-", " to ") for name in RANGES}
SIZES = {"all": "all", **{name: f"{title} sentences" for name, title in RANGE_TITLES.items()}}
#: Lines by the name of a kind of text.
LINES = {"text": "", "shuffled": "sentences shuffled", CONTROL: CONTROL}
SERIES = tuple(f"{text}, {position}" for text, position in product(LINES, ("start", "midpoint")))
#: Cells of the plane of positions, from 0 to 1, and weights, from -1 to 1.
COLUMNS, ROWS = 10, 20
CELLS = tuple(
    (f"{text} · {bucket}", (column + 0.5) / COLUMNS, 2 * (row + 0.5) / ROWS - 1)
    for text, bucket, column, row in product(
        ("text", "shuffled"), RANGES, range(COLUMNS), range(ROWS)
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
    sentences: Sequence[Span] = ()
    """Its sentences, where these are changed."""


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> list[TextTokens]:
    """Find the tokens of texts."""
    spans = tokenizer.find_tokens(texts)
    # No word has less than a token.
    filler = " ".join(islice(cycle(FILLER), max(map(len, spans), default=0)))
    (filler_tokens,) = tokenizer.find_tokens([filler])
    return [TextTokens(*text, filler, filler_tokens) for text in zip(texts, spans, strict=True)]


class Perturbation(Probe):
    """Cosine of a text and of the same text changed by a share of its size at a relative place.

    Positions are named `5% of the text · 0%`, places within sizes.
    """

    source = SOURCE.format(3)
    headline = ("end_minus_start", "start", "end")
    preference_sign = 1
    value_title = "Cosine with original"
    place_title = "Place of the change"
    place_names = {"0%": "start", "50%": "middle", "100%": "end"}
    sizes: tuple[float, ...]
    """Shares of the text."""
    places: tuple[float, ...] = PAPER_PLACES
    """Relative places, from 0 (start) to 1 (end)."""
    changed: str
    """The change as a panel names it, such as `inserted`."""

    def __init__(self) -> None:
        sizes = [f"{100 * size:.0f}%" for size in self.sizes]
        places = [f"{100 * place:.0f}%" for place in self.places]
        self.positions = tuple(
            f"{size} of the text · {place}" for size, place in product(sizes, places)
        )
        self.averages = {
            f"{MEAN} · {place}": self._average(index) for index, place in enumerate(places)
        }
        self.series = {f"{size} of the text": (f"{size} {self.changed}", "") for size in sizes}
        self.series[MEAN] = ("Mean over all sizes", "")
        start = self._average(0)
        middle = self._average(self.places.index(0.5))
        end = self._average(-1)
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
                f"Cosine, {self.changed} at end minus start", subtract(end, start)
            ),
        }

    def _average(self, place: int) -> Compute:
        step = len(self.places)
        return lambda values: values[..., place % step :: step].mean(axis=-1)

    def perturb(self, text: TextTokens, size: float, place: float) -> str:
        """Change a text by a share of its size at a relative place."""
        raise NotImplementedError

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text, and it as changed under every condition."""
        chosen, skipped = select_long_enough(data)
        sentences: dict[str, Sequence[Span]] = dict.fromkeys(chosen, ())
        if self.needs_sentences:
            sentences = {name: data.find_sentences(text) for name, text in chosen.items()}
            skipped["only one sentence"] += sum(len(spans) < 2 for spans in sentences.values())
            chosen = {name: text for name, text in chosen.items() if len(sentences[name]) > 1}
        texts = list(chosen.values())
        changed = []
        for name, tokenized in zip(chosen, tokenize(data.tokenizer, texts), strict=True):
            text = replace(tokenized, sentences=sentences[name])
            conditions = product(self.sizes, self.places)
            changed.append([self.perturb(text, *condition) for condition in conditions])
        return plan_cosines(self.positions, list(chosen), texts, changed, +skipped)


class NeedleInsertion(Perturbation):
    """Cosine of a text and of the same text with a needle, with sizes and places of the paper, or
    with those of its code.
    """

    notes = (
        "Meaningless words are inserted into a text, and both are compared. The lower the cosine, "
        "the more this place counts.",
        "The needle divides words, as in the paper's code, so an order-blind model is not quite "
        "equal at all places. Tokens are those of the model, or estimated from bytes.",
    )
    changed = "inserted"

    def __init__(self, *, by_code: bool = False) -> None:
        self.is_variant = by_code
        if by_code:
            self.name = "needle_insertion_code"
            self.title = "Words inserted at five places"
            self.sizes = (0.05, 0.1, 0.2, 0.5, 1.0)
            self.places = CODE_PLACES
        else:
            self.name = "needle_insertion"
            self.title = "Meaningless words inserted"
            self.sizes = (0.05, 0.1, 0.25, 0.5, 1.0)
        super().__init__()

    def perturb(self, text: TextTokens, size: float, place: float) -> str:
        """Insert a needle of a share of the text's tokens at a relative place."""
        if not size:
            return text.text
        tokens = max(1, int(size * len(text.tokens)))
        needle = text.filler[: int(text.filler_tokens[tokens - 1][1])]
        return insert_text(text.text, NO_SPAN, needle, int(place * len(text.text))).text


class TextRemoval(Perturbation):
    """Cosine of a text and of the same text without a share of its sentences, as in the paper, or
    of its tokens, as in its code.
    """

    notes = (
        "Some sentences of a text are removed, and both are compared. The lower the cosine, the "
        "more the removed part counts.",
    )
    changed = "removed"

    def __init__(self, *, by_code: bool = False) -> None:
        self.is_variant = by_code
        self.needs_sentences = not by_code
        if by_code:
            self.name = "text_removal_code"
            self.title = "Tokens of a text removed"
            self.sizes = (0.05, 0.1, 0.2, 0.5)
            self.places = CODE_PLACES
        else:
            self.name = "text_removal"
            self.title = "Part of a text removed"
            self.sizes = (0.1, 0.25, 0.5)
        super().__init__()

    def perturb(self, text: TextTokens, size: float, place: float) -> str:
        """Remove a share of the sentences, rounded up, or of the tokens, rounded down.

        The white space after them goes, too; at the end of the text, that before them.
        """
        units: Sequence[Span] = text.sentences
        count = math.ceil(size * len(units))
        first = int(place * (len(units) - count))
        if not self.needs_sentences:
            units = [Span(*token) for token in text.tokens.tolist()]
            count = int(len(units) * size)
            first = int(len(units) * (place - size * place))
        if not count:
            return text.text
        following = [*units[first + count :], Span(len(text.text), len(text.text))]
        removed = Span(units[first].start, following[0].start)
        return remove_text(text.text, NO_SPAN, removed).text.rstrip()


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
    target = text.astype(np.float64)
    columns = sentences.astype(np.float64).T
    coefficients, *_ = np.linalg.lstsq(columns, target, rcond=None)
    length = float(np.linalg.norm(coefficients))
    if not length:
        return None
    error = target - columns @ coefficients
    spread = target - target.mean()
    r_squared = 1 - float(error @ error) / float(spread @ spread)
    weights = (coefficients / length).astype(np.float64)
    return Fit(weights, r_squared, float(np.abs(error).mean()))


def locate_sentences(sentences: Sequence[str]) -> tuple[Floats, Floats]:
    """Locate the start and the midpoint of each sentence in all of them joined without a separator,
    relative to their length; shape (m,).
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

    @property
    def buckets(self) -> list[int]:
        """Indexes in `BUCKET_NAMES` of those that the text is in."""
        return [0, self.bucket + 1]

    def fit(self, embeddings: Embeddings) -> Fit | None:
        """Regress the text on its sentences."""
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
            if reason := _find_reason(text, len(sentences)):
                skipped[reason] += 1
                continue
            bucket = (len(sentences) - BUCKETS[0]) // WIDTH
            in_order = SplitText(name, text, tuple(sentences), bucket)
            random.Random(digest(name)).shuffle(sentences)
            shuffled = " ".join(sentences)
            parts = tuple(data.split_sentences(shuffled))
            texts.append((in_order, SplitText(name, shuffled, parts, bucket)))
        versions = [version for pair in texts for version in pair[: 1 + self.needs_shuffled]]
        return ProbePlan(
            lambda embeddings: replace(self.summarize(embeddings, texts), skipped=dict(skipped)),
            [part for version in versions for part in (version.text, *version.sentences)],
        )

    def summarize(
        self, embeddings: Embeddings, texts: Sequence[tuple[SplitText, SplitText]]
    ) -> ProbeSums:
        """Sum the values of texts, each in order and shuffled."""
        raise NotImplementedError


def _find_reason(text: str, sentences: int) -> str:
    """Return why a text is not measured; empty if it is."""
    if not text.strip():
        return "empty text"
    if sentences == 1:
        return "one sentence"
    if sentences < BUCKETS[0]:
        return f"fewer than {BUCKETS[0]} sentences"
    return f"more than {MAX_SENTENCES} sentences" if sentences > MAX_SENTENCES else ""


def _summarize_r(name: str, text: str, title: str, position: str) -> tuple[str, Summary]:
    """Build the summary of r pooled over all numbers of sentences."""
    index = SERIES.index(f"{text}, {position}") * len(BUCKET_NAMES)
    return f"{name}_{position}", Summary(title.format(position), at(index))


class SentenceRegression(RegressionProbe):
    """Pearson's r of sentences' positions and weights, by number of sentences, with slope and
    p-value.
    """

    name = "sentence_regression"
    title = "Weight of sentences by position"
    notes = (
        "A text's embedding is explained by those of its sentences, each with a weight. Where r "
        "is below 0, the weights fall from start to end. Where r is the same with the sentences "
        "shuffled, the position matters, and not the sentences.",
        "Start positions, the paper's, make r negative without any bias, because a long sentence "
        "pushes its own relative start down. Compare with r of the order-blind control on the "
        "same texts, or read the midpoints.",
    )
    positions = tuple(f"{series} · {bucket}" for series, bucket in product(SERIES, BUCKET_NAMES))
    summaries = dict(
        _summarize_r(*values)
        for values in (
            ("r", "text", "r of sentences' {}s and weights", "midpoint"),
            ("r", "text", "r of sentences' {}s and weights", "start"),
            ("r_shuffled", "shuffled", "sentences shuffled: r of {}s", "start"),
            ("r_shuffled", "shuffled", "sentences shuffled: r of {}s", "midpoint"),
            ("r_order_blind", CONTROL, f"{CONTROL}: r of {{}}s", "start"),
            ("r_order_blind", CONTROL, f"{CONTROL}: r of {{}}s", "midpoint"),
        )
    )
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
        """Sum the moments that Pearson's r follows from, of every series and bucket."""
        names: list[str] = []
        rows: list[int] = []
        columns: list[list[Any]] = []
        for text, shuffled in texts:
            control = encode_distinct(order_blind, [text.text, *text.sentences]).normalize()
            fitted = ((text, embeddings), (shuffled, embeddings), (text, control))
            for number, (split, vectors) in enumerate(fitted):
                fit = split.fit(vectors)
                if fit is None:
                    continue
                y = fit.weights
                for series, x in enumerate(locate_sentences(split.sentences), 2 * number):
                    for bucket in split.buckets:
                        names.append(text.name)
                        rows.append(series * len(BUCKET_NAMES) + bucket)
                        columns.append([len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y])
        moments = np.array(columns, np.float64).reshape(len(rows), 6)
        indexes = np.array(rows, np.int64)
        return ProbeSums.from_columns("pearson", self.positions, names, indexes, moments)


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
        f"{measure} · {bucket}" for measure, bucket in product(("R2", "MAE"), BUCKET_NAMES)
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
        """Average R2 and error, over all texts and by bucket."""
        values = np.full((len(texts), 2, len(BUCKET_NAMES)), np.nan)
        for row, (text, _) in enumerate(texts):
            if fit := text.fit(embeddings):
                values[row, 0, text.buckets] = fit.r_squared
                values[row, 1, text.buckets] = fit.mae
        names = [text.name for text, _ in texts]
        by_position = values.reshape(len(texts), len(self.positions))
        return ProbeSums.from_means(self.positions, names, by_position)


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
        f"{text} · {bucket}": (f"{title}, {sizes}", "")
        for (text, title), (bucket, sizes) in product(
            (("text", "Texts"), ("shuffled", "Shuffled")), RANGE_TITLES.items()
        )
    }

    def summarize(
        self, embeddings: Embeddings, texts: Sequence[tuple[SplitText, SplitText]]
    ) -> ProbeSums:
        """Count the sentences in each cell of each panel, by column and then by row."""
        names: list[str] = []
        rows: list[int] = []
        for pair in texts:
            for order, split in enumerate(pair):
                fit = split.fit(embeddings)
                if fit is None:
                    continue
                starts, _ = locate_sentences(split.sentences)
                column = np.minimum((starts * COLUMNS).astype(np.int64), COLUMNS - 1)
                row = np.clip(((fit.weights + 1) / 2 * ROWS).astype(np.int64), 0, ROWS - 1)
                panel = order * len(BUCKETS) + split.bucket
                rows += ((panel * COLUMNS + column) * ROWS + row).tolist()
                names += [split.name] * len(column)
        return ProbeSums.from_counts(self.positions, names, rows)
