"""The probes of PosIR (Zeng et al. 2026, arXiv 2601.08363v1): saliency and data statistics.

Vanilla gradient saliency (section 4.3, Fig. 5) follows the authors' code. It is the norm of the
gradient of cos(f(q), f(E)) with respect to each input embedding of the document, except special
tokens. The norms are clipped at their 99th percentile P, divided by P, and linearly interpolated at
100 points. If fewer than 1% of the norms are positive, P is 0 and the norms are not scaled. The
paper says 'max normalization', which is `gradient_saliency_max`. The paper uses pairs of at least
1,024 tokens with the midpoint of the evidence in the middle fifth of the document. Here, documents
have any length unless a `Selection` sets a minimum, so that models with short windows can be
measured.

The location of the evidence (section 3.1, Fig. 2) is its midpoint divided by the document length,
in 20 bins. 'Built-in or learned?' (arXiv 2605.26578v1, section 5, Fig. 9) uses the start of the
evidence instead, with lines at one and two thirds. Here, both are in characters.

Query types are defined by question words (A.2, Table 6). The paper does not publish its word lists,
so these are ours. In English, the type is the first question word among the query's first words. In
Chinese, it is the first question word anywhere. A query with neither a question word nor a question
mark is a claim. Other queries without a question word are mostly yes/no questions.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from mteb.types import PromptType
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device

from posir_probe.data import END_MISSING, ProbeData, select_with_evidence
from posir_probe.probe import Probe, ProbePlan, Summary
from posir_probe.results import ProbeSums, average, select, subtract
from posir_tasks.base.arrays import Floats
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track_items
from posir_tasks.datasets.statistics import QUESTION
from posir_tasks.models.embeddings.encoding import Embeddings, Vectors
from posir_tasks.models.prompts import preprocess
from posir_tasks.text.words import is_unspaced
from posir_tasks.values.scores import Unit

CURVE_POINTS = 100
#: Maximum number of tokens per document, from the authors' code.
MAX_TOKENS = 2_048
FIRST_TENTH = average(slice(10))
LAST_TENTH = average(slice(-10, None))
BINS = 20
BIN_CENTERS = (np.arange(BINS) + 0.5) / BINS
#: Query types, and the index of the type `claim`.
QUERY_TYPES = ("what", "how", "why", "which", "when", "where", "who", "claim", "others")
CLAIM = QUERY_TYPES.index("claim")
ENGLISH_QUESTION_WORDS = {word: word for word in QUERY_TYPES[:7]} | {"whose": "who", "whom": "who"}
CHINESE_QUESTION_WORDS = {
    **dict.fromkeys(("为什么", "为何", "为啥"), "why"),
    **dict.fromkeys(("什么时候", "何时"), "when"),
    **dict.fromkeys(("什么地方", "哪里", "哪儿", "何处"), "where"),
    **dict.fromkeys(("如何", "怎么", "怎样", "怎"), "how"),
    **dict.fromkeys(("什么", "何"), "what"),
    "谁": "who",
    "哪": "which",
}
#: Number of leading words that may be a question word, as in `In what year`.
LEADING_WORDS = 3
ENGLISH_WORD = re.compile(r"[a-z]+")
CHINESE_WORD = re.compile("|".join(sorted(CHINESE_QUESTION_WORDS, key=len, reverse=True)))
#: Question marks of every script, as in `posir stats`.
QUESTION_MARK = re.compile(QUESTION.replace(r"\p{Pe}\p{Pf}\p{Pi}", r")\]}»”’"))


def compute_saliency(model: SentenceTransformer, query: Vectors, document: str) -> Floats:
    """Compute the gradient norms of a document's tokens, for any pooling.

    Args:
        model: The model.
        query: Embedding of the query, shape (d,).
        document: Text of the document, without a prompt.

    Returns:
        Norms of the tokens within the window, except special tokens, shape (L,).
    """
    model.eval()
    window = model.max_seq_length
    try:
        model.max_seq_length = window and min(window, MAX_TOKENS)
        features = batch_to_device(dict(preprocess(model, [document])), model.device)
    finally:
        model.max_seq_length = window
    # Detached input embeddings are leaves of the autograd graph.
    leaves: list[torch.Tensor] = []

    def replace_output(_: torch.nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    handle = find_input_embeddings(model).register_forward_hook(replace_output)
    try:
        with torch.enable_grad():
            vector = model(features)["sentence_embedding"][0]
            query_vector = torch.as_tensor(query, dtype=vector.dtype, device=vector.device)
            similarity = torch.cosine_similarity(vector, query_vector, dim=0)
            (gradient,) = torch.autograd.grad(similarity, leaves)
    finally:
        handle.remove()
    tokenizer = model.tokenizer
    special = [id for id in tokenizer.all_special_ids if id != tokenizer.unk_token_id]
    norms = gradient[0].norm(dim=-1).cpu().double().numpy()
    is_text = ~np.isin(features["input_ids"][0].cpu(), special)
    text_norms: Floats = norms[is_text]
    return text_norms


def find_input_embeddings(model: SentenceTransformer) -> torch.nn.Module:
    """Return a model's token embedding module. Raise PosirError if it has none."""
    for module in model.modules():
        getter: Any = getattr(module, "get_input_embeddings", None)
        if getter:
            embeddings: torch.nn.Module = getter()
            return embeddings
    raise PosirError(
        "the model has no token embeddings, so gradient_saliency cannot measure it. Omit this "
        "probe."
    )


