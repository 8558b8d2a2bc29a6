"""Simulated questions of known true scores that share documents; benchmarks and tests draw from here.

Ranks follow a proportional-odds model fitted to BM25 on JaQuAD: a document's difficulty, normal over documents, moves the log
odds of every rank of its questions, and the difficulty of a place of it those of the questions about that place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

from posir_significance.observations import Floats, Integers, Observations
from posir_tasks.evidence import TWELFTHS
from posir_tasks.profile import NDCG_AT_10
from posir_tasks.read_part import KnownBy, ReadPart
from posir_tasks.schemes import bin_midpoints

#: Log odds of a rank of at most 1 to 10 of a middling retriever.
LOG_ODDS = np.log(1 / (1 / np.cumsum([0.40, 0.09, 0.05, 0.035, 0.025, 0.02, 0.015, 0.015, 0.01, 0.01]) * 0.99 - 1))
NODES, NODE_WEIGHTS = hermegauss(41)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
GAINS = np.append(NDCG_AT_10[:10], 0.0)
#: True scores over positions, 0 at the best and 1 at the worst.
EFFECTS: dict[str, Callable[[Floats], Floats]] = {
    "none": np.zeros_like,
    "linear": lambda x: x,
    "step": lambda x: (x > 0.6).astype(np.float64),
    "dip": lambda x: 1 - (2 * x - 1) ** 2,
    "U": lambda x: (2 * x - 1) ** 2,
    "last": lambda x: (x > x[-2]).astype(np.float64),
    "last two": lambda x: (x > x[-3]).astype(np.float64),
    "first": lambda x: (x < x[1]).astype(np.float64),
    "first two": lambda x: (x < x[2]).astype(np.float64),
    "bad bin": lambda x: (np.arange(len(x)) == len(x) // 2).astype(np.float64),
}
#: Length of the places whose questions share a difficulty, as a share of the document, and more than a document has of them.
PLACE, PLACES = 0.075, 1_000
#: Probability that two random questions of the same twentieth of a document are about the same place.
SAME_PLACE = 1 - 1 / 3 * (1 / 20) / PLACE
#: The best bin's largest nDCG@10.
BEST = 0.97


def true_means(effect: str, sensitivity: float, level: float, bins: int) -> Floats:
    """Return the true nDCG@10 of each bin, with PSI `sensitivity` and mean `level`, or less where a bin would exceed `BEST`.

    Returns:
        Shape (bins,).
    """
    shape = EFFECTS[effect](bin_midpoints(bins))
    relative = 1 - sensitivity * (shape - shape.min()) / max(float(np.ptp(shape)), 1e-9)
    means: Floats = relative * min(level / relative.mean(), BEST / relative.max())
    return means


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of the evidence of n questions."""

    documents: Integers
    """Document of each question, from 0, shape (n,)."""
    clusters: Integers
    """Its article, or its document, shape (n,)."""
    places: Floats
    """Position in the document, in [0, 1), shape (n,)."""
    difficulty: Floats
    """Difficulty of each document, standard normal, shape (D,)."""


def draw_clustered(
    structure: str, queries: int, icc: float, means: Floats, rng: np.random.Generator, local: float = 0.0
) -> Observations:
    """Draw questions that share documents.

    Structures: "independent"; five questions a document whose positions are "random", "near" each other, or "confounded"
    (half near the document's center, and documents with late evidence harder); "jaquad": 3.2 questions a document at random
    positions; "papers": 14 questions a document on average, many of few documents, as in COVID-QA; "40x30": 40 documents of 30
    questions at random positions, and so on.

    Args:
        structure: How questions share documents.
        queries: Questions, about; unless the structure says how many.
        icc: Intraclass correlation of gains within documents.
        means: True mean nDCG@10 of each position bin, shape (P,).
        rng: Random numbers.
        local: Further correlation of gains in the same twentieth of a document, about.
    """
    return draw_gains(_draw_layout(structure, queries, rng), icc, means, rng, local)


