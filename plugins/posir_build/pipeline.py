"""Run the stages of a build in order. Each stage takes the result of the previous stage; a stage
with unchanged inputs is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from datasets import disable_progress_bars
from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from posir_build import ask, false_negatives, locate, translate, verify
from posir_build.balance import HELD_OUT, PUBLIC, balance_questions, find_min_questions
from posir_build.cluster import CandidateRetriever, Reranker, StartEngine
from posir_build.dataset_files import (
    list_answering_models,
    read_constructions,
    write_card,
    write_dataset,
)
from posir_build.records import LOG_FILE, Document, Question, StageResult
from posir_build.sample import digest_source, open_source, sample_corpus
from posir_build.settings import STAGE_NAMES, BuildSettings, PromptSet, RerankerSettings
from posir_build.stage_report import StageRow, build_stage_rows, build_translation_rows
from posir_tasks.base.digests import digest_json
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.files import check_writable, write_atomically
from posir_tasks.base.progress import track
from posir_tasks.base.settings_file import Section
from posir_tasks.data.posir import Target
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.call_log import CallLog
from posir_tasks.language_models.chat_client import PromptTemplate, load_prompt
from posir_tasks.models.references import ModelReference
from posir_tasks.models.rerankers import ModelReranker
from posir_tasks.text.tokenizer import load_tokenizer

#: Schema version of the stage files. Increment it when the records change, to run every stage again
#: with the saved answers.
SCHEMA = 4


@pydantic_dataclass(frozen=True)
class StageFile:
    """A saved stage result. Only the stage that creates the documents stores their texts; later
    stages store the ids.
    """

    fingerprint: str
    document_ids: tuple[str, ...]
    result: StageResult


STAGE_FILE_ADAPTER = TypeAdapter(StageFile)


def load_or_run_stage(
    file: Path, fingerprint: str, previous: StageResult, run: Callable[[], StageResult] | None
) -> StageResult | None:
    """Load the saved result of a stage. If it is missing or its inputs have changed, run the stage
    and save its result, or return None if `run` is None.

    `previous` is the result of the previous stage and contains the document texts.
    """
    if file.is_file():
        try:
            stage_file = STAGE_FILE_ADAPTER.validate_json(file.read_bytes())
        except (OSError, ValidationError) as error:
            raise PosirError(
                f"{file}: cannot be read ({summarize_error(error)}). Remove it to run the stage "
                "again; saved answers are reused."
            ) from error
        if stage_file.fingerprint == fingerprint:
            documents = previous.by_id | stage_file.result.by_id
            stage_documents = tuple(documents[name] for name in stage_file.document_ids)
            return replace(stage_file.result, documents=stage_documents)
    if run is None:
        return None
    result = run()
    stored_result = replace(result, documents=()) if previous.documents else result
    content = STAGE_FILE_ADAPTER.dump_json(
        StageFile(fingerprint, tuple(result.by_id), stored_result), indent=1
    )
    with write_atomically(file) as part:
        part.write_bytes(content)
    return result


#: Settings of a language model that do not affect its answers.
TRANSPORT_SETTINGS = {
    "endpoints",
    "key_variable",
    "in_flight",
    "retries",
    "timeout",
    "prices",
    "budget",
}


@dataclass(frozen=True)
class BuildContext:
    """Settings, call log and models of a build."""

    settings: BuildSettings
    start_engine: StartEngine | None = None
    """Starts a cluster for reranking and retrieval; None to use this process."""

    @cached_property
    def log(self) -> CallLog:
        """Log of answered calls and reranker scores."""
        return CallLog(self.settings.work_folder / LOG_FILE)

    def open_models(self, stage: str) -> list[LanguageModel]:
        """Open the language models of a stage."""
        prompts = PROMPT_SETS[self.settings.prompts]
        return [
            LanguageModel(llm, self.log, prompts) for llm in self.settings.list_stage_llms(stage)
        ]

    @cached_property
    def count_tokens(self) -> Callable[[str], int]:
        """Counts the tokens of a text."""
        return load_tokenizer(self.settings.tokenizer).count

    def open_rerankers(self, rows: Sequence[RerankerSettings]) -> list[Reranker]:
        """Open rerankers, whose models are loaded on first use."""
        # `datasets` shows a progress bar for every batch.
        disable_progress_bars()
        language = self.settings.language
        return [
            Reranker(
                ModelReranker(row.reference, language, row.scale == "logit"),
                self.log,
                self.start_engine,
            )
            for row in rows
        ]

    def open_retriever(self, model: str, revision: str | None = None) -> CandidateRetriever:
        """Open an embedding model for nearest-neighbor search."""
        reference = ModelReference(model, revision)
        return CandidateRetriever(reference, self.settings.language, self.start_engine)


def _identify_models(settings: BuildSettings, stage: str) -> object:
    llms = settings.list_stage_llms(stage)
    return [llm.model_dump(mode="json", exclude=TRANSPORT_SETTINGS) for llm in llms]


#: Prompts that replace posir's prompts, by set and name. posq: the inputs, outputs (a text, a list,
#: a number) and relevance scale of PosQ (arXiv 2505.13950, appendix B; appendix C in version 1) in
#: posir's wording, without a system message.
PROMPT_SETS: Mapping[PromptSet, Mapping[str, PromptTemplate[Any]]] = {
    "posir": {},
    "posq": {
        prompt.name: load_prompt(f"posq_{prompt.name}", prompt.answer, is_bare=True)
        for prompt in (ask.SUMMARIZE, ask.ASK_CHUNK, verify.RELEVANCE)
    },
}
#: Prompts by stage, except for Ask, whose prompts depend on the method.
PROMPTS: Mapping[str, Sequence[PromptTemplate[Any]]] = {
    "locate": (locate.LOCATE,),
    "verify": (verify.RELEVANCE, verify.ANSWERABLE),
    "false-negatives": (verify.RELEVANCE,),
}


def _list_inputs(stage: str, settings: BuildSettings) -> object:
    """List the inputs of a stage other than the result of the previous stage."""
    if stage == "sample":
        fields = {"text_field", "id_field", "language", "seed", "tokenizer", "sample"}
        return [digest_source(settings), settings.model_dump(mode="json", include=fields)]
    section: Section = getattr(settings, stage.replace("-", "_"))
    values = section.model_dump(mode="json", exclude={"llm", "panel"})
    if stage == "balance":
        return values
    prompts = PROMPTS.get(stage) or ask.PROMPTS.get(settings.ask.method, ())
    replacements = PROMPT_SETS[settings.prompts]
    prompt_ids = [replacements.get(prompt.name, prompt).id for prompt in prompts]
    inputs = [values, _identify_models(settings, stage), *prompt_ids]
    if stage == "ask":
        is_persona = settings.ask.method == "persona"
        inputs.append(ask.load_personas(settings.ask.personas) if is_persona else [])
    return inputs


def _run_stage(stage: str, context: BuildContext, previous: StageResult) -> StageResult:
    """Run a stage and append a note about unusable answers."""
    number = STAGE_NAMES.index(stage) + 1
    with track(f"Stage {number} of {len(STAGE_NAMES)}: {stage}"):
        result = _call_stage(stage, context, previous)
    if context.log.faults:
        result = replace(result, notes=(*result.notes, context.log.describe_answers()))
    context.log.usage_by_key.clear()
    context.log.faults.clear()
    return result


def _call_stage(stage: str, context: BuildContext, previous: StageResult) -> StageResult:
    settings = context.settings
    language = settings.language
    seed = settings.seed
    models = context.open_models(stage)
    match stage:
        case "sample":
            items = open_source(settings).read_texts()
            return sample_corpus(items, settings.sample, language, seed, context.count_tokens)
        case "ask" if settings.ask.method == "given":
            return ask.load_questions(previous.documents, settings)
        case "ask":
            embedder = settings.ask.persona_embedder
            retriever = context.open_retriever(embedder) if embedder else None
            return ask.ask_questions(previous.documents, settings, models[0], retriever)
        case "locate":
            return locate.locate_evidence(previous, settings.locate, models[0], language)
        case "verify":
            rerankers = context.open_rerankers(settings.verify.rerankers)
            verifier = verify.Verifier(
                previous, settings.verify, language, models[0], rerankers, seed
            )
            return verifier.verify()
        case "false-negatives":
            search = settings.false_negatives
            if search.embedder is None:
                note = "skipped, since false_negatives.embedder is not set"
                return StageResult(previous.documents, previous.questions, (), (note,))
            return false_negatives.remove_false_negatives(
                previous,
                search,
                context.open_retriever(search.embedder, search.revision),
                context.open_rerankers(search.rerankers),
                models,
            )
        case _:
            min_questions = find_min_questions(settings.balance, previous.questions)
            return balance_questions(previous, settings.balance, seed, min_questions)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock a work folder. Raise PosirError if another build is using it or it is not writable."""
    try:
        check_writable(folder)
        # FileLock truncates its file, so the name must not be a user's file.
        with FileLock(folder / ".posir-build.lock", timeout=0):
            yield
    except Timeout:
        raise PosirError(
            f"{folder}: another `posir build` is running there. Wait for it, or set another work "
            "folder."
        ) from None


