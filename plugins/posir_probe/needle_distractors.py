"""Whether an embedding distinguishes a needle from a near-miss, by the needle's place, without and with further near-misses.

Ours. The needle is a sentence of a document, the question is about it in other words, and near-misses are the most similar
sentences of other documents. The needle is put before the sentence round(r n), counted from 0, of the
document's n other sentences, at the relative places r = 0, 1/4, 1/2, 3/4, 1. The value is the cosine of the question and
this document, minus that of the question and the same document with the most similar near-miss in the needle's place. With
distractors, four other near-misses are at the four other places, in the same order, in both.

Both documents are of the same sentences at every place, so the value of an order-blind embedder does not depend on the place.

The writer is an embedder, named with `--question-writer`: near-misses are the sentences of the
other documents whose vectors have the largest cosine with that of the needle, and the question has no word of the needle, of
its document or of the near-misses. With `--llm`, a language model asks instead.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from mteb.types import PromptType

from posir_probe.controlled_pairs import count_wins
from posir_probe.data import Needle, ProbeData
from posir_probe.probe import (
    POSITIVE_IS_START,
    Form,
    Probe,
    ProbePlan,
    SignedFinding,
    Summary,
    ignore_rounding,
    mean_over,
    start_to_end,
)
from posir_probe.results import ProbeSums
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings, ModelEncoder, Vectors
from posir_tasks.language_models.other_words import (
    MAX_WORDS,
    MIN_WORDS,
    EmbedderWriter,
    WritingRequest,
    build_vocabulary,
    normalize,
    open_writer,
)
from posir_tasks.languages import detect_language
from posir_tasks.scores import Unit
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.words import find_terms

SERIES = ("without distractors", "with distractors")
#: Relative places of the needle.
PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
NO_NEEDLE = "no sentence, among five or more, with five near-misses and a question in other words"
#: Near-misses of a needle: one that is put in its place, and one for each other place.
NEAR_MISSES = 5
#: Fewest other sentences of a document.
FEWEST_SENTENCES = 4
#: Needles whose cosines with all sentences are in memory at a time.
BLOCK = 64
SEED = 14


def place_sentences(rest: Sequence[str], placed: Mapping[int, str]) -> str:
    """Return sentences joined by spaces, with others put between them.

    Args:
        rest: The n sentences of a document.
        placed: Sentences by index of their place in `PLACES`: before the sentence round(place x n).
    """
    sentences: list[str] = []
    at = {place: round(PLACES[place] * len(rest)) for place in placed}
    for row in range(len(rest) + 1):
        sentences += [placed[place] for place in sorted(placed) if at[place] == row]
        sentences += rest[row : row + 1]
    return " ".join(sentences)


def build_documents(needle: Needle) -> list[str]:
    """Return documents with the needle, each followed by that with the near-miss in its place, by series and place."""
    foil, *competitors = needle.near_misses
    documents = []
    for with_distractors, place in product((False, True), range(len(PLACES))):
        others = [other for other in range(len(PLACES)) if other != place] if with_distractors else []
        distractors = dict(zip(others, competitors, strict=False))
        documents += [place_sentences(needle.rest, {**distractors, place: sentence}) for sentence in (needle.sentence, foil)]
    return documents


def summarize_places(unit: Unit, difference: Unit) -> dict[str, Summary]:
    """Return the summaries of values in a unit, with distractors and without, and of what distractors cost."""
    alone, among = mean_over(None, len(PLACES)), mean_over(len(PLACES), None)
    return {
        "start_to_end": Summary(
            "Needle first minus last, distractors", lambda values: start_to_end(values[..., len(PLACES) :]), difference
        ),
        "start_to_end_without": Summary(
            "Needle first minus last, no distractors", lambda values: start_to_end(values[..., : len(PLACES)]), difference
        ),
        "mean": Summary("Mean over places, distractors", among, unit),
        "mean_without": Summary("Mean over places, no distractors", alone, unit),
        "cost_of_distractors": Summary(
            "Mean without minus with distractors", lambda values: alone(values) - among(values), difference
        ),
    }


class NeedleDistractors(Probe):
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
    positions = tuple(f"{series} · {100 * place:.0f} %" for series, place in product(SERIES, PLACES))
    summaries = summarize_places(Unit.INDEX, Unit.INDEX)
    finding = SignedFinding(
        "A needle among near-misses stands out by {} more at the start of its document than at the end",
        "A needle among near-misses stands out by {} more at the end of its document than at the start",
        "whether a needle among near-misses stands out more at the start or at the end of its document",
    )
    preference = POSITIVE_IS_START
    compares_ends = True
    needs_needles = True
    value_title = "Cosine of the question and the document with its needle, minus that with a near-miss in its place"
    place_title = "Place of the needle, from the start of its document to the end"
    form = Form.PLACES
    series = {"with distractors": ("", "among other near-misses"), "without distractors": ("", "alone")}
    place_shares = {f"{100 * place:.0f} %": place for place in PLACES}
    shows_window = True

    def convert(self, differences: Floats) -> Floats:
        """Return what is summed of differences of scores: they as they are."""
        return differences

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the questions, and the documents with needle or near-miss at every place."""
        built = [build_documents(needle) for needle in data.needles]
        texts = [text for documents in built for text in documents]
        names, queries = [needle.document for needle in data.needles], [needle.question for needle in data.needles]
        skipped = {NO_NEEDLE: missing} if (missing := len(data.documents) - len(names)) else {}

        def summarize(embeddings: Embeddings) -> ProbeSums:
            asked = embeddings.select(queries, PromptType.query).astype(np.float64)
            documents = embeddings.select(texts).astype(np.float64).reshape(len(names), len(self.positions), 2, -1)
            differences = np.einsum("nd,npd->np", asked, documents[:, :, 0] - documents[:, :, 1])
            return ProbeSums.from_means(self.positions, names, self.convert(ignore_rounding(differences)), skipped)

        return ProbePlan(summarize, texts, queries)


