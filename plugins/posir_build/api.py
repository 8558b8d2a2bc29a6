"""`posir.build`: all stages, the dataset, and the report on what each stage kept; the check of its
questions by people.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from posir_build import dataset_files, stage_report
from posir_build import translation_ratings as ratings
from posir_build.balance import CELLS, find_needed_questions
from posir_build.estimate import (
    REASON_TOKENS,
    describe_plan,
    estimate_calls,
    estimate_stages,
    price,
)
from posir_build.pipeline import (
    Tools,
    locked,
    run_stages,
    settings_record,
    write_results,
)
from posir_build.records import LOG_FILE, StageResult
from posir_build.sample import check_source
from posir_build.settings import STAGE_NAMES, BuildSettings, PromptSet
from posir_build.verify import MarginPool, MarginRange, audit_ranges, count_pools
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
    stage: str | None = None,
    plan: bool = False,
    prompts: PromptSet | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    **settings: Any,
) -> BuildReport | Result:
    """Build a dataset of questions about documents, controlled for the position of the evidence, or
    continue to.

    What has been answered is not asked again, and stages that nothing changed for are not run. The
    dataset is written once all stages are done. `report.md` in the work folder says what each stage
    kept.

    Args:
        config: YAML file with settings; further ones take precedence, in sections field by field.
        stage: Run up to this stage only: `sample`, `ask`, `locate`, `verify`, `false-negatives` or
            `balance`.
        plan: Estimate calls, tokens and cost; nothing is sent to a language model.
        prompts: `posq` has the inputs, outputs and scale of relevance of PosQ, for `ask.method:
            chunk`; by default those of posir.
        engine: This machine, or a Ray cluster, on whose machines rerankers and the embedder run.
        address: Address of the Ray cluster, or `auto`; by default Ray starts on this machine.
        settings: Settings by name: `documents`, `output`, `language`, `domain` and `llm` are
            required, of sections as a mapping, such as `ask={"questions": 5}`. Prices are for a
            million tokens; lengths of documents in tokens, words or characters (`sample={"unit":
            ...}`); `posir build run --settings-help` lists them all.

    Returns:
        For each stage and each check the number of documents or questions taken and kept, the share
        kept and the one that a paper reports, in [0, 1], and how many were discarded for which
        reason; `datasets`, the number of questions by folder; `folder` of calls and report;
        `notes`, with the cost of the calls. Of a plan, the highest cost of each stage.

    Raises:
        PosirError: A setting is wrong; documents, a folder or a model cannot be used; a dataset of
            other settings is in `output`; no question is left after a stage; or the budget is
            spent.

    Examples:
        >>> import posir
        >>> names = {"language": "eng-Latn", "domain": "harbour", "output": "data/harbour"}
        >>> names["sample"] = {"lengths": "any"}
        >>> report = posir.build(documents="texts", **names, llm={"model": "my-llm"})
        >>> [row.stage for row in report.rows][:3], report.datasets.keys()
        (['sample', 'ask', 'locate'], dict_keys([PosixPath('data/harbour/eng-Latn/harbour')]))
    """
    options = {"--prompts": prompts}
    loaded = load_settings(BuildSettings, Path(config) if config else None, settings, options)
    start_engine = choose_engine(engine, address, Settings({"batch_size": 32}))
    if stage is not None and stage not in STAGE_NAMES:
        raise PosirError(f"--stage {stage}: no such stage. Stages: {', '.join(STAGE_NAMES)}.")
    check_build(loaded, complete=stage is None and not plan)
    with locked(loaded.work_folder):
        if plan:
            return _plan_build(Tools(loaded))
        tools = Tools(loaded, None if engine == "local" else start_engine)
        results = run_stages(tools, stage or STAGE_NAMES[-1])
        datasets, translations = write_results(tools, results) if stage is None else ({}, [])
        report = _build_report(tools, results, datasets, translations)
        write_text(report.folder / "report.md", report.to_markdown())
        return report


def _plan_build(tools: Tools) -> Result:
    """Estimate what the stages take at most; Sample is run for that, and answered calls are
    counted.
    """
    settings = tools.settings
    last = "ask" if settings.ask.method == "given" else "sample"
    results = run_stages(tools, last) | run_stages(tools, None)
    notes = [f"sample: {note}" for note in results["sample"].notes]
    notes += [f"Answered before, and not paid again: {usage}" for usage in describe_usage(tools)]
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
    """Rate translations: a judge rates the fluency, accuracy, completeness and style of a sample by
    domain and length, 1 to 5.

    Any data with the same document ids in several languages will do, such as what `posir build`
    writes, and PosIR itself. Several translation systems are rated on the same documents.

    Args:
        config: YAML file with settings; further ones take precedence, in sections field by field.
        plan: Estimate calls, tokens and cost; nothing is sent to a language model.
        sheets: Write a sheet for people into this folder, one per language, and end; the system is
            not named there.
        people: Sheet with a person's ratings. Agreement is printed, too.
        settings: Settings by name: `source`, `translations` and `llm` are required;
            `posir study rate-translations --settings-help` lists them all.

    Returns:
        The mean rating by system, language and scale, 1 to 5, with 95% intervals for new documents;
        of a plan, the cost.

    Raises:
        PosirError: A setting is wrong; data, a sheet or the judge cannot be used.

    Examples:
        >>> import posir
        >>> translations = {"mine": "PosIR-Mini"}
        >>> llm = {"model": "my-llm"}
        >>> posir.rate_translations(source="PosIR-Mini", translations=translations, llm=llm)
        Traceback (most recent call last):
        posir_tasks.base.errors.DataError: translations: mine: not all of them have a domain and ...
    """
    loaded = load_settings(ratings.RatingSettings, Path(config) if config else None, settings)
    count_tokens = load_tokenizer(loaded.tokenizer).count
    translations, notes = ratings.sample_translations(loaded, count_tokens)
    if sheets is not None:
        files = ratings.write_rating_sheets(Path(sheets), translations, loaded.seed)
        names = list(map(str, files))
        return Result(title="Sheets", rows=[{"file": name} for name in names], footer=names)
    if plan:
        tokens = sum(count_tokens(row.original) + count_tokens(row.text) for row in translations)
        calls = estimate_calls(ratings.RATE_TRANSLATION, len(translations), tokens, REASON_TOKENS)
        return describe_plan([price("rate translations", [loaded.llm], calls)], [loaded.llm], notes)
    with locked(loaded.work):
        return _judge_sample(loaded, translations, notes, list(map(Path, to_list(people))))


def _judge_sample(
    settings: ratings.RatingSettings,
    translations: list[ratings.Translation],
    notes: list[str],
    sheets: Sequence[Path],
) -> Result:
    model = LanguageModel(settings.llm, CallLog(settings.work / LOG_FILE))
    judged, faults = ratings.ask_judge(translations, settings, model)
    notes += [f"not rated: {fault}: {number:,}" for fault, number in faults.items()]
    people: list[ratings.Rated] = []
    for sheet in sheets:
        rated, others = ratings.read_rating_sheet(sheet, translations)
        people += rated
        if others:
            notes.append(f"{sheet}: rows of other translations: {others:,}")
    scores = [*ratings.score_ratings("judge", judged), *ratings.score_ratings("people", people)]
    agreement = ratings.compare_ratings(people, judged)

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
    """Raise PosirError if documents or a folder cannot be used; for a complete build, also if a
    reranker, the embedder or the position effect cannot.

    A build must not write among its documents: it would read its own report and dataset card as
    documents.
    """
    documents = Path(settings.documents).expanduser().resolve()
    outputs = [settings.output]
    if settings.balance.held_out:
        outputs.append(settings.held_out_folder)
    for folder in (settings.work_folder, *outputs):
        if documents.is_dir() and folder.resolve().is_relative_to(documents):
            raise PosirError(
                f"{folder}: is in the folder of the documents, {settings.documents}; its text "
                "files would be read as documents. Set `work` and `output` to folders outside."
            )
    check_source(settings)
    if not complete:
        return
    for output in outputs:
        check_writable(output)
        _check_output(settings, output)
    find_needed_questions(settings.balance)
    search = settings.false_negatives
    models = {row.reference for row in (*settings.verify.rerankers, *search.rerankers)}
    if search.embedder:
        models.add(ModelReference(search.embedder, search.revision))
    if settings.ask.persona_embedder:
        models.add(ModelReference(settings.ask.persona_embedder))
    for model in sorted(models, key=attrgetter("name")):
        find_model(model)


def _check_output(settings: BuildSettings, output: Path) -> None:
    constructions = dataset_files.read_constructions(output)
    record = settings_record(settings)
    for language in (settings.language, *settings.translate.languages):
        folder = Target(language, settings.domain, output).folder
        construction = constructions.get(f"{language}/{settings.domain}")
        before = construction["settings"] if construction else {}
        if not folder.exists() or before == record:
            continue
        changed = ", ".join(name for name in record if before.get(name) != record[name])
        reason = f"was built with other settings ({changed})" if before else "has other data"
        raise PosirError(
            f"{folder}: already exists, and {reason}. Remove it, or set another `output` or "
            "`domain`; answered calls are saved, and are not paid again."
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class BuildReport(Result):
    """Counts of what each stage of a build kept, and the folders of the dataset."""

    rows: Sequence[stage_report.StageRow]
    """A row for each stage, each check of Verify, and each translation."""
    datasets: Mapping[Path, int]
    """Number of questions in each folder that was written; empty unless all stages were run."""
    folder: Path
    """The work folder: calls, intermediate results and `report.md`."""

    def records(self) -> list[dict[str, Any]]:
        """List the rows, with their reasons as JSON."""
        return [row.to_record() | {"reasons": json.dumps(row.reasons)} for row in self.rows]


def _build_report(
    tools: Tools,
    results: Mapping[str, StageResult],
    datasets: Mapping[Path, int],
    translations: Sequence[stage_report.StageRow],
) -> BuildReport:
    rows = [*stage_report.build_stage_rows(results), *translations]
    notes = [f"{name}: {note}" for name, result in results.items() for note in result.notes]
    pools: Sequence[MarginPool] = ()
    ranges: Sequence[MarginRange] = ()
    verified = results.get("verify")
    if verified:
        notes += stage_report.describe_lost_documents(verified)
        pools = count_pools(verified, tools.settings.verify.margins)
        ranges = audit_ranges(verified, tools.settings.verify.margins)
    notes += describe_usage(tools)
    stages, *others = stage_report.build_stage_tables(rows)
    return BuildReport(
        title=f"Build of {tools.settings.domain}",
        rows=rows,
        datasets=datasets,
        folder=tools.settings.work_folder,
        tables=[
            *stage_report.build_margin_tables(pools, ranges),
            replace(stages, notes=tuple(notes)),
            *others,
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


def describe_usage(tools: Tools) -> list[str]:
    """Describe what has been paid so far: by model and prompt, and in total for each language model
    of the build.
    """
    prices = {llm.model: llm.prices for llm in tools.settings.list_llms()}
    usage = tools.log.usage()
    for name in prices:
        parts = [tokens for (model, _), tokens in usage.items() if model == name]
        if len(parts) > 1:
            usage[name, "total"] = sum(parts, Usage())
    lines = []
    for (model, prompt), tokens in usage.items():
        line = (
            f"{model}, {prompt}: {pluralize(tokens.calls, 'call')}, {tokens.input_tokens:,} input "
            f"tokens, {tokens.output_tokens:,} output tokens"
        )
        price_list = prices.get(model)
        if price_list and price_list.given:
            cost = compute_cost(price_list, tokens.input_tokens, tokens.output_tokens)
            line += f", {format_cost(cost, price_list.currency)}"
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
    """Write a sheet for a human check: question, document with the span marked, verdicts, and
    columns for yes or no.

    The questions are a random sample of a finished build, with about as many from each cell of
    length and position.

    Args:
        number: Number of questions.
        config: YAML file with settings; further ones take precedence, in sections field by field.
        output: CSV file; by default human-check.csv in the work folder.
        settings: Settings by name, as those of the build.

    Returns:
        The sheet; a row for each question.

    Raises:
        PosirError: The build is not finished, its settings have changed, or the sheet exists.

    Examples:
        >>> import posir
        >>> posir.build_sample(30, "notes.yaml")  # doctest: +SKIP
    """
    loaded = load_settings(BuildSettings, Path(config) if config else None, settings)
    with locked(loaded.work_folder):
        result = run_stages(Tools(loaded), None).get(STAGE_NAMES[-1])
    if result is None:
        raise PosirError(
            f"{loaded.work_folder}: the build is not finished, or its settings have changed. Run "
            "it first."
        )
    file = Path(output) if output else loaded.work_folder / "human-check.csv"
    dataset_files.refuse_overwrite(file)
    scheme = CELLS[loaded.balance.cells]
    questions = dataset_files.choose_questions(result, number, loaded.seed, scheme)
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
    """Read judgments back: how often people find a question right, with a 95% interval.

    Args:
        sheets: Sheets with judgments, one per person.
        data: Folder of the domain, such as data/NAME/eng-Latn/notes: put the agreement into its
            dataset card.

    Returns:
        A row for each kind of judgment: how often it is yes, in [0, 1].

    Raises:
        PosirError: A sheet is named twice, cannot be read, or has no judgments; or there is no such
            domain.

    Examples:
        >>> import posir
        >>> posir.build_agreement("notes-build/human-check.csv")  # doctest: +SKIP
    """
    files = [Path(sheet) for sheet in to_list(sheets)]
    if len({sheet.resolve() for sheet in files}) < len(files):
        raise PosirError("a sheet is named twice. Name one sheet per person.")
    judgments = [dataset_files.read_judgments(sheet) for sheet in files]
    agreement = dataset_files.count_agreement(judgments)
    if data is not None:
        judged = {name for sheet in judgments for name, row in sheet.items() if row}
        dataset_files.record_human_check(Path(data), agreement, judged)
    table = dataset_files.build_agreement_table(agreement)
    return Result(title="Agreement", tables=[table], rows=agreement)
