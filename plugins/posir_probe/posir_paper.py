"""The probes of PosIR (Zeng et al. 2026, arXiv 2601.08363): saliency of tokens, and properties of a
dataset.

Vanilla gradient saliency (section 4.3, Fig. 5), by the authors' code: the norm of the gradient of
cos(f(q), f(E)) with respect to each input embedding of the document, special tokens dropped,
clipped at the 99th percentile P and divided by it (the paper says 'max normalization';
`gradient_saliency_max` does that), then read off at 100 points by linear interpolation. With fewer
than 1% of the tokens live, P is 0 and the norms stay as they are. The paper takes pairs of at least
1,024 tokens with the middle of the evidence in the middle fifth of the document. Here the length
matters only if a `Selection` asks for it, so that models with short windows can be measured.

Where evidence is (section 3.1, Fig. 2): its middle / length of the document, in 20 bins. 'Built-in
or learned?' (arXiv 2605.26578, section 5, Fig. 9): its start / length, with lines at one and two
thirds. Both in characters here.

Types of queries by their question word (A.2, Table 6). The paper does not give its lists of words;
those here are ours. English: the first question word among the first words. Chinese: the first one
anywhere. A query without question word and question mark is a claim; other questions are mostly
yes/no.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from mteb.types import PromptType
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device

from posir_probe.data import NO_END, ProbeData, select_with_evidence
from posir_probe.probe import Form, Probe, ProbePlan, Summary
from posir_probe.results import ProbeSums, at, average, subtract
from posir_tasks.base.arrays import Floats
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import progress
from posir_tasks.datasets.statistics import QUESTION
from posir_tasks.models.embeddings.encoding import Embeddings, Vectors
from posir_tasks.models.prompts import preprocess
from posir_tasks.text.words import is_unspaced
from posir_tasks.values.scores import Unit

POINTS = 100
#: Most tokens of a document, as in the authors' code.
MAX_TOKENS = 2_048
FIRST_TENTH = average(slice(10))
LAST_TENTH = average(slice(-10, None))
BINS = 20
MIDDLES = (np.arange(BINS) + 0.5) / BINS
#: Types of questions, and the index of those without a question word and mark.
TYPES = ("what", "how", "why", "which", "when", "where", "who", "claim", "others")
CLAIM = TYPES.index("claim")
ENGLISH = {word: word for word in TYPES[:7]} | {"whose": "who", "whom": "who"}
CHINESE = {
    **dict.fromkeys(("为什么", "为何", "为啥"), "why"),
    **dict.fromkeys(("什么时候", "何时"), "when"),
    **dict.fromkeys(("什么地方", "哪里", "哪儿", "何处"), "where"),
    **dict.fromkeys(("如何", "怎么", "怎样", "怎"), "how"),
    **dict.fromkeys(("什么", "何"), "what"),
    "谁": "who",
    "哪": "which",
}
#: Words of a query among which its question word may be, so that `In what year` counts.
LEADING_WORDS = 3
ENGLISH_WORD = re.compile(r"[a-z]+")
CHINESE_WORD = re.compile("|".join(sorted(CHINESE, key=len, reverse=True)))
#: `posir stats` counts question marks of every script.
QUESTION_MARK = re.compile(QUESTION.replace(r"\p{Pe}\p{Pf}\p{Pi}", r")\]}»”’"))


def compute_saliency(model: SentenceTransformer, query: Vectors, document: str) -> Floats:
    """Compute the gradient norm of each token of a document that the model reads, without special
    tokens; shape (L,).

    The pooling of the model does not matter. The query is an embedding, shape (d,), the document a
    text without a prompt.
    """
    model.eval()
    window = model.max_seq_length
    try:
        model.max_seq_length = window and min(window, MAX_TOKENS)
        features = batch_to_device(dict(preprocess(model, [document])), model.device)
    finally:
        model.max_seq_length = window
    # The input embeddings become leaves of the graph.
    leaves: list[torch.Tensor] = []

    def replace_output(_: torch.nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    handle = find_input_embeddings(model).register_forward_hook(replace_output)
    try:
        with torch.enable_grad():
            vector = model(features)["sentence_embedding"][0]
            expected = torch.as_tensor(query, dtype=vector.dtype, device=vector.device)
            similarity = torch.cosine_similarity(vector, expected, dim=0)
            (gradient,) = torch.autograd.grad(similarity, leaves)
    finally:
        handle.remove()
    tokenizer = model.tokenizer
    special = [id for id in tokenizer.all_special_ids if id != tokenizer.unk_token_id]
    norms = gradient[0].norm(dim=-1).cpu().double().numpy()
    is_text = ~np.isin(features["input_ids"][0].cpu(), special)
    selected: Floats = norms[is_text]
    return selected


def find_input_embeddings(model: SentenceTransformer) -> torch.nn.Module:
    """Return the module that embeds the tokens of a model; raise PosirError if it has none."""
    for module in model.modules():
        getter: Any = getattr(module, "get_input_embeddings", None)
        if getter:
            embeddings: torch.nn.Module = getter()
            return embeddings
    raise PosirError(
        "the model has no input embeddings of tokens, so gradient_saliency cannot measure it. "
        "Omit this probe."
    )


def interpolate(norms: Floats, top: float) -> Floats:
    """Clip gradient norms, shape (L,), at `top`, divide them by it unless it is 0, and read them
    off at `POINTS` points.
    """
    scaled = np.minimum(norms, top) / top if top > 0 else norms
    return np.interp(np.linspace(0, 1, POINTS), np.linspace(0, 1, len(norms)), scaled)


class GradientSaliency(Probe):
    """Normalized gradient norm at 100 points of the document, over questions with evidence in the
    middle.
    """

    name = "gradient_saliency"
    title = "Gradient of tokens"
    source = "arXiv 2601.08363, section 4.3"
    notes = (
        "How much each token that is read changes the similarity of question and document. In a "
        "document that is longer than the model's window, the curve ends where the window ends.",
        "Only questions whose evidence has its middle in the middle fifth of the document, which "
        "may be past the window. The first and last tokens may stand out because special tokens "
        "are beside them. A gradient is no measurement of search, and divided by a percentile of "
        "its own, so sizes of two models do not compare.",
    )
    positions = tuple(str(point) for point in range(POINTS))
    summaries = {
        "start_minus_end": Summary(
            "Gradient, first minus last tenth",
            subtract(average(slice(0, 10)), average(slice(-10, None))),
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
    place_title = "Place of the token, as a share of what is read"
    form = Form.PLACES
    place_shares = dict(zip(positions, np.linspace(0, 1, POINTS).tolist(), strict=True))
    percentile: float = 99
    """The norm that becomes 1."""

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the questions; gradients are computed pair by pair.

        Raises:
            PosirError: The model has no gradients here.
        """
        model = getattr(getattr(data.encoder, "model", None), "model", None)
        if not isinstance(model, SentenceTransformer):
            raise PosirError(
                "gradient_saliency needs the gradients of a sentence-transformers model in this "
                "process; a model behind an endpoint, with a mitigation, or of another kind has "
                "none here. Omit this probe, or give the folder of the model."
            )
        questions, skipped = select_with_evidence(data)
        middle = [
            question
            for question in questions
            if 0.4 <= question.span.middle / len(data.documents[question.document]) <= 0.6
        ]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            curves = np.full((len(middle), POINTS), np.nan)
            for row, question in enumerate(progress(middle, "Gradients")):
                (query,) = embeddings.select([question.text], PromptType.query)
                norms = compute_saliency(model, query, data.documents[question.document])
                if len(norms):
                    top = float(np.percentile(norms, self.percentile))
                    curves[row] = interpolate(norms, top)
            names = [question.document for question in middle]
            return ProbeSums.from_means(self.positions, names, curves, skipped)

        return ProbePlan(summarize, [], [question.text for question in middle])


