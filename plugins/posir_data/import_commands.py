"""`posir import`: a custom dataset in one command."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from reprlib import repr as short_repr
from typing import Annotated

import typer
from rich.console import Console

from posir_data.importing import import_passages
from posir_data.target import Target
from posir_tasks.command.progress_option import with_progress
from posir_tasks.display.wording import pluralize
from posir_tasks.sources.checks import MAX_EXAMPLES
from posir_tasks.sources.formats.catalog import Item
from posir_tasks.sources.formats.options import ReadOptions
from posir_tasks.sources.formats.passages import UNANSWERABLE, describe_skipped
from posir_tasks.sources.opening import open_data
from posir_tasks.sources.questions import ImportedData
from posir_tasks.sources.spans import REPAIR_DISTANCE
from posir_tasks.text.tokenizer import load_tokenizer
from posir_tasks.tokens import BYTES_PER_TOKEN

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
            "--repair",
            help=f"If an answer is not where its file says, move it to the only match within {REPAIR_DISTANCE} characters; "
            "without this option, or if there are several matches, the question is skipped.",
        ),
    ] = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Hugging Face tokenizer (name or folder) for the length buckets; by default one token is counted for "
            f"every {BYTES_PER_TOKEN} bytes of UTF-8."
        ),
    ] = None,
) -> None:
    """Import questions with their evidence, in any format, as one domain of a language in the PosIR layout.

    Spans count Unicode code points of the document's text from 0; the end is exclusive. Questions whose answer is
    not where the file says are skipped and listed; documents without a question stay in the corpus.
    """
    passages = read_sources(sources, ReadOptions(split=split))
    import_and_report(passages, Target(language, domain, output), tokenizer, repair=repair)


def read_sources(sources: Iterable[Path], options: ReadOptions) -> Iterator[Item]:
    """Yield the passages of data in any format with their questions, unchecked.

    Raises:
        PosirError: There is no such data.
        DataError: A file cannot be read or does not have the expected format.
    """
    for source in sources:
        for subset in open_data(source, options).subsets:
            yield from subset.read_passages()


def import_and_report(passages: Iterable[Item], target: Target, tokenizer: str | None, *, repair: bool) -> None:
    """Import passages, and print what was imported, repaired and skipped."""
    imported = import_passages(passages, target, count_tokens=load_tokenizer(tokenizer).count, repair=repair)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for line in format_report(imported, target.folder):
        console.print(line)


def format_report(imported: ImportedData, folder: Path) -> Iterator[str]:
    """Yield lines that say what was imported, repaired and skipped."""
    yield f"{folder}: {pluralize(len(imported.documents), 'document')}, {pluralize(len(imported.queries), 'question')}"
    if imported.titles:
        articles = pluralize(len(set(imported.titles.values())), "article")
        yield f"titles: {pluralize(len(imported.titles), 'document')} in {articles}; spans count in the texts alone"
    if imported.repaired:
        shifts = Counter(repair.span.start - (repair.answer.start or 0) for repair in imported.repaired)
        summary = ", ".join(
            f"{shift:+d} ({count:,})" if shift else f"0 ({count:,}, spelled otherwise)" for shift, count in shifts.most_common()
        )
        yield f"repaired: {pluralize(len(imported.repaired), 'span')}, moved by characters {summary}; first:"
        for repair in imported.repaired[:MAX_EXAMPLES]:
            answer = f"{short_repr(repair.answer.text)} from character {repair.answer.start} to {repair.span.start}"
            yield f"  {repair.file}: question {repair.question}: {answer}"
    skipped = [question for question in imported.skipped if question.reason != UNANSWERABLE]
    if len(skipped) < len(imported.skipped):
        yield f"without an answer: {pluralize(len(imported.skipped) - len(skipped), 'question')}, not imported"
    if skipped:
        yield f"skipped: {pluralize(len(skipped), 'question')}, first:"
        yield from (f"  {question}" for question in skipped[:MAX_EXAMPLES])
    if imported.skipped_texts:
        yield describe_skipped(imported.skipped_texts)
