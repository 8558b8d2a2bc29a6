"""`posir.build`: all stages, the dataset, and the report on what each stage kept; the check of its
questions by people.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from posir_build import dataset_files, stage_report
from posir_build import translation_ratings as ratings
from posir_build.balance import CELLS, find_needed_questions
from posir_build.cluster import StartEngine
from posir_build.estimate import (
    REASON_TOKENS,
    add_reranker_seconds,
    add_up,
    describe_plan,
    estimate_stages,
)
from posir_build.pipeline import (
    STAGE_NAMES,
    Tools,
    locked,
    rows_as_records,
    run_stages,
    settings_record,
    write_results,
)
from posir_build.records import LOG_FILE
from posir_build.sample import check_source
from posir_build.settings import BuildSettings
from posir_build.verify import (
    MarginPool,
    MarginRange,
    audit_ranges,
    count_pools,
    list_checked,
    summarize_audit,
)
from posir_run.api import EngineName, choose_engine
from posir_run.worker import Settings
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import write_text
from posir_tasks.base.progress import track
from posir_tasks.base.public import Option, public, to_list
from posir_tasks.base.settings_file import load_settings
from posir_tasks.base.wording import pluralize
from posir_tasks.data.posir import Target
from posir_tasks.display.presentation import Presentable, Result, to_paragraphs
from posir_tasks.display.tables import DisplaySection, Table, to_markdown
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.call_log import CallLog, Usage
from posir_tasks.language_models.settings import compute_cost, format_cost
from posir_tasks.models.references import ModelReference
from posir_tasks.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure


@public(settings="posir_build.settings:BuildSettings")
def build(
    config: str | Path | None = None,
    *,
    stage: str | None = None,
    plan: bool = False,
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
    loaded = load_settings(BuildSettings, Path(config) if config is not None else None, settings)
    start_engine = (
        choose_engine(engine, address, Settings({"batch_size": 32}))
        if engine == "ray" or address
        else None
    )
    if stage is not None and stage not in STAGE_NAMES:
        raise PosirError(f"--stage {stage}: no such stage. Stages: {', '.join(STAGE_NAMES)}.")
    return _plan_build(loaded) if plan else _run_build(loaded, stage, start_engine)


def _plan_build(settings: BuildSettings) -> Result:
    """Return what the stages take at most; Sample is run for that, and what has been answered is
    counted.
    """
    check_build(settings, complete=False)
    with locked(settings.work_folder):
        tools = Tools(settings)
        results = run_stages(
            tools, "ask" if settings.ask.method == "given" else "sample"
        ) | run_stages(tools, None)
        estimates = estimate_stages(settings, results)
        wanted = {
            "verify": settings.verify.rerankers,
            "false-negatives": settings.false_negatives.rerankers,
        }
        if any(wanted.values()):
            with track("Time the rerankers"):
                opened = {stage: tools.rerankers(rerankers) for stage, rerankers in wanted.items()}
                estimates = add_reranker_seconds(estimates, opened, results["sample"].documents)
    sampled = [f"sample: {note}" for note in results["sample"].notes]
    answered = [f"Answered before, and not paid again: {usage}" for usage in describe_usage(tools)]
    return describe_plan(estimates, settings.list_llms(), [*sampled, *answered])


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
        posir_tasks.base.errors.DataError: translations: mine: have no language in common other ...
    """
    loaded = load_settings(
        ratings.RatingSettings, Path(config) if config is not None else None, settings
    )
    count_tokens = load_tokenizer(loaded.tokenizer).count
    translations, notes = ratings.sample_translations(loaded, count_tokens)
    if sheets is not None:
        files = [
            str(file)
            for file in ratings.write_rating_sheets(Path(sheets), translations, loaded.seed)
        ]
        return Result(
            title="Sheets", rows=[{"file": file} for file in files], tables=[], footer=files
        )
    if plan:
        tokens = sum(count_tokens(row.original) + count_tokens(row.text) for row in translations)
        calls = (ratings.RATE_TRANSLATION, len(translations), tokens, REASON_TOKENS)
        return describe_plan(
            [add_up("rate translations", [loaded.llm], [calls])], [loaded.llm], notes
        )
    given = to_list(people)
    with locked(loaded.work):
        return _judge_sample(loaded, translations, notes, [Path(sheet) for sheet in given])


