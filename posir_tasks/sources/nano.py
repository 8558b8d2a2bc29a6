"""Samples of PosIR: which questions and documents of a domain a run of minutes needs, and the lists of their ids.

The questions are balanced over lengths and thirds of their documents. The corpus is their documents and, for each question,
those that BM25 ranks highest for it in the full corpus, so that easy documents do not hide the position of the evidence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from posir_tasks.digests import digest
from posir_tasks.errors import DataError, summarize_error
from posir_tasks.evidence import TWELFTHS, Evidence
from posir_tasks.files import atomic_write, cache_folder
from posir_tasks.gate import read_json
from posir_tasks.languages import DOMAINS
from posir_tasks.schemes import RelativePositions
from posir_tasks.sources.data import PositionData, digest_data

#: The end of the names of the tasks.
SUFFIX = "-Nano"
#: Questions of all domains together, and documents beside its own that are selected for each.
QUESTIONS, DISTRACTORS = 1_500, 12
SEED = 42
#: Version of the rules here: a list that was selected by others is refused.
RULES = 1
#: Lists that are part of the package, in a folder for each task.
SHIPPED = Path(__file__).parent.parent / "nano"
SCHEME = RelativePositions()


def share_questions(domain: str, domains: Sequence[str]) -> int:
    """Return how many questions a domain has: of PosIR's the same for each, whichever are there; custom ones share as many."""
    among = DOMAINS if domain in DOMAINS else [name for name in domains if name not in DOMAINS]
    return round(QUESTIONS / len(among))


def choose_questions(evidence: Evidence, count: int) -> list[int]:
    """Return the rows of `count` questions, as many of each length bucket and third of the document as there are.

    Cells take turns, each in a random order that follows from the ids alone. One that is used up leaves its turns to others.
    """
    cells = {"length": SCHEME.length_buckets(evidence), "third": evidence.twelfths() // (TWELFTHS // 3)}
    order = [digest(SEED, name).hex() for name in evidence.query_ids]
    questions = pl.DataFrame({"id": evidence.query_ids, "order": order, **cells}).with_row_index("row").sort("order", "id")
    turns = questions.with_columns(turn=pl.int_range(pl.len()).over(*cells)).sort("turn", "order", "id")
    return sorted(turns["row"].head(count).to_list())


class DomainSample(BaseModel):
    """The sample of one domain."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rules: int = RULES
    share: int
    """Questions that were asked for; the domain may have fewer."""
    data: dict[str, str]
    """Digests of the content of the domain: its `corpus` and `queries`."""
    questions: list[str]
    documents: list[str]

    @classmethod
    def from_candidates(
        cls, data: PositionData, chosen: PositionData, candidates: Mapping[str, Sequence[str]], share: int
    ) -> DomainSample:
        """Return the sample of a domain's data with the chosen questions, from the documents found for each, best first."""
        documents = {*chosen.evidence.document_ids}
        for question, document in chosen.evidence.positives().items():
            documents.update([name for name in candidates[question] if name != document][:DISTRACTORS])
        return cls(
            share=share,
            data=digest_data(data.corpus, data.queries, data.evidence, data.places),
            questions=chosen.evidence.query_ids,
            documents=sorted(documents),
        )

    @classmethod
    def read(cls, file: Path) -> DomainSample:
        """Read a list; raise DataError if it is none."""
        try:
            return cls.model_validate(read_json(file))
        except ValidationError as error:
            raise DataError(f"{file}: not a list of `posir study nano` ({summarize_error(error)}). Remove it.") from error

    def write(self, file: Path) -> None:
        """Write the list; raise PosirError if the file cannot be written."""
        with atomic_write(file) as part:
            part.write_text(json.dumps(self.model_dump(), ensure_ascii=False, indent=0) + "\n", encoding="utf-8")

    def apply(self, data: PositionData) -> PositionData:
        """Return the questions and documents of the sample, in the order of the domain's data."""
        questions, documents = {*self.questions}, {*self.documents}
        rows = [row for row, name in enumerate(data.evidence.query_ids) if name in questions]
        kept = [row for row, name in enumerate(data.corpus["id"][:]) if name in documents]
        return replace(data.select(rows), corpus=data.corpus.select(kept), places={})


def locate_list(task: str, domain: str) -> Path:
    """Return the file of the list of a task's domain that is selected on this machine."""
    return cache_folder() / "nano" / task / f"{domain}.json"


def find_sample(task: str, domain: str, data: PositionData, share: int) -> DomainSample | None:
    """Return the list of a domain, of this machine or of the package; None if there is none.

    Raises:
        DataError: A list is unreadable, or all are of other data than is there now.
    """
    files = [file for file in (locate_list(task, domain), SHIPPED / task / f"{domain}.json") if file.is_file()]
    present = digest_data(data.corpus, data.queries, data.evidence, data.places) if files else {}
    samples = [DomainSample.read(file) for file in files]
    for sample in samples:
        if (sample.rules, sample.share, sample.data) == (RULES, share, present):
            return sample
    if samples:
        was, now = (" and ".join(sample.values()) for sample in (samples[0].data, present))
        raise DataError(
            f"{files[0]}: the list was selected from other data or by other rules (digests of the data {was}, now {now}); "
            f"select it anew with `posir study nano {task}`."
        )
    return None
