"""The share of a text's embedding that each sentence explains, by where the sentence is.

Source: arXiv 2412.15241; section 4, Fig. 2, Tables 3, 5-7 of its later version, Bias Learning
(OpenReview 4GD7a9Bo9A). A text's embedding
is regressed on those of its sentences, embedded alone; the coefficients, scaled to unit length, are correlated with the
sentences' relative positions, pooled over the texts with i <= m < i + 10 sentences, i = 5, 15, .., 55.

The paper does not say whether there is an intercept; the last commit of its code has none, and so it is here. A position is the
share of characters before a sentence. Such start positions make r negative without any bias, since a long sentence pushes its
own relative start down: so r of midpoints, and r of an order-blind embedder on the same texts, are beside it. A text's
sentences in random order are the control for what the sentences themselves contribute.

Sentences are those of the text's language. The code splits at line breaks and `. `, which leaves one sentence of a text in many
scripts, and appends a period to each; `split_at_periods` does the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from posir_probe.controls import order_blind
from posir_probe.data import ProbeData
from posir_probe.probe import CONTROL, Form, Preference, Probe, ProbePlan, SignedFinding, Statement, Summary
from posir_probe.results import ProbeSums, at
from posir_tasks.cells import Floats
from posir_tasks.digests import digest
from posir_tasks.embeddings.encoding import Embeddings, Vectors, encode_distinct
from posir_tasks.scores import Unit

#: Fewest sentences of each bucket, and how many more the next one needs.
BUCKETS, WIDTH = (5, 15, 25, 35, 45, 55), 10
BUCKET_NAMES = ("all", *(f"{low}-{low + WIDTH - 1}" for low in BUCKETS))
#: Titles of the buckets.
SIZES = {name: "all" if name == "all" else f"{name.replace('-', ' to ')} sentences" for name in BUCKET_NAMES}
SOURCE = "Bias Learning, OpenReview 4GD7a9Bo9A, section 4"
#: Lines by the name of a kind of text.
LINES = {"text": "", "shuffled": "sentences shuffled", CONTROL: CONTROL}
SERIES = tuple(f"{text}, {position}" for text, position in product(LINES, ("start", "midpoint")))
#: Cells of the plane of positions, from 0 to 1, and weights, from -1 to 1.
COLUMNS, ROWS = 10, 20
CELLS = tuple(
    (f"{text} · {bucket}", (column + 0.5) / COLUMNS, 2 * (row + 0.5) / ROWS - 1)
    for text in ("text", "shuffled")
    for bucket in BUCKET_NAMES[1:]
    for column in range(COLUMNS)
    for row in range(ROWS)
)
IS_NEGATIVE = np.array([weight < 0 for _, _, weight in CELLS])


@dataclass(frozen=True)
class Fit:
    """The regression of one text on its m sentences."""

    weights: Floats
    """Coefficients, scaled to unit length; shape (m,)."""
    r_squared: float
    """Explained share of the variance over dimensions, in-sample; may be negative without an intercept."""
    mae: float
    """Mean absolute error over dimensions."""


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
        sentences = tuple(data.split_sentences(text))
        if not BUCKETS[0] <= len(sentences) <= most:
            few = "empty text" if not text.strip() else "one sentence" if len(sentences) == 1 else "fewer than 5 sentences"
            skipped[few if len(sentences) < BUCKETS[0] else f"more than {most} sentences"] += 1
            continue
        shuffled = shuffle_text(name, sentences)
        splits.append(SplitText(name, text, sentences, shuffled, tuple(data.split_sentences(shuffled))))
    return splits, skipped


def summarize_correlations() -> dict[str, Summary]:
    """Return r of midpoints and of starts, pooled over all numbers of sentences: of texts, shuffled texts, and the control."""
    names = {"text": "r_", "shuffled": "r_shuffled_", CONTROL: "r_order_blind_"}
    summaries = {}
    for position, (text, line) in product(("midpoint", "start"), LINES.items()):
        place = SERIES.index(f"{text}, {position}") * len(BUCKET_NAMES)
        title = f"{line}: r of {position}s" if line else f"r of sentences' {position}s and weights"
        summaries[f"{names[text]}{position}"] = Summary(title, at(place))
    order = ("midpoint", "start", "shuffled_start", "shuffled_midpoint", "order_blind_start", "order_blind_midpoint")
    return {f"r_{name}": summaries[f"r_{name}"] for name in order}


class SentenceRegression(Probe):
    """Pearson's r of sentences' positions and weights, by number of sentences, with slope and p-value."""

    name = "sentence_regression"
    title = "Weight of sentences by position"
    source = SOURCE
    notes = (
        "Start positions, the paper's, make r negative without any bias, because a long sentence pushes its own relative start "
        "down. Compare with r of the order-blind control on the same texts, or read the midpoints.",
    )
    positions = tuple(f"{series} · {bucket}" for series, bucket in product(SERIES, BUCKET_NAMES))
    summaries = summarize_correlations()
    finding = SignedFinding(
        "Later sentences weigh more: position and weight correlate with r = {}",
        "Earlier sentences weigh more: position and weight correlate with r = {}",
        "whether position and weight of sentences correlate",
    )
    #: Weights that fall with position favor the start.
    preference = Preference(sign=-1)
    needs_sentences = True
    value_title = "Pearson's r of position and weight"
    place_title = "Sentences of the text"
    form = Form.CATEGORIES
    series = {
        f"{text}, {position}": (f"Position: {position} of the sentence", line)
        for (text, line), position in product(LINES.items(), ("start", "midpoint"))
    }
    place_names = SIZES

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


class SentenceRegressionFit(Probe):
    """Mean R2 and absolute error of the regression of texts on their sentences, by number of sentences."""

    name = "sentence_regression_fit"
    title = "Fit of sentences to their text"
    source = SOURCE
    notes = ("R2 is in-sample and over dimensions; with as many sentences as dimensions it is 1. The error is per dimension.",)
    positions = tuple(f"{measure} · {bucket}" for measure in ("R2", "MAE") for bucket in BUCKET_NAMES)
    summaries = {
        "r_squared": Summary("R2 of sentences for their text", at(0)),
        "mae": Summary("Mean absolute error per dimension", at(len(BUCKET_NAMES))),
    }
    finding = Statement("The sentences of a text explain its embedding with R2 = {}")
    needs_sentences = True
    value_title = "Mean over texts"
    place_title = "Sentences of the text"
    form = Form.CATEGORIES
    series = {"R2": ("R2", ""), "MAE": ("Mean absolute error per dimension", "")}
    same_scale = False
    place_names = SIZES

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


class SentenceRegressionScatter(Probe):
    """Number of sentences by start position and weight, of texts and of shuffled texts, by number of sentences (Fig. 2)."""

    name = "sentence_regression_scatter"
    title = "Starts and weights of single sentences"
    source = SOURCE
    notes = ("Shares of all points of texts and shuffled texts; CSV and JSON have every cell.",)
    cells = CELLS
    cell_size = (1 / COLUMNS, 2 / ROWS)
    positions = tuple(f"{panel} · {x:.2f}, {y:+.2f}" for panel, x, y in CELLS)
    summaries = {
        #: The paper calls negative weights rare.
        "negative_weights": Summary(
            "Sentences with a negative weight (%)", lambda values: values[..., IS_NEGATIVE].sum(axis=-1), Unit.PERCENT
        )
    }
    finding = Statement("{} % of the sentences have a negative weight")
    needs_sentences = True
    value_title = "Weight of the sentence"
    place_title = "Start of the sentence, as a share of the text"
    form = Form.CELLS
    series = {
        f"{text} · {bucket}": (f"{title}, {SIZES[bucket]}", "")
        for text, title in (("text", "Texts"), ("shuffled", "Sentences shuffled"))
        for bucket in BUCKET_NAMES[1:]
    }

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