def draw_gains(layout: Layout, icc: float, means: Floats, rng: np.random.Generator, local: float = 0.0) -> Observations:
    """Draw the gains of questions; the arguments are those of `draw_clustered`."""
    count, bins = len(layout.places), len(means)
    position = np.minimum((layout.places * bins).astype(np.int64), bins - 1)
    level = round(float(np.mean(means)), 3)
    spread, total = _scale(icc, level), _scale(round(icc + local / SAME_PLACE, 4), level)
    starts = rng.random(len(layout.difficulty)) if local else np.zeros(len(layout.difficulty))
    numbers = np.floor(layout.places / PLACE + starts[layout.documents]).astype(np.int64)
    _, place = np.unique(layout.documents * PLACES + numbers, return_inverse=True)
    odds = np.array([_location(round(float(mean), 4), total) for mean in means])[position]
    odds += spread * layout.difficulty[layout.documents]
    if local:
        odds += max(total**2 - spread**2, 0.0) ** 0.5 * rng.standard_normal(int(place.max()) + 1)[place]
    rank = (rng.random(count)[:, None] > expit(LOG_ODDS + odds[:, None])).sum(axis=1)
    zeros, number = np.zeros(count, np.int64), np.arange(count)
    return Observations(GAINS[rank], zeros, zeros, layout.documents, layout.clusters, number, position, bins)


def _draw_layout(structure: str, queries: int, rng: np.random.Generator) -> Layout:
    document = _draw_documents(structure, queries, rng)
    documents, count = int(document[-1]) + 1, len(document)
    center, difficulty, place = rng.random(documents), rng.standard_normal(documents), rng.random(count)
    near = np.clip(center[document] + 0.1 * rng.standard_normal(count), 0, 1 - 1e-9)
    if structure == "near":
        place = near
    elif structure == "confounded":
        place = np.where(rng.random(count) < 0.5, near, place)
        difficulty = -0.5 * norm.ppf(np.clip(center, 1e-3, 1 - 1e-3)) + np.sqrt(0.75) * difficulty
    return Layout(document, document, place, difficulty)


def read_layout(files: Iterable[Path], *, by_article: bool, rng: np.random.Generator) -> Layout:
    """Return the questions of datasets in SQuAD's format, each at the middle of its first answer.

    Args:
        files: JSON files.
        by_article: Whether paragraphs of an article share a cluster.
        rng: Random numbers, for the difficulty of documents.
    """
    rows: list[tuple[int, int, float]] = []
    for article, data in enumerate(part for file in files for part in json.loads(file.read_text("utf-8"))["data"]):
        for number, paragraph in enumerate(data["paragraphs"]):
            answers = (question["answers"][0] for question in paragraph["qas"] if question["answers"])
            middles = (answer["answer_start"] + len(answer["text"]) / 2 for answer in answers)
            rows += [(article, number, min(middle / len(paragraph["context"]), 1 - 1e-9)) for middle in middles]
    articles, numbers, places = (np.array(column) for column in zip(*rows, strict=True))
    _, document = np.unique(articles * PLACES + numbers, return_inverse=True)
    clusters = np.unique(articles, return_inverse=True)[1] if by_article else document
    return Layout(document, clusters, places, rng.standard_normal(int(document.max()) + 1))


