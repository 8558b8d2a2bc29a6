"""Pairs of documents that differ in one property: a biased model prefers the first.

ColDeR (arXiv 2503.05037, section 3), whose pairs are of Re-DocRED: a query about a head entity, and the only sentence with head
and answer. Here pairs are made from any questions with evidence spans. The evidence is the sentences that its span touches, and
the rest is all others; at least four, as the authors' code has it (more than four sentences). The first document of a pair is
the one that a biased model prefers:

- position: evidence + rest / rest + evidence;
- brevity: evidence / evidence + rest;
- repetition: evidence + two sentences that mention what is asked about / evidence + two that do not, all without the answer.
  The paper knows the head entity; here these are the two sentences that share the most of the question's words, weighted by
  their rarity in the document, and the two that share the least;
- literal match: the question has a name's last word; the evidence has this word alone / the name of several words. The paper
  knows aliases; here names are capitalized words in a row.

Scores are cosines; the paper's are raw dot products.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from mteb.types import PromptType

from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, ProbeQuestion, select_with_evidence
from posir_probe.probe import (
    CONTROL,
    POSITIVE_IS_START,
    Finding,
    Form,
    Preference,
    Probe,
    ProbePlan,
    SignedFinding,
    Statement,
    Summary,
    ignore_rounding,
)
from posir_probe.results import ProbeSums, at
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings, encode_distinct
from posir_tasks.interventions import move_evidence
from posir_tasks.scores import Unit
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from posir_tasks.text.words import find_terms

POSITION, BREVITY, REPETITION, LITERAL_MATCH = "position", "brevity", "repetition", "literal match"
KINDS = (POSITION, BREVITY, REPETITION, LITERAL_MATCH)
SERIES = ("model", CONTROL)
#: Sentences that a pair of repetition adds to the evidence of each document.
ADDED = 2
#: Fewest sentences beside the evidence.
FEWEST_OTHERS = 2 * ADDED
TOO_FEW_SENTENCES = f"fewer than {FEWEST_OTHERS} sentences beside the evidence"
#: Why a question has no pair of a kind.
MISSING: Mapping[str, str] = {
    REPETITION: "repetition: no two sentences without the answer share more of the question's words than two others",
    LITERAL_MATCH: "literal match: question and evidence share no name of several words",
}
NAME_WORD = re.compile(r"\w[\w'’-]*")


@dataclass(frozen=True)
class ControlledPair:
    """A query and two documents that both answer it."""

    query: str
    document_1: str
    """The document that a biased model prefers."""
    document_2: str


@dataclass(frozen=True)
class DividedDocument:
    """A document and its sentences."""

    text: str
    sentences: tuple[Span, ...]
    terms: tuple[frozenset[str], ...]
    """The terms of each sentence."""

    @classmethod
    def divide(cls, text: str, language: str) -> DividedDocument:
        """Return a text with its sentences."""
        sentences = tuple(find_sentences(text, language))
        return cls(text, sentences, tuple(frozenset(find_terms(sentence.of(text))) for sentence in sentences))

    def touches(self, span: Span) -> list[int]:
        """Return the indices of the sentences that share characters with a span."""
        return [at for at, sentence in enumerate(self.sentences) if sentence.start < span.end and span.start < sentence.end]

    def join(self, indices: Sequence[int]) -> str:
        """Return sentences in the order of the document, joined by spaces."""
        return " ".join(self.sentences[index].of(self.text) for index in sorted(indices))


def build_pairs(document: DividedDocument, question: ProbeQuestion) -> dict[str, ControlledPair]:
    """Return the pairs of a question by kind: all that can be made, none if there are too few other sentences."""
    own = document.touches(question.span)
    others = [index for index in range(len(document.sentences)) if index not in own]
    if not own or len(others) < FEWEST_OTHERS:
        return {}
    sentences = Span(document.sentences[own[0]].start, document.sentences[own[-1]].end)
    evidence = sentences.of(document.text)
    leading, trailing = (move_evidence(document.text, sentences, place).text for place in (0.0, 1.0))
    pairs = {
        POSITION: ControlledPair(question.text, leading, trailing),
        BREVITY: ControlledPair(question.text, evidence, leading),
    }
    answer = question.span.of(document.text).casefold()
    without_answer = [at for at in others if answer not in document.sentences[at].of(document.text).casefold()]
    if chosen := choose_sentences(document, question.text, without_answer):
        pairs[REPETITION] = ControlledPair(question.text, *(f"{evidence} {document.join(indices)}" for indices in chosen))
    if literal := match_name(question.text, evidence):
        pairs[LITERAL_MATCH] = literal
    return pairs


def choose_sentences(document: DividedDocument, question: str, indices: Sequence[int]) -> tuple[list[int], list[int]] | None:
    """Return the two sentences that share the most with a question, and the two that share the least; None if they tie.

    A shared term weighs the logarithm of sentences of the document per sentence that has it.
    """
    asked, frequencies = set(find_terms(question)), Counter(term for terms in document.terms for term in terms)
    weights = {
        # An exact sum, since the order of a set of words differs from process to process.
        index: math.fsum(math.log(len(document.terms) / frequencies[term]) for term in asked & document.terms[index])
        for index in indices
    }
    ordered = sorted(indices, key=lambda index: (-weights[index], index))
    most, least = ordered[:ADDED], ordered[-ADDED:]
    if len(ordered) < FEWEST_OTHERS or weights[most[-1]] <= weights[least[0]]:
        return None
    return most, least


def match_name(question: str, evidence: str) -> ControlledPair | None:
    """Return the pair of literal match: the short and the long form of a name that both texts have; None if they have none."""
    for name in dict.fromkeys([*find_names(evidence), *find_names(question)]):
        last = name.rpartition(" ")[2]
        word = re.compile(rf"(?<!\w){re.escape(last)}(?!\w)")
        if word.search(question) and word.search(evidence):
            short = evidence.replace(name, last)
            return ControlledPair(question.replace(name, last), short, word.sub(name.replace("\\", r"\\"), short))
    return None


def find_names(text: str) -> list[str]:
    """Return the runs of several capitalized words, single spaces between them; the first word of a text is in none."""
    runs: list[list[re.Match[str]]] = [[]]
    for word in list(NAME_WORD.finditer(text))[1:]:
        if not word.group()[0].isupper():
            runs.append([])
        elif runs[-1] and text[runs[-1][-1].end() : word.start()] != " ":
            runs.append([word])
        else:
            runs[-1].append(word)
    return [text[run[0].start() : run[-1].end()] for run in runs if len(run) > 1]


def count_wins(differences: Floats) -> Floats:
    """Return 1 where the first document scores higher, 0 where the second does, and 0.5 for ties; NaN stays."""
    wins: Floats = (np.sign(differences) + 1) / 2
    return wins


#: What the first document of a pair has.
FAVORED = {
    POSITION: "evidence first",
    BREVITY: "evidence alone",
    REPETITION: "more mentions",
    LITERAL_MATCH: "the question's form of a name",
}


def summarize_kinds(label: str, unit: Unit) -> dict[str, Summary]:
    """Return the summaries of values by kind of pair, of the model and of the order-blind embedder."""
    titles = [label.format(name) for name in FAVORED.values()] + [f"{CONTROL}: {name}" for name in FAVORED.values()]
    names = [kind.replace(" ", "_") for kind in KINDS]
    named = zip([*names, *(f"order_blind_{name}" for name in names)], titles, strict=True)
    return {name: Summary(title, at(place), unit) for place, (name, title) in enumerate(named)}


class ControlledPairs(Probe):
    """The score of the first document of each pair minus that of the second, for the model and an order-blind embedder."""

    name = "controlled_pairs"
    title = "Pairs of documents that differ in one property"
    source = "arXiv 2503.05037, section 3"
    notes = (
        "The first document is the one that a biased model prefers: evidence first, evidence alone, more mentions of what is "
        "asked about, the question's own form of a name. Only position is 0 for an order-blind embedder; of the other kinds, "
        "its value on the same pairs is the part that words alone explain. Differences below 1e-6 count as ties.",
    )
    positions = tuple(f"{series} · {kind}" for series, kind in product(SERIES, KINDS))
    summaries = summarize_kinds("Pairs: {}, minus the other", Unit.INDEX)
    finding: Finding = SignedFinding(
        "The document with the evidence first scores {} higher than the same with the evidence last",
        "The document with the evidence last scores {} higher than the same with the evidence first",
        "whether the document with the evidence first or last scores higher",
    )
    preference = POSITIVE_IS_START
    needs_questions = True
    value_title = "Cosine with the question: favored document minus the other"
    place_title = "Favored document"
    form = Form.CATEGORIES
    series = {"model": ("", ""), CONTROL: ("", CONTROL)}
    place_names = FAVORED
    statistic = "mean"

    def convert(self, differences: Floats) -> Floats:
        """Return what is summed of differences of scores: they as they are."""
        return differences

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the questions and both documents of their pairs."""
        questions, skipped = select_with_evidence(data)
        asked_about = {question.document for question in questions}
        documents = {name: DividedDocument.divide(data.documents[name], data.language) for name in asked_about}
        by_question = [build_pairs(documents[question.document], question) for question in questions]
        skipped[TOO_FEW_SENTENCES] += sum(not pairs for pairs in by_question)
        for kind, reason in MISSING.items():
            skipped[reason] += sum(bool(pairs) and kind not in pairs for pairs in by_question)
        placed = [(row, KINDS.index(kind), pair) for row, pairs in enumerate(by_question) for kind, pair in pairs.items()]
        texts = [text for _, _, pair in placed for text in (pair.document_1, pair.document_2)]
        queries = [pair.query for _, _, pair in placed]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            control = encode_distinct(order_blind, texts, queries).normalize()
            values = np.full((len(questions), len(self.positions)), np.nan)
            for offset, vectors in ((0, embeddings), (len(KINDS), control)):
                for (row, kind, _), difference in zip(placed, score_pairs(vectors, texts, queries).tolist(), strict=True):
                    values[row, offset + kind] = difference
            measured = ~np.isnan(values).all(axis=1)
            drawn = [question.document for question, is_measured in zip(questions, measured, strict=True) if is_measured]
            converted = self.convert(ignore_rounding(values[measured]))
            return ProbeSums.from_means(self.positions, drawn, converted, +skipped, statistic=self.statistic)

        return ProbePlan(summarize, texts, queries)


