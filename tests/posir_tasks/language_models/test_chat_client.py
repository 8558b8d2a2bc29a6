"""Language models over real HTTP: failures, several servers, the budget, requests, and the call
log.
"""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from itertools import product

import pytest

from posir_build.verify import Answerability
from posir_tasks.base.errors import NewerSchemaError, PosirError
from posir_tasks.language_models.asking import BudgetError, LanguageModel
from posir_tasks.language_models.call_log import CallLog, Completion, Usage
from posir_tasks.language_models.chat_client import (
    MAX_INVALID_RESPONSES,
    AnswerFault,
    load_prompt,
    read_completion,
)
from posir_tasks.language_models.settings import LanguageModelSettings
from tests.support.human_answers import Truth, mini_documents
from tests.support.language_model_server import NO_FAILURES, serve_language_model

PROMPT = load_prompt("answerable", Answerability)
TRUTH = Truth(mini_documents()[:3])
QUESTIONS = [
    {"question": question.text, "text": document.text if row % 2 else "Nothing."}
    for document in TRUTH.documents
    for row, question in enumerate(document.questions)
]
EXPECTED = ["yes" if question["text"] != "Nothing." else "no" for question in QUESTIONS]


pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.fixture
def server():
    with serve_language_model(TRUTH, rates=dict(NO_FAILURES)) as language_model_server:
        yield language_model_server


def connect(tmp_path, *servers, **settings):
    addresses = [server if isinstance(server, str) else server.url for server in servers]
    log = CallLog(tmp_path / "calls.sqlite")
    return LanguageModel(LanguageModelSettings(model="human", endpoints=addresses, **settings), log)


def ask(model, values=QUESTIONS):
    return [
        reply.answer.answer if reply.answer else reply.fault
        for _, reply in model.ask(PROMPT, values, dict, "Ask")
    ]


def test_temporary_failures_are_retried_and_order_is_kept(server, tmp_path):
    server.rates |= {"rate limit": 0.3, "server error": 0.3, "dropped connection": 0.3}
    server.seconds = 0.01
    assert ask(connect(tmp_path, server, in_flight=4)) == EXPECTED
    assert {"rate limit", "server error", "dropped connection"} <= set(server.failures)
    assert 1 < server.most_in_flight <= 4
    assert set(server.answered.values()) == {1}
    server.rates |= {**NO_FAILURES, "time-out": 1.0}
    assert (
        ask(connect(tmp_path, server, timeout=0.3, temperature=0.1), QUESTIONS[:3]) == EXPECTED[:3]
    )


def test_answered_calls_are_not_repeated(server, tmp_path):
    assert (
        ask(connect(tmp_path, server))
        == ask(connect(tmp_path, server, in_flight=1, retries=3))
        == EXPECTED
    )
    assert sum(server.answered.values()) == len(QUESTIONS)
    assert ask(connect(tmp_path, server, temperature=0.5)) == EXPECTED
    assert sum(server.answered.values()) == 2 * len(QUESTIONS)


def test_unusable_answers_are_requested_again(server, tmp_path):
    server.rates |= {"refusal": 0.3, "cut JSON": 0.3}
    replies = ask(connect(tmp_path, server, attempts=5))
    assert sum(
        reply == expected for reply, expected in zip(replies, EXPECTED, strict=True)
    ) > 0.8 * len(QUESTIONS)
    server.rates |= {"refusal": 1.0}
    assert (
        ask(connect(tmp_path, server, attempts=2, temperature=0.6), QUESTIONS[:2])
        == ["the model refused"] * 2
    )


RAMBLING_RATES = {
    "refusal": 0.1,
    "empty": 0.1,
    "cut thoughts": 0.1,
    "thoughts": 0.1,
    "repeated text": 0.1,
    "trailing comma": 0.2,
    "other spelling": 0.2,
    "wrapper": 0.2,
    "wrong fields": 0.3,
    "cut JSON": 0.3,
    "prose around JSON": 0.5,
    "parts": 0.3,
    "rate limit": 0.2,
    "server error": 0.2,
}


