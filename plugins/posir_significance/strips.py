"""The picture of a result: how well evidence is found at each position, what is truncated, and the
finding in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from posir_significance.analysis import GroupAnalysis, estimate_parts
from posir_significance.findings import GroupFindings, Quantity
from posir_significance.messages.verdicts import (
    describe_group,
    format_finding,
    list_facts,
    title_curve,
)
from posir_tasks.display.strip import Strip
from posir_tasks.display.tables import DisplaySection, Medium
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.means import estimate_mean
from posir_tasks.values.read_part import Part, ReadKind
from posir_tasks.values.scores import ResultValues

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure


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


def build_overlay(task: str, results: Mapping[str, ResultValues]) -> Iterator[DisplaySection]:
    """Yield a folded section of a page with the curves of all models on a task in one chart, given
    their results by name; none of fewer than two with queries.
    """
    drawn = {name: values for name, values in results.items() if values.profile.queries}
    if len(drawn) > 1:
        draw = partial(_draw_models, task, drawn)
        title = f"All models by position · {task}"
        yield DisplaySection(title, draw=draw, folded=True, only=Medium.PAGE)


def _draw_models(task: str, results: Mapping[str, ResultValues]) -> Sequence[Figure]:
    # Altair takes a second to import.
    from posir_significance.curves import draw_models

    return draw_models(task, results)
