"""`Format`, which declares a format, and the formats that posir recognizes but cannot read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from posir_tasks.base.errors import DataError
from posir_tasks.data.data import Judgments
from posir_tasks.data.formats.passages import Items, ReadOptions, SearchScope
from posir_tasks.data.formats.records import PARQUET
from posir_tasks.data.formats.shape import JSON_LINES, NESTED, TABLES

JSON_ROWS = (*JSON_LINES, *PARQUET)
BEIR_LAYOUT = (
    "corpus.jsonl (_id, text), queries.jsonl (_id, text) and qrels/test.tsv (query-id, corpus-id, "
    "score)"
)
LINES_LAYOUT = "JSON Lines with context, question, answer and start"
#: Contents of a format.
SPANS = "questions with the spans of their evidence"
JUDGMENTS = "judgments without positions, for `posir score`"
TEXTS = "texts"
Reader: TypeAlias = Callable[[Path, ReadOptions], Items]


def _raise_unsupported(path: Path, options: ReadOptions) -> Items:  # noqa: ARG001
    raise DataError(f"{path}: posir cannot read this format.")


@dataclass(frozen=True)
class Format:
    """A file or folder format."""

    title: str
    suffixes: tuple[str, ...] = ()
    """File suffixes; `/` for a folder. Empty if the format is part of another format."""
    read: Reader = _raise_unsupported
    accepts: Callable[[Path], bool] = lambda _: True
    """Additional check of a path, after suffix, files and signature have matched."""
    files: tuple[str, ...] = ()
    """Required files in a folder, as glob patterns; `|` separates alternatives."""
    signature: str = ""
    """Field names that identify the format, in the syntax of `fields`."""
    search_scope: SearchScope | None = SearchScope.CORPUS
    """Texts to search for an answer; None for formats without questions."""
    read_texts: Reader | None = None
    """Yields the documents only. Set if it is cheaper than `read`."""
    read_judgments: Callable[[Path, ReadOptions], Judgments] | None = None
    """Reads the qrels of a format with grades or several relevant documents per query."""
    fields: str = ""
    """Field names, separated by spaces. `|` separates layouts. A trailing `/` requires the value to
    be an object or a list.
    """
    advice: str = ""
    """How to fix data that nearly matches, or to convert an unsupported format."""
    contents: str = SPANS
    """`SPANS`, `JUDGMENTS` or `TEXTS`."""
    find_language: Callable[[Path], str] = lambda _: ""
    """Returns the declared language code, or an empty string if there is none or several."""

    @property
    def is_unsupported(self) -> bool:
        """True if posir recognizes the format but cannot read it."""
        return bool(self.suffixes) and self.read is _raise_unsupported

    @property
    def layouts(self) -> list[frozenset[str]]:
        """The field names of each layout."""
        groups = self.fields.replace(NESTED, "").split("|")
        return [frozenset(group.split()) for group in groups if group]


def _declare_unsupported(title: str, fields: str, advice: str, suffixes: tuple[str, ...]) -> Format:
    return Format(title, suffixes, signature=fields, fields=fields, advice=advice, contents="")


UNSUPPORTED_FORMATS = (
    _declare_unsupported(
        "ReCoRD",
        "passage/ entities qas query|passage query entities/ entity_spans",
        "Its queries are statements with a gap (@placeholder) for an entity. Write "
        f"{LINES_LAYOUT} from passage > text, qas > query and answers > text, start.",
        JSON_ROWS,
    ),
    _declare_unsupported(
        "ContractNLI",
        "documents/ annotation_sets/ annotations spans",
        "Each hypothesis is about one contract, and its evidence is a list of span numbers. Write "
        "JSON Lines with context (documents > text), question (labels > hypothesis), and start "
        "and end from documents > spans, for each number in annotations > spans.",
        (".json",),
    ),
    _declare_unsupported(
        "FinanceBench",
        "financebench_id question evidence/ evidence_text",
        "Its documents are separate PDF files. Convert them to text (`pdftotext FILE.pdf`), "
        f"and write {BEIR_LAYOUT}, with evidence (evidence > evidence_text) in queries.jsonl.",
        JSON_ROWS,
    ),
    _declare_unsupported(
        "evidence-inference",
        "PromptID PMCID",
        "Its questions, spans and articles are in separate files. Write JSON Lines with context "
        "(txt_files/PMC<PMCID>.txt), question (Outcome, Intervention and Comparator of "
        "prompts_merged.csv), and start and end (Evidence Start, Evidence End of "
        "annotations_merged.csv).",
        (*JSON_ROWS, *TABLES),
    ),
    _declare_unsupported(
        "DROP",
        "passage qa_pairs/|passage question answers_spans",
        "Its answers are numbers, dates and spans without offsets, often computed. Write "
        f"{LINES_LAYOUT} for the answers that occur once in the passage, or {BEIR_LAYOUT} for "
        "judgments without spans.",
        JSON_ROWS,
    ),
    _declare_unsupported(
        "PubMedQA",
        "QUESTION CONTEXTS/|question context/ long_answer final_decision",
        "Its answers are yes, no and maybe about a whole abstract, without spans. Write "
        f"{BEIR_LAYOUT}, with the contexts of a question as one text.",
        JSON_ROWS,
    ),
    _declare_unsupported(
        "QAngaroo (WikiHop, MedHop)",
        "query candidates/ supports/",
        "Its queries are relations, and it does not mark the support with the evidence. Write "
        f"{BEIR_LAYOUT}, with each of the supports as a text.",
        JSON_ROWS,
    ),
    _declare_unsupported(
        "CRUD-RAG",
        "event_summary/|questanswer_1doc/|continuing_writing/|hallu_modified/|"
        "news1 questions answers",
        "Its answers are written from up to three news texts, without spans. Write "
        f"{BEIR_LAYOUT}, from news1 to news3 and questions.",
        JSON_ROWS,
    ),
    _declare_unsupported(
        "training data of DPR",
        "question positive_ctxs/",
        f"Its judgments have no spans. Write {BEIR_LAYOUT}, from question and positive_ctxs > "
        "text.",
        JSON_ROWS,
    ),
    _declare_unsupported(
        "HotpotQA or 2WikiMultihopQA",
        "question context/ supporting_facts/",
        "Its evidence is spread over sentences in several texts. Write "
        f"{BEIR_LAYOUT}, from context (title, sentences), with the supporting sentences as "
        "evidence in queries.jsonl: an object with a list for each text.",
        JSON_ROWS,
    ),
)
