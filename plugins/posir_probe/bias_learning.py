"""The probes of Bias Learning (arXiv 2412.15241, later OpenReview 4GD7a9Bo9A): perturbation and
sentence regression.

Perturbation (section 3, Fig. 1, Table 2) measures the cosine of a text with the same text after an
insertion or removal. For a text of n tokens, the needle is the first `max(int(size x n), 1)` tokens
of a filler text. As in the authors' code, it is inserted before character `int(position x length)`,
without a separator. The paper does not name the tokenizer, and the code uses `cl100k_base`. Here,
tokens are from `--tokenizer` or the model's tokenizer. If there is neither, they are estimated from
bytes. `--cut` first truncates texts; the code truncates to 2,048 tokens including the largest
needle. The paper removes a share of the sentences, rounded up. The code removes `int(n s)` tokens
starting at `int(n (p - s p))`, for a share s at position p.

Sentence regression (section 4, Fig. 2, Tables 3, 5-7) regresses the embedding of a text on the
embeddings of its individual sentences. The coefficients, scaled to unit length, are correlated with
the relative positions of the sentences, pooled over texts with i <= m < i + 10 sentences, i = 5,
15, .., 55. The paper does not mention an intercept, and the latest commit of its code fits none, so
none is fitted here. A position is the share of characters before a sentence. Start positions make r
negative even without bias, since a long sentence has an early relative start. The probe therefore
also reports r for midpoints, and r for an order-blind embedder on the same texts. Texts with
shuffled sentences control for the effect of the sentences themselves.

Sentences are split by language-specific rules. The authors' code splits at line breaks and `. `,
which does not work for many scripts, and appends a period to each sentence; `split_at_periods` does
the same.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice, product
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, select_long_enough
from posir_probe.probe import CONTROL, Probe, ProbePlan, Summary, plan_cosines
from posir_probe.results import ProbeSums, average, select, subtract
from posir_tasks.base.arrays import Floats
from posir_tasks.base.digests import digest
from posir_tasks.models.embeddings.encoding import Embeddings, Vectors, encode_distinct
from posir_tasks.values.scores import Unit

SOURCE = "Bias Learning, OpenReview 4GD7a9Bo9A, arXiv 2412.15241v3, section {}"
#: Series of the means over all sizes, as in the paper's Table 2.
MEAN_SERIES = "mean over sizes"
#: Filler text, repeated as often as needed.
FILLER = """
lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore
et dolore magna aliqua ut enim ad minim veniam quis nostrud exercitation ullamco laboris nisi ut
aliquip ex ea commodo consequat
""".split()  # noqa: SIM905
#: Relative positions of a change in the authors' code; the paper uses the first, the middle and the
#: last.
CODE_POSITIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Minimum number of sentences in each bucket.
BUCKET_STARTS = (5, 15, 25, 35, 45, 55)
BUCKET_WIDTH = 10
MAX_SENTENCES = BUCKET_STARTS[-1] + BUCKET_WIDTH - 1
#: Bucket titles by name.
BUCKET_TITLES = {
    f"{low}-{low + BUCKET_WIDTH - 1}": f"{low} to {low + BUCKET_WIDTH - 1} sentences"
    for low in BUCKET_STARTS
}
POSITION_TITLES = {"all": "all", **BUCKET_TITLES}
BUCKET_NAMES = tuple(POSITION_TITLES)
#: Kinds of texts. Each kind is a line in the figure.
TEXT_KINDS = ("text", "shuffled", CONTROL)
SERIES = tuple(
    f"{text}, {position}" for text, position in product(TEXT_KINDS, ("start", "midpoint"))
)
#: Columns are positions in [0, 1], and rows are weights in [-1, 1].
HISTOGRAM_COLUMNS, HISTOGRAM_ROWS = 10, 20
#: Panel name, position and weight of each cell.
HISTOGRAM_CELLS = tuple(
    (f"{text} · {bucket}", (column + 0.5) / HISTOGRAM_COLUMNS, 2 * (row + 0.5) / HISTOGRAM_ROWS - 1)
    for text, bucket, column, row in product(
        ("text", "shuffled"), BUCKET_TITLES, range(HISTOGRAM_COLUMNS), range(HISTOGRAM_ROWS)
    )
)
IS_NEGATIVE = np.array([weight < 0 for _, _, weight in HISTOGRAM_CELLS])


class Perturbation(Probe):
    """Cosine between a text and the text with a change of a given size at a given position.

    Conditions are named by size and position, such as `5% of the text · 0%`.
    """

    source = SOURCE.format(3)
    headline = ("end_minus_start", "start", "end")
    preference_sign = 1
    value_title = "Cosine with original"
    position_title = "Position of the change"
    position_names = {"0%": "start", "50%": "middle", "100%": "end"}
    sizes: Sequence[float]
    """Sizes of the change, as shares of the text."""
    change_positions: Sequence[float] = CODE_POSITIONS[::2]
    """Relative positions of the change, from 0 (start) to 1 (end)."""
    cut_share = 1.0
    change_name: str
    """Verb for titles, such as `inserted`."""

    def __init__(self) -> None:
        sizes = [f"{size:.0%}" for size in self.sizes]
        percentages = [f"{position:.0%}" for position in self.change_positions]
        self.positions = tuple(
            f"{size} of the text · {position}" for size, position in product(sizes, percentages)
        )
        step = len(percentages)
        means = {name: average(slice(i, None, step)) for i, name in enumerate(percentages)}
        self.averages = {f"{MEAN_SERIES} · {name}": mean for name, mean in means.items()}
        self.series = {f"{size} of the text": (f"{size} {self.change_name}", "") for size in sizes}
        self.series[MEAN_SERIES] = ("Mean over all sizes", "")
        start = means["0%"]
        end = means["100%"]
        # Means over sizes. The paper reports the relative drop from end to start.
        self.summaries = {
            "relative_drop": Summary(
                f"Relative drop, {self.change_name} at start",
                lambda values: 1 - start(values) / end(values),
            ),
            "start": Summary(f"Cosine, {self.change_name} at the start", start),
            "middle": Summary(f"Cosine, {self.change_name} in the middle", means["50%"]),
            "end": Summary(f"Cosine, {self.change_name} at the end", end),
            "end_minus_start": Summary(
                f"Cosine, {self.change_name} at end minus start", subtract(end, start)
            ),
        }

    def change(self, data: ProbeData, text: str) -> Iterable[str]:
        """Yield a changed text per size and position, or nothing if the text is too short."""
        raise NotImplementedError

    def plan(self, data: ProbeData) -> ProbePlan:
        """Compare every text with its changed versions."""
        documents, skipped = select_long_enough(data)
        names: list[str] = []
        versions: list[list[str]] = []
        for name, text in documents.items():
            if changed_texts := list(self.change(data, text)):
                names.append(name)
                versions.append(changed_texts)
        skipped["only one sentence"] += len(documents) - len(names)
        texts = [documents[name] for name in names]
        return plan_cosines(self.positions, names, texts, versions, skipped)


class NeedleInsertion(Perturbation):
    """Insertion of a needle, with the sizes and positions of the paper."""

    name = "needle_insertion"
    title = "Meaningless words inserted"
    notes = (
        "Meaningless words are inserted into a text, and both texts are compared. The lower the "
        "cosine, the more weight this position has.",
        "The needle may split a word, as in the authors' code, so the values of an order-blind "
        "model also differ slightly between positions. Tokens are from --tokenizer or the model's "
        "tokenizer, or estimated if there is neither.",
    )
    sizes = (0.05, 0.1, 0.25, 0.5, 1.0)
    #: Leaves room for the largest needle.
    cut_share = 1 / (1 + max(sizes))
    change_name = "inserted"

    def change(self, data: ProbeData, text: str) -> Iterator[str]:
        """Yield the text with a needle of each size at each position."""
        (tokens,) = data.edit_tokenizer.find_tokens([text])
        # A word has at least one token.
        filler = " ".join(islice(cycle(FILLER), len(tokens)))
        (filler_tokens,) = data.edit_tokenizer.find_tokens([filler])
        for size, position in product(self.sizes, self.change_positions):
            last = max(1, int(size * len(tokens))) - 1
            needle = filler[: filler_tokens[last, 1]]
            index = int(position * len(text))
            yield text[:index] + needle + text[index:]


class NeedleInsertionCode(NeedleInsertion):
    """Insertion of a needle, with the sizes and positions of the authors' code."""

    name = "needle_insertion_code"
    title = "Words inserted at five positions"
    is_variant = True
    sizes = (0.05, 0.1, 0.2, 0.5, 1.0)
    change_positions = CODE_POSITIONS


