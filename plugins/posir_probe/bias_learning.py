"""The probes of Bias Learning (arXiv 2412.15241, later OpenReview 4GD7a9Bo9A): perturbation and
sentence regression.

Perturbation (section 3, Fig. 1, Table 2): the cosine of a text and of the same text with something
inserted or removed. The needle is the first `max(int(size x n), 1)` tokens of a filler text for a
text of n tokens, inserted as in the code before character `int(place x length)`, without a
separator. The paper does not name the tokenizer, and its code has `cl100k_base`: tokens are those
of `--tokenizer`, else of the model, or estimated from bytes where it has no tokenizer here. With
`--cut` texts are cut before, as in the code to 2,048 tokens, the largest needle included. The
paper removes sentences, a share rounded up; its code removes tokens: `int(n s)`
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, product
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, select_long_enough
from posir_probe.probe import CONTROL, Form, Probe, ProbePlan, Summary, plan_cosines
from posir_probe.results import ProbeSums, at, average, subtract
from posir_tasks.base.arrays import Floats
from posir_tasks.base.digests import digest
from posir_tasks.models.embeddings.encoding import Embeddings, Vectors, encode_distinct
from posir_tasks.values.scores import Unit

SOURCE = "Bias Learning, OpenReview 4GD7a9Bo9A, arXiv 2412.15241v3, section {}"
#: Series of the means over all sizes, which the paper's Table 2 prints.
MEAN = "mean over sizes"
#: Typesetters' filler; repeated, it is longer than any text.
FILLER = """
lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore
et dolore magna aliqua ut enim ad minim veniam quis nostrud exercitation ullamco laboris nisi ut
aliquip ex ea commodo consequat
""".split()  # noqa: SIM905
#: Places of a change in the paper's code; the paper has the first, the middle and the last.
CODE_PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Fewest sentences of each bucket.
BUCKETS = (5, 15, 25, 35, 45, 55)
#: Numbers of sentences of a bucket.
WIDTH = 10
MAX_SENTENCES = BUCKETS[-1] + WIDTH - 1
#: Titles of the buckets by name.
RANGES = {f"{low}-{low + WIDTH - 1}": f"{low} to {low + WIDTH - 1} sentences" for low in BUCKETS}
SIZES = {"all": "all", **RANGES}
BUCKET_NAMES = tuple(SIZES)
#: Kinds of texts, each a line.
LINES = ("text", "shuffled", CONTROL)
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
    sizes: Sequence[float]
    """Shares of the text."""
    places: Sequence[float] = CODE_PLACES[::2]
    """Relative places, from 0 (start) to 1 (end)."""
    cut_share = 1.0
    changed: str
    """The change as a panel names it, such as `inserted`."""

    def __init__(self) -> None:
        sizes = [f"{size:.0%}" for size in self.sizes]
        places = [f"{place:.0%}" for place in self.places]
        self.positions = tuple(
            f"{size} of the text · {place}" for size, place in product(sizes, places)
        )
        means = {
            place: average(slice(index, None, len(places))) for index, place in enumerate(places)
        }
        self.averages = {f"{MEAN} · {place}": mean for place, mean in means.items()}
        self.series = {f"{size} of the text": (f"{size} {self.changed}", "") for size in sizes}
        self.series[MEAN] = ("Mean over all sizes", "")
        start = means["0%"]
        end = means["100%"]
        #: Means over sizes: relative drop from end to start, as the paper quotes it, and the means
        #: at start, middle and end.
        self.summaries = {
            "relative_drop": Summary(
                f"Relative drop, {self.changed} at start",
                lambda values: 1 - start(values) / end(values),
            ),
            "start": Summary(f"Cosine, {self.changed} at the start", start),
            "middle": Summary(f"Cosine, {self.changed} in the middle", means["50%"]),
            "end": Summary(f"Cosine, {self.changed} at the end", end),
            "end_minus_start": Summary(
                f"Cosine, {self.changed} at end minus start", subtract(end, start)
            ),
        }

    def change(self, data: ProbeData, text: str) -> Iterable[str]:
        """Change a text by each share of its size at each relative place; nothing if it cannot be
        changed.
        """
        raise NotImplementedError

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text, and it as changed under every condition."""
        chosen, skipped = select_long_enough(data)
        changed = {name: list(self.change(data, text)) for name, text in chosen.items()}
        names = [name for name, versions in changed.items() if versions]
        skipped["only one sentence"] += len(changed) - len(names)
        texts = [chosen[name] for name in names]
        versions = [changed[name] for name in names]
        return plan_cosines(self.positions, names, texts, versions, +skipped)


