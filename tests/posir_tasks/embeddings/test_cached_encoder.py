"""Each text is encoded once, counted by what the model itself is given, and the ranks stay what they are without a store."""

from pathlib import Path

import mteb
import numpy as np
import pytest
import torch
from datasets import Dataset
from mteb._create_dataloaders import create_dataloader
from mteb.models import SentenceTransformerEncoderWrapper
from mteb.types import PromptType

from posir_tasks.embeddings.cached_encoder import CachedEncoder, texts_of, with_cache
from tests.support.datasets import ASKED, POSIR_FOLDER, TEXTS, posir_tables, write_domain
from tests.support.encoders import NotingEncoder, NotingTransformer, damage, write_tiny_bert

#: Codes, and what a question in the language begins with.
LANGUAGES = {"eng-Latn": "", "deu-Latn": "DE ", "fra-Latn": "FR "}
CROSS_LINGUAL = ("PosIR-English", "PosIR-German-English", "PosIR-French-English")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def transformer(tiny: Path) -> NotingTransformer:
    return NotingTransformer(tiny)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One domain in three languages, whose questions differ and whose texts do not."""
    for language, mark in LANGUAGES.items():
        asked = {name: (mark + question, *rest) for name, (question, *rest) in ASKED.items()}
        write_domain(tmp_path / POSIR_FOLDER, posir_tables(TEXTS, asked), language=language)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path / "embeddings"))
    return tmp_path / "embeddings"


def scores_of(model: object, *tasks: str, **options: object) -> dict[str, dict]:
    """Evaluate, and return the scores by task and subset, without those that are not numbers."""
    ran = mteb.evaluate(model, mteb.get_tasks(list(tasks)), cache=None, show_progress_bar=False, **options)
    return {
        f"{result.task_name} {scores['hf_subset']}": {
            name: value for name, value in scores.items() if not (isinstance(value, float) and np.isnan(value))
        }
        for result in ran.task_results
        for scores in result.scores["test"]
    }


@pytest.mark.usefixtures("data", "store")
def test_the_english_corpus_is_encoded_once_for_all_languages(transformer, tiny):
    questions = [mark + question for mark in LANGUAGES.values() for question, _, _ in ASKED.values()]
    first = scores_of(transformer, *CROSS_LINGUAL)
    assert sorted(transformer.noted) == sorted([*TEXTS.values(), *questions])
    again = NotingTransformer(tiny)
    assert scores_of(again, *CROSS_LINGUAL) == first
    assert again.noted == []


@pytest.mark.usefixtures("data")
def test_results_are_those_without_a_store(tiny, monkeypatch, tmp_path):
    without = scores_of(NotingTransformer(tiny), *CROSS_LINGUAL)
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path / "embeddings"))
    assert scores_of(NotingTransformer(tiny), *CROSS_LINGUAL) == without
    assert scores_of(NotingTransformer(tiny), *CROSS_LINGUAL) == without


@pytest.mark.usefixtures("data", "store")
def test_predictions_are_made_from_the_store_too(transformer, tiny, tmp_path):
    first = scores_of(transformer, "PosIR-English")
    again = NotingTransformer(tiny)
    assert scores_of(again, "PosIR-English", prediction_folder=tmp_path / "predictions") == first
    assert again.noted == []


@pytest.mark.usefixtures("data", "store")
def test_a_model_with_another_prompt_shares_nothing(transformer, tiny):
    scores_of(transformer, "PosIR-English")
    prompted = NotingTransformer(tiny)
    model = SentenceTransformerEncoderWrapper(prompted, model_prompts={"query": "find: ", "document": "text: "})
    scores_of(model, "PosIR-English")
    assert len(prompted.noted) == len(transformer.noted) == 8


@pytest.mark.usefixtures("data", "store")
def test_a_model_of_which_nothing_is_known_keeps_its_tasks_apart(caplog: pytest.LogCaptureFixture):
    first, again = NotingEncoder("test/apart"), NotingEncoder("test/apart")
    scores = scores_of(first, *CROSS_LINGUAL)
    assert len(first.noted) == 3 * 8
    assert caplog.text.count("Embeddings of test/apart are kept for each task apart") == 1
    assert scores_of(again, *CROSS_LINGUAL) == scores
    assert again.noted == []


class SparseEncoder(NotingEncoder):
    def vectors(self, counts):
        return torch.tensor(np.array(counts), dtype=torch.float32).to_sparse()

    def similarity(self, embeddings1, embeddings2):
        return super().similarity(embeddings1.to_dense(), embeddings2.to_dense())


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("model", "said"),
    [
        (NotingEncoder("test/unknown", revision=None), "nothing tells this model from others"),
        (SparseEncoder("test/sparse"), "they are not one dense vector a text"),
    ],
    ids=["no revision", "sparse"],
)
def test_what_cannot_be_kept_is_said_once_and_passed_through(store, model, said, caplog, monkeypatch):
    scores = scores_of(model, "PosIR-English")
    assert caplog.text.count(f"are not kept: {said}") == 1
    assert len(model.noted) == 8
    assert not list(store.rglob("*.arrow"))
    monkeypatch.delenv("POSIR_EMBEDDINGS")
    assert scores_of(model, "PosIR-English") == scores


def loader_of(texts: list[str]):
    rows = Dataset.from_dict({"id": [str(row) for row in range(len(texts))], "text": texts})
    metadata = mteb.get_task("PosIR-Mini").metadata
    return create_dataloader(rows, task_metadata=metadata, prompt_type=PromptType.document, batch_size=2)


def encode(model: object, folder: Path, texts: list[str], **kwargs: object):
    return CachedEncoder(model, folder).encode(
        loader_of(texts),
        task_metadata=mteb.get_task("PosIR-Mini").metadata,
        hf_split="test",
        hf_subset="default",
        prompt_type=PromptType.document,
        show_progress_bar=False,
        **kwargs,
    )


def test_a_text_that_stands_twice_is_encoded_once(transformer, tmp_path):
    model = SentenceTransformerEncoderWrapper(transformer)
    given = encode(model, tmp_path, ["bees", "mill", "bees", "slope", "mill"])
    assert transformer.noted == ["bees", "mill", "slope"]
    assert np.array_equal(given[0], given[2])
    assert np.array_equal(given[1], given[4])
    again = encode(model, tmp_path, ["slope", "slope", "river", "bees"])
    assert transformer.noted == ["bees", "mill", "slope", "river"]
    assert np.array_equal(again[:2], given[[3, 3]])
    assert np.array_equal(again[3], given[0])


def test_what_is_encoded_at_first_is_given_as_the_model_gives_it(transformer, tmp_path):
    model, texts = SentenceTransformerEncoderWrapper(transformer), ["bees", "a longer text about bees", "mill"]
    whole = transformer.encode(texts, show_progress_bar=False)
    assert np.array_equal(encode(model, tmp_path, texts), whole)
    assert np.array_equal(encode(model, tmp_path, texts), whole)
    tensors = encode(model, tmp_path, texts, convert_to_tensor=True)
    assert isinstance(tensors, torch.Tensor)
    assert isinstance(encode(model, tmp_path, texts[::-1], convert_to_tensor=True), torch.Tensor)


class Bfloat16Encoder(NotingEncoder):
    def vectors(self, counts):
        return torch.tensor(np.array(counts)).to(torch.bfloat16)


def test_numbers_keep_their_type(tmp_path):
    first, again = (encode(Bfloat16Encoder(), tmp_path, ["bees", "mill"]) for _ in range(2))
    assert first.dtype == again.dtype == torch.bfloat16
    assert torch.equal(first, again)


@pytest.mark.usefixtures("data")
def test_a_damaged_embedding_is_encoded_anew_and_that_is_said(store, transformer, tiny, caplog):
    first = scores_of(transformer, "PosIR-English")
    for file in store.rglob("*.arrow"):
        damage(file, row=1)
    again = NotingTransformer(tiny)
    assert scores_of(again, "PosIR-English") == first
    assert again.noted == [ASKED["q1"][0], TEXTS["doc_1"]]
    assert caplog.text.count("is damaged: 3 of its 4 embeddings are kept") == 2
    last = NotingTransformer(tiny)
    scores_of(last, "PosIR-English")
    assert last.noted == []


def test_without_the_variable_and_for_a_model_that_searches_nothing_is_kept(tmp_path, monkeypatch):
    model, bm25 = NotingEncoder(), mteb.get_model("mteb/baseline-bm25s")
    assert with_cache(model) is model
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path))
    assert with_cache(bm25) is bm25
    assert isinstance(with_cache(model), CachedEncoder)


def test_texts_are_told_apart_by_all_columns_that_count():
    rows = Dataset.from_dict({"id": ["1", "2", "3"], "text": ["a", "a", "b"], "body": ["x", "y", "x"]})
    assert texts_of(rows, ["text"]).places.tolist() == [0, 0, 1]
    both = texts_of(rows, ["body", "text"])
    assert both.places.tolist() == [0, 1, 2]
    assert both.first.tolist() == [0, 1, 2]
    assert texts_of(rows, ["text"]).first.tolist() == [0, 2]
