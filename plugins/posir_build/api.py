"""The public function of this package, `posir.build`: all stages, the dataset, and the report on what each stage kept."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_build.balance import find_needed_questions
from posir_build.dataset_files import read_constructions
from posir_build.pipeline import STAGE_NAMES, Tools, locked, rows_as_records, run_stages, settings_record, write_results
from posir_build.sample import check_source
from posir_build.settings import BuildSettings
from posir_build.stage_report import (
    StageRow,
    build_margin_tables,
    build_stage_rows,
    build_tables,
    describe_audit,
    describe_kept,
    describe_lost_documents,
)
from posir_build.verify import MarginPool, MarginRange, audit_ranges, count_pools, list_checked, summarize_audit
from posir_tasks.display.presentation import Presentable, to_paragraphs
from posir_tasks.display.tables import DisplaySection, Table, to_markdown
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.language_models.call_log import Usage
from posir_tasks.language_models.settings import compute_cost, format_cost
from posir_tasks.models.references import ModelReference
from posir_tasks.settings_file import load_settings
from posir_tasks.sources.posir import Target

if TYPE_CHECKING:
    from posir_build.cluster import StartEngine

#: The report in the work folder.
REPORT_FILE = "report.md"


def build(
    documents: str | Path | None = None,
    *,
    output: str | Path | None = None,
    config: str | Path | None = None,
    stage: str | None = None,
    **settings: Any,
) -> BuildReport:
    """Build a dataset of questions about documents, controlled for the position of the evidence, or continue to.

    What a language model has answered is not asked again, and stages that nothing changed for are not run.

    Args:
        documents: Folder of text files, .jsonl or .parquet file, or dataset on the Hub. None if `config` has it.
        output: Folder for the dataset in the PosIR layout, which `POSIR_DATA` takes. None if `config` has it.
        config: YAML file with settings; the other arguments take precedence, in sections field by field.
        stage: Run up to this stage only, and write no dataset: `sample`, `ask`, `locate`, `verify`, `false-negatives` or
            `balance`.
        settings: Further fields by name: `language`, `domain` and `llm` are required, of sections as a mapping, such as
            `ask={"questions": 5}`. Prices are for a million tokens; lengths of documents in tokens, words or characters
            (`sample={"unit": ...}`); `posir build run --settings-help` lists them all.

    Returns:
        For each stage and each check the number of documents or questions taken and kept, the share kept and the one that a
        paper reports, in [0, 1], and how many were discarded for which reason; `datasets`, the number of questions by folder;
        `folder` of calls and report; `notes`, with the cost of the calls.

    Raises:
        PosirError: A setting is wrong; documents, a folder or a model cannot be used; a dataset of other settings is in
            `output`; no question is left after a stage; or the budget is spent.

    Examples:
        >>> import posir
        >>> names = {"language": "eng-Latn", "domain": "harbour"}
        >>> report = posir.build("texts", output="data/harbour", **names, llm={"model": "my-llm"}, sample={"lengths": "any"})
        >>> [row.stage for row in report.rows][:3], report.datasets.keys()
        (['sample', 'ask', 'locate'], dict_keys([PosixPath('data/harbour/eng-Latn/harbour')]))
    """
    options = {"documents": None if documents is None else str(documents), "output": output}
    loaded = load_settings(BuildSettings, Path(config) if config is not None else None, settings, options)
    return run_build(loaded, stage=stage)


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
    find_needed_questions(settings.balance)
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
    search = settings.false_negatives
    rerankers = [*settings.verify.rerankers, *(search.rerankers if search.embedder else ())]
    models = {reranker.reference for reranker in rerankers}
    embedders = ((settings.ask.persona_embedder, None), (search.embedder, search.revision))
    models |= {ModelReference(name, revision) for name, revision in embedders if name is not None}
    if models:
        from posir_tasks.models.registry import find_model

        for model in sorted(models, key=lambda model: model.name):
            find_model(model)


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
    """Run a build, or continue it, up to a stage or, with None, to the dataset, and save its report in the work folder.

    `start_engine` starts a cluster for reranking and recall; None does both in this process.

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
        datasets, translated, repairs = write_results(tools, results) if stage is None else ({}, [], [])
        notes = [f"{name}: {note}" for name, result in results.items() for note in result.notes] + repairs
        verified = results.get("verify")
        checked = list_checked(verified) if verified else []
        if verified:
            notes += [*describe_lost_documents(verified), *describe_audit(summarize_audit(verified.questions))]
        report = BuildReport(
            title=f"Build of {settings.domain}",
            rows=(*build_stage_rows(results, settings), *translated),
            pools=tuple(count_pools(checked, results["sample"].documents, settings.verify.margins)),
            ranges=tuple(audit_ranges(checked, settings.verify.margins)),
            notes=(*notes, *describe_usage(tools)),
            datasets=datasets,
            folder=settings.work_folder,
        )
        (report.folder / REPORT_FILE).write_text("\n\n".join(map(to_markdown, report.tables)), encoding="utf-8")
    return report


def check_stage(stage: str | None) -> None:
    """Raise PosirError if there is no such stage; None is all of them."""
    if stage is not None and stage not in STAGE_NAMES:
        raise PosirError(f"--stage {stage}: no such stage. Stages: {', '.join(STAGE_NAMES)}.")


def describe_usage(tools: Tools) -> list[str]:
    """Return what has been paid so far: by model and prompt, and in total for each language model of the build."""
    prices, usage = {llm.model: llm.prices for llm in tools.settings.list_llms()}, tools.log.usage()
    for llm in prices:
        own = [astuple(used) for (model, _), used in usage.items() if model == llm]
        if len(own) > 1:
            usage[llm, "total"] = Usage(*map(sum, zip(*own, strict=True)))
    described = []
    for (model, prompt), used in usage.items():
        cost = compute_cost(prices[model], used.input_tokens, used.output_tokens) if model in prices else 0
        price = f", {format_cost(cost, prices[model].currency)}" if cost else ""
        described.append(
            f"{model}, {prompt}: {pluralize(used.calls, 'call')}, {used.input_tokens:,} input tokens, "
            f"{used.output_tokens:,} output tokens{price}"
        )
    return described
