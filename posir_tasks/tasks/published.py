"""Tasks on published datasets with questions about whole documents: TyDi QA, MIRACL, RepLiQA and
Natural Questions.

The Hub does not have this data in the PosIR layout. `posir import` converts the published files to
a folder with the task's name in `POSIR_DATA`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from posir_tasks.data.declared import MIRACL, NATURAL_QUESTIONS, REPLIQA, TYDI, DeclaredTask
from posir_tasks.data.posir import SubsetKey
from posir_tasks.data.repository import (
    DATA_VARIABLE,
    LOCAL,
    LocalRepository,
    check_environment,
    get_data_folder,
    locate_dataset,
)
from posir_tasks.data.task_metadata import build_metadata
from posir_tasks.tasks.base import RepositoryTask


class PublishedTask(RepositoryTask):
    """A task on imported data. Each subset is a language or a split."""

    keys: ClassVar[Mapping[str, SubsetKey]]
    """Language and domain of each subset."""
    source: ClassVar[str]
    """Location, size and license of the files, and the command that imports them, for messages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if get_data_folder() is not None:
            # Computing the digest of local data takes time, so it is deferred until loading.
            languages = self.metadata.hf_subsets_to_langscripts
            languages = {
                subset: languages[subset] for subset in self._list_available()
            } or languages
            self._set_revision(LOCAL, eval_langs=languages)
        super().__init__(*args, **kwargs)

    def find_repository(self) -> LocalRepository:
        """Return the folder for imported data, which may not exist."""
        check_environment()
        folder = get_data_folder()
        name = type(self).metadata.name
        return LocalRepository(locate_dataset(folder, name) if folder else Path(name))

    def _list_available(self) -> list[str]:
        repository = self.find_repository()
        return [
            name
            for name, key in self.keys.items()
            if all(repository.locate(file).is_file() for file in key.files)
        ]

    def has_data(self) -> bool:
        """Return True if `POSIR_DATA` contains a subset."""
        return get_data_folder() is not None and bool(self._list_available())

    def explain_missing_data(self) -> str:
        """Return the reason, and the command that imports the data."""
        name = type(self).metadata.name
        if get_data_folder():
            problem = f"{self.find_repository().location}: no data"
        else:
            problem = f"{DATA_VARIABLE} is not set"
        return f"{name}: {problem}. Import it from {self.source}; then set {DATA_VARIABLE}=data."

    def list_missing_subsets(self) -> list[str]:
        """List the subsets that are not imported or not selected."""
        return [subset for subset in self.keys if subset not in self.hf_subsets]

    def prepare_subsets(self) -> None:
        """Select the imported subsets. The digest of their files is the revision."""
        if self.has_data():
            available = self._list_available()
            self._set_revision(self.find_revision(self.find_repository(), available))
            # mteb holds a reference to this list and evaluates the subsets in it.
            self.hf_subsets[:] = [subset for subset in self.hf_subsets if subset in available]

    def find_key(self, subset: str) -> SubsetKey:
        """Return the language and the domain of a subset."""
        return self.keys[subset]


def _build_task(
    declaration: DeclaredTask, files: str, arguments: str, domain: str | None = None, **fields: Any
) -> type[PublishedTask]:
    """Create the task for a published dataset.

    Args:
        declaration: Name, repository and languages.
        files: Location and size of the published files.
        arguments: First arguments of `posir import`.
        domain: Domain of all subsets; by default, the name of each subset.
        fields: Additional metadata fields.
    """
    name = declaration.name
    languages = dict(declaration.languages)  # type: ignore[arg-type]
    keys = {
        subset: SubsetKey(codes[0], codes[0], domain or subset)
        for subset, codes in languages.items()
    }
    key = next(iter(keys.values()))
    metadata = build_metadata(
        **declaration.to_metadata(),
        sample_creation="found",
        reference=f"https://huggingface.co/datasets/{declaration.repository}",
        **fields,
    )
    command = (
        f"posir import {arguments} --language {key.language} --domain {key.domain} "
        f"--output data/{name}"
    )
    source = (
        f"{files} ({metadata.license}): download the files and run `{command}` for each of "
        f"{', '.join(keys)}"
    )
    attributes = {
        "metadata": metadata,
        "keys": keys,
        "source": source,
        "__module__": __name__,
        "__doc__": metadata.description,
    }
    return type(name.replace("-", ""), (PublishedTask,), attributes)


