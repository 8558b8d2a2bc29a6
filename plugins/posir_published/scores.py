"""Typed readers of the published scores, and the numbers of queries that the papers give; `data/README.md` has the sources."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby

from posir_psi.scores import psi as compute_psi
from posir_tasks.languages import LANGUAGES

#: Sources, as they are shown beside the scores.
POSIR_SOURCE = "published, Zeng et al. 2026 (arXiv 2601.08363)"
POSQ_SOURCE = "published, Zeng et al. 2025 (arXiv 2505.13950)"
MYOPIC_TRAP_SOURCE = "published, Benchmarking the Myopic Trap, Table 1 (earlier version of arXiv 2505.13950)"
POSIR_FIGURES_SOURCE = "published, Zeng et al. 2026 (arXiv 2601.08363), read from the authors' figures"
#: Largest errors of a curve that was read from a figure, in nDCG@10 and in PSI; less precise readings are not shipped.
MOST_MEAN_ERROR, MOST_PSI_ERROR = 0.0005, 0.01
#: All lengths, and the length buckets of PosIR.
LENGTHS = ("all", "Q1", "Q2", "Q3", "Q4")
#: Value of the column `bucket` in the row that holds a system's PSI.
PSI_ROW = "psi"
#: Architectures that the authors ran on the Tiny samples (arXiv 2505.13950, Section 4.1).
SAMPLED_ARCHITECTURES = ("late-interaction", "reranker")


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
    """Mean in [0, 1]: for `all`, over queries; for Q1 to Q4, the unweighted mean of the non-empty position bins."""
    psi: float
    """PSI in [0, 1], over 20 bins of relative position."""

    @property
    def task(self) -> str:
        """The name of the task."""
        return name_posir_task(self.query_language, self.corpus_language)


@dataclass(frozen=True)
class PosirBins:
    """The position bins of one model on one language pair and length bucket of PosIR, read from the authors' figure.

    The authors publish them as pictures alone. The error of the reading is known from what they print: the bucket's nDCG@10,
    which calibrates the axis, and its PSI, which was not used.
    """

    model: str
    query_language: str
    """ISO 639-3, such as `deu`."""
    corpus_language: str
    length: str
    """`Q1` to `Q4`."""
    ndcg_at_10: tuple[float, ...]
    """Mean of each of the 20 bins of relative position, in [0, 1], shape (20,)."""
    mean_error: float
    """Mean of these values minus the published nDCG@10, at most `MOST_MEAN_ERROR` from 0."""
    psi_error: float
    """PSI of these values minus the published one, at most `MOST_PSI_ERROR` from 0."""

    @property
    def task(self) -> str:
        """The name of the task."""
        return name_posir_task(self.query_language, self.corpus_language)


def name_posir_task(query_language: str, corpus_language: str) -> str:
    """Return the task of two languages: `PosIR-German`, or `PosIR-German-English` against the English corpus."""
    names = {language.code.split("-")[0]: language.name for language in LANGUAGES}
    return "-".join(["PosIR", *dict.fromkeys([names[query_language], names[corpus_language]])])


@dataclass(frozen=True)
class PosqScore:
    """One system on one dataset of PosQ (Zeng et al. 2025, arXiv 2505.13950) or of its earlier version, the Myopic Trap."""

    dataset: str
    """`SQuAD-PosQ`, `FineWeb-PosQ`, or `FineWeb-PosQ-Raw`: its first release, with two labels on some questions."""
    architecture: str
    """`sparse`, `dense`, `late-interaction` or `reranker`."""
    model: str
    buckets: tuple[str, ...]
    """Names of the B position buckets, from first to last."""
    ndcg_at_10: tuple[float, ...]
    """Mean of each bucket in [0, 1], four decimals, shape (B,)."""
    psi: float
    """PSI as printed, in [0, 1], three decimals; of the buckets, not rounded, where the paper prints none."""
    source: str

    @property
    def task(self) -> str:
        """The name of the task; the authors ran late-interaction models and rerankers on the Tiny samples."""
        return f"{self.dataset}-Tiny" if self.architecture in SAMPLED_ARCHITECTURES else self.dataset


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
        for row in read_rows("posir.csv")
    )


@cache
def read_posir_bins() -> tuple[PosirBins, ...]:
    """Return the curves of PosIR that could be read precisely: 506 of 10 models x 18 language pairs x 4 length buckets."""
    return tuple(
        PosirBins(
            row["model"],
            row["query_language"],
            row["corpus_language"],
            row["length_bucket"],
            tuple(float(value) for name, value in row.items() if name.startswith("bin_")),
            float(row["ndcg_at_10_mean_error"]),
            float(row["psi_error"]),
        )
        for row in read_rows("posir_curves.csv")
    )


@cache
def read_posq_scores() -> tuple[PosqScore, ...]:
    """Return the scores of PosQ: 20 systems on SQuAD-PosQ, 19 on FineWeb-PosQ."""
    return tuple(_read_posq_layout("posq.csv", POSQ_SOURCE))


@cache
def read_myopic_trap_scores() -> tuple[PosqScore, ...]:
    """Return the scores of the Myopic Trap's Table 1: 12 systems on SQuAD-PosQ and on FineWeb-PosQ-Raw, without PSI."""
    return tuple(_read_posq_layout("myopic_trap.csv", MYOPIC_TRAP_SOURCE))


