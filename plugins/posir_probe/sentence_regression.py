"""The share of a text's embedding that each sentence explains, by where the sentence is.

Source: arXiv 2412.15241; section 4, Fig. 2, Tables 3, 5-7 of its later version, Bias Learning
(OpenReview 4GD7a9Bo9A). A text's embedding
is regressed on those of its sentences, embedded alone; the coefficients, scaled to unit length, are correlated with the
sentences' relative positions, pooled over the texts with i <= m < i + 10 sentences, i = 5, 15, .., 55.

The paper does not say whether there is an intercept; the last commit of its code has none, and so it is here. A position is the
share of characters before a sentence. Such start positions make r negative without any bias, since a long sentence pushes its
own relative start down: so r of midpoints, and r of an order-blind embedder on the same texts, are beside it. A text's
sentences in random order are the control for what the sentences themselves contribute.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from posir_probe.controls import order_blind
from posir_probe.probe import Preference, ProbeData, ProbePlan, Summary
from posir_probe.sums import ProbeSums
from posir_probe.view import CONTROL, Form, ProbeView, SummaryLabel, compare_sides, state_value
from posir_tasks.cells import Floats
from posir_tasks.digests import digest
from posir_tasks.embeddings.encoding import Embeddings, Vectors, encode_distinct
from posir_tasks.scores import Unit
from posir_tasks.text.sentences import split_at_periods

#: Fewest sentences of each bucket, and how many more the next one needs.
BUCKETS, WIDTH = (5, 15, 25, 35, 45, 55), 10
BUCKET_NAMES = ("all", *(f"{low}-{low + WIDTH - 1}" for low in BUCKETS))
#: Titles of the buckets.
SIZES = {name: "all" if name == "all" else f"{name.replace('-', ' to ')} sentences" for name in BUCKET_NAMES}
SOURCE = "Bias Learning, OpenReview 4GD7a9Bo9A, section 4"
SERIES = tuple(
    f"{text}, {position}" for text in ("text", "shuffled", "order-blind control") for position in ("start", "midpoint")
)


@dataclass(frozen=True)
class Fit:
    """The regression of one text on its m sentences."""

    weights: Floats
    """Coefficients, scaled to unit length; shape (m,)."""
    r_squared: float
    """Explained share of the variance over dimensions, in-sample; may be negative without an intercept."""
    mae: float
    """Mean absolute error over dimensions."""


def _select(position: int, values: Floats) -> Floats:
    """Return the value at one position."""
    selected: Floats = values[..., position]
    return selected


def fit_sentences(text: Vectors, sentences: Vectors) -> Fit | None:
    """Regress a text's embedding, shape (d,), on its sentences', shape (m, d), without an intercept; None if all weights are 0.

    With as many sentences as dimensions the fit is exact. Of repeated sentences, the solution has the minimum norm.
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
    """Return the relative start and midpoint of each sentence in all of them joined without a separator, shape (m,)."""
    lengths = np.array([len(sentence) for sentence in sentences], np.float64)
    ends = lengths.cumsum()
    return (ends - lengths) / ends[-1], (ends - lengths / 2) / ends[-1]


def shuffle_text(name: str, sentences: Sequence[str]) -> str:
    """Return sentences joined by spaces in a random order that the text's id determines."""
    shuffled = list(sentences)
    random.Random(digest(name)).shuffle(shuffled)
    return " ".join(shuffled)


@dataclass(frozen=True)
class SplitText:
    """A text and its sentences, in order and shuffled."""

    name: str
    text: str
    sentences: tuple[str, ...]
    shuffled: str
    shuffled_sentences: tuple[str, ...]

    @property
    def bucket(self) -> int:
        """Index of the bucket by number of sentences."""
        return (len(self.sentences) - BUCKETS[0]) // WIDTH

    @property
    def versions(self) -> tuple[tuple[str, tuple[str, ...]], tuple[str, tuple[str, ...]]]:
        """The text and its sentences, and both shuffled."""
        return (self.text, self.sentences), (self.shuffled, self.shuffled_sentences)

    @property
    def all_texts(self) -> tuple[str, ...]:
        """Everything to encode."""
        return (self.text, *self.sentences, self.shuffled, *self.shuffled_sentences)


def split_texts(data: ProbeData) -> tuple[list[SplitText], Counter[str]]:
    """Return the texts with 5 to 64 sentences, split, and how many were skipped, by reason."""
    most = BUCKETS[-1] + WIDTH - 1
    skipped: Counter[str] = Counter()
    splits = []
    for name, text in data.documents.items():
        sentences = tuple(split_at_periods(text))
        if not BUCKETS[0] <= len(sentences) <= most:
            few = "empty text" if not text.strip() else "one sentence" if len(sentences) == 1 else "fewer than 5 sentences"
            skipped[few if len(sentences) < BUCKETS[0] else f"more than {most} sentences"] += 1
            continue
        shuffled = shuffle_text(name, sentences)
        splits.append(SplitText(name, text, sentences, shuffled, tuple(split_at_periods(shuffled))))
    return splits, skipped


