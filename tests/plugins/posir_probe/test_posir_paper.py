"""Saliency against finite differences and controls with known gradients, evidence locations and
query types.
"""

import numpy as np
import pytest
import torch
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from posir_probe import posir_paper
from posir_probe.controls import order_blind
from posir_probe.data import ProbeData, ProbeQuestion
from posir_probe.probe import run_probe
from posir_tasks.base.errors import PosirError
from posir_tasks.models.embeddings.encoding import ModelEncoder
from posir_tasks.text.spans import Span
from tests.support.models import write_tiny_model

TEXT = "the mill stood by the river and burned down in nineteen hundred and one"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("bert"))


def load_with_pooling(folder, mode):
    module = Transformer(str(folder))
    return SentenceTransformer(
        modules=[module, Pooling(module.get_embedding_dimension(), pooling_mode=mode)]
    ).eval()


def similarity(model, query, text, token, dimension, step):
    """Compute the cosine of a query and a text after changing one number of an input embedding."""

    def change(_, __, output):
        changed = output.clone()
        changed[0, token, dimension] += step
        return changed

    handle = posir_paper.find_input_embeddings(model).register_forward_hook(change)
    with torch.no_grad():
        vector = model(model.preprocess([text]))["sentence_embedding"][0]
    handle.remove()
    return torch.cosine_similarity(vector, query, dim=0).item()


@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken", "max"])
def test_norms_match_finite_differences(folder, mode):
    model = load_with_pooling(folder, mode).double().cpu()
    query = torch.as_tensor(np.random.default_rng(3).standard_normal(16))
    norms = posir_paper.compute_saliency(model, query.numpy(), TEXT)
    ids = model.preprocess([TEXT])["input_ids"][0]
    assert len(norms) == len(ids) - 2, "without [CLS] and [SEP]"
    step = 1e-5
    for token in (1, 5, len(ids) - 2):
        gradient = [
            (
                similarity(model, query, TEXT, token, d, step)
                - similarity(model, query, TEXT, token, d, -step)
            )
            / (2 * step)
            for d in range(16)
        ]
        assert norms[token - 1] == pytest.approx(np.linalg.norm(gradient), rel=1e-4, abs=1e-8)


class WeightedTokens(torch.nn.Module):
    """Embeds a text as the weighted mean of its input embeddings, without attention."""

    device = torch.device("cpu")

    def __init__(self, transformer, weights):
        super().__init__()
        self.embeddings = transformer.auto_model.embeddings.word_embeddings
        self.tokenizer = transformer.tokenizer
        self.weights = weights
        self.max_seq_length = 4096

    def get_input_embeddings(self):
        return self.embeddings

    def preprocess(self, texts, **_):
        return self.tokenizer(list(texts), return_tensors="pt", add_special_tokens=False)

    tokenize = preprocess

    def forward(self, features):
        tokens = self.embeddings(features["input_ids"])
        weights = self.weights(tokens.shape[1])
        return {
            **features,
            "sentence_embedding": (tokens[0] * weights[:, None]).sum(0, keepdim=True)
            / len(weights),
        }


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (torch.ones, lambda points, _: np.ones_like(points)),
        (lambda n: (torch.arange(n) < 128).float(), None),
        (
            lambda n: torch.exp(-3 * torch.arange(n) / n),
            lambda points, n: np.exp(-3 * points * (n - 1) / n),
        ),
    ],
    ids=["order-blind", "first 128 tokens", "decaying"],
)
def test_saliency_curves_of_controls(folder, weights, expected):
    model = WeightedTokens(Transformer(str(folder)), weights)
    text = " ".join(["mill", "river", "stone", "bridge"] * 100)
    norms = posir_paper.compute_saliency(model, np.random.default_rng(5).standard_normal(16), text)
    curve = posir_paper.interpolate(norms, float(np.percentile(norms, 99)))
    points = np.linspace(0, 1, 100)
    if expected is None:
        assert len(norms) == 400
        in_window = points * 399 <= 127
        np.testing.assert_allclose(curve[in_window], 1, atol=1e-6)
        np.testing.assert_array_equal(curve[points * 399 >= 128], 0)
    else:
        # The highest 1% are clipped to 1.
        relative = expected(points, len(norms))
        np.testing.assert_allclose(
            curve[3:],
            (relative / np.percentile(expected(np.arange(400) / 399, 400), 99))[3:],
            rtol=1e-3,
        )


def test_norms_are_not_scaled_with_too_few_positive_tokens():
    norms = np.zeros(400)
    norms[0] = 7.0
    assert posir_paper.interpolate(norms, float(np.percentile(norms, 99)))[0] == 7.0
    assert posir_paper.interpolate(norms, 7.0)[0] == 1.0


def test_only_evidence_in_the_middle_fifth_is_included(folder):
    model = load_with_pooling(folder, "mean")
    encoder = ModelEncoder(SentenceTransformerEncoderWrapper(model))
    burned_span = Span(TEXT.index("burned"), TEXT.index("down") + 4)
    spans_by_question = (
        ("When did it burn?", burned_span),
        ("What stood?", Span(0, 8)),
        ("?", Span(9, 9)),
    )
    questions = tuple(ProbeQuestion(text, "d", span) for text, span in spans_by_question)
    sums = run_probe(posir_paper.GradientSaliency(), encoder, ProbeData({"d": TEXT}, questions))
    assert sums.totals[:, 0].tolist() == [1.0] * 100
    assert sums.skipped == {"no evidence span": 1}
    assert 0.9 < sums.values.max() <= 1
    assert posir_paper.GradientSaliency().summaries["start_minus_end"](
        sums.values
    ) == pytest.approx(sums.values[:10].mean() - sums.values[90:].mean())


def test_a_model_without_gradients_is_rejected():
    with pytest.raises(PosirError, match="gradient_saliency needs the gradients of a local"):
        run_probe(
            posir_paper.GradientSaliency(),
            order_blind,
            ProbeData({"d": TEXT}, (ProbeQuestion("?", "d", Span(0, 3)),)),
        )


def test_evidence_at_the_start_fills_one_bin():
    data = ProbeData(
        {"d": "x" * 100}, (ProbeQuestion("?", "d", Span(0, 4)), ProbeQuestion("?", "d", Span(2, 4)))
    )
    assert (
        run_probe(posir_paper.EvidenceLocation(), order_blind, data).values.tolist()
        == [1.0] + [0.0] * 19
    )
    assert (
        run_probe(posir_paper.EvidenceLocationStart(), order_blind, data).values.tolist()
        == [1.0] + [0.0] * 19
    )


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("What is a mill?", "what"),
        ("In which year did it burn?", "which"),
        ("Whose mill was it?", "who"),
        ("Is the mill old?", "others"),
        ("the mill burned", "claim"),
        ("为什么磨坊烧毁了？", "why"),
        ("磨坊在哪里？", "where"),
        ("磨坊旧吗？", "others"),
    ],
)
def test_queries_are_classified_by_question_word(query, kind):
    assert posir_paper.find_query_type(query) == kind


def test_query_types_are_counted_as_shares():
    queries = ["What is a mill?", "Why?", "the mill burned", "What else?"]
    data = ProbeData({"d": "x"}, tuple(ProbeQuestion(query, "d", Span(0, 1)) for query in queries))
    sums = run_probe(posir_paper.QueryTypes(), order_blind, data)
    shares = dict(zip(sums.positions, sums.values.tolist(), strict=True))
    assert (shares["what"], shares["claim"], sum(shares.values())) == (0.5, 0.25, 1.0)