class NeedleDistractorsWins(NeedleDistractors):
    """The share of documents that score higher with the needle."""

    name = "needle_distractors_wins"
    title = "Needle wins against near-miss"
    summaries = summarize_places(Unit.PERCENT, Unit.POINTS)
    finding = SignedFinding(
        "A needle among near-misses wins {} points more often at the start of its document than at the end",
        "A needle among near-misses wins {} points more often at the end of its document than at the start",
        "whether a needle among near-misses wins more often at the start or at the end of its document",
    )
    value_title = "Documents that score higher with the needle than with a near-miss in its place (%)"
    unit = Unit.PERCENT

    def convert(self, differences: Floats) -> Floats:
        """Return the wins of the needle."""
        return count_wins(differences)


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
        embedder = EmbedderWriter(self.name, self.encoder, build_vocabulary([*texts, *data.distractors.values()]))
        drawn = [(name, needle) for name, text in data.documents.items() if (needle := draw_needle(name, text))]
        if not drawn:
            return data
        near = find_near_misses(embedder, texts, [needle for _, needle in drawn])
        requests = [
            WritingRequest(needle.sentence, (data.documents[name], *misses), needle.language)
            for (name, needle), misses in zip(drawn, near, strict=True)
        ]
        questions = (open_writer(self.llm, texts) if self.llm else embedder).write(requests)
        needles = tuple(
            Needle(name, question, needle.sentence, needle.rest, misses)
            for (name, needle), question, misses in zip(drawn, questions, near, strict=True)
            if question and len(misses) == NEAR_MISSES
        )
        return replace(data, needles=needles)


@dataclass(frozen=True)
class DrawnNeedle:
    """A sentence of a document."""

    sentence: str
    rest: tuple[str, ...]
    """The document's other sentences."""
    language: str


def draw_needle(name: str, text: str) -> DrawnNeedle | None:
    """Return a random sentence of 5 to 80 words, with a seed; None if there is none, or fewer than four other sentences."""
    language = detect_language(text)[0] if text.strip() else ""
    sentences = [span.of(text) for span in find_sentences(text, language)] if language else []
    suitable = [row for row, sentence in enumerate(sentences) if is_suitable(sentence)]
    if len(sentences) <= FEWEST_SENTENCES or not suitable:
        return None
    row = random.Random(f"{SEED} {name}").choice(suitable)
    return DrawnNeedle(sentences[row], (*sentences[:row], *sentences[row + 1 :]), language)


def is_suitable(sentence: str) -> bool:
    """Return whether a sentence has the words of a needle or a near-miss."""
    return MIN_WORDS <= len(find_terms(sentence)) <= MAX_WORDS


def find_near_misses(embedder: EmbedderWriter, texts: Sequence[str], needles: Sequence[DrawnNeedle]) -> list[tuple[str, ...]]:
    """Return the sentences that are the most similar to each needle and in no document with it, the most similar first.

    Args:
        embedder: Embeds the sentences.
        texts: All documents.
        needles: Of some of them.
    """
    pool: dict[str, str] = {}
    for text in texts:
        for span in find_sentences(text, detect_language(text)[0]) if text.strip() else ():
            if is_suitable(span.of(text)):
                pool.setdefault(normalize(span.of(text)), span.of(text))
    sentences = list(pool.values())
    if not sentences:
        return [()] * len(needles)
    vectors = embedder.embed(sentences)
    targets = embedder.embed([needle.sentence for needle in needles])
    near = []
    for needle, order in zip(needles, order_by_cosine(targets, vectors), strict=True):
        own = {normalize(sentence) for sentence in (needle.sentence, *needle.rest)}
        others = (sentences[row] for row in order if normalize(sentences[row]) not in own)
        near.append(tuple(sentence for sentence, _ in zip(others, range(NEAR_MISSES), strict=False)))
    return near


def order_by_cosine(targets: Vectors, vectors: Vectors) -> Iterator[list[int]]:
    """Yield the rows of unit vectors, shape (n, dimensions), for each target, those with the largest cosine first."""
    for start in range(0, len(targets), BLOCK):
        for cosines in targets[start : start + BLOCK] @ vectors.T:
            yield np.argsort(-cosines, kind="stable").tolist()
