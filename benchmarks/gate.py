"""Error rate and power of the gate of `posir compare --fail-if`, by simulation.

Two models answer the same questions (paired); they are drawn as in `compare_coverage.py`. Equal models: share of gates that
fail, with limits that allow no change, where a false alarm is most likely, and with usual ones. A loss: share that fail.

Use: python benchmarks/gate.py [REPLICATIONS [QUESTIONS]]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from multiprocessing import Pool

import numpy as np
from compare_coverage import PAIR, SimulatedModel, draw_common_results

from posir_compare.comparison import compare_pair
from posir_compare.gate import GateVerdict, LimitedValue, check_limits

ICC = 0.2
#: Limits that allow no change of any metric in any direction.
TIGHTEST = tuple(f"{key} {sign} 0" for key in ("ndcg_at_10", "start_to_end", "psi") for sign in "<>")
USUAL = ("ndcg_at_10 < -1", "start_to_end > 5")
LOSS = ("ndcg_at_10 < -1",)
STRUCTURES = ("random", "harder later", "COVID-QA", "JaQuAD")


@dataclass(frozen=True)
class GateSetting:
    """Two models, and the limits that are tested on them."""

    name: str
    models: tuple[SimulatedModel, SimulatedModel]
    limits: tuple[str, ...]


FLAT, BIASED = SimulatedModel("flat", 0.8), SimulatedModel("linear", 0.7, 0.3)
SETTINGS = (
    GateSetting("equal, flat", (FLAT, FLAT), TIGHTEST),
    GateSetting("equal, linear", (BIASED, BIASED), TIGHTEST),
    GateSetting("equal, flat", (FLAT, FLAT), USUAL),
    GateSetting("nDCG@10 0.80 to 0.72", (FLAT, SimulatedModel("flat", 0.72)), USUAL),
    GateSetting("nDCG@10 0.70 to 0.63", (BIASED, SimulatedModel("linear", 0.63, 0.3)), USUAL),
    GateSetting("nDCG@10 0.80 to 0.72", (FLAT, SimulatedModel("flat", 0.72)), LOSS),
    GateSetting("last 40 % 30 % lower", (FLAT, SimulatedModel("step", 0.71, 0.3)), USUAL),
)


def simulate(setting: GateSetting, structure: str, questions: int, replications: int) -> dict[GateVerdict, float]:
    """Return the share of each verdict."""
    verdicts = []
    for seed in range(replications):
        rng = np.random.default_rng([seed, questions])
        common = draw_common_results(setting.models, structure, questions, ICC, True, rng)
        verdicts.append(check_limits(map(LimitedValue.of_change, compare_pair(PAIR, common)), setting.limits).verdict)
    return {verdict: verdicts.count(verdict) / replications for verdict in GateVerdict}


def format_line(job: tuple[GateSetting, str, int, int]) -> str:
    """Return one line of the table."""
    setting, structure, questions, _ = job
    shares = " | ".join(f"{verdict} {share:.3f}" for verdict, share in simulate(*job).items())
    # A setting comes from another process as a copy.
    limits = "no change" if setting.limits == TIGHTEST else ", ".join(setting.limits)
    return f"{setting.name:22s} {structure:12s} {questions:6,} | {shares} | {limits}"


if __name__ == "__main__":
    count, questions = (int(value) for value in (*sys.argv[1:], *("200", "720")[len(sys.argv) - 1 :]))
    with Pool() as pool:
        jobs = [(setting, structure, questions, count) for setting in SETTINGS for structure in STRUCTURES]
        for line in pool.imap(format_line, jobs):
            print(line, flush=True)
