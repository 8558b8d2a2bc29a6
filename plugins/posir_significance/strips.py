"""The picture of a result: how well evidence is found at each position, what is truncated, and the
finding in words.
"""

from __future__ import annotations

from functools import partial

from posir_significance.analysis import GroupAnalysis, estimate_parts
from posir_significance.findings import GroupFindings, Quantity
from posir_significance.messages import describe_group, format_finding, list_facts, title_curve
from posir_tasks.display.strip import Strip
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.means import estimate_mean
from posir_tasks.values.read_part import Part, ReadKind


def build_strip(findings: GroupFindings, group: GroupAnalysis, name: str) -> Strip:
    """Return the picture of a group of questions, given the findings on it and its analysis."""
    read = findings.read
    unread = findings.value(Quantity.UNREAD_SHARE) or 0.0
    parts = tuple(estimate_parts(group.observations))
    heads = {Part.LAST: 0.0, Part.ENDS: (read.tokens_at_start or 0) / (read.tokens or 1)}
    window = [f"Reads {read.phrase}"] if read.kind is ReadKind.PART and not unread else []
    effect = f"Position effect {format_finding(findings[Quantity.POSITION_EFFECT])}"
    ndcg_truncated = None
    if unread:
        rows = group.observations.select(group.observations.twelfths >= TWELFTHS)
        ndcg_truncated = estimate_mean(rows.gains, rows.clusters, rows.shares)
    return Strip(
        name,
        (*window, effect, title_curve(findings)),
        parts,
        unread,
        ndcg_truncated,
        round(len(parts) * heads[read.part]) if read.part in heads else None,
        describe_group(findings),
        partial(list_facts, findings),
    )