class NeedleInsertion(Perturbation):
    """Cosine of a text and of the same text with a needle, with sizes and places of the paper."""

    name = "needle_insertion"
    title = "Meaningless words inserted"
    notes = (
        "Meaningless words are inserted into a text, and both are compared. The lower the cosine, "
        "the more this place counts.",
        "The needle divides words, as in the paper's code, so an order-blind model is not quite "
        "equal at all places. Tokens are those of --tokenizer, else of the model, or estimated.",
    )
    sizes = (0.05, 0.1, 0.25, 0.5, 1.0)
    #: So that text and largest needle fit together.
    cut_share = 1 / (1 + max(sizes))
    changed = "inserted"

    def change(self, data: ProbeData, text: str) -> Iterator[str]:
        """Insert a needle of a share of the text's tokens at a relative place."""
        (tokens,) = data.counter.find_tokens([text])
        # No word has less than a token.
        filler = " ".join(islice(cycle(FILLER), len(tokens)))
        (filler_tokens,) = data.counter.find_tokens([filler])
        for size, place in product(self.sizes, self.places):
            last = max(1, int(size * len(tokens))) - 1
            needle = filler[: filler_tokens[last, 1]]
            at = int(place * len(text))
            yield text[:at] + needle + text[at:]


class NeedleInsertionCode(NeedleInsertion):
    """Needle insertion with the sizes and places of the paper's code."""

    name = "needle_insertion_code"
    title = "Words inserted at five places"
    is_variant = True
    sizes = (0.05, 0.1, 0.2, 0.5, 1.0)
    places = CODE_PLACES


class TextRemoval(Perturbation):
    """Cosine of a text and of the same text without a share of its sentences, as in the paper."""

    name = "text_removal"
    title = "Part of a text removed"
    notes = (
        "Some sentences of a text are removed, and both are compared. The lower the cosine, the "
        "more the removed part counts.",
    )
    sizes: Sequence[float] = (0.1, 0.25, 0.5)
    changed = "removed"
    needs_sentences = True

    def change(self, data: ProbeData, text: str) -> Iterator[str]:
        """Remove a share of the sentences, rounded up, or of the tokens, rounded down.

        The white space after them goes, too; at the end of the text, that before them.
        """
        if self.needs_sentences:
            starts = [span.start for span in data.find_sentences(text)]
        else:
            starts = data.counter.find_tokens([text])[0][:, 0].tolist()
        number = len(starts)
        starts.append(len(text))
        for size, place in product(self.sizes, self.places if number > 1 else ()):
            if self.needs_sentences:
                count = math.ceil(size * number)
                first = int(place * (number - count))
            else:
                count = int(number * size)
                first = int(number * (place - size * place))
            yield (text[: starts[first]] + text[starts[first + count] :]).rstrip()


class TextRemovalCode(TextRemoval):
    """Removal of tokens, with the sizes and places of the paper's code."""

    name = "text_removal_code"
    title = "Tokens of a text removed"
    is_variant = True
    needs_sentences = False
    sizes = (0.05, 0.1, 0.2, 0.5)
    places = CODE_PLACES


class Fit(NamedTuple):
    """The regression of one text on its m sentences, in-sample and over dimensions."""

    weights: Floats
    """Coefficients, scaled to unit length; shape (m,)."""
    r_squared: float
    """May be negative without an intercept."""
    mae: float
    """Mean absolute error of a dimension."""
    squared_error: float
    """Summed over the dimensions."""


