"""Pairs of documents that differ in one property: whether the first scores higher, and by how much.

`ControlledPairs` is ColDeR (arXiv 2503.05037, section 3), whose pairs are of Re-DocRED: a query about a head entity, and the
only sentence with head and answer. Here pairs are made from any questions with evidence spans. The evidence is the sentences
that its span touches, and the rest is all others; at least four, as the authors' code has it (more than four sentences). The
first document of a pair is the one that a biased model prefers:

- position: evidence + rest / rest + evidence;
- brevity: evidence / evidence + rest;
- repetition: evidence + two sentences that mention what is asked about / evidence + two that do not, all without the answer.
  The paper knows the head entity; here these are the two sentences that share the most of the question's words, weighted by
  their rarity in the document, and the two that share the least;
- literal match: the question has a name's last word; the evidence has this word alone / the name of several words. The paper
  knows aliases; here names are capitalized words in a row.

Scores are cosines; the paper's are raw dot products.

`NeedleDistractors` is ours: whether an embedding distinguishes a needle from a near-miss, by the needle's place, without and
with further near-misses. The needle is a sentence of a document, the question is about it in other words, and near-misses are
the most similar sentences of other documents. The needle is put before the sentence round(r n), counted from 0, of the
document's n other sentences, at the relative places r = 0, 1/4, 1/2, 3/4, 1. The value is the cosine of the question and this
document, minus that of the question and the same document with the most similar near-miss in the needle's place. With
distractors, four other near-misses are at the four other places, in the same order, in both. Both documents are of the same
sentences at every place, so the value of an order-blind embedder does not depend on the place.

The writer is an embedder, named with `--question-writer`: near-misses are the sentences of the other documents whose vectors
have the largest cosine with that of the needle, and the question has no word of the needle, of its document or of the
near-misses. With `--llm`, a language model asks instead.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from typing import NamedTuple

import numpy as np
from mteb.types import PromptType

from posir_probe import probe as base
from posir_probe.controls import order_blind
from posir_probe.data import Needle, ProbeData, ProbeQuestion, select_with_evidence
from posir_probe.results import ProbeSums, at
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings, ModelEncoder, encode_distinct
from posir_tasks.interventions import move_evidence
from posir_tasks.language_models import other_words
from posir_tasks.languages import detect_language
from posir_tasks.scores import Unit
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from posir_tasks.text.words import find_terms

POSITION, BREVITY, REPETITION, LITERAL_MATCH = "position", "brevity", "repetition", "literal match"
#: What the first document of each kind of pair has.
FAVORED = {
    POSITION: "evidence first",
    BREVITY: "evidence alone",
    REPETITION: "more mentions",
    LITERAL_MATCH: "the question's form of a name",
}
KINDS = tuple(FAVORED)
#: Sentences that a pair of repetition adds to the evidence of each document, and fewest sentences beside evidence or needle.
ADDED, FEWEST_OTHERS = 2, 4
TOO_FEW_SENTENCES = f"fewer than {FEWEST_OTHERS} sentences beside the evidence"
#: Why a question has no pair of a kind.
MISSING: Mapping[str, str] = {
    REPETITION: "repetition: no two sentences without the answer share more of the question's words than two others",
    LITERAL_MATCH: "literal match: question and evidence share no name of several words",
}
NAME_WORD = re.compile(r"\w[\w'’-]*")
#: Relative places of a needle.
PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
NO_NEEDLE = "no sentence, among five or more, with five near-misses and a question in other words"
#: Near-misses of a needle: one that is put in its place, and one for each other place.
NEAR_MISSES = 5
#: Needles whose cosines with all sentences are in memory at a time.
BLOCK = 64
SEED = 14


def score_pairs(embeddings: Embeddings, queries: Sequence[str], texts: Sequence[str]) -> Floats:
    """Return the cosine of n queries and the first of k pairs of documents each, minus that of the second, shape (n, k).

    Differences that are rounding errors are 0.
    """
    asked = embeddings.select(queries, PromptType.query).astype(np.float64)
    documents = embeddings.select(texts).astype(np.float64)
    by_query = (documents[0::2] - documents[1::2]).reshape(len(queries), -1, documents.shape[-1])
    return base.ignore_rounding(np.einsum("nd,nkd->nk", asked, by_query))


class ControlledPair(NamedTuple):
    """A query and two documents that both answer it."""

    query: str
    document_1: str
    """The document that a biased model prefers."""
    document_2: str


def build_pairs(text: str, sentences: Sequence[Span], question: ProbeQuestion) -> dict[str, ControlledPair]:
    """Return the pairs of a question by kind: all that can be made, none if there are too few other sentences."""
    own = [span for span in sentences if span.start < question.span.end and question.span.start < span.end]
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
            question.text, *(" ".join([evidence, *(span.of(text) for span in sorted(added))]) for added in chosen)
        )
    if literal := _match_name(question.text, evidence):
        pairs[LITERAL_MATCH] = literal
    return pairs


def _choose_sentences(
    text: str, sentences: Sequence[Span], question: str, candidates: Sequence[Span]
) -> tuple[list[Span], list[Span]] | None:
    """Return the two sentences that share the most with a question, and the two that share the least; None if they tie.

    A shared term weighs the logarithm of sentences of the document per sentence that has it.
    """
    terms = {span: set(find_terms(span.of(text))) for span in sentences}
    asked, frequencies = set(find_terms(question)), Counter(term for known in terms.values() for term in known)
    weights = {
        # An exact sum, since the order of a set of words differs from process to process.
        span: math.fsum(math.log(len(sentences) / frequencies[term]) for term in asked & terms[span])
        for span in candidates
    }
    ordered = sorted(candidates, key=lambda span: (-weights[span], span))
    most, least = ordered[:ADDED], ordered[-ADDED:]
    return (most, least) if len(ordered) >= FEWEST_OTHERS and weights[most[-1]] > weights[least[0]] else None


def _match_name(question: str, evidence: str) -> ControlledPair | None:
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


def _summarize_kinds(label: str, unit: Unit) -> dict[str, base.Summary]:
    named = [*((kind, label) for kind in KINDS), *((f"order_blind_{kind}", f"{base.CONTROL}: {{}}") for kind in KINDS)]
    return {
        name.replace(" ", "_"): base.Summary(title.format(FAVORED[KINDS[place % len(KINDS)]]), at(place), unit)
        for place, (name, title) in enumerate(named)
    }


class ControlledPairs(base.Probe):
    """The score of the first document of each pair minus that of the second, for the model and an order-blind embedder."""

    name = "controlled_pairs"
    title = "Pairs of documents that differ in one property"
    source = "arXiv 2503.05037, section 3"
    notes = (
        "The first document is the one that a biased model prefers: evidence first, evidence alone, more mentions of what is "
        "asked about, the question's own form of a name. Only position is 0 for an order-blind embedder; of the other kinds, "
        "its value on the same pairs is the part that words alone explain. Differences below 1e-6 count as ties.",
    )
    positions = tuple(f"{series} · {kind}" for series, kind in product(("model", base.CONTROL), KINDS))
    summaries = _summarize_kinds("Pairs: {}, minus the other", Unit.INDEX)
    finding = base.SignedFinding(
        "The document with the evidence first scores {} higher than the same with the evidence last",
        "The document with the evidence last scores {} higher than the same with the evidence first",
        "whether the document with the evidence first or last scores higher",
    )
    preference_sign = 1
    needs_questions = True
    value_title = "Cosine with the question: favored document minus the other"
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
        by_question = [build_pairs(texts[asked.document], sentences[asked.document], asked) for asked in questions]
        skipped[TOO_FEW_SENTENCES] += sum(not pairs for pairs in by_question)
        for kind, reason in MISSING.items():
            skipped[reason] += sum(bool(pairs) and kind not in pairs for pairs in by_question)
        measured = [(asked.document, pairs) for asked, pairs in zip(questions, by_question, strict=True) if pairs]
        placed = [(row, KINDS.index(kind)) for row, (_, pairs) in enumerate(measured) for kind in pairs]
        queries = [pair.query for _, pairs in measured for pair in pairs.values()]
        documents = [text for _, pairs in measured for pair in pairs.values() for text in pair[1:]]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            control = encode_distinct(order_blind, documents, queries).normalize()
            values = np.full((len(measured), 2, len(KINDS)), np.nan)
            rows, kinds = np.array(placed, np.int64).reshape(-1, 2).T
            for series, vectors in enumerate((embeddings, control)):
                values[rows, series, kinds] = score_pairs(vectors, queries, documents)[:, 0] if placed else 0
            names, by_position = [name for name, _ in measured], values.reshape(len(measured), len(self.positions))
            return ProbeSums.from_means(self.positions, names, by_position, +skipped, statistic=self.statistic)

        return base.ProbePlan(summarize, documents, queries)


class ControlledPairsEffect(ControlledPairs):
    """The mean difference in standard deviations over pairs: the paper's t divided by the root of its 250 pairs."""

    name = "controlled_pairs_effect"
    title = "Pairs of documents, in standard deviations"
    summaries = _summarize_kinds("Standard deviations: {}", Unit.NUMBER)
    finding = base.SignedFinding(
        "Evidence first against evidence last makes {} standard deviations of the score",
        "Evidence last against evidence first makes {} standard deviations of the score",
        "whether evidence first or evidence last scores higher, in standard deviations of the score,",
    )
    value_title = "Difference of the two documents in standard deviations over pairs"
    unit = Unit.NUMBER
    statistic = "effect_size"


