"""Typed readers of the published scores in this package; `data/README.md` names the source of each file."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby

from posir_tasks.languages import LANGUAGES

#: Sources, as they are shown beside the scores.
POSIR_SOURCE = "published, Zeng et al. 2026 (arXiv 2601.08363)"
POSQ_SOURCE = "published, Zeng et al. 2025 (arXiv 2505.13950)"
#: All lengths, and the length buckets of PosIR.
LENGTHS = ("all", "Q1", "Q2", "Q3", "Q4")
#: Value of the column `bucket` in the row that holds a system's PSI.
PSI_ROW = "psi"


@dataclass(frozen=True)
class PosirScore:
    """One model on one language pair of PosIR, pooled over its 31 domains (Zeng et al. 2026, arXiv 2601.08363)."""

    model: str
    query_language: str
    """ISO 639-3, such as `deu`."""
    corpus_language: str
    length: str
    """`all`, or `Q1` to `Q4`."""
    ndcg_at_10: float
    """In [0, 1]: for `all`, the mean over queries; for Q1 to Q4, the unweighted mean of the non-empty position bins."""
    psi: float
    """In [0, 1], over 20 bins of relative position."""

    @property
    def task(self) -> str:
        """The name of the task: `PosIR-German`, or `PosIR-German-English` against the English corpus."""
        names = {language.code.split("-")[0]: language.name for language in LANGUAGES}
        return "-".join(["PosIR", *dict.fromkeys([names[self.query_language], names[self.corpus_language]])])


@dataclass(frozen=True)
class PosqScore:
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
        """The name of the task; the authors ran rerankers on the Tiny samples."""
        return f"{self.dataset}-Tiny" if self.architecture == "reranker" else self.dataset


@cache
def read_posir_scores() -> tuple[PosirScore, ...]:
    """Return the scores of PosIR: 10 models x 18 language pairs x 5 lengths."""
    return tuple(
        PosirScore(
            row["model"],
            row["query_language"],
            row["corpus_language"],
            row["length_bucket"],
            float(row["ndcg_at_10"]),
            float(row["psi"]),
        )
        for row in _read_rows("posir.csv")
    )


@cache
def read_posq_scores() -> tuple[PosqScore, ...]:
    """Return the scores of PosQ: 20 systems on SQuAD-PosQ, 19 on FineWeb-PosQ."""
    systems = groupby(_read_rows("posq.csv"), key=lambda row: (row["task"], row["architecture"], row["model"]))
    return tuple(_posq_score(*names, list(rows)) for names, rows in systems)


def _posq_score(dataset: str, architecture: str, model: str, rows: list[dict[str, str]]) -> PosqScore:
    scores = {row["bucket"]: float(row["ndcg_at_10"]) for row in rows if row["bucket"] != PSI_ROW}
    (psi,) = (float(row["psi"]) for row in rows if row["bucket"] == PSI_ROW)
    return PosqScore(dataset, architecture, model, tuple(scores), tuple(scores.values()), psi)


def read_mmteb_scores() -> dict[str, float]:
    """Return the MMTEB retrieval scores (x 100) of the 10 models of PosIR (Zeng et al. 2026, arXiv 2601.08363)."""
    return {row["model"]: float(row["mmteb_retrieval"]) for row in _read_rows("mmteb.csv")}


def _read_rows(name: str) -> Iterator[dict[str, str]]:
    text = (files("posir_published") / "data" / name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())
