"""`posir train` and `posir compose`: evidence where the user wants it, in models and in documents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posir_data.commands import Domain, Language, Output
from posir_tasks.command.options import Config, Explain, Overrides, TableFormat, settings_help, with_progress
from posir_tasks.display.presentation import present
from posir_tasks.display.tables import OutputFormat
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.settings_file import load_settings

if TYPE_CHECKING:
    from posir_train.settings import RunFolder


@with_progress
def train_command(
    output: Annotated[Path, typer.Option(help="Folder for the model, its report, and checkpoints.")],
    model: Annotated[
        str | None, typer.Argument(help="A registered model or a local folder: dense, of sentence-transformers.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="A task, or any file, folder or Hub dataset of questions with evidence.")
    ] = None,
    positions: Annotated[
        str | None, typer.Option(help="begin, middle, end, uniform (the default), or three weights such as 2,1,1.")
    ] = None,
    pooling: Annotated[str | None, typer.Option(help="mean, cls, lasttoken or max; by default the model's.")] = None,
    per_article: Annotated[
        int | None, typer.Option(help="Questions about one article in a row of a batch; 4 by default.")
    ] = None,
    guard: Annotated[
        list[str] | None, typer.Option(help="Data of a forgetting check: a task of mteb, or what --data takes; repeatable.")
    ] = None,
    config: Config = None,
    overrides: Overrides = None,
    _: Annotated[bool, settings_help("posir_train.settings:TrainingSettings")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was interrupted.")] = False,
    format_: TableFormat = OutputFormat.TEXT,
    explain: Explain = False,
) -> None:
    """Train a model on evidence at chosen positions, and compare it with the base model on held-out articles.

    The folder is an ordinary model, for `mteb run -m FOLDER` and all commands here. Its report is in `training/`, and so are
    the settings of the run: `--config FOLDER/training/settings.yaml` repeats it.
    """
    from posir_train.api import run_training
    from posir_train.settings import RunFolder, TrainingSettings

    options = {
        "MODEL": model,
        "--data": data,
        "--positions": positions,
        "--pooling": pooling,
        "--per-article": per_article,
        "--guard": guard,
    }
    settings = load_settings(TrainingSettings, config, overrides or (), options)
    with explain_interrupt(RunFolder(output)):
        report = run_training(settings, RunFolder(output), resume=resume)
    present(report, format_, explain=explain)
    if format_ is OutputFormat.TEXT:
        typer.echo(f"{report.folder}: the trained model, of step {report.steps:,}. To repeat the figures with mteb:")
        for line in report.commands:
            typer.echo(f"  {line}")


@contextmanager
def explain_interrupt(folder: RunFolder) -> Iterator[None]:
    """Say how to continue after Ctrl-C, which ends the command as it ends any other."""
    try:
        yield
    except KeyboardInterrupt:
        begun = folder.record_file.exists()
        advice = "with --resume to continue" if begun else "again: nothing was saved yet"
        print(f"Interrupted: run the same command {advice}.", file=sys.stderr)
        raise


@with_progress
def compose_command(
    data: Annotated[str, typer.Argument(help="A task, or any file, folder or Hub dataset of questions with evidence.")],
    language: Language,
    domain: Domain,
    output: Output,
    kind: Annotated[str | None, typer.Option(help="windows (the default) or mosaics.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens of a composed document; 126 by default.")] = None,
    positions: Annotated[
        str | None, typer.Option(help="each (the default), begin, middle, end, uniform, or three weights such as 2,1,1.")
    ] = None,
    config: Config = None,
    overrides: Overrides = None,
    _: Annotated[bool, settings_help("posir_train.settings:ComposeSettings")] = False,
) -> None:
    """Compose documents with the evidence at the beginning, in the middle or at the end, in the PosIR layout.

    Questions whose evidence cannot be placed are skipped and counted. The titles are those of the articles that the
    documents are from, or of the groups of mosaics; `posir train` holds complete ones out.
    """
    from posir_tasks.sources.opening import open_data
    from posir_tasks.text.tokenizer import load_tokenizer
    from posir_train.examples import (
        WindowComposer,
        build_mosaic_composer,
        compose_examples,
        list_targets,
        pool_corpora,
        read_examples,
        tokenize_examples,
        write_examples,
    )
    from posir_train.settings import ComposeSettings, Position

    options = {"--kind": kind, "--tokens": tokens, "--positions": positions}
    settings = load_settings(ComposeSettings, config, overrides or (), options)
    targets = list_targets(language, domain, output, 1 if settings.weights else len(Position))
    tokenizer = load_tokenizer(settings.tokenizer)
    dataset = open_data(data, language=language).with_questions("posir compose")
    sources = tokenize_examples(pool_corpora(read_examples(dataset)), tokenizer)
    composer = (
        WindowComposer(settings.tokens)
        if settings.kind == "windows"
        else build_mosaic_composer(sources, settings.tokens, settings.groups, settings.seed)
    )
    shares = settings.weights.shares if settings.weights else None
    corpora, skipped = compose_examples(sources, composer, settings.seed, shares)
    reasons = "; ".join(f"{reason}: {count:,}" for reason, count in skipped.most_common())
    if not corpora[0]:
        raise PosirError(f"{data}: no question can be composed ({reasons}). Choose another --tokens, or longer documents.")
    for target, examples in zip(targets, corpora, strict=True):
        write_examples(examples, (), target, tokenizer)
        typer.echo(f"{target.folder}: {pluralize(len(examples), 'question')}")
    if skipped:
        typer.echo(f"skipped: {pluralize(skipped.total(), 'question')} ({reasons})")
