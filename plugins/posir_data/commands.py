"""`posir import` and `posir validate`: data in any format becomes a domain in the PosIR layout, and is checked there."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from difflib import get_close_matches
from pathlib import Path
from reprlib import repr as short_repr
from typing import Annotated

import typer
from rich.console import Console

from posir_tasks.command.options import TextFormat, with_progress
from posir_tasks.display.progress import progress
from posir_tasks.display.tables import OutputFormat
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import DataError, PosirError
from posir_tasks.languages import DOMAINS, check_code
from posir_tasks.read_part import BYTES_PER_TOKEN
from posir_tasks.sources.checks import MAX_EXAMPLES, DataProblem
from posir_tasks.sources.formats.passages import UNANSWERABLE, Item, describe_skipped
from posir_tasks.sources.opening import open_data
from posir_tasks.sources.posir import DomainInspection, SubsetKey, Target, inspect_domain, resolve_folder, write_domain
from posir_tasks.sources.questions import REPAIR_DISTANCE, ImportedData, collect_questions
from posir_tasks.sources.repository import LocalRepository
from posir_tasks.text.tokenizer import load_tokenizer

Language = Annotated[str, typer.Option(help="Code of the language, such as jpn-Jpan.")]
Domain = Annotated[str, typer.Option(help="Name of the domain: a-z, 0-9 and _.")]
Output = Annotated[Path, typer.Option(help="Folder in the PosIR layout, such as data/PosIR-Benchmark-v1.")]


@with_progress
def import_command(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Files or folders: SQuAD-format JSON (.json), JSON Lines (.jsonl) or Parquet with questions, BEIR folders "
            "with spans, data in the PosIR layout; .gz is read, too."
        ),
    ],
    language: Language,
    domain: Domain,
    output: Output,
    split: Annotated[str, typer.Option(help="Split of a BEIR folder, the name of its qrels.")] = "test",
    repair: Annotated[
        bool,
        typer.Option(
            help=f"Move an answer that is not where its file says to its only match within {REPAIR_DISTANCE} characters; "
            "without that, or if there are several matches, its question is left out."
        ),
    ] = True,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Hugging Face tokenizer (name or folder) for the length buckets; by default one token is counted for "
            f"every {BYTES_PER_TOKEN} bytes of UTF-8."
        ),
    ] = None,
) -> None:
    """Import questions with their evidence, in any format, as one domain of a language in the PosIR layout.

    Spans count Unicode code points of the document's text from 0; the end is exclusive. An answer that is not where the file
    says is moved to its only match nearby, or its question is left out; both are listed. Documents without a question stay in
    the corpus.
    """
    target, passages = Target(language, domain, output), read_sources(sources, split)
    imported = import_passages(passages, target, count_tokens=load_tokenizer(tokenizer).count, repair=repair)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for line in _format_report(imported, target.folder):
        console.print(line)


def read_sources(sources: Iterable[Path], split: str | None = None) -> Iterator[Item]:
    """Yield the passages of data in any format with their questions, unchecked; raise PosirError if there is none."""
    for source in sources:
        for subset in open_data(source, split=split).subsets:
            yield from subset.read_passages()


def import_passages(
    passages: Iterable[Item], target: Target, *, count_tokens: Callable[[str], int], repair: bool = False
) -> ImportedData:
    """Import what readers yield as one domain, all or nothing, and return what is used; raise PosirError if that cannot be."""
    target.check()
    imported = collect_questions(passages, target.domain, repair=repair)
    imported.skipped += dict.fromkeys(imported.unsuited.values())
    for name in imported.unsuited:
        del imported.questions[name]
    imported.unsuited.clear()
    if not imported.questions:
        questions, texts = imported.divide_skipped()
        listed = [*map(str, questions[:MAX_EXAMPLES]), *filter(None, [describe_skipped(texts)])]
        raise DataError("\n".join(["There is no question with a usable answer; nothing was written.", *listed]))
    write_domain(imported.to_position_data("", count_tokens), target.folder)
    return imported


def _format_report(imported: ImportedData, folder: Path) -> Iterator[str]:
    yield f"{folder}: {pluralize(len(imported.documents), 'document')}, {pluralize(len(imported.questions), 'question')}"
    if imported.titles:
        articles = pluralize(len(set(imported.titles.values())), "article")
        yield f"titles: {pluralize(len(imported.titles), 'document')} in {articles}; spans count in the texts alone"
    repaired = [(question, question.answer, span) for question, span in imported.repaired if question.answer]
    if repaired:
        shifts = Counter(span.start - (answer.start or 0) for _, answer, span in repaired)
        summary = ", ".join(
            f"{shift:+d} ({count:,})" if shift else f"0 ({count:,}, spelled otherwise)" for shift, count in shifts.most_common()
        )
        yield f"repaired: {pluralize(len(repaired), 'span')}, moved by characters {summary}; first:"
        for question, answer, span in repaired[:MAX_EXAMPLES]:
            moved = f"{short_repr(answer.text)} from character {answer.start} to {span.start}"
            yield f"  {question.file}: question {question.name}: {moved}"
    questions, texts = imported.divide_skipped()
    skipped = [question for question in questions if question.detail != UNANSWERABLE]
    if len(skipped) < len(questions):
        yield f"without an answer: {pluralize(len(questions) - len(skipped), 'question')}, not imported"
    if skipped:
        yield f"skipped: {pluralize(len(skipped), 'question')}, first:"
        yield from (f"  {question}" for question in skipped[:MAX_EXAMPLES])
    if texts:
        yield describe_skipped(texts)


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
    root, subsets = resolve_folder(folder)
    inspections = dict(inspect_subsets(root, progress(subsets, "Checking")))
    problems = {subset: inspection.problems for subset, inspection in inspections.items()}
    warnings = [*find_warnings(subsets), *(warning for subset in inspections.values() for warning in subset.warnings)]
    if format_ is OutputFormat.JSON:
        listed = [asdict(subset) | asdict(problem) for subset, of_subset in problems.items() for problem in of_subset]
        checked = [asdict(subset) for subset in problems]
        values = {"folder": str(root), "checked": checked, "problems": listed, "warnings": warnings}
        typer.echo(json.dumps(values, indent=2))
    else:
        for line in _format_problems(root, problems, warnings):
            typer.echo(line)
    if any(problems.values()):
        raise typer.Exit(1)


def inspect_subsets(root: Path, subsets: Iterable[SubsetKey]) -> Iterator[tuple[SubsetKey, DomainInspection]]:
    """Yield each subset with what is wrong with it; a problem that several share is listed with the first of them."""
    listed = set[DataProblem]()
    for subset in subsets:
        inspection = inspect_domain(LocalRepository(root), subset)
        yield subset, replace(inspection, problems=[problem for problem in inspection.problems if problem not in listed])
        listed.update(inspection.problems)


def find_warnings(subsets: Sequence[SubsetKey]) -> Iterator[str]:
    """Yield what is valid and perhaps a mistake: languages and domains that PosIR does not have."""
    for language in sorted({subset.language for subset in subsets}):
        try:
            check_code(language)
        except PosirError as error:
            yield f"{error} No task reads the folder."
    for domain in sorted({subset.domain for subset in subsets} - {*DOMAINS}):
        meant = "".join(f" (did you mean {close}?)" for close in get_close_matches(domain, DOMAINS, n=1))
        yield f"domain {domain}: not one of PosIR's 31{meant}. It is evaluated as a custom domain."


def _format_problems(root: Path, problems: Mapping[SubsetKey, Sequence[DataProblem]], warnings: Iterable[str]) -> Iterator[str]:
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