def run_stages(context: BuildContext, last: str | None) -> dict[str, StageResult]:
    """Run the stages up to and including `last` and return the results by stage. If `last` is None,
    only load saved results, up to the first stage without one.

    Raises:
        PosirError: No documents or questions remain after a stage.
    """
    results: dict[str, StageResult] = {}
    previous = StageResult(())
    fingerprint = ""
    for stage in STAGE_NAMES:
        fingerprint = digest_json(
            [SCHEMA, stage, fingerprint, _list_inputs(stage, context.settings)]
        )
        file = context.settings.work_folder / f"{stage}.json"
        run = partial(_run_stage, stage, context, previous) if last else None
        result = load_or_run_stage(file, fingerprint, previous, run)
        if result is None:
            break
        results[stage] = result
        previous = StageResult(result.documents, result.questions)
        if not (result.documents if stage == "sample" else result.questions):
            reasons = "; ".join(
                f"{key} ({count:,})" for key, count in result.count_reasons().items()
            )
            raise PosirError(
                f"{stage}: nothing remains. Discarded: {reasons or 'nothing'}. Add documents, or "
                "relax the settings of this stage."
            )
        if stage == last:
            break
    return results


def write_results(
    context: BuildContext, results: Mapping[str, StageResult]
) -> tuple[dict[Path, int], list[StageRow]]:
    """Write the dataset, its held-out part and its translations. Return the number of questions by
    folder and the report rows of the translations.
    """
    settings = context.settings
    rows = build_stage_rows(results)
    question_counts = {}
    translation_rows: list[StageRow] = []
    final = results["balance"]
    for part, output in ((PUBLIC, settings.output), (HELD_OUT, settings.held_out_folder)):
        # The last verdict is the split.
        questions = [row for row in final.questions if row.verdicts[-1].values["part"] == part]
        if not questions:
            continue
        result = StageResult(final.documents, tuple(questions))
        folder = _write_part(settings, settings.language, output, part, result, rows)
        question_counts[folder] = len(questions)
        for language in settings.translate.languages:
            translation = translate_result(context, result, language, part)
            name = language if part == PUBLIC else f"{language}, {part}"
            language_rows = list(build_translation_rows(result, translation, name))
            translation_rows += language_rows
            title = f"{part}, translated"
            folder = _write_part(
                settings, language, output, title, translation, [*rows, *language_rows]
            )
            question_counts[folder] = len(translation.questions)
        write_card(output)
    return question_counts, translation_rows