class TextRemoval(Perturbation):
    """Removal of sentences, with the sizes and positions of the paper."""

    name = "text_removal"
    title = "Part of a text removed"
    notes = (
        "Some sentences of a text are removed, and both texts are compared. The lower the cosine, "
        "the more weight the removed part has.",
    )
    sizes: Sequence[float] = (0.1, 0.25, 0.5)
    change_name = "removed"
    needs_sentences = True

    def change(self, data: ProbeData, text: str) -> Iterator[str]:
        """Yield the text without a share of its sentences (rounded up) or tokens (rounded down).

        White space after the removed part is also removed, or before it at the end of the text.
        """
        if self.needs_sentences:
            starts = [span.start for span in data.find_sentences(text)]
        else:
            starts = data.edit_tokenizer.find_tokens([text])[0][:, 0].tolist()
        total = len(starts)
        starts.append(len(text))
        for size, position in product(self.sizes, self.change_positions if total > 1 else ()):
            if self.needs_sentences:
                count = math.ceil(size * total)
                first = int(position * (total - count))
            else:
                count = int(total * size)
                first = int(total * (position - size * position))
            yield (text[: starts[first]] + text[starts[first + count] :]).rstrip()


class TextRemovalCode(TextRemoval):
    """Removal of tokens, with the sizes and positions of the authors' code."""

    name = "text_removal_code"
    title = "Tokens of a text removed"
    is_variant = True
    needs_sentences = False
    sizes = (0.05, 0.1, 0.2, 0.5)
    change_positions = CODE_POSITIONS


