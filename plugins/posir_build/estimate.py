"""The cost of a build, before the first call: calls, tokens and money by stage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from statistics import fmean
from typing import Any

from posir_build import ask, locate, translate, verify
from posir_build.cluster import Reranker
from posir_build.records import Document, StageResult
from posir_build.settings import BuildSettings
from posir_tasks.base.progress import format_seconds
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import MISSING, format_count, format_number
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.language_models.chat_client import PromptTemplate
from posir_tasks.language_models.settings import LanguageModelSettings, compute_cost, format_cost
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.words import BYTES_PER_TOKEN, estimate_tokens

#: Assumed tokens: of a question with its answer, of a quote with its sentences, of a grade, of a
#: sentence with its reasoning.
QUESTION_TOKENS, QUOTE_TOKENS, GRADE_TOKENS, REASON_TOKENS = 80, 60, 10, 50
#: Tokens of a summary (PosQ, arXiv 2505.13950: at most 400 words), of a sentence, and of a persona.
SUMMARY_TOKENS, SENTENCE_TOKENS, PERSONA_TOKENS = 400, 25, 12.5
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


#: Calls of one prompt: their number, the tokens of texts in all of them together, and the tokens of
#: one's answer.
Calls = tuple[PromptTemplate[Any], float, float, float]


def estimate_stages(
    settings: BuildSettings, results: Mapping[str, StageResult]
) -> list[StageEstimate]:
    """Return an estimate for each stage that calls a language model or rerankers.

    It needs the result of Sample, and of Ask if the questions are given; of further stages, the
    questions are counted if they have been run.
    """
    documents = results["sample"].documents
    asked = ask.choose_documents(documents, settings.ask.documents, settings.seed)
    mean = sum(document.tokens for document in asked) / max(1, len(asked))
    ask_calls, questions = _estimate_ask(settings, asked)
    number = dict[str, float]()
    for stage in ("ask", "locate", "verify", "false-negatives", "balance"):
        number[stage] = questions = len(results[stage].questions) if stage in results else questions
    verify_calls, verify_pairs = _estimate_verify(settings, number["locate"], mean)
    search, translated, languages = (
        settings.false_negatives,
        number["balance"],
        len(settings.translate.languages),
    )
    searched = number["verify"] if search.embedder else 0
    judged = (
        searched * SUSPECTS_PER_QUESTION * max(1, len(search.panel))
        if search.rule == "question"
        else 0
    )
    tokens, size = (
        sum(document.tokens for document in documents) * NUMBERED,
        settings.translate.sentences,
    )
    parts = (
        sum(-(-len(find_sentences(row.text, settings.language)) // size) for row in documents)
        if languages
        else 0
    )
    translate_calls: list[Calls] = [
        (translate.TRANSLATE_SENTENCES, parts, tokens, tokens / max(1, parts)),
        (translate.TRANSLATE_QUESTION, translated, translated * SENTENCE_TOKENS, SENTENCE_TOKENS),
    ]
    planned: dict[str, tuple[list[Calls], float]] = {
        "ask": (ask_calls, 0),
        "locate": (
            [(locate.LOCATE, number["ask"], number["ask"] * mean * NUMBERED, QUOTE_TOKENS)],
            0,
        ),
        "verify": (verify_calls, verify_pairs),
        "false-negatives": (
            [(verify.RELEVANCE, judged, judged * mean, GRADE_TOKENS)],
            searched * len(search.rerankers) * min(search.recall, len(documents)),
        ),
        "translate": (translate_calls * languages, 0),
    }
    if settings.translate.judge:
        suspects = languages * (len(documents) + translated) * SUSPECTED_REFUSALS
        read = suspects * translate.JUDGED_CHARACTERS / BYTES_PER_TOKEN
        planned["refusals"] = ([(translate.JUDGE_TRANSLATION, suspects, read, REASON_TOKENS)], 0)
    return [
        add_up(stage, settings.choose_llms(stage), calls, pairs)
        for stage, (calls, pairs) in planned.items()
    ]


def add_up(
    stage: str, models: Sequence[LanguageModelSettings], calls: Sequence[Calls], pairs: float = 0
) -> StageEstimate:
    """Return the estimate of a stage, whose calls are shared out among its models."""
    total = input_tokens = output_tokens = 0.0
    for prompt, number, text_tokens, answer_tokens in calls:
        fixed = estimate_tokens(prompt.system.template + prompt.user.template) + estimate_tokens(
            str(prompt.schema)
        )
        total += number
        input_tokens += number * fixed + text_tokens
        output_tokens += number * answer_tokens
    cost = sum(compute_cost(model.prices, input_tokens, output_tokens) for model in models) / len(
        models
    )
    return StageEstimate(
        stage, round(total), round(input_tokens), round(output_tokens), cost, round(pairs)
    )


def _estimate_ask(
    settings: BuildSettings, documents: Sequence[Document]
) -> tuple[list[Calls], float]:
    """Return the calls of Ask, and the number of questions."""
    number, tokens = len(documents), sum(document.tokens for document in documents)
    per_call = settings.ask.questions
    match settings.ask.method:
        case "positional":
            draws = settings.ask.draws
            calls = (ask.ASK_POSITIONAL, number * draws, tokens * draws, per_call * QUESTION_TOKENS)
            return [calls], number * draws * per_call
        case "chunk":
            chunks = sum(
                len(ask.split_chunks(document.text, settings.ask.chunk_words))
                for document in documents
            )
            return [
                (ask.SUMMARIZE, number, tokens, SUMMARY_TOKENS),
                (
                    ask.ASK_CHUNK,
                    chunks,
                    tokens + chunks * SUMMARY_TOKENS,
                    per_call * QUESTION_TOKENS,
                ),
            ], chunks * per_call
        case "persona":
            offered = number * settings.ask.personas_offered * PERSONA_TOKENS
            return [
                (ask.CHOOSE_PERSONA, number, tokens + offered, GRADE_TOKENS),
                (ask.ASK_PERSONA, 3 * number, 4 * tokens, QUESTION_TOKENS),
            ], 3 * number
        case "given":
            return [], 0


def _estimate_verify(
    settings: BuildSettings, questions: float, mean: float
) -> tuple[list[Calls], float]:
    """Return the calls of Verify, and the pairs that rerankers score."""
    wanted, calls = settings.verify, list[Calls]()
    # Segments are three texts with the length of one document, the span two documents.
    if wanted.relevance != "none":
        views, read = (3, 1) if wanted.relevance == "segments" else (2, 2)
        calls.append((verify.RELEVANCE, views * questions, read * questions * mean, GRADE_TOKENS))
    if wanted.leave_out:
        calls.append((verify.ANSWERABLE, questions, questions * mean, REASON_TOKENS))
    if wanted.audit:
        ranges = len(wanted.margins) + 1
        audited = min(questions, ranges * wanted.audit_sample) if wanted.audit_sample else questions
        calls.append((verify.ANSWERABLE, 3 * audited, audited * mean, REASON_TOKENS))
    return calls, len(wanted.rerankers) * (2 if wanted.rerank_rule == "span" else 3) * questions


def describe_plan(
    estimates: Sequence[StageEstimate],
    models: Sequence[LanguageModelSettings],
    notes: Sequence[str],
) -> Result:
    """Return what `posir build --plan` shows: the cost in a sentence, then a table of the stages.

    The last row is the total; without prices or rerankers there are no columns of them.
    """
    total = StageEstimate(
        "total", *map(sum, zip(*(astuple(row)[1:] for row in estimates), strict=True))
    )
    priced = [model for model in models if model.prices.given]
    currency = priced[0].prices.currency if priced else ""
    sentence = (
        "At most "
        f"{f'{format_cost(total.cost, currency)} for ' if currency else ''}{pluralize(total.calls, 'call')} "  # noqa: E501
        "of "
        f"{', '.join(dict.fromkeys(model.model for model in models))}: {total.input_tokens:,} "
        "input and "
        f"{total.output_tokens:,} output tokens."
    )
    prices = [
        f"{row.prices.input:g} and {row.prices.output:g} {row.prices.currency} ({row.model})"
        for row in priced
    ]
    at = f" Prices per million input and output tokens: {'; '.join(prices)}." if prices else ""
    assumed = [
        "If nothing is discarded; tokens are estimated. Repeated attempts and thinking come on "
        f"top.{at}"
    ]
    if total.reranker_seconds:
        assumed.append(
            "Reranking: time on this machine, from a few pairs; less where pairs share texts, "
            "since an embedder encodes each "
            "text once."
        )
    reranked = ["Reranker pairs", "Reranking"] if total.reranker_pairs else []
    costs = [f"Cost ({currency})"] if currency else []
    headings = ("Stage", "Calls", "Input tokens", "Output tokens", *costs, *reranked)
    rows = []
    for row in (*estimates, total):
        cells = [row.stage, *map(format_count, (row.calls, row.input_tokens, row.output_tokens))]
        cells += [format_number(row.cost, ",.2f")] if costs else []
        seconds = format_seconds(row.reranker_seconds) if row.reranker_seconds else MISSING
        rows.append((*cells, *([format_count(row.reranker_pairs), seconds] if reranked else [])))
    tables = [Table(build_columns(headings, headings[1:]), tuple(rows))]
    return Result(
        title="Plan of a build",
        rows=estimates,
        tables=tables,
        sentences=[sentence],
        notes=[*notes, *assumed],
    )


#: Pairs of the benchmark.
PAIRS = 16


def add_reranker_seconds(
    estimates: Sequence[StageEstimate],
    rerankers: Mapping[str, Sequence[Reranker]],
    documents: Sequence[Document],
) -> list[StageEstimate]:
    """Return estimates with the seconds that the rerankers of a stage take at most: if every pair
    has a text of its own.
    """
    ordered = sorted(documents, key=lambda document: document.tokens)
    texts = [ordered[len(ordered) * place // PAIRS].text for place in range(PAIRS)]
    # The beginning of a document stands for a question.
    pairs = [(text[:80], text) for text in texts]
    timed = []
    for estimate in estimates:
        seconds = [0.0] * (not rerankers.get(estimate.stage))
        for reranker in rerankers.get(estimate.stage, ()):
            # The first pair loads the model.
            list(reranker.score_batches([pairs[:1]]))
            started = time.perf_counter()
            list(reranker.score_batches([pairs]))
            seconds.append((time.perf_counter() - started) / len(pairs))
        timed.append(replace(estimate, reranker_seconds=fmean(seconds) * estimate.reranker_pairs))
    return timed
