"""Typed readers of the published figures, which ship in this package; `data/README.md` names the source of each file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby

from posir_tasks.languages import LANGUAGES

#: Sources of the figures, as they stand beside them.
POSIR_SOURCE = "published, Zeng et al. 2026 (arXiv 2601.08363)"
POSQ_SOURCE = "published, Zeng et al. 2025 (arXiv 2505.13950)"
#: All lengths, and the length buckets of PosIR.
LENGTHS = ("all", "Q1", "Q2", "Q3", "Q4")
#: What the last row of a system has for a bucket.
PSI_ROW = "psi"


@dataclass(frozen=True)
class PosirFigure:
    """One model on one language pair of PosIR, pooled over its 31 domains (Zeng et al. 2026, arXiv 2601.08363)."""

    model: str
    query_language: str
    """ISO 639-3, such as `deu`."""
    corpus_language: str
    length: str
    """`all`, or `Q1` to `Q4`."""
    ndcg_at_10: float
    """In [0, 1]: `all`, the mean over queries; Q1 to Q4, the unweighted mean of the non-empty position bins."""
    psi: float
    """In [0, 1], over 20 bins of relative position."""

    @property
    def task(self) -> str:
        """Our name of the task: `PosIR-German`, or `PosIR-German-English` against the English corpus."""
        names = {language.code.split("-")[0]: language.name for language in LANGUAGES}
        return "-".join(["PosIR", *dict.fromkeys([names[self.query_language], names[self.corpus_language]])])


@dataclass(frozen=True)
class PosqFigure:
    """One system on one dataset of PosQ (Zeng et al. 2025, arXiv 2505.13950)."""

    dataset: str
    """`SQuAD-PosQ` or `FineWeb-PosQ`."""
    architecture: str
    """`sparse`, `dense`, `late-interaction` or `reranker`."""
    model: str
    buckets: tuple[str, ...]
    """Names of the B position buckets, from first to last."""
    ndcg_at_10: tuple[float, ...]
    """Mean of each bucket in [0, 1], four decimals, shape (B,)."""
    psi: float
    """As printed, in [0, 1], three decimals."""

    @property
    def task(self) -> str:
        """Our name of the task; the authors ran rerankers on the Tiny samples."""
        return f"{self.dataset}-Tiny" if self.architecture == "reranker" else self.dataset


@dataclass(frozen=True)
class MmtebFigure:
    """One model's MMTEB retrieval score beside PosIR (Zeng et al. 2026, arXiv 2601.08363)."""

    model: str
    mmteb_retrieval: float
    """x 100."""
    ndcg_at_10: tuple[float, ...]
    """Macro average over the ten monolingual tasks of PosIR for each of `LENGTHS`, x 100, two decimals, shape (5,)."""


@cache
def posir_figures() -> tuple[PosirFigure, ...]:
    """Return the figures of PosIR: 10 models x 18 language pairs x 5 lengths."""
    return tuple(
        PosirFigure(
            row["model"],
            row["query_language"],
            row["corpus_language"],
            row["length_bucket"],
            float(row["ndcg_at_10"]),
            float(row["psi"]),
        )
        for row in _rows("posir.csv")
    )


@cache
def posq_figures() -> tuple[PosqFigure, ...]:
    """Return the figures of PosQ: 20 systems on SQuAD-PosQ, 19 on FineWeb-PosQ."""
    systems = groupby(_rows("posq.csv"), key=lambda row: (row["task"], row["architecture"], row["model"]))
    return tuple(_system(*names, list(rows)) for names, rows in systems)


def _system(dataset: str, architecture: str, model: str, rows: list[dict[str, str]]) -> PosqFigure:
    scores = {row["bucket"]: float(row["ndcg_at_10"]) for row in rows if row["bucket"] != PSI_ROW}
    (psi,) = (float(row["psi"]) for row in rows if row["bucket"] == PSI_ROW)
    return PosqFigure(dataset, architecture, model, tuple(scores), tuple(scores.values()), psi)


@cache
def mmteb_figures() -> tuple[MmtebFigure, ...]:
    """Return the MMTEB retrieval scores of the 10 models of PosIR."""
    columns = ["posir" if length == "all" else f"posir_{length.lower()}" for length in LENGTHS]
    return tuple(
        MmtebFigure(row["model"], float(row["mmteb_retrieval"]), tuple(float(row[name]) for name in columns))
        for row in _rows("mmteb.csv")
    )


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = (files("posir_published") / "data" / name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())
