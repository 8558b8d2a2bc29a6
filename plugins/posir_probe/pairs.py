"""Pairs of documents that differ in one property: whether the first scores higher, and by how much.

`ControlledPairs` is ColDeR (arXiv 2503.05037, section 3), whose pairs are of Re-DocRED: a query
about a head entity, and the only sentence with head and answer. Here pairs are made from any
questions with evidence spans. The evidence is the sentences that its span touches, and the rest is
all others; at least four, as the authors' code has it (more than four sentences). The first
document of a pair is the one that a biased model prefers:

- position: evidence + rest / rest + evidence;
- brevity: evidence / evidence + rest;
- repetition: evidence + two sentences that mention what is asked about / evidence + two that do
  not, all without the answer. The paper knows the head entity; here these are the two sentences
  that share the most of the question's words, weighted by their rarity in the document, and the two
  that share the least;
- literal match: the question has a name's last word; the evidence has this word alone / the name of
  several words. The paper knows aliases; here names are capitalized words in a row.

Scores are cosines; the paper's are raw dot products.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from mteb.types import PromptType

from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, ProbeQuestion, select_with_evidence
from posir_probe.probe import CONTROL, Form, Probe, ProbePlan, Summary, ignore_rounding
from posir_probe.results import ProbeSums, at
from posir_tasks.models.embeddings.encoding import Embeddings, encode_distinct
from posir_tasks.text.interventions import move_evidence
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from posir_tasks.text.words import find_terms
from posir_tasks.values.scores import Unit

POSITION = "position"
BREVITY = "brevity"
REPETITION = "repetition"
LITERAL_MATCH = "literal match"
#: Property of the first document of each kind of pair.
FAVORED = {
    POSITION: "evidence first",
    BREVITY: "evidence alone",
    REPETITION: "more mentions",
    LITERAL_MATCH: "name as in the question",
}
KINDS = tuple(FAVORED)
#: Sentences that a pair of repetition adds to the evidence of each document.
ADDED = 2
#: Fewest sentences besides the evidence.
MIN_OTHERS = 4
TOO_FEW_SENTENCES = f"fewer than {MIN_OTHERS} sentences beside the evidence"
#: Why a question has no pair of a kind.
MISSING: Mapping[str, str] = {
    REPETITION: "repetition: no two sentences without the answer share more of the question's "
    "words than two others",
    LITERAL_MATCH: "literal match: question and evidence share no name of several words",
}
NAME_WORD = re.compile(r"\w[\w'’-]*")


class ControlledPair(NamedTuple):
    """A query and two documents that both answer it."""

    query: str
    document_1: str
    """The document that a biased model prefers."""
    document_2: str


def build_pairs(
    text: str, sentences: Sequence[Span], question: ProbeQuestion
) -> dict[str, ControlledPair]:
    """Build the pairs of a question by kind: all that can be made, none if there are too few other
    sentences.
    """
    answer = question.span
    evidence = [span for span in sentences if span.start < answer.end and answer.start < span.end]
    others = [span for span in sentences if span not in evidence]
    if not evidence or len(others) < MIN_OTHERS:
        return {}
    place = Span(evidence[0].start, evidence[-1].end)
    quoted = place.of(text)
    leading = move_evidence(text, place, 0.0)
    trailing = move_evidence(text, place, 1.0)
    pairs = {
        POSITION: ControlledPair(question.text, leading, trailing),
        BREVITY: ControlledPair(question.text, quoted, leading),
    }
    word = answer.of(text).casefold()
    without_answer = [span for span in others if word not in span.of(text).casefold()]
    if chosen := _choose_sentences(text, sentences, question.text, without_answer):
        documents = [" ".join([quoted, *(span.of(text) for span in added)]) for added in chosen]
        pairs[REPETITION] = ControlledPair(question.text, *documents)
    if literal := _match_name(question.text, quoted):
        pairs[LITERAL_MATCH] = literal
    return pairs


def _choose_sentences(
    text: str, sentences: Sequence[Span], question: str, candidates: Sequence[Span]
) -> tuple[list[Span], list[Span]] | None:
    """Choose the two sentences that share the most with a question, and the two that share the
    least; None if they tie.

    A shared term weighs the logarithm of sentences of the document per sentence that has it.
    """
    terms = {span: set(find_terms(span.of(text))) for span in sentences}
    frequencies = Counter(term for of_sentence in terms.values() for term in of_sentence)
    question_terms = set(find_terms(question))
    weights = {}
    for span in candidates:
        shared = question_terms & terms[span]
        # An exact sum, since the order of a set of words differs from process to process.
        weights[span] = math.fsum(math.log(len(sentences) / frequencies[term]) for term in shared)
    ordered = sorted(candidates, key=lambda span: (-weights[span], span))
    if len(ordered) < MIN_OTHERS or weights[ordered[ADDED - 1]] <= weights[ordered[-ADDED]]:
        return None
    return sorted(ordered[:ADDED]), sorted(ordered[-ADDED:])


def _match_name(question: str, evidence: str) -> ControlledPair | None:
    """Build the pair of literal match: the short and the long form of a name that both texts have;
    None if they share none.
    """
    for name in dict.fromkeys([*find_names(evidence), *find_names(question)]):
        last = name.rpartition(" ")[2]
        word = re.compile(rf"(?<!\w){re.escape(last)}(?!\w)")
        if word.search(question) and word.search(evidence):
            short = evidence.replace(name, last)
            long = word.sub(name.replace("\\", r"\\"), short)
            return ControlledPair(question.replace(name, last), short, long)
    return None


def find_names(text: str) -> list[str]:
    """Find the runs of several capitalized words, single spaces between them; the first word of a
    text is in none.
    """
    runs: list[list[str]] = [[]]
    end = 0
    for word in list(NAME_WORD.finditer(text))[1:]:
        if text[end : word.start()] != " ":
            runs.append([])
        if word.group()[0].isupper():
            runs[-1].append(word.group())
            end = word.end()
    return [" ".join(run) for run in runs if len(run) > 1]


def _summarize_kinds(label: str, unit: Unit) -> dict[str, Summary]:
    summaries = {}
    for index, kind in enumerate(KINDS):
        key = kind.replace(" ", "_")
        summaries[key] = Summary(label.format(FAVORED[kind]), at(index), unit)
        blind = Summary(f"{CONTROL}: {FAVORED[kind]}", at(index + len(KINDS)), unit)
        summaries[f"order_blind_{key}"] = blind
    return summaries


class ControlledPairs(Probe):
    """The score of the first document of each pair minus that of the second, for the model and an
    order-blind embedder.
    """

    name = "controlled_pairs"
    title = "Pairs of documents"
    source = "arXiv 2503.05037, section 3"
    notes: tuple[str, ...] = (
        "Two documents that differ in one property are compared with the same question. Above 0: "
        "the model prefers evidence first, evidence alone, more mentions of what is asked about, "
        "the question's own form of a name.",
        "Only position is 0 for an order-blind embedder; of the other kinds, its value on the "
        "same pairs is the part that words alone explain. Differences below 1e-6 count as ties.",
    )
    positions = tuple(f"{series} · {kind}" for series, kind in product(("model", CONTROL), KINDS))
    summaries = _summarize_kinds("Pairs: {}, minus the other", Unit.INDEX)
    preference_sign = 1
    needs_questions = True
    value_title = "Favored minus other (cosine)"
    place_title = "Favored document"
    form = Form.CATEGORIES
    series = {"model": ("", ""), CONTROL: ("", CONTROL)}
    place_names = FAVORED
    statistic = "mean"

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the questions and both documents of their pairs."""
        questions, skipped = select_with_evidence(data)
        names: list[str] = []
        pairs: list[ControlledPair] = []
        rows: list[int] = []
        kinds: list[int] = []
        for question in questions:
            text = data.documents[question.document]
            built = build_pairs(text, find_sentences(text, data.language), question)
            if not built:
                skipped[TOO_FEW_SENTENCES] += 1
                continue
            for number, kind in enumerate(KINDS):
                if kind in built:
                    pairs.append(built[kind])
                    rows.append(len(names))
                    kinds.append(number)
                else:
                    skipped[MISSING[kind]] += 1
            names.append(question.document)
        queries, first, second = zip(*pairs, strict=True) if pairs else ((), (), ())

        def summarize(embeddings: Embeddings) -> ProbeSums:
            values = np.full((len(names), 2, len(KINDS)), np.nan)
            if pairs:
                control = encode_distinct(order_blind, first + second, queries).normalize()
                for series, vectors in enumerate((embeddings, control)):
                    asked = vectors.select(queries, PromptType.query).astype(float)
                    compared = vectors.select(first).astype(float) - vectors.select(second)
                    differences = ignore_rounding((asked * compared).sum(axis=1))
                    values[rows, series, kinds] = differences
            by_position = values.reshape(len(names), len(self.positions))
            return ProbeSums.from_means(self.positions, names, by_position, skipped, self.statistic)

        return ProbePlan(summarize, first + second, queries)


class ControlledPairsEffect(ControlledPairs):
    """The mean difference in standard deviations over pairs: the paper's t divided by the root of
    its 250 pairs.
    """

    name = "controlled_pairs_effect"
    title = "Pairs, in standard deviations"
    notes = ("The differences of the same pairs, divided by their standard deviation.",)
    summaries = _summarize_kinds("Standard deviations: {}", Unit.NUMBER)
    value_title = "Favored minus other (SD)"
    unit = Unit.NUMBER
    statistic = "effect_size"
