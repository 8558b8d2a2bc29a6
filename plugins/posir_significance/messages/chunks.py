"""Sentences about retrieved chunks."""

from __future__ import annotations

from collections.abc import Mapping

from posir_tasks.base.wording import pluralize
from posir_tasks.display import numbers
from posir_tasks.values.estimates import Estimate

#: Where evidence is that the first chunks lack, by the key of the loss, after a number.
LOSSES = {
    "not_retrieved": "in a document that is not retrieved",
    "other_chunk": "in another chunk of a retrieved document",
    "not_returned": "in a retrieved document, but in no returned chunk",
    "not_located": "in a chunk that is not located",
    "cut": "cut off by the border of a retrieved chunk",
    "not_read": "beyond what the embedder reads",
}
EVIDENCE_RECALL = "The first {chunks} {recall}% of the evidence; documents score nDCG@10 {ndcg}."
LOST_EVIDENCE = "The other {share}%: {parts}{unknown}."
UNREAD_UNKNOWN = "; what of it is beyond what the embedder reads is unknown"
CHUNK_LENGTHS = "{chunks}, of {median} in the median, at most {longest:,}{estimated}{longer}."


def describe_evidence_recall(k: int, recall: Estimate, ndcg_at_10: float) -> str:
    """Describe the share of the evidence in the first k chunks, next to the documents' nDCG@10."""
    return EVIDENCE_RECALL.format(
        chunks="chunk has" if k == 1 else f"{k} chunks have",
        recall=numbers.format_estimate(recall, numbers.format_percent),
        ndcg=numbers.format_percent(ndcg_at_10),
    )


def describe_lost_evidence(lost: Mapping[str, float], recall: float, *, is_known: bool) -> str:
    """Describe where the rest of the evidence is, given its share by loss, and whether it is known
    what the embedder reads.
    """
    ordered = sorted(((share, loss) for loss, share in lost.items()), reverse=True)
    parts = [f"{numbers.format_percent(share)} {LOSSES[loss]}" for share, loss in ordered]
    return LOST_EVIDENCE.format(
        share=numbers.format_percent(1 - recall),
        parts=", ".join(parts),
        unknown="" if is_known else UNREAD_UNKNOWN,
    )


def describe_chunk_lengths(
    chunks: int, median: float, longest: int, *, is_estimated: bool, longer: int
) -> str:
    """Describe how long chunks are in tokens, and how many are longer than the window."""
    return CHUNK_LENGTHS.format(
        chunks=pluralize(chunks, "distinct chunk"),
        median=pluralize(round(median), "token"),
        longest=longest,
        estimated=", estimated" if is_estimated else "",
        longer=f"; {pluralize(longer, 'is', 'are')} read in part" if longer else "",
    )
