"""`Dataset`, which all commands use, with subsets that are read on demand."""

from __future__ import annotations

import logging
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.base.logs import warn_once
from posir_tasks.data.data import Judgments, PositionData, ScoringRules
from posir_tasks.data.formats.catalog import describe_format
from posir_tasks.data.formats.passages import (
    Item,
    Passage,
    RepeatedTexts,
    SearchScope,
    SkippedItem,
    describe_skipped,
)
from posir_tasks.display.numbers import format_count
from posir_tasks.display.presentation import LazySequence, Result
from posir_tasks.display.tables import Table, build_numeric_table
from posir_tasks.tasks.catalog import describe_hidden_task
from posir_tasks.text.languages import UNKNOWN_LANGUAGE
from posir_tasks.values.schemes import PositionScheme

logger = logging.getLogger(__name__)

#: Kinds of task data: tasks with evidence positions, and mteb tasks with qrels only.
TASK = "a task"
JUDGED_TASK = "an mteb task"
#: Kind, name and location of data in memory.
IN_MEMORY = "texts"
#: Maximum number of texts to examine for an error message.
MAX_LISTED = 1_000
#: Data that evaluation and training need.
EVIDENCE = "questions with the span of their evidence"


@dataclass(frozen=True)
class Subset:
    """One language and domain of data, read on demand."""

    find_languages: Callable[[], tuple[str, str]]
    """Returns the language codes of queries and corpus, such as `eng-Latn`, or `und` if unknown."""
    domain: str
    read: Callable[[], PositionData]
    """Reads and checks documents and questions; raises DataError for missing or invalid data."""
    read_texts: Callable[[], Iterator[Item]]
    """Yields documents without their questions, and skipped texts."""
    read_passages: Callable[[], Iterator[Item]]
    """Yields documents with questions, which are only checked for data in the PosIR layout."""
    read_judgments: Callable[[], Judgments] | None = None
    """Reads qrels, for data with grades or several relevant documents per query."""

    @cached_property
    def judgments(self) -> Judgments:
        """All judged queries with their grades; raises DataError for missing or invalid data."""
        if self.read_judgments:
            return self.read_judgments()
        return Judgments.from_positions(self.read())

    @property
    def query_language(self) -> str:
        """Language of the queries."""
        return self.find_languages()[0]

    @property
    def corpus_language(self) -> str:
        """Language of the documents."""
        return self.find_languages()[1]

    @property
    def language(self) -> str:
        """Language of the queries, and of the corpus if it differs."""
        return "-".join(dict.fromkeys((self.query_language, self.corpus_language)))

    @property
    def name(self) -> str:
        """Language and domain."""
        return f"{self.language}/{self.domain}"


