"""Protocols: the table, and what a model of mteb's class gets at its tokenizer; texts are quoted from the authors' code."""

from dataclasses import replace

import mteb
import pytest

from posir_tasks.errors import PosirError
from posir_tasks.models.protocols import PAPERS, describe_difference, find_protocol, list_protocols, read_protocols
from posir_tasks.models.tiny_model import with_tiny_weights

WEB = "Instruct: Given a web search query, retrieve relevant passages that answer the query"
QUESTION, TEXT = "Where does the river rise?", "The river rises in the hills."
#: Paper, model, then the texts of query and document at the tokenizer, the window and the precision.
EXPECTED = [
    ("posq", "bge-m3", f"<s>{QUESTION}</s>", f"<s>{TEXT}</s>", 8192, None),
    ("posq", "stella_en_400M_v5", f"<s>{WEB}.\nQuery: {QUESTION}</s>", f"<s>{TEXT}</s>", 8192, None),
    ("posq", "Qwen3-Embedding-0.6B", f"<s>{WEB}\nQuery:{QUESTION}</s>", f"<s>{TEXT}</s>", 8192, None),
    ("myopic-trap", "gte-Qwen2-7B-instruct", f"{WEB}\nQuery: {QUESTION}</s>", f"{TEXT}</s>", 8192, None),
    (
        "posq",
        "NV-Embed-v2",
        f"Instruct: Given a question, retrieve passages that answer the question\nQuery: {QUESTION}</s>",
        f"{TEXT}</s>",
        8192,
        None,
    ),
    ("posir", "NV-Embed-v2", f"{WEB}\nQuery: {QUESTION}", TEXT, 8192, "bfloat16"),
    ("posir", "Qwen3-Embedding-0.6B", f"<s>{WEB}\nQuery: {QUESTION}</s>", f"<s>{TEXT}</s>", 8192, "bfloat16"),
    ("posir", "inf-retriever-v1-1.5b", f"<s>{WEB}\nQuery: {QUESTION}</s>", f"<s>{TEXT}</s>", 8192, "bfloat16"),
    ("posir", "llama-embed-nemotron-8b", f"<s>{WEB}\nQuery: {QUESTION}</s>", f"<s>{TEXT}</s>", 8192, "bfloat16"),
    ("posir", "KaLM-Embedding-Gemma3-12B-2511", f"<s>{WEB}\nQuery: {QUESTION}</s>", f"<s>{TEXT}</s>", 8192, "bfloat16"),
    ("bias-learning", "e5-large-v2", f"<s>{QUESTION}</s>", f"<s>{TEXT}</s>", 512, "float32"),
    (
        "posq",
        "Qwen3-Reranker-0.6B",
        None,
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
        'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        f"<Query>: {QUESTION}\n<Document>: {TEXT}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        3076,
        "float16",
    ),
]


def load_tiny(paper: str, model: str):
    """Load mteb's class for a model with tiny weights."""
    protocol = find_protocol(paper, model)
    with with_tiny_weights(mteb.get_model_meta(protocol.model, fetch_from_hf=False), protocol) as meta:
        return meta.load_model(device="cpu")


@pytest.mark.parametrize(("paper", "model", "query", "document", "window", "dtype"), EXPECTED)
def test_what_reaches_the_tokenizer_is_what_the_authors_sent(monkeypatch, paper, model, query, document, window, dtype):
    monkeypatch.setenv("POSIR_PROTOCOL", paper)
    loaded = load_tiny(paper, model)
    record = loaded.posir_protocol["loaded"]
    assert (record.get("query_text"), record["document_text"], record["max_document_tokens"]) == (query, document, window)
    assert dtype in (None, record["dtype"])
    assert loaded.mteb_model_meta.experiment_kwargs == {"protocol": paper}
    assert loaded.posir_protocol["asked"]["source"] == find_protocol(paper, model).source


def test_a_field_that_the_class_cannot_take_is_an_error_before_anything_is_encoded(monkeypatch):
    monkeypatch.setenv("POSIR_PROTOCOL", "bias-learning")
    with pytest.raises(PosirError, match=r"v1\.5: pooling cls is mean after loading\. Run the authors' code"):
        load_tiny("bias-learning", "nomic-embed-text-v1.5")


def test_wrong_settings_are_one_sentence(monkeypatch):
    meta = mteb.get_model_meta("BAAI/bge-m3", fetch_from_hf=False)
    for variables, message in (
        ({"POSIR_PROTOCOL": "posk"}, "protocol 'posk': no such paper. There are posq, myopic-trap, posir"),
        ({"POSIR_PROTOCOL": "built-in-or-learned"}, "the paper's authors did not run BAAI/bge-m3. They ran google-bert/bert-"),
        ({"POSIR_PROTOCOL": "posq", "POSIR_QUERY_PROMPT": "x"}, "POSIR_PROTOCOL and POSIR_QUERY_PROMPT: .* Unset one"),
        ({"POSIR_PROTOCOL": "posq", "POSIR_WINDOW": "9"}, "POSIR_PROTOCOL and POSIR_WINDOW: .* Unset one"),
        ({"POSIR_PROTOCOL": "posq", "POSIR_FIRST_STAGE": "x"}, "POSIR_PROTOCOL and POSIR_FIRST_STAGE: .* Unset one"),
    ):
        with monkeypatch.context() as environment:
            for name, value in variables.items():
                environment.setenv(name, value)
            with pytest.raises(PosirError, match=message):
                meta.load_model()


def test_the_table_has_every_row_of_the_papers_and_checks_them():
    assert {paper: len(list_protocols(paper)) for paper in PAPERS} == {
        "posq": 20,
        "myopic-trap": 12,
        "posir": 10,
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
    assert find_protocol("posq", "voyage-3-large").find_number("dimensions") == 2048
    assert find_protocol("posq", "stella_en_400M_v5").find("dimensions") is None
    for wrong in ({"dtype": "fp8"}, {"depth": "-1"}, {"source": ""}, {"mteb_differs": "shape"}):
        with pytest.raises(ValueError, match=r"posq, BAAI/bge-reranker-v2-m3"):
            replace(row, **wrong)


def test_the_difference_from_mtebs_settings_is_one_sentence():
    prompt = WEB + r"\nQuery:"
    difference = f'mteb\'s settings; the authors of PosQ: query prompt "{prompt}", window 8,192'
    assert describe_difference("posq", "Qwen/Qwen3-Embedding-0.6B") == difference
    assert describe_difference("posq", "BAAI/bge-m3") == describe_difference("posq", "own/model") == ""
    assert len(read_protocols()) == 59
