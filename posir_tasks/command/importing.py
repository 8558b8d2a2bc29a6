"""`posir import-squad`: a dataset of one's own in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from posir_tasks.sources.squad_json import Imported, import_squad
from posir_tasks.tokens import BYTES_A_TOKEN, token_counter

#: How many of the questions left out are named.
EXAMPLES = 5


def add_commands(app: typer.Typer) -> None:
    """Add `posir import-squad`."""

    @app.command("import-squad")
    def import_squad_command(
        files: Annotated[list[Path], typer.Argument(help="SQuAD-format JSON, v1 or v2.")],
        language: Annotated[str, typer.Option(help="Code of the language, such as jpn-Jpan.")],
        domain: Annotated[str, typer.Option(help="Name of the domain: a-z, 0-9 and _.")],
        output: Annotated[Path, typer.Option(help="Folder in the PosIR layout, such as data/PosIR-Benchmark-v1.")],
        tokenizer: Annotated[
            str | None,
            typer.Option(
                help="Hugging Face tokenizer (name or folder) for the length buckets; by default one token is counted for "
                f"every {BYTES_A_TOKEN} bytes of UTF-8."
            ),
        ] = None,
    ) -> None:
        """Import SQuAD-format JSON as one domain of a language, in the PosIR layout.

        The span is the first answer's. Questions whose answer does not stand where it says are left out and named;
        contexts without a question stay in the corpus.
        """
        found = import_squad(files, language=language, domain=domain, output=output, count_tokens=token_counter(tokenizer))
        report(found, output / language / domain)


def report(found: Imported, folder: Path) -> None:
    """Print what was imported and what was left out."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{folder}: {len(found.documents):,} documents, {len(found.queries):,} questions")
    if found.left_out:
        console.print(f"left out: {len(found.left_out):,} questions, first:")
        for question in found.left_out[:EXAMPLES]:
            console.print(f"  {question.file}: question {question.question_id}: {question.why}", markup=False)
