"""Sentences about a user's texts and a running index."""

from __future__ import annotations

from posir_significance.findings import ChangeRow, ChangeState, GroupFindings, Quantity
from posir_significance.messages.comparisons import describe_needed_change
from posir_significance.messages.verdicts import (
    describe_observed,
    format_difference,
    format_margin,
    format_score_in_percent,
)
from posir_tasks.base.wording import pluralize
from posir_tasks.display import numbers
from posir_tasks.display.labels import Term
from posir_tasks.values.estimates import Estimate

#: Sentences about a model's window, by its relation to the claimed window.
WINDOW_SENTENCES = {
    "all": "It reads {length} of a text{about}, as many as were tried.",
    "all_claimed": (
        "It reads {length} of a text{about}, as many as were tried; {claimant} claims {claimed} "
        "tokens."
    ),
    "no_claim": "It reads {length} of a text{about}, and {rest}; it claims no length.",
    "less": (
        "It reads only {length} of a text{about}, and {rest}, although {claimant} claims {claimed} "
        "tokens."
    ),
    "more": (
        "It reads {length} of a text{about}, more than the {claimed} tokens that {claimant} "
        "claims, and {rest}."
    ),
    "as_claimed": "It reads {length} of a text{about}, as it claims, and {rest}.",
}
WINDOW_TITLE = "{model} reads {length} of a text"
INSPECT_TEXTS = "see what your own texts lose"
REPLACE_TASK = "a task, or a folder instead of {task}"
REFUSES = "refuses longer texts"
IGNORES = "ignores the rest without an error"
ABOUT_ENGLISH = (
    "That is about the {part} {characters:,} characters, or {words:,.0f} words, of English."
)
UNREAD_TEXT = "The rest does not change its {output}."
REQUIREMENT = "{verb} enough: {required:,} tokens are required."
READS_ALL_TEXTS = "{model} reads {texts} to the end"
NEVER_READS = "{model} never reads {share} of the words of {texts}"
UNREAD_WORDS = "{number:,} of {texts:,} texts are longer: {share} of all words are never read."
WORD_BASELINE = "BM25 finds their texts with nDCG@10 {shared}, a random order with {chance}."
SAME_ADVICE = "The advice is the same with questions in their rarest words."
OTHER_ADVICE = "The advice differs with questions in their rarest words: {chunks}."
MORE_TEXTS = "{number:,} are too few to measure a bias or the best chunks"
FITTING_CHUNKS = "Search in chunks of {size} tokens, which fit the window"
SENTENCE_SCORES = "nDCG@10 {score} over {sentences}. {observed}"
TRUNCATED_SCORES = (
    "Truncated sentences: {score}; BM25 on {read} has {shared}, a random order {chance}."
)


def advise_more_texts(texts: int, size: int) -> tuple[str, ...]:
    """Advise more texts, and chunks of the window's size unless `size` is 0."""
    step = Term("Add texts", MORE_TEXTS.format(number=texts))
    return (FITTING_CHUNKS.format(size=size), step) if size else (step,)


def describe_sentence_scores(findings: GroupFindings) -> str:
    """Describe nDCG@10 over all sentences and the observed start minus end."""
    return SENTENCE_SCORES.format(
        score=format_score_in_percent(findings[Quantity.NDCG_AT_10].estimate),
        sentences=pluralize(findings.questions, "sentence"),
        observed=describe_observed(findings),
    ).rstrip()


CHUNK_COST = "It takes {cost:.1f} times as many vectors."
WHOLE_SERVES = "No chunks find more than {whole}."
CHUNK_ADVICE = "nDCG@10 changes from {whole} to {value} on {texts}, with {cost}"
BEST_CHUNKS = "; {chunks} reach {value}, with {times:.2g} times the vectors"
#: Change in recall between two parts of documents; {recall} is `Recall (document, rarest words)`.
RECALL_CHANGES: dict[ChangeState, str] = {
    ChangeState.BETTER: "{recall} is higher in the {first} than in the {last}: {points}.",
    ChangeState.WORSE: "{recall} is lower in the {first} than in the {last}: {points}.",
    ChangeState.EQUIVALENT: (
        "{recall}: no difference above {margin} between the {first} and the {last}, {points}."
    ),
    ChangeState.INCONCLUSIVE: "{recall} in the {first} and the {last}: {points}. {needed}",
}
#: Advice on a running index, by the change in recall between the last and the first third.
INDEX_ADVICE: dict[ChangeState, str] = {
    ChangeState.BETTER: Term("Index chunks of these documents", "their ends are lost"),
    ChangeState.WORSE: Term("Index chunks of these documents", "their beginnings are lost"),
    ChangeState.EQUIVALENT: Term("Nothing to do", "the index finds all thirds alike"),
    ChangeState.INCONCLUSIVE: "Ask more questions (--max-requests), about more documents",
}
RECALL_TITLE = (
    "{name} finds {first} of the sentences in the first third of documents, {last} in the last"
)
CHUNK_SIZES = "`posir inspect MODEL TEXTS` recommends a chunk size for these texts"
TAIL_RECALL = "Tail {recall}: {share} of {sentences} in the last third."


def describe_recall_change(change: ChangeRow) -> str:
    """Describe the difference in recall between two parts of documents; the baseline is the later
    part.
    """
    points = format_difference(change)
    if change.state is ChangeState.INCONCLUSIVE:
        points = f"inconclusive, {points}" if points else "inconclusive"
    assert change.state is not None
    return (
        RECALL_CHANGES[change.state]
        .format(
            recall=f"Recall ({change.subject.task})",
            first=change.subject.model,
            last=change.subject.baseline,
            margin=format_margin(change.margin),
            points=points,
            needed=describe_needed_change(change),
        )
        .rstrip()
    )


def advise_index(change: ChangeRow | None) -> tuple[str, ...]:
    """Advise on a running index by the change in recall between the last and the first third; None
    if it was not measured.
    """
    state = change.state if change else None
    return INDEX_ADVICE[state or ChangeState.INCONCLUSIVE], CHUNK_SIZES


def describe_tail_recall(task: str, recall: Estimate | None, questions: int) -> str:
    """Describe the recall of sentences in the last third of documents."""
    return TAIL_RECALL.format(
        recall=f"recall ({task})",
        share=format_percentage(recall),
        sentences=pluralize(questions, "sentence"),
    )


def format_percentage(share: Estimate | None) -> str:
    """Format a share with its interval: `27.0% [19.4, 36.1]`."""
    if share is None:
        return numbers.MISSING
    interval = numbers.format_interval(share, numbers.format_percent)
    return f"{numbers.format_percent(share.value)}% {interval}".rstrip()
