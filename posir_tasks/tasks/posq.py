"""SQuAD-PosQ and FineWeb-PosQ (Zeng et al. 2025, arXiv 2505.13950), with their Tiny samples."""

from abc import abstractmethod
from typing import Any

from posir_tasks.base.records import Record
from posir_tasks.data.data import PositionData
from posir_tasks.data.declared import (
    FINEWEB,
    FINEWEB_RAW,
    FINEWEB_RAW_TINY,
    FINEWEB_TINY,
    POSQ,
    SQUAD,
    SQUAD_TINY,
    DeclaredTask,
)
from posir_tasks.data.posq import (
    TINY_FINEWEB_CLASS,
    TINY_RAW_CLASS,
    list_fineweb_files,
    list_raw_files,
    read_fineweb,
    read_fineweb_raw,
    read_squad,
    sample_tiny_fineweb,
    sample_tiny_squad,
)
from posir_tasks.data.repository import (
    DATA_VARIABLE,
    LOCAL,
    LocalRepository,
    Repository,
    choose_revision,
    get_data_folder,
    open_repository,
)
from posir_tasks.data.task_metadata import PositionTaskMetadata, build_metadata
from posir_tasks.tasks.base import PositionTask
from posir_tasks.values.schemes import AbsolutePositions, LabeledPositions

#: Metadata fields that both datasets share.
SHARED_FIELDS: Record = {
    "reference": "https://arxiv.org/abs/2505.13950",
    "task_subtypes": ["Question Answering Retrieval"],
    "sample_creation": "found",
    "prompt": {"query": "Given a question, retrieve passages that answer the question"},
    "bibtex_citation": POSQ,
}


class PosqTask(PositionTask):
    """A PosQ dataset with a single subset."""

    metadata: PositionTaskMetadata

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        dataset = self.metadata.dataset
        revision = LOCAL
        if get_data_folder() is None:
            revision = choose_revision(dataset["path"], dataset["revision"])
        self._set_revision(revision)
        super().__init__(*args, **kwargs)

    @classmethod
    def _open_repository(cls) -> Repository:
        dataset = cls.metadata.dataset
        return open_repository(dataset["path"], dataset["revision"])

    @staticmethod
    def list_files(repository: Repository) -> list[str]:
        """Return the paths of the data files in a repository."""
        return repository.list_paths()

    @staticmethod
    @abstractmethod
    def read_from(repository: Repository) -> PositionData:
        """Read the dataset from a repository. Raise DataError if it cannot be read."""

    def has_data(self) -> bool:
        """Return True if the data is on the Hub or in the local folder."""
        repository, files = self.locate_subset("")
        return not isinstance(repository, LocalRepository) or bool(files)

    def explain_missing_data(self) -> str:
        """Return the location and the expected dataset."""
        dataset = self.metadata.dataset["path"]
        return (
            f"{self._open_repository().location}: no files of {self.metadata.name}; expected the "
            f"dataset {dataset} from the Hub. Download it, or unset {DATA_VARIABLE}."
        )

    def prepare_subsets(self) -> None:
        """Set the revision of a local folder."""
        repository, files = self.locate_subset("")
        if isinstance(repository, LocalRepository):
            self._set_revision(repository.resolve_revision(files))

    def locate_subset(self, subset: str) -> tuple[Repository, list[str]]:  # noqa: ARG002
        """Return the repository, with the paths of its files if it is a local folder."""
        repository = self._open_repository()
        if isinstance(repository, LocalRepository):
            return repository, self.list_files(repository)
        return repository, []

    def read_subset(self, subset: str, repository: Repository | None = None) -> PositionData:  # noqa: ARG002
        """Read the dataset. Raise DataError if it cannot be read."""
        return self.read_from(repository or self._open_repository())


def _rename_task(
    task: type[PosqTask], declaration: DeclaredTask, description: str
) -> PositionTaskMetadata:
    dataset = {"path": declaration.repository, "revision": declaration.revision}
    return task.metadata.model_copy(
        update={"name": declaration.name, "description": description, "dataset": dataset}
    )


class SQuADPosQ(PosqTask):
    """SQuAD 2.0 questions in buckets by the position of the answer's first character."""

    scheme = AbsolutePositions()
    read_from = staticmethod(read_squad)
    metadata = build_metadata(
        **SQUAD.to_metadata(),
        description="Position-aware retrieval over SQuAD 2.0: 92,749 answerable questions, all "
        "20,233 contexts as corpus, in six buckets by the answer's first character.",
        date=("2016-01-01", "2018-12-31"),
        domains=["Encyclopaedic", "Written"],
        license="cc-by-sa-4.0",
        annotations_creators="human-annotated",
        **SHARED_FIELDS,
    )


class SQuADPosQTiny(SQuADPosQ):
    """The authors' sample of 10,000 questions, with the complete corpus."""

    read_from = staticmethod(lambda repository: sample_tiny_squad(read_squad(repository)))
    metadata = _rename_task(
        SQuADPosQ,
        SQUAD_TINY,
        "The authors' sample of 10,000 questions of SQuAD-PosQ, for rerankers; complete corpus.",
    )


class FineWebPosQ(PosqTask):
    """Generated questions about the beginning, the middle or the end of long web passages."""

    scheme = LabeledPositions()
    read_from = staticmethod(read_fineweb)
    list_files = staticmethod(list_fineweb_files)
    metadata = build_metadata(
        **FINEWEB.to_metadata(),
        description="Position-aware retrieval over 13,902 web passages of 500 to 1,023 words: "
        "25,775 questions about the beginning, the middle or the end.",
        date=("2025-05-20", "2025-05-20"),
        domains=["Web", "Written", "Academic"],
        license="mit",
        annotations_creators="LM-generated",
        **SHARED_FIELDS,
    )


class FineWebPosQTiny(FineWebPosQ):
    """The authors' sample of 1,000 questions per class, with the complete corpus."""

    read_from = staticmethod(
        lambda repository: sample_tiny_fineweb(read_fineweb(repository), TINY_FINEWEB_CLASS)
    )
    metadata = _rename_task(
        FineWebPosQ,
        FINEWEB_TINY,
        "The authors' sample of 1,000 questions per class of FineWeb-PosQ, for rerankers; "
        "complete corpus.",
    )


class FineWebPosQRaw(FineWebPosQ):
    """The first release of FineWeb-PosQ. Questions may have two labels."""

    read_from = staticmethod(read_fineweb_raw)
    list_files = staticmethod(list_raw_files)
    metadata = _rename_task(
        FineWebPosQ,
        FINEWEB_RAW,
        "The first release of FineWeb-PosQ (Benchmarking the Myopic Trap): 265,865 questions "
        "about 13,902 web passages, "
        "labeled with one or two of beginning, middle and end; unfiltered.",
    )


class FineWebPosQRawTiny(FineWebPosQRaw):
    """The authors' sample of 3,300 questions per class, with the complete corpus."""

    read_from = staticmethod(
        lambda repository: sample_tiny_fineweb(read_fineweb_raw(repository), TINY_RAW_CLASS)
    )
    metadata = _rename_task(
        FineWebPosQRaw,
        FINEWEB_RAW_TINY,
        "The authors' sample of 3,300 questions per class of FineWeb-PosQ's first release; "
        "complete corpus.",
    )


POSQ_TASKS = (
    SQuADPosQ,
    SQuADPosQTiny,
    FineWebPosQ,
    FineWebPosQTiny,
    FineWebPosQRaw,
    FineWebPosQRawTiny,
)
