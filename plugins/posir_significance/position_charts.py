"""Build position charts: nDCG@10 by position, truncation, and the findings as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from posir_significance.analysis import GroupAnalysis
from posir_significance.findings import GroupFindings, Quantity
from posir_significance.messages.verdicts import (
    describe_group,
    format_finding,
    list_facts,
    list_steps,
    title_curve,
)
from posir_tasks.display.labels import Title
from posir_tasks.display.position_charts import PositionChart
from posir_tasks.display.tables import DisplaySection, Medium
from posir_tasks.values.read_part import Part, ReadKind
from posir_tasks.values.scores import ResultValues

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure


def build_position_chart(findings: GroupFindings, group: GroupAnalysis, name: str) -> PositionChart:
    """Build the chart of a group of questions from its findings and analysis."""
    read = findings.read
    unread = findings.get_value(Quantity.UNREAD_SHARE) or 0.0
    parts = tuple(group.ndcg_by_part)
    start_share = (read.tokens_at_start or 0) / (read.tokens or 1)
    start_shares = {Part.LAST: 0.0, Part.ENDS: start_share}
    start_parts = None
    if read.part in start_shares:
        start_parts = round(len(parts) * start_shares[read.part])
    window = [f"Reads {read.phrase}"] if read.kind is ReadKind.PART and not unread else []
    effect = f"Position effect {format_finding(findings[Quantity.POSITION_EFFECT])}"
    return PositionChart(
        name,
        (*window, effect, title_curve(findings)),
        parts,
        unread,
        group.ndcg_truncated if unread else None,
        start_parts,
        describe_group(findings),
        partial(list_facts, findings),
        list_steps(findings),
    )


def build_overlay_section(
    task: str, results: Mapping[str, ResultValues]
) -> Iterator[DisplaySection]:
    """Yield a folded section with the curves of the models on a task, if there are several."""
    curves = {name: values for name, values in results.items() if values.profile.queries}
    if len(curves) > 1:
        draw = partial(_draw_models, task, curves)
        title = Title("All models by position", task)
        yield DisplaySection(title, draw=draw, folded=True, only=Medium.PAGE)


def _draw_models(task: str, results: Mapping[str, ResultValues]) -> Sequence[Figure]:
    # Importing Altair takes a second.
    from posir_significance.curves import draw_models

    return draw_models(task, results)
