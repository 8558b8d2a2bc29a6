"""PosIR: one task per language, and one per language against the English corpus; one mteb subset
per domain.
"""

import logging
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

from posir_tasks.base.errors import hide_tracebacks
from posir_tasks.data import mini
from posir_tasks.data.data import PositionData
from posir_tasks.data.declared import POSIR, REPO_ID, REVISION, declare_posir
from posir_tasks.data.posir import SubsetKey, list_domains, list_present_files, read_domain
from posir_tasks.data.repository import (
    LOCAL,
    LocalRepository,
    Repository,
    data_folder,
    folder_name,
    open_repository,
    requested_revision,
)
from posir_tasks.data.task_metadata import MINI_METADATA, build_metadata
from posir_tasks.models.run_settings import check_selected, select_domains
from posir_tasks.tasks.base import PositionTask
from posir_tasks.text.languages import DOMAINS, LANGUAGES, PIVOT, Language
from posir_tasks.values.schemes import RelativePositions

logger = logging.getLogger(__name__)


class PosirTask(PositionTask):
    """One language of PosIR, its queries searched in its own corpus or in the English one."""

    scheme = RelativePositions()
    repo_id = REPO_ID
    language: ClassVar[Language]
    corpus_language: ClassVar[Language]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        default = type(self).metadata
        folder = data_folder()
        domains = default.hf_subsets
        if folder is None:
            changes: dict[str, Any] = {
                "dataset": {"path": REPO_ID, "revision": requested_revision(REPO_ID, REVISION)}
            }
        else:
            # The digest in the revision of local data takes time, so it is added when the data is
            # loaded.
            domains = self._present(LocalRepository(folder / folder_name(REPO_ID))) or domains
            changes = {"dataset": {"path": REPO_ID, "revision": LOCAL}}
        languages = next(iter(default.hf_subsets_to_langscripts.values()))
        # What is named and not in the data is an error when the data is loaded.
        changes["eval_langs"] = dict.fromkeys(select_domains(domains) or domains, languages)
        self.metadata = default.model_copy(update=changes)
        super().__init__(*args, **kwargs)

    @staticmethod
    def _repository() -> Repository:
        return open_repository(REPO_ID, REVISION)

    def _present(self, repository: Repository) -> list[str]:
        corpora = list_domains(repository, self.corpus_language.code)
        present = [
            domain for domain in list_domains(repository, self.language.code) if domain in corpora
        ]
        return sorted(
            present,
            key=lambda domain: (
                DOMAINS.index(domain) if domain in DOMAINS else len(DOMAINS),
                domain,
            ),
        )

    def has_data(self) -> bool:
        """Return whether the data has any domain in the task's languages; raise DataError if it
        cannot be reached.
        """
        return bool(self._present(self._repository()))

    def explain_missing_data(self) -> str:
        """Return which files were looked for, and where."""
        code = self.language.code
        return (
            f"{self._repository().location}: no {self.language.name} data; expected "
            f"{code}/<domain>/queries.parquet, {code}/<domain>/qrels/test.parquet and "
            f"{self.corpus_language.code}/<domain>/corpus.parquet. Create them with `posir "
            "import`, or download them."
        )

    def missing_subsets(self) -> list[str]:
        """Return the domains of PosIR that are not in the data or were filtered out; none if only
        custom ones are evaluated.
        """
        missing = [domain for domain in DOMAINS if domain not in self.hf_subsets]
        return [] if self.hf_subsets and len(missing) == len(DOMAINS) else missing

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Make the domains in the data available, PosIR's and others; raise DataError if there is
        none in this language.
        """
        hide_tracebacks()
        if self.data_loaded:
            return
        repository = self._repository()
        if present := self._present(repository):
            check_selected(present, repository.location)
            present = select_domains(present)
            if isinstance(repository, LocalRepository):
                revision = repository.revision(self._files(repository, present))
                self.metadata = self.metadata.model_copy(
                    update={"dataset": {"path": REPO_ID, "revision": revision}}
                )
            self._follow_listing(repository, present)
        super().load_data(num_proc, **kwargs)

    def _follow_listing(self, repository: Repository, present: list[str]) -> None:
        if unexpected := [domain for domain in present if domain not in self.metadata.hf_subsets]:
            listed = ", ".join(unexpected)
            logger.warning(
                "%s has domains unknown to posir: %s; they are evaluated too",
                repository.location,
                listed,
            )
            languages = next(iter(self.metadata.hf_subsets_to_langscripts.values()))
            known = self.metadata.hf_subsets_to_langscripts | dict.fromkeys(unexpected, languages)
            self.metadata = self.metadata.model_copy(update={"eval_langs": known})
        # In place: mteb refers to this list object before the data is loaded, and then evaluates
        # the subsets in it.
        self.hf_subsets[:] = [
            domain for domain in self.hf_subsets if domain in present
        ] + unexpected
        if absent := self.missing_subsets():
            logger.warning(
                "%s, %s: %d of PosIR's %d domains are not evaluated, so the result is marked as "
                "partial: %s",
                self.metadata.name,
                repository.location,
                len(absent),
                len(DOMAINS),
                ", ".join(sorted(absent)),
            )

    def locate_subset(self, subset: str) -> tuple[Repository, list[str]]:
        """Return where the files of a domain are, and their paths there."""
        repository = self._repository()
        return repository, self._files(repository, [subset])

    def _files(self, repository: Repository, domains: Iterable[str]) -> list[str]:
        codes = self.language.code, self.corpus_language.code
        return list_present_files(repository, [SubsetKey(*codes, domain) for domain in domains])

    def read_subset(self, subset: str, repository: Repository | None = None) -> PositionData:
        """Read one domain; raise DataError if it is missing or invalid."""
        return read_domain(
            repository or self._repository(), self.language.code, self.corpus_language.code, subset
        )


@cache
def build_posir_task(language: Language, corpus_language: Language) -> type[PosirTask]:
    """Create the task class of one language, or of one language against the corpus of another."""
    if language == corpus_language:
        parts = [language.name]
    else:
        parts = [language.name, corpus_language.name]
    where = "" if len(parts) == 1 else f", searched in the {corpus_language.name} corpus"
    metadata = build_metadata(
        **declare_posir(language, corpus_language).fields(),
        description=(
            f"Position-aware retrieval, {language.name} queries{where}: every query has one "
            "relevant document and the exact span of its evidence there. nDCG@10 by position and "
            "length, and the Position Sensitivity Index."
        ),
        reference="https://arxiv.org/abs/2601.08363",
        date=("2026-01-13", "2026-01-13"),
        domains=["Web", "Written", "Non-fiction"],
        annotations_creators="LM-generated",
        # The paper has no Chinese-English pair: its Chinese, like its English, comes from the
        # crawled corpora themselves.
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
    }
    documented = attributes | {"__doc__": f"PosIR, {' queries against documents in '.join(parts)}."}
    return type("PosIR" + "".join(parts).replace("-", ""), (PosirTask,), documented)


MONOLINGUAL = {language: build_posir_task(language, language) for language in LANGUAGES}
CROSS_LINGUAL = {
    language: build_posir_task(language, PIVOT) for language in LANGUAGES if language != PIVOT
}


class PosIRMini(PositionTask):
    """A small English set that ships inside the package."""

    scheme = RelativePositions()
    metadata = MINI_METADATA

    def read_subset(self, subset: str) -> PositionData:  # noqa: ARG002
        """Read the texts in the package."""
        return mini.read_mini()