class ControlledPairsEffect(ControlledPairs):
    """The mean difference in standard deviations over pairs: the paper's t divided by the root of its 250 pairs."""

    name = "controlled_pairs_effect"
    title = "Pairs of documents, in standard deviations"
    summaries = summarize_kinds("Standard deviations: {}", Unit.NUMBER)
    finding = SignedFinding(
        "Evidence first against evidence last makes {} standard deviations of the score",
        "Evidence last against evidence first makes {} standard deviations of the score",
        "whether evidence first or evidence last scores higher, in standard deviations of the score,",
    )
    value_title = "Difference of the two documents in standard deviations over pairs"
    unit = Unit.NUMBER
    statistic = "effect_size"


class ControlledPairsWins(ControlledPairs):
    """The share of pairs whose first document scores higher."""

    name = "controlled_pairs_wins"
    title = "Pairs of documents that the favored one wins"
    summaries = summarize_kinds("Wins (%): {}", Unit.PERCENT)
    finding = Statement("The document with the evidence first wins {} % of the pairs")
    preference = Preference(neutral=0.5)
    value_title = "Pairs that the favored document wins (%)"
    unit = Unit.PERCENT

    def convert(self, differences: Floats) -> Floats:
        """Return the wins of the first document."""
        return count_wins(differences)


def score_pairs(embeddings: Embeddings, texts: Sequence[str], queries: Sequence[str]) -> Floats:
    """Return the cosine of n queries and the first of two documents each, minus that of the second, shape (n,)."""
    asked = embeddings.select(queries, PromptType.query).astype(np.float64)
    documents = embeddings.select(texts).astype(np.float64)
    differences: Floats = np.einsum("nd,nd->n", asked, documents[0::2] - documents[1::2])
    return differences
