"""Score differences between paired documents that differ in one property.

`ControlledPairs` is ColDeR (arXiv 2503.05037, section 3). Its pairs are built from Re-DocRED: a
query about a head entity, and the only sentence with both the head and the answer. Here, pairs are
built from any questions with evidence spans. The evidence is all sentences that overlap the span,
and the rest is all other sentences, at least four as in the authors' code (more than four sentences
in total). A biased model prefers the first document of a pair:

- position: evidence + rest / rest + evidence;
- brevity: evidence / evidence + rest;
- repetition: evidence + two sentences about the topic / evidence + two other sentences, all without
  the answer. The paper uses the head entity as the topic. Here, the first two sentences share the
  most words with the question, weighted by their rarity in the document, and the other two share
  the fewest;
- literal match: evidence with the last word of a name, as in the question / evidence with the full
  name. The paper uses known aliases. Here, a name is a sequence of capitalized words.

Scores are cosines; the paper uses raw dot products.
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
from posir_probe.probe import CONTROL, Probe, ProbePlan, Summary, ignore_rounding
from posir_probe.results import ProbeSums, select
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
#: Property of the first document by kind of pair.
FAVORED_DOCUMENTS = {
    POSITION: "evidence first",
    BREVITY: "evidence alone",
    REPETITION: "more mentions",
    LITERAL_MATCH: "name as in the question",
}
KINDS = tuple(FAVORED_DOCUMENTS)
#: Number of sentences that a repetition pair adds to the evidence.
ADDED_SENTENCES = 2
#: Minimum number of sentences in addition to the evidence.
MIN_REST = 4
TOO_FEW_SENTENCES = f"fewer than {MIN_REST} sentences besides the evidence"
#: Reasons why a pair cannot be built, by kind.
MISSING_PAIR_REASONS: Mapping[str, str] = {
    REPETITION: "repetition: no two sentences without the answer share more of the question's "
    "words than two others",
    LITERAL_MATCH: "literal match: question and evidence share no name of several words",
}
NAME_WORD = re.compile(r"\w[\w'’-]*")


class ControlledPair(NamedTuple):
    """A query and two documents that contain its answer."""

    query: str
    document_1: str
    """The document that a biased model prefers."""
    document_2: str


def build_pairs(
    text: str, sentences: Sequence[Span], question: ProbeQuestion
) -> dict[str, ControlledPair]:
    """Build the pairs for a question, by kind. Kinds that cannot be built are missing."""
    answer = question.span
    evidence_sentences = [
        span for span in sentences if span.start < answer.end and answer.start < span.end
    ]
    other_sentences = [span for span in sentences if span not in evidence_sentences]
    if not evidence_sentences or len(other_sentences) < MIN_REST:
        return {}
    evidence_span = Span(evidence_sentences[0].start, evidence_sentences[-1].end)
    evidence = evidence_span.slice(text)
    evidence_first = move_evidence(text, evidence_span, 0.0)
    evidence_last = move_evidence(text, evidence_span, 1.0)
    pairs = {
        POSITION: ControlledPair(question.text, evidence_first, evidence_last),
        BREVITY: ControlledPair(question.text, evidence, evidence_first),
    }
    answer_text = answer.slice(text).casefold()
    candidates = [
        span for span in other_sentences if answer_text not in span.slice(text).casefold()
    ]
    if sentence_pairs := _choose_sentences(text, sentences, question.text, candidates):
        documents = [
            " ".join([evidence, *(span.slice(text) for span in spans)]) for spans in sentence_pairs
        ]
        pairs[REPETITION] = ControlledPair(question.text, *documents)
    if literal := _match_name(question.text, evidence):
        pairs[LITERAL_MATCH] = literal
    return pairs


def _choose_sentences(
    text: str, sentences: Sequence[Span], question: str, candidates: Sequence[Span]
) -> tuple[list[Span], list[Span]] | None:
    """Choose the two sentences that share the most terms with a question, and the two that share
    the fewest. Return None for a tie.

    Shared terms are weighted by the logarithm of their inverse sentence frequency in the document.
    """
    terms = {span: set(find_terms(span.slice(text))) for span in sentences}
    frequencies = Counter(term for sentence_terms in terms.values() for term in sentence_terms)
    question_terms = set(find_terms(question))
    weights = {}
    for span in candidates:
        shared_terms = question_terms & terms[span]
        # An exact sum does not depend on the set's order, which differs between processes.
        weights[span] = math.fsum(
            math.log(len(sentences) / frequencies[term]) for term in shared_terms
        )
    ranking = sorted(candidates, key=lambda span: (-weights[span], span))
    if (
        len(ranking) < 2 * ADDED_SENTENCES
        or weights[ranking[ADDED_SENTENCES - 1]] <= weights[ranking[-ADDED_SENTENCES]]
    ):
        return None
    return sorted(ranking[:ADDED_SENTENCES]), sorted(ranking[-ADDED_SENTENCES:])


def _match_name(question: str, evidence: str) -> ControlledPair | None:
    """Build the literal-match pair from a name in both texts. Return None if there is none."""
    for name in dict.fromkeys([*find_names(evidence), *find_names(question)]):
        last = name.rpartition(" ")[2]
        word = re.compile(rf"(?<!\w){re.escape(last)}(?!\w)")
        if word.search(question) and word.search(evidence):
            short = evidence.replace(name, last)
            long = word.sub(name.replace("\\", r"\\"), short)
            return ControlledPair(question.replace(name, last), short, long)
    return None


def find_names(text: str) -> list[str]:
    """Find sequences of capitalized words separated by single spaces, except the first word."""
    runs: list[list[str]] = [[]]
    end = 0
    for word in list(NAME_WORD.finditer(text))[1:]:
        if text[end : word.start()] != " ":
            runs.append([])
        if word.group()[0].isupper():
            runs[-1].append(word.group())
            end = word.end()
    return [" ".join(run) for run in runs if len(run) > 1]


class ControlledPairs(Probe):
    """Score difference between paired documents, for the model and an order-blind embedder."""

    name = "controlled_pairs"
    title = "Pairs of documents"
    source = "arXiv 2503.05037, section 3"
    notes: tuple[str, ...] = (
        "A question is compared with two documents that differ in one property. Positive values "
        "mean that the model prefers evidence first, evidence alone, more mentions of the topic, "
        "or a name as in the question.",
        "For an order-blind embedder, only the position difference is 0. Its other values show the "
        "effect of the words themselves. Differences below 1e-6 count as ties.",
    )
    positions = tuple(f"{series} · {kind}" for series, kind in product(("model", CONTROL), KINDS))
    summaries: Mapping[str, Summary] = {
        "position": Summary("Pairs: evidence first, minus the other", select(0))
    }
    preference_sign = 1
    needs_questions = True
    value_title = "Favored minus other (cosine)"
    position_title = "Favored document"
    is_ordered = False
    series = {"model": ("", ""), CONTROL: ("", CONTROL)}
    position_names = FAVORED_DOCUMENTS
    statistic = "mean"

    def plan(self, data: ProbeData) -> ProbePlan:
        """Compare each question with both documents of its pairs."""
        questions, skipped = select_with_evidence(data)
        names: list[str] = []
        pairs: list[ControlledPair] = []
        rows: list[int] = []
        kinds: list[int] = []
        for question in questions:
            text = data.documents[question.document]
            by_kind = build_pairs(text, find_sentences(text, data.language), question)
            if not by_kind:
                skipped[TOO_FEW_SENTENCES] += 1
                continue
            for index, kind in enumerate(KINDS):
                if kind in by_kind:
                    pairs.append(by_kind[kind])
                    rows.append(len(names))
                    kinds.append(index)
                else:
                    skipped[MISSING_PAIR_REASONS[kind]] += 1
            names.append(question.document)
        queries, first, second = zip(*pairs, strict=True) if pairs else ((), (), ())

        def summarize(embeddings: Embeddings) -> ProbeSums:
            values = np.full((len(names), 2, len(KINDS)), np.nan)
            if pairs:
                control = encode_distinct(order_blind, first + second, queries).normalize()
                for series, vectors in enumerate((embeddings, control)):
                    query_vectors = vectors.select(queries, PromptType.query).astype(float)
                    contrasts = vectors.select(first).astype(float) - vectors.select(second)
                    differences = ignore_rounding((query_vectors * contrasts).sum(axis=1))
                    values[rows, series, kinds] = differences
            by_position = values.reshape(len(names), len(self.positions))
            return ProbeSums.from_means(self.positions, names, by_position, self.statistic)

        return ProbePlan(summarize, first + second, queries, skipped)


class ControlledPairsEffect(ControlledPairs):
    """Mean difference in standard deviations: t divided by the square root of the number of pairs,
    which is 250 in the paper.
    """

    name = "controlled_pairs_effect"
    title = "Pairs, in standard deviations"
    notes = ("The differences of the same pairs, divided by their standard deviation.",)
    summaries = {"position": Summary("Standard deviations: evidence first", select(0), Unit.NUMBER)}
    value_title = "Favored minus other (SD)"
    unit = Unit.NUMBER
    statistic = "effect_size"
