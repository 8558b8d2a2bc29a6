"""The rank correlation of PosIR with MMTEB retrieval over models."""

from dataclasses import dataclass

from posir_published.curves import MONOLINGUAL
from posir_published.rows import published_rows
from posir_published.scores import LENGTHS, POSIR_SOURCE, read_mmteb_scores

#: Spearman's rho and p-value as the paper prints them for each of `LENGTHS` (arXiv 2601.08363).
PRINTED = {"all": (0.62, 0.05), "Q1": (0.73, 0.01), "Q2": (0.71, 0.02), "Q3": (0.44, 0.2), "Q4": (0.39, 0.2)}


@dataclass(frozen=True)
class MMTEBCorrelation:
    """Rank correlation over models of PosIR's nDCG@10 with the MMTEB retrieval score."""

    length: str
    """`all`, or `Q1` to `Q4`."""
    models: int
    rho: float
    """Spearman's, in [-1, 1]."""
    p_value: float
    """Two-sided, for no correlation, not corrected for the number of lengths; in [0, 1]."""
    printed_rho: float
    printed_p_value: float
    """P-value as the paper prints it: truncated, not rounded, to one digit."""
    source: str


def correlate_with_mmteb() -> list[MMTEBCorrelation]:
    """Return the correlation for each of `LENGTHS`, from the macro average over the ten monolingual tasks."""
    return [_correlate(length) for length in LENGTHS]


def _correlate(length: str) -> MMTEBCorrelation:
    # It takes longer to import than all other views of `posir published`.
    from scipy.stats import spearmanr

    posir = {row.model: row.ndcg_at_10 for row in published_rows(MONOLINGUAL) if row.length == length}
    mmteb = read_mmteb_scores()
    result = spearmanr([posir[model] for model in mmteb], list(mmteb.values()))
    return MMTEBCorrelation(length, len(mmteb), float(result.statistic), float(result.pvalue), *PRINTED[length], POSIR_SOURCE)
