"""Nano tasks: one sample of PosIR per language, with all subsets, that runs in minutes."""

import logging
from functools import cache

from mteb.timing import TimingStack

from posir_tasks.base.files import write_text
from posir_tasks.base.progress import track
from posir_tasks.data import nano
from posir_tasks.data.data import PositionData
from posir_tasks.data.declared import DISTRACTORS, declare_nano
from posir_tasks.data.repository import Repository
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.request import SearchRequest
from posir_tasks.tasks.posir import PosirTask, build_posir_task
from posir_tasks.text.languages import LANGUAGES, Language
from posir_tasks.values.result_schema import SPLIT

logger = logging.getLogger(__name__)


class NanoTask(PosirTask):
    """A sample of PosIR's questions in one language. The corpus consists of their documents and
    hard negatives.
    """

    def has_list(self, domain: str) -> bool:
        """Return True if a list for the domain exists, even if it was made for other data."""
        return nano.locate_sample(self.metadata.name, domain).is_file()

    def read_subset(self, subset: str, repository: Repository | None = None) -> PositionData:
        """Read the sample of a domain. If there is no list yet, select the sample first.

        Raises:
            DataError: The list was made for other data.
        """
        name = self.metadata.name
        data = super().read_subset(subset, repository)
        sample = nano.read_sample(name, subset, data, self._count_questions(subset))
        if sample is None:
            logger.warning(
                "%s, %s: selecting the sample from the full corpus (first run only)",
                name,
                subset,
            )
            sample = self.select_sample(subset, data)
        return sample.apply(data)

    def _count_questions(self, subset: str) -> int:
        return nano.count_domain_questions(subset, self._list_available(self.find_repository()))

    def select_sample(self, subset: str, data: PositionData) -> nano.DomainSample:
        """Select the sample of a domain from its full data, and write its list.

        Raises:
            PosirError: The search for hard negatives fails.
        """
        # Importing the module loads torch.
        from posir_tasks.search.first_stage import load_first_stage

        question_count = self._count_questions(subset)
        single, _ = data.split_places()
        questions = single.select(nano.choose_questions(single.evidence, question_count))
        request = SearchRequest(
            corpus=data.corpus,
            queries=questions.queries,
            positives=questions.evidence.map_positives(),
            top_ranked=None,
            top_k=DISTRACTORS + 1,
            context=EncodingContext(self.metadata, SPLIT, subset),
            timer=TimingStack(),
        )
        with track(f"Selecting the sample of {subset}"):
            candidates, _ = load_first_stage(request)
            sample = nano.DomainSample.from_candidates(
                data, questions.evidence, candidates, question_count
            )
        file = nano.locate_sample(self.metadata.name, subset)
        write_text(file, sample.model_dump_json(indent=0))
        return sample


@cache
def build_nano_task(language: Language) -> type[NanoTask]:
    """Create the Nano task of a language."""
    full = build_posir_task(language, language)
    description = (
        f"A sample of {full.metadata.name}: about 1,500 queries, balanced over domains and "
        "positions, with the document lengths of the full task, and the documents that BM25 finds "
        "for them in the full corpus. Its scores differ from those of the full task."
    )
    metadata = full.metadata.model_copy(
        update={"name": declare_nano(language).name, "description": description}
    )
    attributes = {
        "metadata": metadata,
        "language": language,
        "corpus_language": language,
        "__module__": __name__,
    }
    return type(f"{full.__name__}Nano", (NanoTask,), attributes | {"__doc__": description})


NANO = {language: build_nano_task(language) for language in LANGUAGES}