def translate_result(
    context: BuildContext, result: StageResult, language: str, part: str
) -> StageResult:
    """Translate a part of the dataset, or load its saved translation from the work folder."""
    settings = context.settings
    exclusions = {"languages", "llm", "judge"}
    identity = [
        settings.translate.model_dump(mode="json", exclude=exclusions),
        _identify_models(settings, "translate"),
        _identify_models(settings, "refusals"),
        *(prompt.id for prompt in translate.PROMPTS),
    ]
    fingerprint = digest_json([SCHEMA, "translate", language, identity, _list_content(result)])
    file = settings.work_folder / f"translate-{language}-{part}.json"

    def run() -> StageResult:
        translator = translate.Translator(
            settings.translate,
            context.open_models("translate")[0],
            settings.language,
            language,
            context.count_tokens,
            next(iter(context.open_models("refusals")), None),
        )
        return translator.translate(result)

    translation = load_or_run_stage(file, fingerprint, StageResult(()), run)
    assert translation is not None
    return translation


def _list_content(result: StageResult) -> list[list[str]]:
    rows: list[Document | Question] = [*result.documents, *result.questions]
    return [[row.id, row.text] for row in rows]


def _write_part(
    settings: BuildSettings,
    language: str,
    output: Path,
    part: str,
    result: StageResult,
    rows: Sequence[StageRow],
) -> Path:
    """Write a part of the dataset in one language, unless it is up to date; return its folder."""
    construction = {
        "documents": len(result.documents),
        "questions": len(result.questions),
        "part": part,
        "license": settings.license,
        "settings": dump_dataset_settings(settings),
        "answered_by": list_answering_models(result.questions),
        "stages": [row.to_record() for row in rows],
        "content": digest_json([SCHEMA, _list_content(result)]),
    }
    target = Target(language, settings.domain, output)
    if read_constructions(output).get(f"{language}/{settings.domain}") != construction:
        write_dataset(target, result, construction)
    return target.folder


def dump_dataset_settings(settings: BuildSettings) -> dict[str, Any]:
    """Dump the settings that affect the dataset as JSON values."""
    models = {"llm": TRANSPORT_SETTINGS, "judge": TRANSPORT_SETTINGS}
    exclusions: Any = {
        "llm": TRANSPORT_SETTINGS,
        "work": True,
        "output": True,
        "false_negatives": {"panel": {"__all__": TRANSPORT_SETTINGS}},
        **dict.fromkeys(("ask", "locate", "verify", "translate"), models),
    }
    return settings.model_dump(mode="json", exclude=exclusions)
