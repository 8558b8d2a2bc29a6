"""`posir import` and `posir import-squad`: a dataset of one's own in one command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from posir_build.beir import beir_passages
from posir_build.importing import Imported, Passage, RepairedSpan, SkippedQuestion, Target, import_passages
from posir_build.json_lines import json_lines_passages
from posir_build.spans import NEAR, shortened
from posir_build.squad_json import squad_passages
from posir_tasks.display.wording import counted
from posir_tasks.errors import PosirError
from posir_tasks.plugin_api.panels import DATA
from posir_tasks.sources.checks import EXAMPLES
from posir_tasks.tokens import BYTES_A_TOKEN, token_counter

Language = Annotated[str, typer.Option(help="Code of the language, such as jpn-Jpan.")]
Domain = Annotated[str, typer.Option(help="Name of the domain: a-z, 0-9 and _.")]
Output = Annotated[Path, typer.Option(help="Folder in the PosIR layout, such as data/PosIR-Benchmark-v1.")]
Repair = Annotated[
    bool,
    typer.Option(
        "--repair",
        help=f"Where an answer does not stand where it says, move its span to the one place within {NEAR} characters where it "
        "does; without it, and where there are several such places, the question is left out.",
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        help="Hugging Face tokenizer (name or folder) for the length buckets; by default one token is counted for every "
        f"{BYTES_A_TOKEN} bytes of UTF-8."
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Add `posir import` and `posir import-squad`."""

    @app.command("import-squad", rich_help_panel=DATA)
    def import_squad_command(
        files: Annotated[list[Path], typer.Argument(help="SQuAD-format JSON, v1 or v2.")],
        language: Language,
        domain: Domain,
        output: Output,
        repair: Repair = False,
        tokenizer: Tokenizer = None,
    ) -> None:
        """Import SQuAD-format JSON as one domain of a language, in the PosIR layout.

        The span is the first answer's. Questions whose answer does not stand where it says are left out and named;
        contexts without a question stay in the corpus.
        """
        import_and_report(squad_passages(files), Target(language, domain, output), tokenizer, repair=repair)

    @app.command("import", rich_help_panel=DATA)
    def import_command(
        sources: Annotated[
            list[Path],
            typer.Argument(help="JSON Lines (.jsonl), or folders in the BEIR layout with spans."),
        ],
        language: Language,
        domain: Domain,
        output: Output,
        split: Annotated[str, typer.Option(help="Of a BEIR folder, the qrels to read.")] = "test",
        repair: Repair = False,
        tokenizer: Tokenizer = None,
    ) -> None:
        """Import JSON Lines or BEIR folders as one domain of a language, in the PosIR layout.

        Spans count Unicode code points of the document's text, from 0, the end excluded. Questions whose answer does not
        stand where it says are left out and named; documents without a question stay in the corpus.
        """
        import_and_report(passages_of(sources, split), Target(language, domain, output), tokenizer, repair=repair)


def passages_of(sources: Iterable[Path], split: str) -> Iterator[Passage | SkippedQuestion]:
    """Yield the passages of BEIR folders and JSON Lines files.

    Raises:
        PosirError: A source is neither.
        DataError: A file cannot be read, or is not what is wanted.
    """
    for source in sources:
        if source.is_dir():
            yield from beir_passages(source, split)
        elif source.suffix == ".jsonl":
            yield from json_lines_passages(source)
        else:
            raise PosirError(
                f"{source}: neither a folder nor a file that ends in .jsonl. SQuAD-format JSON goes to `posir import-squad`."
            )


def import_and_report(
    passages: Iterable[Passage | SkippedQuestion], target: Target, tokenizer: str | None, *, repair: bool
) -> None:
    """Import passages, and print what was imported, moved and left out."""
    imported = import_passages(passages, target, count_tokens=token_counter(tokenizer), repair=repair)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for line in report_lines(imported, target.folder):
        console.print(line)


def report_lines(imported: Imported, folder: Path) -> Iterator[str]:
    """Yield what was imported, moved and left out."""
    yield f"{folder}: {counted(len(imported.documents), 'document')}, {counted(len(imported.queries), 'question')}"
    if imported.titles:
        yield f"titles not imported: {imported.titles:,}; spans count in the texts alone"
    if imported.moved:
        by = Counter(moved.span.start - (moved.claim.start or 0) for moved in imported.moved)
        distances = ", ".join(f"{distance:+d} ({count:,})" for distance, count in by.most_common())
        yield f"moved: {counted(len(imported.moved), 'span')} to where the answer stands, by characters {distances}; first:"
        yield from (f"  {described(moved)}" for moved in imported.moved[:EXAMPLES])
    if imported.left_out:
        yield f"left out: {counted(len(imported.left_out), 'question')}, first:"
        yield from (f"  {left_out}" for left_out in imported.left_out[:EXAMPLES])


def described(moved: RepairedSpan) -> str:
    """Say from where to where a span was moved."""
    return (
        f"{moved.file}: question {moved.question}: {shortened(moved.claim.text or '')} from character {moved.claim.start} "
        f"to {moved.span.start}"
    )
