"""Systems that are compared in pairs on the same questions: which is best, which tie, and of which that cannot be said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from posir_inspect.verdicts import MARGIN, MIN_TEXTS, Finding, Floats, InspectionVerdict, round_up
from posir_significance.correction import Hypothesis, correct_p_values, count_different
from posir_significance.intervals import ALPHA, estimate_difference
from posir_tasks.display.numbers import format_interval, format_points
from posir_tasks.display.wording import pluralize
from posir_tasks.estimates import Difference
from posir_tasks.evidence import Integers


@dataclass(frozen=True)
class PairedDifference:
    """The difference of two systems on the same questions."""

    first: str
    second: str
    difference: Difference
    """Mean score of the first minus that of the second, in [-1, 1]."""
    p_corrected: float | None
    """Corrected for all pairs; None if the test takes no share of the correction."""

    @property
    def significant(self) -> bool:
        """Whether the systems differ."""
        return self.p_corrected is not None and self.p_corrected < ALPHA

    def seen_from(self, name: str) -> Difference:
        """Return the score of one of the two minus that of the other."""
        if name == self.first:
            return self.difference
        low, high = self.difference.interval or (0.0, 0.0)
        return Difference(-self.difference.value, (-high, -low), self.difference.p_value)


def compare_pairs(scores: Mapping[str, Floats], documents: Integers) -> tuple[PairedDifference, ...]:
    """Compare each two systems by the questions that they share; none if these are about a single document.

    Args:
        scores: Scores in [0, 1] of n questions by system, each of shape (n,).
        documents: Number of each question's document, or of the question if the documents are fixed, shape (n,).
    """
    pairs, tests = [], []
    for first, second in combinations(scores, 2):
        gaps = scores[first] - scores[second]
        difference = estimate_difference(gaps, documents)
        if difference is not None:
            pairs.append((first, second, difference))
            tests.append(Hypothesis(difference.p_value, count_different(gaps, documents)))
    corrected = correct_p_values(tests)
    return tuple(PairedDifference(*pair, p_corrected=p_value) for pair, p_value in zip(pairs, corrected, strict=True))


def judge_pairs(
    scores: Mapping[str, Floats], pairs: tuple[PairedDifference, ...], clusters: int, score: str, noun: str
) -> InspectionVerdict:
    """Say which system wins, or that the best ones tie, or that it cannot be said.

    The best wins over those from which it differs significantly. It ties with those from which it differs by at most `MARGIN`
    with 95 % confidence.

    Args:
        scores: As in `compare_pairs`.
        pairs: Its result.
        clusters: Number of documents or questions that are taken as independent.
        score: Name of the score, such as nDCG@10.
        noun: What the clusters are, such as `texts`.
    """
    means = {name: float(values.mean()) for name, values in scores.items()}
    best = max(means, key=means.__getitem__)
    others = {pair.second if pair.first == best else pair.first: pair for pair in pairs if best in (pair.first, pair.second)}
    if clusters < MIN_TEXTS or len(others) < len(scores) - 1:
        needed = (
            f"Not enough {noun} to say: {pluralize(clusters, noun.removesuffix('s'))}; at least {MIN_TEXTS} would be needed."
        )
        return InspectionVerdict(Finding.UNKNOWN, needed, MIN_TEXTS)
    seen = {name: pair.seen_from(best) for name, pair in others.items()}
    beaten = [name for name, pair in others.items() if pair.significant]
    rest = [name for name in others if name not in beaten]
    tied = [name for name in rest if max(map(abs, seen[name].interval or (1.0,))) <= MARGIN]
    unclear = [name for name in rest if name not in tied]
    lead = f"{best} has the highest {score}, {means[best] * 100:.1f}"
    sentences = [f"{best} wins: {score} {means[best] * 100:.1f}." if not rest else f"{lead}."]
    if beaten:
        sentences.append(f"It is better than {_list(beaten, seen)}.")
    if tied:
        sentences.append(f"It ties with {_list(tied, seen)}: they differ by at most {MARGIN * 100:.0f} points.")
    if not unclear:
        return InspectionVerdict(Finding.NONE if tied else Finding.HIGHER, " ".join(sentences))
    number = max(count_needed(seen[name], clusters) for name in unclear)
    sentences.append(f"Not enough {noun} to say whether it is better than {_list(unclear, seen)}; about {number:,} would do.")
    return InspectionVerdict(Finding.UNKNOWN, " ".join(sentences), number)


def count_needed(difference: Difference, clusters: int) -> int:
    """Return about how many clusters would show a difference, or that it is at most `MARGIN`, as its interval is now.

    Half the width of an interval falls with the root of the number of clusters. It is to be below the difference or, if that
    is small, below its distance from `MARGIN`.
    """
    low, high = difference.interval or (-1.0, 1.0)
    distance = max(abs(difference.value), MARGIN - abs(difference.value), 0.1 * MARGIN)
    return round_up(max(clusters * ((high - low) / 2 / distance) ** 2, clusters + 1))


def _list(names: list[str], differences: Mapping[str, Difference]) -> str:
    ordered = sorted(names, key=lambda name: differences[name].value)
    return ", ".join(
        f"{name} ({format_points(differences[name].value)} points {format_interval(differences[name], format_points)})"
        for name in ordered
    )