def _draw_documents(structure: str, queries: int, rng: np.random.Generator) -> Integers:
    """Return the document of each question, in order."""
    match structure:
        case "independent":
            return np.arange(queries)
        case "jaquad":
            sizes = 1 + rng.poisson(2.2, size=round(queries / 3.2))
        case "papers":
            sizes = 1 + rng.negative_binomial(1.2, 1.2 / 14.2, size=max(queries // 14, 2))
        case _ if "x" in structure:
            documents, questions = map(int, structure.split("x"))
            sizes = np.full(documents, questions)
        case _:
            sizes = np.full(queries // 5, 5)
    return np.repeat(np.arange(len(sizes)), sizes)


def _moments(log_odds: Floats) -> tuple[Floats, Floats]:
    """Return mean and second moment of the gain of proportional-odds ranks."""
    below = expit(LOG_ODDS + np.asarray(log_odds)[..., None])
    edges = np.concatenate([np.zeros((*below.shape[:-1], 1)), below, np.ones((*below.shape[:-1], 1))], axis=-1)
    chances = np.diff(edges, axis=-1)
    return chances @ GAINS, chances @ GAINS**2


@cache
def _location(mean: float, scale: float) -> float:
    """Return the log odds with this mean gain over documents whose difficulty has a standard deviation."""
    return float(brentq(lambda place: NODE_WEIGHTS @ _moments(place + scale * NODES)[0] - mean, -30, 30))


@cache
def _scale(icc: float, mean: float) -> float:
    """Return the standard deviation of difficulty that gives an intraclass correlation of gains."""

    def excess(scale: float) -> float:
        means, squares = _moments(_location(mean, scale) + scale * NODES)
        return float((NODE_WEIGHTS @ means**2 - mean**2) / (NODE_WEIGHTS @ squares - mean**2) - icc)

    return float(brentq(excess, 1e-3, 8)) if icc else 0.0


#: Latent values above which an answer has rank 1, 2, 3, 4, 6 and 9 in the simulation of decisions; below the last, no rank.
PROBIT_THRESHOLDS = np.array([0.0, -0.25, -0.4, -0.5, -0.65, -0.8])
PROBIT_GAINS = np.append(1 / np.log2(1 + np.array([1, 2, 3, 4, 6, 9])), 0.0)
#: Standard deviations of documents' difficulty and of their log length; length of the evidence (median document: 1).
DOCUMENT_SD, LENGTH_SD, EVIDENCE = 0.7, 0.5, 0.06


@dataclass(frozen=True)
class WindowedModel:
    """A model that reads the first part of documents, in the latent scale of a probit model of ranks."""

    structure: str
    """Documents and questions of each, such as `40x15`; `25+` is 25 documents, of which one has 40 % of 400 questions."""
    window: float = np.inf
    """Multiple of the median document."""
    bias: float = 0.0
    """Fall from the start of what is read to its end."""
    loss: float = 0.0
    """Fall of evidence that is not read."""
    length_slope: float = 0.0
    """Fall by log length."""
    level: float = 0.8
    """0.8 gives a mean nDCG@10 of about 0.8 over evidence that is read."""
    place_sd: float = 0.5
    """Standard deviation of the difficulty of places within a document."""
    place: float = 0.075
    """Length of a place, as a share of the document."""
    step: bool = False
    """Whether the fall is a step at 0.6 of what is read."""
    early: bool = False
    """Whether evidence is early in documents: Beta(1, 1.6) instead of uniform."""


def draw_windowed(
    model: WindowedModel, rng: np.random.Generator, answers: np.random.Generator | None = None
) -> tuple[Observations, Floats]:
    """Draw the observations of a model, and the expected gain of each question over documents and places, shape (n,).

    Args:
        model: The model.
        rng: Random numbers.
        answers: Those that tell two equal models apart; by default `rng`.
    """
    documents, questions = (25, 0) if model.structure == "25+" else map(int, model.structure.split("x"))
    sizes = np.full(documents, questions) if questions else np.append(rng.multinomial(240, np.full(24, 1 / 24)), 160)
    document = np.repeat(np.arange(documents), sizes)
    length = np.exp(LENGTH_SD * rng.standard_normal(documents))[document]
    place = rng.beta(1, 1.6, len(document)) if model.early else rng.random(len(document))
    start = place * np.maximum(length - EVIDENCE, 0.0)
    read = np.minimum(length, model.window)
    middle, end = start + EVIDENCE / 2, start + EVIDENCE
    z = np.clip(middle / read, 0, 1 - 1e-9)
    fall = (z >= 0.6) - 0.4 if model.step else z - 0.5
    unread = (end > read + 1e-12).astype(np.int64) + (start >= read)
    latent = (
        model.level - model.length_slope * np.log(length) - np.where(unread, model.loss * (1 + unread) / 3, model.bias * fall)
    )
    relative = np.clip(middle / length, 0, 1 - 1e-9)
    _, number = np.unique(document * PLACES + (relative / model.place).astype(np.int64), return_inverse=True)
    noise = (
        DOCUMENT_SD * rng.standard_normal(documents)[document] + model.place_sd * rng.standard_normal(number.max() + 1)[number]
    )
    noise += (answers or rng).standard_normal(len(document))
    spread = np.sqrt(1 + DOCUMENT_SD**2 + model.place_sd**2)
    above = norm.cdf((latent[:, None] - PROBIT_THRESHOLDS) / spread)
    steps = PROBIT_GAINS[:-1] - PROBIT_GAINS[1:]
    gains = PROBIT_GAINS[((latent + noise)[:, None] < PROBIT_THRESHOLDS).sum(axis=1)]
    everything = np.isinf(model.window)
    observations = Observations(
        gains=gains,
        subsets=np.zeros_like(document),
        lengths=np.zeros_like(document),
        documents=document,
        clusters=document,
        query=np.arange(len(document)),
        position=(20 * relative).astype(np.int64),
        bins=20,
        half_octaves=np.floor(2 * np.log2(600 * length)).astype(np.int64),
        thirds=(3 * relative).astype(np.int64),
        twelfths=np.where(unread, TWELFTHS - 1 + unread, (TWELFTHS * z).astype(np.int64)),
        read=ReadPart.all(KnownBy.CLASS) if everything else ReadPart.first(256, KnownBy.MEASURED),
    )
    return observations, above @ steps
