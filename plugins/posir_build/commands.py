"""`posir build`: from documents to a position-controlled dataset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from posir_run.run_command import Address, EngineName, EngineOption, choose_engine
from posir_run.worker import Settings
from posir_tasks.command.format_option import TableFormat
from posir_tasks.command.progress_option import with_progress
from posir_tasks.command.settings_options import Overrides, settings_help
from posir_tasks.display.presentation import present
from posir_tasks.display.progress import track
from posir_tasks.display.tables import OutputFormat, print_as
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.settings_file import load_settings

if TYPE_CHECKING:
    from posir_build.settings import BuildSettings
    from posir_build.translation_ratings import RatingSample, RatingSettings

#: How workers of a cluster load models.
WORKERS = Settings({"batch_size": 32})
#: The command that `posir build CONFIG.yaml` stands for.
DEFAULT = "run"

Config = Annotated[Path | None, typer.Argument(help="YAML file with the settings.", metavar="CONFIG.yaml")]


class DefaultGroup(TyperGroup):
    """A group of commands, of which one is meant if none is named: `posir build CONFIG.yaml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the default command if the first argument is none, and not a request for help."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=DefaultGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Build a dataset with questions about documents, controlled for the position of the evidence. "
    "`posir build CONFIG.yaml` runs all stages; `posir build run --help` lists the options.",
)


@app.command(DEFAULT)
@with_progress
def run_command(
    config: Config = None,
    overrides: Overrides = None,
    stage: Annotated[
        str | None,
        typer.Option(
            help="Run up to this stage only: sample, ask, locate, verify, false-negatives, balance. Default: all, and write."
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Estimate calls, tokens and cost; nothing is sent to a language model.")
    ] = False,
    engine: EngineOption = EngineName.LOCAL,
    address: Address = None,
    format_: TableFormat = OutputFormat.TEXT,
    _: Annotated[bool, settings_help("posir_build.settings:BuildSettings")] = False,
) -> None:
    """Run a build, or continue it: what has been answered is not asked again, and stages that nothing changed for are not run.

    With `--engine ray`, rerankers and the embedder run on all machines of a cluster, as in `posir run`.

    The dataset is written once all stages are done. `report.md` in the work folder says what each stage kept.
    """
    from posir_build.api import check_stage, run_build
    from posir_build.settings import BuildSettings

    settings = load_settings(BuildSettings, config, overrides or ())
    start_engine = choose_engine(engine, address, WORKERS) if engine is EngineName.RAY or address else None
    if plan:
        check_stage(stage)
        show_plan(settings, format_)
        return
    report = run_build(settings, stage=stage, start_engine=start_engine)
    present(report, format_)
    if format_ is OutputFormat.TEXT:
        for folder, questions in report.datasets.items():
            typer.echo(f"{folder}: {pluralize(questions, 'question')}")


@app.command("sample")
def sample_command(
    number: Annotated[int, typer.Argument(min=1, help="Number of questions.", metavar="N")],
    config: Config = None,
    overrides: Overrides = None,
    output: Annotated[Path | None, typer.Option(help="CSV file; by default human-check.csv in the work folder.")] = None,
) -> None:
    """Write a sheet for a human check: question, document with the span marked, verdicts, and columns for yes or no.

    The questions are a random sample of a finished build, with about as many from each cell of length and position.
    """
    from posir_build.balance import CELLS
    from posir_build.dataset_files import choose_questions, write_sheet
    from posir_build.pipeline import STAGE_NAMES, Tools, locked, run_stages
    from posir_build.settings import BuildSettings

    settings = load_settings(BuildSettings, config, overrides or ())
    with locked(settings.work_folder):
        results = run_stages(Tools(settings), None)
    if STAGE_NAMES[-1] not in results:
        raise PosirError(f"{settings.work_folder}: the build is not finished, or its settings have changed. Run it first.")
    file = output or settings.work_folder / "human-check.csv"
    if file.exists():
        raise PosirError(f"{file}: already exists, and may have judgments. Remove it, or choose another --output.")
    result = results[STAGE_NAMES[-1]]
    questions = choose_questions(result, number, settings.seed, CELLS[settings.balance.cells])
    write_sheet(file, result, questions)
    typer.echo(f"{file}: {pluralize(len(questions), 'question')}")


@app.command("agreement")
def agreement_command(
    sheets: Annotated[list[Path], typer.Argument(help="Sheets with judgments, one per person.")],
    dataset: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Folder of the domain, such as data/NAME/eng-Latn/notes: put the agreement into its dataset card."
        ),
    ] = None,
    format_: TableFormat = OutputFormat.TEXT,
) -> None:
    """Read judgments back: how often people find a question right, with a 95 % interval."""
    from posir_build.dataset_files import build_agreement_table, count_agreement, read_sheet, record_human_check

    files = [sheet.resolve() for sheet in sheets]
    if len(set(files)) < len(files):
        raise PosirError("a sheet is named twice. Name one sheet per person.")
    judgments = [read_sheet(sheet) for sheet in sheets]
    counted = count_agreement(judgments)
    records = [{"judgment": row.judgment, "yes": row.yes, "judged": row.judged, "rate": row.rate} for row in counted]
    if dataset is not None:
        record_human_check(dataset, records, {name for sheet in judgments for name, given in sheet.items() if given})
    print_as(format_, [build_agreement_table(counted)], records)


@with_progress
def rate_translations_command(
    config: Config = None,
    overrides: Overrides = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Estimate calls, tokens and cost; nothing is sent to a language model.")
    ] = False,
    sheets: Annotated[
        Path | None,
        typer.Option(
            help="Write a sheet for people into this folder, one per language, and end; the system is not named there."
        ),
    ] = None,
    people: Annotated[
        list[Path] | None, typer.Option(help="Sheet with a person's ratings; may be repeated. Agreement is printed, too.")
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Folder for the ratings as pictures.")] = None,
    format_: TableFormat = OutputFormat.TEXT,
    _: Annotated[bool, settings_help("posir_build.translation_ratings:RatingSettings")] = False,
) -> None:
    """Rate translations: a judge rates the fluency, accuracy, completeness and style of a sample by domain and length, 1 to 5.

    Any data with the same document ids in several languages will do, such as what `posir build` writes, and PosIR itself.
    Several translation systems are rated on the same documents.
    """
    from posir_build.estimate import add_up, describe_plan
    from posir_build.translation_ratings import RatingSettings, plan_ratings, sample_translations, write_rating_sheets
    from posir_tasks.text.tokenizer import load_tokenizer

    settings = load_settings(RatingSettings, config, overrides or ())
    count_tokens = load_tokenizer(settings.tokenizer).count
    sample = sample_translations(settings, count_tokens)
    if sheets is not None:
        for file in write_rating_sheets(sheets, sample, settings.seed):
            typer.echo(str(file))
    elif plan:
        estimates = [add_up("rate translations", [settings.llm], [plan_ratings(sample, count_tokens)])]
        present(describe_plan(estimates, [settings.llm], sample.notes), format_)
    else:
        show_ratings(settings, sample, people or (), png, format_)


def show_ratings(
    settings: RatingSettings, sample: RatingSample, sheets: Sequence[Path], png: Path | None, format_: OutputFormat
) -> None:
    """Ask the judge, and print the scores of the ratings and how well judge and people agree."""
    from posir_build.pipeline import LOG_FILE, locked
    from posir_build.rating_charts import build_rating_figures
    from posir_build.translation_ratings import (
        build_rating_tables,
        compare_ratings,
        rate_translations,
        read_rating_sheet,
        score_ratings,
    )
    from posir_tasks.display.figures import export
    from posir_tasks.language_models.asking import LanguageModel
    from posir_tasks.language_models.call_log import CallLog

    people = {sheet: read_rating_sheet(sheet, sample) for sheet in sheets}
    with locked(settings.work):
        model = LanguageModel(settings.llm, CallLog(settings.work / LOG_FILE))
        judged, problems = rate_translations(sample, settings, model)
    rated = [row for rows, _ in people.values() for row in rows]
    scores = [*score_ratings("judge", judged), *score_ratings("people", rated)]
    agreement = compare_ratings(rated, judged)
    notes = [*sample.notes, *(f"not rated: {problem}: {number:,}" for problem, number in problems.items())]
    notes += [f"{sheet}: rows of no translation here: {unknown:,}" for sheet, (_, unknown) in people.items() if unknown]
    print_as(
        format_,
        build_rating_tables(scores, agreement, notes),
        [asdict(score) | {"mean": score.mean, "counts": json.dumps(score.counts)} for score in scores],
        {"translations": len(sample.translations), "scores": scores, "agreement": agreement, "notes": notes},
    )
    if png:
        export(build_rating_figures(scores, agreement), png, None, str)


def show_plan(settings: BuildSettings, format_: OutputFormat) -> None:
    """Print what the stages take at most; Sample is run for that, and what has been answered is counted."""
    from posir_build.api import check_folders, describe_usage
    from posir_build.estimate import add_reranker_seconds, describe_plan, estimate_stages
    from posir_build.pipeline import Tools, locked, run_stages
    from posir_build.sample import check_source
    from posir_tasks.models.rerankers import ModelReranker

    check_folders(settings)
    check_source(settings)
    with locked(settings.work_folder):
        tools = Tools(settings)
        results = run_stages(tools, "sample") | run_stages(tools, None)
        estimates = estimate_stages(settings, results)
        wanted = {"verify": settings.verify.rerankers, "false-negatives": settings.false_negatives.rerankers}
        if any(wanted.values()):
            with track("Time the rerankers"):
                opened = {
                    stage: [ModelReranker(row.reference, settings.language, logits=row.logits) for row in rerankers]
                    for stage, rerankers in wanted.items()
                }
                estimates = add_reranker_seconds(estimates, opened, results["sample"].documents)
    sampled = [f"sample: {note}" for note in results["sample"].notes]
    answered = [f"Answered before, and not paid again: {usage}" for usage in describe_usage(tools)]
    present(describe_plan(estimates, settings.list_llms(), [*sampled, *answered]), format_)
