"""Each text is encoded once, as counted by the model itself, and the ranks are those without a
cache.
"""

from pathlib import Path

import mteb
import numpy as np
import pytest
import torch
from datasets import Dataset
from mteb.models import SentenceTransformerEncoderWrapper
from mteb.types import PromptType
from torch.utils.data import DataLoader

from posir_tasks.models.embeddings.cached_encoder import (
    CachedEncoder,
    find_distinct_texts,
    with_cache,
)
from posir_tasks.models.embeddings.context import build_texts
from posir_tasks.values.rotation_ranks import ROTATED_VARIABLE
from tests.support.datasets import ASKED, POSIR_FOLDER, TEXTS, posir_tables, write_domain
from tests.support.encode import TASK
from tests.support.encoders import RecordingEncoder, RecordingTransformer, reset_process_state
from tests.support.models import write_tiny_model

#: Language codes, and the beginning of a question in each language.
LANGUAGES = {"eng-Latn": "", "deu-Latn": "DE ", "fra-Latn": "FR "}
CROSS_LINGUAL = ("PosIR-English", "PosIR-German-English", "PosIR-French-English")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny")


@pytest.fixture
def transformer(tiny: Path) -> RecordingTransformer:
    return RecordingTransformer(tiny)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One domain in three languages with different questions and the same texts."""
    for language, mark in LANGUAGES.items():
        asked = {name: (mark + question, *rest) for name, (question, *rest) in ASKED.items()}
        write_domain(tmp_path / POSIR_FOLDER, posir_tables(TEXTS, asked), language=language)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))


@pytest.fixture(autouse=True)
def _new_process_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rotated versions, each text is encoded once."""
    monkeypatch.setenv(ROTATED_VARIABLE, "0")
    reset_process_state()


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path / "embeddings"))
    return tmp_path / "embeddings"


def evaluate(model: object, *tasks: str, **options: object) -> dict[str, str]:
    """Return the scores by task and subset, as text, since NaN differs from itself."""
    ran = mteb.evaluate(
        model, mteb.get_tasks(list(tasks)), cache=None, show_progress_bar=False, **options
    )
    return {
        f"{run.task_name} {row['hf_subset']}": str(row)
        for run in ran.task_results
        for row in run.scores["test"]
    }


@pytest.mark.usefixtures("data")
def test_the_english_corpus_is_encoded_once_for_all_languages(
    transformer, tiny, tmp_path, monkeypatch
):
    questions = [
        mark + question for mark in LANGUAGES.values() for question, _, _ in ASKED.values()
    ]
    first = evaluate(RecordingTransformer(tiny), *CROSS_LINGUAL)
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path / "embeddings"))
    assert evaluate(transformer, *CROSS_LINGUAL) == first
    assert sorted(transformer.encoded) == sorted([*TEXTS.values(), *questions])
    again = RecordingTransformer(tiny)
    assert evaluate(again, *CROSS_LINGUAL, prediction_folder=tmp_path / "predictions") == first
    assert again.encoded == []


@pytest.mark.usefixtures("data", "cache_folder")
def test_tasks_do_not_share_the_embeddings_of_an_unknown_encoder(caplog: pytest.LogCaptureFixture):
    first, again = RecordingEncoder("test/apart"), RecordingEncoder("test/apart")
    scores = evaluate(first, *CROSS_LINGUAL)
    assert len(first.encoded) == 3 * 8
    assert caplog.text.count("Embeddings of test/apart are cached separately for each task") == 1
    assert evaluate(again, *CROSS_LINGUAL) == scores
    assert again.encoded == []


class SparseEncoder(RecordingEncoder):
    def vectors(self, counts):
        return torch.tensor(np.array(counts), dtype=torch.float32).to_sparse()

    def similarity(self, *sides):
        return super().similarity(*(side.to_dense() for side in sides))


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (RecordingEncoder("a/b", revision=None), "the model has neither a revision nor"),
        (SparseEncoder("a/b"), "the model does not"),
    ],
    ids=["no revision", "sparse"],
)
def test_uncachable_embeddings_pass_with_one_warning(
    cache_folder, model, reason, caplog, monkeypatch
):
    scores = evaluate(model, "PosIR-English")
    assert caplog.text.count(f"are not cached: {reason}") == 1
    assert len(model.encoded) == 8
    assert not list(cache_folder.rglob("*.arrow"))
    monkeypatch.delenv("POSIR_EMBEDDINGS")
    assert evaluate(model, "PosIR-English") == scores


def encode_cached(model: object, folder: Path, texts: list[str], **options: object):
    loader = DataLoader(build_texts(texts), batch_size=2)
    context = TASK | {"prompt_type": PromptType.document, "show_progress_bar": False}
    return CachedEncoder(model, folder).encode(loader, **context, **options)


def test_a_repeated_text_is_encoded_once(transformer, tmp_path):
    model = SentenceTransformerEncoderWrapper(transformer)
    given = encode_cached(model, tmp_path, ["bees", "mill", "bees", "slope", "mill"])
    assert transformer.encoded == ["bees", "mill", "slope"]
    assert np.array_equal(given[:2], given[[2, 4]])
    again = encode_cached(model, tmp_path, ["slope", "slope", "river", "bees"])
    assert transformer.encoded == ["bees", "mill", "slope", "river"]
    assert np.array_equal(again[[0, 1, 3]], given[[3, 3, 0]])


def test_the_first_embeddings_are_those_of_the_model(transformer, tmp_path):
    model, texts = (
        SentenceTransformerEncoderWrapper(transformer),
        ["bees", "a longer text about bees", "mill"],
    )
    whole = transformer.encode(texts, show_progress_bar=False)
    assert np.array_equal(encode_cached(model, tmp_path, texts), whole)
    assert np.array_equal(encode_cached(model, tmp_path, texts), whole)
    for given in (texts, texts[::-1]):
        assert isinstance(
            encode_cached(model, tmp_path, given, convert_to_tensor=True), torch.Tensor
        )


def test_search_models_and_runs_without_variable_are_not_cached(tmp_path, monkeypatch):
    model, bm25 = RecordingEncoder(), mteb.get_model("mteb/baseline-bm25s")
    assert with_cache(model) is model
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path))
    assert with_cache(bm25) is bm25
    assert isinstance(with_cache(model), CachedEncoder)


def test_texts_are_distinguished_by_the_given_columns():
    rows = Dataset.from_dict(
        {"id": ["1", "2", "3"], "text": ["a", "a", "b"], "body": ["x", "y", "x"]}
    )
    for columns, first, inverse in (
        (["text"], [0, 2], [0, 0, 1]),
        (["body", "text"], [0, 1, 2], [0, 1, 2]),
    ):
        assert [part.tolist() for part in find_distinct_texts(rows, columns)[1:]] == [
            first,
            inverse,
        ]
