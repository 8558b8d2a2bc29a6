"""`posir validate`: everything that the loader would reject in a folder of data, before a model runs."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from posir_tasks.command.format_option import TextFormat
from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.progress import progress
from posir_tasks.display.tables import OutputFormat
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.languages import DOMAINS, check_code
from posir_tasks.sources.checks import DataProblem
from posir_tasks.sources.posir import DomainInspection, SubsetKey, inspect_domain, resolve_folder
from posir_tasks.sources.repository import LocalRepository


def inspect_subsets(root: Path, subsets: Iterable[SubsetKey]) -> Iterator[tuple[SubsetKey, DomainInspection]]:
    """Yield each subset with what is wrong with it; a problem that several share is listed with the first of them."""
    repository = LocalRepository(root)
    listed: set[DataProblem] = set()
    for subset in subsets:
        inspection = inspect_domain(repository, subset.language, subset.corpus_language, subset.domain)
        yield subset, replace(inspection, problems=[problem for problem in inspection.problems if problem not in listed])
        listed.update(inspection.problems)


def find_warnings(subsets: Iterable[SubsetKey]) -> Iterator[str]:
    """Yield what is valid and perhaps a mistake: languages and domains that PosIR does not have."""
    for language in sorted({subset.language for subset in subsets}):
        try:
            check_code(language)
        except PosirError as error:
            yield f"{error} No task reads the folder."
    for domain in sorted({subset.domain for subset in subsets} - {*DOMAINS}):
        yield f"domain {domain}: not one of PosIR's 31{_suggest(domain)}. It is evaluated as a custom domain."


def _suggest(name: str) -> str:
    close = get_close_matches(name, DOMAINS, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


@with_progress
def validate(
    folder: Annotated[
        Path,
        typer.Argument(help="Data in the PosIR layout: the folder of all languages, of one, or of one domain.", metavar="DIR"),
    ],
    format_: TextFormat = OutputFormat.TEXT,
) -> None:
    """Check data in the PosIR layout against everything that a run requires; exit 1 if there is a problem.

    Each domain is checked with its own corpus and, if the English corpus of the domain exists, with that.
    """
    data = resolve_folder(folder)
    subsets = data.subset_keys()
    inspections = dict(inspect_subsets(data.root, progress(subsets, "Checking")))
    problems = {subset: list(inspection.problems) for subset, inspection in inspections.items()}
    warnings = [
        *find_warnings(subsets),
        *(warning for inspection in inspections.values() for warning in inspection.warnings),
    ]
    if format_ is OutputFormat.JSON:
        typer.echo(format_json(data.root, problems, warnings))
    else:
        for line in format_text(data.root, problems, warnings):
            typer.echo(line)
    if any(problems.values()):
        raise typer.Exit(1)


def format_json(root: Path, problems: dict[SubsetKey, list[DataProblem]], warnings: list[str]) -> str:
    """Return a JSON object with the subsets checked, their problems, and warnings."""
    return json.dumps(
        {
            "folder": str(root),
            "checked": [asdict(subset) for subset in problems],
            "problems": [asdict(subset) | asdict(problem) for subset, of_subset in problems.items() for problem in of_subset],
            "warnings": warnings,
        },
        indent=2,
    )


def format_text(root: Path, problems: dict[SubsetKey, list[DataProblem]], warnings: list[str]) -> Iterator[str]:
    """Yield the problems of each subset, the warnings, and a summary."""
    for subset, of_subset in problems.items():
        if of_subset:
            yield f"{subset}:"
            yield from (f"  {problem}" for problem in of_subset)
    yield from (f"warning: {warning}" for warning in warnings)
    count = sum(map(len, problems.values()))
    languages = len({subset.language for subset in problems})
    domains = sum(subset.language == subset.corpus_language for subset in problems)
    cross_lingual = f" and {len(problems) - domains} against the English corpus" if len(problems) > domains else ""
    outcome = pluralize(count, "problem") if count else "no problem"
    yield f"{root}: {pluralize(languages, 'language')}, {pluralize(domains, 'domain')}{cross_lingual} checked: {outcome}"