class GradientSaliencyMax(GradientSaliency):
    """The gradient norm divided by the maximum, as the paper says."""

    name = "gradient_saliency_max"
    title = "Gradient over its maximum"
    is_variant = True
    value_title = "Gradient (1 = maximum)"
    percentile = 100


def find_query_type(query: str) -> str:
    """Classify a query as one of `TYPES`."""
    if is_unspaced(query):
        kinds = [CHINESE[word] for word in CHINESE_WORD.findall(query)]
    else:
        words = ENGLISH_WORD.findall(query.lower())[:LEADING_WORDS]
        kinds = [ENGLISH[word] for word in words if word in ENGLISH]
    if kinds:
        return kinds[0]
    return "others" if QUESTION_MARK.search(query) else "claim"


class EvidenceLocation(Probe):
    """Share of the questions with the middle of their evidence in each twentieth of its document,
    as in PosIR.
    """

    name = "evidence_location"
    title = "Where the evidence is"
    source = "arXiv 2601.08363, section 3.1"
    notes = ("A property of the data; the model does not matter.",)
    place_title = "Middle of the evidence, as a share of the document"
    counts_starts = False
    positions = tuple(f"{place / BINS:.2f}-{(place + 1) / BINS:.2f}" for place in range(BINS))
    summaries = {
        "mean": Summary(
            "Mean place of the evidence (%)", lambda values: values @ MIDDLES, Unit.PERCENT
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
    form = Form.PLACES
    unit = Unit.PERCENT
    place_shares = dict(zip(positions, MIDDLES.tolist(), strict=True))
    ignores_model = True

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode nothing. The start of evidence counts even if the data does not have its end."""
        questions, skipped = select_with_evidence(data)
        places = [(question.document, question.span.middle) for question in questions]
        if self.counts_starts:
            places = [(question.document, float(question.span.start)) for question in questions]
            for question in data.questions:
                if question.start is not None:
                    places += [(question.document, question.start)]
            del skipped[NO_END]
        rows = [
            min(int(BINS * place / len(data.documents[name])), BINS - 1) for name, place in places
        ]
        names = [name for name, _ in places]
        return ProbePlan(lambda _: ProbeSums.from_counts(self.positions, names, rows, skipped))


class EvidenceLocationStart(EvidenceLocation):
    """Share of the questions with the start of their evidence in each twentieth, as in 'Built-in or
    learned?'.
    """

    name = "evidence_location_start"
    title = "Where the evidence starts"
    source = "arXiv 2605.26578, section 5"
    place_title = "Start of the evidence, as a share of the document"
    is_variant = True
    counts_starts = True


class QueryTypes(Probe):
    """Share of the queries of each type."""

    name = "query_types"
    title = "Question words"
    source = "arXiv 2601.08363, A.2"
    notes = (
        "A property of the data; the model does not matter. Word lists for English and Chinese "
        "only, and ours: the paper's are not published.",
    )
    positions = TYPES
    summaries = {"claims": Summary("Claims among the questions (%)", at(CLAIM), Unit.PERCENT)}
    needs_questions = True
    value_title = "Questions (%)"
    place_title = "Type of the question"
    form = Form.CATEGORIES
    unit = Unit.PERCENT
    ignores_model = True

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode nothing."""
        rows = [TYPES.index(find_query_type(question.text)) for question in data.questions]
        names = [question.document for question in data.questions]
        return ProbePlan(lambda _: ProbeSums.from_counts(TYPES, names, rows))
