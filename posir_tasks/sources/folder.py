"""Folders of one's own: data in the PosIR layout or a part of it, wherever it lies."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from posir_tasks.display.progress import progress
from posir_tasks.errors import DataError, PosirError
from posir_tasks.languages import CODE, PIVOT
from posir_tasks.sources.posir import FILES, REPO_ID, list_domains
from posir_tasks.sources.repository import LOCAL, LocalRepository, Repository, folder_name


@dataclass(frozen=True)
class CustomFolder(LocalRepository):
    """A folder that stands for the PosIR layout or for a part of it: a language's domains, or one domain."""

    language: str
    part: str = ""
    """What of `<language>/<domain>/` the folder itself stands for."""

    @cached_property
    def revision(self) -> str:
        """`local-` and a digest of the language's files: of equal content and only of it."""
        digest = hashlib.blake2b(digest_size=8)
        wanted = {f"{self.language}/{domain}/{file}" for domain in list_domains(self, self.language) for file in FILES}
        for path in progress(sorted(wanted.intersection(self.paths(self.language))), "Reading"):
            with self.fetch(path).open("rb") as file:
                digest.update(path.encode() + hashlib.file_digest(file, "blake2b").digest())
        return f"{LOCAL}-{digest.hexdigest()}"

    def paths(self, folder: str = "") -> list[str]:
        """Return the paths of the parquet files below a folder of the layout, sorted."""
        found = [f"{self.part}/{path}" if self.part else path for path in super().paths()]
        return [path for path in found if not folder or path.startswith(f"{folder}/")]

    def fetch(self, path: str) -> Path:
        """Return the path of a file of the layout.

        Raises:
            ProblemsError: There is no such file.
        """
        return super().fetch(path.removeprefix(f"{self.part}/"))


def open_folder(folder: Path, language: str) -> CustomFolder:
    """Open a folder in the PosIR layout (`<language>/<domain>/`), a language's folder in it, or a domain's.

    Raises:
        DataError: There is no such folder, or it is another language's.
    """
    root = folder.expanduser().resolve()
    if not root.is_dir():
        raise DataError(f"{root}: no such folder. Give one in the PosIR layout, or one domain of it.")
    if any((root / file).exists() for file in FILES):
        part, place = f"{language}/{root.name}", root.parent.name
    elif any(root.glob("*/queries.parquet")):
        part, place = language, root.name
    else:
        part, place = "", language
    if CODE.fullmatch(place) and place != language:
        raise DataError(f"{root}: is of the language {place}, and {language} is wanted.")
    return CustomFolder(root, language, part)


def require_domains(repository: Repository, language: str) -> list[str]:
    """Return the domains that a repository in the PosIR layout has for a language.

    Raises:
        DataError: It has none, or cannot be reached.
    """
    domains = list_domains(repository, language)
    if not domains:
        languages = {path.split("/")[0] for path in repository.paths() if path.count("/") >= 2}
        has = f"It has {', '.join(sorted(languages))}." if languages else "It has no data in the PosIR layout."
        files = ", ".join(FILES)
        raise DataError(f"{repository.location}: has no data of {language}; wanted is {language}/<domain>/ with {files}. {has}")
    return domains


@dataclass(frozen=True)
class SubsetKey:
    """What is loaded together: queries of one language and a corpus of the same or another, in one domain."""

    language: str
    corpus_language: str
    domain: str

    def __str__(self) -> str:
        return "-".join(dict.fromkeys((self.language, self.corpus_language))) + f"/{self.domain}"


@dataclass(frozen=True)
class DataFolder:
    """A folder in the PosIR layout, or the part of it that was named."""

    root: Path
    """Holds `<language>/<domain>/`."""
    language: str | None = None
    """None for all of them."""
    domain: str | None = None

    def pairings(self) -> list[SubsetKey]:
        """Return what the loader finds: each domain with its own corpus, then with the English one where that is there."""
        repository = LocalRepository(self.root)
        folders = sorted(path.name for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))
        own = [
            SubsetKey(language, language, domain)
            for language in ([self.language] if self.language else folders)
            for domain in ([self.domain] if self.domain else list_domains(repository, language))
        ]
        english = list_domains(repository, PIVOT.code)
        crossed = [
            SubsetKey(one.language, PIVOT.code, one.domain)
            for one in own
            if one.language != PIVOT.code and one.domain in english
        ]
        return own + crossed


def resolve_folder(named: Path) -> DataFolder:
    """Find what a folder is: the data, the folder above it that `POSIR_DATA` names, one language of it, or one domain.

    Raises:
        PosirError: There is no such folder, or it is none of these.
    """
    if not named.is_dir():
        raise PosirError(f"{named}: no such folder. Name a folder in the PosIR layout, <language>/<domain>/.")
    folder = named.resolve()
    data = folder / folder_name(REPO_ID)
    if _holds(folder, "*/*/"):
        return DataFolder(folder)
    if _holds(data, "*/*/"):
        return DataFolder(data)
    if _holds(folder, "*/"):
        return DataFolder(folder.parent, folder.name)
    if _holds(folder, ""):
        return DataFolder(folder.parent.parent, folder.parent.name, folder.name)
    raise PosirError(
        f"{named}: holds no data in the PosIR layout, <language>/<domain>/{{{','.join(FILES)}}}. Name the folder that holds "
        "the languages' folders, or one of a language or a domain."
    )


def _holds(folder: Path, depth: str) -> bool:
    return any(file for name in FILES for file in folder.glob(depth + name))
