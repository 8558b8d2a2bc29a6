"""The public functions of this package: `posir.train` and `posir.compose`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.base.public import Positive, public, to_list
from posir_tasks.base.settings_file import load_settings
from posir_tasks.base.wording import pluralize
from posir_tasks.display.presentation import Result
from posir_train.settings import RUN_FILE, ComposeSettings, TrainingSettings, open_dataset

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
    seeds: Positive = 1,
    config: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> TrainingReport | Result:
    """Train a model on evidence at chosen positions, and compare it with the base model on held-out
    articles.

        posir train all-MiniLM-L6-v2 --data questions.json --output tuned

    The output folder is an ordinary model, for `mteb run -m FOLDER` and all posir commands. Its
    subfolder `training/` contains the report and the settings. To repeat the run, use `--config
    FOLDER/training/settings.yaml`.

    Args:
        model: A dense sentence-transformers model: a registered name or a local folder. Optional if
            set in `config`.
        data: A task, or any file, folder or Hub dataset of questions with evidence. Optional if
            set in `config`.
        output: Empty folder for the model. Checkpoints, report and settings are written to its
            subfolder `training/`.
        positions: `begin`, `middle`, `end`, `uniform` (the default), or three weights such as
            `2,1,1`.
        pooling: `mean`, `cls`, `lasttoken` or `max`; by default the model's pooling.
        per_article: Maximum number of consecutive questions about one article in a batch; 4 by
            default.
        guard: Data for a forgetting check: an mteb task, or data as for `data`.
        seeds: Number of models to train with different seeds on the same articles, for intervals
            over seeds.
        config: YAML file with settings. Other arguments take precedence.
        resume: Resume an interrupted run with the same settings.
        settings: Other settings by name, such as `learning_rate` (default 2e-5), `epochs` (3),
            `window` in tokens, and `held_out`, a share of the articles in [0, 1]. `posir train
            --settings-help` lists all settings.

    Returns:
        Scores before and after training: nDCG@10 in [0, 1], position effects in [-1, 1] and the
        cosine of unrelated texts, with 95% intervals for the changes. `folder` is the model,
        `notes` starts with warnings. With several seeds, the change for each seed and the mean
        change.

    Raises:
        PosirError: accelerate is not installed, the model or data does not exist, a setting is
            invalid, `output` is not empty, or training fails.

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
    train_settings = load_settings(
        TrainingSettings, Path(config) if config else None, settings, options
    )
    if find_spec("accelerate") is None:
        raise PosirError("`posir train` needs accelerate: pip install 'accelerate>=1.1'")
    folder = Path(output)
    if seeds == 1:
        return _train(train_settings, folder, resume=resume)
    reports = {}
    article_seed = train_settings.article_seed
    for seed in range(train_settings.seed, train_settings.seed + seeds):
        seed_settings = train_settings.model_copy(update={"seed": seed, "split_seed": article_seed})
        reports[seed] = _train(seed_settings, folder / f"seed-{seed}", resume=resume)
    from posir_train.report import compare_seeds

    return compare_seeds(reports)


def _train(train_settings: TrainingSettings, folder: Path, *, resume: bool) -> TrainingReport:
    with track("Loading libraries"):
        from posir_tasks.models.registry import raise_if_unloadable

        raise_if_unloadable(train_settings.model)
        from posir_train import training
        from posir_train.examples import read_examples
        from posir_train.report import build_report, open_forgetting_check, write_report

    try:
        forgetting_checks = [open_forgetting_check(name) for name in train_settings.guard]
        with track("Reading the data"):
            examples = read_examples(open_dataset(train_settings.data))
        trained_model = training.train_model(train_settings, folder, examples, resume=resume)
        with track("Comparing with the base model"):
            report = build_report(train_settings, folder, trained_model, forgetting_checks)
    except KeyboardInterrupt:
        advice = "again: nothing was saved yet"
        if (folder / RUN_FILE).exists():
            advice = "with --resume to continue"
        print(f"Interrupted: run the same command {advice}.", file=sys.stderr)
        raise
    write_report(report, trained_model.model)
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

    A question is skipped if its evidence cannot be moved to the position, and skipped questions are
    counted. Documents get the title of their article or, for mosaics, of their group. `posir train`
    never splits documents with the same title between training and held-out data.

    Args:
        data: A task, or any file, folder or Hub dataset of questions with evidence.
        language: Language code, such as jpn-Jpan.
        domain: Domain name: a-z, 0-9 and _.
        output: Folder in the PosIR layout, such as data/PosIR-Benchmark-v1.
        kind: `windows` (the default), `moved`, `mosaics` or `needles`.
        tokens: Number of tokens per composed document; 126 by default. Needles use the setting
            `lengths` instead.
        positions: `each` (the default), `begin`, `middle`, `end`, `uniform`, or three weights such
            as `2,1,1`.
        config: YAML file with settings. Other arguments take precedence.
        settings: Other settings by name: `tokenizer`, `groups`, `lengths`, `literal` and `seed`.

    Returns:
        The folder and the number of questions of each corpus.

    Raises:
        PosirError: The data does not exist, a setting is invalid, a folder already exists, or no
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
    from posir_train.composing import compose_corpora
    from posir_train.examples import (
        build_targets,
        merge_corpora,
        read_examples,
        tokenize_examples,
        write_examples,
    )

    options = {"kind": kind, "tokens": tokens, "positions": positions}
    compose_settings = load_settings(
        ComposeSettings, Path(config) if config else None, settings, options
    )
    if compose_settings.kind == "needles" and (tokens or positions):
        raise PosirError(
            "kind needles: tokens and positions do not apply, since needles have ten positions for "
            "each length. Omit both, and set lengths with --set lengths=[128,1024]."
        )
    targets = build_targets(language, domain, Path(output), compose_settings.domain_numbers)
    tokenizer = load_tokenizer(compose_settings.tokenizer)
    dataset = open_data(data, language=language).select_questions("posir compose")
    sources = tokenize_examples(merge_corpora(read_examples(dataset)), tokenizer)
    corpora, skip_counts = compose_corpora(sources, compose_settings, language, tokenizer)
    reasons = "; ".join(f"{reason}: {count:,}" for reason, count in skip_counts.most_common())
    if not corpora[0]:
        raise PosirError(
            f"{data}: no question can be composed ({reasons}). Choose another length, or longer "
            "documents."
        )
    rows = []
    lines = []
    for target, examples in zip(targets, corpora, strict=True):
        write_examples(examples, (), target, tokenizer)
        rows.append({"folder": str(target.folder), "questions": len(examples)})
        lines.append(f"{target.folder}: {pluralize(len(examples), 'question')}")
    if skip_counts:
        lines.append(f"skipped: {pluralize(skip_counts.total(), 'question')} ({reasons})")
    return Result(
        title=f"Documents composed from {data}",
        rows=rows,
        values={"corpora": rows, "skipped": skip_counts},
        footer=lines,
    )