@dataclass(frozen=True)
class SentenceRegression:
    """Pearson's r of sentences' positions and weights, by number of sentences, with slope and p-value."""

    name: ClassVar[str] = "sentence_regression"
    title: ClassVar[str] = "Weight of sentences by position"
    source: ClassVar[str] = SOURCE
    #: Weights that fall with position favor the start.
    preference: ClassVar[Preference] = Preference(sign=-1)
    notes: ClassVar[tuple[str, ...]] = (
        "Start positions, the paper's, make r negative without any bias, because a long sentence pushes its own relative start "
        "down. Compare with r of the order-blind control on the same texts, or read the midpoints.",
    )
    positions: ClassVar[tuple[str, ...]] = tuple(f"{series} · {bucket}" for series in SERIES for bucket in BUCKET_NAMES)

    @property
    def view(self) -> ProbeView:
        """The sign of r of midpoints."""
        find = compare_sides(
            partial(_select, len(BUCKET_NAMES)),
            "Later sentences weigh more: position and weight correlate with r = {}",
            "Earlier sentences weigh more: position and weight correlate with r = -{}",
            "Position and weight of sentences are not shown to correlate",
        )
        titles = {"": "", "shuffled_": "sentences shuffled: ", "order_blind_": f"{CONTROL}: "}
        lines = {"text": "", "shuffled": "sentences shuffled", CONTROL: CONTROL}
        return ProbeView(
            find,
            value="Pearson's r of position and weight",
            place="Sentences of the text",
            form=Form.CATEGORIES,
            summaries={
                f"r_{prefix}{at}": SummaryLabel(f"{title}r of {at}s" if title else f"r of sentences' {at}s and weights")
                for at in ("midpoint", "start")
                for prefix, title in titles.items()
            },
            series={
                f"{text}, {at}": (f"Position: {at} of the sentence", line)
                for text, line in lines.items()
                for at in ("start", "midpoint")
            },
            names=SIZES,
        )

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """Pooled over all numbers of sentences: r of midpoints and of starts, of shuffled texts, and of the control."""
        labels = ("start", "midpoint", "shuffled_start", "shuffled_midpoint", "order_blind_start", "order_blind_midpoint")
        named = [(f"r_{label}", number * len(BUCKET_NAMES)) for number, label in enumerate(labels)]
        ordered = [named[1], named[0], *named[2:]]
        return {name: partial(_select, at) for name, at in ordered}

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text, its sentences, and both shuffled."""
        splits, skipped = split_texts(data)

        def summarize(embeddings: Embeddings) -> ProbeSums:
            names, rows, columns = [], [], []
            for split in splits:
                for series, located, weights in _fit_all(split, embeddings):
                    entry = _moments(located, weights)
                    for bucket in (0, split.bucket + 1):
                        names.append(split.name)
                        rows.append(series * len(BUCKET_NAMES) + bucket)
                        columns.append(entry)
            shaped = np.array(columns, np.float64).reshape(len(rows), 6)
            return ProbeSums.from_columns("pearson", self.positions, names, np.array(rows, np.int64), shaped, skipped)

        return ProbePlan(summarize, [text for split in splits for text in split.all_texts])


def _fit_all(split: SplitText, embeddings: Embeddings) -> list[tuple[int, Floats, Floats]]:
    """Return index of the series, positions and weights for every series that has a fit."""
    control = encode_distinct(order_blind, [split.text, *split.sentences]).normalize()
    sources = (
        (embeddings, split.text, split.sentences),
        (embeddings, split.shuffled, split.shuffled_sentences),
        (control, split.text, split.sentences),
    )
    weights = []
    for number, (vectors, text, sentences) in enumerate(sources):
        fit = fit_sentences(vectors.select([text])[0], vectors.select(sentences))
        if fit is not None:
            starts, midpoints = locate_sentences(sentences)
            weights += [(2 * number, starts, fit.weights), (2 * number + 1, midpoints, fit.weights)]
    return weights


def _moments(x: Floats, y: Floats) -> list[float]:
    """Return the sums that Pearson's r follows from."""
    return [len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y]


