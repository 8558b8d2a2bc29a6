"""Samples of PosIR: which questions and documents of a domain a run of minutes needs, and the lists
of their ids.

The questions are balanced over thirds of their documents, each third with the lengths that it has
in the full set. The corpus is their documents and, for each question, those that BM25 ranks highest
for it in the full corpus, so that easy documents do not hide the position of the evidence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.files import cache_folder
from posir_tasks.base.untrusted import read_json
from posir_tasks.data.data import PositionData, digest_data, find_rows
from posir_tasks.data.declared import DISTRACTORS, QUESTIONS
from posir_tasks.text.languages import DOMAINS
from posir_tasks.values.evidence import TWELFTHS, Evidence

SEED = 42


def share_questions(domain: str, domains: Sequence[str]) -> int:
    """Return how many questions a domain has: of PosIR's the same for each, whichever are there;
    custom ones share as many.
    """
    sharing = DOMAINS if domain in DOMAINS else {*domains} - {*DOMAINS}
    return round(QUESTIONS / len(sharing))


def choose_questions(evidence: Evidence, count: int) -> list[int]:
    """Return the rows of `count` questions: as many of each third of the document, each third with
    the lengths that it has.

    The questions of a third, from the shortest document to the longest, are divided into as many
    equal stretches as it shall have questions. One of each is drawn, which follows from the ids
    alone. Questions that a third lacks are of the others.
    """
    columns = {
        "order": [digest(SEED, name).hex() for name in evidence.query_ids],
        "third": evidence.twelfths() // (TWELFTHS // 3),
        "tokens": evidence.tokens,
        "id": evidence.query_ids,
    }
    questions = pl.DataFrame(columns).with_row_index("row").sort("tokens", "order", "id")
    place = pl.int_range(pl.len()).over("third")
    questions = questions.with_columns(place=place, size=pl.len().over("third"))
    turns = questions.sort("place", "third").with_row_index("turn")
    share = (pl.col("turn") < count).sum().over("third")
    stretches = turns.with_columns(stretch=pl.col("place") * share // pl.col("size"))
    chosen = stretches.filter(share > 0).sort("order", "id")
    chosen = chosen.unique(["third", "stretch"], keep="first")
    return sorted(chosen["row"].to_list())


class DomainSample(BaseModel):
    """The sample of one domain."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    share: int
    """Questions that were asked for; the domain may have fewer."""
    data: dict[str, str]
    """Digests of the content of the domain: its `corpus` and `queries`."""
    questions: list[str]
    documents: list[str]

    @classmethod
    def from_candidates(
        cls,
        data: PositionData,
        chosen: Evidence,
        candidates: Mapping[str, Sequence[str]],
        share: int,
    ) -> "DomainSample":
        """Return the sample with chosen questions of a domain, from the documents found for each,
        best first.
        """
        documents = {*chosen.document_ids}
        for question, document in chosen.positives().items():
            others = [name for name in candidates[question] if name != document]
            documents.update(others[:DISTRACTORS])
        digests = digest_data(data)
        return cls(
            share=share, data=digests, questions=chosen.query_ids, documents=sorted(documents)
        )

    def apply(self, data: PositionData) -> PositionData:
        """Return the questions and documents of the sample, in the order of the domain's data."""
        rows = find_rows(data.evidence.query_ids, {*self.questions})
        documents = data.documents.filter(pl.col("id").is_in(self.documents))
        return replace(data.select(rows), documents=documents, places={})


def find_lists(task: str, domain: str) -> list[Path]:
    """Return where the list of a task's domain may be: selected on this machine, and part of the
    package.
    """
    return [
        folder / "nano" / task / f"{domain}.json"
        for folder in (cache_folder(), Path(__file__).parent.parent)
    ]


def read_sample(task: str, domain: str, data: PositionData, share: int) -> DomainSample | None:
    """Return the list of a domain; None if there is none. Raise DataError if one is unreadable or
    all are of other data.
    """
    files = [file for file in find_lists(task, domain) if file.is_file()]
    digests = digest_data(data) if files else {}
    advice = f"Select it anew with `posir study nano {task}`."
    for file in files:
        try:
            sample = DomainSample.model_validate(read_json(file))
        except ValidationError as error:
            raise DataError(
                f"{file}: not a list of `posir study nano` ({summarize_error(error)}). {advice}"
            ) from error
        if (sample.share, sample.data) == (share, digests):
            return sample
    if files:
        raise DataError(f"{files[0]}: the list was selected from other data. {advice}")
    return None
