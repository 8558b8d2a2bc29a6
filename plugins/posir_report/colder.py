"""The position bias in results of mteb's own task ColDeRReranking.

Its subset `position_bias` has pairs of documents with the same sentences, the evidence first in one and last in the other
(ColDeR, arXiv 2503.05037). mteb's accuracy is the share of pairs in which the document with the evidence at its end is ranked
first, so a model without position bias has 50 %, not 100 %. In ties mteb ranks the larger id first, which is that document.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posir_significance.intervals import wilson_interval
from posir_tasks.display.numbers import format_count, format_estimate, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.estimates import Estimate
from posir_tasks.results import find_experiment, load_result, read_model, result_files

TASK, SUBSET = "ColDeRReranking", "position_bias"
#: Pairs of the subset; mteb's results do not state them.
PAIRS = 250
#: The share of a model without position bias.
UNBIASED = 0.5
NOTE = (
    "mteb's own ColDeRReranking (arXiv 2503.05037), subset position_bias: how often the document with the evidence at its end "
    "is ranked above the same sentences with the evidence first. Without position bias it is 50 %, not 100 %; below, the model "
    "prefers evidence at the start. mteb counts ties as the end. Interval: Wilson's, over pairs."
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EndPreference:
    """A model's preference for evidence at the end of a document over the same evidence at its start."""

    model: str
    """Full name, followed by the settings of the run in parentheses if they are not the model's defaults."""
    revision: str
    share: Estimate
    """Share of pairs in which the end is ranked first, in [0, 1]."""

    @property
    def verdict(self) -> str:
        """The direction of the bias, if its interval leaves out 50 %."""
        low, high = self.share.interval or (0.0, 1.0)
        if low <= UNBIASED <= high:
            return "not significant"
        return "prefers the end" if low > UNBIASED else "prefers the start"

    def columns(self) -> dict[str, Any]:
        """Return the columns of CSV and JSON."""
        return {
            "model": self.model,
            "revision": self.revision,
            "task": f"{TASK} ({SUBSET})",
            "queries": PAIRS,
            "evidence_at_end_first": self.share,
            "verdict": self.verdict,
        }


def read_end_preferences(folder: Path) -> list[EndPreference]:
    """Return the results of the subset below a folder, ordered by model; raise PosirError if there is no such folder."""
    preferences = []
    for file in result_files(folder):
        if file.stem == TASK:
            preferences += _read_file(file)
    return sorted(preferences, key=lambda preference: (preference.model, preference.revision))


def _read_file(file: Path) -> list[EndPreference]:
    experiment = find_experiment(file)
    model, revision = read_model(file)
    shares = [
        float(scores["accuracy"])
        for split in load_result(file)["scores"].values()
        for scores in split
        if scores.get("hf_subset") == SUBSET and isinstance(scores.get("accuracy"), int | float)
    ]
    settings = f" ({experiment})" if experiment else ""
    return [EndPreference(model + settings, revision, Estimate(share, wilson_interval(share, PAIRS))) for share in shares]


def preference_table(preferences: Sequence[EndPreference]) -> Table:
    """Return a table with a line per model."""
    columns = build_columns(("Model", "Evidence at the end first", "Pairs", "Position bias"), ("Pairs",))
    rows = tuple(
        (preference.model, format_estimate(preference.share, format_percent), format_count(PAIRS), preference.verdict)
        for preference in preferences
    )
    return Table(columns, rows, title=f"{TASK} · {SUBSET}", notes=(NOTE,))
