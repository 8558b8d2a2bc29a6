"""The scores: MRR@10 of the first and of the last position."""

import math

from posir_tasks.values.profile import MRR_AT_10
from posir_tasks.values.scores import Direction, QueryGroup, Score, Unit


def mrr_at_10(group: QueryGroup, index: int) -> float | None:
    """MRR@10 of a position bin; None without questions about it."""
    score = float(group.profile.by_position(MRR_AT_10)[index])
    return None if math.isnan(score) else score


SCORES = [
    Score(
        f"mrr_at_10_{name}_position",
        f"MRR@10, {name}",
        f"MRR@10 of the {name} position bin.",
        unit=Unit.PERCENT,
        better=Direction.HIGHER,
        compute=lambda group, index=index: mrr_at_10(group, index),
    )
    for name, index in (("first", 0), ("last", -1))
]
