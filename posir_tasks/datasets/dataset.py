"""A dataset as every command takes it: subsets that are read on demand, and what they can be used
for.
"""

from __future__ import annotations

import logging
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.data import Judgments, PositionData, ScoringRules
from posir_tasks.data.formats.catalog import describe_form
from posir_tasks.data.formats.passages import (
    Item,
    Passage,
    RepeatedTexts,
    SkippedText,
    Use,
    describe_skipped,
)
from posir_tasks.display.numbers import format_count
from posir_tasks.display.presentation import Deferred, Result
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.tasks.catalog import mention_task
from posir_tasks.text.languages import UNKNOWN
from posir_tasks.values.schemes import PositionScheme

logger = logging.getLogger(__name__)

#: Kinds of the data of tasks: with positions, and of mteb's own.
TASK = "a task"
JUDGED_TASK = "a task of mteb"
#: Kind, name and location of texts in memory.
IN_MEMORY = "texts"
#: Most texts that are looked at to say why there is none.
MAX_LISTED = 1_000
#: What commands that evaluate or train need.
EVIDENCE = "questions with the span of their evidence"


@dataclass(frozen=True)
class Subset:
    """One language and domain of data, read on demand."""

    find_languages: Callable[[], tuple[str, str]]
    """Returns the codes of queries and corpus, such as `eng-Latn`; `und` if they are not known."""
    domain: str
    read: Callable[[], PositionData]
    """Reads and checks documents and questions; raises DataError if they are missing or invalid."""
    read_texts: Callable[[], Iterator[Item]]
    """Yields the documents alone, and what cannot be read."""
    read_passages: Callable[[], Iterator[Item]]
    """Yields the documents with their questions as the data states them, unchecked where it is not
    in the PosIR layout.
    """
    read_stated_judgments: Callable[[], Judgments] | None = None
    """Returns all judgments, if a query may have grades or several relevant documents."""

    @cached_property
    def judgments(self) -> Judgments:
        """Every judged query with the grades of its documents; raises DataError if the data is
        missing or invalid.
        """
        if self.read_stated_judgments:
            return self.read_stated_judgments()
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
        """Language of the queries, followed by that of the corpus if it differs."""
        return "-".join(dict.fromkeys((self.query_language, self.corpus_language)))

    @property
    def name(self) -> str:
        """Language and domain."""
        return f"{self.language}/{self.domain}"


