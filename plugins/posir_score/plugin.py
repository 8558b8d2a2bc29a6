"""`posir score`."""

from __future__ import annotations

from posir_tasks.plugin_api import BIAS, Command, declare

posir_commands = declare(
    Command(
        "score",
        "posir_score.api:score",
        "Score a run of any system, a retriever, or text splitters.",
        BIAS,
    )
)
