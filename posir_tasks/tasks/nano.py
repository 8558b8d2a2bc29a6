"""Samples of PosIR of which a run takes minutes: one task per language, with the subsets of the complete task."""

import logging
from functools import cache
from typing import Any

from mteb.timing import TimingStack

from posir_tasks.display.progress import track
from posir_tasks.embeddings.context import EncodingContext
from posir_tasks.languages import LANGUAGES, Language
from posir_tasks.result_schema import SPLIT
from posir_tasks.search.dispatch import SearchRequest
from posir_tasks.search.first_stage import load_first_stage
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.nano import (
    DISTRACTORS,
    SHIPPED,
    SUFFIX,
    DomainSample,
    choose_questions,
    find_sample,
    locate_list,
    share_questions,
)
from posir_tasks.sources.posir import read_domain
from posir_tasks.sources.repository import Repository
from posir_tasks.tasks.posir import PosirTask, build_posir_task

logger = logging.getLogger(__name__)


class NanoTask(PosirTask):
    """A sample of the questions of one language of PosIR, searched among their documents and those hard to tell from them."""

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Make the domains available as the complete task does; say so if the sample of some must be selected first."""
        super().load_data(num_proc, **kwargs)
        if missing := [domain for domain in self.hf_subsets if not self.has_list(domain)]:
            name = self.metadata.name
            logger.warning(
                "%s: %d of %d domains have no list of their sample yet; it is selected from the full corpus, once. "
                "`posir study nano %s --plan` estimates the time",
                *(name, len(missing), len(self.hf_subsets), name),
            )

    def has_list(self, domain: str) -> bool:
        """Return whether there is a list of the sample of a domain, of the present data or not."""
        name = self.metadata.name
        return locate_list(name, domain).is_file() or (SHIPPED / name / f"{domain}.json").is_file()

    def read_subset(self, subset: str) -> PositionData:
        """Read the sample of one domain, selected first if there is no list; raise DataError if that is of other data."""
        return self.read_sample(self._repository(), subset)

    def read_sample(self, repository: Repository, subset: str) -> PositionData:
        """Read the sample of one domain of a repository, as `read_subset` does."""
        data = read_domain(repository, self.language.code, self.corpus_language.code, subset)
        sample = find_sample(self.metadata.name, subset, data, self._share(subset))
        return (sample or self.select_sample(subset, data)).apply(data)

    def _share(self, subset: str) -> int:
        return share_questions(subset, self._present(self._repository()))

    def select_sample(self, subset: str, data: PositionData) -> DomainSample:
        """Select the sample of a domain from its complete data, and write its list in place of another.

        Raises:
            PosirError: The list cannot be written.
        """
        share, (single, _) = self._share(subset), data.divide_places()
        chosen = single.select(choose_questions(single.evidence, share))
        request = SearchRequest(
            corpus=data.corpus,
            queries=chosen.queries,
            positives=chosen.evidence.positives(),
            top_ranked=None,
            top_k=DISTRACTORS + 1,
            context=EncodingContext(self.metadata, SPLIT, subset),
            timer=TimingStack(),
        )
        with track(f"Selecting the sample of {subset}"):
            candidates, _ = load_first_stage(request)
            sample = DomainSample.from_candidates(data, chosen, candidates, share)
        sample.write(locate_list(self.metadata.name, subset))
        return sample


@cache
def build_nano_task(language: Language) -> type[NanoTask]:
    """Create the class of the sample of one language."""
    full = build_posir_task(language, language)
    metadata = full.metadata.model_copy(
        update={
            "name": f"{full.metadata.name}{SUFFIX}",
            "description": (
                f"A sample of {full.metadata.name}: about 1,500 queries, balanced over domains, lengths and positions, and the "
                "documents that BM25 finds for them in the full corpus. Its scores are not those of the complete task."
            ),
        }
    )
    attributes = {"metadata": metadata, "language": language, "corpus_language": language, "__module__": __name__}
    return type(f"{full.__name__}Nano", (NanoTask,), attributes | {"__doc__": metadata.description})


NANO = {language: build_nano_task(language) for language in LANGUAGES}
