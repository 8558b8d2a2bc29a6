"""Sentences about probes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from posir_significance.findings import Prediction
from posir_tasks.base.wording import pluralize
from posir_tasks.display import numbers, position_charts
from posir_tasks.display.labels import Term, Title
from posir_tasks.values.estimates import Estimate


def describe_values(title: str, values: Sequence[tuple[str, str, str]]) -> str:
    """List the statistics of a probe, given as title, value and unit."""
    items = [f"{_lowercase_first(name)} {value} {unit}".rstrip() for name, value, unit in values]
    return f"{title}: {'; '.join(items)}" if items else title


def _lowercase_first(title: str) -> str:
    """Lowercase the first letter of a title, except in words such as `nDCG@10` and `R²`."""
    return title[0].lower() + title[1:] if title[1:2].islower() else title


PROBE_SAMPLE = "{documents} documents of {data}, drawn at random ({selection}){median}."
PROBE_TRUNCATED = (
    "{share} of the tokens are truncated: the window is {window:,} tokens, and {whole:,} of "
    "{documents} fit."
)
PROBE_DATA = "Model: {}, revision {}. Data: {}, revision {}. Methods: {}."
PROBE_DIFFERENCE = Term("Difference", "above 0 if the start of a text counts more than its end.")
PROBE_PUBLISHED = "Published values: the range over other models (their number), on other data."
PROBE_SKIPPED = "Skipped: {skipped}."
PROBE_LEFT_OUT = "Documents left out: {omitted:,} of {drawn:,}."
PROBE_ALONE = "To measure only this: `--probe {probe}`."
PROBE_PAGE = "--html draws the values at every position."
PROBE_NO_VERDICT = "Probes are measures without a verdict on position bias. {where}"
PROBE_INTERVALS = Term(
    "Intervals", "95%, by bootstrap over documents; they are too narrow for few documents."
)
#: Terms of probes for `--explain`.
PROBE_TERMS = (
    Term(
        "nDCG@10",
        "100 if the right document is always ranked first, 0 if it is never among the first ten.",
    ),
    Term(
        "Difference",
        f"{PROBE_DIFFERENCE.detail} For Pearson's r of position and weight of sentences, the sign "
        "is reversed.",
    ),
    Term(
        "Mirror reversal",
        "the order of five parts of a text is reversed, so that its evidence is near the other "
        "end. Questions about the middle part are omitted. For a model that ignores order, the "
        "difference is 0. It includes the truncation loss.",
    ),
    Term(
        "Joined texts",
        "texts on different subjects, cut to fit the window. Together they do not read "
        "like one text. Only their order changes.",
    ),
    Term(
        "Gradient",
        "how much the similarity to a question changes with a token; 1 is the 99th "
        "percentile in a document. It also depends on the words.",
    ),
    Term(
        "Embeddings",
        "these probes do not measure search. A model whose embeddings lean toward the "
        "start may still find evidence near the end.",
    ),
    Term(
        "Cosine",
        "similarity of two texts' embeddings, 1 if they point in the same direction. It is "
        "rarely 0 for unrelated texts, so compare cosines with each other.",
    ),
    Term(
        "No interval",
        "there are fewer than ten documents, or the value is undefined in some bootstrap samples.",
    ),
    Term("Range", "the highest minus the lowest value. It is above 0 by chance."),
)


def explain_no_interval(values: str, few: str) -> str:
    """Append the reason for a missing interval to the values of a probe."""
    return f"{values} (no interval: {few})" if few else values


def title_difference(title: str, summary: str, published: str) -> Title:
    """Write a title for the chart of a difference."""
    return Title(title, f"{summary}; published: {published}" if published else summary)


def describe_probe_sample(
    documents: int, available: int, data: str, selection: str, median: int | None
) -> str:
    """Describe the size and the median length of a probe's sample."""
    number = f"{documents:,} of {available:,}" if available > documents else f"{documents:,}"
    token_note = f", median {median:,} tokens" if median else ""
    return PROBE_SAMPLE.format(documents=number, data=data, selection=selection, median=token_note)