def _judge_sample(
    settings: ratings.RatingSettings,
    translations: list[ratings.Translation],
    short: list[str],
    sheets: Sequence[Path],
) -> Result:
    people = {sheet: ratings.read_rating_sheet(sheet, translations) for sheet in sheets}
    judged, problems = ratings.ask_judge(
        translations, settings, LanguageModel(settings.llm, CallLog(settings.work / LOG_FILE))
    )
    rated = [row for rows, _ in people.values() for row in rows]
    scores = [*ratings.score_ratings("judge", judged), *ratings.score_ratings("people", rated)]
    agreement = ratings.compare_ratings(rated, judged)
    notes = [*short, *(f"not rated: {problem}: {number:,}" for problem, number in problems.items())]
    notes += [
        f"{sheet}: rows of no translation here: {unknown:,}"
        for sheet, (_, unknown) in people.items()
        if unknown
    ]

    def draw() -> Sequence[Figure]:
        from posir_build.rating_charts import build_rating_figures

        return build_rating_figures(scores, agreement)

    return Result(
        title="Ratings of translations",
        rows=[
            asdict(score) | {"mean": score.mean, "counts": json.dumps(score.counts)}
            for score in scores
        ],
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
    """Raise PosirError if documents or a folder cannot be used; of a complete build, also a
    reranker, the embedder or the PSI.

    A build must not write among its documents: it would read its own report and dataset card as
    documents.
    """
    documents = Path(settings.documents).expanduser()
    for name, folder in (
        ("work", settings.work_folder),
        *(("output", output) for output in settings.outputs()),
    ):
        if documents.is_dir() and folder.resolve().is_relative_to(documents.resolve()):
            raise PosirError(
                f"{name}: {folder}: is in the folder of the documents, {settings.documents}; its "
                "text files would be read "
                f"as documents. Set `{name}` to a folder outside, or move the documents to a "
                "folder of their own."
            )
    check_source(settings)
    if not complete:
        return
    for output in settings.outputs():
        _check_output(settings, output)
    find_needed_questions(settings.balance)
    search = settings.false_negatives
    models = {
        row.reference
        for row in (*settings.verify.rerankers, *(search.rerankers if search.embedder else ()))
    }
    embedders = ((settings.ask.persona_embedder, None), (search.embedder, search.revision))
    models |= {ModelReference(name, revision) for name, revision in embedders if name is not None}
    if models:
        from posir_tasks.models.registry import find_model

        for model in sorted(models, key=lambda model: model.name):
            find_model(model)


def _check_output(settings: BuildSettings, output: Path) -> None:
    parent = next(folder for folder in (output, *output.absolute().parents) if folder.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise PosirError(
            f"output: {output}: cannot be written, since {parent} is no writable folder. Set "
            "another `output`."
        )
    constructions, wanted = dataset_files.read_constructions(output), settings_record(settings)
    for language in (settings.language, *settings.translate.languages):
        folder = Target(language, settings.domain, output).folder
        before = constructions.get(f"{language}/{settings.domain}", {}).get("settings")
        if folder.exists() and before != wanted:
            changed = [
                name for name, value in wanted.items() if before and before.get(name) != value
            ]
            reason = (
                f"was built with other settings ({', '.join(changed)})"
                if before
                else "is not of `posir build`"
            )
            raise PosirError(
                f"{folder}: already exists, and {reason}. Remove it, or set another `output` or "
                "`domain`; answered calls are "
                "saved, and are not paid again."
            )


@dataclass(frozen=True, repr=False, kw_only=True)
class BuildReport(Presentable):
    """Counts of what each stage of a build kept, and the folders of the dataset."""

    title: str = ""
    rows: tuple[stage_report.StageRow, ...]
    """A row for each stage, each check of Verify, and each translation."""
    pools: tuple[MarginPool, ...]
    """Questions with at least some margin of the rerankers."""
    ranges: tuple[MarginRange, ...]
    """Rates of the audit by range of margins."""
    notes: tuple[str, ...]
    """Remarks of the stages, and the cost of the calls of language models."""
    datasets: Mapping[Path, int]
    """Number of questions in each folder that was written; empty unless all stages were run."""
    folder: Path
    """The work folder: calls, intermediate results and `report.md`."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of margins and audit, if there are any, of the reasons for discarding, and of
        the stages.
        """
        return (
            *stage_report.build_margin_tables(self.pools, self.ranges),
            *stage_report.build_tables(self.rows, self.notes),
        )

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return what is kept in a sentence, then the tables."""
        return (
            *to_paragraphs(stage_report.describe_kept(self.rows)),
            DisplaySection(tables=self.tables),
        )

    def closing(self) -> list[str]:
        """Return the folders of the dataset with their numbers of questions."""
        return [
            f"{folder}: {pluralize(questions, 'question')}"
            for folder, questions in self.datasets.items()
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each of `rows`, with its reasons as JSON."""
        return [row | {"reasons": json.dumps(row["reasons"])} for row in rows_as_records(self.rows)]

    def document(self) -> dict[str, Any]:
        """Return stages, margins, audit and notes."""
        return {
            "stages": rows_as_records(self.rows),
            "margins": self.pools,
            "audit": self.ranges,
            "notes": self.notes,
        }


def _run_build(
    settings: BuildSettings, stage: str | None, start_engine: StartEngine | None
) -> BuildReport:
    check_build(settings, complete=stage is None)
    with locked(settings.work_folder):
        tools = Tools(settings, start_engine)
        results = run_stages(tools, stage or STAGE_NAMES[-1])
        datasets, translated, repairs = (
            write_results(tools, results) if stage is None else ({}, [], [])
        )
        notes = [
            f"{name}: {note}" for name, result in results.items() for note in result.notes
        ] + repairs
        verified = results.get("verify")
        checked = list_checked(verified) if verified else []
        if verified:
            notes += stage_report.describe_lost_documents(verified)
            notes += stage_report.describe_audit(summarize_audit(verified.questions))
        report = BuildReport(
            title=f"Build of {settings.domain}",
            rows=(*stage_report.build_stage_rows(results, settings), *translated),
            pools=tuple(count_pools(checked, results["sample"].documents, settings.verify.margins)),
            ranges=tuple(audit_ranges(checked, settings.verify.margins)),
            notes=(*notes, *describe_usage(tools)),
            datasets=datasets,
            folder=settings.work_folder,
        )
        write_text(report.folder / "report.md", "\n\n".join(map(to_markdown, report.tables)))
    return report


def describe_usage(tools: Tools) -> list[str]:
    """Return what has been paid so far: by model and prompt, and in total for each language model
    of the build.
    """
    prices, usage = {llm.model: llm.prices for llm in tools.settings.list_llms()}, tools.log.usage()
    for llm in prices:
        own = [astuple(used) for (model, _), used in usage.items() if model == llm]
        if len(own) > 1:
            usage[llm, "total"] = Usage(*map(sum, zip(*own, strict=True)))
    described = []
    for (model, prompt), used in usage.items():
        cost = (
            compute_cost(prices[model], used.input_tokens, used.output_tokens)
            if model in prices
            else 0
        )
        price = f", {format_cost(cost, prices[model].currency)}" if cost else ""
        described.append(
            f"{model}, {prompt}: {pluralize(used.calls, 'call')}, {used.input_tokens:,} input "
            "tokens, "
            f"{used.output_tokens:,} output tokens{price}"
        )
    return described


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
    loaded = load_settings(BuildSettings, Path(config) if config is not None else None, settings)
    with locked(loaded.work_folder):
        results = run_stages(Tools(loaded), None)
    if STAGE_NAMES[-1] not in results:
        raise PosirError(
            f"{loaded.work_folder}: the build is not finished, or its settings have changed. Run "
            "it first."
        )
    file = Path(output) if output else loaded.work_folder / "human-check.csv"
    if file.exists():
        raise PosirError(
            f"{file}: already exists, and may have judgments. Remove it, or choose another "
            "--output."
        )
    result = results[STAGE_NAMES[-1]]
    questions = dataset_files.choose_questions(
        result, number, loaded.seed, CELLS[loaded.balance.cells]
    )
    dataset_files.write_sheet(file, result, questions)
    rows = [{"question": question.text, "document": question.document} for question in questions]
    return Result(
        title=str(file),
        tables=(),
        rows=rows,
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
    counted = dataset_files.count_agreement(judgments)
    if data is not None:
        judged = {name for sheet in judgments for name, given in sheet.items() if given}
        dataset_files.record_human_check(Path(data), counted, judged)
    return Result(
        title="Agreement", tables=[dataset_files.build_agreement_table(counted)], rows=counted
    )
