"""Protocols: the table, and the texts that reach the tokenizer, quoted from the authors' code."""

import re
import sys
from dataclasses import fields
from types import SimpleNamespace

import mteb
import pytest
import torch
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import posir
from posir_tasks.base.errors import PosirError
from posir_tasks.models.loaded_model import read_loaded_model
from posir_tasks.models.prompts import preprocess, unwrap_encode
from posir_tasks.models.protocols import (
    PAPERS,
    REPORTED_FIELDS,
    SETTINGS,
    UNKNOWN,
    Protocol,
    describe_differences,
    find_protocol,
    list_differences,
    list_protocols,
    read_protocols,
)
from posir_tasks.models.run_settings import override_settings
from tests.support.protocol_check import check_protocol, find_mteb_settings
from tests.support.registered_models import with_tiny_weights

WEB = "Instruct: Given a web search query, retrieve relevant passages that answer the query"
QUESTION, TEXT = "Where does the river rise?", "The river rises in the hills."
#: Paper, model, query and document at the tokenizer, window and dtype.
EXPECTED = [
    ("posq", "bge-m3", f"<s>{QUESTION}</s>", f"<s>{TEXT}</s>", 8192, None),
    (
        "posq",
        "stella_en_400M_v5",
        f"<s>{WEB}.\nQuery: {QUESTION}</s>",
        f"<s>{TEXT}</s>",
        8192,
        None,
    ),
    (
        "posq",
        "Qwen3-Embedding-0.6B",
        f"<s>{WEB}\nQuery:{QUESTION}</s>",
        f"<s>{TEXT}</s>",
        8192,
        None,
    ),
    (
        "myopic-trap",
        "gte-Qwen2-7B-instruct",
        f"{WEB}\nQuery: {QUESTION}</s>",
        f"{TEXT}</s>",
        8192,
        None,
    ),
    (
        "posq",
        "NV-Embed-v2",
        "Instruct: Given a question, retrieve passages that answer the question\nQuery: "
        f"{QUESTION}</s>",
        f"{TEXT}</s>",
        8192,
        None,
    ),
    ("posq", "bge-m3-colbert", f"<s>{QUESTION}</s>", f"<s>{TEXT}</s>", 8192, "float16"),
    ("posir", "NV-Embed-v2", f"{WEB}\nQuery: {QUESTION}", TEXT, 8192, "bfloat16"),
    (
        "posir-saliency",
        "NV-Embed-v2",
        f"{WEB}\nQuery: {QUESTION}</s>",
        f"{TEXT}</s>",
        2048,
        "float16",
    ),
    (
        "posir",
        "Qwen3-Embedding-0.6B",
        f"<s>{WEB}\nQuery: {QUESTION}</s>",
        f"<s>{TEXT}</s>",
        8192,
        "bfloat16",
    ),
    (
        "posir",
        "inf-retriever-v1-1.5b",
        f"<s>{WEB}\nQuery: {QUESTION}</s>",
        f"<s>{TEXT}</s>",
        8192,
        "bfloat16",
    ),
    (
        "posir",
        "llama-embed-nemotron-8b",
        f"<s>{WEB}\nQuery: {QUESTION}</s>",
        f"<s>{TEXT}</s>",
        8192,
        "bfloat16",
    ),
    (
        "posir",
        "KaLM-Embedding-Gemma3-12B-2511",
        f"<s>{WEB}\nQuery: {QUESTION}</s>",
        f"<s>{TEXT}</s>",
        8192,
        "bfloat16",
    ),
    ("bias-learning", "e5-large-v2", f"<s>{QUESTION}</s>", f"<s>{TEXT}</s>", 512, "float32"),
    (
        "posq",
        "Qwen3-Reranker-0.6B",
        None,
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        "and the Instruct provided. "
        'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        f"<Query>: {QUESTION}\n<Document>: "
        f"{TEXT}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        3076,
        "float16",
    ),
]


#: Rows that are like another one in how a paper passes texts to a class.
ALIKE = {
    ("posq", "stella_en_400M_v5"),
    ("posq", "Qwen3-Embedding-0.6B"),
    ("posq", "NV-Embed-v2"),
    ("posir", "Qwen3-Embedding-0.6B"),
    ("posir", "inf-retriever-v1-1.5b"),
    ("posir", "KaLM-Embedding-Gemma3-12B-2511"),
}