def place_sentences(rest: Sequence[str], placed: Mapping[int, str]) -> str:
    """Return n sentences joined by spaces, with others, by index of their place in `PLACES`, put between them."""
    before = [(round(PLACES[place] * len(rest)), place, sentence) for place, sentence in placed.items()]
    # A sentence that is placed comes before the one at its index.
    ordered = sorted([*before, *((row, len(PLACES), sentence) for row, sentence in enumerate(rest))])
    return " ".join(sentence for _, _, sentence in ordered)


def build_documents(needle: Needle) -> list[str]:
    """Return documents with the needle, each followed by that with the near-miss in its place, by series and place."""
    foil, *competitors = needle.near_misses
    documents = []
    for with_distractors, place in product((False, True), range(len(PLACES))):
        others = [other for other in range(len(PLACES)) if other != place] if with_distractors else []
        distractors = dict(zip(others, competitors, strict=False))
        documents += [place_sentences(needle.rest, {**distractors, place: sentence}) for sentence in (needle.sentence, foil)]
    return documents


class NeedleDistractors(base.Probe):
    """Score of the document with the needle minus that of the document with a near-miss in its place."""

    name = "needle_distractors"
    title = "Needle against near-miss"
    source = "ours"
    notes = (
        "Ours. The question has no word of needle, document and near-misses, so words in common lead nowhere. An order-blind "
        "embedder has the same value at all places. The embedder that wrote the questions is favored: compare models by "
        "questions of another. Past the window, differences are 0.",
    )
    is_variant = True
    positions = tuple(
        f"{series} · {100 * place:.0f} %" for series, place in product(("without distractors", "with distractors"), PLACES)
    )
    summaries = {
        "start_to_end": base.Summary("Needle first minus last, distractors", lambda values: values[..., 5] - values[..., 9]),
        "start_to_end_without": base.Summary(
            "Needle first minus last, no distractors", lambda values: values[..., 0] - values[..., 4]
        ),
        "mean": base.Summary("Mean over places, distractors", base.mean_over(5, None)),
        "mean_without": base.Summary("Mean over places, no distractors", base.mean_over(None, 5)),
        "cost_of_distractors": base.Summary(
            "Mean without minus with distractors",
            lambda values: base.mean_over(None, 5)(values) - base.mean_over(5, None)(values),
        ),
    }
    finding = base.SignedFinding(
        "A needle among near-misses stands out by {} more at the start of its document than at the end",
        "A needle among near-misses stands out by {} more at the end of its document than at the start",
        "whether a needle among near-misses stands out more at the start or at the end of its document",
    )
    preference_sign = 1
    compares_ends = True
    needs_needles = True
    value_title = "Cosine of the question and the document with its needle, minus that with a near-miss in its place"
    place_title = "Place of the needle, from the start of its document to the end"
    form = base.Form.PLACES
    series = {"with distractors": ("", "among other near-misses"), "without distractors": ("", "alone")}
    place_shares = {f"{100 * place:.0f} %": place for place in PLACES}
    shows_window = True

    def plan(self, data: ProbeData) -> base.ProbePlan:
        """Encode the questions, and the documents with needle or near-miss at every place."""
        texts = [text for needle in data.needles for text in build_documents(needle)]
        names, queries = [needle.document for needle in data.needles], [needle.question for needle in data.needles]
        skipped = {NO_NEEDLE: missing} if (missing := len(data.documents) - len(names)) else {}

        def summarize(embeddings: Embeddings) -> ProbeSums:
            values = score_pairs(embeddings, queries, texts) if names else np.empty((0, len(self.positions)))
            return ProbeSums.from_means(self.positions, names, values, skipped)

        return base.ProbePlan(summarize, texts, queries)


