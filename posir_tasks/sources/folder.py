"""Custom folders: data in the PosIR layout, or a part of it, in any place."""

import os
from dataclasses import dataclass
from pathlib import Path

from posir_tasks.errors import DataError, PosirError
from posir_tasks.languages import CODE, PIVOT
from posir_tasks.sources.posir import FILES, REPO_ID, list_domains
from posir_tasks.sources.repository import PARQUET, LocalRepository, Repository, folder_name


@dataclass(frozen=True)
class CustomFolder(LocalRepository):
    """A folder that holds the PosIR layout or a part of it: the domains of a language, or one domain."""

    language: str
    prefix: str = ""
    """The part of `<language>/<domain>` that the folder itself represents."""

    def paths(self, folder: str = "", suffixes: tuple[str, ...] = PARQUET) -> list[str]:
        """Return the paths of the files of some formats below a folder of the layout, sorted."""
        prefixed = [f"{self.prefix}/{path}" if self.prefix else path for path in super().paths(suffixes=suffixes)]
        return [path for path in prefixed if not folder or path.startswith(f"{folder}/")]

    def locate(self, path: str) -> Path:
        """Return where a file of the layout is, or would be."""
        return super().locate(path.removeprefix(f"{self.prefix}/"))


def open_folder(folder: Path, language: str) -> CustomFolder:
    """Open a folder in the PosIR layout (`<language>/<domain>/`), the folder of a language in it, or that of a domain.

    Raises:
        DataError: There is no such folder, or it holds another language.
    """
    root = Path(os.path.abspath(folder.expanduser()))  # noqa: PTH100 (a link keeps its name)
    if not root.is_dir():
        raise DataError(f"{root}: no such folder. Give a folder in the PosIR layout, or one domain of it.")
    if any((root / file).exists() for file in FILES):
        prefix, held = f"{language}/{root.name}", root.parent.name
    elif any(root.glob("*/queries.parquet")):
        prefix, held = language, root.name
    else:
        prefix, held = "", language
    if CODE.fullmatch(held) and held != language:
        raise DataError(f"{root}: holds the language {held}, not {language}.")
    return CustomFolder(root, language, prefix)


def require_domains(repository: Repository, language: str) -> list[str]:
    """Return the domains of a language in a repository in the PosIR layout.

    Raises:
        DataError: There are none, or the repository cannot be reached.
    """
    domains = list_domains(repository, language)
    if not domains:
        languages = {path.split("/")[0] for path in repository.paths() if path.count("/") >= 2}
        has = f"It has {', '.join(sorted(languages))}." if languages else "It has no data in the PosIR layout."
        files = ", ".join(FILES)
        raise DataError(f"{repository.location}: no {language} data; expected {language}/<domain>/ with {files}. {has}")
    return domains


@dataclass(frozen=True)
class SubsetKey:
    """Languages and domain of data that is loaded together; a cross-lingual corpus has another language than the queries."""

    language: str
    corpus_language: str
    domain: str

    def __str__(self) -> str:
        return "-".join(dict.fromkeys((self.language, self.corpus_language))) + f"/{self.domain}"


@dataclass(frozen=True)
class DataFolder:
    """A folder in the PosIR layout, or a part of it."""

    root: Path
    """The folder that holds `<language>/<domain>/`."""
    language: str | None = None
    """None for all languages."""
    domain: str | None = None

    def subset_keys(self) -> list[SubsetKey]:
        """Return each domain with its own corpus, then with the English corpus if the domain has one.

        Raises:
            DataError: There is no domain.
        """
        repository = LocalRepository(self.root)
        folders = sorted(path.name for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))
        monolingual = [
            SubsetKey(language, language, domain)
            for language in ([self.language] if self.language else folders)
            for domain in ([self.domain] if self.domain else list_domains(repository, language))
        ]
        english = list_domains(repository, PIVOT.code)
        cross_lingual = [
            SubsetKey(key.language, PIVOT.code, key.domain)
            for key in monolingual
            if key.language != PIVOT.code and key.domain in english
        ]
        if not monolingual:
            raise DataError(f"{self.root}: no domain; expected <language>/<domain>/ with {', '.join(FILES)}.")
        return monolingual + cross_lingual


def resolve_folder(path: Path) -> DataFolder:
    """Find the root of a folder that is the data, the parent folder as in `POSIR_DATA`, one language, or one domain.

    Raises:
        PosirError: There is no such folder, or it is none of these.
    """
    if not path.is_dir():
        problem = "is a file; `posir import` converts other formats" if path.exists() else "no such folder"
        raise PosirError(f"{path}: {problem}. Give a folder in the PosIR layout, <language>/<domain>/.")
    layout = find_layout(path)
    if layout is None:
        raise PosirError(
            f"{path}: no data in the PosIR layout, <language>/<domain>/{{{','.join(FILES)}}}. Give the folder that holds the "
            "folders of the languages, or the folder of a language or a domain; `posir import` converts other formats."
        )
    return layout


def find_layout(path: Path) -> DataFolder | None:
    """Return what `resolve_folder` does, None if a folder has no data in the PosIR layout."""
    folder = Path(os.path.abspath(path))  # noqa: PTH100 (a link keeps its name)
    data = folder / folder_name(REPO_ID)
    if _holds(folder, "*/*/"):
        return DataFolder(folder)
    if _holds(data, "*/*/"):
        return DataFolder(data)
    if _holds(folder, "*/"):
        return DataFolder(folder.parent, folder.name)
    if _holds(folder, ""):
        return DataFolder(folder.parent.parent, folder.parent.name, folder.name)
    return None


def _holds(folder: Path, depth: str) -> bool:
    return any(file for name in FILES for file in folder.glob(depth + name))
