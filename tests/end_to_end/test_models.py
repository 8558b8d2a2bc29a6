"""Every kind of model that mteb runs produces a profile: classes of sentence-transformers with
small random weights.
"""

from pathlib import Path

import mteb
import numpy as np
import pytest
import torch
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.types import PromptType
from sentence_transformers import (
    CrossEncoder,
    MultiVectorEncoder,
    SentenceTransformer,
    SparseEncoder,
)
from transformers import AutoTokenizer, BertModel

import posir
from posir_tasks.base.errors import PosirError, ScoreError
from posir_tasks.base.private_names import MODEL_REGISTRY
from posir_tasks.data.data import PositionData
from posir_tasks.data.mini import read_mini
from posir_tasks.models.prompts import find_prompt, replace_prompts
from posir_tasks.models.protocols import find_protocol
from posir_tasks.models.references import ModelReference, get_portable_reference
from posir_tasks.models.registry import find_model, resolve_colbert_head
from posir_tasks.results import read_results
from posir_tasks.tasks.posir import PosIRMini
from posir_tasks.values.profile import PositionProfile
from tests.support import models
from tests.support.commands import run
from tests.support.datasets import read_part_of_mini
from tests.support.registered_models import with_tiny_weights, write_tiny_model


@pytest.fixture
def tiny(tmp_path: Path):
    return lambda kind="dense": str(models.write_tiny_model(tmp_path / kind, kind))


class FewQuestions(PosIRMini):
    """PosIR-Mini with every 6th document and 6 questions."""

    def read_subset(self, subset: str) -> PositionData:  # noqa: ARG002
        return read_part_of_mini(6).select(list(range(0, 120, 20)))


def evaluate(model: object) -> dict:
    results = mteb.evaluate(model, FewQuestions(), cache=None, show_progress_bar=False)
    return results.task_results[0].scores["test"][0]


def check_scores(scores: dict) -> None:
    """Check that all queries are counted, and that truncation is counted with the model's
    tokenizer.
    """
    assert PositionProfile.from_json(scores["position_profile"]).queries == 6
    assert (scores["read"]["kind"], scores["read"]["tokens"]) == ("part", 64)
    assert [value["counted_with"] for value in scores["read_ranks"]["sets"]] == ["tokenizer"]


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (SentenceTransformer, "dense"),
        (SparseEncoder, "sparse"),
        (MultiVectorEncoder, "late-interaction"),
    ],
)
def test_queries_and_truncation_are_counted(tiny, model, kind):
    check_scores(evaluate(model(tiny(kind))))