@dataclass(frozen=True)
class NeedleWriter:
    """Draws needles, and has questions about them written."""

    encoder: ModelEncoder
    """Chooses near-misses, and the words of questions unless a language model asks."""
    llm: str | None = None
    """A language model, `MODEL` or `MODEL@ADDRESS`."""

    @property
    def name(self) -> str:
        """The models by which results of other writers are told apart."""
        return " and ".join(filter(None, (str(self.encoder.model.mteb_model_meta.name), self.llm)))

    def write(self, data: ProbeData) -> ProbeData:
        """Return data with a needle in each document that has a suitable sentence and question."""
        texts = list(data.documents.values())
        embedder = other_words.EmbedderWriter(
            self.name, self.encoder, other_words.build_vocabulary([*texts, *data.distractors.values()])
        )
        languages = {name: detect_language(text)[0] for name, text in data.documents.items() if text.strip()}
        sentences = {
            name: [span.of(data.documents[name]) for span in find_sentences(data.documents[name], language)]
            for name, language in languages.items()
        }
        drawn = [needle for name, spans in sentences.items() if (needle := _draw_needle(name, spans))]
        if not drawn:
            return data
        pool: dict[str, str] = {}
        for sentence in filter(_is_suitable, chain.from_iterable(sentences.values())):
            pool.setdefault(other_words.normalize(sentence), sentence)
        near = _find_near_misses(embedder, pool, drawn)
        requests = [
            other_words.WritingRequest(needle.sentence, (data.documents[needle.document], *misses), languages[needle.document])
            for needle, misses in zip(drawn, near, strict=True)
        ]
        questions = (other_words.open_writer(self.llm, texts) if self.llm else embedder).write(requests)
        needles = tuple(
            replace(needle, question=question, near_misses=misses)
            for needle, question, misses in zip(drawn, questions, near, strict=True)
            if question and len(misses) == NEAR_MISSES
        )
        return replace(data, needles=needles)