PUBLISHED_TASKS = (
    _build_task(
        TYDI,
        "tydiqa-v1.0-{train,dev}.jsonl.gz at storage.googleapis.com/tydiqa/v1.0, 1.6 GB and 150 MB",
        "tydiqa-v1.0-dev.jsonl.gz",
        "tydiqa",
        description="TyDi QA's primary task: real questions in 11 languages, asked before "
        "reading, and Wikipedia articles.",
        license="apache-2.0",
        annotations_creators="human-annotated",
        domains=["Encyclopaedic", "Written"],
        bibtex_citation="""@article{clark2020tydi,
  title = {{TyDi QA}: A Benchmark for Information-Seeking Question Answering in Typologically
    Diverse Languages},
  author = {Jonathan H. Clark and Eunsol Choi and Michael Collins and Dan Garrette and Tom
    Kwiatkowski and Vitaly Nikolaev
    and Jennimaria Palomaki},
  journal = {Transactions of the Association for Computational Linguistics},
  year = {2020},
}""",
    ),
    _build_task(
        MIRACL,
        "miracl/miracl and miracl/miracl-corpus on the Hub, from 131,924 passages (Swahili)",
        "FOLDER",
        "miracl",
        description="MIRACL's queries in 18 languages, and Wikipedia articles rebuilt from its "
        "passages.",
        license="apache-2.0",
        annotations_creators="human-annotated",
        domains=["Encyclopaedic", "Written"],
        bibtex_citation="""@article{10.1162/tacl_a_00595,
  author = {Zhang, Xinyu and Thakur, Nandan and Ogundepo, Odunayo and Kamalloo, Ehsan and
    Alfonso-Hermelo, David
    and Li, Xiaoguang and Liu, Qun and Rezagholizadeh, Mehdi and Lin, Jimmy},
  doi = {10.1162/tacl_a_00595},
  journal = {Transactions of the Association for Computational Linguistics},
  pages = {1114-1131},
  title = {{MIRACL: A Multilingual Retrieval Dataset Covering 18 Diverse Languages}},
  volume = {11},
  year = {2023},
}""",
    ),
    _build_task(
        REPLIQA,
        "ServiceNow/repliqa on the Hub, data/repliqa_{0..4}-*.parquet, 89,770 questions on 17,954 "
        "documents",
        "repliqa_0-*.parquet",
        description="RepLiQA: questions about invented documents of about 1,000 words, where "
        "the paragraph with the answer is found exactly once. Each split is a subset.",
        license="cc-by-4.0",
        annotations_creators="human-annotated",
        domains=["Fiction", "Written"],
        bibtex_citation="""@misc{monteiro2024repliqa,
  title = {{RepLiQA}: A Question-Answering Dataset for Benchmarking {LLMs} on Unseen Reference
    Content},
  author = {Joao Monteiro and others},
  year = {2024},
  eprint = {2406.11811},
  archiveprefix = {arXiv},
}""",
    ),
    _build_task(
        NATURAL_QUESTIONS,
        "nq-{train,dev}-*.jsonl.gz of Natural Questions, about 45 GB, or its simplified form, 4.4 "
        "GB",
        "FOLDER --split paragraph",
        description="Natural Questions: real searches and whole Wikipedia pages. Long answers "
        "that are not paragraphs are a separate subset.",
        license="cc-by-sa-3.0",
        annotations_creators="human-annotated",
        domains=["Encyclopaedic", "Written"],
        bibtex_citation="""@article{47761,
  author = {Tom Kwiatkowski and Jennimaria Palomaki and Olivia Redfield and Michael Collins and
    Ankur Parikh and Chris Alberti
    and Danielle Epstein and Illia Polosukhin and Matthew Kelcey and Jacob Devlin and Kenton Lee and
    Kristina N. Toutanova
    and Llion Jones and Ming-Wei Chang and Andrew Dai and Jakob Uszkoreit and Quoc Le and Slav
    Petrov},
  journal = {Transactions of the Association of Computational Linguistics},
  title = {Natural Questions: a Benchmark for Question Answering Research},
  year = {2019},
}""",
    ),
)