@pytest.mark.parametrize(
    ("paper", "model", "query", "document", "window", "dtype"),
    [pytest.param(*row, marks=pytest.mark.slow) if row[:2] in ALIKE else row for row in EXPECTED],
)
def test_the_tokenizer_receives_the_authors_texts(paper, model, query, document, window, dtype):
    check = check_protocol(find_protocol(paper, model))
    assert not check.problem
    loaded = check.loaded
    assert (loaded.get("query_text"), loaded["document_text"], loaded["max_document_tokens"]) == (
        query,
        document,
        window,
    )
    assert dtype in (None, loaded["dtype"])


INSTRUCTION = "Given a question, retrieve passages that answer the question"
#: Settings of mteb 2.26's classes that differ from the authors', by paper and model.
MTEB_SETTINGS = {
    ("posq", "BAAI/bge-m3"): {},
    ("posq", "NovaSearch/stella_en_400M_v5"): {"query_prompt": INSTRUCTION},
    ("posq", "Qwen/Qwen3-Embedding-0.6B"): {"query_prompt": f"Instruct: {INSTRUCTION}\nQuery:"},
    ("posq", "Alibaba-NLP/gte-Qwen2-7B-instruct"): {
        "query_prompt": f"Instruct: {INSTRUCTION}\nQuery: "
    },
    ("posq", "nvidia/NV-Embed-v2"): {"max_document_tokens": "32768"},
    ("posq", "Qwen/Qwen3-Reranker-0.6B"): {
        "max_document_tokens": "8192",
        "dtype": "bfloat16",
        "rerank_instruction": "Given the user query, retrieval the relevant passages",
    },
    ("posir", "Qwen/Qwen3-Embedding-0.6B"): {"query_prompt": f"{WEB}\nQuery:"},
    ("posir", "Alibaba-NLP/gte-multilingual-base"): {},
    ("posir", "infly/inf-retriever-v1"): {},
    ("posir", "nvidia/NV-Embed-v2"): {"max_document_tokens": "32768", "eos": f"{TEXT}</s>"},
    ("posir", "nvidia/llama-embed-nemotron-8b"): {
        "max_document_tokens": "4096",
        "dtype": "float16",
        "attention": "eager",
    },
    ("posir", "tencent/KaLM-Embedding-Gemma3-12B-2511"): {
        "query_prompt": f"{WEB} \n Query: ",
        "max_document_tokens": "512",
    },
    ("bias-learning", "BAAI/bge-m3"): {},
    ("bias-learning", "intfloat/e5-large-v2"): {"document_prompt": "passage: "},
    ("bias-learning", "nomic-ai/nomic-embed-text-v1.5"): {},
    ("bias-learning", "jinaai/jina-embeddings-v2-base-en"): {},
}
FAST = (("posq", "Qwen/Qwen3-Embedding-0.6B"), ("posir", "nvidia/llama-embed-nemotron-8b"))


@pytest.mark.parametrize(
    ("paper", "model"),
    [pytest.param(*key, marks=() if key in FAST else pytest.mark.slow) for key in MTEB_SETTINGS],
)
def test_the_row_lists_the_differences_from_mtebs_class(paper, model):
    row = find_protocol(paper, model)
    settings = find_mteb_settings(row)
    assert settings == MTEB_SETTINGS[paper, model]
    assert {*settings} <= {*row.mteb_differs.split()}


@pytest.mark.slow
def test_every_difference_of_an_mteb_class_is_listed():
    unlisted = {}
    for row in (row for paper in PAPERS for row in list_protocols(paper)):
        try:
            unlisted[row.paper, row.model] = {*find_mteb_settings(row)} - {
                *row.mteb_differs.split()
            }
        except (PosirError, KeyError, ImportError):
            continue
    assert unlisted.keys() >= MTEB_SETTINGS.keys()
    assert not any(unlisted.values())


def test_an_unsupported_field_raises_an_error():
    check = check_protocol(find_protocol("bias-learning", "nomic-embed-text-v1.5"))
    assert check.differs
    assert (
        "v1.5: pooling cls is mean after loading. Run the authors' code (sgoel97/" in check.problem
    )


