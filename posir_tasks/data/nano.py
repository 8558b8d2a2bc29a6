"""Small PosIR samples for short runs. A sample is stored as lists of question and document ids.

Questions are balanced across the thirds of their documents. In each third, lengths are distributed
as in the full data. The corpus contains the relevant documents and, as distractors, the documents
that BM25 ranks highest for each question in the full corpus.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.files import get_cache_folder
from posir_tasks.base.untrusted import read_json
from posir_tasks.data.data import PositionData, digest_data, find_rows
from posir_tasks.data.declared import DISTRACTORS, NANO_QUESTIONS
from posir_tasks.text.languages import DOMAINS
from posir_tasks.values.evidence import TWELFTHS, Evidence

SEED = 42


def count_domain_questions(domain: str, domains: Sequence[str]) -> int:
    """Return the number of questions to sample from a domain.

    Each of PosIR's 31 domains gets an equal share of the total, even if some domains are missing.
    Custom domains split the same total equally.
    """
    group = DOMAINS if domain in DOMAINS else {*domains} - {*DOMAINS}
    return round(NANO_QUESTIONS / len(group))


def choose_questions(evidence: Evidence, count: int) -> list[int]:
    """Return the row indices of `count` questions, balanced across the thirds of their documents.

    In each third, questions are sorted by document length and split into equal bins. The question
    with the smallest id digest is selected from each bin. If a third has too few questions, the
    other thirds contribute more.
    """
    columns = {
        "order": [digest(SEED, name).hex() for name in evidence.query_ids],
        "third": evidence.compute_twelfths() // (TWELFTHS // 3),
        "tokens": evidence.tokens,
        "id": evidence.query_ids,
    }
    questions = pl.DataFrame(columns).with_row_index("row").sort("tokens", "order", "id")
    rank = pl.int_range(pl.len()).over("third")
    questions = questions.with_columns(rank=rank, size=pl.len().over("third"))
    turns = questions.sort("rank", "third").with_row_index("turn")
    share = (pl.col("turn") < count).sum().over("third")
    binned = turns.with_columns(bin=pl.col("rank") * share // pl.col("size"))
    candidates = binned.filter(share > 0).sort("order", "id")
    sample = candidates.unique(["third", "bin"], keep="first")
    return sorted(sample["row"].to_list())


class DomainSample(BaseModel):
    """The sample of one domain."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    share: int
    """Requested number of questions; the domain may have fewer."""
    data: dict[str, str]
    """Content digests `corpus` and `queries` of the full domain."""
    questions: list[str]
    documents: list[str]

    @classmethod
    def from_candidates(
        cls,
        data: PositionData,
        evidence: Evidence,
        candidates: Mapping[str, Sequence[str]],
        share: int,
    ) -> "DomainSample":
        """Build the sample of a domain.

        Args:
            data: The full domain.
            evidence: Evidence of the sampled questions.
            candidates: Question id to candidate documents, best first.
            share: Requested number of questions.
        """
        documents = {*evidence.document_ids}
        for question, document in evidence.map_positives().items():
            distractors = [name for name in candidates[question] if name != document]
            documents.update(distractors[:DISTRACTORS])
        digests = digest_data(data)
        return cls(
            share=share, data=digests, questions=evidence.query_ids, documents=sorted(documents)
        )

    def apply(self, data: PositionData) -> PositionData:
        """Select the sampled questions and documents, in the order of the full data."""
        rows = find_rows(data.evidence.query_ids, {*self.questions})
        documents = data.documents.filter(pl.col("id").is_in(self.documents))
        return replace(data.select(rows), documents=documents, places={})


def locate_sample(task: str, domain: str) -> Path:
    """Return the path of a sample file in the cache."""
    return get_cache_folder() / "nano" / task / f"{domain}.json"


def read_sample(task: str, domain: str, data: PositionData, share: int) -> DomainSample | None:
    """Read the sample of a domain; None if it does not exist.

    Raises:
        DataError: The file is malformed, or was sampled from other data.
    """
    file = locate_sample(task, domain)
    if not file.is_file():
        return None
    advice = f"Sample it again with `posir study nano {task}`."
    try:
        sample = DomainSample.model_validate(read_json(file))
    except ValidationError as error:
        raise DataError(
            f"{file}: not a sample from `posir study nano` ({summarize_error(error)}). {advice}"
        ) from error
    if (sample.share, sample.data) != (share, digest_data(data)):
        raise DataError(f"{file}: was sampled from other data. {advice}")
    return sample