def interpolate(norms: Floats, max_norm: float) -> Floats:
    """Clip gradient norms, shape (L,), at `max_norm`, divide by `max_norm` unless it is 0, and
    interpolate at `CURVE_POINTS` points.
    """
    scaled = np.minimum(norms, max_norm) / max_norm if max_norm > 0 else norms
    return np.interp(np.linspace(0, 1, CURVE_POINTS), np.linspace(0, 1, len(norms)), scaled)


class GradientSaliency(Probe):
    """Normalized gradient norms at 100 points of documents with evidence in the middle."""

    name = "gradient_saliency"
    title = "Gradient of tokens"
    source = "arXiv 2601.08363v1, section 4.3"
    notes = (
        "The influence of each token on the similarity of question and document. If a document "
        "exceeds the model's window, the curve covers only the text within the window.",
        "Only questions with the midpoint of the evidence in the middle fifth of the document are "
        "included; the evidence may be truncated. The first and last tokens may have large values "
        "because they are next to special tokens. Gradients do not measure search. They are scaled "
        "by a percentile of each document, so values are not comparable between models.",
    )
    positions = tuple(str(point) for point in range(CURVE_POINTS))
    summaries = {
        "start_minus_end": Summary(
            "Gradient, first minus last tenth",
            subtract(FIRST_TENTH, LAST_TENTH),
        ),
        "thirds": Summary(
            "Gradient, first minus last third",
            subtract(average(slice(0, 33)), average(slice(-33, None))),
        ),
        "first_tenth": Summary("Gradient of the first tenth", FIRST_TENTH),
        "middle_fifth": Summary("Gradient of the middle fifth", average(slice(40, 60))),
        "last_tenth": Summary("Gradient of the last tenth", LAST_TENTH),
    }
    headline = ("start_minus_end", "first_tenth", "last_tenth", "thirds")
    preference_sign = 1
    needs_questions = True
    needs_all = True
    in_window = True
    shows_spread = True
    scale_name = "gradient"
    value_title = "Gradient (1 = 99th percentile)"
    position_title = "Position of the token, as a share of the text within the window"
    relative_positions = dict(zip(positions, np.linspace(0, 1, CURVE_POINTS).tolist(), strict=True))
    percentile: float = 99
    """Percentile of the norms to scale to 1."""

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the questions. The gradients are computed later, pair by pair.

        Raises:
            PosirError: The model is not a local sentence-transformers model.
        """
        model = getattr(getattr(data.encoder, "model", None), "model", None)
        if not isinstance(model, SentenceTransformer):
            raise PosirError(
                "gradient_saliency needs the gradients of a local sentence-transformers model. "
                "Endpoints, mitigated models and other kinds of models provide none. Omit this "
                "probe, or give the model's folder."
            )
        questions, skipped = select_with_evidence(data)
        questions = [
            question
            for question in questions
            if 0.4 <= question.span.middle / len(data.documents[question.document]) <= 0.6
        ]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            curves = np.full((len(questions), CURVE_POINTS), np.nan)
            for row, question in enumerate(track_items(questions, "Gradients")):
                (query,) = embeddings.select([question.text], PromptType.query)
                norms = compute_saliency(model, query, data.documents[question.document])
                if len(norms):
                    max_norm = float(np.percentile(norms, self.percentile))
                    curves[row] = interpolate(norms, max_norm)
            names = [question.document for question in questions]
            return ProbeSums.from_means(self.positions, names, curves)

        return ProbePlan(summarize, [], [question.text for question in questions], skipped)


class GradientSaliencyMax(GradientSaliency):
    """Gradient norms divided by their maximum, as described in the paper."""

    name = "gradient_saliency_max"
    title = "Gradient over its maximum"
    is_variant = True
    value_title = "Gradient (1 = maximum)"
    percentile = 100


def find_query_type(query: str) -> str:
    """Classify a query as one of `QUERY_TYPES`."""
    if is_unspaced(query):
        types = [CHINESE_QUESTION_WORDS[word] for word in CHINESE_WORD.findall(query)]
    else:
        words = ENGLISH_WORD.findall(query.lower())[:LEADING_WORDS]
        types = [ENGLISH_QUESTION_WORDS[word] for word in words if word in ENGLISH_QUESTION_WORDS]
    if types:
        return types[0]
    return "others" if QUESTION_MARK.search(query) else "claim"


class EvidenceLocation(Probe):
    """Histogram of evidence midpoints in 20 bins of the document, as in PosIR."""

    name = "evidence_location"
    title = "Location of the evidence"
    source = "arXiv 2601.08363v1, section 3.1"
    notes = ("A property of the data, independent of the model.",)
    position_title = "Midpoint of the evidence, as a share of the document"
    counts_starts = False
    positions = tuple(f"{index / BINS:.2f}-{(index + 1) / BINS:.2f}" for index in range(BINS))
    summaries = {
        "mean": Summary(
            "Mean position of the evidence (%)", lambda values: values @ BIN_CENTERS, Unit.PERCENT
        ),
        "first_quarter": Summary(
            "Evidence in first quarter (%)",
            lambda values: values[..., :5].sum(axis=-1),
            Unit.PERCENT,
        ),
        "last_quarter": Summary(
            "Evidence in last quarter (%)",
            lambda values: values[..., 15:].sum(axis=-1),
            Unit.PERCENT,
        ),
    }
    headline = ("first_quarter", "last_quarter")
    needs_questions = True
    value_title = "Questions (%)"
    unit = Unit.PERCENT
    relative_positions = dict(zip(positions, BIN_CENTERS.tolist(), strict=True))
    ignores_model = True

    def plan(self, data: ProbeData) -> ProbePlan:
        """Count positions without encoding. For starts, the end of the evidence may be unknown."""
        questions, skipped = select_with_evidence(data)
        positions = [(question.document, question.span.middle) for question in questions]
        if self.counts_starts:
            positions = [(question.document, float(question.span.start)) for question in questions]
            for question in data.questions:
                if question.start is not None:
                    positions.append((question.document, question.start))
            del skipped[END_MISSING]
        rows = [
            min(int(BINS * position / len(data.documents[name])), BINS - 1)
            for name, position in positions
        ]
        names = [name for name, _ in positions]
        sums = ProbeSums.from_counts(self.positions, names, rows)
        return ProbePlan(lambda _: sums, skipped=skipped)


class EvidenceLocationStart(EvidenceLocation):
    """Histogram of evidence starts in 20 bins of the document, as in 'Built-in or learned?'."""

    name = "evidence_location_start"
    title = "Location of the start of the evidence"
    source = "arXiv 2605.26578v1, section 5"
    position_title = "Start of the evidence, as a share of the document"
    is_variant = True
    counts_starts = True


class QueryTypes(Probe):
    """Share of the queries of each type."""

    name = "query_types"
    title = "Question words"
    source = "arXiv 2601.08363v1, A.2"
    notes = (
        "A property of the data, independent of the model. The word lists cover only English and "
        "Chinese. They are ours, since the paper does not publish its lists.",
    )
    positions = QUERY_TYPES
    summaries = {"claims": Summary("Claims among the questions (%)", select(CLAIM), Unit.PERCENT)}
    needs_questions = True
    value_title = "Questions (%)"
    position_title = "Type of the question"
    is_ordered = False
    unit = Unit.PERCENT
    ignores_model = True

    def plan(self, data: ProbeData) -> ProbePlan:
        """Count query types without encoding."""
        rows = [QUERY_TYPES.index(find_query_type(question.text)) for question in data.questions]
        names = [question.document for question in data.questions]
        return ProbePlan(lambda _: ProbeSums.from_counts(QUERY_TYPES, names, rows))
