"""Retrieval after every document is cut into five parts and their order is reversed.

'Built-in or learned?' (arXiv 2605.26578, appendix E, Table 12). Questions and relevance stay the
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

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from mteb.types import PromptType

from posir_probe.data import ProbeData, ProbeQuestion, select_with_evidence
from posir_probe.probe import SCORE, Probe, ProbePlan, Summary
from posir_probe.results import ProbeSums, at
from posir_tasks.base.arrays import Floats
from posir_tasks.models.dispatch import MAX_SIMILARITIES
from posir_tasks.models.embeddings.encoding import Embeddings
from posir_tasks.text.interventions import NO_SPAN, find_part, find_parts, reverse_parts
from posir_tasks.values.scores import Unit

PARTS = 5
#: The group of each part.
GROUPS = (0, 0, 1, 2, 2)
#: Ranks that count.
CUTOFF = 10


def search(
    embeddings: Embeddings,
    questions: Sequence[ProbeQuestion],
    corpus: Mapping[str, str],
    versions: Sequence[str] = (),
) -> Floats:
    """Return nDCG@10 of n questions with one relevant document each, text by id; shape (n, 1).

    With n K versions, K of each question's document, each is searched in place of the document;
    shape (n, K). Documents are ranked by cosine in single precision, then by id, both descending,
    as in `posir_tasks.values.ranks`.
    """
    rows = {name: row for row, name in enumerate(corpus)}
    relevant = np.array([rows[question.document] for question in questions], np.int64)
    queries = embeddings.select((question.text for question in questions), PromptType.query)
    documents = embeddings.select(corpus.values())
    replaced = (
        embeddings.select(versions).reshape(len(queries), -1, documents.shape[-1])
        if versions
        else None
    )
    order = np.argsort(np.argsort(np.array(list(corpus), object)))
    ranks = np.empty((len(queries), 1 if replaced is None else replaced.shape[1]), np.int64)
    step = max(1, MAX_SIMILARITIES // max(1, len(documents)))
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        own, scores = relevant[block], queries[block] @ documents.T
        reached = scores[np.arange(len(own)), own][:, None].copy()
        if replaced is not None:
            reached = np.einsum("nd,nkd->nk", queries[block], replaced[block])
        scores[np.arange(len(own)), own] = -np.inf
        wins_ties = order[None, :] > order[own][:, None]
        for version in range(ranks.shape[1]):
            score = reached[:, [version]]
            ranks[block, version] = ((scores > score) | ((scores == score) & wins_ties)).sum(
                axis=1
            ) + 1
    return np.where(ranks <= CUTOFF, 1 / np.log2(ranks + 1.0), 0.0)


def _place_effect(values: Floats) -> Floats:
    """Return the mean of front and back questions' score near the start minus that near the end."""
    effect: Floats = _near_start(values) - _near_end(values)
    return effect


def _near_start(values: Floats) -> Floats:
    """Return the mean of the front as it is and the end reversed."""
    mean: Floats = (values[..., 0] + values[..., 5]) / 2
    return mean


def _near_end(values: Floats) -> Floats:
    """Return the mean of the front reversed and the end as it is."""
    mean: Floats = (values[..., 1] + values[..., 4]) / 2
    return mean


class MirrorReversal(Probe):
    """nDCG@10 of front, middle and back questions, before and after the parts of all documents are
    reversed.
    """

    name = "mirror_reversal"
    title = "Mirror reversal"
    source = "arXiv 2605.26578, appendix E"
    notes = (
        "Every document of the corpus is cut into five parts, and their order is reversed. Near "
        "the start: the mean of "
        "the front as it is and the end reversed. Near the end: of the front reversed and the end "
        "as it is.",
        "For a model blind to order, back minus front after reversal is not 0, since the "
        "questions differ in difficulty; the "
        "difference of the changes is 0. Both include what truncation costs.",
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
            lambda values: (values[..., 5] - values[..., 4]) - (values[..., 1] - values[..., 0]),
            Unit.POINTS,
        ),
        #: Half of it: of the same question, with the evidence near the start and near the end.
        "place": Summary("nDCG@10 near start minus near end", _place_effect, Unit.POINTS),
        "near_start": Summary("nDCG@10 near start", _near_start, Unit.PERCENT),
        "near_end": Summary("nDCG@10 near end", _near_end, Unit.PERCENT),
        #: BF - FB, which is not.
        "delta_rev": Summary(
            "nDCG@10 reversed, back minus front",
            lambda values: values[..., 5] - values[..., 1],
            Unit.POINTS,
        ),
        "front": Summary("nDCG@10 of front questions", at(0), Unit.PERCENT),
        "FB": Summary("The same, documents reversed", at(1), Unit.PERCENT),
        "back": Summary("nDCG@10 of back questions", at(4), Unit.PERCENT),
        "BF": Summary("The same, documents reversed", at(5), Unit.PERCENT),
    }
    stated = ("place", "near_start", "near_end")
    preference_sign = 1
    measures_search = True
    needs_questions = True
    needs_all = True
    shows_published_range = True
    value_title = SCORE
    place_title = "Original place of the evidence"
    unit = Unit.PERCENT
    place_names = {"back": "end"}
    series = {"original": ("Documents as they are", ""), "reversed": ("Documents reversed", "")}

    def plan(self, data: ProbeData) -> ProbePlan:
        """Search the documents and the reversed documents."""
        questions, skipped = select_with_evidence(data)
        parts = {name: find_parts(text, PARTS) for name, text in data.documents.items()}
        skipped += Counter(
            "fewer than five words to reverse"
            for question in questions
            if len(parts[question.document]) < PARTS
        )
        questions = [question for question in questions if len(parts[question.document]) == PARTS]
        searched = {**data.documents, **data.distractors}
        mirrored = {
            name: reverse_parts(text, NO_SPAN, PARTS).text for name, text in searched.items()
        }
        groups = np.array(
            [GROUPS[find_part(parts[question.document], question.span)] for question in questions],
            np.int64,
        )

        def summarize(embeddings: Embeddings) -> ProbeSums:
            values = np.full((len(questions), len(self.positions)), np.nan)
            for order, corpus in enumerate((searched, mirrored)):
                values[np.arange(len(questions)), 2 * groups + order] = search(
                    embeddings, questions, corpus
                )[:, 0]
            return ProbeSums.from_means(
                self.positions, [question.document for question in questions], values, skipped
            )

        return ProbePlan(
            summarize,
            [*searched.values(), *mirrored.values()],
            [question.text for question in questions],
        )