class SentenceFit(NamedTuple):
    """Regression of a text on its m sentences. Errors are in-sample, over dimensions."""

    weights: Floats
    """Coefficients scaled to unit length, shape (m,)."""
    r_squared: float
    """R², which may be negative since there is no intercept."""
    mae: float
    """Mean absolute error per dimension."""
    squared_error: float
    """Sum of squared errors over the dimensions."""


def fit_sentences(text_vector: Vectors, sentence_vectors: Vectors) -> SentenceFit | None:
    """Regress the embedding of a text on the embeddings of its sentences, without an intercept.

    The fit is exact if there are at least as many sentences as dimensions. If sentences repeat, the
    solution with the minimum norm is returned.

    Args:
        text_vector: Embedding of the text, shape (d,).
        sentence_vectors: Embeddings of its sentences, shape (m, d).

    Returns:
        The regression, or None if all weights are 0.
    """
    target = text_vector.astype(float)
    columns = sentence_vectors.astype(float).T
    coefficients: Floats = np.linalg.lstsq(columns, target, rcond=None)[0]
    length = np.linalg.norm(coefficients)
    if not length:
        return None
    residuals = target - columns @ coefficients
    centered = target - target.mean()
    squared_error = float(residuals @ residuals)
    r_squared = 1 - squared_error / float(centered @ centered)
    mae = float(np.abs(residuals).mean())
    return SentenceFit(coefficients / length, r_squared, mae, squared_error)


def locate_sentences(sentences: Sequence[str]) -> tuple[Floats, Floats]:
    """Compute the relative starts and midpoints of sentences that are joined without separators.

    Both arrays have shape (m,) and values in [0, 1].
    """
    lengths = np.array([len(sentence) for sentence in sentences], float)
    ends = lengths.cumsum()
    return (ends - lengths) / ends[-1], (ends - lengths / 2) / ends[-1]


