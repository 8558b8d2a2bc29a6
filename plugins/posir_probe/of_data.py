"""Properties of a dataset that explain what is measured on it: where its evidence is, and what its questions ask. No model.

Evidence: 'Built-in or learned?' (arXiv 2605.26578, section 5, Fig. 9): start of the evidence / length of the document, with
lines at one and two thirds. PosIR (arXiv 2601.08363, section 3.1, Fig. 2): its middle / length, in 20 bins. Both in characters
here.

Types of queries by their question word: PosIR (A.2, Table 6). The paper does not give its lists of words; those here are ours.
English: the first question word among the first words. Chinese: the first one anywhere. A query without question word and
question mark is a claim; other questions are mostly yes/no.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from posir_probe.data import NO_END, ProbeData, ProbeQuestion, select_with_evidence
from posir_probe.probe import Form, Probe, ProbePlan, Statement, Summary
from posir_probe.results import ProbeSums, at
from posir_tasks.display.numbers import format_estimate, format_percent
from posir_tasks.embeddings.encoding import Embeddings
from posir_tasks.scores import Unit
from posir_tasks.sources.statistics import QUESTION
from posir_tasks.text.words import is_unspaced

BINS = 20
MIDDLES = (np.arange(BINS) + 0.5) / BINS
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


class EvidenceLocation(Probe):
    """Share of the questions with the middle of their evidence in each twentieth of its document, as in PosIR."""

    name = "evidence_location"
    title = "Where the evidence is"
    source = "arXiv 2601.08363, section 3.1"
    notes = ("A property of the data; the model does not matter.",)
    positions = tuple(f"{place / BINS:.2f}-{(place + 1) / BINS:.2f}" for place in range(BINS))
    summaries = {
        "mean": Summary("Mean place of the evidence", lambda values: values @ MIDDLES),
        "first_quarter": Summary(
            "Evidence in the first quarter (%)", lambda values: values[..., :5].sum(axis=-1), Unit.PERCENT
        ),
        "last_quarter": Summary("Evidence in the last quarter (%)", lambda values: values[..., 15:].sum(axis=-1), Unit.PERCENT),
    }
    finding = Statement(
        "{} % of the evidence is in the first quarter of its document, {} % in the last", ("first_quarter", "last_quarter")
    )
    needs_questions = True
    value_title = "Questions (%)"
    place_title = "Middle of the evidence, as a share of the document"
    form = Form.BARS
    unit = Unit.PERCENT
    place_shares = dict(zip(positions, MIDDLES.tolist(), strict=True))
    is_of_data = True

    def locate(self, data: ProbeData) -> tuple[list[tuple[ProbeQuestion, float]], Counter[str]]:
        """Return the character of each question's evidence, and the number of questions without, by reason."""
        questions, skipped = select_with_evidence(data)
        return [(question, sum(question.span) / 2) for question in questions], skipped

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode nothing."""
        located, skipped = self.locate(data)

        def summarize(_: Embeddings) -> ProbeSums:
            lengths = np.array([len(data.documents[question.document]) for question, _ in located], np.float64)
            places = np.array([place for _, place in located], np.float64) / lengths
            rows = np.minimum((places * BINS).astype(np.int64), BINS - 1)
            names = [question.document for question, _ in located]
            return ProbeSums.from_columns("share", self.positions, names, rows, np.ones((len(rows), 1)), skipped)

        return ProbePlan(summarize)


class EvidenceLocationStart(EvidenceLocation):
    """The same of the start of the evidence, as in 'Built-in or learned?'."""

    name = "evidence_location_start"
    title = "Where the evidence starts"
    source = "arXiv 2605.26578, section 5"
    finding = Statement(
        "{} % of the evidence starts in the first quarter of its document, {} % in the last", ("first_quarter", "last_quarter")
    )
    is_variant = True
    place_title = "Start of the evidence, as a share of the document"

    def locate(self, data: ProbeData) -> tuple[list[tuple[ProbeQuestion, float]], Counter[str]]:
        """Return the first character of each question's evidence; data need not have its end."""
        questions, skipped = select_with_evidence(data)
        begun = [(question, float(question.start)) for question in data.questions if question.start is not None]
        del skipped[NO_END]
        return [*((question, float(question.span[0])) for question in questions), *begun], skipped


class QueryTypes(Probe):
    """Share of the queries of each type."""

    name = "query_types"
    title = "Question words"
    source = "arXiv 2601.08363, A.2"
    notes = (
        "A property of the data; the model does not matter. Word lists for English and Chinese only, and ours: the "
        "paper's are not published.",
    )
    positions = TYPES
    summaries = {"claims": Summary("Claims among the questions (%)", at(TYPES.index("claim")), Unit.PERCENT)}
    needs_questions = True
    value_title = "Questions (%)"
    place_title = "Type of the question"
    form = Form.CATEGORIES
    unit = Unit.PERCENT
    is_of_data = True

    def find(self, sums: ProbeSums) -> str | None:
        """Return the most frequent type with its share."""
        shares = {name: estimate for name, estimate in zip(TYPES, sums.estimates(), strict=True) if estimate}
        largest = max(shares, key=lambda name: shares[name].value, default=None)
        if largest is None or shares[largest].interval is None:
            return None
        return f"The most frequent type of question is '{largest}', with {format_estimate(shares[largest], format_percent)} %"

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode nothing."""

        def summarize(_: Embeddings) -> ProbeSums:
            rows = np.array([TYPES.index(find_query_type(question.text)) for question in data.questions], np.int64)
            names = [question.document for question in data.questions]
            return ProbeSums.from_columns("share", TYPES, names, rows, np.ones((len(rows), 1)))

        return ProbePlan(summarize)