def fit_sentences(text: Vectors, sentences: Vectors) -> Fit | None:
    """Regress a text's embedding, shape (d,), on its sentences', shape (m, d), without an
    intercept; None if all weights are 0.

    With as many sentences as dimensions the fit is exact. Of repeated sentences, the solution has
    the minimum norm.
    """
    target = text.astype(float)
    columns = sentences.astype(float).T
    coefficients: Floats = np.linalg.lstsq(columns, target, rcond=None)[0]
    length = np.linalg.norm(coefficients)
    if not length:
        return None
    error = target - columns @ coefficients
    spread = target - target.mean()
    r_squared = 1 - float(error @ error) / float(spread @ spread)
    mae = float(np.abs(error).mean())
    return Fit(coefficients / length, r_squared, mae, float(error @ error))


def locate_sentences(sentences: Sequence[str]) -> tuple[Floats, Floats]:
    """Locate the start and the midpoint of each sentence in all of them joined without a separator,
    relative to their length; shape (m,).
    """
    lengths = np.array([len(sentence) for sentence in sentences], float)
    ends = lengths.cumsum()
    return (ends - lengths) / ends[-1], (ends - lengths / 2) / ends[-1]


@dataclass(frozen=True)
class SplitText:
    """A text and its sentences."""

    name: str
    line: int
    """Index in `LINES`: in order, with its sentences shuffled, or in order for the control."""
    bucket: int
    """Index of its bucket by number of sentences."""
    texts: Sequence[str]
    """The text, then its sentences."""

    @property
    def buckets(self) -> list[int]:
        """Indexes in `BUCKET_NAMES` of those that the text is in."""
        return [0, self.bucket + 1]


#: A text and its regression.
Fitted: TypeAlias = tuple[SplitText, Fit]


class RegressionProbe(Probe):
    """A probe of texts of 5 to 64 sentences, and of the same texts with their sentences in random
    order.
    """

    source = SOURCE.format(4)
    needs_sentences = True
    cut_share = 1.0
    lines = 2
    """How many of `LINES` it measures."""

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text and its sentences, and both shuffled in an order that the text's id
        determines.
        """
        skipped = Counter[str]()
        versions: list[SplitText] = []
        for name, text in data.documents.items():
            sentences = data.split_sentences(text)
            if not BUCKETS[0] <= len(sentences) <= MAX_SENTENCES:
                skipped[f"not {BUCKETS[0]} to {MAX_SENTENCES} sentences"] += 1
                continue
            bucket = (len(sentences) - BUCKETS[0]) // WIDTH
            in_order = [text, *sentences]
            random.Random(digest(name)).shuffle(sentences)
            mixed = " ".join(sentences)
            shuffled = [mixed, *data.split_sentences(mixed)]
            for line, texts in enumerate((in_order, shuffled, in_order)[: self.lines]):
                versions.append(SplitText(name, line, bucket, texts))

        def summarize(embeddings: Embeddings) -> ProbeSums:
            fitted = []
            for split in versions:
                vectors = embeddings
                if LINES[split.line] == CONTROL:
                    vectors = encode_distinct(order_blind, split.texts).normalize()
                text, *parts = vectors.select(split.texts)
                if fit := fit_sentences(text, np.array(parts)):
                    fitted.append((split, fit))
            return replace(self.summarize(fitted), skipped=skipped)

        return ProbePlan(summarize, [text for split in versions for text in split.texts])

    def summarize(self, fitted: Sequence[Fitted]) -> ProbeSums:
        """Sum the values of texts."""
        raise NotImplementedError


def _summarize_r() -> dict[str, Summary]:
    """Build the summaries of r pooled over all numbers of sentences."""
    summaries = {}
    for name, text, title in (
        ("r", "text", "r of sentences' {}s and weights"),
        ("r_shuffled", "shuffled", "sentences shuffled: r of {}s"),
        ("r_order_blind", CONTROL, CONTROL + ": r of {}s"),
    ):
        for position in ("midpoint", "start"):
            index = SERIES.index(f"{text}, {position}") * len(BUCKET_NAMES)
            summaries[f"{name}_{position}"] = Summary(title.format(position), at(index))
    return summaries


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
    lines = 3
    positions = tuple(f"{series} · {bucket}" for series, bucket in product(SERIES, BUCKET_NAMES))
    summaries = _summarize_r()
    preference_sign = -1
    value_title = "Pearson's r of position and weight"
    place_title = "Sentences of the text"
    form = Form.CATEGORIES
    series = {
        f"{text}, {position}": (f"By the {position} of sentences", line)
        for text, line in zip(LINES, ("", "sentences shuffled", CONTROL), strict=True)
        for position in ("start", "midpoint")
    }
    place_names = SIZES

    def summarize(self, fitted: Sequence[Fitted]) -> ProbeSums:
        """Sum the moments that Pearson's r follows from, of every series and bucket."""
        names: list[str] = []
        rows: list[int] = []
        columns: list[list[Any]] = []
        for split, fit in fitted:
            y = fit.weights
            for series, x in enumerate(locate_sentences(split.texts[1:]), 2 * split.line):
                for bucket in split.buckets:
                    names.append(split.name)
                    rows.append(series * len(BUCKET_NAMES) + bucket)
                    columns.append([len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y])
        moments = np.array(columns).reshape(len(rows), 6)
        indexes = np.array(rows, int)
        return ProbeSums.from_columns("pearson", self.positions, names, indexes, moments)


