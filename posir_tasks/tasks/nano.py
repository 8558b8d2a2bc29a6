"""Samples of PosIR of which a run takes minutes: one task per language, with the subsets of the
complete task.
"""

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
    """A sample of the questions of one language of PosIR, searched among their documents and those
    hard to tell from them.
    """

    def has_list(self, domain: str) -> bool:
        """Return whether there is a list of the sample of a domain, of the present data or not."""
        return any(file.is_file() for file in nano.find_lists(self.metadata.name, domain))

    def read_subset(self, subset: str, repository: Repository | None = None) -> PositionData:
        """Read the sample of one domain, selected first if there is no list; raise DataError if
        that is of other data.
        """
        name = self.metadata.name
        data = super().read_subset(subset, repository)
        sample = nano.read_sample(name, subset, data, self._share(subset))
        if sample is None:
            logger.warning(
                "%s, %s: the sample is selected from the full corpus first, once", name, subset
            )
            sample = self.select_sample(subset, data)
        return sample.apply(data)

    def _share(self, subset: str) -> int:
        return nano.share_questions(subset, self._present(self._repository()))

    def select_sample(self, subset: str, data: PositionData) -> nano.DomainSample:
        """Select the sample of a domain from its complete data, and write its list; raise
        PosirError if that fails.
        """
        # Imports torch.
        from posir_tasks.search.first_stage import load_first_stage

        share, (single, _) = self._share(subset), data.divide_places()
        chosen = single.select(nano.choose_questions(single.evidence, share))
        texts = (data.corpus, chosen.queries)
        positives = chosen.evidence.positives()
        top_k = DISTRACTORS + 1
        request = SearchRequest(
            *texts,
            positives,
            None,
            top_k,
            EncodingContext(self.metadata, SPLIT, subset),
            TimingStack(),
        )
        with track(f"Selecting the sample of {subset}"):
            candidates, _ = load_first_stage(request)
            sample = nano.DomainSample.from_candidates(data, chosen.evidence, candidates, share)
        file = nano.find_lists(self.metadata.name, subset)[0]
        write_text(file, sample.model_dump_json(indent=0))
        return sample


@cache
def build_nano_task(language: Language) -> type[NanoTask]:
    """Create the class of the sample of one language."""
    full = build_posir_task(language, language)
    description = (
        f"A sample of {full.metadata.name}: about 1,500 queries, balanced over domains and "
        "positions, with its lengths, and the documents that BM25 finds for them in the full "
        "corpus. Its scores are not those of the complete task."
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
