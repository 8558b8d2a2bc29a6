"""Task declarations: names, data, languages and published sizes.

Task classes are built from declarations, which can be imported without mteb. Importing mteb takes
seconds. PosIR sizes: Zeng et al. 2026 (arXiv 2601.08363); PosQ sizes: Zeng et al. 2025 (arXiv
2505.13950).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from posir_tasks.text.languages import DOMAINS, LANGUAGES, PIVOT, Language

#: PosIR on the Hub.
REPO_ID = "infgrad/PosIR-Benchmark-v1"
REVISION = "main"
#: Name suffix of PosIR samples, number of questions, and distractors per question.
NANO_SUFFIX = "-Nano"
NANO_QUESTIONS = 1_500
DISTRACTORS = 12
#: PosIR sizes in English, and averages over the ten languages.
ENGLISH_DOCUMENTS = 1_719_701
ENGLISH_QUERIES = 42_015
AVERAGE_DOCUMENTS = "about 1.7 M"
AVERAGE_QUERIES = "about 42,000"
AVERAGE_QUERY_COUNT = 42_000
#: Revision of a dataset without a pinned commit. Results store a digest of the content.
NOT_PINNED = "not pinned"
ENGLISH = (PIVOT.code,)
POSIR = """@misc{zeng2026posir,
  title = {PosIR: Position-Aware Heterogeneous Information Retrieval Benchmark},
  author = {Ziyang Zeng and Dun Zhang and Yu Yan and Xu Sun and Yudong Zhou and Yuqing Yang},
  year = {2026},
  eprint = {2601.08363},
  archiveprefix = {arXiv},
}"""
POSQ = """@inproceedings{zeng2025posq,
  title = {An Empirical Study of Position Bias in Modern Information Retrieval},
  author = {Ziyang Zeng and Dun Zhang and Jiacheng Li and Panxiang Zou and Yudong Zhou and Yuqing
    Yang},
  booktitle = {Findings of the Association for Computational Linguistics: EMNLP 2025},
  year = {2025},
  eprint = {2505.13950},
  archiveprefix = {arXiv},
}"""


@dataclass(frozen=True)
class DeclaredTask:
    """Declaration of a task, from which its class is built."""

    name: str
    repository: str
    revision: str
    languages: Sequence[str] | Mapping[str, Sequence[str]] = ENGLISH
    """Language codes of queries and documents, or a mapping from subset to codes."""
    documents: int | str | None = None
    """Published number of documents: a string if approximate, None if unknown."""
    questions: int | str | None = None
    """Published number of questions: a string if approximate, None if unknown."""
    benchmark: str = ""
    """mteb benchmark that contains the task."""
    question_estimate: int = 0
    """Number of questions if `questions` is approximate, else 0."""

    def to_metadata(self) -> dict[str, Any]:
        """Return the declaration as arguments of `build_metadata`."""
        return {
            "name": self.name,
            "dataset": self.repository,
            "revision": self.revision,
            "languages": self.languages,
        }


def format_size(size: int | str | None) -> str:
    """Format a number of documents or questions; "" if it is unknown."""
    return f"{size:,}" if isinstance(size, int) else size or ""


def declare_posir(language: Language, corpus_language: Language) -> DeclaredTask:
    """Declare a PosIR task. Queries and corpus may have different languages."""
    languages = dict.fromkeys((language, corpus_language))
    codes = tuple(part.code for part in languages)
    name = "-".join(["PosIR", *(part.name for part in languages)])
    declared = DeclaredTask(name, REPO_ID, REVISION, dict.fromkeys(DOMAINS, codes))
    if language not in LANGUAGES:
        return declared
    benchmark = "PosIR"
    if len(languages) > 1:
        benchmark = "PosIR(cross-lingual)" if language.cross_lingual_in_paper else ""
    return replace(
        declared,
        documents=ENGLISH_DOCUMENTS if corpus_language == PIVOT else AVERAGE_DOCUMENTS,
        questions=ENGLISH_QUERIES if language == PIVOT else AVERAGE_QUERIES,
        benchmark=benchmark,
        question_estimate=0 if language == PIVOT else AVERAGE_QUERY_COUNT,
    )


def declare_nano(language: Language) -> DeclaredTask:
    """Declare the PosIR sample of a language."""
    full = declare_posir(language, language)
    max_questions = round(NANO_QUESTIONS / len(DOMAINS)) * len(DOMAINS)
    return replace(
        full,
        name=full.name + NANO_SUFFIX,
        benchmark=full.benchmark and "PosIR(nano)",
        documents=f"up to {max_questions * (1 + DISTRACTORS):,}",
        questions=f"up to {max_questions:,}",
        question_estimate=max_questions,
    )


def _build_subsets(codes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    return {code: (code,) for code in codes}


@dataclass(frozen=True)
class DeclaredBenchmark:
    """Declaration of an mteb benchmark."""

    name: str
    description: str
    arxiv: str
    """arXiv id of the paper."""
    citation: str
    """BibTeX."""


BENCHMARKS = (
    DeclaredBenchmark(
        "PosIR",
        "Ten languages, 31 domains: does a model find evidence at any position? The paper's main "
        "table.",
        "2601.08363",
        POSIR,
    ),
    DeclaredBenchmark(
        "PosIR(cross-lingual)",
        "PosIR's queries in eight languages against the English corpus.",
        "2601.08363",
        POSIR,
    ),
    DeclaredBenchmark(
        "PosIR(nano)",
        "Samples of PosIR in ten languages that run in minutes. Start minus end is comparable to "
        "the complete tasks; scores are not.",
        "2601.08363",
        POSIR,
    ),
    DeclaredBenchmark(
        "PosQ",
        "SQuAD-PosQ and FineWeb-PosQ: questions by the position of their answer in a passage.",
        "2505.13950",
        POSQ,
    ),
)
MINI = DeclaredTask("PosIR-Mini", "posir/PosIR-Mini", "1", documents=72, questions=720)
MINI_DESCRIPTION = (
    "A small position-aware retrieval set that ships inside the package `posir`: 72 documents "
    "about invented things of six kinds, easy to confuse, and 720 questions with exact spans, "
    "spread evenly over positions and lengths."
)
SQUAD = DeclaredTask(
    "SQuAD-PosQ",
    "rajpurkar/squad_v2",
    "3ffb306f725f7d2ce8394bc1873b24868140c412",
    ENGLISH,
    20_233,
    92_749,
    "PosQ",
)
SQUAD_TINY = replace(SQUAD, name="SQuAD-PosQ-Tiny", questions=10_000, benchmark="")
FINEWEB = DeclaredTask(
    "FineWeb-PosQ", "NovaSearch/FineWeb-PosQ", "main", ENGLISH, 13_902, 25_775, "PosQ"
)
FINEWEB_TINY = replace(
    FINEWEB,
    name="FineWeb-PosQ-Tiny",
    questions="up to 3,000",
    question_estimate=3_000,
    benchmark="",
)
FINEWEB_RAW = replace(
    FINEWEB,
    name="FineWeb-PosQ-Raw",
    repository="NovaSearch/FineWeb-PosQ_raw",
    questions=265_865,
    benchmark="",
)
FINEWEB_RAW_TINY = replace(
    FINEWEB_RAW, name="FineWeb-PosQ-Raw-Tiny", questions="up to 9,900", question_estimate=9_900
)
#: Maps TyDi QA's language names to codes.
TYDI_LANGUAGES = {
    "arabic": "ara-Arab",
    "bengali": "ben-Beng",
    "english": "eng-Latn",
    "finnish": "fin-Latn",
    "indonesian": "ind-Latn",
    "japanese": "jpn-Jpan",
    "korean": "kor-Kore",
    "russian": "rus-Cyrl",
    "swahili": "swh-Latn",
    "telugu": "tel-Telu",
    "thai": "tha-Thai",
}
MIRACL_LANGUAGES = (
    "ara-Arab",
    "ben-Beng",
    "cmn-Hans",
    "deu-Latn",
    "eng-Latn",
    "fin-Latn",
    "fra-Latn",
    "hin-Deva",
    "ind-Latn",
    "jpn-Jpan",
    "kor-Kore",
    "pes-Arab",
    "rus-Cyrl",
    "spa-Latn",
    "swh-Latn",
    "tel-Telu",
    "tha-Thai",
    "yor-Latn",
)
#: Subsets of Natural Questions by type of the long answer.
NQ_PARAGRAPHS = "paragraph"
NQ_OTHERS = "other"
TYDI = DeclaredTask(
    "TyDiQA-PosIR",
    "google-research-datasets/tydiqa",
    NOT_PINNED,
    _build_subsets(TYDI_LANGUAGES.values()),
)
MIRACL = DeclaredTask(
    "MIRACL-PosIR", "miracl/miracl-corpus", "d921ec7", _build_subsets(MIRACL_LANGUAGES)
)
REPLIQA_SUBSETS = dict.fromkeys((f"repliqa_{number}" for number in range(5)), ENGLISH)
REPLIQA = DeclaredTask(
    "RepLiQA-PosIR",
    "ServiceNow/repliqa",
    NOT_PINNED,
    REPLIQA_SUBSETS,
    "up to 17,954",
    "up to 89,770",
)
NATURAL_QUESTIONS = DeclaredTask(
    "NQ-PosIR",
    "google-research-datasets/natural_questions",
    NOT_PINNED,
    dict.fromkeys((NQ_PARAGRAPHS, NQ_OTHERS), ENGLISH),
)
#: PosQ datasets and their samples.
POSQ_DATASETS = (SQUAD, SQUAD_TINY, FINEWEB, FINEWEB_TINY, FINEWEB_RAW, FINEWEB_RAW_TINY)
BUILTIN = (
    *(declare_posir(language, language) for language in LANGUAGES),
    *(declare_posir(language, PIVOT) for language in LANGUAGES if language != PIVOT),
    *POSQ_DATASETS,
    MINI,
    *map(declare_nano, LANGUAGES),
    TYDI,
    MIRACL,
    REPLIQA,
    NATURAL_QUESTIONS,
)
