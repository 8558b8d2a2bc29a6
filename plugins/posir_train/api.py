"""The public functions of this package: `posir.train` and `posir.compose`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.base.public import Option, public, to_list
from posir_tasks.base.settings_file import load_settings
from posir_tasks.base.wording import pluralize
from posir_tasks.display.presentation import Result
from posir_train.settings import RECORD, ComposeSettings, Position, TrainingSettings, open_dataset

if TYPE_CHECKING:
    from posir_train.report import TrainingReport


@public(charts=True, settings="posir_train.settings:TrainingSettings")
def train(
    model: str | Path | None = None,
    *,
    data: str | Path | None = None,
    output: str | Path,
    positions: str | None = None,
    pooling: str | None = None,
    per_article: int | None = None,
    guard: str | Path | Iterable[str | Path] = (),
    seeds: Annotated[int, Option(min=1)] = 1,
    config: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> TrainingReport | Result:
    """Train a model on evidence at chosen positions, and compare it with the base model on held-out
    articles.

        posir train all-MiniLM-L6-v2 --data questions.json --output tuned

    The folder is an ordinary model, for `mteb run -m FOLDER` and all commands here. Its report is
    in `training/`, and so are the settings of the run: `--config FOLDER/training/settings.yaml`
    repeats it.

    Args:
        model: A registered model or a local folder: dense, of sentence-transformers. Not needed if
            `config` has it.
        data: A task, or any file, folder or Hub dataset of questions with evidence. Not needed if
            `config` has it.
        output: Folder for the model, which must be empty; checkpoints, report and settings are in
            its `training/`.
        positions: `begin`, `middle`, `end`, `uniform` (the default), or three weights such as
            `2,1,1`.
        pooling: `mean`, `cls`, `lasttoken` or `max`; by default the model's.
        per_article: Questions about one article in a row of a batch; 4 by default.
        guard: Data of a forgetting check: a task of mteb, or what `data` takes.
        seeds: Models to train, each with a seed of its own, on the same articles, for intervals
            over seeds.
        config: YAML file with settings; the other arguments take precedence.
        resume: Continue a run of the same settings that was interrupted.
        settings: Further fields by name, such as `learning_rate` (default 2e-5), `epochs` (3),
            `window` in tokens, and `held_out`, a share of the articles in [0, 1]; `posir train
            --settings-help` lists them all.

    Returns:
        The changes by training: nDCG@10 and start to end in [-1, 1], PSI in [0, 1] and the cosine
        of unrelated texts, before and after, with 95% intervals; `folder` of the model; `notes`,
        warnings first. Of several seeds, the change with each, and its mean.

    Raises:
        PosirError: accelerate is not installed; there is no such model or data; a setting is wrong;
            `output` is not empty; or training failed.

    Examples:
        >>> import posir
        >>> quick = {"max_steps": 1, "batch_size": 4, "held_out": 0.4}
        >>> quick |= {"budget": "most", "drop_beyond": True, "positions": "begin"}
        >>> report = posir.train(
        ...     "./my-model", data="squad.json", output="my-tuned-model", **quick
        ... )
        >>> report.folder.name, report.to_polars()["score"][0]
        ('my-tuned-model', 'nDCG@10')
    """
    options = {
        "model": model and str(model),
        "data": data and str(data),
        "positions": positions,
        "pooling": pooling,
        "per_article": per_article,
        "guard": list(map(str, to_list(guard))),
    }
    loaded = load_settings(TrainingSettings, Path(config) if config else None, settings, options)
    if find_spec("accelerate") is None:
        raise PosirError("`posir train` needs accelerate: pip install 'accelerate>=1.1'")
    folder = Path(output)
    if seeds == 1:
        return _train(loaded, folder, resume=resume)
    reports = {}
    for seed in range(loaded.seed, loaded.seed + seeds):
        run = loaded.model_copy(update={"seed": seed, "split_seed": loaded.division})
        reports[seed] = _train(run, folder / f"seed-{seed}", resume=resume)
    from posir_train.report import compare_seeds

    return compare_seeds(reports)


def _train(loaded: TrainingSettings, folder: Path, *, resume: bool) -> TrainingReport:
    with track("Loading libraries"):
        from posir_tasks.models.registry import refuse_unloadable

        refuse_unloadable(loaded.model)
        from posir_train import training
        from posir_train.examples import read_examples
        from posir_train.report import build_report, open_forgetting_check, write_report

    try:
        forgetting_checks = [open_forgetting_check(name) for name in loaded.guard]
        with track("Reading the data"):
            examples = read_examples(open_dataset(loaded.data))
        trained = training.train_model(loaded, folder, examples, resume=resume)
        with track("Comparing with the base model"):
            report = build_report(loaded, folder, trained, forgetting_checks)
    except KeyboardInterrupt:
        advice = "again: nothing was saved yet"
        if (folder / RECORD).exists():
            advice = "with --resume to continue"
        print(f"Interrupted: run the same command {advice}.", file=sys.stderr)
        raise
    write_report(report, trained.model)
    return report


@public(settings="posir_train.settings:ComposeSettings")
def compose(
    data: str | Path,
    *,
    language: str,
    domain: str,
    output: str | Path,
    kind: str | None = None,
    tokens: int | None = None,
    positions: str | None = None,
    config: str | Path | None = None,
    **settings: Any,
) -> Result:
    """Compose documents with the evidence at the beginning, in the middle or at the end, in the
    PosIR layout.

        posir compose questions.json --language eng-Latn --domain moved --output data

    Questions whose evidence cannot be placed are skipped and counted. The titles are those of the
    articles that the documents are from, or of the groups of mosaics; `posir train` holds complete
    ones out.

    Args:
        data: A task, or any file, folder or Hub dataset of questions with evidence.
        language: Code of the language, such as jpn-Jpan.
        domain: Name of the domain: a-z, 0-9 and _.
        output: Folder in the PosIR layout, such as data/PosIR-Benchmark-v1.
        kind: `windows` (the default), `moved`, `mosaics` or `needles`.
        tokens: Tokens of a composed document; 126 by default. Needles have the setting `lengths`.
        positions: `each` (the default), `begin`, `middle`, `end`, `uniform`, or three weights such
            as `2,1,1`.
        config: YAML file with settings; the other arguments take precedence.
        settings: Further fields by name: `tokenizer`, `groups`, `lengths`, `literal` and `seed`.

    Returns:
        The folder of each corpus, and its number of questions.

    Raises:
        PosirError: There is no such data, a setting is wrong, a folder exists already, or no
            question can be composed.

    Examples:
        >>> import posir
        >>> target = {"language": "eng-Latn", "domain": "mini", "output": "windows"}
        >>> composed = posir.compose("PosIR-Mini", tokens=60, **target)
        >>> len(composed.rows)
        3
    """
    from posir_tasks.datasets.opening import open_data
    from posir_tasks.text.tokenizer import load_tokenizer
    from posir_train.composing import (
        Composer,
        build_mosaic_composer,
        choose_one_each,
        compose_examples,
        compose_moved,
        compose_needles,
        compose_window,
    )
    from posir_train.examples import (
        list_targets,
        pool_corpora,
        read_examples,
        tokenize_examples,
        write_examples,
    )

    options = {"kind": kind, "tokens": tokens, "positions": positions}
    loaded = load_settings(ComposeSettings, Path(config) if config else None, settings, options)
    weights = loaded.weights
    is_needle = loaded.kind == "needles"
    if is_needle and (tokens or positions):
        raise PosirError(
            "kind needles: its documents have `lengths` and ten places each. Leave out tokens and "
            "positions, or write --set lengths=[128,1024]."
        )
    numbers = () if weights else range(1, len(Position) + 1)
    lengths = sorted({*loaded.lengths})
    targets = list_targets(language, domain, Path(output), lengths if is_needle else numbers)
    tokenizer = load_tokenizer(loaded.tokenizer)
    dataset = open_data(data, language=language).with_questions("posir compose")
    sources = tokenize_examples(pool_corpora(read_examples(dataset)), tokenizer)
    chosen = sources
    composer: Composer = partial(compose_window, tokens=loaded.tokens)
    if loaded.kind == "mosaics":
        composer = build_mosaic_composer(sources, loaded.tokens, loaded.groups, loaded.seed)
    elif loaded.kind == "moved":
        composer = partial(compose_moved, language=language)
        chosen = choose_one_each(sources)
    if is_needle:
        corpora, skipped = compose_needles(
            sources,
            lengths,
            language=language,
            tokenizer=tokenizer,
            literal=loaded.literal,
            seed=loaded.seed,
        )
    else:
        shares = weights.shares if weights else None
        corpora, skipped = compose_examples(chosen, composer, loaded.seed, shares)
    skipped["another question about its document"] += len(sources) - len(chosen)
    counts = +skipped
    reasons = "; ".join(f"{reason}: {count:,}" for reason, count in counts.most_common())
    if not corpora[0]:
        raise PosirError(
            f"{data}: no question can be composed ({reasons}). Choose another length, or longer "
            "documents."
        )
    rows = []
    lines = []
    for target, composed in zip(targets, corpora, strict=True):
        write_examples(composed, (), target, tokenizer)
        rows.append({"folder": str(target.folder), "questions": len(composed)})
        lines.append(f"{target.folder}: {pluralize(len(composed), 'question')}")
    if counts:
        lines.append(f"skipped: {pluralize(counts.total(), 'question')} ({reasons})")
    values = {"corpora": rows, "skipped": counts}
    return Result(title=f"Documents composed of {data}", rows=rows, values=values, footer=lines)