def test_the_head_of_bge_m3_is_a_late_interaction_model(tiny):
    """Its repository has a dense model with `colbert_linear.pt` beside it; every token but the
    first has a vector.
    """
    folder, head = tiny(), torch.nn.Linear(models.SIZES["hidden_size"], 8)
    with pytest.raises(PosirError, match=r"has no colbert_linear\.pt"):
        mteb.get_model(f"{folder}:colbert")
    torch.save(head.state_dict(), f"{folder}/colbert_linear.pt")
    model = mteb.get_model(f"{folder}:colbert")
    assert (model.mteb_model_meta.name, get_portable_reference(model.mteb_model_meta)) == (
        f"{mteb.get_model_meta(folder).name}-colbert",
        f"{folder}:colbert",
    )
    bert, tokenizer = (
        BertModel.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    for encode in (model.model.encode_query, model.model.encode_document):
        with torch.no_grad():
            hidden = bert(
                **tokenizer("Where was the mill?", return_tensors="pt")
            ).last_hidden_state[0, 1:]
            expected = torch.nn.functional.normalize(head(hidden), dim=-1)
        result = encode(["Where was the mill?", "A longer text, so that the other one is padded."])[
            0
        ]
        assert np.allclose(np.asarray(result), expected.numpy(), atol=1e-5)
    check_scores(evaluate(model))
    assert (
        resolve_colbert_head("bge-m3-colbert", MODEL_REGISTRY.resolve()).loader.reference
        == "BAAI/bge-m3:colbert"
    )


def test_cross_encoder_reranks_bm25s_top_100_once_and_names_it(
    tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    model = CrossEncoder(tiny("cross-encoder"), max_length=64)
    scores = evaluate(model)
    assert scores["previous_results_model_meta"]["model_name"] == "mteb/baseline-bm25s"
    check_scores(scores)
    (first_stage,) = tmp_path.rglob("*.parquet")
    written = first_stage.stat().st_mtime_ns
    assert evaluate(model)["position_profile"] == scores["position_profile"]
    assert [file.stat().st_mtime_ns for file in tmp_path.rglob("*.parquet")] == [written]


@pytest.mark.slow
def test_a_reranker_of_another_first_stage_has_a_name_of_its_own(tiny, tmp_path, monkeypatch):
    """The first stage is loaded as it is, whatever the prompt of the reranker; candidates of each
    model are cached apart.
    """
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    reranker, embedder = tiny("cross-encoder"), tiny()
    plain = evaluate(mteb.get_model(reranker))
    monkeypatch.setenv("POSIR_FIRST_STAGE", embedder)
    monkeypatch.setenv("POSIR_QUERY_PROMPT", r"Find:\n")
    model = mteb.get_model(reranker)
    assert model.query_prefix == "Find:\n"
    recorded = dict(model.mteb_model_meta.experiment_kwargs)
    assert recorded.pop("settings_digest")
    assert recorded == {"first_stage": embedder, "query_prompt": "Find:\n"}
    assert (
        find_model(ModelReference(reranker)).experiment_name
        == model.mteb_model_meta.experiment_name
    )
    scores = evaluate(model)
    first, other = (value["previous_results_model_meta"] for value in (plain, scores))
    assert first["model_name"] == "mteb/baseline-bm25s"
    assert other["model_name"] == mteb.get_model_meta(embedder).name
    assert len(list((tmp_path / "cache").rglob("first-stage/*.parquet"))) == 2
    monkeypatch.delenv("POSIR_QUERY_PROMPT")
    # All documents are candidates, so that the reranker alone decides.
    assert evaluate(mteb.get_model(reranker))["position_profile"] == plain["position_profile"]
    monkeypatch.setenv("POSIR_FIRST_STAGE", reranker)
    with pytest.raises(PosirError, match=r"POSIR_FIRST_STAGE: .* is a reranker and cannot search"):
        evaluate(mteb.get_model(reranker))


def test_the_query_prompt_of_a_run_is_part_of_the_result(tiny, tmp_path, monkeypatch):
    folder = tiny()
    SentenceTransformer(folder, prompts={"query": "own: ", "Retrieval-document": "text: "}).save(
        str(tmp_path / "model")
    )
    plain, posq = mteb.get_model(str(tmp_path / "model")), "Instruct: find\nQuery: "
    monkeypatch.setenv("POSIR_QUERY_PROMPT", posq.replace("\n", "\\n"))
    model = mteb.get_model(str(tmp_path / "model"))
    texts = {kind: find_prompt(model, PosIRMini.metadata, kind).text for kind in PromptType}
    assert (texts[PromptType.query], texts[PromptType.document]) == (posq, "text: ")
    assert find_prompt(plain, PosIRMini.metadata, PromptType.query).text == "own: "
    cache = mteb.ResultCache(tmp_path / "results")
    for value in (plain, model):
        mteb.evaluate(value, FewQuestions(), cache=cache, show_progress_bar=False)
    files = sorted(
        file.relative_to(tmp_path).parts for file in (tmp_path / "results").rglob("PosIR-Mini.json")
    )
    assert [("experiments" in parts) for parts in files] == [False, True]
    assert mteb.get_model("mteb/baseline-bm25s").mteb_model_meta.experiment_kwargs is None


def test_the_document_prompt_of_a_run_leaves_that_of_queries(tiny, tmp_path, monkeypatch):
    SentenceTransformer(tiny(), prompts={"query": "own: ", "Retrieval": "any: "}).save(
        str(tmp_path / "model")
    )
    monkeypatch.setenv("POSIR_DOCUMENT_PROMPT", "passage: ")
    model = mteb.get_model(str(tmp_path / "model"))
    texts = {kind: find_prompt(model, PosIRMini.metadata, kind).text for kind in PromptType}
    assert texts == {PromptType.query: "any: ", PromptType.document: "passage: "}
    assert dict(model.mteb_model_meta.experiment_kwargs)["document_prompt"] == "passage: "
    monkeypatch.setenv("POSIR_QUERY_PROMPT", "")
    both = mteb.get_model(str(tmp_path / "model"))
    texts = {kind: find_prompt(both, PosIRMini.metadata, kind).text for kind in PromptType}
    assert texts == {PromptType.query: "", PromptType.document: "passage: "}
    assert both.mteb_model_meta.experiment_name != model.mteb_model_meta.experiment_name


def test_a_reranker_takes_the_document_prompt(tiny, monkeypatch):
    monkeypatch.setenv("POSIR_DOCUMENT_PROMPT", r"Text:\n")
    model = mteb.get_model(tiny("cross-encoder"))
    assert (model.query_prefix, model.passage_prefix) == ("", "Text:\n")


def test_a_protocol_is_an_experiment_that_records_its_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_PROTOCOL", "bias-learning")
    protocol = find_protocol("bias-learning", "e5-large-v2")
    with with_tiny_weights(mteb.get_model_meta(protocol.model), protocol) as meta:
        cache = mteb.ResultCache(tmp_path)
        mteb.evaluate(
            meta.load_model(device="cpu"), FewQuestions(), cache=cache, show_progress_bar=False
        )
    (result,) = read_results(tmp_path)
    assert result.experiment == "protocol_bias-learning"
    asked, loaded = (result.run["protocol"][name] for name in ("asked", "loaded"))
    assert (
        asked["document_prompt"],
        asked["max_document_tokens"],
        loaded["max_document_tokens"],
    ) == ("", "512", 512)
    data, example = FewQuestions().read_subset("default"), result.run["protocol"]["example"]
    texts, name = (
        ({row["id"]: row for row in rows} for rows in (data.queries, data.corpus)),
        example["document"],
    )
    queries, documents = texts
    assert loaded["query_text"] == f"<s>{queries[example['query']]['text']}</s>"
    document = documents[name]["text"]
    assert len(document) == min(
        len(row["text"]) for row in documents.values() if row["id"] in data.evidence.document_ids
    )
    # Lines are escaped where a result is read.
    read = document.replace("\n", "\\n")[:400]
    assert (loaded["document_text"].startswith(f"<s>{read}"), loaded["last_token"]) == (
        True,
        "</s>",
    )
    report = posir.read_results(tmp_path)
    assert [row.model for row in report.rows][:1] == [
        "intfloat/e5-large-v2 (protocol_bias-learning)"
    ]


@pytest.mark.slow
def test_mteb_run_with_a_protocol_gives_models_the_authors_text(tmp_path):
    protocol = find_protocol("posq", "Qwen3-Embedding-0.6B")
    meta, repository = (
        mteb.get_model_meta(protocol.model),
        tmp_path / "hub/models--Qwen--Qwen3-Embedding-0.6B",
    )
    write_tiny_model(repository / "snapshots" / str(meta.revision), protocol, meta.loader.__name__)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(str(meta.revision))
    variables = {"POSIR_PROTOCOL": "posq", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = (
        "mteb",
        "run",
        "-m",
        protocol.model,
        "-t",
        "PosIR-Mini",
        "--output-folder",
        str(tmp_path / "results"),
    )
    done = run(*command, **variables)
    assert done.returncode == 0, done.stderr
    (result,) = read_results(tmp_path / "results")
    loaded, example = (result.run["protocol"][name] for name in ("loaded", "example"))
    queries = {row["id"]: row["text"] for row in read_mini().queries}
    instruction = "Given a web search query, retrieve relevant passages that answer the query"
    assert (
        loaded["query_text"]
        == f"<s>Instruct: {instruction}\\nQuery:{queries[example['query']]}</s>"
    )
    assert (loaded["max_document_tokens"], loaded["dimensions"], result.experiment) == (
        8192,
        1024,
        "protocol_posq",
    )


def test_an_instruction_model_takes_a_query_prompt_only(tiny):
    model = InstructSentenceTransformerModel(
        tiny(), "main", instruction_template="Do: {instruction} "
    )
    documents = find_prompt(model, PosIRMini.metadata, PromptType.document)
    assert replace_prompts(model, "Find: ")
    assert find_prompt(model, PosIRMini.metadata, PromptType.query).text == "Find: "
    assert find_prompt(model, PosIRMini.metadata, PromptType.document) == documents


def test_an_instruction_model_takes_a_document_prompt_only(tiny):
    model = InstructSentenceTransformerModel(
        tiny(), "main", instruction_template="Do: {instruction} "
    )
    queries = find_prompt(model, PosIRMini.metadata, PromptType.query)
    assert replace_prompts(model, None, "Text: ")
    assert find_prompt(model, PosIRMini.metadata, PromptType.document).text == "Text: "
    assert find_prompt(model, PosIRMini.metadata, PromptType.query) == queries


class AskingEncoder(AbsEncoder):
    """An encoder of a class of its own, which asks for an instruction or does not."""

    def __init__(self, *, asks: bool) -> None:
        self.asks = asks

    def encode(self, inputs, *, task_metadata, prompt_type=None, **options):  # noqa: ARG002
        return self.get_task_instruction(task_metadata, prompt_type) if self.asks else ""


def test_a_custom_class_that_asks_gets_the_query_prompt():
    model, silent, task = (
        AskingEncoder(asks=True),
        AskingEncoder(asks=False),
        {"task_metadata": PosIRMini.metadata},
    )
    documents = model.encode([], **task, prompt_type=PromptType.document)
    assert all(replace_prompts(value, "Find: ") for value in (model, silent))
    assert model.encode([], **task, prompt_type=PromptType.query) == "Find: "
    assert model.encode([], **task, prompt_type=PromptType.document) == documents != "Find: "
    with pytest.raises(PosirError, match="the class AskingEncoder does not support"):
        silent.encode([], **task, prompt_type=PromptType.query)
    assert not replace_prompts(mteb.get_model("mteb/baseline-bm25s"), "Find: ")


def test_a_custom_class_that_asks_gets_the_document_prompt():
    model, silent, task = (
        AskingEncoder(asks=True),
        AskingEncoder(asks=False),
        {"task_metadata": PosIRMini.metadata},
    )
    queries = model.encode([], **task, prompt_type=PromptType.query)
    assert all(replace_prompts(value, None, "Text: ") for value in (model, silent))
    assert model.encode([], **task, prompt_type=PromptType.document) == "Text: "
    assert model.encode([], **task, prompt_type=PromptType.query) == queries != "Text: "
    assert silent.encode([], **task, prompt_type=PromptType.query) == ""
    with pytest.raises(
        PosirError,
        match="the class AskingEncoder does not support the run's document prompt",
    ):
        silent.encode([], **task, prompt_type=PromptType.document)


def test_after_a_cross_encoder_a_model_searches_the_full_corpus(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path))
    task = FewQuestions()
    mteb.evaluate(CrossEncoder(tiny("cross-encoder"), max_length=64), task, cache=None)
    bm25 = mteb.get_model("mteb/baseline-bm25s")
    again = mteb.evaluate(bm25, task, cache=None).task_results[0].scores["test"][0]
    assert "previous_results_model_meta" not in again
    assert again["position_profile"] == evaluate(bm25)["position_profile"]


def test_bm25_ranks_alike_from_arrays_and_mtebs_dictionaries(tmp_path: Path):
    model = mteb.get_model("mteb/baseline-bm25s")
    from_dictionaries = mteb.evaluate(model, FewQuestions(), cache=None, prediction_folder=tmp_path)
    assert (tmp_path / "PosIR-Mini_predictions.json").exists()
    assert from_dictionaries.task_results[0].scores["test"][0] == evaluate(model)


def test_predictions_of_one_model_can_be_reranked_by_another(tiny, tmp_path: Path):
    model = mteb.get_model("mteb/baseline-bm25s")
    mteb.evaluate(model, FewQuestions(), cache=None, prediction_folder=tmp_path)
    task = FewQuestions().convert_to_reranking(tmp_path, top_k=10)
    scores = (
        mteb.evaluate(SentenceTransformer(tiny()), task, cache=None)
        .task_results[0]
        .scores["test"][0]
    )
    assert scores["previous_results_model_meta"]["model_name"] == "mteb/baseline-bm25s"
    assert scores["recall_at_100"] == pytest.approx(evaluate(model)["recall_at_10"])


class NanEncoder(mteb.SentenceTransformerEncoderWrapper):
    """An encoder whose embeddings overflowed."""

    def encode(self, *args: object, **kwargs: object) -> np.ndarray:
        return np.full_like(super().encode(*args, **kwargs), np.nan)


def test_nan_is_an_error_and_not_a_score(tiny):
    with pytest.raises(ScoreError, match="NaN scores for 6 of 6 queries"):
        evaluate(NanEncoder(SentenceTransformer(tiny())))