def test_queries_have_a_separate_window():
    row = find_protocol("posir-saliency", "NV-Embed-v2")
    registered = mteb.get_model_meta(row.model, fetch_from_hf=False)
    with override_settings(protocol=row.paper), with_tiny_weights(registered, row) as meta:
        model = meta.load_model(device="cpu")
    loaded = read_loaded_model(model)
    assert (loaded.max_query_tokens, loaded.max_document_tokens) == (512, 2048)
    assert model.model.max_seq_length == 2048
    assert unwrap_encode(model) is InstructSentenceTransformerModel.encode
    # `posir probe` calls `preprocess` itself.
    ids = preprocess(model.model, [TEXT])["input_ids"][0]
    assert model.model.tokenizer.decode(ids).endswith(f"{TEXT}</s>")


def test_a_flagembedding_reranker_reads_the_authors_window(monkeypatch):
    """A mock has the defaults and the call order of FlagEmbedding 1.3.4."""
    monkeypatch.setitem(sys.modules, "FlagEmbedding", SimpleNamespace(FlagReranker=FlagReranker))
    check = check_protocol(find_protocol("posq", "bge-reranker-v2-m3"))
    assert not check.problem
    assert check.loaded["document_text"] == f"<s>{QUESTION}</s></s>{TEXT}</s>"
    assert (check.loaded["max_document_tokens"], check.loaded["dtype"]) == (8192, "float16")


class FlagReranker:
    """A cross-encoder that reads 512 tokens by default."""

    def __init__(self, folder: str, *, use_fp16: bool) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        self.model, self.max_length = model.half() if use_fp16 else model, 512

    def compute_score(self, pairs, *, normalize: bool, max_length: int | None = None):  # noqa: ARG002
        limit = max_length or self.max_length
        query, text = (
            self.tokenizer(value, add_special_tokens=False)["input_ids"] for value in pairs[0]
        )
        ids = self.tokenizer.convert_tokens_to_ids(["<s>", "</s>"])
        room = limit - 4 - len(query)
        joined = [ids[0], *query, ids[1], ids[1], *text[:room], ids[1]]
        return self.model(input_ids=torch.tensor([joined])).logits


def test_api_requests_contain_the_papers_dimensions(monkeypatch):
    client = SimpleNamespace(embed=None)
    monkeypatch.setitem(sys.modules, "voyageai", SimpleNamespace(Client=lambda **_: client))
    check = check_protocol(find_protocol("posq", "voyage-3-large"))
    assert not check.problem
    assert check.loaded["dimensions"] == 2048


def test_doctor_prints_a_protocol(monkeypatch):
    monkeypatch.setattr(
        "posir_tasks.command.api.list_protocols", lambda paper: list_protocols(paper)[:2]
    )
    diagnosis = posir.doctor(protocol="myopic-trap")
    sparse, dense = (finding.text for finding in diagnosis.rows)
    assert sparse.startswith("mteb/baseline-bm25s: ")
    assert 'query prompt "", document prompt "", ' in dense
    assert 'index "faiss IndexFlatIP"' in dense
    assert diagnosis.exit_status == 0
    with pytest.raises(PosirError, match="Add --protocol, such as posq"):
        posir.doctor("bge-m3")


@pytest.mark.parametrize(("paper", "passed"), [("posq", True), ("bias-learning", False)])
def test_doctor_loads_a_model_with_its_protocol(monkeypatch, paper, passed):
    """The weights are small and random, in the Hub's cache."""
    row = find_protocol(paper, {"posq": "bge-m3", "bias-learning": "nomic-embed-text-v1.5"}[paper])
    registered = mteb.get_model_meta(row.model, fetch_from_hf=False)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: "config.json")
    with with_tiny_weights(registered, row) as meta:
        monkeypatch.setattr("mteb.get_model_meta", lambda *_, **__: meta)
        diagnosis = posir.doctor(row.model, protocol=paper)
    assert [finding.passed for finding in diagnosis.rows] == [None, passed]
    assert diagnosis.exit_status == int(not passed)


