"""`posir compose`: documents with the evidence at a chosen place."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from posir_data.importing import Domain, Language, Output
from posir_tasks.command.progress_option import with_progress
from posir_tasks.command.settings_options import Config, Overrides, settings_help
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.settings_file import load_settings

if TYPE_CHECKING:
    from posir_tasks.text.tokenizer import Tokenizer
    from posir_train.examples import Example, Examples
    from posir_train.settings import ComposeSettings


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
    from posir_train.examples import list_targets, pool_corpora, read_examples, write_examples
    from posir_train.settings import ComposeSettings, Position

    options = {"--kind": kind, "--tokens": tokens, "--positions": positions}
    settings = load_settings(ComposeSettings, config, overrides or (), options)
    targets = list_targets(language, domain, output, 1 if settings.weights else len(Position))
    tokenizer = load_tokenizer(settings.tokenizer)
    dataset = open_data(data, language=language).with_questions("posir compose")
    corpora, skipped = compose(pool_corpora(read_examples(dataset)), tokenizer, settings)
    reasons = "; ".join(f"{reason}: {count:,}" for reason, count in skipped.most_common())
    if not corpora[0]:
        raise PosirError(f"{data}: no question can be composed ({reasons}). Choose another --tokens, or longer documents.")
    for target, examples in zip(targets, corpora, strict=True):
        write_examples(examples, (), target, tokenizer)
        typer.echo(f"{target.folder}: {pluralize(len(examples), 'question')}")
    if skipped:
        typer.echo(f"skipped: {pluralize(skipped.total(), 'question')} ({reasons})")


def compose(data: Examples, tokenizer: Tokenizer, settings: ComposeSettings) -> tuple[list[list[Example]], Counter[str]]:
    """Return the composed examples of each corpus, and how many questions were skipped, by reason."""
    from posir_train.composing import WindowComposer, build_mosaic_composer, compose_each, compose_weighted, tokenize_examples

    sources = tokenize_examples(data, tokenizer)
    windows = settings.kind == "windows"
    composer = (
        WindowComposer(settings.tokens)
        if windows
        else build_mosaic_composer(sources, settings.tokens, settings.groups, settings.seed)
    )
    if settings.weights is None:
        return compose_each(sources, composer, settings.seed)
    examples, skipped = compose_weighted(sources, composer, settings.weights.shares, settings.seed)
    return [examples], skipped