def test_a_rambling_model_is_parsed_and_counted(server, tmp_path):
    server.rates |= RAMBLING_RATES
    model = connect(tmp_path, server, attempts=5)
    assert ask(model) == EXPECTED
    assert server.failures.keys() >= RAMBLING_RATES.keys()
    log = CallLog(tmp_path / "calls.sqlite")
    (usage,) = log.load_usage().values()
    assert usage == Usage(sum(server.answered.values()), server.input_tokens, server.output_tokens)
    summary = model.describe_answers()
    for fault, *failures in (
        (AnswerFault.CUT_OFF, "cut JSON", "cut thoughts"),
        (AnswerFault.REFUSED, "refusal"),
        (AnswerFault.EMPTY, "empty"),
        (AnswerFault.WRONG_FIELDS, "wrong fields"),
    ):
        assert f"{fault} ({sum(server.failures[name] for name in failures)})" in summary
    again = connect(tmp_path, server, attempts=5)
    assert ask(again) == EXPECTED
    assert again.describe_answers() == summary
    assert sum(server.answered.values()) == usage.calls


def test_a_response_without_choices_fails_one_request(server, tmp_path):
    server.rates |= {"no choices": 0.2}
    replies = ask(connect(tmp_path, server, in_flight=1))
    assert set(replies) == {"yes", "no", "the server refused the request"}
    server.rates |= {"no choices": 1.0}
    with pytest.raises(PosirError, match="not have the format of an OpenAI-compatible chat API"):
        ask(connect(tmp_path, server, temperature=0.1))


def test_another_server_replaces_a_failed_server(server, tmp_path):
    assert ask(connect(tmp_path, "http://127.0.0.1:9/v1", server, in_flight=2)) == EXPECTED
    with serve_language_model(TRUTH, rates=dict(NO_FAILURES)) as second:
        server.seconds = second.seconds = 0.02
        ask(connect(tmp_path, server, second, temperature=0.3, in_flight=6))
        assert second.most_in_flight > 1
        second.status = 401
        with pytest.raises(PosirError, match="OPENAI_API_KEY"):
            ask(connect(tmp_path, server, second, temperature=0.4))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "OPENAI_API_KEY"),
        (404, "no such model or address"),
        (429, "limit is still exceeded"),
        (500, "failed up to 2 times .*Answers so far are saved"),
        (400, "rejects a request .*Check the settings of llm"),
    ],
)
def test_permanent_failures_raise_posir_error(server, tmp_path, status, message):
    server.status = status
    with pytest.raises(PosirError, match=message):
        ask(connect(tmp_path, server, retries=1))


def test_a_long_document_fails_one_request(server, tmp_path):
    server.max_characters = 600
    replies = ask(connect(tmp_path, server, in_flight=1))
    assert set(replies) == {"no", "the server refused the request"}
    server.status = 400
    with pytest.raises(PosirError, match=r"set by the test.*settings of llm"):
        ask(connect(tmp_path, server, temperature=0.1), QUESTIONS[:2])


def test_the_key_is_read_from_the_environment_and_redacted(server, tmp_path, monkeypatch):
    server.key = "sk-secret"
    monkeypatch.setenv("MY_KEY", "sk-secret")
    assert ask(connect(tmp_path, server, key_variable="MY_KEY"), QUESTIONS[:2]) == EXPECTED[:2]
    server.key = "sk-other"
    with pytest.raises(PosirError, match=r"rejects the key in MY_KEY .*\*\*\*") as error:
        ask(connect(tmp_path, server, key_variable="MY_KEY", temperature=1))
    assert "sk-secret" not in str(error.value)


def test_a_larger_budget_continues_a_stopped_run(server, tmp_path):
    prices = {"input": 100.0, "output": 400.0}
    with pytest.raises(BudgetError, match=r"0.5 USD .* 0\.4.*llm.budget"):
        ask(connect(tmp_path, server, prices=prices, budget=0.5, in_flight=3))
    answered = sum(server.answered.values())
    spent = (server.input_tokens * 100 + server.output_tokens * 400) / 1e6
    assert 0 < answered < len(QUESTIONS)
    assert 0.4 < spent <= 0.5
    assert ask(connect(tmp_path, server, prices=prices, budget=50)) == EXPECTED
    assert set(server.answered.values()) == {1}