class SentenceRegressionFit(RegressionProbe):
    """Mean R2 and errors of the regression of texts on their sentences, by number of sentences."""

    name = "sentence_regression_fit"
    title = "Fit of sentences to their text"
    notes = (
        "R² is in-sample and over dimensions; with as many sentences as dimensions it is 1. "
        "Appendix D of the paper sums its error over the dimensions, as the squared error here; "
        "its figures of 0.001 to 0.01 are those of the absolute error per dimension.",
    )
    positions = tuple(
        f"{measure} · {bucket}" for measure, bucket in product(("R2", "MAE", "SSE"), BUCKET_NAMES)
    )
    summaries = {
        "r_squared": Summary("R² of sentences for their text", at(0)),
        "mae": Summary("Mean absolute error per dimension", at(len(BUCKET_NAMES))),
        "squared_error": Summary("Squared error, all dimensions", at(2 * len(BUCKET_NAMES))),
    }
    lines = 1
    value_title = "Mean over texts"
    place_title = "Sentences of the text"
    form = Form.CATEGORIES
    series = {
        "R2": ("R²", ""),
        "MAE": ("Mean absolute error", ""),
        "SSE": ("Squared error", ""),
    }
    same_scale = False
    place_names = SIZES

    def summarize(self, fitted: Sequence[Fitted]) -> ProbeSums:
        """Average R2 and errors, over all texts and by bucket."""
        values = np.full((len(fitted), 3, len(BUCKET_NAMES)), np.nan)
        for row, (split, fit) in enumerate(fitted):
            for measure, value in enumerate((fit.r_squared, fit.mae, fit.squared_error)):
                values[row, measure, split.buckets] = value
        names = [split.name for split, _ in fitted]
        by_position = values.reshape(len(fitted), len(self.positions))
        return ProbeSums.from_means(self.positions, names, by_position)


class SentenceRegressionScatter(RegressionProbe):
    """Number of sentences by start position and weight, of texts and of shuffled texts, by number
    of sentences (Fig. 2).
    """

    name = "sentence_regression_scatter"
    title = "Starts and weights of single sentences"
    notes = ("Each sentence of texts, and of the same texts with their sentences shuffled.",)
    cells = CELLS
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
        f"{text.lower()} · {bucket}": (f"{text}, {title}", "")
        for text, (bucket, title) in product(("Text", "Shuffled"), RANGES.items())
    }

    def summarize(self, fitted: Sequence[Fitted]) -> ProbeSums:
        """Count the sentences in each cell of each panel, by column and then by row."""
        names: list[str] = []
        rows: list[int] = []
        for split, fit in fitted:
            starts, _ = locate_sentences(split.texts[1:])
            column = np.minimum((starts * COLUMNS).astype(int), COLUMNS - 1)
            row = np.clip(((fit.weights + 1) / 2 * ROWS).astype(int), 0, ROWS - 1)
            panel = split.line * len(BUCKETS) + split.bucket
            rows += ((panel * COLUMNS + column) * ROWS + row).tolist()
            names += [split.name] * len(column)
        return ProbeSums.from_counts(self.positions, names, rows)