def test_invalid_settings_raise_one_error(monkeypatch):
    meta = mteb.get_model_meta("BAAI/bge-m3", fetch_from_hf=False)
    for variables, message in (
        (
            {"POSIR_PROTOCOL": "posk"},
            "protocol 'posk': no such paper. There are posq, myopic-trap, posir",
        ),
        (
            {"POSIR_PROTOCOL": "built-in-or-learned"},
            "the paper's authors did not run BAAI/bge-m3. They ran google-bert/bert-",
        ),
        (
            {"POSIR_PROTOCOL": "posq", "POSIR_QUERY_PROMPT": "x"},
            "POSIR_PROTOCOL and POSIR_QUERY_PROMPT: .* Unset one",
        ),
        (
            {"POSIR_PROTOCOL": "posq", "POSIR_DOCUMENT_PROMPT": "x"},
            "POSIR_PROTOCOL and POSIR_DOCUMENT_PROMPT: .* Unset one",
        ),
        (
            {"POSIR_PROTOCOL": "posq", "POSIR_WINDOW": "9"},
            "POSIR_PROTOCOL and POSIR_WINDOW: .* Unset one",
        ),
        (
            {"POSIR_PROTOCOL": "posq", "POSIR_FIRST_STAGE": "x"},
            "POSIR_PROTOCOL and POSIR_FIRST_STAGE: .* Unset one",
        ),
    ):
        with monkeypatch.context() as environment:
            for name, value in variables.items():
                environment.setenv(name, value)
            with pytest.raises(PosirError, match=message):
                meta.load_model()


def test_the_table_contains_all_models_of_the_papers():
    assert {field.name for field in fields(Protocol)} >= {*SETTINGS, *REPORTED_FIELDS}
    assert {paper: len(list_protocols(paper)) for paper in PAPERS} == {
        "posq": 20,
        "myopic-trap": 12,
        "posir": 10,
        "posir-saliency": 2,
        "built-in-or-learned": 8,
        "bias-learning": 9,
    }
    row = find_protocol("posq", "bge-reranker-v2-m3")
    assert (
        row.find_first_stage("SQuAD-PosQ"),
        row.find_first_stage("FineWeb-PosQ-Raw"),
        row.find_first_stage("PosIR-Mini"),
    ) == (
        "mteb/baseline-bm25s",
        "nvidia/NV-Embed-v2",
        None,
    )
    assert find_protocol("posq", "voyage-3-large").find("dimensions") == "2048"
    assert find_protocol("posq", "stella_en_400M_v5").find("dimensions") is None


#: Allowed values of fields that are neither free text nor numbers.
CHOICES = {
    "paper": PAPERS,
    "kind": ("sparse", "dense", "api", "late-interaction", "reranker", "base", "probe", "training"),
    "prompt_is_pooled": ("", "true", "false"),
    "dtype": ("", UNKNOWN, "float32", "float16", "bfloat16"),
    "attention": ("", UNKNOWN, "sdpa", "eager", "flash_attention_2"),
    "padding_side": ("", UNKNOWN, "left", "right"),
    "status": ("code", "text", UNKNOWN),
}


@pytest.mark.parametrize("row", read_protocols(), ids=lambda row: f"{row.paper} {row.model}")
def test_every_field_has_an_allowed_value(row):
    assert [name for name, allowed in CHOICES.items() if getattr(row, name) not in allowed] == []
    for name in ("max_query_tokens", "max_document_tokens", "dimensions", "depth"):
        assert re.fullmatch(r"|unknown|[1-9]\d*", getattr(row, name)), name
    assert {*row.mteb_differs.split()} <= {*SETTINGS, *REPORTED_FIELDS}
    assert row.model
    assert row.source


def test_differences_from_mtebs_settings_fill_one_line():
    prompt = WEB + r"\nQuery:"
    difference = f'mteb\'s settings; the authors of PosQ: query prompt "{prompt}", window 8,192'
    assert describe_differences("posq", "Qwen/Qwen3-Embedding-0.6B") == difference
    assert (
        describe_differences("posq", "BAAI/bge-m3")
        == describe_differences("posq", "own/model")
        == ""
    )
    models = (
        "BAAI/bge-m3",
        "mine/model",
        "nvidia/llama-embed-nemotron-8b",
        "BAAI/bge-m3 (protocol_posir)",
    )
    lines = list_differences(("PosIR-English", model) for model in models)
    assert [line.partition(":")[0] for line in lines] == [
        "BAAI/bge-m3",
        "nvidia/llama-embed-nemotron-8b",
    ]
    assert lines[1].endswith(
        "mteb's settings; the authors of PosIR: window 8,192, dtype bfloat16, attention sdpa."
    )
    names = [f"Qwen3-Embedding-{size}" for size in ("0.6B", "4B", "8B")]
    assert (
        f"{', '.join(reversed(names))}: {difference}." in posir.published(task="SQuAD-PosQ").details
    )
    printed = str(posir.recipe("posq"))
    assert f"# Qwen/{', Qwen/'.join(names)}: {difference}." in printed.splitlines()
