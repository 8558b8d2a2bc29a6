"""PosIR tasks: per language, one with its own and one with the English corpus."""

import logging
from functools import cache
from typing import Any, ClassVar

from posir_tasks.data import mini
from posir_tasks.data.data import PositionData
from posir_tasks.data.declared import POSIR, REPO_ID, REVISION, declare_posir
from posir_tasks.data.posir import SubsetKey, list_domains
from posir_tasks.data.repository import (
    LOCAL,
    LocalRepository,
    Repository,
    choose_revision,
    get_data_folder,
    get_folder_name,
    open_repository,
)
from posir_tasks.data.task_metadata import MINI_METADATA, build_metadata
from posir_tasks.models.run_settings import check_selected_domains, select_domains
from posir_tasks.tasks.base import PositionTask, RepositoryTask
from posir_tasks.text.languages import DOMAINS, LANGUAGES, PIVOT, Language
from posir_tasks.values.schemes import RelativePositions

logger = logging.getLogger(__name__)


class PosirTask(RepositoryTask):
    """PosIR in one language, with the corpus of that language or the English corpus."""

    language: ClassVar[Language]
    corpus_language: ClassVar[Language]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        folder = get_data_folder()
        domains = self.metadata.hf_subsets
        if folder is None:
            revision = choose_revision(REPO_ID, REVISION)
        else:
            # Computing the digest of local data takes time, so it is deferred until loading.
            revision = LOCAL
            domains = (
                self._list_available(LocalRepository(folder / get_folder_name(REPO_ID))) or domains
            )
        # Loading reports selected domains that are not in the data.
        domains = select_domains(domains) or domains
        languages = next(iter(self.metadata.hf_subsets_to_langscripts.values()))
        self._set_revision(revision, eval_langs=dict.fromkeys(domains, languages))
        super().__init__(*args, **kwargs)

    def find_repository(self) -> Repository:
        """Return PosIR's repository."""
        return open_repository(REPO_ID, REVISION)

    def _list_available(self, repository: Repository) -> list[str]:
        corpora = list_domains(repository, self.corpus_language.code)
        domains = list_domains(repository, self.language.code)
        order = {domain: index for index, domain in enumerate(DOMAINS)}
        return sorted(
            (domain for domain in domains if domain in corpora),
            key=lambda domain: (order.get(domain, len(order)), domain),
        )

    def has_data(self) -> bool:
        """Return True if the data contains a domain in the task's languages.

        Raises:
            DataError: The data cannot be reached.
        """
        return bool(self._list_available(self.find_repository()))

    def explain_missing_data(self) -> str:
        """Return the expected files and their location."""
        code = self.language.code
        return (
            f"{self.find_repository().location}: no {self.language.name} data; expected "
            f"{code}/<domain>/queries.parquet, {code}/<domain>/qrels/test.parquet and "
            f"{self.corpus_language.code}/<domain>/corpus.parquet. Create them with `posir "
            "import`, or download them."
        )

    def list_missing_subsets(self) -> list[str]:
        """List PosIR's missing or unselected domains; empty if all domains are custom."""
        missing = [domain for domain in DOMAINS if domain not in self.hf_subsets]
        return [] if self.hf_subsets and len(missing) == len(DOMAINS) else missing

    def prepare_subsets(self) -> None:
        """Set the revision of local data, and select its domains, including custom ones."""
        repository = self.find_repository()
        available = self._list_available(repository)
        if available:
            check_selected_domains(available, repository.location)
            domains = select_domains(available)
            if isinstance(repository, LocalRepository):
                self._set_revision(self.find_revision(repository, domains))
            self._adopt_domains(repository, domains)

    def _adopt_domains(self, repository: Repository, domains: list[str]) -> None:
        """Set the subsets to the domains in the data. Warn about custom and missing domains."""
        languages = self.metadata.hf_subsets_to_langscripts
        custom = [domain for domain in domains if domain not in languages]
        if custom:
            logger.warning(
                "%s has domains unknown to posir: %s; these are also evaluated",
                repository.location,
                ", ".join(custom),
            )
            languages = languages | dict.fromkeys(custom, next(iter(languages.values())))
            self.metadata = self.metadata.model_copy(update={"eval_langs": languages})
        # mteb holds a reference to this list and evaluates the subsets in it.
        self.hf_subsets[:] = [domain for domain in self.hf_subsets if domain in domains] + custom
        absent = self.list_missing_subsets()
        if absent:
            logger.warning(
                "%s, %s: %d of PosIR's %d domains are not evaluated, so the result is marked as "
                "partial: %s",
                self.metadata.name,
                repository.location,
                len(absent),
                len(DOMAINS),
                ", ".join(sorted(absent)),
            )

    def find_key(self, subset: str) -> SubsetKey:
        """Return the task's languages and the domain."""
        return SubsetKey(self.language.code, self.corpus_language.code, subset)


@cache
def build_posir_task(language: Language, corpus_language: Language) -> type[PosirTask]:
    """Create the task class of a language, optionally with the corpus of another language."""
    names = [language.name]
    in_corpus = ""
    if language != corpus_language:
        names.append(corpus_language.name)
        in_corpus = f", searched in the {corpus_language.name} corpus"
    metadata = build_metadata(
        **declare_posir(language, corpus_language).to_metadata(),
        description=(
            f"Position-aware retrieval, {language.name} queries{in_corpus}: every query has one "
            "relevant document and the exact span of its evidence there. nDCG@10 by position and "
            "length, and the Position Sensitivity Index."
        ),
        reference="https://arxiv.org/abs/2601.08363",
        date=("2026-01-13", "2026-01-13"),
        domains=["Web", "Written", "Non-fiction"],
        annotations_creators="LM-generated",
        # The Chinese and English texts both come from crawled corpora. Others are translations.
        sample_creation="found"
        if language.name in ("English", "Chinese")
        else "machine-translated",
        bibtex_citation=POSIR,
    )
    attributes = {
        "metadata": metadata,
        "language": language,
        "corpus_language": corpus_language,
        "__module__": __name__,
        "__doc__": f"PosIR, {' queries against documents in '.join(names)}.",
    }
    return type("PosIR" + "".join(names).replace("-", ""), (PosirTask,), attributes)


MONOLINGUAL = {language: build_posir_task(language, language) for language in LANGUAGES}
CROSS_LINGUAL = {
    language: build_posir_task(language, PIVOT) for language in LANGUAGES if language != PIVOT
}


class PosIRMini(PositionTask):
    """A small English dataset that is part of the package."""

    scheme = RelativePositions()
    metadata = MINI_METADATA

    def read_subset(self, subset: str) -> PositionData:  # noqa: ARG002
        """Read the dataset from the package."""
        return mini.read_mini()
