"""A whole build: all stages, the dataset, and the report on what each stage kept."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_build.audit import MarginPool, MarginRange, audit_ranges, count_pools, list_checked, summarize_audit
from posir_build.balance import check_psi
from posir_build.dataset_files import read_constructions
from posir_build.pipeline import (
    STAGE_NAMES,
    Tools,
    load_translation_rows,
    locked,
    rows_as_records,
    run_stages,
    settings_record,
    write_results,
)
from posir_build.records import StageResult
from posir_build.sample import check_source
from posir_build.settings import BuildSettings
from posir_build.stage_report import (
    StageRow,
    build_margin_tables,
    build_rows,
    build_tables,
    describe_audit,
    describe_kept,
    describe_lost_documents,
)
from posir_data.importing import Target
from posir_tasks.display.presentation import Presentable, to_paragraphs
from posir_tasks.display.sections import DisplaySection
from posir_tasks.display.tables import Table, to_markdown
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.language_models.call_log import Usage
from posir_tasks.language_models.settings import compute_cost, format_cost
from posir_tasks.models.references import ModelReference

if TYPE_CHECKING:
    from posir_build.cluster import StartEngine


def check_build(settings: BuildSettings) -> None:
    """Check what a complete build reads and writes.

    Raises:
        PosirError: There are no documents, a folder cannot be used, a dataset of other settings is in the way, a reranker or
            the embedder is unknown, or the PSI is not possible.
    """
    check_folders(settings)
    check_source(settings)
    for output in settings.outputs():
        _check_output(settings, output)
    check_psi(settings.balance)
    _check_models(settings)


def check_folders(settings: BuildSettings) -> None:
    """Raise PosirError if a build would write among its documents, and read its own report and dataset card as documents."""
    documents = Path(settings.documents).expanduser()
    if documents.is_dir():
        for name, folder in (("work", settings.work_folder), *(("output", output) for output in settings.outputs())):
            if folder.resolve().is_relative_to(documents.resolve()):
                raise PosirError(
                    f"{name}: {folder}: is in the folder of the documents, {settings.documents}; its text files would be read "
                    f"as documents. Set `{name}` to a folder outside, or move the documents to a folder of their own."
                )


def _check_output(settings: BuildSettings, output: Path) -> None:
    parent = next(folder for folder in (output, *output.absolute().parents) if folder.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise PosirError(f"output: {output}: cannot be written, since {parent} is no writable folder. Set another `output`.")
    constructions = read_constructions(output)
    wanted = settings_record(settings)
    for language in (settings.language, *settings.translate.languages):
        folder = Target(language, settings.domain, output).folder
        before = constructions.get(f"{language}/{settings.domain}", {}).get("settings")
        if folder.exists() and before != wanted:
            changed = [name for name, value in wanted.items() if before and before.get(name) != value]
            reason = f"was built with other settings ({', '.join(changed)})" if before else "is not of `posir build`"
            raise PosirError(
                f"{folder}: already exists, and {reason}. Remove it, or set another `output` or `domain`; answered calls are "
                "saved, and are not paid again."
            )


def _check_models(settings: BuildSettings) -> None:
    rerankers, search = list(settings.verify.rerankers), settings.false_negatives
    models = {ModelReference(reranker.model, reranker.revision) for reranker in rerankers}
    if settings.ask.persona_embedder is not None:
        models |= {ModelReference(settings.ask.persona_embedder)}
    if search.embedder is not None:
        models |= {ModelReference(search.embedder, search.revision)}
        models |= {ModelReference(reranker.model, reranker.revision) for reranker in search.rerankers}
    if models:
        from posir_tasks.models.registry import find_model

        for model in sorted(models, key=lambda model: model.name):
            find_model(model)


#: The report in the work folder.
REPORT_FILE = "report.md"


@dataclass(frozen=True, repr=False, kw_only=True)
class BuildReport(Presentable):
    """Counts of what each stage of a build kept, and the folders of the dataset."""

    title: str = ""
    rows: tuple[StageRow, ...]
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
        """The tables of margins and audit, if there are any, of the reasons for discarding, and of the stages."""
        return (*build_margin_tables(self.pools, self.ranges), *build_tables(self.rows, self.notes))

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return what is kept in a sentence, then the tables."""
        return (*to_paragraphs(describe_kept(self.rows)), DisplaySection(tables=self.tables))

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each of `rows`, with its reasons as JSON."""
        return [row | {"reasons": json.dumps(row["reasons"])} for row in rows_as_records(self.rows)]

    def document(self) -> dict[str, Any]:
        """Return stages, margins, audit and notes."""
        return {"stages": rows_as_records(self.rows), "margins": self.pools, "audit": self.ranges, "notes": self.notes}


def run_build(settings: BuildSettings, *, stage: str | None = None, start_engine: StartEngine | None = None) -> BuildReport:
    """Run a build, or continue it, and save its report in the work folder.

    Args:
        settings: The build.
        stage: Last stage to run; None for all, and to write the dataset.
        start_engine: Starts a cluster for reranking and recall; None to do both in this process.

    Raises:
        PosirError: There is no such stage; documents, a folder or a model cannot be used; or the budget is spent.
    """
    check_stage(stage)
    if stage is None:
        check_build(settings)
    else:
        check_folders(settings)
        check_source(settings)
    with locked(settings.work_folder):
        tools = Tools(settings, start_engine)
        results = run_stages(tools, stage or STAGE_NAMES[-1])
        datasets = write_results(tools, results) if stage is None else {}
        report = build_report(tools, results, datasets)
        (report.folder / REPORT_FILE).write_text("\n\n".join(map(to_markdown, report.tables)), encoding="utf-8")
    return report


def check_stage(stage: str | None) -> None:
    """Raise PosirError if there is no such stage; None is all of them."""
    if stage is not None and stage not in STAGE_NAMES:
        raise PosirError(f"--stage {stage}: no such stage. Stages: {', '.join(STAGE_NAMES)}.")


def build_report(tools: Tools, results: Mapping[str, StageResult], datasets: Mapping[Path, int]) -> BuildReport:
    """Return the report on a build.

    Args:
        tools: Of the build.
        results: By stage.
        datasets: Number of questions in each folder that was written; translations are reported if there is any.
    """
    settings = tools.settings
    translated, repairs = load_translation_rows(tools, results) if datasets else ([], [])
    notes = [f"{name}: {note}" for name, result in results.items() for note in result.notes] + repairs
    if "verify" in results:
        notes += describe_lost_documents(results["verify"])
        notes += describe_audit(summarize_audit(results["verify"].questions))
    checked = list_checked(results["verify"]) if "verify" in results else []
    return BuildReport(
        title=f"Build of {settings.domain}",
        rows=(*build_rows(results, settings), *translated),
        pools=tuple(count_pools(checked, results["sample"].documents, settings.verify.margins)),
        ranges=tuple(audit_ranges(checked, settings.verify.margins)),
        notes=(*notes, *describe_usage(tools)),
        datasets=datasets,
        folder=settings.work_folder,
    )


def describe_usage(tools: Tools) -> list[str]:
    """Return what has been paid so far: by model and prompt, and in total for each language model of the build."""
    prices, usage = {llm.model: llm.prices for llm in tools.settings.list_llms()}, tools.log.usage()
    for llm in prices:
        own = [used for (model, _), used in usage.items() if model == llm]
        if len(own) > 1:
            usage[llm, "total"] = Usage(
                sum(usage.calls for usage in own),
                sum(usage.input_tokens for usage in own),
                sum(usage.output_tokens for usage in own),
            )
    described = []
    for (model, prompt), used in usage.items():
        cost = compute_cost(prices[model], used.input_tokens, used.output_tokens) if model in prices else 0
        price = f", {format_cost(cost, prices[model].currency)}" if cost else ""
        described.append(
            f"{model}, {prompt}: {pluralize(used.calls, 'call')}, {used.input_tokens:,} input tokens, "
            f"{used.output_tokens:,} output tokens{price}"
        )
    return described
