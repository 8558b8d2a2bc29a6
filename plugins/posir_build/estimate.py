"""The cost of a build, before the first call: calls, tokens and money by stage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from math import ceil
from statistics import fmean
from typing import Any

from posir_build import ask, locate, translate, verify
from posir_build.cluster import Reranker
from posir_build.records import Document, StageResult
from posir_build.settings import STAGE_NAMES, BuildSettings, VerifySettings
from posir_tasks.base.progress import format_seconds
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import MISSING, format_count, format_number
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.language_models.chat_client import PromptTemplate
from posir_tasks.language_models.settings import LanguageModelSettings, compute_cost, format_cost
from posir_tasks.models.rerankers import Pair
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.words import BYTES_PER_TOKEN, estimate_tokens

#: Assumed tokens of a question with its answer, a quote with its sentences, a grade, a sentence
#: with its reasoning, a summary (PosQ, arXiv 2505.13950: at most 400 words), a sentence, a persona.
QUESTION_TOKENS = 80
QUOTE_TOKENS = 60
GRADE_TOKENS = 10
REASON_TOKENS = 50
SUMMARY_TOKENS = 400
SENTENCE_TOKENS = 25
PERSONA_TOKENS = 12.5
#: Growth of a document by the numbers of its sentences.
NUMBERED = 1.15
#: Suspects per question at the default threshold, in a corpus where a third of the questions has a
#: false negative (docs/build.md); at 0.5, in a corpus of 13,902 passages, PosQ had 854 for 26,356
#: questions (appendix A.2).
SUSPECTS_PER_QUESTION = 2.0
#: Translations that look like refusals, of all; PosIR (appendix B) discarded 0.02% as such.
SUSPECTED_REFUSALS = 0.01


@dataclass(frozen=True)
class StageEstimate:
    """The highest cost of a stage: no question is discarded, and every answer can be read at
    once.
    """

    stage: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    """Cost of the calls in the currency of the prices, `llm.prices.currency`."""
    reranker_pairs: int = 0
    reranker_seconds: float = 0.0
    """Time of the rerankers in seconds on this machine, from a short benchmark; 0 without
    rerankers.
    """


@dataclass(frozen=True)
class PromptCalls:
    """Calls of one prompt."""

    prompt: PromptTemplate[Any]
    number: float
    text_tokens: float
    """Tokens of texts in all calls together."""
    answer_tokens: float
    """Tokens of one answer."""

    @property
    def input_tokens(self) -> float:
        """Tokens of prompts and texts in all calls together."""
        fixed = self.prompt.system.template + self.prompt.user.template
        tokens = estimate_tokens(fixed) + estimate_tokens(str(self.prompt.schema))
        return self.number * tokens + self.text_tokens


def estimate_stages(
    settings: BuildSettings, results: Mapping[str, StageResult]
) -> list[StageEstimate]:
    """Estimate each stage that calls a language model or rerankers.

    It needs the result of Sample, and of Ask if the questions are given; the questions of further
    stages are counted if they have been run.
    """
    documents = results["sample"].documents
    about = ask.choose_documents(documents, settings.ask.documents, settings.seed)
    mean = sum(document.tokens for document in about) / max(1, len(about))
    calls: dict[str, list[PromptCalls]] = {}
    calls["ask"], questions = _estimate_ask(settings, about)
    number = {}
    for stage in STAGE_NAMES[1:]:
        questions = len(results[stage].questions) if stage in results else questions
        number[stage] = questions
    texts = number["ask"] * mean * NUMBERED
    calls["locate"] = [PromptCalls(locate.LOCATE, number["ask"], texts, QUOTE_TOKENS)]
    calls["verify"] = _estimate_verify(settings.verify, number["locate"], mean)
    search = settings.false_negatives
    searched = number["verify"] if search.embedder else 0
    judged = searched * SUSPECTS_PER_QUESTION * max(1, len(search.panel))
    judged *= search.rule == "question"
    calls["false-negatives"] = [PromptCalls(verify.RELEVANCE, judged, judged * mean, GRADE_TOKENS)]
    calls |= _estimate_translate(settings, documents, number["balance"])
    views = 2 if settings.verify.rerank_rule == "span" else 3
    pairs = {
        "verify": len(settings.verify.rerankers) * views * number["locate"],
        "false-negatives": searched * len(search.rerankers) * min(search.recall, len(documents)),
    }
    return [
        add_up(stage, settings.choose_llms(stage), rows, pairs.get(stage, 0))
        for stage, rows in calls.items()
    ]


def add_up(
    stage: str,
    models: Sequence[LanguageModelSettings],
    calls: Sequence[PromptCalls],
    pairs: float = 0,
) -> StageEstimate:
    """Add up the calls of a stage, which are shared out among its models."""
    input_tokens = sum(row.input_tokens for row in calls)
    output_tokens = sum(row.number * row.answer_tokens for row in calls)
    return StageEstimate(
        stage,
        round(sum(row.number for row in calls)),
        round(input_tokens),
        round(output_tokens),
        fmean(compute_cost(model.prices, input_tokens, output_tokens) for model in models),
        round(pairs),
    )


def _estimate_ask(
    settings: BuildSettings, documents: Sequence[Document]
) -> tuple[list[PromptCalls], float]:
    """Estimate the calls of Ask, and the number of questions."""
    asking = settings.ask
    number = len(documents)
    tokens = sum(document.tokens for document in documents)
    answer = asking.questions * QUESTION_TOKENS
    match asking.method:
        case "positional":
            prompts = number * asking.draws
            calls = [PromptCalls(ask.ASK_POSITIONAL, prompts, tokens * asking.draws, answer)]
            return calls, prompts * asking.questions
        case "chunk":
            split = (ask.split_chunks(document.text, asking.chunk_words) for document in documents)
            chunks = sum(map(len, split))
            summaries = chunks * SUMMARY_TOKENS
            calls = [
                PromptCalls(ask.SUMMARIZE, number, tokens, SUMMARY_TOKENS),
                PromptCalls(ask.ASK_CHUNK, chunks, tokens + summaries, answer),
            ]
            return calls, chunks * asking.questions
        case "persona":
            personas = number * asking.personas_offered * PERSONA_TOKENS
            calls = [
                PromptCalls(ask.CHOOSE_PERSONA, number, tokens + personas, GRADE_TOKENS),
                PromptCalls(ask.ASK_PERSONA, 3 * number, 4 * tokens, QUESTION_TOKENS),
            ]
            return calls, 3 * number
        case "given":
            return [], 0


def _estimate_verify(settings: VerifySettings, questions: float, mean: float) -> list[PromptCalls]:
    """Estimate the calls of Verify, of texts of a mean length."""
    calls = []
    texts = questions * mean
    # Segments are three texts with the length of one document, the span two documents.
    if settings.relevance == "segments":
        calls.append(PromptCalls(verify.RELEVANCE, 3 * questions, texts, GRADE_TOKENS))
    if settings.relevance == "span":
        calls.append(PromptCalls(verify.RELEVANCE, 2 * questions, 2 * texts, GRADE_TOKENS))
    if settings.leave_out:
        calls.append(PromptCalls(verify.ANSWERABLE, questions, texts, REASON_TOKENS))
    if settings.audit:
        audited = questions
        if settings.audit_sample:
            audited = min(questions, (len(settings.margins) + 1) * settings.audit_sample)
        calls.append(PromptCalls(verify.ANSWERABLE, 3 * audited, audited * mean, REASON_TOKENS))
    return calls


def _estimate_translate(
    settings: BuildSettings, documents: Sequence[Document], questions: float
) -> dict[str, list[PromptCalls]]:
    """Estimate the calls of translations and, with a judge, of refusals."""
    wanted = settings.translate
    languages = len(wanted.languages)
    tokens = sum(document.tokens for document in documents) * NUMBERED
    parts = 0
    if languages:
        numbers = (len(find_sentences(row.text, settings.language)) for row in documents)
        parts = sum(ceil(number / wanted.sentences) for number in numbers)
    texts = PromptCalls(translate.TRANSLATE_SENTENCES, parts, tokens, tokens / max(1, parts))
    asked = questions * SENTENCE_TOKENS
    short = PromptCalls(translate.TRANSLATE_QUESTION, questions, asked, SENTENCE_TOKENS)
    calls = {"translate": [texts, short] * languages}
    if wanted.judge:
        suspects = languages * (len(documents) + questions) * SUSPECTED_REFUSALS
        read = suspects * translate.JUDGED_CHARACTERS / BYTES_PER_TOKEN
        judging = PromptCalls(translate.JUDGE_TRANSLATION, suspects, read, REASON_TOKENS)
        calls["refusals"] = [judging]
    return calls


def describe_plan(
    estimates: Sequence[StageEstimate],
    models: Sequence[LanguageModelSettings],
    notes: Sequence[str],
) -> Result:
    """Describe the cost in a sentence, then a table of the stages; the last row is the total.

    Without prices or rerankers there are no columns of them.
    """
    columns = zip(*(astuple(row)[1:] for row in estimates), strict=True)
    total = StageEstimate("total", *map(sum, columns))
    priced = [model for model in models if model.prices.given]
    currency = priced[0].prices.currency if priced else ""
    cost = f"{format_cost(total.cost, currency)} for " if currency else ""
    names = ", ".join(dict.fromkeys(model.model for model in models))
    sentence = (
        f"At most {cost}{pluralize(total.calls, 'call')} of {names}: {total.input_tokens:,} input "
        f"and {total.output_tokens:,} output tokens."
    )
    assumptions = (
        "If nothing is discarded; tokens are estimated. Repeated attempts and thinking come on top."
    )
    prices = [
        f"{row.prices.input:g} and {row.prices.output:g} {row.prices.currency} ({row.model})"
        for row in priced
    ]
    if prices:
        assumptions += f" Prices per million input and output tokens: {'; '.join(prices)}."
    reranking = (
        "Reranking: time on this machine, from a few pairs; less where pairs share texts, since an "
        "embedder encodes each text once."
    )
    rows = [
        (
            row.stage,
            format_count(row.calls),
            format_count(row.input_tokens),
            format_count(row.output_tokens),
            format_number(row.cost if currency else None, ",.2f"),
            format_count(row.reranker_pairs if total.reranker_pairs else None),
            format_seconds(row.reranker_seconds) if row.reranker_seconds else MISSING,
        )
        for row in (*estimates, total)
    ]
    reranked = ("Reranker pairs", "Reranking")
    numbers = ("Calls", "Input tokens", "Output tokens", f"Cost ({currency})", *reranked)
    table = Table(build_columns(("Stage", *numbers), numbers), tuple(rows))
    return Result(
        title="Plan of a build",
        rows=estimates,
        tables=[table.without_empty_columns()],
        sentences=[sentence],
        notes=[*notes, assumptions, *([reranking] if total.reranker_seconds else [])],
    )


#: Pairs of the benchmark.
PAIRS = 16


def add_reranker_seconds(
    estimates: Sequence[StageEstimate],
    rerankers: Mapping[str, Sequence[Reranker]],
    documents: Sequence[Document],
) -> list[StageEstimate]:
    """Add the seconds that the rerankers of a stage take at most: if every pair has a text of its
    own.
    """
    ordered = sorted(documents, key=lambda document: document.tokens)
    texts = [ordered[len(ordered) * row // PAIRS].text for row in range(PAIRS)]
    # The beginning of a document is used as a question.
    pairs = [(text[:80], text) for text in texts]
    timed = []
    for estimate in estimates:
        rounds = [time_reranker(row, pairs) for row in rerankers.get(estimate.stage, ())]
        seconds = fmean(rounds) if rounds else 0
        timed.append(replace(estimate, reranker_seconds=seconds * estimate.reranker_pairs))
    return timed


def time_reranker(reranker: Reranker, pairs: Sequence[Pair]) -> float:
    """Measure the seconds that a loaded reranker takes for a pair."""
    # The first pair loads the model.
    list(reranker.score_batches([pairs[:1]]))
    started = time.perf_counter()
    list(reranker.score_batches([pairs]))
    return (time.perf_counter() - started) / len(pairs)
