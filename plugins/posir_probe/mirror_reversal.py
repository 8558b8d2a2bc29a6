"""Retrieval after every document is cut into five parts and their order is reversed.

'Built-in or learned?' (arXiv 2605.26578v1, appendix E, Table 12). Questions and relevance stay the
same. Groups are by the evidence's original part: front (1, 2), middle (3) and back (4, 5). FB is
the score of the front questions after reversal, when their evidence is at the back, and BF that of
the back questions; Delta_rev = BF - FB. Left open by the paper, and chosen here: parts are equal in
words, all documents of the corpus are reversed, evidence belongs to the part with its midpoint, and
the score is nDCG@10.

Delta_rev of an order-blind model is back - front, not 0: it contains how difficult the questions
are. Delta_diff = (BF - back)
- (FB - front) is 0 for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from mteb.types import PromptType

from posir_probe.data import ProbeData, ProbeQuestion, select_with_evidence
from posir_probe.probe import SCORE, Probe, ProbePlan, Summary
from posir_probe.results import ProbeSums, at, average, subtract
from posir_tasks.base.arrays import Floats
from posir_tasks.models.dispatch import MAX_SIMILARITIES
from posir_tasks.models.embeddings.encoding import Embeddings
from posir_tasks.text.interventions import find_part, find_parts, reverse_parts
from posir_tasks.values.scores import Unit

PARTS = 5
#: The group of each part.
GROUPS = (0, 0, 1, 2, 2)
#: Ranks that count.
CUTOFF = 10
#: Index of front questions as they are and reversed, and of back questions likewise.
FRONT, FB, BACK, BF = 0, 1, 4, 5
#: The mean of the front as it is and the end reversed, and of the front reversed and the end as it
#: is.
NEAR_START = average([FRONT, BF])
NEAR_END = average([FB, BACK])


def search(
    embeddings: Embeddings,
    questions: Sequence[ProbeQuestion],
    corpus: Mapping[str, str],
    versions: Sequence[str] = (),
) -> Floats:
    """Compute nDCG@10 of n questions with one relevant document each, text by id; shape (n, 1).

    With n K versions, K of each question's document, each is searched instead of the document;
    shape (n, K). Documents are ranked by cosine in single precision, then by id, both descending,
    as in `posir_tasks.values.ranks`.
    """
    names = list(corpus)
    rows = {name: row for row, name in enumerate(names)}
    relevant = np.array([rows[question.document] for question in questions], int)
    order = np.argsort(np.argsort(np.array(names, object)))
    queries = embeddings.select((question.text for question in questions), PromptType.query)
    documents = embeddings.select(corpus.values())
    count = len(versions) // max(1, len(questions))
    replaced = embeddings.select(versions).reshape(len(queries), count, documents.shape[-1])
    ranks = np.empty((len(queries), max(1, count)), int)
    step = max(1, MAX_SIMILARITIES // max(1, len(documents)))
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        scores = queries[block] @ documents.T
        own = np.arange(len(scores)), relevant[block]
        reached = scores[own][:, None]
        if versions:
            reached = np.einsum("nd,nkd->nk", queries[block], replaced[block])
        scores[own] = -np.inf
        wins_ties = order > order[relevant[block], None]
        for version, score in enumerate(reached.T[:, :, None]):
            before = (scores > score) | ((scores == score) & wins_ties)
            ranks[block, version] = before.sum(axis=1) + 1
    return np.where(ranks <= CUTOFF, 1 / np.log2(ranks + 1.0), 0.0)


class MirrorReversal(Probe):
    """nDCG@10 of front, middle and back questions, before and after the parts of all documents are
    reversed.
    """

    name = "mirror_reversal"
    title = "Mirror reversal"
    source = "arXiv 2605.26578v1, appendix E"
    notes = (
        "Every document of the corpus is cut into five parts, and their order is reversed. Near "
        "the start: the mean of the front as it is and the end reversed. Near the end: of the "
        "front reversed and the end as it is.",
        "For a model blind to order, back minus front after reversal is not 0, since the "
        "questions differ in difficulty; the difference of the changes is 0. Both include what "
        "truncation costs.",
    )
    positions = tuple(
        f"{order} · {group}"
        for group in ("front", "middle", "back")
        for order in ("original", "reversed")
    )
    summaries = {
        #: (BF - back) - (FB - front), which is 0 for an order-blind model.
        "delta_diff": Summary(
            "nDCG@10 by reversal, back minus front",
            subtract(subtract(at(BF), at(BACK)), subtract(at(FB), at(FRONT))),
            Unit.POINTS,
        ),
        #: Half of it: of the same question, with the evidence near the start and near the end.
        "place": Summary(
            "nDCG@10 near start minus near end", subtract(NEAR_START, NEAR_END), Unit.POINTS
        ),
        "near_start": Summary("nDCG@10 near start", NEAR_START, Unit.PERCENT),
        "near_end": Summary("nDCG@10 near end", NEAR_END, Unit.PERCENT),
        #: BF - FB, which is not.
        "delta_rev": Summary(
            "nDCG@10 reversed, back minus front", subtract(at(BF), at(FB)), Unit.POINTS
        ),
        "front": Summary("nDCG@10 of front questions", at(FRONT), Unit.PERCENT),
        "FB": Summary("The same, documents reversed", at(FB), Unit.PERCENT),
        "back": Summary("nDCG@10 of back questions", at(BACK), Unit.PERCENT),
        "BF": Summary("The same, documents reversed", at(BF), Unit.PERCENT),
    }
    headline = ("place", "near_start", "near_end")
    preference_sign = 1
    measures_search = True
    needs_questions = True
    needs_all = True
    value_title = SCORE
    place_title = "Original place of the evidence"
    unit = Unit.PERCENT
    place_names = {"back": "end"}
    series = {"original": ("Documents as they are", ""), "reversed": ("Documents reversed", "")}

    def plan(self, data: ProbeData) -> ProbePlan:
        """Search the documents and the reversed documents."""
        selected, skipped = select_with_evidence(data)
        questions = []
        groups = []
        for question in selected:
            parts = find_parts(data.documents[question.document], PARTS)
            if len(parts) == PARTS:
                questions.append(question)
                groups.append(GROUPS[find_part(parts, question.span)])
        skipped["fewer than five words to reverse"] += len(selected) - len(questions)
        corpus = {**data.documents, **data.distractors}
        mirrored = {name: reverse_parts(text, PARTS) for name, text in corpus.items()}

        def summarize(embeddings: Embeddings) -> ProbeSums:
            rows = np.arange(len(questions))
            values = np.full((len(questions), len(self.positions)), np.nan)
            for order, searched in enumerate((corpus, mirrored)):
                scores = search(embeddings, questions, searched)
                values[rows, 2 * np.array(groups, int) + order] = scores[:, 0]
            names = [question.document for question in questions]
            return ProbeSums.from_means(self.positions, names, values, +skipped)

        queries = [question.text for question in questions]
        return ProbePlan(summarize, [*corpus.values(), *mirrored.values()], queries)