class SplitText(NamedTuple):
    """A text and its sentences."""

    document: str
    kind: int
    """Index in `TEXT_KINDS`. For the control, the sentences are in order."""
    buckets: list[int]
    """Indices in `BUCKET_NAMES`: `all`, and the bucket for the number of sentences."""
    texts: Sequence[str]
    """The text, followed by its sentences."""


#: A text and its regression.
FittedText: TypeAlias = tuple[SplitText, SentenceFit]


class RegressionProbe(Probe):
    """A regression on the sentences of texts with 5 to 64 sentences, in order and shuffled."""

    source = SOURCE.format(4)
    needs_sentences = True
    cut_share = 1.0
    kind_count = 2
    """Number of text kinds to measure."""

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text and its sentences, in order and shuffled with the text's id as seed."""
        skipped_counts = Counter[str]()
        split_texts: list[SplitText] = []
        for name, text in data.documents.items():
            sentences = data.split_sentences(text)
            if not BUCKET_STARTS[0] <= len(sentences) <= MAX_SENTENCES:
                skipped_counts[f"not {BUCKET_STARTS[0]} to {MAX_SENTENCES} sentences"] += 1
                continue
            buckets = [0, 1 + (len(sentences) - BUCKET_STARTS[0]) // BUCKET_WIDTH]
            in_order = [text, *sentences]
            random.Random(digest(name)).shuffle(sentences)
            shuffled_text = " ".join(sentences)
            shuffled = [shuffled_text, *data.split_sentences(shuffled_text)]
            for kind, texts in enumerate((in_order, shuffled, in_order)[: self.kind_count]):
                split_texts.append(SplitText(name, kind, buckets, texts))

        def summarize(embeddings: Embeddings) -> ProbeSums:
            fits = []
            for split in split_texts:
                vectors = embeddings
                if TEXT_KINDS[split.kind] == CONTROL:
                    vectors = encode_distinct(order_blind, split.texts).normalize()
                text_vector, *sentence_vectors = vectors.select(split.texts)
                if fit := fit_sentences(text_vector, np.array(sentence_vectors)):
                    fits.append((split, fit))
            return self.summarize(fits)

        texts = [text for split in split_texts for text in split.texts]
        return ProbePlan(summarize, texts, skipped=skipped_counts)

    def summarize(self, fits: Sequence[FittedText]) -> ProbeSums:
        """Sum a statistic of the fits over texts."""
        raise NotImplementedError


class SentenceRegression(RegressionProbe):
    """Pearson's r between positions and weights of sentences, by number of sentences, with slope
    and p-value.
    """

    name = "sentence_regression"
    title = "Weight of sentences by position"
    notes = (
        "The embedding of a text is approximated by a weighted sum of its sentences' embeddings. A "
        "negative r means that weights decrease from start to end. If r is the same with shuffled "
        "sentences, the position matters, not the content.",
        "Start positions, as in the paper, make r negative even without bias, because a long "
        "sentence has an early relative start. Compare with r for the order-blind control on the "
        "same texts, or use the midpoints.",
    )
    kind_count = 3
    positions = tuple(f"{series} · {bucket}" for series, bucket in product(SERIES, BUCKET_NAMES))
    summaries = {
        "r_midpoint": Summary(
            "r of sentence midpoints and weights",
            select(positions.index("text, midpoint · all")),
        )
    }
    preference_sign = -1
    value_title = "Pearson's r of position and weight"
    position_title = "Sentences of the text"
    is_ordered = False
    series = {
        f"{text}, {position}": (f"By the {position} of sentences", line)
        for text, line in zip(TEXT_KINDS, ("", "sentences shuffled", CONTROL), strict=True)
        for position in ("start", "midpoint")
    }
    position_names = POSITION_TITLES

    def summarize(self, fits: Sequence[FittedText]) -> ProbeSums:
        """Sum the moments for Pearson's r, by series and bucket."""
        names: list[str] = []
        rows: list[int] = []
        columns: list[list[Any]] = []
        for split, fit in fits:
            y = fit.weights
            for series, x in enumerate(locate_sentences(split.texts[1:]), 2 * split.kind):
                for bucket in split.buckets:
                    names.append(split.document)
                    rows.append(series * len(BUCKET_NAMES) + bucket)
                    columns.append([len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y])
        moments = np.array(columns).reshape(len(rows), 6)
        indexes = np.array(rows, int)
        return ProbeSums.from_columns("pearson", self.positions, names, indexes, moments)


class SentenceRegressionFit(RegressionProbe):
    """Mean R² and regression errors, by number of sentences."""

    name = "sentence_regression_fit"
    title = "Fit of sentences to their text"
    notes = (
        "R² is in-sample and over dimensions. It is 1 with as many sentences as dimensions. "
        "Appendix D of the paper defines the error as a sum over dimensions, like the squared "
        "error here, but reports values of 0.001 to 0.01, which match the absolute error per "
        "dimension.",
    )
    positions = tuple(
        f"{measure} · {bucket}" for measure, bucket in product(("R2", "MAE", "SSE"), BUCKET_NAMES)
    )
    summaries = {"r_squared": Summary("R² of sentences for their text", select(0))}
    kind_count = 1
    value_title = "Mean over texts"
    position_title = "Sentences of the text"
    is_ordered = False
    series = {
        "R2": ("R²", ""),
        "MAE": ("Mean absolute error", ""),
        "SSE": ("Squared error", ""),
    }
    same_scale = False
    position_names = POSITION_TITLES

    def summarize(self, fits: Sequence[FittedText]) -> ProbeSums:
        """Average R² and errors over all texts and by bucket."""
        values = np.full((len(fits), 3, len(BUCKET_NAMES)), np.nan)
        for row, (split, fit) in enumerate(fits):
            for measure, value in enumerate((fit.r_squared, fit.mae, fit.squared_error)):
                values[row, measure, split.buckets] = value
        names = [split.document for split, _ in fits]
        by_position = values.reshape(len(fits), len(self.positions))
        return ProbeSums.from_means(self.positions, names, by_position)


class SentenceRegressionScatter(RegressionProbe):
    """Histogram of start positions and weights of sentences, by number of sentences (Fig. 2)."""

    name = "sentence_regression_scatter"
    title = "Starts and weights of single sentences"
    notes = ("All sentences of the texts, in order and shuffled.",)
    cells = HISTOGRAM_CELLS
    positions = tuple(f"{panel} · {x:.2f}, {y:+.2f}" for panel, x, y in HISTOGRAM_CELLS)
    summaries = {
        # The paper calls negative weights rare.
        "negative_weights": Summary(
            "Sentences with a negative weight (%)",
            lambda values: values[..., IS_NEGATIVE].sum(axis=-1),
            Unit.PERCENT,
        )
    }
    value_title = "Weight"
    position_title = "Start of the sentence"
    series = {
        f"{text.lower()} · {bucket}": (f"{text}, {title}", "")
        for text, (bucket, title) in product(("Text", "Shuffled"), BUCKET_TITLES.items())
    }

    def summarize(self, fits: Sequence[FittedText]) -> ProbeSums:
        """Count the sentences in each cell, by panel, column and row."""
        names: list[str] = []
        rows: list[int] = []
        for split, fit in fits:
            starts, _ = locate_sentences(split.texts[1:])
            column = np.minimum((starts * HISTOGRAM_COLUMNS).astype(int), HISTOGRAM_COLUMNS - 1)
            row = np.clip(
                ((fit.weights + 1) / 2 * HISTOGRAM_ROWS).astype(int), 0, HISTOGRAM_ROWS - 1
            )
            panel = split.kind * len(BUCKET_STARTS) + split.buckets[1] - 1
            rows += ((panel * HISTOGRAM_COLUMNS + column) * HISTOGRAM_ROWS + row).tolist()
            names += [split.document] * len(column)
        return ProbeSums.from_counts(self.positions, names, rows)