@dataclass(frozen=True, repr=False)
class Dataset(Result):
    """Documents, and questions with their evidence if there are any: one or several subsets with
    one position scheme.

    They are read when they are first needed: `subsets[0].read()` has corpus, queries and evidence,
    `read_texts()` the documents alone. As a data frame it has a row for each question, or for each
    text if there are no questions.
    """

    name: str
    """A task, or a name that is derived from that of the file, folder or dataset."""
    kind: str
    location: str
    """Id of a dataset on the Hub, or a file or folder."""
    scheme: PositionScheme
    subsets: tuple[Subset, ...]
    """Ordered by language and domain; at least one."""
    find_revision: Callable[[], str]
    """Returns a commit of the Hub, or `local-` and a digest of the content."""
    has_questions: bool = True
    in_memory: bool = False
    """Whether a subset that is read is kept in memory, so that it is read once."""
    has_texts: bool = True
    """Whether documents are known beside the judgments."""
    find_use: Callable[[], Use] = lambda: Use.CORPUS
    """Returns the texts of which its questions can be asked, as its format or the user says."""
    find_stated_language: Callable[[], str] = lambda: ""
    """Returns the code of the language that the data states, empty if it states none or several."""
    count_repeated: Callable[[], RepeatedTexts] | None = None
    """Reads the questions and counts those with a text that several documents share; None if the
    use is known.
    """
    rules: ScoringRules = field(default_factory=ScoringRules)
    reference: str = ""
    """Its name in commands, or the absolute path of a file or folder; empty of texts in memory."""

    def read_texts(self) -> Iterator[Item]:
        """Yield the documents of all subsets, and what cannot be read; documents with questions
        have the ids of the corpus.
        """
        for subset in self.subsets:
            yield from subset.read_texts()

    @cached_property
    def use(self) -> Use:
        """Texts of which its questions can be asked: as is known, or else as their texts show."""
        use = self.find_use()
        return self.repeated.use if use is Use.CORPUS and self.repeated else use

    @cached_property
    def repeated(self) -> RepeatedTexts | None:
        """The questions that several documents share, None if the use of the questions does not
        follow from them.
        """
        return self.count_repeated() if self.count_repeated else None

    @property
    def is_recognized(self) -> bool:
        """Whether the texts of its questions alone show that they are about one document each."""
        return self.use is not Use.CORPUS and self.find_use() is Use.CORPUS

    def require_corpus(self) -> None:
        """Raise PosirError with the reason if the questions cannot be asked of the whole corpus."""
        if self.use is not Use.CORPUS:
            reason = f"{self.repeated.describe()}: " if self.is_recognized and self.repeated else ""
            raise PosirError(
                f"{self.location} ({self.kind}): {reason}{self.use.value}. Score chunks within "
                "each document: `posir score --model MODEL --chunker MODULE:FUNCTION --data "
                f"{shlex.quote(self.location)}`. If each stands alone, --scope corpus of import, "
                "score and stats asks it of the whole corpus."
            )

    def __post_init__(self) -> None:
        # A dataset is also a result: its rows and table are read when they are first shown.
        object.__setattr__(self, "title", self.name)
        object.__setattr__(self, "rows", Deferred(self._list_rows))
        object.__setattr__(self, "tables", Deferred(self._build_tables))

    def _list_rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each question with the characters of its evidence, or for each text if
        there are no questions.
        """
        for subset in self.subsets:
            if self.has_questions:
                yield from _list_questions(subset)
                continue
            for item in subset.read_texts():
                if isinstance(item, Passage):
                    yield {"subset": subset.name, "document_id": item.name, "text": item.text}

    @cached_property
    def skipped(self) -> list[SkippedText]:
        """Texts, rows and questions that cannot be used, each with the reason."""
        if self.has_questions:
            return [item for subset in self.subsets for item in subset.read().skipped]
        return [item for item in self.read_texts() if isinstance(item, SkippedText)]

    def _build_tables(self) -> Iterator[Table]:
        """Yield how many rows each subset has, and what in it cannot be used or was repaired."""
        counts = Counter(row["subset"] for row in self.rows)
        rows = tuple((name, format_count(count)) for name, count in counts.items())
        notes: list[str] = []
        for subset in self.subsets if self.has_questions else ():
            notes += subset.read().warnings
        skipped = describe_skipped(self.skipped)
        if skipped:
            notes.append(skipped)
        unit = "Questions" if self.has_questions else "Texts"
        yield Table(build_columns(("Subset", unit), [unit]), rows, notes=tuple(notes))

    def find_languages(self) -> dict[str, list[str]]:
        """List the codes of queries and corpus by the name of each subset in tasks; raise
        PosirError if one is unknown.
        """
        if self.has_texts and any(subset.query_language == UNKNOWN for subset in self.subsets):
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
        skipped = [item for item in items if isinstance(item, SkippedText)]
        if len(skipped) < len(items):
            return (
                f"{self.location}: its language is not recognized. Import it with `posir import "
                "--language CODE`."
            )
        parts = ("has no text.", describe_skipped(skipped), self._describe_form())
        return f"{self.location} ({self.kind}): {' '.join(filter(None, parts))}"

    def _describe_form(self) -> str:
        """Describe what the file or folder has, and the forms that are read; other data have no
        description.
        """
        path = Path(self.location).expanduser()
        return describe_form(path) if path.exists() and self.kind != IN_MEMORY else ""

    def with_questions(self, user: str, *, several_places: bool = False) -> Dataset:
        """Select, in the data, those questions that a `user`, such as `posir train`, can use;
        reading warns of the others.

        `several_places`: whether questions with several places of evidence are among them.
        """
        self.require_corpus()
        is_judged = any(subset.read_stated_judgments for subset in self.subsets)
        if not self.has_questions and not is_judged:
            raise DataError(self._describe_missing_questions(user, self._describe_form()))
        subsets = (
            replace(subset, read=partial(self._read_questions, subset, user, several_places))
            for subset in self.subsets
        )
        return replace(self, subsets=tuple(subsets))

    def _describe_missing_questions(self, user: str, detail: str) -> str:
        missing = f"{self.location} ({self.kind}): has no {EVIDENCE}, which {user} needs."
        advice = (
            "`posir inspect` and `posir probe` take texts alone; `posir build` makes questions."
        )
        return f"{missing}{mention_task(self.location)} {advice} {detail}".strip()

    def _read_questions(self, subset: Subset, user: str, several_places: bool) -> PositionData:
        if not self.has_questions:
            raise DataError(self._describe_missing_questions(user, self._describe_form()))
        data = subset.read().drop_unsuited()
        if not several_places:
            data = data.drop_places()
        for warning in data.warnings:
            _warn_once(warning)
        left_out = describe_skipped(data.skipped)
        if not len(data.evidence):
            raise DataError(self._describe_missing_questions(user, left_out))
        if left_out:
            _warn_once(f"{self.location}: {left_out}")
        return data


def _list_questions(subset: Subset) -> Iterator[dict[str, Any]]:
    data = subset.read()
    sizes = data.documents["text"].str.len_chars()
    lengths = dict(zip(data.documents["id"], sizes, strict=True))
    for query, text, document, span in data.list_questions():
        yield {
            "subset": subset.name,
            "query_id": query,
            "query": text,
            "document_id": document,
            "characters": lengths[document],
            "start": span.start if span else None,
            "end": span.end if span else None,
            "position": span.middle / lengths[document] if span and lengths[document] else None,
        }


@cache
def _warn_once(message: str) -> None:
    logger.warning(message)
