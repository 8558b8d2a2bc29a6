"""The public function of this package: `posir.power`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from posir_significance.power import (
    POWER,
    Design,
    SampleSize,
    StartToEnd,
    Target,
    TruePsi,
    build_table,
    describe_sample,
    required_sample,
)
from posir_tasks.display.presentation import Presentable, to_paragraphs, to_values
from posir_tasks.display.sections import DisplaySection
from posir_tasks.errors import PosirError


@dataclass(frozen=True, repr=False)
class PowerAnalysis(Presentable):
    """The sample sizes that show effects of position in a dataset to be made."""

    design: Design
    power: float
    """Probability of a significant result, in [0.5, 1)."""
    rows: tuple[SampleSize, ...]
    """One for each effect, those from start to end first."""

    @property
    def title(self) -> str:
        """Subject in a few words."""
        return "Questions and documents that show an effect of position"

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return a sentence for the first and the last effect, then the table."""
        ends = dict.fromkeys([self.rows[0], self.rows[-1]])
        findings = (describe_sample(row, self.power) for row in ends)
        return (*to_paragraphs(findings), DisplaySection(tables=(build_table(self.design, self.rows),)))

    def records(self) -> tuple[SampleSize, ...]:
        """Return a row for each effect."""
        return self.rows

    def document(self) -> dict[str, Any]:
        """Return the design and the rows; scores in [0, 1]."""
        return {**asdict(self.design), "power": self.power, "rows": self.rows}


def power(
    *,
    psi: float | Iterable[float] | None = None,
    start_to_end: float | Iterable[float] | None = None,
    ndcg_at_10: float = 0.7,
    bins: int = 20,
    questions_per_document: float = 1,
    icc: float = 0.2,
    bin_icc: float = 0.0,
    power: float = POWER,
) -> PowerAnalysis:
    """Find how many questions and documents a dataset needs to show an effect of position.

    The effect is a linear decline of nDCG@10 over positions; docs/statistics.md has the method and its calibration.

    Args:
        psi: True PSI in (0, 1], or several.
        start_to_end: Difference in nDCG@10 between the first and the last third of the documents in (0, 1], or several.
        ndcg_at_10: Expected mean nDCG@10, in (0, 1).
        bins: Number of position bins, at least 2.
        questions_per_document: Mean number of questions about a document, at least 1.
        icc: Intraclass correlation of nDCG@10 within documents, in [0, 1).
        bin_icc: Correlation beyond it of questions in the same bin of a document, in [0, 1).
        power: Probability of p < 0.05, in [0.5, 1).

    Returns:
        A row for each effect, with the columns `start_to_end`, `psi`, `questions` and `documents`.

    Raises:
        PosirError: No effect is given, a value is out of range, or no linear decline with this mean has the effect.

    Examples:
        >>> import posir
        >>> sizes = posir.power(psi=[0.1, 0.2])
        >>> sizes.to_polars()["questions"].to_list()
        [3489, 785]
    """
    targets: list[Target] = [*map(StartToEnd, to_values(start_to_end)), *map(TruePsi, to_values(psi))]
    if not targets:
        raise PosirError(
            "Which effect should the dataset show? Pass --difference (points) or --psi; in Python, start_to_end or psi."
        )
    design = Design(ndcg_at_10, bins, float(questions_per_document), icc, bin_icc)
    _check(design, targets, power)
    return PowerAnalysis(design, power, tuple(required_sample(design, target, power) for target in targets))


def _check(design: Design, targets: Iterable[Target], power: float) -> None:
    """Raise PosirError if a value is out of range."""
    effects = [target.difference if isinstance(target, StartToEnd) else target.psi for target in targets]
    allowed = {
        "an effect must be in (0, 1]": all(0 < effect <= 1 for effect in effects),
        "the mean nDCG@10 must be in (0, 1)": 0 < design.ndcg_at_10 < 1,
        "there must be at least 2 position bins": design.bins >= 2,
        "there must be at least 1 question per document": design.questions_per_document >= 1,
        "intraclass correlations must be in [0, 1)": 0 <= design.icc < 1 and 0 <= design.bin_icc < 1,
        "the power must be in [0.5, 1)": 0.5 <= power < 1,
    }
    broken = [rule for rule, holds in allowed.items() if not holds]
    if broken:
        raise PosirError(f"This design cannot be planned: {'; '.join(broken)}. Scores are fractions, not percentages.")