def _is_suitable(sentence: str) -> bool:
    return other_words.MIN_WORDS <= len(find_terms(sentence)) <= other_words.MAX_WORDS


def _draw_needle(name: str, sentences: Sequence[str]) -> Needle | None:
    """Return a random suitable sentence, with a seed; None if there is none, or fewer than four other sentences."""
    suitable = [row for row, sentence in enumerate(sentences) if _is_suitable(sentence)]
    if len(sentences) <= FEWEST_OTHERS or not suitable:
        return None
    row = random.Random(f"{SEED} {name}").choice(suitable)
    return Needle(name, sentences[row], (*sentences[:row], *sentences[row + 1 :]))


def _find_near_misses(
    embedder: other_words.EmbedderWriter, pool: Mapping[str, str], needles: Sequence[Needle]
) -> list[tuple[str, ...]]:
    """Return the sentences of a pool that are the most similar to each needle and in no document with it, best first."""
    if not pool:
        return [()] * len(needles)
    keys, sentences = list(pool), list(pool.values())
    vectors, targets = embedder.embed(sentences), embedder.embed([needle.sentence for needle in needles])
    near = []
    for start in range(0, len(needles), BLOCK):
        cosines = targets[start : start + BLOCK] @ vectors.T
        for needle, order in zip(needles[start : start + BLOCK], np.argsort(-cosines, axis=1, kind="stable"), strict=True):
            own = {other_words.normalize(sentence) for sentence in (needle.sentence, *needle.rest)}
            others = (sentences[row] for row in order if keys[row] not in own)
            near.append(tuple(islice(others, NEAR_MISSES)))
    return near
