"""Public functions of this package: `posir.build`, the human check of its questions, and
translation ratings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from posir_build import dataset_files, stage_report
from posir_build import translation_ratings as ratings
from posir_build.balance import CELLS, find_min_questions
from posir_build.estimate import (
    REASON_TOKENS,
    describe_plan,
    estimate_calls,
    estimate_cost,
    estimate_stages,
)
from posir_build.pipeline import (
    BuildContext,
    dump_dataset_settings,
    lock,
    run_stages,
    write_results,
)
from posir_build.records import LOG_FILE, StageResult
from posir_build.sample import check_source
from posir_build.settings import STAGE_NAMES, BuildSettings, PromptSet, StageName
from posir_build.verify import count_pools, summarize_audit_ranges
from posir_run.api import EngineName, choose_engine
from posir_run.worker import Settings
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import check_writable, write_text
from posir_tasks.base.public import Option, public, to_list
from posir_tasks.base.settings_file import load_settings
from posir_tasks.base.wording import pluralize
from posir_tasks.data.posir import Target
from posir_tasks.display.presentation import Result
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.call_log import CallLog, Usage
from posir_tasks.language_models.settings import compute_cost, format_cost
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import find_model
from posir_tasks.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure


@public(settings="posir_build.settings:BuildSettings")
def build(
    config: str | Path | None = None,
    *,
    stage: StageName | None = None,
    plan: bool = False,
    prompts: PromptSet | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    **settings: Any,
) -> BuildReport | Result:
    """Build a position-controlled dataset of questions about documents, or resume a build.

    Saved answers are reused, and stages with unchanged inputs are skipped. The dataset is written
    after the last stage. `report.md` in the work folder lists the counts of each stage.

    Args:
        config: YAML file with settings. Settings passed by name take precedence; sections are
            merged field by field.
        stage: Last stage to run.
        plan: Estimate calls, tokens and cost without sending anything to a language model.
        prompts: Prompt set: `posir` (the default), or `posq` with the inputs, outputs and relevance
            scale of PosQ, for `ask.method: chunk`.
        engine: Where rerankers and the embedding model run: this machine or a Ray cluster.
        address: Address of the Ray cluster, or `auto`; by default, Ray is started on this machine.
        settings: Settings by name. `documents`, `output`, `language`, `domain` and `llm` are
            required. Sections are mappings, such as `ask={"questions": 5}`. Prices are per million
            tokens. Document lengths are in tokens, words or characters (`sample={"unit": ...}`).
            `posir build run --settings-help` lists all settings.

    Returns:
        For each stage and check: the number of documents or questions before and after it, the
        share kept and the published share, in [0, 1], and the number of discarded items by reason.
        Also `datasets`, the number of questions by folder; `folder`, with the call log and the
        report; and `notes`, with the cost of the calls. With `plan`, the maximum cost of each
        stage.

    Raises:
        PosirError: A setting is invalid; documents, a folder or a model cannot be used; `output`
            contains a dataset built with other settings; no questions remain after a stage; or the
            budget is exhausted.

    Examples:
        >>> import posir
        >>> options = {"language": "eng-Latn", "domain": "harbour", "output": "data/harbour"}
        >>> options["sample"] = {"lengths": "any"}
        >>> report = posir.build(documents="texts", **options, llm={"model": "my-llm"})
        >>> [row.stage for row in report.rows][:3], report.datasets.keys()
        (['sample', 'ask', 'locate'], dict_keys([PosixPath('data/harbour/eng-Latn/harbour')]))
    """
    options = {"prompts": prompts}
    build_settings = load_settings(
        BuildSettings, Path(config) if config else None, settings, options
    )
    start_engine = choose_engine(engine, address, Settings({"batch_size": 32}))
    check_build(build_settings, complete=stage is None and not plan)
    with lock(build_settings.work_folder):
        if plan:
            return _plan_build(BuildContext(build_settings))
        context = BuildContext(build_settings, None if engine == "local" else start_engine)
        results = run_stages(context, stage or STAGE_NAMES[-1])
        datasets, translations = write_results(context, results) if stage is None else ({}, [])
        report = _build_report(context, results, datasets, translations)
        write_text(report.folder / "report.md", report.to_markdown())
        return report


def _plan_build(context: BuildContext) -> Result:
    """Estimate the maximum cost of each stage from the sample and the saved results."""
    settings = context.settings
    last = "ask" if settings.ask.method == "given" else "sample"
    results = run_stages(context, last) | run_stages(context, None)
    notes = [f"sample: {note}" for note in results["sample"].notes]
    notes += [f"Already answered, not charged again: {line}" for line in describe_usage(context)]
    return describe_plan(estimate_stages(settings, results), settings.list_llms(), notes)


@public(charts=True, settings="posir_build.translation_ratings:RatingSettings")
def rate_translations(
    config: str | Path | None = None,
    *,
    plan: bool = False,
    sheets: str | Path | None = None,
    people: str | Path | Iterable[str | Path] | None = None,
    **settings: Any,
) -> Result:
    """Rate the fluency, accuracy, completeness and style of translations from 1 to 5 with a
    language model as the judge, on a sample stratified by domain and length.

    The data must contain the same document ids in several languages, as in the datasets of `posir
    build` and in PosIR. All translation systems are rated on the same documents.

    Args:
        config: YAML file with settings. Settings passed by name take precedence; sections are
            merged field by field.
        plan: Estimate calls, tokens and cost without sending anything to a language model.
        sheets: Folder to write sheets for human raters to, one per language, without system
            names; the judge is not called.
        people: Sheets filled in by human raters, to report their agreement with the judge.
        settings: Settings by name. `source`, `translations` and `llm` are required;
            `posir study rate-translations --settings-help` lists all settings.

    Returns:
        The mean rating by system, language and scale, from 1 to 5, with 95% intervals for new
        documents. With `plan`, the cost.

    Raises:
        PosirError: A setting is invalid; data, a sheet or the judge cannot be used.

    Examples:
        >>> import posir
        >>> translations = {"mine": "PosIR-Mini"}
        >>> llm = {"model": "my-llm"}
        >>> posir.rate_translations(source="PosIR-Mini", translations=translations, llm=llm)
        Traceback (most recent call last):
        posir_tasks.base.errors.DataError: translations: mine: these systems and the originals ...
    """
    rating_settings = load_settings(
        ratings.RatingSettings, Path(config) if config else None, settings
    )
    count_tokens = load_tokenizer(rating_settings.tokenizer).count
    translations, notes = ratings.sample_translations(rating_settings, count_tokens)
    if sheets is not None:
        files = ratings.write_rating_sheets(Path(sheets), translations, rating_settings.seed)
        names = list(map(str, files))
        return Result(title="Sheets", rows=[{"file": name} for name in names], footer=names)
    if plan:
        llms = [rating_settings.llm]
        token_count = sum(
            count_tokens(row.original) + count_tokens(row.text) for row in translations
        )
        usage = estimate_calls(
            ratings.RATE_TRANSLATION, len(translations), token_count, REASON_TOKENS
        )
        return describe_plan([estimate_cost("rate translations", llms, usage)], llms, notes)
    with lock(rating_settings.work):
        return _judge_sample(rating_settings, translations, notes, list(map(Path, to_list(people))))


def _judge_sample(
    settings: ratings.RatingSettings,
    translations: list[ratings.Translation],
    notes: list[str],
    sheets: Sequence[Path],
) -> Result:
    model = LanguageModel(settings.llm, CallLog(settings.work / LOG_FILE))
    judge, faults = ratings.ask_judge(translations, settings, model)
    notes += [f"not rated: {fault}: {count:,}" for fault, count in faults.items()]
    people: list[ratings.RatedTranslation] = []
    for sheet in sheets:
        sheet_ratings, unknown = ratings.read_rating_sheet(sheet, translations)
        people += sheet_ratings
        if unknown:
            notes.append(f"{sheet}: rows for other translations: {unknown:,}")
    scores = [*ratings.score_ratings("judge", judge), *ratings.score_ratings("people", people)]
    agreement = ratings.compare_ratings(people, judge)

    def draw() -> Sequence[Figure]:
        from posir_build.rating_charts import build_rating_figures

        return build_rating_figures(scores, agreement)

    return Result(
        title="Ratings of translations",
        rows=[vars(score) | {"counts": json.dumps(score.counts)} for score in scores],
        tables=ratings.build_rating_tables(scores, agreement, notes),
        values={
            "translations": len(translations),
            "scores": scores,
            "agreement": agreement,
            "notes": notes,
        },
        draw=draw,
    )


def check_build(settings: BuildSettings, *, complete: bool = True) -> None:
    """Raise PosirError if the documents or an output folder cannot be used. For a complete build,
    also check the rerankers, the embedding models and the position effect.

    Output folders must be outside the documents folder, or the build would read its own report and
    dataset card as documents.
    """
    documents = Path(settings.documents).expanduser().resolve()
    outputs = [settings.output]
    if settings.balance.held_out:
        outputs.append(settings.held_out_folder)
    for folder in (settings.work_folder, *outputs):
        if documents.is_dir() and folder.resolve().is_relative_to(documents):
            raise PosirError(
                f"{folder}: is inside the documents folder, {settings.documents}; its text files "
                "would be read as documents. Set `work` and `output` to folders outside it."
            )
    check_source(settings)
    if not complete:
        return
    for output in outputs:
        check_writable(output)
        _check_output(settings, output)
    find_min_questions(settings.balance)
    search = settings.false_negatives
    models = [row.reference for row in (*settings.verify.rerankers, *search.rerankers)]
    if search.embedder:
        models.append(ModelReference(search.embedder, search.revision))
    if settings.ask.persona_embedder:
        models.append(ModelReference(settings.ask.persona_embedder))
    for model in models:
        find_model(model)


def _check_output(settings: BuildSettings, output: Path) -> None:
    constructions = dataset_files.read_constructions(output)
    current_settings = dump_dataset_settings(settings)
    for language in (settings.language, *settings.translate.languages):
        folder = Target(language, settings.domain, output).folder
        construction = constructions.get(f"{language}/{settings.domain}")
        previous = construction["settings"] if construction else {}
        if not folder.exists() or previous == current_settings:
            continue
        changes = ", ".join(
            name for name, value in current_settings.items() if previous.get(name) != value
        )
        reason = f"was built with other settings ({changes})" if previous else "contains other data"
        raise PosirError(
            f"{folder}: already exists, and {reason}. Remove it, or set another `output` or "
            "`domain`; saved answers are reused at no cost."
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class BuildReport(Result):
    """Counts of each build stage, and the dataset folders."""

    rows: Sequence[stage_report.StageRow]
    """Rows for stages, Verify checks and translations."""
    datasets: Mapping[Path, int]
    """Number of questions by folder; empty unless all stages were run."""
    folder: Path
    """The work folder, with calls, intermediate results and `report.md`."""

    def records(self) -> list[dict[str, Any]]:
        """List the rows, with the counts by reason as JSON."""
        return [row.to_record() | {"reasons": json.dumps(row.reasons)} for row in self.rows]


def _build_report(
    context: BuildContext,
    results: Mapping[str, StageResult],
    datasets: Mapping[Path, int],
    translations: Sequence[stage_report.StageRow],
) -> BuildReport:
    rows = [*stage_report.build_stage_rows(results), *translations]
    notes = [f"{name}: {note}" for name, result in results.items() for note in result.notes]
    verified = results.get("verify", StageResult(()))
    notes += stage_report.describe_lost_documents(verified)
    notes += describe_usage(context)
    pools = count_pools(verified, context.settings.verify.margins)
    ranges = summarize_audit_ranges(verified, context.settings.verify.margins)
    return BuildReport(
        title=f"Build of {context.settings.domain}",
        rows=rows,
        datasets=datasets,
        folder=context.settings.work_folder,
        tables=[
            *stage_report.build_margin_tables(pools, ranges),
            *stage_report.build_stage_tables(rows, notes),
        ],
        values={
            "stages": [row.to_record() for row in rows],
            "margins": pools,
            "audit": ranges,
            "notes": notes,
        },
        footer=[
            f"{folder}: {pluralize(questions, 'question')}"
            for folder, questions in datasets.items()
        ],
    )


def describe_usage(context: BuildContext) -> list[str]:
    """Describe the calls, tokens and cost so far, by model and prompt, plus a total per model."""
    prices = {llm.model: llm.prices for llm in context.settings.list_llms()}
    usage_by_prompt = context.log.load_usage()
    for name in prices:
        model_usage = [usage for (model, _), usage in usage_by_prompt.items() if model == name]
        if len(model_usage) > 1:
            usage_by_prompt[name, "total"] = sum(model_usage, Usage())
    lines = []
    for (model, prompt), usage in usage_by_prompt.items():
        line = (
            f"{model}, {prompt}: {pluralize(usage.calls, 'call')}, {usage.input_tokens:,} input "
            f"tokens, {usage.output_tokens:,} output tokens"
        )
        model_prices = prices.get(model)
        if model_prices and model_prices.is_set:
            cost = compute_cost(model_prices, usage.input_tokens, usage.output_tokens)
            line += f", {format_cost(cost, model_prices.currency)}"
        lines.append(line)
    return lines


@public(settings="posir_build.settings:BuildSettings")
def build_sample(
    number: Annotated[int, Option(min=1, metavar="N")],
    config: str | Path | None = None,
    *,
    output: str | Path | None = None,
    **settings: Any,
) -> Result:
    """Write a sheet for a human check: question, document with marked span, verdicts, and columns
    to answer with yes or no.

    The questions are sampled at random from a finished build, about the same number from each cell
    of length and position.

    Args:
        number: Number of questions.
        config: YAML file with settings. Settings passed by name take precedence; sections are
            merged field by field.
        output: CSV file; by default human-check.csv in the work folder.
        settings: Build settings by name.

    Returns:
        The questions in the sheet, one row each.

    Raises:
        PosirError: The build is not finished, its settings have changed, or the sheet exists.

    Examples:
        >>> import posir
        >>> posir.build_sample(30, "notes.yaml")  # doctest: +SKIP
    """
    build_settings = load_settings(BuildSettings, Path(config) if config else None, settings)
    work_folder = build_settings.work_folder
    with lock(work_folder):
        result = run_stages(BuildContext(build_settings), None).get(STAGE_NAMES[-1])
    if result is None:
        raise PosirError(
            f"{work_folder}: the build is not finished, or its settings have changed. Run "
            "`posir build run` with these settings first."
        )
    file = Path(output) if output else work_folder / "human-check.csv"
    dataset_files.raise_if_exists(file)
    scheme = CELLS[build_settings.balance.cells]
    questions = dataset_files.sample_questions(result, number, build_settings.seed, scheme)
    dataset_files.write_sheet(file, result, questions)
    return Result(
        title=str(file),
        rows=[{"question": row.text, "document": row.document} for row in questions],
        footer=(f"{file}: {pluralize(len(questions), 'question')}",),
    )


@public()
def build_agreement(
    sheets: str | Path | Iterable[str | Path], *, data: str | Path | None = None
) -> Result:
    """Summarize human judgments: the share of questions judged correct, with a 95% interval.

    Args:
        sheets: Sheets with judgments, one per person.
        data: Domain folder, such as data/NAME/eng-Latn/notes, to add the agreement to its dataset
            card.

    Returns:
        A row for each judgment, with the share of "yes" in [0, 1].

    Raises:
        PosirError: A sheet is given twice, cannot be read, or contains no judgments; or the domain
            folder contains no built dataset.

    Examples:
        >>> import posir
        >>> posir.build_agreement("notes-build/human-check.csv")  # doctest: +SKIP
    """
    files = [Path(sheet) for sheet in to_list(sheets)]
    if len({sheet.resolve() for sheet in files}) < len(files):
        raise PosirError("a sheet is given twice. Give one sheet per person.")
    judgments = [dataset_files.read_judgments(sheet) for sheet in files]
    agreement = dataset_files.count_agreement(judgments)
    if data is not None:
        judged_ids = {name for sheet in judgments for name, row in sheet.items() if row}
        dataset_files.record_human_check(Path(data), agreement, judged_ids)
    table = dataset_files.build_agreement_table(agreement)
    return Result(title="Agreement", tables=[table], rows=agreement)
