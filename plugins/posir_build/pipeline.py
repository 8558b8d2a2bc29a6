"""The stages of a build in order: each takes the result of the one before, and is skipped if
nothing it depends on changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from datasets import disable_progress_bars
from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from posir_build import ask, false_negatives, locate, translate, verify
from posir_build.balance import HELD_OUT, PUBLIC, balance_questions, find_needed_questions
from posir_build.cluster import Recall, Reranker, StartEngine
from posir_build.dataset_files import (
    list_answering_models,
    read_constructions,
    write_card,
    write_dataset,
)
from posir_build.records import LOG_FILE, StageResult, by_id
from posir_build.sample import digest_source, draw_documents, open_source
from posir_build.settings import BuildSettings, RerankerSettings
from posir_build.stage_report import StageRow, build_stage_rows, build_translation_rows
from posir_tasks.base.digests import digest_json
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.files import atomic_write
from posir_tasks.base.progress import track
from posir_tasks.data.posir import Target
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.call_log import CallLog
from posir_tasks.language_models.chat_client import PromptTemplate
from posir_tasks.models.references import ModelReference
from posir_tasks.models.rerankers import ModelReranker
from posir_tasks.text.tokenizer import load_tokenizer

#: Schema version of the files; raise it if the records change, and every stage is run again
#: (answered calls are kept).
SCHEMA = 3


@validated(frozen=True)
class StageFile:
    """A result as it is saved. Texts of documents are in the file of the stage that sets them;
    other files have ids only.
    """

    schema_version: int
    fingerprint: str
    document_ids: tuple[str, ...]
    result: StageResult


ADAPTER = TypeAdapter(StageFile)


def load_stage(
    folder: Path, stage: str, fingerprint: str, before: StageResult | None
) -> StageResult | None:
    """Return the saved result of a stage; None if there is none, or it depends on something that
    has changed.

    `before` is the result of the stage before, which has the texts of documents.
    """
    file = folder / f"{stage}.json"
    if not file.is_file():
        return None
    try:
        stored = ADAPTER.validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise PosirError(
            f"{file}: cannot be read ({summarize_error(error)}). Remove it to run the stage "
            "again; answered calls are kept."
        ) from error
    if (stored.schema_version, stored.fingerprint) != (SCHEMA, fingerprint):
        return None
    known = by_id([*(before.documents if before else ()), *stored.result.documents])
    return replace(stored.result, documents=tuple(known[name] for name in stored.document_ids))


def save_stage(
    folder: Path, stage: str, fingerprint: str, result: StageResult, before: StageResult | None
) -> None:
    """Write the result of a stage."""
    new = () if before and set(before.documents).issuperset(result.documents) else result.documents
    ids = tuple(document.id for document in result.documents)
    with atomic_write(folder / f"{stage}.json") as part:
        part.write_bytes(
            ADAPTER.dump_json(
                StageFile(SCHEMA, fingerprint, ids, replace(result, documents=new)), indent=1
            )
        )


#: The lock is emptied when it is taken, so no file of the user may have its name.
BUILD_LOCK = ".posir-build.lock"
STAGE_NAMES = ("sample", "ask", "locate", "verify", "false-negatives", "balance")
#: Settings of a language model that its answers do not depend on.
NOT_ASKED = {"endpoints", "key_variable", "in_flight", "retries", "timeout", "prices", "budget"}


class Tools:
    """Log, models and rerankers of the stages of a build, built lazily; `start_engine` starts a
    cluster for scoring.
    """

    def __init__(self, settings: BuildSettings, start_engine: StartEngine | None = None) -> None:
        self.settings = settings
        self.log = CallLog(settings.work_folder / LOG_FILE)
        self._start_engine = start_engine

    def models(self, stage: str) -> list[LanguageModel]:
        """Open the language models that a stage asks."""
        return [LanguageModel(llm, self.log) for llm in self.settings.choose_llms(stage)]

    @cached_property
    def count_tokens(self) -> Callable[[str], int]:
        """Counts the tokens of a text."""
        return load_tokenizer(self.settings.tokenizer).count

    def rerankers(self, wanted: Sequence[RerankerSettings]) -> list[Reranker]:
        """Return rerankers; models are loaded when they first score."""
        # The stage has a bar of its own; that of `datasets` would appear for every batch.
        disable_progress_bars()
        opened = (
            ModelReranker(row.reference, self.settings.language, row.scale == "logit")
            for row in wanted
        )
        return [Reranker(reranker, self.log, self._start_engine) for reranker in opened]

    def recall(self, model: str, revision: str | None = None) -> Recall:
        """Return an embedder that finds the nearest texts."""
        return Recall(ModelReference(model, revision), self.settings.language, self._start_engine)


def _identify_models(settings: BuildSettings, stage: str) -> object:
    return [llm.model_dump(mode="json", exclude=NOT_ASKED) for llm in settings.choose_llms(stage)]


def _depends_on(stage: str, settings: BuildSettings) -> object:
    """Return all that the result of a stage depends on, beside the result of the stage before."""
    if stage == "sample":
        fields = {"text_field", "id_field", "language", "seed", "tokenizer", "sample"}
        return [digest_source(settings), settings.model_dump(mode="json", include=fields)]
    section = getattr(settings, stage.replace("-", "_")).model_dump(
        mode="json", exclude={"llm", "panel"}
    )
    if stage == "balance":
        return section
    prompts: dict[str, Sequence[PromptTemplate[Any]]] = {
        "ask": ask.PROMPTS.get(settings.ask.method, ()),
        "locate": (locate.LOCATE,),
        "verify": (verify.RELEVANCE, verify.ANSWERABLE),
        "false-negatives": (verify.RELEVANCE,),
    }
    asked = [section, _identify_models(settings, stage), *(prompt.id for prompt in prompts[stage])]
    if stage == "ask":
        asked.append(
            ask.load_personas(settings.ask.personas) if settings.ask.method == "persona" else []
        )
    return asked


def _run_stage(stage: str, tools: Tools, before: StageResult) -> StageResult:
    settings = tools.settings
    match stage:
        case "sample":
            items = open_source(settings).read_texts()
            return draw_documents(
                items, settings.sample, settings.language, settings.seed, tools.count_tokens
            )
        case "ask" if settings.ask.method == "given":
            return ask.take_questions(before.documents, settings)
        case "ask":
            recall = (
                tools.recall(settings.ask.persona_embedder)
                if settings.ask.persona_embedder
                else None
            )
            return ask.ask_questions(before.documents, settings, tools.models(stage)[0], recall)
        case "locate":
            return locate.locate_evidence(
                before, settings.locate, tools.models(stage)[0], settings.language
            )
        case "verify":
            checks, rerankers = settings.verify, tools.rerankers(settings.verify.rerankers)
            model, seed = tools.models(stage)[0], settings.seed
            verifier = verify.Verifier(
                before.documents, checks, settings.language, model, rerankers, seed
            )
            return verifier.verify(before.questions)
        case "false-negatives":
            search = settings.false_negatives
            if search.embedder is None:
                note = "false negatives were not searched for: false_negatives.embedder is not set"
                return StageResult(before.documents, before.questions, (), (note,))
            recall, rerankers = (
                tools.recall(search.embedder, search.revision),
                tools.rerankers(search.rerankers),
            )
            return false_negatives.remove_false_negatives(
                before, search, recall, rerankers, tools.models(stage)
            )
        case _:
            needed = find_needed_questions(settings.balance, before.questions)
            return balance_questions(before, settings.balance, settings.seed, needed)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a work folder against another build; PosirError if another process builds there, or the
    folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / BUILD_LOCK, timeout=0):
            yield
    except Timeout:
        raise PosirError(
            f"{folder}: another `posir build` is running there. Wait for it, or set another work "
            "folder."
        ) from None
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise PosirError(
            f"{folder}: cannot be written to ({error.strerror}). Set `work` to a writable folder."
        ) from error


def run_stages(tools: Tools, last: str | None) -> dict[str, StageResult]:
    """Run the stages up to and including one, and return the result of each; None returns what is
    saved, and runs none.

    A stage whose result is saved, and depends on nothing that has changed, is not run.
    """
    folder = tools.settings.work_folder
    results: dict[str, StageResult] = {}
    before, fingerprint = StageResult((), ()), ""
    for number, stage in enumerate(STAGE_NAMES, 1):
        fingerprint = digest_json([SCHEMA, stage, fingerprint, _depends_on(stage, tools.settings)])
        result = load_stage(folder, stage, fingerprint, before)
        if result is None:
            if last is None:
                break
            with track(f"Stage {number} of {len(STAGE_NAMES)}: {stage}"):
                result = _run_stage(stage, tools, before)
            save_stage(folder, stage, fingerprint, result, before)
        results[stage] = before = result
        for kind, left in (("document", result.documents), ("question", result.questions)):
            if not left and (kind == "document" or number > 1):
                reasons = "; ".join(
                    f"{reason} ({count:,})" for reason, count in result.reasons().items()
                )
                discarded = f"Discarded: {reasons}." if reasons else "The source has none."
                raise PosirError(f"{stage}: no {kind} is left. {discarded}")
        if stage == last:
            break
    return results


def write_results(
    tools: Tools, results: Mapping[str, StageResult]
) -> tuple[dict[Path, int], list[StageRow], list[str]]:
    """Write the dataset, its held-out part, and its translations.

    Return the number of questions in each folder; of the translations a row each, and notes on what
    was repaired in them.
    """
    settings = tools.settings
    rows = build_stage_rows(results, settings)
    written, translations, notes = dict[Path, int](), list[StageRow](), list[str]()
    final = results["balance"]
    for part, output in ((PUBLIC, settings.output), (HELD_OUT, settings.held_out_folder)):
        # The last verdict is that of the split.
        questions = tuple(
            question for question in final.questions if question.verdicts[-1].values["part"] == part
        )
        if not questions:
            continue
        result = StageResult(final.documents, questions)
        written |= _write_part(settings, settings.language, output, part, result, rows)
        for language in settings.translate.languages:
            translated = translate_result(tools, result, language, part)
            name = language if part == PUBLIC else f"{language}, {part}"
            added = build_translation_rows(result, translated, name)
            written |= _write_part(
                settings, language, output, f"{part}, translated", translated, [*rows, *added]
            )
            translations += added
            notes += [
                f"translate: {name}: {counted}: {number:,}"
                for counted, number in translated.counts.items()
                if number
            ]
        write_card(output)
    return written, translations, notes


def translate_result(tools: Tools, result: StageResult, language: str, part: str) -> StageResult:
    """Return a part of the dataset in another language, from the work folder if it has been
    translated before.
    """
    settings = tools.settings
    prompts = (
        translate.TRANSLATE_SENTENCES,
        translate.TRANSLATE_QUESTION,
        translate.JUDGE_TRANSLATION,
    )
    identity = [
        settings.translate.model_dump(mode="json", exclude={"languages", "llm", "judge"}),
        *(_identify_models(settings, stage) for stage in ("translate", "refusals")),
        *(prompt.id for prompt in prompts),
    ]
    content = [[row.id, row.text] for rows in (result.documents, result.questions) for row in rows]
    fingerprint = digest_json([SCHEMA, "translate", language, identity, content])
    name = f"translate-{language}-{part}"
    saved = load_stage(settings.work_folder, name, fingerprint, None)
    if saved is not None:
        return saved
    (model,), judge = tools.models("translate"), next(iter(tools.models("refusals")), None)
    translator = translate.Translator(
        settings.translate, model, settings.language, language, tools.count_tokens, judge
    )
    translated = translator.translate(result)
    save_stage(settings.work_folder, name, fingerprint, translated, None)
    return translated


def _write_part(
    settings: BuildSettings,
    language: str,
    output: Path,
    part: str,
    result: StageResult,
    rows: Sequence[StageRow],
) -> dict[Path, int]:
    construction = {
        "documents": len(result.documents),
        "questions": len(result.questions),
        "part": part,
        "license": settings.license,
        "settings": settings_record(settings),
        "answered_by": list_answering_models(result.questions),
        "stages": rows_as_records(rows),
        "content": digest_json(
            [
                SCHEMA,
                [
                    [row.id, row.text]
                    for rows in (result.documents, result.questions)
                    for row in rows
                ],
            ]
        ),
    }
    target = Target(language, settings.domain, output)
    if read_constructions(output).get(f"{language}/{settings.domain}") != construction:
        write_dataset(target, result.documents, result.questions, construction)
    return {target.folder: len(result.questions)}


def settings_record(settings: BuildSettings) -> dict[str, Any]:
    """Return the settings that a dataset depends on, as JSON values."""
    excluded: Any = {
        "llm": NOT_ASKED,
        "work": True,
        "output": True,
        "false_negatives": {"panel": {"__all__": NOT_ASKED}},
    }
    excluded |= {
        stage: {"llm": NOT_ASKED, "judge": NOT_ASKED}
        for stage in ("ask", "locate", "verify", "translate")
    }
    return settings.model_dump(mode="json", exclude=excluded)


def rows_as_records(rows: Sequence[StageRow]) -> list[dict[str, Any]]:
    """Return the rows of the report as JSON values."""
    names = (
        "stage",
        "unit",
        "taken",
        "kept",
        "rate",
        "rate_interval",
        "published_rate",
        "published_in",
        "reasons",
    )
    return [{name: getattr(row, name) for name in names} for row in rows]
