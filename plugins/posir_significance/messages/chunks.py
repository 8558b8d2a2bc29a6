"""Sentences about retrieved chunks."""

from __future__ import annotations

from collections.abc import Mapping

from posir_tasks.base.wording import pluralize
from posir_tasks.display import numbers
from posir_tasks.values.estimates import Estimate

#: Location of the evidence that is not in the top chunks, by kind of loss.
LOSS_LOCATIONS = {
    "not_retrieved": "in a document that is not retrieved",
    "other_chunk": "in another chunk of a retrieved document",
    "not_returned": "in a retrieved document, but not in any returned chunk",
    "not_located": "in a chunk that is not located",
    "cut": "cut at the boundary of a retrieved chunk",
    "not_read": "beyond the embedder's context window",
}
EVIDENCE_RECALL = "The top {chunks} {recall}% of the evidence; documents score nDCG@10 {ndcg}."
LOST_EVIDENCE = "The other {share}%: {parts}{unknown}."
UNREAD_UNKNOWN = "; how much is beyond the embedder's context window is unknown"
CHUNK_LENGTHS = "{chunks}: median {median}, maximum {longest:,}{estimated}{longer}."


def describe_evidence_recall(k: int, recall: Estimate, ndcg_at_10: float) -> str:
    """Describe the share of the evidence in the top k chunks, next to the documents' nDCG@10."""
    return EVIDENCE_RECALL.format(
        chunks="chunk contains" if k == 1 else f"{k} chunks contain",
        recall=numbers.format_estimate(recall, numbers.format_percent),
        ndcg=numbers.format_percent(ndcg_at_10),
    )


def describe_lost_evidence(lost: Mapping[str, float], recall: float, *, is_known: bool) -> str:
    """Describe where the remaining evidence is, given its share by kind of loss.

    `is_known` is true if the embedder's window is known.
    """
    losses = [
        f"{numbers.format_percent(share)} {LOSS_LOCATIONS[loss]}"
        for share, loss in sorted(((share, loss) for loss, share in lost.items()), reverse=True)
    ]
    return LOST_EVIDENCE.format(
        share=numbers.format_percent(1 - recall),
        parts=", ".join(losses),
        unknown="" if is_known else UNREAD_UNKNOWN,
    )


def describe_chunk_lengths(
    chunks: int, median: float, longest: int, *, is_estimated: bool, longer: int
) -> str:
    """Describe chunk lengths in tokens, and the number of chunks longer than the window."""
    return CHUNK_LENGTHS.format(
        chunks=pluralize(chunks, "distinct chunk"),
        median=pluralize(round(median), "token"),
        longest=longest,
        estimated=", estimated" if is_estimated else "",
        longer=f"; {pluralize(longer, 'is', 'are')} read in part" if longer else "",
    )
