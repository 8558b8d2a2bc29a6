"""Estimate the calls, tokens and cost of each stage before a build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from math import ceil
from statistics import fmean
from typing import Any

from posir_build import ask, locate, translate, verify
from posir_build.records import Document, StageResult
from posir_build.settings import STAGE_NAMES, BuildSettings, VerifySettings
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import format_count, format_number
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import build_numeric_table
from posir_tasks.language_models.call_log import Usage
from posir_tasks.language_models.chat_client import PromptTemplate
from posir_tasks.language_models.settings import LanguageModelSettings, compute_cost, format_cost
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.words import BYTES_PER_TOKEN, estimate_tokens

#: Assumed token counts. QUESTION_TOKENS includes the answer, QUOTE_TOKENS the sentence numbers, and
#: REASON_TOKENS the grade. A summary has at most 400 words in PosQ (arXiv 2505.13950).
QUESTION_TOKENS = 80
QUOTE_TOKENS = 60
GRADE_TOKENS = 10
REASON_TOKENS = 50
SUMMARY_TOKENS = 400
SENTENCE_TOKENS = 25
PERSONA_TOKENS = 12.5
#: Questions per chunk with PosQ's prompts (appendix A.2): 265,865 questions about 13,902 passages,
#: most with three or four chunks.
POSQ_QUESTIONS = 6
#: Factor by which sentence numbers lengthen a document.
NUMBERING_FACTOR = 1.15
#: Documents that rerankers flag per question at the default threshold, if a third of the questions
#: have a false negative (docs/build.md). PosQ flagged 854 documents for 26,356 questions, with
#: 13,902 passages and a threshold of 0.5 (appendix A.2).
FLAGGED_PER_QUESTION = 2.0
#: Share of translations that look like refusals. PosIR (appendix B) discarded 0.02% as refusals.
SUSPECTED_REFUSAL_SHARE = 0.01


@dataclass(frozen=True)
class StageEstimate:
    """Cost of a stage if no question is discarded and no call is retried."""

    stage: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    """Cost of the calls, in `llm.prices.currency`."""
    reranker_pairs: int = 0


def estimate_calls(
    prompt: PromptTemplate[Any], calls: float, text_tokens: float, answer_tokens: float
) -> Usage:
    """Estimate the usage of one prompt. `text_tokens` is the total over all calls, without the
    prompt; `answer_tokens` is per call.
    """
    prompt_tokens = estimate_tokens(prompt.system.template + prompt.user.template)
    prompt_tokens += estimate_tokens(str(prompt.schema))
    return Usage(
        round(calls), round(calls * prompt_tokens + text_tokens), round(calls * answer_tokens)
    )


def estimate_stages(
    settings: BuildSettings, results: Mapping[str, StageResult]
) -> list[StageEstimate]:
    """Estimate each stage that calls a language model or rerankers.

    `results` must contain the result of Sample, and of Ask if `ask.method` is `given`. If it
    contains later stages, their numbers of questions replace the estimates.
    """
    documents = results["sample"].documents
    sources = ask.sample_source_documents(documents, settings.ask.documents, settings.seed)
    mean_tokens = sum(document.tokens for document in sources) / max(1, len(sources))
    usage, question_count = _estimate_ask(settings, sources)
    question_counts = {}
    for stage in STAGE_NAMES[1:]:
        question_count = len(results[stage].questions) if stage in results else question_count
        question_counts[stage] = question_count
    text_tokens = question_counts["ask"] * mean_tokens * NUMBERING_FACTOR
    search = settings.false_negatives
    queries = question_counts["verify"] if search.embedder else 0
    judge_calls = 0.0
    if search.rule == "question":
        judge_calls = queries * FLAGGED_PER_QUESTION * max(1, len(search.panel))
    usage_by_stage = {
        "ask": usage,
        "locate": estimate_calls(locate.LOCATE, question_counts["ask"], text_tokens, QUOTE_TOKENS),
        "verify": _estimate_verify(settings.verify, question_counts["locate"], mean_tokens),
        "false-negatives": estimate_calls(
            verify.RELEVANCE, judge_calls, judge_calls * mean_tokens, GRADE_TOKENS
        ),
        **_estimate_translate(settings, documents, question_counts["balance"]),
    }
    views = 2 if settings.verify.rerank_rule == "span" else 3
    pairs_by_stage = {
        "verify": len(settings.verify.rerankers) * views * question_counts["locate"],
        "false-negatives": queries * len(search.rerankers) * min(search.recall, len(documents)),
    }
    return [
        estimate_cost(stage, settings.list_stage_llms(stage), usage, pairs_by_stage.get(stage, 0))
        for stage, usage in usage_by_stage.items()
    ]


def estimate_cost(
    stage: str, models: Sequence[LanguageModelSettings], usage: Usage, pairs: int = 0
) -> StageEstimate:
    """Estimate the cost of a stage whose calls are split evenly among models."""
    tokens = (usage.input_tokens, usage.output_tokens)
    cost = fmean(compute_cost(model.prices, *tokens) for model in models)
    return StageEstimate(stage, usage.calls, *tokens, cost, pairs)


def _estimate_ask(settings: BuildSettings, documents: Sequence[Document]) -> tuple[Usage, int]:
    """Estimate the usage of Ask, and the number of questions it generates."""
    section = settings.ask
    document_count = len(documents)
    token_count = sum(document.tokens for document in documents)
    questions = POSQ_QUESTIONS if settings.prompts == "posq" else section.questions
    answer_tokens = questions * QUESTION_TOKENS
    match section.method:
        case "positional":
            calls = document_count * section.draws
            usage = estimate_calls(
                ask.ASK_POSITIONAL, calls, token_count * section.draws, answer_tokens
            )
            return usage, calls * questions
        case "chunk":
            chunk_count = sum(
                len(ask.split_chunks(row.text, section.chunk_words)) for row in documents
            )
            text_tokens = token_count + chunk_count * SUMMARY_TOKENS
            summaries = estimate_calls(ask.SUMMARIZE, document_count, token_count, SUMMARY_TOKENS)
            usage = estimate_calls(ask.ASK_CHUNK, chunk_count, text_tokens, answer_tokens)
            return summaries + usage, chunk_count * questions
        case "persona":
            personas = document_count * section.personas_offered * PERSONA_TOKENS
            choices = estimate_calls(
                ask.CHOOSE_PERSONA, document_count, token_count + personas, GRADE_TOKENS
            )
            usage = estimate_calls(
                ask.ASK_PERSONA, 3 * document_count, 4 * token_count, QUESTION_TOKENS
            )
            return choices + usage, 3 * document_count
        case "given":
            return Usage(), 0


def _estimate_verify(settings: VerifySettings, questions: int, mean_tokens: float) -> Usage:
    """Estimate the usage of Verify given the mean document length in tokens."""
    usage = Usage()
    text_tokens = questions * mean_tokens
    # The segments add up to one document; the texts with and without the span, to about two.
    if settings.relevance == "segments":
        usage += estimate_calls(verify.RELEVANCE, 3 * questions, text_tokens, GRADE_TOKENS)
    if settings.relevance == "span":
        usage += estimate_calls(verify.RELEVANCE, 2 * questions, 2 * text_tokens, GRADE_TOKENS)
    if settings.leave_out:
        usage += estimate_calls(verify.ANSWERABLE, questions, text_tokens, REASON_TOKENS)
    if settings.audit:
        range_count = len(settings.margins) + 1
        audited = min(questions, range_count * (settings.audit_sample or questions))
        usage += estimate_calls(
            verify.ANSWERABLE, 3 * audited, audited * mean_tokens, REASON_TOKENS
        )
    return usage


def _estimate_translate(
    settings: BuildSettings, documents: Sequence[Document], questions: int
) -> dict[str, Usage]:
    """Estimate the usage of translation and, with a judge, of checks for refusals."""
    section = settings.translate
    language_count = len(section.languages)
    token_count = sum(document.tokens for document in documents) * NUMBERING_FACTOR
    blocks = 0
    if language_count:
        sentence_counts = (len(find_sentences(row.text, settings.language)) for row in documents)
        blocks = sum(ceil(count / section.sentences) for count in sentence_counts)
    text_usage = estimate_calls(
        translate.TRANSLATE_SENTENCES,
        language_count * blocks,
        language_count * token_count,
        token_count / max(1, blocks),
    )
    query_count = language_count * questions
    query_usage = estimate_calls(
        translate.TRANSLATE_QUESTION, query_count, query_count * SENTENCE_TOKENS, SENTENCE_TOKENS
    )
    usage_by_stage = {"translate": text_usage + query_usage}
    if section.judge:
        judged_texts = language_count * (len(documents) + questions) * SUSPECTED_REFUSAL_SHARE
        characters = judged_texts * translate.JUDGED_CHARACTERS
        usage_by_stage["refusals"] = estimate_calls(
            translate.JUDGE_TRANSLATION, judged_texts, characters / BYTES_PER_TOKEN, REASON_TOKENS
        )
    return usage_by_stage


def describe_plan(
    estimates: Sequence[StageEstimate],
    models: Sequence[LanguageModelSettings],
    notes: Sequence[str],
) -> Result:
    """Report the total cost in a sentence, and the stages and their total in a table.

    The columns for costs and reranker pairs are omitted if they are empty.
    """
    columns = zip(*(astuple(row)[1:] for row in estimates), strict=True)
    total = StageEstimate("total", *map(sum, columns))
    currency = next((row.prices.currency for row in models if row.prices.is_set), "")
    cost = f"{format_cost(total.cost, currency)} for " if currency else ""
    names = ", ".join(dict.fromkeys(model.model for model in models))
    sentence = (
        f"At most {cost}{pluralize(total.calls, 'call')} to {names}: {total.input_tokens:,} input "
        f"and {total.output_tokens:,} output tokens."
    )
    rows = []
    for row in (*estimates, total):
        counts = map(format_count, (row.calls, row.input_tokens, row.output_tokens))
        cost_cell = format_number(row.cost if currency else None, ",.2f")
        pairs = format_count(row.reranker_pairs if total.reranker_pairs else None)
        rows.append((row.stage, *counts, cost_cell, pairs))
    headings = (
        "Stage",
        "Calls",
        "Input tokens",
        "Output tokens",
        f"Cost ({currency})",
        "Reranker pairs",
    )
    assumptions = (
        "Assumes that nothing is discarded; tokens are estimated. Retries and thinking tokens are "
        "not included."
    )
    return Result(
        title="Plan of a build",
        rows=estimates,
        tables=[build_numeric_table(headings, rows).drop_empty_columns()],
        sentences=[sentence],
        notes=[*notes, assumptions],
    )
