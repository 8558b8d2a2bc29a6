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

from posir_probe import probe as base
from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, ProbeQuestion, select_with_evidence
from posir_probe.results import ProbeSums, at
from posir_tasks.models.embeddings.encoding import Embeddings, encode_distinct
from posir_tasks.text.interventions import move_evidence
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from posir_tasks.text.words import find_terms
from posir_tasks.values.scores import Unit

POSITION, BREVITY, REPETITION, LITERAL_MATCH = "position", "brevity", "repetition", "literal match"
#: What the first document of each kind of pair has.
FAVORED = {
    POSITION: "evidence first",
    BREVITY: "evidence alone",
    REPETITION: "more mentions",
    LITERAL_MATCH: "name as in the question",
}
KINDS = tuple(FAVORED)
#: Sentences that a pair of repetition adds to the evidence of each document, and fewest sentences
#: beside the evidence.
ADDED, FEWEST_OTHERS = 2, 4
TOO_FEW_SENTENCES = f"fewer than {FEWEST_OTHERS} sentences beside the evidence"
#: Why a question has no pair of a kind.
MISSING: Mapping[str, str] = {
    REPETITION: "repetition: no two sentences without the answer share more of the question's "
    "words than "
    "two others",
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
    """Return the pairs of a question by kind: all that can be made, none if there are too few other
    sentences.
    """
    own = [
        span
        for span in sentences
        if span.start < question.span.end and question.span.start < span.end
    ]
    others = [span for span in sentences if span not in own]
    if not own or len(others) < FEWEST_OTHERS:
        return {}
    place = Span(own[0].start, own[-1].end)
    evidence, answer = place.of(text), question.span.of(text).casefold()
    leading, trailing = (move_evidence(text, place, share).text for share in (0.0, 1.0))
    pairs = {
        POSITION: ControlledPair(question.text, leading, trailing),
        BREVITY: ControlledPair(question.text, evidence, leading),
    }
    without_answer = [span for span in others if answer not in span.of(text).casefold()]
    if chosen := _choose_sentences(text, sentences, question.text, without_answer):
        pairs[REPETITION] = ControlledPair(
            question.text,
            *(" ".join([evidence, *(span.of(text) for span in sorted(added))]) for added in chosen),
        )
    if literal := _match_name(question.text, evidence):
        pairs[LITERAL_MATCH] = literal
    return pairs


def _choose_sentences(
    text: str, sentences: Sequence[Span], question: str, candidates: Sequence[Span]
) -> tuple[list[Span], list[Span]] | None:
    """Return the two sentences that share the most with a question, and the two that share the
    least; None if they tie.

    A shared term weighs the logarithm of sentences of the document per sentence that has it.
    """
    terms = {span: set(find_terms(span.of(text))) for span in sentences}
    asked, frequencies = (
        set(find_terms(question)),
        Counter(term for known in terms.values() for term in known),
    )
    weights = {
        # An exact sum, since the order of a set of words differs from process to process.
        span: math.fsum(
            math.log(len(sentences) / frequencies[term]) for term in asked & terms[span]
        )
        for span in candidates
    }
    ordered = sorted(candidates, key=lambda span: (-weights[span], span))
    most, least = ordered[:ADDED], ordered[-ADDED:]
    return (
        (most, least)
        if len(ordered) >= FEWEST_OTHERS and weights[most[-1]] > weights[least[0]]
        else None
    )


def _match_name(question: str, evidence: str) -> ControlledPair | None:
    """Return the pair of literal match: the short and the long form of a name that both texts have;
    None if they have none.
    """
    for name in dict.fromkeys([*find_names(evidence), *find_names(question)]):
        last = name.rpartition(" ")[2]
        word = re.compile(rf"(?<!\w){re.escape(last)}(?!\w)")
        if word.search(question) and word.search(evidence):
            short = evidence.replace(name, last)
            return ControlledPair(
                question.replace(name, last), short, word.sub(name.replace("\\", r"\\"), short)
            )
    return None


def find_names(text: str) -> list[str]:
    """Return the runs of several capitalized words, single spaces between them; the first word of a
    text is in none.
    """
    runs: list[list[re.Match[str]]] = [[]]
    for word in list(NAME_WORD.finditer(text))[1:]:
        if not word.group()[0].isupper():
            runs.append([])
        elif runs[-1] and text[runs[-1][-1].end() : word.start()] != " ":
            runs.append([word])
        else:
            runs[-1].append(word)
    return [text[run[0].start() : run[-1].end()] for run in runs if len(run) > 1]


def _summarize_kinds(label: str, unit: Unit) -> dict[str, base.Summary]:
    named = [
        *((kind, label) for kind in KINDS),
        *((f"order_blind_{kind}", f"{base.CONTROL}: {{}}") for kind in KINDS),
    ]
    return {
        name.replace(" ", "_"): base.Summary(
            title.format(FAVORED[KINDS[place % len(KINDS)]]), at(place), unit
        )
        for place, (name, title) in enumerate(named)
    }


class ControlledPairs(base.Probe):
    """The score of the first document of each pair minus that of the second, for the model and an
    order-blind embedder.
    """

    name = "controlled_pairs"
    title = "Pairs of documents"
    source = "arXiv 2503.05037, section 3"
    notes: tuple[str, ...] = (
        "Two documents that differ in one property are compared with the same question. Above 0: "
        "the model prefers evidence "
        "first, evidence alone, more mentions of what is asked about, the question's own form of "
        "a name.",
        "Only position is 0 for an order-blind embedder; of the other kinds, its value on the "
        "same pairs is the part that "
        "words alone explain. Differences below 1e-6 count as ties.",
    )
    positions = tuple(
        f"{series} · {kind}" for series, kind in product(("model", base.CONTROL), KINDS)
    )
    summaries = _summarize_kinds("Pairs: {}, minus the other", Unit.INDEX)
    preference_sign = 1
    needs_questions = True
    value_title = "Favored minus other (cosine)"
    place_title = "Favored document"
    form = base.Form.CATEGORIES
    series = {"model": ("", ""), base.CONTROL: ("", base.CONTROL)}
    place_names = FAVORED
    statistic = "mean"

    def plan(self, data: ProbeData) -> base.ProbePlan:
        """Encode the questions and both documents of their pairs."""
        questions, skipped = select_with_evidence(data)
        texts = {question.document: data.documents[question.document] for question in questions}
        sentences = {name: find_sentences(text, data.language) for name, text in texts.items()}
        by_question = [
            build_pairs(texts[asked.document], sentences[asked.document], asked)
            for asked in questions
        ]
        skipped[TOO_FEW_SENTENCES] += sum(not pairs for pairs in by_question)
        for kind, reason in MISSING.items():
            skipped[reason] += sum(bool(pairs) and kind not in pairs for pairs in by_question)
        measured = [
            (asked.document, pairs)
            for asked, pairs in zip(questions, by_question, strict=True)
            if pairs
        ]
        placed = [
            (row, KINDS.index(kind)) for row, (_, pairs) in enumerate(measured) for kind in pairs
        ]
        queries = [pair.query for _, pairs in measured for pair in pairs.values()]
        documents = [text for _, pairs in measured for pair in pairs.values() for text in pair[1:]]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            control = encode_distinct(order_blind, documents, queries).normalize()
            values = np.full((len(measured), 2, len(KINDS)), np.nan)
            rows, kinds = np.array(placed, np.int64).reshape(-1, 2).T
            for series, vectors in enumerate((embeddings, control)):
                asked = vectors.select(queries, PromptType.query).astype(np.float64)
                compared = vectors.select(documents).astype(np.float64)
                differences = (
                    np.einsum("nd,nd->n", asked, compared[0::2] - compared[1::2]) if placed else 0.0
                )
                values[rows, series, kinds] = base.ignore_rounding(np.asarray(differences))
            names, by_position = (
                [name for name, _ in measured],
                values.reshape(len(measured), len(self.positions)),
            )
            return ProbeSums.from_means(
                self.positions, names, by_position, +skipped, statistic=self.statistic
            )

        return base.ProbePlan(summarize, documents, queries)


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
