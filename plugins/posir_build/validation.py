"""Checks of a whole folder in the PosIR layout against everything that the loader demands, domain by domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from posir_tasks.languages import DOMAINS, LANGUAGES
from posir_tasks.sources.checks import Problem
from posir_tasks.sources.folder import Pairing, PosirFolder
from posir_tasks.sources.posir import inspect_domain
from posir_tasks.sources.repository import LocalRepository


def problems_by_pairing(folder: PosirFolder, pairings: Iterable[Pairing]) -> Iterator[tuple[Pairing, list[Problem]]]:
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
