"""Retrieval after the order of each document's five parts is reversed.

From 'Built-in or learned?' (arXiv 2605.26578v1, appendix E, Table 12). Questions and relevance
judgments do not change. Questions are grouped by the part that contains their evidence in the
original document: front (1, 2), middle (3) and back (4, 5). After the reversal, FB is the score of
front questions, whose evidence is now at the back, and BF is the score of back questions.
Delta_rev = BF - FB. The paper leaves some choices open. Here, parts have equal numbers of words,
all documents of the corpus are reversed, the midpoint of the evidence determines its part, and the
score is nDCG@10.

For an order-blind model, Delta_rev is back - front instead of 0, since questions differ in
difficulty. Delta_diff = (BF - back) - (FB - front) is 0 for such a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from mteb.types import PromptType

from posir_probe.data import ProbeData, ProbeQuestion, select_with_evidence
from posir_probe.probe import NDCG_TITLE, Probe, ProbePlan, Summary
from posir_probe.results import ProbeSums, average, select, subtract
from posir_tasks.base.arrays import Floats
from posir_tasks.models.dispatch import MAX_SIMILARITIES
from posir_tasks.models.embeddings.encoding import Embeddings
from posir_tasks.text.interventions import find_part, find_parts, reverse_parts
from posir_tasks.values.scores import Unit

PARTS = 5
#: Group of each part: 0 front, 1 middle, 2 back.
PART_GROUPS = (0, 0, 1, 2, 2)
#: The cutoff of nDCG@10.
CUTOFF = 10
#: Position indices of front and back questions: in original documents (FRONT, BACK) and in reversed
#: documents (FB, BF).
FRONT, FB, BACK, BF = 0, 1, 4, 5
#: Means over front and back questions whose evidence is now near the start, or near the end.
NEAR_START = average([FRONT, BF])
NEAR_END = average([FB, BACK])


def compute_search_ndcg(
    embeddings: Embeddings,
    questions: Sequence[ProbeQuestion],
    corpus: Mapping[str, str],
    versions: Sequence[str] = (),
) -> Floats:
    """Compute nDCG@10 of n questions with one relevant document each.

    Documents are ranked by cosine in single precision, then by id, both descending, as in
    `posir_tasks.values.ranks`.

    Args:
        embeddings: Embeddings of the questions, corpus and versions.
        questions: The n questions.
        corpus: Texts by id.
        versions: n K texts, K versions of each question's document. Each version replaces the
            document in a separate search.

    Returns:
        nDCG@10, shape (n, 1) without versions, else (n, K).
    """
    names = list(corpus)
    rows = {name: row for row, name in enumerate(names)}
    relevant = np.array([rows[question.document] for question in questions], int)
    name_ranks = np.argsort(np.argsort(np.array(names, object)))
    queries = embeddings.select((question.text for question in questions), PromptType.query)
    documents = embeddings.select(corpus.values())
    count = len(versions) // max(1, len(questions))
    version_vectors = embeddings.select(versions)
    version_vectors = version_vectors.reshape(len(queries), count, documents.shape[-1])
    ranks = np.empty((len(queries), max(1, count)), int)
    step = max(1, MAX_SIMILARITIES // max(1, len(documents)))
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        scores = queries[block] @ documents.T
        positives = np.arange(len(scores)), relevant[block]
        positive_scores = scores[positives][:, None]
        if versions:
            positive_scores = np.einsum("nd,nkd->nk", queries[block], version_vectors[block])
        scores[positives] = -np.inf
        wins_ties = name_ranks > name_ranks[relevant[block], None]
        for version, score in enumerate(positive_scores.T[:, :, None]):
            before = (scores > score) | ((scores == score) & wins_ties)
            ranks[block, version] = before.sum(axis=1) + 1
    return np.where(ranks <= CUTOFF, 1 / np.log2(ranks + 1.0), 0.0)


class MirrorReversal(Probe):
    """nDCG@10 of front, middle and back questions, in original and reversed documents."""

    name = "mirror_reversal"
    title = "Mirror reversal"
    source = "arXiv 2605.26578v1, appendix E"
    notes = (
        "Every document of the corpus is split into five parts, and the order of the parts is "
        "reversed. Near the start: front questions in original documents and back questions in "
        "reversed documents. Near the end: the reverse.",
        "For an order-blind model, back minus front after reversal is not 0, since questions "
        "differ in difficulty, but the difference of the changes is 0. Both include losses from "
        "truncation.",
    )
    positions = tuple(
        f"{order} · {group}"
        for group in ("front", "middle", "back")
        for order in ("original", "reversed")
    )
    summaries = {
        # (BF - back) - (FB - front), which is 0 for an order-blind model.
        "delta_diff": Summary(
            "nDCG@10 by reversal, back minus front",
            subtract(subtract(select(BF), select(BACK)), subtract(select(FB), select(FRONT))),
            Unit.POINTS,
        ),
        # Half of delta_diff: the same questions with their evidence near the start and the end.
        "place": Summary(
            "nDCG@10 near start minus near end", subtract(NEAR_START, NEAR_END), Unit.POINTS
        ),
        "near_start": Summary("nDCG@10 near start", NEAR_START, Unit.PERCENT),
        "near_end": Summary("nDCG@10 near end", NEAR_END, Unit.PERCENT),
        # BF - FB, which also depends on the difficulty of the questions.
        "delta_rev": Summary(
            "nDCG@10 reversed, back minus front", subtract(select(BF), select(FB)), Unit.POINTS
        ),
    }
    headline = ("place", "near_start", "near_end")
    preference_sign = 1
    measures_search = True
    needs_questions = True
    needs_all = True
    value_title = NDCG_TITLE
    position_title = "Original position of the evidence"
    unit = Unit.PERCENT
    position_names = {"back": "end"}
    series = {"original": ("Documents as they are", ""), "reversed": ("Documents reversed", "")}

    def plan(self, data: ProbeData) -> ProbePlan:
        """Search the original and the reversed documents."""
        all_questions, skipped = select_with_evidence(data)
        questions = []
        groups = []
        for question in all_questions:
            parts = find_parts(data.documents[question.document], PARTS)
            if len(parts) == PARTS:
                questions.append(question)
                groups.append(PART_GROUPS[find_part(parts, question.span)])
        skipped["fewer than five words to reverse"] += len(all_questions) - len(questions)
        corpus = data.corpus or data.documents
        reversed_corpus = {name: reverse_parts(text, PARTS) for name, text in corpus.items()}

        def summarize(embeddings: Embeddings) -> ProbeSums:
            rows = np.arange(len(questions))
            values = np.full((len(questions), len(self.positions)), np.nan)
            for order, documents in enumerate((corpus, reversed_corpus)):
                scores = compute_search_ndcg(embeddings, questions, documents)
                values[rows, 2 * np.array(groups, int) + order] = scores[:, 0]
            names = [question.document for question in questions]
            return ProbeSums.from_means(self.positions, names, values)

        queries = [question.text for question in questions]
        documents = [*corpus.values(), *reversed_corpus.values()]
        return ProbePlan(summarize, documents, queries, skipped)