@dataclass(frozen=True, repr=False)
class Dataset(Result):
    """Documents, with or without questions and evidence, in subsets with the same position scheme.

    Subsets are read on demand: `subsets[0].read()` returns documents, questions and evidence,
    `read_texts()` yields only documents. The data frame contains a row per question or, without
    questions, a row per text.
    """

    name: str
    """Task name, or a name derived from the file, folder or Hub dataset."""
    kind: str
    location: str
    """Hub dataset id, or path of a file or folder."""
    scheme: PositionScheme
    subsets: tuple[Subset, ...]
    """Subsets by language and domain; at least one."""
    find_revision: Callable[[], str]
    """Returns a Hub commit, or `local-` and a digest of the content."""
    has_questions: bool = True
    in_memory: bool = False
    """If true, subsets stay in memory and are read once."""
    has_texts: bool = True
    """False for qrels only."""
    declared_scope: SearchScope | None = SearchScope.CORPUS
    """Texts to search for an answer, as set by the format or the user; None to infer them from
    repeated questions.
    """
    find_declared_language: Callable[[], str] = lambda: ""
    """Returns the declared language code, or an empty string if there is none or several."""
    rules: ScoringRules = field(default_factory=ScoringRules)
    reference: str = ""
    """Name for commands, or absolute path of a file or folder; empty for data in memory."""

    def read_texts(self) -> Iterator[Item]:
        """Yield the documents of all subsets with their corpus ids, and skipped texts."""
        for subset in self.subsets:
            yield from subset.read_texts()

    @cached_property
    def search_scope(self) -> SearchScope:
        """Texts to search for an answer, declared or inferred from repeated questions."""
        return self.declared_scope or self.repeated.search_scope

    @property
    def repeated(self) -> RepeatedTexts:
        """Number of questions that are repeated for several documents."""
        return self.subsets[0].read().repeated

    @property
    def has_inferred_scope(self) -> bool:
        """True if repeated questions imply that each question is about its own document."""
        return self.declared_scope is None and self.search_scope is not SearchScope.CORPUS

    def require_corpus(self) -> None:
        """Raise PosirError unless the whole corpus can be searched for answers."""
        if self.search_scope is not SearchScope.CORPUS:
            reason = f"{self.repeated.describe()}: " if self.has_inferred_scope else ""
            raise PosirError(
                f"{self.location} ({self.kind}): {reason}{self.search_scope.value}. Score chunks "
                "within each document: `posir score --model MODEL --chunker MODULE:FUNCTION --data "
                f"{shlex.quote(self.location)}`. If each question is self-contained, add "
                "--scope corpus to posir import, score or stats to search the whole corpus."
            )

    def __post_init__(self) -> None:
        # A `Result` needs a title, rows and tables, which are computed on demand.
        object.__setattr__(self, "title", self.name)
        object.__setattr__(self, "rows", LazySequence(self._list_rows))
        object.__setattr__(self, "tables", LazySequence(self._build_tables))

    def _list_rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row per question with its evidence or, without questions, a row per text."""
        for subset in self.subsets:
            if self.has_questions:
                yield from _list_questions(subset)
                continue
            for item in subset.read_texts():
                if isinstance(item, Passage):
                    yield {"subset": subset.name, "document_id": item.name, "text": item.text}

    @cached_property
    def skipped(self) -> list[SkippedItem]:
        """Skipped texts, rows and questions, with reasons."""
        if self.has_questions:
            return [item for subset in self.subsets for item in subset.read().skipped]
        return [item for item in self.read_texts() if isinstance(item, SkippedItem)]

    def _build_tables(self) -> Iterator[Table]:
        """Count the rows of each subset in a table, with notes on skipped and repaired rows."""
        counts = Counter(row["subset"] for row in self.rows)
        rows = [(name, format_count(count)) for name, count in counts.items()]
        notes: list[str] = []
        for subset in self.subsets if self.has_questions else ():
            notes += subset.read().warnings
        skipped = describe_skipped(self.skipped)
        if skipped:
            notes.append(skipped)
        unit = "Questions" if self.has_questions else "Texts"
        yield build_numeric_table(("Subset", unit), rows, notes=notes)

    def find_languages(self) -> dict[str, list[str]]:
        """Map subset names to language codes of queries and corpus, as in task metadata.

        Raises:
            PosirError: The language of a subset is unknown.
        """
        if self.has_texts and any(
            subset.query_language == UNKNOWN_LANGUAGE for subset in self.subsets
        ):
            raise PosirError(self._describe_unknown_language())
        languages = {subset.language for subset in self.subsets}
        is_single = self.kind in (TASK, JUDGED_TASK) or len(languages) == 1
        names = {}
        for subset in self.subsets:
            name = subset.domain if is_single else subset.name.replace("/", "-")
            names[name] = list(subset.find_languages())
        return names

    def _describe_unknown_language(self) -> str:
        items = list(islice(self.read_texts(), MAX_LISTED))
        skipped = [item for item in items if isinstance(item, SkippedItem)]
        if len(skipped) < len(items):
            return (
                f"{self.location}: its language is not recognized. Import it with `posir import "
                "--language CODE`."
            )
        sentences = ("has no text.", describe_skipped(skipped), self._describe_format())
        return f"{self.location} ({self.kind}): {' '.join(filter(None, sentences))}"

    def _describe_format(self) -> str:
        """Describe the content of a file or folder, with supported formats; "" for other data."""
        path = Path(self.location).expanduser()
        return describe_format(path) if path.exists() and self.kind != IN_MEMORY else ""

    def select_questions(self, command: str, *, several_places: bool = False) -> Dataset:
        """Select the questions that a command can use. Reading them logs skipped questions.

        Args:
            command: Name for messages, such as `posir train`.
            several_places: Include questions with several evidence spans.

        Raises:
            PosirError: The whole corpus cannot be searched for answers.
            DataError: There are no questions.
        """
        self.require_corpus()
        if not self.has_questions and not any(subset.read_judgments for subset in self.subsets):
            raise DataError(self._describe_missing_questions(command, self._describe_format()))
        subsets = (
            replace(subset, read=partial(self._read_questions, subset, command, several_places))
            for subset in self.subsets
        )
        return replace(self, subsets=tuple(subsets))

    def _describe_missing_questions(self, command: str, detail: str) -> str:
        missing = f"{self.location} ({self.kind}): has no {EVIDENCE}, which {command} needs."
        advice = (
            "`posir inspect` and `posir probe` need only texts; `posir build` generates questions."
        )
        return f"{missing}{describe_hidden_task(self.location)} {advice} {detail}".strip()

    def _read_questions(self, subset: Subset, command: str, several_places: bool) -> PositionData:
        if not self.has_questions:
            raise DataError(self._describe_missing_questions(command, self._describe_format()))
        data = subset.read().drop_unpositioned()
        if not several_places:
            data = data.drop_places()
        for warning in data.warnings:
            warn_once(logger, warning)
        skipped = describe_skipped(data.skipped)
        if not len(data.evidence):
            raise DataError(self._describe_missing_questions(command, skipped))
        if skipped:
            warn_once(logger, f"{self.location}: {skipped}")
        return data


def _list_questions(subset: Subset) -> Iterator[dict[str, Any]]:
    data = subset.read()
    sizes = data.documents["text"].str.len_chars()
    lengths = dict(zip(data.documents["id"], sizes, strict=True))
    for query, text, document, span in data.list_questions():
        start, end = span or (None, None)
        yield {
            "subset": subset.name,
            "query_id": query,
            "query": text,
            "document_id": document,
            "characters": lengths[document],
            "start": start,
            "end": end,
            "position": span.middle / lengths[document] if span and lengths[document] else None,
        }
