"""Checks of a whole folder in the PosIR layout against everything that the loader demands, domain by domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from posir_tasks.errors import PosirError
from posir_tasks.languages import DOMAINS, LANGUAGES, PIVOT
from posir_tasks.sources.checks import Problem
from posir_tasks.sources.posir import FILES, REPO_ID, domains_of, inspect_domain
from posir_tasks.sources.repository import LocalRepository, local_name


@dataclass(frozen=True)
class Pairing:
    """What is loaded together: queries of one language and a corpus of the same or another, in one domain."""

    language: str
    corpus_language: str
    domain: str

    def __str__(self) -> str:
        return "-".join(dict.fromkeys((self.language, self.corpus_language))) + f"/{self.domain}"


@dataclass(frozen=True)
class FolderToCheck:
    """A folder in the PosIR layout, or the part of it that was named."""

    root: Path
    """Holds `<language>/<domain>/`."""
    language: str | None = None
    """None for all of them."""
    domain: str | None = None

    def pairings(self) -> list[Pairing]:
        """Return what the loader finds: each domain with its own corpus, then with the English one where that is there."""
        repository = LocalRepository(self.root)
        folders = sorted(path.name for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))
        own = [
            Pairing(language, language, domain)
            for language in ([self.language] if self.language else folders)
            for domain in ([self.domain] if self.domain else domains_of(repository, language))
        ]
        english = domains_of(repository, PIVOT.code)
        crossed = [
            Pairing(one.language, PIVOT.code, one.domain) for one in own if one.language != PIVOT.code and one.domain in english
        ]
        return own + crossed


def folder_to_check(named: Path) -> FolderToCheck:
    """Find what a folder is: the data, the folder above it that `POSIR_DATA` names, one language of it, or one domain.

    Raises:
        PosirError: There is no such folder, or it is none of these.
    """
    if not named.is_dir():
        raise PosirError(f"{named}: no such folder. Name a folder in the PosIR layout, <language>/<domain>/.")
    folder = named.resolve()
    data = folder / local_name(REPO_ID)
    if _holds(folder, "*/*/"):
        return FolderToCheck(folder)
    if _holds(data, "*/*/"):
        return FolderToCheck(data)
    if _holds(folder, "*/"):
        return FolderToCheck(folder.parent, folder.name)
    if _holds(folder, ""):
        return FolderToCheck(folder.parent.parent, folder.parent.name, folder.name)
    raise PosirError(
        f"{named}: holds no data in the PosIR layout, <language>/<domain>/{{{','.join(FILES)}}}. Name the folder that holds "
        "the languages' folders, or one of a language or a domain."
    )


def _holds(folder: Path, depth: str) -> bool:
    return any(file for name in FILES for file in folder.glob(depth + name))


def problems_by_pairing(folder: FolderToCheck, pairings: Iterable[Pairing]) -> Iterator[tuple[Pairing, list[Problem]]]:
    """Yield each pairing with what is wrong with it; what is wrong with a file by itself is named once."""
    repository = LocalRepository(folder.root)
    named: set[Problem] = set()
    for pairing in pairings:
        _, problems = inspect_domain(repository, pairing.language, pairing.corpus_language, pairing.domain)
        yield pairing, [problem for problem in problems if problem not in named]
        named.update(problems)


def warnings_of(pairings: list[Pairing]) -> Iterator[str]:
    """Yield what the loader takes and its owner may not mean: languages and domains that PosIR has not."""
    codes = [language.code for language in LANGUAGES]
    for language in sorted({pairing.language for pairing in pairings} - {*codes}):
        yield (
            f"language {language}: no task reads it{_meant(language, codes)}. Known are {', '.join(codes)}; a new language is "
            "one row of posir_tasks/languages.py."
        )
    for domain in sorted({pairing.domain for pairing in pairings} - {*DOMAINS}):
        yield f"domain {domain}: is none of PosIR's 31{_meant(domain, DOMAINS)}. It is run all the same, as one of your own."


def _meant(name: str, known: list[str] | tuple[str, ...]) -> str:
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
