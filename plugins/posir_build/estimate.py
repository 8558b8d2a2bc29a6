"""The cost of a build, before the first call: calls, tokens and money by stage."""

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
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.language_models.call_log import Usage
from posir_tasks.language_models.chat_client import PromptTemplate
from posir_tasks.language_models.settings import LanguageModelSettings, compute_cost, format_cost
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
#: Questions about a chunk by the prompts of PosQ (appendix A.2): 265,865 about 13,902 passages of
#: mostly three or four chunks.
POSQ_QUESTIONS = 6
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


def estimate_calls(
    prompt: PromptTemplate[Any], number: float, text_tokens: float, answer_tokens: float
) -> Usage:
    """Estimate the calls of one prompt, from the tokens of texts in all of them and those of one
    answer.
    """
    fixed = estimate_tokens(prompt.system.template + prompt.user.template)
    fixed += estimate_tokens(str(prompt.schema))
    return Usage(round(number), round(number * fixed + text_tokens), round(number * answer_tokens))


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
    usage, questions = _estimate_ask(settings, about)
    number = {}
    for stage in STAGE_NAMES[1:]:
        questions = len(results[stage].questions) if stage in results else questions
        number[stage] = questions
    texts = number["ask"] * mean * NUMBERED
    search = settings.false_negatives
    searched = number["verify"] if search.embedder else 0
    judged = searched * SUSPECTS_PER_QUESTION * max(1, len(search.panel))
    if search.rule == "document":
        judged = 0
    calls = {
        "ask": usage,
        "locate": estimate_calls(locate.LOCATE, number["ask"], texts, QUOTE_TOKENS),
        "verify": _estimate_verify(settings.verify, number["locate"], mean),
        "false-negatives": estimate_calls(verify.RELEVANCE, judged, judged * mean, GRADE_TOKENS),
        **_estimate_translate(settings, documents, number["balance"]),
    }
    views = 2 if settings.verify.rerank_rule == "span" else 3
    pairs = {
        "verify": len(settings.verify.rerankers) * views * number["locate"],
        "false-negatives": searched * len(search.rerankers) * min(search.recall, len(documents)),
    }
    return [
        price(stage, settings.choose_llms(stage), usage, pairs.get(stage, 0))
        for stage, usage in calls.items()
    ]


def price(
    stage: str, models: Sequence[LanguageModelSettings], usage: Usage, pairs: int = 0
) -> StageEstimate:
    """Compute the cost of calls that are shared out among models."""
    tokens = (usage.input_tokens, usage.output_tokens)
    cost = fmean(compute_cost(model.prices, *tokens) for model in models)
    return StageEstimate(stage, usage.calls, *tokens, cost, pairs)


def _estimate_ask(settings: BuildSettings, documents: Sequence[Document]) -> tuple[Usage, int]:
    """Estimate the calls of Ask, and the number of questions."""
    asking = settings.ask
    number = len(documents)
    tokens = sum(document.tokens for document in documents)
    questions = POSQ_QUESTIONS if settings.prompts == "posq" else asking.questions
    answer = questions * QUESTION_TOKENS
    match asking.method:
        case "positional":
            calls = number * asking.draws
            usage = estimate_calls(ask.ASK_POSITIONAL, calls, tokens * asking.draws, answer)
            return usage, calls * questions
        case "chunk":
            split = (ask.split_chunks(document.text, asking.chunk_words) for document in documents)
            chunks = sum(map(len, split))
            texts = tokens + chunks * SUMMARY_TOKENS
            summaries = estimate_calls(ask.SUMMARIZE, number, tokens, SUMMARY_TOKENS)
            usage = estimate_calls(ask.ASK_CHUNK, chunks, texts, answer)
            return summaries + usage, chunks * questions
        case "persona":
            personas = number * asking.personas_offered * PERSONA_TOKENS
            choices = estimate_calls(ask.CHOOSE_PERSONA, number, tokens + personas, GRADE_TOKENS)
            usage = estimate_calls(ask.ASK_PERSONA, 3 * number, 4 * tokens, QUESTION_TOKENS)
            return choices + usage, 3 * number
        case "given":
            return Usage(), 0


def _estimate_verify(settings: VerifySettings, questions: int, mean: float) -> Usage:
    """Estimate the calls of Verify, of texts of a mean length."""
    usage = Usage()
    texts = questions * mean
    # Segments are three texts with the length of one document, the span two documents.
    if settings.relevance == "segments":
        usage += estimate_calls(verify.RELEVANCE, 3 * questions, texts, GRADE_TOKENS)
    if settings.relevance == "span":
        usage += estimate_calls(verify.RELEVANCE, 2 * questions, 2 * texts, GRADE_TOKENS)
    if settings.leave_out:
        usage += estimate_calls(verify.ANSWERABLE, questions, texts, REASON_TOKENS)
    if settings.audit:
        ranges = len(settings.margins) + 1
        audited = min(questions, ranges * (settings.audit_sample or questions))
        usage += estimate_calls(verify.ANSWERABLE, 3 * audited, audited * mean, REASON_TOKENS)
    return usage


def _estimate_translate(
    settings: BuildSettings, documents: Sequence[Document], questions: int
) -> dict[str, Usage]:
    """Estimate the calls of translations and, with a judge, of refusals."""
    translation = settings.translate
    languages = len(translation.languages)
    tokens = sum(document.tokens for document in documents) * NUMBERED
    parts = 0
    if languages:
        numbers = (len(find_sentences(row.text, settings.language)) for row in documents)
        parts = sum(ceil(number / translation.sentences) for number in numbers)
    short = languages * questions
    calls = {
        "translate": estimate_calls(
            translate.TRANSLATE_SENTENCES,
            languages * parts,
            languages * tokens,
            tokens / max(1, parts),
        )
        + estimate_calls(
            translate.TRANSLATE_QUESTION, short, short * SENTENCE_TOKENS, SENTENCE_TOKENS
        )
    }
    if translation.judge:
        suspects = languages * (len(documents) + questions) * SUSPECTED_REFUSALS
        read = suspects * translate.JUDGED_CHARACTERS / BYTES_PER_TOKEN
        calls["refusals"] = estimate_calls(
            translate.JUDGE_TRANSLATION, suspects, read, REASON_TOKENS
        )
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
    currency = next((row.prices.currency for row in models if row.prices.given), "")
    cost = f"{format_cost(total.cost, currency)} for " if currency else ""
    names = ", ".join(dict.fromkeys(model.model for model in models))
    sentence = (
        f"At most {cost}{pluralize(total.calls, 'call')} of {names}: {total.input_tokens:,} input "
        f"and {total.output_tokens:,} output tokens."
    )
    rows = []
    for row in (*estimates, total):
        counts = map(format_count, (row.calls, row.input_tokens, row.output_tokens))
        money = format_number(row.cost if currency else None, ",.2f")
        pairs = format_count(row.reranker_pairs if total.reranker_pairs else None)
        rows.append((row.stage, *counts, money, pairs))
    numbers = ("Calls", "Input tokens", "Output tokens", f"Cost ({currency})", "Reranker pairs")
    table = Table(build_columns(("Stage", *numbers), numbers), tuple(rows))
    assumptions = (
        "If nothing is discarded; tokens are estimated. Repeated attempts and thinking come on top."
    )
    return Result(
        title="Plan of a build",
        rows=estimates,
        tables=[table.without_empty_columns()],
        sentences=[sentence],
        notes=[*notes, assumptions],
    )
