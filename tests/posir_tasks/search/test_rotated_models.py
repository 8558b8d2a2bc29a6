"""Every kind of model is tested on rotated versions. Unmoved texts keep their original rank."""

import json
from pathlib import Path

import numpy as np
import pytest

import posir
from posir_tasks.results import read_results
from posir_tasks.values.profile import NDCG_AT_10
from posir_tasks.values.read_part import Part, ReadKind, ReadPart, WindowSource
from posir_tasks.values.rotation_ranks import ROTATED_VARIABLE, Window
from tests.support.embedding_server import serve_embeddings
from tests.support.models import write_tiny_gpt2, write_tiny_model
from tests.support.rotations import WordVectors

DOCUMENTS = 4


@pytest.fixture(autouse=True)
def _limit_sample(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ROTATED_VARIABLE, str(DOCUMENTS))


def evaluate(model, folder: Path):
    posir.evaluate(model, "PosIR-Mini", output_folder=folder / "results")
    (result,) = read_results(folder / "results")
    return result


def check_result(result) -> None:
    values = result.values
    rotations = values.rotations
    assert rotations.untested is None
    original_ranks = values.ranks.columns.ranks
    # A hybrid has no window.
    tests = (False,) if rotations.window is Window.UNKNOWN else (False, True)
    for window in tests:
        rows = rotations.select_rows(values.ranks, window=window)
        unmoved = rows.version == 0
        assert len(rows.query) > unmoved.sum() >= DOCUMENTS
        if not window or rotations.window is Window.WHOLE:
            # An excerpt of a longer document is a different text.
            np.testing.assert_array_equal(rows.ranks[unmoved], original_ranks[rows.query[unmoved]])
    json.dumps(rotations.to_json())


def use_last_tokens(folder: Path) -> Path:
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"truncation_side": "left"}))
    return folder


@pytest.mark.parametrize(
    "kind",
    [
        "dense",
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("sparse", "late-interaction", "cross-encoder")
        ),
    ],
)
def test_every_kind_of_model_is_tested(kind: str, tmp_path: Path):
    check_result(evaluate(str(write_tiny_model(tmp_path / "model", kind)), tmp_path))


@pytest.mark.slow
def test_an_embedding_cache_changes_neither_excerpts_nor_ranks(tmp_path: Path, monkeypatch):
    model = str(write_tiny_model(tmp_path / "model"))
    plain = evaluate(model, tmp_path / "plain")
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path / "embeddings"))
    for name in ("first", "second"):
        cached = evaluate(model, tmp_path / name)
        assert cached.values.rotations.to_json() == plain.values.rotations.to_json()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["{}+chunks(32)", "hybrid(mteb/baseline-bm25s,{})"])
def test_chunks_and_hybrids_are_tested(form: str, tmp_path: Path):
    check_result(evaluate(form.format(write_tiny_model(tmp_path / "model")), tmp_path))


@pytest.mark.slow
def test_a_model_that_reads_the_end_reads_whole_excerpts(
    tmp_path: Path,
):
    result = evaluate(str(use_last_tokens(write_tiny_model(tmp_path / "model"))), tmp_path)
    check_result(result)
    assert result.values.rotations.window is Window.EXCERPT


@pytest.mark.slow
def test_a_model_with_a_window_of_512_tokens_is_tested(tmp_path: Path):
    check_result(evaluate(str(write_tiny_gpt2(tmp_path / "model")), tmp_path))


@pytest.mark.slow
def test_an_endpoint_is_tested_on_whole_documents(tmp_path: Path):
    with serve_embeddings() as server:
        result = evaluate(server.reference, tmp_path)
    rows = result.values.rotations.select_rows(result.values.ranks, window=False)
    unmoved = rows.version == 0
    assert unmoved.sum() >= DOCUMENTS
    np.testing.assert_array_equal(
        rows.ranks[unmoved], result.values.ranks.columns.ranks[rows.query[unmoved]]
    )


class EndVectors(WordVectors):
    """A bag of a text's first and last words."""

    def __init__(self) -> None:
        super().__init__()
        part = {"part": Part.ENDS, "tokens": 256, "tokens_at_start": 128}
        self.read_part = ReadPart(ReadKind.PART, known_by=WindowSource.CLASS, **part)

    def embed(self, text):
        words = text.split()
        # A word has about 1.33 tokens.
        return super().embed(" ".join([*words[:96], *words[96:][-96:]]))


@pytest.mark.slow
def test_a_model_that_reads_both_ends_reads_whole_excerpts(tmp_path: Path):
    """The model ignores word order, so there is no effect within the window."""
    result = evaluate(EndVectors(), tmp_path)
    check_result(result)
    values = result.values
    assert values.rotations.window is Window.EXCERPT
    rows = values.rotations.select_rows(values.ranks, window=True)
    gains = NDCG_AT_10[rows.ranks]
    gains_by_question = [set(gains[rows.query == question]) for question in np.unique(rows.query)]
    assert len(gains_by_question) >= DOCUMENTS
    assert {len(distinct) for distinct in gains_by_question} == {1}