def describe_truncated_tokens(share: float, window: int, whole: int, documents: int) -> str:
    """Describe the share of truncated tokens, and the number of documents that fit the window."""
    return PROBE_TRUNCATED.format(
        share=position_charts.format_share(share),
        window=window,
        whole=whole,
        documents=pluralize(documents, "document"),
    )


def describe_no_verdict(*, has_commands: bool) -> str:
    """Name the commands that give a verdict; with `has_commands`, their shell lines follow."""
    other = "`posir run` with `posir report`, or `posir inspect`, give one."
    return PROBE_NO_VERDICT.format(where="These commands give one:" if has_commands else other)


PREDICTION_LABELS = {
    Prediction.PREDICTS: "predicts it",
    Prediction.OPPOSITE: "predicts the opposite",
    Prediction.INCONCLUSIVE: "inconclusive",
}
PREDICTION_SENTENCES = {
    Prediction.PREDICTS: "Shown to predict {score} on {tasks}: {probes}.",
    Prediction.OPPOSITE: "With the opposite sign: {probes}.",
    Prediction.INCONCLUSIVE: "Inconclusive: {probes}.",
}


def label_prediction(verdict: Prediction) -> str:
    """Label the verdict on a correlation."""
    return PREDICTION_LABELS[verdict]


def label_needed(number: int | None, maximum: int) -> str:
    """Label the required number of models; None for more than the maximum."""
    return f"over {maximum:,}" if number is None else f"{number:,}"


def describe_predictions(
    score: str, tasks: Sequence[str], verdicts: Mapping[str, Counter[Prediction]]
) -> str:
    """Describe which probes predict a score, given the number of tasks with each verdict."""
    sentences = []
    for verdict, template in PREDICTION_SENTENCES.items():
        probes = []
        for probe, counts in verdicts.items():
            if counts[verdict] == counts.total():
                probes.append(probe)
            elif counts[verdict]:
                probes.append(f"{probe} ({counts[verdict]} of {counts.total()})")
        if probes or verdict is Prediction.PREDICTS:
            names = ", ".join(probes) or "no probe"
            task_names = ", ".join(tasks)
            sentences.append(template.format(score=score, tasks=task_names, probes=names))
    return " ".join(sentences)


SAMPLE_DIFFERENCE = (
    "{model}, {sample}: the largest difference from the complete data is {points} points, by "
    "chance up to {chance}."
)


def describe_sample_difference(model: str, sample: str, difference: Estimate, chance: float) -> str:
    """Describe how much a sample differs from the complete data, and the difference by chance."""
    return SAMPLE_DIFFERENCE.format(
        model=model,
        sample=sample,
        points=numbers.format_estimate(difference, numbers.format_percent),
        chance=numbers.format_percent(chance),
    )


MMTEB_ORDER = (
    "MMTEB and PosIR rank models less alike the longer the documents are: Spearman {first:.2f} in "
    "{start}, {last:.2f} in {end}. With {models} models, a correlation is shown {clear} (corrected "
    "p < {level})."
)
ARCHITECTURE_READING = (
    "The paper reports no clear correlation of PSI with size, dimension, attention and pooling "
    "(arXiv 2601.08363v1, Section 4.2, without numbers); the corrected p-values show where there "
    "is one."
)
CHECK_COUNTS = "{equal} equal, {different} different, {missing} missing from the file, {new} new."


def describe_check(counts: Mapping[str, int]) -> str:
    """Count the values of a table by how they compare with the published values."""
    states = ("equal", "different", "missing", "new")
    return CHECK_COUNTS.format(**{state: f"{counts.get(state, 0):,}" for state in states})


def label_correlation(*, is_clear: bool) -> str:
    """Label a correlation after correction for multiple tests."""
    return "shown" if is_clear else "not shown"


def describe_mmteb(
    rho: Mapping[str, float], models: int, clear: Sequence[str], level: float
) -> str:
    """Describe Spearman's rho with MMTEB by length, and the lengths where it is significant."""
    lengths = list(rho)
    return MMTEB_ORDER.format(
        first=rho[lengths[0]],
        last=rho[lengths[-1]],
        start=lengths[0],
        end=lengths[-1],
        models=models,
        clear=f"only in {' and '.join(clear)}" if clear else "in no length",
        level=level,
    )
