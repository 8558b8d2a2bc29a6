"""Error rates of the decision on position bias, by a generator and truths that share nothing with `simulation.py`.

A question is a competition: the rank of its document is 1 plus the number of distractors above it, of which there are a random
number (negative binomial, mean 60) with logistic scores. The document's score is the sum of an effect of the document (skewed:
some are very hard), one of the paragraph that has the evidence (Student's t, 5 degrees of freedom), noise of the question
(t, 3 degrees; half of it shared by two models), a loss with the logarithm of the document's length (lognormal), and the bias:
1 - exp(-3 z) times a slope that differs between documents (gamma), z being the place within what is read. Evidence that is cut
by a window in tokens, or beyond it, has a lower score. Evidence is early more often than late.

True values are regression coefficients in 300,000 questions, computed here. The outcome is what bias and window do to a
question's expected gain, so that they are exactly 0 where there is neither. Slopes give the bias its stated size.

    OMP_NUM_THREADS=1 nice python benchmarks/second_simulation.py rows.jsonl

Rows are appended to the file as they finish; a second call with the same file goes on. All are printed, in bold what is
outside its target.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from posir_significance.analysis import GroupAnalysis
from posir_significance.decision import ChangeState, State, compare_groups, decide
from posir_significance.observations import Observations
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.evidence import Evidence, ReadEvidence
from posir_tasks.read_part import KnownBy, ReadPart
from posir_tasks.schemes import RelativePositions

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MEDIAN_TOKENS = 600
#: Questions of each document.
STRUCTURES: dict[str, list[int]] = {
    "40x15": [15] * 40,
    "100x6": [6] * 100,
    "600x1": [1] * 600,
    "25 unequal": [160] + [10] * 24,
    "300x15": [15] * 300,
    "700x6": [6] * 700,
    "2400x1": [1] * 2400,
}
LARGE = 300_000
METRICS = ("ndcg_at_10", "start_to_end", "psi")
SCHEME = RelativePositions(token_bounds=())


@dataclass(frozen=True)
class Questions:
    """Questions about documents; columns of shape (n,)."""

    document: Integers
    tokens: Integers
    """Length of the document."""
    start: Integers
    """First token of the evidence."""
    end: Integers
    score: Floats
    """Part of the relevant document's score that all models share."""
    slope: Floats
    """Size of the bias, relative to the model's."""
    distractors: Integers

    @classmethod
    def draw(cls, rng: np.random.Generator, sizes: list[int]) -> Questions:
        """Draw documents with so many questions each."""
        count, document = len(sizes), np.repeat(np.arange(len(sizes)), sizes)
        questions = len(document)
        lengths = np.exp(rng.normal(math.log(MEDIAN_TOKENS), 0.65, count)).clip(80, 8000).astype(np.int64)
        tokens, paragraphs = lengths[document], np.maximum(lengths // 90, 3)
        spread = rng.random(questions) < 0.3
        middle = np.where(spread, rng.random(questions), rng.beta(1.2, 2, questions)) * tokens
        size = np.minimum(rng.lognormal(math.log(25), 0.5, questions), tokens / 3).astype(np.int64) + 1
        start = (middle - size / 2).astype(np.int64).clip(0, tokens - size)
        first = np.cumsum(paragraphs) - paragraphs
        paragraph = first[document] + ((2 * start + size) * paragraphs[document]) // (2 * tokens)
        score = 0.8 * (1 - rng.exponential(size=count))[document]
        score += 0.4 * rng.standard_t(5, paragraphs.sum())[paragraph] + 0.5 * rng.standard_t(3, questions)
        score -= 0.4 * np.log(tokens / MEDIAN_TOKENS)
        distractors = rng.negative_binomial(1.5, 1.5 / (1.5 + 60), questions)
        return cls(document, tokens, start, start + size, score, rng.gamma(2, 0.5, count)[document], distractors)

    @property
    def place(self) -> Floats:
        """Place of the middle of the evidence in the document, from 0 to 1."""
        return (self.start + self.end) / 2 / self.tokens

    def read(self, window: float) -> tuple[NDArray[np.bool_], Floats]:
        """Return whether evidence is read whole, and the place of its middle in what is read, from 0 to 1 (1 if unread)."""
        limit = window * MEDIAN_TOKENS
        whole = self.end <= limit
        return whole, np.where(whole, (self.start + self.end) / 2 / np.minimum(self.tokens, limit), 1.0)

    def draw_losses(self, rng: np.random.Generator, bias: float, window: float) -> Floats:
        """Draw for a model the probability of each distractor to be above the relevant document."""
        whole, place = self.read(window)
        unread = np.where(whole, 0.0, np.where(self.start < window * MEDIAN_TOKENS, 0.8, 1.6))
        noise = 0.5 * rng.standard_t(3, len(self.score))
        score = self.score + noise - unread - bias * self.slope * (1 - np.exp(-3 * place))
        return np.minimum(expit(-1.4 * (score + 2.6)), 1 - 1e-9)

    def draw_observations(self, rng: np.random.Generator, bias: float, window: float) -> Observations:
        """Draw the ranks of a model, and return what the project makes of them."""
        ranks = 1 + rng.binomial(self.distractors, self.draw_losses(rng, bias, window))
        characters = 3 + self.document % 4
        evidence = Evidence(
            query_ids=[f"q{row}" for row in range(len(ranks))],
            document_ids=[f"d{row}" for row in self.document.tolist()],
            starts=self.start * characters,
            ends=self.end * characters,
            characters=self.tokens * characters,
            tokens=self.tokens,
        )
        read = ReadPart.all(KnownBy.CLASS)
        if math.isfinite(window):
            read = ReadPart.first(round(window * MEDIAN_TOKENS), KnownBy.MEASURED)
        placed = ReadEvidence.estimate(read, evidence, ["eng-Latn"])
        return Observations.from_ranks(
            DocumentRanks.from_ranks(SCHEME, evidence, np.where(ranks > 100, 0, ranks), placed), read
        )


def expect_gains(count: Integers, share: Floats) -> Floats:
    """Return the expected nDCG@10 with a number of distractors, each above the document with a probability."""
    term = (1 - share) ** count
    total = term.copy()
    for above in range(9):
        term = term * (count - above).clip(0) / (above + 1) * share / (1 - share)
        total += term / math.log2(above + 3)
    return total


def regress(gains: Floats, groups: list[NDArray[np.bool_]], strata: Integers) -> Floats:
    """Return the least-squares coefficients of indicators within strata."""
    strata = np.unique(strata, return_inverse=True)[1]
    sizes = np.bincount(strata)
    x, *columns = (column - (np.bincount(strata, column) / sizes)[strata] for column in [gains, *groups])
    return np.linalg.lstsq(np.stack(columns, axis=1), x)[0]


@cache
def draw_large(per_document: int) -> Questions:
    """Draw many questions, the same in every call."""
    return Questions.draw(np.random.default_rng(1), [per_document] * (LARGE // per_document))


def compute_effects(per_document: int, window: float, slope: float) -> tuple[Floats, Floats, Integers]:
    """Return the expected gains of the large draw, what bias and window add to them, and the strata that are held fixed."""
    large = draw_large(per_document)
    without, gains = (
        expect_gains(large.distractors, large.draw_losses(np.random.default_rng(2), *setting))
        for setting in ((0.0, math.inf), (slope, window))
    )
    strata = large.document if per_document > 1 else np.floor(2 * np.log2(large.tokens)).astype(np.int64)
    return gains, gains - without, strata


@cache
def true_values(per_document: int, window: float, slope: float) -> tuple[float, float, float]:
    """Return the true bias within what is read, start to end, and difference of what is not read (NaN if all is read)."""
    large, (_, effects, strata) = draw_large(per_document), compute_effects(per_document, window, slope)
    whole, within = large.read(window)

    def contrast(place: Floats, rows: NDArray[np.bool_]) -> float:
        first, last = regress(effects[rows], [place[rows] < 1 / 3, place[rows] >= 2 / 3], strata[rows])
        return float(first - last)

    read = math.nan if whole.all() else float(regress(effects, [whole], strata)[0])
    return contrast(within, whole), contrast(large.place, np.ones_like(whole)), read


@cache
def true_scores(per_document: int, window: float, slope: float) -> tuple[float, Floats]:
    """Return the true nDCG@10 over questions, and that of each position bin with the document (or length) held fixed."""
    gains, effects, strata = compute_effects(per_document, window, slope)
    bins = np.minimum((SCHEME.bins * draw_large(per_document).place).astype(np.int64), SCHEME.bins - 1)
    fitted = regress(effects, [bins == number for number in range(1, SCHEME.bins)], strata)
    scores = np.append(0.0, fitted)
    return float(gains.mean()), gains.mean() + scores - scores[bins].mean()


@cache
def find_slope(per_document: int, window: float, bias: float) -> float:
    """Return the slope with a bias within what is read, to 0.0005; 0 if there is none."""
    low, high = 0.0, 2.5
    if not bias:
        return 0.0
    error_low, error_high = -bias, true_values(per_document, window, high)[0] - bias
    assert error_high > 0, "No slope has this bias."
    for _ in range(12):
        slope = (low * error_high - high * error_low) / (error_high - error_low)
        error = true_values(per_document, window, slope)[0] - bias
        if abs(error) < 5e-4:
            break
        # Illinois: the end that stays counts half.
        if error > 0:
            high, error_high, error_low = slope, error, error_low / 2
        else:
            low, error_low, error_high = slope, error, error_high / 2
    return slope


@dataclass(frozen=True)
class Row:
    """A setting, in which rates are measured."""

    structure: str
    window: float
    """Multiple of the median document that is read; infinite if all is."""
    bias: float
    """True bias within the part that is read."""
    models: int = 1
    draws: int = 400


WINDOWS, SMALL = (math.inf, 0.5), list(STRUCTURES)[:4]
ROWS = [
    *(Row(structure, window, bias) for bias in (0.0, 0.05, 0.15) for structure in SMALL for window in WINDOWS),
    *(Row("300x15", window, bias, draws=300) for bias in (0.0, 0.05, 0.12) for window in WINDOWS),
    *(Row(structure, window, 0.05, draws=300) for structure in ("700x6", "2400x1") for window in WINDOWS),
    *(Row(structure, window, bias, models=2, draws=200) for bias in (0.0, 0.1) for structure in SMALL for window in WINDOWS),
]


def list_one(row: Row, slope: float, per_document: int, drawn: list[Observations]) -> dict[str, float]:
    """Return what is decided on a model, and which intervals contain the true values."""
    decision = decide(GroupAnalysis(drawn[0]))
    facts = {state.value: float(decision.state is state) for state in State}
    facts["biased"] = facts["biased_to_start"] + facts["biased_to_end"]
    contrasts = (decision.bias_within_read, decision.start_to_end, decision.not_read_difference)
    truth = true_values(per_document, row.window, slope)
    for name, value, contrast in zip(("bias", "start to end", "not read"), truth, contrasts, strict=True):
        if contrast and contrast.interval:
            facts[f"{name} holds"] = contrast.interval[0] <= value <= contrast.interval[1]
    return facts


def list_two(row: Row, slope: float, per_document: int, drawn: list[Observations]) -> dict[str, float]:
    """Return which metrics of two equal models differ, and what is said of the first by all numbers of a report."""
    first, second = map(GroupAnalysis, drawn)
    change = compare_groups(first, second, paired=True)
    states = {name: getattr(change, name).state for name in METRICS}
    facts = {f"{name} differs": float(state in (ChangeState.BETTER, ChangeState.WORSE)) for name, state in states.items()}
    facts["any differs"] = max(facts.values())
    decision = decide(first)
    level, scores = true_scores(per_document, row.window, slope)
    filled = scores[np.unique(drawn[0].position)]
    for name, value in (("ndcg_at_10", level), ("psi", 1 - filled.min() / filled.max())):
        low, high = getattr(decision, name).interval
        facts[f"{name} holds"] = low - 1e-9 <= value <= high + 1e-9
    return facts | {"any effect": first.test.p_value < 0.05}


def measure(row: Row) -> dict[str, Any]:
    """Return the rates of a row."""
    sizes, started = STRUCTURES[row.structure], time.process_time()
    per_document = min(sizes[-1], 15)
    slope = find_slope(per_document, row.window, row.bias)
    rng = np.random.default_rng([round(1000 * row.bias), row.models, len(sizes), round(10 * min(row.window, 9))])
    facts, list_facts = [], list_two if row.models == 2 else list_one
    for _ in range(row.draws):
        questions = Questions.draw(rng, sizes)
        drawn = [questions.draw_observations(rng, slope, row.window) for _ in range(row.models)]
        facts.append(list_facts(row, slope, per_document, drawn))
    rates = {name: float(np.mean([fact[name] for fact in facts if name in fact])) for name in facts[0]}
    truth = true_values(per_document, row.window, slope)
    return {**vars(row), "slope": slope, "truth": truth, "seconds": time.process_time() - started, **rates}


#: Columns of the tables: what is decided on one model; on two equal ones, with all that is said of the first.
ONE = {"biased": "biased", "biased_to_end": "to the end", "no_bias": "no bias larger than 5 points"}
ONE |= {"bias holds": "bias holds", "start to end holds": "start to end holds", "not read holds": "not read holds"}
TWO = {"any differs": "any differs", "ndcg_at_10 differs": "nDCG@10", "start_to_end differs": "start to end"}
TWO |= {"psi differs": "PSI", "ndcg_at_10 holds": "nDCG@10 holds", "psi holds": "PSI holds", "any effect": "any effect"}


def find_target(row: dict[str, Any], rate: str) -> tuple[float, float]:
    """Return the smallest and the largest value that a rate should have."""
    if rate.endswith("holds"):
        return (0.9, 1.0) if rate == "psi holds" else (0.91, 0.99)
    if rate == "no_bias" and row["bias"]:
        return 0.0, 0.01 if row["bias"] >= 0.12 else 0.06
    if not row["bias"] and (rate == "biased" or (rate == "any effect" and row["window"] == math.inf)):
        return 0.0 if row["structure"] == "25 unequal" else 0.02, 0.08
    return 0.0, 0.08 if rate == "any differs" else 1.0


def print_table(rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """Print rates as a table in Markdown, in bold where they are outside their targets."""
    print("| structure | window | true bias, start to end, not read |", " | ".join(columns.values()), "|")
    print(f"|{' --- |' * (3 + len(columns))}")
    for row in rows:
        cells = [row["structure"], "none" if row["window"] == math.inf else f"{row['window']:g}"]
        cells.append(", ".join("–" if math.isnan(value) else f"{100 * value:.1f}" for value in row["truth"]))
        for rate in columns:
            low, high = find_target(row, rate)
            text = f"{row[rate]:.3f}" if rate in row else "–"
            cells.append(text if low <= row.get(rate, low) <= high else f"**{text}**")
        print("|", " | ".join(cells), "|")


def main() -> None:
    """Measure the rows that the file lacks, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    missing = [row for row in ROWS if not any(vars(row).items() <= measured.items() for measured in done)]
    with ProcessPoolExecutor(2) as pool, path.open("a") as file:
        for future in as_completed([pool.submit(measure, row) for row in missing]):
            done.append(future.result())
            file.write(json.dumps(done[-1]) + "\n")
            file.flush()
    for models, columns in ((1, ONE), (2, TWO)):
        settings = [vars(row) for row in ROWS if row.models == models]
        print_table([row for setting in settings for row in done if setting.items() <= row.items()], columns)
    print(f"{sum(row['seconds'] for row in done):.0f} s of processor time")


if __name__ == "__main__":
    main()
