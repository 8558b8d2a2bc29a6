"""A contract test for each private name of mteb that posir uses."""

import mteb
import pytest
from datasets import Dataset
from mteb.cache import ResultCache
from mteb.models import ModelMeta
from mteb.models.model_implementations.bm25 import BM25Search
from mteb.types import PromptType

from posir_tasks.base import private_names
from posir_tasks.base.errors import PosirError
from posir_tasks.base.private_names import PRIVATE_NAMES, PrivateName
from posir_tasks.tasks.posir import PosIRMini
from tests.posir_tasks.mteb.test_result_saving import MODEL, make_result

BM25 = "mteb/baseline-bm25s"
CORPUS = Dataset.from_dict(
    {
        "id": ["a", "b", "c"],
        "text": ["copper bells ring", "sheep on the ferry", "a lamp of whale oil"],
    }
)
QUERIES = Dataset.from_dict({"id": ["q"], "text": ["which bells"]})
TASK = {"task_metadata": PosIRMini.metadata, "hf_split": "test", "hf_subset": "default"}
COVERED = set()


def contract(name: PrivateName):
    COVERED.add(name)
    return lambda test: test


def test_every_name_exists_and_has_a_contract():
    assert [name.path for name in PRIVATE_NAMES if name.is_missing()] == []
    assert set(PRIVATE_NAMES) == COVERED
    assert len(PRIVATE_NAMES) <= 10


@pytest.mark.parametrize(
    "path",
    [
        "mteb.get_tasks:_GONE",
        "mteb.gone:Name",
        "mteb.models.model_implementations.bm25:BM25Search()._gone",
    ],
)
def test_a_missing_name_is_reported_with_the_affected_features(path):
    name = PrivateName(path, "", "reranking")
    assert name.is_missing()
    for use in (name.resolve, lambda: name.read(BM25Search())):
        with pytest.raises(PosirError, match="Not available without it: reranking"):
            use()


class Constant(PosIRMini):
    def _evaluate_subset(self, model, data_split, *, hf_split, hf_subset, **settings):
        assert data_split is self.dataset[hf_subset][hf_split]
        assert {"encode_kwargs", "prediction_folder", "num_proc", "timer"} <= settings.keys()
        return {"ndcg_at_10": 0.5, "model": type(model).__name__}


@contract(private_names.TASKS_REGISTRY)
def test_tasks_are_looked_up_in_the_registry(monkeypatch):
    monkeypatch.setitem(private_names.TASKS_REGISTRY.resolve(), "Renamed", PosIRMini)
    assert isinstance(mteb.get_task("Renamed"), PosIRMini)


@contract(private_names.TASK_LIST)
def test_tasks_are_filtered_from_the_task_list(monkeypatch):
    assert PosIRMini in private_names.TASK_LIST.resolve()
    monkeypatch.setitem(mteb.get_tasks.__globals__, "TASK_LIST", [PosIRMini])
    assert [type(task) for task in mteb.get_tasks()] == [PosIRMini]


@contract(private_names.BENCHMARK_REGISTRY)
def test_benchmarks_are_read_again_after_the_registry_is_cleared(monkeypatch):
    import mteb.benchmarks.benchmarks as module

    added = mteb.Benchmark(name="Added", tasks=mteb.get_benchmark("PosQ").tasks)
    with monkeypatch.context() as context:
        context.setattr(module, "ADDED", added, raising=False)
        private_names.BENCHMARK_REGISTRY.resolve().cache_clear()
        assert mteb.get_benchmark("Added") is added
    private_names.BENCHMARK_REGISTRY.resolve().cache_clear()


@contract(private_names.MODEL_REGISTRY)
def test_models_are_looked_up_in_the_registry(monkeypatch):
    meta = ModelMeta.create_empty({"name": "org/added", "revision": "1"})
    monkeypatch.setitem(private_names.MODEL_REGISTRY.resolve(), "org/added", meta)
    assert mteb.get_model_meta("org/added").name == "org/added"


@contract(private_names.RESOLVE_LOADER)
@pytest.mark.parametrize(
    ("sentence_transformers", "modules", "config", "loader", "kind"),
    [
        ({"model_type": "SparseEncoder"}, [], None, "SparseEncoderWrapper", "sparse"),
        ({"model_type": "MultiVectorEncoder"}, [], None, "MultiVectorWrapper", "late-interaction"),
        (
            None,
            [{"type": "sentence_transformers.models.Pooling"}],
            None,
            "SentenceTransformerEncoderWrapper",
            "dense",
        ),
        (
            None,
            None,
            {"architectures": ["BertForSequenceClassification"]},
            "CrossEncoderWrapper",
            "cross-encoder",
        ),
    ],
)
def test_loader_and_kind_depend_on_the_settings(
    sentence_transformers, modules, config, loader, kind
):
    result = private_names.RESOLVE_LOADER.resolve()(
        "local/model", sentence_transformers, None, modules, config
    )
    assert (result[0].__name__, *result[1:]) == (loader, kind, ["text"])


def test_evaluate_saves_and_loads_through_the_cache(monkeypatch, tmp_path):
    cache = ResultCache(tmp_path / "cache")
    monkeypatch.setattr(
        cache,
        "get_task_result_path",
        lambda *_, **__: tmp_path / "elsewhere" / "PosIR-English.json",
    )
    ResultCache.save_to_cache.__wrapped__(cache, make_result(["sports"]), MODEL, encode_kwargs={})
    written = sorted(
        file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*") if file.is_file()
    )
    assert written == [
        "elsewhere/PosIR-English.json",
        "elsewhere/model_meta.json",
        "elsewhere/run_settings.jsonl",
    ]
    saved, loaded = [], []
    monkeypatch.setattr(
        ResultCache, "save_to_cache", lambda _, result, *__, **___: saved.append(result.task_name)
    )
    monkeypatch.setattr(
        ResultCache, "load_task_result", lambda _, task, *__, **___: loaded.append(task)
    )
    mteb.evaluate(
        mteb.get_model(BM25), Constant(), cache=ResultCache(tmp_path), show_progress_bar=False
    )
    assert {*saved} == {*loaded} == {"PosIR-Mini"}, "a call was skipped"


@contract(private_names.EVALUATE_SUBSET)
def test_the_evaluation_of_a_subset_returns_its_entry():
    scores = {"ndcg_at_10": 0.5, "model": "str", "main_score": 0.5}
    assert Constant().evaluate("model", encode_kwargs={}) == {"default": scores}


@contract(private_names.CREATE_DATALOADER)
def test_the_data_loader_yields_batches_of_texts():
    load = private_names.CREATE_DATALOADER.resolve()
    loader = load(
        CORPUS,
        task_metadata=PosIRMini.metadata,
        prompt_type=PromptType.document,
        num_proc=None,
        batch_size=2,
    )
    assert [batch["text"] for batch in loader] == [CORPUS["text"][:2], CORPUS["text"][2:]]


@contract(private_names.BM25_TOKENIZER)
def test_the_tokenizer_tokenizes_queries_like_search():
    model = BM25Search()
    model.index(list(CORPUS), encode_kwargs={}, **TASK)
    tokens = private_names.BM25_TOKENIZER.read(model).transform(QUERIES["text"][:])
    documents, scores = model.retriever.retrieve(tokens, k=1, show_progress=False)
    results = model.search(QUERIES, top_k=1, encode_kwargs={}, **TASK)
    assert results["q"] == {CORPUS["id"][int(documents[0, 0])]: pytest.approx(float(scores[0, 0]))}
