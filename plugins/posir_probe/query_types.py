"""Types of queries by their question word: PosIR (Zeng et al. 2026, arXiv 2601.08363, A.2, Table 6).

The paper does not give its lists of words; those here are ours. English: the first question word among the first words.
Chinese: the first one anywhere. A query without question word and question mark is a claim; other questions are mostly yes/no.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from posir_probe.probe import ProbeData, ProbePlan, Summary
from posir_probe.sums import ProbeSums
from posir_probe.view import Form, ProbeView, SummaryLabel, state_largest
from posir_tasks.embeddings.encoding import Embeddings
from posir_tasks.scores import Unit
from posir_tasks.sources.text_totals import QUESTION
from posir_tasks.text.scripts import is_unspaced

ENGLISH = {word: word for word in ("what", "how", "why", "which", "when", "where", "who")} | {"whose": "who", "whom": "who"}
CHINESE = {
    **dict.fromkeys(("为什么", "为何", "为啥"), "why"),
    **dict.fromkeys(("什么时候", "何时"), "when"),
    **dict.fromkeys(("什么地方", "哪里", "哪儿", "何处"), "where"),
    **dict.fromkeys(("如何", "怎么", "怎样", "怎"), "how"),
    **dict.fromkeys(("什么", "何"), "what"),
    "谁": "who",
    "哪": "which",
}
TYPES = ("what", "how", "why", "which", "when", "where", "who", "claim", "others")
#: Words of a query among which its question word may be, so that `In what year` counts.
LEADING_WORDS = 3
ENGLISH_WORD = re.compile(r"[a-z]+")
CHINESE_WORD = re.compile("|".join(sorted(CHINESE, key=len, reverse=True)))
#: `posir stats` counts question marks of every script.
QUESTION_MARK = re.compile(QUESTION.replace(r"\p{Pe}\p{Pf}\p{Pi}", r")\]}»”’"))


def find_query_type(query: str) -> str:
    """Return the type of a query, one of `TYPES`."""
    if is_unspaced(query):
        word = CHINESE_WORD.search(query)
        kind = CHINESE[word[0]] if word else None
    else:
        words = ENGLISH_WORD.findall(query.lower())[:LEADING_WORDS]
        kind = next((ENGLISH[word] for word in words if word in ENGLISH), None)
    return kind or ("others" if QUESTION_MARK.search(query) else "claim")


@dataclass(frozen=True)
class QueryTypes:
    """Share of the queries of each type."""

    name: ClassVar[str] = "query_types"
    needs_questions: ClassVar[bool] = True
    title: ClassVar[str] = "Question words"
    source: ClassVar[str] = "arXiv 2601.08363, A.2"
    notes: ClassVar[tuple[str, ...]] = (
        "A property of the data; the model does not matter. Word lists for English and Chinese only, and ours: the "
        "paper's are not published.",
    )
    positions: ClassVar[tuple[str, ...]] = TYPES

    @property
    def view(self) -> ProbeView:
        """The most frequent type."""
        return ProbeView(
            state_largest("The most frequent type of question is '{}', with {} %", dict(enumerate(TYPES))),
            value="Questions (%)",
            place="Type of the question",
            form=Form.CATEGORIES,
            unit=Unit.PERCENT,
            summaries={"claims": SummaryLabel("Claims among the questions (%)", Unit.PERCENT)},
            of_data=True,
        )

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """The share of claims."""
        return {"claims": lambda values: values[..., TYPES.index("claim")]}

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode nothing."""

        def summarize(_: Embeddings) -> ProbeSums:
            rows = np.array([TYPES.index(find_query_type(question.text)) for question in data.questions], np.int64)
            names = [question.document for question in data.questions]
            return ProbeSums.from_columns("share", TYPES, names, rows, np.ones((len(rows), 1)))

        return ProbePlan(summarize)