@dataclass(frozen=True)
class SentenceRegressionFit:
    """Mean R2 and absolute error of the regression of texts on their sentences, by number of sentences."""

    name: ClassVar[str] = "sentence_regression_fit"
    title: ClassVar[str] = "Fit of sentences to their text"
    source: ClassVar[str] = SOURCE
    notes: ClassVar[tuple[str, ...]] = (
        "R2 is in-sample and over dimensions; with as many sentences as dimensions it is 1. The error is per dimension.",
    )
    positions: ClassVar[tuple[str, ...]] = tuple(
        f"{measure} · {bucket}" for measure in ("R2", "MAE") for bucket in BUCKET_NAMES
    )

    @property
    def view(self) -> ProbeView:
        """The explained share of the variance."""
        return ProbeView(
            state_value("The sentences of a text explain its embedding with R2 = {}", partial(_select, 0)),
            value="Mean over texts",
            place="Sentences of the text",
            form=Form.CATEGORIES,
            summaries={
                "r_squared": SummaryLabel("R2 of sentences for their text"),
                "mae": SummaryLabel("Mean absolute error per dimension"),
            },
            series={"R2": ("R2", ""), "MAE": ("Mean absolute error per dimension", "")},
            shares_axis=False,
            names=SIZES,
        )

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """Means over all texts."""
        return {"r_squared": partial(_select, 0), "mae": partial(_select, len(BUCKET_NAMES))}

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text and its sentences."""
        splits, skipped = split_texts(data)

        def summarize(embeddings: Embeddings) -> ProbeSums:
            values = np.full((len(splits), len(self.positions)), np.nan)
            for row, split in enumerate(splits):
                fit = fit_sentences(embeddings.select([split.text])[0], embeddings.select(split.sentences))
                for first, value in enumerate((fit.r_squared, fit.mae) if fit else ()):
                    values[row, first * len(BUCKET_NAMES) + np.array([0, split.bucket + 1])] = value
            return ProbeSums.from_means(self.positions, [split.name for split in splits], values, skipped)

        return ProbePlan(summarize, [text for split in splits for text in (split.text, *split.sentences)])


#: Cells of the plane of positions, from 0 to 1, and weights, from -1 to 1.
COLUMNS, ROWS = 10, 20


@dataclass(frozen=True)
class SentenceRegressionScatter:
    """Number of sentences by start position and weight, of texts and of shuffled texts, by number of sentences (Fig. 2)."""

    name: ClassVar[str] = "sentence_regression_scatter"
    title: ClassVar[str] = "Starts and weights of single sentences"
    source: ClassVar[str] = SOURCE
    notes: ClassVar[tuple[str, ...]] = ("Shares of all points of texts and shuffled texts; CSV and JSON have every cell.",)
    cells: ClassVar[tuple[tuple[str, float, float], ...]] = tuple(
        (f"{text} · {bucket}", (column + 0.5) / COLUMNS, 2 * (row + 0.5) / ROWS - 1)
        for text in ("text", "shuffled")
        for bucket in BUCKET_NAMES[1:]
        for column in range(COLUMNS)
        for row in range(ROWS)
    )
    cell_size: ClassVar[tuple[float, float]] = (1 / COLUMNS, 2 / ROWS)
    positions: ClassVar[tuple[str, ...]] = tuple(f"{panel} · {x:.2f}, {y:+.2f}" for panel, x, y in cells)

    @property
    def view(self) -> ProbeView:
        """The share of negative weights."""
        (compute,) = self.summaries.values()
        return ProbeView(
            state_value("{} % of the sentences have a negative weight", compute, unit=Unit.PERCENT),
            value="Weight of the sentence",
            place="Start of the sentence, as a share of the text",
            summaries={"negative_weights": SummaryLabel("Sentences with a negative weight (%)", Unit.PERCENT)},
            series={
                f"{text} · {bucket}": (f"{title}, {SIZES[bucket]}", "")
                for text, title in (("text", "Texts"), ("shuffled", "Sentences shuffled"))
                for bucket in BUCKET_NAMES[1:]
            },
        )

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """Share of the sentences with a negative weight, which the paper calls rare."""
        negative = np.array([y < 0 for _, _, y in self.cells])
        return {"negative_weights": lambda values: values[..., negative].sum(axis=-1)}

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text, its sentences, and both shuffled."""
        splits, skipped = split_texts(data)

        def summarize(embeddings: Embeddings) -> ProbeSums:
            names: list[str] = []
            rows: list[int] = []
            for split in splits:
                for shuffled, (text, sentences) in enumerate(split.versions):
                    fit = fit_sentences(embeddings.select([text])[0], embeddings.select(sentences))
                    if fit is not None:
                        panel = shuffled * len(BUCKETS) + split.bucket
                        located = _locate_cells(locate_sentences(sentences)[0], fit.weights)
                        rows += [panel * COLUMNS * ROWS + cell for cell in located]
                        names += [split.name] * len(located)
            return ProbeSums.from_columns(
                "share", self.positions, names, np.array(rows, np.int64), np.ones((len(rows), 1)), skipped
            )

        return ProbePlan(summarize, [text for split in splits for text in split.all_texts])


def _locate_cells(x: Floats, y: Floats) -> list[int]:
    """Return the cells of points, counted by column and then by row."""
    columns = np.minimum((x * COLUMNS).astype(np.int64), COLUMNS - 1)
    rows = np.clip(((y + 1) / 2 * ROWS).astype(np.int64), 0, ROWS - 1)
    located: list[int] = (columns * ROWS + rows).tolist()
    return located
