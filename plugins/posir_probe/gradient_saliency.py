"""The pull of each token of a document on its similarity to a question: vanilla gradient saliency.

Zeng et al. 2026 (arXiv 2601.08363, section 4.3, Fig. 5), by the authors' code: the norm of the gradient of cos(f(q), f(E)) with
respect to each input embedding of the document, special tokens dropped, clipped at the 99th percentile P and divided by it
(the paper says 'max normalization'; `gradient_saliency_max` does that), then read off at 100 points by linear interpolation.
With fewer than 1 % of the tokens live, P is 0 and the norms stay as they are.

The paper takes pairs of at least 1,024 tokens with the middle of the evidence in the middle fifth of the document. Here the
length matters only if a `Selection` asks for it, so that models with short windows can be measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from mteb.types import PromptType

from posir_probe.data import ProbeData, select_with_evidence
from posir_probe.probe import POSITIVE_IS_START, Form, Probe, ProbePlan, SignedFinding, Summary, mean_over
from posir_probe.results import ProbeSums
from posir_tasks.cells import Floats
from posir_tasks.display.progress import progress
from posir_tasks.embeddings.encoding import Embeddings, Encoder, Vectors
from posir_tasks.errors import PosirError
from posir_tasks.models.prompts import preprocess

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

POINTS = 100
#: Share of the document in which the middle of the evidence must be.
MIDDLE = (0.4, 0.6)
#: Most tokens of a document, as in the authors' code.
MAX_TOKENS = 2_048


def compute_saliency(model: SentenceTransformer, query: Vectors, document: str) -> Floats:
    """Return the gradient norm of each token of a document that the model reads, without special tokens; shape (L,).

    Args:
        model: Any sentence-transformers model with input embeddings; the pooling does not matter.
        query: Embedding of the question, shape (d,).
        document: Text, without a prompt.
    """
    model.eval()
    with shortened_window(model):
        features = {name: _to_device(value, model.device) for name, value in preprocess(model, [document]).items()}
    with torch.enable_grad(), replaced_embeddings(model) as leaves:
        vector = model(features)["sentence_embedding"][0]
        similarity = torch.cosine_similarity(vector, torch.as_tensor(query, dtype=vector.dtype, device=vector.device), dim=0)
        (gradient,) = torch.autograd.grad(similarity, leaves)
    ids, tokenizer = features["input_ids"][0].tolist(), model.tokenizer
    special = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
    read = [index for index, token in enumerate(ids) if token not in special]
    norms: Floats = gradient[0].norm(dim=-1)[read].double().cpu().numpy()
    return norms


def _to_device(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


@contextmanager
def shortened_window(model: SentenceTransformer) -> Iterator[None]:
    """Limit a model to `MAX_TOKENS` tokens."""
    before = model.max_seq_length
    try:
        if before and before > MAX_TOKENS:
            model.max_seq_length = MAX_TOKENS
        yield
    finally:
        if before and before > MAX_TOKENS:
            model.max_seq_length = before


@contextmanager
def replaced_embeddings(model: SentenceTransformer) -> Iterator[list[torch.Tensor]]:
    """Replace input embeddings by leaves of the graph, and yield the list that will hold them after a forward pass."""
    leaves: list[torch.Tensor] = []

    def replace_output(_: torch.nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    handle = find_input_embeddings(model).register_forward_hook(replace_output)
    try:
        yield leaves
    finally:
        handle.remove()


def find_input_embeddings(model: SentenceTransformer) -> torch.nn.Module:
    """Return the module that embeds the tokens of a model; raise PosirError if there is none."""
    for module in model.modules():
        getter: Any = getattr(module, "get_input_embeddings", None)
        if getter is not None:
            embeddings: torch.nn.Module = getter()
            return embeddings
    raise PosirError("the model has no input embeddings of tokens, so gradient_saliency cannot measure it. Omit this probe.")


def interpolate(norms: Floats, top: float) -> Floats:
    """Return gradient norms, shape (L,), clipped at `top` and divided by it unless it is 0, at `POINTS` points."""
    scaled = np.clip(norms, 0, top) / top if top > 0 else norms
    return np.interp(np.linspace(0, 1, POINTS), np.linspace(0, 1, len(norms)), scaled)


class GradientSaliency(Probe):
    """Normalized gradient norm at 100 points of the document, over questions with evidence in the middle."""

    name = "gradient_saliency"
    title = "Gradient of tokens"
    source = "arXiv 2601.08363, section 4.3"
    notes = (
        "Over the tokens that the model reads: the end of the curve is the end of its window where a document is longer. Pairs "
        "with the middle of the evidence in the middle fifth of the document.",
    )
    positions = tuple(str(point) for point in range(POINTS))
    summaries = {
        "start_to_end": Summary(
            "Gradient, first minus last tenth", lambda values: mean_over(0, 10)(values) - mean_over(-10, None)(values)
        ),
        "first_tenth": Summary("Gradient of the first tenth", mean_over(0, 10)),
        "middle_fifth": Summary("Gradient of the middle fifth", mean_over(40, 60)),
        "last_tenth": Summary("Gradient of the last tenth", mean_over(-10, None)),
    }
    finding = SignedFinding(
        "The first tenth of the tokens that the model reads pulls {} more than the last",
        "The last tenth of the tokens that the model reads pulls {} more than the first",
        "whether the first or the last tenth of the tokens that the model reads pulls more",
    )
    preference = POSITIVE_IS_START
    compares_ends = True
    needs_questions = True
    needs_all = True
    needs_model = True
    in_window = True
    shows_spread = True
    value_title = "Norm of the gradient, divided by a pair's 99th percentile"
    place_title = "Place of the token, as a share of those that the model reads"
    form = Form.PLACES
    place_shares = {str(point): point / (POINTS - 1) for point in range(POINTS)}
    percentile: float = 99
    """The norm that becomes 1."""

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the questions; gradients are computed pair by pair.

        Raises:
            PosirError: The model has no gradients here.
        """
        model = require_gradients(data.encoder)
        questions, skipped = select_with_evidence(data)
        lengths = [len(data.documents[question.document]) for question in questions]
        relative = [sum(question.span) / 2 / length for question, length in zip(questions, lengths, strict=True)]
        middle = [question for question, place in zip(questions, relative, strict=True) if MIDDLE[0] <= place <= MIDDLE[1]]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            curves = np.full((len(middle), POINTS), np.nan)
            for row, question in enumerate(progress(middle, "Gradients")):
                (query,) = embeddings.select([question.text], PromptType.query)
                norms = compute_saliency(model, query, data.documents[question.document])
                if len(norms):
                    curves[row] = interpolate(norms, float(np.percentile(norms, self.percentile)))
            return ProbeSums.from_means(self.positions, [question.document for question in middle], curves, skipped)

        return ProbePlan(summarize, [], [question.text for question in middle])


class GradientSaliencyMax(GradientSaliency):
    """The same divided by the maximum, as the paper says."""

    name = "gradient_saliency_max"
    title = "Gradient of tokens, divided by the maximum"
    is_variant = True
    value_title = "Norm of the gradient, divided by a pair's maximum"
    percentile = 100


def require_gradients(encoder: Encoder | None) -> SentenceTransformer:
    """Return the sentence-transformers model behind an encoder.

    Raises:
        PosirError: There is none in this process, or (attribute `changes_model`) it is another one while it encodes documents.
    """
    from sentence_transformers import SentenceTransformer

    wrapper = getattr(encoder, "model", None)
    model = getattr(wrapper, "model", None)
    if isinstance(model, SentenceTransformer) and not getattr(wrapper, "changes_model", False):
        return model
    raise PosirError(
        "gradient_saliency needs the gradients of a sentence-transformers model in this process; a model behind an endpoint, "
        "with a mitigation, or of another kind has none here. Omit this probe, or give the folder of the model."
    )