def _read_posq_layout(name: str, source: str) -> Iterator[PosqScore]:
    systems = groupby(read_rows(name), key=lambda row: (row["task"], row["architecture"], row["model"]))
    for (dataset, architecture, model), group in systems:
        rows = list(group)
        scores = {row["bucket"]: float(row["ndcg_at_10"]) for row in rows if row["bucket"] != PSI_ROW}
        printed = [float(row["psi"]) for row in rows if row["bucket"] == PSI_ROW]
        psi = printed[0] if printed else float(compute_psi(list(scores.values())))
        yield PosqScore(dataset, architecture, model, tuple(scores), tuple(scores.values()), psi, source)


def read_mmteb_scores() -> dict[str, float]:
    """Return the MMTEB retrieval scores (x 100) of the 10 models of PosIR (Zeng et al. 2026, arXiv 2601.08363)."""
    return {row["model"]: float(row["mmteb_retrieval"]) for row in read_rows("mmteb.csv")}


def read_rows(name: str) -> Iterator[dict[str, str]]:
    """Return the rows of a file of this package's data."""
    text = (files("posir_published") / "data" / name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())


@dataclass(frozen=True)
class QueryCount:
    """A number of queries."""

    number: int
    exact: bool = True

    def __str__(self) -> str:
        return f"{self.number:,}" if self.exact else f"about {self.number:,}"


#: Distinct queries of a task; for an average over tasks, of all its tasks together (arXiv 2601.08363, 2505.13950).
TASK_QUERIES = {
    "PosIR": QueryCount(421_708),
    "PosIR-English": QueryCount(42_015),
    "PosIR(cross-lingual)": QueryCount(337_000, exact=False),
    "SQuAD-PosQ": QueryCount(92_749),
    "SQuAD-PosQ-Tiny": QueryCount(10_000),
    "FineWeb-PosQ": QueryCount(25_775),
    "FineWeb-PosQ-Tiny": QueryCount(3_000, exact=False),
    # The first release (Myopic Trap, Table 2).
    "FineWeb-PosQ-Raw": QueryCount(265_865),
    "FineWeb-PosQ-Raw-Tiny": QueryCount(6_620),
}
#: Mean over the languages of PosIR: 421,708 queries in ten languages.
LANGUAGE_QUERIES = QueryCount(42_170, exact=False)
#: Queries of each position bucket; a query on a shared boundary of SQuAD-PosQ counts in both (arXiv 2505.13950).
BUCKET_QUERIES = {
    "SQuAD-PosQ": (21_220, 16_527, 13_667, 11_514, 10_089, 20_384),
    "SQuAD-PosQ-Tiny": (2_252, 1_813, 1_444, 1_210, 1_108, 2_237),
    "FineWeb-PosQ": (8_467, 8_213, 9_095),
    # The first 1,000 of each class before duplicate questions are removed; the number of duplicates is not published.
    "FineWeb-PosQ-Tiny": (1_000, 1_000, 1_000),
    # A question with two labels counts in both (Myopic Trap, Table 2).
    "FineWeb-PosQ-Raw": (103_844, 199_742, 160_832),
    "FineWeb-PosQ-Raw-Tiny": (3_300, 5_098, 3_300),
}


def find_query_count(task: str, length: str) -> QueryCount | None:
    """Return the number of queries of a published score; None where the papers do not give it, as for the length buckets."""
    return TASK_QUERIES.get(task, LANGUAGE_QUERIES) if length == "all" else None