def test_requests_depend_on_the_settings():
    settings = LanguageModelSettings(model="m", endpoints=["http://a/v1"])
    request = PROMPT.build_request(QUESTIONS[0], 0, settings)
    assert (
        request.body["response_format"]["json_schema"]["schema"]
        == Answerability.model_json_schema()
    )
    plain = settings.model_copy(update={"structured_output": "none", "temperature": None})
    assert set(PROMPT.build_request(QUESTIONS[0], 0, plain).body) == {
        "model",
        "messages",
        "max_tokens",
    }
    again = PROMPT.build_request(QUESTIONS[0], 1, settings).body
    # A seed has no effect at temperature 0.
    assert (again["seed"], request.body["temperature"], again["temperature"]) == (1, 0, 0.5)
    keys = {
        PROMPT.build_request(*arguments).key
        for arguments in product(QUESTIONS[:2], (0, 1), (settings, plain))
    }
    assert len(keys) == 8


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>",
        "[]",
        "{}",
        '{"choices": []}',
        '{"choices": [{}]}',
        '{"choices": [{"message": {"content": 3}}]}',
        '{"choices": [{"message": null}]}',
        '{"choices": [{"message": {"content": "a"}, "finish_reason": 3}]}',
        "[" * 9000,
    ],
)
def test_responses_in_other_formats_are_none(text):
    assert read_completion(text, 0) is None


def test_usage_is_reported_or_estimated():
    choice = {"message": {"content": "12345678", "refusal": None}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 7, "completion_tokens": 9}
    for reported, tokens in ((usage, (7, 9)), ({"prompt_tokens": "x"}, (1, 2))):
        completion = read_completion(json.dumps({"choices": [choice], "usage": reported}), 1)
        assert (completion.input_tokens, completion.output_tokens) == tokens


def test_a_response_in_another_format_raises_posir_error(server, tmp_path):
    server.page = "<html>busy</html>"
    with pytest.raises(PosirError, match=r"chat API .*busy"):
        ask(connect(tmp_path, server), QUESTIONS[:1])
    # Invalid responses are requested again.
    assert sum(server.seen.values()) == 1 + MAX_INVALID_RESPONSES


def test_ctrl_c_finishes_requests_in_flight(server, tmp_path):
    """Run in another process, since the signal is delivered to the main thread."""
    server.seconds = 0.3
    code = (
        "import sys; from pathlib import Path; from "
        "tests.posir_tasks.language_models.test_chat_client import *\n"
        "ask(connect(Path(sys.argv[1]), sys.argv[2], in_flight=2))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), server.url], stderr=subprocess.PIPE, text=True
    )
    while not server.in_flight and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert "Run the same command to continue" in errors
    assert process.returncode != 0
    answered = sum(server.answered.values())
    assert answered in (2, 4)
    saved = sqlite3.connect(tmp_path / "calls.sqlite").execute("SELECT key FROM calls")
    assert {key for (key,) in saved} == set(server.answered)


def test_answers_and_scores_are_kept(tmp_path):
    file = tmp_path / "work" / "calls.sqlite"
    log = CallLog(file)
    log.add("k1", "m", "p", Completion("text\0😀", "stop", 10, 5))
    log.add("k1", "m", "p", Completion("another", "stop", 99, 99))
    log.add("k2", "m", "q", Completion("", "length", 1, 2))
    log.add_scores({bytes([row % 256, row // 256]): row / 7 for row in range(1200)})
    # The first log is not closed, as if the process had been killed.
    again = CallLog(file)
    assert again.find("k1") == Completion("text\0😀", "stop", 10, 5)
    assert again.find("k3") is None
    assert again.load_usage() == {("m", "p"): Usage(1, 10, 5), ("m", "q"): Usage(1, 1, 2)}
    keys = [bytes([row % 256, row // 256]) for row in range(1300)]
    assert again.find_scores(keys) == {key: row / 7 for row, key in enumerate(keys[:1200])}


def test_invalid_or_newer_logs_are_rejected(tmp_path):
    (tmp_path / "text").write_text("not a database " * 100)
    with pytest.raises(PosirError, match="corrupt"):
        CallLog(tmp_path / "text")
    with sqlite3.connect(tmp_path / "newer") as database:
        database.execute("PRAGMA user_version=99")
    with pytest.raises(NewerSchemaError, match="has schema 99"):
        CallLog(tmp_path / "newer")
