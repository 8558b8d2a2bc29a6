"""The evidence dilution index (EDI) in our reading: the vector of a whole document falls below that of its best chunk.

DICE (arXiv 2606.18781) was read as an abstract, and its code has no EDI: sign, scale and reference chunks are ours. EDI(q, d) =
max_c cos(q, c) - cos(q, d) for a question q, its relevant document d and the chunks c of d, which are of a fixed number of
tokens without overlap and the same for every model with the same tokenizer, mitigated or not.

It is positive without any position bias, because short texts score higher than long ones. What depends on position is the
difference between evidence in the last and in the first third, by its midpoint in characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise, product
from typing import ClassVar

import numpy as np
from mteb.types import PromptType

from posir_probe.controls import order_blind
from posir_probe.probe import (
    POSITIVE_IS_START,
    Preference,
    ProbeData,
    ProbePlan,
    Summary,
    ignore_rounding,
    is_evidence,
    value_at,
)
from posir_probe.sums import ProbeSums
from posir_probe.view import CONTROL, Form, ProbeView, SummaryLabel, compare_sides
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings, encode_distinct
from posir_tasks.text.chunks import Chunking
from posir_tasks.text.spans import find_third

SERIES = ("model", CONTROL)
THIRDS = ("first third", "middle third", "last third")
#: What the values of each series are means over.
GROUPS = ("all questions", *THIRDS)


def last_minus_first_third(values: Floats, series: int) -> Floats:
    """Return how much more a series dilutes evidence in the last third than in the first."""
    first = series * len(GROUPS) + 1
    difference: Floats = values[..., first + 2] - values[..., first]
    return difference


@dataclass(frozen=True)
class EvidenceDilution:
    """Cosine of a question and the best chunk of its document, minus that of the document."""

    name: str = "evidence_dilution"
    tokens: int = 128
    """Tokens of a chunk."""

    needs_questions: ClassVar[bool] = True
    source: ClassVar[str] = "our reading of the abstract of arXiv 2606.18781"
    preference: ClassVar[Preference] = POSITIVE_IS_START
    notes: ClassVar[tuple[str, ...]] = (
        "Our reading of the abstract of arXiv 2606.18781. EDI is positive without position bias, since short texts score "
        "higher, and grows as chunks shrink: compare models by the same chunks only. Position shows in the last third minus "
        "the first, beside that of an order-blind embedder on the same texts.",
    )
    positions: ClassVar[tuple[str, ...]] = tuple(f"{series} · {group}" for series, group in product(SERIES, GROUPS))

    @property
    def title(self) -> str:
        """Title of what is measured."""
        return f"Best chunk of {self.tokens} tokens and whole document"

    @property
    def view(self) -> ProbeView:
        """Dilution of late evidence against that of early evidence."""
        find = compare_sides(
            partial(last_minus_first_third, series=0),
            "A whole document dilutes evidence in its last third by {} more than evidence in its first",
            "A whole document dilutes evidence in its first third by {} more than evidence in its last",
            "Evidence in the first and the last third are not shown to be diluted differently",
        )
        labels = {"last_minus_first_third": "Dilution, last third minus first", "edi": "Dilution (EDI), all questions"}
        control = {f"order_blind_{name}": SummaryLabel(f"{CONTROL}: {title.lower()}") for name, title in labels.items()}
        return ProbeView(
            find,
            value="Cosine with the question: best chunk minus whole document",
            place="Place of the evidence",
            form=Form.CATEGORIES,
            summaries={name: SummaryLabel(title) for name, title in labels.items()} | control,
            series={"model": ("", ""), CONTROL: ("", CONTROL)},
            contrast="last_minus_first_third",
        )

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """EDI of evidence in the last third minus the first, and EDI, of the model and of an order-blind embedder."""
        return {
            "last_minus_first_third": partial(last_minus_first_third, series=0),
            "edi": partial(value_at, place=0),
            "order_blind_last_minus_first_third": partial(last_minus_first_third, series=1),
            "order_blind_edi": partial(value_at, place=len(GROUPS)),
        }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the questions, their documents, and the documents' chunks."""
        questions = [question for question in data.questions if data.documents[question.document].strip()]
        names = list(dict.fromkeys(question.document for question in questions))
        texts = [data.documents[name] for name in names]
        chunking = Chunking(self.tokens, self.tokens)
        chunks = list(map(chunking.divide, texts, data.tokenizer.find_tokens(texts)))
        queries = [question.text for question in questions]
        asked_about = [data.documents[question.document] for question in questions]
        thirds = [
            find_third(question.span, len(text)) if is_evidence(text, question.span) else None
            for question, text in zip(questions, asked_about, strict=True)
        ]
        rows = {name: row for row, name in enumerate(names)}
        documents = [rows[question.document] for question in questions]
        skipped = Counter({"empty text": len(data.questions) - len(questions)})
        encoded = [*texts, *(chunk for of_text in chunks for chunk in of_text)]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            control = encode_distinct(order_blind, encoded, queries).normalize()
            values = np.full((len(questions), len(self.positions)), np.nan)
            for offset, vectors in ((0, embeddings), (len(GROUPS), control)):
                dilution = ignore_rounding(measure_dilution(vectors, queries, documents, texts, chunks))
                values[:, offset] = dilution
                for row, third in enumerate(thirds):
                    if third is not None:
                        values[row, offset + 1 + third] = dilution[row]
            return ProbeSums.from_means(self.positions, [question.document for question in questions], values, +skipped)

        return ProbePlan(summarize, encoded, queries)


def measure_dilution(
    embeddings: Embeddings,
    queries: Sequence[str],
    documents: Sequence[int],
    texts: Sequence[str],
    chunks: Sequence[Sequence[str]],
) -> Floats:
    """Return the EDI of n questions, shape (n,).

    Args:
        embeddings: Of questions, texts and chunks, of unit length.
        queries: The questions, length n.
        documents: Index of each question's document, length n.
        texts: The documents.
        chunks: The chunks of each document, at least one.
    """
    asked = embeddings.select(queries, PromptType.query).astype(np.float64)
    whole = embeddings.select(texts).astype(np.float64)
    parts = embeddings.select(chunk for of_text in chunks for chunk in of_text).astype(np.float64)
    bounds = list(pairwise(accumulate(map(len, chunks), initial=0)))
    dilution: Floats = np.array(
        [
            (parts[slice(*bounds[document])] @ query).max() - whole[document] @ query
            for query, document in zip(asked, documents, strict=True)
        ],
        np.float64,
    )
    return dilution
